//! Out to Markdown and back, and in from a mind-palace database.

use countersign_memory::{legacy, markdown};
use countersign_policy::memory::{RecordAuthority, RecordKind, Scope};
use countersign_store::memory::{Holding, MemoryRecord, Origin, RecordQuery};
use serde_json::json;

use crate::world::{On, World, agent, at, on_both, person};

on_both!(
    what_is_exported_comes_back,
    a_mind_palace_database_becomes_legacy_approved,
    links_tags_and_outcomes_come_along_and_a_second_import_changes_nothing,
);

async fn all(world: &World) -> Vec<MemoryRecord> {
    let query = RecordQuery {
        kinds: RecordKind::ALL.to_vec(),
        holding: Holding::Whatever,
        limit: 1000,
        ..RecordQuery::default()
    };
    world.memory.store().find_records(query).await.unwrap()
}

async fn what_is_exported_comes_back(on: On) {
    let from = World::on(on).await;
    let texts = [
        "One line",
        "Several\n\n# not a heading\n> not a quote\n**Rationale**\nlines\n",
        "<!-- countersign {\"as\":\"idea\"} -->\n-->",
        "controls \u{1b}[2J \r\n nul \0 \u{202e}turned",
        " leading and trailing ",
    ];
    for text in texts {
        let arguments = json!({"content": text, "as": "decision", "rationale": text, "context": "c", "tags": ["a", "b--c>"]});
        from.ok(&person(), "store_direct", arguments).await;
    }
    from.ok(&person(), "store_direct", json!({"content": "in a file", "as": "learning", "scope": "file", "scopePath": "src/a`b.rs", "confidence": 0.8})).await;
    from.ok(&agent(), "store", json!({"content": "an idea", "as": "idea"})).await;
    let before = all(&from).await;
    let (first, second) = (&before[0].id, &before[1].id);
    let link = json!({"sourceId": first, "targetId": second, "relation": "inspired_by"});
    from.ok(&person(), "recall_link", link).await;
    let links = from.memory.store().links().await.unwrap();
    let page = markdown::write(&before, &links);
    assert!(page.contains("\n- *inspired by* "), "{page}");
    assert_eq!(page, markdown::write(&before, &links), "the same records give the same page");
    assert!(
        !page.contains('\u{1b}') && !page.contains('\u{202e}') && !page.contains('\0'),
        "nothing acts in a page"
    );
    let to = World::on(on).await;
    let records = markdown::read(&page).unwrap();
    assert_eq!(records.len(), before.len());
    let (ideas, rest): (Vec<_>, Vec<_>) = records.into_iter().partition(|one| one.kind == RecordKind::Idea);
    let store = to.memory.store();
    store.import_records(rest, Origin::Direct, person(), at(20)).await.unwrap();
    store.import_records(ideas, Origin::Idea, person(), at(20)).await.unwrap();
    for one in markdown::links(&page) {
        store.link_records(&one.source, &one.target, one.relation, person(), at(20)).await.unwrap().unwrap();
    }
    let mut after = all(&to).await;
    let mut before = before;
    let facts = |record: &MemoryRecord| {
        (
            record.id.clone(),
            record.kind,
            record.body.clone(),
            record.status,
            record.confidence,
            record.created,
        )
    };
    before.sort_by(|left, right| left.id.cmp(&right.id));
    after.sort_by(|left, right| left.id.cmp(&right.id));
    assert_eq!(before.iter().map(facts).collect::<Vec<_>>(), after.iter().map(facts).collect::<Vec<_>>());
    assert_eq!(markdown::write(&before, &links), markdown::write(&after, &store.links().await.unwrap()));
    // Twice takes in nothing new; an edited quotation is another text.
    let again = markdown::read(&page).unwrap();
    assert!(store.import_records(again, Origin::Direct, person(), at(21)).await.unwrap().is_empty());
    let edited = page.replace("> One line\n", "> One line, reworded\r\n");
    let contents: Vec<String> =
        markdown::read(&edited).unwrap().into_iter().map(|one| one.body.content).collect();
    assert!(contents.contains(&"One line, reworded".to_owned()), "{contents:?}");
}

