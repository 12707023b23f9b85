//! Rows of the memory: decided once in any race, written with their audit row or not at all, stored unchanged, found
//! alike on both databases.

use std::collections::HashMap;

use countersign_policy::memory::{
    DecisionOutcome, ProposalStatus, RecordAuthority, RecordKind, RecordRelation, RecordStatus, Scope,
    SessionActivityKind, SessionOutcome,
};
use countersign_policy::record::Source;
use countersign_policy::refusal::Code;
use countersign_policy::role::Role;
use countersign_store::Store;
use countersign_store::ledger::verify;
use countersign_store::memory::{
    Activity, AuditFilter, Body, Holding, MemoryActor, NewProposal, NewRecord, NewSession, NotLinked,
    NotLogged, NotReviewed, Origin, Proposal, ProposalQuery, Proposed, RecordQuery, ReviewRuling, Rewording,
    Terms, content_hash,
};
use jiff::Timestamp;
use serde_json::json;

use crate::place::{Kind, Place, is_long, is_quick, on_both};
use crate::processes::{Other, listen, same_store, say};
use crate::world::at;

on_both!(
    approve_and_reject_raced_from_two_processes_decide_once,
    equal_proposals_raced_wait_once,
    without_an_audit_row_nothing_is_written,
    a_decision_keeps_both_texts_and_who_and_why,
    what_was_rejected_may_be_proposed_again,
    what_nobody_decides_expires,
    every_text_is_kept_as_it_came,
    records_are_found_alike,
    links_and_outcomes_change_what_holds,
    sessions_hear_of_each_other,
    imports_keep_ids_and_leave_out_what_is_there,
    the_audit_log_has_its_indexes_and_takes_no_rows_from_others,
);

pub(crate) fn actor(name: &str, role: Role) -> MemoryActor {
    MemoryActor { principal: name.into(), role, session: Some("s1".into()), source: Source::Mcp, named: None }
}

fn person() -> MemoryActor {
    actor("ada", Role::Human)
}

fn body(content: &str) -> Body {
    let words: String = content
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { ' ' })
        .collect();
    Body {
        content: content.into(),
        rationale: String::new(),
        context: String::new(),
        tags: Vec::new(),
        scope: Scope::Palace,
        path: String::new(),
        words,
    }
}

fn proposal(content: &str, now: Timestamp) -> NewProposal {
    NewProposal {
        kind: RecordKind::Decision,
        body: body(content),
        source: "agent".into(),
        session_id: String::new(),
        agent_type: String::new(),
        evidence: json!({"why": "because"}),
        confidence: 900,
        signals: vec!["explicit".into()],
        expires: now.checked_add(jiff::SignedDuration::from_hours(1)).unwrap(),
    }
}

fn record(content: &str, kind: RecordKind) -> NewRecord {
    NewRecord {
        kind,
        body: body(content),
        confidence: 700,
        source: "human".into(),
        session_id: String::new(),
        status: RecordStatus::Active,
        outcome: DecisionOutcome::Unknown,
        outcome_note: String::new(),
        outcome_at: None,
        id: None,
        created: None,
    }
}

async fn propose(store: &Store, content: &str, now: Timestamp) -> String {
    match store.propose(proposal(content, now), actor("agent", Role::Agent), now).await.unwrap() {
        Proposed::New { id, .. } => id,
        Proposed::Duplicate { existing_id } => panic!("{content} waits as {existing_id}"),
    }
}

async fn direct(store: &Store, content: &str, now: Timestamp) -> String {
    let written =
        store.write_record(record(content, RecordKind::Decision), Origin::Direct, person(), now).await;
    written.unwrap().unwrap().0
}

async fn all(store: &Store) -> Vec<Proposal> {
    store.proposals(ProposalQuery { limit: 1000, ..ProposalQuery::default() }, at(0)).await.unwrap()
}

