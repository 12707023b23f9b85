//! What the ledger keeps of a call: facts without secrets. Built by the gate, kept by `store`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::call::{Arguments, Caller, ToolCall};
use crate::confirm::Approval;
use crate::digest::{Digest, DigestDomain};
use crate::effect::Effect;
use crate::headline::at_home;
use crate::ids::{FullName, PlanId, PrincipalId, RequestId, SessionId};
use crate::intent::{CallToolVariant, DeclaredIntent, cut};
use crate::mode::Mode;
use crate::plan::router_variant;
use crate::redact::{RedactedArguments, Redactor};
use crate::role::Role;
use crate::visible_text;
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
        Mode = "mode",
        /// A tool appeared, changed, was accepted.
        ToolChange = "tool_change",
        /// Rules or configuration were loaded or refused.
        Config = "config",
        Memory = "memory",
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
        Refused = "refused",
        Success = "success",
        Error = "error",
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
    /// The entry point a call or decision came through.
    pub enum Source("source") {
        Mcp = "mcp",
        Cli = "cli",
        Api = "api",
        Page = "page",
    }
}

/// The program on the other end of a connection. Clients name themselves as they like: it is a note for readers, and nothing is
/// decided by it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostInfo {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// The program's name as its makers write it, such as `Claude Code`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
}

impl HostInfo {
    /// Bounds each part and escapes invisible characters. None where nothing is known.
    pub fn new(program: Option<&str>, version: Option<&str>, folder: Option<&str>) -> Option<Self> {
        // Cut before escaping too: an escape is up to ten characters long.
        let bounded = |text: Option<&str>, limit| {
            let text = text.map(str::trim).filter(|text| !text.is_empty())?;
            Some(cut(&visible_text::line(&cut(text, limit)), limit))
        };
        let made = Self {
            program: bounded(program, HOST_WORD_LIMIT),
            title: None,
            version: bounded(version, HOST_WORD_LIMIT),
            folder: bounded(folder, HOST_FOLDER_LIMIT),
        };
        (made != Self::default()).then_some(made)
    }

    /// The same with the program's title, bounded and escaped like its name.
    #[must_use]
    pub fn with_title(self, title: Option<&str>) -> Self {
        Self { title: Self::new(title, None, None).and_then(|made| made.program), ..self }
    }

    /// `Claude Code in ~/projects/shop`, as far as it is known. Folders below `home` are written with `~`.
    pub fn describe(&self, home: Option<&str>) -> Option<String> {
        let program = self.title.as_deref().or(self.program.as_deref());
        // Hosts that belong to no project start their servers at the root of the file system, which says nothing.
        let folder =
            self.folder.as_deref().filter(|folder| *folder != "/").map(|folder| at_home(folder, home));
        match (program, folder) {
            (Some(program), Some(folder)) => Some(format!("{program} in {folder}")),
            (Some(program), None) => Some(program.to_owned()),
            (None, Some(folder)) => Some(format!("an agent in {folder}")),
            (None, None) => None,
        }
    }
}

/// The principal of stdio connections whose host is not named.
pub const LOCAL_AGENT: &str = "local-agent";

/// Who asks, for people: the host and its folder, and the credential where the connection showed one.
pub fn asked_by(host: Option<&HostInfo>, principal: &PrincipalId, home: Option<&str>) -> String {
    let Some(described) = host.and_then(|host| host.describe(home)) else { return principal.to_string() };
    // A principal made of host, user and folder has a colon, and no credential's name has one.
    if principal.as_str() == LOCAL_AGENT || principal.as_str().contains(':') {
        described
    } else {
        format!("{described}, as {principal}")
    }
}

/// The longest program name or version a row keeps, in characters.
const HOST_WORD_LIMIT: usize = 80;

/// The longest folder a row keeps, in characters.
const HOST_FOLDER_LIMIT: usize = 400;

