//! Commands that rules preview by: started beside whatever upstream a call is for, with the call's arguments, to see what it would do.
//! They only look; the call itself goes to its upstream, or nowhere.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use countersign_core::config::{Parse, PreviewCommand, Template};
use countersign_core::ids::UpstreamId;
use countersign_core::refusal::Refusal;
use countersign_wire::fault::Sent;
use countersign_wire::raw::Raw;
use serde_json::Value;

use super::fill::{Given, templates};
use super::result::Reading;
use crate::runs::{Job, Launch, Mask, Runs};
use crate::upstreams::UpstreamFault;
use crate::upstreams::environment::{self, Variable};

/// A preview is shown whole: a command that writes more made none.
const LONGEST: usize = 1 << 20;

/// Where such commands run, and what they get of our environment.
#[derive(Clone, Debug, Default)]
pub struct Looks {
    ambient: Vec<Variable>,
    folder: PathBuf,
}

impl Looks {
    /// Commands of a configuration in this folder.
    pub fn new(ambient: &[Variable], folder: &Path) -> Self {
        Self { ambient: ambient.to_vec(), folder: folder.to_owned() }
    }

    /// What the command shows of a call, as the result of a tool.
    pub(crate) async fn look(
        &self,
        command: &PreviewCommand,
        call: (&UpstreamId, &str, &str),
        runs: &Arc<Runs>,
        timeout: Option<Duration>,
    ) -> Result<Raw, UpstreamFault> {
        let unavailable = |why: String| UpstreamFault::Unavailable { why, sent: Sent::No };
        let (upstream, tool, arguments) = call;
        let launch = self.launch(command, tool, arguments).map_err(|refusal| unavailable(refusal.message))?;
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
        let done = runs.wait_for(job, &runs.crew(upstream), None).await;
        let done = done.ok_or_else(|| unavailable("the gateway is closing".to_owned()))?;
        if done.out.left_out() + done.err.left_out() > 0 {
            return Err(unavailable(format!("`{program}` wrote more than can be shown")));
        }
        let reading = Reading { name: &program, ok_exit: &command.ok_exit, parse: Parse::Text, timeout };
        reading.told(&done)
    }

    fn launch(&self, command: &PreviewCommand, tool: &str, arguments: &str) -> Result<Launch, Refusal> {
        let mut words = Given::of_call(tool, &command.run, arguments)?.words(&command.run)?.into_iter();
        let unresolved = |template: &Template| {
            crate::asked::invalid(
                tool,
                format!("has a preview with `{}` in it, not looked up", template.shown()),
            )
        };
        let found = |template: &Template| template.text().ok_or_else(|| unresolved(template));
        let mut env: Vec<Variable> = Vec::new();
        for (name, value) in &command.env {
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

/// The lines of a preview that decide, without those that hold one of these texts; none where all of them do.
pub(crate) fn without(ignored: &[String], result: &Value) -> Option<Value> {
    if ignored.is_empty() {
        return None;
    }
    let counts = |line: &&str| !ignored.iter().any(|text| line.contains(text.as_str()));
    let blocks = result.get("content")?.as_array()?.iter();
    let kept = blocks.filter_map(|block| block.get("text")?.as_str());
    Some(kept.map(|text| Value::from_iter(text.lines().filter(counts))).collect())
}
