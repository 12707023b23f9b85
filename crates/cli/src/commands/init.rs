//! `countersign init`: what hosts have becomes ours to govern. Finds their servers, shows what each would need and the exact
//! difference of every file, asks, writes; `--undo` takes it back byte for byte.

mod backup;
mod import;
mod preset;
mod rules;
mod secrets;
mod show;
mod tools;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use countersign_core::refusal::{Code, NextAction, Refusal};
use serde_json::{Value, json};
use toml_edit::{DocumentMut, Item, Table as Toml, TableLike};

use self::backup::{Change, Fate, Kept, NotMade};
use self::import::{Import, Limited, Read};
use self::preset::Preset;
use self::rules::Offer;
use self::secrets::Looker;
use crate::answer::{Answer, Outcome, Refused, Trouble};
use crate::cli::Cli;
use crate::config_file;
use crate::environment;
use crate::hosts::{self, Age, Broken, Entry, Ground, Host, Ours, Place, Scope};
use crate::line_ends::with_line_ends;
use crate::output::{DIM, Format, GOOD, Voice, paint, plural};
use crate::person::ask;

/// Shown under the help.
pub(crate) const EXAMPLES: &str = "Examples:
  countersign init --dry-run
  countersign init --host claude-code --yes
  countersign init --permissions --dry-run
  countersign init --project .
  countersign init --preset git --dry-run
  countersign init --undo";

const NAME: &str = "countersign.toml";

/// No host's file is that long.
const LONGEST: u64 = 64 << 20;

/// Links are followed as far as systems follow them.
const LINKS: usize = 40;

/// What `init` takes.
#[derive(Args, Debug)]
pub(crate) struct Init {
    /// Only this host; may be given several times, and makes its file where there is none
    #[arg(long, value_enum, value_name = "HOST")]
    host: Vec<Host>,

    /// Only the files of this folder, with the configuration in it
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = ".")]
    project: Option<PathBuf>,

    /// Add a preset of governed commands to the configuration; may be given several times, and leaves hosts alone
    #[arg(long, value_enum, value_name = "NAME", conflicts_with_all = ["host", "project", "no_start", "permissions"])]
    preset: Vec<Preset>,

    /// Write each host's own rules as well: looking is allowed, changing asks
    #[arg(long)]
    permissions: bool,

    /// Show what would change, and change nothing
    #[arg(long)]
    dry_run: bool,

    /// Change without being asked; needed off a terminal
    #[arg(long, conflicts_with = "dry_run")]
    yes: bool,

    /// Do not start the servers to see their tools
    #[arg(long)]
    no_start: bool,

    /// Take the last change back
    #[arg(long, conflicts_with_all = ["dry_run", "host", "project", "no_start", "preset", "permissions"])]
    undo: bool,
}

