//! The store a command works on: where it is, whether there is one, and a short life with it.
//! Reading commands never make a store; they say that there is none.

use std::fs;
use std::future::Future;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use countersign_config::Config;
use countersign_policy::digest::Digest;
use countersign_policy::ids::Secret;
use countersign_policy::refusal::{Code, Refusal};
use countersign_store::ledger::{CheckpointFile, CheckpointSink};
use countersign_store::{ConnectOptions, FaultKind, Store, StoreFault, StoreUrl};
use jiff::Timestamp;

use crate::command_result::{CommandError, Refused};
use crate::config_file::{self, ConfigFiles};
use crate::environment;
use crate::global_args::GlobalArgs;
use crate::output::shell_word;
use crate::runtime::{Threads, runtime};

pub const DEFAULT: &str = "sqlite:countersign.db";

#[derive(Args, Debug)]
pub struct StoreArgs {
    /// The store: sqlite:PATH or postgres://…
    ///
    /// Without it, `gateway.store` of the configuration, where a relative path starts at the configuration's folder; without
    /// a configuration, sqlite:countersign.db in the current folder.
    #[arg(long, global = true, value_name = "URL")]
    store: Option<StoreUrl>,
}

impl StoreArgs {
    pub fn url(&self, cli: &GlobalArgs) -> Result<StoreUrl, CommandError> {
        locate(self.store.as_ref(), cli)
    }
}

/// What the first bytes of every SQLite file say.
const SQLITE_HEAD: &[u8] = b"SQLite format 3\0";

/// The store that is meant: the one named, else the configuration's, else the default. A relative path starts at the
/// configuration's folder, one named on the command line where the command is typed.
pub fn locate(named: Option<&StoreUrl>, cli: &GlobalArgs) -> Result<StoreUrl, CommandError> {
    if let Some(named) = named {
        return Ok(named.clone());
    }
    let Some(files) = config_file::find(&cli.config)? else {
        return parse(DEFAULT);
    };
    configured(&files).map_err(|trouble| name_it(trouble, &files))
}

pub fn configured(files: &ConfigFiles) -> Result<StoreUrl, CommandError> {
    // Only the store's address is needed: a secret of an upstream that is not set here is no reason to stop.
    let config = Config { upstreams: Vec::new(), ..files.parse()? };
    let settled =
        config.settle(&|reference| files.look_up(reference)).map_err(|found| files.invalid(&found))?;
    let text = settled.gateway.store.text().unwrap_or_else(|| Secret::new(DEFAULT));
    Ok(match parse(text.expose())? {
        StoreUrl::Sqlite(path) => StoreUrl::file(files.folder.join(path)),
        other @ (StoreUrl::Memory | StoreUrl::Postgres(_)) => other,
    })
}

/// Adds what to type: a configuration with a mistake does not reliably name the store, and another store would prove nothing, so the
/// person has to name it.
fn name_it(mut trouble: CommandError, files: &ConfigFiles) -> CommandError {
    if let CommandError::Refused(refused) = &mut trouble {
        let words: Vec<String> = environment::arguments().iter().map(|word| shell_word(word)).collect();
        let store = likely(files).map_or_else(|| "URL".to_owned(), |url| shell_word(&url.to_string()));
        let read = format!("to read records anyway: countersign {} --store {store}", words.join(" "));
        refused.next =
            Some([refused.next.take(), Some(read)].into_iter().flatten().collect::<Vec<_>>().join("; "));
    }
    trouble
}

/// Where the records probably are: what `gateway.store` says as far as it can be made out, else the default's file where there is one.
fn likely(files: &ConfigFiles) -> Option<StoreUrl> {
    match files.sources.iter().rev().find_map(|source| written(&source.text)) {
        Some(text) => match text.parse().ok()? {
            StoreUrl::Sqlite(path) => Some(StoreUrl::file(files.folder.join(path))),
            // An address may hold a secret, and memory holds no records.
            StoreUrl::Postgres(_) | StoreUrl::Memory => None,
        },
        None => {
            let file = files.folder.join("countersign.db");
            is_sqlite(&file).then(|| StoreUrl::file(file))
        }
    }
}

