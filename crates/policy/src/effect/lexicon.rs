//! The lexicon: words of a tool's name, and what each says about what the tool does.
//! Knows words only; which of them counts beside which annotation is decided in the parent module.

/// Words that mean that something goes away, wherever they stand in a name.
const DESTROYING: &[&str] = &[
    "delete",
    "del",
    "drop",
    "destroy",
    "wipe",
    "purge",
    "revoke",
    "discard",
    "truncate",
    "kill",
    "erase",
    "remove",
    "rm",
    "rmdir",
    "unlink",
    "shred",
    "nuke",
    "obliterate",
    "terminate",
    "uninstall",
    "deprovision",
    "decommission",
    "expunge",
    "overwrite",
    "prune",
    "annihilate",
    "eradicate",
];

/// Verbs that replace or lose what was there, or run whatever they are given. Many are nouns as well (`list_merge_requests`), so
/// they count only where the name acts.
const OVERWRITING: &[&str] = &[
    "clean", "cleanup", "clear", "empty", "evict", "flush", "flushall", "flushdb", "force", "merge",
    "rebase", "push", "replace", "reset", "restore", "revert", "rewrite", "rollback", "undo", "unset",
    "expire", "pop", "drain", "execute", "exec", "eval", "evaluate",
    // Redis puts the letter of the type before the verb; its commands are the names of its tools.
    "hset", "hdel", "hmset", "lpop", "rpop", "lrem", "lset", "ltrim", "srem", "spop", "zrem", "xdel", "xtrim",
    "xack", "getdel", "getset", "mset", "setex",
];

/// Verbs that change something, and hardly ever name a thing.
const CHANGING: &[&str] = &[
    "create",
    "add",
    "insert",
    "update",
    "upsert",
    "edit",
    "modify",
    "write",
    "append",
    "save",
    "store",
    "put",
    "patch",
    "set",
    "send",
    "reply",
    "upload",
    "download",
    "install",
    "apply",
    "assign",
    "unassign",
    "activate",
    "deactivate",
    "enable",
    "disable",
    "attach",
    "detach",
    "rename",
    "move",
    "copy",
    "duplicate",
    "submit",
    "register",
    "subscribe",
    "unsubscribe",
    "restart",
    "start",
    "stop",
    "pause",
    "resume",
    "cancel",
    "approve",
    "reject",
    "accept",
    "dismiss",
    "lock",
    "unlock",
    "protect",
    "unprotect",
    "deploy",
    "generate",
    "mark",
    "toggle",
    "trigger",
    "launch",
    "run",
    "invoke",
    "perform",
    "handle",
    "manage",
    "configure",
    "initialize",
    "init",
    "connect",
    "disconnect",
    "login",
    "logout",
    "authenticate",
    "click",
    "type",
    "fill",
    "press",
    "navigate",
    "import",
    "export",
    "sync",
    "index",
    "reindex",
    "refresh",
    "rotate",
    "scale",
    "increment",
    "decrement",
    "pull",
    "checkout",
    "stage",
    "stash",
    "convert",
    "format",
    "sadd",
    "zadd",
    "hincrby",
    "lpush",
    "rpush",
    "xadd",
    "xgroup",
    "xreadgroup",
];

/// Words that change something as verbs and name things as nouns: `commit_changes`, `get_commit`.
const CHANGING_OR_NOUN: &[&str] = &[
    "archive", "branch", "close", "comment", "commit", "fork", "link", "open", "order", "post", "release",
    "schedule", "tag", "vote", "watch", "upgrade", "label",
];

/// Verbs that overwrite or spend where an act begins with them: `git_checkout` replaces changed files, `checkout_cart` buys, and
/// `create_checkout_session` does neither.
const OVERWRITING_IN_FRONT: &[&str] = &["checkout"];

/// Verbs that give a thing other contents: what it held is gone, if the thing was there before.
const REVISING: &[&str] = &["update", "edit", "modify", "patch", "set", "change", "upsert"];

