//! The notifications a modern client subscribes to (`subscriptions/listen`), by the categories of the protocol.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::raw;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListenFilter {
    #[serde(skip_serializing_if = "is_false")]
    pub tools_list_changed: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub prompts_list_changed: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub resources_list_changed: bool,
    /// `notifications/resources/updated` for these URIs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_subscriptions: Vec<String>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's skip_serializing_if hands out references")]
fn is_false(value: &bool) -> bool {
    !*value
}

impl ListenFilter {
    /// All list changes, no resources.
    pub fn all_lists() -> Self {
        Self {
            tools_list_changed: true,
            prompts_list_changed: true,
            resources_list_changed: true,
            resource_subscriptions: Vec::new(),
        }
    }

    /// Reads the `notifications` member of the request's params.
    pub fn from_params(params: Option<&RawValue>) -> Option<Self> {
        serde_json::from_str(raw::get_text(params?.get(), "notifications")?).ok()
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub fn wants(&self, method: &str, params: Option<&RawValue>) -> bool {
        match method {
            "notifications/tools/list_changed" => self.tools_list_changed,
            "notifications/prompts/list_changed" => self.prompts_list_changed,
            "notifications/resources/list_changed" => self.resources_list_changed,
            "notifications/resources/updated" => params
                .and_then(|params| raw::get_str(params, "uri"))
                .is_some_and(|uri| self.resource_subscriptions.iter().any(|wanted| *wanted == uri)),
            // A client gets only what it subscribed to; a category of a later revision is none of that.
            _ => false,
        }
    }

    /// The part of this filter that a server with these capabilities can serve.
    pub fn offered_by(&self, capabilities: &RawValue) -> Self {
        let says = |kind: &str, what: &str| {
            raw::get_in(capabilities, &[kind, what]).is_some_and(|value| value.get() == "true")
        };
        Self {
            tools_list_changed: self.tools_list_changed && says("tools", "listChanged"),
            prompts_list_changed: self.prompts_list_changed && says("prompts", "listChanged"),
            resources_list_changed: self.resources_list_changed && says("resources", "listChanged"),
            resource_subscriptions: if says("resources", "subscribe") {
                self.resource_subscriptions.clone()
            } else {
                Vec::new()
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_reads_and_writes_only_what_is_wanted() {
        let params = raw::from_text(
            r#"{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a://b"]}}"#,
        )
        .unwrap();
        let filter = ListenFilter::from_params(Some(&params)).unwrap();
        assert!(filter.wants("notifications/tools/list_changed", None));
        assert!(!filter.wants("notifications/prompts/list_changed", None));
        let update = raw::from_text(r#"{"uri":"a://b"}"#).unwrap();
        assert!(filter.wants("notifications/resources/updated", Some(&update)));
        assert_eq!(
            serde_json::to_string(&filter).unwrap(),
            r#"{"toolsListChanged":true,"resourceSubscriptions":["a://b"]}"#
        );
        let capabilities = raw::from_text(r#"{"tools":{"listChanged":true}}"#).unwrap();
        assert_eq!(
            ListenFilter::all_lists().offered_by(&capabilities),
            ListenFilter { tools_list_changed: true, ..ListenFilter::default() }
        );
    }
}
