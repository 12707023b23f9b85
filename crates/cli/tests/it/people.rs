//! People deciding: plans listed, shown, approved, rejected; grants, credentials, pauses. A real store, the real binary,
//! a terminal where one is needed.

pub(crate) mod kit;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use countersign_policy::confirm::Kind;
use countersign_policy::effect::Effect;
use countersign_policy::plan::PlanStep;
use serde_json::json;

use self::kit::{clock, hold, masked, open, plan, store_of, typed};
use crate::invisible;
use crate::ledger::wait;
use crate::world::{World, all};

/// A world with one plan of each kind.
fn world() -> World {
    let world = World::new();
    wait(async {
        let store = open(&store_of(&world)).await;
        let secret = json!({"repo": "acme/site", "body": "one\n  \"repo\": \"acme/other\"", "token": "hunter2", "n": [1, {"deep": true}]});
        hold(&store, &plan("01KA4Z7Q3V9M5T2X8R6W0AAAAA", "github:edit_repo", Kind::Preview, secret)).await;
        let typed = json!({"repo": "acme/site"});
        hold(&store, &plan("01KA4Z7Q3V9M5T2X8R6W0BBBBB", "github:delete_repo", Kind::Type, typed)).await;
        hold(&store, &plan("01KA4Z7Q3V9M5T2X8R6W0CCCCC", "github:close_issue", Kind::Simple, json!({})))
            .await;
    });
    world
}

#[test]
fn the_inbox_and_one_plan_whole() {
    let world = world();
    let show = world.run(&["plans", "show", "0AAAAA"]);
    assert!(
        !show.stdout.contains("hunter2")
            && !show.stdout.contains('\u{202e}')
            && !show.stdout.contains('\u{1b}')
    );
    insta::assert_snapshot!(masked(&all([
        world.run(&["plans", "list"]),
        show,
        world.run(&["plans", "show", "0BBBBB"]),
        world.run(&["plans", "list", "--state", "rejected"]),
        world.run(&["plans", "show", "AAAA"]),
        world.run(&["plans", "show", "01KA4Z"]),
        world.run(&["plans", "show", "nosuch"]),
        world.run(&["plans", "list", "--state", "waiting"]),
    ])));
    let typed = world.run(&["plans", "show", "0bbbbb", "--json"]).envelope();
    assert_eq!(typed["data"]["plan"]["confirm"]["kind"], "type");
    assert!(
        typed["data"]["plan"]["confirm"].get("typed").is_none(),
        "what is to be typed is for a person's eyes"
    );
}

#[test]
fn attack_11_every_invisible_character_is_an_escape_in_the_terminal() {
    let world = World::new();
    let (text, id) = (invisible::text(), "01KA4Z7Q3V9M5T2X8R6W0AAAAA");
    let mut held =
        plan(id, "github:edit_repo", Kind::Preview, json!({"repo": text.as_str(), text.as_str(): 1}));
    held.intent.as_mut().unwrap().reason = Some(text.clone());
    held.preview.shown =
        json!({"content": [{"type": "text", "text": text}], "structuredContent": {"message": text}});
    wait(async { hold(&open(&store_of(&world)).await, &held).await });
    invisible::check_escaped(&world.run(&["plans", "show", "0AAAAA"]).stdout, &text, "plans show");
    let asked = typed(&world, &["approve", "0AAAAA"], &[("[y/N]", "n\n")]);
    invisible::check_escaped(&asked.stdout, &text, "approve in a terminal");
    for args in [["plans", "list"].as_slice(), &["approve", "0AAAAA", "--yes"]] {
        let said = world.run(args);
        let hidden = |c: char| c != '\n' && countersign_policy::visible_text::is_invisible(c);
        assert!(!said.stdout.contains(hidden) && !said.stderr.contains(hidden), "{said}");
    }
}

