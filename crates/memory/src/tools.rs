//! The tools: names, schemas, and who may call each. The built-in rules let agents call only the tools they name, so a new tool is for
//! people until a rule says otherwise.

use countersign_policy::effect::Effect;
use countersign_policy::refusal::{Code, Refusal};
use countersign_policy::role::Role;
use serde_json::{Map, Value, json};

/// For whom a tool is, and what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolClass {
    /// Agents and people, or people only.
    pub role: Role,
    pub effect: Effect,
}

#[derive(Clone, Copy)]
enum FieldType {
    Text,
    Word(&'static [&'static str]),
    Count(u32),
    Fraction,
    Labels,
    Object,
}

/// Whether a field has to be there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FieldPresence {
    Required,
    Optional,
}

struct ToolField {
    name: &'static str,
    takes: FieldType,
    need: FieldPresence,
    about: &'static str,
}

const fn must(name: &'static str, takes: FieldType, about: &'static str) -> ToolField {
    ToolField { name, takes, need: FieldPresence::Required, about }
}

const fn may(name: &'static str, takes: FieldType, about: &'static str) -> ToolField {
    ToolField { name, takes, need: FieldPresence::Optional, about }
}

struct ToolSpec {
    name: &'static str,
    title: &'static str,
    class: ToolClass,
    about: &'static str,
    fields: &'static [ToolField],
}

const READ: ToolClass = ToolClass { role: Role::Agent, effect: Effect::Read };
const WRITE: ToolClass = ToolClass { role: Role::Agent, effect: Effect::Write };
const PEOPLE: ToolClass = ToolClass { role: Role::Human, effect: Effect::Write };

const KINDS: FieldType = FieldType::Word(&["decision", "learning", "idea"]);
const GOVERNED: FieldType = FieldType::Word(&["decision", "learning"]);
const SCOPES: FieldType = FieldType::Word(&["file", "room", "palace"]);
const SCOPE: ToolField = may("scope", SCOPES, "How far it reaches; palace is the whole project");
const SCOPE_PATH: ToolField =
    may("scopePath", FieldType::Text, "The file's path or the room's name, for the scopes file and room");
const BY: ToolField =
    may("by", FieldType::Text, "As whom the audit names you; the line's principal is recorded as well");
const ACTOR: ToolField = may("actorId", FieldType::Text, "The same as by");
const NOTE: ToolField = may("note", FieldType::Text, "Why; kept as it is");
const LIMIT: ToolField = may("limit", FieldType::Count(50), "How many at most (10)");
const ID: ToolField = may("id", FieldType::Text, "One record, whole, with its links");
const QUERY: ToolField = may("query", FieldType::Text, "Words to find");
const RATIONALE: ToolField = may("rationale", FieldType::Text, "Why it is so");
const CONTEXT: ToolField = may("context", FieldType::Text, "Around what it came up");
const TAGS: ToolField = may("tags", FieldType::Labels, "Labels");
const CONFIDENCE: ToolField = may("confidence", FieldType::Fraction, "How sure, from 0 to 1");

