//! Values as arguments: each arrives as one literal argument, or is refused before anything runs.

use countersign_policy::gate::Verdict;
use countersign_policy::mode::Mode;
use serde_json::{Value, json};

use super::bench::{Bench, texts};

const ECHO: &str = r#"
[upstreams.u]
env = { TOKEN = "${env:SECRET}" }

[[upstreams.u.tools]]
name = "echo"
effect = "read"
input = { value = { type = "string" }, list = { type = "array", optional = true, items = { type = "string" } }, label = { type = "string", optional = true }, level = { type = "integer", default = 3 }, free = { type = "string", optional = true, leading_dash = true }, low = { type = "number", optional = true, leading_dash = true } }
run = ["printf", "%s\\000", "{value}", "--in={value}!", ["--label", "{label}"], "{list}", "-l{level}", ["{free}"], ["{low}"]]

[[upstreams.u.tools]]
name = "touch"
effect = "read"
input = { value = { type = "string" }, list = { type = "array", optional = true } }
run = ["touch", "ran", "{value}", "{list}"]

[[upstreams.u.tools]]
name = "surroundings"
effect = "read"
env = { OWN = "1" }
cwd = "below"
stdin = "a={text}\nb={list}\n"
input = { text = { type = "string" }, list = { type = "array", optional = true, items = { type = "string" } } }
run = ["sh", "-c", "cat; pwd; env | sort; echo $TOKEN >&2"]
"#;

/// What `value` becomes in the echoing command.
async fn arrives(bench: &Bench, value: &str) -> Result<Vec<String>, &'static str> {
    let given = json!({"value": value});
    bench.open("echo", &given).await?;
    let result = bench.call("echo", given).await.unwrap();
    assert_eq!(result["isError"], false, "{result}");
    Ok(words(&result))
}

/// The words of the echoing command: it ends each with what no argument can hold.
fn words(result: &Value) -> Vec<String> {
    let text = texts(result)[0].strip_suffix('\0').unwrap();
    text.split('\0').map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_a_value_holds_it_is_one_literal_argument() {
    let bench = Bench::new(ECHO).await;
    let literal = [
        "plain",
        "",
        "two words",
        "; rm -rf /",
        "&& touch pwned",
        "| sh",
        "$(touch pwned)",
        "${HOME}",
        "$HOME",
        "`touch pwned`",
        "line\nbreak\r\n",
        "*",
        "/etc/*",
        "?[a-z]{a,b}~",
        "'single' \"double\" \\back",
        "> pwned",
        "{label}",
        "{value}",
        "${env:SECRET}",
        "%s%n",
        "a\u{a0}b\u{2003}c\u{3000}d\u{feff}",
        "\u{2212}minus \u{2014}dash",
        "\u{202e}gpj.exe",
        "a --flag",
        " -x",
        "\u{1b}[31m\u{7}",
        "é\u{301}🦀",
    ];
    for value in literal {
        let expect = vec![value.to_owned(), format!("--in={value}!"), "-l3".to_owned()];
        assert_eq!(arrives(&bench, value).await, Ok(expect), "{value:?}");
    }
    let refused = ["-", "-x", "--upload-pack=touch pwned", "--", "-\n", "nul\0inside", "\0"];
    for value in refused {
        assert_eq!(arrives(&bench, value).await, Err("E_ARGUMENTS_INVALID"), "{value:?}");
    }
    assert!(!bench.folder.path().join("pwned").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_spread_and_groups_disappear() {
    let bench = Bench::new(ECHO).await;
    let bench = &bench;
    let check = async |given: Value, expect: &[&str]| {
        let result = bench.call("echo", given).await.unwrap();
        assert_eq!(words(&result), expect);
    };
    check(json!({"value": "v"}), &["v", "--in=v!", "-l3"]).await;
    check(json!({"value": "v", "list": []}), &["v", "--in=v!", "-l3"]).await;
    check(json!({"value": "v", "list": ["a b", "", "*"]}), &["v", "--in=v!", "a b", "", "*", "-l3"]).await;
    check(json!({"value": "v", "label": ""}), &["v", "--in=v!", "--label", "", "-l3"]).await;
    check(
        json!({"value": "v", "level": 7.0, "free": "--yes", "low": -0.5}),
        &["v", "--in=v!", "-l7", "--yes", "-0.5"],
    )
    .await;
    let refused = [
        json!({"value": "v", "list": ["fine", "-rf"]}),
        json!({"value": "v", "label": "--force"}),
        json!({"value": "v", "level": -3}),
        json!({"value": "v", "free": "a\u{0}b"}),
        json!({"value": "v", "other": "w"}),
        json!({"value": ["v"]}),
        json!({}),
    ];
    for given in refused {
        let Verdict::Refuse(refused) = bench.judge("echo", &given, Mode::Execute) else { panic!("{given}") };
        assert_eq!(refused.refusal.code.as_str(), "E_ARGUMENTS_INVALID", "{given}");
    }
}

/// The gate is asked first; should a value get past it, the upstream still starts nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_upstream_refuses_by_itself_too() {
    let bench = Bench::new(ECHO).await;
    let refused = [
        json!({"value": "-rf"}),
        json!({"value": "a\u{0}"}),
        json!({"value": -1}),
        json!({"value": "v", "list": ["-x"]}),
        json!({"value": "v", "list": [["a"], "\u{0}"]}),
        json!({"value": "v", "stranger": 1}),
        json!([]),
    ];
    for given in refused {
        let result = bench.dry_run("touch", given.clone()).await.unwrap();
        assert_eq!(result["isError"], true, "{given}");
        assert_eq!(result["structuredContent"]["errors"][0]["code"], "E_ARGUMENTS_INVALID", "{given}");
    }
    assert!(!bench.folder.path().join("ran").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_sees_what_is_configured_and_nothing_else_of_ours() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("below")).unwrap();
    let bench = Bench::with(ECHO, folder).await;
    let result = bench.call("surroundings", json!({"text": "x", "list": ["1", "2"]})).await.unwrap();
    let all = texts(&result);
    let out: Vec<&str> = all[0].lines().collect();
    assert_eq!(out[..3], ["a=x", "b=1", "2"]);
    assert!(out[3].ends_with("/below"), "{out:?}");
    let known =
        ["PATH=", "HOME=", "LANG=", "TMPDIR=", "OWN=1", "TOKEN=***", "PWD=", "OLDPWD=", "SHLVL=", "_="];
    for line in &out[4..] {
        assert!(known.iter().any(|name| line.starts_with(name)), "{line}");
    }
    assert!(out.contains(&"TOKEN=***"), "a secret of ours comes back: {out:?}");
    assert_eq!(all[1], "***\n");
    assert!(!result.to_string().contains("correct-horse"));
}
