//! Text output of the pack: a plan as in Terraform, diffs in colours, drift as a list. Escapes names that could move the cursor.

use countersign_pack::diff::{DiffBody, FileDiff};
use countersign_pack::error::shown;
use countersign_pack::plan::{FileChange, FileOp, UpdateKind};
use countersign_pack::reply::PackCommandReply;
use countersign_pack::rollback::RollbackPlan;
use countersign_pack::status::{DriftKind, DriftedFile};
use countersign_pack::survey::DeploymentSurvey;
use countersign_policy::refusal::Refusal;
use countersign_terminal::output::{BAD, BOLD, DIM, GOOD, NAME, WARN, paint, plural, visible};
use serde_json::Value;

fn sign(op: FileOp) -> String {
    match op {
        FileOp::Create => paint(GOOD, "+"),
        FileOp::Update => paint(WARN, "~"),
        FileOp::Delete => paint(BAD, "-"),
    }
}

/// The files that would change and how many there are.
pub(crate) fn plan(survey: &DeploymentSurvey) -> String {
    let mut text = String::new();
    let mut target = "";
    for change in &survey.plan.changes {
        if change.target.as_str() != target {
            target = change.target.as_str();
            text.push_str(&format!("{}\n", paint(BOLD, target)));
        }
        text.push_str(&line(change));
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text + &counts(survey)
}

fn line(change: &FileChange) -> String {
    let note = match change.update_kind {
        Some(UpdateKind::Adopt) => paint(WARN, "  (not managed: needs --adopt)"),
        Some(UpdateKind::Managed) | None => String::new(),
    };
    format!("  {} {}{note}\n", sign(change.op), shown(&change.path))
}

/// `Plan: 3 to create, 1 to update, 0 to delete.`
pub(crate) fn counts(survey: &DeploymentSurvey) -> String {
    let plan = &survey.plan;
    if plan.changes.is_empty() {
        return "No changes. What is deployed is what should be.\n".to_owned();
    }
    let [create, update, delete] = [FileOp::Create, FileOp::Update, FileOp::Delete].map(|op| plan.count(op));
    format!("{} {create} to create, {update} to update, {delete} to delete.\n", paint(BOLD, "Plan:"))
}

/// Every diff, in colours.
pub(crate) fn diffs(diffs: &[FileDiff<'_>]) -> String {
    let mut text = String::new();
    for diff in diffs {
        text.push_str(&format!("{} {}\n", sign(diff.change.op), paint(BOLD, shown(&diff.change.path))));
        match &diff.text {
            DiffBody::Unified(lines) => lines.lines().for_each(|line| {
                let line = visible(line);
                let painted = match line.chars().next() {
                    Some('+') if !line.starts_with("+++") => paint(GOOD, line),
                    Some('-') if !line.starts_with("---") => paint(BAD, line),
                    Some('@') => paint(NAME, line),
                    Some('+' | '-') => paint(DIM, line),
                    Some(_) | None => line.into_owned(),
                };
                text.push_str(&format!("    {painted}\n"));
            }),
            DiffBody::TooLong => {
                text.push_str(&format!("    {}\n", paint(DIM, "too long to compare line by line")))
            }
            DiffBody::Binary => text.push_str(&format!("    {}\n", paint(DIM, "not text"))),
        }
        text.push('\n');
    }
    text
}

/// What differs from what was deployed.
pub(crate) fn drift(drift: &[DriftedFile], only: &[DriftKind], outdated: bool) -> String {
    let mut text = String::new();
    for item in drift.iter().filter(|item| only.is_empty() || only.contains(&item.kind)) {
        let (sign, word) = match item.kind {
            DriftKind::Modified => (paint(WARN, "~"), "modified"),
            DriftKind::Missing => (paint(BAD, "-"), "missing"),
            DriftKind::Extra => (paint(NAME, "+"), "extra"),
        };
        text.push_str(&format!("{sign} {word:<8}  {:<11}  {}\n", item.target.as_str(), shown(&item.path)));
    }
    let count = |kind| drift.iter().filter(|item| item.kind == kind).count();
    let (modified, missing, extra) =
        (count(DriftKind::Modified), count(DriftKind::Missing), count(DriftKind::Extra));
    if drift.is_empty() {
        text.push_str("No drift.\n");
    } else {
        text.push_str(&format!(
            "\n{} {modified} modified, {missing} missing, {extra} extra.\n",
            paint(BOLD, "Drift:")
        ));
    }
    if outdated && modified == 0 && missing == 0 {
        text.push_str("What should be deployed has changed: countersign pack preview --diff\n");
    }
    text
}

/// What going back would do.
pub(crate) fn restored(back: &RollbackPlan) -> String {
    let mut text = String::new();
    for change in back.changes() {
        let op = match (change.before, change.after) {
            (None, _) => FileOp::Create,
            (Some(_), Some(_)) => FileOp::Update,
            (Some(_), None) => FileOp::Delete,
        };
        text.push_str(&format!("  {} {}\n", sign(op), shown(&change.path)));
    }
    text + &format!(
        "{} {} to go back to {}.\n",
        paint(BOLD, "Rollback:"),
        plural(back.changes().len(), "file"),
        visible(back.to())
    )
}

fn texts<'a>(
    reply: &'a PackCommandReply,
    list: &str,
    field: &'a str,
) -> impl Iterator<Item = (&'a Value, String)> {
    let items = reply.data.get(list).and_then(Value::as_array).into_iter().flatten();
    items.map(move |item| {
        (item, visible(item.get(field).and_then(Value::as_str).unwrap_or_default()).into_owned())
    })
}

/// Where changes or drift come from.
pub(crate) fn explained(reply: &PackCommandReply) -> String {
    let mut text = String::new();
    for list in ["changes", "drift"] {
        for (item, path) in texts(reply, list, "path") {
            text.push_str(&format!("{path}\n"));
            for module in item.get("modules").and_then(Value::as_array).into_iter().flatten() {
                let field = |name: &str| {
                    visible(module.get(name).and_then(Value::as_str).unwrap_or_default()).into_owned()
                };
                let said = match module.as_str() {
                    Some(id) => visible(id).into_owned(),
                    None => {
                        format!("{} ({} of {})", field("module_id"), field("module_path"), field("layer"))
                    }
                };
                text.push_str(&format!("    {said}\n"));
            }
        }
    }
    if text.is_empty() { "Nothing to explain.\n".to_owned() } else { text }
}

/// The folders things are deployed to.
pub(crate) fn doctor(reply: &PackCommandReply) -> String {
    let machine = reply.data.get("machine_id").and_then(Value::as_str).unwrap_or_default();
    let mut text = format!("machine  {}\n", visible(machine));
    for (item, root) in texts(reply, "roots", "root") {
        let target = item.get("target").and_then(Value::as_str).unwrap_or_default();
        let issue = item.get("issues").and_then(|issues| issues.get(0)).and_then(Value::as_str);
        let state = match issue {
            None => paint(GOOD, "ok"),
            Some("missing") => paint(DIM, "not there yet"),
            Some(issue) => paint(BAD, issue),
        };
        text.push_str(&format!("{target:<11}  {root}  {state}\n"));
    }
    text
}

/// What was, or would be, proposed.
pub(crate) fn proposal(reply: &PackCommandReply) -> String {
    let mut text = String::new();
    for (item, path) in texts(reply, "candidates", "path") {
        let module = item.get("module_id").and_then(Value::as_str).unwrap_or_default();
        text.push_str(&format!("{} {path}  → {}\n", paint(GOOD, "+"), visible(module)));
    }
    for (item, path) in texts(reply, "skipped", "path") {
        let why = item.get("reason_message").and_then(Value::as_str).unwrap_or_default();
        text.push_str(&format!("{} {path}  {}\n", paint(DIM, "·"), paint(DIM, why)));
    }
    let field = |name: &str| reply.data.get(name).and_then(Value::as_str);
    match (field("branch"), field("reason")) {
        (Some(branch), _) => {
            text.push_str(&format!("Committed on branch {}; merge it to keep the edits.\n", visible(branch)))
        }
        (None, Some("dry_run")) => text.push_str("Dry run: nothing was committed.\n"),
        (None, _) => text.push_str("Nothing to propose.\n"),
    }
    text
}

/// What was, or would be, created again.
pub(crate) fn restoring(reply: &PackCommandReply) -> String {
    let mut text = String::new();
    for list in ["restored", "missing"] {
        texts(reply, list, "path")
            .for_each(|(_, path)| text.push_str(&format!("{} {path}\n", paint(GOOD, "+"))));
    }
    match reply.data.get("reason").and_then(Value::as_str) {
        Some("no_missing") => text.push_str("Nothing is missing.\n"),
        Some("dry_run") => text.push_str("Dry run: nothing was written.\n"),
        Some(_) | None => text.push_str("Done.\n"),
    }
    text
}

/// An overlay's folder, alone on its line so that a shell can use it.
pub(crate) fn overlay(reply: &PackCommandReply) -> String {
    let folder = reply.data.get("overlay_dir").and_then(Value::as_str).unwrap_or_default();
    format!("{}\n", visible(folder))
}

/// How often modules failed.
pub(crate) fn score(reply: &PackCommandReply) -> String {
    let mut text = String::new();
    for (item, id) in texts(reply, "modules", "module_id") {
        let number = |name: &str| item.get(name).and_then(Value::as_u64).unwrap_or_default();
        text.push_str(&format!("{id}  {} of {} failed\n", number("failures"), number("total")));
    }
    if text.is_empty() { "No events yet.\n".to_owned() } else { text }
}

/// What was, or would be, imported.
pub(crate) fn imported(reply: &PackCommandReply) -> String {
    let mut text = String::new();
    let mut width = 0;
    for (_, id) in texts(reply, "plan", "module_id") {
        width = width.max(id.chars().count());
    }
    for (item, id) in texts(reply, "plan", "module_id") {
        let field =
            |name: &str| visible(item.get(name).and_then(Value::as_str).unwrap_or_default()).into_owned();
        let taken = if item.get("dest_exists").is_some() {
            paint(BAD, "  (something is there)")
        } else {
            String::new()
        };
        text.push_str(&match field("op").as_str() {
            "create" => format!("{} {id:<width$}  {}{taken}\n", paint(GOOD, "+"), field("source_path")),
            "skip_existing_module" => {
                format!("{} {id:<width$}  {}\n", paint(DIM, "·"), paint(DIM, "is a module already"))
            }
            _ => format!("{} {id:<width$}  {}\n", paint(DIM, "·"), paint(DIM, field("skip_reason"))),
        });
    }
    let count = |name: &str| {
        reply.data.get("summary").and_then(|all| all.get(name)).and_then(Value::as_u64).unwrap_or_default()
    };
    let skipped = count("skipped_existing_module") + count("skipped_invalid");
    let said = match reply.data.get("applied").and_then(Value::as_bool) {
        Some(true) => "Imported:",
        _ => "Import:",
    };
    if text.is_empty() {
        return "Nothing to import was found.\n".to_owned();
    }
    text + &format!("\n{} {}, {skipped} left out.\n", paint(BOLD, said), plural(count("create"), "module"))
}

/// What one can go back to.
pub(crate) fn snapshots(reply: &PackCommandReply) -> String {
    let mut text = String::new();
    for (item, id) in texts(reply, "snapshots", "snapshot_id") {
        let field =
            |name: &str| visible(item.get(name).and_then(Value::as_str).unwrap_or_default()).into_owned();
        let count = |name: &str| {
            item.get("summary").and_then(|all| all.get(name)).and_then(Value::as_u64).unwrap_or_default()
        };
        let moment = field("created_at").chars().take(19).collect::<String>().replace('T', " ");
        let to = match item.get("rolled_back_to").and_then(Value::as_str) {
            Some(to) => paint(DIM, format_args!("  to {}", visible(to))),
            None => String::new(),
        };
        let kind = format!("{:<9}", field("kind"));
        text.push_str(&format!(
            "{}  {moment}  {}  {} {} {}{to}\n",
            paint(BOLD, id),
            if field("kind") == "rollback" { paint(DIM, kind) } else { kind },
            paint(GOOD, format_args!("+{}", count("create"))),
            paint(WARN, format_args!("~{}", count("update"))),
            paint(BAD, format_args!("-{}", count("delete"))),
        ));
    }
    if text.is_empty() { "Nothing was deployed yet.\n".to_owned() } else { text }
}

/// Where modules come from.
pub(crate) fn audited(reply: &PackCommandReply) -> String {
    let mut text = String::new();
    for (item, id) in texts(reply, "modules", "id") {
        let field =
            |name: &str| visible(item.get(name).and_then(Value::as_str).unwrap_or_default()).into_owned();
        let from =
            item.pointer("/resolved_source/git/url").or(item.pointer("/resolved_source/local_path/path"));
        let from = visible(from.and_then(Value::as_str).unwrap_or_default()).into_owned();
        let version: String = field("resolved_version").chars().take(12).collect();
        let digest: String = field("sha256").chars().take(12).collect();
        text.push_str(&format!(
            "{}  {from}  {version}  {}\n",
            paint(BOLD, id),
            paint(DIM, format_args!("sha256:{digest}"))
        ));
    }
    let list = |name: &str| {
        reply.data.get("change_summary").and_then(|all| all.get(name)).and_then(Value::as_array).map(Vec::len)
    };
    if let (Some(added), Some(removed), Some(changed)) =
        (list("modules_added"), list("modules_removed"), list("modules_changed"))
    {
        text.push_str(&format!(
            "\nSince the commit before: {added} added, {removed} removed, {changed} changed.\n"
        ));
    }
    if text.is_empty() { "The lockfile pins nothing.\n".to_owned() } else { text }
}

/// An answer of few words: its data, a line each.
pub(crate) fn simple(reply: &PackCommandReply) -> String {
    let mut text = String::new();
    for (name, value) in reply.data.iter().filter(|(name, _)| !name.ends_with("_posix")) {
        let said = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        text.push_str(&format!("{:<10}  {}\n", name.replace('_', " "), visible(&said)));
    }
    text
}

/// What a refusal knows beyond its sentence: what was done and what was not.
pub(crate) fn facts(refusal: &Refusal) -> String {
    let mut text = String::new();
    for name in ["done", "undone", "not_done", "conflicts", "snapshots", "sample_paths"] {
        let items = refusal
            .details
            .get(name)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        for item in items.take(20) {
            text.push_str(&format!("  {:<8}  {}\n", name.replace('_', " "), visible(item)));
        }
    }
    let issues = refusal.details.get("issues").and_then(Value::as_array).into_iter().flatten();
    for issue in issues {
        let field =
            |name: &str| visible(issue.get(name).and_then(Value::as_str).unwrap_or_default()).into_owned();
        text.push_str(&format!("  {}  {}\n", paint(WARN, field("rule")), field("message")));
    }
    text
}