const TOOLS: &[ToolSpec] = &[
    ToolSpec {
        name: "store",
        title: "Propose or note something",
        class: WRITE,
        about: "Remember something for the project. A decision or a learning becomes a proposal that a person approves or rejects; until then nobody reads it. An idea is written at once. Without `as` the text is classified, and the answer says how sure that is.",
        fields: &[
            must("content", FieldType::Text, "What to remember, in a sentence or two"),
            may("as", KINDS, "What it is; without it the text decides"),
            may("kind", KINDS, "The same as as"),
            SCOPE,
            SCOPE_PATH,
            RATIONALE,
            CONTEXT,
            TAGS,
            CONFIDENCE,
            may("sessionId", FieldType::Text, "The session it came up in"),
            may("agentType", FieldType::Text, "What kind of agent you are"),
            may("evidence", FieldType::Object, "What speaks for it: sources, records, an explanation"),
        ],
    },
    ToolSpec {
        name: "recall",
        title: "Recall decisions and learnings",
        class: READ,
        about: "Approved decisions and learnings: by words, by place (file, its room, the palace, nearest first), or one by id.",
        fields: &[ID, QUERY, may("as", GOVERNED, "Only these"), SCOPE, SCOPE_PATH, LIMIT],
    },
    ToolSpec {
        name: "recall_decisions",
        title: "Recall decisions",
        class: READ,
        about: "Approved decisions: by words, by place, or one by id.",
        fields: &[ID, QUERY, SCOPE, SCOPE_PATH, LIMIT],
    },
    ToolSpec {
        name: "recall_ideas",
        title: "Recall ideas",
        class: READ,
        about: "Ideas that were noted. Nobody has agreed to them: they are no rules.",
        fields: &[ID, QUERY, SCOPE, SCOPE_PATH, LIMIT],
    },
    ToolSpec {
        name: "brief",
        title: "Brief",
        class: READ,
        about: "What to know before you begin: the latest approved decisions and learnings, rooms, who else is at work. With `file`, what holds there.",
        fields: &[may("file", FieldType::Text, "A path inside the project")],
    },
    ToolSpec {
        name: "brief_file",
        title: "Brief on a file",
        class: READ,
        about: "What to know before you touch a file: approved records of the file, its room and the palace, and who else is at work on it.",
        fields: &[must("path", FieldType::Text, "A path inside the project")],
    },
    ToolSpec {
        name: "explore",
        title: "Explore the project",
        class: READ,
        about: "Rooms and files of the project that have to do with some words.",
        fields: &[must("query", FieldType::Text, "Words to find"), LIMIT],
    },
    ToolSpec {
        name: "explore_rooms",
        title: "Explore rooms",
        class: READ,
        about: "The project's rooms with their summaries; one room with its files and records.",
        fields: &[may("room", FieldType::Text, "A room's name")],
    },
    ToolSpec {
        name: "explore_file",
        title: "Explore a file",
        class: READ,
        about: "A file's beginning and outline, its room, and the approved records that hold there.",
        fields: &[must("file", FieldType::Text, "A path inside the project")],
    },
    ToolSpec {
        name: "explore_context",
        title: "Explore a task's context",
        class: READ,
        about: "Rooms, files and approved records that have to do with a task, together.",
        fields: &[must("query", FieldType::Text, "The task, in words"), LIMIT],
    },
    ToolSpec {
        name: "get_route",
        title: "Route",
        class: READ,
        about: "What to read first for an intent: rooms, files, approved decisions and learnings, at most ten, best first, each with the call that fetches it. The same question gives the same route.",
        fields: &[must("intent", FieldType::Text, "What you are about to do"), SCOPE, SCOPE_PATH],
    },
    ToolSpec {
        name: "session_start",
        title: "Start a session",
        class: WRITE,
        about: "Say that you begin to work, and on what, so that others hear of it.",
        fields: &[
            must("agentType", FieldType::Text, "What kind of agent you are"),
            may("agentId", FieldType::Text, "Which one"),
            may("goal", FieldType::Text, "What you are about to do"),
        ],
    },
    ToolSpec {
        name: "session_log",
        title: "Log what a session does",
        class: WRITE,
        about: "Say what you read, change, search or run. The answer warns when another session is at work on the same path.",
        fields: &[
            must("sessionId", FieldType::Text, "From session_start"),
            must("kind", FieldType::Word(&["file_read", "file_edit", "search", "command"]), "What you did"),
            must("target", FieldType::Text, "The path, query or command"),
            may("outcome", FieldType::Text, "How it ended"),
            may("details", FieldType::Text, "More"),
        ],
    },
    ToolSpec {
        name: "session_end",
        title: "End a session",
        class: WRITE,
        about: "Say that you are done.",
        fields: &[
            must("sessionId", FieldType::Text, "From session_start"),
            may("outcome", FieldType::Word(&["success", "failure", "partial"]), "How it ended (success)"),
            may("summary", FieldType::Text, "What came of it"),
        ],
    },
    ToolSpec {
        name: "store_direct",
        title: "Write past proposals",
        class: PEOPLE,
        about: "Write a decision or a learning as approved, without a proposal. For people; always audited, with the content's hash.",
        fields: &[
            must("content", FieldType::Text, "What is true"),
            must("as", GOVERNED, "What it is"),
            SCOPE,
            SCOPE_PATH,
            RATIONALE,
            CONTEXT,
            TAGS,
            CONFIDENCE,
            ACTOR,
            BY,
        ],
    },
    ToolSpec {
        name: "approve",
        title: "Approve a proposal",
        class: PEOPLE,
        about: "Make a proposal true, as it is or in other words; both texts are kept. For people; audited in the same transaction.",
        fields: &[
            must("proposalId", FieldType::Text, "prop_…"),
            may("content", FieldType::Text, "The text to put in its place"),
            BY,
            ACTOR,
            NOTE,
        ],
    },
    ToolSpec {
        name: "reject",
        title: "Reject a proposal",
        class: PEOPLE,
        about: "Say no to a proposal. For people; audited in the same transaction.",
        fields: &[must("proposalId", FieldType::Text, "prop_…"), BY, ACTOR, NOTE],
    },
    ToolSpec {
        name: "recall_outcome",
        title: "Record a decision's outcome",
        class: PEOPLE,
        about: "Say what came of a decision. Learnings that support it gain or lose confidence. For people.",
        fields: &[
            must("decisionId", FieldType::Text, "d_…"),
            must(
                "outcome",
                FieldType::Word(&["successful", "success", "failed", "mixed"]),
                "What came of it",
            ),
            NOTE,
            BY,
            ACTOR,
        ],
    },
    ToolSpec {
        name: "recall_link",
        title: "Link two records",
        class: PEOPLE,
        about: "Say how one record stands to another. What is superseded is no longer given to agents. For people.",
        fields: &[
            must("sourceId", FieldType::Text, "From which record"),
            must("targetId", FieldType::Text, "To which"),
            must(
                "relation",
                FieldType::Word(&[
                    "supports",
                    "contradicts",
                    "implements",
                    "supersedes",
                    "inspired_by",
                    "related",
                ]),
                "How the first stands to the second",
            ),
            BY,
            ACTOR,
        ],
    },
    ToolSpec {
        name: "recall_unlink",
        title: "Take a link back",
        class: PEOPLE,
        about: "Remove a link between two records. For people.",
        fields: &[must("linkId", FieldType::Text, "l_…"), BY, ACTOR],
    },
];

