//! Signing in to an upstream, against a real authorization server on loopback: the whole way, what is kept, what is renewed,
//! and every answer that must not be believed.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::world::{Transcript, World};

/// The guarded server; it ends with this value.
struct Guarded {
    child: Child,
    port: u16,
    record: PathBuf,
}

impl Guarded {
    fn start(world: &World, habits: &Value) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/guarded.py");
        let record = world.work().join("record.jsonl");
        let mut child = world
            .command("python3")
            .arg("-B")
            .arg(script)
            .arg(habits.to_string())
            .arg(&record)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().parse().unwrap();
        world.write(
            "countersign.toml",
            &format!(
                "[gateway]\nmode = \"execute\"\n\n[upstreams.notes]\nurl = \"http://127.0.0.1:{port}/mcp\"\n"
            ),
        );
        Self { child, port, record }
    }

    /// What was asked of it, by kind.
    fn asked(&self, what: &str) -> Vec<Value> {
        let lines = std::fs::read_to_string(&self.record).unwrap_or_default();
        let all = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        all.filter(|line| line["what"] == what).collect()
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A plain GET; the head of the answer.
fn get(address: &str) -> String {
    let rest = address.strip_prefix("http://").unwrap();
    let (host, path) = rest.split_once('/').unwrap();
    let mut line = TcpStream::connect(host).unwrap();
    write!(line, "GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    line.read_to_string(&mut answer).unwrap();
    answer
}

/// Signs in as a person with a browser would: opens what is shown, goes where that leads.
fn log_in(world: &World, more: &[&str]) -> Transcript {
    let mut args = vec!["upstreams", "login", "notes", "--no-browser"];
    args.extend(more);
    let mut child = world.countersign(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    while stderr.read_line(&mut said).unwrap() > 0 {
        let line = said.lines().last().unwrap_or_default();
        if let Some(address) = line.strip_prefix("  http") {
            let answer = get(&format!("http{address}"));
            let back = answer.lines().find_map(|line| line.strip_prefix("Location: ")).map(str::to_owned);
            if let Some(back) = back {
                // Another page of this machine guesses: it gets nothing, and the sign-in goes on.
                let stranger = format!("{}?code=stolen&state=guess", back.split('?').next().unwrap());
                assert!(get(&stranger).starts_with("HTTP/1.1 400"));
                assert!(get(&back).starts_with("HTTP/1.1 200"));
            }
        }
    }
    let mut output = child.wait_with_output().unwrap();
    output.stderr = said.into_bytes();
    world.transcript(&args.join(" "), output)
}

fn call(world: &World, tool: &str) -> Transcript {
    world.run(&["call", "tool-read", &format!("--tool-name=notes:{tool}")])
}

#[test]
fn a_person_signs_in_once_and_the_gateway_is_let_in() {
    let world = World::new();
    let server = Guarded::start(&world, &json!({}));
    let before = world.run(&["upstreams", "test", "notes"]);
    assert!(before.stderr.contains("countersign upstreams login notes"), "{before}");
    assert_ne!(before.code, Some(0));

    let done = log_in(&world, &["--json"]);
    let envelope = done.envelope();
    assert_eq!(envelope["data"]["signed_in"], true, "{done}");
    assert_eq!(envelope["data"]["sign_in"]["issuer"], format!("http://127.0.0.1:{}/as", server.port));
    let scope = "notes:read offline_access";
    assert_eq!(envelope["data"]["sign_in"]["scope"], scope);
    assert_eq!(server.asked("authorize")[0]["scope"], scope);
    assert_eq!(server.asked("register")[0]["application_type"], "native");
    // Nothing that is shown is a secret.
    let kept: Value = serde_json::from_str(&std::fs::read_to_string(keys(&world)).unwrap()).unwrap();
    let token =
        kept["upstreams"][format!("http://127.0.0.1:{}/mcp", server.port)]["key"]["access_token"].clone();
    assert!(!format!("{done}").contains(token.as_str().unwrap()), "{done}");

    let read = call(&world, "read_note");
    assert_eq!((read.code, read.stdout.contains("a note")), (Some(0), true), "{read}");
    // Signed in already: nobody is asked again.
    let again = world.run(&["upstreams", "login", "notes", "--json"]);
    assert_eq!(again.envelope()["data"]["signed_in"], false);

    let out = world.run(&["upstreams", "logout", "notes"]);
    assert_eq!(out.code, Some(0), "{out}");
    assert_ne!(call(&world, "read_note").code, Some(0));
    assert!(!std::fs::read_to_string(keys(&world)).unwrap().contains("access_token"));
}

fn keys(world: &World) -> PathBuf {
    world.home().join(".config/countersign/oauth.json")
}

#[cfg(unix)]
#[test]
fn tokens_are_kept_for_their_owner_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = World::new();
    let _server = Guarded::start(&world, &json!({}));
    assert_eq!(log_in(&world, &[]).code, Some(0));
    let path = keys(&world);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    // A file others can read is not trusted to be ours alone, and nothing in it is used.
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert_ne!(call(&world, "read_note").code, Some(0));
    let login = world.run(&["upstreams", "login", "notes"]);
    assert!(login.stderr.contains("chmod 600"), "{login}");
}

#[test]
fn tokens_are_renewed_before_they_end_and_when_they_ended_early() {
    // Every token is about to end: each run renews it, and each refresh token is good once.
    let world = World::new();
    let server = Guarded::start(&world, &json!({ "expires_in": 5 }));
    assert_eq!(log_in(&world, &[]).code, Some(0));
    for _ in 0..2 {
        let read = call(&world, "read_note");
        assert_eq!(read.code, Some(0), "{read}");
    }
    let renewed = server.asked("token").iter().filter(|one| one["grant_type"] == "refresh_token").count();
    assert!(renewed >= 2, "{renewed}");

    // Every token ends right after the list, without a word: the call is turned away once, renewed, and runs once.
    let world = World::new();
    let server = Guarded::start(&world, &json!({ "ends_after": "list" }));
    assert_eq!(log_in(&world, &[]).code, Some(0));
    let read = call(&world, "read_note");
    assert_eq!(read.code, Some(0), "{read}");
    let ran = |let_in: bool| {
        server.asked("mcp").iter().filter(|one| one["tool"] == "read_note" && one["let_in"] == let_in).count()
    };
    assert_eq!((ran(false), ran(true)), (1, 1));
}

#[test]
fn more_rights_are_asked_of_a_person() {
    let world = World::new();
    let server = Guarded::start(&world, &json!({}));
    assert_eq!(log_in(&world, &[]).code, Some(0));
    let refused = call(&world, "find_note");
    assert_ne!(refused.code, Some(0));
    assert!(format!("{refused}").contains("countersign upstreams login notes"), "{refused}");
    assert_eq!(log_in(&world, &[]).code, Some(0));
    // What was granted before is asked for again, together with what was missing.
    assert_eq!(server.asked("authorize")[1]["scope"], "notes:read offline_access notes:write");
    let found = call(&world, "find_note");
    assert_eq!(found.code, Some(0), "{found}");
}

#[test]
fn what_does_not_belong_to_the_sign_in_is_not_believed() {
    let check = |habits: Value, expect: &str| {
        let world = World::new();
        let server = Guarded::start(&world, &habits);
        let done = log_in(&world, &[]);
        assert_ne!(done.code, Some(0), "{habits} {done}");
        assert!(done.stderr.contains(expect), "{habits} {done}");
        assert!(
            !keys(&world).exists()
                || !std::fs::read_to_string(keys(&world)).unwrap().contains("access_token")
        );
        server.asked("token").len()
    };
    assert_eq!(
        check(json!({ "resource": "https://evil.example/mcp" }), "the upstream's description says"),
        0
    );
    assert_eq!(check(json!({ "issuer": "http://127.0.0.1:1/as" }), "the guard's description says"), 0);
    assert_eq!(check(json!({ "pkce": false }), "does not offer PKCE"), 0);
    assert_eq!(check(json!({ "registration": false }), "a client id is needed"), 0);
    assert_eq!(
        check(json!({ "authorization_endpoint": "http://auth.example/authorize" }), "neither https"),
        0
    );
    assert_eq!(check(json!({ "authorization_endpoint": "file:///etc/passwd" }), "neither https"), 0);
    // The answer: another issuer, none, or a person's no. No code is handed on.
    assert_eq!(check(json!({ "answer": { "iss": "http://evil.example" } }), "another issuer"), 0);
    assert_eq!(check(json!({ "answer": { "iss": null } }), "no issuer"), 0);
    assert_eq!(
        check(
            json!({ "answer": { "code": null, "error": "access_denied", "error_description": "not \u{1b}[2Jyou" } }),
            "access_denied"
        ),
        0
    );
    assert_eq!(check(json!({ "token_type": "DPoP" }), "no bearer token"), 1);
    assert_eq!(check(json!({ "answer": { "code": "made-up" } }), "invalid_grant"), 1);
}

#[test]
fn only_servers_that_can_be_signed_in_to_are() {
    let world = World::new();
    world.write(
        "countersign.toml",
        "[upstreams.local]\ncommand = \"true\"\n\n[upstreams.fixed]\nurl = \"https://mcp.example/mcp\"\nbearer = \"x\"\n",
    );
    for (name, expect) in [
        ("local", "only a server with a `url`"),
        ("fixed", "a token already"),
        ("nobody", "there is no upstream `nobody`"),
    ] {
        let refused = world.run(&["upstreams", "login", name]);
        assert_eq!(refused.code, Some(if name == "nobody" { refused.code.unwrap() } else { 3 }), "{refused}");
        assert!(refused.stderr.contains(expect), "{refused}");
    }
    world.write(
        "countersign.toml",
        "[upstreams.a]\nurl = \"https://mcp.example/mcp\"\nbearer = \"x\"\noauth = { client_idd = \"y\" }\n",
    );
    let checked = world.run(&["policy", "check"]);
    assert!(
        checked.stdout.contains("did you mean `client_id`")
            || checked.stderr.contains("did you mean `client_id`"),
        "{checked}"
    );
    assert!(format!("{checked}").contains("exclude each other"), "{checked}");
}

/// A server that gives machines tokens, and a configuration in which the gateway is one.
fn for_machines(world: &World, more: Value) -> (Guarded, impl Fn(&str, &str)) {
    let mut habits = json!({ "machine": "robot:s3cret", "auth": "client_secret_basic", "pkce": false });
    habits.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let server = Guarded::start(world, &habits);
    let port = server.port;
    let write = move |secret: &str, more: &str| {
        let config = format!(
            "[gateway]\nmode = \"execute\"\n\n[upstreams.notes]\nurl = \"http://127.0.0.1:{port}/mcp\"\noauth = {{ grant = \"client_credentials\", client_id = \"robot\", client_secret = \"{secret}\"{more} }}\n",
        );
        world.write("countersign.toml", &config);
    };
    (server, write)
}

/// Nobody agrees in a browser: the gateway has an identity of its own, and asks again when a token ends.
#[test]
fn a_gateway_signs_in_as_itself() {
    let world = World::new();
    let (server, write) = for_machines(&world, json!({ "expires_in": 20, "ends_after": "list" }));
    write("s3cret", "");
    let read = call(&world, "read_note");
    assert_eq!((read.code, read.stdout.contains("a note")), (Some(0), true), "{read}");
    let grants: Vec<Value> = server.asked("token").iter().map(|one| one["grant_type"].clone()).collect();
    assert!(grants.len() > 1 && grants.iter().all(|grant| grant == "client_credentials"), "{grants:?}");
    let asked = server.asked("mcp");
    let ran = asked.iter().filter(|one| one["tool"] == "read_note" && one["let_in"] == true).count();
    assert_eq!(ran, 1);
    assert!(!keys(&world).exists(), "nothing is kept");

    write("wrong", "");
    let refused = call(&world, "read_note");
    assert_ne!(refused.code, Some(0));
    assert!(format!("{refused}").contains("invalid_client: who are you"), "{refused}");
    assert!(!format!("{refused}").contains("upstreams login"), "{refused}");
    let login = world.run(&["upstreams", "login", "notes"]);
    assert!(login.stderr.contains("signs in to it as itself"), "{login}");
}

/// More rights are asked for where the server names them; rights the configuration fixes stay as they are.
#[test]
fn a_gateway_asks_for_more_rights_by_itself_unless_they_are_fixed() {
    let world = World::new();
    let (_server, write) = for_machines(&world, json!({}));
    write("s3cret", "");
    let found = call(&world, "find_note");
    assert_eq!(found.code, Some(0), "{found}");
    write("s3cret", ", scopes = \"notes:read\"");
    let refused = call(&world, "find_note");
    assert_ne!(refused.code, Some(0), "{refused}");
    assert!(format!("{refused}").contains("does not take the token the gateway was given"), "{refused}");
}

#[test]
fn an_identity_is_whole_or_refused() {
    let world = World::new();
    for (oauth, expect) in [
        (r#"{ grant = "client_credentials" }"#, "needs `client_id` and either"),
        (r#"{ grant = "client_credentials", client_id = "a" }"#, "needs `client_id` and either"),
        (
            r#"{ grant = "client_credentials", client_id = "a", client_secret = "b", private_key = "c" }"#,
            "needs `client_id` and either",
        ),
        (r#"{ grant = "password", client_id = "a" }"#, "`grant` must be"),
        (r#"{ client_id = "a", private_key = "c" }"#, "signs in as itself"),
    ] {
        world.write(
            "countersign.toml",
            &format!("[upstreams.a]\nurl = \"https://mcp.example/mcp\"\noauth = {oauth}\n"),
        );
        let checked = world.run(&["policy", "check"]);
        assert!(format!("{checked}").contains(expect), "{oauth} {checked}");
    }
    let oauth = r#"{ grant = "client_credentials", client_id = "a", private_key = "no key" }"#;
    world.write(
        "countersign.toml",
        &format!("[upstreams.a]\nurl = \"https://mcp.example/mcp\"\noauth = {oauth}\n"),
    );
    let tried = world.run(&["upstreams", "test", "a"]);
    assert!(format!("{tried}").contains("no PEM"), "{tried}");
}
