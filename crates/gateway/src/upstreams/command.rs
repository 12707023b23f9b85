//! Configured commands as governed tools: words are filled in and started, never a shell. A call waits for its command, or starts a run and
//! answers at once. `NAME#preview` and `NAME#explain` only read, for dry runs.

mod fill;
pub(crate) mod listing;
mod preview_runner;
mod result;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use countersign_config::{
    Argv, CommandRunMode, CommandTool, EXPLAIN_SUFFIX, PREVIEW_SUFFIX, Template, TemplatePair,
};
use countersign_mcp::client::BoxFuture;
use countersign_mcp::fault::DeliveryState;
use countersign_mcp::jsonrpc::RpcError;
use countersign_mcp::raw::{self, RawJson};
use countersign_policy::envelope::Envelope;
use countersign_policy::ids::UpstreamId;
use countersign_policy::refusal::Refusal;
use countersign_store::RecordedPermit;
use serde_json::{Map, Value, json};

pub(crate) use self::preview_runner::PreviewRunner;
pub(crate) use self::preview_runner::without;

use self::fill::{CheckedArguments, templates};
use self::result::ResultReader;
use super::environment::{self, Variable};
use super::recent::RecentDurations;
use super::{CallContext, Condition, Upstream, UpstreamCall, UpstreamFault, UpstreamHealth};
use crate::answer::{TextForm, tool_result};
use crate::runs::{BackgroundRuns, CommandGroup, Job, Launch, Mask, NotBegun, ProgressReporter};

pub struct CommandSettings<'a> {
    pub tools: &'a [CommandTool],
    /// Besides the basic variables.
    pub env: &'a [TemplatePair],
    /// The configuration's folder if none.
    pub cwd: Option<&'a Template>,
    /// Where neither a rule nor the tool sets one.
    pub timeout: Option<Duration>,
    /// Our own environment, of which commands get a few plain variables.
    pub ambient: &'a [Variable],
    /// The folder of the configuration.
    pub folder: &'a Path,
}

struct PreparedCommand {
    tool: CommandTool,
    definition: RawJson,
    env: Vec<Variable>,
    cwd: PathBuf,
    mask: Arc<Mask>,
    timeout: Option<Duration>,
}

pub struct CommandUpstream {
    id: UpstreamId,
    tools: Vec<PreparedCommand>,
    runs: Arc<BackgroundRuns>,
    command_group: Arc<CommandGroup>,
    recent: RecentDurations,
}

impl CommandUpstream {
    /// Starts nothing. Fails on an unresolved reference.
    pub fn new(
        id: UpstreamId,
        settings: &CommandSettings<'_>,
        runs: Arc<BackgroundRuns>,
    ) -> Result<Self, String> {
        let tools = settings.tools.iter().map(|tool| ready(tool, settings)).collect::<Result<_, _>>()?;
        let command_group = runs.command_group(&id);
        Ok(Self { id, tools, runs, command_group, recent: RecentDurations::default() })
    }

    /// The tool and its command. Only a dry run may name a preview or explain command.
    fn find(&self, call: &UpstreamCall<'_>) -> Option<(&PreparedCommand, &Argv)> {
        let name = call.tool();
        let looks = [PREVIEW_SUFFIX, EXPLAIN_SUFFIX].iter().any(|suffix| name.ends_with(suffix));
        if looks && call.permitted().is_some() {
            return None;
        }
        if let Some(name) = name.strip_suffix(PREVIEW_SUFFIX) {
            return self.named(name).and_then(|ready| Some((ready, ready.tool.preview.as_ref()?)));
        }
        if let Some(name) = name.strip_suffix(EXPLAIN_SUFFIX) {
            return self.named(name).and_then(|ready| Some((ready, ready.tool.explain.as_ref()?)));
        }
        self.named(name).map(|ready| (ready, &ready.tool.run))
    }

