//! Two processes, one token: applied exactly once, however often it is tried.

use serde_json::json;

use super::line::{Server, envelope};
use super::packed;

#[test]
fn two_processes_one_token_applied_exactly_once() {
    let rounds = if std::env::var_os("COUNTERSIGN_TEST_LONG").is_some() { 200 } else { 15 };
    let world = packed();
    let (mut left, mut right) = (Server::start(&world), Server::start(&world));
    for round in 0..rounds {
        let module = world.home().join(".agentpack/repo/modules/base/AGENTS.md");
        std::fs::write(module, format!("round {round}\n")).unwrap();
        let token = left.call("deploy", &json!({}))["data"]["confirm_token"].clone();
        let call = json!({"name": "deploy_apply", "arguments": {"yes": true, "confirm_token": token}});
        let (a, b) = (left.begin("tools/call", &call), right.begin("tools/call", &call));
        let (a, b) = (envelope(&left.reply(a)), envelope(&right.reply(b)));
        let applied = [&a, &b].into_iter().filter(|envelope| envelope["data"]["applied"] == true).count();
        assert_eq!(applied, 1, "{round}: {a:#}\n{b:#}");
        let late = if a["ok"] == true { &b } else { &a };
        assert_eq!(late["errors"][0]["code"], "E_CONFIRM_TOKEN_USED", "{round}: {late:#}");
        assert_eq!(world.read("AGENTS.md"), format!("round {round}\n"));
    }
    let snapshots = std::fs::read_dir(world.home().join(".agentpack/state/snapshots")).unwrap();
    let files = snapshots.filter(|entry| entry.as_ref().unwrap().path().is_file()).count();
    assert_eq!(files, rounds);
    left.end();
    right.end();
}
