//! `countersign upstreams list` and `upstreams test`: each upstream is started, asked for its tools, and ended again.

use anstyle::Style;
use countersign_gateway::state::GatewayState;
use countersign_gateway::upstreams::{Condition, UpstreamHealth};
use countersign_policy::refusal::{Code, Refusal};
use countersign_web::views;
use serde_json::{Value, json};

use crate::cli::Cli;
use crate::command_result::{Answer, CommandError, CommandResult, Refused};
use crate::local_gateway::ResolvedConfig;
use crate::output::{
    BAD, BOLD, Column, DIM, GOOD, NAME, OutputSettings, Table, WARN, paint, plural, visible,
};

/// What is known of one upstream after a try.
struct UpstreamProbe {
    name: String,
    kind: String,
    health: UpstreamHealth,
    accepted: usize,
    withheld: usize,
}

pub(super) fn list(cli: &Cli, voice: OutputSettings) -> CommandResult {
    let blueprint = ResolvedConfig::read(cli)?;
    let seen = blueprint.with_gateway(voice, async |gateway| Ok(probe(&blueprint, &gateway)))?;
    let mut table = Table::new(&[
        Column::kept("UPSTREAM"),
        Column::kept("STATE"),
        Column::kept("TOOLS"),
        Column::spared("WITHHELD", 1),
        Column::spared("PROTOCOL", 3),
        Column::spared("SERVER", 4),
        Column::spared("RUNS", 2),
    ]);
    for one in &seen {
        let (word, style) = condition(&one.health);
        table.row(vec![
            (one.name.clone(), NAME),
            (word.to_owned(), style),
            (one.accepted.to_string(), Style::new()),
            (if one.withheld > 0 { one.withheld.to_string() } else { String::new() }, WARN),
            (one.health.version.clone().unwrap_or_default(), DIM),
            (server(&one.health), DIM),
            (one.kind.clone(), DIM),
        ]);
    }
    let text = match (seen.is_empty(), voice.is_watched()) {
        (true, true) => {
            format!(
                "{}\n",
                paint(DIM, "no upstreams; one is added with countersign upstreams add NAME --command …")
            )
        }
        (true, false) => String::new(),
        (false, _) => table.render(voice.width()),
    };
    let mut answer = Answer::text(text).with("upstreams", seen.iter().map(describe).collect::<Vec<_>>());
    let down =
        seen.iter().filter_map(|one| Some(format!("`{}` does not answer: {}", one.name, why(&one.health)?)));
    answer.warnings = down.collect();
    Ok(answer)
}

pub(super) fn test(name: &str, cli: &Cli, voice: OutputSettings) -> CommandResult {
    let mut blueprint = ResolvedConfig::read(cli)?;
    let known: Vec<String> = blueprint.config.upstreams.iter().map(|one| one.id.to_string()).collect();
    blueprint.config.upstreams.retain(|one| one.id.as_str() == name);
    if blueprint.config.upstreams.is_empty() {
        return Err(unknown(name, &known));
    }
    let began = std::time::Instant::now();
    let (seen, names) = blueprint.with_gateway(voice, async |gateway| {
        let names: Vec<String> =
            gateway.catalog.load().tools().map(|listed| listed.tool.name.to_string()).collect();
        Ok((probe(&blueprint, &gateway), names))
    })?;
    let took = began.elapsed();
    let Some(one) = seen.first() else { return Err(unknown(name, &known)) };
    if let Some(why) = why(&one.health) {
        let refusal = Refusal::new(Code::UpstreamUnavailable, format!("`{name}` does not answer: {why}"));
        let mut refused = Refused::from(refusal);
        let tail =
            one.health.stderr_tail.lines().map(|line| format!("  {} {}\n", paint(DIM, "│"), visible(line)));
        refused.reasons = tail.collect();
        refused.data.insert("upstream".into(), describe(one));
        let sign_in = format!("countersign upstreams login {name}");
        refused.next = Some(if why.contains(&sign_in) {
            sign_in
        } else {
            format!("look at [upstreams.{name}] in {}", blueprint.files.names().join(" and "))
        });
        return Err(refused.into());
    }
    let mut text = format!("{}  {}\n", paint(BOLD, visible(name)), paint(GOOD, "up"));
    let withheld = if one.withheld > 0 { format!(", {} withheld", one.withheld) } else { String::new() };
    let mut line = |name: &str, what: &str| {
        text.push_str(&format!("  {} {}\n", paint(DIM, format_args!("{name:<10}")), visible(what)));
    };
    line("runs", &one.kind);
    line("server", &server(&one.health));
    line("protocol", one.health.version.as_deref().unwrap_or("unknown"));
    line("tools", &format!("{}{withheld}", plural(one.accepted + one.withheld, "tool")));
    line("names", &names.join(", "));
    line("took", &crate::output::span(took));
    Ok(Answer::text(text).with("upstream", describe(one)).with("tools", names))
}

/// A name the configuration does not have.
pub(crate) fn unknown(name: &str, known: &[String]) -> CommandError {
    let names: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
    let others = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let message = format!("there is no upstream `{name}`; there is {others}");
    CommandError::refused(Refusal::new(Code::NotFound, message), "countersign upstreams list")
}

fn probe(blueprint: &ResolvedConfig, gateway: &GatewayState) -> Vec<UpstreamProbe> {
    let (upstreams, catalog) = (gateway.upstreams.load(), gateway.catalog.load());
    let seen = blueprint.config.upstreams.iter().filter_map(|written| {
        let (accepted, withheld) = catalog.counts(&written.id);
        let health = upstreams.get(&written.id)?.health();
        Some(UpstreamProbe {
            name: written.id.to_string(),
            kind: views::runs_as(written),
            health,
            accepted,
            withheld,
        })
    });
    seen.collect()
}

fn condition(health: &UpstreamHealth) -> (&'static str, Style) {
    let style = match health.condition {
        Condition::Idle => DIM,
        Condition::Starting => WARN,
        Condition::Up => GOOD,
        Condition::Down(_) => BAD,
    };
    (views::upstream_state(health).as_str(), style)
}

fn why(health: &UpstreamHealth) -> Option<String> {
    views::why_down(health)
}

fn server(health: &UpstreamHealth) -> String {
    let info = health.server_info.as_ref();
    let part = |name: &str| info.and_then(|info| info.get(name)?.as_str()).unwrap_or_default().to_owned();
    format!("{} {}", part("name"), part("version")).trim().to_owned()
}

fn describe(one: &UpstreamProbe) -> Value {
    json!(views::upstream(&one.name, one.kind.clone(), &one.health, (one.accepted, one.withheld)))
}
