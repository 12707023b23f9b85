//! Checks that every host's tests share.

use std::fs;
use std::path::{Path, PathBuf};

use countersign_policy::ids::Secret;
use serde_json::{Value, json};

use crate::host::{Host, HostSpec};
use crate::host_files::{HostFile, HostFileScope};
use crate::json_text;
use crate::permission_rules::{RuleFile, RuleFileEdit, RuleLocation, WhoAsks, all_tools};
use crate::platform::{HostEnvironment, Os};
use crate::risky_settings::{SettingRisk, risky_settings};
use crate::server_entry::{GatewayEntry, ServerEntryKind};

pub(crate) fn environment(os: Os, variables: &[(&str, &str)]) -> HostEnvironment {
    // Variables of other systems are there to be ignored.
    let home: &[(&str, &str)] = match os {
        Os::Linux => &[("HOME", "/home/ada"), ("XDG_CONFIG_HOME", "not/absolute"), ("APPDATA", "ignored")],
        Os::Mac => &[("HOME", "/Users/ada"), ("XDG_CONFIG_HOME", "/ignored")],
        Os::Windows => &[("USERPROFILE", r"C:\Users\ada"), ("HOME", "/ignored")],
    };
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), PathBuf::from(value));
    let all: Vec<(String, PathBuf)> = variables.iter().chain(home).map(owned).collect();
    let look = move |name: &str| all.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
    HostEnvironment::new(os, look, PathBuf::from("PROJECT")).unwrap()
}

/// A path with `~` for the home folder, whichever the separators.
pub(crate) fn shown(environment: &HostEnvironment, path: &Path) -> String {
    let home = environment.home.display().to_string();
    path.display().to_string().replacen(&home, "~", 1).replace('\\', "/")
}

#[track_caller]
pub(crate) fn check_files_on(spec: &'static HostSpec, os: Os, variables: &[(&str, &str)], expect: &[&str]) {
    let environment = environment(os, variables);
    let files = crate::host_files(&environment).into_iter().filter(|file| file.host == Host(spec));
    let found: Vec<String> = files.map(|file| shown(&environment, &file.path)).collect();
    assert_eq!(found, expect, "{os:?}");
}

/// Checks the paths on Linux, macOS and Windows.
#[track_caller]
pub(crate) fn check_files(spec: &'static HostSpec, linux: &[&str], mac: &[&str], windows: &[&str]) {
    for (os, expect) in [(Os::Linux, linux), (Os::Mac, mac), (Os::Windows, windows)] {
        check_files_on(spec, os, &[], expect);
    }
}

/// Checks paths that are the same on every system.
#[track_caller]
pub(crate) fn check_files_everywhere(spec: &'static HostSpec, expect: &[&str]) {
    check_files(spec, expect, expect, expect);
}

pub(crate) fn user_file(host: &str) -> HostFile {
    HostFile::new(Host::named(host).unwrap(), HostFileScope::User, PathBuf::new())
}

pub(crate) fn command_entry() -> GatewayEntry {
    GatewayEntry::Command {
        command: "countersign".to_owned(),
        args: vec!["serve".to_owned()],
        env: Vec::new(),
    }
}

pub(crate) fn url_entry(url: &str) -> GatewayEntry {
    GatewayEntry::Address { url: url.to_owned(), secret: Secret::new("csg_x") }
}

