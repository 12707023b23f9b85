//! The pack's help: its commands, the shape of its answers, completions. Generated from the command tree.

use clap::Args as _;
use clap_complete::Shell;
use countersign_pack::manifest::Target;
use countersign_pack::policy::MUTATING;
use countersign_pack::reply::PackCommandReply;
use serde_json::{Value, json};

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

/// The commands, for people and for programs.
pub(crate) fn help(markdown: bool) -> (String, PackCommandReply) {
    let mut tree = tree();
    let mut found = Vec::new();
    leaves(&tree, "", &mut found);
    let about = |command: &clap::Command| command.get_about().map(ToString::to_string).unwrap_or_default();
    let ids: Vec<&str> = found.iter().map(|(words, _)| words.as_str()).collect();
    let known = |id: &&str| ids.iter().any(|words| id.split(" --").next() == Some(words));
    let mutating: Vec<&str> = MUTATING.into_iter().filter(known).collect();
    let commands: Vec<Value> = found
        .iter()
        .map(|(words, command)| {
            let path: Vec<&str> = words.split(' ').collect();
            let args: Vec<String> =
                command.get_arguments().filter_map(|arg| arg.get_long()).map(|long| format!("--{long}")).collect();
            json!({"id": words, "path": path, "about": about(command), "args": args, "mutating": mutating.contains(&words.as_str())})
        })
        .collect();
    let globals: Vec<String> = tree
        .get_arguments()
        .filter_map(|arg| arg.get_long())
        .map(|long| format!("--{long}"))
        .chain(["--json".to_owned()])
        .collect();
    let targets: Vec<&str> = Target::ALL.iter().map(|target| target.as_str()).collect();
    let table = found.iter().map(|(words, command)| format!("| `{ALIAS} {words}` | {} |\n", about(command)));
    let page = format!("# {ALIAS}\n\n| command | |\n|---|---|\n{}", table.collect::<String>());
    let reply = PackCommandReply::default()
        .with("commands", commands)
        .with("mutating_commands", mutating)
        .with("global_args", globals)
        .with("targets", targets);
    if markdown {
        return (page.clone(), reply.with("markdown", page));
    }
    (super::by_alias(&tree.render_help().ansi().to_string()), reply)
}

/// The shape of what `--json` prints.
pub(crate) fn schema() -> (String, PackCommandReply) {
    let envelope = json!({
        "schema_version": "number (1)", "ok": "boolean", "command": "string", "command_id": "string",
        "command_path": "string[]", "version": "string", "data": "object ({} on failure)", "warnings": "string[]",
        "errors": "array of {code, message, details?: {reason_code, next_actions, …}}",
    });
    let commands = json!({
        "plan": ["profile", "targets", "changes", "summary"],
        "diff": ["profile", "targets", "changes", "summary", "files"],
        "preview": ["profile", "targets", "plan", "diff?"],
        "deploy": ["applied", "profile", "targets", "changes", "summary", "snapshot_id?", "reason?"],
        "status": ["profile", "targets", "drift", "summary", "summary_by_root", "summary_total?", "next_actions", "next_actions_detailed"],
        "doctor": ["machine_id", "roots", "gitignore_fixes?"],
        "rollback": ["rolled_back_to", "event_snapshot_id", "changes"],
        "evolve.propose": ["created", "reason?", "candidates?", "skipped", "summary", "branch?", "scope?", "files?", "committed?"],
        "evolve.restore": ["restored", "summary", "reason"],
        "explain.plan": ["profile", "targets", "changes"],
        "explain.status": ["profile", "targets", "drift"],
        "import": ["applied", "reason?", "repo", "home_root", "project", "plan", "summary", "conflicts", "next_actions"],
        "bootstrap": ["applied", "profile", "targets", "changes", "summary", "snapshot_id?", "reason?"],
        "snapshots": ["snapshots"],
        "policy.lint": ["root", "issues", "summary"],
        "policy.audit": ["root", "lockfile", "modules", "org_policy_pack?", "change_summary?"],
        "policy.lock": ["lockfile_path", "resolved_version", "sha256", "files"],
    });
    let text = format!("{envelope:#}\n{commands:#}\n");
    (text, PackCommandReply::default().with("envelope", envelope).with("commands", commands))
}

/// A script that completes `agentpack` in a shell.
pub(crate) fn completions(shell: Shell) -> (String, PackCommandReply) {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut tree(), ALIAS, &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    (script.clone(), PackCommandReply::default().with("shell", shell.to_string()).with("script", script))
}
