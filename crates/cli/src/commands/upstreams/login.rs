//! `countersign upstreams login` and `logout`: a person signs in to an upstream with their browser; the tokens are kept in a
//! file only they can read, and the gateway shows and renews them from then on.

use std::process::{Command, Stdio};
use std::time::Duration;

use clap::Args;
use countersign_gateway::assemble;
use countersign_gateway::upstreams::mcp::signin::{KeysFault, SignIn};
use countersign_mcp::oauth::OauthFault;
use countersign_policy::refusal::{Code, Refusal};
use serde_json::json;

use crate::cli::Cli;
use crate::command_result::{Answer, CommandError, CommandResult};
use crate::local_gateway::{ResolvedConfig, keys};
use crate::output::{BOLD, DIM, GOOD, OutputSettings, paint, visible};
use crate::runtime::{Threads, runtime};

pub(super) const LOGIN_EXAMPLES: &str = "Examples:
  countersign upstreams login docs
  countersign upstreams login docs --no-browser --port 7879";
pub(super) const LOGOUT_EXAMPLES: &str = "Examples:
  countersign upstreams logout docs";

/// How long a person has to agree.
const PATIENCE: Duration = Duration::from_secs(300);

#[derive(Args, Debug)]
pub(crate) struct UpstreamLoginArgs {
    /// Its name in the configuration
    name: String,

    /// Only show the address, do not open a browser
    #[arg(long)]
    no_browser: bool,

    /// Where on this machine the answer comes back to; any free port by default
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    port: u16,
}

#[derive(Args, Debug)]
pub(crate) struct UpstreamLogoutArgs {
    /// Its name in the configuration
    name: String,
}

pub(super) fn login(args: &UpstreamLoginArgs, cli: &Cli, voice: OutputSettings) -> CommandResult {
    let blueprint = ResolvedConfig::read(cli)?;
    let (spec, known) = blueprint.sign_in(&args.name)?;
    let keys = keys().ok_or_else(homeless)?;
    let name = visible(&args.name);
    runtime(Threads::Workers(2))?.block_on(async {
        let begun = SignIn::begin(&spec, assemble::identity(), &known, keys, args.port).await;
        let Some(attempt) = begun.map_err(|fault| trouble(&args.name, &fault))? else {
            let text = format!("`{name}` lets us in as we are: there is nothing to sign in to\n");
            return Ok(Answer::text(text).with("upstream", args.name.as_str()).with("signed_in", false));
        };
        let issuer = visible(attempt.issuer()).to_string();
        voice.tell(&format!(
            "Sign in to {} at {} within {} minutes:\n\n  {}\n\n",
            paint(BOLD, &name),
            paint(BOLD, &issuer),
            PATIENCE.as_secs() / 60,
            visible(attempt.address())
        ));
        if !args.no_browser && voice.is_watched() {
            open(attempt.address());
        }
        let finished = tokio::select! {
            finished = attempt.finish(PATIENCE) => finished,
            _ = tokio::signal::ctrl_c() => Err(OauthFault::Late.into()),
        };
        let key = finished.map_err(|fault| trouble(&args.name, &fault))?;
        let scope = key.scope.clone().unwrap_or_default();
        let renewed = if key.refresh_token.is_some() { "renewed by itself" } else { "until the token ends" };
        let mut text = format!("{} signed in to {name} at {issuer}\n", paint(GOOD, "ok"));
        text.push_str(&format!("  {} {renewed}\n", paint(DIM, "holds ")));
        if !scope.is_empty() {
            text.push_str(&format!("  {} {}\n", paint(DIM, "scopes"), visible(&scope)));
        }
        let signed = json!({
            "issuer": key.guard.issuer,
            "scope": key.scope,
            "renewable": key.refresh_token.is_some(),
            "expires_at": key.expires_at.and_then(|at| jiff::Timestamp::from_second(at).ok()),
        });
        Ok(Answer::text(text)
            .with("upstream", args.name.as_str())
            .with("signed_in", true)
            .with("sign_in", signed))
    })
}

pub(super) fn logout(args: &UpstreamLogoutArgs, cli: &Cli, _voice: OutputSettings) -> CommandResult {
    let blueprint = ResolvedConfig::read(cli)?;
    let (spec, _) = blueprint.sign_in(&args.name)?;
    let keys = keys().ok_or_else(homeless)?;
    let was = runtime(Threads::Workers(2))?
        .block_on(keys.forget(&spec.url))
        .map_err(|fault| trouble(&args.name, &fault))?;
    let name = visible(&args.name);
    let text = if was {
        format!("signed out of `{name}`: its tokens are gone from this machine\n")
    } else {
        format!("nobody was signed in to `{name}`\n")
    };
    Ok(Answer::text(text).with("upstream", args.name.as_str()).with("signed_out", was))
}

/// Opens the person's browser; where there is none, the address was shown.
fn open(address: &str) {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let quiet = Command::new(program)
        .arg(address)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    drop(quiet);
}

fn homeless() -> CommandError {
    let refusal = Refusal::new(Code::CredentialRequired, "there is no home folder to keep tokens in");
    CommandError::refused(refusal, "set HOME")
}

fn trouble(name: &str, fault: &KeysFault) -> CommandError {
    let message = format!("nobody is signed in to `{}`: {}", visible(name), visible(&fault.to_string()));
    let (code, next) = match fault {
        KeysFault::File { path, .. } => (Code::CredentialRequired, format!("mend {}", path.display())),
        KeysFault::Guard(OauthFault::NoRegistration(_)) => (
            Code::CredentialRequired,
            format!(
                "register a client there, and write oauth = {{ client_id = \"…\" }} under [upstreams.{name}]"
            ),
        ),
        KeysFault::Guard(OauthFault::Late | OauthFault::Forged(_) | OauthFault::Refused { .. }) => {
            (Code::CredentialRequired, format!("countersign upstreams login {name}"))
        }
        KeysFault::Guard(
            OauthFault::Unreachable { .. }
            | OauthFault::Insecure(_)
            | OauthFault::NoGuard(_)
            | OauthFault::Mismatch { .. }
            | OauthFault::NoPkce(_)
            | OauthFault::Here(_),
        ) => (Code::UpstreamUnavailable, format!("countersign upstreams test {name}")),
    };
    CommandError::refused(Refusal::new(code, message), next)
}
