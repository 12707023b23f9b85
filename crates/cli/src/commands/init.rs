//! `countersign init`: what hosts have becomes ours to govern. Finds their servers, shows what each would need and the exact
//! difference of every file, asks, writes; `--undo` takes it back byte for byte.

mod backup;
mod document;
mod http;
mod import;
mod preset;
pub(crate) mod rules;
mod secrets;
mod server_preset;
mod show;
mod tools;

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use countersign_host_config::{
    GatewayEntry, HOSTS, Host, HostEnvironment, HostFile, HostFileError, HostFileScope, HostFileStatus,
    ServerEntry, host_files, with_line_ends,
};
use countersign_policy::mode::Mode;
use countersign_policy::refusal::{Code, NextAction, Refusal};
use serde_json::{Value, json};
use toml_edit::DocumentMut;

use self::backup::{HostFileChange, NotMade, PendingSecret, UndoOutcome};
use self::document::{append, headed, insert, set_mode};
use self::http::{HttpHosts, Revocation};
use self::import::{HostFileContents, HostImport, LimitedUpstream};
use self::preset::Preset;
use self::rules::HostRuleOffer;
use self::secrets::ReferenceResolver;
use self::tools::{Seen, StoredListing};
use crate::cli::Cli;
use crate::command_result::{Answer, CommandError, CommandResult, Refused};
use crate::commands::tools::classify::{self, Proposed};
use crate::config_change::FileMode;
use crate::config_file;
use crate::environment;
use crate::output::{DIM, Format, GOOD, OutputSettings, paint, plural};
use crate::person::ask;

pub(crate) const EXAMPLES: &str = "Examples:
  countersign init --dry-run
  countersign init --host claude-code --yes
  countersign init --permissions --dry-run
  countersign init --permissions --mode execute --yes
  countersign init --http --host claude-code --dry-run
  countersign init --http https://gate.example.com/mcp --yes
  countersign init --project .
  countersign init --classify --yes
  countersign init --list-presets
  countersign init --preset git --dry-run
  countersign init --undo";

const NAME: &str = "countersign.toml";

const LONGEST: u64 = 64 << 20;

/// Links are followed as far as systems follow them.
const LINKS: usize = 40;

#[derive(Args, Debug)]
pub(crate) struct InitArgs {
    /// Only this host; may be given several times, and creates its file where there is none
    #[arg(long, value_parser = host_parser(), value_name = "HOST")]
    host: Vec<Host>,

    /// Only the files of this folder, with the configuration in it
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = ".")]
    project: Option<PathBuf>,

    /// Add a preset of governed commands to the configuration; may be given several times, and leaves hosts alone
    #[arg(long, value_enum, value_name = "NAME", conflicts_with_all = ["host", "project", "no_start", "permissions"])]
    preset: Vec<Preset>,

    /// Write each host's own permission rules as well: it asks nothing where countersign asks
    ///
    /// Where the configuration lets some change pass on the agent's word, hosts go on asking before changes.
    #[arg(long)]
    permissions: bool,

    /// Point hosts at a running gateway, each with a credential of its own; without URL, the configured one
    ///
    /// For `countersign serve --http`. Each host's entry gets the address and an `Authorization` header in the host's own format,
    /// in a file that only you can read; `--undo` revokes the credentials. A project's files are shared, so they get none.
    #[arg(long, value_name = "URL", num_args = 0..=1, default_missing_value = "", conflicts_with_all = ["project", "preset"])]
    http: Option<String>,

    /// With --http: what a person answers in the hosts' own dialogs counts as strength `host`
    ///
    /// Only where the agents in these hosts cannot read the hosts' own files.
    #[arg(long, requires = "http")]
    may_vouch: bool,

    /// Dry run: show what would change, and change nothing
    #[arg(long)]
    dry_run: bool,

    /// Do not ask; needed off a terminal
    #[arg(long, conflicts_with = "dry_run")]
    yes: bool,

    /// The mode sessions begin in: ask, plan or execute; asked at a terminal, else ask
    ///
    /// In execute mode the first change of a session is asked about; in ask mode it is refused until the agent switches.
    #[arg(long, value_name = "MODE")]
    mode: Option<Mode>,

    /// Count the tools as reads that most likely only read; at a terminal you are asked about each server
    ///
    /// Those of high confidence, each as a rule about exactly that definition. Without it they are shown, and
    /// `countersign tools classify` proposes them again.
    #[arg(long, conflicts_with_all = ["no_start", "preset"])]
    classify: bool,

    /// List the presets this program carries
    #[arg(long, conflicts_with_all = ["host", "project", "preset", "permissions", "http", "dry_run", "yes", "mode", "classify", "no_start", "undo"])]
    list_presets: bool,

    /// Do not start the servers to see their tools
    #[arg(long)]
    no_start: bool,

    /// Undo the last change
    #[arg(long, conflicts_with_all = ["dry_run", "host", "project", "no_start", "preset", "permissions", "http", "mode", "classify"])]
    undo: bool,
}