    fn named(&self, name: &str) -> Option<&PreparedCommand> {
        self.tools.iter().find(|ready| ready.tool.name.as_str() == name)
    }

    async fn run(&self, call: UpstreamCall<'_>, context: CallContext) -> Result<RawJson, UpstreamFault> {
        let Some((ready, argv)) = self.find(&call) else {
            let message = format!("`{}` has no tool `{}`", self.id, crate::escape::line(call.tool()));
            return Err(UpstreamFault::Rpc(RpcError::invalid_params(&message)));
        };
        let launch = match ready.launch(argv, call.arguments()) {
            Ok(launch) => launch.with_earlier(call.earlier()),
            Err(refusal) => {
                let refused = Envelope::refused(&self.full_name(ready), &refusal);
                return Ok(tool_result(&refused, TextForm::ForModel));
            }
        };
        match (call.permitted(), ready.tool.running) {
            (Some(opened), CommandRunMode::Background) => {
                // A run outlives the call: only a configured timeout ends it.
                let timeout = opened.permit().timeout().or(ready.timeout);
                self.begin(ready, opened, ready.job(launch, timeout)).await
            }
            (Some(_), CommandRunMode::Waits) => {
                let progress = progress(&call, &context);
                self.wait(ready, ready.job(launch, context.deadline.limit()), progress).await
            }
            (None, CommandRunMode::Waits | CommandRunMode::Background) => {
                let mut job = ready.job(launch, ready.timeout.or(context.deadline.limit()));
                // Reading changes nothing, so it needs no lock.
                job.lock = None;
                self.wait(ready, job, None).await
            }
        }
    }

    async fn wait(
        &self,
        ready: &PreparedCommand,
        job: Job,
        progress: Option<ProgressReporter>,
    ) -> Result<RawJson, UpstreamFault> {
        let tool = &ready.tool;
        let name = self.full_name(ready);
        let reading =
            ResultReader { name: &name, ok_exit: &tool.ok_exit, parse: tool.parse, timeout: job.timeout };
        let start = Instant::now();
        let done =
            self.runs.wait_for(job, &self.command_group, progress).await.ok_or_else(|| self.closed())?;
        self.took(start.elapsed());
        reading.result_of(&done)
    }

    async fn begin(
        &self,
        ready: &PreparedCommand,
        opened: &RecordedPermit,
        job: Job,
    ) -> Result<RawJson, UpstreamFault> {
        let unavailable = |why: String| UpstreamFault::Unavailable { why, sent: DeliveryState::No };
        let begun = self.runs.begin(opened, job, &self.command_group).await;
        let run_id = begun.map_err(|not| match not {
            NotBegun::Closed => self.closed(),
            NotBegun::Full => unavailable("too many runs are queued already".to_owned()),
            NotBegun::Store(fault) => unavailable(fault.outside()),
        })?;
        let name = self.full_name(ready);
        let envelope = Envelope::ok(&name, Map::new())
            .with("run_id", run_id.as_str())
            .with("tool", name.as_str())
            .with("state", "queued")
            .with("next_actions", json!(["get_run"]));
        Ok(tool_result(&envelope, TextForm::ForModel))
    }

    fn full_name(&self, ready: &PreparedCommand) -> String {
        format!("{}:{}", self.id, ready.tool.name)
    }

    fn closed(&self) -> UpstreamFault {
        UpstreamFault::Unavailable {
            why: format!("upstream `{}` is closed", self.id),
            sent: DeliveryState::No,
        }
    }

    fn took(&self, time: Duration) {
        self.recent.took(time);
    }
}

/// The receiver of the command's progress, if the caller wants any.
fn progress(call: &UpstreamCall<'_>, context: &CallContext) -> Option<ProgressReporter> {
    let token = raw::get_in(call.rest()?, &["_meta", "progressToken"])?;
    context.relay.clone().map(|relay| ProgressReporter::new(relay, token.to_owned()))
}

