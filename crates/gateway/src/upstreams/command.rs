//! Any command line as governed tools: words filled in and started, never a shell. A call waits for its command, or begins a run
//! and answers at once. What may run was judged before; `NAME#preview` and `NAME#explain` only look, for dry runs.

mod fill;
pub(crate) mod listing;
mod look;
mod result;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use countersign_core::config::{Argv, CommandTool, EXPLAIN_SUFFIX, PREVIEW_SUFFIX, Pair, Running, Template};
use countersign_core::envelope::Envelope;
use countersign_core::ids::UpstreamId;
use countersign_core::refusal::Refusal;
use countersign_store::Opened;
use countersign_wire::fault::Sent;
use countersign_wire::frame::RpcError;
use countersign_wire::raw::{self, Raw};
use countersign_wire::upstream::Later;
use serde_json::{Map, Value, json};

pub use self::look::Looks;
pub(crate) use self::look::without;

use self::fill::{Given, templates};
use self::result::Reading;
use super::environment::{self, Variable};
use super::recent::Recent;
use super::{Condition, Errand, Health, Talk, Upstream, UpstreamFault};
use crate::answer::tool_result;
use crate::runs::{Crew, Job, Launch, Mask, NotBegun, Progress, Runs};

/// What an upstream of command tools is made of.
pub struct Settings<'a> {
    /// Its tools.
    pub tools: &'a [CommandTool],
    /// What their environment has besides the basics.
    pub env: &'a [Pair],
    /// Where they run, if not in the folder.
    pub cwd: Option<&'a Template>,
    /// How long one may take, where neither a rule nor the tool says.
    pub timeout: Option<Duration>,
    /// Our own environment, of which commands get a few plain variables.
    pub ambient: &'a [Variable],
    /// The folder of the configuration.
    pub folder: &'a Path,
}

/// A tool ready to be run.
struct Ready {
    tool: CommandTool,
    definition: Raw,
    env: Vec<Variable>,
    cwd: PathBuf,
    mask: Arc<Mask>,
    timeout: Option<Duration>,
}

/// Commands as an upstream.
pub struct CommandUpstream {
    id: UpstreamId,
    tools: Vec<Ready>,
    runs: Arc<Runs>,
    crew: Arc<Crew>,
    recent: Recent,
}

impl CommandUpstream {
    /// Starts nothing. Fails on a text that was not looked up, and says which.
    pub fn new(id: UpstreamId, settings: &Settings<'_>, runs: Arc<Runs>) -> Result<Self, String> {
        let tools = settings.tools.iter().map(|tool| ready(tool, settings)).collect::<Result<_, _>>()?;
        let crew = runs.crew(&id);
        Ok(Self { id, tools, runs, crew, recent: Recent::default() })
    }

