//! `countersign tools list` and `tools search`: tools as a table, each with what a call of it needs and why.

use anstyle::Style;
use clap::Args;
use clap_complete::ArgValueCandidates;
use countersign_config::{Config, Upstream, UpstreamKind};
use countersign_gateway::catalog::{Catalog, Listed, ToolStanding};
use countersign_gateway::search::SearchQuery;
use countersign_policy::effect::Effect;
use countersign_store::ListingOccurrence;
use countersign_web::views;
use serde_json::json;

use crate::cli::Cli;
use crate::command_result::{Answer, CommandError, CommandResult};
use crate::commands::completions::candidates;
use crate::commands::plans::sheet::effect_style;
use crate::commands::upstreams::unwell;
use crate::local_gateway::{ResolvedConfig, with_store};
use crate::output::{BAD, Column, DIM, GOOD, NAME, OutputSettings, Table, WARN, paint, plural};
use crate::records;

pub(crate) const LIST_EXAMPLES: &str = "Examples:
  countersign tools list
  countersign tools list --upstream github --effect destructive
  countersign tools list --withheld";

pub(crate) const SEARCH_EXAMPLES: &str = "Examples:
  countersign tools search 'close an issue'
  countersign tools search delete --limit 5 --json";

#[derive(Args, Debug)]
pub(crate) struct ToolsListArgs {
    /// Only tools of this upstream
    #[arg(long, value_name = "NAME", add = ArgValueCandidates::new(candidates::upstream_names))]
    upstream: Option<String>,

    /// Only tools of this effect: read, write or destructive
    #[arg(long, value_name = "EFFECT")]
    effect: Option<Effect>,

    /// Only tools that wait for a person or can't be used
    #[arg(long)]
    withheld: bool,

    /// Start every upstream and ask it, rather than read what it listed last
    #[arg(long)]
    live: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ToolsSearchArgs {
    /// Keywords, or a name
    query: String,

    /// How many, at most 100
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=100))]
    limit: u64,
}

pub(crate) fn run(args: &ToolsListArgs, cli: &Cli, voice: OutputSettings) -> CommandResult {
    let mut blueprint = ResolvedConfig::read(cli)?;
    if let Some(name) = &args.upstream {
        blueprint.require_upstream(name)?;
        // The others are neither asked nor started.
        blueprint = blueprint.only(|upstream| upstream.id.as_str() == name);
    }
    let (recorded, started) = if args.live { (Catalog::default(), None) } else { recorded(&blueprint)? };
    started.as_ref().unwrap_or(&blueprint).with_gateway(voice, async |gateway| {
        let catalog = gateway.catalog.load_full();
        let wanted = |listed: &&Listed| {
            args.effect.is_none_or(|effect| listed.outlook.effect == effect)
                && !(args.withheld && listed.is_accepted())
        };
        let found: Vec<(&Listed, Option<f64>)> =
            recorded.tools().chain(catalog.tools()).filter(wanted).map(|listed| (listed, None)).collect();
        let mut answer = answer(&found, &blueprint.config, voice);
        answer.warnings.extend(unwell(&gateway));
        Ok(answer.with("total", found.len()))
    })
}

/// The stored lists of upstreams that were listed before, and a gateway for the others alone.
pub(super) fn recorded(
    blueprint: &ResolvedConfig,
) -> Result<(Catalog, Option<ResolvedConfig>), CommandError> {
    let url = &blueprint.url;
    let fault = |fault| records::trouble(&fault, url);
    let remote = |one: &&Upstream| matches!(one.kind, UpstreamKind::Stdio { .. } | UpstreamKind::Http { .. });
    let known = with_store(url, async |store| {
        let mut known = Vec::new();
        for upstream in blueprint.config.upstreams.iter().filter(remote) {
            if store.sight_of(&upstream.id).await.map_err(fault)? == ListingOccurrence::Later {
                let pins = store.pins(&upstream.id).await.map_err(fault)?;
                known.push((upstream.id.clone(), upstream.prefix, pins));
            }
        }
        Ok(known)
    })?;
    let others = blueprint.only(|upstream| known.iter().all(|(id, ..)| *id != upstream.id));
    Ok((Catalog::of_pins(known, &blueprint.config.rules), Some(others)))
}

pub(crate) fn search(args: &ToolsSearchArgs, cli: &Cli, voice: OutputSettings) -> CommandResult {
    let blueprint = ResolvedConfig::read(cli)?;
    blueprint.with_gateway(voice, async |gateway| {
        let catalog = gateway.catalog.load_full();
        let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
        let found = catalog.index().search(&SearchQuery::new(&args.query, limit));
        let hits: Vec<(&Listed, Option<f64>)> =
            found.hits.iter().filter_map(|hit| Some((catalog.indexed(hit.doc)?, Some(hit.score)))).collect();
        let mut answer = answer(&hits, &blueprint.config, voice);
        answer.warnings.extend(unwell(&gateway));
        Ok(answer.with("total", found.total))
    })
}

fn answer(found: &[(&Listed, Option<f64>)], config: &Config, voice: OutputSettings) -> Answer {
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
            (stands, style),
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

/// The state of a tool, in a few words and their colour.
pub(super) fn stands(listed: &Listed) -> (String, Style) {
    let style = match &listed.standing {
        ToolStanding::Accepted => GOOD,
        ToolStanding::Quarantined(withheld) if withheld.reason == "tool_new" => WARN,
        ToolStanding::Changed(_) | ToolStanding::Quarantined(_) => BAD,
    };
    let more = match (&listed.standing, listed.flips) {
        (ToolStanding::Accepted, Some(flips)) => format!(" (1 of {})", flips.known),
        (ToolStanding::Changed(_), Some(_)) => " (known)".to_owned(),
        (ToolStanding::Quarantined(_), _) | (_, None) => String::new(),
    };
    (format!("{}{more}", views::tool_state(listed)), style)
}

fn first_line(text: &str) -> String {
    const LONGEST: usize = 60;
    let line = text.lines().next().unwrap_or_default();
    let cut: String = line.chars().take(LONGEST).collect();
    if cut.len() < text.len() { format!("{}…", cut.trim_end()) } else { cut }
}
