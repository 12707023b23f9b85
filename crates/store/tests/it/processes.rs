//! A second process: this test binary, started again for one part of a test. Speaks in lines that begin with `@`.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use countersign_store::{ConnectOptions, Store};

use crate::place::{Place, on_both, options};

/// What the second process is to do; none in the first.
const PART: &str = "COUNTERSIGN_TEST_PART";

/// A part of a test in another process.
pub(crate) struct Other {
    pub(crate) child: Child,
    input: ChildStdin,
    lines: BufReader<ChildStdout>,
}

impl Other {
    /// Starts a part on the same store.
    pub(crate) fn start(place: &Place, part: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "processes::another_process", "--nocapture", "--test-threads=1"]);
        command.env(PART, part).env("COUNTERSIGN_TEST_STORE", place.url());
        command.env("COUNTERSIGN_TEST_KEY", place.key_file());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, lines) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, lines }
    }

    /// The next line it says, without the sign; none at its end.
    pub(crate) fn hear(&mut self) -> Option<String> {
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line).unwrap_or(0) == 0 {
                return None;
            }
            // The harness may have begun a line of its own before. A line cut short by a kill says nothing.
            if let Some((_, said)) = line.split_once('@').filter(|_| line.ends_with('\n')) {
                return Some(said.trim_end().to_owned());
            }
        }
    }

    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    /// SIGKILL, and what it had said before.
    pub(crate) fn kill(mut self) -> Vec<String> {
        self.child.kill().unwrap();
        let mut said = Vec::new();
        while let Some(line) = self.hear() {
            said.push(line);
        }
        self.child.wait().unwrap();
        said
    }
}

pub(crate) fn say(line: impl std::fmt::Display) {
    println!("@{line}");
}

pub(crate) fn listen() -> String {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    line.trim().to_owned()
}

/// The store of the first process, with a chain of its own where a name is given.
pub(crate) async fn same_store(writer: &str) -> Store {
    let url = std::env::var("COUNTERSIGN_TEST_STORE").unwrap().parse().unwrap();
    let key_file = Some(std::env::var("COUNTERSIGN_TEST_KEY").unwrap().into());
    Store::connect(&url, ConnectOptions { key_file, writer: writer.into(), ..options() }).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn another_process() {
    // In the first process there is no part to play.
    let Ok(part) = std::env::var(PART) else { return };
    match part.split_once(' ').unwrap_or((&part, "")) {
        ("race", how) => crate::race::redeem_all(how).await,
        ("review", how) => crate::memory::decide_all(how).await,
        ("append", _) => crate::crash::append_for_ever().await,
        ("open", token) => crate::crash::open_and_wait(token).await,
        ("interleave", count) => append_some(count.parse().unwrap()).await,
        other => panic!("unknown part {other:?}"),
    }
}

on_both!(two_processes_share_a_chain_without_breaking_it);

/// Appends until told to stop; says when it has done its share and how much it was in the end.
pub(crate) async fn append_some(share: i64) {
    use countersign_policy::record::{RowKind, RowStatus};
    let store = same_store("main").await;
    let stop = tokio::task::spawn_blocking(listen);
    let mut number = 0;
    while number < share || !stop.is_finished() {
        let entry = countersign_store::Entry::new(RowKind::Config, RowStatus::Success)
            .with_fact("process", std::process::id());
        store.append(entry, crate::world::at(number)).await.unwrap();
        number += 1;
        if number == share {
            say("share");
        }
    }
    say(number);
}

async fn two_processes_share_a_chain_without_breaking_it(place: Place) {
    let store = place.store().await;
    let mut others = [Other::start(&place, "interleave 60"), Other::start(&place, "interleave 60")];
    // Neither stops before both have written their share, so both write at the same time.
    for other in &mut others {
        assert_eq!(other.hear().as_deref(), Some("share"));
    }
    others.iter_mut().for_each(|other| other.tell("stop"));
    let mut written = 1;
    for other in &mut others {
        written += other.hear().unwrap().parse::<u64>().unwrap();
        assert!(other.child.wait().unwrap().success());
    }
    let report = countersign_store::ledger::verify(&store, None).await.unwrap();
    assert_eq!((report.rows, report.writers, report.first_bad), (written, 1, None));
    // They took turns; otherwise this proves nothing.
    let rows = place.raw_texts("SELECT detail FROM ledger WHERE kind = 'config' ORDER BY sequence").await;
    let turns = rows.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(turns >= 2, "{turns}");
}
