//! One call through the rooms, once, never back: catalogue, gate, store, upstream, store, answer.
//! Chooses nothing that the gate decides; a failure on the way refuses.

mod confirm;
pub mod desk;
mod explain;
mod held;
mod page;
pub mod passage;
mod question;
mod run;
pub mod series;

use std::pin::pin;
use std::sync::Arc;

use countersign_core::call::{Arguments, Call, Caller, Standing};
use countersign_core::confirm::{Brought, Held, Need};
use countersign_core::envelope::Envelope;
use countersign_core::gate::{self, Permit, Refused, Snapshot, Verdict, Writes, token_digest};
use countersign_core::grant::Grant;
use countersign_core::ids::FullName;
use countersign_core::mode::Mode;
use countersign_core::record::RowStatus;
use countersign_core::refusal::{Code, Refusal};
use countersign_core::suggest::Moment;
use countersign_store::StoreFault;
use countersign_wire::serve::Ctx;
use serde_json::Value;

use crate::answer::Answer;
use crate::asked::Asked;
use crate::house::House;
use crate::law::Law;
use crate::suggested::Suggesting;
use crate::trace;

/// One call on its way.
pub struct Conduct<'a> {
    /// What all lines share.
    pub house: &'a Arc<House>,
    /// The request; none where a person runs a plan from the desk, and no client listens.
    pub ctx: Option<&'a Ctx>,
    /// Who asks.
    pub caller: Caller,
    /// The command name of our own answers.
    pub command: String,
    /// How long the first call may wait for a person.
    pub wait_seconds: Option<f64>,
    /// The request's params, of which some members go along.
    pub rest: Option<countersign_wire::raw::Raw>,
}

/// Conducts a call from what was asked to its answer.
pub async fn conduct(house: &Arc<House>, ctx: &Ctx, caller: Caller, asked: Asked) -> Answer {
    let call = Call {
        // Not looked up yet, and until then not known.
        standing: Standing::Unknown(Vec::new()),
        caller: caller.clone(),
        arguments: filled(house, &asked.name, asked.arguments),
        name: asked.name,
        door: asked.door,
        intent: asked.intent,
        mode: asked.mode,
        brought: asked.brought,
    };
    let conduct = Conduct {
        house,
        ctx: Some(ctx),
        caller,
        command: asked.command,
        wait_seconds: asked.wait_seconds,
        rest: asked.rest,
    };
    conduct.go(call).await
}

/// The arguments as the tool's own upstream completes them, where it does.
fn filled(house: &House, name: &FullName, arguments: Arguments) -> Arguments {
    match house.upstreams.load().get(&name.upstream) {
        Some(upstream) => upstream.filled(name.tool.as_str(), arguments),
        None => arguments,
    }
}

/// What the catalogue says of a tool. Before a confirmed call the list is read again, and a tool that is withheld is
/// compared with its pin again: a person may have accepted it meanwhile.
async fn standing(house: &Arc<House>, name: &FullName, brought: &Brought) -> Standing {
    if let Some(keeper) = house.keeper() {
        if brought.is_phase_two() {
            Box::pin(keeper.relist(&name.upstream)).await;
        } else if house.catalog.load().get(name).is_some_and(|listed| !listed.is_accepted()) {
            Box::pin(keeper.recheck(&name.upstream)).await;
        }
    }
    house.standing(name)
}

/// What the gate said.
enum Judged {
    /// It may run.
    Go(Box<Permit>),
    /// Anything else.
    Other(Box<Verdict>),
}

/// The state of the world the gate looks at besides law and catalogue.
struct World {
    session_mode: Option<Mode>,
    held: Option<Box<Held>>,
    grants: Vec<Grant>,
    writes: Writes,
}

