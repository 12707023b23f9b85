//! `countersign bench`: what governing costs. An echo server of ours, called directly and through the gateway, in one run:
//! figures are ratios to direct, because machines differ and are noisy.

mod echo;
mod measure;

use std::path::Path;

use clap::Args;
use countersign_policy::refusal::{Code, Refusal};
use serde_json::{Value, json};

use crate::command_result::{Answer, CommandError, CommandResult, Refused};
use crate::output::{BOLD, Column, OutputSettings, PLAIN, Progress, Table};
use crate::runtime::{Threads, runtime};

pub(crate) use echo::{EchoArgs, run as run_echo};
use measure::{BenchRoute, Figures};

pub(crate) const EXAMPLES: &str = "Examples:
  countersign bench --calls 50 --tools 20
  countersign bench --calls 50 --tools 20 --json";

#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    /// Calls made one after the other; ten times as many are made concurrently
    #[arg(long, default_value_t = 2_000, value_name = "N", value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    calls: u32,

    /// Concurrent calls
    #[arg(long, default_value_t = 32, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_024))]
    in_flight: u32,

    /// Tools the echo server lists
    #[arg(long, default_value_t = 1_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    tools: u32,
}

/// Measures all ways and puts them side by side.
pub(crate) fn run(args: &BenchArgs, voice: OutputSettings) -> CommandResult {
    let folder = ScratchFolder::make()?;
    let program = std::env::current_exe()
        .map_err(|error| CommandError::fault("this program does not know where it is", error))?;
    let runtime = runtime(Threads::Workers(1))?;
    let mut progress = Progress::begin(voice, "ways measured");
    let mut all = Vec::new();
    for (done, way) in BenchRoute::ALL.into_iter().enumerate() {
        let work = measure::measure(way, &program, folder.path(), args.calls, args.in_flight, args.tools);
        let figures = runtime.block_on(work).map_err(|why| {
            let refusal =
                Refusal::new(Code::UpstreamUnavailable, format!("`{}` could not be measured", way.name()));
            CommandError::from(Refused { inside: Some(why), ..refusal.into() })
        })?;
        all.push(figures);
        progress.at(u64::try_from(done + 1).unwrap_or_default());
    }
    let rows: Vec<Value> = all.iter().map(|figures| as_value(figures, &all)).collect();
    let notes =
        json!({"calls": args.calls, "in_flight": args.in_flight, "tools": args.tools, "ledger": "on"});
    Ok(Answer::text(table(&all, voice)).with("ways", rows).with("settings", notes))
}

/// The way a through-way is compared with.
fn direct<'a>(figures: &Figures, all: &'a [Figures]) -> Option<&'a Figures> {
    let way = figures.way.direct()?;
    all.iter().find(|other| other.way == way)
}

fn as_value(figures: &Figures, all: &[Figures]) -> Value {
    let mut value = json!({
        "way": figures.way.name(),
        "p50_us": figures.p50_us,
        "p99_us": figures.p99_us,
        "calls_per_second": figures.calls_per_second,
        "cpu_us_per_call": figures.cpu_us_per_call,
        "rss_mb": figures.rss_mb,
        "first_answer_ms": figures.first_answer_ms,
    });
    if let (Some(direct), Some(members)) = (direct(figures, all), value.as_object_mut()) {
        members.insert("added_p50_us".into(), (figures.p50_us - direct.p50_us).into());
        members.insert("p50_ratio".into(), (figures.p50_us / direct.p50_us).into());
        members.insert("rate_ratio".into(), (figures.calls_per_second / direct.calls_per_second).into());
    }
    value
}

fn table(all: &[Figures], voice: OutputSettings) -> String {
    let mut table = Table::new(&[
        Column::kept("WAY"),
        Column::kept("P50 µs"),
        Column::kept("P99 µs"),
        Column::kept("ADDED µs"),
        Column::kept("× DIRECT"),
        Column::kept("CALLS/s"),
        Column::kept("CPU µs"),
        Column::kept("RSS MB"),
        Column::kept("FIRST ms"),
    ]);
    for figures in all {
        let direct = direct(figures, all);
        let added =
            direct.map_or_else(String::new, |direct| format!("{:.0}", figures.p50_us - direct.p50_us));
        let ratio =
            direct.map_or_else(String::new, |direct| format!("{:.2}", figures.p50_us / direct.p50_us));
        table.row(vec![
            (figures.way.name().to_owned(), BOLD),
            (format!("{:.0}", figures.p50_us), PLAIN),
            (format!("{:.0}", figures.p99_us), PLAIN),
            (added, PLAIN),
            (ratio, PLAIN),
            (format!("{:.0}", figures.calls_per_second), PLAIN),
            (format!("{:.0}", figures.cpu_us_per_call), PLAIN),
            (format!("{:.1}", figures.rss_mb), PLAIN),
            (format!("{:.0}", figures.first_answer_ms), PLAIN),
        ]);
    }
    table.render(voice.width())
}

/// A folder of its own, gone when the measuring ends.
struct ScratchFolder(std::path::PathBuf);

impl ScratchFolder {
    fn make() -> Result<Self, CommandError> {
        let path = std::env::temp_dir().join(format!("countersign-bench-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir(&path)
            .map_err(|error| CommandError::fault("no temporary folder can be made", error))?;
        Ok(Self(path))
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        // What can't be removed is the system's to sweep.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
