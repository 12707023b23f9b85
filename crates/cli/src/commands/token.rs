//! `countersign token`: credentials that open lines, made, listed and revoked by a person. A secret is shown once, here,
//! and kept nowhere.

use std::time::Duration;

use anstyle::Style;
use clap::{Args, Subcommand};
use countersign_config::Gateway;
use countersign_policy::duration;
use countersign_policy::effect::Effect;
use countersign_policy::ids::Secret;
use countersign_policy::mode::Mode;
use countersign_policy::refusal::{Code, Refusal};
use countersign_policy::role::Role;
use countersign_store::{Credential, Store, StoreUrl, secret_digest};
use countersign_web::views;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::cli::Cli;
use crate::command_result::{Answer, CommandError, CommandResult};
use crate::commands::plans::find::PartialId;
use crate::commands::plans::sheet;
use crate::config_file::{self, ConfigFiles};
use crate::local_gateway::{StoreArgs, with_store};
use crate::output::{
    BAD, Column, DIM, Format, GOOD, NAME, OutputSettings, Table, exact, paint, shown, visible,
};
use crate::{person, records};

#[derive(Args, Debug)]
pub(crate) struct TokenArgs {
    #[command(flatten)]
    of: StoreArgs,

    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Subcommand, Debug)]
pub(crate) enum TokenCommand {
    /// Create a credential and print its secret once
    #[command(after_help = "Examples:
  countersign token create --role agent --name claude-code --may-vouch
  countersign token create --role agent --name ci --expires 30d
  countersign token create --role agent --effects read --max-mode plan
  countersign token create --role agent --name langchain --any-session
  countersign token create --role human --name ada")]
    Create(Create),
    /// List credentials, without their secrets
    #[command(after_help = "Examples:\n  countersign token list\n  countersign token list --json")]
    List,
    /// Revoke a credential
    #[command(after_help = "Examples:\n  countersign token revoke crd_01KA4Z7Q3V9M5T2X8R6W0YCRED")]
    Revoke {
        /// The credential's id, or at least 6 characters of its beginning or end
        id: String,
    },
}

#[derive(Args, Debug)]
pub(crate) struct Create {
    /// The role of its connections: agent or human
    #[arg(long, value_name = "ROLE")]
    role: Role,

    /// The principal of its connections
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Only these upstreams, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    upstreams: Option<Vec<String>>,

    /// Only tools of these effects, separated by commas: read, write, destructive
    #[arg(long, value_name = "EFFECTS", value_delimiter = ',')]
    effects: Option<Vec<Effect>>,

    /// The highest mode: ask, plan or execute
    #[arg(long, value_name = "MODE")]
    max_mode: Option<Mode>,

    /// The program that holds it may answer confirmations in its own dialogs: its answers count as strength `host`
    ///
    /// For hosts that connect over HTTP and keep the credential out of the agent's reach. Without it their answers count as
    /// the agent's own.
    #[arg(long)]
    may_vouch: bool,

    /// All its connections are one session: a confirm token, a plan and a mode of one fit every other
    ///
    /// For clients that open a session for each call, such as LangChain's adapters. Each token still runs its plan once, and
    /// fits no other credential.
    #[arg(long)]
    any_session: bool,

    /// How long it is valid, such as 12h or 30d; otherwise until it is revoked
    #[arg(long, value_name = "SPAN", value_parser = duration::parse)]
    expires: Option<Duration>,
}

pub(crate) fn run(token: &TokenArgs, cli: &Cli, voice: OutputSettings) -> CommandResult {
    let url = token.of.url(cli)?;
    match &token.command {
        // Credentials may be made before the first gateway runs.
        TokenCommand::Create(args) => with_store(&url, async |store| {
            let files = config_file::find(&cli.config)?.unwrap_or_else(ConfigFiles::none);
            let mcp = mcp_url(&files.parse()?.gateway);
            create(args, &store, &url, &mcp, voice).await
        }),
        TokenCommand::List => list(&url, voice),
        TokenCommand::Revoke { id } => {
            records::with(&url, async |store| revoke(id, &store, &url, voice).await)
        }
    }
}