/// The value of `gateway.store` in a text that may not even be TOML.
fn written(text: &str) -> Option<&str> {
    let mut table = "";
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            table = line;
        }
        let value = line.strip_prefix("store").and_then(|rest| rest.trim_start().strip_prefix('='));
        if let Some(value) = value.filter(|_| table.starts_with("[gateway]")) {
            let value = value.trim_start();
            let quote = value.chars().next().filter(|first| ['"', '\''].contains(first))?;
            return value.get(1..)?.split(quote).next();
        }
    }
    None
}

fn parse(text: &str) -> Result<StoreUrl, CommandError> {
    text.parse().map_err(|why: countersign_store::NotAStoreUrl| {
        let refusal = Refusal::new(Code::ConfigInvalid, format!("`gateway.store`: {why}"));
        CommandError::refused(refusal, format!("write store = \"{DEFAULT}\""))
    })
}

/// How a store is opened to write. Its checkpoints are also kept in a file outside of it.
pub fn options(url: &StoreUrl) -> ConnectOptions {
    let mut options = reading(url);
    if let Some(folder) = options.key_file.as_deref().and_then(Path::parent) {
        // A folder that can't be made leaves the store without a key, and opening it says so.
        let _ = fs::create_dir_all(folder);
    }
    let outside = outside_file(url).map(|file| Arc::new(file) as Arc<dyn CheckpointSink>);
    options.sinks.extend(outside);
    options
}

/// How a store is opened to read. Beside a SQLite file lies its signing key; for PostgreSQL this machine's keys lie with our
/// configuration, so that checkpoints are signed there as well.
pub fn reading(url: &StoreUrl) -> ConnectOptions {
    let folder = match url {
        StoreUrl::Postgres(_) => environment::config_folder().map(|folder| folder.join("countersign")),
        StoreUrl::Sqlite(_) | StoreUrl::Memory => None,
    };
    ConnectOptions {
        key_file: folder.as_ref().map(|folder| folder.join("ledger.key")),
        seal_file: folder.map(|folder| folder.join("store.seal")),
        ..ConnectOptions::default()
    }
}

/// The file outside a store in which its checkpoints are kept.
pub fn outside_file(url: &StoreUrl) -> Option<CheckpointFile> {
    let folder = environment::state_folder()?.join("countersign").join("checkpoints");
    CheckpointFile::usual(&folder, url)
}

/// A new file for rows that are removed: beside a SQLite file, and in our state folder for PostgreSQL.
pub fn archive_path(url: &StoreUrl, now: Timestamp) -> Result<PathBuf, CommandError> {
    let none =
        || CommandError::Output("there is no folder for an archive: name a file with --out".to_owned());
    let (folder, stem) = match url {
        StoreUrl::Sqlite(path) => {
            let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            (path.parent().unwrap_or(Path::new(".")).to_owned(), stem)
        }
        StoreUrl::Postgres(_) => {
            let folder = environment::state_folder().ok_or_else(none)?.join("countersign");
            // Several stores may share the folder.
            let place = Digest::plain(url.to_string().as_bytes()).hex();
            (folder, format!("postgres-{}", place.get(..16).unwrap_or(&place)))
        }
        StoreUrl::Memory => return Err(none()),
    };
    let moment = now.strftime("%Y%m%dT%H%M%S%6fZ");
    Ok(folder.join("ledger-archive").join(format!("{stem}-{moment}.jsonl")))
}

/// How long rows are kept, as the configuration says; none for ever.
pub fn keep(cli: &GlobalArgs) -> Result<Option<Duration>, CommandError> {
    let files = config_file::find(&cli.config)?;
    files.map_or(Ok(None), |files| Ok(files.parse()?.ledger.keep))
}