/// Checks what a JSON host gets as our entry, for a program and for a URL, and that it is recognised and removed again. `URL` and `AUTH`
/// stand for the URL and the header.
#[track_caller]
pub(crate) fn check_entries(spec: &'static HostSpec, key: &str, command: &str, url: &str) {
    let file = HostFile::new(Host(spec), HostFileScope::User, PathBuf::new());
    let (gate, auth) = ("https://gate.example.com/mcp", r#""headers":{"Authorization":"Bearer csg_x"}"#);
    let parsed = |text: &str| -> Value { serde_json::from_str(text).unwrap() };
    let made = file.rewrite("", &[], &command_entry()).unwrap();
    assert!(made.ends_with("}\n"), "{made:?}");
    assert_eq!(parsed(&made)[key]["countersign"], parsed(command));
    // What was added since to a file we created is kept.
    let grown = made.replacen('{', "{ \"theme\": 1,", 1);
    let back = parsed(&file.restore(&grown, "").unwrap().0);
    assert_eq!((&back["theme"], back[key].get("countersign")), (&json!(1), None));

    let expect = parsed(&url.replace("URL", &format!("{gate:?}")).replace("AUTH", auth));
    for text in ["", made.as_str()] {
        let with_url = file.rewrite(text, &[], &url_entry(gate)).unwrap();
        assert_eq!(parsed(&with_url)[key]["countersign"], expect);
        assert_eq!(file.read(&with_url, Path::new("")).unwrap()[0].kind, ServerEntryKind::Countersign);
        assert_eq!(file.gateway_url(&with_url).as_deref(), Some(gate));
        assert_eq!(file.rewrite(&with_url, &[], &url_entry(gate)).unwrap(), with_url, "the same URL stays");
        let moved = file.rewrite(&with_url, &[], &url_entry("https://other.example.com/mcp")).unwrap();
        assert_eq!(file.gateway_url(&moved).as_deref(), Some("https://other.example.com/mcp"));
    }
}

pub(crate) fn rule_file(host: &str) -> RuleFile {
    RuleFile { host: Host::named(host).unwrap(), scope: HostFileScope::User, path: PathBuf::new() }
}

#[track_caller]
pub(crate) fn added_rules(host: &str, text: Option<&str>, who: WhoAsks) -> String {
    match rule_file(host).add(text, who).unwrap() {
        RuleFileEdit::Text(text) => text,
        RuleFileEdit::Not(why) => panic!("{why}"),
    }
}

pub(crate) fn json_value(text: &str) -> Value {
    json_text::parse(text).unwrap().to_serde_value().unwrap()
}

/// Checks what holds for the rules of every host: a second time changes nothing, marks and line ends stay, the host asks nothing where the
/// gateway asks, and rules in settings are removed again.
#[track_caller]
pub(crate) fn check_rules(spec: &'static HostSpec, text: &str) {
    let host = spec.name;
    let rules = spec.permissions.as_ref().unwrap();
    let after = added_rules(host, Some(text), WhoAsks::Host);
    assert_ne!(after, text);
    assert_eq!(added_rules(host, Some(&after), WhoAsks::Host), after);
    assert_eq!(after.matches('\u{feff}').count(), text.matches('\u{feff}').count(), "{after:?}");
    if text.contains('\n') {
        assert_eq!(after.matches('\n').count(), after.matches("\r\n").count(), "{after:?}");
    }
    let quiet = added_rules(host, Some(text), WhoAsks::Gateway);
    for tool in all_tools() {
        assert!(quiet.contains(tool), "{tool}: {quiet}");
    }
    for word in ["\"ask\": [", "prompt", "ask_user", "confirm\"", "*"] {
        assert!(!quiet.contains(word), "{word}: {quiet}");
    }
    if !matches!(rules.file, RuleLocation::Settings { .. }) && host != "opencode" {
        return;
    }
    let bare = |text: &str| text.trim_start_matches('\u{feff}').to_owned();
    let grown = bare(&after).replacen('{', "{ \"more\": [1],", 1);
    let back = json_value(&(rules.remove)(&grown, &bare(text)).unwrap());
    let mut expect = json_value(&bare(text));
    expect["more"] = json!([1]);
    assert_eq!(back, expect);
    // Nor is anything left where there was no file.
    if let RuleFileEdit::Text(made) = rule_file(host).add(Some(""), WhoAsks::Host).unwrap() {
        assert_eq!(json_value(&(rules.remove)(&made, "").unwrap()), json!({}));
    }
}

/// Checks what is reported on a machine with these files; `~` is the home folder, `/` the root of the machine, and other paths are below
/// the folder that has `project`.
#[track_caller]
pub(crate) fn check_settings(files: &[(&str, &str)], expect: &[(SettingRisk, &str)]) {
    let room = tempfile::tempdir().unwrap();
    let (home, project) = (room.path().join("home"), room.path().join("project"));
    let look = {
        let home = home.clone();
        move |name: &str| (name == "HOME").then(|| home.clone())
    };
    let mut environment = HostEnvironment::new(Os::Linux, look, project.clone()).unwrap();
    environment.root = room.path().to_owned();
    for (path, text) in files {
        let path = match path.strip_prefix("~/") {
            Some(rest) => home.join(rest),
            None => room.path().join(path.trim_start_matches('/')),
        };
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text.replace("PROJECT", &project.display().to_string())).unwrap();
    }
    let found = risky_settings(&environment);
    let shown = |text: &str| text.replace(&project.display().to_string(), "PROJECT");
    let reported: Vec<(SettingRisk, String)> =
        found.iter().map(|one| (one.risk, shown(&one.setting))).collect();
    let expect: Vec<(SettingRisk, String)> =
        expect.iter().map(|(risk, text)| (*risk, (*text).to_owned())).collect();
    assert_eq!(reported, expect);
    assert!(found.iter().all(|one| !one.fix.is_empty() && one.path.is_file()), "{found:?}");
}
