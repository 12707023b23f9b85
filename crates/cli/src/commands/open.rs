//! `countersign open`: the desk in a browser, signed in by a link that works once, for a minute. The link's code never
//! reaches a server log: it is in the fragment, behind the `#`.

use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use clap::Args;
use countersign_policy::refusal::{Code, Refusal};
use countersign_store::{Store, StoreUrl, sign_in_digest};
use countersign_web::{SIGN_IN_LIFE, secret};
use jiff::Timestamp;

use crate::cli::Cli;
use crate::command_result::{Answer, CommandError, CommandResult};
use crate::local_gateway::{StoreArgs, with_store};
use crate::output::{Format, GOOD, OutputSettings, exact, paint, visible};
use crate::{browser, person, records};

pub(crate) const EXAMPLES: &str = "Examples:
  countersign open
  countersign open --print
  countersign open --url http://127.0.0.1:7878 --json";

#[derive(Args, Debug)]
pub(crate) struct OpenArgs {
    #[command(flatten)]
    of: StoreArgs,

    /// Print the link and open nothing
    #[arg(long)]
    print: bool,

    /// The URL of the approval page; otherwise that of the last gateway on this store
    #[arg(long, value_name = "URL")]
    url: Option<String>,

    /// The page to open, such as that of a plan
    #[arg(long, value_name = "PATH", default_value = "/")]
    path: String,
}

pub(crate) fn run(args: &OpenArgs, cli: &Cli, voice: OutputSettings) -> CommandResult {
    let url = args.of.url(cli)?;
    with_store(&url, async |store| open(args, &store, &url, voice).await)
}

async fn open(args: &OpenArgs, store: &Store, url: &StoreUrl, voice: OutputSettings) -> CommandResult {
    let fault = |fault| records::trouble(&fault, url);
    let desk = match &args.url {
        Some(desk) => checked(desk)?,
        None => store
            .desk_url()
            .await
            .map_err(fault)?
            .ok_or_else(|| nowhere("no gateway has served a desk here yet"))?,
    };
    if !answers(&desk) {
        return Err(nowhere(&format!("nothing answers at `{}`", visible(&desk))));
    }
    let person = person::prove(store, url, voice).await?;
    let now = Timestamp::now();
    let all = store.credentials().await.map_err(fault)?;
    let credential = all.iter().find(|one| one.id == person.credential);
    let credential = credential.ok_or_else(|| nowhere("your credential is not in this store"))?;
    let code = secret("").ok_or_else(|| nowhere("there is no randomness to make a link from"))?;
    let until = now.checked_add(SIGN_IN_LIFE).unwrap_or(now);
    store.add_sign_in(sign_in_digest(&code), credential, until, now).await.map_err(fault)?;
    let path = if args.path.starts_with('/') { args.path.clone() } else { format!("/{}", args.path) };
    let link = format!("{desk}{path}#code={}", code.expose());
    let asked_to_print = args.print || voice.format == Format::Json;
    let opened = !asked_to_print && browser::open(&link);
    let text = if opened {
        format!("{} {desk} as {}\n", paint(GOOD, "opened"), visible(person.name.as_str()))
    } else {
        format!("{link}\n")
    };
    let mut answer = Answer::text(text)
        .with("url", desk)
        .with("link", link)
        .with("opened", opened)
        .with("expires_at", exact(until));
    answer.warnings = person.warnings;
    if !opened {
        answer
            .warnings
            .push("the link works once, within a minute; anyone who opens it decides as you".to_owned());
    }
    Ok(answer)
}

fn nowhere(message: &str) -> CommandError {
    let refusal = Refusal::new(Code::NotFound, message);
    CommandError::refused(refusal, "start a gateway first: countersign serve --http")
}

/// Only addresses a browser takes, and nothing behind them.
fn checked(desk: &str) -> Result<String, CommandError> {
    let host = desk.strip_prefix("http://").or_else(|| desk.strip_prefix("https://"));
    let host = host.map(|host| host.trim_end_matches('/'));
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-:[]".contains(c);
    match host {
        Some(host) if !host.is_empty() && host.chars().all(plain) => {
            Ok(desk.trim_end_matches('/').to_owned())
        }
        _ => {
            let message = format!("`{}` is no address of a desk", visible(desk));
            Err(CommandError::usage("invalid_value", message, "countersign open --url http://127.0.0.1:7878"))
        }
    }
}

/// Whether something listens at the address.
pub(crate) fn answers(desk: &str) -> bool {
    let (usual, host) = match desk.split_once("://") {
        Some(("https", host)) => (443, host),
        Some((_, host)) => (80, host),
        None => return false,
    };
    let with_port = if host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) {
        host.to_owned()
    } else {
        format!("{host}:{usual}")
    };
    let Ok(addresses) = with_port.to_socket_addrs() else { return false };
    addresses.into_iter().any(|address| TcpStream::connect_timeout(&address, Duration::from_secs(2)).is_ok())
}
