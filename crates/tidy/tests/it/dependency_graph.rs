//! Reads the dependency graph from cargo, offline: our own packages from `cargo metadata`, all others from `cargo tree`,
//! which omits crates that no enabled feature needs.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::process::Command;

use serde_json::Value;

use crate::files;

/// A package of this workspace with its declared dependencies.
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) wants: Vec<(String, Kind)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Product,
    Build,
    Test,
}

/// A crate that is built for at least one target.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Crate {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) licence: String,
}

pub(crate) fn members() -> Vec<Member> {
    let text =
        cargo(&["metadata", "--format-version", "1", "--no-deps"]).unwrap_or_else(|error| panic!("{error}"));
    let metadata: Value = serde_json::from_str(&text).unwrap();
    let word = |value: &Value| value.as_str().unwrap().to_owned();
    let kind = |value: &Value| match value.as_str() {
        None => Kind::Product,
        Some("build") => Kind::Build,
        Some("dev") => Kind::Test,
        Some(other) => panic!("unknown dependency kind `{other}`"),
    };
    let wants = |package: &Value| -> Vec<(String, Kind)> {
        let list = package["dependencies"].as_array().unwrap();
        list.iter().map(|want| (word(&want["name"]), kind(&want["kind"]))).collect()
    };
    let packages = metadata["packages"].as_array().unwrap();
    packages.iter().map(|package| Member { name: word(&package["name"]), wants: wants(package) }).collect()
}

/// Every crate reachable from `package`, or from the workspace, over the given kinds of edges.
/// Covers all platforms if their crates have been fetched (`./test` does that), else this machine's.
pub(crate) fn reach(package: Option<&str>, edges: &str) -> BTreeSet<Crate> {
    let start = package.map_or(vec!["--workspace"], |name| vec!["--package", name]);
    let tree = ["tree", "--edges", edges, "--prefix", "none", "--format", "{p}|{l}"];
    let with = |target: &[&str]| cargo(&[&tree[..], &start, target].concat());
    let text = with(&["--target", "all"])
        .or_else(|_| with(&[]))
        .unwrap_or_else(|error| panic!("cargo needs the network for this; run `cargo fetch` first\n{error}"));
    text.lines().filter_map(|line| line.split_once('|')).map(read).collect()
}

/// Parses `name v1.2.3 (remarks)|licence`; ` (*)` marks a crate that was printed before.
fn read((package, licence): (&str, &str)) -> Crate {
    let mut words = package.split_whitespace();
    let name = words.next().unwrap().to_owned();
    let version = words.next().unwrap().trim_start_matches('v').to_owned();
    Crate { name, version, licence: licence.trim_end_matches("(*)").trim().to_owned() }
}

/// Whether the crates of all platforms are there, so that `reach` covers them.
pub(crate) fn covers_all_platforms() -> bool {
    cargo(&["tree", "--workspace", "--target", "all", "--prefix", "none"]).is_ok()
}

fn cargo(arguments: &[&str]) -> Result<String, String> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let output =
        Command::new(program).args(arguments).arg("--offline").current_dir(files::root()).output().unwrap();
    if output.status.success() {
        Ok(String::from_utf8(output.stdout).unwrap())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}
