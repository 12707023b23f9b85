//! Listening where others can reach it: not without credentials, not in the clear, not under any name; and TLS spoken with a
//! client that is not ours.

use std::net::{IpAddr, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::process::Stdio;

use countersign_policy::role::Role;

use super::client::Way;
use super::gateway::{End, Gateway};
use super::scene::Scene;
use crate::world::World;

fn tls(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/tls").join(name)
}

fn refused(config: &str, flags: &[&str]) -> String {
    let world = World::new();
    world.write("countersign.toml", config);
    let said = world.run(&[&["serve"], flags].concat());
    assert_eq!(said.code, Some(3), "{said}");
    said.stderr
}

#[test]
fn what_others_can_reach_needs_credentials_and_tls() {
    let elsewhere = ["--http", "0.0.0.0:0"];
    let open = refused("[gateway]\nagent_auth = \"loopback-open\"\n", &elsewhere);
    assert!(
        open.contains("agent lines need no credential") && open.contains("agent_auth = \"required\""),
        "{open}"
    );
    let required = "[gateway]\nagent_auth = \"required\"\n";
    let plain = refused(required, &elsewhere);
    assert!(plain.contains("nothing encrypts") && plain.contains("[gateway.tls]"), "{plain}");
    let certificate = format!("tls = {{ cert = {:?}, key = {:?} }}\n", tls("cert.pem"), tls("key.pem"));
    let nameless = refused(&format!("{required}{certificate}"), &elsewhere);
    assert!(nameless.contains("no name") && nameless.contains("hosts = "), "{nameless}");
    let proxied = refused("[gateway]\nbehind_proxy = true\n", &elsewhere);
    assert!(proxied.contains("no name"), "credentials are needed without a word: {proxied}");
    let desk = refused(&format!("{required}[desk]\nlisten = \"0.0.0.0:0\"\n"), &["--http", "127.0.0.1:0"]);
    assert!(desk.contains("nothing encrypts"), "{desk}");
    let both = refused("[gateway]\nbehind_proxy = true\nagent_auth = \"loopback-open\"\n", &[]);
    assert!(both.contains("behind a proxy every caller seems to be on this machine"), "{both}");
    let missing =
        refused("[gateway]\ntls = { cert = \"no.pem\", key = \"no.pem\" }\n", &["--http", "127.0.0.1:0"]);
    assert!(missing.contains("no.pem") && missing.contains("no such file"), "{missing}");
    let swapped = format!("[gateway]\ntls = {{ cert = {0:?}, key = {0:?} }}\n", tls("cert.pem"));
    let swapped = refused(&swapped, &["--http", "127.0.0.1:0"]);
    assert!(swapped.contains("key can't be read"), "{swapped}");
}

/// A client of another make: Python's ssl, which checks the certificate and the name.
fn post(world: &World, url: &str, headers: &[(&str, &str)], body: &str) -> String {
    let script = r#"import json, ssl, sys, urllib.request, urllib.error
url, cafile, headers, body = sys.argv[1:5]
context = ssl.create_default_context(cafile=cafile)
request = urllib.request.Request(url, body.encode() or None, {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **json.loads(headers)})
try:
    with urllib.request.urlopen(request, context=context, timeout=30) as answer:
        print(answer.status, answer.read().decode())
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
except Exception as error:
    print("no", error)
"#;
    let headers = serde_json::Value::Object(
        headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect(),
    );
    let mut python = world.command("python3");
    python
        .args(["-c", script, url, tls("cert.pem").to_str().unwrap(), &headers.to_string(), body])
        .stdin(Stdio::null());
    let output = python.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;

#[test]
fn tls_is_spoken_with_a_client_of_another_make() {
    let config = format!(
        "[gateway]\nagent_auth = \"required\"\nhosts = [\"gateway.test\"]\ntls = {{ cert = {:?}, key = {:?} }}\n",
        tls("cert.pem"),
        tls("key.pem")
    );
    let scene = Scene::open(Way::StdioLegacy, &config);
    let gateway = Gateway::start(&scene.world, &["--http", "127.0.0.1:0"]);
    let line = gateway.told().wait_for(0, |line| line.starts_with("listening on "));
    let url = line.trim_start_matches("listening on ").to_owned();
    assert!(url.starts_with("https://127.0.0.1:"), "{url}");
    let desk = gateway.told().wait_for(0, |line| line.starts_with("desk at "));
    assert!(desk.contains("https://"), "{desk}");
    let secret = scene.credential("ann", Role::Agent, "{}");
    let bearer = format!("Bearer {secret}");
    let world = &scene.world;
    let good = post(world, &url, &[("Authorization", &bearer)], LIST);
    assert!(good.starts_with("200 ") && good.contains("\"countersign\""), "{good}");
    assert!(post(world, &url, &[], LIST).starts_with("401 "), "no credential");
    assert!(
        post(world, &url, &[("Authorization", &bearer), ("Host", "gateway.test")], LIST).starts_with("200 ")
    );
    let rebound = post(world, &url, &[("Authorization", &bearer), ("Host", "evil.example")], LIST);
    assert!(rebound.starts_with("403 ") || rebound.starts_with("421 "), "{rebound}");
    let page = desk.split_whitespace().find(|word| word.starts_with("https://")).unwrap().to_owned();
    assert!(post(world, &format!("{page}healthz"), &[], "").starts_with("200 "));
    assert!(
        post(world, &format!("{page}api/v1/plans"), &[("Authorization", &bearer)], "").starts_with("403 ")
    );
    // Plain HTTP finds nobody to talk to, and a name that is not in the certificate is refused by the client.
    let plain = post(world, &url.replace("https:", "http:"), &[], LIST);
    assert!(plain.starts_with("no "), "{plain}");
    gateway.end(End::Asked);
    scene.finish(Vec::new());
}

/// Behind a proxy everybody seems to be on this machine: nobody is let in for that.
#[test]
fn behind_a_proxy_nobody_is_local() {
    let scene = Scene::open(Way::HttpModern, "[gateway]\nbehind_proxy = true\nhosts = [\"gateway.test\"]\n");
    let address = scene.gateway().address();
    let headers = [("Content-Type".to_owned(), "application/json".to_owned())];
    let answer = super::http::send(&address, "POST", "/mcp", &headers, LIST).unwrap();
    assert_eq!(answer.status, 401);
    scene.finish(Vec::new());
}

/// On an address of this machine that is not loopback, where it has one.
#[test]
fn another_address_of_this_machine_is_served_under_its_own_name() {
    let Some(address) = outside() else {
        println!("skipped: this machine has no address but loopback");
        return;
    };
    let config = format!(
        "[gateway]\nagent_auth = \"required\"\nlisten = \"{address}:0\"\ntls = {{ cert = {:?}, key = {:?} }}\n",
        tls("cert.pem"),
        tls("key.pem")
    );
    let scene = Scene::open(Way::StdioLegacy, &config);
    let gateway = Gateway::start(&scene.world, &["--http"]);
    let line = gateway.told().wait_for(0, |line| line.starts_with("listening on "));
    assert!(line.contains(&format!("https://{address}:")), "{line}");
    gateway.end(End::Asked);
    scene.finish(Vec::new());
}

/// An address of ours that others could use; nothing is sent to find it.
fn outside() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback() && !ip.is_unspecified() && TcpListener::bind((ip, 0)).is_ok()).then_some(ip)
}