async fn audit(place: &Place) -> Vec<Vec<Option<String>>> {
    place
        .raw_texts("SELECT action, actor_type, actor_id, entity_type, entity_id FROM audit_log ORDER BY id")
        .await
}

/// The other process: decides everything one way, and says what it won.
pub(crate) async fn decide_all(how: &str) {
    let (word, writer) = how.split_once(' ').unwrap();
    let store = same_store(writer).await;
    let mut ids: Vec<String> = all(&store).await.into_iter().map(|one| one.id).collect();
    if word == "approve" {
        // They come towards each other: both win some.
        ids.reverse();
    }
    say("ready");
    listen();
    for id in ids {
        let ruling = if word == "approve" { ReviewRuling::Approve(None) } else { ReviewRuling::Reject };
        let decided =
            store.review(&id, ruling, Some(word.into()), actor(writer, Role::Human), at(1)).await.unwrap();
        match decided {
            Ok(_) => say(format!("won {id}")),
            Err(NotReviewed::Decided(_)) => say(format!("lost {id}")),
            Err(other) => panic!("{other:?}"),
        }
    }
}

async fn approve_and_reject_raced_from_two_processes_decide_once(place: Place) {
    let count = match () {
        () if is_long() => 1000,
        () if is_quick() => 20,
        () => 150,
    };
    let store = place.store().await;
    for number in 0..count {
        propose(&store, &format!("decision number {number}"), at(0)).await;
    }
    // Chains of their own: on PostgreSQL nothing but the statement itself keeps the two apart.
    let mut others = [Other::start(&place, "review approve one"), Other::start(&place, "review reject two")];
    for other in &mut others {
        assert_eq!(other.hear().as_deref(), Some("ready"));
    }
    others.iter_mut().for_each(|other| other.tell("go"));
    let mut wins: HashMap<String, u32> = HashMap::new();
    let mut shares = Vec::new();
    for other in &mut others {
        let mut share = 0;
        while let Some(line) = other.hear() {
            if let Some(id) = line.strip_prefix("won ") {
                *wins.entry(id.to_owned()).or_default() += 1;
                share += 1;
            }
        }
        assert!(other.child.wait().unwrap().success());
        shares.push(share);
    }
    println!("{count} proposals, approve and reject from 2 processes: won {shares:?}");
    assert_eq!(wins.len(), count);
    assert!(wins.values().all(|times| *times == 1), "{wins:?}");
    let rows = audit(&place).await;
    let mut audited: HashMap<String, u32> = HashMap::new();
    for row in &rows {
        *audited.entry(row[4].clone().unwrap()).or_default() += 1;
    }
    assert_eq!(audited, wins, "one audit row each");
    let approved = all(&store).await.into_iter().filter(|one| one.status == ProposalStatus::Approved).count();
    let records = place.raw_texts("SELECT id FROM memory_records").await.len();
    assert_eq!(
        (approved, records),
        (shares[0], shares[0]),
        "a record for each that was approved, and no other"
    );
    assert_eq!(verify(&store, None).await.unwrap().first_bad, None);
}

async fn equal_proposals_raced_wait_once(place: Place) {
    let store = place.store().await;
    let tasks: Vec<_> = (0..8)
        .map(|number| {
            let store = store.clone();
            let content = if number % 2 == 0 { "Use  Tabs" } else { "use tabs" };
            tokio::spawn(async move {
                store.propose(proposal(content, at(0)), actor("agent", Role::Agent), at(0)).await
            })
        })
        .collect();
    let mut new = Vec::new();
    let mut joined = Vec::new();
    for task in tasks {
        match task.await.unwrap().unwrap() {
            Proposed::New { id, .. } => new.push(id),
            Proposed::Duplicate { existing_id } => joined.push(existing_id),
        }
    }
    assert_eq!((new.len(), joined.len()), (1, 7));
    assert!(joined.iter().all(|id| *id == new[0]));
    // Another kind or another place is another text.
    let mut other = proposal("use tabs", at(0));
    other.kind = RecordKind::Learning;
    assert!(matches!(store.propose(other, person(), at(0)).await.unwrap(), Proposed::New { .. }));
    let mut other = proposal("use tabs", at(0));
    (other.body.scope, other.body.path) = (Scope::File, "a.rs".into());
    assert!(matches!(store.propose(other, person(), at(0)).await.unwrap(), Proposed::New { .. }));
}