/// Verbs that give a thing that is there another place, name, owner or state.
const REASSIGNING: &[&str] = &["assign", "reassign", "unassign", "move", "rename", "transition"];

/// Changing verbs that no reading tool begins with: beside `readOnlyHint: true` one of the two is wrong.
const NEVER_READING: &[&str] = &[
    "create",
    "add",
    "insert",
    "update",
    "upsert",
    "edit",
    "modify",
    "write",
    "append",
    "save",
    "put",
    "patch",
    "set",
    "send",
    "reply",
    "upload",
    "install",
    "apply",
    "assign",
    "activate",
    "deactivate",
    "enable",
    "disable",
    "rename",
    "move",
    "copy",
    "submit",
    "restart",
    "approve",
    "reject",
    "lock",
    "unlock",
    "deploy",
    "push",
    "post",
    "commit",
];

/// Whole words that move money, give others access or make something public: what left can't be called back.
const OUTWARD: &[&str] = &[
    "transfer",
    "pay",
    "payout",
    "refund",
    "charge",
    "withdraw",
    "buy",
    "wire",
    "donate",
    "remit",
    "disburse",
    "share",
    "unshare",
    "grant",
    "invite",
    "publish",
    "unpublish",
    "broadcast",
    "impersonate",
];

/// A verb and, behind it, what makes it outward or secret: `send_money`, `set_user_password`.
const OUTWARD_PHRASES: [(&[&str], &[&str]); 4] = [
    (&["send", "move", "request"], &["money", "funds", "cash", "payment", "payments", "crypto"]),
    (
        &["create", "make", "submit", "execute", "schedule", "confirm", "approve", "authorize", "capture"],
        &["payment", "payments", "payout"],
    ),
    (
        &["add", "give", "allow", "set", "update", "change", "modify", "make"],
        &["access", "permission", "permissions", "collaborator", "collaborators", "acl", "public"],
    ),
    (
        &[
            "update", "set", "change", "reset", "rotate", "create", "generate", "write", "put", "export",
            "reveal",
        ],
        &["password", "passwords", "passphrase", "secret", "secrets", "credential", "credentials", "mfa"],
    ),
];

/// Words that only read. The words after one name what is read: `get_share_link`, `list_transfers`.
const READING: &[&str] = &[
    "get",
    "list",
    "read",
    "search",
    "find",
    "describe",
    "show",
    "view",
    "count",
    "check",
    "fetch",
    "lookup",
    "query",
    "preview",
    "estimate",
    "is",
    "has",
    "look",
    "retrieve",
    "inspect",
    "browse",
    "scan",
    "explain",
    "analyze",
    "analyse",
    "compare",
    "summarize",
    "validate",
    "ping",
    "exists",
    "ls",
    "stat",
    "grep",
    "extract",
    "crawl",
    "scrape",
    "recommend",
    "suggest",
    "research",
    "explore",
    "discover",
    "geocode",
    "peek",
    "hget",
    "hgetall",
    "hexists",
    "hkeys",
    "hvals",
    "hlen",
    "llen",
    "lrange",
    "lindex",
    "smembers",
    "scard",
    "sismember",
    "zrange",
    "zscore",
    "zcard",
    "zcount",
    "xrange",
    "xlen",
    "mget",
    "dbsize",
    "ttl",
];

/// Things that are looked at: `transfer_status` moves nothing, and a tool that is called `status` only tells it.
const LOOKED_AT: &[&str] = &[
    "status",
    "history",
    "info",
    "details",
    "summary",
    "options",
    "stats",
    "statistics",
    "log",
    "logs",
    "diff",
    "tree",
    "schema",
    "version",
    "health",
    "help",
];

/// Those of them that nobody sets: `change_history` changes nothing, `change_status` does.
const NEVER_SET: &[&str] =
    &["history", "stats", "statistics", "log", "logs", "diff", "tree", "health", "help"];

