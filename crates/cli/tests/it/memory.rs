//! The governed memory as people and agents meet it: the command line, a line of its own, and behind the gateway. The seed's
//! acceptance criteria, over the whole binary.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde_json::{Value, json};

use crate::people::kit::typed;
use crate::world::World;

const ADMIN: [&str; 7] =
    ["store_direct", "list_proposals", "approve", "reject", "recall_outcome", "recall_link", "recall_unlink"];

/// What the examples of the help texts name.
pub(crate) fn fill(world: &World) {
    let store = world.work().join("countersign.db");
    for id in ["PROP", "WORD", "BVLK", "MORE", "REJE", "NOPE"] {
        let told = world
            .run(&["memory", "store", "--as", "decision", &format!("example {id}"), "--json"])
            .envelope();
        let given = told["data"]["proposal_id"].as_str().unwrap().to_owned();
        let wanted = format!("prop_01KA4Z7Q3V9M5T2X8R6W0Y{id}");
        let connection = rusqlite::Connection::open(&store).unwrap();
        connection.execute("UPDATE memory_proposals SET id = ?1 WHERE id = ?2", [&wanted, &given]).unwrap();
    }
    let record = "<!-- countersign {\"id\":\"d_01KA4Z7Q3V9M5T2X8R6W0YDECS\",\"as\":\"decision\"} -->\n\n> An example\n";
    world.write("example.md", record);
    assert_eq!(world.run(&["memory", "import", "example.md"]).code, Some(0));
    std::fs::create_dir(world.work().join(".palace")).unwrap();
    let palace = rusqlite::Connection::open(world.work().join(".palace/memory.db")).unwrap();
    let sql = "CREATE TABLE decisions (id TEXT, content TEXT); INSERT INTO decisions VALUES ('d_1', 'Old and true');";
    palace.execute_batch(sql).unwrap();
}

/// A server on stdin and stdout.
struct Server {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    next: u64,
}

impl Server {
    fn start(world: &World, args: &[&str]) -> Self {
        let mut command = world.countersign(args);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (to, from) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut server = Self { child, to, from, next: 0 };
        let opening = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        server.ask("initialize", &opening);
        server.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        server
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.to.as_mut().unwrap(), "{message}").unwrap();
    }

    /// The reply to a request; every line on stdout must be JSON-RPC.
    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.next += 1;
        let id = self.next;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        loop {
            let mut line = String::new();
            assert!(self.from.read_line(&mut line).unwrap() > 0, "the line closed");
            let message: Value = serde_json::from_str(&line).unwrap();
            assert_eq!(message["jsonrpc"], "2.0", "{line}");
            if message["id"] == id {
                return message;
            }
        }
    }

    fn names(&mut self) -> Vec<String> {
        let listed = self.ask("tools/list", &json!({}));
        let tools = listed["result"]["tools"].as_array().unwrap().clone();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        self.ask("tools/call", &json!({"name": tool, "arguments": arguments}))
    }

    /// The envelope of a call. Its text is the data once, or a sentence, and never the envelope again.
    fn envelope(&mut self, tool: &str, arguments: &Value) -> Value {
        let reply = self.call(tool, arguments);
        let result = &reply["result"];
        let envelope = result["structuredContent"].clone();
        let text = result["content"][0]["text"].as_str().unwrap();
        let data = text.split("\nNote: ").next().unwrap_or_default();
        match (serde_json::from_str::<Value>(data), envelope["ok"].as_bool()) {
            (Ok(data), Some(true)) => assert_eq!(data, envelope["data"]),
            (Ok(data), _) => panic!("a refusal is a sentence: {data}"),
            (Err(_), _) => assert!(text.len() <= 600, "{text}"),
        }
        assert_eq!(result["isError"].as_bool().unwrap(), !envelope["ok"].as_bool().unwrap(), "{reply}");
        envelope
    }

    /// Closes the line; what was said on stderr.
    fn end(mut self) -> String {
        drop(self.to.take());
        assert!(self.child.wait().unwrap().success());
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        said
    }
}

