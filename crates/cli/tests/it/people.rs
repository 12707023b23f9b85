//! People deciding: plans listed, shown, approved, rejected; grants, credentials, pauses. A real store, the real binary,
//! a terminal where one is needed.

use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use countersign_core::call::{Arguments, Caller, Scopes};
use countersign_core::confirm::{Kind, Need, Rail, Strength};
use countersign_core::digest::Digest;
use countersign_core::effect::Effect;
use countersign_core::grant::Grant;
use countersign_core::ids::{FullName, PlanId};
use countersign_core::intent::{Sensitivity, Variant};
use countersign_core::plan::{Plan, Preview, PreviewSource, StoredIntent};
use countersign_core::record::{CallRecord, Source};
use countersign_core::role::Role;
use countersign_store::{ConnectOptions, Credential, Store, StoreUrl};
use jiff::{Timestamp, ToSpan as _};
use regex::Regex;
use serde_json::{Value, json};

use crate::ledger::wait;
use crate::mask::mask;
use crate::world::{Transcript, World, all, binary};

/// Opens the store of a world at this moment.
pub(crate) async fn open(path: &Path) -> Store {
    Store::connect(&StoreUrl::file(path), ConnectOptions::default()).await.unwrap()
}

/// Where a world's store is.
pub(crate) fn store_of(world: &World) -> std::path::PathBuf {
    world.work().join("countersign.db")
}

/// A plan an agent drafted a moment ago.
pub(crate) fn plan(id: &str, tool: &str, kind: Kind, arguments: Value) -> Plan {
    let now = Timestamp::now();
    let strength = if kind == Kind::Simple { Strength::Caller } else { Strength::Human };
    let typed = (kind == Kind::Type).then(|| arguments["repo"].as_str().unwrap().to_owned());
    let arguments = Arguments::parse(arguments.to_string().as_bytes()).unwrap();
    let shown = json!({"content": [{"type": "text", "text": "--- a/site.md\n+++ b/site.md\n@@ -1,2 +1 @@\n-the old \u{202e}site\n the rest\n"}]});
    let source = if kind == Kind::Preview { PreviewSource::Argument } else { PreviewSource::Computed };
    Plan {
        id: PlanId::new(format!("pln_{id}")),
        hash: Digest::plain(id.as_bytes()),
        principal: "local-agent".into(),
        session: "stdio:work".into(),
        tool: tool.parse().unwrap(),
        fingerprint: Digest::plain(b"definition"),
        preview: Preview::new(source, shown, &json!(id)),
        policy_digest: Digest::plain(b"policy"),
        effect: Effect::Destructive,
        need: Need { kind, strength, typed },
        variant: Some(Variant::Destructive),
        intent: Some(StoredIntent {
            operation_type: Effect::Destructive,
            data_sensitivity: Some(Sensitivity::Internal),
            reason: Some("the site moved\u{1b}[2J".into()),
        }),
        rule: Some("rule 2 (countersign.toml:31)".into()),
        redact: vec!["token".into()],
        steps: Vec::new(),
        created: now,
        expires: now + 5.minutes(),
        arguments,
    }
}

/// Keeps a plan as the gateway does.
pub(crate) async fn hold(store: &Store, plan: &Plan) {
    let caller = Caller {
        principal: plan.principal.clone(),
        credential: None,
        role: Role::Agent,
        session: plan.session.clone(),
        source: Source::Mcp,
        scopes: Scopes::all(),
    };
    let record =
        CallRecord::unread(&caller, plan.tool.clone(), plan.variant, plan.arguments.text().as_bytes());
    let token = Digest::plain(plan.hash.hex().as_bytes());
    store.hold(plan, token, plan.expires, record, plan.created).await.unwrap();
}

