//! The memory on a line of its own: the same gate, the same built-in rules and the same ledger as behind the gateway. The
//! role is fixed when the line is opened; nothing that comes over it changes it.

use std::sync::Arc;
use std::time::Instant;

use countersign_core::call::{Arguments, Call, Caller, Scopes, Standing};
use countersign_core::canonical;
use countersign_core::config::{self, Source as File};
use countersign_core::confirm::Brought;
use countersign_core::digest::{Digest, Domain};
use countersign_core::envelope::Envelope;
use countersign_core::gate::{self, NoLimits, NoSchema, Snapshot, Verdict, Writes};
use countersign_core::ids::{FullName, PrincipalId, SessionId};
use countersign_core::intent::{Door, Spoken, Strictness};
use countersign_core::mode::Mode;
use countersign_core::record::Source;
use countersign_core::redact::Redactor;
use countersign_core::refusal::{Code, Refusal};
use countersign_core::role::Role;
use countersign_core::rules::RuleSet;
use countersign_core::tool::Tool;
use countersign_store::memory::{Actor, UPSTREAM};
use countersign_store::{Ended, Outcome as Ending};
use jiff::Timestamp;

use crate::{Memory, stop, tools};

/// A line to the memory.
#[derive(Clone)]
pub struct Line {
    memory: Memory,
    caller: Caller,
    rules: Arc<RuleSet>,
    redactor: Arc<Redactor>,
}

/// What a call came to.
#[derive(Debug)]
pub enum Said {
    /// An answer, good or not.
    Answer(Box<Envelope>),
    /// The tool is not for this line, or not there at all: an error of the protocol.
    Denied(Box<Refusal>),
}

impl Line {
    /// A line of this role. Fails only if the built-in rules can't be read.
    pub fn new(memory: Memory, role: Role, session: &str, source: Source) -> Result<Self, String> {
        let principal = match role {
            Role::Agent => PrincipalId::new("local-agent"),
            Role::Human => PrincipalId::new("local-human"),
        };
        let caller = Caller {
            principal,
            credential: None,
            role,
            session: SessionId::new(session),
            source,
            scopes: Scopes::all(),
        };
        let page = format!("[upstreams.{UPSTREAM}]\nkind = \"memory\"\n");
        let config = config::parse(&[File::new("built-in", page.as_str())])
            .map_err(|_| "the built-in rules can't be read".to_owned())?;
        let redactor = Arc::new(Redactor::new(memory.store().salt().to_vec()));
        Ok(Self { memory, caller, rules: Arc::new(config.rules), redactor })
    }

    /// Who is on the line.
    pub fn role(&self) -> Role {
        self.caller.role
    }

    /// Calls a tool: judged, written down, run, and its end written down.
    pub async fn call(&self, tool: &str, arguments: Arguments) -> Said {
        let now = Timestamp::now();
        let verdict = match self.named(tool, &arguments) {
            Ok(call) => gate::judge(call, &self.law(), now),
            Err(why) => return Said::Denied(Box::new(Refusal::new(Code::ToolNotFound, why))),
        };
        let permit = match verdict {
            Verdict::Go(permit) => permit,
            Verdict::Refuse(refused) => {
                // A denied call is a row; one that can't be written is told instead.
                let noted = self.memory.store().refused(&refused.record, &refused.refusal, now).await;
                let refusal = noted.map_or_else(|fault| fault.refusal(), |_| refused.refusal);
                return if [Code::RoleForbidden, Code::ToolNotFound].contains(&refusal.code) {
                    Said::Denied(Box::new(refusal))
                } else {
                    answer(Envelope::refused(&format!("memory.{tool}"), &refusal))
                };
            }
            Verdict::Hold(_) | Verdict::Redeem(_) | Verdict::Preview(_) | Verdict::Explain(_) => {
                let refusal =
                    Refusal::new(Code::ConfirmRequired, "the tool has to be confirmed in the gateway");
                return answer(Envelope::refused(&format!("memory.{tool}"), &refusal));
            }
        };
        let opened = match self.memory.store().open(permit, now).await {
            Ok(opened) => opened,
            Err(refused) => return answer(Envelope::refused(&format!("memory.{tool}"), &refused.refusal())),
        };
        let began = Instant::now();
        let envelope = self.memory.call(tool, arguments.value(), &self.actor(), now).await;
        let mut envelope =
            envelope.unwrap_or_else(|| stop::envelope(tool, Err(tools::not_for_agents(tool).into())));
        let ending = ending(&envelope, began);
        if let Err(fault) = self.memory.store().close(opened, ending, Timestamp::now()).await {
            envelope.warnings.push(format!("how it ended is not written yet: {fault}"));
        }
        answer(envelope)
    }

    fn actor(&self) -> Actor {
        Actor {
            principal: self.caller.principal.clone(),
            role: self.caller.role,
            session: Some(self.caller.session.clone()),
            source: self.caller.source,
            named: None,
        }
    }

    fn named(&self, tool: &str, arguments: &Arguments) -> Result<Call, String> {
        let standing = match tools::definition(tool) {
            Some(definition) => {
                let read = Tool::read(UPSTREAM.into(), definition).map_err(|error| error.to_string())?;
                Standing::Accepted(Arc::new(read))
            }
            None => {
                let seen: Vec<&str> = tools::classes()
                    .filter(|(_, class)| class.role == Role::Agent)
                    .map(|(name, _)| name)
                    .collect();
                let near = countersign_core::nearest::nearest(tool, seen);
                Standing::Unknown(near.map(str::to_owned).into_iter().collect())
            }
        };
        Ok(Call {
            caller: self.caller.clone(),
            name: FullName::new(UPSTREAM, tool),
            standing,
            arguments: arguments.clone(),
            door: Door::Direct,
            intent: Spoken::default(),
            mode: None,
            brought: Brought::default(),
        })
    }

    fn law(&self) -> Snapshot<'_> {
        Snapshot {
            rules: &self.rules,
            strictness: Strictness::Strict,
            configured_mode: Mode::Execute,
            session_mode: None,
            held: None,
            grants: &[],
            usage: &NoLimits,
            writes: Writes::Open,
            schema: &NoSchema,
            redactor: &self.redactor,
        }
    }
}

fn answer(envelope: Envelope) -> Said {
    Said::Answer(Box::new(envelope))
}

fn ending(envelope: &Envelope, began: Instant) -> Ending {
    let text = canonical::to_string(&serde_json::Value::Object(envelope.data.clone()));
    let code = envelope
        .errors
        .first()
        .and_then(|error| Code::ALL.iter().copied().find(|code| code.as_str() == error.code));
    Ending {
        status: if envelope.ok { Ended::Success } else { Ended::Error },
        code,
        duration_us: u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX),
        result_digest: envelope.ok.then(|| Digest::of(Domain::Outcome, text.as_bytes())),
        result: None,
    }
}