/// Acceptance: `serve --mode agent` excludes admin tools, the default is agent, a call gets −32602 and is a row.
#[test]
fn an_agents_line_excludes_admin_tools() {
    let world = World::new();
    for args in [&["memory", "serve"][..], &["memory", "serve", "--mode", "agent"][..]] {
        let mut server = Server::start(&world, args);
        let names = server.names();
        assert!(ADMIN.iter().all(|tool| !names.contains(&(*tool).to_owned())), "{names:?}");
        for tool in ADMIN {
            let denied = server.call(tool, &json!({"content": "x", "as": "decision"}));
            assert_eq!(denied["error"]["code"], -32602, "{denied}");
            assert_eq!(denied["error"]["message"], format!("Tool \"{tool}\" not available in agent mode"));
        }
        let stored =
            server.envelope("store", &json!({"content": format!("We use {}", args.len()), "as": "decision"}));
        assert!(stored["data"]["proposal_id"].as_str().unwrap().starts_with("prop_"), "{stored}");
        let hidden = server.envelope("recall_decisions", &json!({"query": "use"}));
        assert_eq!(hidden["data"]["count"], 0);
        assert_eq!(server.end(), "🤖 MCP server starting in AGENT mode (restricted)\n");
    }
    let rows = world.run(&["activity", "list", "--json", "--status", "refused", "--limit", "100"]).envelope();
    let rows = rows["data"]["activities"].as_array().unwrap().clone();
    assert_eq!(rows.len(), 2 * ADMIN.len());
    assert!(rows.iter().all(|row| row["code"] == "E_ROLE_FORBIDDEN" && row["role"] == "agent"), "{rows:?}");
    assert_eq!(world.run(&["activity", "verify"]).code, Some(0));
}

/// Acceptance: `serve --mode human` includes all tools, and `store_direct` works there, audited.
#[test]
fn a_humans_line_includes_all_tools() {
    let world = World::new();
    let mut server = Server::start(&world, &["memory", "serve", "--mode", "human"]);
    let names = server.names();
    assert!(ADMIN.iter().all(|tool| names.contains(&(*tool).to_owned())), "{names:?}");
    let written = server.envelope(
        "store_direct",
        &json!({"content": "Releases are signed", "as": "decision", "actorId": "ada"}),
    );
    let id = written["data"]["id"].as_str().unwrap().to_owned();
    let read = server.envelope("recall_decisions", &json!({"id": id}));
    assert_eq!(read["data"]["record"]["authority"], "approved");
    assert_eq!(read["data"]["record"]["promoted_from_proposal_id"], "");
    assert_eq!(server.end(), "⚠️  MCP server starting in HUMAN mode (full access)\n");
    let audit = world.run(&["memory", "audit", "--action", "direct_write", "--json"]).envelope();
    let row = &audit["data"]["audit"][0];
    assert_eq!(
        (&row["actor_id"], &row["actor_type"], &row["entity_id"]),
        (&json!("ada"), &json!("human"), &json!(id))
    );
}

#[test]
fn a_bad_mode_fails_the_start_naming_both() {
    let world = World::new();
    for bad in ["root", "admin", "HUMAN"] {
        let told = world.run(&["memory", "serve", "--mode", bad]);
        assert_eq!(told.code, Some(2), "{told}");
        let message = format!("invalid mode: {bad} (must be 'agent' or 'human')");
        assert!(told.stderr.contains(&message), "{told}");
        assert!(told.stdout.is_empty(), "{told}");
    }
}

#[test]
fn an_empty_mode_is_the_agents() {
    let world = World::new();
    let server = Server::start(&world, &["memory", "serve", "--mode", ""]);
    assert_eq!(server.end(), "🤖 MCP server starting in AGENT mode (restricted)\n");
}

/// The memory's mode is the gateway's role: the message says so.
#[test]
fn the_gateway_names_the_role_to_who_asks_for_it_as_a_mode() {
    let world = World::new();
    let told = world.run(&["serve", "--mode", "human"]);
    assert_eq!(told.code, Some(2), "{told}");
    assert!(told.stderr.contains("`human` is a role, not a mode: use --role human"), "{told}");
}