fn host_parser() -> impl TypedValueParser<Value = Host> {
    let values = HOSTS.iter().map(|host| PossibleValue::new(host.name).help(host.title));
    PossibleValuesParser::new(values).try_map(|name| Host::named(&name).ok_or("no such host"))
}

pub(crate) fn run(args: &InitArgs, cli: &Cli, voice: OutputSettings) -> CommandResult {
    if args.undo {
        return undo(voice);
    }
    if args.list_presets {
        return Ok(preset::list(voice));
    }
    if !args.preset.is_empty() {
        let how = match (args.dry_run, args.yes) {
            (true, _) => preset::ApplyMode::Shown,
            (false, true) => preset::ApplyMode::Agreed,
            (false, false) => preset::ApplyMode::Asked,
        };
        return preset::add(&args.preset, how, cli, voice);
    }
    let ground = ground(args)?;
    let (reads, broken) = read_all(args, &ground);
    let config = config_path(args, cli, &ground)?;
    let before = match fs::read_to_string(&config) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(unreadable(&config, &config_file::why(&error))),
    };
    let mut document: DocumentMut =
        before.as_deref().unwrap_or_default().parse().map_err(|error: toml_edit::TomlError| {
            unreadable(&config, error.message().lines().next().unwrap_or_default())
        })?;
    let import = HostImport::gather(&reads, &document, &looker(&ground.home));
    for upstream in &import.upstreams {
        if let Some(table) = &upstream.table {
            insert(&mut document, &upstream.id, table.clone());
        }
        for rule in upstream.preset.iter().flat_map(|preset| preset.rules_for(&upstream.id)) {
            append(&mut document, rule);
        }
    }
    for rule in import.limited.iter().flat_map(LimitedUpstream::rules) {
        append(&mut document, rule);
    }
    if let (Some(mode), Some(_)) = (args.mode, &before) {
        set_mode(&mut document, mode);
    }
    let after = headed(before.as_deref(), &document.to_string(), args.mode.unwrap_or(Mode::Ask));
    let after = with_line_ends(before.as_deref().unwrap_or_default(), &after);
    let checked = check(&config, &after)?;
    let (gateway, who) = (&checked.gateway, rules::who_asks(&checked));
    let mut http = args.http.as_deref().map(|url| HttpHosts::at(url, gateway, args.may_vouch)).transpose()?;
    let mut changes = Vec::new();
    if before.as_deref() != Some(after.as_str()) {
        let (path, after, mode) = (config.clone(), after.clone(), FileMode::Kept);
        changes.push(HostFileChange { path, host: None, before: before.clone(), after, mode });
    }
    let mut pointed = Vec::new();
    for (read, taken) in reads.iter().zip(&import.taken) {
        let text = read.text.as_deref().unwrap_or_default();
        let address = http.as_mut().map(|http| http.entry(&read.place, text)).transpose()?.flatten();
        let mode = if address.is_some() { FileMode::Private } else { FileMode::Kept };
        let command = command_entry(&config, read.place.host);
        let ours = address.as_ref().unwrap_or(&command);
        let rewritten =
            read.place.rewrite(text, taken, ours).map_err(|why| broken_file(&read.place, &why))?;
        if read.text.as_deref() != Some(rewritten.as_str()) {
            let path = real(&read.place.path);
            let host = Some(read.place.host);
            changes.push(HostFileChange { path, host, before: read.text.clone(), after: rewritten, mode });
            pointed.push((read.place.host, read.place.scope));
        }
    }
    pointed.dedup();
    let scope = if args.project.is_some() { HostFileScope::Project } else { HostFileScope::User };
    let offer = HostRuleOffer::plan(&reads, &ground, scope, &changes, who);
    let notes = http.as_ref().map(HttpHosts::notes).unwrap_or_default();
    let shut = show::shut_out(&ground, &pointed);
    let plan = InitPlan {
        args,
        voice,
        import,
        changes,
        broken,
        config,
        before,
        text: after,
        proposals: Vec::new(),
        listings: Vec::new(),
        accepted: Vec::new(),
        pointed,
        http,
        offer: Some(offer),
        notes,
        shut,
    };
    plan.carry_out()
}

