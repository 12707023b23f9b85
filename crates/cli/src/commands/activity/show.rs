//! `countersign activity show`: one row of the ledger, whole.

use clap::Args;
use countersign_policy::record::HostInfo;
use countersign_policy::refusal::Code;
use countersign_store::StoreUrl;
use countersign_store::ledger::{Json, LedgerRow};
use serde_json::json;

use super::rows;
use crate::command_result::{Answer, CommandResult};
use crate::commands::plans::find;
use crate::output::{BOLD, DIM, exact, paint, span, visible};
use crate::records;

pub(crate) const EXAMPLES: &str = "Examples:
  countersign activity show 01KA4Z7Q3V9M5T2X8R6W0YBCDE
  countersign activity show 01KA4Z7Q3V9M5T2X8R6W0YBCDE --json";

#[derive(Args, Debug)]
pub(crate) struct ActivityShowArgs {
    /// The row's id, as `activity list` shows it or in full; at least 5 characters of its beginning or end
    id: String,
}

pub(crate) fn run(args: &ActivityShowArgs, url: &StoreUrl) -> CommandResult {
    let row = records::with_read_only(url, async |store| find::row(&store, url, &args.id).await)?;
    Ok(Answer::text(text(&row)).with("activity", json!(row)))
}

fn text(row: &LedgerRow) -> String {
    let mut sheet = ActivityTextBuilder(format!(
        "{}  {} {}\n",
        paint(BOLD, visible(row.id.as_str())),
        row.kind,
        paint(rows::status_style(row.status), row.status)
    ));
    sheet.line("time", Some(exact(row.time)));
    sheet.line("who", row.principal.as_ref().map(ToString::to_string));
    sheet.line("role", row.role.map(|role| role.to_string()));
    sheet.line("session", row.session.as_ref().map(ToString::to_string));
    sheet.line("request", row.request_id().map(|id| id.to_string()));
    sheet.line("came by", row.source.map(|source| source.to_string()));
    sheet.line("host", row.host().map(|host| host_text(&host)));
    sheet.line("tool", row.tool.as_ref().map(|_| tool(row)));
    sheet.line("call tool", row.variant.map(|variant| variant.call_tool().to_owned()));
    sheet.line("effect", row.effect.map(|effect| effect.to_string()));
    sheet.line("mode", row.mode.map(|mode| mode.to_string()));
    sheet.line("intent", row.intent.as_ref().and_then(|intent| intent.operation_type.clone()));
    sheet.line("sensitivity", row.intent.as_ref().and_then(|intent| intent.data_sensitivity.clone()));
    sheet.line("reason", row.intent.as_ref().and_then(|intent| intent.reason.clone()));
    sheet.line("code", row.code.as_deref().map(code));
    sheet.line("took", row.duration_us.map(|us| span(std::time::Duration::from_micros(us))));
    sheet.line("plan", row.plan_id.as_ref().map(ToString::to_string));
    sheet.line(
        "approval",
        row.approval().map(|approval| {
            let grant = approval.grant.map(|grant| format!(", grant {grant}")).unwrap_or_default();
            format!("{} by {}, {}{grant}", approval.strength, approval.by, approval.channel)
        }),
    );
    sheet.json("arguments", row.arguments.as_ref());
    sheet.json("detail", row.detail.as_ref());
    sheet.0.push('\n');
    sheet.quiet("chain", format!("{} #{}", row.writer, row.sequence));
    sheet.quiet("hash", row.hash.hex());
    sheet.quiet("before it", row.prev_hash.hex());
    for (name, digest) in
        [("arguments", row.arguments_digest), ("plan hash", row.plan_hash), ("result", row.result_digest)]
    {
        if let Some(digest) = digest {
            sheet.quiet(name, digest.hex());
        }
    }
    sheet.0
}

/// `program version in folder`, as far as it is known.
fn host_text(host: &HostInfo) -> String {
    let folder = host.folder.as_deref().map(|folder| format!("in {folder}"));
    let words = [host.program.as_deref(), host.version.as_deref(), folder.as_deref()];
    words.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn tool(row: &LedgerRow) -> String {
    [row.upstream.as_ref().map(|name| name.as_str()), row.tool.as_ref().map(|name| name.as_str())]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(":")
}

/// A code, and what it means where it is one of ours.
fn code(code: &str) -> String {
    match Code::ALL.iter().find(|known| known.as_str() == code) {
        Some(known) => format!("{code} ({})", known.meaning()),
        None => code.to_owned(),
    }
}

struct ActivityTextBuilder(String);

impl ActivityTextBuilder {
    fn line(&mut self, name: &str, value: Option<String>) {
        if let Some(value) = value {
            self.0.push_str(&format!("  {} {}\n", paint(DIM, format_args!("{name:<11}")), visible(&value)));
        }
    }

    fn quiet(&mut self, name: &str, value: String) {
        let line = format!("  {name:<11} {}", visible(&value));
        self.0.push_str(&format!("{}\n", paint(DIM, line)));
    }

    /// JSON in full, indented; each line made safe on its own.
    fn json(&mut self, name: &str, value: Option<&Json>) {
        let Some(value) = value else { return };
        let pretty = format!("{:#}", value.value());
        let mut lines = pretty.lines();
        self.line(name, lines.next().map(str::to_owned));
        for line in lines {
            self.0.push_str(&format!("  {:<11} {}\n", "", visible(line)));
        }
    }
}
