//! Lists of resources, templates and prompts: the only upstream's page, or one list of all upstreams. Items for people only are left out,
//! as in the tool list.

use std::sync::Arc;

use countersign_mcp::jsonrpc::{Reply, RpcError, code};
use countersign_mcp::raw::{self, RawJson};
use countersign_policy::ids::{FullName, UpstreamId};
use countersign_policy::role::Role;
use countersign_policy::rules::ConditionFacts;
use countersign_policy::tool::Tool;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::{JOINT, Passthrough};
use crate::cards::{self, CardSupport};
use crate::state::UpstreamMap;
use crate::upstream_questions::QuestionGate;
use crate::upstreams::{CallContext, Upstream};

const MOST_PAGES: usize = 200;
const MOST_ITEMS: usize = 10_000;

pub(super) struct ListKind {
    capability: &'static str,
    member: &'static str,
    field: &'static str,
    prefix: &'static str,
}

pub(super) const RESOURCES: ListKind =
    ListKind { capability: "resources", member: "resources", field: "uri", prefix: "resource:" };
pub(super) const TEMPLATES: ListKind = ListKind {
    capability: "resources",
    member: "resourceTemplates",
    field: "uriTemplate",
    prefix: "resource:",
};
pub(super) const PROMPTS: ListKind =
    ListKind { capability: "prompts", member: "prompts", field: "name", prefix: "prompt:" };

impl Passthrough<'_> {
    /// The only upstream's page, or all pages of all upstreams; one that fails is left out.
    pub(super) async fn list(
        &self,
        upstreams: &UpstreamMap,
        bare: Option<&Arc<dyn Upstream>>,
        method: &str,
        kind: &ListKind,
        params: Option<&RawValue>,
    ) -> Reply {
        if let Some(only) = bare {
            if self.is_known_empty(only.as_ref(), kind.capability) {
                return Ok(raw::to_raw(&json!({ kind.member: [] })));
            }
            let page = self.to(only, method, params).forward().await?;
            return Ok(self.without_hidden(only.id(), kind, page));
        }
        let mut items: Vec<RawJson> = Vec::new();
        if method == "resources/list" && CardSupport::of(self.ctx) == CardSupport::Shown {
            items.extend(cards::resources().iter().map(raw::to_raw));
        }
        for upstream in self.reachable(upstreams, kind.capability) {
            let listed = self.pages(upstream, method, kind.member).await;
            let shown = listed.into_iter().filter(|item| !self.is_hidden(upstream.id(), kind, item));
            items.extend(shown.map(|item| match kind.capability {
                "prompts" => with_prefix(upstream.id(), kind.field, item),
                _ => item,
            }));
        }
        raw::from_text(format!("{{\"{}\":{}}}", kind.member, raw::to_raw(&items)))
            .ok_or_else(|| RpcError::new(code::INTERNAL, "the list could not be written"))
    }

    /// Without hidden items; if there are none, every byte stays.
    fn without_hidden(&self, upstream: &UpstreamId, kind: &ListKind, page: RawJson) -> RawJson {
        let items = items_of(&page, kind.member);
        let shown: Vec<&RawJson> =
            items.iter().filter(|item| !self.is_hidden(upstream, kind, item)).collect();
        if shown.len() == items.len() {
            return page;
        }
        raw::set(&page, kind.member, &raw::to_raw(&shown)).unwrap_or(page)
    }

    /// Whether a rule keeps an item for people and an agent asks.
    fn is_hidden(&self, upstream: &UpstreamId, kind: &ListKind, item: &RawValue) -> bool {
        let Some(own) = raw::get_str(item, kind.field) else { return false };
        let name = FullName::new(upstream.clone(), format!("{}{own}", kind.prefix));
        let policy = self.gateway.policy.load();
        let (arguments, tool) =
            (Map::from_iter([("uri".to_owned(), Value::from(&*own))]), Tool::passage(&name));
        let facts = ConditionFacts {
            name: &name,
            tool: tool.as_ref(),
            arguments: &arguments,
            caller: self.caller,
            intent: None,
            mode: policy.mode,
            now: self.gateway.now(),
        };
        self.caller.role == Role::Agent && policy.rules.resolve(&facts).role == Some(Role::Human)
    }

    pub(super) async fn pages(
        &self,
        upstream: &Arc<dyn Upstream>,
        method: &str,
        member: &str,
    ) -> Vec<RawJson> {
        let mut items = Vec::new();
        let mut cursor: Option<String> = None;
        for _ in 0..MOST_PAGES {
            let params = cursor.as_ref().map(|cursor| raw::to_raw(&json!({"cursor": cursor})));
            let gate = QuestionGate::new(self.gateway, self.ctx, self.caller, upstream.as_ref());
            let context = CallContext::between(&gate, self.gateway.policy.load().timeout);
            let Ok(page) = upstream.request(method, params.as_deref(), context).await else { break };
            items.extend(items_of(&page, member));
            items.truncate(MOST_ITEMS);
            let next = raw::get_str(&page, "nextCursor").map(|next| next.into_owned());
            // A cursor that repeats itself would be read for ever.
            if next.is_none() || next == cursor || items.len() == MOST_ITEMS {
                break;
            }
            cursor = next;
        }
        items
    }
}

fn items_of(page: &RawValue, member: &str) -> Vec<RawJson> {
    raw::get(page, member).and_then(|list| serde_json::from_str(list.get()).ok()).unwrap_or_default()
}

fn with_prefix(upstream: &UpstreamId, field: &str, item: RawJson) -> RawJson {
    let Some(name) = raw::get_str(&item, field) else { return item };
    let name = raw::to_raw(&format!("{upstream}{JOINT}{name}"));
    raw::set(&item, field, &name).unwrap_or(item)
}
