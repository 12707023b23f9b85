//! Synonyms of words for tools: everyday verbs, abbreviations, and common nouns. General English of the trade, never the names of particular
//! tools.

use std::collections::HashMap;

use super::terms::stem;

/// How well the words of a group fit for each other: the same thing, or something near.
const SAME: f32 = 0.8;
const NEAR: f32 = 0.5;

/// The fit and the words. Two-word names are written together here and in the index: `pullrequest`.
type SynonymGroup = (f32, &'static [&'static str]);

const VERBS: &[SynonymGroup] = &[
    // remove
    (SAME, &["delete", "remove", "erase", "destroy", "discard"]),
    (
        NEAR,
        &[
            "delete",
            "remove",
            "drop",
            "purge",
            "wipe",
            "clear",
            "clean",
            "trash",
            "unlink",
            "uninstall",
            "prune",
        ],
    ),
    (SAME, &["drop", "purge", "wipe", "truncate", "empty", "clear"]),
    (NEAR, &["archive", "clean", "tidy", "hide", "dismiss"]),
    // create
    (SAME, &["create", "make", "add", "generate"]),
    (
        NEAR,
        &["create", "make", "new", "insert", "build", "compose", "provision", "init", "register", "produce"],
    ),
    (NEAR, &["create", "open", "report", "file", "submit", "raise", "publish", "define", "issue"]),
    (SAME, &["add", "append", "insert", "attach"]),
    (SAME, &["draft", "compose", "prepare"]),
    (SAME, &["copy", "duplicate", "clone", "replicate"]),
    (NEAR, &["clone", "fork", "copy"]),
    // change
    (SAME, &["update", "edit", "modify", "change", "alter"]),
    (
        NEAR,
        &[
            "update",
            "change",
            "set",
            "patch",
            "adjust",
            "correct",
            "fix",
            "replace",
            "configure",
            "apply",
            "amend",
        ],
    ),
    (SAME, &["set", "assign", "put", "configure"]),
    (SAME, &["move", "rename", "relocate", "transfer"]),
    (NEAR, &["reschedule", "postpone", "delay", "shift", "push", "update", "move", "change"]),
    (SAME, &["resize", "scale", "grow", "shrink", "increase", "decrease", "raise", "reduce"]),
    (SAME, &["rotate", "renew", "refresh", "regenerate"]),
    (SAME, &["merge", "combine", "join"]),
    (NEAR, &["convert", "transform", "format", "render", "export", "translate"]),
    (SAME, &["translate", "localize"]),
    (SAME, &["close", "resolve", "complete", "finish"]),
    // read
    (SAME, &["search", "find", "lookup", "query", "grep", "google", "discover"]),
    (SAME, &["show", "display", "view", "print", "see"]),
    (
        NEAR,
        &["list", "find", "search", "get", "show", "browse", "enumerate", "view", "display", "see", "check"],
    ),
    (SAME, &["get", "fetch", "retrieve", "read", "cat"]),
    (
        NEAR,
        &[
            "get", "read", "fetch", "load", "download", "pull", "show", "print", "open", "describe",
            "inspect", "check",
        ],
    ),
    (SAME, &["describe", "inspect", "explain", "examine"]),
    (NEAR, &["explain", "why", "analyze", "diagnose", "debug", "troubleshoot", "profile"]),
    (SAME, &["compare", "diff"]),
    (SAME, &["count", "sum", "aggregate"]),
    (SAME, &["evaluate", "compute", "calculate"]),
    (SAME, &["validate", "verify", "check", "lint"]),
    (SAME, &["watch", "monitor", "observe", "follow", "subscribe"]),
    (SAME, &["track", "trace", "locate", "follow"]),
    (SAME, &["summarize", "brief", "digest"]),
    // move
    (SAME, &["send", "post", "deliver"]),
    (
        NEAR,
        &[
            "send", "post", "publish", "submit", "write", "reply", "comment", "tell", "notify", "announce",
            "forward",
        ],
    ),
    (SAME, &["save", "store", "persist", "write", "record"]),
    (NEAR, &["save", "download", "export", "dump", "backup"]),
    (SAME, &["upload", "put", "import", "push"]),
    (SAME, &["share", "invite", "grant", "permit"]),
    (NEAR, &["invite", "add", "join", "member"]),
    // start and stop
    (SAME, &["run", "execute", "invoke", "trigger", "launch"]),
    (NEAR, &["run", "start", "call", "begin", "trigger", "dispatch", "perform"]),
    (SAME, &["start", "boot", "launch", "resume", "enable", "activate"]),
    (NEAR, &["execute", "ssh", "connect", "shell", "enter"]),
    (SAME, &["stop", "kill", "terminate", "abort", "halt", "end", "shutdown"]),
    (SAME, &["cancel", "abort", "void", "withdraw"]),
    (NEAR, &["stop", "cancel", "disable", "pause", "suspend"]),
    (SAME, &["revoke", "invalidate", "disable", "deactivate", "block", "expire", "ban"]),
    (SAME, &["silence", "mute", "snooze", "suppress", "ignore", "acknowledge"]),
    (SAME, &["restart", "reboot", "bounce", "reload", "cycle"]),
    (SAME, &["rollback", "revert", "undo", "restore", "recover"]),
    (NEAR, &["undo", "reset"]),
    (NEAR, &["deploy", "apply", "release", "rollout", "ship", "install"]),
    (SAME, &["release", "publish"]),
    // decide
    (SAME, &["approve", "accept", "confirm", "allow"]),
    (SAME, &["reject", "decline", "deny", "refuse"]),
    (NEAR, &["respond", "reply", "answer", "rsvp", "decline", "accept", "attend"]),
    (SAME, &["schedule", "book", "arrange", "plan", "reserve"]),
    (NEAR, &["schedule", "create"]),
    (SAME, &["refund", "return", "reimburse"]),
    (SAME, &["fill", "enter", "type", "input"]),
];

