//! Lists of resources, templates and prompts: the only upstream's page, or everyone's in one list. Leaves out what only people may
//! use, as the tool list does.

use std::sync::Arc;

use countersign_core::ids::{FullName, UpstreamId};
use countersign_core::role::Role;
use countersign_core::rules::Facts;
use countersign_core::tool::Tool;
use countersign_wire::frame::{Reply, RpcError, code};
use countersign_wire::raw::{self, Raw};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::{JOINT, Passthrough};
use crate::cards::{self, Cards};
use crate::house::Upstreams;
use crate::upstream_questions::QuestionGate;
use crate::upstreams::{Talk, Upstream};

/// The most pages read of one upstream's list.
const MOST_PAGES: usize = 200;
/// The most items taken from one upstream's list.
const MOST_ITEMS: usize = 10_000;

/// What a list is a list of.
pub(super) struct Kind {
    capability: &'static str,
    member: &'static str,
    field: &'static str,
    prefix: &'static str,
}

pub(super) const RESOURCES: Kind =
    Kind { capability: "resources", member: "resources", field: "uri", prefix: "resource:" };
pub(super) const TEMPLATES: Kind =
    Kind { capability: "resources", member: "resourceTemplates", field: "uriTemplate", prefix: "resource:" };
pub(super) const PROMPTS: Kind =
    Kind { capability: "prompts", member: "prompts", field: "name", prefix: "prompt:" };

impl Passthrough<'_> {
    /// The only upstream's page, or one list of everyone's, every page; an upstream that fails leaves the others' standing.
    pub(super) async fn list(
        &self,
        upstreams: &Upstreams,
        bare: Option<&Arc<dyn Upstream>>,
        method: &str,
        kind: &Kind,
        params: Option<&RawValue>,
    ) -> Reply {
        if let Some(only) = bare {
            let page = self.to(only, method, params).forward().await?;
            return Ok(self.without_hidden(only.id(), kind, page));
        }
        let mut items: Vec<Raw> = Vec::new();
        if method == "resources/list" && Cards::of(self.ctx) == Cards::Shown {
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

    /// The page without what only people may use; with nothing to leave out every byte stays.
    fn without_hidden(&self, upstream: &UpstreamId, kind: &Kind, page: Raw) -> Raw {
        let items = items_of(&page, kind.member);
        let shown: Vec<&Raw> = items.iter().filter(|item| !self.is_hidden(upstream, kind, item)).collect();
        if shown.len() == items.len() {
            return page;
        }
        raw::set(&page, kind.member, &raw::to_raw(&shown)).unwrap_or(page)
    }

    /// Whether a rule keeps an item for people and an agent asks: then it is absent, as a human-only tool is.
    fn is_hidden(&self, upstream: &UpstreamId, kind: &Kind, item: &RawValue) -> bool {
        let Some(own) = raw::get_str(item, kind.field) else { return false };
        let name = FullName::new(upstream.clone(), format!("{}{own}", kind.prefix));
        let law = self.house.law.load();
        let (arguments, tool) =
            (Map::from_iter([("uri".to_owned(), Value::from(&*own))]), Tool::passage(&name));
        let facts = Facts {
            name: &name,
            tool: tool.as_ref(),
            arguments: &arguments,
            caller: self.caller,
            intent: None,
            mode: law.mode,
            now: self.house.now(),
        };
        self.caller.role == Role::Agent && law.rules.resolve(&facts).role == Some(Role::Human)
    }

    pub(super) async fn pages(&self, upstream: &Arc<dyn Upstream>, method: &str, member: &str) -> Vec<Raw> {
        let mut items = Vec::new();
        let mut cursor: Option<String> = None;
        for _ in 0..MOST_PAGES {
            let params = cursor.as_ref().map(|cursor| raw::to_raw(&json!({"cursor": cursor})));
            let gate = QuestionGate::new(self.house, self.ctx, self.caller, upstream.as_ref());
            let talk = Talk::between(&gate, self.house.law.load().timeout);
            let Ok(page) = upstream.request(method, params.as_deref(), talk).await else { break };
            items.extend(items_of(&page, member));
            items.truncate(MOST_ITEMS);
            let next = raw::get_str(&page, "nextCursor").map(|next| next.into_owned());
            if next.is_none() || next == cursor || items.len() == MOST_ITEMS {
                break;
            }
            cursor = next;
        }
        items
    }
}

fn items_of(page: &RawValue, member: &str) -> Vec<Raw> {
    raw::get(page, member).and_then(|list| serde_json::from_str(list.get()).ok()).unwrap_or_default()
}

fn with_prefix(upstream: &UpstreamId, field: &str, item: Raw) -> Raw {
    let Some(name) = raw::get_str(&item, field) else { return item };
    let name = raw::to_raw(&format!("{upstream}{JOINT}{name}"));
    raw::set(&item, field, &name).unwrap_or(item)
}
