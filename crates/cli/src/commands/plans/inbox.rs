//! `countersign plans watch` on a terminal: a small inbox to list, look, approve and reject. Reads the store again and again and passes
//! every answer to `gateway::approval`, with the plan as it was shown. What is on the screen is in `state`, how it gets there in `screen`.

mod screen;
mod state;
mod styled_lines;

use std::time::Duration;

use countersign_gateway::approval::ApprovalInput;
use countersign_policy::confirm::PlanState;
use countersign_policy::redact::Redactor;
use countersign_store::{PlanFilter, Store, StoreUrl};
use crossterm::event::{self, Event, KeyEventKind};
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use self::screen::Screen;
use self::state::{InboxAction, InboxState};
use super::find::short_id;
use super::sheet;
use crate::command_result::{Answer, CommandError, CommandResult};
use crate::commands::approve::{decide, what_follows};
use crate::commands::serve::stopped;
use crate::output::{OutputSettings, visible};
use crate::person::{self, Person};
use crate::{environment, records};

/// How often the store is read.
const BEAT: Duration = Duration::from_millis(500);

/// Whether there is a terminal that can show the inbox.
pub(super) fn is_possible(voice: OutputSettings) -> bool {
    voice.is_watched()
        && person::ask::can_ask(voice)
        && environment::variable("TERM").is_none_or(|term| term != "dumb")
}

/// Shows the inbox until the person leaves it.
pub(super) fn run(url: &StoreUrl, voice: OutputSettings) -> CommandResult {
    records::with(url, async |store| {
        // Before the screen is taken: this may ask.
        let person = person::prove(&store, url, voice).await?;
        let inbox = Inbox { store: &store, url, voice, person: &person };
        inbox.show().await?;
        Ok(Answer { warnings: person.warnings, ..Answer::default() })
    })
}

struct Inbox<'a> {
    store: &'a Store,
    url: &'a StoreUrl,
    voice: OutputSettings,
    person: &'a Person,
}

impl Inbox<'_> {
    async fn show(&self) -> Result<(), CommandError> {
        let broken = |error| CommandError::fault("the terminal can't be used", error);
        let mut state =
            InboxState::new(Redactor::new(self.store.salt()), sheet::zone(self.voice, Timestamp::now()));
        self.refresh(&mut state).await?;
        let mut screen = Screen::open(self.voice).map_err(broken)?;
        let mut events = read_events();
        let mut beat = tokio::time::interval(BEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut end = std::pin::pin!(stopped());
        loop {
            screen.draw(|size| state.frame(size, Timestamp::now())).map_err(broken)?;
            tokio::select! {
                event = events.recv() => match event {
                    // The terminal is gone.
                    None => return Ok(()),
                    Some(Event::Key(key)) if key.kind != KeyEventKind::Release => {
                        match state.press(key, Timestamp::now()) {
                            Some(InboxAction::Quit) => return Ok(()),
                            Some(action) => {
                                self.decide(&mut state, action).await;
                                self.refresh(&mut state).await?;
                            }
                            None => {}
                        }
                    }
                    Some(_) => {}
                },
                _ = beat.tick() => if self.refresh(&mut state).await? { screen.ring().map_err(broken)? },
                () = &mut end => return Ok(()),
            }
        }
    }

    /// Reads the pending plans and the one that is looked at; true if a plan is new.
    async fn refresh(&self, state: &mut InboxState) -> Result<bool, CommandError> {
        let fault = |fault| records::trouble(&fault, self.url);
        let filter =
            PlanFilter { state: Some(PlanState::Pending), limit: Some(1000), ..PlanFilter::default() };
        let rows = self.store.plans(filter).await.map_err(fault)?;
        let looked_at = match state.open_plan() {
            Some(id) => self.store.plan(&id).await.map_err(fault)?,
            None => None,
        };
        Ok(state.refresh(rows, looked_at, Timestamp::now()))
    }

    /// Passes an answer on, and says what came of it.
    async fn decide(&self, state: &mut InboxState, action: InboxAction) {
        let (decider, now) = (decide::decider(self.store, self.person), Timestamp::now());
        match action {
            InboxAction::Quit => {}
            InboxAction::Approve { row, typed } => {
                let input = ApprovalInput { shown: (&row.plan).into(), typed: typed.as_deref(), note: None };
                match decider.approve_plan(&row.plan.id, input, now).await {
                    Ok(_) => {
                        let id = short_id(row.plan.id.as_str());
                        state.close(format!("approved {id}: {}", what_follows(&row)));
                    }
                    Err(error) => state.complain(self.lost(&row, error).await),
                }
            }
            InboxAction::Reject { row, note } => {
                let (id, hash) = (&row.plan.id, Some(row.plan.hash));
                match decider.reject_plan(id, hash, note.as_deref(), now).await {
                    Ok(_) => state.close(format!("rejected {}", short_id(id.as_str()))),
                    Err(error) => state.complain(self.lost(&row, error).await),
                }
            }
        }
    }

    /// Why a decision came to nothing, in one line.
    async fn lost(
        &self,
        row: &countersign_store::PlanRow,
        error: countersign_gateway::approval::DecisionError,
    ) -> String {
        match decide::lost(self.store, self.url, row, error, self.voice).await {
            CommandError::Refused(refused) => visible(&refused.refusal.message).into_owned(),
            CommandError::Usage(usage) => usage.message,
            CommandError::Output(message) => message,
            CommandError::Fault(fault) => fault.message,
            CommandError::Failed(failed) => failed.message,
        }
    }
}

/// What happens at the terminal. Reading it blocks, so it has a thread of its own, which ends with the process.
fn read_events() -> mpsc::UnboundedReceiver<Event> {
    let (tell, events) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            if tell.send(event).is_err() {
                return;
            }
        }
    });
    events
}
