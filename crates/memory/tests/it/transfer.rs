//! Out to Markdown and back, and in from a mind-palace database.

use countersign_memory::{legacy, markdown};
use countersign_policy::memory::{RecordAuthority, RecordKind, Scope};
use countersign_store::memory::{Holding, MemoryRecord, Origin, RecordQuery};
use serde_json::json;

use crate::world::{On, World, agent, at, on_both, person};

on_both!(what_is_exported_comes_back, a_mind_palace_database_becomes_legacy_approved);

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
