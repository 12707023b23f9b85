//! `countersign policy explain`: what the policy decides about one call, and which rule decided each part of it.
//! Reads the tool's definition from the records. Calls nothing: no upstream is asked, no plan is kept.

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap_complete::ArgValueCandidates;
use countersign_config::{
    self as config, CallRoute, Config, DecidedField, ExplainInput, IntentInput, ModeVerdict,
    PolicyExplanation, UpstreamKind, VerdictWord,
};
use countersign_gateway::catalog::Catalog;
use countersign_policy::call::{ArgumentFault, Arguments};
use countersign_policy::confirm::{ApprovalStrength, Kind};
use countersign_policy::ids::FullName;
use countersign_policy::intent::DataSensitivity;
use countersign_policy::mode::Mode;
use countersign_policy::refusal::{Code, Refusal};
use countersign_policy::role::Role;
use countersign_policy::rules::RuleField;
use countersign_store::StoreUrl;
use countersign_web::views;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::cli::Cli;
use crate::command_result::{Answer, CommandError, CommandResult};
use crate::commands::completions::candidates;
use crate::config_file::{self, ConfigFiles};
use crate::output::{BAD, BOLD, Column, DIM, GOOD, NAME, Table, WARN, paint, visible};
use crate::{natives, records};

pub(crate) const EXAMPLES: &str = "Examples:
  countersign policy explain --tool github:delete_repo --mode execute
  countersign policy explain --tool github:push --args '{\"force\":true}'
  countersign policy explain --tool github:create_issue --sensitivity private
  countersign policy explain --tool notes:wipe_all --role human --json";

#[derive(Args, Debug)]
pub(crate) struct PolicyExplainArgs {
    /// The tool's full name
    #[arg(long, value_name = "UPSTREAM:TOOL", add = ArgValueCandidates::new(candidates::tool_names))]
    tool: FullName,

    /// The call's arguments, a JSON object
    #[arg(long, value_name = "JSON")]
    args: Option<String>,

    /// The call's mode; the configured one if left out
    #[arg(long, value_parser = PossibleValuesParser::new(Mode::ALL.iter().map(|word| word.as_str())).try_map(|word| word.parse::<Mode>()))]
    mode: Option<Mode>,

    /// The role of the caller
    #[arg(long, default_value = "agent", value_parser = PossibleValuesParser::new(Role::ALL.iter().map(|word| word.as_str())).try_map(|word| word.parse::<Role>()))]
    role: Role,

    /// Through which call tool; the one that suits the tool if left out
    #[arg(long, value_parser = PossibleValuesParser::new(CallRoute::ALL.iter().map(|word| word.as_str())).try_map(|word| word.parse::<CallRoute>()))]
    variant: Option<CallRoute>,

    /// The sensitivity the call declares
    #[arg(long, value_name = "LEVEL", value_parser = PossibleValuesParser::new(DataSensitivity::ALL.iter().map(|word| word.as_str())).try_map(|word| word.parse::<DataSensitivity>()))]
    sensitivity: Option<DataSensitivity>,

    /// The reason the call declares
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,

    /// The annotations the upstream gives the tool, a JSON object; those of the records if left out
    #[arg(long, value_name = "JSON")]
    annotations: Option<String>,

    /// The principal, for rules that look at it
    #[arg(long, value_name = "NAME")]
    principal: Option<String>,
}

pub(crate) fn run(args: &PolicyExplainArgs, cli: &Cli) -> CommandResult {
    let files = config_file::find(&cli.config)?;
    let config = match &files {
        Some(files) => files.parse()?,
        None => config::parse(&[]).map_err(|_| no_defaults())?,
    };
    let recorded =
        files.as_ref().map(|files| RecordedTool::find(&args.tool, &config, files)).unwrap_or_default();
    let input = input(args, &config, &recorded)?;
    let explained = config::explain(&config, &input);
    let mut answer = Answer::text(story(&explained, &input)).with("explained", json!(explained));
    if files.is_none() {
        answer.warnings.push("there is no configuration: this is what holds without one".to_owned());
    }
    answer.warnings.extend(recorded.warning);
    answer.warnings.extend(explained.warnings);
    Ok(answer)
}

/// What the store knows of the tool, so that this says what `tools show` and the page say.
#[derive(Default)]
struct RecordedTool {
    definition: Option<Map<String, Value>>,
    /// That the tool is withheld, or that the records can't be read.
    warning: Option<String>,
}

