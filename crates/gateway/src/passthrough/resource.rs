//! Finds the upstream of a resource URI: the one that lists exactly it, else the one whose template fits. If it is ambiguous, none gets the
//! request: a template that fits everything must not take another upstream's reads, nor those of one that is still starting.

use std::sync::Arc;

use countersign_mcp::jsonrpc::Reply;
use countersign_mcp::raw;
use countersign_policy::ids::{FullName, UpstreamId};
use countersign_policy::refusal::{Code, Refusal};
use serde_json::json;
use serde_json::value::RawValue;

use super::{Passthrough, arguments_of, missing, no_upstream, one_text};
use crate::request::invalid;
use crate::state::UpstreamMap;
use crate::upstreams::Upstream;

impl Passthrough<'_> {
    pub(super) async fn resource(
        &self,
        upstreams: &UpstreamMap,
        bare: Option<&Arc<dyn Upstream>>,
        method: &str,
        params: Option<&RawValue>,
    ) -> Reply {
        let uri = match one_text(params, "uri") {
            Ok(uri) => uri,
            Err(refusal) => return Err(self.refuse(&no_upstream(), "resource:", &refusal, params).await),
        };
        let what = format!("resource:{uri}");
        let found = match bare {
            Some(only) => Ok(only),
            None => self.owner(upstreams, &uri).await,
        };
        let upstream = match found {
            Ok(upstream) => upstream,
            Err(refusal) => return Err(self.refuse(&no_upstream(), &what, &refusal, params).await),
        };
        if !is_normal(&uri) && !self.lists(upstream, &uri).await {
            let refusal =
                invalid("uri", "is not in normal form; write it without `.` segments and needless escapes");
            let refusal = refusal.because("resource_uri_not_normal");
            return Err(self.refuse(upstream.id(), &what, &refusal, params).await);
        }
        let arguments = match arguments_of(params, &["uri"]) {
            Ok(arguments) => arguments,
            Err(refusal) => return Err(self.refuse(upstream.id(), &what, &refusal, params).await),
        };
        let passage = self.to(upstream, method, params);
        passage.govern(FullName::new(upstream.id().clone(), what), arguments).await
    }

    /// The only upstream a URI belongs to. Exact beats template; two of a kind refuse.
    async fn owner<'u>(
        &self,
        upstreams: &'u UpstreamMap,
        uri: &str,
    ) -> Result<&'u Arc<dyn Upstream>, Refusal> {
        let mut has_waited = false;
        loop {
            // Computed before any list is read: an upstream that comes up meanwhile has to be asked too.
            let possible_owners = self.possible_owners(upstreams, "resources");
            let offering: Vec<&Arc<dyn Upstream>> = self.reachable(upstreams, "resources").collect();
            match (offering.as_slice(), possible_owners.as_slice()) {
                ([only], []) | ([], [only]) => return Ok(*only),
                _ => {}
            }
            let mut exact = Vec::new();
            for upstream in &offering {
                if self.lists(upstream, uri).await {
                    exact.push(*upstream);
                }
            }
            if let Some(found) = only_one(&exact, uri)? {
                return Ok(found);
            }
            if possible_owners.is_empty() {
                return self.by_template(&offering, uri).await;
            }
            self.wait_once(&possible_owners, &mut has_waited, uri).await?;
        }
    }

    /// Waits once for upstreams that may own a URI; refuses if they are still starting after that.
    async fn wait_once(
        &self,
        possible_owners: &[&Arc<dyn Upstream>],
        has_waited: &mut bool,
        uri: &str,
    ) -> Result<(), Refusal> {
        let ids: Vec<UpstreamId> = possible_owners.iter().map(|upstream| upstream.id().clone()).collect();
        if std::mem::replace(has_waited, true) {
            let names: Vec<&str> = ids.iter().map(UpstreamId::as_str).collect();
            let shown = crate::escape::excerpt(uri, 200);
            let message =
                format!("`{shown}` may belong to an upstream that is still starting: {}", names.join(", "));
            let refusal = Refusal::new(Code::UpstreamUnavailable, message).because("upstream_unavailable");
            return Err(refusal.with("starting", json!(names)));
        }
        self.gateway.wait_for_owners(&ids).await;
        Ok(())
    }

    async fn by_template<'u>(
        &self,
        offering: &[&'u Arc<dyn Upstream>],
        uri: &str,
    ) -> Result<&'u Arc<dyn Upstream>, Refusal> {
        let mut fitting = Vec::new();
        for upstream in offering {
            if self.templates(upstream).await.iter().any(|template| fits(template, uri)) {
                fitting.push(*upstream);
            }
        }
        only_one(&fitting, uri)?.ok_or_else(|| {
            let shown = crate::escape::excerpt(uri, 200);
            missing(&format!("there is no resource `{shown}`")).with("uri", shown)
        })
    }

    pub(super) async fn completer<'u>(
        &self,
        upstreams: &'u UpstreamMap,
        template: &str,
    ) -> Result<Option<&'u Arc<dyn Upstream>>, Refusal> {
        let mut has_waited = false;
        loop {
            let possible_owners = self.possible_owners(upstreams, "completions");
            let mut found = Vec::new();
            for upstream in self.reachable(upstreams, "completions") {
                if self.templates(upstream).await.iter().any(|listed| listed == template) {
                    found.push(upstream);
                }
            }
            let found = only_one(&found, template)?;
            if found.is_some() || possible_owners.is_empty() {
                return Ok(found);
            }
            self.wait_once(&possible_owners, &mut has_waited, template).await?;
        }
    }

    async fn lists(&self, upstream: &Arc<dyn Upstream>, uri: &str) -> bool {
        let listed = self.pages(upstream, "resources/list", "resources").await;
        listed.iter().any(|item| raw::get_str(item, "uri").as_deref() == Some(uri))
    }

    async fn templates(&self, upstream: &Arc<dyn Upstream>) -> Vec<String> {
        let listed = self.pages(upstream, "resources/templates/list", "resourceTemplates").await;
        let own = listed.iter().filter_map(|item| raw::get_str(item, "uriTemplate"));
        own.map(|template| template.into_owned()).collect()
    }
}

