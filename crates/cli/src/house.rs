//! A house for one command: the store that is meant, and where needed the upstreams behind it, opened, used and closed
//! again in this process. Serves nobody else.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use countersign_core::config::Config;
use countersign_core::refusal::{Code, Refusal};
use countersign_gateway::assemble::{self, Surroundings, assemble};
use countersign_gateway::house::House;
use countersign_gateway::upstreams::mcp::signin::{Keys, Known};
use countersign_store::{ConnectOptions, Store, StoreUrl};
use countersign_wire::upstream::HttpSpec;

use crate::answer::{Refused, Trouble};
use crate::cli::Cli;
use crate::config_file::{self, ConfigFiles};
use crate::natives::Own;
use crate::output::{Progress, Voice};
use crate::{environment, records};

/// Which store a command works on.
#[derive(Args, Debug)]
pub(crate) struct Of {
    /// The store: sqlite:PATH or postgres://…
    ///
    /// Without it, `gateway.store` of the configuration, where a relative path starts at the configuration's folder; without
    /// a configuration, sqlite:countersign.db in the current folder.
    #[arg(long, global = true, value_name = "URL")]
    store: Option<StoreUrl>,
}

impl Of {
    /// The store that is meant.
    pub(crate) fn url(&self, cli: &Cli) -> Result<StoreUrl, Trouble> {
        records::locate(self.store.as_ref(), cli)
    }
}

/// Opens a store, makes it where there is none, and works on it.
pub(crate) fn with_store<T, W>(url: &StoreUrl, work: impl FnOnce(Store) -> W) -> Result<T, Trouble>
where
    W: Future<Output = Result<T, Trouble>>,
{
    runtime()?.block_on(async {
        let options = ConnectOptions { readers: 1, ..records::options(url) };
        let store = Store::connect(url, options).await.map_err(|fault| records::trouble(&fault, url))?;
        work(store).await
    })
}

/// A configuration with its secrets resolved, and what surrounds it.
pub(crate) struct Blueprint {
    /// The configuration.
    pub(crate) config: Config,
    /// The store.
    pub(crate) url: StoreUrl,
    /// Where it was read from.
    pub(crate) files: ConfigFiles,
    around: Surroundings,
}

impl Blueprint {
    /// Reads the configuration the command line leads to.
    pub(crate) fn read(cli: &Cli) -> Result<Self, Trouble> {
        let files = config_file::require(&cli.config)?;
        let settled = files.parse()?.settle(&|reference| files.look_up(reference));
        let config = settled.map_err(|found| files.invalid(&found))?;
        Ok(Self::of(config, records::locate(None, cli)?, files))
    }

    /// A house for a configuration that is at hand.
    pub(crate) fn of(config: Config, url: StoreUrl, files: ConfigFiles) -> Self {
        let around = Surroundings {
            ambient: environment::all(),
            folder: absolute(&files.folder),
            natives: Some(Arc::new(Own)),
            keys: keys(),
            ..Surroundings::default()
        };
        Self { config, url, files, around }
    }

    /// What signing in to an upstream needs.
    pub(crate) fn sign_in(&self, name: &str) -> Result<(HttpSpec, Known), Trouble> {
        let known: Vec<String> = self.config.upstreams.iter().map(|one| one.id.to_string()).collect();
        let written = self.config.upstreams.iter().find(|one| one.id.as_str() == name);
        let written = written.ok_or_else(|| crate::commands::upstreams::unknown(name, &known))?;
        assemble::sign_in(written, &self.around).map_err(|cannot| {
            let next = format!("look at [upstreams.{name}] in {}", self.files.names().join(" and "));
            Trouble::refused(Refusal::new(Code::ConfigInvalid, cannot.to_string()), next)
        })
    }

    /// Opens the house, waits for the upstreams' lists, works in it, and closes it: no child is left behind.
    pub(crate) fn inhabit<T, W>(&self, voice: Voice, work: impl FnOnce(Arc<House>) -> W) -> Result<T, Trouble>
    where
        W: Future<Output = Result<T, Trouble>>,
    {
        runtime()?.block_on(async {
            let url = &self.url;
            let fault = |fault| records::trouble(&fault, url);
            let store = Store::connect(url, records::options(url)).await.map_err(fault)?;
            let assembled = assemble(&self.config, store.clone(), self.around.clone());
            let (house, _keeper, _assembly) = assembled.map_err(|cannot| {
                let refusal = Refusal::new(Code::ConfigInvalid, cannot.to_string());
                Trouble::refused(refusal, "countersign policy check")
            })?;
            Progress::begin(voice, "waiting for upstreams").during(house.settled()).await;
            let done = work(Arc::clone(&house)).await;
            // A run that was begun here lives as long as this process: ending now would stop it half way.
            if let Some(runs) = house.runs() {
                Progress::begin(voice, "waiting for the run to end").during(runs.ended()).await;
            }
            let upstreams = house.upstreams.load_full();
            for upstream in upstreams.values() {
                upstream.close().await;
            }
            if let Some(runs) = house.runs() {
                runs.close().await;
            }
            store.flush().await.map_err(fault)?;
            done
        })
    }
}

/// Where this person's tokens for upstreams are kept.
pub(crate) fn keys() -> Option<Arc<Keys>> {
    environment::config_folder().map(|folder| Keys::at(folder.join("countersign").join("oauth.json")))
}

pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Trouble> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(|error| {
        let refusal = Refusal::new(Code::StoreUnavailable, "the runtime can't be started");
        Refused { inside: Some(error.to_string()), ..refusal.into() }.into()
    })
}

fn absolute(folder: &Path) -> PathBuf {
    // An empty path means here, and only `.` can be made absolute.
    let here = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    std::path::absolute(here).unwrap_or_else(|_| here.to_owned())
}
