//! The presets for everyday programs, with stand-ins on PATH that record what they are started with: reads run freely, writes are
//! shown first, what destroys is typed by a person, and every value arrives as it was given.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use countersign_gateway::upstreams::Upstream as _;
use countersign_policy::confirm::{ApprovalStrength, Kind};
use countersign_policy::effect::Effect;
use countersign_policy::gate::Verdict;
use countersign_policy::mode::Mode;
use serde_json::{Map, Value, json};

use super::bench::{Bench, texts};

/// Writes each word it was started with, and says something that is always the same.
const STAND_IN: &str = "#!/bin/sh\nfor word in \"$0\" \"$@\"; do printf '%s\\000' \"${word##*/bin/}\"; done > argv\ncat > fed\necho '{}'\n";

async fn bench(preset: &str) -> Bench {
    let folder = tempfile::tempdir().unwrap();
    let bin = folder.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    let program = bin.join(preset);
    std::fs::write(&program, STAND_IN).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../presets").join(format!("{preset}.toml"));
    Bench::with(&std::fs::read_to_string(path).unwrap(), folder).await
}

/// A value for an input: one that would do harm in a shell, where the schema lets it through.
fn sample(name: &str, schema: &Value) -> Value {
    if let Some(first) = schema["enum"].as_array().and_then(|all| all.first()) {
        return first.clone();
    }
    match (schema["type"].as_str().unwrap(), name) {
        ("integer", _) => 7.into(),
        ("array", _) => json!(["web", "db"]),
        (_, "address") => "aws_instance.web[\"a; b\"]".into(),
        (_, "id") => "$(reboot)".into(),
        (_, "file") => "my file; rm.yaml".into(),
        (_, "selector") => "app=web,tier!=$(x)".into(),
        (_, "workload") => "deployment/web".into(),
        (_, "resource") => "pods".into(),
        (_, "image") => "shop/web:1.2".into(),
        (_, "title" | "body" | "tag" | "workflow") => format!("a `{name}`; $(rm) *").into(),
        (_, "repo") => "acme/site".into(),
        (_, "number" | "run") => "42".into(),
        (_, "commit") => "0123456789abcdef0123456789abcdef01234567".into(),
        (_, "label") => "example.com/team".into(),
        (_, "verb") => "delete".into(),
        (_, other) => other.replace('_', "-").into(),
    }
}

/// The words the program was started with, as one line.
fn started(bench: &Bench) -> String {
    let words = std::fs::read_to_string(bench.folder.path().join("argv")).unwrap();
    let words: Vec<String> = words.split_terminator('\0').map(|word| format!("[{word}]")).collect();
    std::fs::remove_file(bench.folder.path().join("argv")).unwrap();
    words.join(" ")
}