/// A call as the ledger keeps it.
#[derive(Clone, Debug, PartialEq)]
pub struct CallRecord {
    pub principal: PrincipalId,
    pub role: Role,
    pub session: SessionId,
    /// By which request, as the log names it.
    pub request_id: Option<RequestId>,
    pub source: Source,
    /// The program on the other end of the connection.
    pub host: Option<Arc<HostInfo>>,
    pub tool: FullName,
    pub variant: Option<CallToolVariant>,
    pub effect: Option<Effect>,
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
    pub plan_hash: Option<Digest>,
    pub approval: Option<Approval>,
}

impl CallRecord {
    /// What is known of a call before it is judged. The arguments come in once it is known what to leave out.
    pub fn begin(call: &ToolCall) -> Self {
        Self {
            principal: call.caller.principal.clone(),
            role: call.caller.role,
            session: call.caller.session.clone(),
            request_id: call.caller.request_id.clone(),
            source: call.caller.source,
            host: call.caller.host.clone(),
            tool: bounded(&call.name),
            variant: router_variant(call.entry_point),
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

    /// The record of a call whose arguments could not be parsed: caller, entry point, and a digest of the bytes.
    pub fn unread(caller: &Caller, tool: FullName, variant: Option<CallToolVariant>, bytes: &[u8]) -> Self {
        Self {
            principal: caller.principal.clone(),
            role: caller.role,
            session: caller.session.clone(),
            request_id: caller.request_id.clone(),
            source: caller.source,
            host: caller.host.clone(),
            tool: bounded(&tool),
            variant,
            effect: None,
            mode: None,
            intent: None,
            arguments: Value::Null,
            arguments_digest: Digest::of(DigestDomain::Arguments, bytes),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_bounded_and_shows_what_is_invisible() {
        let check = |text: &str, expect: Option<&str>| {
            let made = HostInfo::new(Some(text), None, None);
            assert_eq!(made.and_then(|host| host.program).as_deref(), expect, "{text:?}");
        };
        check("claude-code", Some("claude-code"));
        check("  ", None);
        check("", None);
        check("a\u{202e}b", Some("a\\u{202e}b"));
        check("a\nb", Some("a\\nb"));
        let titled = HostInfo::new(Some("x"), None, None).unwrap().with_title(Some("a\u{202e}b"));
        assert_eq!(titled.title.as_deref(), Some("a\\u{202e}b"));
        for long in ["x", "\u{202e}", "é"].map(|one| one.repeat(100_000)) {
            let host = HostInfo::new(Some(&long), Some(&long), Some(&long)).unwrap();
            assert!(host.program.unwrap().chars().count() <= HOST_WORD_LIMIT + 1);
            assert!(host.version.unwrap().chars().count() <= HOST_WORD_LIMIT + 1);
            assert!(host.folder.unwrap().chars().count() <= HOST_FOLDER_LIMIT + 1);
        }
    }

    #[test]
    fn who_asks_is_said_as_people_say_it() {
        let home = Some("/home/ada");
        let check = |program, title, folder, principal: &str, expect: &str| {
            let host = HostInfo::new(program, Some("2.0"), folder).map(|host| host.with_title(title));
            assert_eq!(asked_by(host.as_ref(), &PrincipalId::new(principal), home), expect);
        };
        let (code, shop) = (Some("claude-code"), Some("/home/ada/projects/shop"));
        let own = "claude-code@ada:/home/ada/projects/shop";
        check(code, Some("Claude Code"), shop, own, "Claude Code in ~/projects/shop");
        check(code, None, shop, LOCAL_AGENT, "claude-code in ~/projects/shop");
        check(code, Some("Claude Code"), None, "shop-agent", "Claude Code, as shop-agent");
        check(code, None, Some("/"), LOCAL_AGENT, "claude-code");
        check(None, None, shop, LOCAL_AGENT, "an agent in ~/projects/shop");
        assert_eq!(asked_by(None, &PrincipalId::new("shop-agent"), home), "shop-agent");
    }
}
