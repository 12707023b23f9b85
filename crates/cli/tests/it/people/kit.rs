//! Plans as a gateway stores them, and a terminal for the person who decides.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use countersign_policy::call::{Arguments, Caller, CallerScopes};
use countersign_policy::confirm::{ApprovalStrength, ConfirmRequirement, Kind, RecordedChannel};
use countersign_policy::digest::Digest;
use countersign_policy::effect::Effect;
use countersign_policy::grant::Grant;
use countersign_policy::ids::{FullName, PlanId};
use countersign_policy::intent::{CallToolVariant, DataSensitivity};
use countersign_policy::plan::{Plan, Preview, PreviewSource, StoredIntent};
use countersign_policy::record::{CallRecord, Source};
use countersign_policy::role::Role;
use countersign_store::{ConnectOptions, Credential, Store, StoreUrl};
use jiff::{Timestamp, ToSpan as _};
use regex::Regex;
use serde_json::{Value, json};

use crate::ledger::wait;
use crate::mask::mask;
use crate::world::{Transcript, World, binary};

/// Opens the store of a world at this moment.
pub(crate) async fn open(path: &Path) -> Store {
    Store::connect(&StoreUrl::file(path), ConnectOptions::default()).await.unwrap()
}

/// Where a world's store is.
pub(crate) fn store_of(world: &World) -> PathBuf {
    world.work().join("countersign.db")
}

/// A plan an agent drafted a moment ago.
pub(crate) fn plan(id: &str, tool: &str, kind: Kind, arguments: Value) -> Plan {
    let now = Timestamp::now();
    let strength = if kind == Kind::Simple { ApprovalStrength::Caller } else { ApprovalStrength::Human };
    let typed = (kind == Kind::Type).then(|| arguments["repo"].as_str().unwrap().to_owned());
    let arguments = Arguments::parse(arguments.to_string().as_bytes()).unwrap();
    let shown = json!({"content": [{"type": "text", "text": "--- a/site.md\n+++ b/site.md\n@@ -1,2 +1 @@\n-the old \u{202e}site\n the rest\n"}]});
    let source = if kind == Kind::Preview { PreviewSource::Argument } else { PreviewSource::Computed };
    Plan {
        id: PlanId::new(format!("pln_{id}")),
        hash: Digest::plain(id.as_bytes()),
        principal: "local-agent".into(),
        credential: None,
        role: Role::Agent,
        session: "stdio:work".into(),
        host: None,
        tool: tool.parse().unwrap(),
        fingerprint: Digest::plain(b"definition"),
        meta: None,
        preview: Preview::new(source, shown, &json!(id)),
        policy_digest: Digest::plain(b"policy"),
        effect: Effect::Destructive,
        requirement: ConfirmRequirement { kind, strength, typed },
        variant: Some(CallToolVariant::Destructive),
        intent: Some(StoredIntent {
            operation_type: Effect::Destructive,
            data_sensitivity: Some(DataSensitivity::Internal),
            reason: Some("the site moved\u{1b}[2J".into()),
        }),
        rule: Some("countersign.toml:31".into()),
        redact: vec!["token".into()],
        hidden: None,
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
        request_id: None,
        source: Source::Mcp,
        host: None,
        scopes: CallerScopes::all(),
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
            store.reject(&id, "ada".into(), RecordedChannel::Page, None, now).await.unwrap();
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

/// Ids stay where they are ours; moments and what is left of them differ from run to run.
pub(crate) fn masked(text: &str) -> String {
    let same =
        |text: &str, pattern: &str, by: &str| Regex::new(pattern).unwrap().replace_all(text, by).into_owned();
    let text = same(text, r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", "2026-11-14T09:00:00.000Z");
    let text = same(&text, r"\b(\d+ (h|min) )?\d+ (s|min|h)\b", "N min N s");
    let text = same(&text, r"\b(crd|grt|pln)_01[L-Z][0-9A-Z]{23}\b", "${1}_01KXXXXXXXXXXXXXXXXXXXXXXX");
    mask(&text)
}

/// Runs a command on a terminal of its own and types these lines into it, one after each question.
pub(crate) fn typed(world: &World, args: &[&str], answers: &[(&str, &str)]) -> Transcript {
    let script = world.work().join("terminal.py");
    std::fs::write(&script, TERMINAL).unwrap();
    let mut command = world.command("python3");
    command.arg(&script).arg(json!(answers).to_string()).arg(binary()).args(args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.env("USER", "ada").env("NO_COLOR", "1").spawn().unwrap();

    let mut transcript = world.transcript(&args.join(" "), child.wait_with_output().unwrap());
    let shown = transcript.stdout.replace("\r\n", "\n");
    // A busy machine shows progress, which is written over and gone in the end.
    transcript.stdout = Regex::new(r"\r([^\r\n]*\r)+").unwrap().replace_all(&shown, "").into_owned();
    transcript
}

/// A terminal of TERMINAL_COLUMNS columns: waits for each question before it types, and ends as the command does.
const TERMINAL: &str = r#"
import fcntl, json, os, pty, select, struct, sys, termios
answers, command = json.loads(sys.argv[1]), sys.argv[2:]
pid, fd = pty.fork()
if pid == 0:
    columns = int(os.environ.get("TERMINAL_COLUMNS", "160"))
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    os.execv(command[0], command)
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

/// Clocks as a person reads them.
pub(crate) fn clock(text: &str) -> String {
    Regex::new(r"\b\d\d:\d\d:\d\d\b").unwrap().replace_all(text, "hh:mm:ss").into_owned()
}
