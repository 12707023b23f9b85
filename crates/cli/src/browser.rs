//! Opening an address in the person's browser: the platform's own opener, without a shell, and never in a pipe's way.

use std::process::{Command, Stdio};

/// Opens it; false where there is nobody's browser to open it in.
pub(crate) fn open(link: &str) -> bool {
    let (program, before): (&str, &[&str]) = if cfg!(target_os = "macos") {
        ("open", &[])
    } else if cfg!(windows) {
        ("rundll32", &["url.dll,FileProtocolHandler"])
    } else {
        ("xdg-open", &[])
    };
    let started = Command::new(program)
        .args(before)
        .arg(link)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    started.is_ok_and(|status| status.success())
}