/// The program under the name of its original.
#[cfg(unix)]
#[test]
fn the_program_answers_to_the_name_palace() {
    let world = World::new();
    let palace = world.work().join("palace");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_countersign"), &palace).unwrap();
    let run = |args: &[&str]| world.command(&palace).args(args).output().unwrap();
    let stored = run(&["store", "--direct", "--as", "decision", "Use SQLite"]);
    assert!(stored.status.success(), "{}", String::from_utf8_lossy(&stored.stderr));
    let served = run(&["serve", "--mode", "human"]);
    assert!(served.status.success(), "{}", String::from_utf8_lossy(&served.stderr));
    let said = String::from_utf8_lossy(&served.stderr).into_owned();
    assert_eq!(said, "⚠️  MCP server starting in HUMAN mode (full access)\n");
    assert_eq!(
        world.run(&["memory", "audit", "--json"]).envelope()["data"]["audit"][0]["action"],
        "direct_write"
    );
}

/// A person on a human connection lists the pending proposals there.
#[test]
fn a_humans_line_lists_pending_proposals() {
    let world = World::new();
    let proposed = world.run(&["memory", "store", "--as", "decision", "Use YAML", "--json"]).envelope();
    let mut server = Server::start(&world, &["memory", "serve", "--mode", "human"]);
    let waiting = server.envelope("list_proposals", &json!({}));
    assert_eq!(waiting["data"]["count"], 1, "{waiting}");
    assert_eq!(waiting["data"]["proposals"][0]["id"], proposed["data"]["proposal_id"], "{waiting}");
    let by = json!({"proposalId": proposed["data"]["proposal_id"], "by": "ada"});
    assert_eq!(server.envelope("approve", &by)["ok"], true);
    assert_eq!(server.envelope("list_proposals", &json!({}))["data"]["count"], 0);
    server.end();
}

/// The seed's `TestExecuteStoreSuccess`: `--direct` leaves its audit row, and needs a person.
#[test]
fn a_direct_write_needs_a_person_and_leaves_its_audit_row() {
    let world = World::new();
    let told =
        world.run(&["memory", "store", "--direct", "--as", "decision", "Use SQLite", "--json"]).envelope();
    let id = told["data"]["id"].as_str().unwrap();
    let audit = world.run(&["memory", "audit", "--json"]).envelope();
    assert_eq!(audit["data"]["audit"][0]["entity_id"], id);
    assert_eq!(audit["data"]["audit"][0]["metadata"]["content_hash"], told["data"]["content_hash"]);
    // Somebody whose credential this store does not know decides nothing, and what they tried is a row.
    let other = tempfile::tempdir().unwrap();
    let home = other.path().to_str().unwrap();
    let as_other = |args: &[&str]| world.run_with(&[("HOME", home)], args);
    let denied = as_other(&["memory", "store", "--direct", "--as", "decision", "Use YAML", "--json"]);
    assert_eq!(denied.envelope()["errors"][0]["code"], "E_CREDENTIAL_REQUIRED", "{denied}");
    let proposed = as_other(&["memory", "store", "--as", "decision", "Use YAML", "--json"]).envelope();
    let proposal = proposed["data"]["proposal_id"].as_str().unwrap().to_owned();
    for args in [["memory", "approve", &proposal, "--yes"], ["memory", "reject", &proposal, "--json"]] {
        assert_eq!(as_other(&args).code, Some(3));
    }
    world.write("x.md", "<!-- countersign {\"as\":\"decision\"} -->\n> x\n");
    let denied = as_other(&["memory", "import", "x.md", "--json"]).envelope();
    assert_eq!(denied["errors"][0]["code"], "E_CREDENTIAL_REQUIRED");
    let waiting = world.run(&["memory", "list", "--status", "pending", "--json"]).envelope();
    assert_eq!(waiting["data"]["proposals"][0]["id"], proposal.as_str(), "it still waits");
    let audit = world.run(&["memory", "audit", "--json"]).envelope();
    assert_eq!(audit["data"]["audit"].as_array().unwrap().len(), 1);
}

