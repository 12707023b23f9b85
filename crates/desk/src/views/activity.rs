//! One row of the ledger as REST tells of it: the row as it is hashed, and what the seed calls `metadata`.

use countersign_core::intent::DeclaredIntent;
use countersign_store::Row;
use countersign_store::ledger::Json;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// What the seed's clients look for.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ActivityMetadata {
    /// What was declared: `{operation_type, data_sensitivity?, reason?}`.
    #[schemars(with = "Option<Value>")]
    pub intent: Option<DeclaredIntent>,
    /// Through which call tool: read, write, destructive.
    pub tool_variant: Option<String>,
}

/// A row of the ledger. What does not apply is left out.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Activity {
    /// Its id; ids sort by time.
    pub id: String,
    /// When.
    pub time: String,
    /// What it is about: call, decision, approval, mode, tool_change, config, memory, pack, system.
    pub kind: String,
    /// How the matter stands: allowed, refused, success, error, pending.
    pub status: String,
    /// Who.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// In which role.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// In which session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Through which door: mcp, cli, api, page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Of which upstream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    /// Which tool, by its own name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Through which call tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// What the tool does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
    /// The mode in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// What was declared.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Value>")]
    pub intent: Option<DeclaredIntent>,
    /// Arguments with secrets replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Value>")]
    pub arguments: Option<Json>,
    /// The digest of the arguments as they were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments_digest: Option<String>,
    /// The plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan_id: Option<String>,
    /// The plan's hash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan_hash: Option<String>,
    /// Who agreed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Value>")]
    pub approval: Option<Json>,
    /// The code of a refusal or of a failed call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// How long the call took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_us: Option<u64>,
    /// The digest of what came back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_digest: Option<String>,
    /// Facts of other kinds of rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Value>")]
    pub detail: Option<Json>,
    /// Whose chain.
    pub writer: String,
    /// Its place in the chain.
    pub sequence: u64,
    /// Which shape the row has.
    pub v: u32,
    /// The hash of the row before.
    pub prev_hash: String,
    /// The hash of this row.
    pub hash: String,
    /// What the seed's clients look for.
    pub metadata: ActivityMetadata,
}

/// A row for programs.
pub fn activity(row: &Row) -> Activity {
    fn text<T: ToString>(value: Option<&T>) -> Option<String> {
        value.map(ToString::to_string)
    }
    Activity {
        id: row.id.to_string(),
        time: row.time.to_string(),
        kind: row.kind.to_string(),
        status: row.status.to_string(),
        principal: text(row.principal.as_ref()),
        role: text(row.role.as_ref()),
        session: text(row.session.as_ref()),
        source: text(row.source.as_ref()),
        upstream: text(row.upstream.as_ref()),
        tool: text(row.tool.as_ref()),
        variant: row.variant.map(|variant| variant.as_str().to_owned()),
        effect: text(row.effect.as_ref()),
        mode: text(row.mode.as_ref()),
        intent: row.intent.clone(),
        arguments: row.arguments.clone(),
        arguments_digest: row.arguments_digest.map(|digest| digest.hex()),
        plan_id: text(row.plan_id.as_ref()),
        plan_hash: row.plan_hash.map(|digest| digest.hex()),
        approval: row.approval.clone(),
        code: row.code.clone(),
        duration_us: row.duration_us,
        result_digest: row.result_digest.map(|digest| digest.hex()),
        detail: row.detail.clone(),
        writer: row.writer.to_string(),
        sequence: row.sequence,
        v: row.version,
        prev_hash: row.prev_hash.hex(),
        hash: row.hash.hex(),
        metadata: ActivityMetadata {
            intent: row.intent.clone(),
            tool_variant: row.variant.map(|variant| variant.call_tool().to_owned()),
        },
    }
}