struct InitPlan<'a> {
    args: &'a InitArgs,
    voice: OutputSettings,
    import: HostImport,
    changes: Vec<HostFileChange>,
    broken: Vec<(HostFile, HostFileError)>,
    config: PathBuf,
    /// The configuration as it is, if there is one.
    before: Option<String>,
    /// The configuration as it would be.
    text: String,
    /// What the servers listed when they were looked at.
    listings: Vec<StoredListing>,
    /// Tools that most likely only read.
    proposals: Vec<Proposed>,
    /// Those of them that become rules.
    accepted: Vec<Proposed>,
    /// The hosts that lead to us from now on.
    pointed: Vec<(Host, HostFileScope)>,
    /// Those of them that call a running gateway.
    http: Option<HttpHosts>,
    /// Rules that could be written too; none once they are among the changes.
    offer: Option<HostRuleOffer>,
    /// What there is to say about rules, a line each.
    notes: Vec<String>,
    /// Where our entry is not used although it is written, a line each.
    shut: Vec<String>,
}

impl InitPlan<'_> {
    fn carry_out(mut self) -> CommandResult {
        if self.args.permissions {
            self.take_offer();
        }
        let Seen { needs, proposals, listings } = if self.args.no_start || self.import.upstreams.is_empty() {
            Seen::default()
        } else {
            tools::inspect(&self.config, &self.text, &self.import, self.voice)?
        };
        (self.proposals, self.listings) = (proposals, listings);
        let asks = !self.args.yes && !self.args.dry_run && ask::can_ask(self.voice);
        let mut found = self.found(&needs);
        if self.args.classify {
            found.push_str(&classify::tables(&self.proposals, self.voice));
            self.accept(classify::confident(&self.proposals))?;
        } else if !asks && !self.proposals.is_empty() {
            found.push_str(&classify::tables(&self.proposals, self.voice));
            let note = "they most likely only read, and count as writes: --classify accepts those of high confidence";
            found.push_str(&format!("{}\n", paint(DIM, note)));
        }
        if asks && !self.changes.is_empty() {
            self.voice.tell(&found);
            if !self.args.classify {
                self.accept(classify::choose(&self.proposals, self.voice))?;
            }
            self.offer_mode();
            self.offer_rules();
        }
        let shown = self.shown();
        let mut answer = self.answer(&needs);
        let all = format!("{found}{shown}");
        if self.changes.is_empty() {
            let nothing = if self.import.upstreams.is_empty() && self.reads_nothing() {
                "no host was found: name one with --host"
            } else {
                "nothing to change: every host that was found leads to countersign"
            };
            answer.text = format!("{all}{}\n", paint(DIM, nothing));
            return Ok(answer.with("changed", false));
        }
        if self.args.dry_run {
            answer.text = format!("{all}{}\n", paint(DIM, "nothing was changed: this was a dry run"));
            return Ok(answer.with("changed", false));
        }
        if !self.args.yes && !asks {
            let refusal =
                Refusal::new(Code::ConfirmRequired, "nobody can be asked here: this is no terminal")
                    .next(&[NextAction::RetryWithYes]);
            let mut refused = Refused::from(refusal);
            refused.findings = all;
            refused.data = answer.data;
            refused.warnings = answer.warnings;
            refused.next = Some("countersign init --yes".into());
            return Err(refused.into());
        }
        if self.voice.format == Format::Text {
            self.voice.tell(if asks { &shown } else { &all });
        }
        let question = format!("Change {}?", plural(self.changes.len(), "file"));
        if asks && !ask::yes(self.voice, &question) {
            let refusal = Refusal::new(Code::ConfirmRequired, "everything was left as it is");
            return Err(CommandError::refused(refusal, "countersign init, and yes"));
        }
        self.write()?;
        // Without it the first list of a host is shorter, and `list_changed` brings the rest: no reason to fail.
        if let Err(fault) = tools::store_listings(&self.config, &self.listings) {
            tracing::warn!(?fault, "the servers' tools could not be stored");
        }
        answer.text =
            format!("{} {}\n{}", paint(GOOD, "changed"), plural(self.changes.len(), "file"), self.next());
        Ok(answer.with("changed", true))
    }

    /// Accepted reads become rules of the configuration, in the same difference.
    fn accept(&mut self, accepted: Vec<Proposed>) -> Result<(), CommandError> {
        if accepted.is_empty() {
            return Ok(());
        }
        let mut document: DocumentMut = self
            .text
            .parse()
            .map_err(|error: toml_edit::TomlError| unreadable(&self.config, error.message()))?;
        classify::add_rules(&mut document, &accepted);
        self.text = with_line_ends(&self.text, &document.to_string());
        check(&self.config, &self.text)?;
        self.accepted = accepted;
        match self.changes.iter_mut().find(|change| change.path == self.config) {
            Some(change) => change.after.clone_from(&self.text),
            None => {
                let (path, before, after) = (self.config.clone(), self.before.clone(), self.text.clone());
                self.changes
                    .insert(0, HostFileChange { path, host: None, before, after, mode: FileMode::Kept });
            }
        }
        Ok(())
    }

    /// Asks, unless the command line said it.
    fn offer_rules(&mut self) {
        let titles = self.offer.as_ref().map(HostRuleOffer::titles).unwrap_or_default();
        let question = format!(
            "Write the rules of {titles} as well, so that you are asked once for a change, by countersign?"
        );
        if !titles.is_empty() && ask::yes(self.voice, &question) {
            self.take_offer();
        }
    }

    /// A new configuration says in which mode sessions begin.
    fn offer_mode(&mut self) {
        let new =
            self.changes.iter_mut().find(|change| change.path == self.config && change.before.is_none());
        let Some(new) = new.filter(|_| self.args.mode.is_none()) else { return };
        let question =
            "Begin sessions in execute mode, so that the first change is asked about instead of refused?";
        if ask::yes(self.voice, question) {
            new.after = new.after.replacen("mode = \"ask\"", "mode = \"execute\"", 1);
            self.text.clone_from(&new.after);
        }
    }

    fn take_offer(&mut self) {
        if let Some(offer) = self.offer.take() {
            self.notes.extend(offer.take(&mut self.changes, &mut self.broken));
        }
    }

    fn reads_nothing(&self) -> bool {
        self.import.taken.is_empty()
    }

    fn write(&self) -> Result<(), CommandError> {
        let home = home_folder()?;
        let new = self.import.secrets.iter().filter(|(name, _)| config_file::keyring_secret(name).is_none());
        let secrets: Vec<PendingSecret<'_>> = new
            .map(|(name, secret)| PendingSecret { path: home.join("keyring").join(name), secret })
            .collect();
        let stamp = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%S%.6fZ").to_string();
        let folder = home.join("backups").join(stamp);
        let credentials = self.http.as_ref().map_or(Value::Null, |http| http.list(&self.config));
        backup::apply(&folder, &self.changes, &secrets, &credentials).map_err(|why| match why {
            NotMade::Drifted(path) => {
                let message =
                    format!("`{}` was changed since it was read: nothing was changed", path.display());
                CommandError::refused(Refusal::new(Code::ApplyDrifted, message), "countersign init")
            }
            NotMade::Unwritable(path, error) => {
                let why = config_file::why(&error);
                CommandError::Output(format!("can't write `{}`: {why}; nothing was changed", path.display()))
            }
            NotMade::Half(path, error) => {
                let why = config_file::why(&error);
                CommandError::Output(format!(
                    "can't write `{}`, nor take everything back: {why}; countersign init --undo tries again",
                    path.display()
                ))
            }
        })?;
        let added = self.http.as_ref().map_or(Ok(()), |http| http.add(&self.config, self.voice));
        if added.is_err() && backup::undo(&folder).is_err() {
            self.voice
                .tell("what was written could not be taken back; countersign init --undo tries again\n");
        }
        added
    }
}