#[test]
fn people_decide_with_every_text_shown() {
    let world = World::new();
    let propose = |text: &str| {
        let told = world.run(&["memory", "store", "--as", "decision", text, "--json"]).envelope();
        told["data"]["proposal_id"].as_str().unwrap().to_owned()
    };
    let first = propose("Retry payments\u{1b}[2J twice\u{202e}");
    let (second, third) = (propose("Buttons are blue"), propose("Use tabs"));
    let asked = world.run(&["memory", "approve", &first, &second]);
    assert_eq!(asked.code, Some(4), "{asked}");
    assert!(
        asked.stdout.contains("Retry payments\\u{1b}[2J twice\\u{202e}")
            && asked.stdout.contains("Buttons are blue")
    );
    assert!(!asked.stdout.contains('\u{1b}'), "{asked}");
    let both = world.run(&["memory", "approve", &first, &second, "--yes", "--note", "ok"]);
    assert_eq!(both.code, Some(0), "{both}");
    assert!(both.stderr.contains("Buttons are blue"), "{both}");
    let reworded =
        ["memory", "approve", &third[third.len() - 8..], "--yes", "--content", "Use four spaces", "--json"];
    let reworded = world.run(&reworded).envelope();
    assert_eq!(reworded["data"]["proposed_content"], "Use tabs");
    let shown = world.run(&["memory", "show", reworded["data"]["id"].as_str().unwrap(), "--json"]).envelope();
    assert_eq!(shown["data"]["record"]["content"], "Use four spaces");
    assert_eq!(shown["data"]["proposal"]["content"], "Use tabs");
    let again = world.run(&["memory", "approve", &first, "--yes", "--json"]);
    assert_eq!((again.code, &again.envelope()["errors"][0]["code"]), (Some(3), &json!("E_PROPOSAL_DECIDED")));
    let against = propose("Never retry payments");
    let shown = world.run(&["memory", "show", &against]);
    assert!(shown.stdout.contains("may contradict") && shown.stdout.contains("similar, approved"), "{shown}");
    let rejected = world.run(&["memory", "reject", &against, "--note", "we do", "--json"]).envelope();
    assert_eq!(rejected["data"]["status"], "rejected");
    let found = world.run(&["memory", "search", "payments", "--json"]).envelope();
    assert_eq!(found["data"]["records"].as_array().unwrap().len(), 1);
    assert_eq!(found["data"]["proposals"][0]["status"], "rejected");
    let audit = world.run(&["memory", "audit"]);
    assert_eq!(audit.stdout.matches("approve").count(), 3, "{audit}");
    let unknown = world.run(&["memory", "show", "prop_nowhere"]);
    assert_eq!(unknown.code, Some(3), "{unknown}");
}

