//! `countersign upstreams add-command`: a command line becomes a governed tool. Its `--help` says what it takes; a person, or flags, say
//! which of that an agent may set. Shows the lines of the configuration, asks, writes. Starts nothing but the help, and
//! that only when told to: a script that knows no `--help` would run.

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use countersign_policy::effect::{Effect, name_is_destructive};
use toml_edit::{Array, ArrayOfTables, DocumentMut, InlineTable, Item, Table, Value, value};

use super::help_text::{Flag, FlagArity, ParsedHelp};
use crate::cli::Cli;
use crate::command_result::{CommandError, CommandResult};
use crate::config_change::{change, files};
use crate::output::{DIM, NAME, OutputSettings, paint, visible};
use crate::person::ask;

pub(crate) const EXAMPLES: &str = "Examples:
  countersign upstreams add-command infra -- terraform apply
  countersign upstreams add-command infra --read-help -- helm upgrade
  countersign upstreams add-command net --input host -- ping -c1 {host}";

/// How long a program may take to print its help.
const PATIENCE: Duration = Duration::from_secs(10);
const LONGEST: u64 = 1 << 20;
const DEEPEST: usize = 5;
/// Verbs that only look.
const READS: [&str; 24] = [
    "cat", "check", "describe", "df", "diff", "du", "events", "get", "grep", "history", "info", "inspect",
    "list", "log", "logs", "ls", "ps", "search", "show", "stat", "status", "top", "validate", "version",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EffectArg {
    /// Only reads
    Read,
    /// Changes something
    Write,
    /// Deletes or overwrites
    Destructive,
}

impl EffectArg {
    fn effect(self) -> Effect {
        match self {
            Self::Read => Effect::Read,
            Self::Write => Effect::Write,
            Self::Destructive => Effect::Destructive,
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct AddCommand {
    /// The upstream the tool belongs to; made if there is none
    upstream: String,

    /// The tool's name; otherwise made of the command's words
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,

    /// What it does, for agents; otherwise what its help says
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,

    /// What it does to the world; otherwise told by its name, and a write where that tells nothing
    #[arg(long, value_enum, value_name = "EFFECT")]
    effect: Option<EffectArg>,

    /// A flag of the command that agents may set; may be given several times
    #[arg(long, value_name = "FLAG", allow_hyphen_values = true)]
    flag: Vec<String>,

    /// An argument agents give, by its name: `{name}` in the command, or the next word after it; may be given several times
    #[arg(long, value_name = "NAME")]
    input: Vec<String>,

    /// The argument whose value a person types to agree
    #[arg(long, value_name = "NAME")]
    type_field: Option<String>,

    /// Calls answer at once with a run id
    #[arg(long)]
    background: bool,

    /// Start the program with `--help` and read what it takes, without being asked; a script that knows no `--help` would run
    #[arg(long)]
    read_help: bool,

    /// Write without being asked; needed off a terminal
    #[arg(long)]
    yes: bool,

    /// The command, word by word
    #[arg(last = true, required = true, value_name = "WORD")]
    words: Vec<String>,
}

/// The tool as it will be written.
struct CommandToolDraft {
    name: String,
    description: String,
    effect: Effect,
    words: Vec<String>,
    flags: Vec<Flag>,
    inputs: Vec<(String, InputArity)>,
    preview: Option<String>,
    type_field: Option<String>,
    background: bool,
}

/// Whether a call has to bring an argument, and how many.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InputArity {
    One,
    Maybe,
    Many,
}

pub(super) fn add(args: &AddCommand, cli: &Cli, voice: OutputSettings) -> CommandResult {
    let files = files(&cli.config)?;
    let config = files.parse()?;
    let written = config.upstreams.iter().find(|one| one.id.as_str() == args.upstream);
    if let Some(
        countersign_config::UpstreamKind::Stdio { .. }
        | countersign_config::UpstreamKind::Http { .. }
        | countersign_config::UpstreamKind::Native { .. },
    ) = written.map(|one| &one.kind)
    {
        let message = format!("`{}` is no upstream of command tools", visible(&args.upstream));
        return Err(CommandError::usage("invalid_value", message, "choose another name"));
    }
    let asks = !args.yes && ask::can_ask(voice);
    let draft = if asks { ask_for_draft(args, voice) } else { draft_from_flags(args) }?;
    if let Some(countersign_config::UpstreamKind::Command { tools, .. }) = written.map(|one| &one.kind)
        && tools.iter().any(|tool| tool.name.as_str() == draft.name)
    {
        let message = format!("`{}` has a tool `{}` already", visible(&args.upstream), visible(&draft.name));
        return Err(CommandError::usage("invalid_value", message, "choose another name: --tool NAME"));
    }
    let name = format!("{}:{}", args.upstream, draft.name);
    let change = change(&files, 0, |document| insert(document, &args.upstream, draft.table()))?;
    change.settle(&files, args.yes, voice, "added", &name)
}

fn draft_from_flags(args: &AddCommand) -> Result<CommandToolDraft, CommandError> {
    let help = if args.read_help { help_of(&args.words).unwrap_or_default() } else { ParsedHelp::default() };
    let flags = args.flag.iter().map(|name| chosen(&help, name)).collect();
    let effect = args.effect.map_or_else(|| guess(&args.words), EffectArg::effect);
    let inputs: Vec<(String, InputArity)> = args
        .input
        .iter()
        .map(|name| {
            let place = help.places.iter().find(|place| place.name == *name);
            let wanted = match place {
                Some(place) if place.many => InputArity::Many,
                Some(place) if !place.required => InputArity::Maybe,
                Some(_) | None => InputArity::One,
            };
            (name.clone(), wanted)
        })
        .collect();
    if let Some(stranger) = args.type_field.as_ref().filter(|field| !args.input.contains(field)) {
        let message = format!("`{}` is none of the inputs", visible(stranger));
        return Err(CommandError::usage("invalid_value", message, "name it with --input as well"));
    }
    Ok(CommandToolDraft {
        name: args.tool.clone().unwrap_or_else(|| name_of(&args.words)),
        description: args.description.clone().unwrap_or_else(|| help.about.clone()),
        effect,
        words: args.words.clone(),
        flags,
        preview: preview(&help, effect),
        type_field: args.type_field.clone(),
        inputs,
        background: args.background,
    })
}

/// What the person at the terminal says, with what the flags say as the usual answer.
fn ask_for_draft(args: &AddCommand, voice: OutputSettings) -> Result<CommandToolDraft, CommandError> {
    let mut words = args.words.clone();
    let question = format!("Start `{} --help` to read what it takes?", visible(&words.join(" ")));
    let reads = args.read_help || ask::yes(voice, &question);
    let mut help = if reads { help_of(&words).unwrap_or_default() } else { ParsedHelp::default() };
    for _ in 0..DEEPEST {
        if help.subcommands.is_empty() {
            break;
        }
        for one in &help.subcommands {
            voice.tell(&format!(
                "  {}  {}\n",
                paint(NAME, visible(&one.name)),
                paint(DIM, visible(&one.about))
            ));
        }
        let said = ask::line(voice, &format!("Which command of `{}`? (empty: itself)", words.join(" ")));
        let Some(said) = said.map(|said| said.trim().to_owned()).filter(|said| !said.is_empty()) else {
            break;
        };
        if !help.subcommands.iter().any(|one| one.name == said) {
            voice.tell(&format!("there is no `{}`\n", visible(&said)));
            continue;
        }
        words.push(said);
        help = help_of(&words).unwrap_or_default();
    }
    let asked = |question: &str, usual: &str| {
        let said = ask::line(voice, &format!("{question} [{usual}]")).unwrap_or_default();
        if said.trim().is_empty() { usual.to_owned() } else { said.trim().to_owned() }
    };
    for flag in &help.flags {
        voice.tell(&format!(
            "  {}  {}\n",
            paint(NAME, visible(&flag.name)),
            paint(DIM, visible(&flag.about))
        ));
    }
    let list = |text: &str| -> Vec<String> {
        text.split([',', ' ']).filter(|one| !one.is_empty() && *one != "none").map(str::to_owned).collect()
    };
    let usual = if args.flag.is_empty() { "none".to_owned() } else { args.flag.join(", ") };
    let flags =
        list(&asked("Which flags may agents set?", &usual)).iter().map(|name| chosen(&help, name)).collect();
    let places: Vec<&str> = help.places.iter().map(|place| place.name.as_str()).collect();
    let usual = match (args.input.is_empty(), places.is_empty()) {
        (false, _) => args.input.join(", "),
        (true, false) => places.join(", "),
        (true, true) => "none".to_owned(),
    };
    let inputs = list(&asked("Which arguments do agents give?", &usual));
    let name = asked("The tool's name?", &args.tool.clone().unwrap_or_else(|| name_of(&words)));
    let about = args.description.clone().unwrap_or_else(|| help.about.clone());
    let description = asked("What does it do, for agents?", &visible(&about));
    let usual = args.effect.map_or_else(|| guess(&words), EffectArg::effect);
    let effect = asked("What does it do to the world: read, write or destructive?", usual.as_str());
    let effect: Effect = effect.parse().map_err(|_| {
        let message = format!("`{}` is none of read, write, destructive", visible(&effect));
        CommandError::usage("invalid_value", message, "countersign upstreams add-command --help")
    })?;
    let type_field = match (effect, args.type_field.as_deref().or(inputs.first().map(String::as_str))) {
        (Effect::Destructive, Some(usual)) => {
            let said = asked("Whose value does a person type to agree? (none: a yes is enough)", usual);
            (said != "none").then_some(said)
        }
        (Effect::Read | Effect::Write | Effect::Destructive, _) => None,
    };
    let again = AddCommand {
        upstream: args.upstream.clone(),
        tool: Some(name),
        description: Some(description),
        effect: None,
        flag: Vec::new(),
        input: inputs,
        type_field,
        background: args.background,
        read_help: false,
        yes: args.yes,
        words,
    };
    let preview = preview(&help, effect);
    let places = help.places.clone();
    let mut draft = draft_from_flags(&again)?;
    for (name, wanted) in &mut draft.inputs {
        if let Some(place) = places.iter().find(|place| place.name == *name) {
            *wanted = if place.many {
                InputArity::Many
            } else if place.required {
                InputArity::One
            } else {
                InputArity::Maybe
            };
        }
    }
    Ok(CommandToolDraft { effect, flags, preview, ..draft })
}

/// A flag by name; one the help does not know takes no value unless it is written with `=`.
fn chosen(help: &ParsedHelp, name: &str) -> Flag {
    let (name, takes) = match name.strip_suffix('=') {
        Some(name) => (name, FlagArity::Value),
        None => (name, FlagArity::Nothing),
    };
    let unknown = || {
        let dashed = if name.starts_with('-') { name.to_owned() } else { format!("--{name}") };
        Flag { name: dashed, takes, about: String::new() }
    };
    help.flag(name).cloned().unwrap_or_else(unknown)
}

/// The flag that shows what would happen, for tools that change something.
fn preview(help: &ParsedHelp, effect: Effect) -> Option<String> {
    let flag = help.dry_run().filter(|flag| effect != Effect::Read && flag.takes == FlagArity::Nothing)?;
    Some(flag.name.clone())
}

/// The tool's name: the command's plain words without its program, or the program alone.
fn name_of(words: &[String]) -> String {
    let plain = |word: &&String| {
        word.starts_with(|c: char| c.is_ascii_alphabetic())
            && word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
    };
    let rest: Vec<&str> = words.iter().skip(1).take_while(|word| plain(word)).map(String::as_str).collect();
    if !rest.is_empty() {
        return rest.join("_").replace('-', "_");
    }
    let program = words.first().map(String::as_str).unwrap_or_default();
    program.rsplit('/').next().unwrap_or(program).replace(['.', '-'], "_")
}

/// What a name tells: what destroys by the lexicon, what only looks by its verb, a write otherwise.
fn guess(words: &[String]) -> Effect {
    let name = name_of(words);
    if name_is_destructive(&name) {
        return Effect::Destructive;
    }
    let looks = name.split('_').any(|word| READS.contains(&word));
    if looks { Effect::Read } else { Effect::Write }
}

/// What `--help` says; none if it says nothing.
fn help_of(words: &[String]) -> Option<ParsedHelp> {
    // Words with gaps are what a call fills in.
    let fixed: Vec<&String> =
        words.iter().take_while(|word| !word.contains('{') && !word.starts_with('-')).collect();
    ["--help", "-h"].iter().find_map(|flag| {
        let text = said(&fixed, flag)?;
        let help = ParsedHelp::read(&text);
        (help != ParsedHelp::default()).then_some(help)
    })
}

/// Starts a program with one more word and reads what it says, on either stream; without a shell, input or patience.
fn said(words: &[&String], flag: &str) -> Option<String> {
    let (program, rest) = words.split_first()?;
    let mut command = Command::new(program);
    command
        .args(rest)
        .arg(flag)
        .env("PAGER", "cat")
        .env("MANPAGER", "cat")
        .env("GIT_PAGER", "cat")
        .env("NO_COLOR", "1");
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().ok()?;
    let mut readers = Vec::new();
    let pipes: [Option<Box<dyn std::io::Read + Send>>; 2] = [
        child.stdout.take().map(|pipe| Box::new(pipe) as _),
        child.stderr.take().map(|pipe| Box::new(pipe) as _),
    ];
    for pipe in pipes.into_iter().flatten() {
        readers.push(std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = pipe.take(LONGEST).read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        }));
    }
    let start = Instant::now();
    while child.try_wait().ok()?.is_none() {
        if start.elapsed() > PATIENCE {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let text: Vec<String> = readers.into_iter().filter_map(|reader| reader.join().ok()).collect();
    let text = text.join("\n");
    // What moves the cursor or colours is no part of what it says.
    let text = anstream::adapter::strip_str(&text).to_string();
    (!text.trim().is_empty()).then_some(text)
}

impl CommandToolDraft {
    /// The tool as the configuration writes it.
    fn table(&self) -> Table {
        let mut table = Table::new();
        table.insert("name", value(&self.name));
        if !self.description.is_empty() {
            table.insert("description", value(&self.description));
        }
        table.insert("effect", value(self.effect.as_str()));
        if let Some(field) = &self.type_field {
            table.insert("confirm", value("type"));
            table.insert("type_field", value(field));
        }
        if self.background {
            table.insert("background", value(true));
        }
        table.insert("run", value(self.argv(None)));
        if let Some(flag) = &self.preview {
            table.insert("preview", value(self.argv(Some(flag))));
        }
        let mut inputs = InlineTable::new();
        for (name, wanted) in &self.inputs {
            inputs.insert(name, Value::InlineTable(schema(*wanted)));
        }
        for flag in &self.flags {
            let mut schema = InlineTable::new();
            schema.insert("type", "string".into());
            if flag.takes == FlagArity::Nothing {
                // Given as it is, or not at all.
                schema.insert("enum", Value::Array([flag.name.as_str()].into_iter().collect()));
                schema.insert("leading_dash", true.into());
            }
            schema.insert("optional", true.into());
            if !flag.about.is_empty() {
                schema.insert("description", visible(&flag.about).into_owned().into());
            }
            inputs.insert(input_name(&flag.name), Value::InlineTable(schema));
        }
        if !inputs.is_empty() {
            table.insert("input", value(inputs));
        }
        table
    }

    /// The words: as given, then flags, then arguments that have no place yet.
    fn argv(&self, dry_run: Option<&String>) -> Array {
        let mut words: Array = self.words.iter().map(String::as_str).collect();
        if let Some(flag) = dry_run {
            words.push(flag.as_str());
        }
        for flag in &self.flags {
            let input = input_name(&flag.name);
            match flag.takes {
                FlagArity::Nothing => words.push(format!("{{{input}}}")),
                FlagArity::Value => {
                    words.push(Value::Array([format!("{}={{{input}}}", flag.name)].into_iter().collect()))
                }
            }
        }
        for (name, _) in &self.inputs {
            let gap = format!("{{{name}}}");
            if !self.words.iter().any(|word| word.contains(&gap)) {
                words.push(gap);
            }
        }
        words
    }
}

fn schema(wanted: InputArity) -> InlineTable {
    let mut schema = InlineTable::new();
    match wanted {
        InputArity::One => drop(schema.insert("type", "string".into())),
        InputArity::Maybe => {
            schema.insert("type", "string".into());
            schema.insert("optional", true.into());
        }
        InputArity::Many => {
            schema.insert("type", "array".into());
            schema.insert("items", Value::InlineTable(InlineTable::from_iter([("type", "string")])));
            schema.insert("optional", true.into());
        }
    }
    schema
}

/// `--dry-run` is `dry_run` as an argument.
fn input_name(flag: &str) -> String {
    flag.trim_start_matches('-').replace(['-', '.'], "_")
}

/// Puts the tool behind those its upstream has.
fn insert(document: &mut DocumentMut, upstream: &str, tool: Table) {
    let implicit = || {
        let mut table = Table::new();
        table.set_implicit(true);
        Item::Table(table)
    };
    let all = document.entry("upstreams").or_insert_with(implicit);
    let Some(all) = all.as_table_like_mut() else { return };
    let one = all.entry(upstream).or_insert_with(implicit);
    let Some(one) = one.as_table_like_mut() else { return };
    let tools = one.entry("tools").or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()));
    if let Some(tools) = tools.as_array_of_tables_mut() {
        tools.push(tool);
    } else if let Some(tools) = tools.as_array_mut() {
        tools.push(tool.into_inline_table());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn names_and_effects_from_words() {
        for (line, name, effect) in [
            ("terraform apply", "apply", Effect::Write),
            ("kubectl delete pod", "delete_pod", Effect::Destructive),
            ("git remote prune", "remote_prune", Effect::Destructive),
            ("docker image ls", "image_ls", Effect::Read),
            ("/usr/bin/du -sh {folder}", "du", Effect::Read),
            ("./drop-all.sh", "drop_all_sh", Effect::Destructive),
            ("deploy", "deploy", Effect::Write),
        ] {
            assert_eq!((name_of(&words(line)).as_str(), guess(&words(line))), (name, effect), "{line}");
        }
    }
}
