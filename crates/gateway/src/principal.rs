//! Identifies callers: the principal of a connection, and the session that its mode and plans belong to.

use std::sync::Arc;

use countersign_config::{ToolSurface, Upstream};
use countersign_mcp::era::Era;
use countersign_mcp::jsonrpc::{RpcError, code};
use countersign_mcp::raw;
use countersign_mcp::server::{RequestContext, Transport};
use countersign_policy::call::{Caller, CallerScopes, HostVouching};
use countersign_policy::effect::Effect;
use countersign_policy::ids::{CredentialId, PrincipalId, SessionId, UpstreamId};
use countersign_policy::mode::Mode;
use countersign_policy::record::{HostInfo, Source};
use countersign_policy::role::Role;
use countersign_store::Credential;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Who opened a connection. Fixed then: nothing sent later changes it.
#[derive(Clone, Debug)]
pub struct Principal {
    pub id: PrincipalId,
    pub role: Role,
    /// The credential that was shown, if one was.
    pub credential: Option<CredentialId>,
    pub scopes: CallerScopes,
    /// Whose highest mode `scopes` has.
    pub mode_limit: ModeLimit,
    /// The session where the connection fixes it: a stdio process, or a credential all of whose connections are one session.
    pub session: Option<SessionId>,
    pub surface: ToolSurface,
    pub source: Source,
    /// What is known of the host program before it says anything itself.
    pub host: Option<HostInfo>,
    /// The program that started this process, for a client that does not name itself.
    pub launcher: Option<String>,
}

/// Where the highest mode of a connection comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModeLimit {
    /// The configuration, as it is at each request.
    Gateway,
    /// The credential itself.
    Credential,
}

impl Principal {
    /// The holder of a credential. Scopes that can't be read reach nothing. An agent's scopes without a highest mode have the
    /// gateway's.
    pub(crate) fn of_credential(credential: &Credential, usual: Mode) -> Self {
        let is_named = credential.scopes.get("max_mode").is_some_and(|mode| !mode.is_null());
        let (usual, mode_limit) = match credential.role {
            Role::Agent if !is_named => (usual, ModeLimit::Gateway),
            Role::Agent => (usual, ModeLimit::Credential),
            Role::Human => (Mode::Execute, ModeLimit::Credential),
        };
        let nothing = CallerScopes {
            upstreams: Some(Vec::new()),
            effects: Some(Vec::new()),
            max_mode: Mode::Ask,
            vouching: HostVouching::Denied,
        };
        let read = read_scopes(&credential.scopes, usual).zip(reads_any_session(&credential.scopes));
        let (scopes, mode_limit, any_session) = match read {
            Some((scopes, any_session)) => (scopes, mode_limit, any_session),
            None => (nothing, ModeLimit::Credential, false),
        };
        Self {
            id: PrincipalId::new(credential.name.as_str()),
            role: credential.role,
            credential: Some(credential.id.clone()),
            scopes,
            mode_limit,
            // By its id: another credential of the same name has another session.
            session: any_session.then(|| SessionId::new(format!("credential:{}", credential.id))),
            surface: ToolSurface::Router,
            source: Source::Mcp,
            host: None,
            launcher: None,
        }
    }
}

/// Scopes as a credential keeps them: `{upstreams?, effects?, max_mode?, may_vouch?}`.
pub(crate) fn read_scopes(scopes: &Value, usual: Mode) -> Option<CallerScopes> {
    let members = scopes.as_object()?;
    let words = |name: &str| match members.get(name) {
        None | Some(Value::Null) => Some(None),
        Some(Value::Array(items)) => items
            .iter()
            .map(|item| item.as_str().map(str::to_owned))
            .collect::<Option<Vec<String>>>()
            .map(Some),
        Some(_) => None,
    };
    let effects = match words("effects")? {
        None => None,
        Some(all) => Some(all.iter().map(|word| word.parse().ok()).collect::<Option<Vec<Effect>>>()?),
    };
    let max_mode = match members.get("max_mode") {
        None | Some(Value::Null) => usual,
        Some(value) => value.as_str()?.parse().ok()?,
    };
    let vouching = match members.get("may_vouch") {
        None | Some(Value::Null | Value::Bool(false)) => HostVouching::Denied,
        Some(Value::Bool(true)) => HostVouching::Allowed,
        Some(Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_)) => return None,
    };
    Some(CallerScopes {
        upstreams: words("upstreams")?.map(|all| all.into_iter().map(UpstreamId::new).collect()),
        effects,
        max_mode,
        vouching,
    })
}