const NOUNS: &[SynonymGroup] = &[
    // computing
    (SAME, &["pullrequest", "mergerequest"]),
    (SAME, &["kubernetes", "cluster"]),
    (SAME, &["configuration", "settings", "preferences", "options"]),
    (SAME, &["authentication", "login", "signin"]),
    (SAME, &["information", "metadata", "details", "properties", "size"]),
    (SAME, &["statistics", "metrics", "usage", "measurement"]),
    (NEAR, &["metrics", "graph", "chart", "plot", "dashboard"]),
    (SAME, &["picture", "image", "photo", "screenshot"]),
    (SAME, &["preview", "dryrun", "simulate"]),
    (SAME, &["workflow", "pipeline", "job", "action", "ci", "build"]),
    (SAME, &["website", "webpage", "web", "site", "page", "url", "internet"]),
    (SAME, &["url", "link", "hyperlink"]),
    (SAME, &["log", "output", "stdout"]),
    (SAME, &["history", "commit", "changelog"]),
    (SAME, &["version", "revision", "release"]),
    (SAME, &["diff", "change", "patch"]),
    (SAME, &["code", "codebase", "source"]),
    (SAME, &["column", "field", "attribute"]),
    (SAME, &["row", "record", "entry"]),
    (SAME, &["table", "relation"]),
    (NEAR, &["schema", "structure", "column", "layout"]),
    (SAME, &["permission", "policy", "access", "privilege", "right", "role"]),
    (SAME, &["container", "pod", "docker"]),
    (SAME, &["memory", "ram"]),
    (SAME, &["process", "session", "connection"]),
    (NEAR, &["resource", "usage", "consumption", "cpu", "memory"]),
    (SAME, &["command", "shell", "script", "terminal", "bash"]),
    (SAME, &["server", "host", "machine", "node", "instance", "vm"]),
    (SAME, &["domain", "dns", "hostname", "zone"]),
    (SAME, &["storage", "bucket", "blob", "s3"]),
    (NEAR, &["object", "blob", "file"]),
    (SAME, &["backup", "dump", "snapshot"]),
    (SAME, &["volume", "disk", "drive"]),
    (SAME, &["certificate", "tls", "ssl"]),
    (SAME, &["webhook", "hook", "callback"]),
    (SAME, &["queue", "topic", "stream"]),
    (SAME, &["error", "failure", "exception", "crash", "fault"]),
    (SAME, &["alert", "alarm", "notification", "warning"]),
    (SAME, &["secret", "password", "credential", "passphrase", "key"]),
    (NEAR, &["token", "key", "credential"]),
    // everyday services
    (NEAR, &["message", "email", "note"]),
    (NEAR, &["email", "inbox", "mailbox"]),
    (SAME, &["event", "meeting", "appointment", "standup"]),
    (SAME, &["calendar", "agenda"]),
    (NEAR, &["event", "schedule", "reschedule", "invitation", "invite"]),
    (SAME, &["free", "available", "availability", "busy"]),
    (SAME, &["attendee", "participant", "guest", "invitee", "colleague"]),
    (SAME, &["issue", "ticket", "bug", "defect"]),
    (NEAR, &["issue", "task", "story", "problem", "incident"]),
    (SAME, &["file", "document", "documentation"]),
    (SAME, &["note", "memo"]),
    (SAME, &["content", "text", "body"]),
    (SAME, &["order", "purchase"]),
    (SAME, &["customer", "client", "buyer"]),
    (SAME, &["coupon", "voucher", "discount", "promotion", "promo"]),
    (SAME, &["shipment", "parcel", "package", "delivery", "shipping"]),
    (SAME, &["payment", "money", "charge", "transaction"]),
    (SAME, &["inventory", "stock"]),
    (SAME, &["product", "item", "article", "sku"]),
    (SAME, &["cost", "price", "amount", "spend", "expense", "billing"]),
    (SAME, &["invoice", "bill", "billing"]),
    (SAME, &["user", "account", "person", "people", "member"]),
    (SAME, &["team", "group"]),
    (SAME, &["channel", "room", "conversation"]),
    (NEAR, &["channel", "chat", "team"]),
    (SAME, &["label", "tag", "category"]),
    (SAME, &["emoji", "reaction", "react"]),
    (SAME, &["location", "place", "position"]),
    (NEAR, &["place", "restaurant", "shop", "hotel", "cafe"]),
    (SAME, &["elevation", "height", "altitude"]),
    (SAME, &["directions", "route"]),
    (SAME, &["child", "children", "subpage", "nested"]),
    (NEAR, &["history", "log"]),
    (NEAR, &["payable", "receivable", "owe", "debt"]),
    (SAME, &["reminder", "todo", "task"]),
    (SAME, &["contact", "addressbook"]),
    (SAME, &["comment", "reply", "remark"]),
    (SAME, &["language", "locale"]),
];