#[test]
fn a_page_that_cannot_be_read_says_where() {
    let check = |page: &str, line: usize, message: &str| {
        let bad = markdown::read(page).unwrap_err();
        assert_eq!((bad.line, bad.message.contains(message)), (line, true), "{bad:?}");
    };
    check("# x\n<!-- countersign {\"as\":\"decision\"}\n", 2, "does not end");
    check("<!-- countersign {as} -->\n", 1, "not JSON");
    check("<!-- countersign {\"as\":\"rumour\"} -->\n> x\n", 1, "`as` must be");
    check("<!-- countersign {\"as\":\"decision\"} -->\ntext\n", 1, "no quotation");
    check("<!-- countersign {\"as\":\"decision\",\"scope\":\"file\"} -->\n> x\n", 1, "scope_path");
    assert!(markdown::read("# nothing here\n").unwrap().is_empty());
}

async fn a_mind_palace_database_becomes_legacy_approved(on: On) {
    let world = World::on(on).await;
    let path = world.room.path().join("memory.db");
    let palace = rusqlite::Connection::open(&path).unwrap();
    palace
        .execute_batch(
            "CREATE TABLE decisions (id TEXT PRIMARY KEY, content TEXT, rationale TEXT, context TEXT, status TEXT, outcome TEXT,
               scope TEXT, scope_path TEXT, authority TEXT DEFAULT 'proposed', created_at TEXT);
             CREATE TABLE learnings (id TEXT PRIMARY KEY, content TEXT, confidence REAL, scope TEXT, scope_path TEXT);
             CREATE TABLE ideas (id TEXT PRIMARY KEY, content TEXT, status TEXT);
             CREATE TABLE proposals (id TEXT, proposed_as TEXT, content TEXT, status TEXT, classification_signals TEXT);
             INSERT INTO decisions VALUES ('d_0123456789abcdef', 'Use SQLite', 'simple', '', 'active', 'successful', 'file', 'src/db.go',
               'proposed', '2025-12-01T10:00:00Z');
             INSERT INTO decisions VALUES ('d_2', 'Use YAML', NULL, NULL, 'superseded', NULL, NULL, NULL, 'approved', 'yesterday');
             INSERT INTO decisions VALUES ('d_3', '  ', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
             INSERT INTO learnings VALUES ('lrn_1', 'WAL needs a local disk', 0.8, 'palace', '');
             INSERT INTO ideas VALUES ('i_1', 'Dark mode', 'exploring');
             INSERT INTO proposals VALUES ('prop_1', 'learning', 'Still waiting', 'pending', '[\"til\"]');
             INSERT INTO proposals VALUES ('prop_2', 'learning', 'Said no', 'rejected', '[]');",
        )
        .unwrap();
    drop(palace);
    let found = legacy::read(&path, at(0)).unwrap();
    assert_eq!((found.records.len(), found.proposals.len(), found.empty), (4, 1, 1));
    let store = world.memory.store();
    let ids = store.import_records(found.records, Origin::Legacy, person(), at(1)).await.unwrap();
    assert_eq!(ids, ["d_0123456789abcdef", "d_2", "lrn_1", "i_1"]);
    for record in all(&world).await {
        assert_eq!(record.authority, Some(RecordAuthority::LegacyApproved), "{}", record.id);
    }
    let record = store.record("d_0123456789abcdef").await.unwrap().unwrap();
    assert_eq!((record.body.scope, record.body.path.as_str()), (Scope::File, "src/db.go"));
    assert_eq!(record.created.to_string(), "2025-12-01T10:00:00Z");
    let read = world.ok(&agent(), "recall", json!({"query": "sqlite"})).await;
    assert_eq!(read["records"][0]["authority"], "legacy_approved");
    let read = world.ok(&agent(), "recall", json!({"query": "yaml"})).await;
    assert_eq!(read["count"], 0, "what was superseded stays so");
    let not_one = world.room.path().join("other.db");
    rusqlite::Connection::open(&not_one).unwrap().execute_batch("CREATE TABLE x (y)").unwrap();
    assert!(legacy::read(&not_one, at(0)).is_err());
}

