//! `memory store`: a proposal, or with `--direct` an approved record by a person whose credential proves who they are.

use std::io::Read as _;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use countersign_memory::classify;
use countersign_memory::{RecordDraft, direct};
use countersign_policy::memory::{RecordKind, Scope};
use countersign_store::StoreUrl;
use countersign_terminal::command_result::{Answer, CommandError, CommandResult};
use countersign_terminal::output::{GOOD, OutputSettings, WARN, paint, visible};
use countersign_terminal::person;
use countersign_terminal::records::with_store;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::{actor, anonymous_agent, command_error, open_memory};

/// Shown under the help.
pub(crate) const EXAMPLES: &str = "Examples:
  countersign memory store 'We use PostgreSQL for replicas'
  countersign memory store --as learning 'The build needs 2 GB of memory'
  countersign memory store --direct --as decision 'Releases are signed'
  countersign memory store --path src/a.rs --as decision 'No I/O here'";

/// What `memory store` takes.
#[derive(Args, Debug)]
pub(crate) struct MemoryStoreArgs {
    /// What to remember; `-` reads it from stdin
    text: String,

    /// What it is: decision, learning or idea; without it the text decides
    #[arg(long = "as", value_name = "KIND", value_parser = super::kinds())]
    kind: Option<RecordKind>,

    /// Write it as approved, as yourself, without a proposal; always audited
    #[arg(long)]
    direct: bool,

    /// How far it reaches: file, room or palace
    #[arg(long, value_name = "SCOPE", value_parser = PossibleValuesParser::new(Scope::ALL.iter().map(|word| word.as_str())).try_map(|word| word.parse::<Scope>()))]
    scope: Option<Scope>,

    /// The file's path or the room's name
    #[arg(long, value_name = "PATH")]
    path: Option<String>,

    /// Why it is so
    #[arg(long, value_name = "TEXT")]
    rationale: Option<String>,

    /// Around what it came up
    #[arg(long, value_name = "TEXT")]
    context: Option<String>,

    /// A label; may be given several times
    #[arg(long = "tag", value_name = "LABEL")]
    tags: Vec<String>,
}

/// Proposes or writes it.
pub(crate) fn run(args: &MemoryStoreArgs, url: &StoreUrl, voice: OutputSettings) -> CommandResult {
    let text = match args.text.as_str() {
        "-" => from_stdin()?,
        text => text.to_owned(),
    };
    if args.direct { write(args, text, url, voice) } else { propose(args, text, url) }
}

fn from_stdin() -> Result<String, CommandError> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|error| {
        CommandError::usage(
            "invalid_value",
            format!("stdin can't be read as text: {error}"),
            "countersign memory store TEXT",
        )
    })?;
    Ok(text.trim_end_matches('\n').to_owned())
}

/// The same road as an agent's: the tool `store`.
fn propose(args: &MemoryStoreArgs, text: String, url: &StoreUrl) -> CommandResult {
    let mut fields: Map<String, Value> = Map::from_iter([("content".to_owned(), Value::from(text))]);
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            fields.insert(name.to_owned(), value);
        }
    };
    put("as", args.kind.map(|kind| kind.as_str().into()));
    put("scope", args.scope.map(|scope| scope.as_str().into()));
    put("scopePath", args.path.as_deref().map(Into::into));
    put("rationale", args.rationale.as_deref().map(Into::into));
    put("context", args.context.as_deref().map(Into::into));
    put("tags", (!args.tags.is_empty()).then(|| json!(args.tags)));
    with_store(url, async |store| {
        let outcome = open_memory(&store).act("store", &fields, &anonymous_agent(), Timestamp::now()).await;
        let reply = outcome.map_err(|stop| command_error(stop, "countersign memory list"))?;
        let mut answer = Answer::default();
        let id =
            ["proposal_id", "id"].iter().find_map(|name| reply.data.get(*name)?.as_str()).unwrap_or_default();
        let message = reply.data.get("message").and_then(Value::as_str).unwrap_or_default();
        answer.text = format!("{}\n", visible(message));
        if reply.data.contains_key("proposal_id") {
            let how = reply
                .data
                .get("classification")
                .and_then(|how| how.get("confidence"))
                .and_then(Value::as_f64);
            if args.kind.is_none() {
                let kind = reply.data.get("as").and_then(Value::as_str).unwrap_or_default();
                let sure = how.unwrap_or_default() * 100.0;
                answer.text.push_str(&format!("taken for a {kind}, {sure:.0}% sure; --as says it\n"));
            }
            answer.text.push_str(&format!("{} countersign memory approve {id}\n", paint(WARN, "next:")));
        }
        answer.data = reply.data;
        answer.warnings = reply.warnings;
        Ok(answer)
    })
}

/// A person's own word.
fn write(args: &MemoryStoreArgs, text: String, url: &StoreUrl, voice: OutputSettings) -> CommandResult {
    let refused = |message: &str| {
        let refusal = countersign_policy::refusal::Refusal::new(
            countersign_policy::refusal::Code::ArgumentsInvalid,
            message,
        );
        CommandError::refused(refusal, "countersign memory store --direct --as decision TEXT")
    };
    if text.trim().is_empty() {
        return Err(refused("content is required"));
    }
    let mut guessed = None;
    let kind = match args.kind {
        Some(kind @ (RecordKind::Decision | RecordKind::Learning)) => kind,
        Some(RecordKind::Idea) => return Err(refused("as must be 'decision' or 'learning'")),
        None => {
            let kind = match classify::classify(&text).kind {
                RecordKind::Learning => RecordKind::Learning,
                RecordKind::Decision | RecordKind::Idea => RecordKind::Decision,
            };
            guessed = Some(format!("taken for a {kind}; --as says it"));
            kind
        }
    };
    let place = countersign_memory::place(args.scope, args.path.as_deref())
        .map_err(|stop| command_error(stop, "countersign memory store --scope file --path PATH TEXT"))?;
    with_store(url, async |store| {
        let person = person::prove(&store, url, voice).await?;
        let wording = RecordDraft {
            content: text,
            rationale: args.rationale.clone().unwrap_or_default(),
            context: args.context.clone().unwrap_or_default(),
            tags: args.tags.clone(),
            place,
        };
        let written =
            direct(&open_memory(&store), wording, kind, None, &actor(&person), Timestamp::now()).await;
        let reply = written.map_err(|stop| command_error(stop, ""))?;
        let id = reply.data.get("id").and_then(Value::as_str).unwrap_or_default();
        let mut answer = Answer::text(format!(
            "{} {kind} {id} as {}\n",
            paint(GOOD, "written"),
            visible(person.name.as_str())
        ));
        answer.data = reply.data;
        answer.warnings = person.warnings;
        answer.warnings.extend(reply.warnings);
        answer.warnings.extend(guessed);
        Ok(answer)
    })
}