async fn without_an_audit_row_nothing_is_written(place: Place) {
    let store = place.store().await;
    let id = propose(&store, "use postgres", at(0)).await;
    let before = verify(&store, None).await.unwrap().rows;
    let (shut, open) = match place.kind {
        Kind::Sqlite => (
            "CREATE TRIGGER shut BEFORE INSERT ON ledger BEGIN SELECT RAISE(ABORT, 'no more rows'); END",
            "DROP TRIGGER shut",
        ),
        Kind::Postgres { .. } => (
            "ALTER TABLE ledger ADD CONSTRAINT shut CHECK (false) NOT VALID",
            "ALTER TABLE ledger DROP CONSTRAINT shut",
        ),
    };
    place.raw(shut).await;
    let code = |fault: countersign_store::StoreFault| fault.refusal().code;
    let refused = store.review(&id, ReviewRuling::Approve(None), None, person(), at(1)).await.unwrap_err();
    assert_eq!(code(refused), Code::LedgerUnavailable);
    assert!(store.review(&id, ReviewRuling::Reject, None, person(), at(1)).await.is_err());
    let written =
        store.write_record(record("x", RecordKind::Decision), Origin::Direct, person(), at(1)).await;
    assert!(written.is_err());
    assert!(store.propose(proposal("y", at(1)), person(), at(1)).await.is_err());
    assert!(
        store
            .import_records(vec![record("z", RecordKind::Idea)], Origin::Legacy, person(), at(1))
            .await
            .is_err()
    );
    let left = all(&store).await;
    assert_eq!(
        (left.len(), left[0].status, left[0].reviewed_by.as_deref()),
        (1, ProposalStatus::Pending, None)
    );
    assert!(place.raw_texts("SELECT id FROM memory_records").await.is_empty());
    place.raw(open).await;
    assert!(store.review(&id, ReviewRuling::Approve(None), None, person(), at(2)).await.unwrap().is_ok());
    let report = verify(&store, None).await.unwrap();
    assert_eq!((report.rows, report.first_bad), (before + 1, None));
}

async fn a_decision_keeps_both_texts_and_who_and_why(place: Place) {
    let store = place.store().await;
    let note = "he said \"yes\"; {\"a\":1}\n'; DROP TABLE ledger;--\u{202e}\0end";
    let id = propose(&store, "use pg", at(0)).await;
    let mut by = person();
    by.named = Some("Ada L.".into());
    let rewording = Rewording { content: "Use PostgreSQL".into(), words: "use postgresql".into() };
    let ruling = ReviewRuling::Approve(Some(rewording));
    let reviewed = store.review(&id, ruling, Some(note.into()), by, at(1)).await.unwrap().unwrap();
    let record_id = reviewed.record_id.unwrap();
    let kept = store.proposal(&id, at(2)).await.unwrap().unwrap();
    assert_eq!((kept.body.content.as_str(), kept.reworded.as_deref()), ("use pg", Some("Use PostgreSQL")));
    assert_eq!((kept.reviewed_by.as_deref(), kept.review_note.as_deref()), (Some("Ada L."), Some(note)));
    assert_eq!(kept.promoted_to.as_deref(), Some(record_id.as_str()));
    let record = store.record(&record_id).await.unwrap().unwrap();
    assert_eq!(
        (record.body.content.as_str(), record.authority),
        ("Use PostgreSQL", Some(RecordAuthority::Approved))
    );
    assert_eq!(record.proposal_id, id);
    let again = store.review(&id, ReviewRuling::Reject, None, person(), at(3)).await.unwrap().unwrap_err();
    assert_eq!(again.refusal(&id).code, Code::ProposalDecided);
    assert!(again.refusal(&id).message.contains("approved by Ada L."), "{:?}", again.refusal(&id));
    let unknown =
        store.review("prop_none", ReviewRuling::Reject, None, person(), at(3)).await.unwrap().unwrap_err();
    assert_eq!(unknown, NotReviewed::Unknown);
    let rows = audit(&place).await;
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(rows, [[some("approve"), some("human"), some("Ada L."), some("proposal"), some(&id)]]);
    let found = store.memory_audit(AuditFilter::default()).await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].metadata["promoted_to"], record_id.as_str());
    assert_eq!(found[0].metadata["note"], note.replace('\0', "\u{2400}"));
    assert_eq!(found[0].metadata["reworded_hash"], content_hash("Use PostgreSQL"));
    let principal =
        place.raw_texts("SELECT principal FROM ledger WHERE kind = 'memory' ORDER BY id DESC").await;
    assert_eq!(principal[0][0].as_deref(), Some("ada"), "who was on the line, whatever name was given");
}

