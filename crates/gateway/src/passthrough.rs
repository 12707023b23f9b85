//! Requests beyond tools: resources, prompts, completions, logging, tasks, extensions. Routed to the upstream that offers them and governed
//! like tools: reading a resource or a prompt passes the gate. With several upstreams, prompts carry their upstream's name.

mod lists;
mod resource;

use std::sync::Arc;

use countersign_config::MCP_METHODS;
use countersign_mcp::jsonrpc::{Notification, Reply, RpcError};
use countersign_mcp::raw::{self, RawJson};
use countersign_mcp::server::{RequestContext, Session};
use countersign_policy::call::{Arguments, Caller};
use countersign_policy::ids::{FullName, UpstreamId};
use countersign_policy::refusal::{Code, Refusal};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use self::lists::{PROMPTS, RESOURCES, TEMPLATES};
use crate::cards;
use crate::own_marks;
use crate::pipeline::governed_request::{self, GovernedRequest};
use crate::principal::Principal;
use crate::request::invalid;
use crate::startup::ListState;
use crate::state::{GatewayState, UpstreamMap};
use crate::upstream_questions;
use crate::upstreams::Upstream;

/// Between an upstream's name and a prompt's.
const JOINT: &str = "__";

/// In bytes.
const LONGEST_NAME: usize = 4_096;

/// Notifications of a client that reach an upstream served under its own names.
const CLIENT_NOTIFICATIONS: [&str; 1] = ["notifications/roots/list_changed"];

pub(crate) struct Passthrough<'a> {
    pub gateway: &'a Arc<GatewayState>,
    pub ctx: &'a RequestContext,
    pub caller: &'a Caller,
}

