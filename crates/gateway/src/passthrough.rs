//! What upstreams offer beyond tools: resources, prompts, completions, logging, tasks, extensions. Routed by who offers it and
//! governed like tools: reading a resource or a prompt passes the gate. Prompts carry their upstream's name where there are several.

mod lists;
mod resource;

use std::sync::Arc;

use countersign_core::call::{Arguments, Caller};
use countersign_core::config::MCP_METHODS;
use countersign_core::ids::{FullName, UpstreamId};
use countersign_core::refusal::{Code, Refusal};
use countersign_wire::frame::{Notification, Reply, RpcError};
use countersign_wire::raw::{self, Raw};
use countersign_wire::serve::{Ctx, Session};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use self::lists::{PROMPTS, RESOURCES, TEMPLATES};
use crate::asked::invalid;
use crate::cards;
use crate::conduct::passage::{self, Passage};
use crate::house::{House, Upstreams};
use crate::line::Principal;
use crate::own_marks;
use crate::upstream_questions;
use crate::upstreams::Upstream;

/// Between an upstream's name and a prompt's.
const JOINT: &str = "__";

/// The longest URI or prompt name, in bytes.
const LONGEST_NAME: usize = 4_096;

/// Notifications of a client that reach an upstream served under its own names.
const CLIENT_NOTIFICATIONS: [&str; 1] = ["notifications/roots/list_changed"];

/// One request on its way to an upstream.
pub struct Passthrough<'a> {
    /// What all lines share.
    pub house: &'a Arc<House>,
    /// The request.
    pub ctx: &'a Ctx,
    /// Who asks.
    pub caller: &'a Caller,
}

impl Passthrough<'_> {
    /// Passes a request on, as far as it may pass.
    pub async fn request(&self, method: &str, params: Option<&RawValue>) -> Reply {
        if method == "resources/read"
            && let Some(uri) = params.and_then(|params| raw::get_str(params, "uri"))
            && own_marks::is_our_card(&uri)
        {
            return cards::read(&uri, self.house.law.load().desk_url.as_deref());
        }
        // Whose a request is can be told once every upstream was asked what it offers.
        self.house.settled().await;
        let bare = self.house.bare_upstream();
        if let Some(only) = bare.as_ref().filter(|only| !in_scope(self.caller, only.id())) {
            let message = format!("this line does not reach upstream `{}`", only.id());
            let refusal = Refusal::new(Code::ScopeForbidden, message);
            return Err(self.refuse(only.id(), &method_name(method), &refusal, params).await);
        }
        let upstreams = self.house.upstreams.load_full();
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
            "logging/setLevel" => self.everywhere(&upstreams, bare.as_ref(), method, params).await,
            other => match bare {
                Some(only) => self.other(&only, other, params).await,
                None => Err(RpcError::method_not_found(other)),
            },
        }
    }

    fn to<'p>(
        &'p self,
        upstream: &'p Arc<dyn Upstream>,
        method: &'p str,
        params: Option<&'p RawValue>,
    ) -> Passage<'p> {
        Passage { house: self.house, ctx: self.ctx, caller: self.caller, upstream, method, params }
    }

    async fn refuse(
        &self,
        upstream: &UpstreamId,
        what: &str,
        refusal: &Refusal,
        params: Option<&RawValue>,
    ) -> RpcError {
        // A name of megabytes is no name: its digest is in the row.
        let name = FullName::new(upstream.clone(), crate::escape::excerpt(what, LONGEST_NAME));
        passage::refuse(self.house, self.caller, name, refusal, params).await
    }

    /// A method of the only upstream: one of the specification's, or one its configuration lists.
    async fn other(&self, only: &Arc<dyn Upstream>, method: &str, params: Option<&RawValue>) -> Reply {
        let access = upstream_questions::access(self.house, only.id());
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
        upstreams: &'u Upstreams,
        capability: &'u str,
    ) -> impl Iterator<Item = &'u Arc<dyn Upstream>> {
        let caller = self.caller.clone();
        upstreams
            .values()
            .filter(move |upstream| in_scope(&caller, upstream.id()) && offers(upstream.as_ref(), capability))
    }

    async fn prompt(
        &self,
        upstreams: &Upstreams,
        bare: Option<&Arc<dyn Upstream>>,
        params: Option<&RawValue>,
    ) -> Reply {
        let name = match one_text(params, "name") {
            Ok(name) => name,
            Err(refusal) => return Err(self.refuse(&none(), "prompt:", &refusal, params).await),
        };
        let found = match bare {
            Some(only) => Some((only, name.as_str())),
            None => split(upstreams, &name),
        };
        let Some((upstream, own)) = found else {
            let refusal = missing(&format!("there is no prompt `{}`", crate::escape::excerpt(&name, 200)));
            return Err(self.refuse(&none(), &format!("prompt:{name}"), &refusal, params).await);
        };
        let what = format!("prompt:{own}");
        let arguments = match arguments_of(params, &["arguments"]) {
            Ok(arguments) => arguments,
            Err(refusal) => return Err(self.refuse(upstream.id(), &what, &refusal, params).await),
        };
        let sent = params.and_then(|params| raw::set(params, "name", &raw::to_raw(own)));
        let passage = self.to(upstream, "prompts/get", sent.as_deref());
        passage.govern(FullName::new(upstream.id().clone(), what), arguments).await
    }

    async fn complete(
        &self,
        upstreams: &Upstreams,
        bare: Option<&Arc<dyn Upstream>>,
        params: Option<&RawValue>,
    ) -> Reply {
        let method = "completion/complete";
        let reference = params.and_then(|params| raw::get(params, "ref"));
        let (named, uri) = (one_text(reference, "name"), one_text(reference, "uri"));
        let arguments = match arguments_of(params, &["argument"]) {
            Ok(arguments) => arguments,
            Err(refusal) => return Err(self.refuse(&none(), &method_name(method), &refusal, params).await),
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
                return Err(self.refuse(&none(), &method_name(method), &refusal, params).await);
            }
        };
        let upstream = match found {
            Ok(Some(upstream)) => upstream,
            Ok(None) => {
                let refusal = missing("nobody completes this reference");
                return Err(self.refuse(&none(), &what, &refusal, params).await);
            }
            Err(refusal) => return Err(self.refuse(&none(), &what, &refusal, params).await),
        };
        let passage = self.to(upstream, method, sent.as_deref().or(params));
        passage.govern(FullName::new(upstream.id().clone(), what), arguments).await
    }

    async fn everywhere(
        &self,
        upstreams: &Upstreams,
        bare: Option<&Arc<dyn Upstream>>,
        method: &str,
        params: Option<&RawValue>,
    ) -> Reply {
        if let Some(only) = bare {
            return self.to(only, method, params).forward().await;
        }
        for upstream in self.reachable(upstreams, "logging") {
            // One that can't keeps its level; the others follow.
            let _ = self.to(upstream, method, params).forward().await;
        }
        Ok(raw::empty_object())
    }
}

