//! Keys, rows that change under them, and frames of every size.

use countersign_policy::call::Arguments;
use countersign_policy::confirm::{ApprovalStrength, ConfirmRequirement};
use countersign_policy::digest::Digest;
use countersign_policy::effect::Effect;
use countersign_policy::plan::{Plan, Preview, PreviewSource};
use countersign_policy::record::HostInfo;
use countersign_policy::role::Role;
use jiff::ToSpan as _;
use serde_json::json;
use unicode_width::UnicodeWidthStr as _;

use super::*;

const NOW: &str = "2026-11-18T12:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn row(id: &str, kind: Kind) -> PlanRow {
    let typed = (kind == Kind::Type).then(|| "prod".to_owned());
    let plan = Plan {
        id: PlanId::new(format!("pln_01KA4Z7Q3V9M5T2X8R6W0{id}")),
        hash: Digest::plain(id.as_bytes()),
        principal: "claude-code@ada:/home/ada/shop".into(),
        credential: None,
        role: Role::Agent,
        session: "s1".into(),
        host: HostInfo::new(Some("claude-code"), None, Some("/home/ada/shop")).map(Box::new),
        tool: "infra:wipe".parse().unwrap(),
        fingerprint: Digest::plain(b"definition"),
        meta: None,
        preview: Preview::new(
            PreviewSource::Argument,
            json!({"message": "a\u{1b}[2Jb\u{202e}c"}),
            &json!(id),
        ),
        policy_digest: Digest::plain(b"policy"),
        effect: Effect::Destructive,
        requirement: ConfirmRequirement { kind, strength: ApprovalStrength::Human, typed },
        variant: None,
        intent: None,
        rule: None,
        redact: Vec::new(),
        hidden: None,
        steps: Vec::new(),
        created: now(),
        expires: now() + 5.minutes(),
        arguments: Arguments::parse("{\"workspace\":\"prod\\u001b[1A\u{200b}\"}".as_bytes()).unwrap(),
    };
    PlanRow {
        plan,
        state: PlanState::Pending,
        approval: None,
        note: None,
        decided: None,
        ledger_id: None,
        code: None,
        result: None,
        result_bytes: None,
        ended: None,
        held_until: None,
    }
}

fn inbox(rows: &[PlanRow]) -> InboxState {
    let mut state = InboxState::new(Redactor::new([7; 32]), TimeDisplay::Program);
    assert!(!state.refresh(rows.to_vec(), None, now()), "what is there at first is not new");
    state
}

fn press(state: &mut InboxState, keys: &str) -> Option<InboxAction> {
    keys.chars()
        .map(|key| match key {
            '\n' => KeyCode::Enter,
            '<' => KeyCode::Esc,
            'v' => KeyCode::Down,
            key => KeyCode::Char(key),
        })
        .filter_map(|code| state.press(KeyEvent::new(code, KeyModifiers::NONE), now()))
        .last()
}

fn bare(state: &mut InboxState, width: usize, height: usize) -> String {
    anstream::adapter::strip_str(&state.frame(FrameSize { width, height }, now()).join("\n")).to_string()
}

#[test]
fn a_plan_is_looked_at_before_it_is_approved() {
    let rows = [row("AAAAA", Kind::Preview), row("BBBBB", Kind::Preview)];
    let mut state = inbox(&rows);
    assert!(press(&mut state, "y").is_none());
    assert!(press(&mut state, "va").is_none());
    assert!(bare(&mut state, 80, 60).contains("Approve? y yes"), "{}", bare(&mut state, 80, 60));
    match press(&mut state, "xy") {
        Some(InboxAction::Approve { row, typed: None }) => assert_eq!(row.plan.hash, rows[1].plan.hash),
        other => panic!("{other:?}"),
    }
    assert!(press(&mut inbox(&rows), "an").is_none(), "no is no");
    assert!(press(&mut inbox(&rows), "a<y").is_none(), "a question that was left is not answered");
    assert!(matches!(press(&mut inbox(&rows), "q"), Some(InboxAction::Quit)));
    let noted = press(&mut inbox(&rows), "rnot now\n");
    assert!(matches!(noted, Some(InboxAction::Reject { note: Some(note), .. }) if note == "not now"));
    assert!(matches!(press(&mut inbox(&rows), "r\n"), Some(InboxAction::Reject { note: None, .. })));
}

