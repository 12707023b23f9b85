//! `countersign tools list` and `tools search`: tools as a table, each with what a call of it needs and why.

use anstyle::Style;
use clap::Args;
use countersign_core::config::Config;
use countersign_core::effect::Effect;
use countersign_desk::views;
use countersign_gateway::catalog::{Listed, Stand};
use countersign_gateway::search::Query;
use serde_json::json;

use crate::answer::{Answer, Outcome};
use crate::cli::Cli;
use crate::commands::plans::sheet::effect_style;
use crate::commands::upstreams::unwell;
use crate::house::Blueprint;
use crate::output::{BAD, Column, DIM, GOOD, NAME, Table, Voice, WARN, paint, plural};

/// Shown under the help.
pub(crate) const LIST_EXAMPLES: &str = "Examples:
  countersign tools list
  countersign tools list --upstream github --effect destructive
  countersign tools list --withheld";

/// Shown under the help.
pub(crate) const SEARCH_EXAMPLES: &str = "Examples:
  countersign tools search 'close an issue'
  countersign tools search delete --limit 5 --json";

/// What `tools list` takes.
#[derive(Args, Debug)]
pub(crate) struct List {
    /// Only tools of this upstream
    #[arg(long, value_name = "NAME")]
    upstream: Option<String>,

    /// Only tools of this effect: read, write or destructive
    #[arg(long, value_name = "EFFECT")]
    effect: Option<Effect>,

    /// Only tools that wait for a person or can't be used
    #[arg(long)]
    withheld: bool,
}

/// What `tools search` takes.
#[derive(Args, Debug)]
pub(crate) struct Search {
    /// A few words, or a name
    query: String,

    /// How many, at most 100
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=100))]
    limit: u64,
}

/// Lists them.
pub(crate) fn run(args: &List, cli: &Cli, voice: Voice) -> Outcome {
    let blueprint = Blueprint::read(cli)?;
    blueprint.inhabit(voice, async |house| {
        let catalog = house.catalog.load_full();
        let wanted = |listed: &&Listed| {
            args.upstream.as_ref().is_none_or(|name| listed.tool.upstream.as_str() == name)
                && args.effect.is_none_or(|effect| listed.outlook.effect == effect)
                && !(args.withheld && listed.is_accepted())
        };
        let found: Vec<(&Listed, Option<f64>)> =
            catalog.tools().filter(wanted).map(|listed| (listed, None)).collect();
        let mut answer = answer(&found, &blueprint.config, voice);
        answer.warnings.extend(unwell(&house));
        Ok(answer.with("total", found.len()))
    })
}

/// Finds them.
pub(crate) fn search(args: &Search, cli: &Cli, voice: Voice) -> Outcome {
    let blueprint = Blueprint::read(cli)?;
    blueprint.inhabit(voice, async |house| {
        let catalog = house.catalog.load_full();
        let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
        let found = catalog.index().search(&Query::new(&args.query, limit));
        let hits: Vec<(&Listed, Option<f64>)> =
            found.hits.iter().filter_map(|hit| Some((catalog.indexed(hit.doc)?, Some(hit.score)))).collect();
        let mut answer = answer(&hits, &blueprint.config, voice);
        answer.warnings.extend(unwell(&house));
        Ok(answer.with("total", found.total))
    })
}

fn answer(found: &[(&Listed, Option<f64>)], config: &Config, voice: Voice) -> Answer {
    let mut table = Table::new(&[
        Column::kept("TOOL"),
        Column::kept("EFFECT"),
        Column::kept("CONFIRM"),
        Column::spared("STRENGTH", 2),
        Column::kept("STANDS"),
        Column::spared("RULE", 3),
        Column::spared("FLAGS", 1),
        Column::spared("DESCRIPTION", 4),
    ]);
    let mut tools = Vec::new();
    let mut odd = 0;
    for (listed, score) in found {
        let explained = views::explained(listed, config);
        odd += usize::from(!listed.flags.is_empty());
        let (stands, style) = stands(listed);
        let flags = if listed.flags.is_empty() { String::new() } else { plural(listed.flags.len(), "flag") };
        table.row(vec![
            (listed.tool.full_name().to_string(), NAME),
            (listed.outlook.effect.to_string(), effect_style(listed.outlook.effect)),
            (listed.outlook.kind.to_string(), Style::new()),
            (listed.outlook.strength.to_string(), Style::new()),
            (stands.to_owned(), style),
            (views::deciding_rule(&explained).unwrap_or_default(), DIM),
            (flags, WARN),
            (first_line(listed.tool.description()), DIM),
        ]);
        tools.push(json!(views::tool(listed, &explained, *score)));
    }
    let text = match (found.is_empty(), voice.is_watched()) {
        (true, true) => format!("{}\n", paint(DIM, "no tools")),
        (true, false) => String::new(),
        (false, _) => table.render(voice.width()),
    };
    let mut answer = Answer::text(text).with("tools", tools);
    if odd > 0 {
        let what = plural(odd, "tool");
        answer
            .warnings
            .push(format!("something is odd about {what}: countersign tools show UPSTREAM:TOOL says what"));
    }
    answer
}

/// Where a tool stands, in a word and its colour.
pub(super) fn stands(listed: &Listed) -> (&'static str, Style) {
    let style = match &listed.standing {
        Stand::Accepted => GOOD,
        Stand::Quarantined(withheld) if withheld.reason == "tool_new" => WARN,
        Stand::Changed(_) | Stand::Quarantined(_) => BAD,
    };
    (views::stands(listed), style)
}

fn first_line(text: &str) -> String {
    const LONGEST: usize = 60;
    let line = text.lines().next().unwrap_or_default();
    let cut: String = line.chars().take(LONGEST).collect();
    if cut.len() < text.len() { format!("{}…", cut.trim_end()) } else { cut }
}