impl Passthrough<'_> {
    /// Passes a request on, as far as the rules allow.
    pub(crate) async fn request(&self, method: &str, params: Option<&RawValue>) -> Reply {
        if method == "resources/read"
            && let Some(uri) = params.and_then(|params| raw::get_str(params, "uri"))
            // Before any upstream is asked: none may answer for a card of ours.
            && own_marks::is_our_card(&uri)
        {
            return cards::read(&uri, self.gateway.policy.load().desk_url.as_deref());
        }
        self.gateway.wait_for_lists().await;
        let bare = self.gateway.bare_upstream();
        if let Some(only) = bare.as_ref().filter(|only| !in_scope(self.caller, only.id())) {
            let message = format!("this line does not reach upstream `{}`", only.id());
            let refusal = Refusal::new(Code::ScopeForbidden, message);
            return Err(self.refuse(only.id(), &method_name(method), &refusal, params).await);
        }
        let upstreams = self.gateway.upstreams.load_full();
        match method {
            "resources/list" => self.list(&upstreams, bare.as_ref(), method, &RESOURCES, params).await,
            "resources/templates/list" => {
                self.list(&upstreams, bare.as_ref(), method, &TEMPLATES, params).await
            }
            "prompts/list" => self.list(&upstreams, bare.as_ref(), method, &PROMPTS, params).await,
            "prompts/get" => self.prompt(&upstreams, bare.as_ref(), params).await,
            "resources/read" | "resources/subscribe" | "resources/unsubscribe" => {
                self.resource(&upstreams, bare.as_ref(), method, params).await
            }
            "completion/complete" => self.complete(&upstreams, bare.as_ref(), params).await,
            "logging/setLevel" => self.set_log_level(&upstreams, bare.as_ref(), method, params).await,
            // With several upstreams nothing says whose method it is.
            other => match bare {
                Some(only) => self.other_method(&only, other, params).await,
                None => Err(RpcError::method_not_found(other)),
            },
        }
    }

    fn to<'p>(
        &'p self,
        upstream: &'p Arc<dyn Upstream>,
        method: &'p str,
        params: Option<&'p RawValue>,
    ) -> GovernedRequest<'p> {
        GovernedRequest {
            gateway: self.gateway,
            ctx: self.ctx,
            caller: self.caller,
            upstream,
            method,
            params,
        }
    }

    async fn refuse(
        &self,
        upstream: &UpstreamId,
        what: &str,
        refusal: &Refusal,
        params: Option<&RawValue>,
    ) -> RpcError {
        // A name of megabytes is cut; its digest is in the row.
        let name = FullName::new(upstream.clone(), crate::escape::excerpt(what, LONGEST_NAME));
        governed_request::refuse(self.gateway, self.caller, name, refusal, params).await
    }

    /// Any other method of the only upstream: one of the specification, or one its configuration lists.
    async fn other_method(&self, only: &Arc<dyn Upstream>, method: &str, params: Option<&RawValue>) -> Reply {
        let access = upstream_questions::access(self.gateway, only.id());
        let name = method_name(method);
        if !MCP_METHODS.contains(&method) && !access.methods.iter().any(|listed| listed == method) {
            let message = format!("Method not found: {}", crate::escape::excerpt(method, 200));
            let refusal = Refusal::new(Code::RuleDenied, message).because("method_not_listed");
            return Err(self.refuse(only.id(), &name, &refusal, params).await);
        }
        let arguments = match arguments_of(params, &[]) {
            Ok(arguments) => arguments,
            Err(refusal) => return Err(self.refuse(only.id(), &name, &refusal, params).await),
        };
        self.to(only, method, params).govern(FullName::new(only.id().clone(), name), arguments).await
    }

    fn reachable<'u>(
        &self,
        upstreams: &'u UpstreamMap,
        capability: &'u str,
    ) -> impl Iterator<Item = &'u Arc<dyn Upstream>> {
        let caller = self.caller.clone();
        upstreams
            .values()
            .filter(move |upstream| in_scope(&caller, upstream.id()) && offers(upstream.as_ref(), capability))
    }

    /// Whether a list of the only upstream is empty without asking it: while it starts (`list_changed` follows), and where it lacks what
    /// we declared before we knew it.
    fn is_known_empty(&self, only: &dyn Upstream, capability: &str) -> bool {
        let startup = &self.gateway.startup;
        match only.capabilities() {
            Some(all) => startup.answered_early() && raw::get(&all, capability).is_none(),
            None => startup.starting().contains(only.id()),
        }
    }

    /// Starting upstreams that may offer a capability.
    fn possible_owners<'u>(
        &self,
        upstreams: &'u UpstreamMap,
        capability: &str,
    ) -> Vec<&'u Arc<dyn Upstream>> {
        let did_offer = |id: &UpstreamId| {
            let before = remembered_capabilities(self.gateway, id);
            before.is_none_or(|all| raw::get(&all, capability).is_some())
        };
        let starting = self.gateway.startup.starting();
        // One that has connected has declared its capabilities, whatever it offered before.
        let unsaid = upstreams.values().filter(|one| one.capabilities().is_none());
        unsaid
            .filter(|one| {
                starting.contains(one.id()) && in_scope(self.caller, one.id()) && did_offer(one.id())
            })
            .collect()
    }

    async fn prompt(
        &self,
        upstreams: &UpstreamMap,
        bare: Option<&Arc<dyn Upstream>>,
        params: Option<&RawValue>,
    ) -> Reply {
        let name = match one_text(params, "name") {
            Ok(name) => name,
            Err(refusal) => return Err(self.refuse(&no_upstream(), "prompt:", &refusal, params).await),
        };
        let found = match bare {
            Some(only) => Some((only, name.as_str())),
            None => split(upstreams, &name),
        };
        let Some((upstream, own)) = found else {
            let refusal = missing(&format!("there is no prompt `{}`", crate::escape::excerpt(&name, 200)));
            return Err(self.refuse(&no_upstream(), &format!("prompt:{name}"), &refusal, params).await);
        };
        let what = format!("prompt:{own}");
        let arguments = match arguments_of(params, &["arguments"]) {
            Ok(arguments) => arguments,
            Err(refusal) => return Err(self.refuse(upstream.id(), &what, &refusal, params).await),
        };
        // The upstream knows its prompt without our prefix.
        let sent = params.and_then(|params| raw::set(params, "name", &raw::to_raw(own)));
        let passage = self.to(upstream, "prompts/get", sent.as_deref());
        passage.govern(FullName::new(upstream.id().clone(), what), arguments).await
    }

    async fn complete(
        &self,
        upstreams: &UpstreamMap,
        bare: Option<&Arc<dyn Upstream>>,
        params: Option<&RawValue>,
    ) -> Reply {
        let method = "completion/complete";
        let reference = params.and_then(|params| raw::get(params, "ref"));
        let (named, uri) = (one_text(reference, "name"), one_text(reference, "uri"));
        let arguments = match arguments_of(params, &["argument"]) {
            Ok(arguments) => arguments,
            Err(refusal) => {
                return Err(self.refuse(&no_upstream(), &method_name(method), &refusal, params).await);
            }
        };
        let (found, what, sent) = match (named, uri, bare) {
            (Ok(name), Err(_), None) => {
                let found = split(upstreams, &name);
                let own = found.map_or(name.as_str(), |(_, own)| own);
                let sent = params.and_then(|params| raw::set_in(params, "ref", "name", &raw::to_raw(own)));
                (Ok(found.map(|(upstream, _)| upstream)), format!("prompt:{own}"), sent)
            }
            (Ok(name), Err(_), Some(only)) => (Ok(Some(only)), format!("prompt:{name}"), None),
            (Err(_), Ok(uri), Some(only)) => (Ok(Some(only)), format!("resource:{uri}"), None),
            (Err(_), Ok(uri), None) => {
                (self.completer(upstreams, &uri).await, format!("resource:{uri}"), None)
            }
            (Ok(_), Ok(_), _) | (Err(_), Err(_), _) => {
                let refusal = invalid("ref", "needs either `name` or `uri`");
                return Err(self.refuse(&no_upstream(), &method_name(method), &refusal, params).await);
            }
        };
        let upstream = match found {
            Ok(Some(upstream)) => upstream,
            Ok(None) => {
                let refusal = missing("nobody completes this reference");
                return Err(self.refuse(&no_upstream(), &what, &refusal, params).await);
            }
            Err(refusal) => return Err(self.refuse(&no_upstream(), &what, &refusal, params).await),
        };
        let passage = self.to(upstream, method, sent.as_deref().or(params));
        passage.govern(FullName::new(upstream.id().clone(), what), arguments).await
    }

    async fn set_log_level(
        &self,
        upstreams: &UpstreamMap,
        bare: Option<&Arc<dyn Upstream>>,
        method: &str,
        params: Option<&RawValue>,
    ) -> Reply {
        if let Some(only) = bare {
            return self.to(only, method, params).forward().await;
        }
        for upstream in self.reachable(upstreams, "logging") {
            // An upstream that fails keeps its level; the others follow.
            let _ = self.to(upstream, method, params).forward().await;
        }
        Ok(raw::empty_object())
    }
}