/// Phrases that mean one word, matched before fillers are dropped.
const PHRASES: &[(&[&str], &str)] = &[
    (&["who", "am", "i"], "whoami"),
    (&["who", "wrote"], "blame"),
    (&["get", "rid", "of"], "delete"),
    (&["throw", "away"], "delete"),
    (&["look", "for"], "search"),
    (&["look", "up"], "find"),
    (&["look", "at"], "show"),
    (&["look", "into"], "inspect"),
    (&["go", "back"], "rollback"),
    (&["roll", "back"], "rollback"),
    (&["give", "back"], "return"),
    (&["money", "back"], "refund"),
    (&["set", "up"], "create"),
    (&["shut", "down"], "stop"),
    (&["turn", "off"], "disable"),
    (&["turn", "on"], "enable"),
    (&["log", "in"], "login"),
    (&["sign", "in"], "login"),
    (&["sign", "up"], "register"),
    (&["what", "is", "in"], "list"),
    (&["what", "is", "inside"], "list"),
    (&["how", "big"], "size"),
    (&["how", "large"], "size"),
    (&["virtual", "machine"], "vm"),
    (&["virtual", "machines"], "vm"),
    (&["check", "out"], "show"),
    (&["clean", "up"], "clean"),
    (&["clear", "out"], "clear"),
    (&["how", "many"], "count"),
    (&["how", "much"], "usage"),
    (&["where", "is"], "track"),
];

/// Abbreviations and spellings of one word, expanded on both sides, so that a document full of `repo` arguments does not hide the one named
/// after the repository.
pub(super) fn written_out(word: &str) -> &str {
    match word {
        "admin" | "admins" => "administrator",
        "app" | "apps" => "application",
        "auth" => "authentication",
        "cfg" | "config" | "configs" | "conf" => "configuration",
        "db" | "dbs" => "database",
        "del" | "rm" => "delete",
        "dir" | "dirs" | "folder" | "folders" => "directory",
        "doc" | "docs" => "documentation",
        "env" | "envs" => "environment",
        "exec" => "execute",
        "img" | "imgs" => "image",
        "info" => "information",
        "k8s" | "kube" => "kubernetes",
        "mail" | "mails" => "email",
        "mr" | "mrs" => "mergerequest",
        "msg" | "msgs" => "message",
        "ns" => "namespace",
        "org" | "orgs" | "organisation" | "organisations" => "organization",
        "perms" => "permission",
        "pr" | "prs" => "pullrequest",
        "repo" | "repos" => "repository",
        "stats" => "statistics",
        "temp" | "tmp" => "temporary",
        _ => word,
    }
}

/// For every known stem: its synonyms, and how well they fit.
pub(super) fn table() -> HashMap<String, Vec<(String, f32)>> {
    let mut table: HashMap<String, Vec<(String, f32)>> = HashMap::new();
    for (weight, group) in VERBS.iter().chain(NOUNS) {
        let stems: Vec<String> = group.iter().map(|word| stem(word).into_owned()).collect();
        for from in &stems {
            let known = table.entry(from.clone()).or_default();
            for to in stems.iter().filter(|to| *to != from) {
                match known.iter_mut().find(|(word, _)| word == to) {
                    Some((_, best)) => *best = best.max(*weight),
                    None => known.push((to.clone(), *weight)),
                }
            }
        }
    }
    table
}

/// A phrase at the start of `words`: its meaning, and its number of words.
pub(super) fn phrase(words: &[&str]) -> Option<(&'static str, usize)> {
    let found = PHRASES.iter().find(|(phrase, _)| words.starts_with(phrase))?;
    Some((found.1, found.0.len()))
}

/// Whether a word is a verb, so that a query with it is not just the name of a thing.
pub(super) fn is_action(word: &str) -> bool {
    VERBS.iter().any(|(_, group)| group.contains(&word))
}

/// Whether a word of a tool's name says that it only reads.
pub(super) fn is_read_verb(word: &str) -> bool {
    matches!(
        word,
        "browse"
            | "describe"
            | "fetch"
            | "find"
            | "get"
            | "inspect"
            | "list"
            | "lookup"
            | "query"
            | "read"
            | "search"
            | "show"
            | "view"
    )
}