/// At a terminal every text is shown, then one question is asked for all of them.
#[test]
fn at_a_terminal_one_question_is_asked_for_all() {
    let world = World::new();
    let propose = |text: &str| {
        let told = world.run(&["memory", "store", "--as", "decision", text, "--json"]).envelope();
        told["data"]["proposal_id"].as_str().unwrap().to_owned()
    };
    let (first, second, third) = (propose("Use tabs"), propose("Sign releases"), propose("Retry twice"));
    let question = "Approve 2 proposals? [yes/No/reject]";
    let left =
        typed(&world, &["memory", "approve", &first, &second], &[(question, "perhaps\n"), (question, "\n")]);
    assert_eq!(left.code, Some(4), "{left}");
    let yes = typed(&world, &["memory", "approve", &first, &second], &[(question, "y\n")]);
    assert_eq!(yes.code, Some(0), "{yes}");
    let asked = yes.stdout.find(question).unwrap();
    for text in ["Use tabs", "Sign releases"] {
        assert!(yes.stdout.find(text).unwrap() < asked, "{text} is shown before the question: {yes}");
    }
    let no = typed(&world, &["memory", "approve", &third], &[("Approve 1 proposal?", "reject\n")]);
    assert_eq!(no.code, Some(0), "{no}");
    let all = world.run(&["memory", "audit", "--json"]).envelope();
    let rows = all["data"]["audit"].as_array().unwrap();
    let actions: Vec<&str> = rows.iter().map(|row| row["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["reject", "approve", "approve"]);
    assert!(rows.iter().all(|row| row["actor_id"] == "ada"), "{rows:?}");
}

#[test]
fn the_memory_goes_into_a_repository_and_comes_back() {
    let world = World::new();
    world.run(&[
        "memory",
        "store",
        "--direct",
        "--as",
        "decision",
        "Use SQLite\nfor one machine",
        "--rationale",
        "simple",
    ]);
    world.run(&["memory", "store", "--as", "idea", "Dark mode"]);
    let out = world.run(&["memory", "export", "--out", "MEMORY.md"]);
    assert_eq!(out.code, Some(0), "{out}");
    let page = world.read("MEMORY.md");
    assert!(
        page.contains("### Use SQLite\n")
            && page.contains("> for one machine\n")
            && page.contains("## Ideas"),
        "{page}"
    );
    let there = world.run(&["memory", "import", "MEMORY.md", "--json"]).envelope();
    assert_eq!((&there["data"]["imported"], &there["data"]["skipped"]), (&json!(0), &json!(2)));
    let fresh =
        world.run(&["memory", "import", "MEMORY.md", "--store", "sqlite:other.db", "--json"]).envelope();
    assert_eq!(fresh["data"]["imported"], 2, "{fresh}");
    let again = world.run(&["memory", "export", "--store", "sqlite:other.db"]);
    assert_eq!(again.stdout, page, "the same page from the other store");
    for bad in ["nowhere.md", "bad.md"] {
        world.write("bad.md", "<!-- countersign {\"as\":\"rumour\"} -->\n> x\n");
        let told = world.run(&["memory", "import", bad, "--json"]);
        assert_eq!(told.envelope()["errors"][0]["code"], "E_ARGUMENTS_INVALID", "{told}");
    }
}

/// Behind the gateway the role comes from the line, and the built-in rules can't be written away.
#[test]
fn behind_the_gateway_the_role_comes_from_the_line() {
    let world = World::new();
    world.write(
        "countersign.toml",
        "[gateway]\nmode = \"execute\"\nsurface = \"direct\"\n\n[upstreams.memory]\nkind = \"memory\"\nfolder = \"project\"\n\n\
         [[rules]]\nmatch = \"memory:*\"\nrole = \"agent\"\n",
    );
    world.write(
        "project/rooms.toml",
        "[[rooms]]\nname = \"auth\"\nsummary = \"Sign-in\"\nfiles = [\"src/**\"]\n",
    );
    let mut agent = Server::start(&world, &["serve"]);
    let names = agent.names();
    assert!(names.contains(&"memory__store".to_owned()), "{names:?}");
    assert!(ADMIN.iter().all(|tool| !names.contains(&format!("memory__{tool}"))), "{names:?}");
    let denied = agent.call("memory__approve", &json!({"proposalId": "prop_x"}));
    assert_eq!(denied["error"]["code"], -32602, "{denied}");
    assert_eq!(denied["error"]["message"], "Tool \"approve\" not available in agent mode");
    let stored =
        agent.envelope("memory__store", &json!({"content": "Sign-in uses passkeys", "as": "decision"}));
    let proposal = stored["data"]["proposal_id"].as_str().unwrap().to_owned();
    let twice =
        agent.envelope("memory__store", &json!({"content": "sign-in uses PASSKEYS", "as": "decision"}));
    assert_eq!(twice["errors"][0]["details"]["existing_id"], proposal.as_str());
    let asked = agent.envelope("memory__store", &json!({"content": "x y", "countersign": {"mode": "ask"}}));
    assert_eq!(asked["errors"][0]["code"], "E_MODE_ASK");
    agent.end();
    let mut human = Server::start(&world, &["serve", "--role", "human"]);
    let approved = human.envelope("memory__approve", &json!({"proposalId": proposal, "by": "ada"}));
    let id = approved["data"]["id"].as_str().unwrap().to_owned();
    human.end();
    let mut agent = Server::start(&world, &["serve"]);
    let read = agent.envelope("memory__recall_decisions", &json!({"id": id}));
    assert_eq!(read["data"]["record"]["promoted_from_proposal_id"], proposal.as_str());
    let route = agent.envelope("memory__get_route", &json!({"intent": "change sign-in passkeys"}));
    let kinds: Vec<&str> = route["data"]["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| node["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["decision", "room"], "{route}");
    agent.end();
    let audit = world.run(&["memory", "audit", "--json"]).envelope();
    assert_eq!(audit["data"]["audit"][0]["actor_id"], "ada");
    assert_eq!(world.run(&["activity", "verify"]).code, Some(0));
}