/// What the server says of itself to a model.
pub const INSTRUCTIONS: &str = "A project's memory that people govern. Begin with brief or get_route; read with recall, recall_decisions, brief_file, explore. What you \
learn or decide goes in with store: decisions and learnings wait until a person approves them, ideas are kept at once. Tell others what you touch with session_start, \
session_log, session_end.";

/// A tool's class; none if there is no such tool.
pub fn class(name: &str) -> Option<ToolClass> {
    TOOLS.iter().find(|tool| tool.name == name).map(|tool| tool.class)
}

pub(crate) fn known(name: &str) -> Vec<&'static str> {
    let tool = TOOLS.iter().find(|tool| tool.name == name);
    tool.map(|tool| tool.fields.iter().map(|field| field.name).collect()).unwrap_or_default()
}

/// The definitions of all tools, as `tools/list` has them.
pub fn definitions() -> Vec<Map<String, Value>> {
    TOOLS.iter().map(describe).collect()
}

/// The refusal of a tool that is for people only.
pub fn not_for_agents(tool: &str) -> Refusal {
    Refusal::new(Code::RoleForbidden, format!("Tool \"{tool}\" not available in agent mode"))
}

fn describe(tool: &ToolSpec) -> Map<String, Value> {
    let reads = tool.class.effect == Effect::Read;
    let properties: Map<String, Value> =
        tool.fields.iter().map(|field| (field.name.to_owned(), field.schema())).collect();
    let required: Vec<&str> = tool
        .fields
        .iter()
        .filter(|field| field.need == FieldPresence::Required)
        .map(|field| field.name)
        .collect();
    let mut schema = json!({"type": "object", "properties": properties});
    if !required.is_empty()
        && let Some(schema) = schema.as_object_mut()
    {
        schema.insert("required".into(), json!(required));
    }
    Map::from_iter([
        ("name".to_owned(), tool.name.into()),
        ("title".to_owned(), tool.title.into()),
        ("description".to_owned(), tool.about.into()),
        ("inputSchema".to_owned(), schema),
        (
            "annotations".to_owned(),
            json!({
                "title": tool.title, "readOnlyHint": reads, "destructiveHint": false, "openWorldHint": false,
            }),
        ),
    ])
}

impl ToolField {
    fn schema(&self) -> Value {
        let mut schema = match self.takes {
            FieldType::Text => json!({"type": "string"}),
            FieldType::Word(words) => json!({"type": "string", "enum": words}),
            FieldType::Count(most) => json!({"type": "integer", "minimum": 1, "maximum": most}),
            FieldType::Fraction => json!({"type": "number", "minimum": 0, "maximum": 1}),
            FieldType::Labels => json!({"type": "array", "items": {"type": "string"}, "maxItems": 32}),
            FieldType::Object => json!({"type": "object"}),
        };
        if let Some(schema) = schema.as_object_mut() {
            schema.insert("description".into(), self.about.into());
        }
        schema
    }
}
