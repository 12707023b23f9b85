//! The dependency graph as `cargo metadata` tells it. Read once, offline.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;

use crate::files;

/// A package of the graph, ours or not.
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) licence: Option<String>,
    pub(crate) source: Option<String>,
}

/// Why one package needs another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Product,
    Build,
    Test,
}

/// Every package and every edge, for all platforms where their crates are on disk.
pub(crate) struct Graph {
    pub(crate) packages: BTreeMap<String, Package>,
    pub(crate) members: Vec<String>,
    pub(crate) edges: BTreeMap<String, Vec<(String, Kind)>>,
}

impl Graph {
    /// The graph of this workspace.
    pub(crate) fn get() -> &'static Graph {
        static GRAPH: OnceLock<Graph> = OnceLock::new();
        GRAPH.get_or_init(|| read(&metadata()))
    }

    /// The id of one of our own packages.
    pub(crate) fn member(&self, name: &str) -> Option<&str> {
        self.members.iter().find(|id| self.packages[*id].name == name).map(String::as_str)
    }

    /// Everything reached from `start` over the edges that `follow` accepts, `start` included.
    pub(crate) fn reach<'a>(
        &'a self,
        start: impl IntoIterator<Item = &'a str>,
        follow: fn(Kind) -> bool,
    ) -> BTreeSet<&'a str> {
        let mut seen = BTreeSet::new();
        let mut open: Vec<&str> = start.into_iter().collect();
        while let Some(id) = open.pop() {
            if seen.insert(id) {
                let next = self.edges[id].iter().filter(|(_, kind)| follow(*kind));
                open.extend(next.map(|(to, _)| to.as_str()));
            }
        }
        seen
    }

    /// Everything that ends up in, or builds, the product.
    pub(crate) fn product(&self) -> BTreeSet<&str> {
        self.reach(self.members.iter().map(String::as_str), |kind| kind != Kind::Test)
    }
}

/// All platforms if their crates have been fetched (`./test` does that), else only what this machine builds with.
fn metadata() -> Value {
    let host = ["--filter-platform", host_triple()];
    let tries: [&[&str]; 2] = [&[], &host];
    let mut said = String::new();
    for extra in tries {
        let output = Command::new(cargo())
            .args(["metadata", "--format-version", "1", "--offline"])
            .args(extra)
            .current_dir(files::root())
            .output()
            .unwrap();
        if output.status.success() {
            return serde_json::from_slice(&output.stdout).unwrap();
        }
        said = String::from_utf8_lossy(&output.stderr).into_owned();
    }
    panic!("`cargo metadata --offline` failed; `cargo fetch` may help\n{said}");
}

fn cargo() -> std::ffi::OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

fn host_triple() -> &'static str {
    static TRIPLE: OnceLock<String> = OnceLock::new();
    TRIPLE.get_or_init(|| {
        let output = Command::new(cargo()).arg("-vV").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().find_map(|line| line.strip_prefix("host: ")).unwrap().to_owned()
    })
}

fn read(metadata: &Value) -> Graph {
    let word = |value: &Value| value.as_str().unwrap().to_owned();
    let maybe = |value: &Value| value.as_str().map(str::to_owned);
    let list = |value: &Value| value.as_array().unwrap().clone();
    let package = |p: &Value| Package {
        name: word(&p["name"]),
        version: word(&p["version"]),
        licence: maybe(&p["license"]),
        source: maybe(&p["source"]),
    };
    let kinds = |dep: &Value| -> Vec<Kind> {
        let kind = |k: &Value| match k["kind"].as_str() {
            None => Kind::Product,
            Some("build") => Kind::Build,
            Some("dev") => Kind::Test,
            Some(other) => panic!("unknown dependency kind `{other}`"),
        };
        dep["dep_kinds"].as_array().unwrap().iter().map(kind).collect()
    };
    let edges = |node: &Value| -> Vec<(String, Kind)> {
        let deps = list(&node["deps"]);
        deps.iter().flat_map(|dep| kinds(dep).into_iter().map(|kind| (word(&dep["pkg"]), kind))).collect()
    };
    let nodes = list(&metadata["resolve"]["nodes"]);
    let edges: BTreeMap<_, _> = nodes.iter().map(|node| (word(&node["id"]), edges(node))).collect();
    let packages = list(&metadata["packages"]);
    Graph {
        packages: packages
            .iter()
            .map(|p| (word(&p["id"]), package(p)))
            .filter(|(id, _)| edges.contains_key(id))
            .collect(),
        members: list(&metadata["workspace_members"]).iter().map(word).collect(),
        edges,
    }
}
