//! Putting the house together from its configuration: law, upstreams, keeper. Reads no file and no environment:
//! both are handed in, secrets resolved.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use countersign_core::config::{
    Config, NativeKind, Pair, Template, Upstream as Written, UpstreamAccess, UpstreamKind,
};
use countersign_core::ids::{FullName, Secret, ToolName, UpstreamId};
use countersign_store::Store;
use countersign_wire::frame::Limits;
use countersign_wire::raw;
use countersign_wire::upstream::oauth::Machine;
use countersign_wire::upstream::{Bearer, HttpSpec, Identity, Later, Spec, StdioSpec};
use serde_json::json;

use crate::house::{House, Upstreams};
use crate::law::Law;
use crate::news_queue::NewsQueue;
use crate::notify::Hooks;
use crate::relist::{Keeper, OwnTools, Reach, Terms};
use crate::runs::Runs;
use crate::upstream_questions;
use crate::upstreams::Upstream;
use crate::upstreams::command::{self, CommandUpstream, Looks};
use crate::upstreams::environment::{self, Variable};
use crate::upstreams::mcp::signin::{ByItself, Keys, Known, SignedIn};
use crate::upstreams::mcp::{McpUpstream, Settings};
use crate::upstreams::native::{Ground, Native, NativeUpstream, Natives};

/// How long a call may take where nobody says.
const USUAL_TIMEOUT: Duration = Duration::from_secs(120);

/// What surrounds the house.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// Our own environment, of which children get a few plain variables.
    pub ambient: Vec<Variable>,
    /// The folder of the configuration: relative paths start here.
    pub folder: PathBuf,
    /// Where a person decides, if there is a desk.
    pub desk_url: Option<String>,
    /// Who makes the upstreams of our own.
    pub natives: Option<Arc<dyn Natives>>,
    /// Where tokens for upstreams are kept, if anywhere.
    pub keys: Option<Arc<Keys>>,
}

/// What the configuration asks for and this program can't give.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("upstream `{upstream}`: {why}")]
pub struct CannotBuild {
    /// Which upstream.
    pub upstream: String,
    /// Why not.
    pub why: String,
}

impl Law {
    /// The law a configuration states.
    pub fn of(config: &Config, around: &Surroundings) -> Self {
        Self {
            rules: config.rules.clone(),
            strictness: config.intent.strictness,
            mode: config.gateway.mode,
            max_mode: config.gateway.max_mode,
            agent_auth: config.gateway.agent_auth,
            ttl: config.confirm.ttl,
            hold: config.confirm.hold,
            timeout: USUAL_TIMEOUT,
            config: Arc::new(config.clone()),
            hooks: Hooks::of(config, &around.ambient, around.folder.clone()),
            looks: Looks::new(&around.ambient, &around.folder),
            desk_url: around.desk_url.clone(),
            aliases: config.gateway.aliases.clone(),
            suggest: suggested(config),
        }
    }
}

/// What command tools say should be thought of first.
fn suggested(config: &Config) -> HashMap<FullName, Vec<FullName>> {
    let mut all = HashMap::new();
    for written in &config.upstreams {
        let UpstreamKind::Command { tools, .. } = &written.kind else { continue };
        for tool in tools.iter().filter(|tool| !tool.suggest.is_empty()) {
            let full = |name: &ToolName| FullName::new(written.id.clone(), name.clone());
            all.insert(full(&tool.name), tool.suggest.iter().map(full).collect());
        }
    }
    all
}

/// Builds the house and starts its keeper. Upstreams start when their list is first read.
pub fn assemble(
    config: &Config,
    store: Store,
    around: Surroundings,
) -> Result<(Arc<House>, Arc<Keeper>, Assembly), CannotBuild> {
    let runs = Runs::new(store.clone(), around.folder.join("runs"));
    let house = Arc::new(House::new(store.clone(), Law::of(config, &around)));
    let keeper = Arc::new(Keeper::new(Arc::clone(&house), Vec::new()));
    house.kept_by(&keeper);
    house.runs_are(&runs);
    Runs::sweep_now_and_then(&runs);
    let mut assembly = Assembly { around, store, news: Arc::clone(&house.news), runs, written: Vec::new() };
    let (upstreams, terms, _) = assembly.build(config, &Upstreams::new())?;
    house.upstreams.store(Arc::new(upstreams));
    keeper.serve(terms);
    assembly.written.clone_from(&config.upstreams);
    tokio::spawn(Arc::clone(&keeper).keep(Arc::clone(&house.news)));
    let first = Arc::clone(&keeper);
    tokio::spawn(async move { first.first_round().await });
    Ok((house, keeper, assembly))
}

/// What is needed to put the house together again when its configuration changes.
pub struct Assembly {
    around: Surroundings,
    store: Store,
    news: Arc<NewsQueue>,
    runs: Arc<Runs>,
    written: Vec<Written>,
}

impl Assembly {
    /// The commands under way, for whoever shows or stops them.
    pub fn runs(&self) -> &Arc<Runs> {
        &self.runs
    }