/// Words that begin another act: `find_and_modify`, `get_or_create`.
const CONJUNCTIONS: &[&str] = &["and", "or", "then"];

fn is_in(list: &[&str], word: &str) -> bool {
    list.contains(&word)
}

/// Splits a name into lower-case words at case changes and anything that is neither letter nor digit.
pub fn name_words(name: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut previous: Option<char> = None;
    let mut rest = name.chars().peekable();
    while let Some(current) = rest.next() {
        if !current.is_alphanumeric() {
            words.extend((!word.is_empty()).then(|| std::mem::take(&mut word)));
            previous = None;
            continue;
        }
        let next_is_lower = rest.peek().is_some_and(|next| next.is_lowercase());
        let starts_word = previous.is_some_and(|before| {
            current.is_uppercase() && (before.is_lowercase() || before.is_numeric() || next_is_lower)
                || current.is_numeric() != before.is_numeric()
        });
        if starts_word {
            words.extend((!word.is_empty()).then(|| std::mem::take(&mut word)));
        }
        word.extend(current.to_lowercase());
        previous = Some(current);
    }
    words.extend((!word.is_empty()).then_some(word));
    words
}

/// The word by which a name admits that something is destroyed, or leaves in a way that can't be called back.
pub(super) fn destroying_word(words: &[String]) -> Option<&str> {
    let destroying = words.iter().find(|word| is_in(DESTROYING, word));
    destroying.map(String::as_str).or_else(|| acts(words).find_map(outward_word))
}

/// The verb by which a name admits that it overwrites something or runs what it is given.
pub(super) fn overwriting_word(words: &[String]) -> Option<&str> {
    let found = acts(words).find_map(|act| act.iter().find(|word| is_in(OVERWRITING, word)));
    // Names such as `kv_flush` end with their verb; behind a reading word it is what is read: `get_merge`.
    let last = || match words {
        [first, .., last] if !is_in(READING, first) => Some(last).filter(|word| is_in(OVERWRITING, word)),
        [] | [_] | [_, .., _] => None,
    };
    found.or_else(last).map(String::as_str).or_else(|| first_verb_in(acts(words), OVERWRITING_IN_FRONT))
}

/// Whether a name says that a thing gets other contents.
pub(super) fn revises(words: &[String]) -> bool {
    first_verb_in(acts_but(words, NEVER_SET), REVISING).is_some()
}

/// Whether a name says that a thing gets another place, name, owner or state.
pub(super) fn reassigns(words: &[String]) -> bool {
    first_verb_in(acts_but(words, NEVER_SET), REASSIGNING).is_some()
}

/// The first verb of an act, if it is one of these: behind another verb it is a noun (`create_change`, `get_update`).
fn first_verb_in<'w>(mut acts: impl Iterator<Item = &'w [String]>, verbs: &[&str]) -> Option<&'w str> {
    acts.find_map(|act| {
        let verb = act.iter().find(|word| is_verb(word) || is_in(verbs, word));
        verb.filter(|word| is_in(verbs, word)).map(String::as_str)
    })
}

/// The first verb of a name, where no tool that only reads would begin with it.
pub(super) fn leading_change(words: &[String]) -> Option<&str> {
    let verb = |word: &&String| is_verb(word);
    words.iter().find(verb).filter(|word| is_in(NEVER_READING, word)).map(String::as_str)
}

/// Any word that may mean a change, wherever it stands, but for nouns right behind a reading word.
pub(super) fn any_change(words: &[String]) -> Option<&str> {
    // To check something in or out is to change it, and `git fetch` moves branches.
    let pair = |one: &str, other: &[&str]| {
        words.windows(2).any(|two| matches!(two, [a, b] if a == one && is_in(other, b)))
    };
    if pair("check", &["in", "out", "off"]) || pair("git", &["fetch"]) {
        return words.first().map(String::as_str);
    }
    let mut read_before = false;
    for word in words {
        let is_noun = read_before && (is_in(CHANGING_OR_NOUN, word) || is_in(NOUNS_BEHIND_READING, word));
        if !is_noun && changes(word) {
            return Some(word);
        }
        read_before = is_in(READING, word);
    }
    None
}

