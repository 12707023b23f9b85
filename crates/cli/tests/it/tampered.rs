//! A ledger that somebody changed behind our back, and the binary that finds it.

use rusqlite::Connection;

use crate::ledger;
use crate::mask::mask;
use crate::world::{Transcript, World};

/// A world with a ledger and a checkpoint of it.
fn world() -> World {
    let world = World::new();
    ledger::write(&world.work().join("countersign.db"));
    assert_eq!(world.run(&["activity", "checkpoint", "--out", "head.json"]).code, Some(0));
    world
}

/// What the binary says after somebody with the file at hand ran this.
fn after(sql: &str, args: &[&str]) -> Transcript {
    let world = world();
    tamper(&world, sql);
    world.run(&[&["activity", "verify"], args].concat())
}

/// Somebody with the file at hand removes what keeps rows from being changed, and runs this.
fn tamper(world: &World, sql: &str) {
    let connection = Connection::open(world.work().join("countersign.db")).unwrap();
    for trigger in [
        "ledger_no_update",
        "ledger_no_delete",
        "ledger_no_replace",
        "checkpoints_no_update",
        "checkpoints_no_delete",
        "tombstones_no_update",
    ] {
        connection.execute_batch(&format!("DROP TRIGGER IF EXISTS {trigger}")).unwrap();
    }
    connection.execute_batch(sql).unwrap();
}

#[test]
fn a_good_ledger_is_proven() {
    let world = world();
    let text = world.run(&["activity", "verify"]);
    let against = world.run(&["activity", "verify", "--checkpoint", "head.json"]);
    let json = world.run(&["activity", "verify", "--json"]);
    assert_eq!(json.envelope()["data"]["clean"], true);
    insta::assert_snapshot!(mask(&format!("{text}\n{against}\n{json}")));
}

#[test]
fn the_first_bad_row_is_named() {
    let cases = [
        ("changed", "UPDATE ledger SET principal = 'nobody' WHERE sequence = 4"),
        (
            "one letter of the arguments",
            "UPDATE ledger SET arguments = replace(arguments, 'acme', 'acmf') WHERE sequence = 2",
        ),
        ("removed", "DELETE FROM ledger WHERE sequence = 5"),
        (
            "swapped",
            "UPDATE ledger SET sequence = -1 WHERE sequence = 3; UPDATE ledger SET sequence = 3 WHERE sequence = 6; UPDATE ledger SET sequence = 6 WHERE sequence = -1",
        ),
        ("cut off", "DELETE FROM ledger WHERE sequence > 6"),
        ("not readable any more", "UPDATE ledger SET status = 'fine' WHERE sequence = 7"),
    ];
    let said: Vec<String> = cases.iter().map(|(what, sql)| format!("{what}\n{}", after(sql, &[]))).collect();
    insta::assert_snapshot!(mask(&said.join("\n")));
}

#[test]
fn a_program_learns_the_reason() {
    let transcript = after("DELETE FROM ledger WHERE sequence = 5", &["--json"]);
    let envelope = transcript.envelope();
    assert_eq!((transcript.code, transcript.stderr.as_str()), (Some(3), ""), "{transcript}");
    assert_eq!(envelope["errors"][0]["code"], "E_LEDGER_TAMPERED");
    assert_eq!(envelope["errors"][0]["details"]["reason_code"], "row_missing");
    assert_eq!(envelope["data"]["first_bad"]["sequence"], 5);
    assert_eq!(envelope["data"]["clean"], false);
}

/// An attacker with write access to the store can cut off its end and everything it stores about that end. Only a
/// checkpoint outside reveals it: the default one, or an exported one.
#[test]
fn attack_08_a_thorough_truncation_is_found_by_the_checkpoints_outside() {
    let sql = "DELETE FROM ledger WHERE sequence > 6; DELETE FROM checkpoints;
        UPDATE ledger_heads SET sequence = 6, hash = (SELECT hash FROM ledger WHERE sequence = 6)";
    let told = after(sql, &[]);
    assert_eq!(told.code, Some(3), "{told}");
    // Without any of them nobody can tell, and that nothing is signed is said.
    let world = world();
    tamper(&world, sql);
    std::fs::remove_dir_all(world.home().join(".local/state/countersign")).unwrap();
    let untold = world.run(&["activity", "verify"]);
    assert_eq!(untold.code, Some(0), "{untold}");
    assert!(untold.to_string().contains("nothing is signed"), "{untold}");
    let told = after(sql, &["--checkpoint", "head.json"]);
    assert_eq!(told.code, Some(3), "{told}");
    insta::assert_snapshot!(mask(&told.to_string()));
}

