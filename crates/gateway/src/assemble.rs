//! Builds the gateway from its configuration: policy, upstreams, catalogue refresher. Reads no file and no environment: the
//! caller passes both, with secrets resolved.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use countersign_config::{
    Config, NativeKind, Template, TemplatePair, Upstream as Written, UpstreamAccess, UpstreamKind,
    UpstreamStart,
};
use countersign_mcp::client::{BoxFuture, ClientIdentity, HttpSpec, StdioSpec, TokenProvider, UpstreamSpec};
use countersign_mcp::jsonrpc::FrameLimits;
use countersign_mcp::oauth::MachineClient;
use countersign_mcp::raw;
use countersign_policy::ids::{FullName, Secret, ToolName, UpstreamId};
use countersign_store::Store;
use serde_json::json;

use crate::active_policy::ActivePolicy;
use crate::catalog_refresh::{CatalogRefresher, OwnTools, UpstreamReach, UpstreamTerms};
use crate::demand::UpstreamDemand;
use crate::file_paths::FilePaths;
use crate::news_queue::NewsQueue;
use crate::notify::Hooks;
use crate::runs::BackgroundRuns;
use crate::state::{GatewayState, UpstreamMap};
use crate::upstream_questions;
use crate::upstreams::Upstream;
use crate::upstreams::command::{self, CommandUpstream, PreviewRunner};
use crate::upstreams::environment::{self, Variable};
use crate::upstreams::mcp::signin::{ByItself, OauthClientSettings, SignedIn, TokenFile};
use crate::upstreams::mcp::{McpSettings, McpUpstream};
use crate::upstreams::native::{NativeContext, NativeFactory, NativeServer, NativeUpstream};

/// The timeout of calls without a configured one.
const USUAL_TIMEOUT: Duration = Duration::from_secs(120);

/// What the gateway gets from its process.
#[derive(Clone, Debug, Default)]
pub struct GatewayEnvironment {
    /// Our own environment, of which children get a few plain variables.
    pub ambient: Vec<Variable>,
    /// The folder of the configuration: relative paths start here.
    pub folder: PathBuf,
    /// The address of the approvals page.
    pub desk_url: Option<String>,
    /// Makes native upstreams.
    pub natives: Option<Arc<dyn NativeFactory>>,
    /// Whether upstreams are offered roots before a client with roots is here: clients over HTTP share one connection to each, and
    /// commands such as `init` list the tools for clients to come.
    pub expects_roots: bool,
    /// Where tokens for upstreams are kept, if anywhere.
    pub keys: Option<Arc<TokenFile>>,
    /// Whether calls are held even where a grant would let them run.
    pub ignores_grants: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("upstream `{upstream}`: {why}")]
pub struct CannotBuild {
    pub upstream: String,
    pub why: String,
}

fn home(ambient: &[Variable]) -> Option<String> {
    let found = ambient.iter().find(|(name, _)| name == "HOME");
    found.and_then(|(_, home)| home.to_str().map(str::to_owned))
}

impl ActivePolicy {
    pub fn of(config: &Config, around: &GatewayEnvironment) -> Self {
        let home = home(&around.ambient);
        let bases = config.path_bases(around.folder.to_str(), home.clone());
        Self {
            rules: config.rules.clone().with_paths(Arc::new(FilePaths(bases))),
            strictness: config.intent.strictness,
            mode: config.gateway.mode,
            max_mode: config.gateway.max_mode,
            agent_auth: config.gateway.agent_auth,
            ttl: config.confirm.ttl,
            hold: config.confirm.hold,
            automatic_below: config.confirm.automatic_below,
            timeout: USUAL_TIMEOUT,
            // Explanations follow no link: they are about calls that are not made.
            config: Arc::new(config.clone().placed(around.folder.to_str(), home.clone())),
            hooks: Hooks::of(config, &around.ambient, around.folder.clone()),
            looks: PreviewRunner::new(&around.ambient, &around.folder),
            desk_url: around.desk_url.clone(),
            home,
            aliases: config.gateway.aliases.clone(),
            suggest: suggested(config),
            ignores_grants: around.ignores_grants,
        }
    }
}

/// The suggestions of command tools.
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