    /// Takes a changed configuration: the law at once, upstreams only where they differ. Sessions stay.
    pub async fn reload(
        &mut self,
        house: &Arc<House>,
        keeper: &Arc<Keeper>,
        config: &Config,
    ) -> Result<(), CannotBuild> {
        let before = house.upstreams.load_full();
        let (upstreams, terms, fresh) = self.build(config, &before)?;
        let renamed = house.law.load().aliases != config.gateway.aliases;
        house.law.store(Arc::new(Law::of(config, &self.around)));
        let gone: Vec<_> = before
            .iter()
            .filter(|(id, old)| upstreams.get(*id).is_none_or(|new| !Arc::ptr_eq(old, new)))
            .map(|(_, old)| Arc::clone(old))
            .collect();
        house.upstreams.store(Arc::new(upstreams));
        self.written.clone_from(&config.upstreams);
        let own = if renamed { OwnTools::Renamed } else { OwnTools::AsBefore };
        keeper.change(terms, &fresh, own).await;
        for upstream in gone {
            upstream.retire().await;
        }
        Ok(())
    }

    /// The upstreams a configuration asks for; those written as before are kept as they run.
    fn build(&self, config: &Config, before: &Upstreams) -> Result<Built, CannotBuild> {
        let mut upstreams = Upstreams::new();
        let (mut terms, mut fresh) = (Vec::new(), Vec::new());
        for written in &config.upstreams {
            // What an upstream may ask is declared when its connection opens.
            let same = self
                .written
                .iter()
                .any(|old| old.id == written.id && old.kind == written.kind && old.access == written.access);
            let upstream = match before.get(&written.id).filter(|_| same) {
                Some(running) => Arc::clone(running),
                None => {
                    fresh.push(written.id.clone());
                    self.make(written, config)?
                }
            };
            upstreams.insert(written.id.clone(), upstream);
            let reach = match &written.kind {
                UpstreamKind::Http { .. } => Reach::Http,
                UpstreamKind::Stdio { .. } | UpstreamKind::Command { .. } => Reach::Elsewhere,
                UpstreamKind::Native { .. } => Reach::Here,
            };
            let of_list =
                Terms { trust: written.trust, prefix: written.prefix, every: written.relist, reach };
            terms.push((written.id.clone(), of_list));
        }
        Ok((upstreams, terms, fresh))
    }

    fn make(&self, written: &Written, config: &Config) -> Result<Arc<dyn Upstream>, CannotBuild> {
        let id = written.id.clone();
        if let UpstreamKind::Command { tools, env, cwd } = &written.kind {
            let settings = command::Settings {
                tools,
                env,
                cwd: cwd.as_ref(),
                timeout: written.timeout,
                ambient: &self.around.ambient,
                folder: &self.around.folder,
            };
            let made = CommandUpstream::new(id, &settings, Arc::clone(&self.runs));
            let made = made.map_err(|why| CannotBuild { upstream: written.id.to_string(), why })?;
            return Ok(Arc::new(made));
        }
        if let UpstreamKind::Native { kind, folder } = &written.kind {
            let native = self.native(*kind, folder.as_ref(), &id);
            let native = native.map_err(|why| CannotBuild { upstream: written.id.to_string(), why })?;
            return Ok(Arc::new(NativeUpstream::new(id, native)));
        }
        let mut settings = Settings::new(spec(written, &self.around)?, identity_for(&written.access));
        settings.limits = frame_limits(config);
        Ok(Arc::new(McpUpstream::new(id, settings, Arc::clone(&self.news) as _)))
    }

    fn native(
        &self,
        kind: NativeKind,
        folder: Option<&Template>,
        id: &UpstreamId,
    ) -> Result<Arc<dyn Native>, String> {
        let makes = self.around.natives.as_ref().ok_or("nobody here makes upstreams of our own")?;
        let own_folder = match folder {
            Some(folder) => {
                let text = folder.text().ok_or_else(|| format!("`{}` is not resolved", folder.shown()))?;
                Some(self.around.folder.join(text.expose()))
            }
            None => None,
        };
        let ground =
            Ground { id, store: &self.store, folder: &self.around.folder, own_folder: own_folder.as_deref() };
        makes.make(kind, ground)
    }
}

/// Upstreams, how their lists are treated, and which of them are new.
type Built = (Upstreams, Vec<(UpstreamId, Terms)>, Vec<UpstreamId>);

/// The frame limits a configuration states.
pub fn frame_limits(config: &Config) -> Limits {
    Limits { frame: usize::try_from(config.limits.frame).unwrap_or(usize::MAX), ..Limits::default() }
}

/// Whom we say we are to upstreams, where nothing is configured.
pub fn identity() -> Identity {
    identity_for(&UpstreamAccess::default())
}

/// Whom we say we are to an upstream, with the capabilities it may use.
fn identity_for(access: &UpstreamAccess) -> Identity {
    Identity {
        client_info: raw::to_raw(&json!({"name": "countersign", "version": env!("CARGO_PKG_VERSION")})),
        capabilities: upstream_questions::declared(access),
    }
}

