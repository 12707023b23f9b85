//! `countersign tools classify`: which tools without annotations most likely only read, shown as one table per server. What is
//! accepted becomes a rule about exactly that definition. Proposes reads only, and decides nothing by itself. `init` asks the same.

use anstyle::Style;
use clap::Args;
use countersign_gateway::catalog::{Catalog, Listed};
use countersign_policy::effect::{Confidence, Effect, Proposal, propose};
use countersign_policy::tool::Tool;
use serde_json::json;
use toml_edit::{ArrayOfTables, DocumentMut, Item, Table as TomlTable, TableLike, Value, value};

use super::list::recorded;
use crate::cli::Cli;
use crate::command_result::{Answer, CommandResult};
use crate::config_change::change;
use crate::local_gateway::ResolvedConfig;
use crate::output::{Column, DIM, NAME, OutputSettings, Table, paint, plural, visible};
use crate::person::ask;

pub(crate) const EXAMPLES: &str = "Examples:
  countersign tools classify
  countersign tools classify --upstream slack --yes
  countersign tools classify --json";

#[derive(Args, Debug)]
pub(crate) struct ToolsClassifyArgs {
    /// Only tools of this upstream
    #[arg(long, value_name = "NAME")]
    upstream: Option<String>,

    /// Accept the proposals of high confidence without being asked; the others need an answer
    #[arg(long)]
    yes: bool,
}

/// A tool and what is proposed for it.
#[derive(Clone)]
pub(crate) struct Proposed {
    tool: Tool,
    proposal: Proposal,
}

/// Shows the proposals, asks, writes the rules.
pub(crate) fn run(args: &ToolsClassifyArgs, cli: &Cli, voice: OutputSettings) -> CommandResult {
    let blueprint = ResolvedConfig::read(cli)?;
    let (recorded, started) = recorded(&blueprint)?;
    let wanted = |tool: &Tool| args.upstream.as_ref().is_none_or(|name| tool.upstream.as_str() == name);
    let all = started.as_ref().unwrap_or(&blueprint).with_gateway(voice, async |gateway| {
        let live = gateway.catalog.load_full();
        Ok([&recorded, live.as_ref()]
            .into_iter()
            .flat_map(|catalog| proposals(catalog, &wanted))
            .collect::<Vec<_>>())
    })?;
    if all.is_empty() {
        let text = paint(DIM, "nothing to propose: every tool that looks like a read counts as one");
        return Ok(answer(&format!("{text}\n"), &[], false));
    }
    let accepted = if args.yes { confident(&all) } else { choose(&all, voice) };
    let table = if args.yes || !ask::can_ask(voice) { tables(&all, voice) } else { String::new() };
    if accepted.is_empty() {
        let note = paint(DIM, "nothing was changed; --yes accepts those of high confidence");
        return Ok(answer(&format!("{table}{note}\n"), &all, false));
    }
    let change = change(&blueprint.files, 0, |document| add_rules(document, &accepted))?;
    let what = plural(accepted.len(), "read");
    let done = change.settle(&blueprint.files, true, voice, "accepted", &what)?;
    let mut answer =
        answer(&table, &all, true).with("accepted", accepted.iter().map(name).collect::<Vec<_>>());
    answer.warnings = done.warnings;
    Ok(answer)
}

pub(crate) fn confident(all: &[Proposed]) -> Vec<Proposed> {
    all.iter().filter(|one| one.is_confident()).cloned().collect()
}

/// The tools that are proposed as reads: accepted definitions that would ask today.
pub(crate) fn proposals(catalog: &Catalog, wanted: &dyn Fn(&Tool) -> bool) -> Vec<Proposed> {
    let tools: Vec<&Tool> = catalog.tools().map(|listed| listed.tool.as_ref()).collect();
    let asks = |listed: &&Listed| {
        listed.is_accepted()
            && listed.outlook.effect == Effect::Write
            && !is_pattern(listed.tool.name.as_str())
    };
    let propose = |listed: &Listed| {
        let siblings: Vec<&Tool> =
            tools.iter().copied().filter(|other| other.upstream == listed.tool.upstream).collect();
        let proposal = propose(&listed.tool, &siblings)?;
        Some(Proposed { tool: Tool::clone(&listed.tool), proposal })
    };
    catalog.tools().filter(asks).filter(|listed| wanted(&listed.tool)).filter_map(propose).collect()
}

/// A name that a glob would read as more than itself gets no rule.
fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?', '[', ']', '{', '}', '\\', ',', '!'])
}

impl Proposed {
    fn is_confident(&self) -> bool {
        self.proposal.confidence == Confidence::High
    }
}

/// Asks once for each server, after showing its table; what nobody accepts stays as it is.
pub(crate) fn choose(all: &[Proposed], voice: OutputSettings) -> Vec<Proposed> {
    if !ask::can_ask(voice) {
        return Vec::new();
    }
    let mut accepted = Vec::new();
    for group in all.chunk_by(|one, other| one.tool.upstream == other.tool.upstream) {
        voice.tell(&tables(group, voice));
        accepted.extend(choose_among(group, voice));
    }
    accepted
}