/// What the examples of the help texts are about.
pub(crate) fn fill(path: &Path) {
    let ulid = |tail: &str| format!("01KA4Z7Q3V9M5T2X8R6W0Y{tail}");
    let site = json!({"repo": "acme/site", "title": "old"});
    wait(async {
        let store = open(path).await;
        for (tail, kind) in [
            ("PQRS", Kind::Preview),
            ("TYPE", Kind::Type),
            ("GRNT", Kind::Preview),
            ("REJC", Kind::Simple),
            ("NOTE", Kind::Simple),
        ] {
            hold(&store, &plan(&ulid(tail), "github:delete_repo", kind, site.clone())).await;
        }
        let now = Timestamp::now();
        for number in 0..3 {
            let name = ulid(&format!("NO{number}A"));
            hold(&store, &plan(&name, "github:close_issue", Kind::Simple, json!({"number": number}))).await;
            let id = PlanId::new(format!("pln_{name}"));
            store.reject(&id, "ada".into(), Rail::Page, None, now).await.unwrap();
        }
        let grant = Grant {
            id: format!("grt_{}", ulid("GRNT")).into(),
            principal: "local-agent".into(),
            tool: FullName::new("github", "close_issue").to_string(),
            fingerprint: Digest::plain(b"definition"),
            arguments: Default::default(),
            uses_left: 3,
            expires: now + 1.hour(),
            by: "ada".into(),
        };
        store.grant(&grant, now).await.unwrap();
        let credential = Credential {
            id: format!("crd_{}", ulid("CRED")).into(),
            role: Role::Agent,
            name: "old-agent".into(),
            scopes: json!({}),
            created: now,
            expires: None,
            revoked: None,
        };
        store.add_credential(&credential, Digest::plain(b"old"), &"ada".into(), now).await.unwrap();
    });
}

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

/// Ids stay where they are ours; moments and what is left of them differ from run to run.
pub(crate) fn masked(text: &str) -> String {
    let same =
        |text: &str, pattern: &str, by: &str| Regex::new(pattern).unwrap().replace_all(text, by).into_owned();
    let text = same(text, r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", "2026-11-14T09:00:00.000Z");
    let text = same(&text, r"\b(\d+ (h|min) )?\d+ (s|min|h)\b", "N min N s");
    let text = same(&text, r"\b(crd|grt|pln)_01[L-Z][0-9A-Z]{23}\b", "${1}_01KXXXXXXXXXXXXXXXXXXXXXXX");
    mask(&text)
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
        world.run(&["plans", "show", "0AAAA"]),
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
            .credential(countersign_store::secret_digest(&countersign_core::ids::Secret::new(secret)))
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
    let mut child = world
        .countersign(&["plans", "watch", "--count", "4"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut reader = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = || {
        let mut line = String::new();
        std::io::BufRead::read_line(&mut reader, &mut line).unwrap();
        line
    };
    assert!(line().starts_with("PLAN"));
    let first: Vec<String> = (0..3).map(|_| line()).collect();
    assert!(first[0].contains("0AAAAA") && first[2].contains("0CCCCC"), "{first:?}");
    wait(async {
        let store = open(&store_of(&world)).await;
        hold(
            &store,
            &plan("01KA4Z7Q3V9M5T2X8R6W0DDDDD", "github:close_issue", Kind::Simple, json!({"n": 1})),
        )
        .await;
    });
    assert!(line().contains("0DDDDD"));
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// Runs a command on a terminal of its own and types these lines into it, one after each question.
pub(crate) fn typed(world: &World, args: &[&str], answers: &[(&str, &str)]) -> Transcript {
    let script = world.work().join("terminal.py");
    std::fs::write(&script, TERMINAL).unwrap();
    let mut command = world.command("python3");
    command.arg(&script).arg(json!(answers).to_string()).arg(binary()).args(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.env("USER", "ada").env("NO_COLOR", "1").spawn().unwrap();
    child.stdin.take().unwrap().flush().unwrap();
    let mut transcript = world.transcript(&args.join(" "), child.wait_with_output().unwrap());
    transcript.stdout = transcript.stdout.replace("\r\n", "\n");
    transcript
}

/// A terminal: waits for each question before it types, and ends as the command does.
const TERMINAL: &str = r#"
import fcntl, json, os, pty, select, struct, sys, termios
answers, command = json.loads(sys.argv[1]), sys.argv[2:]
pid, fd = pty.fork()
if pid == 0:
    os.execv(command[0], command)
fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
seen, at = b"", 0
while True:
    if not select.select([fd], [], [], 30)[0]:
        sys.stderr.write("nothing happens\n"); os.kill(pid, 9); break
    try:
        part = os.read(fd, 65536)
    except OSError:
        break
    if not part:
        break
    seen += part
    sys.stdout.buffer.write(part)
    if answers and answers[0][0].encode() in seen[at:]:
        at = len(seen)
        os.write(fd, answers.pop(0)[1].encode())
sys.stdout.buffer.flush()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"#;

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

/// Clocks as a person reads them.
pub(crate) fn clock(text: &str) -> String {
    Regex::new(r"\b\d\d:\d\d:\d\d\b").unwrap().replace_all(text, "hh:mm:ss").into_owned()
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