async fn what_was_rejected_may_be_proposed_again(place: Place) {
    let store = place.store().await;
    let id = propose(&store, "use tabs", at(0)).await;
    store.review(&id, ReviewRuling::Reject, Some("spaces".into()), person(), at(1)).await.unwrap().unwrap();
    let again = store.propose(proposal("Use Tabs", at(2)), actor("agent", Role::Agent), at(2)).await.unwrap();
    let Proposed::New { id: second, rejected, recorded, .. } = again else { panic!("{again:?}") };
    let rejected = rejected.unwrap();
    assert_eq!((rejected.id, rejected.review_note.as_deref()), (id, Some("spaces")));
    assert_eq!(recorded, None);
    let record =
        store.review(&second, ReviewRuling::Approve(None), None, person(), at(3)).await.unwrap().unwrap();
    let third = store.propose(proposal("use tabs", at(4)), actor("agent", Role::Agent), at(4)).await.unwrap();
    let Proposed::New { recorded, .. } = third else { panic!("{third:?}") };
    assert_eq!(recorded, record.record_id);
}

async fn what_nobody_decides_expires(place: Place) {
    let store = place.store().await;
    let first = propose(&store, "use tabs", at(0)).await;
    let late = at(3600);
    assert_eq!(
        store.proposal(&first, late).await.unwrap().unwrap().status,
        ProposalStatus::Expired,
        "before any sweep"
    );
    let refused =
        store.review(&first, ReviewRuling::Approve(None), None, person(), late).await.unwrap().unwrap_err();
    assert_eq!(refused.refusal(&first).reason_code, "proposal_expired");
    // The same text may be proposed again at once.
    let second = propose(&store, "use tabs", late).await;
    assert_eq!(store.expire_proposals(late).await.unwrap(), 0, "proposing has closed the first");
    assert_eq!(store.expire_proposals(at(7200)).await.unwrap(), 1);
    let expired =
        "SELECT CAST(COUNT(*) AS TEXT) FROM ledger WHERE kind = 'memory' AND detail LIKE '%\"expire\"%'";
    assert_eq!(place.raw_texts(expired).await[0][0].as_deref(), Some("2"), "each has its row");
    let pending =
        ProposalQuery { status: Some(ProposalStatus::Pending), limit: 10, ..ProposalQuery::default() };
    assert!(store.proposals(pending, at(7200)).await.unwrap().is_empty());
    let gone = ProposalQuery { status: Some(ProposalStatus::Expired), limit: 10, ..ProposalQuery::default() };
    let gone: Vec<String> =
        store.proposals(gone, at(7200)).await.unwrap().into_iter().map(|one| one.id).collect();
    assert_eq!(gone, [second, first]);
}

