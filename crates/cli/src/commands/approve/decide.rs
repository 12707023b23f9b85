//! Deciding on a plan: the question, the typed name, the no, and what is said when somebody else was first.

use countersign_core::confirm::{Kind, Need, PlanState, Rail, check_typed as to_the_letter, check_unblocked};
use countersign_core::ids::FullName;
use countersign_core::plan::Plan;
use countersign_core::record::RowKind;
use countersign_core::refusal::{Code, Refusal};
use countersign_store::{DecideRefused, Filter, NotDecided, Paused, PlanRow, Store, StoreUrl};
use jiff::Timestamp;

use crate::answer::{Answer, Outcome, Refused, Trouble};
use crate::commands::plans::sheet;
use crate::output::{BAD, BOLD, Voice, exact, paint, shown, visible};
use crate::person::Person;
use crate::person::ask::{self, Said};
use crate::records;

/// Whose plan it is: their own may be dropped, somebody else's rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// An agent's, decided by a person.
    Others,
    /// Of the command that asks.
    Own,
}

/// Asks the person at the terminal: yes, no or reject, or the resource's name where it has to be typed.
pub(crate) fn ask(
    voice: Voice,
    whose: Whose,
    need: &Need,
    tool: &FullName,
    typed_before: Option<&str>,
) -> Result<Said, Box<Refused>> {
    let (words, choices, otherwise): (&str, &[Said], &str) = match whose {
        Whose::Others => {
            ("[yes/No/reject]", &[Said::Yes, Said::No, Said::Reject], "an empty line leaves it pending")
        }
        Whose::Own => ("[Yes/No]", &[Said::Yes, Said::No], "an empty line drops it"),
    };
    if need.kind != Kind::Type {
        let prompt = need.prompt(tool);
        let question = prompt.strip_suffix("[Yes/No]").unwrap_or(&prompt).trim_end();
        return Ok(ask::decide(voice, &format!("{} {words}", visible(question)), choices));
    }
    if let Some(typed) = typed_before {
        return compare(need, typed);
    }
    let name = need.typed.as_deref().unwrap_or_default();
    let name = paint(BOLD, visible(name));
    voice.tell(&format!("to go on, type {name} to the letter; {otherwise}\n"));
    match ask::line(voice, &format!("{}:", need.prompt(tool))) {
        None => Ok(Said::No),
        Some(typed) if typed.is_empty() => Ok(Said::No),
        Some(typed) => compare(need, &typed),
    }
}

fn compare(need: &Need, typed: &str) -> Result<Said, Box<Refused>> {
    match to_the_letter(need, Some(typed)) {
        Ok(()) => Ok(Said::Yes),
        Err(refusal) => Err(Box::new(Refused {
            next: Some("look at the name again, and type it".into()),
            ..refusal.into()
        })),
    }
}

/// Off a terminal the name comes with a flag; without it nobody has confirmed anything.
pub(crate) fn check_typed(need: &Need, typed: Option<&str>, plan: &Plan) -> Result<(), Box<Refused>> {
    if need.kind != Kind::Type {
        return Ok(());
    }
    let Some(typed) = typed else {
        let message = "the name of the resource has to be given, to the letter: --confirm-text TEXT";
        let refusal = Refusal::new(Code::ConfirmRequired, message).with("plan_id", plan.id.as_str());
        return Err(Box::new(Refused { next: Some(command(plan)), ..refusal.into() }));
    };
    compare(need, typed).map(drop)
}

/// What to type to approve a plan off a terminal.
pub(crate) fn command(plan: &Plan) -> String {
    let text = if plan.need.kind == Kind::Type { " --confirm-text TEXT" } else { "" };
    format!("countersign approve {} --yes{text}", plan.id)
}