/// Runs it.
pub(crate) fn run(args: &Init, cli: &Cli, voice: Voice) -> Outcome {
    if args.undo {
        return undo();
    }
    if !args.preset.is_empty() {
        let how = match (args.dry_run, args.yes) {
            (true, _) => preset::How::Shown,
            (false, true) => preset::How::Agreed,
            (false, false) => preset::How::Asked,
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
    let import = Import::gather(&reads, &document, &looker(&ground.home));
    for upstream in &import.upstreams {
        if let Some(table) = &upstream.table {
            insert(&mut document, &upstream.id, table.clone());
        }
    }
    for rule in import.limited.iter().flat_map(Limited::rules) {
        append(&mut document, rule);
    }
    let after = headed(before.as_deref(), &document.to_string());
    let after = with_line_ends(before.as_deref().unwrap_or_default(), &after);
    check(&config, &after)?;
    let ours = ours(&config);
    let mut changes = Vec::new();
    if before.as_deref() != Some(after.as_str()) {
        changes.push(Change { path: config.clone(), host: None, before, after: after.clone() });
    }
    let mut pointed = Vec::new();
    for (read, taken) in reads.iter().zip(&import.taken) {
        let text = read.text.as_deref().unwrap_or_default();
        let rewritten =
            read.place.rewrite(text, taken, &ours).map_err(|why| broken_file(&read.place, &why))?;
        if read.text.as_deref() != Some(rewritten.as_str()) {
            let path = real(&read.place.path);
            let host = Some(read.place.host);
            changes.push(Change { path, host, before: read.text.clone(), after: rewritten });
            pointed.push((read.place.host, read.place.scope));
        }
    }
    pointed.dedup();
    let scope = if args.project.is_some() { Scope::Project } else { Scope::User };
    let offer = Offer::look(&reads, &ground, scope, &changes);
    let notes = Vec::new();
    let shut = show::shut_out(&ground, &pointed);
    let plan = Plan {
        args,
        voice,
        import,
        changes,
        broken,
        config,
        text: after,
        pointed,
        offer: Some(offer),
        notes,
        shut,
    };
    plan.carry_out()
}

/// Everything that would happen.
struct Plan<'a> {
    args: &'a Init,
    voice: Voice,
    import: Import,
    changes: Vec<Change>,
    broken: Vec<(Place, Broken)>,
    config: PathBuf,
    text: String,
    /// The hosts that lead to us from now on.
    pointed: Vec<(Host, Scope)>,
    /// Rules that could be written too; none once they are among the changes.
    offer: Option<Offer>,
    /// What there is to say about rules, a line each.
    notes: Vec<String>,
    /// Where our entry is not used although it is written, a line each.
    shut: Vec<String>,
}

impl Plan<'_> {
    fn carry_out(mut self) -> Outcome {
        if self.args.permissions {
            self.take_offer();
        }
        let needs = if self.args.no_start || self.import.upstreams.is_empty() {
            BTreeMap::new()
        } else {
            tools::look(&self.config, &self.text, &self.import.secrets, self.voice)?
        };
        let asks = !self.args.yes && !self.args.dry_run && ask::can_ask(self.voice);
        let found = self.found(&needs);
        if asks && !self.changes.is_empty() {
            self.voice.tell(&found);
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
            return Err(Trouble::refused(refusal, "countersign init, and yes"));
        }
        self.write()?;
        answer.text =
            format!("{} {}\n{}", paint(GOOD, "changed"), plural(self.changes.len(), "file"), self.next());
        Ok(answer.with("changed", true))
    }

    /// One question more, for whoever did not say it on the command line.
    fn offer_rules(&mut self) {
        let titles = self.offer.as_ref().map(Offer::titles).unwrap_or_default();
        let question =
            format!("Write the rules of {titles} as well, so that looking is allowed and changing asks?");
        if !titles.is_empty() && ask::yes(self.voice, &question) {
            self.take_offer();
        }
    }

    fn take_offer(&mut self) {
        if let Some(offer) = self.offer.take() {
            self.notes = offer.take(&mut self.changes, &mut self.broken);
        }
    }

    fn reads_nothing(&self) -> bool {
        self.import.taken.is_empty()
    }

    fn write(&self) -> Result<(), Trouble> {
        let home = home_folder()?;
        let new = self.import.secrets.iter().filter(|(name, _)| config_file::kept(name).is_none());
        let secrets: Vec<Kept<'_>> =
            new.map(|(name, secret)| Kept { path: home.join("keyring").join(name), secret }).collect();
        let stamp = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%S%.6fZ").to_string();
        let folder = home.join("backups").join(stamp);
        backup::apply(&folder, &self.changes, &secrets).map_err(|why| match why {
            NotMade::Drifted(path) => {
                let message =
                    format!("`{}` was changed since it was read: nothing was changed", path.display());
                Trouble::refused(Refusal::new(Code::ApplyDrifted, message), "countersign init")
            }
            NotMade::Unwritable(path, error) => {
                let why = config_file::why(&error);
                Trouble::Output(format!("can't write `{}`: {why}; nothing was changed", path.display()))
            }
            NotMade::Half(path, error) => {
                let why = config_file::why(&error);
                Trouble::Output(format!(
                    "can't write `{}`, nor take everything back: {why}; countersign init --undo tries again",
                    path.display()
                ))
            }
        })
    }
}

fn undo() -> Outcome {
    let backups = home_folder()?.join("backups");
    let Some(folder) = backup::newest(&backups) else {
        let refusal = Refusal::new(Code::NotFound, "there is no change of `init` to take back");
        return Err(Trouble::refused(refusal, "countersign init --dry-run"));
    };
    let fates = backup::undo(&folder).map_err(|error| {
        let message = format!("the change can't be taken back: {}", config_file::why(&error));
        Trouble::refused(
            Refusal::new(Code::ConfigInvalid, message),
            format!("the files are in {}", folder.display()),
        )
    })?;
    let text: String =
        fates.iter().map(|(path, fate)| format!("{}: {}\n", path.display(), fate.word())).collect();
    let files: Vec<Value> =
        fates.iter().map(|(path, fate)| json!({"path": path, "fate": fate.word()})).collect();
    if fates.iter().any(|(_, fate)| *fate == Fate::Changed) {
        let message = "a file was changed since: it was left alone";
        let mut refused = Refused::from(Refusal::new(Code::ApplyDrifted, message).with("files", files));
        refused.findings = text;
        refused.next = Some(format!("compare it with what is kept in {}", folder.display()));
        return Err(refused.into());
    }
    Ok(Answer::text(text).with("files", files))
}

fn ground(args: &Init) -> Result<Ground, Trouble> {
    let none = || Trouble::refused(Refusal::new(Code::ConfigInvalid, "there is no home folder"), "set HOME");
    let project = args.project.clone().unwrap_or_else(|| PathBuf::from("."));
    let project =
        fs::canonicalize(&project).map_err(|error| unreadable(&project, &config_file::why(&error)))?;
    Ground::here(project).ok_or_else(none)
}

fn looker(home: &Path) -> Looker<'_> {
    Looker { home, project: None, variable: &environment::variable, kept: &config_file::kept }
}

/// Which servers of a file would stay there, by their names, and why.
pub(crate) fn staying(place: &Place, entries: &[Entry], home: &Path) -> Vec<(String, String)> {
    let read = Read { place: place.clone(), text: None, entries: entries.to_vec() };
    let import = Import::gather(&[read], &DocumentMut::new(), &looker(home));
    import.left.into_iter().map(|left| (left.name, left.why)).collect()
}

