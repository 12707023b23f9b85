//! A gateway before a recording upstream, lines into it, and what has to hold at the end of everything that happens there:
//! the ledger is proven, every refusal is a row of it, every call that ran is one, and stdout was protocol only.

use std::path::PathBuf;
use std::sync::OnceLock;

use countersign_policy::confirm::{Approval, RecordedChannel};
use countersign_policy::ids::{CredentialId, FullName, PlanId, Secret};
use countersign_policy::record::{RowKind, RowStatus};
use countersign_policy::role::Role;
use countersign_store::{ConnectOptions, Credential, Entry, Store, StoreUrl, secret_digest};
use jiff::Timestamp;
use serde_json::Value;

use super::client::{Client, Host, Reply, Way};
use super::gateway::{End, Gateway};
use crate::ledger::wait;
use crate::world::World;

/// Everything one scenario needs.
pub(crate) struct Scene {
    pub(crate) world: World,
    pub(crate) way: Way,
    surface: &'static str,
    flags: Vec<String>,
    gateways: Vec<Gateway>,
    /// Whether a gateway ends because its client left: then it ends with it.
    sessions: usize,
    record_read: usize,
    /// Codes of all refusals that were answered.
    refused: Vec<String>,
    /// Ledger ids of all calls that ran.
    ran: Vec<String>,
    /// Where the store is, if not in the working folder.
    pub(crate) elsewhere: Option<StoreUrl>,
    /// The secret of the credential that HTTP lines bring.
    bearer: OnceLock<String>,
}

/// A credential for an agent of a gateway that keeps its store in the working folder; gives its secret.
pub(crate) fn agent_credential(world: &World) -> String {
    add_credential(&StoreUrl::file(world.work().join("countersign.db")), "local-agent", Role::Agent, VOUCHES)
}

/// Scopes of a host that may answer confirmations.
pub(crate) const VOUCHES: &str = r#"{"may_vouch":true}"#;

fn add_credential(url: &StoreUrl, name: &str, role: Role, scopes: &str) -> String {
    add_named(url, name, name, role, scopes)
}

/// A credential whose id and secret have a word of their own: several may have one name.
fn add_named(url: &StoreUrl, name: &str, word: &str, role: Role, scopes: &str) -> String {
    let secret = format!("secret-of-{word}");
    let now = Timestamp::now();
    let credential = Credential {
        id: CredentialId::new(format!("crd_{word}")),
        role,
        name: name.to_owned(),
        scopes: serde_json::from_str(scopes).unwrap(),
        created: now,
        expires: None,
        revoked: None,
    };
    let digest = secret_digest(&Secret::new(&secret));
    wait(async {
        let store = Store::connect(url, ConnectOptions::default()).await.unwrap();
        store.add_credential(&credential, digest, &"ada".into(), now).await.map(|_| ()).unwrap();
    });
    secret
}

/// The interpreter itself, not what a version manager puts before it.
pub(crate) fn python() -> &'static str {
    static PYTHON: OnceLock<String> = OnceLock::new();
    PYTHON.get_or_init(|| {
        let mut asked = std::process::Command::new("python3");
        let said = asked.args(["-c", "import sys; print(sys.executable)"]).output().unwrap().stdout;
        String::from_utf8(said).unwrap().trim().to_owned()
    })
}

/// The configuration of a scenario about the token protocol: nothing waits, and the agent's own token runs a write. One that
/// says who has to agree, or how long to wait, is left as it says.
fn token_protocol(config: &str) -> String {
    let mut lines = String::new();
    if !config.contains("hold = ") {
        lines += "hold = \"0s\"\n";
    }
    if !config.contains("profile = ") && !config.contains("strength = {") {
        lines += "strength = { write = \"caller\" }\n";
    }
    match config.split_once("[confirm]\n") {
        Some((before, after)) => format!("{before}[confirm]\n{lines}{after}"),
        None => format!("{config}\n[confirm]\n{lines}"),
    }
}

impl Scene {
    /// A gateway with this configuration, before the upstream `notes`.
    pub(crate) fn open(way: Way, config: &str) -> Self {
        Self::open_with(way, "router", config, &[])
    }

    /// The same on a surface, with flags.
    pub(crate) fn open_with(way: Way, surface: &'static str, config: &str, flags: &[&str]) -> Self {
        Self::open_in(World::new(), way, surface, config, flags)
    }

