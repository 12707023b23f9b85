//! Runs the preview commands of rules, with the arguments of a call to any upstream. They only read; the call itself goes to its upstream,
//! or nowhere.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use countersign_config::{CommandOutputFormat, PreviewCommand, Template};
use countersign_mcp::fault::DeliveryState;
use countersign_mcp::raw::RawJson;
use countersign_policy::ids::UpstreamId;
use countersign_policy::refusal::Refusal;
use serde_json::Value;

use super::fill::{CheckedArguments, templates};
use super::result::ResultReader;
use crate::runs::{BackgroundRuns, Job, Launch, Mask};
use crate::upstreams::UpstreamFault;
use crate::upstreams::environment::{self, Variable};

/// A preview is shown as a whole: a longer one counts as none.
const LONGEST: usize = 1 << 20;

#[derive(Clone, Debug, Default)]
pub(crate) struct PreviewRunner {
    ambient: Vec<Variable>,
    folder: PathBuf,
}

impl PreviewRunner {
    pub(crate) fn new(ambient: &[Variable], folder: &Path) -> Self {
        Self { ambient: ambient.to_vec(), folder: folder.to_owned() }
    }

    /// Runs the command and returns its output as a tool result.
    pub(crate) async fn look(
        &self,
        command: &PreviewCommand,
        call: (&UpstreamId, &str, &str),
        earlier: Option<&str>,
        runs: &Arc<BackgroundRuns>,
        timeout: Option<Duration>,
    ) -> Result<RawJson, UpstreamFault> {
        let unavailable = |why: String| UpstreamFault::Unavailable { why, sent: DeliveryState::No };
        let (upstream, tool, arguments) = call;
        let launch = self.launch(command, tool, arguments).map_err(|refusal| unavailable(refusal.message))?;
        let launch = launch.with_earlier(earlier);
        let program = launch.program.to_string_lossy().into_owned();
        let env = command.env.iter().map(|(_, value)| value);
        let job = Job {
            launch,
            timeout,
            lock: None,
            ok_exit: command.ok_exit.clone(),
            limit: LONGEST,
            mask: Arc::new(Mask::of(env.chain(command.run.iter().flat_map(templates)))),
        };
        let done = runs.wait_for(job, &runs.command_group(upstream), None).await;
        let done = done.ok_or_else(|| unavailable("the gateway is closing".to_owned()))?;
        if done.out.left_out() + done.err.left_out() > 0 {
            return Err(unavailable(format!("`{program}` wrote more than can be shown")));
        }
        let reading = ResultReader {
            name: &program,
            ok_exit: &command.ok_exit,
            parse: CommandOutputFormat::Text,
            timeout,
        };
        reading.result_of(&done)
    }

    fn launch(&self, command: &PreviewCommand, tool: &str, arguments: &str) -> Result<Launch, Refusal> {
        let mut words =
            CheckedArguments::of_call(tool, &command.run, arguments)?.words(&command.run)?.into_iter();
        let unresolved = |template: &Template| {
            crate::request::invalid(
                tool,
                format!("has a preview with `{}` in it, not looked up", template.shown()),
            )
        };
        let found = |template: &Template| template.text().ok_or_else(|| unresolved(template));
        let mut env: Vec<Variable> = Vec::new();
        for (name, value) in command.env.iter().filter(|(_, value)| !value.is_absent()) {
            env.push((name.into(), found(value)?.expose().into()));
        }
        let cwd = match &command.cwd {
            Some(cwd) => self.folder.join(found(cwd)?.expose()),
            None => self.folder.clone(),
        };
        Ok(Launch {
            program: words.next().unwrap_or_default().into(),
            args: words.map(Into::into).collect(),
            env: environment::clean(self.ambient.iter().cloned(), env),
            cwd,
            stdin: Some(arguments.as_bytes().to_vec()),
        })
    }
}

/// The lines of a preview that decide, without those that contain one of these texts; none if all do.
pub(crate) fn without(ignored: &[String], result: &Value) -> Option<Value> {
    if ignored.is_empty() {
        return None;
    }
    let counts = |line: &&str| !ignored.iter().any(|text| line.contains(text.as_str()));
    let blocks = result.get("content")?.as_array()?.iter();
    let kept = blocks.filter_map(|block| block.get("text")?.as_str());
    Some(kept.map(|text| Value::from_iter(text.lines().filter(counts))).collect())
}