#[test]
fn off_a_terminal_the_flags_decide() {
    let world = world();
    insta::assert_snapshot!(masked(&all([
        world.run(&["approve", "0CCCCC"]),
        world.run(&["approve", "0BBBBB", "--yes"]),
        world.run(&["approve", "0BBBBB", "--yes", "--confirm-text", "acme/sit"]),
        world.run(&["approve", "0BBBBB", "--yes", "--confirm-text", "acme/site", "--grant"]),
        world.run(&[
            "approve",
            "0BBBBB",
            "--yes",
            "--confirm-text",
            "acme/site",
            "--note",
            "agreed in the meeting"
        ]),
        world.run(&["approve", "0BBBBB", "--yes", "--confirm-text", "acme/site"]),
        world.run(&["reject", "0CCCCC", "--note", "not today"]),
        world.run(&["approve", "0CCCCC", "--yes"]),
        world.run(&["plans", "list", "--all"]),
    ])));
    let envelope = world.run(&["approve", "0AAAAA", "--json"]);
    assert_eq!(envelope.code, Some(4), "{envelope}");
    let envelope = envelope.envelope();
    assert_eq!(envelope["errors"][0]["code"], "E_CONFIRM_REQUIRED");
    assert_eq!(envelope["data"]["plan"]["plan_id"], "pln_01KA4Z7Q3V9M5T2X8R6W0AAAAA");
    let approved = world.run(&["approve", "0AAAAA", "--yes", "--json"]).envelope();
    assert_eq!(approved["data"]["approval"]["strength"], "human");
    assert_eq!(approved["data"]["approval"]["rail"], "cli");
}

/// Grants and notes have the limits of the page, checked before anything is decided.
#[test]
fn limits_of_grants_and_notes_are_those_of_the_page() {
    let world = world();
    let grant = |more: &[&str]| {
        let args = [&["approve", "0AAAAA", "--yes", "--grant", "--json"], more].concat();
        world.run(&args)
    };
    for wrong in [["--expires", "91d"], ["--expires", "0s"], ["--uses", "0"], ["--uses", "10001"]] {
        let refused = grant(&wrong);
        assert_eq!(refused.code, Some(2), "{refused}");
    }
    let long = "n".repeat(4001);
    for args in [&["approve", "0AAAAA", "--yes", "--json"][..], &["reject", "0AAAAA", "--json"]] {
        let refused = world.run(&[args, &["--note", &long]].concat()).envelope();
        assert_eq!(refused["errors"][0]["code"], "E_ARGUMENTS_INVALID", "{refused}");
    }
    let longest = grant(&["--expires", "90d"]);
    assert_eq!(longest.code, Some(0), "nothing was decided before: {longest}");
}

#[test]
fn the_secret_is_the_persons_alone() {
    let world = world();
    let transcript = world.run_with(&[("USER", "ada")], &["approve", "0CCCCC", "--yes"]);
    assert_eq!(transcript.code, Some(0), "{transcript}");
    let folder = world.home().join(".config/countersign");
    let file = folder.join("human.credential");
    let secret = std::fs::read_to_string(&file).unwrap();
    assert!(secret.starts_with("csg_human_") && secret.trim_end().len() == 53, "{secret}");
    assert!(!transcript.to_string().contains(secret.trim()), "{transcript}");
    use std::os::unix::fs::PermissionsExt as _;
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder), mode(&file)), (0o700, 0o600));
    // Only a digest is in the store, and the whole ledger does not know the secret.
    let records = std::fs::read(store_of(&world)).unwrap();
    assert!(!String::from_utf8_lossy(&records).contains(secret.trim()));
    let listed = world.run(&["token", "list", "--json"]).envelope();
    assert_eq!(listed["data"]["credentials"][0]["name"], "ada");
    assert_eq!(listed["data"]["credentials"][0]["role"], "human");

    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
    let shared = world.run(&["approve", "0AAAAA", "--yes"]);
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    // A secret the store has never seen is not let in where someone decides already.
    std::fs::rename(&file, folder.join("kept")).unwrap();
    let unknown = world.run(&["approve", "0AAAAA", "--yes"]);
    std::fs::write(&file, "csg_human_short\n").unwrap();
    let short = world.run(&["approve", "0AAAAA", "--yes"]);
    std::fs::rename(folder.join("kept"), &file).unwrap();
    let id = listed["data"]["credentials"][0]["credential_id"].as_str().unwrap();
    let revoked = world.run(&["token", "revoke", id]);
    let after = world.run(&["reject", "0AAAAA"]);
    insta::assert_snapshot!(masked(&all([shared, unknown, short, revoked, after])));
    let pending = world.run(&["plans", "list", "--json"]).envelope();
    assert_eq!(pending["data"]["plans"].as_array().unwrap().len(), 2, "nothing was decided");
}

#[test]
fn one_secret_for_every_store() {
    let (here, there) = (world(), world());
    assert_eq!(here.run(&["approve", "0CCCCC", "--yes"]).code, Some(0));
    let secret = std::fs::read(here.home().join(".config/countersign/human.credential")).unwrap();
    let store = format!("sqlite:{}", store_of(&there).display());
    assert_eq!(here.run(&["approve", "0CCCCC", "--yes", "--store", &store]).code, Some(0));
    assert_eq!(std::fs::read(here.home().join(".config/countersign/human.credential")).unwrap(), secret);
    assert!(!there.home().join(".config").exists());
}

