//! What the ledger keeps of a call: facts without secrets. Built by the gate, kept by `store`.

use serde_json::Value;

use crate::call::{Arguments, Call, Caller};
use crate::confirm::Approval;
use crate::digest::{Digest, Domain};
use crate::effect::Effect;
use crate::ids::{FullName, PlanId, PrincipalId, SessionId};
use crate::intent::{DeclaredIntent, Variant, cut};
use crate::mode::Mode;
use crate::plan::door_variant;
use crate::redact::{RedactedArguments, Redactor};
use crate::role::Role;
use crate::words::words;

words! {
    /// What a ledger row is about.
    pub enum RowKind("row kind") {
        /// A call: refused, pending, allowed, finished.
        Call = "call",
        /// A plan cancelled or expired, a grant given or revoked, a principal paused or resumed.
        Decision = "decision",
        /// A plan approved or rejected.
        Approval = "approval",
        /// A mode changed.
        Mode = "mode",
        /// A tool appeared, changed, was accepted.
        ToolChange = "tool_change",
        /// Rules or configuration were loaded or refused.
        Config = "config",
        /// The governed memory.
        Memory = "memory",
        /// Agent assets.
        Pack = "pack",
        /// A question an upstream put to its user.
        Question = "question",
        /// The gateway itself: start, stop, faults, credentials.
        System = "system",
    }
}

words! {
    /// How a row's matter stands.
    pub enum RowStatus("status") {
        /// May go; the outcome follows in another row.
        Allowed = "allowed",
        /// The law said no.
        Refused = "refused",
        /// It went well.
        Success = "success",
        /// It went wrong.
        Error = "error",
        /// Someone has to decide.
        Pending = "pending",
    }
}

words! {
    /// Who acted, as a row says it: a role, or the host's user interface, which is neither.
    pub enum ActorRole("role") {
        /// A model, over an agent connection.
        Agent = "agent",
        /// The user interface of a host, which may have answered without a person.
        Host = "host",
        /// A person with a human credential.
        Human = "human",
    }
}

impl From<Role> for ActorRole {
    fn from(role: Role) -> Self {
        match role {
            Role::Agent => Self::Agent,
            Role::Human => Self::Human,
        }
    }
}

words! {
    /// Through which door something came.
    pub enum Source("source") {
        /// An MCP line.
        Mcp = "mcp",
        /// The command line.
        Cli = "cli",
        /// REST.
        Api = "api",
        /// The page.
        Page = "page",
    }
}

/// A call as the ledger keeps it.
#[derive(Clone, Debug, PartialEq)]
pub struct CallRecord {
    /// Who.
    pub principal: PrincipalId,
    /// In which role.
    pub role: Role,
    /// In which session.
    pub session: SessionId,
    /// Through which door.
    pub source: Source,
    /// Which tool.
    pub tool: FullName,
    /// Through which call tool.
    pub variant: Option<Variant>,
    /// What the tool does, once known.
    pub effect: Option<Effect>,
    /// The mode in force, once known.
    pub mode: Option<Mode>,
    /// What was declared, as it was given: also where the call was refused for it.
    pub intent: Option<DeclaredIntent>,
    /// Arguments with secrets replaced.
    pub arguments: Value,
    /// The digest of the arguments as they were; keyed where something was replaced.
    pub arguments_digest: Digest,
    /// What keeps the plan's hash from giving away what was replaced. Never part of a row.
    pub hash_salt: Option<Digest>,
    /// The plan, where there is one.
    pub plan_id: Option<PlanId>,
    /// The plan's hash.
    pub plan_hash: Option<Digest>,
    /// Who agreed.
    pub approval: Option<Approval>,
}

impl CallRecord {
    /// What is known of a call before it is judged. The arguments come in once it is known what to leave out.
    pub fn begin(call: &Call) -> Self {
        Self {
            principal: call.caller.principal.clone(),
            role: call.caller.role,
            session: call.caller.session.clone(),
            source: call.caller.source,
            tool: bounded(&call.name),
            variant: door_variant(call.door),
            effect: None,
            mode: None,
            intent: call.intent.given(),
            arguments: Value::Null,
            arguments_digest: call.arguments.digest(),
            hash_salt: None,
            plan_id: None,
            plan_hash: None,
            approval: None,
        }
    }

    /// Takes the arguments in: without what must not be kept, and with a digest that does not give it away.
    pub fn set_arguments(&mut self, redactor: &Redactor, arguments: &Arguments, paths: &[String]) {
        let RedactedArguments { value, digest, hash_salt } = redactor.arguments(arguments, paths);
        self.arguments = value;
        self.arguments_digest = digest;
        self.hash_salt = hash_salt;
    }

    /// What is known of a call whose arguments could not even be read: who, through which door, and a digest of the bytes.
    pub fn unread(caller: &Caller, tool: FullName, variant: Option<Variant>, bytes: &[u8]) -> Self {
        Self {
            principal: caller.principal.clone(),
            role: caller.role,
            session: caller.session.clone(),
            source: caller.source,
            tool: bounded(&tool),
            variant,
            effect: None,
            mode: None,
            intent: None,
            arguments: Value::Null,
            arguments_digest: Digest::of(Domain::Arguments, bytes),
            hash_salt: None,
            plan_id: None,
            plan_hash: None,
            approval: None,
        }
    }
}

/// The longest part of a tool's name a row keeps, in characters. Names that exist are far shorter.
const NAME_LIMIT: usize = 256;

/// A name as it was asked for, cut to what a row keeps.
fn bounded(name: &FullName) -> FullName {
    FullName::new(cut(name.upstream.as_str(), NAME_LIMIT), cut(name.tool.as_str(), NAME_LIMIT))
}