fn undo(voice: OutputSettings) -> CommandResult {
    let backups = home_folder()?.join("backups");
    let Some(folder) = backup::newest(&backups) else {
        let refusal = Refusal::new(Code::NotFound, "there is no change of `init` to take back");
        return Err(CommandError::refused(refusal, "countersign init --dry-run"));
    };
    let not_undone = |error: std::io::Error| {
        let message = format!("the change can't be taken back: {}", config_file::why(&error));
        CommandError::refused(
            Refusal::new(Code::ConfigInvalid, message),
            format!("the files are in {}", folder.display()),
        )
    };
    let revocation = Revocation::read(&backup::list(&folder).map_err(not_undone)?);
    let fates = backup::undo(&folder).map_err(not_undone)?;
    let mut text: String =
        fates.iter().map(|(path, fate)| format!("{}: {}\n", path.display(), fate.words())).collect();
    let files: Vec<Value> =
        fates.iter().map(|(path, fate)| json!({"path": path, "fate": fate.words()})).collect();
    if fates.iter().any(|(_, fate)| *fate == UndoOutcome::Changed) {
        let message = "a file was changed since: it was left alone";
        let mut refused = Refused::from(Refusal::new(Code::ApplyDrifted, message).with("files", files));
        refused.findings = text;
        refused.next = Some(format!("compare it with what is kept in {}", folder.display()));
        return Err(refused.into());
    }
    // A host that still has its credential keeps it: without it, it would be worse off than before.
    let (revoked, left) = match revocation.carry_out(voice) {
        Ok(revoked) => (revoked, Vec::new()),
        Err(left) => (Vec::new(), left),
    };
    text.extend(revoked.iter().map(|line| format!("{line}\n")));
    let mut answer = Answer::text(text).with("files", files).with("revoked", revoked);
    answer.warnings.extend(left.iter().map(|command| format!("a credential is still there: {command}")));
    Ok(answer)
}