impl Conduct<'_> {
    async fn go(&self, call: Call) -> Answer {
        let law = self.house.law.load_full();
        let judged = trace::part("gate", pin!(self.judged(call, &law))).await;
        match judged {
            Ok(Judged::Go(permit)) => self.run(permit).await,
            // The rarer ways lie elsewhere: otherwise every read would carry the room they need.
            Ok(Judged::Other(verdict)) => Box::pin(self.otherwise(*verdict, &law)).await,
            // What can't be looked up can't be judged: closed.
            Err(fault) => self.refuse_unlogged(&fault.refusal()),
        }
    }

    /// Looks at the world, then judges.
    async fn judged(&self, mut call: Call, law: &Law) -> Result<Judged, StoreFault> {
        let world = self.look(&call).await?;
        // After the plan: a change found only now ends it as `tool_changed`, not as one that somebody cancelled.
        call.standing = standing(self.house, &call.name, &call.brought).await;
        let is_known = self.house.catalog.load().get(&call.name).is_some();
        let verdict = self.judge(call, law, &world);
        trace::judged(&verdict, is_known);
        Ok(match verdict {
            Verdict::Go(permit) => Judged::Go(Box::new(permit)),
            other @ (Verdict::Redeem(_)
            | Verdict::Hold(_)
            | Verdict::Preview(_)
            | Verdict::Explain(_)
            | Verdict::Refuse(_)) => Judged::Other(Box::new(other)),
        })
    }

    async fn otherwise(&self, verdict: Verdict, law: &Law) -> Answer {
        match verdict {
            Verdict::Go(permit) => self.run(Box::new(permit)).await,
            Verdict::Redeem(redemption) => self.redeem(redemption).await,
            Verdict::Hold(draft) => self.hold(draft, law).await,
            Verdict::Preview(draft) => self.show_preview(draft).await,
            Verdict::Explain(explanation) => self.explain(explanation).await,
            Verdict::Refuse(refused) => self.refuse_by_mode(refused).await,
        }
    }

    /// A refusal; one about the mode comes with what can be done instead.
    async fn refuse_by_mode(&self, refused: Refused) -> Answer {
        let about_mode = matches!(refused.refusal.code, Code::ModeForbidden | Code::ModeInvalid);
        let suggestions = about_mode
            .then(|| self.suggest(Moment::ModeRefused, refused.record.mode, &refused.record.tool, None));
        match (self.refuse(refused).await, suggestions) {
            (Answer::Envelope(envelope), Some(suggestions)) => {
                Answer::Envelope(envelope.with("suggestions", suggestions))
            }
            (answer, _) => answer,
        }
    }

    /// `data.suggestions`. A mode that never came to be counts as the weakest.
    fn suggest(&self, moment: Moment, mode: Option<Mode>, tool: &FullName, need: Option<&Need>) -> Value {
        let mode = mode.unwrap_or(Mode::Ask).min(self.caller.scopes.max_mode);
        Suggesting { house: self.house, caller: &self.caller, moment, mode }.about(tool, need)
    }

    /// Law and world as the gate takes them.
    fn snapshot<'s>(&'s self, law: &'s Law, world: &'s World) -> Snapshot<'s> {
        Snapshot {
            rules: &law.rules,
            strictness: law.strictness,
            configured_mode: law.mode,
            session_mode: world.session_mode,
            held: world.held.as_deref(),
            grants: &world.grants,
            usage: &self.house.usage,
            writes: world.writes,
            schema: &self.house.schemas,
            redactor: &self.house.redactor,
        }
    }

    /// Judges under the law in force and the world as it was looked at.
    fn judge(&self, call: Call, law: &Law, world: &World) -> Verdict {
        gate::judge(call, &self.snapshot(law, world), self.house.now())
    }

    /// Reads what the gate may need. A plain read needs neither grants nor pauses, and asks the store for none.
    async fn look(&self, call: &Call) -> Result<World, StoreFault> {
        let (store, principal) = (&self.house.store, &call.caller.principal);
        let session_mode = self.house.session_mode(&call.caller).await?;
        let held = match &call.brought.token {
            Some(token) => Box::pin(store.held(token_digest(token))).await?.map(Box::new),
            None => None,
        };
        let plain = self.house.catalog.load().get(&call.name).is_some_and(|listed| listed.is_plain_read());
        if plain {
            return Ok(World { session_mode, held, grants: Vec::new(), writes: Writes::Open });
        }
        let grants = Box::pin(store.grants_covering(principal, &call.name, self.house.now())).await?;
        let paused = Box::pin(store.paused(principal)).await?.is_some();
        let writes = if paused { Writes::Paused } else { Writes::Open };
        Ok(World { session_mode, held, grants, writes })
    }

    /// A refusal and its row.
    async fn refuse(&self, refused: Refused) -> Answer {
        let Refused { refusal, record } = refused;
        self.house.metrics.call(record.effect, RowStatus::Refused);
        if let Err(fault) = self.house.store.refused(&record, &refusal, self.house.now()).await {
            tracing::error!(
                incident = fault.incident(),
                fault = fault.inside(),
                "a refusal could not be recorded"
            );
        }
        Answer::refused(&self.command, &refusal)
    }

    fn refuse_unlogged(&self, refusal: &Refusal) -> Answer {
        Answer::refused(&self.command, refusal)
    }

    fn envelope(&self) -> Envelope {
        Envelope::ok(&self.command, serde_json::Map::new())
    }
}

/// `_meta["countersign"]` of a result that ran.
#[derive(serde::Serialize)]
struct Facts<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    plan_id: Option<&'a str>,
    ledger_id: &'a str,
    effect: &'static str,
    mode: &'static str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    warnings: &'a [String],
}