async fn create(
    args: &Create,
    store: &Store,
    url: &StoreUrl,
    mcp: &str,
    voice: OutputSettings,
) -> CommandResult {
    let fault = |fault| records::trouble(&fault, url);
    let person = person::prove(store, url, voice).await?;
    let now = Timestamp::now();
    let mut made = person::new_credential("", args.role, now)?;
    made.name = match &args.name {
        Some(name) => name.trim().to_owned(),
        None => {
            let tail: String = made.id.as_str().chars().skip(24).collect::<String>().to_ascii_lowercase();
            format!("{}-{tail}", args.role)
        }
    };
    check_name(&made, &store.credentials().await.map_err(fault)?)?;
    made.scopes = scopes(args);
    made.expires = args.expires.map(|span| now.checked_add(span).unwrap_or(Timestamp::MAX));
    let secret = person::new_secret(args.role)?;
    let ledger_id =
        store.add_credential(&made, secret_digest(&secret), &person.name, now).await.map_err(fault)?;
    let mut answer = Answer::text(format!("{}\n", secret.expose()))
        .with("credential", json!(views::credential(&made, now)))
        .with("secret", secret.expose())
        // The name of the thing that was asked for, too.
        .with("token", secret.expose())
        .with("ledger_id", ledger_id.as_str());
    if args.role == Role::Agent {
        answer = answer.with("connect", connect_data(mcp, &secret));
        match (voice.format, voice.is_watched()) {
            (Format::Json, _) => {}
            (Format::Text, true) => voice.tell(&connect_lines(mcp, secret.expose())),
            // Off a terminal stderr may end in a log: the secret is on stdout only.
            (Format::Text, false) => voice.tell(&connect_lines(mcp, VARIABLE_VALUE)),
        }
    }
    let until = made.expires.map(|until| format!(" until {}", exact(until))).unwrap_or_default();
    answer.warnings = person.warnings;
    answer.warnings.push(format!(
        "`{}` opens {} lines as `{}`{until}; it is shown this once and kept nowhere",
        made.id, made.role, made.name
    ));
    Ok(answer)
}

/// The environment variable of the lines to paste.
const VARIABLE: &str = "COUNTERSIGN_TOKEN";
const VARIABLE_VALUE: &str = "$COUNTERSIGN_TOKEN";

/// Where hosts reach the gateway of a configuration by URL.
pub(crate) fn mcp_url(gateway: &Gateway) -> String {
    let scheme = if gateway.tls.is_some() { "https" } else { "http" };
    let authority = match gateway.hosts.first() {
        Some(name) => format!("{name}:{}", gateway.listen.port()),
        None => gateway.listen.to_string(),
    };
    format!("{scheme}://{authority}/mcp")
}

