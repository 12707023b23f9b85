//! What is counted, for `/metrics`: calls by what became of them, time spent with upstreams, and how things stand.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use countersign_policy::effect::Effect;
use countersign_policy::record::RowStatus;

use crate::state::GatewayState;
use crate::upstreams::Condition;

/// Upper bounds of the duration buckets, in microseconds.
const BUCKETS: [u64; 10] =
    [100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 1_000_000, 10_000_000, 60_000_000];

const EFFECTS: usize = Effect::ALL.len();
const STATUSES: usize = RowStatus::ALL.len();

/// Counters of one process.
#[derive(Debug, Default)]
pub struct Metrics {
    calls: [[AtomicU64; STATUSES]; EFFECTS + 1],
    buckets: [AtomicU64; BUCKETS.len()],
    spent_us: AtomicU64,
    sent: AtomicU64,
}

impl Metrics {
    /// Counts a call; its effect is unknown where it was refused before that was clear.
    pub fn call(&self, effect: Option<Effect>, status: RowStatus) {
        let row = effect
            .and_then(|effect| Effect::ALL.iter().position(|known| *known == effect))
            .unwrap_or(EFFECTS);
        let column = RowStatus::ALL.iter().position(|known| *known == status).unwrap_or(0);
        if let Some(counter) = self.calls.get(row).and_then(|row| row.get(column)) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts the time an upstream took.
    pub fn took(&self, micros: u64) {
        self.sent.fetch_add(1, Ordering::Relaxed);
        self.spent_us.fetch_add(micros, Ordering::Relaxed);
        for (bound, bucket) in BUCKETS.iter().zip(&self.buckets) {
            if micros <= *bound {
                bucket.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Calls by effect and status, as counted so far.
    pub fn calls(&self) -> impl Iterator<Item = (&'static str, RowStatus, u64)> {
        let names = Effect::ALL.iter().map(|effect| effect.as_str()).chain(["unknown"]);
        names.zip(&self.calls).flat_map(|(effect, row)| {
            let counted = RowStatus::ALL.iter().zip(row);
            counted.map(move |(status, counter)| (effect, *status, counter.load(Ordering::Relaxed)))
        })
    }

    /// The Prometheus page.
    pub fn page(&self, gateway: &GatewayState) -> String {
        let mut page = String::from(
            "# HELP countersign_calls_total Calls by effect and status.\n# TYPE countersign_calls_total counter\n",
        );
        for (effect, status, value) in self.calls() {
            // Writing to a String can't fail.
            let _ =
                writeln!(page, "countersign_calls_total{{effect=\"{effect}\",status=\"{status}\"}} {value}");
        }
        self.durations(&mut page);
        page.push_str("# HELP countersign_upstream_up Whether an upstream answers.\n# TYPE countersign_upstream_up gauge\n");
        for (id, upstream) in gateway.upstreams.load().iter() {
            let up = u8::from(upstream.health().condition == Condition::Up);
            let _ = writeln!(page, "countersign_upstream_up{{upstream=\"{id}\"}} {up}");
        }
        page.push_str("# HELP countersign_ledger_ok Whether the ledger can be written.\n# TYPE countersign_ledger_ok gauge\n");
        let _ = writeln!(page, "countersign_ledger_ok {}", u8::from(!gateway.store.is_failing()));
        page.push_str("# HELP countersign_notifications_dropped_total Notifications of upstreams that were dropped.\n# TYPE countersign_notifications_dropped_total counter\n");
        let _ = writeln!(page, "countersign_notifications_dropped_total {}", gateway.news.dropped());
        page.push_str("# HELP countersign_tools Tools that may be called.\n# TYPE countersign_tools gauge\n");
        let _ = writeln!(page, "countersign_tools {}", gateway.catalog.load().accepted().count());
        page
    }

    fn durations(&self, page: &mut String) {
        page.push_str(
            "# HELP countersign_upstream_seconds Time upstreams took.\n# TYPE countersign_upstream_seconds histogram\n",
        );
        for (bound, bucket) in BUCKETS.iter().zip(&self.buckets) {
            let seconds = std::time::Duration::from_micros(*bound).as_secs_f64();
            let value = bucket.load(Ordering::Relaxed);
            let _ = writeln!(page, "countersign_upstream_seconds_bucket{{le=\"{seconds}\"}} {value}");
        }
        let sent = self.sent.load(Ordering::Relaxed);
        let spent = std::time::Duration::from_micros(self.spent_us.load(Ordering::Relaxed)).as_secs_f64();
        let _ = writeln!(page, "countersign_upstream_seconds_bucket{{le=\"+Inf\"}} {sent}");
        let _ = writeln!(
            page,
            "countersign_upstream_seconds_sum {spent}\ncountersign_upstream_seconds_count {sent}"
        );
    }
}
