//! What a program's `--help` says: subcommands, flags, the arguments of its usage line. Reads the usual styles of help by their shape;
//! guesses nothing about what a command does.

use std::sync::LazyLock;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HelpSubcommand {
    pub(super) name: String,
    pub(super) about: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlagArity {
    Nothing,
    Value,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Flag {
    pub(super) name: String,
    pub(super) takes: FlagArity,
    pub(super) about: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HelpPositional {
    pub(super) name: String,
    pub(super) required: bool,
    pub(super) many: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ParsedHelp {
    pub(super) about: String,
    pub(super) subcommands: Vec<HelpSubcommand>,
    pub(super) flags: Vec<Flag>,
    pub(super) places: Vec<HelpPositional>,
}

/// Words that stand for anything in a usage line.
static ANYTHING: LazyLock<[&str; 12]> = LazyLock::new(|| {
    [
        "options",
        "option",
        "flags",
        "command",
        "subcommand",
        "args",
        "arguments",
        "global options",
        "toolchain",
        "--",
        "params",
        "commands",
    ]
});

/// Flags that make a command only say what it would do.
const DRY_RUNS: [&str; 8] =
    ["dry-run", "dryrun", "dry_run", "what-if", "whatif", "simulate", "just-print", "no-act"];

impl ParsedHelp {
    pub(super) fn read(text: &str) -> Self {
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        let mut help = Self { about: about(&lines), places: places(&lines), ..Self::default() };
        let mut section = Section::Other;
        for (at, line) in lines.iter().enumerate() {
            if let Some(found) = Section::heading(line) {
                section = found;
                continue;
            }
            let rest = line.trim_start();
            if rest.starts_with('-') && rest.len() > 1 {
                if let Some(flag) = flag(rest, lines.get(at + 1).copied().unwrap_or_default(), indent(line))
                    && !help.flags.iter().any(|known| known.name == flag.name)
                {
                    help.flags.push(flag);
                }
            } else if section != Section::NoCommands
                && let Some(found) = subcommand(line)
                && !help.subcommands.iter().any(|known| known.name == found.name)
            {
                help.subcommands.push(found);
            }
        }
        help
    }

    /// The flag that makes it only say what it would do.
    pub(super) fn dry_run(&self) -> Option<&Flag> {
        self.flags.iter().find(|flag| DRY_RUNS.contains(&flag.name.trim_start_matches('-')))
    }

    /// A flag by its name, with or without dashes.
    pub(super) fn flag(&self, name: &str) -> Option<&Flag> {
        let bare = name.trim_start_matches('-');
        self.flags.iter().find(|flag| flag.name.trim_start_matches('-') == bare)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Section {
    /// Lines that name things other than commands.
    NoCommands,
    Other,
}

impl Section {
    /// A heading: a line at the left that ends in a colon, or in capitals.
    fn heading(line: &str) -> Option<Self> {
        let left = !line.is_empty() && !line.starts_with([' ', '\t', '-']);
        let loud = line.len() > 3 && line.chars().all(|c| c.is_ascii_uppercase() || c == ' ');
        if !left || !(line.ends_with(':') || loud) {
            return None;
        }
        let lower = line.to_ascii_lowercase();
        let others = [
            "option",
            "flag",
            "argument",
            "example",
            "usage",
            "environment",
            "learn",
            "see also",
            "inherited",
        ];
        Some(if others.iter().any(|word| lower.contains(word)) && !lower.contains("command") {
            Self::NoCommands
        } else {
            Self::Other
        })
    }
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// The first sentence that is neither usage nor heading.
fn about(lines: &[&str]) -> String {
    let plain = lines.iter().map(|line| line.trim()).find(|line| {
        let lower = line.to_ascii_lowercase();
        !line.is_empty()
            && !lower.starts_with("usage")
            && !line.ends_with(':')
            && line.contains(' ')
            && !line.starts_with(['-', '['])
    });
    plain.unwrap_or_default().trim_end_matches('.').to_owned()
}

/// `  name, alias   What it does`, or `  name:   What it does`.
fn subcommand(line: &str) -> Option<HelpSubcommand> {
    if indent(line) == 0 {
        return None;
    }
    let (name, about) = line.trim_start().split_once("  ")?;
    let name = name.split([',', ' ']).next()?.trim_end_matches([':', '*']);
    let plain = name.len() > 1
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_'));
    let about = about.trim();
    let says = about.starts_with(|c: char| c.is_ascii_alphabetic()) && about.contains(' ');
    (plain && says)
        .then(|| HelpSubcommand { name: name.to_owned(), about: about.trim_end_matches('.').to_owned() })
}

/// `-m, --message <text>   What it is`, in all its spellings.
fn flag(rest: &str, next: &str, indented: usize) -> Option<Flag> {
    let (names, about) = match rest.split_once("  ") {
        Some((names, about)) => (names, about.trim()),
        None => (rest, ""),
    };
    // kubectl: `--tail=-1:` with what it is on the next line, deeper.
    let names = names.trim_end_matches(':');
    let about = if about.is_empty() && indent(next) > indented && !next.trim_start().starts_with('-') {
        next.trim()
    } else {
        about
    };
    let words: Vec<&str> = names.split([' ', ',']).filter(|word| !word.is_empty()).collect();
    let dashed: Vec<&str> = words.iter().copied().filter(|word| word.starts_with('-')).collect();
    let long = dashed.iter().max_by_key(|word| (word.starts_with("--"), bare(word).len()))?;
    let name = bare(long);
    if !name
        .trim_start_matches('-')
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
        || name.trim_start_matches('-').is_empty()
    {
        return None;
    }
    let glued = long.split_once('=').map(|(_, value)| value.trim_matches(['[', ']']));
    let takes = match glued {
        Some("true" | "false") => FlagArity::Nothing,
        Some(_) => FlagArity::Value,
        // A word after the name is what it takes.
        None if words.iter().any(|word| !word.starts_with('-')) => FlagArity::Value,
        None => FlagArity::Nothing,
    };
    Some(Flag { name, takes, about: about.trim_end_matches('.').to_owned() })
}

/// The name without what is glued to it: `--[no-]quiet`, `--color[=WHEN]`, `--file=F`, `--verbose...`.
fn bare(word: &str) -> String {
    let word = word.replace("[no-]", "");
    let end = word.find(['=', '[', ':', '<']).unwrap_or(word.len());
    word.get(..end).unwrap_or_default().trim_end_matches('.').to_owned()
}

/// `<name>`, `[name]`, `NAME` and `name...` of the first usage line.
fn places(lines: &[&str]) -> Vec<HelpPositional> {
    let at = lines.iter().position(|line| line.trim_start().to_ascii_lowercase().starts_with("usage"));
    let Some(at) = at else { return Vec::new() };
    let first = lines.get(at).copied().unwrap_or_default().trim_start();
    let own = first.split_once(':').map(|(_, usage)| usage.trim()).unwrap_or_default();
    let usage = if own.is_empty() { lines.get(at + 1).copied().unwrap_or_default().trim() } else { own };
    let mut found: Vec<HelpPositional> = Vec::new();
    let mut depth = 0_i32;
    for word in usage.split_whitespace() {
        let opens = i32::try_from(word.matches(['[', '<']).count()).unwrap_or(0);
        let closes = i32::try_from(word.matches([']', '>']).count()).unwrap_or(0);
        let inside = depth > 0;
        depth += opens - closes;
        let optional = word.starts_with('[');
        let many = word.contains("...");
        let name = word.trim_matches(['[', ']', '<', '>', '.', '(', ')']);
        let marked = word.starts_with(['[', '<'])
            || (name.len() > 1 && name.chars().all(|c| c.is_ascii_uppercase() || c == '_'));
        let plain =
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
        let lower = name.to_ascii_lowercase();
        // `[global options]`: words in one pair of brackets are no name.
        if inside
            || depth > 0
            || !marked
            || !plain
            || name.starts_with('-')
            || ANYTHING.contains(&lower.as_str())
        {
            continue;
        }
        let name = lower.replace('-', "_");
        if name.starts_with(|c: char| c.is_ascii_alphabetic())
            && !found.iter().any(|known| known.name == name)
        {
            found.push(HelpPositional { name, required: !optional, many });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(help: &ParsedHelp) -> (Vec<&str>, Vec<String>, Vec<String>) {
        let flags = help.flags.iter().map(|flag| match flag.takes {
            FlagArity::Nothing => flag.name.clone(),
            FlagArity::Value => format!("{}=", flag.name),
        });
        let places = help.places.iter().map(|place| {
            format!(
                "{}{}{}",
                place.name,
                if place.required { "" } else { "?" },
                if place.many { "*" } else { "" }
            )
        });
        (help.subcommands.iter().map(|one| one.name.as_str()).collect(), flags.collect(), places.collect())
    }

    #[track_caller]
    fn check(text: &str, subcommands: &[&str], flags: &[&str], places: &[&str]) {
        let help = ParsedHelp::read(text);
        let found = names(&help);
        assert_eq!(
            (found.0.as_slice(), found.1.as_slice(), found.2.as_slice()),
            (
                subcommands,
                flags.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>().as_slice(),
                places.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>().as_slice()
            )
        );
    }

    #[test]
    fn the_usual_styles_are_read() {
        check(
            "Deploys things.\n\nUsage: ship deploy [OPTIONS] <STACK> [REGION]\n\nArguments:\n  <STACK>   The stack\n\nOptions:\n  -f, --force            Do not ask\n      --label <LABEL>    A label\n      --dry-run          Only say it\n  -h, --help             Print help\n",
            &[],
            &["--force", "--label=", "--dry-run", "--help"],
            &["stack", "region?"],
        );
        check(
            "Rust's package manager\n\nUsage: cargo [+toolchain] [OPTIONS] [COMMAND]\n\nOptions:\n      --explain <CODE>  Explain\n\nCommands:\n    build, b    Compile the current package\n    check, c    Analyze the current package\n    ...         See all commands with --list\n",
            &["build", "check"],
            &["--explain="],
            &[],
        );
        check(
            "usage: git commit [-a | --interactive] [-m <msg>]\n                  [--] [<pathspec>...]\n\n    -q, --[no-]quiet      suppress summary\n    -m, --[no-]message <message>\n                          commit message\n    -S, --[no-]gpg-sign[=<key-id>]\n                          GPG sign commit\n",
            &[],
            &["--quiet", "--message=", "--gpg-sign="],
            &[],
        );
        check(
            "Delete resources.\n\nUsage:\n  kubectl delete TYPE NAME [flags]\n\nOptions:\n    --all=false:\n\tDelete all resources\n\n    --dry-run='none':\n\tMust be none, server, or client\n\n    -n, --namespace='':\n\tThe namespace\n",
            &[],
            &["--all", "--dry-run=", "--namespace="],
            &["type", "name"],
        );
        check(
            "Usage: terraform [global options] apply [options] [PLAN]\n\n  Creates or updates infrastructure.\n\nOptions:\n\n  -auto-approve          Skip interactive approval\n  -var 'foo=bar'         Set a value\n  -parallelism=n         Limit\n",
            &[],
            &["-auto-approve", "-var=", "-parallelism="],
            &["plan?"],
        );
        check(
            "Work with GitHub.\n\nUSAGE\n  gh <command> <subcommand> [flags]\n\nCORE COMMANDS\n  auth:        Authenticate gh and git\n  pr:          Manage pull requests\n\nFLAGS\n  --help      Show help for command\n",
            &["auth", "pr"],
            &["--help"],
            &[],
        );
        check("", &[], &[], &[]);
        check("\u{1b}[1mnot much\n  -\n  --\n  - item\n", &[], &[], &[]);
    }

    #[test]
    fn what_only_says_is_found() {
        let help = ParsedHelp::read("Usage: x\n  -n, --dry-run   Only say\n  --check  Other\n");
        assert_eq!(help.dry_run().unwrap().name, "--dry-run");
        assert_eq!(help.flag("check").unwrap().about, "Other");
        assert_eq!(ParsedHelp::read("Usage: x\n  --force  Do it\n").dry_run(), None);
    }
}