/// Builds the gateway and starts refreshing its catalogue. Eager upstreams start at once, lazy ones when they are needed.
pub fn assemble(
    config: &Config,
    store: Store,
    around: GatewayEnvironment,
) -> Result<(Arc<GatewayState>, Arc<CatalogRefresher>, Assembly), CannotBuild> {
    let runs = BackgroundRuns::new(store.clone(), around.folder.join("runs"));
    let gateway = Arc::new(GatewayState::new(store.clone(), ActivePolicy::of(config, &around)));
    if around.expects_roots {
        gateway.demand.expect_roots();
    }
    let refresher = Arc::new(CatalogRefresher::new(Arc::clone(&gateway), Vec::new()));
    gateway.set_refresher(&refresher);
    gateway.set_runs(&runs);
    BackgroundRuns::sweep_now_and_then(&runs);
    let mut assembly = Assembly {
        around,
        store,
        news: Arc::clone(&gateway.news),
        demand: Arc::clone(&gateway.demand),
        runs,
        written: Vec::new(),
    };
    let (upstreams, terms, _) = assembly.build(config, &UpstreamMap::new())?;
    gateway.upstreams.store(Arc::new(upstreams));
    refresher.serve(terms);
    assembly.written.clone_from(&config.upstreams);
    tokio::spawn(Arc::clone(&refresher).run(Arc::clone(&gateway.news)));
    let first = Arc::clone(&refresher);
    tokio::spawn(async move { first.first_round().await });
    Ok((gateway, refresher, assembly))
}

/// What is needed to assemble the gateway again when its configuration changes.
pub struct Assembly {
    around: GatewayEnvironment,
    store: Store,
    news: Arc<NewsQueue>,
    demand: Arc<UpstreamDemand>,
    runs: Arc<BackgroundRuns>,
    written: Vec<Written>,
}

impl Assembly {
    /// The commands under way, to be shown or stopped.
    pub fn runs(&self) -> &Arc<BackgroundRuns> {
        &self.runs
    }

    /// Applies a changed configuration: the policy at once, upstreams only where they differ. Sessions stay.
    pub async fn reload(
        &mut self,
        gateway: &Arc<GatewayState>,
        refresher: &Arc<CatalogRefresher>,
        config: &Config,
    ) -> Result<(), CannotBuild> {
        let before = gateway.upstreams.load_full();
        let (upstreams, terms, fresh) = self.build(config, &before)?;
        let renamed = gateway.policy.load().aliases != config.gateway.aliases;
        gateway.policy.store(Arc::new(ActivePolicy::of(config, &self.around)));
        let gone: Vec<_> = before
            .iter()
            .filter(|(id, old)| upstreams.get(*id).is_none_or(|new| !Arc::ptr_eq(old, new)))
            .map(|(_, old)| Arc::clone(old))
            .collect();
        gateway.upstreams.store(Arc::new(upstreams));
        self.written.clone_from(&config.upstreams);
        let own = if renamed { OwnTools::Renamed } else { OwnTools::AsBefore };
        refresher.change(terms, &fresh, own).await;
        for upstream in gone {
            upstream.retire().await;
        }
        Ok(())
    }

    /// The upstreams a configuration asks for; those written as before are kept as they run.
    fn build(&self, config: &Config, before: &UpstreamMap) -> Result<BuiltUpstreams, CannotBuild> {
        let mut upstreams = UpstreamMap::new();
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
                UpstreamKind::Http { .. } => UpstreamReach::Http,
                UpstreamKind::Stdio { .. } => UpstreamReach::Stdio,
                UpstreamKind::Command { .. } => UpstreamReach::Command,
                UpstreamKind::Native { .. } => UpstreamReach::Native,
            };
            // Command tools and our own upstreams start nothing when they are listed.
            let start = match &written.kind {
                UpstreamKind::Http { .. } | UpstreamKind::Stdio { .. } => written.start,
                UpstreamKind::Command { .. } | UpstreamKind::Native { .. } => UpstreamStart::Eager,
            };
            let of_list = UpstreamTerms {
                trust: written.trust,
                prefix: written.prefix,
                every: written.relist,
                reach,
                start,
            };
            terms.push((written.id.clone(), of_list));
        }
        Ok((upstreams, terms, fresh))
    }

    fn make(&self, written: &Written, config: &Config) -> Result<Arc<dyn Upstream>, CannotBuild> {
        let id = written.id.clone();
        if let UpstreamKind::Command { tools, env, cwd } = &written.kind {
            let settings = command::CommandSettings {
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
        let mut settings = McpSettings::new(spec(written, &self.around)?, identity_for(&written.access));
        settings.limits = frame_limits(config);
        settings.demand = Arc::clone(&self.demand);
        Ok(Arc::new(McpUpstream::new(id, settings, Arc::clone(&self.news) as _)))
    }

    fn native(
        &self,
        kind: NativeKind,
        folder: Option<&Template>,
        id: &UpstreamId,
    ) -> Result<Arc<dyn NativeServer>, String> {
        let makes = self.around.natives.as_ref().ok_or("nobody here makes upstreams of our own")?;
        let own_folder = match folder {
            Some(folder) => {
                let text = folder.text().ok_or_else(|| format!("`{}` is not resolved", folder.shown()))?;
                Some(self.around.folder.join(text.expose()))
            }
            None => None,
        };
        let ground = NativeContext {
            id,
            store: &self.store,
            folder: &self.around.folder,
            own_folder: own_folder.as_deref(),
        };
        makes.make(kind, ground)
    }
}

/// Upstreams, how their lists are treated, and which of them are new.
type BuiltUpstreams = (UpstreamMap, Vec<(UpstreamId, UpstreamTerms)>, Vec<UpstreamId>);

pub fn frame_limits(config: &Config) -> FrameLimits {
    FrameLimits {
        frame: usize::try_from(config.limits.frame).unwrap_or(usize::MAX),
        ..FrameLimits::default()
    }
}

/// Whom we say we are to upstreams, where nothing is configured.
pub fn identity() -> ClientIdentity {
    identity_for(&UpstreamAccess::default())
}

/// Whom we say we are to an upstream, with the capabilities it may use.
fn identity_for(access: &UpstreamAccess) -> ClientIdentity {
    ClientIdentity {
        client_info: raw::to_raw(&json!({"name": "countersign", "version": env!("CARGO_PKG_VERSION")})),
        capabilities: upstream_questions::declared(access),
    }
}

fn spec(written: &Written, around: &GatewayEnvironment) -> Result<UpstreamSpec, CannotBuild> {
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
            Ok(UpstreamSpec::Stdio(spec))
        }
        UpstreamKind::Http { url, headers, bearer, oauth } => {
            let mut spec = HttpSpec::new(text(url)?.expose());
            for (name, value) in headers {
                spec.headers.push((name.clone(), text(value)?.expose().to_owned()));
            }
            let shown = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"));
            spec.bearer = match (bearer, &around.keys) {
                (Some(bearer), _) => Some(Arc::new(StaticBearerToken(text(bearer)?))),
                (None, _) if signs_in_itself(oauth) => {
                    let said = |name: &str| oauth_text(oauth, name).map_err(&cannot);
                    let machine = machine(said("client_id")?, said("client_secret")?, said("private_key")?);
                    let machine = machine.map_err(&cannot)?;
                    Some(Arc::new(ByItself::new(&spec, machine, said("scopes")?)))
                }
                (None, Some(keys)) if !shown => Some(Arc::new(SignedIn::new(&spec, Arc::clone(keys)))),
                (None, _) => None,
            };
            Ok(UpstreamSpec::Http(spec))
        }
        UpstreamKind::Command { .. } | UpstreamKind::Native { .. } => {
            Err(cannot("it is no MCP server".to_owned()))
        }
    }
}