impl RecordedTool {
    fn find(tool: &FullName, config: &Config, files: &ConfigFiles) -> Self {
        let Some(upstream) = config.upstream(&tool.upstream) else { return Self::default() };
        if let UpstreamKind::Native { kind, .. } = &upstream.kind {
            // What this program brings along is not recorded: it is what it is.
            let mut own = natives::definitions(*kind).into_iter().filter_map(|one| one.as_object().cloned());
            let definition =
                own.find(|one| one.get("name").and_then(Value::as_str) == Some(tool.tool.as_str()));
            return Self { definition, warning: None };
        }
        let pins = records::configured(files).and_then(|url| {
            if let StoreUrl::Sqlite(path) = &url
                && !path.exists()
            {
                return Ok(Vec::new());
            }
            let fault = |fault| records::trouble(&fault, &url);
            records::with_read_only(&url, async |store| store.pins(&tool.upstream).await.map_err(fault))
        });
        let Ok(pins) = pins else {
            let warning = "the records can't be read: this is what holds without the tool's definition; \
                           countersign doctor says why";
            return Self { definition: None, warning: Some(warning.to_owned()) };
        };
        let catalog = Catalog::of_pins(vec![(upstream.id.clone(), upstream.prefix, pins)], &config.rules);
        let Some(listed) = catalog.get(tool) else { return Self::default() };
        let warning = (!listed.is_accepted()).then(|| {
            let state = views::tool_state(listed);
            format!("the tool is withheld ({state}) until a person accepts it: countersign tools diff {tool}")
        });
        Self { definition: Some(listed.tool.definition.clone()), warning }
    }
}

fn no_defaults() -> CommandError {
    let refusal = Refusal::new(Code::ConfigInvalid, "there is no configuration");
    CommandError::refused(refusal, "name a file: --config PATH")
}

fn input(
    args: &PolicyExplainArgs,
    config: &Config,
    recorded: &RecordedTool,
) -> Result<ExplainInput, CommandError> {
    let mut input = ExplainInput::of(args.tool.clone(), Timestamp::now());
    if let Some(definition) = &recorded.definition {
        input.describe(definition);
    }
    if let Some(text) = &args.args {
        input.arguments = object("--args", text)?;
    }
    if let Some(text) = &args.annotations {
        input.annotations = Some(object("--annotations", text)?.value().clone());
    }
    input.mode = args.mode;
    input.role = args.role;
    input.way = args.variant;
    input.principal.clone_from(&args.principal);
    if args.sensitivity.is_some() || args.reason.is_some() {
        input.intent = IntentInput::Given(declared(args, config, &input));
    }
    Ok(input)
}

/// A complete intent: the operation is that of the call tool, or the tool's own.
fn declared(args: &PolicyExplainArgs, config: &Config, input: &ExplainInput) -> Map<String, Value> {
    let suited = config::explain(config, input);
    let operation = match suited.variant {
        CallRoute::Direct => suited.effect.as_str(),
        CallRoute::Read | CallRoute::Write | CallRoute::Destructive => suited.variant.as_str(),
    };
    let mut intent = Map::from_iter([("operation_type".to_owned(), Value::from(operation))]);
    intent.extend(args.sensitivity.map(|level| ("data_sensitivity".to_owned(), level.as_str().into())));
    intent.extend(args.reason.iter().map(|reason| ("reason".to_owned(), reason.as_str().into())));
    intent
}

/// A strict JSON object, as the gateway itself would take it.
fn object(option: &str, text: &str) -> Result<Arguments, CommandError> {
    Arguments::parse(text.as_bytes()).map_err(|fault| {
        let (reason, why) = match fault {
            ArgumentFault::NotStrict(why) => ("arguments_not_strict", why.to_string()),
            ArgumentFault::NotAnObject => ("arguments_invalid", "must be a JSON object".to_owned()),
        };
        let refusal = Refusal::new(Code::ArgumentsInvalid, format!("`{option}`: {why}")).because(reason);
        CommandError::refused(refusal, format!("{option} '{{\"name\": \"value\"}}'"))
    })
}

/// The whole story, top to bottom: who calls what, what happens, why, and what would happen in the other modes.
fn story(explained: &PolicyExplanation, input: &ExplainInput) -> String {
    let role = match input.role {
        Role::Agent => "an agent",
        Role::Human => "a person",
    };
    let way = match explained.variant {
        CallRoute::Direct => "directly".to_owned(),
        CallRoute::Read | CallRoute::Write | CallRoute::Destructive => {
            format!("through call_tool_{}", explained.variant)
        }
    };
    let tool = paint(BOLD, visible(&explained.tool));
    let head = format!("{tool}, called by {role} {way} in {} mode\n\n", paint(BOLD, explained.mode));
    let (style, verdict) = verdict(explained);
    let mut what = format!("  {} {verdict}\n", paint(style, "▸"));
    // In ask and plan mode it is the mode that keeps the call from running.
    let by_mode = matches!(explained.verdict, VerdictWord::Explain | VerdictWord::Preview);
    if let Some(rule) = explained.rule.as_ref().filter(|_| !by_mode) {
        what.push_str(&format!("    {}\n", paint(DIM, format_args!("because of {}", visible(rule)))));
    }
    if let Some(arguments) = &explained.effective_arguments {
        let arguments = visible(&arguments.to_string()).into_owned();
        what.push_str(&format!("    {}\n", paint(DIM, format_args!("judged and sent as {arguments}"))));
    }
    format!("{head}{what}\n{}\n{}", fields(&explained.decided), modes(explained))
}

