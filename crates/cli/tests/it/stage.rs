//! What documents show, done: commands as they stand, in an empty home, with addresses of this machine in the place of those that
//! are only examples, a browser that notes what it should open, and servers that go on until the end.

use std::env::join_paths;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::json;

use crate::serve::collector::Collector;
use crate::serve::replicas::Schema;
use crate::world::{Transcript, World, binary};

/// Replacements for the reader's collector and database in the guide.
const COLLECTOR: &str = "http://127.0.0.1:4318";
const POSTGRES: &str = "postgres://countersign@db.internal/countersign";

/// The top of the sources.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Where a page or examples are followed: a world, what goes on in it, and what addresses stand for here.
pub(crate) struct Stage {
    pub(crate) world: World,
    stays: Vec<Child>,
    pub(crate) means: Vec<(&'static str, String)>,
    collector: Option<Collector>,
    _schema: Option<Schema>,
}

impl Stage {
    /// None where the page needs a database and there is none.
    pub(crate) fn new(page: &str) -> Option<Self> {
        let world = World::new();
        let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let mut means = vec![("127.0.0.1:7878", free()), ("127.0.0.1:7879", free())];
        let collector = page.contains(COLLECTOR).then(Collector::open);
        means.extend(collector.as_ref().map(|collector| (COLLECTOR, collector.url.clone())));
        let schema = if page.contains(POSTGRES) { Some(Schema::new()?) } else { None };
        means.extend(schema.as_ref().map(|schema| (POSTGRES, schema.url())));
        // A reader of the guide has a clone and a browser.
        means.push(("cargo run --release -- ", "countersign ".to_owned()));
        world.write(
            "examples/first/countersign.toml",
            &fs::read_to_string(root().join("examples/first/countersign.toml")).unwrap(),
        );
        world.write("../home/bin/xdg-open", "#!/bin/sh\necho \"$1\" >>\"$HOME/opened\"\n");
        fs::set_permissions(world.home().join("bin/xdg-open"), fs::Permissions::from_mode(0o755)).unwrap();
        // And, where servers are brought over, a host with a server.
        let home = world.home();
        std::os::unix::fs::symlink(binary(), home.join("bin/echo-server")).unwrap();
        if page.contains("countersign init --yes") {
            let server = json!({"command": home.join("bin/echo-server"), "args": ["bench-echo"]});
            world.write("../home/.claude.json", &json!({"mcpServers": {"echo": server}}).to_string());
        }
        Some(Self { world, stays: Vec::new(), means, collector, _schema: schema })
    }

    /// A text with what its addresses stand for.
    pub(crate) fn here(&self, text: &str) -> String {
        self.means.iter().fold(text.to_owned(), |text, (there, here)| text.replace(there, here))
    }

    fn shell(&self, script: &str) -> Command {
        let own = self.world.home().join("bin");
        let folders = [binary().parent().unwrap(), &own, "/usr/bin".as_ref(), "/bin".as_ref()];
        let mut shell = self.world.command("sh");
        shell.args(["-ec", script]).env("PATH", join_paths(folders).unwrap());
        shell
    }

    /// Runs a script to its end.
    pub(crate) fn follow(&self, script: &str) -> Transcript {
        let script = self.here(script);
        let output = self.shell(&script).output().unwrap();
        self.world.transcript(&script, output)
    }

    /// Runs a script that ends well.
    pub(crate) fn run(&self, name: &str, script: &str) {
        let transcript = self.follow(script);
        assert_eq!(transcript.code, Some(0), "{name}: {transcript}");
    }

    /// Starts what goes on until the page ends, each line in a terminal of its own, and waits until it serves.
    pub(crate) fn start(&mut self, name: &str, script: &str) {
        for line in self.here(script).lines() {
            let mut shell = self.shell(&format!("exec env {line}"));
            let mut child =
                shell.stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0).spawn().unwrap();
            let told = BufReader::new(child.stderr.take().unwrap());
            self.stays.push(child);
            let (tell, hear) = mpsc::channel();
            std::thread::spawn(move || {
                for line in told.lines().map_while(Result::ok) {
                    let _ = tell.send(line);
                }
            });
            let mut said = String::new();
            while !said.contains("listening on ") {
                match hear.recv_timeout(Duration::from_secs(60)) {
                    Ok(more) => said.push_str(&format!("{more}\n")),
                    Err(_) => panic!("{name}: `{line}` does not serve: {said}"),
                }
            }
        }
    }

    /// The page is read to its end.
    pub(crate) fn end(&mut self, name: &str) {
        for child in &mut self.stays {
            assert_eq!(child.try_wait().unwrap(), None, "{name}: what should go on has ended");
        }
        self.stop();
        // What is exported last is exported before the gateway ends.
        if let Some(collector) = self.collector.as_ref().filter(|_| cfg!(feature = "otlp")) {
            let all = [collector.exports("/v1/traces"), collector.exports("/v1/metrics")];
            assert!(all.iter().all(|exports| !exports.is_empty()), "{name}: traces and metrics did not come");
        }
    }

    fn stop(&mut self) {
        for child in &mut self.stays {
            let group = format!("-{}", child.id());
            Command::new("kill").args(["-TERM", "--", &group]).status().unwrap();
            child.wait().unwrap();
        }
        self.stays.clear();
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.stop();
    }
}