/// Says no to a plan.
pub(crate) async fn reject(
    store: &Store,
    url: &StoreUrl,
    row: &PlanRow,
    person: Person,
    note: Option<String>,
    voice: Voice,
) -> Outcome {
    let rejected = store.reject(&row.plan.id, person.name.clone(), Rail::Cli, note, Timestamp::now()).await;
    let decided = match rejected {
        Ok(decided) => decided,
        Err(refused) => return Err(lost(store, url, row, refused, voice).await),
    };
    let tool = decided.plan.tool.to_string();
    let text = format!(
        "{} {} {} as {}\n",
        paint(BAD, "rejected"),
        decided.plan.id,
        visible(&tool),
        visible(person.name.as_str())
    );
    let who = &decided.plan.principal;
    let mut answer = Answer::text(text)
        .with("plan_id", decided.plan.id.as_str())
        .with("state", PlanState::Rejected.as_str())
        .with("tool", tool)
        .with("by", person.name.as_str())
        .with("paused", decided.paused == Paused::Now)
        .with("ledger_id", decided.ledger_id.as_str());
    answer.warnings = person.warnings;
    if decided.paused == Paused::Now {
        answer.warnings.push(format!(
            "three rejections in ten minutes: writes of `{who}` are paused; to let them go on: countersign plans resume {who}"
        ));
    }
    Ok(answer)
}

/// A decision that came to nothing: somebody was faster, its time ran out, or the store is broken.
pub(crate) async fn lost(
    store: &Store,
    url: &StoreUrl,
    row: &PlanRow,
    refused: DecideRefused,
    voice: Voice,
) -> Trouble {
    match refused {
        DecideRefused::Fault(fault) => records::trouble(&fault, url),
        DecideRefused::NotDecided(NotDecided::Expired | NotDecided::Decided(_)) => {
            let now = store.plan(&row.plan.id).await.ok().flatten();
            decided(store, url, now.as_ref().unwrap_or(row), voice).await
        }
        DecideRefused::NotDecided(why @ NotDecided::Blocked) => {
            let refusal = check_unblocked(&row.plan).err().unwrap_or_else(|| why.refusal());
            Trouble::refused(refusal, format!("countersign reject {}", row.plan.id))
        }
        DecideRefused::NotDecided(NotDecided::Ended(end)) => {
            let id = &row.plan.id;
            Trouble::refused(end.refusal(id.as_str()), format!("countersign plans show {id}"))
        }
        DecideRefused::NotDecided(why @ (NotDecided::Unknown | NotDecided::TooWeak)) => {
            Trouble::refused(why.refusal(), "countersign plans list")
        }
    }
}

/// Says who decided, and when.
pub(crate) async fn decided(store: &Store, url: &StoreUrl, row: &PlanRow, voice: Voice) -> Trouble {
    let now = Timestamp::now();
    let (id, state, zone) = (&row.plan.id, sheet::state(row, now), sheet::zone(voice, now));
    let show = format!("countersign plans show {id}");
    if state == PlanState::Expired {
        let message = format!("the time of `{id}` ran out at {}", shown(row.plan.expires, &zone));
        let refusal = Refusal::new(Code::PlanDecided, message).because("plan_expired");
        return Trouble::refused(refusal.with("state", state.as_str()), show);
    }
    let by = match decider(store, row).await {
        Ok(by) => by,
        Err(fault) => return records::trouble(&fault, url),
    };
    let answered = match (&row.approval, state) {
        (Some(_), PlanState::Approved) | (None, _) => String::new(),
        (Some(_), _) => format!(", and it is {state}"),
    };
    let verb = if row.approval.is_some() { "approved" } else { state.as_str() };
    let who = by.as_ref().map(|by| format!(" by {}", visible(by))).unwrap_or_default();
    let when = row.decided.or(row.ended).map(|at| format!(" at {}", shown(at, &zone))).unwrap_or_default();
    let message = format!("`{id}` was {verb}{who}{when} already{answered}");
    let mut refusal = Refusal::new(Code::PlanDecided, message).with("state", state.as_str());
    if let Some(by) = by {
        refusal = refusal.with("decided_by", by);
    }
    if let Some(at) = row.decided {
        refusal = refusal.with("decided_at", exact(at));
    }
    Trouble::refused(refusal, show)
}

/// Who decided: the approval says, or the ledger does.
async fn decider(store: &Store, row: &PlanRow) -> Result<Option<String>, countersign_store::StoreFault> {
    if let Some(approval) = &row.approval {
        return Ok(Some(approval.by.to_string()));
    }
    for kind in [RowKind::Approval, RowKind::Decision] {
        let filter = Filter {
            kind: Some(kind),
            plan_id: Some(row.plan.id.clone()),
            limit: Some(1),
            ..Filter::default()
        };
        let found = store.activity(filter).await?.rows.into_iter().next().and_then(|row| row.principal);
        if let Some(found) = found {
            return Ok(Some(found.to_string()));
        }
    }
    Ok(None)
}