/// One question for one server. Enter accepts those of high confidence; the end of input accepts nothing.
fn choose_among(group: &[Proposed], voice: OutputSettings) -> Vec<Proposed> {
    let sure = confident(group);
    let (what, marks) = match (sure.len(), group.len()) {
        (0, all) => (format!("Count {} as reads?", plural(all, "tool")), "[y/N/details]".to_owned()),
        (some, all) if some == all => {
            (format!("Count {} as reads?", plural(all, "tool")), "[Y/n/details]".to_owned())
        }
        (some, all) => (
            format!("Count {} as reads?", plural(all, "tool")),
            format!("[y/n/details, Enter: the {some} of high confidence]"),
        ),
    };
    loop {
        let Some(typed) = ask::line(voice, &format!("{what} {marks}")) else { return Vec::new() };
        match typed.trim().to_ascii_lowercase().as_str() {
            "" => return sure,
            "y" | "yes" | "a" | "all" => return group.to_vec(),
            "n" | "no" | "none" => return Vec::new(),
            "d" | "details" => return group.iter().filter(|one| accepts(one, voice)).cloned().collect(),
            _ => voice.tell("please answer yes, no or details\n"),
        }
    }
}

/// Shows what one tool says of itself, and asks about it alone.
fn accepts(one: &Proposed, voice: OutputSettings) -> bool {
    let schema = one.tool.input_schema();
    let names = schema.get("properties").and_then(serde_json::Value::as_object);
    let names: Vec<&str> = names.into_iter().flat_map(|all| all.keys()).map(String::as_str).collect();
    let arguments = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let said = one.tool.description().lines().next().unwrap_or_default();
    let name = paint(NAME, visible(&name(one)));
    voice.tell(&format!("{name}\n  {}\n  arguments: {}\n", visible(said), visible(&arguments)));
    ask::yes(voice, "Count it as a read?")
}

pub(crate) fn tables(all: &[Proposed], voice: OutputSettings) -> String {
    let mut text = String::new();
    for group in all.chunk_by(|one, other| one.tool.upstream == other.tool.upstream) {
        let mut table = Table::new(&[
            Column::kept("TOOL"),
            Column::kept("EFFECT"),
            Column::kept("CONFIDENCE"),
            Column::spared("WHY", 1),
        ]);
        for one in group {
            table.row(vec![
                (name(one), NAME),
                (one.proposal.effect.to_string(), Style::new()),
                (one.proposal.confidence.to_string(), Style::new()),
                (one.proposal.why.clone(), DIM),
            ]);
        }
        text.push_str(&table.render(voice.width()));
        text.push('\n');
    }
    text
}

pub(crate) fn name(one: &Proposed) -> String {
    one.tool.full_name().to_string()
}

pub(crate) fn upstream(one: &Proposed) -> &str {
    one.tool.upstream.as_str()
}

fn answer(text: &str, all: &[Proposed], changed: bool) -> Answer {
    Answer::text(text.to_owned()).with("proposals", described(all)).with("changed", changed)
}

pub(crate) fn described(all: &[Proposed]) -> Vec<serde_json::Value> {
    all.iter()
        .map(|one| {
            json!({
                "tool": name(one),
                "effect": one.proposal.effect,
                "why": one.proposal.why,
                "confidence": one.proposal.confidence,
                "fingerprint": one.tool.fingerprint.hex(),
            })
        })
        .collect()
}

/// Rules behind all others, so that what a person wrote wins; rules about former definitions of the same tools go.
pub(crate) fn add_rules(document: &mut DocumentMut, accepted: &[Proposed]) {
    let names: Vec<String> = accepted.iter().map(name).collect();
    let is_former = |rule: &dyn TableLike| {
        let text = |key: &str| rule.get(key).and_then(Item::as_str);
        rule.contains_key("fingerprint")
            && text("effect") == Some("read")
            && text("match").is_some_and(|glob| names.iter().any(|name| name == glob))
    };
    let new = accepted.iter().map(|one| {
        let mut rule = TomlTable::new();
        rule.insert("match", value(name(one)));
        rule.insert("fingerprint", value(one.tool.fingerprint.hex()));
        rule.insert("effect", value("read"));
        rule
    });
    let rules = document.entry("rules").or_insert(Item::ArrayOfTables(ArrayOfTables::new()));
    if let Some(tables) = rules.as_array_of_tables_mut() {
        tables.retain(|rule| !is_former(rule));
        tables.extend(new);
    } else if let Some(list) = rules.as_array_mut() {
        list.retain(|rule| !rule.as_inline_table().is_some_and(|one| is_former(one)));
        list.extend(new.map(|rule| Value::from(rule.into_inline_table())));
    }
}
