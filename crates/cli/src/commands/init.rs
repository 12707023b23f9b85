//! `countersign init`: what hosts have becomes ours to govern. Finds their servers, shows what each would need and the exact
//! difference of every file, asks, writes; `--undo` takes it back byte for byte.

mod backup;
mod document;
mod http;
mod import;
mod preset;
mod questions;
pub(crate) mod rules;
mod secrets;
mod server_environment;
mod server_preset;
mod service;
mod show;
mod start_display;
mod tools;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use countersign_host_config::{
    GatewayEntry, HOSTS, Host, HostEnvironment, HostFile, HostFileError, HostFileScope, HostFileStatus,
    ServerEntry, host_files, with_line_ends,
};
use countersign_policy::mode::Mode;
use countersign_policy::profile::ConfirmProfile;
use countersign_policy::refusal::{Code, NextAction, Refusal};
use serde_json::{Value, json};
use toml_edit::DocumentMut;

use self::backup::{BesidesFiles, HostFileChange, NotMade, PendingSecret, UndoOutcome};
use self::document::{headed, set_word};
use self::http::{HttpHosts, Revocation};
use self::import::{FolderLimits, GatewayReach, HostFileContents, HostImport, ImportTerms, ServerSharing};
use self::preset::Preset;
use self::questions::SetupChoices;
use self::rules::HostRuleOffer;
use self::secrets::ReferenceResolver;
use self::server_environment::common_variables;
use self::service::ServiceRunner;
use self::tools::{Seen, StoredListing, ToolRequirements};
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
  countersign init --profile team --mode ask --yes
  countersign init --service --dry-run
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

    /// The mode sessions begin in: ask, plan or execute; asked at a terminal, else execute
    ///
    /// In execute mode the first change of a session is asked about; in ask mode it is refused until the agent switches.
    #[arg(long, value_name = "MODE")]
    mode: Option<Mode>,

    /// Who must agree to changes: solo, team or regulated; asked at a terminal, else solo
    ///
    /// solo: you, in the host's dialog, on the page or with `countersign approve`. team: a person on the page or with
    /// `countersign approve`. regulated: the same, by a passkey once there are such.
    #[arg(long, value_name = "PROFILE")]
    profile: Option<ConfirmProfile>,

    /// Run one gateway for all hosts as a service of your account (systemd, launchd), and point hosts at it
    ///
    /// Servers run once and not once per host session. Hosts get a credential each, as with --http. `--undo` ends the service.
    #[arg(long, conflicts_with_all = ["http", "project", "preset"])]
    service: bool,

    /// Let every host use every server; else a server stays with the hosts and the folder it came from
    #[arg(long, conflicts_with = "preset")]
    share: bool,

    /// Leave servers that do not answer in their hosts; else they are brought too, and at a terminal you are asked
    #[arg(long, conflicts_with_all = ["no_start", "preset"])]
    skip_failing: bool,

    /// How long each server may take to list its tools, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=60))]
    wait: u64,

    /// Count the tools as reads that most likely only read; at a terminal you are asked about each server
    ///
    /// Those of high confidence, each as a rule about exactly that definition. Without it they are shown, and
    /// `countersign tools classify` proposes them again.
    #[arg(long, conflicts_with_all = ["no_start", "preset"])]
    classify: bool,

    /// List the presets this program carries
    #[arg(long, conflicts_with_all = ["host", "project", "preset", "permissions", "http", "dry_run", "yes", "mode", "profile", "service", "share", "skip_failing", "classify", "no_start", "undo"])]
    list_presets: bool,

    /// Do not start the servers to see their tools
    #[arg(long)]
    no_start: bool,

    /// Undo the last change
    #[arg(long, conflicts_with_all = ["dry_run", "host", "project", "no_start", "preset", "permissions", "http", "mode", "profile", "service", "share", "skip_failing", "classify"])]
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
    let survey = HostSurvey::read(args, cli)?;
    let asks = !args.yes && !args.dry_run && ask::can_ask(voice);
    let mut setup = SetupChoices::of(args, service_manager(args)?);
    if asks && survey.may_share(args) {
        setup.ask_service(voice);
    }
    let plan = InitPlan {
        args,
        voice,
        asks,
        import: survey.gather(args, &setup)?,
        survey,
        setup,
        text: String::new(),
        changes: Vec::new(),
        proposals: Vec::new(),
        listings: Vec::new(),
        accepted: Vec::new(),
        pointed: Vec::new(),
        http: None,
        offer: None,
        notes: Vec::new(),
        shut: Vec::new(),
    };
    plan.carry_out()
}