fn ground(args: &InitArgs) -> Result<HostEnvironment, CommandError> {
    let none =
        || CommandError::refused(Refusal::new(Code::ConfigInvalid, "there is no home folder"), "set HOME");
    let project = args.project.clone().unwrap_or_else(|| PathBuf::from("."));
    let project =
        fs::canonicalize(&project).map_err(|error| unreadable(&project, &config_file::why(&error)))?;
    environment::hosts(project).ok_or_else(none)
}

fn looker(home: &Path) -> ReferenceResolver<'_> {
    ReferenceResolver {
        home,
        project: None,
        variable: &environment::variable,
        kept: &config_file::keyring_secret,
    }
}

/// Which servers of a file would stay there, by their names, and why.
pub(crate) fn servers_kept_in_host(
    place: &HostFile,
    entries: &[ServerEntry],
    home: &Path,
) -> Vec<(String, String)> {
    let read = HostFileContents { place: place.clone(), text: None, entries: entries.to_vec() };
    let import = HostImport::gather(&[read], &DocumentMut::new(), &looker(home));
    import.left.into_iter().map(|left| (left.name, left.why)).collect()
}

/// Every file that is there, or was named by its host; those that can't be understood apart.
fn read_all(
    args: &InitArgs,
    ground: &HostEnvironment,
) -> (Vec<HostFileContents>, Vec<(HostFile, HostFileError)>) {
    let (mut reads, mut broken) = (Vec::new(), Vec::new());
    for place in host_files(ground) {
        if !args.host.is_empty() && !args.host.contains(&place.host) {
            continue;
        }
        if args.project.is_some() && place.scope == HostFileScope::User {
            continue;
        }
        let wanted = args.project.is_some() || place.scope == HostFileScope::User;
        let text = match config_file::read_text(&place.path, LONGEST) {
            Ok(text) => Some(text),
            Err(_) if !place.path.exists() => None,
            Err(why) => {
                broken.push((place, HostFileError { line: 1, reason: why }));
                continue;
            }
        };
        let makes = wanted && place.status == HostFileStatus::Primary && args.host.contains(&place.host);
        if text.is_none() && !makes {
            continue;
        }
        match place.read(text.as_deref().unwrap_or_default(), &ground.project) {
            // A file that is there for something else is none of ours.
            Ok(entries) if entries.is_empty() && place.status == HostFileStatus::Secondary => {}
            Ok(entries) => reads.push(HostFileContents { place, text, entries }),
            Err(why) => broken.push((place, why)),
        }
    }
    (reads, broken)
}

