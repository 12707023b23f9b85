//! Removes old logs, the oldest first, by age and total size. A run's last lines stay in its row; a log that is being written is not touched.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const KEPT: Duration = Duration::from_secs(30 * 24 * 60 * 60);
const ROOM: u64 = 1 << 30;
/// A log written to so recently may belong to a run of another process.
const FRESH: Duration = Duration::from_secs(60 * 60);

#[derive(Clone, Copy, Debug)]
pub(super) struct LogRetention {
    kept: Duration,
    room: u64,
    fresh: Duration,
}

impl LogRetention {
    pub(super) const USUAL: Self = Self { kept: KEPT, room: ROOM, fresh: FRESH };
}

/// Returns how many were removed.
pub(super) fn sweep(
    folder: &Path,
    bounds: LogRetention,
    now: SystemTime,
    is_live: &dyn Fn(&str) -> bool,
) -> std::io::Result<usize> {
    let mut logs: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(run) = name.strip_suffix(".log").filter(|name| name.starts_with("run_")) else { continue };
        let Ok(meta) = entry.metadata() else { continue };
        if meta.is_file() && !is_live(run) {
            logs.push((meta.modified()?, meta.len(), entry.path()));
        }
    }
    // Newest first: what fits stays.
    logs.sort_by_key(|log| std::cmp::Reverse(log.0));
    let (mut taken, mut removed) = (0_u64, 0);
    for (written, size, path) in logs {
        let age = now.duration_since(written).unwrap_or_default();
        taken = taken.saturating_add(size);
        if age > bounds.fresh
            && (age > bounds.kept || taken > bounds.room)
            && std::fs::remove_file(path).is_ok()
        {
            removed += 1;
        }
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_and_too_much_goes_and_everything_else_stays() {
        let folder = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let write = |name: &str, hours: u64, size: usize| {
            let path = folder.path().join(name);
            std::fs::write(&path, vec![b'x'; size]).unwrap();
            let file = std::fs::File::options().append(true).open(path).unwrap();
            file.set_modified(now - Duration::from_secs(hours * 3600)).unwrap();
        };
        write("run_new.log", 0, 900);
        write("run_second.log", 2, 50);
        write("run_third.log", 3, 200);
        write("run_old.log", 24 * 40, 1);
        write("run_live.log", 24 * 40, 1);
        write("lock-amof", 24 * 40, 1);
        write("other.log", 24 * 40, 1);
        let bounds = LogRetention { kept: KEPT, room: 1_000, fresh: FRESH };
        let live = |run: &str| run == "run_live";
        assert_eq!(sweep(folder.path(), bounds, now, &live).unwrap(), 2);
        let mut left: Vec<String> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, ["lock-amof", "other.log", "run_live.log", "run_new.log", "run_second.log"]);
        assert_eq!(sweep(&folder.path().join("none"), bounds, now, &live).unwrap(), 0);
    }
}