/// Forwards a client's notification to the upstream that is served under its own names, if the specification or the configuration
/// knows it.
pub(crate) async fn notification(gateway: &GatewayState, session: &Session, notification: &Notification) {
    let Some(only) = gateway.bare_upstream() else { return };
    let reaches = session.identity().get::<Principal>().is_some_and(|principal| {
        principal.scopes.upstreams.as_ref().is_none_or(|all| all.contains(only.id()))
    });
    let listed = upstream_questions::access(gateway, only.id()).methods;
    let known = CLIENT_NOTIFICATIONS.contains(&&*notification.method)
        || listed.iter().any(|method| **method == *notification.method);
    if reaches && known {
        only.notify(&notification.method, notification.params.as_deref()).await;
    }
}

/// The capabilities beyond tools: those of at least one upstream, or exactly those of the only one.
pub(crate) fn capabilities(gateway: &GatewayState) -> RawJson {
    if let Some(only) = gateway.bare_upstream() {
        let known = only.capabilities().or_else(|| remembered_capabilities(gateway, only.id()));
        // A client reads capabilities once. Of an upstream that was never seen we declare all that we can pass on: a list may turn out
        // empty, but a client never asks for what was not declared.
        let theirs = known.unwrap_or_else(|| match gateway.startup.state(only.id()) {
            Some(ListState::Waiting) => raw::to_raw(&json!({
                "resources": {"listChanged": true, "subscribe": true},
                "prompts": {"listChanged": true},
                "completions": {},
                "logging": {},
            })),
            Some(ListState::Remembered | ListState::Failed | ListState::Listed) | None => raw::empty_object(),
        });
        return raw::set(&theirs, "tools", &raw::to_raw(&json!({"listChanged": true}))).unwrap_or(theirs);
    }
    let mut ours: Map<String, Value> = Map::new();
    ours.insert("tools".into(), json!({"listChanged": true}));
    // Cards are resources for clients that show them.
    ours.insert("resources".into(), json!({"listChanged": true}));
    for upstream in gateway.upstreams.load().values() {
        for name in ["resources", "prompts", "completions", "logging"] {
            if may_offer(gateway, upstream.as_ref(), name) {
                let value = if matches!(name, "resources" | "prompts") {
                    json!({"listChanged": true})
                } else {
                    json!({})
                };
                ours.insert(name.to_owned(), value);
            }
        }
    }
    raw::to_raw(&ours)
}