/// Takes upstreams out of an HTTP caller's reach that are for other hosts. Over HTTP a host is known by its credential,
/// `claude-code@ada`, and its folder is not known at all. People reach everything.
pub fn keep_to_audience(scopes: &mut CallerScopes, role: Role, name: &PrincipalId, upstreams: &[Upstream]) {
    let host = name.as_str().split('@').next();
    let admits = |one: &Upstream| one.audience.admits(host, None);
    if role == Role::Human || upstreams.iter().all(admits) {
        return;
    }
    let reaches = |id: &UpstreamId| scopes.upstreams.as_ref().is_none_or(|all| all.contains(id));
    let kept = upstreams.iter().filter(|one| admits(one) && reaches(&one.id));
    scopes.upstreams = Some(kept.map(|one| one.id.clone()).collect());
}

/// Whether all connections of a credential are one session: `{any_session?}`.
fn reads_any_session(scopes: &Value) -> Option<bool> {
    match scopes.get("any_session") {
        None | Some(Value::Null) => Some(false),
        Some(Value::Bool(any)) => Some(*any),
        Some(Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_)) => None,
    }
}

/// The caller of a request.
///
/// INVARIANT (agents never approve): role and scopes come from the connection alone, never from the request.
pub(crate) fn identify_caller(
    ctx: &RequestContext,
    params: Option<&RawValue>,
) -> Result<(Caller, ToolSurface), RpcError> {
    let principal = ctx.session().identity().get::<Principal>();
    let principal =
        principal.ok_or_else(|| RpcError::new(code::INTERNAL, "nobody is known to be on this line"))?;
    let caller = caller_in_session(principal, &session_of(ctx, principal, params)?);
    let host = host_of(principal, ctx.client().info.as_deref());
    Ok((Caller { host: host.map(Arc::new), ..caller }, principal.surface))
}

/// The host program of a connection: what its configuration names, else what the client says of itself, else what started this
/// process.
fn host_of(principal: &Principal, client: Option<&RawValue>) -> Option<HostInfo> {
    let said = |member| client.and_then(|info| raw::get_str(info, member));
    let known = principal.host.as_ref();
    let (named, version) = (said("name"), said("version"));
    let folder = known.and_then(|known| known.folder.as_deref());
    if let Some(program) = known.and_then(|known| known.program.as_deref()) {
        let title = known.and_then(|known| known.title.as_deref());
        return HostInfo::new(Some(program), version.as_deref(), folder).map(|host| host.with_title(title));
    }
    let program = named.as_deref().or(principal.launcher.as_deref());
    let title = said("title");
    HostInfo::new(program, version.as_deref(), folder).map(|host| host.with_title(title.as_deref()))
}

pub(crate) fn caller_in_session(principal: &Principal, session: &SessionId) -> Caller {
    Caller {
        principal: principal.id.clone(),
        credential: principal.credential.clone(),
        role: principal.role,
        session: session.clone(),
        request_id: Some(crate::call_log::mint_request_id()),
        source: principal.source,
        host: principal.host.clone().map(Arc::new),
        scopes: principal.scopes.clone(),
    }
}