fn config_path(args: &InitArgs, cli: &Cli, ground: &HostEnvironment) -> Result<PathBuf, CommandError> {
    if let Some(path) = cli.config.first() {
        return Ok(std::path::absolute(path).unwrap_or_else(|_| path.clone()));
    }
    if args.project.is_some() {
        return Ok(ground.project.join(NAME));
    }
    if let Some(path) = environment::path("COUNTERSIGN_CONFIG") {
        return Ok(path);
    }
    Ok(home_folder()?.join(NAME))
}

/// Our own folder in the platform's folder for configuration.
pub(crate) fn home_folder() -> Result<PathBuf, CommandError> {
    environment::config_folder().map(|folder| folder.join("countersign")).ok_or_else(|| {
        CommandError::refused(Refusal::new(Code::ConfigInvalid, "there is no home folder"), "set HOME")
    })
}

/// How hosts start us: by name where the name leads here, else by path.
fn command_entry(config: &Path, host: Host) -> GatewayEntry {
    let exe =
        std::env::current_exe().and_then(fs::canonicalize).unwrap_or_else(|_| PathBuf::from("countersign"));
    let on_path = environment::path("PATH").is_some_and(|path| {
        let found =
            std::env::split_paths(&path).map(|folder| folder.join("countersign")).find(|one| one.is_file());
        found.and_then(|found| fs::canonicalize(found).ok()) == Some(exe.clone())
    });
    let command = if on_path { "countersign".to_owned() } else { exe.display().to_string() };
    let (name, config) = (host.name, config.display().to_string());
    let mut args = ["serve", "--host", name].map(str::to_owned).to_vec();
    let mut env = Vec::new();
    if !host.passes_config_flag {
        env.push(("COUNTERSIGN_CONFIG".to_owned(), config));
    } else {
        args.extend(["--config".to_owned(), config]);
    }
    GatewayEntry::Command { command, args, env }
}

fn check(path: &Path, text: &str) -> Result<countersign_config::Config, CommandError> {
    let files = config_file::ConfigFiles {
        sources: vec![countersign_config::Source::new(path.display().to_string(), text)],
        folder: PathBuf::new(),
    };
    files.parse()
}

/// Where a link leads: the file is changed there, and the link stays.
fn real(path: &Path) -> PathBuf {
    let mut here = path.to_owned();
    // A link may lead to a file that is not there yet.
    for _ in 0..LINKS {
        match (fs::canonicalize(&here), fs::read_link(&here)) {
            (Ok(real), _) => return real,
            (Err(_), Ok(next)) => here = here.parent().unwrap_or(Path::new("")).join(next),
            (Err(_), Err(_)) => return here,
        }
    }
    here
}

fn unreadable(path: &Path, why: &str) -> CommandError {
    let message = format!("can't use `{}`: {why}", path.display());
    let refusal = Refusal::new(Code::ConfigInvalid, message).because("config_unreadable");
    CommandError::refused(refusal, "mend it, or name another: --config PATH")
}

fn broken_file(place: &HostFile, why: &HostFileError) -> CommandError {
    let message = format!("`{}` line {}: {}", place.path.display(), why.line, why.reason);
    CommandError::refused(Refusal::new(Code::ConfigInvalid, message), "mend it; nothing was changed")
}
