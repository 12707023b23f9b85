//! What the inbox shows and what a key does. Pure: gets rows, keys and the time, and returns frames and actions. A plan can be decided
//! only while it is shown whole, as the store still has it.

use countersign_policy::confirm::{Kind, PlanState};
use countersign_policy::ids::PlanId;
use countersign_policy::redact::Redactor;
use countersign_store::PlanRow;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use jiff::Timestamp;

use super::styled_lines::wrap;
use crate::commands::plans::find::short_id;
use crate::commands::plans::{list, sheet};
use crate::output::{BOLD, DIM, GOOD, TimeDisplay, WARN, cut, paint, plural, visible};

const LIST_KEYS: &str = "↑↓ choose · Enter look · a approve · r reject · q quit";
const PLAN_KEYS: &str = "a approve · r reject · ↑↓ space scroll · Esc back";
const CLOSED_KEYS: &str = "↑↓ space scroll · Esc back";
/// The longest text that is typed here, in characters.
const LONGEST_TEXT: usize = 400;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameSize {
    pub(super) width: usize,
    pub(super) height: usize,
}

/// What the person wants done.
#[derive(Debug)]
pub(super) enum InboxAction {
    Quit,
    /// With the plan as it was shown.
    Approve {
        row: Box<PlanRow>,
        typed: Option<String>,
    },
    Reject {
        row: Box<PlanRow>,
        note: Option<String>,
    },
}

/// The question about the plan that is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Prompt {
    Approve,
    /// The text to type, as far as it is typed.
    TypeName(String),
    RejectNote(String),
}

/// The plan that is looked at.
struct OpenPlan {
    row: PlanRow,
    /// Why it can't be decided any more.
    closed: Option<String>,
    scroll: usize,
    prompt: Option<Prompt>,
}

pub(super) struct InboxState {
    redactor: Redactor,
    zone: TimeDisplay,
    rows: Vec<PlanRow>,
    /// By id: a plan that comes or goes does not move the choice to another.
    chosen: Option<PlanId>,
    open: Option<OpenPlan>,
    message: Option<String>,
}

impl InboxState {
    pub(super) fn new(redactor: Redactor, zone: TimeDisplay) -> Self {
        Self { redactor, zone, rows: Vec::new(), chosen: None, open: None, message: None }
    }

    pub(super) fn open_plan(&self) -> Option<PlanId> {
        self.open.as_ref().map(|open| open.row.plan.id.clone())
    }

    /// Takes in what the store says now; true if a plan is new.
    pub(super) fn refresh(&mut self, rows: Vec<PlanRow>, looked_at: Option<PlanRow>, now: Timestamp) -> bool {
        let is_first = self.rows.is_empty() && self.chosen.is_none();
        let known: Vec<PlanId> = self.rows.iter().map(|row| row.plan.id.clone()).collect();
        self.rows = rows.into_iter().filter(|row| sheet::state(row, now) == PlanState::Pending).collect();
        let is_new = self.rows.iter().any(|row| !known.contains(&row.plan.id));
        if is_first {
            self.chosen = self.rows.first().map(|row| row.plan.id.clone());
        } else if self.chosen.as_ref().is_some_and(|id| self.position(id).is_none()) {
            // A key pressed now is meant for the plan that is gone: nothing is chosen in its place.
            self.chosen = None;
        }
        if let Some(open) = &mut self.open {
            open.refresh(looked_at, now);
        }
        is_new && !is_first
    }

    /// Ends looking at a plan, with a word about what came of it.
    pub(super) fn close(&mut self, message: String) {
        self.open = None;
        self.message = Some(message);
    }

    /// Says why an answer came to nothing. The plan stays open.
    pub(super) fn complain(&mut self, message: String) {
        if let Some(open) = &mut self.open {
            open.prompt = None;
        }
        self.message = Some(message);
    }