    /// The tool and which of its commands is meant. Only a dry run may mean one that looks.
    fn find(&self, errand: &Errand<'_>) -> Option<(&Ready, &Argv)> {
        let name = errand.tool();
        let looks = [PREVIEW_SUFFIX, EXPLAIN_SUFFIX].iter().any(|suffix| name.ends_with(suffix));
        if looks && errand.permitted().is_some() {
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

    fn named(&self, name: &str) -> Option<&Ready> {
        self.tools.iter().find(|ready| ready.tool.name.as_str() == name)
    }

    async fn run(&self, errand: Errand<'_>, talk: Talk) -> Result<Raw, UpstreamFault> {
        let Some((ready, argv)) = self.find(&errand) else {
            let message = format!("`{}` has no tool `{}`", self.id, crate::escape::line(errand.tool()));
            return Err(UpstreamFault::Rpc(RpcError::invalid_params(&message)));
        };
        let launch = match ready.launch(argv, errand.arguments()) {
            Ok(launch) => launch,
            Err(refusal) => return Ok(tool_result(&Envelope::refused(&self.full_name(ready), &refusal))),
        };
        match (errand.permitted(), ready.tool.running) {
            (Some(opened), Running::Background) => {
                // A run outlives the call: only a timeout that someone wrote down ends it.
                let timeout = opened.permit().timeout().or(ready.timeout);
                self.begin(ready, opened, ready.job(launch, timeout)).await
            }
            (Some(_), Running::Waits) => {
                let progress = progress(&errand, &talk);
                self.wait(ready, ready.job(launch, talk.deadline.limit()), progress).await
            }
            (None, Running::Waits | Running::Background) => {
                let mut job = ready.job(launch, ready.timeout.or(talk.deadline.limit()));
                // Looking changes nothing, so it waits for nobody.
                job.lock = None;
                self.wait(ready, job, None).await
            }
        }
    }

    async fn wait(&self, ready: &Ready, job: Job, progress: Option<Progress>) -> Result<Raw, UpstreamFault> {
        let tool = &ready.tool;
        let name = self.full_name(ready);
        let reading =
            Reading { name: &name, ok_exit: &tool.ok_exit, parse: tool.parse, timeout: job.timeout };
        let start = Instant::now();
        let done = self.runs.wait_for(job, &self.crew, progress).await.ok_or_else(|| self.closed())?;
        self.took(start.elapsed());
        reading.told(&done)
    }

    async fn begin(&self, ready: &Ready, opened: &Opened, job: Job) -> Result<Raw, UpstreamFault> {
        let unavailable = |why: String| UpstreamFault::Unavailable { why, sent: Sent::No };
        let begun = self.runs.begin(opened, job, &self.crew).await;
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
        Ok(tool_result(&envelope))
    }

    fn full_name(&self, ready: &Ready) -> String {
        format!("{}:{}", self.id, ready.tool.name)
    }

    fn closed(&self) -> UpstreamFault {
        UpstreamFault::Unavailable { why: format!("upstream `{}` is closed", self.id), sent: Sent::No }
    }

    fn took(&self, time: Duration) {
        self.recent.took(time);
    }
}

/// Who hears how the command goes: whoever asked to.
fn progress(errand: &Errand<'_>, talk: &Talk) -> Option<Progress> {
    let token = raw::get_in(errand.rest()?, &["_meta", "progressToken"])?;
    talk.relay.clone().map(|relay| Progress::new(relay, token.to_owned()))
}

fn ready(tool: &CommandTool, settings: &Settings<'_>) -> Result<Ready, String> {
    let found = |template: &Template| {
        template.text().ok_or_else(|| format!("`{}` is not resolved", template.shown()))
    };
    let configured: Result<Vec<Variable>, String> = settings
        .env
        .iter()
        .chain(&tool.env)
        .map(|(name, value)| Ok((name.into(), found(value)?.expose().into())))
        .collect();
    let cwd = match tool.cwd.as_ref().or(settings.cwd) {
        Some(cwd) => settings.folder.join(found(cwd)?.expose()),
        None => settings.folder.to_owned(),
    };
    let env = settings.env.iter().chain(&tool.env).map(|(_, value)| value);
    let lines = std::iter::once(&tool.run).chain(&tool.preview).chain(&tool.explain).flatten();
    let words = lines.flat_map(templates);
    Ok(Ready {
        mask: Arc::new(Mask::of(env.chain(words).chain(&tool.stdin))),
        definition: listing::definition(tool),
        env: environment::clean(settings.ambient.iter().cloned(), configured?),
        cwd,
        timeout: tool.timeout.or(settings.timeout),
        tool: tool.clone(),
    })
}

impl Ready {
    fn launch(&self, argv: &Argv, arguments: &str) -> Result<Launch, Refusal> {
        let given = Given::read(&self.tool, arguments)?;
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

    fn tools(&self) -> Later<'_, Result<Vec<Raw>, UpstreamFault>> {
        Box::pin(async { Ok(self.tools.iter().map(|ready| ready.definition.clone()).collect()) })
    }

    fn call<'a>(&'a self, errand: Errand<'a>, talk: Talk) -> Later<'a, Result<Raw, UpstreamFault>> {
        Box::pin(self.run(errand, talk))
    }

    fn explains(&self, tool: &str) -> bool {
        self.named(tool).is_some_and(|ready| ready.tool.explain.is_some())
    }

    fn has_runs(&self) -> bool {
        self.tools.iter().any(|ready| ready.tool.running == Running::Background)
    }

    fn decisive(&self, preview: &str, result: &Value) -> Option<Value> {
        let ready = self.named(preview.strip_suffix(PREVIEW_SUFFIX)?)?;
        look::without(&ready.tool.preview_ignore, result)
    }

    fn health(&self) -> Health {
        Health {
            condition: Condition::Up,
            restarts: 0,
            era: None,
            version: None,
            server_info: None,
            stderr_tail: String::new(),
            recent_us: self.recent.micros(),
        }
    }

    fn close(&self) -> Later<'_, ()> {
        Box::pin(self.crew.close())
    }

    fn retire(&self) -> Later<'_, ()> {
        // A changed word in the configuration is no reason to kill a deployment that runs: whoever takes this upstream's
        // place has the same crew, and closes it.
        Box::pin(async {})
    }
}