fn only_one<'u>(
    found: &[&'u Arc<dyn Upstream>],
    uri: &str,
) -> Result<Option<&'u Arc<dyn Upstream>>, Refusal> {
    match found {
        [] => Ok(None),
        [one] => Ok(Some(*one)),
        several => {
            let names: Vec<&str> = several.iter().map(|upstream| upstream.id().as_str()).collect();
            let message = format!("several upstreams have `{}`", crate::escape::excerpt(uri, 200));
            let refusal = Refusal::new(Code::ArgumentsInvalid, message).because("resource_ambiguous");
            Err(refusal.with("upstreams", json!(names)))
        }
    }
}

/// Whether a URI may come from a template: its literal parts occur in order, the first at the start, the last at the end.
fn fits(template: &str, uri: &str) -> bool {
    let mut parts = template.split('{');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = uri.strip_prefix(first) else { return false };
    let literals: Vec<&str> = parts.map(|part| part.split_once('}').map_or("", |(_, after)| after)).collect();
    let Some((last, inner)) = literals.split_last() else { return rest.is_empty() };
    for literal in inner {
        let Some(at) = rest.find(literal) else { return false };
        rest = rest.get(at.saturating_add(literal.len())..).unwrap_or_default();
    }
    rest.ends_with(last)
}

/// Whether a URI is in normal form: a rule on one spelling must not be evaded by an equivalent one.
fn is_normal(uri: &str) -> bool {
    let scheme = uri.split(':').next().unwrap_or_default();
    let path = uri.split(['?', '#']).next().unwrap_or_default();
    let has_dots = path.split('/').any(|segment| matches!(segment, "." | ".."));
    let has_odd = uri.chars().any(|one| one.is_whitespace() || one == '\\') || crate::escape::hides(uri);
    let mut escapes = uri.split('%').skip(1).map(|after| {
        let digits = after.get(..2).filter(|digits| digits.bytes().all(|one| one.is_ascii_hexdigit()));
        digits.and_then(|digits| u8::from_str_radix(digits, 16).ok())
    });
    // Escaping a letter, a digit, `.` or the like is needless, and a malformed escape is ambiguous.
    let needless = |byte: Option<u8>| {
        byte.is_none_or(|byte| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'/' | 0)
        })
    };
    !scheme.bytes().any(|one| one.is_ascii_uppercase()) && !has_dots && !has_odd && !escapes.any(needless)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attack_10_a_template_fits_only_with_all_its_literal_parts() {
        for (template, uri, expect) in [
            ("file:///{path}", "file:///a/b", true),
            ("test://template/{id}/data", "test://template/7/data", true),
            ("test://template/{id}/data", "test://template/7/other", false),
            ("test://template/{id}/data", "test://template/7/data/more", false),
            ("test://template/{id}", "demo://template/7", false),
            ("plain://x", "plain://x", true),
            ("plain://x", "plain://xy", false),
            ("a://{x}/b/{y}.md", "a://1/b/2.md", true),
            ("a://{x}/b/{y}.md", "a://1/b/2.txt", false),
            ("{+all}", "anything://at/all", true),
        ] {
            assert_eq!(fits(template, uri), expect, "{template} {uri}");
        }
    }

    #[test]
    fn attack_10_other_spellings_of_a_uri_are_not_normal() {
        for fine in [
            "file:///a/b.txt",
            "test://static-text",
            "a://b?x=%20y",
            "note://7",
            "x:y",
            "a://b/ü",
            "a://b/...",
        ] {
            assert!(is_normal(fine), "{fine}");
        }
        for odd in [
            "FILE:///a",
            "file:///x/../a",
            "file:///./a",
            "file:///%61",
            "file:///a%2fb",
            "file:///a%00",
            "file:///a%zz",
            "file:///%2e%2e/a",
            "file:\\\\a",
            "file:///a b",
            "file:///a\u{200b}",
            "file:///x/..",
        ] {
            assert!(!is_normal(odd), "{odd}");
        }
    }
}