    pub(super) fn press(&mut self, key: KeyEvent, now: Timestamp) -> Option<InboxAction> {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return (key.code == KeyCode::Char('c')).then_some(InboxAction::Quit);
        }
        self.message = None;
        match &mut self.open {
            Some(open) => {
                let action = open.press(key.code, now);
                if action.is_none() && open.prompt.is_none() && leaves(key.code) {
                    self.open = None;
                }
                action
            }
            None => self.press_in_list(key.code),
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "keyboards have more keys than we use")]
    fn press_in_list(&mut self, key: KeyCode) -> Option<InboxAction> {
        match key {
            KeyCode::Up | KeyCode::Char('k') => self.choose(-1),
            KeyCode::Down | KeyCode::Char('j') => self.choose(1),
            KeyCode::PageUp => self.choose(-10),
            KeyCode::PageDown => self.choose(10),
            KeyCode::Enter | KeyCode::Right | KeyCode::Char('l') => self.look(None),
            KeyCode::Char('a') => self.look(Some('a')),
            KeyCode::Char('r') => self.look(Some('r')),
            KeyCode::Char('q') | KeyCode::Esc => return Some(InboxAction::Quit),
            _ => {}
        }
        None
    }

    fn position(&self, id: &PlanId) -> Option<usize> {
        self.rows.iter().position(|row| row.plan.id == *id)
    }

    fn choose(&mut self, by: isize) {
        let last = self.rows.len().saturating_sub(1);
        let at = match self.chosen.as_ref().and_then(|id| self.position(id)) {
            Some(at) => at.saturating_add_signed(by).min(last),
            None => 0,
        };
        self.chosen = self.rows.get(at).map(|row| row.plan.id.clone());
    }

    /// Opens the plan that is chosen, with the question a key asks for: nothing is decided unseen.
    fn look(&mut self, key: Option<char>) {
        let row = self.chosen.as_ref().and_then(|id| self.position(id)).and_then(|at| self.rows.get(at));
        let Some(row) = row.cloned() else { return };
        let mut open = OpenPlan { row, closed: None, scroll: 0, prompt: None };
        if let Some(key) = key {
            open.ask(key);
        }
        self.open = Some(open);
    }

    /// The screen, line by line; never more than fit.
    pub(super) fn frame(&mut self, size: FrameSize, now: Timestamp) -> Vec<String> {
        let width = size.width.max(20);
        let (mut lines, first) = match &self.open {
            Some(open) => self.plan_frame(open, width, size.height, now),
            None => (self.list_frame(width, size.height, now), 0),
        };
        if let Some(open) = &mut self.open {
            // Scrolling beyond the end does not count.
            open.scroll = first;
        }
        lines.truncate(size.height);
        lines
    }

    fn list_frame(&self, width: usize, height: usize, now: Timestamp) -> Vec<String> {
        let wait = if self.rows.len() == 1 { "waits" } else { "wait" };
        let title = format!("{} {wait} for a decision", plural(self.rows.len(), "plan"));
        let mut table = list::table();
        for row in &self.rows {
            table.row(list::inbox_line(row, &self.redactor, now));
        }
        let text = if self.rows.is_empty() { String::new() } else { table.render(Some(width - 2)) };
        let mut text = text.lines();
        let mut lines = vec![paint(BOLD, cut(&title, width))];
        lines.extend(text.next().map(|titles| format!("  {titles}")));
        let room = height.saturating_sub(lines.len() + 2).max(1);
        let at = self.chosen.as_ref().and_then(|id| self.position(id));
        let first = at.unwrap_or(0).saturating_sub(room - 1);
        for (number, line) in text.enumerate().skip(first).take(room) {
            let mark = if at == Some(number) { paint(GOOD, "▸ ") } else { "  ".to_owned() };
            lines.push(format!("{mark}{line}"));
        }
        // A window that is too narrow for the table shows its beginning.
        lines = lines.iter().filter_map(|line| wrap(line, width).into_iter().next()).collect();
        if self.rows.is_empty() {
            lines.extend(wrap(&paint(DIM, "plans come here as agents ask"), width));
        }
        self.finish(lines, LIST_KEYS.to_owned(), width, height)
    }

    /// The plan and the question about it; with the number of its first line on the screen.
    fn plan_frame(
        &self,
        open: &OpenPlan,
        width: usize,
        height: usize,
        now: Timestamp,
    ) -> (Vec<String>, usize) {
        let text = sheet::sheet(&open.row, &self.redactor, &self.zone, now);
        let all: Vec<String> = text.lines().flat_map(|line| wrap(line, width)).collect();
        let mut below = open.footer(width, self.message.is_some());
        if let Some(message) = &self.message {
            below.extend(wrap(&paint(WARN, message), width));
        }
        let room = height.saturating_sub(below.len()).max(1);
        let first = open.scroll.min(all.len().saturating_sub(room));
        let left = all.len().saturating_sub(first + room);
        let mut lines: Vec<String> = all.into_iter().skip(first).take(room).collect();
        lines.resize(room, String::new());
        if left > 0
            && let Some(last) = lines.last_mut()
        {
            // In the place of a line, so that it is read: the end of a long plan may be what matters.
            *last = paint(WARN, cut(&format!("… {} below: space", plural(left + 1, "line")), width));
        }
        lines.extend(below);
        (lines, first)
    }

    /// Puts the message and the keys at the bottom.
    fn finish(&self, mut lines: Vec<String>, keys: String, width: usize, height: usize) -> Vec<String> {
        let mut below = Vec::new();
        if let Some(message) = &self.message {
            below.extend(wrap(message, width));
        }
        below.push(paint(DIM, cut(&keys, width)));
        lines.resize(height.saturating_sub(below.len()), String::new());
        lines.extend(below);
        lines
    }
}

/// Whether a key leaves the plan that is looked at.
fn leaves(key: KeyCode) -> bool {
    matches!(key, KeyCode::Esc | KeyCode::Left | KeyCode::Char('q' | 'h'))
}

impl OpenPlan {
    fn refresh(&mut self, now_stored: Option<PlanRow>, now: Timestamp) {
        let id = short_id(self.row.plan.id.as_str());
        let Some(stored) = now_stored else {
            self.close(format!("{id} is gone"));
            return;
        };
        if stored.plan.hash != self.row.plan.hash {
            // What is shown stays: an answer to it would be an answer to another plan, and is not taken.
            self.close(format!("{id} was changed since you opened it: go back and look again"));
            return;
        }
        let state = sheet::state(&stored, now);
        self.row = stored;
        if state != PlanState::Pending {
            let by =
                self.row.approval.as_ref().map(|approval| format!(" by {}", visible(approval.by.as_str())));
            self.close(format!("{id} is {state}{}", by.unwrap_or_default()));
        }
    }