#[test]
fn a_checkpoint_must_be_one_of_ours() {
    let world = world();
    let other = self::world();
    world.write("foreign.json", &other.read("head.json"));
    world.write("forged.json", &world.read("head.json").replace("\"sequence\":8", "\"sequence\":7"));
    world.write("junk.json", "{}");
    let check = |file: &str| world.run(&["activity", "verify", "--checkpoint", file]).to_string();
    insta::assert_snapshot!(mask(
        &["foreign.json", "forged.json", "junk.json", "absent.json"].map(check).join("\n")
    ));
}

/// Rows rewritten with another signing key in the place of ours: what the store says about keys is not believed.
#[test]
fn attack_08_checkpoints_of_another_key_are_not_believed() {
    let (world, forger) = (world(), world());
    // The forger's whole store is put in the place of ours; our key file stays.
    std::fs::copy(forger.work().join("countersign.db"), world.work().join("countersign.db")).unwrap();
    let told = world.run(&["activity", "verify"]);
    assert_eq!(told.code, Some(3), "{told}");
    // Also where the file outside is gone, or is the forger's.
    let state = world.home().join(".local/state/countersign/checkpoints");
    let file = std::fs::read_dir(&state).unwrap().next().unwrap().unwrap().path();
    let theirs = forger.home().join(".local/state/countersign/checkpoints");
    let theirs = std::fs::read_dir(theirs).unwrap().next().unwrap().unwrap().path();
    std::fs::copy(theirs, &file).unwrap();
    assert_eq!(world.run(&["activity", "verify"]).code, Some(3));
    std::fs::remove_file(&file).unwrap();
    let told = world.run(&["activity", "verify", "--json"]);
    let envelope = told.envelope();
    assert_eq!(told.code, Some(3), "{told}");
    assert_eq!(envelope["errors"][0]["details"]["reason_code"], "foreign_checkpoint");
    let key = forger.run(&["activity", "key", "--json"]).envelope()["data"]["fingerprint"].clone();
    assert_eq!(envelope["data"]["first_bad"]["key"], key, "the key is named");
}

/// A copy on another machine has no key beside it: it is verified with the key that was given along.
#[test]
fn attack_08_a_copy_without_a_key_is_not_proven_until_one_is_named() {
    let (world, elsewhere) = (world(), World::new());
    assert_eq!(world.run(&["activity", "verify"]).code, Some(0));
    std::fs::copy(world.work().join("countersign.db"), elsewhere.work().join("copy.db")).unwrap();
    let key = world.run(&["activity", "key"]);
    elsewhere.write("ledger.pem", &key.stdout);
    let verify = |args: &[&str]| {
        elsewhere.run(&[&["activity", "verify", "--store", "sqlite:copy.db", "--json"], args].concat())
    };
    let unproven = verify(&[]);
    assert_eq!(unproven.code, Some(3), "{unproven}");
    assert_eq!(unproven.envelope()["errors"][0]["code"], "E_LEDGER_UNVERIFIED");
    let proven = verify(&["--key", "ledger.pem"]);
    assert_eq!(proven.code, Some(0), "{proven}");
    let fingerprint = world.run(&["activity", "key", "--json"]).envelope()["data"]["fingerprint"].clone();
    assert_eq!(proven.envelope()["data"]["fingerprints"], serde_json::json!([fingerprint]));
    let other = self::world();
    elsewhere.write("other.pem", &other.run(&["activity", "key"]).stdout);
    assert_eq!(verify(&["--key", "other.pem"]).code, Some(3), "another key proves nothing");
    assert_eq!(verify(&["--key", "other.pem", "--key", "ledger.pem"]).code, Some(0));
    elsewhere.write("junk.pem", "hello");
    assert_eq!(verify(&["--key", "junk.pem"]).code, Some(2));
}
