//! A gateway for one command: opens the store and, where needed, the upstreams, and closes them again. Serves no other process.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use countersign_config::{Config, Upstream};
use countersign_gateway::assemble::{self, GatewayEnvironment, assemble};
use countersign_gateway::state::GatewayState;
use countersign_gateway::upstreams::mcp::signin::{OauthClientSettings, TokenFile};
use countersign_mcp::client::HttpSpec;
use countersign_policy::refusal::{Code, Refusal};
use countersign_store::{Store, StoreUrl};

use crate::cli::Cli;
use crate::command_result::CommandError;
use crate::config_file::{self, ConfigFiles};
use crate::natives::BundledUpstreams;
use crate::output::{OutputSettings, Progress};
pub(crate) use crate::records::{StoreArgs, with_store};
use crate::runtime::{Threads, runtime};
use crate::{environment, records};

/// A configuration with its secrets resolved, and what surrounds it.
pub(crate) struct ResolvedConfig {
    pub(crate) config: Config,
    pub(crate) url: StoreUrl,
    pub(crate) files: ConfigFiles,
    around: GatewayEnvironment,
}

impl ResolvedConfig {
    /// Reads the configuration the command line leads to.
    pub(crate) fn read(cli: &Cli) -> Result<Self, CommandError> {
        let files = config_file::require(&cli.config)?;
        let settled = files.parse()?.settle(&|reference| files.look_up(reference));
        let config = settled.map_err(|found| files.invalid(&found))?;
        Ok(Self::new(config, records::locate(None, cli)?, files))
    }

    /// A gateway for a configuration that was read already.
    pub(crate) fn new(config: Config, url: StoreUrl, files: ConfigFiles) -> Self {
        let around = GatewayEnvironment {
            ambient: environment::all(),
            folder: absolute(&files.folder),
            natives: Some(Arc::new(BundledUpstreams)),
            keys: keys(),
            // Most hosts have roots, and some upstreams list more tools then. Those would be withheld as new later.
            expects_roots: true,
            ..GatewayEnvironment::default()
        };
        Self { config, url, files, around }
    }

    /// The same with some of the upstreams only.
    pub(crate) fn only(&self, keep: impl Fn(&Upstream) -> bool) -> Self {
        let mut config = self.config.clone();
        config.upstreams.retain(keep);
        Self { config, url: self.url.clone(), files: self.files.clone(), around: self.around.clone() }
    }

    /// The same without roots, for a command that is itself the client.
    pub(crate) fn without_roots(mut self) -> Self {
        self.around.expects_roots = false;
        self
    }

    /// The upstream of this name; a refusal that suggests one where there is none.
    pub(crate) fn require_upstream(&self, name: &str) -> Result<&Upstream, CommandError> {
        let known = || self.config.upstreams.iter().map(|one| one.id.to_string()).collect::<Vec<_>>();
        let written = self.config.upstreams.iter().find(|one| one.id.as_str() == name);
        written.ok_or_else(|| crate::commands::upstreams::unknown(name, &known()))
    }

    /// What signing in to an upstream needs.
    pub(crate) fn sign_in(&self, name: &str) -> Result<(HttpSpec, OauthClientSettings), CommandError> {
        let written = self.require_upstream(name)?;
        assemble::sign_in(written, &self.around).map_err(|cannot| {
            let next = format!("look at [upstreams.{name}] in {}", self.files.names().join(" and "));
            CommandError::refused(Refusal::new(Code::ConfigInvalid, cannot.to_string()), next)
        })
    }

    /// Opens the gateway, waits for the upstreams' lists, does the work, and closes it: no child process is left behind.
    pub(crate) fn with_gateway<T, W>(
        &self,
        voice: OutputSettings,
        work: impl FnOnce(Arc<GatewayState>) -> W,
    ) -> Result<T, CommandError>
    where
        W: Future<Output = Result<T, CommandError>>,
    {
        self.with_starting_gateway(voice, async |gateway| {
            Progress::begin(voice, "waiting for upstreams").during(gateway.settled()).await;
            work(gateway).await
        })
    }

    /// The same without waiting: the work says which upstreams it waits for, and how long.
    pub(crate) fn with_starting_gateway<T, W>(
        &self,
        voice: OutputSettings,
        work: impl FnOnce(Arc<GatewayState>) -> W,
    ) -> Result<T, CommandError>
    where
        W: Future<Output = Result<T, CommandError>>,
    {
        runtime(Threads::Workers(2))?.block_on(async {
            let url = &self.url;
            let fault = |fault| records::trouble(&fault, url);
            let store = Store::connect(url, records::options(url)).await.map_err(fault)?;
            let assembled = assemble(&self.config, store.clone(), self.around.clone());
            let (gateway, _keeper, _assembly) = assembled.map_err(|cannot| {
                let refusal = Refusal::new(Code::ConfigInvalid, cannot.to_string());
                CommandError::refused(refusal, "countersign policy check")
            })?;
            let done = work(Arc::clone(&gateway)).await;
            // A run that was begun here lives as long as this process: ending now would stop it half way.
            if let Some(runs) = gateway.runs() {
                Progress::begin(voice, "waiting for the run to end").during(runs.ended()).await;
            }
            let upstreams = gateway.upstreams.load_full();
            // One that hangs must not make the others wait.
            let closing: Vec<_> = upstreams
                .values()
                .map(|upstream| {
                    let upstream = Arc::clone(upstream);
                    tokio::spawn(async move { upstream.close().await })
                })
                .collect();
            for one in closing {
                // A task that panicked has nothing left to close.
                let _ = one.await;
            }
            if let Some(runs) = gateway.runs() {
                runs.close().await;
            }
            store.flush().await.map_err(fault)?;
            done
        })
    }
}

/// Where this person's tokens for upstreams are kept.
pub(crate) fn keys() -> Option<Arc<TokenFile>> {
    environment::config_folder().map(|folder| TokenFile::at(folder.join("countersign").join("oauth.json")))
}

fn absolute(folder: &Path) -> PathBuf {
    // An empty path means here, and only `.` can be made absolute.
    let here = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    std::path::absolute(here).unwrap_or_else(|_| here.to_owned())
}