    fn close(&mut self, why: String) {
        self.prompt = None;
        self.closed = Some(why);
    }

    /// Asks for the decision a key stands for.
    fn ask(&mut self, key: char) {
        if self.closed.is_some() {
            return;
        }
        self.prompt = match key {
            'a' if self.row.plan.requirement.kind == Kind::Type => Some(Prompt::TypeName(String::new())),
            'a' => Some(Prompt::Approve),
            _ => Some(Prompt::RejectNote(String::new())),
        };
    }

    fn press(&mut self, key: KeyCode, now: Timestamp) -> Option<InboxAction> {
        if self.scroll_by(key) {
            return None;
        }
        // Between two looks at the store: an answer to a plan whose time ran out is not even asked.
        if sheet::state(&self.row, now) != PlanState::Pending && self.closed.is_none() {
            let row = self.row.clone();
            self.refresh(Some(row), now);
            return None;
        }
        match self.prompt.take() {
            Some(prompt) => self.answer(prompt, key),
            None => {
                if let KeyCode::Char(key @ ('a' | 'r')) = key {
                    self.ask(key);
                }
                None
            }
        }
    }

    /// Scrolls, where the key does that now; a space is a letter where text is typed.
    #[expect(clippy::wildcard_enum_match_arm, reason = "keyboards have more keys than we use")]
    fn scroll_by(&mut self, key: KeyCode) -> bool {
        let types = matches!(self.prompt, Some(Prompt::TypeName(_) | Prompt::RejectNote(_)));
        let by: isize = match key {
            KeyCode::Up => -1,
            KeyCode::Down => 1,
            KeyCode::PageUp => -10,
            KeyCode::PageDown => 10,
            KeyCode::Char(' ') if !types => 10,
            KeyCode::Char('k') if !types => -1,
            KeyCode::Char('j') if !types => 1,
            _ => return false,
        };
        self.scroll = self.scroll.saturating_add_signed(by);
        true
    }

    /// One key of an answer; the prompt stays until it is answered or left.
    fn answer(&mut self, prompt: Prompt, key: KeyCode) -> Option<InboxAction> {
        let row = || Box::new(self.row.clone());
        match (prompt, key) {
            (_, KeyCode::Esc) | (Prompt::Approve, KeyCode::Char('n')) => None,
            (Prompt::Approve, KeyCode::Char('y')) => Some(InboxAction::Approve { row: row(), typed: None }),
            (Prompt::TypeName(typed), KeyCode::Enter) if !typed.is_empty() => {
                Some(InboxAction::Approve { row: row(), typed: Some(typed) })
            }
            (Prompt::RejectNote(note), KeyCode::Enter) => {
                let note = Some(note).filter(|note| !note.trim().is_empty());
                Some(InboxAction::Reject { row: row(), note })
            }
            (Prompt::TypeName(typed), key) => {
                self.prompt = Some(Prompt::TypeName(edited(typed, key)));
                None
            }
            (Prompt::RejectNote(note), key) => {
                self.prompt = Some(Prompt::RejectNote(edited(note, key)));
                None
            }
            (prompt @ Prompt::Approve, _) => {
                self.prompt = Some(prompt);
                None
            }
        }
    }

    /// The question, or the keys, below the plan.
    fn footer(&self, width: usize, has_message: bool) -> Vec<String> {
        let need = &self.row.plan.requirement;
        let text = match (&self.prompt, &self.closed) {
            (Some(Prompt::Approve), _) => format!("{} y yes · n no", paint(BOLD, "Approve?")),
            (Some(Prompt::TypeName(typed)), _) => format!(
                "{} type {} to the letter, then Enter: {}▏",
                paint(BOLD, "Approve?"),
                paint(BOLD, visible(need.typed.as_deref().unwrap_or_default())),
                visible(typed)
            ),
            (Some(Prompt::RejectNote(note)), _) => {
                format!(
                    "{} a note for the agent, or none, then Enter: {}▏",
                    paint(BOLD, "Reject?"),
                    visible(note)
                )
            }
            (None, Some(why)) if has_message => paint(DIM, format_args!("{why} · {CLOSED_KEYS}")),
            (None, Some(why)) => format!("{} {}", paint(WARN, why), paint(DIM, CLOSED_KEYS)),
            (None, None) => paint(DIM, PLAN_KEYS),
        };
        wrap(&text, width)
    }
}

/// A text with one more key typed.
#[expect(clippy::wildcard_enum_match_arm, reason = "keyboards have more keys than we use")]
fn edited(mut text: String, key: KeyCode) -> String {
    match key {
        KeyCode::Char(letter) if text.chars().count() < LONGEST_TEXT => text.push(letter),
        KeyCode::Backspace => drop(text.pop()),
        _ => {}
    }
    text
}

#[cfg(test)]
mod tests;
