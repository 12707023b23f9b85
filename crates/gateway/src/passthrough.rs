//! What upstreams offer beyond tools: resources, prompts, completions, logging, tasks, extensions. Passed on as it came,
//! routed by who offers it; prompts carry their upstream's name where there are several. Tools never pass here.

use std::sync::Arc;

use countersign_core::call::Caller;
use countersign_core::ids::UpstreamId;
use countersign_wire::frame::{Reply, RpcError, code};
use countersign_wire::raw::{self, Raw};
use countersign_wire::serve::Ctx;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::cards::{self, Cards};
use crate::house::{House, Upstreams};
use crate::members;
use crate::trace;
use crate::upstreams::{Talk, Upstream, UpstreamFault};

/// Between an upstream's name and a prompt's.
const JOINT: &str = "__";

/// The most pages read of one upstream's list.
const MOST_PAGES: usize = 200;

/// One request on its way to an upstream.
pub struct Passage<'a> {
    /// What all lines share.
    pub house: &'a Arc<House>,
    /// The request.
    pub ctx: &'a Ctx,
    /// Who asks.
    pub caller: &'a Caller,
}

impl Passage<'_> {
    /// Passes a request on.
    pub async fn request(&self, method: &str, params: Option<&RawValue>) -> Reply {
        let upstreams = self.house.upstreams.load_full();
        let uri = params.and_then(|params| raw::get_str(params, "uri"));
        if let ("resources/read", Some(uri)) = (method, uri.filter(|uri| cards::is_ours(uri))) {
            return cards::read(&uri);
        }
        if let Some(only) = self.house.bare_upstream() {
            return self.forward(&only, method, params).await;
        }
        match method {
            "resources/list" => self.gather(&upstreams, method, "resources", None).await,
            "resources/templates/list" => self.gather(&upstreams, method, "resourceTemplates", None).await,
            "prompts/list" => self.gather(&upstreams, method, "prompts", Some("name")).await,
            "prompts/get" => self.prompt(&upstreams, params).await,
            "resources/read" | "resources/subscribe" | "resources/unsubscribe" => {
                self.resource(&upstreams, method, params).await
            }
            "completion/complete" => self.complete(&upstreams, params).await,
            "logging/setLevel" => self.everywhere(&upstreams, method, params).await,
            other => Err(RpcError::method_not_found(other)),
        }
    }

    fn talk(&self, upstream: &dyn Upstream) -> Talk {
        Talk::between(self.ctx, upstream, self.house.law.load().timeout)
    }

    async fn forward(&self, upstream: &Arc<dyn Upstream>, method: &str, params: Option<&RawValue>) -> Reply {
        let cleared = params.and_then(members::without_ours);
        let params = cleared.as_deref().or(params);
        let doing = async |onward: Option<Raw>| {
            let params = onward.as_deref().or(params);
            upstream.request(method, params, self.talk(upstream.as_ref())).await
        };
        let answer = tokio::select! {
            answer = trace::sent(upstream.id().as_str(), method, None, params, doing) => answer,
            () = self.ctx.cancelled() => return Err(RpcError::new(code::INTERNAL, "cancelled")),
        };
        answer.map_err(|fault| rpc_error(upstream.id(), &fault))
    }

    fn reachable<'u>(
        &self,
        upstreams: &'u Upstreams,
        capability: &'u str,
    ) -> impl Iterator<Item = &'u Arc<dyn Upstream>> {
        let scope = self.caller.scopes.upstreams.clone();
        upstreams.values().filter(move |upstream| {
            scope.as_ref().is_none_or(|all| all.contains(upstream.id()))
                && offers(upstream.as_ref(), capability)
        })
    }

    /// One list of everyone's, every page; an upstream that fails leaves the others' standing.
    async fn gather(
        &self,
        upstreams: &Upstreams,
        method: &str,
        member: &str,
        prefixed: Option<&str>,
    ) -> Reply {
        let capability = if member == "prompts" { "prompts" } else { "resources" };
        let mut items: Vec<Raw> = Vec::new();
        if method == "resources/list" && Cards::of(self.ctx) == Cards::Shown {
            items.extend(cards::resources().iter().map(raw::to_raw));
        }
        for upstream in self.reachable(upstreams, capability) {
            let listed = self.pages(upstream, method, member).await;
            items.extend(listed.into_iter().map(|item| match prefixed {
                Some(field) => with_prefix(upstream.id(), field, item),
                None => item,
            }));
        }
        let text: Vec<&str> = items.iter().map(|item| item.get()).collect();
        raw::from_text(format!("{{\"{member}\":[{}]}}", text.join(",")))
            .ok_or_else(|| RpcError::new(code::INTERNAL, "the list could not be written"))
    }

    async fn pages(&self, upstream: &Arc<dyn Upstream>, method: &str, member: &str) -> Vec<Raw> {
        let mut items = Vec::new();
        let mut cursor: Option<String> = None;
        for _ in 0..MOST_PAGES {
            let params = cursor.as_ref().map(|cursor| raw::to_raw(&json!({"cursor": cursor})));
            let Ok(page) = upstream.request(method, params.as_deref(), self.talk(upstream.as_ref())).await
            else {
                break;
            };
            let listed =
                raw::get(&page, member).and_then(|list| serde_json::from_str::<Vec<Raw>>(list.get()).ok());
            items.extend(listed.unwrap_or_default());
            let next = raw::get_str(&page, "nextCursor").map(|next| next.into_owned());
            if next.is_none() || next == cursor {
                break;
            }
            cursor = next;
        }
        items
    }

    async fn prompt(&self, upstreams: &Upstreams, params: Option<&RawValue>) -> Reply {
        let name = params.and_then(|params| raw::get_str(params, "name")).unwrap_or_default();
        let Some((upstream, own)) = self.split(upstreams, &name) else {
            return Err(RpcError::invalid_params(&format!(
                "there is no prompt `{}`",
                crate::escape::visible(&name)
            )));
        };
        let params = params.and_then(|params| raw::set(params, "name", &raw::to_raw(own)));
        self.forward(upstream, "prompts/get", params.as_deref()).await
    }

    fn split<'u, 'n>(
        &self,
        upstreams: &'u Upstreams,
        name: &'n str,
    ) -> Option<(&'u Arc<dyn Upstream>, &'n str)> {
        let (id, own) = name.split_once(JOINT)?;
        let upstream = upstreams.get(&UpstreamId::new(id))?;
        let in_scope = self.caller.scopes.upstreams.as_ref().is_none_or(|all| all.contains(upstream.id()));
        in_scope.then_some((upstream, own))
    }

    /// A resource by its URI: the upstream that lists it, or has a template for it, or the only one that offers any.
    async fn resource(&self, upstreams: &Upstreams, method: &str, params: Option<&RawValue>) -> Reply {
        let uri = params.and_then(|params| raw::get_str(params, "uri")).unwrap_or_default().into_owned();
        let offering: Vec<&Arc<dyn Upstream>> = self.reachable(upstreams, "resources").collect();
        if let [only] = offering.as_slice() {
            return self.forward(only, method, params).await;
        }
        for upstream in offering {
            if self.has_resource(upstream, &uri).await {
                return self.forward(upstream, method, params).await;
            }
        }
        let shown = crate::escape::visible(&uri);
        Err(RpcError::with_data(-32002, &format!("there is no resource `{shown}`"), &json!({"uri": uri})))
    }

    async fn has_resource(&self, upstream: &Arc<dyn Upstream>, uri: &str) -> bool {
        let listed = self.pages(upstream, "resources/list", "resources").await;
        if listed.iter().any(|item| raw::get_str(item, "uri").as_deref() == Some(uri)) {
            return true;
        }
        let templates = self.pages(upstream, "resources/templates/list", "resourceTemplates").await;
        templates
            .iter()
            .any(|item| raw::get_str(item, "uriTemplate").is_some_and(|template| fits(&template, uri)))
    }

    async fn complete(&self, upstreams: &Upstreams, params: Option<&RawValue>) -> Reply {
        let Some(params) = params else { return Err(RpcError::invalid_params("`ref` is required")) };
        let named = raw::get_str_in(params, &["ref", "name"]).map(|name| name.into_owned());
        if let Some(name) = named {
            let Some((upstream, own)) = self.split(upstreams, &name) else {
                return Err(RpcError::invalid_params("there is no such prompt"));
            };
            let params = raw::set_in(params, "ref", "name", &raw::to_raw(own));
            return self.forward(upstream, "completion/complete", params.as_deref()).await;
        }
        let uri = raw::get_str_in(params, &["ref", "uri"]).unwrap_or_default().into_owned();
        for upstream in self.reachable(upstreams, "completions") {
            let templates = self.pages(upstream, "resources/templates/list", "resourceTemplates").await;
            if templates.iter().any(|item| raw::get_str(item, "uriTemplate").as_deref() == Some(&uri)) {
                return self.forward(upstream, "completion/complete", Some(params)).await;
            }
        }
        Err(RpcError::invalid_params("nobody completes this reference"))
    }

    async fn everywhere(&self, upstreams: &Upstreams, method: &str, params: Option<&RawValue>) -> Reply {
        for upstream in self.reachable(upstreams, "logging") {
            // One that can't keeps its level; the others follow.
            let _ = self.forward(upstream, method, params).await;
        }
        Ok(raw::empty_object())
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

fn with_prefix(upstream: &UpstreamId, field: &str, item: Raw) -> Raw {
    let Some(name) = raw::get_str(&item, field) else { return item };
    let name = raw::to_raw(&format!("{upstream}{JOINT}{name}"));
    raw::set(&item, field, &name).unwrap_or(item)
}

/// Whether a URI may come from a template: its literal parts stand in order, the first at the start.
fn fits(template: &str, uri: &str) -> bool {
    let mut rest = uri;
    for (index, part) in template.split('{').enumerate() {
        let literal = if index == 0 { part } else { part.split_once('}').map_or("", |(_, after)| after) };
        match (index, rest.find(literal)) {
            (0, Some(0)) | (1.., Some(_)) => {
                let at = rest.find(literal).unwrap_or(0) + literal.len();
                rest = rest.get(at..).unwrap_or_default();
            }
            _ => return false,
        }
    }
    true
}

fn rpc_error(upstream: &UpstreamId, fault: &UpstreamFault) -> RpcError {
    let (text, reason) = match fault {
        UpstreamFault::Rpc(error) => return error.clone(),
        UpstreamFault::Unavailable { why, .. } => (why, "E_UPSTREAM_UNAVAILABLE"),
        UpstreamFault::Timeout { why, .. } => (why, "E_UPSTREAM_TIMEOUT"),
    };
    let message = format!("upstream `{upstream}` gave no answer: {}", crate::escape::visible(text));
    RpcError::with_data(code::INTERNAL, &message, &json!({"code": reason}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_fit_their_uris() {
        for (template, uri, expect) in [
            ("file:///{path}", "file:///a/b", true),
            ("test://template/{id}/data", "test://template/7/data", true),
            ("test://template/{id}/data", "test://template/7/other", false),
            ("test://template/{id}", "demo://template/7", false),
            ("plain://x", "plain://x", true),
        ] {
            assert_eq!(fits(template, uri), expect, "{template} {uri}");
        }
    }
}