fn verdict(explained: &PolicyExplanation) -> (anstyle::Style, String) {
    match explained.verdict {
        VerdictWord::Go => (GOOD, format!("{} at once", paint(GOOD, "runs"))),
        VerdictWord::Hold => {
            (WARN, format!("{}: {}", paint(WARN, "waits for confirmation"), second_step(explained)))
        }
        VerdictWord::Preview => (NAME, format!("{}; nothing changes", paint(NAME, "is previewed"))),
        VerdictWord::Explain => {
            (NAME, format!("{}: {}", paint(NAME, "is explained, not run"), no(explained)))
        }
        VerdictWord::Refuse => (BAD, format!("{}: {}", paint(BAD, "is refused"), no(explained))),
    }
}

fn no(explained: &PolicyExplanation) -> String {
    let message = explained.message.as_deref().unwrap_or_default();
    format!("{} {}", explained.code.unwrap_or_default(), visible(message))
}

/// The second step in words: what is done, and who has to.
fn second_step(explained: &PolicyExplanation) -> String {
    let typed = explained.decided.iter().find(|decided| decided.field == RuleField::TypeField);
    let what = match explained.confirm {
        Kind::None => "no second step".to_owned(),
        Kind::Simple => "a yes or no".to_owned(),
        Kind::Preview => "the preview is shown, then a yes or no".to_owned(),
        Kind::Type => match typed {
            Some(field) => format!("the preview is shown and the value of {} typed", value(&field.value)),
            None => "the preview is shown and the resource's name typed".to_owned(),
        },
    };
    let who = match explained.strength {
        ApprovalStrength::Caller => "the agent may bring the answer",
        ApprovalStrength::Host => "the host's own dialog, or a person with a credential, answers",
        ApprovalStrength::Human => "a person with a credential answers",
    };
    format!("{what}; {who}")
}

fn fields(decided: &[DecidedField]) -> String {
    let mut table = Table::new(&[Column::kept("  FIELD"), Column::kept("VALUE"), Column::kept("DECIDED BY")]);
    for one in decided {
        let style = if one.rule.is_some() { NAME } else { DIM };
        let by = match (&one.rule, one.field) {
            (Some(rule), _) => rule.as_str(),
            (None, RuleField::Preview) => preview_source(&one.value),
            (None, _) => one.because.as_str(),
        };
        table.row(vec![
            (format!("  {}", one.field), anstyle::Style::new()),
            (value(&one.value), BOLD),
            (by.to_owned(), style),
        ]);
    }
    table.render(None)
}

fn preview_source(preview: &Value) -> &'static str {
    match preview.get("from").and_then(Value::as_str) {
        Some("argument") => "the tool's input schema offers it",
        _ => "no dry run is known: made from the call itself",
    }
}

fn value(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(self::value).collect::<Vec<_>>().join(", "),
        Value::Object(preview) => {
            let of = |name: &str| preview.get(name).map(self::value).unwrap_or_default();
            match of("from").as_str() {
                "argument" => format!("{}={}", of("arg"), of("preview")),
                "tool" => format!("tool {}", of("tool")),
                other => other.to_owned(),
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

fn modes(explained: &PolicyExplanation) -> String {
    let mut table = Table::new(&[Column::kept("  MODE"), Column::kept("WHAT HAPPENS")]);
    let rows = [
        (Mode::Ask, &explained.modes.ask),
        (Mode::Plan, &explained.modes.plan),
        (Mode::Execute, &explained.modes.execute),
    ];
    for (mode, said) in rows {
        let (mark, style) = if mode == explained.mode { ("▸", BOLD) } else { (" ", anstyle::Style::new()) };
        table.row(vec![(format!("{mark} {mode}"), style), (happens(said), style)]);
    }
    table.render(None)
}

fn happens(said: &ModeVerdict) -> String {
    let what = match said.verdict {
        VerdictWord::Go => "runs at once",
        VerdictWord::Hold => "waits for confirmation",
        VerdictWord::Preview => "is previewed, nothing changes",
        VerdictWord::Explain => "is explained, not run",
        VerdictWord::Refuse => "is refused",
    };
    match said.code {
        Some(code) => format!("{what} ({code})"),
        None => what.to_owned(),
    }
}