/// What a host has to be given, as it is pasted: header, variable, and the commands of hosts that have one.
fn connect_with(mcp: &str, secret: &str) -> [(&'static str, String); 4] {
    let header = format!("Authorization: Bearer {secret}");
    [
        ("header", header.clone()),
        ("environment", format!("export {VARIABLE}={secret}")),
        ("claude_code", format!("claude mcp add --transport http countersign {mcp} --header \"{header}\"")),
        ("codex", format!("codex mcp add countersign --url {mcp} --bearer-token-env-var {VARIABLE}")),
    ]
}

fn connect_data(mcp: &str, secret: &Secret) -> Value {
    let lines = connect_with(mcp, secret.expose()).into_iter();
    let mut data: Map<String, Value> = lines.map(|(name, line)| (name.to_owned(), line.into())).collect();
    data.insert("url".into(), mcp.into());
    Value::Object(data)
}

fn connect_lines(mcp: &str, secret: &str) -> String {
    let lines = connect_with(mcp, secret).map(|(name, line)| {
        // `export NAME=$NAME` says nothing: the person who captured the secret names the variable.
        let line = match (name, secret) {
            ("environment", VARIABLE_VALUE) => format!("{VARIABLE}=$(countersign token create ...)"),
            _ => line,
        };
        format!("  {:<13}{line}\n", name.replace('_', " "))
    });
    format!("to connect a host to {mcp}:\n{}", lines.concat())
}

/// Names tell people and agents apart in the ledger: one name is not both.
pub(crate) fn check_name(made: &Credential, all: &[Credential]) -> Result<(), CommandError> {
    let plain = |c: char| c.is_alphanumeric() || "._-@+".contains(c);
    let other = all.iter().find(|one| one.name == made.name && one.role != made.role);
    let why = if made.name.is_empty() || made.name.len() > 64 || !made.name.chars().all(plain) {
        "a name is made of letters, digits and `._-@+`".to_owned()
    } else if made.name.starts_with("local-") || made.name.starts_with("host") {
        "names that begin with `local-` or `host` are the gateway's own".to_owned()
    } else if let Some(other) = other {
        format!("it is the name of a credential for role {}", other.role)
    } else {
        return Ok(());
    };
    let message = format!("`{}` can't be the name: {why}", visible(&made.name));
    Err(CommandError::usage(
        "invalid_value",
        message,
        format!("countersign token create --role {} --name NAME", made.role),
    ))
}

/// As the gateway reads them: what is not limited is not named.
fn scopes(args: &Create) -> Value {
    let mut scopes = Map::new();
    if let Some(upstreams) = &args.upstreams {
        scopes.insert("upstreams".into(), json!(upstreams));
    }
    if let Some(effects) = &args.effects {
        scopes.insert("effects".into(), json!(effects));
    }
    if let Some(mode) = args.max_mode {
        scopes.insert("max_mode".into(), json!(mode));
    }
    if args.may_vouch {
        scopes.insert("may_vouch".into(), json!(true));
    }
    if args.any_session {
        scopes.insert("any_session".into(), json!(true));
    }
    Value::Object(scopes)
}

fn list(url: &StoreUrl, voice: OutputSettings) -> CommandResult {
    let all = records::with(url, async |store| {
        store.credentials().await.map_err(|fault| records::trouble(&fault, url))
    })?;
    let now = Timestamp::now();
    let zone = sheet::zone(voice, now);
    let mut table = Table::new(&[
        Column::kept("CREDENTIAL"),
        Column::kept("ROLE"),
        Column::kept("NAME"),
        Column::kept("STATE"),
        Column::spared("LIMITS", 2),
        Column::spared("MADE", 3),
        Column::spared("EXPIRES", 1),
    ]);
    for one in &all {
        let style = if one.is_live(now) { GOOD } else { BAD };
        table.row(vec![
            (one.id.to_string(), Style::new()),
            (one.role.to_string(), Style::new()),
            (one.name.clone(), NAME),
            (views::credential_state(one, now).to_string(), style),
            (limits(&one.scopes), DIM),
            (shown(one.created, &zone), DIM),
            (one.expires.map(|until| shown(until, &zone)).unwrap_or_default(), DIM),
        ]);
    }
    let text = match (all.is_empty(), voice.is_watched()) {
        (true, true) => format!("{}\n", paint(DIM, "no credentials")),
        (true, false) => String::new(),
        (false, _) => table.render(voice.width()),
    };
    let described: Vec<_> = all.iter().map(|one| views::credential(one, now)).collect();
    Ok(Answer::text(text).with("credentials", json!(described)))
}

fn limits(scopes: &Value) -> String {
    let Some(members) = scopes.as_object() else { return String::new() };
    let words = |value: &Value| match value {
        Value::Array(items) => items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(","),
        Value::String(word) => word.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => value.to_string(),
    };
    members.iter().map(|(name, value)| format!("{name}={}", words(value))).collect::<Vec<_>>().join(" ")
}

async fn revoke(typed: &str, store: &Store, url: &StoreUrl, voice: OutputSettings) -> CommandResult {
    const LIST: &str = "countersign token list";
    let fault = |fault| records::trouble(&fault, url);
    let person = person::prove(store, url, voice).await?;
    let message = format!("there is no credential `{}` in `{url}`", visible(typed));
    let all = store.credentials().await.map_err(fault)?;
    let absent = Refusal::new(Code::NotFound, message);
    let meant = PartialId::of("crd_", typed).one(all, |one| one.id.to_string(), absent, LIST)?;
    let now = Timestamp::now();
    let Some(ledger_id) = store.revoke_credential(&meant.id, &person.name, now).await.map_err(fault)? else {
        let message = format!("`{}` of `{}` was revoked before", meant.id, visible(&meant.name));
        return Err(CommandError::refused(Refusal::new(Code::NotFound, message), LIST));
    };
    let text = format!("{} {} of {}\n", paint(BAD, "revoked"), meant.id, visible(&meant.name));
    let mut answer = Answer::text(text)
        .with(
            "credential",
            json!(views::credential(&Credential { revoked: Some(now), ..meant.clone() }, now)),
        )
        .with("ledger_id", ledger_id.as_str());
    answer.warnings = person.warnings;
    if meant.id == person.credential {
        answer
            .warnings
            .push("it was your own: this machine decides nothing in this store any more".to_owned());
    }
    Ok(answer)
}
