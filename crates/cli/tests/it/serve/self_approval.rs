//! What an agent could try to get its own plan through without a person: names, proxies, phrases, tokens, modes, headers, forged
//! states, cards, plans of several steps, grants, REST, edits of files. Each as a named case against the real binary: nothing
//! reaches the upstream, and every single request of each has a row of the ledger of its own, written after the one before it
//! was answered, with the code and the reason that were told.

mod agent;
mod doors;
mod words;

use std::collections::BTreeSet;

use countersign_policy::role::Role;

use self::agent::Agent;
use self::doors::DOORS;
use self::words::WORDS;
use super::client::{Client, Host, Way};
use super::scene::Scene;

const CONFIG: &str = r#"[gateway]
mode = "execute"

[[rules]]
match = ["notes:erase_all", "notes:put_note", "notes:sync_notes"]
strength = "human"

[[rules]]
match = "notes:spend_note"
confirm = "type"
type_field = "id"

[[rules]]
match = "notes:store_direct"
role = "human"
"#;

/// A way to try it, by name.
type Strategy = (&'static str, fn(&mut Agent<'_>));

#[test]
fn no_agent_approves_itself() {
    let strategies = [WORDS, DOORS].concat();
    assert!(strategies.len() >= 40, "{}", strategies.len());
    let names: BTreeSet<&str> = strategies.iter().map(|(name, _)| *name).collect();
    assert_eq!(names.len(), strategies.len(), "each has a name of its own");
    let mut scene = Scene::open(Way::HttpModern, CONFIG);
    let address = scene.gateway().address();
    let mut table = Vec::new();
    let mut failed = Vec::new();
    for (number, (name, strategy)) in strategies.iter().enumerate() {
        let principal = format!("agent{number}");
        let secret = scene.credential(&principal, Role::Agent, "{}");
        let line =
            Client::http_as(Way::HttpModern, Host::None, &address, "/mcp/router", "s", Some(secret.clone()));
        let ledger = rusqlite::Connection::open_with_flags(
            scene.world.work().join("countersign.db"),
            rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY,
        );
        let mut agent = Agent {
            scene: &mut scene,
            address: address.clone(),
            name: principal.clone(),
            secret,
            line,
            said: Vec::new(),
            ledger: ledger.unwrap(),
            mark: 0,
            requests: 0,
            silent: Vec::new(),
        };
        agent.mark = agent.last();
        strategy(&mut agent);
        let (requests, silent) = (agent.requests, std::mem::take(&mut agent.silent));
        let said: BTreeSet<String> = agent.said.drain(..).collect();
        // A dry run is how a preview is made, and changes nothing.
        let executions = scene.reached().iter().filter(|(_, arguments)| arguments["dry_run"] != true).count();
        let said = said.into_iter().collect::<Vec<_>>().join(" ");
        if executions > 0 || !silent.is_empty() || requests == 0 {
            failed.push(format!(
                "{name}: {executions} executions, {requests} requests, without a row {silent:#?}, {said}"
            ));
        }
        let rows = requests - silent.len();
        table.push(format!(
            "{:>2}  {name:<72} {executions} executed  {requests:>2} requests  {rows:>2} rows  {said}",
            number + 1
        ));
    }
    println!("{}", table.join("\n"));
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    scene.finish(Vec::new());
}
