//! Checks third-party crates against `deny.toml`, which `cargo deny` reads too: licences, forbidden crates, duplicate
//! versions, sources. Does not check advisories: their database is not on every machine.

use std::collections::{BTreeMap, BTreeSet};

use toml::{Table, Value};

use crate::{dependency_graph, files, licence_expression, none};

fn deny(section: &str) -> Table {
    let whole: Table = files::text(&files::root().join("deny.toml")).parse().unwrap();
    whole[section].as_table().unwrap().clone()
}

fn strings(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|item| item.as_str().unwrap().to_owned()).collect()
}

/// Reads a list of `{ crate = "name" | "name:2" | "name:0.52", reason = "…" }`. An entry without a reason is a finding.
fn specs(list: &Value, findings: &mut Vec<String>) -> Vec<(String, Option<String>)> {
    let entries = list.as_array().unwrap();
    let spec = |entry: &Value| {
        let spec = entry["crate"].as_str().unwrap().to_owned();
        if entry.get("reason").and_then(Value::as_str).is_none_or(str::is_empty) {
            findings.push(format!("deny.toml: `{spec}` has no reason"));
        }
        match spec.split_once(':') {
            Some((name, version)) => (name.to_owned(), Some(version.to_owned())),
            None => (spec, None),
        }
    };
    entries.iter().map(spec).collect()
}

/// Whether a version is in the series `2` or `0.52`.
fn within(version: &str, series: Option<&str>) -> bool {
    series.is_none_or(|series| version.strip_prefix(series).is_some_and(|rest| rest.starts_with('.')))
}

#[test]
fn licences_are_on_the_list() {
    let section = deny("licenses");
    let allowed = strings(&section["allow"]);
    let exceptions: Vec<(String, Vec<String>)> = section["exceptions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| (e["crate"].as_str().unwrap().to_owned(), strings(&e["allow"])))
        .collect();
    let mut findings = Vec::new();
    for package in dependency_graph::reach(None, "normal,build,dev") {
        let also = exceptions.iter().filter(|(name, _)| *name == package.name);
        let also: Vec<&String> = also.flat_map(|(_, licences)| licences).collect();
        let accept = |name: &str| allowed.iter().chain(also.iter().copied()).any(|a| a == name);
        match licence_expression::satisfied(&package.licence, &accept) {
            Ok(true) => {}
            Ok(false) => findings.push(format!("{} {}: {}", package.name, package.version, package.licence)),
            Err(why) => findings.push(format!("{} {}: {why}", package.name, package.version)),
        }
    }
    none("every dependency's licence is allowed by deny.toml", &findings);
}

#[test]
fn forbidden_crates_are_absent() {
    let mut findings = Vec::new();
    let forbidden = specs(&deny("bans")["deny"], &mut findings);
    for package in dependency_graph::reach(None, "normal,build,dev") {
        if forbidden.iter().any(|(name, _)| *name == package.name) {
            findings.push(format!("{} {} is forbidden by deny.toml", package.name, package.version));
        }
    }
    none("forbidden crates are absent, in tests as well", &findings);
}

#[test]
fn duplicate_versions_are_listed() {
    let product = dependency_graph::reach(None, "normal,build");
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in &product {
        versions.entry(&package.name).or_default().insert(&package.version);
    }
    let mut findings = Vec::new();
    let known = specs(&deny("bans")["skip"], &mut findings);
    let is_known =
        |name: &str, version: &str| known.iter().any(|(n, v)| n == name && within(version, v.as_deref()));
    for (name, all) in versions.iter().filter(|(_, all)| all.len() > 1) {
        // As in cargo-deny, every version but one must be listed.
        if all.iter().filter(|version| !is_known(name, version)).count() > 1 {
            findings.push(format!("{name}: {all:?}"));
        }
    }
    // Most second versions are those of other platforms.
    let known = if dependency_graph::covers_all_platforms() { known } else { Vec::new() };
    for (name, version) in &known {
        let there = versions.get(name.as_str()).filter(|all| all.len() > 1);
        if !there.is_some_and(|all| all.iter().any(|v| within(v, version.as_deref()))) {
            findings.push(format!("deny.toml skips `{name}`, which has only one version now"));
        }
    }
    none("a second version of a crate has a reason in deny.toml", &findings);
}

#[test]
fn crates_come_from_the_public_registry() {
    let lock: Table = files::text(&files::root().join("Cargo.lock")).parse().unwrap();
    let ours: Vec<String> = dependency_graph::members().into_iter().map(|member| member.name).collect();
    let mut findings = Vec::new();
    for package in lock["package"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        let fine = match package.get("source").and_then(Value::as_str) {
            Some(source) => source.starts_with("registry+") && source.ends_with("/crates.io-index"),
            None => ours.iter().any(|our| our == name),
        };
        if !fine {
            findings.push(format!("{name}: {:?}", package.get("source")));
        }
    }
    none("crates come from crates.io or from this repository", &findings);
}