/// Opens a store that is already there and works on it.
pub fn with<T, W>(url: &StoreUrl, work: impl FnOnce(Store) -> W) -> Result<T, CommandError>
where
    W: Future<Output = Result<T, CommandError>>,
{
    require(url)?;
    run(async {
        let options = ConnectOptions { readers: 1, ..options(url) };
        let store = Store::connect(url, options).await.map_err(|fault| trouble(&fault, url))?;
        work(store).await
    })
}

/// Opens a store, makes it where there is none, and works on it.
pub fn with_store<T, W>(url: &StoreUrl, work: impl FnOnce(Store) -> W) -> Result<T, CommandError>
where
    W: Future<Output = Result<T, CommandError>>,
{
    runtime(Threads::Workers(2))?.block_on(async {
        let options = ConnectOptions { readers: 1, ..options(url) };
        let store = Store::connect(url, options).await.map_err(|fault| trouble(&fault, url))?;
        work(store).await
    })
}

/// Opens a store that is already there and looks at it: a copy that can't be written will do, and nothing is left beside it.
pub fn with_read_only<T, W>(url: &StoreUrl, work: impl FnOnce(Store) -> W) -> Result<T, CommandError>
where
    W: Future<Output = Result<T, CommandError>>,
{
    require(url)?;
    run(async {
        let options = ConnectOptions { readers: 1, ..reading(url) };
        let store = Store::connect_to_read(url, options).await.map_err(|fault| trouble(&fault, url))?;
        work(store).await
    })
}

fn run<T>(work: impl Future<Output = Result<T, CommandError>>) -> Result<T, CommandError> {
    runtime(Threads::Current)?.block_on(work)
}

/// A refusal where there is no store yet.
pub fn require(url: &StoreUrl) -> Result<(), CommandError> {
    let none = |message: String| {
        let next = "name the store that is meant: --store sqlite:PATH, or --config PATH";
        Err(CommandError::refused(Refusal::new(Code::NotFound, message), next))
    };
    match url {
        StoreUrl::Sqlite(path) if !path.exists() => {
            none(format!("there is no ledger at `{url}`: nothing was recorded there yet"))
        }
        StoreUrl::Sqlite(path) if !is_sqlite(path) => {
            none(format!("`{}` is not a store of ours", path.display()))
        }
        StoreUrl::Memory => none("a store in memory is gone with its process".to_owned()),
        StoreUrl::Sqlite(_) | StoreUrl::Postgres(_) => Ok(()),
    }
}

/// Whether it may be a database; what can't be read may be one, and opening it says more.
fn is_sqlite(path: &Path) -> bool {
    let mut head = [0; SQLITE_HEAD.len()];
    match fs::File::open(path).and_then(|mut file| file.read_exact(&mut head)) {
        Ok(()) => head == SQLITE_HEAD,
        Err(error) => error.kind() == std::io::ErrorKind::PermissionDenied,
    }
}

pub fn trouble(fault: &StoreFault, url: &StoreUrl) -> CommandError {
    let next = match fault.kind() {
        FaultKind::OlderSchema => {
            "start the gateway of this version once, which brings it up to date, or read it with the version that wrote it"
                .to_owned()
        }
        FaultKind::NewerSchema => "read it with the version that wrote it".to_owned(),
        FaultKind::Empty => "name the store that is meant: --store URL, or --config PATH".to_owned(),
        // The file and its problem are shown to the person who runs the command, not to agents.
        FaultKind::Key => format!("{}; back it up with the store", fault.reason()),
        FaultKind::Untrusted => format!(
            "{}; name its authority with sslrootcert=FILE in the store's address, or ask for less with sslmode",
            fault.reason()
        ),
        FaultKind::Unavailable
        | FaultKind::Full
        | FaultKind::ReadOnly
        | FaultKind::Corrupt
        | FaultKind::Clock
        | FaultKind::Invalid => {
            format!("look at {url}: space, permissions, reachability; --verbose says more")
        }
    };
    Refused { inside: Some(fault.inside()), next: Some(next), ..fault.refusal().into() }.into()
}