async fn every_text_is_kept_as_it_came(place: Place) {
    let store = place.store().await;
    let long = "word ".repeat(200_000);
    let texts = [
        "'; DROP TABLE memory_records; --",
        "NEAR(a b) AND \"x\" OR * ^ {words}: -",
        "nul \0 and \u{fdd0} and \u{1b}[2J",
        "\u{202e}right to left\u{202c} שלום",
        long.as_str(),
        "\u{feff}日本語 😀 e\u{301}",
    ];
    for (number, text) in texts.iter().enumerate() {
        let mut new = record(text, RecordKind::Decision);
        new.body.rationale = (*text).to_owned();
        new.body.tags = vec![text.chars().take(20).collect()];
        new.body.words = format!("common marker{number}");
        let id = store.write_record(new.clone(), Origin::Direct, person(), at(1)).await.unwrap().unwrap().0;
        let kept = store.record(&id).await.unwrap().unwrap();
        assert_eq!(kept.body.content, *text);
        assert_eq!((kept.body.rationale, kept.body.tags), (new.body.rationale, new.body.tags));
        let query = RecordQuery {
            kinds: vec![RecordKind::Decision],
            terms: Terms::All(vec!["common".into(), format!("marker{number}")]),
            limit: 10,
            ..RecordQuery::default()
        };
        let found = store.find_records(query).await.unwrap();
        assert_eq!(found.iter().map(|one| one.id.clone()).collect::<Vec<_>>(), [id]);
        let hostile = Terms::All(vec![(*text).to_owned()]);
        let query = RecordQuery {
            kinds: vec![RecordKind::Decision],
            terms: hostile,
            limit: 1,
            ..RecordQuery::default()
        };
        store.find_records(query).await.unwrap();
        propose(&store, text, at(1)).await;
    }
    assert_eq!(all(&store).await.len(), texts.len());
    // The view reads every row, whatever the texts hold.
    assert_eq!(audit(&place).await.len(), texts.len());
    assert_eq!(verify(&store, None).await.unwrap().first_bad, None);
}

async fn records_are_found_alike(place: Place) {
    let store = place.store().await;
    for (number, text) in ["alpha beta", "alpha", "beta gamma", "alpha beta gamma"].iter().enumerate() {
        direct(&store, text, at(i64::try_from(number).unwrap())).await;
    }
    let mut file = record("alpha in a file", RecordKind::Decision);
    (file.body.scope, file.body.path) = (Scope::File, "src/a.rs".into());
    store.write_record(file, Origin::Direct, person(), at(5)).await.unwrap().unwrap();
    let idea = record("alpha idea", RecordKind::Idea);
    store.write_record(idea.clone(), Origin::Idea, person(), at(5)).await.unwrap().unwrap();
    assert!(
        store.write_record(idea, Origin::Idea, person(), at(6)).await.unwrap().is_err(),
        "the same idea is there"
    );
    let find = async |terms: Terms, places: Vec<(Scope, String)>, kinds: &[RecordKind]| {
        let query = RecordQuery { kinds: kinds.to_vec(), places, terms, limit: 10, ..RecordQuery::default() };
        let found = store.find_records(query).await.unwrap();
        found.into_iter().map(|one| one.body.content).collect::<Vec<_>>().join("|")
    };
    let decisions = [RecordKind::Decision];
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    assert_eq!(
        find(Terms::All(words(&["alpha", "beta"])), vec![], &decisions).await,
        "alpha beta gamma|alpha beta"
    );
    assert_eq!(
        find(Terms::Any(words(&["gamma", "file"])), vec![], &decisions).await,
        "alpha in a file|alpha beta gamma|beta gamma"
    );
    assert_eq!(find(Terms::All(vec![]), vec![], &decisions).await, "", "nothing asked for, nothing found");
    let places = vec![(Scope::File, "src/a.rs".to_owned()), (Scope::Palace, String::new())];
    assert_eq!(
        find(Terms::All(words(&["alpha"])), places.clone(), &decisions).await,
        "alpha in a file|alpha beta gamma|alpha|alpha beta",
        "nearest place first"
    );
    assert_eq!(find(Terms::Whatever, places[..1].to_vec(), &decisions).await, "alpha in a file");
    assert_eq!(find(Terms::All(words(&["alpha"])), vec![], &[RecordKind::Idea]).await, "alpha idea");
    // A facet is no word: nobody can ask for it, nobody can bring it.
    assert_eq!(find(Terms::All(words(&["k_decision"])), vec![], &decisions).await, "");
}