/// Every file that is there, or was named by its host; those that can't be understood apart.
fn read_all(args: &Init, ground: &Ground) -> (Vec<Read>, Vec<(Place, Broken)>) {
    let (mut reads, mut broken) = (Vec::new(), Vec::new());
    for place in hosts::places(ground) {
        if !args.host.is_empty() && !args.host.contains(&place.host) {
            continue;
        }
        if args.project.is_some() && place.scope == Scope::User {
            continue;
        }
        let wanted = args.project.is_some() || place.scope == Scope::User;
        let text = match config_file::read_text(&place.path, LONGEST) {
            Ok(text) => Some(text),
            Err(_) if !place.path.exists() => None,
            Err(why) => {
                broken.push((place, Broken { line: 1, why }));
                continue;
            }
        };
        let makes = wanted && place.age == Age::Current && args.host.contains(&place.host);
        if text.is_none() && !makes {
            continue;
        }
        match place.read(text.as_deref().unwrap_or_default(), &ground.project) {
            // A file that is there for something else is none of ours.
            Ok(entries) if entries.is_empty() && place.age == Age::Elder => {}
            Ok(entries) => reads.push(Read { place, text, entries }),
            Err(why) => broken.push((place, why)),
        }
    }
    (reads, broken)
}

fn config_path(args: &Init, cli: &Cli, ground: &Ground) -> Result<PathBuf, Trouble> {
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
pub(crate) fn home_folder() -> Result<PathBuf, Trouble> {
    environment::config_folder().map(|folder| folder.join("countersign")).ok_or_else(|| {
        Trouble::refused(Refusal::new(Code::ConfigInvalid, "there is no home folder"), "set HOME")
    })
}

/// How hosts start us: by name where the name leads here, else by path.
fn ours(config: &Path) -> Ours {
    let exe =
        std::env::current_exe().and_then(fs::canonicalize).unwrap_or_else(|_| PathBuf::from("countersign"));
    let on_path = environment::path("PATH").is_some_and(|path| {
        let found =
            std::env::split_paths(&path).map(|folder| folder.join("countersign")).find(|one| one.is_file());
        found.and_then(|found| fs::canonicalize(found).ok()) == Some(exe.clone())
    });
    let command = if on_path { "countersign".to_owned() } else { exe.display().to_string() };
    let args = ["serve", "--config"].map(str::to_owned).into_iter().chain([config.display().to_string()]);
    Ours { command, args: args.collect() }
}

fn insert(document: &mut DocumentMut, id: &str, table: Toml) {
    let all = document.entry("upstreams").or_insert_with(|| {
        let mut all = Toml::new();
        all.set_implicit(true);
        Item::Table(all)
    });
    if let Some(all) = all.as_table_like_mut() {
        all.insert(id, Item::Table(table));
    }
}

/// A rule after all others, unless it is there.
fn append(document: &mut DocumentMut, rule: Toml) {
    let says = |table: &dyn TableLike| {
        ["match", "when", "deny"].map(|key| table.get(key).and_then(Item::as_str).map(str::to_owned))
    };
    let rules =
        document.entry("rules").or_insert_with(|| Item::ArrayOfTables(toml_edit::ArrayOfTables::new()));
    if let Some(tables) = rules.as_array_of_tables_mut() {
        if !tables.iter().any(|known| says(known) == says(&rule)) {
            tables.push(rule);
        }
    } else if let Some(list) = rules.as_array_mut() {
        let there =
            |known: &toml_edit::Value| known.as_inline_table().is_some_and(|one| says(one) == says(&rule));
        if !list.iter().any(there) {
            list.push(rule.into_inline_table());
        }
    }
}

/// A new file says what it is.
fn headed(before: Option<&str>, text: &str) -> String {
    match before {
        Some(_) => text.to_owned(),
        None => format!(
            "# What agents may change, and who has to agree. Checked by `countersign policy check`.\n\n[gateway]\nmode = \"ask\"\n\n[confirm]\nprofile = \"solo\"                   # who agrees to a change: your host's dialog, the page or `countersign approve`\n\n{}",
            text.trim_start()
        ),
    }
}

fn check(path: &Path, text: &str) -> Result<(), Trouble> {
    let files = config_file::ConfigFiles {
        sources: vec![countersign_core::config::Source::new(path.display().to_string(), text)],
        folder: PathBuf::new(),
    };
    files.parse().map(|_| ())
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

fn unreadable(path: &Path, why: &str) -> Trouble {
    let message = format!("can't use `{}`: {why}", path.display());
    let refusal = Refusal::new(Code::ConfigInvalid, message).because("config_unreadable");
    Trouble::refused(refusal, "mend it, or name another: --config PATH")
}

fn broken_file(place: &Place, why: &Broken) -> Trouble {
    let message = format!("`{}` line {}: {}", place.path.display(), why.line, why.why);
    Trouble::refused(Refusal::new(Code::ConfigInvalid, message), "mend it; nothing was changed")
}
