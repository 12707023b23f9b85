//! The eleven MCP tools: names, descriptions and the published input schemas, unchanged. Speaks no protocol.

mod actions;
mod arguments;

use serde_json::{Map, Value, json};

pub(crate) use actions::{blocking, planned, run_read, take_survey};
pub(crate) use arguments::ToolArguments;

use crate::reply::CommandName;

const SCHEMAS: &str = include_str!("tools/schemas.json");

/// A tool: its name, title, what it does, and whether it changes something.
struct ToolSpec {
    name: &'static str,
    title: &'static str,
    description: &'static str,
    changes: bool,
}

const TOOLS: [ToolSpec; 11] = [
    ToolSpec {
        name: "plan",
        title: "Plan",
        changes: false,
        description: "List the files that deploying the agent assets would create, update or delete. Changes nothing.",
    },
    ToolSpec {
        name: "diff",
        title: "Diff",
        changes: false,
        description: "Like plan, with the line-by-line difference of every file. Changes nothing.",
    },
    ToolSpec {
        name: "preview",
        title: "Preview",
        changes: false,
        description: "Plan, and with diff=true the differences as well. Changes nothing.",
    },
    ToolSpec {
        name: "status",
        title: "Status",
        changes: false,
        description: "Report deployed files that were modified, are missing, or are extra. Changes nothing.",
    },
    ToolSpec {
        name: "doctor",
        title: "Doctor",
        changes: false,
        description: "Check that the folders agent assets are deployed to exist and can be written. Changes nothing.",
    },
    ToolSpec {
        name: "deploy",
        title: "Deploy: plan and confirm token",
        changes: false,
        description: "Plan a deployment and return a confirm_token for deploy_apply. Changes nothing. Show the changes to the user and end the turn; call deploy_apply only after they agree.",
    },
    ToolSpec {
        name: "deploy_apply",
        title: "Deploy: apply",
        changes: true,
        description: "Apply the plan that deploy returned: needs its confirm_token and yes=true, and the files to be unchanged since. Overwrites files of others only with adopt=true. Backs up everything it overwrites; rollback undoes it.",
    },
    ToolSpec {
        name: "rollback",
        title: "Roll back",
        changes: true,
        description: "Make the deployed files what they were after a snapshot (to=<snapshot id>) or before the first deployment (to=\"initial\"). Needs yes=true. Edits made since are backed up first.",
    },
    ToolSpec {
        name: "evolve_propose",
        title: "Propose edits as overlays",
        changes: true,
        description: "Commit edits made to deployed files as overlays on a new branch of the config repo. Needs yes=true unless dry_run. Deploys nothing.",
    },
    ToolSpec {
        name: "evolve_restore",
        title: "Restore missing files",
        changes: true,
        description: "Create deployed files that are missing again, as they should be. Overwrites nothing. Needs yes=true unless dry_run.",
    },
    ToolSpec {
        name: "explain",
        title: "Explain",
        changes: false,
        description: "Say which modules and overlay layers are behind each change or drift. Changes nothing.",
    },
];

/// The definitions of the tools, as `tools/list` gives them.
pub fn definitions() -> Vec<Map<String, Value>> {
    TOOLS.iter().map(describe).collect()
}

pub(crate) fn changes(name: &str) -> bool {
    TOOLS.iter().any(|tool| tool.name == name && tool.changes)
}

fn describe(tool: &ToolSpec) -> Map<String, Value> {
    let annotations = json!({
        "title": tool.title,
        "readOnlyHint": !tool.changes,
        "destructiveHint": tool.changes,
        "openWorldHint": false,
    });
    Map::from_iter([
        ("name".to_owned(), tool.name.into()),
        ("title".to_owned(), tool.title.into()),
        ("description".to_owned(), tool.description.into()),
        ("inputSchema".to_owned(), schema(tool.name)),
        ("annotations".to_owned(), annotations),
    ])
}

/// The published input schema of a tool.
pub(crate) fn schema(tool: &str) -> Value {
    let all: Value = serde_json::from_str(SCHEMAS).unwrap_or_default();
    all.get(tool).cloned().unwrap_or_default()
}

/// What the server says of itself to a model.
pub const INSTRUCTIONS: &str = "Agent assets (instructions, skills, prompts, commands) deployed from one repository. Read: plan, diff, \
preview, status, doctor, explain. To deploy: call deploy, show the changes, end the turn; when the user agrees call deploy_apply with the \
confirm_token and yes=true. rollback, evolve_propose and evolve_restore need yes=true.";

pub(crate) fn command_name(tool: &str, arguments: &Map<String, Value>) -> Option<CommandName> {
    Some(match tool {
        "plan" => CommandName::new("plan", "plan"),
        "diff" => CommandName::new("diff", "diff"),
        "preview" => CommandName::new("preview", "preview"),
        "status" => CommandName::new("status", "status"),
        "doctor" => CommandName::new("doctor", "doctor"),
        "deploy" => CommandName::new("deploy", "deploy"),
        "deploy_apply" => CommandName::new("deploy", "deploy --apply"),
        "rollback" => CommandName::new("rollback", "rollback"),
        "evolve_propose" => CommandName::new("evolve.propose", "evolve propose"),
        "evolve_restore" => CommandName::new("evolve.restore", "evolve restore"),
        "explain" => match arguments.get("kind").and_then(Value::as_str) {
            Some("diff") => CommandName::new("explain.diff", "explain diff"),
            Some("status") => CommandName::new("explain.status", "explain status"),
            Some(_) | None => CommandName::new("explain.plan", "explain plan"),
        },
        _ => return None,
    })
}
