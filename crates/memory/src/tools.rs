//! The tools: names, schemas, and for whom each is. A tool is in this table with its class or it is not there at all;
//! `core` lets agents call only those it names, so that a new one is for people until someone says otherwise.

use countersign_core::effect::Effect;
use countersign_core::refusal::{Code, Refusal};
use countersign_core::role::Role;
use serde_json::{Map, Value, json};

/// For whom a tool is, and what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// Agents and people, or people only.
    pub role: Role,
    /// What it does.
    pub effect: Effect,
}

/// What a field takes.
#[derive(Clone, Copy)]
enum Takes {
    Text,
    Word(&'static [&'static str]),
    Count(u32),
    Fraction,
    Labels,
    Object,
}

/// Whether a field has to be there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    Required,
    Optional,
}

/// One field of a tool's input.
struct Field {
    name: &'static str,
    takes: Takes,
    need: Need,
    about: &'static str,
}

const fn must(name: &'static str, takes: Takes, about: &'static str) -> Field {
    Field { name, takes, need: Need::Required, about }
}

const fn may(name: &'static str, takes: Takes, about: &'static str) -> Field {
    Field { name, takes, need: Need::Optional, about }
}

/// One tool.
struct Tool {
    name: &'static str,
    title: &'static str,
    class: Class,
    about: &'static str,
    fields: &'static [Field],
}

const READ: Class = Class { role: Role::Agent, effect: Effect::Read };
const WRITE: Class = Class { role: Role::Agent, effect: Effect::Write };
const PEOPLE: Class = Class { role: Role::Human, effect: Effect::Write };

const KINDS: Takes = Takes::Word(&["decision", "learning", "idea"]);
const GOVERNED: Takes = Takes::Word(&["decision", "learning"]);
const SCOPES: Takes = Takes::Word(&["file", "room", "palace"]);
const SCOPE: Field = may("scope", SCOPES, "How far it reaches; palace is the whole project");
const SCOPE_PATH: Field =
    may("scopePath", Takes::Text, "The file's path or the room's name, for the scopes file and room");
const BY: Field =
    may("by", Takes::Text, "As whom the audit names you; the line's principal is recorded as well");
const ACTOR: Field = may("actorId", Takes::Text, "The same as by");
const NOTE: Field = may("note", Takes::Text, "Why; kept as it is");
const LIMIT: Field = may("limit", Takes::Count(50), "How many at most (10)");
const ID: Field = may("id", Takes::Text, "One record, whole, with its links");
const QUERY: Field = may("query", Takes::Text, "Words to find");
const RATIONALE: Field = may("rationale", Takes::Text, "Why it is so");
const CONTEXT: Field = may("context", Takes::Text, "Around what it came up");
const TAGS: Field = may("tags", Takes::Labels, "Labels");
const CONFIDENCE: Field = may("confidence", Takes::Fraction, "How sure, from 0 to 1");