async fn links_and_outcomes_change_what_holds(place: Place) {
    let store = place.store().await;
    let old = direct(&store, "use yaml", at(0)).await;
    let new = direct(&store, "use toml", at(1)).await;
    let learnt = record("toml reads well", RecordKind::Learning);
    let learnt = store.write_record(learnt, Origin::Direct, person(), at(1)).await.unwrap().unwrap().0;
    let holding = async || {
        let query = RecordQuery { kinds: vec![RecordKind::Decision], limit: 10, ..RecordQuery::default() };
        store.find_records(query).await.unwrap().into_iter().map(|one| one.id).collect::<Vec<_>>()
    };
    let link =
        store.link_records(&new, &old, RecordRelation::Supersedes, person(), at(2)).await.unwrap().unwrap().0;
    assert_eq!(holding().await, std::slice::from_ref(&new), "what is superseded holds no longer");
    let twice = store.link_records(&new, &old, RecordRelation::Supersedes, person(), at(2)).await.unwrap();
    assert_eq!(twice.unwrap_err(), NotLinked::Exists(link.clone()));
    let nowhere = store.link_records(&new, "d_none", RecordRelation::Related, person(), at(2)).await.unwrap();
    assert_eq!(nowhere.unwrap_err(), NotLinked::Unknown("d_none".into()));
    store.link_records(&learnt, &new, RecordRelation::Supports, person(), at(3)).await.unwrap().unwrap();
    assert_eq!(store.links_of(&new).await.unwrap().len(), 2);
    let noted = store.record_outcome(&new, DecisionOutcome::Failed, "slow", person(), at(4)).await.unwrap();
    assert!(noted.is_some());
    let changed = store.record(&new).await.unwrap().unwrap();
    assert_eq!((changed.outcome, changed.outcome_note.as_str()), (DecisionOutcome::Failed, "slow"));
    assert_eq!(
        store.record(&learnt).await.unwrap().unwrap().confidence,
        600,
        "it spoke for something that failed"
    );
    assert!(
        store.record_outcome("d_none", DecisionOutcome::Mixed, "", person(), at(4)).await.unwrap().is_none()
    );
    assert!(store.unlink_records(&link, person(), at(5)).await.unwrap().is_some());
    assert!(store.unlink_records(&link, person(), at(5)).await.unwrap().is_none());
    assert_eq!(holding().await, [new, old], "and does again when the link goes");
    let all = RecordQuery {
        kinds: vec![RecordKind::Learning],
        holding: Holding::Whatever,
        limit: 1,
        ..RecordQuery::default()
    };
    assert_eq!(store.find_records(all).await.unwrap().len(), 1);
}

