//! A log file of bounded size: beyond its limit it is put aside as `.log.1`, so that there are never more than two. Several gateways
//! may append to one file; one that was put aside by another goes on in the old file until it reaches the limit itself.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;

#[derive(Debug)]
pub(super) struct RotatingFile {
    path: PathBuf,
    limit: u64,
    file: File,
    size: u64,
}

impl RotatingFile {
    pub(super) fn open(path: PathBuf, limit: u64) -> io::Result<Self> {
        let file = append_to(&path)?;
        let size = file.metadata()?.len();
        Ok(Self { path, limit, file, size })
    }

    fn put_aside(&mut self) -> io::Result<()> {
        std::fs::rename(&self.path, self.path.with_extension("log.1"))?;
        self.file = append_to(&self.path)?;
        self.size = 0;
        Ok(())
    }
}

impl Write for RotatingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.size > 0 && self.size.saturating_add(bytes.len() as u64) > self.limit {
            self.put_aside()?;
        }
        let written = self.file.write(bytes)?;
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn append_to(path: &PathBuf) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    // A log names tools and folders of one person.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flooded_log_keeps_two_files_within_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gateway.log");
        let mut log = RotatingFile::open(path.clone(), 100).unwrap();
        for number in 0..50 {
            writeln!(log, "line {number:05}").unwrap();
        }
        let size = |path: &std::path::Path| std::fs::metadata(path).unwrap().len();
        assert!(size(&path) <= 100 && size(&path.with_extension("log.1")) <= 100);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
        assert!(std::fs::read_to_string(&path).unwrap().ends_with("line 00049\n"));
    }

    #[test]
    fn an_opened_log_counts_what_is_in_it_already() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gateway.log");
        std::fs::write(&path, "x".repeat(99)).unwrap();
        let mut log = RotatingFile::open(path.clone(), 100).unwrap();
        log.write_all(b"next\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "next\n");
    }
}
