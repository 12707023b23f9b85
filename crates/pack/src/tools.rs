//! The eleven tools: what they are called with and what they do. Schemas are the published ones, to the letter; every answer is
//! an envelope. Speaks no protocol.

mod acts;
mod arguments;

use countersign_core::envelope::Envelope;
use serde_json::{Map, Value, json};

pub(crate) use acts::{blocking, look, planned, take};
pub use arguments::Given;

use crate::line::Line;
use crate::place::Place;
use crate::reply::{Name, envelope};

const SCHEMAS: &str = include_str!("tools/schemas.json");

/// A tool: its name, title, what it does, and whether it changes something.
struct Tool {
    name: &'static str,
    title: &'static str,
    description: &'static str,
    changes: bool,
}

const TOOLS: [Tool; 11] = [
    Tool {
        name: "plan",
        title: "Plan",
        changes: false,
        description: "List the files that deploying the agent assets would create, update or delete. Changes nothing.",
    },
    Tool {
        name: "diff",
        title: "Diff",
        changes: false,
        description: "Like plan, with the line-by-line difference of every file. Changes nothing.",
    },
    Tool {
        name: "preview",
        title: "Preview",
        changes: false,
        description: "Plan, and with diff=true the differences as well. Changes nothing.",
    },
    Tool {
        name: "status",
        title: "Status",
        changes: false,
        description: "Report deployed files that were modified, are missing, or are extra. Changes nothing.",
    },
    Tool {
        name: "doctor",
        title: "Doctor",
        changes: false,
        description: "Check that the folders agent assets are deployed to exist and can be written. Changes nothing.",
    },
    Tool {
        name: "deploy",
        title: "Deploy: plan and confirm token",
        changes: false,
        description: "Plan a deployment and return a confirm_token for deploy_apply. Changes nothing. Show the changes to the user and end the turn; call deploy_apply only after they agree.",
    },
    Tool {
        name: "deploy_apply",
        title: "Deploy: apply",
        changes: true,
        description: "Apply the plan that deploy returned: needs its confirm_token and yes=true, and the files to be unchanged since. Overwrites files of others only with adopt=true. Backs up everything it overwrites; rollback undoes it.",
    },
    Tool {
        name: "rollback",
        title: "Roll back",
        changes: true,
        description: "Make the deployed files what they were after a snapshot (to=<snapshot id>) or before the first deployment (to=\"initial\"). Needs yes=true. Edits made since are backed up first.",
    },
    Tool {
        name: "evolve_propose",
        title: "Propose edits as overlays",
        changes: true,
        description: "Commit edits made to deployed files as overlays on a new branch of the config repo. Needs yes=true unless dry_run. Deploys nothing.",
    },
    Tool {
        name: "evolve_restore",
        title: "Restore missing files",
        changes: true,
        description: "Create deployed files that are missing again, as they should be. Overwrites nothing. Needs yes=true unless dry_run.",
    },
    Tool {
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

/// The definition of one tool; commands that are no tools have only a name.
pub(crate) fn definition(name: &str) -> Map<String, Value> {
    match TOOLS.iter().find(|tool| tool.name == name) {
        Some(tool) => describe(tool),
        None => Map::from_iter([("name".to_owned(), Value::from(name))]),
    }
}

/// Whether a tool changes something.
pub(crate) fn changes(name: &str) -> bool {
    TOOLS.iter().any(|tool| tool.name == name && tool.changes)
}

fn describe(tool: &Tool) -> Map<String, Value> {
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

/// The tools on one line, in one place.
#[derive(Clone)]
pub struct Tools {
    line: Line,
    place: Place,
}

impl Tools {
    /// The tools for a line.
    pub fn new(line: Line, place: Place) -> Self {
        Self { line, place }
    }

    /// Calls a tool; none if there is no such tool.
    pub async fn call(&self, tool: &str, arguments: &Map<String, Value>) -> Option<Envelope> {
        let name = command_name(tool, arguments)?;
        Some(envelope(name, self.answer(tool, arguments).await))
    }
}

/// The command a tool stands for.
pub(crate) fn command_name(tool: &str, arguments: &Map<String, Value>) -> Option<Name> {
    Some(match tool {
        "plan" => Name::new("plan", "plan"),
        "diff" => Name::new("diff", "diff"),
        "preview" => Name::new("preview", "preview"),
        "status" => Name::new("status", "status"),
        "doctor" => Name::new("doctor", "doctor"),
        "deploy" => Name::new("deploy", "deploy"),
        "deploy_apply" => Name::new("deploy", "deploy --apply"),
        "rollback" => Name::new("rollback", "rollback"),
        "evolve_propose" => Name::new("evolve.propose", "evolve propose"),
        "evolve_restore" => Name::new("evolve.restore", "evolve restore"),
        "explain" => match arguments.get("kind").and_then(Value::as_str) {
            Some("diff") => Name::new("explain.diff", "explain diff"),
            Some("status") => Name::new("explain.status", "explain status"),
            Some(_) | None => Name::new("explain.plan", "explain plan"),
        },
        _ => return None,
    })
}
