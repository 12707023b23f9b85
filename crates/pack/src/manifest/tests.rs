//! Tests of what a manifest may say, and of the errors where it says something else.

use super::*;

const GOOD: &str = r#"# ours
version: 1
profiles:
  default: { include_tags: [base] }
  work: { include_tags: [base], exclude_modules: ["prompt:x"] }
targets:
  codex: { mode: files, scope: both, options: { write_repo_skills: false } }
modules:
  # the first
  - id: instructions:base
    type: instructions
    tags: [base]
    source: { local_path: { path: modules/base } }
  - id: prompt:x
    type: prompt
    tags: [base]
    source:
      git: { url: "https://example.com/x.git", subdir: p }
"#;

fn parse(text: &str) -> PackResult<(Manifest, Vec<String>)> {
    Manifest::parse(text, Path::new("agentpack.yaml"))
}

#[test]
fn a_manifest_is_read_with_its_defaults() {
    let (manifest, warnings) = parse(GOOD).unwrap();
    assert!(warnings.is_empty(), "{warnings:?}");
    let git = manifest.modules[1].source.git.as_ref().unwrap();
    assert_eq!((git.reference.as_str(), git.shallow), ("main", true));
    assert!(!manifest.targets["codex"].switch("write_repo_skills", true));
    let ids = |profile| manifest.selected(profile).unwrap().iter().map(|m| m.id.clone()).collect::<Vec<_>>();
    assert_eq!(ids("default"), ["instructions:base", "prompt:x"]);
    assert_eq!(ids("work"), ["instructions:base"]);
}

#[test]
fn what_is_wrong_is_said_with_its_code() {
    let check = |from: &str, to: &str, code: &str, word: &str| {
        let stop = parse(&GOOD.replace(from, to)).expect_err(word);
        assert_eq!(stop.code(), code, "{stop}");
        assert!(stop.to_string().contains(word), "{stop} lacks {word}");
    };
    check("version: 1", "version: 2", "E_CONFIG_UNSUPPORTED_VERSION", "version 2");
    check("version: 1", "", "E_CONFIG_INVALID", "version");
    check("default:", "standard:", "E_CONFIG_INVALID", "`default` is missing");
    check("codex:", "emacs:", "E_TARGET_UNSUPPORTED", "emacs");
    check("mode: files", "mode: links", "E_CONFIG_INVALID", "`mode` must be `files`");
    check("prompt:x\n", "instructions:base\n", "E_CONFIG_INVALID", "is there twice");
    check("type: prompt", "type: poem", "E_CONFIG_INVALID", "poem");
    check("local_path: { path: modules/base }", "", "E_CONFIG_INVALID", "exactly one");
    check("scope: both", "scope: [", "E_CONFIG_INVALID", "agentpack.yaml");
    check(
        "codex: { mode: files, scope: both",
        "cursor: { mode: files, scope: user",
        "E_CONFIG_INVALID",
        "project files only",
    );
}

#[test]
fn a_mistyped_key_is_pointed_at() {
    let (_, warnings) = parse(&GOOD.replace("include_tags: [base] }", "include_tag: [base] }")).unwrap();
    assert_eq!(warnings, ["agentpack.yaml: nothing reads `include_tag` in profile `default`"]);
}

#[test]
fn adding_and_removing_leave_the_rest_of_the_text_alone() {
    let path = Path::new("agentpack.yaml");
    let module = Module {
        id: "skill:review".into(),
        kind: ModuleType::Skill,
        enabled: true,
        tags: vec!["base".into()],
        targets: vec![],
        source: ModuleSource::parse("git:https://example.com/s.git#ref=v1&subdir=a/b").unwrap(),
    };
    let added = add(GOOD, &module, path).unwrap();
    assert!(added.starts_with(GOOD), "{added}");
    let (manifest, _) = parse(&added).unwrap();
    assert_eq!(manifest.module("skill:review").unwrap().source, module.source);
    assert_eq!(remove(&added, "skill:review", path).unwrap(), GOOD);
    let shorter = remove(GOOD, "instructions:base", path).unwrap();
    assert!(shorter.contains("# the first") && !shorter.contains("instructions:base\n"), "{shorter}");
    let none = remove(&shorter, "prompt:x", path).unwrap();
    assert!(none.contains("modules: []"), "{none}");
    assert!(parse(&add(&none, &module, path).unwrap()).is_ok());
    assert_eq!(add(&added, &module, path).unwrap_err().code(), "E_CONFIG_INVALID");
    assert_eq!(remove(GOOD, "skill:none", path).unwrap_err().code(), "E_NOT_FOUND");
}

#[test]
fn paths_stay_in_the_repo() {
    let place = PackEnvironment {
        home: "/home/u".into(),
        pack_home: "/home/u/.agentpack".into(),
        repo: "/repo".into(),
        codex_home: None,
        cwd: "/work".into(),
        machine: "m".into(),
        variables: Vec::new(),
    };
    for good in ["modules/a", "./modules/a", "/repo/modules/a"] {
        assert_eq!(inside_repo(&place, good, "module").unwrap(), Path::new("/repo/modules/a"), "{good}");
    }
    for bad in ["", ".", "..", "../x", "modules/../../x", "/etc/passwd", "/repo/../etc", "a\nb"] {
        assert_eq!(inside_repo(&place, bad, "module").unwrap_err().code(), "E_IO_INVALID_PATH", "{bad}");
    }
}
