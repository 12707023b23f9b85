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
    let connection = Connection::open(world.work().join("countersign.db")).unwrap();
    connection.execute_batch(sql).unwrap();
    drop(connection);
    world.run(&[&["activity", "verify"], args].concat())
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

/// Whoever can write the store can cut off its end and everything it keeps about that end. Only a checkpoint kept elsewhere tells.
#[test]
fn a_thorough_truncation_needs_a_checkpoint_from_outside() {
    let sql = "DELETE FROM ledger WHERE sequence > 6; DELETE FROM checkpoints;
        UPDATE ledger_heads SET sequence = 6, hash = (SELECT hash FROM ledger WHERE sequence = 6)";
    assert_eq!(after(sql, &[]).code, Some(0));
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
