//! `countersign tools show`: one tool, whole: its definition as its upstream gives it, what a call needs, and which rule
//! says so.

use countersign_config::PolicyExplanation;
use countersign_gateway::catalog::{Listed, ToolStanding};
use countersign_policy::ids::FullName;
use countersign_policy::intent::CallToolVariant;
use countersign_policy::refusal::{Code, Refusal};
use countersign_web::views;
use serde_json::{Value, json};

use super::list::stands;
use crate::cli::Cli;
use crate::command_result::{Answer, CommandError, CommandResult, Refused};
use crate::commands::plans::sheet::effect_style;
use crate::commands::upstreams::unwell;
use crate::local_gateway::ResolvedConfig;
use crate::output::{BOLD, DIM, OutputSettings, WARN, paint, visible};
use crate::person::value;

pub(crate) const EXAMPLES: &str = "Examples:
  countersign tools show github:delete_repo
  countersign tools show github:delete_repo --json";

pub(crate) fn run(name: &FullName, cli: &Cli, voice: OutputSettings) -> CommandResult {
    let blueprint = ResolvedConfig::read(cli)?;
    blueprint.with_gateway(voice, async |gateway| {
        let catalog = gateway.catalog.load_full();
        let Some(listed) = catalog.get(name) else {
            let near = catalog.nearest(name, &|_| true);
            let near = near.first().map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            let message = format!("no upstream has a tool `{name}`{near}");
            let mut refused = Refused::from(Refusal::new(Code::ToolNotFound, message));
            refused.warnings = unwell(&gateway);
            refused.next = Some("countersign tools list".into());
            return Err(CommandError::from(refused));
        };
        let explained = views::explained(listed, &blueprint.config);
        let mut described = views::tool(listed, &explained, None);
        described.definition = Some(listed.tool.definition.clone());
        Ok(Answer::text(text(listed, &explained))
            .with("tool", json!(described))
            .with("decided", serde_json::to_value(&explained.decided).unwrap_or_default()))
    })
}

fn text(listed: &Listed, explained: &PolicyExplanation) -> String {
    let (stands, style) = stands(listed);
    let mut text = format!(
        "{}  {}  {}\n",
        paint(BOLD, visible(&listed.tool.full_name().to_string())),
        paint(effect_style(listed.outlook.effect), listed.outlook.effect),
        paint(style, stands)
    );
    let mut line = |name: &str, what: &str| {
        text.push_str(&format!("  {} {}\n", paint(DIM, format_args!("{name:<10}")), visible(what)));
    };
    let maybe = if listed.outlook.conditional { "; a rule with a condition may change that" } else { "" };
    line("needs", &format!("confirm {}, strength {}{maybe}", listed.outlook.kind, listed.outlook.strength));
    line("call with", CallToolVariant::for_effect(listed.outlook.effect).call_tool());
    if let Some(role) = listed.outlook.role {
        line("only for", &role.to_string());
    }
    if let Some(why) = &listed.outlook.denied {
        line("denied", why);
    }
    match &listed.standing {
        ToolStanding::Accepted => {
            if let Some(flips) = listed.flips {
                line("set", &format!("one of {} definitions that were accepted as a set", flips.known));
            }
        }
        ToolStanding::Changed(_) => {
            line("changed", &format!("countersign tools diff {}", listed.tool.full_name()))
        }
        ToolStanding::Quarantined(withheld) => line("withheld", &withheld.why),
    }
    for decided in &explained.decided {
        line(decided.field.as_str(), &format!("{}: {}", plain(&decided.value), decided.because));
    }
    for flag in &listed.flags {
        text.push_str(&format!("  {} {}\n", paint(WARN, "flag      "), visible(flag)));
    }
    if listed.flips.is_some_and(|flips| !flips.is_set) {
        let accept = format!("countersign tools approve {} --known", listed.tool.full_name());
        text.push_str(&format!("  {} {}\n", paint(DIM, "accept all"), visible(&accept)));
    }
    text.push_str(&format!("\n{}\n", paint(BOLD, "definition")));
    for line in value::lines(&Value::Object(listed.tool.definition.clone())) {
        text.push_str(&format!("  {line}\n"));
    }
    text.push_str(&format!("\n{}\n", paint(DIM, format_args!("  fingerprint {}", listed.tool.fingerprint))));
    text
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