    /// The same in a world that was prepared.
    pub(crate) fn open_in(
        world: World,
        way: Way,
        surface: &'static str,
        config: &str,
        flags: &[&str],
    ) -> Self {
        let mut scene = Self {
            world,
            way,
            surface,
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
            gateways: Vec::new(),
            sessions: 0,
            record_read: 0,
            refused: Vec::new(),
            ran: Vec::new(),
            elsewhere: None,
            bearer: OnceLock::new(),
        };
        scene.configure(config);
        if way.is_http() {
            scene.start(&["--http", "127.0.0.1:0"]);
        }
        scene
    }

    fn start(&mut self, more: &[&str]) {
        let flags: Vec<&str> = self.flags.iter().map(String::as_str).chain(more.iter().copied()).collect();
        self.gateways.push(Gateway::start(&self.world, &flags));
    }

    /// Another gateway on the same store; gives its address.
    pub(crate) fn replica(&mut self, name: &str) -> String {
        self.start(&["--http", "127.0.0.1:0", "--replica", name]);
        self.gateway().address()
    }

    /// Ends the gateway that was started first, in the middle of whatever it does.
    pub(crate) fn kill_first(&mut self) {
        self.gateways.remove(0).end(End::Killed);
    }

    /// Writes the configuration, whole at once: it may be read at any moment.
    pub(crate) fn configure(&self, config: &str) {
        let (record, state) = (self.world.work().join("record.jsonl"), self.world.work().join("state.json"));
        let peer = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/peers/recorder.py");
        // What a scenario says of the upstream itself stands at the end of its configuration.
        let (config, upstream) = config.split_once("[upstreams.notes]").unwrap_or((config, ""));
        let config = token_protocol(config);
        let whole = format!(
            "{config}\n[upstreams.notes]{upstream}\ncommand = {:?}\nargs = [\"-I\", \"-S\", {peer:?}]\nenv = {{ RECORD = {record:?}, STATE = {state:?} }}\n",
            python()
        );
        self.replace("countersign.toml", &whole);
    }

    fn replace(&self, name: &str, text: &str) {
        self.world.write("being-written", text);
        std::fs::rename(self.world.work().join("being-written"), self.world.work().join(name)).unwrap();
    }

    /// Changes the configuration under the gateway and waits until it says what it made of it.
    pub(crate) fn reconfigure(&self, config: &str) -> String {
        let told = self.gateway().told();
        let mark = told.mark();
        self.configure(config);
        told.wait_for(mark, |line| line.starts_with("configuration "))
    }

    /// Tells the upstream how to behave from now on.
    pub(crate) fn state(&self, state: &str) {
        self.replace("state.json", state);
    }

    pub(crate) fn gateway(&self) -> &Gateway {
        self.gateways.last().unwrap()
    }

    /// The gateway; the caller has to end it.
    pub(crate) fn take_gateway(&mut self) -> Gateway {
        self.gateways.pop().unwrap()
    }