#[test]
fn three_noes_are_enough_until_a_person_says_so() {
    let world = world();
    for id in ["0AAAAA", "0BBBBB"] {
        assert_eq!(world.run(&["reject", id]).code, Some(0));
    }
    insta::assert_snapshot!(masked(&all([
        world.run(&["reject", "0CCCCC"]),
        world.run(&["plans", "list"]),
        world.run(&["plans", "resume", "nobody"]),
        world.run(&["plans", "resume", "local-agent"]),
        world.run(&["plans", "resume", "local-agent"]),
    ])));
}

#[test]
fn grants_are_given_listed_and_taken_back() {
    let world = world();
    let given = world.run(&[
        "approve",
        "0CCCCC",
        "--yes",
        "--grant",
        "--uses",
        "2",
        "--expires",
        "2h",
        "--any",
        "title",
        "--json",
    ]);
    let id = given.envelope()["data"]["grant"]["grant_id"].as_str().unwrap().to_owned();
    assert_eq!(given.envelope()["data"]["grant"]["uses"], 2);
    insta::assert_snapshot!(masked(&all([
        world.run(&["grants", "list"]),
        world.run(&["grants", "revoke", &id[24..]]).masked(&[(&id, "<id>"), (&id[24..], "<end of id>")]),
        world.run(&["grants", "revoke", &id]),
        world.run(&["grants", "list"]),
        world.run(&["grants", "list", "--all"]),
    ])));
    // What a grant is given for is a part of approving, not instead of it.
    assert_eq!(world.run(&["approve", "0AAAAA", "--uses", "2"]).code, Some(2));
}

#[test]
fn credentials_are_shown_once() {
    let world = World::new();
    let made = world.run(&[
        "token",
        "create",
        "--role",
        "agent",
        "--name",
        "ci",
        "--upstreams",
        "github,notes",
        "--effects",
        "read,write",
        "--max-mode",
        "plan",
        "--expires",
        "30d",
    ]);
    assert!(made.stdout.starts_with("csg_agent_") && made.stdout.trim_end().len() == 53, "{made}");
    let secret = made.stdout.trim_end().to_owned();
    let scopes =
        world.run(&["token", "list", "--json"]).envelope()["data"]["credentials"][0]["scopes"].clone();
    assert_eq!(
        scopes,
        json!({"upstreams": ["github", "notes"], "effects": ["read", "write"], "max_mode": "plan"})
    );
    let list = world.run(&["token", "list"]);
    assert!(!list.stdout.contains(&secret));
    insta::assert_snapshot!(masked(&all([
        made.masked(&[(&secret, "csg_agent_<43 characters>")]),
        list,
        world.run(&["token", "create", "--role", "agent", "--name", "person"]),
        world.run(&["token", "create", "--role", "robot"]),
        world.run(&["token", "create", "--role", "agent", "--name", "local-agent"]),
        world.run(&["token", "revoke", "crd_00000000000000000000000000"]),
    ])));
    let found = wait(async {
        let store = open(&store_of(&world)).await;
        store
            .credential(countersign_store::secret_digest(&countersign_policy::ids::Secret::new(secret)))
            .await
            .unwrap()
    });
    assert_eq!(found.unwrap().name, "ci");
}