/// Whether an upstream offers a capability, did when it was last up, or may: a client reads capabilities once, and a list may be empty.
fn may_offer(gateway: &GatewayState, upstream: &dyn Upstream, capability: &str) -> bool {
    match upstream.capabilities().or_else(|| remembered_capabilities(gateway, upstream.id())) {
        Some(all) => raw::get(&all, capability).is_some(),
        None => gateway.startup.state(upstream.id()) == Some(ListState::Waiting),
    }
}

fn remembered_capabilities(gateway: &GatewayState, upstream: &UpstreamId) -> Option<RawJson> {
    gateway.startup.remembered(upstream)?.capabilities.as_ref().map(raw::to_raw)
}

/// Whether an upstream that is up offers a capability.
pub(crate) fn offers(upstream: &dyn Upstream, capability: &str) -> bool {
    upstream.capabilities().is_some_and(|all| raw::get(&all, capability).is_some())
}

fn in_scope(caller: &Caller, upstream: &UpstreamId) -> bool {
    caller.scopes.upstreams.as_ref().is_none_or(|all| all.contains(upstream))
}

/// The upstream and the prompt's own name, also out of scope: the gate refuses that with a row.
fn split<'u, 'n>(upstreams: &'u UpstreamMap, name: &'n str) -> Option<(&'u Arc<dyn Upstream>, &'n str)> {
    let (id, own) = name.split_once(JOINT)?;
    Some((upstreams.get(&UpstreamId::new(id))?, own))
}

fn no_upstream() -> UpstreamId {
    UpstreamId::new("")
}

fn method_name(method: &str) -> String {
    format!("method:{method}")
}

fn missing(message: &str) -> Refusal {
    Refusal::new(Code::NotFound, message)
}

/// Reads a member that must be a string, given once, of limited length.
fn one_text(object: Option<&RawValue>, name: &str) -> Result<String, Refusal> {
    let members = object.map(raw::members).unwrap_or_default();
    let mut named = members.iter().filter(|(key, _)| key == name);
    let (first, second) = (named.next(), named.next());
    match (first.and_then(|(_, value)| raw::text_of_string(value.get())), second) {
        (Some(_), Some(_)) => Err(invalid(name, "is given twice").because("arguments_not_strict")),
        (Some(text), None) if text.len() > LONGEST_NAME => {
            Err(invalid(name, format_args!("is longer than {LONGEST_NAME} bytes")))
        }
        (Some(text), None) => Ok(text.into_owned()),
        (None, _) => Err(invalid(name, "is required, a string")),
    }
}

/// The members for rules, redaction and the row: those named, or all but `_meta`. `arguments` stands for its own members.
fn arguments_of(params: Option<&RawValue>, names: &[&str]) -> Result<Arguments, Refusal> {
    let empty = raw::empty_object();
    let params = params.unwrap_or(&empty);
    let text = match names {
        ["arguments"] => match raw::get(params, "arguments") {
            Some(given) if given.get() != "null" => given.get().to_owned(),
            Some(_) | None => return Ok(Arguments::none()),
        },
        [] => raw::remove(params, "_meta").map_or_else(|| "{}".to_owned(), |rest| rest.get().to_owned()),
        names => {
            let kept = names.iter().filter_map(|name| Some((*name, raw::get(params, name)?)));
            let members: Vec<String> =
                kept.map(|(name, value)| format!("{}:{value}", raw::to_raw(name))).collect();
            format!("{{{}}}", members.join(","))
        }
    };
    Arguments::parse(text.as_bytes())
        .map_err(|fault| invalid("arguments", fault).because("arguments_not_strict"))
}
