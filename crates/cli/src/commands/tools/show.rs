//! `countersign tools show`: one tool, whole: its definition as its upstream gives it, what a call needs, and which rule
//! says so.

use countersign_core::config::Explained;
use countersign_core::ids::FullName;
use countersign_core::intent::Variant;
use countersign_core::refusal::{Code, Refusal};
use countersign_desk::views;
use countersign_gateway::catalog::{Listed, Stand};
use serde_json::{Value, json};

use super::list::stands;
use crate::answer::{Answer, Outcome, Refused, Trouble};
use crate::cli::Cli;
use crate::commands::plans::sheet::effect_style;
use crate::commands::upstreams::unwell;
use crate::house::Blueprint;
use crate::output::{BOLD, DIM, Voice, WARN, paint, visible};
use crate::person::value;

/// Shown under the help.
pub(crate) const EXAMPLES: &str = "Examples:
  countersign tools show github:delete_repo
  countersign tools show github:delete_repo --json";

/// Shows it.
pub(crate) fn run(name: &FullName, cli: &Cli, voice: Voice) -> Outcome {
    let blueprint = Blueprint::read(cli)?;
    blueprint.inhabit(voice, async |house| {
        let catalog = house.catalog.load_full();
        let Some(listed) = catalog.get(name) else {
            let near = catalog.nearest(name, &|_| true);
            let near = near.first().map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            let message = format!("no upstream has a tool `{name}`{near}");
            let mut refused = Refused::from(Refusal::new(Code::ToolNotFound, message));
            refused.warnings = unwell(&house);
            refused.next = Some("countersign tools list".into());
            return Err(Trouble::from(refused));
        };
        let explained = views::explained(listed, &blueprint.config);
        let mut described = views::tool(listed, &explained, None);
        described.definition = Some(listed.tool.definition.clone());
        Ok(Answer::text(text(listed, &explained))
            .with("tool", json!(described))
            .with("decided", serde_json::to_value(&explained.decided).unwrap_or_default()))
    })
}

fn text(listed: &Listed, explained: &Explained) -> String {
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
    line("call with", Variant::for_effect(listed.outlook.effect).call_tool());
    if let Some(role) = listed.outlook.role {
        line("only for", &role.to_string());
    }
    if let Some(why) = &listed.outlook.denied {
        line("denied", why);
    }
    match &listed.standing {
        Stand::Accepted => {}
        Stand::Changed(_) => line("changed", &format!("countersign tools diff {}", listed.tool.full_name())),
        Stand::Quarantined(withheld) => line("withheld", &withheld.why),
    }
    for decided in &explained.decided {
        line(decided.field.as_str(), &format!("{}: {}", plain(&decided.value), decided.because));
    }
    for flag in &listed.flags {
        text.push_str(&format!("  {} {}\n", paint(WARN, "flag      "), visible(flag)));
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