/// The one that is asked for, if it is here.
fn service_manager(args: &InitArgs) -> Result<Option<ServiceRunner>, CommandError> {
    if !args.service {
        return Ok(None);
    }
    // Where nothing is started, nobody has to answer.
    let found = if args.dry_run { ServiceRunner::usual() } else { ServiceRunner::here() };
    found.map(Some).ok_or_else(|| {
        let message =
            "no service manager answers here: systemd's user services or launchd keep the gateway running";
        let refusal = Refusal::new(Code::ConfigInvalid, message);
        CommandError::refused(refusal, "countersign init --http, and countersign serve --http in a terminal")
    })
}

/// What hosts have, and what the configuration says, before anything is changed.
struct HostSurvey {
    ground: HostEnvironment,
    reads: Vec<HostFileContents>,
    broken: Vec<(HostFile, HostFileError)>,
    config: PathBuf,
    /// The configuration as it is, if there is one.
    before: Option<String>,
}

impl HostSurvey {
    fn read(args: &InitArgs, cli: &Cli) -> Result<Self, CommandError> {
        let ground = ground(args)?;
        let (reads, broken) = read_all(args, &ground);
        let config = config_path(args, cli, &ground)?;
        let before = match fs::read_to_string(&config) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(unreadable(&config, &config_file::why(&error))),
        };
        Ok(Self { ground, reads, broken, config, before })
    }

    /// Whether there is something to share, and the command line does not say how hosts reach the gateway.
    fn may_share(&self, args: &InitArgs) -> bool {
        !args.service
            && args.http.is_none()
            && args.project.is_none()
            && self.before.is_none()
            && !self.reads.is_empty()
    }

    fn document(&self) -> Result<DocumentMut, CommandError> {
        self.before.as_deref().unwrap_or_default().parse().map_err(|error: toml_edit::TomlError| {
            unreadable(&self.config, error.message().lines().next().unwrap_or_default())
        })
    }

    fn gather(&self, args: &InitArgs, setup: &SetupChoices) -> Result<HostImport, CommandError> {
        let is_http = args.http.is_some() || setup.service.is_some();
        let terms = ImportTerms {
            looker: looker(&self.ground.home),
            variables: &common_variables(),
            reach: if is_http { GatewayReach::Http } else { GatewayReach::Stdio },
        };
        Ok(HostImport::gather(&self.reads, &self.document()?, &terms))
    }
}