const TOOLS: &[Tool] = &[
    Tool {
        name: "store",
        title: "Propose or note something",
        class: WRITE,
        about: "Remember something for the project. A decision or a learning becomes a proposal that a person approves or rejects; until then nobody reads it. An idea is written at once. Without `as` the text is classified, and the answer says how sure that is.",
        fields: &[
            must("content", Takes::Text, "What to remember, in a sentence or two"),
            may("as", KINDS, "What it is; without it the text decides"),
            may("kind", KINDS, "The same as as"),
            SCOPE,
            SCOPE_PATH,
            RATIONALE,
            CONTEXT,
            TAGS,
            CONFIDENCE,
            may("sessionId", Takes::Text, "The session it came up in"),
            may("agentType", Takes::Text, "What kind of agent you are"),
            may("evidence", Takes::Object, "What speaks for it: sources, records, an explanation"),
        ],
    },
    Tool {
        name: "recall",
        title: "Recall decisions and learnings",
        class: READ,
        about: "Approved decisions and learnings: by words, by place (file, its room, the palace, nearest first), or one by id.",
        fields: &[ID, QUERY, may("as", GOVERNED, "Only these"), SCOPE, SCOPE_PATH, LIMIT],
    },
    Tool {
        name: "recall_decisions",
        title: "Recall decisions",
        class: READ,
        about: "Approved decisions: by words, by place, or one by id.",
        fields: &[ID, QUERY, SCOPE, SCOPE_PATH, LIMIT],
    },
    Tool {
        name: "recall_ideas",
        title: "Recall ideas",
        class: READ,
        about: "Ideas that were noted. Nobody has agreed to them: they are no rules.",
        fields: &[ID, QUERY, SCOPE, SCOPE_PATH, LIMIT],
    },
    Tool {
        name: "brief",
        title: "Brief",
        class: READ,
        about: "What to know before you begin: the latest approved decisions and learnings, rooms, who else is at work. With `file`, what holds there.",
        fields: &[may("file", Takes::Text, "A path inside the project")],
    },
    Tool {
        name: "brief_file",
        title: "Brief on a file",
        class: READ,
        about: "What to know before you touch a file: approved records of the file, its room and the palace, and who else is at work on it.",
        fields: &[must("path", Takes::Text, "A path inside the project")],
    },
    Tool {
        name: "explore",
        title: "Explore the project",
        class: READ,
        about: "Rooms and files of the project that have to do with some words.",
        fields: &[must("query", Takes::Text, "Words to find"), LIMIT],
    },
    Tool {
        name: "explore_rooms",
        title: "Explore rooms",
        class: READ,
        about: "The project's rooms with their summaries; one room with its files and records.",
        fields: &[may("room", Takes::Text, "A room's name")],
    },
    Tool {
        name: "explore_file",
        title: "Explore a file",
        class: READ,
        about: "A file's beginning and outline, its room, and the approved records that hold there.",
        fields: &[must("file", Takes::Text, "A path inside the project")],
    },
    Tool {
        name: "explore_context",
        title: "Explore a task's context",
        class: READ,
        about: "Rooms, files and approved records that have to do with a task, together.",
        fields: &[must("query", Takes::Text, "The task, in words"), LIMIT],
    },
    Tool {
        name: "get_route",
        title: "Route",
        class: READ,
        about: "What to read first for an intent: rooms, files, approved decisions and learnings, at most ten, best first, each with the call that fetches it. The same question gives the same route.",
        fields: &[must("intent", Takes::Text, "What you are about to do"), SCOPE, SCOPE_PATH],
    },
    Tool {
        name: "session_start",
        title: "Start a session",
        class: WRITE,
        about: "Say that you begin to work, and on what, so that others hear of it.",
        fields: &[
            must("agentType", Takes::Text, "What kind of agent you are"),
            may("agentId", Takes::Text, "Which one"),
            may("goal", Takes::Text, "What you are about to do"),
        ],
    },
    Tool {
        name: "session_log",
        title: "Log what a session does",
        class: WRITE,
        about: "Say what you read, change, search or run. The answer warns when another session is at work on the same path.",
        fields: &[
            must("sessionId", Takes::Text, "From session_start"),
            must("kind", Takes::Word(&["file_read", "file_edit", "search", "command"]), "What you did"),
            must("target", Takes::Text, "The path, query or command"),
            may("outcome", Takes::Text, "How it ended"),
            may("details", Takes::Text, "More"),
        ],
    },
    Tool {
        name: "session_end",
        title: "End a session",
        class: WRITE,
        about: "Say that you are done.",
        fields: &[
            must("sessionId", Takes::Text, "From session_start"),
            may("outcome", Takes::Word(&["success", "failure", "partial"]), "How it ended (success)"),
            may("summary", Takes::Text, "What came of it"),
        ],
    },
    Tool {
        name: "store_direct",
        title: "Write past proposals",
        class: PEOPLE,
        about: "Write a decision or a learning as approved, without a proposal. For people; always audited, with the content's hash.",
        fields: &[
            must("content", Takes::Text, "What is true"),
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
    Tool {
        name: "approve",
        title: "Approve a proposal",
        class: PEOPLE,
        about: "Make a proposal true, as it is or in other words; both texts are kept. For people; audited in the same transaction.",
        fields: &[
            must("proposalId", Takes::Text, "prop_…"),
            may("content", Takes::Text, "The text to put in its place"),
            BY,
            ACTOR,
            NOTE,
        ],
    },
    Tool {
        name: "reject",
        title: "Reject a proposal",
        class: PEOPLE,
        about: "Say no to a proposal. For people; audited in the same transaction.",
        fields: &[must("proposalId", Takes::Text, "prop_…"), BY, ACTOR, NOTE],
    },
    Tool {
        name: "recall_outcome",
        title: "Record a decision's outcome",
        class: PEOPLE,
        about: "Say what came of a decision. Learnings that support it gain or lose confidence. For people.",
        fields: &[
            must("decisionId", Takes::Text, "d_…"),
            must("outcome", Takes::Word(&["successful", "success", "failed", "mixed"]), "What came of it"),
            NOTE,
            BY,
            ACTOR,
        ],
    },
    Tool {
        name: "recall_link",
        title: "Link two records",
        class: PEOPLE,
        about: "Say how one record stands to another. What is superseded is no longer given to agents. For people.",
        fields: &[
            must("sourceId", Takes::Text, "From which record"),
            must("targetId", Takes::Text, "To which"),
            must(
                "relation",
                Takes::Word(&[
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
    Tool {
        name: "recall_unlink",
        title: "Take a link back",
        class: PEOPLE,
        about: "Remove a link between two records. For people.",
        fields: &[must("linkId", Takes::Text, "l_…"), BY, ACTOR],
    },
];

/// What the server says of itself to a model.
pub const INSTRUCTIONS: &str = "A project's memory that people govern. Begin with brief or get_route; read with recall, recall_decisions, brief_file, explore. What you \
learn or decide goes in with store: decisions and learnings wait until a person approves them, ideas are kept at once. Tell others what you touch with session_start, \
session_log, session_end.";

/// Every tool's name and class.
pub fn classes() -> impl Iterator<Item = (&'static str, Class)> {
    TOOLS.iter().map(|tool| (tool.name, tool.class))
}

/// A tool's class; none if there is no such tool.
pub fn class(name: &str) -> Option<Class> {
    TOOLS.iter().find(|tool| tool.name == name).map(|tool| tool.class)
}

/// The fields a tool takes.
pub(crate) fn known(name: &str) -> Vec<&'static str> {
    let tool = TOOLS.iter().find(|tool| tool.name == name);
    tool.map(|tool| tool.fields.iter().map(|field| field.name).collect()).unwrap_or_default()
}

/// The definitions of all tools, as `tools/list` has them.
pub fn definitions() -> Vec<Map<String, Value>> {
    TOOLS.iter().map(describe).collect()
}

/// The definitions this role may see: what is for people only is not there for agents.
pub fn definitions_for(role: Role) -> Vec<Map<String, Value>> {
    let visible = |tool: &&Tool| match (tool.class.role, role) {
        (Role::Human, Role::Agent) => false,
        (Role::Human, Role::Human) | (Role::Agent, Role::Agent | Role::Human) => true,
    };
    TOOLS.iter().filter(visible).map(describe).collect()
}

/// The definition of one tool.
pub(crate) fn definition(name: &str) -> Option<Map<String, Value>> {
    TOOLS.iter().find(|tool| tool.name == name).map(describe)
}

/// The refusal of a tool that is for people only.
pub fn not_for_agents(tool: &str) -> Refusal {
    Refusal::new(Code::RoleForbidden, format!("Tool \"{tool}\" not available in agent mode"))
}

fn describe(tool: &Tool) -> Map<String, Value> {
    let reads = tool.class.effect == Effect::Read;
    let properties: Map<String, Value> =
        tool.fields.iter().map(|field| (field.name.to_owned(), field.schema())).collect();
    let required: Vec<&str> =
        tool.fields.iter().filter(|field| field.need == Need::Required).map(|field| field.name).collect();
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

impl Field {
    fn schema(&self) -> Value {
        let mut schema = match self.takes {
            Takes::Text => json!({"type": "string"}),
            Takes::Word(words) => json!({"type": "string", "enum": words}),
            Takes::Count(most) => json!({"type": "integer", "minimum": 1, "maximum": most}),
            Takes::Fraction => json!({"type": "number", "minimum": 0, "maximum": 1}),
            Takes::Labels => json!({"type": "array", "items": {"type": "string"}, "maxItems": 32}),
            Takes::Object => json!({"type": "object"}),
        };
        if let Some(schema) = schema.as_object_mut() {
            schema.insert("description".into(), self.about.into());
        }
        schema
    }
}