/// The session of a request: the process on stdio; over HTTP the credential's own where it has one, the MCP session in the
/// session revisions, and in the stateless one the principal with the name the request gives.
fn session_of(
    ctx: &RequestContext,
    principal: &Principal,
    params: Option<&RawValue>,
) -> Result<SessionId, RpcError> {
    Ok(match (ctx.session().transport(), ctx.era()) {
        (Transport::Stdio, Era::Legacy) => fixed_session(ctx, principal),
        (Transport::Stdio, Era::Modern) => match requested_session(params)? {
            Some(name) => SessionId::new(format!("{}/{name}", fixed_session(ctx, principal))),
            None => fixed_session(ctx, principal),
        },
        (Transport::Http, _) if principal.session.is_some() => fixed_session(ctx, principal),
        (Transport::Http, Era::Legacy) => SessionId::new(ctx.session().id().as_str()),
        (Transport::Http, Era::Modern) => SessionId::new(format!(
            "stateless:{}/{}",
            principal.id,
            requested_session(params)?.unwrap_or_default()
        )),
    })
}

/// The longest name a stateless client may give its session, in bytes.
const LONGEST_NAME: usize = 256;

/// The name a request gives its session. A bad one is refused: the unnamed session would mix modes and plans of two.
fn requested_session(params: Option<&RawValue>) -> Result<Option<String>, RpcError> {
    let Some(given) = params.and_then(|params| raw::get_in(params, &["_meta", "countersign/session"])) else {
        return Ok(None);
    };
    match raw::text_of_string(given.get()) {
        Some(name) if name.is_empty() => Ok(None),
        Some(name) if name.len() <= LONGEST_NAME => Ok(Some(name.into_owned())),
        Some(_) | None => {
            let field = "_meta.countersign/session";
            let message = format!("`{field}` must be a string of at most {LONGEST_NAME} bytes");
            let data = json!({"field": field, "next_actions": ["fix_arguments"]});
            Err(RpcError::with_data(code::INVALID_PARAMS, &message, &data))
        }
    }
}

fn fixed_session(ctx: &RequestContext, principal: &Principal) -> SessionId {
    principal.session.clone().unwrap_or_else(|| SessionId::new(ctx.session().id().as_str()))
}

/// The principal as a wire tag. A credential of the same name that cannot vouch gets another key: it must not answer what
/// the session of one that can was asked.
pub fn tag(principal: Principal) -> countersign_mcp::server::CallerIdentity {
    let vouches = match (&principal.credential, principal.scopes.vouching) {
        (Some(_), HostVouching::Allowed) => "/vouches",
        (Some(_), HostVouching::Denied) | (None, HostVouching::Allowed | HostVouching::Denied) => "",
    };
    let key: Arc<str> = format!("{}/{}{vouches}", principal.role, principal.id).into();
    countersign_mcp::server::CallerIdentity::new(key, Arc::new(principal))
}

#[cfg(test)]
mod tests {
    use countersign_config::Source;

    use super::*;

    #[test]
    fn attack_a_credential_reaches_no_upstream_of_another_host() {
        let text = "[upstreams.all]\ncommand = \"a\"\n[upstreams.own]\ncommand = \"a\"\nhosts = [\"cursor\"]\n\
                    [upstreams.project]\ncommand = \"a\"\nhosts = [\"cursor\"]\nfolders = [\"/srv\"]\n";
        let config = countersign_config::parse(&[Source::new("c.toml", text)]).unwrap();
        let reached = |role, name: &str, granted: Option<&[&str]>| {
            let granted = granted.map(|ids| ids.iter().map(|id| UpstreamId::new(*id)).collect());
            let mut scopes = CallerScopes { upstreams: granted, ..CallerScopes::all() };
            keep_to_audience(&mut scopes, role, &PrincipalId::new(name), &config.upstreams);
            scopes.upstreams.map(|ids| ids.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        for (name, granted, expect) in [
            ("cursor@ada", None, &["all", "own"][..]),
            ("codex@ada", None, &["all"]),
            ("cursor-2@ada", None, &["all"]),
            ("local-agent", None, &["all"]),
            // A credential's own limits stay, and widen nothing.
            ("cursor@ada", Some(&["own"][..]), &["own"]),
            ("codex@ada", Some(&["own", "all"][..]), &["all"]),
        ] {
            let reached = reached(Role::Agent, name, granted).unwrap();
            assert_eq!(reached, expect, "{name} {granted:?}");
        }
        assert_eq!(reached(Role::Human, "ada", None), None, "people reach everything");
    }
}