#[test]
fn a_name_is_typed_to_the_letter() {
    let mut state = inbox(&[row("AAAAA", Kind::Type)]);
    assert!(press(&mut state, "ay\n").is_some_and(
        |action| matches!(action, InboxAction::Approve { typed: Some(typed), .. } if typed == "y")
    ));
    assert!(press(&mut inbox(&[row("AAAAA", Kind::Type)]), "a\n").is_none(), "nothing typed is no answer");
}

#[test]
fn a_plan_that_changes_expires_or_is_decided_elsewhere_takes_no_answer() {
    let first = row("AAAAA", Kind::Preview);
    let mut changed = first.clone();
    changed.plan.hash = Digest::plain(b"other");
    let mut decided = first.clone();
    decided.state = PlanState::Rejected;
    let mut expired = first.clone();
    expired.plan.expires = now() - 1.second();
    for (stored, word) in [
        (Some(changed), "was changed"),
        (Some(decided), "is rejected"),
        (Some(expired), "is expired"),
        (None, "is gone"),
    ] {
        let mut state = inbox(std::slice::from_ref(&first));
        assert!(press(&mut state, "a").is_none());
        state.refresh(Vec::new(), stored, now());
        assert!(press(&mut state, "y").is_none(), "{word}");
        assert!(press(&mut state, "ay").is_none(), "{word}");
        assert!(bare(&mut state, 100, 60).contains(word), "{}", bare(&mut state, 100, 60));
    }
    // Its time runs out between two looks at the store.
    let mut state = inbox(std::slice::from_ref(&first));
    press(&mut state, "a");
    let late = now() + 10.minutes();
    assert!(state.press(KeyEvent::new(KeyCode::Char('y'), KeyModifiers::NONE), late).is_none());
}

#[test]
fn more_time_that_an_equal_call_brings_is_shown_and_passed_on() {
    let first = row("AAAAA", Kind::Preview);
    let mut longer = first.clone();
    longer.plan.expires = now() + 9.minutes();
    let mut state = inbox(std::slice::from_ref(&first));
    press(&mut state, "a");
    state.refresh(vec![longer.clone()], Some(longer.clone()), now());
    assert!(bare(&mut state, 80, 60).contains("9 min 0 s"));
    let Some(InboxAction::Approve { row, .. }) = press(&mut state, "y") else { panic!() };
    assert_eq!(row.plan.expires, longer.plan.expires);
}

#[test]
fn the_choice_stays_with_its_plan() {
    let (one, two, new) =
        (row("AAAAA", Kind::Preview), row("BBBBB", Kind::Preview), row("CCCCC", Kind::Preview));
    let mut state = inbox(&[one.clone(), two.clone()]);
    assert!(state.refresh(vec![new, one, two.clone()], None, now()), "a new plan rings");
    press(&mut state, "a");
    assert!(state.open_plan().unwrap().as_str().ends_with("AAAAA"));
    // What was chosen is gone: the next key opens nothing in its place.
    let mut state = inbox(&[row("AAAAA", Kind::Preview), two.clone()]);
    state.refresh(vec![two], None, now());
    press(&mut state, "a");
    assert_eq!(state.open_plan(), None);
}

#[test]
fn a_frame_fits_every_terminal_and_hides_nothing() {
    let rows: Vec<PlanRow> = (0..30).map(|n| row(&format!("{n:05}"), Kind::Preview)).collect();
    for keys in ["", "v", "\n", "a", "r"] {
        for (width, height) in [(20, 5), (60, 24), (80, 24), (140, 40), (1, 1)] {
            let mut state = inbox(&rows);
            press(&mut state, keys);
            let lines = state.frame(FrameSize { width, height }, now());
            assert!(lines.len() <= height, "{keys} {width}x{height}");
            for line in &lines {
                let seen = anstream::adapter::strip_str(line).to_string();
                assert!(seen.width() <= width.max(20), "{keys} {width}: {seen}");
                assert!(!seen.contains(['\u{1b}', '\u{202e}', '\u{200b}']), "{seen:?}");
            }
        }
    }
    let mut state = inbox(&rows[..1]);
    press(&mut state, "\n");
    let whole = bare(&mut state, 60, 200).replace('\n', "");
    for part in ["\\u{1b}[2J", "\\u{202e}", "\\u{200b}", "plan hash", "claude-code in /home/ada/shop"] {
        assert!(whole.contains(part), "{part}: {whole}");
    }
    assert!(bare(&mut state, 60, 12).contains("lines below: space"), "{}", bare(&mut state, 60, 12));
}