/// A notification of a client: those the specification has for servers, and those the configuration lists, reach the one upstream
/// that is served under its own names. Others have no addressee.
pub async fn notification(house: &House, session: &Session, notification: &Notification) {
    let Some(only) = house.bare_upstream() else { return };
    let reaches = session.tag().get::<Principal>().is_some_and(|principal| {
        principal.scopes.upstreams.as_ref().is_none_or(|all| all.contains(only.id()))
    });
    let listed = upstream_questions::access(house, only.id()).methods;
    let known = CLIENT_NOTIFICATIONS.contains(&&*notification.method)
        || listed.iter().any(|method| **method == *notification.method);
    if reaches && known {
        only.notify(&notification.method, notification.params.as_deref()).await;
    }
}

/// What we offer beyond tools: what at least one upstream offers, or exactly the only one's.
pub fn capabilities(house: &House) -> Raw {
    if let Some(only) = house.bare_upstream() {
        let theirs = only.capabilities().unwrap_or_else(raw::empty_object);
        return raw::set(&theirs, "tools", &raw::to_raw(&json!({"listChanged": true}))).unwrap_or(theirs);
    }
    let mut ours: Map<String, Value> = Map::new();
    ours.insert("tools".into(), json!({"listChanged": true}));
    // The cards are resources, to clients that show them.
    ours.insert("resources".into(), json!({"listChanged": true}));
    for upstream in house.upstreams.load().values() {
        for name in ["resources", "prompts", "completions", "logging"] {
            if offers(upstream.as_ref(), name) {
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

fn offers(upstream: &dyn Upstream, capability: &str) -> bool {
    upstream.capabilities().is_some_and(|all| raw::get(&all, capability).is_some())
}

fn in_scope(caller: &Caller, upstream: &UpstreamId) -> bool {
    caller.scopes.upstreams.as_ref().is_none_or(|all| all.contains(upstream))
}

/// The upstream and the prompt's own name. One that the line does not reach is found too: the gate refuses it with a row.
fn split<'u, 'n>(upstreams: &'u Upstreams, name: &'n str) -> Option<(&'u Arc<dyn Upstream>, &'n str)> {
    let (id, own) = name.split_once(JOINT)?;
    Some((upstreams.get(&UpstreamId::new(id))?, own))
}

fn none() -> UpstreamId {
    UpstreamId::new("")
}

fn method_name(method: &str) -> String {
    format!("method:{method}")
}

fn missing(message: &str) -> Refusal {
    Refusal::new(Code::NotFound, message)
}

/// A member that names what is asked for: a string, once, of a sensible length.
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

/// The members that rules, redaction and the row see; `arguments` stands for its own members, no name at all for every member
/// but `_meta`.
fn arguments_of(params: Option<&RawValue>, names: &[&str]) -> Result<Arguments, Refusal> {
    let none = raw::empty_object();
    let params = params.unwrap_or(&none);
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