fn ready(tool: &CommandTool, settings: &CommandSettings<'_>) -> Result<PreparedCommand, String> {
    let found = |template: &Template| {
        template.text().ok_or_else(|| format!("`{}` is not resolved", template.shown()))
    };
    let configured: Result<Vec<Variable>, String> = settings
        .env
        .iter()
        .chain(&tool.env)
        .filter(|(_, value)| !value.is_absent())
        .map(|(name, value)| Ok((name.into(), found(value)?.expose().into())))
        .collect();
    let cwd = match tool.cwd.as_ref().or(settings.cwd) {
        Some(cwd) => settings.folder.join(found(cwd)?.expose()),
        None => settings.folder.to_owned(),
    };
    let env = settings.env.iter().chain(&tool.env).map(|(_, value)| value);
    let lines = std::iter::once(&tool.run).chain(&tool.preview).chain(&tool.explain).flatten();
    let words = lines.flat_map(templates);
    Ok(PreparedCommand {
        mask: Arc::new(Mask::of(env.chain(words).chain(&tool.stdin))),
        definition: listing::definition(tool),
        env: environment::clean(settings.ambient.iter().cloned(), configured?),
        cwd,
        timeout: tool.timeout.or(settings.timeout),
        tool: tool.clone(),
    })
}

impl PreparedCommand {
    fn launch(&self, argv: &Argv, arguments: &str) -> Result<Launch, Refusal> {
        let given = CheckedArguments::read(&self.tool, arguments)?;
        let mut words = given.words(argv)?.into_iter();
        Ok(Launch {
            program: words.next().unwrap_or_default().into(),
            args: words.map(Into::into).collect(),
            env: self.env.clone(),
            cwd: self.cwd.clone(),
            stdin: given.stdin(self.tool.stdin.as_ref())?,
        })
    }

    fn job(&self, launch: Launch, timeout: Option<Duration>) -> Job {
        Job {
            launch,
            timeout,
            lock: self.tool.lock.clone(),
            ok_exit: self.tool.ok_exit.clone(),
            limit: usize::try_from(self.tool.output).unwrap_or(usize::MAX),
            mask: Arc::clone(&self.mask),
        }
    }
}

impl Upstream for CommandUpstream {
    fn id(&self) -> &UpstreamId {
        &self.id
    }

    fn tools(&self) -> BoxFuture<'_, Result<Vec<RawJson>, UpstreamFault>> {
        Box::pin(async { Ok(self.tools.iter().map(|ready| ready.definition.clone()).collect()) })
    }

    fn call<'a>(
        &'a self,
        call: UpstreamCall<'a>,
        context: CallContext,
    ) -> BoxFuture<'a, Result<RawJson, UpstreamFault>> {
        Box::pin(self.run(call, context))
    }

    fn explains(&self, tool: &str) -> bool {
        self.named(tool).is_some_and(|ready| ready.tool.explain.is_some())
    }

    fn has_runs(&self) -> bool {
        self.tools.iter().any(|ready| ready.tool.running == CommandRunMode::Background)
    }

    fn chains_previews(&self) -> bool {
        true
    }

    fn decisive(&self, preview: &str, result: &Value) -> Option<Value> {
        let ready = self.named(preview.strip_suffix(PREVIEW_SUFFIX)?)?;
        preview_runner::without(&ready.tool.preview_ignore, result)
    }

    fn health(&self) -> UpstreamHealth {
        UpstreamHealth {
            condition: Condition::Up,
            restarts: 0,
            era: None,
            version: None,
            server_info: None,
            stderr_tail: String::new(),
            recent_us: self.recent.micros(),
        }
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.command_group.close())
    }

    fn retire(&self) -> BoxFuture<'_, ()> {
        // A changed configuration must not kill a running deployment: the upstream that replaces this one shares its runs, and closes
        // them.
        Box::pin(async {})
    }
}