    pub(crate) fn path(&self) -> &'static str {
        if self.surface == "direct" { "/mcp/direct" } else { "/mcp/router" }
    }

    /// A new line, with a session of its own.
    pub(crate) fn line(&mut self, host: Host) -> Client {
        self.sessions += 1;
        let name = format!("s{}", self.sessions);
        self.line_named(host, &name)
    }

    /// A line with a session of this name, where the name is the client's to choose.
    pub(crate) fn line_named(&mut self, host: Host, name: &str) -> Client {
        if self.way.is_http() {
            let (address, bearer) = (self.gateway().address(), Some(self.bearer()));
            return Client::http_as(self.way, host, &address, self.path(), name, bearer);
        }
        self.start(&["--surface", self.surface, "--session", name]);
        let (stdin, stdout) = self.gateways.last_mut().unwrap().pipes.take().unwrap();
        Client::stdio(self.way, host, stdin, stdout)
    }

    /// A line over stdio that a host of this name has started.
    pub(crate) fn line_of(&mut self, host: Host, name: &str) -> Client {
        self.sessions += 1;
        let session = format!("s{}", self.sessions);
        self.start(&["--surface", self.surface, "--session", &session, "--host", name]);
        let (stdin, stdout) = self.gateways.last_mut().unwrap().pipes.take().unwrap();
        Client::stdio(self.way, host, stdin, stdout)
    }

    /// A line over HTTP with this credential, or none.
    pub(crate) fn line_as(&self, host: Host, bearer: Option<String>) -> Client {
        Client::http_as(self.way, host, &self.gateway().address(), self.path(), "own", bearer)
    }

    /// Ends the gateway and starts it again; the client comes back to the same session.
    pub(crate) fn restart(&mut self, client: Client, host: Host, how: End) -> Client {
        if self.way.is_http() {
            self.gateways.pop().unwrap().end(how);
            self.start(&["--http", "127.0.0.1:0"]);
            client.moved(&self.gateway().address());
            return client;
        }
        assert_eq!(client.noise(), Vec::<String>::new(), "stdout carries protocol only");
        let gateway = self.gateways.pop().unwrap();
        gateway.signal(how);
        drop(client);
        gateway.end(how);
        let name = format!("s{}", self.sessions);
        self.line_named(host, &name)
    }

    /// Whether a text is anywhere in the store's files.
    pub(crate) fn store_holds(&self, text: &str) -> bool {
        let holds = |name: &str| {
            let bytes = std::fs::read(self.world.work().join(name)).unwrap_or_default();
            bytes.windows(text.len()).any(|window| window == text.as_bytes())
        };
        ["countersign.db", "countersign.db-wal"].iter().any(|name| holds(name))
    }

    pub(crate) fn store<T>(&self, work: impl AsyncFnOnce(Store) -> T) -> T {
        wait(async {
            work(Store::connect(&self.store_url(), ConnectOptions::default()).await.unwrap()).await
        })
    }

    fn store_url(&self) -> StoreUrl {
        let here = || StoreUrl::file(self.world.work().join("countersign.db"));
        self.elsewhere.clone().unwrap_or_else(here)
    }

    /// The secret of the agent's credential, which is made when it is first needed. It has the name of a stdio line's agent.
    pub(crate) fn bearer(&self) -> String {
        self.bearer.get_or_init(|| self.credential("local-agent", Role::Agent, VOUCHES)).clone()
    }

    /// A person agrees, on a terminal of their own.
    pub(crate) fn approve(&self, plan: &str) {
        let now = Timestamp::now();
        let approval = Approval::over(RecordedChannel::Cli, "ada".into(), now);
        self.store(async |store| store.approve(&PlanId::new(plan), approval, now).await.map(|_| ()).unwrap());
    }

    /// A person says no.
    pub(crate) fn reject(&self, plan: &str) {
        let (plan, now) = (PlanId::new(plan), Timestamp::now());
        self.store(async |store| {
            store
                .reject(&plan, "ada".into(), RecordedChannel::Cli, Some("no".into()), now)
                .await
                .map(|_| ())
                .unwrap();
        });
    }

    /// A person accepts a tool as it is listed now.
    pub(crate) fn accept(&self, tool: &str) {
        let (tool, now) = (tool.parse::<FullName>().unwrap(), Timestamp::now());
        self.store(async |store| {
            let pin = store.pin_of(&tool).await.unwrap().unwrap();
            let seen = pin.candidate.map_or(pin.pinned.fingerprint, |now| now.fingerprint);
            store.accept_pin(&tool, seen, &"ada".into(), now).await.map(|_| ()).unwrap();
        });
    }

    /// A row of the future: the clock stood later once.
    pub(crate) fn record_at(&self, moment: Timestamp) {
        let row = Entry::new(RowKind::System, RowStatus::Success).with_fact("action", "later");
        self.store(async |store| store.append(row, moment).await.map(|_| ()).unwrap());
    }

    /// A person lets a principal write again.
    pub(crate) fn resume(&self, principal: &str) {
        let principal = principal.into();
        self.store(async |store| {
            store.resume(&principal, &"ada".into(), Timestamp::now()).await.map(|_| ()).unwrap()
        });
    }

    /// A credential; gives its secret.
    pub(crate) fn credential(&self, name: &str, role: Role, scopes: &str) -> String {
        add_credential(&self.store_url(), name, role, scopes)
    }

    /// Another credential of an agent that has one; gives its secret.
    pub(crate) fn namesake(&self, name: &str, word: &str, scopes: &str) -> String {
        add_named(&self.store_url(), name, word, Role::Agent, scopes)
    }

    /// What reached the upstream since the last look: tool and arguments.
    pub(crate) fn reached(&mut self) -> Vec<(String, Value)> {
        self.reached_lines().into_iter().map(|(name, arguments, _)| (name, arguments)).collect()
    }

    /// The same with the frame as it was sent.
    pub(crate) fn reached_lines(&mut self) -> Vec<(String, Value, String)> {
        let text = std::fs::read_to_string(self.world.work().join("record.jsonl")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let new = lines.iter().skip(self.record_read).map(|line| {
            let row: Value = serde_json::from_str(line).unwrap();
            let name = row["name"].as_str().unwrap().to_owned();
            (name, row["arguments"].clone(), row["line"].as_str().unwrap().to_owned())
        });
        let new = new.collect();
        self.record_read = lines.len();
        new
    }

    /// What every answer has to be, whatever it says; and keeps what the ledger must show for it.
    #[track_caller]
    pub(crate) fn heed(&mut self, reply: Reply) -> Reply {
        if let Some(code) = reply.code() {
            self.refused.push(code.to_owned());
        }
        if reply.ran() {
            let facts = &reply.result()["_meta"]["countersign"];
            self.ran.push(facts["ledger_id"].as_str().unwrap().to_owned());
            assert!(facts["effect"].is_string() && facts["mode"].is_string(), "{}", reply.text);
        }
        if let Some(envelope) = reply.envelope() {
            let text = reply.result()["content"][0]["text"].as_str().unwrap();
            check_text(text, envelope);
            assert_eq!(reply.result()["isError"].as_bool(), envelope["ok"].as_bool().map(|ok| !ok));
            assert_eq!(envelope["errors"].as_array().unwrap().is_empty(), envelope["ok"] == true);
        }
        let details = match reply.envelope() {
            Some(envelope) if envelope["ok"] == false => Some(&envelope["errors"][0]["details"]),
            Some(_) => None,
            None => reply.frame["error"]["data"].get("details"),
        };
        if let Some(details) = details {
            assert!(details["reason_code"].is_string(), "{}", reply.text);
            assert!(!details["next_actions"].as_array().unwrap().is_empty(), "{}", reply.text);
        }
        reply
    }

    /// Calls a tool and heeds the answer.
    #[track_caller]
    pub(crate) fn call(&mut self, client: &Client, tool: &str, arguments: &str) -> Reply {
        let reply = client.call(tool, arguments);
        self.heed(reply)
    }

    /// Rows of the ledger, oldest first.
    pub(crate) fn rows(&self) -> Vec<Value> {
        let listed = self.world.run(&["activity", "list", "--json", "--limit", "1000"]);
        let mut rows = listed.envelope()["data"]["activities"].as_array().unwrap().clone();
        rows.reverse();
        rows
    }

    /// Ends everything and looks at what is left: a proven ledger that knows of every refusal and every run.
    #[track_caller]
    pub(crate) fn finish(mut self, clients: Vec<Client>) {
        for client in clients {
            assert_eq!(client.noise(), Vec::<String>::new(), "stdout carries protocol only");
        }
        let how = if self.way.is_http() { End::Asked } else { End::Closed };
        for gateway in std::mem::take(&mut self.gateways) {
            gateway.end(how);
        }
        let proven = self.world.run(&["activity", "verify", "--json"]);
        assert_eq!(proven.code, Some(0), "{proven}");
        let rows = self.rows();
        let mut missing = self.refused.clone();
        for row in rows.iter().filter(|row| row["code"].is_string()) {
            if let Some(at) = missing.iter().position(|code| row["code"] == code.as_str()) {
                missing.swap_remove(at);
                assert!(row["principal"].is_string() && row["role"].is_string(), "{row}");
                assert!(row["detail"]["reason_code"].is_string() || row["status"] == "error", "{row}");
            }
        }
        assert_eq!(missing, Vec::<String>::new(), "refusals that are not in the ledger");
        for id in &self.ran {
            let row = rows.iter().find(|row| row["id"] == id.as_str());
            let row = row.unwrap_or_else(|| panic!("{id} is not in the ledger"));
            assert!(row["status"] == "success" || row["status"] == "error", "{row}");
        }
    }
}

