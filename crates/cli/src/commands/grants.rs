//! `countersign grants`: approvals given ahead, listed and taken back. They are given with `approve --grant`.

use anstyle::Style;
use clap::{Args, Subcommand};
use countersign_policy::grant::Allowed;
use countersign_policy::redact::Redactor;
use countersign_policy::refusal::{Code, Refusal};
use countersign_policy::rules::RuleSet;
use countersign_store::{GrantFilter as Which, GrantRow, Store, StoreUrl};
use countersign_web::views;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cli::Cli;
use crate::command_result::{Answer, CommandError, CommandResult};
use crate::commands::plans::find::PartialId;
use crate::commands::plans::sheet;
use crate::local_gateway::StoreArgs;
use crate::output::{BAD, Column, DIM, GOOD, NAME, OutputSettings, Table, paint, visible};
use crate::{config_file, person, records};

#[derive(Args, Debug)]
pub(crate) struct GrantsArgs {
    #[command(flatten)]
    of: StoreArgs,

    #[command(subcommand)]
    command: GrantsCommand,
}

#[derive(Subcommand, Debug)]
pub(crate) enum GrantsCommand {
    /// List grants that can still be used
    #[command(after_help = "Examples:\n  countersign grants list\n  countersign grants list --all --json")]
    List {
        /// Include grants that are used up, expired or revoked
        #[arg(long)]
        all: bool,
    },
    /// Revoke a grant
    #[command(after_help = "Examples:\n  countersign grants revoke grt_01KA4Z7Q3V9M5T2X8R6W0YGRNT")]
    Revoke {
        /// The grant's id, or at least 6 characters of its beginning or end
        id: String,
    },
}

pub(crate) fn run(grants: &GrantsArgs, cli: &Cli, voice: OutputSettings) -> CommandResult {
    let url = grants.of.url(cli)?;
    match &grants.command {
        GrantsCommand::List { all } => {
            let which = if *all { Which::All } else { Which::Usable(Timestamp::now()) };
            list(which, &url, &rules(cli), voice)
        }
        GrantsCommand::Revoke { id } => {
            records::with(&url, async |store| revoke(id, &store, &url, voice).await)
        }
    }
}

/// The rules in force, for what they keep out of records; none where there is no good configuration.
fn rules(cli: &Cli) -> RuleSet {
    let files = config_file::find(&cli.config).ok().flatten();
    files.and_then(|files| files.parse().ok()).map(|config| config.rules).unwrap_or_default()
}

fn list(which: Which, url: &StoreUrl, rules: &RuleSet, voice: OutputSettings) -> CommandResult {
    let (rows, redactor) = records::with(url, async |store| {
        let rows = store.grants(which).await.map_err(|fault| records::trouble(&fault, url))?;
        Ok((rows, Redactor::new(store.salt())))
    })?;
    let now = Timestamp::now();
    let mut table = Table::new(&[
        Column::kept("GRANT"),
        Column::kept("STATE"),
        Column::kept("TOOL"),
        Column::spared("FOR", 2),
        Column::kept("USES"),
        Column::kept("LEFT"),
        Column::spared("BY", 3),
        Column::spared("ARGUMENTS", 4),
    ]);
    for row in &rows {
        let grant = &row.grant;
        let live = views::grant_state(row, now) == views::GrantState::Live;
        table.row(vec![
            (grant.id.to_string(), Style::new()),
            (views::grant_state(row, now).to_string(), if live { GOOD } else { DIM }),
            (grant.tool.clone(), NAME),
            (grant.principal.to_string(), Style::new()),
            (grant.uses_left.to_string(), Style::new()),
            (if live { sheet::left(grant.expires, now) } else { String::new() }, Style::new()),
            (grant.by.to_string(), Style::new()),
            (in_words(row, rules, &redactor), DIM),
        ]);
    }
    let text = match (rows.is_empty(), voice.is_watched()) {
        (true, true) => {
            format!("{}\n", paint(DIM, "no grants; one is given with countersign approve ID --grant"))
        }
        (true, false) => String::new(),
        (false, _) => table.render(voice.width()),
    };
    let described: Vec<_> = rows.iter().map(|row| views::grant(row, rules, &redactor, now)).collect();
    Ok(Answer::text(text).with("grants", json!(described)))
}

fn in_words(row: &GrantRow, rules: &RuleSet, redactor: &Redactor) -> String {
    let word = |(name, value): (&String, &Value)| match row.grant.arguments.get(name) {
        Some(Allowed::Any) => format!("{name}=any"),
        Some(Allowed::Exact(_)) | None => format!("{name}={value}"),
    };
    views::grant_arguments(row, rules, redactor).iter().map(word).collect::<Vec<_>>().join(" ")
}

async fn revoke(typed: &str, store: &Store, url: &StoreUrl, voice: OutputSettings) -> CommandResult {
    const LIST: &str = "countersign grants list --all";
    let fault = |fault| records::trouble(&fault, url);
    let person = person::prove(store, url, voice).await?;
    let absent = Refusal::new(Code::NotFound, format!("there is no grant `{}` in `{url}`", visible(typed)));
    let all = store.grants(Which::All).await.map_err(fault)?;
    let meant = PartialId::of("grt_", typed).one(all, |row| row.grant.id.to_string(), absent, LIST)?;
    let id = &meant.grant.id;
    let Some(ledger_id) = store.revoke_grant(id, &person.name, Timestamp::now()).await.map_err(fault)? else {
        let refusal = Refusal::new(Code::NotFound, format!("`{id}` was revoked before"));
        return Err(CommandError::refused(refusal, LIST));
    };
    let text = format!("{} {id}: {}\n", paint(BAD, "revoked"), visible(&meant.grant.tool));
    let mut answer = Answer::text(text).with("grant_id", id.as_str()).with("ledger_id", ledger_id.as_str());
    answer.warnings = person.warnings;
    Ok(answer)
}