/// Overwriting, outward and changing words that name a thing right behind a reading word: `get_merge_request`, `list_share_links`.
const NOUNS_BEHIND_READING: &[&str] =
    &["merge", "share", "transfer", "refund", "charge", "index", "export", "import", "type", "pull"];

/// Whether a word, taken as a verb, changes, overwrites, destroys or sends away.
pub(super) fn changes(word: &str) -> bool {
    [DESTROYING, OVERWRITING, CHANGING, CHANGING_OR_NOUN, OUTWARD].iter().any(|list| is_in(list, word))
}

/// Whether a word destroys or overwrites.
pub(super) fn destroys(word: &str) -> bool {
    is_in(DESTROYING, word) || is_in(OVERWRITING, word)
}

/// Whether a word of a sentence speaks of a change; words that are nouns as well do not count.
pub(super) fn is_plain_change(word: &str) -> bool {
    const PLAIN: &[&str] = &[
        "create", "insert", "edit", "modify", "write", "append", "send", "upload", "install", "execute",
        "replace",
    ];
    is_in(DESTROYING, word) || is_in(PLAIN, word)
}

/// Whether a word is a verb of the lexicon.
pub(super) fn is_verb(word: &str) -> bool {
    is_in(READING, word) || changes(word)
}

/// The word by which a name says that it only looks: its first word, `search` anywhere, or a verb that comes last (`json_get`).
pub(super) fn reading_word(words: &[String]) -> Option<&str> {
    let first = words.first().filter(|word| is_in(READING, word));
    let last = || words.last().filter(|word| is_in(&["get", "describe", "exists", "geocode"], word));
    first.or_else(|| words.iter().find(|word| *word == "search")).or_else(last).map(String::as_str)
}

/// The first verb of a name, where it only looks. Words that are no verbs may stand before it, so this is for doubts, not for trust.
pub(super) fn leading_reading(words: &[String]) -> Option<&str> {
    words.iter().find(|word| is_verb(word)).filter(|word| is_in(READING, word)).map(String::as_str)
}

/// The noun a name ends with, where that is something to look at: `place_details`, `client_list`.
pub(super) fn looked_at(words: &[String]) -> Option<&str> {
    words
        .last()
        .filter(|word| is_in(LOOKED_AT, word) || *word == "list" || *word == "count")
        .map(String::as_str)
}

/// The parts of a name that do something: of each part between conjunctions, the words before its first reading word. A part
/// that ends with something to read does nothing.
fn acts(words: &[String]) -> impl Iterator<Item = &[String]> {
    acts_but(words, LOOKED_AT)
}

/// The same, where only these are things to look at.
fn acts_but<'w>(words: &'w [String], looked_at: &'static [&str]) -> impl Iterator<Item = &'w [String]> {
    words.split(|word| is_in(CONJUNCTIONS, word)).filter_map(|part| {
        if part.last().is_some_and(|last| is_in(looked_at, last)) {
            return None;
        }
        let reading = part.iter().position(|word| is_in(READING, word)).unwrap_or(part.len());
        part.get(..reading)
    })
}

/// The word that says that money, access or a secret changes hands.
fn outward_word(act: &[String]) -> Option<&str> {
    // Elsewhere than in front, `purchase` is mostly a noun: `create_purchase_order`.
    let purchase = act.first().filter(|first| *first == "purchase");
    let outward = purchase.or_else(|| act.iter().find(|word| is_in(OUTWARD, word)));
    let phrase = || {
        OUTWARD_PHRASES.iter().find_map(|(verbs, objects)| {
            let mut rest = act.iter().skip_while(|word| !is_in(verbs, word)).skip(1);
            rest.find(|word| is_in(objects, word))
        })
    };
    outward.or_else(phrase).map(String::as_str)
}