/// Every tool of a preset in every mode, and what it starts; as a table to be read.
async fn table(preset: &str) -> String {
    let bench = bench(preset).await;
    let mut table = String::new();
    for raw in bench.upstream.tools().await.unwrap() {
        let tool: Value = serde_json::from_str(raw.get()).unwrap();
        let name = tool["name"].as_str().unwrap();
        let properties = tool["inputSchema"]["properties"].as_object().unwrap();
        let arguments: Map<String, Value> =
            properties.iter().map(|(name, schema)| (name.clone(), sample(name, schema))).collect();
        let arguments = Value::Object(arguments);
        let read = tool["annotations"]["readOnlyHint"] == true;
        let destructive = tool["annotations"]["destructiveHint"] == true;
        assert!(tool["title"].is_string() && tool["description"].is_string(), "{tool}");
        let needs = match bench.judge(name, &arguments, Mode::Execute) {
            Verdict::Go(permit) => {
                assert!(read && permit.effect() == Effect::Read, "{name} runs at once");
                for mode in Mode::ALL {
                    assert!(
                        matches!(bench.judge(name, &arguments, *mode), Verdict::Go(_)),
                        "{name} in {mode}"
                    );
                }
                "read".to_owned()
            }
            Verdict::Hold(draft) => {
                assert!(!read);
                assert_eq!(draft.classified.effect == Effect::Destructive, destructive, "{name}");
                if destructive && name != "apply" {
                    assert_eq!(
                        (draft.requirement.kind, draft.requirement.strength),
                        (Kind::Type, ApprovalStrength::Human),
                        "{name}"
                    );
                }
                assert!(matches!(bench.judge(name, &arguments, Mode::Ask), Verdict::Explain(_)), "{name}");
                assert!(matches!(bench.judge(name, &arguments, Mode::Plan), Verdict::Preview(_)), "{name}");
                format!(
                    "{} {} by {}",
                    draft.classified.effect, draft.requirement.kind, draft.requirement.strength
                )
            }
            other @ (Verdict::Refuse(_) | Verdict::Redeem(_) | Verdict::Preview(_) | Verdict::Explain(_)) => {
                panic!("{name}: {other:?}")
            }
        };
        writeln!(table, "{name}: {needs}").unwrap();
        let result = bench.dry_run(name, arguments.clone()).await.unwrap();
        assert_eq!(result["isError"], false, "{name}: {result}");
        let runs = started(&bench);
        writeln!(table, "  run     {runs}").unwrap();
        for (look, label) in [("#preview", "preview"), ("#explain", "explain")] {
            if let Ok(result) = bench.dry_run(&format!("{name}{look}"), arguments.clone()).await {
                assert!(!texts(&result).is_empty());
                let looks = started(&bench);
                assert_ne!(looks, runs, "{name}: looking must not be doing");
                writeln!(table, "  {label} {looks}").unwrap();
            }
        }
    }
    table
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn terraform() {
    insta::assert_snapshot!(table("terraform").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl() {
    insta::assert_snapshot!(table("kubectl").await);
    let bench = bench("kubectl").await;
    for (resource, output, code) in [
        ("secrets", "yaml", "E_RULE_DENIED"),
        ("secret.v1", "json", "E_RULE_DENIED"),
        ("secrets", "wide", ""),
    ] {
        let given = json!({"resource": resource, "output": output});
        let said = match bench.judge("get", &given, Mode::Ask) {
            Verdict::Refuse(refused) => refused.refusal.code.as_str(),
            Verdict::Go(_)
            | Verdict::Redeem(_)
            | Verdict::Hold(_)
            | Verdict::Preview(_)
            | Verdict::Explain(_) => "",
        };
        assert_eq!(said, code, "{resource} as {output}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gh() {
    insta::assert_snapshot!(table("gh").await);
    // A text is fed, not said: nothing in it can be taken for a flag.
    let bench = bench("gh").await;
    bench.dry_run("issue_comment", json!({"number": "1", "body": "--repo evil/one\n$(x)"})).await.unwrap();
    assert_eq!(bench.read("fed"), "--repo evil/one\n$(x)");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn docker() {
    insta::assert_snapshot!(table("docker").await);
}

/// Where one of the programs is installed, it says itself that it knows every command and flag a preset starts it with: each is asked
/// for its help, which does nothing. Nothing here can reach a cluster, an account or a daemon.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_programs_know_every_flag() {
    for preset in ["kubectl", "gh", "docker"] {
        let home = tempfile::tempdir().unwrap();
        let path = std::env::var_os("PATH").unwrap();
        let ask = |words: &[&str]| {
            let mut command = std::process::Command::new(preset);
            command.args(words).env_clear().env("PATH", &path).env("HOME", home.path());
            let output = command.current_dir(home.path()).stdin(std::process::Stdio::null()).output();
            output.map(|output| String::from_utf8_lossy(&output.stderr).into_owned())
        };
        if ask(&["--help"]).is_err() {
            println!("skipped: {preset} is not installed");
            continue;
        }
        let composes =
            preset == "docker" && !ask(&["compose", "--ansi=never", "version"]).unwrap().contains("unknown");
        for line in table(preset).await.lines() {
            let Some((_, words)) = line.split_once('[').filter(|_| line.starts_with("  ")) else { continue };
            let words: Vec<&str> = words.trim_end_matches(']').split("] [").skip(1).collect();
            if words.first() == Some(&"compose") && !composes {
                continue;
            }
            let said = ask(&[&words[..], &["--help"]].concat()).unwrap();
            assert!(!said.contains("unknown"), "{preset} {words:?}: {said}");
        }
    }
}

/// Lines that only tell progress do not count when a preview is compared with the one before; every other line does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_is_no_drift() {
    let bench = bench("terraform").await;
    let decisive = |text: &str| {
        let result = json!({"content": [{"type": "text", "text": text}]});
        bench.upstream.decisive("apply#preview", &result).unwrap()
    };
    let first = decisive("a: Refreshing state... [id=1]\nb: Reading...\n+ create c\nPlan: 1 to add\n");
    assert_eq!(
        first,
        decisive(
            "b: Reading...\nb: Read complete after 2s\na: Refreshing state... [id=1]\n+ create c\nPlan: 1 to add\n"
        )
    );
    assert_ne!(first, decisive("+ create c\n- destroy d\nPlan: 1 to add\n"));
    assert_eq!(bench.upstream.decisive("format#preview", &json!({"content": []})), None);
}