async fn sessions_hear_of_each_other(place: Place) {
    let store = place.store().await;
    let (one, two) = ("agent-1".into(), "agent-2".into());
    let about =
        |name: &str| NewSession { agent_type: name.into(), agent_id: String::new(), goal: "tidy up".into() };
    let first = store.start_session(about("codex"), &one, at(0)).await.unwrap();
    let second = store.start_session(about("claude"), &two, at(0)).await.unwrap();
    let touch =
        |kind| Activity { kind, target: "src/a.rs".into(), outcome: String::new(), details: String::new() };
    let log = async |id: &str, who, kind, now| store.log_session(id, who, touch(kind), now).await.unwrap();
    assert_eq!(log(&first, &one, SessionActivityKind::FileRead, at(1)).await.unwrap(), []);
    assert_eq!(
        log(&second, &two, SessionActivityKind::FileRead, at(1)).await.unwrap(),
        [],
        "two who read are no conflict"
    );
    let conflicts = log(&second, &two, SessionActivityKind::FileEdit, at(2)).await.unwrap();
    assert_eq!((conflicts.len(), conflicts[0].session_id.as_str()), (1, first.as_str()));
    let conflicts = log(&first, &one, SessionActivityKind::FileRead, at(3)).await.unwrap();
    assert_eq!((conflicts.len(), conflicts[0].kind), (1, SessionActivityKind::FileEdit));
    assert_eq!(store.sessions_at("src/a.rs", at(3)).await.unwrap().len(), 1);
    assert_eq!(
        log(&first, &two, SessionActivityKind::FileEdit, at(3)).await,
        Err(NotLogged::Unknown),
        "it is another's"
    );
    assert_eq!(store.open_sessions(at(3)).await.unwrap().len(), 2);
    // Silence for half an hour counts as gone.
    assert_eq!(log(&first, &one, SessionActivityKind::FileEdit, at(2000)).await.unwrap(), []);
    store.end_session(&first, &one, SessionOutcome::Success, "done", at(2001)).await.unwrap().unwrap();
    assert_eq!(log(&first, &one, SessionActivityKind::FileEdit, at(2002)).await, Err(NotLogged::Ended));
}

async fn imports_keep_ids_and_leave_out_what_is_there(place: Place) {
    let store = place.store().await;
    let named =
        |content: &str, id: &str| NewRecord { id: Some(id.into()), ..record(content, RecordKind::Decision) };
    let import = vec![
        named("one", "d_0123456789abcdef"),
        named("two", "d_0123456789abcdef"),
        named("three", "lrn_1"),
        named("ONE", "d_x"),
    ];
    let ids = store.import_records(import, Origin::Legacy, person(), at(0)).await.unwrap();
    assert_eq!((ids.len(), ids[0].as_str()), (3, "d_0123456789abcdef"), "a taken or foreign id is replaced");
    for id in &ids {
        assert_eq!(store.record(id).await.unwrap().unwrap().authority, Some(RecordAuthority::LegacyApproved));
    }
    assert_eq!(audit(&place).await.len(), 3, "each with its row");
}

/// Seed 002's table, as a view of the ledger: its columns, its indexes by name, and no row that the product did not write.
async fn the_audit_log_has_its_indexes_and_takes_no_rows_from_others(place: Place) {
    let store = place.store().await;
    let id = direct(&store, "Use SQLite", at(0)).await;
    let rows = place
        .raw_texts("SELECT id, action, actor_type, actor_id, entity_type, entity_id, metadata, created_at FROM audit_log")
        .await;
    assert_eq!(
        (rows.len(), rows[0][1].as_deref(), rows[0][5].as_deref()),
        (1, Some("direct_write"), Some(id.as_str()))
    );
    let sql = match &place.kind {
        Kind::Sqlite => {
            "SELECT name FROM sqlite_master WHERE type = 'index' AND name LIKE 'idx_audit_%' ORDER BY name"
        }
        Kind::Postgres { .. } => {
            "SELECT indexname FROM pg_indexes WHERE schemaname = current_schema() AND indexname LIKE 'idx_audit_%' ORDER BY indexname"
        }
    };
    let names: Vec<String> =
        place.raw_texts(sql).await.into_iter().filter_map(|row| row.into_iter().next().flatten()).collect();
    assert_eq!(names, ["idx_audit_action", "idx_audit_created", "idx_audit_entity"]);
    for sql in [
        "INSERT INTO audit_log (id, action, actor_type, entity_type, entity_id, created_at) VALUES ('a', 'approve', 'human', 'proposal', 'p', 'now')",
        "UPDATE audit_log SET actor_id = 'somebody'",
        "DELETE FROM audit_log",
    ] {
        assert!(!place.try_raw(sql).await, "{sql}");
    }
    assert_eq!(audit(&place).await.len(), 1);
}