#[test]
fn the_inbox_is_followed_until_it_is_told_to_end() {
    let world = world();
    let seen = world.run(&["plans", "watch", "--count", "3", "--json"]).envelope();
    assert_eq!(seen["data"]["plans"].as_array().unwrap().len(), 3);
    let (mut child, mut line) = watch(&world, &["plans", "watch", "--count", "4"]);
    assert!(line().starts_with("PLAN"));
    let first: Vec<String> = (0..3).map(|_| line()).collect();
    assert!(first[0].contains("0AAAAA") && first[2].contains("0CCCCC"), "{first:?}");
    wait(async {
        let store = open(&store_of(&world)).await;
        let late = plan("01KA4Z7Q3V9M5T2X8R6W0DDDDD", "github:close_issue", Kind::Simple, json!({"n": 1}));
        hold(&store, &late).await;
    });
    assert!(line().contains("0DDDDD"));
    assert_eq!(child.wait().unwrap().code(), Some(0));

    // Ctrl-C is an end that was asked for.
    let (mut child, mut line) = watch(&world, &["plans", "watch"]);
    assert!(line().starts_with("PLAN"));
    let told = world.command("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(told.success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// A command that goes on, and what gives its lines one by one.
fn watch(world: &World, args: &[&str]) -> (Child, impl FnMut() -> String) {
    let mut child = world.countersign(args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let line = move || {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        line
    };
    (child, line)
}

/// One decision for a list of calls: every step is shown whole, and what a rule hides of a step stays hidden.
#[test]
fn a_plan_of_several_steps_is_shown_step_by_step() {
    let world = World::new();
    let args = [json!({"path": "a", "token": "hunter2"}), json!({"path": "b"})];
    let steps = [("files:write", Effect::Write, &args[0]), ("files:delete", Effect::Destructive, &args[1])];
    let listed: Vec<_> = steps.iter().map(|(name, _, args)| json!({"name": name, "args": args})).collect();
    let whole = json!({"title": "move a to b", "steps": listed});
    let mut series = plan("01KA4Z7Q3V9M5T2X8R6W0EEEEE", "countersign:run_plan", Kind::Preview, whole);
    series.intent = None;
    series.preview.shown = json!({"title": "move a to b", "reason": "a is full"});
    series.redact = vec!["steps.0.args.token".into()];
    let alone = |tool: &str, effect: Effect, args: &serde_json::Value| {
        let one = plan("01KA4Z7Q3V9M5T2X8R6W0FFFFF", tool, Kind::Preview, args.clone());
        PlanStep {
            tool: one.tool,
            fingerprint: one.fingerprint,
            arguments: one.arguments,
            preview: one.preview,
            policy_digest: one.policy_digest,
            effect,
            requirement: one.requirement,
            intent: one.intent,
        }
    };
    series.steps = steps.iter().map(|(tool, effect, args)| alone(tool, *effect, args)).collect();
    wait(async { hold(&open(&store_of(&world)).await, &series).await });
    let shown = world.run(&["plans", "show", "0EEEEE"]);
    let envelope = world.run(&["plans", "show", "0EEEEE", "--json"]);
    assert!(!shown.stdout.contains("hunter2") && !envelope.stdout.contains("hunter2"), "{shown}");
    assert_eq!(envelope.envelope()["data"]["plan"]["steps"][1]["arguments"], args[1]);
    let grant = world.run(&["approve", "0EEEEE", "--yes", "--grant"]);
    insta::assert_snapshot!(masked(&all([shown, grant])));
}

#[test]
fn a_person_at_a_terminal_is_asked() {
    let world = world();
    let question = "[yes/No/reject] ";
    let no = typed(&world, &["approve", "0AAAAA"], &[(question, "perhaps\n"), (question, "\n")]);
    assert_eq!(no.code, Some(4), "{no}");
    let yes = typed(&world, &["approve", "0AAAAA", "--note", "looked at it"], &[(question, "y\n")]);
    assert_eq!(yes.code, Some(0), "{yes}");
    let wrong = typed(&world, &["approve", "0BBBBB"], &[("to confirm: ", "acme/Site\n")]);
    assert_eq!(wrong.code, Some(3), "{wrong}");
    let right = typed(&world, &["approve", "0BBBBB"], &[("to confirm: ", "acme/site\n")]);
    assert_eq!(right.code, Some(0), "{right}");
    let reject = typed(&world, &["approve", "0CCCCC"], &[(question, "reject\n")]);
    assert_eq!(reject.code, Some(0), "{reject}");
    insta::assert_snapshot!(masked(&clock(&all([no, yes, wrong, right, reject]))));
    let states = world.run(&["plans", "list", "--all", "--json"]).envelope();
    let states: Vec<&str> = states["data"]["plans"]
        .as_array()
        .unwrap()
        .iter()
        .map(|plan| plan["state"].as_str().unwrap())
        .collect();
    assert_eq!(states, ["rejected", "approved", "approved"]);
}

#[test]
fn short_ids_mean_one_plan_or_name_the_candidates() {
    let world = world();
    for typed in ["pln_…AAAAA", "…aaaaa", "AAAAA", "pln_...AAAAA", "01KA4…AAAAA"] {
        let shown = world.run(&["plans", "show", typed, "--json"]).envelope();
        assert_eq!(shown["data"]["plan"]["plan_id"], "pln_01KA4Z7Q3V9M5T2X8R6W0AAAAA", "{typed}");
    }
    wait(async {
        let store = open(&store_of(&world)).await;
        hold(&store, &plan("01KA4Z7Q3V9M5T2X8R6W1AAAAA", "github:edit_repo", Kind::Preview, json!({}))).await;
    });
    let both = world.run(&["approve", "pln_…AAAAA", "--yes"]);
    assert_eq!(both.code, Some(2), "{both}");
    for id in ["pln_01KA4Z7Q3V9M5T2X8R6W0AAAAA", "pln_01KA4Z7Q3V9M5T2X8R6W1AAAAA"] {
        assert!(both.stderr.contains(id), "{both}");
    }
    // On a terminal lists show what every command takes; in a pipe ids stay whole.
    let list = typed(&world, &["plans", "list"], &[]).stdout;
    assert!(list.contains("pln_…BBBBB") && !list.contains("pln_01KA"), "{list}");
    assert!(world.run(&["plans", "list"]).stdout.contains("pln_01KA4Z7Q3V9M5T2X8R6W0BBBBB"));
}

/// The inbox on a terminal: a plan is chosen, looked at, approved and rejected; escape sequences in it stay text.
#[test]
fn plans_are_decided_in_the_inbox_on_a_terminal() {
    let world = World::new();
    let id = |end: &str| format!("01KA4Z7Q3V9M5T2X8R6W0{end}");
    wait(async {
        let store = open(&store_of(&world)).await;
        let evil = json!({"repo": "a\u{1b}[2Jb\u{202e}c"});
        hold(&store, &plan(&id("AAAAA"), "github:edit_repo", Kind::Preview, evil)).await;
        hold(&store, &plan(&id("BBBBB"), "github:close_issue", Kind::Simple, json!({}))).await;
    });
    let asked = typed(
        &world,
        &["plans", "watch"],
        &[
            ("2 plans wait", "r"),
            ("a note for the agent", "not today\r"),
            ("rejected pln_…BBBBB", "j"),
            ("▸ ", "a"),
            ("Approve?", "y"),
            ("approved pln_…AAAAA", "q"),
        ],
    );
    assert_eq!(asked.code, Some(0), "{asked}");
    assert!(asked.stdout.contains("\\u{1b}[2J") && asked.stdout.contains("\\u{202e}"), "{asked}");
    assert!(!asked.stdout.contains("a\u{1b}[2Jb") && !asked.stdout.contains('\u{202e}'), "{asked}");
    let plans = world.run(&["plans", "list", "--all", "--json"]).envelope();
    let told: Vec<(&str, &str)> = plans["data"]["plans"]
        .as_array()
        .unwrap()
        .iter()
        .map(|plan| (plan["state"].as_str().unwrap(), plan["note"].as_str().unwrap_or_default()))
        .collect();
    assert_eq!(told, [("rejected", "not today"), ("approved", "")]);
    let row = world.run(&["activity", "list", "--type", "approval", "--limit", "1", "--json"]).envelope();
    assert_eq!(row["data"]["activities"][0]["source"], "cli", "{row}");
}

#[test]
fn a_lost_secret_locks_nobody_out_of_their_own_store() {
    let world = world();
    assert_eq!(world.run_with(&[("USER", "ada")], &["approve", "0CCCCC", "--yes"]).code, Some(0));
    std::fs::remove_dir_all(world.home().join(".config")).unwrap();
    let refused = typed(&world, &["approve", "0AAAAA"], &[("decide there, too? [y/N] ", "n\n")]);
    assert_eq!(refused.code, Some(3), "{refused}");
    let enrolled = typed(
        &world,
        &["approve", "0AAAAA"],
        &[("decide there, too? [y/N] ", "y\n"), ("[yes/No/reject] ", "y\n")],
    );
    assert_eq!(enrolled.code, Some(0), "{enrolled}");
}

#[test]
fn of_many_who_answer_one_decides() {
    let world = world();
    assert_eq!(world.run(&["approve", "0AAAAA", "--yes"]).code, Some(0));
    let children: Vec<_> = (0..8)
        .map(|number| {
            let args: &[&str] =
                if number % 2 == 0 { &["approve", "0CCCCC", "--yes"] } else { &["reject", "0CCCCC"] };
            world.countersign(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        })
        .collect();
    let codes: Vec<Option<i32>> =
        children.into_iter().map(|mut child| child.wait().unwrap().code()).collect();
    assert_eq!(codes.iter().filter(|code| **code == Some(0)).count(), 1, "{codes:?}");
    assert_eq!(codes.iter().filter(|code| **code == Some(3)).count(), 7, "{codes:?}");
}