/// What the model reads says what the structure says: the code of a refusal, the token of a hold, otherwise the data, once; short
/// where people pay for every word. `pack`'s tools follow their original: the envelope once more.
#[track_caller]
fn check_text(text: &str, envelope: &Value) {
    if serde_json::from_str::<Value>(text).is_ok_and(|whole| whole == *envelope) {
        return;
    }
    let data = &envelope["data"];
    if let Some(code) = envelope["errors"][0]["code"].as_str() {
        assert!(text.starts_with(code) && text.contains("Next: "), "{text}");
        assert!(
            text.len() <= 300 || data.get("steps").is_some() || data.get("ran_steps").is_some(),
            "{text}"
        );
    } else if data["status"] == "confirmation_required" {
        // Previews and what ran before are data, and have bounds of their own.
        let preview = text.find("\nPreview:").or_else(|| text.find("\nRan before it:")).unwrap_or(text.len());
        assert!(preview <= 600, "{preview} bytes: {text}");
        for needed in ["plan_id", "confirm_token", "approve_command"] {
            let needed = data[needed].as_str().filter(|_| data.get("blocks").is_none()).unwrap_or_default();
            assert!(text.contains(needed), "{needed}: {text}");
        }
    } else if data["status"] != "preview" {
        let first = text.split("\nNote: ").next().unwrap_or_default();
        assert_eq!(&serde_json::from_str::<Value>(first).unwrap_or_default(), data, "{text}");
    }
}
