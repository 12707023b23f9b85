//! Who is on a line: the principal the wire's tag carries, and the session its mode and plans belong to.

use std::sync::Arc;

use countersign_core::call::{Caller, Scopes, Vouching};
use countersign_core::config::Surface;
use countersign_core::effect::Effect;
use countersign_core::ids::{CredentialId, PrincipalId, SessionId, UpstreamId};
use countersign_core::mode::Mode;
use countersign_core::record::Source;
use countersign_core::role::Role;
use countersign_store::Credential;
use countersign_wire::era::Era;
use countersign_wire::frame::{RpcError, code};
use countersign_wire::raw;
use countersign_wire::serve::{Ctx, Transport};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Who opened a line; fixed then, whatever is sent over it.
#[derive(Clone, Debug)]
pub struct Principal {
    /// The principal.
    pub id: PrincipalId,
    /// The role.
    pub role: Role,
    /// The credential that was shown, if one was.
    pub credential: Option<CredentialId>,
    /// How far the line reaches.
    pub scopes: Scopes,
    /// Whose highest mode `scopes` has.
    pub mode_limit: ModeLimit,
    /// The session's name where the line fixes it: a stdio process.
    pub session: Option<SessionId>,
    /// Which face it sees.
    pub surface: Surface,
    /// Through which door it came.
    pub source: Source,
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
    /// Whoever holds a credential. Scopes that can't be read reach nothing; an agent's that name no highest mode have the
    /// gateway's.
    pub fn of_credential(credential: &Credential, usual: Mode) -> Self {
        let is_named = credential.scopes.get("max_mode").is_some_and(|mode| !mode.is_null());
        let (usual, mode_limit) = match credential.role {
            Role::Agent if !is_named => (usual, ModeLimit::Gateway),
            Role::Agent => (usual, ModeLimit::Credential),
            Role::Human => (Mode::Execute, ModeLimit::Credential),
        };
        let nothing = Scopes {
            upstreams: Some(Vec::new()),
            effects: Some(Vec::new()),
            max_mode: Mode::Ask,
            vouching: Vouching::Denied,
        };
        let (scopes, mode_limit) = match read_scopes(&credential.scopes, usual) {
            Some(scopes) => (scopes, mode_limit),
            None => (nothing, ModeLimit::Credential),
        };
        Self {
            id: PrincipalId::new(credential.name.as_str()),
            role: credential.role,
            credential: Some(credential.id.clone()),
            scopes,
            mode_limit,
            session: None,
            surface: Surface::Router,
            source: Source::Mcp,
        }
    }
}

/// Scopes as a credential keeps them: `{upstreams?, effects?, max_mode?, may_vouch?}`.
pub fn read_scopes(scopes: &Value, usual: Mode) -> Option<Scopes> {
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
        None | Some(Value::Null | Value::Bool(false)) => Vouching::Denied,
        Some(Value::Bool(true)) => Vouching::Allowed,
        Some(Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_)) => return None,
    };
    Some(Scopes {
        upstreams: words("upstreams")?.map(|all| all.into_iter().map(UpstreamId::new).collect()),
        effects,
        max_mode,
        vouching,
    })
}

/// The caller of a request: the line's principal, and the session it belongs to.
///
/// INVARIANT (agents never approve): role and scopes come from the line's tag alone.
pub fn caller(ctx: &Ctx, params: Option<&RawValue>) -> Result<(Caller, Surface), RpcError> {
    let principal = ctx.session().tag().get::<Principal>();
    let principal =
        principal.ok_or_else(|| RpcError::new(code::INTERNAL, "nobody is known to be on this line"))?;
    Ok((caller_of(principal, &session_of(ctx, principal, params)?), principal.surface))
}

/// A caller with this session.
pub fn caller_of(principal: &Principal, session: &SessionId) -> Caller {
    Caller {
        principal: principal.id.clone(),
        credential: principal.credential.clone(),
        role: principal.role,
        session: session.clone(),
        source: principal.source,
        scopes: principal.scopes.clone(),
    }
}

/// The process on stdio, the MCP session on legacy HTTP, and on the stateless revision the principal with the name the
/// request gives, if it gives one.
fn session_of(ctx: &Ctx, principal: &Principal, params: Option<&RawValue>) -> Result<SessionId, RpcError> {
    Ok(match (ctx.session().transport(), ctx.era()) {
        (Transport::Stdio, Era::Legacy) => fixed(ctx, principal),
        (Transport::Stdio, Era::Modern) => match named(params)? {
            Some(name) => SessionId::new(format!("{}/{name}", fixed(ctx, principal))),
            None => fixed(ctx, principal),
        },
        (Transport::Http, Era::Legacy) => SessionId::new(ctx.session().id().as_str()),
        (Transport::Http, Era::Modern) => {
            SessionId::new(format!("stateless:{}/{}", principal.id, named(params)?.unwrap_or_default()))
        }
    })
}

/// The longest name a stateless client may give its session, in bytes.
const LONGEST_NAME: usize = 256;

/// The name a request gives its session. One that can't be kept is refused: falling back to the unnamed session would mix
/// modes and plans of two.
fn named(params: Option<&RawValue>) -> Result<Option<String>, RpcError> {
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

fn fixed(ctx: &Ctx, principal: &Principal) -> SessionId {
    principal.session.clone().unwrap_or_else(|| SessionId::new(ctx.session().id().as_str()))
}

/// The principal as a wire tag. A credential of the same name that cannot vouch gets another key: it must not answer what
/// the session of one that can was asked.
pub fn tag(principal: Principal) -> countersign_wire::serve::Tag {
    let vouches = match (&principal.credential, principal.scopes.vouching) {
        (Some(_), Vouching::Allowed) => "/vouches",
        (Some(_), Vouching::Denied) | (None, Vouching::Allowed | Vouching::Denied) => "",
    };
    let key: Arc<str> = format!("{}/{}{vouches}", principal.role, principal.id).into();
    countersign_wire::serve::Tag::new(key, Arc::new(principal))
}