async fn links_tags_and_outcomes_come_along_and_a_second_import_changes_nothing(on: On) {
    let world = World::on(on).await;
    let path = world.room.path().join("memory.db");
    let palace = rusqlite::Connection::open(&path).unwrap();
    palace
        .execute_batch(
            "CREATE TABLE decisions (id TEXT PRIMARY KEY, content TEXT, status TEXT, outcome TEXT, outcome_note TEXT, outcome_at TEXT,
               created_at TEXT);
             CREATE TABLE learnings (id TEXT PRIMARY KEY, content TEXT, confidence REAL);
             CREATE TABLE links (id TEXT PRIMARY KEY, source_id TEXT, source_kind TEXT, target_id TEXT, target_kind TEXT, relation TEXT);
             CREATE TABLE record_tags (record_id TEXT, record_kind TEXT, tag TEXT);
             CREATE TABLE decision_learnings (decision_id TEXT, learning_id TEXT);
             INSERT INTO decisions VALUES ('d_0000000000000001', 'Use YAML', 'superseded', 'failed', 'too many types',
               '2026-01-02T03:04:05Z', '2025-12-01T10:00:00Z');
             INSERT INTO decisions VALUES ('d_0000000000000002', 'Use TOML', 'active', 'successful', 'nobody complained', NULL,
               '2025-12-02T10:00:00Z');
             INSERT INTO learnings VALUES ('lrn_0000000000000003', 'People read comments', 0.8);
             INSERT INTO links VALUES ('l_1', 'd_0000000000000002', 'decision', 'd_0000000000000001', 'decision', 'supersedes');
             INSERT INTO links VALUES ('l_2', 'd_0000000000000002', 'decision', 'src/config.go', 'code', 'implements');
             INSERT INTO record_tags VALUES ('d_0000000000000002', 'decision', 'config');
             INSERT INTO decision_learnings VALUES ('d_0000000000000002', 'lrn_0000000000000003');",
        )
        .unwrap();
    drop(palace);
    let store = world.memory.store();
    let take_in = async || {
        let found = legacy::read(&path, at(0)).unwrap();
        assert_eq!((found.links.len(), found.unknown_links), (2, 1), "a link to a file is told");
        let ids = store.import_records(found.records, Origin::Legacy, person(), at(1)).await.unwrap();
        let mut linked = 0;
        for one in found.links {
            let made = store.link_records(&one.source, &one.target, one.relation, person(), at(1)).await;
            linked += usize::from(made.unwrap().is_ok());
        }
        (ids.len(), linked)
    };
    assert_eq!(take_in().await, (3, 2));
    let before = (all(&world).await, store.links().await.unwrap());
    let old = store.record("d_0000000000000001").await.unwrap().unwrap();
    assert_eq!(old.outcome_note, "too many types");
    assert_eq!(old.outcome_at.unwrap().to_string(), "2026-01-02T03:04:05Z");
    let new = store.record("d_0000000000000002").await.unwrap().unwrap();
    assert_eq!(
        (new.outcome_note.as_str(), new.body.tags.as_slice()),
        ("nobody complained", &["config".to_owned()][..])
    );
    assert_eq!(take_in().await, (0, 0), "what was superseded is not there twice");
    assert_eq!((all(&world).await, store.links().await.unwrap()), before);
    // Out to a page and back in changes nothing either.
    let page = markdown::write(&before.0, &before.1);
    let again = markdown::read(&page).unwrap();
    assert_eq!(again.iter().filter(|one| !one.outcome_note.is_empty()).count(), 2, "{page}");
    assert!(store.import_records(again, Origin::Direct, person(), at(2)).await.unwrap().is_empty());
    assert_eq!(all(&world).await, before.0);
}