fn spec(written: &Written, around: &Surroundings) -> Result<Spec, CannotBuild> {
    let cannot = |why: String| CannotBuild { upstream: written.id.to_string(), why };
    let text = |template: &Template| {
        template.text().ok_or_else(|| cannot(format!("`{}` is not resolved", template.shown())))
    };
    match &written.kind {
        UpstreamKind::Stdio { command, args, env, cwd } => {
            let args: Result<Vec<Secret>, CannotBuild> = args.iter().map(text).collect();
            let args = args?.into_iter().map(|arg| OsString::from(arg.expose()));
            let mut spec = StdioSpec::new(text(command)?.expose(), args);
            spec.env = environment::clean(around.ambient.clone(), variables(env, &text)?);
            spec.cwd = Some(match cwd {
                Some(cwd) => around.folder.join(Path::new(text(cwd)?.expose())),
                None => around.folder.clone(),
            });
            Ok(Spec::Stdio(spec))
        }
        UpstreamKind::Http { url, headers, bearer, oauth } => {
            let mut spec = HttpSpec::new(text(url)?.expose());
            for (name, value) in headers {
                spec.headers.push((name.clone(), text(value)?.expose().to_owned()));
            }
            let shown = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"));
            spec.bearer = match (bearer, &around.keys) {
                (Some(bearer), _) => Some(Arc::new(Fixed(text(bearer)?))),
                (None, _) if signs_in_itself(oauth) => {
                    let said = |name: &str| oauth_text(oauth, name).map_err(&cannot);
                    let machine = machine(said("client_id")?, said("client_secret")?, said("private_key")?);
                    let machine = machine.map_err(&cannot)?;
                    Some(Arc::new(ByItself::new(&spec, machine, said("scopes")?)))
                }
                (None, Some(keys)) if !shown => Some(Arc::new(SignedIn::new(&spec, Arc::clone(keys)))),
                (None, _) => None,
            };
            Ok(Spec::Http(spec))
        }
        UpstreamKind::Command { .. } | UpstreamKind::Native { .. } => {
            Err(cannot("it is no MCP server".to_owned()))
        }
    }
}

/// What signing in to an upstream needs of the configuration; only servers over HTTP that show no token yet can be signed in to.
pub fn sign_in(written: &Written, around: &Surroundings) -> Result<(HttpSpec, Known), CannotBuild> {
    let cannot = |why: &str| CannotBuild { upstream: written.id.to_string(), why: why.to_owned() };
    let UpstreamKind::Http { headers, bearer, oauth, .. } = &written.kind else {
        return Err(cannot("only a server with a `url` can be signed in to"));
    };
    if bearer.is_some() || headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization")) {
        return Err(cannot("the configuration gives it a token already"));
    }
    if signs_in_itself(oauth) {
        return Err(cannot("the gateway signs in to it as itself (`grant = \"client_credentials\"`)"));
    }
    let Spec::Http(spec) = spec(written, around)? else { return Err(cannot("it has no `url`")) };
    let text = |name: &str| oauth_text(oauth, name).map_err(|why| cannot(&why));
    let known = Known {
        client_id: text("client_id")?,
        client_secret: text("client_secret")?,
        scopes: text("scopes")?,
    };
    Ok((spec, known))
}

/// What `oauth` says under a name.
fn oauth_text(oauth: &[Pair], name: &str) -> Result<Option<String>, String> {
    let Some((_, value)) = oauth.iter().find(|(key, _)| key == name) else { return Ok(None) };
    match value.text() {
        Some(text) => Ok(Some(text.expose().to_owned())),
        None => Err(format!("`{}` is not resolved", value.shown())),
    }
}

fn signs_in_itself(oauth: &[Pair]) -> bool {
    matches!(oauth_text(oauth, "grant"), Ok(Some(grant)) if grant == "client_credentials")
}

/// The identity the configuration gives the gateway.
fn machine(id: Option<String>, secret: Option<String>, key: Option<String>) -> Result<Machine, String> {
    match (id, secret, key) {
        (Some(id), Some(secret), None) => Ok(Machine::with_secret(id, secret)),
        (Some(id), None, Some(key)) => Machine::with_key(id, &key).map_err(|fault| fault.to_string()),
        _ => Err("`oauth` needs `client_id` and either `client_secret` or `private_key`".to_owned()),
    }
}

fn variables(
    pairs: &[Pair],
    text: &dyn Fn(&Template) -> Result<Secret, CannotBuild>,
) -> Result<Vec<Variable>, CannotBuild> {
    pairs.iter().map(|(name, value)| Ok((name.into(), text(value)?.expose().into()))).collect()
}

/// A bearer token from the configuration.
#[derive(Debug)]
struct Fixed(Secret);

impl Bearer for Fixed {
    fn token(&self) -> Later<'_, Option<String>> {
        Box::pin(async { Some(self.0.expose().to_owned()) })
    }

    fn advice(&self) -> Option<String> {
        Some("it does not take the `bearer` of the configuration".to_owned())
    }
}