struct InitPlan<'a> {
    args: &'a InitArgs,
    voice: OutputSettings,
    /// Whether a person is asked.
    asks: bool,
    survey: HostSurvey,
    setup: SetupChoices,
    import: HostImport,
    changes: Vec<HostFileChange>,
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
        self.plan_changes()?;
        let Seen { needs, proposals, listings } = if self.args.no_start || self.import.upstreams.is_empty() {
            Seen::default()
        } else {
            let wait = Duration::from_secs(self.args.wait);
            tools::inspect(&self.survey.config, &self.text, &self.import, wait, self.voice)?
        };
        (self.proposals, self.listings) = (proposals, listings);
        let mut found = self.found(&needs);
        let is_told = self.asks && !self.changes.is_empty();
        if is_told {
            self.voice.tell(&found);
        }
        self.leave_silent(&needs);
        if self.args.classify {
            found.push_str(&classify::tables(&self.proposals, self.voice));
            self.accepted = classify::confident(&self.proposals);
        } else if !self.asks && !self.proposals.is_empty() {
            found.push_str(&classify::tables(&self.proposals, self.voice));
            let note = "they most likely only read, and count as writes: --classify accepts those of high confidence";
            found.push_str(&format!("{}\n", paint(DIM, note)));
        } else if is_told {
            self.accepted = classify::choose(&self.proposals, self.voice);
        }
        if is_told && self.survey.before.is_none() {
            self.setup.ask(self.args, self.voice);
        }
        self.plan_changes()?;
        if self.args.permissions {
            self.take_offer();
        } else if is_told {
            self.offer_rules();
        }
        self.settle(&needs, found)
    }

    /// Shows what would change and, unless that is all, changes it.
    fn settle(self, needs: &BTreeMap<String, ToolRequirements>, found: String) -> CommandResult {
        let shown = self.shown();
        let mut answer = self.answer(needs);
        let all = format!("{found}{shown}");
        if self.changes.is_empty() {
            let nothing = if self.import.upstreams.is_empty() && self.survey.reads.is_empty() {
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
        if !self.args.yes && !self.asks {
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
            self.voice.tell(if self.asks { &shown } else { &all });
        }
        let question = format!("Change {}?", plural(self.changes.len(), "file"));
        if self.asks && !ask::yes(self.voice, &question) {
            let refusal = Refusal::new(Code::ConfirmRequired, "everything was left as it is");
            return Err(CommandError::refused(refusal, "countersign init, and yes"));
        }
        self.write()?;
        // Without it the first list of a host is shorter, and `list_changed` brings the rest: no reason to fail.
        if let Err(fault) = tools::store_listings(&self.survey.config, &self.listings) {
            tracing::warn!(?fault, "the servers' tools could not be stored");
        }
        let unstarted = self.setup.service.and_then(|manager| manager.start().err());
        answer
            .warnings
            .extend(unstarted.iter().map(|line| format!("the service could not be started: {line}")));
        let changed = format!("{} {}", paint(GOOD, "changed"), plural(self.changes.len(), "file"));
        answer.text = format!("{changed}\n{}", self.summary(needs, unstarted.as_deref()));
        Ok(answer.with("changed", true))
    }

    /// Servers that did not answer come along, unless somebody says otherwise: some need a sign-in or a variable first.
    fn leave_silent(&mut self, needs: &BTreeMap<String, ToolRequirements>) {
        let is_silent = |id: &str| needs.get(id).is_some_and(ToolRequirements::is_down);
        let silent: Vec<String> =
            self.import.upstreams.iter().map(|one| one.id.clone()).filter(|id| is_silent(id)).collect();
        if silent.is_empty() {
            return;
        }
        let question = format!(
            "{} of {} did not answer; bring {} anyway?",
            silent.len(),
            self.import.upstreams.len(),
            if silent.len() == 1 { "it" } else { "them" }
        );
        let asks = self.asks && !self.changes.is_empty();
        if self.args.skip_failing || (asks && !ask::agrees(self.voice, &question)) {
            let ids: Vec<&str> = silent.iter().map(String::as_str).collect();
            self.import.leave_out(&self.survey.reads, &ids, "it did not answer");
        }
    }

    /// Everything that would be written, from what is known by now.
    fn plan_changes(&mut self) -> Result<(), CommandError> {
        self.text = self.compose()?;
        let checked = check(&self.survey.config, &self.text)?;
        let url = self.args.http.as_deref().or(self.setup.service.map(|_| ""));
        let mut http =
            url.map(|url| HttpHosts::at(url, &checked.gateway, self.args.may_vouch)).transpose()?;
        let mut changes = Vec::new();
        let (config, before) = (&self.survey.config, &self.survey.before);
        if before.as_deref() != Some(self.text.as_str()) {
            let (path, after, mode) = (config.clone(), self.text.clone(), FileMode::Kept);
            changes.push(HostFileChange { path, host: None, before: before.clone(), after, mode });
        }
        self.pointed = point_hosts(&self.survey, &self.import, http.as_mut(), &mut changes)?;
        if let Some(manager) = self.setup.service {
            let files = manager.files(&own_program().1, config, &self.text, &home_folder()?);
            changes.extend(files.into_iter().flatten());
        }
        let is_project = self.args.project.is_some();
        let scope = if is_project { HostFileScope::Project } else { HostFileScope::User };
        let (reads, ground) = (&self.survey.reads, &self.survey.ground);
        let offer = HostRuleOffer::plan(reads, ground, scope, &changes, rules::who_asks(&checked));
        self.notes = http.as_ref().map(HttpHosts::notes).unwrap_or_default();
        self.shut = show::shut_out(ground, &self.pointed);
        (self.changes, self.http, self.offer) = (changes, http, Some(offer));
        Ok(())
    }

    /// The configuration with what is brought and what was chosen.
    fn compose(&self) -> Result<String, CommandError> {
        let mut document = self.survey.document()?;
        let folders = match self.args.project {
            Some(_) => FolderLimits::Implied,
            None => FolderLimits::Written,
        };
        let sharing =
            if self.args.share { ServerSharing::EveryHost } else { ServerSharing::OwnHosts { folders } };
        self.import.write(&mut document, sharing);
        if !self.accepted.is_empty() {
            classify::add_rules(&mut document, &self.accepted);
        }
        let before = self.survey.before.as_deref();
        let after = match before {
            None => headed(&document.to_string(), self.setup.mode, self.setup.profile),
            Some(_) => {
                if let Some(mode) = self.args.mode {
                    set_word(&mut document, "gateway", "mode", mode.as_str());
                }
                if let Some(profile) = self.args.profile {
                    set_word(&mut document, "confirm", "profile", profile.as_str());
                }
                document.to_string()
            }
        };
        Ok(with_line_ends(before.unwrap_or_default(), &after))
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

    fn take_offer(&mut self) {
        if let Some(offer) = self.offer.take() {
            self.notes.extend(offer.take(&mut self.changes, &mut self.survey.broken));
        }
    }

    fn write(&self) -> Result<(), CommandError> {
        let home = home_folder()?;
        let new = self.import.secrets().filter(|(name, _)| config_file::keyring_secret(name).is_none());
        let secrets: Vec<PendingSecret<'_>> = new
            .map(|(name, secret)| PendingSecret { path: home.join("keyring").join(name), secret })
            .collect();
        let stamp = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%S%.6fZ").to_string();
        let folder = home.join("backups").join(stamp);
        let credentials = self.http.as_ref().map_or(Value::Null, |http| http.list(&self.survey.config));
        let besides = BesidesFiles { credentials, service: self.setup.service.map(ServiceRunner::name) };
        backup::apply(&folder, &self.changes, &secrets, &besides).map_err(|why| match why {
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
        let added = self.http.as_ref().map_or(Ok(()), |http| http.add(&self.survey.config, self.voice));
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
    let list = backup::list(&folder).map_err(not_undone)?;
    let revocation = Revocation::read(&list);
    // It ends before the files that describe it are gone.
    let service = list.get("service").and_then(Value::as_str).and_then(ServiceRunner::named);
    let unstopped = service.and_then(|manager| manager.stop().err());
    let fates = backup::undo(&folder).map_err(not_undone)?;
    let mut text: String =
        fates.iter().map(|(path, fate)| format!("{}: {}\n", path.display(), fate.words())).collect();
    let files: Vec<Value> =
        fates.iter().map(|(path, fate)| json!({"path": path, "fate": fate.words()})).collect();
    if fates.iter().any(|(_, fate)| *fate == UndoOutcome::Changed) {
        // A host that still leads to the gateway goes on needing it.
        let _ = service.map(ServiceRunner::start);
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
    answer.warnings.extend(unstopped.map(|command| format!("the service could not be stopped: {command}")));
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
    let terms = ImportTerms { looker: looker(home), variables: &[], reach: GatewayReach::Stdio };
    let import = HostImport::gather(&[read], &DocumentMut::new(), &terms);
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

/// Writes our entry into every host's file, in place of what is brought; returns the hosts whose files change.
fn point_hosts(
    survey: &HostSurvey,
    import: &HostImport,
    mut http: Option<&mut HttpHosts>,
    changes: &mut Vec<HostFileChange>,
) -> Result<Vec<(Host, HostFileScope)>, CommandError> {
    let mut pointed = Vec::new();
    for (read, taken) in survey.reads.iter().zip(import.taken()) {
        let text = read.text.as_deref().unwrap_or_default();
        let address = http.as_mut().map(|http| http.entry(&read.place, text)).transpose()?.flatten();
        let mode = if address.is_some() { FileMode::Private } else { FileMode::Kept };
        let ours = address.unwrap_or_else(|| command_entry(survey, &read.place));
        let rewritten =
            read.place.rewrite(text, &taken, &ours).map_err(|why| broken_file(&read.place, &why))?;
        if read.text.as_deref() != Some(rewritten.as_str()) {
            let path = real(&read.place.path);
            let host = Some(read.place.host);
            changes.push(HostFileChange { path, host, before: read.text.clone(), after: rewritten, mode });
            pointed.push((read.place.host, read.place.scope));
        }
    }
    pointed.dedup();
    Ok(pointed)
}

/// How hosts start us: by name where the name leads here, else by path; and that path.
fn own_program() -> (String, String) {
    let exe =
        std::env::current_exe().and_then(fs::canonicalize).unwrap_or_else(|_| PathBuf::from("countersign"));
    let on_path = environment::path("PATH").is_some_and(|path| {
        let found =
            std::env::split_paths(&path).map(|folder| folder.join("countersign")).find(|one| one.is_file());
        found.and_then(|found| fs::canonicalize(found).ok()) == Some(exe.clone())
    });
    let path = exe.display().to_string();
    (if on_path { "countersign".to_owned() } else { path.clone() }, path)
}

fn command_entry(survey: &HostSurvey, place: &HostFile) -> GatewayEntry {
    let config = survey.config.display().to_string();
    let mut args = ["serve", "--host", place.host.name].map(str::to_owned).to_vec();
    // Some hosts start what a project's file names in another folder.
    if place.scope == HostFileScope::Project {
        args.extend(["--folder".to_owned(), survey.ground.project.display().to_string()]);
    }
    let mut env = Vec::new();
    if !place.host.passes_config_flag {
        env.push(("COUNTERSIGN_CONFIG".to_owned(), config));
    } else {
        args.extend(["--config".to_owned(), config]);
    }
    GatewayEntry::Command { command: own_program().0, args, env }
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