/// What signing in to an upstream needs of the configuration; only servers over HTTP that show no token yet can be signed in to.
pub fn sign_in(
    written: &Written,
    around: &GatewayEnvironment,
) -> Result<(HttpSpec, OauthClientSettings), CannotBuild> {
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
    let UpstreamSpec::Http(spec) = spec(written, around)? else { return Err(cannot("it has no `url`")) };
    let text = |name: &str| oauth_text(oauth, name).map_err(|why| cannot(&why));
    let known = OauthClientSettings {
        client_id: text("client_id")?,
        client_secret: text("client_secret")?,
        scopes: text("scopes")?,
    };
    Ok((spec, known))
}

/// What `oauth` says under a name.
fn oauth_text(oauth: &[TemplatePair], name: &str) -> Result<Option<String>, String> {
    let Some((_, value)) = oauth.iter().find(|(key, _)| key == name) else { return Ok(None) };
    match value.text() {
        Some(text) => Ok(Some(text.expose().to_owned())),
        None => Err(format!("`{}` is not resolved", value.shown())),
    }
}

fn signs_in_itself(oauth: &[TemplatePair]) -> bool {
    matches!(oauth_text(oauth, "grant"), Ok(Some(grant)) if grant == "client_credentials")
}

/// The identity the configuration gives the gateway.
fn machine(id: Option<String>, secret: Option<String>, key: Option<String>) -> Result<MachineClient, String> {
    match (id, secret, key) {
        (Some(id), Some(secret), None) => Ok(MachineClient::with_secret(id, secret)),
        (Some(id), None, Some(key)) => MachineClient::with_key(id, &key).map_err(|fault| fault.to_string()),
        _ => Err("`oauth` needs `client_id` and either `client_secret` or `private_key`".to_owned()),
    }
}

fn variables(
    pairs: &[TemplatePair],
    text: &dyn Fn(&Template) -> Result<Secret, CannotBuild>,
) -> Result<Vec<Variable>, CannotBuild> {
    let set = pairs.iter().filter(|(_, value)| !value.is_absent());
    set.map(|(name, value)| Ok((name.into(), text(value)?.expose().into()))).collect()
}

/// A bearer token from the configuration.
#[derive(Debug)]
struct StaticBearerToken(Secret);

impl TokenProvider for StaticBearerToken {
    fn token(&self) -> BoxFuture<'_, Option<String>> {
        Box::pin(async { Some(self.0.expose().to_owned()) })
    }

    fn advice(&self) -> Option<String> {
        Some("it does not take the `bearer` of the configuration".to_owned())
    }
}
