//! The pack's help: its commands, the shape of its answers, completions. Generated from the command tree.

use clap::Args as _;
use clap_complete::Shell;
use countersign_pack::explain::ExplainKind;
use countersign_pack::manifest::Target;
use countersign_pack::policy::MUTATING;
use countersign_pack::reply::PackCommandReply;
use serde_json::{Map, Value, json};

use crate::{ALIAS, PackArgs};

fn tree() -> clap::Command {
    PackArgs::augment_args(clap::Command::new(ALIAS)).bin_name(ALIAS)
}

/// Every command that does something, by its words.
fn leaves<'a>(command: &'a clap::Command, words: &str, found: &mut Vec<(String, &'a clap::Command)>) {
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        let words =
            if words.is_empty() { sub.get_name().to_owned() } else { format!("{words} {}", sub.get_name()) };
        if sub.has_subcommands() {
            leaves(sub, &words, found);
        } else {
            found.push((words, sub));
        }
    }
}

/// One argument as `help --json` lists it.
fn argument(arg: &clap::Arg) -> Value {
    let flag = matches!(arg.get_action(), clap::ArgAction::SetTrue);
    let mut entry = Map::new();
    entry.insert("id".into(), argument_id(arg).into());
    entry.insert("kind".into(), if flag { "flag" } else { "option" }.into());
    entry.insert("required".into(), arg.is_required_set().into());
    if let Some(long) = arg.get_long() {
        entry.insert("long".into(), long.into());
    }
    Value::Object(entry)
}

/// The name of an argument: a positional one is known by what it holds.
fn argument_id(arg: &clap::Arg) -> String {
    match (arg.get_id().as_str(), arg.get_long()) {
        ("id", None) => "module_id".to_owned(),
        ("kind", None) => "module_type".to_owned(),
        (id, _) => id.to_owned(),
    }
}

/// Arguments by name.
fn arguments<'a>(args: impl Iterator<Item = &'a clap::Arg>) -> Vec<Value> {
    let mut args: Vec<&clap::Arg> = args.filter(|arg| arg.get_id() != "help").collect();
    args.sort_by_key(|arg| argument_id(arg));
    args.into_iter().map(argument).collect()
}

/// Commands whose output is no envelope.
const WITHOUT_JSON: [&str; 2] = ["completions", "mcp serve"];

fn command_entry(words: &str, command: &clap::Command, id: &str) -> Value {
    let path: Vec<&str> = words.split(' ').collect();
    json!({
        "id": id, "path": path, "about": command.get_about().map(ToString::to_string).unwrap_or_default(),
        "args": arguments(command.get_arguments()), "mutating": MUTATING.contains(&id),
        "supports_json": !WITHOUT_JSON.contains(&words),
    })
}

/// The commands, for people and for programs.
pub(crate) fn help(markdown: bool) -> (String, PackCommandReply) {
    let mut tree = tree();
    let mut found = Vec::new();
    leaves(&tree, "", &mut found);
    found.sort_by(|a, b| a.0.cmp(&b.0));
    let mut commands = Vec::new();
    for (words, command) in &found {
        if words == "explain" {
            let kinds = ExplainKind::ALL.iter().map(|kind| format!("explain {kind}"));
            commands.extend(kinds.map(|words| command_entry(&words, command, &words)));
            continue;
        }
        commands.push(command_entry(words, command, words));
        if words == "doctor" {
            // With `--fix` it is another command: it writes.
            commands.push(command_entry(words, command, "doctor --fix"));
        }
    }
    let json = clap::Arg::new("json").long("json").action(clap::ArgAction::SetTrue);
    let globals = arguments(tree.get_arguments().chain(std::iter::once(&json)));
    let targets: Vec<&str> = Target::COMPILED.iter().map(|target| target.as_str()).collect();
    let about = |command: &clap::Command| command.get_about().map(ToString::to_string).unwrap_or_default();
    let table = found.iter().map(|(words, command)| format!("| `{ALIAS} {words}` | {} |\n", about(command)));
    let page = format!("# {ALIAS}\n\n| command | |\n|---|---|\n{}", table.collect::<String>());
    let notes = [
        "usual order: doctor, update, preview, deploy --apply",
        "after edits: status, evolve propose, review, deploy --apply",
        "with --json, commands that change something need --yes",
    ];
    let reply = PackCommandReply::default()
        .with("commands", commands)
        .with("mutating_commands", MUTATING.to_vec())
        .with("global_args", globals)
        .with("notes", notes.to_vec())
        .with("targets", targets);
    if markdown {
        return (page.clone(), reply.with("markdown", page));
    }
    (super::by_alias(&tree.render_help().ansi().to_string()), reply)
}

/// The fields of `data`, command by command; a question mark means that it may be absent.
const DATA_FIELDS: [(&str, &str); 17] = [
    ("plan", "profile targets changes summary"),
    ("diff", "profile targets changes summary"),
    ("preview", "profile targets plan diff?"),
    ("deploy", "applied profile targets changes summary snapshot_id? reason?"),
    (
        "status",
        "profile targets drift summary summary_by_root summary_total? next_actions? next_actions_detailed?",
    ),
    ("doctor", "machine_id roots gitignore_fixes next_actions"),
    ("rollback", "rolled_back_to event_snapshot_id changes"),
    ("evolve.propose", "created reason? candidates? skipped summary branch? scope? files? committed?"),
    ("evolve.restore", "restored summary reason"),
    ("explain.plan", "profile targets changes"),
    ("explain.status", "profile targets drift"),
    ("import", "applied reason? repo repo_posix home_root home_root_posix project plan summary next_actions"),
    ("bootstrap", "applied profile targets changes summary snapshot_id? reason?"),
    ("help", "global_args commands mutating_commands notes targets"),
    ("snapshots", "snapshots"),
    ("policy.lint", "root issues summary"),
    ("policy.audit", "root lockfile modules org_policy_pack? change_summary?"),
];

/// The shape of what `--json` prints.
pub(crate) fn schema() -> (String, PackCommandReply) {
    let envelope = json!({
        "schema_version": 1,
        "fields": {
            "schema_version": "number", "ok": "boolean", "command": "string", "command_id": "string",
            "command_path": "array[string]", "version": "string", "data": "object", "warnings": "array[string]",
            "errors": "array[{code,message,details?}]",
        },
        "error_item": {"code": "string", "message": "string", "details": "object|null"},
    });
    let mut commands = Map::new();
    for (command, fields) in DATA_FIELDS {
        let fields: Vec<&str> = fields.split(' ').collect();
        commands.insert(command.into(), json!({"data_fields": fields}));
    }
    let paths = json!({
        "native": "paths have the separators of the platform",
        "posix": "a field that ends in _posix is the same path with forward slashes",
    });
    let reply = PackCommandReply::default()
        .with("envelope", envelope)
        .with("commands", commands)
        .with("path_conventions", paths);
    (format!("{:#}\n", Value::Object(reply.data.clone())), reply)
}

/// A script that completes `agentpack` in a shell.
pub(crate) fn completions(shell: Shell) -> (String, PackCommandReply) {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut tree(), ALIAS, &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    (script.clone(), PackCommandReply::default().with("shell", shell.to_string()).with("script", script))
}
