//! What a client sees: on the router surface three call tools and search, on the direct surface every tool by its name, and our
//! own tools on both.

pub mod definitions;
pub(crate) mod own;
mod retrieve;

use std::sync::Arc;

use countersign_config::{NativeKind, ToolSurface, UpstreamKind};
use countersign_mcp::jsonrpc::{Reply, RpcError, code};
use countersign_mcp::raw::{self, RawJson};
use countersign_mcp::server::RequestContext;
use countersign_policy::call::{Caller, CatalogStatus};
use countersign_policy::gate;
use countersign_policy::ids::{FullName, UpstreamId};
use countersign_policy::intent::{CallToolVariant, DeclaredIntent};
use countersign_policy::record::CallRecord;
use countersign_policy::refusal::{Code, Refusal};
use countersign_policy::role::Role;
use countersign_policy::strict_json;
use serde_json::json;
use serde_json::value::RawValue;

use crate::answer::{Answer, TextForm};
use crate::call_log::CallLog;
use crate::cards::{self, CardSupport};
use crate::instructions::ReachableUpstreams;
use crate::pipeline::request::ToolCallRequest;
use crate::pipeline::run_tool_call;
use crate::state::GatewayState;
use crate::trace;

/// `tools/list`: our tools, and on the direct surface every upstream's, in one stable order.
pub(crate) fn list_tools(
    gateway: &GatewayState,
    caller: &Caller,
    surface: ToolSurface,
    cards: CardSupport,
) -> Reply {
    let mut text = String::from("{\"tools\":[");
    let mut push = |definition: &str| {
        if !text.ends_with('[') {
            text.push(',');
        }
        text.push_str(definition);
    };
    let named = ReachableUpstreams::of(gateway, &caller.scopes, caller.role);
    match surface {
        ToolSurface::Router => {
            let tasks = crate::tasks::are_offered(gateway);
            for tool in definitions::ROUTER.iter() {
                let tool = definitions::naming(definitions::carded(tool, cards), &named);
                // Whether a call becomes a task depends on the tool it calls: the call tools only may.
                let followed =
                    tasks.then(|| raw::set(&tool, "execution", &definitions::MAY_BE_TASK)).flatten();
                push(followed.as_deref().unwrap_or(&tool).get());
            }
            let own = definitions::OWN.iter().map(|tool| definitions::carded(tool, cards));
            own.for_each(|tool| push(definitions::naming(tool, &named).get()));
            own::aliases(gateway).iter().for_each(|tool| push(tool.get()));
        }
        ToolSurface::Direct => {
            let catalog = gateway.catalog.load();
            if !catalog.is_bare() {
                let own = definitions::OWN.iter().map(|tool| definitions::carded(tool, cards));
                own.for_each(|tool| push(definitions::naming(tool, &named).get()));
                own::aliases(gateway).iter().for_each(|tool| push(tool.get()));
            }
            let reachable =
                |upstream| caller.scopes.upstreams.as_ref().is_none_or(|all| all.contains(upstream));
            for listed in catalog.accepted().filter(|listed| reachable(&listed.tool.upstream)) {
                let hidden = caller.role == Role::Agent && listed.outlook.role == Some(Role::Human);
                let hidden =
                    hidden || (cards == CardSupport::Shown && listed.direct_name == cards::answer::NAME);
                match cards {
                    _ if hidden => {}
                    CardSupport::Shown if listed.may_ask() => {
                        push(cards::linked(listed.direct_definition(), cards::PLAN).get());
                    }
                    CardSupport::Shown | CardSupport::Hidden => push(listed.direct_definition().get()),
                }
            }
        }
    }
    if cards == CardSupport::Shown {
        push(cards::answer::definition().get());
    }
    text.push_str("]}");
    raw::from_text(text).ok_or_else(|| RpcError::new(-32603, "the tool list could not be written"))
}

/// `tools/call`: finds out what the name means and runs it.
pub async fn call_tool(
    gateway: &Arc<GatewayState>,
    ctx: &RequestContext,
    caller: Caller,
    surface: ToolSurface,
    params: Option<&RawValue>,
) -> Reply {
    let none = raw::empty_object();
    let params = params.unwrap_or(&none);
    let Some(name) = raw::get_str(params, "name") else {
        return Err(RpcError::invalid_params("`name` is required: the tool to call"));
    };
    let request_id = caller.request_id.clone();
    let request_id = request_id.as_ref();
    if let Err(refusal) = check_size(gateway, &name, params) {
        return Box::pin(refuse_large(gateway, &caller, &name, refusal, params)).await.into_reply(request_id);
    }
    if let Some(variant) = definitions::variant(&name) {
        return match surface {
            ToolSurface::Router => call_router_tool(gateway, ctx, caller, variant, params).await,
            ToolSurface::Direct => Box::pin(refuse_unknown_tool(gateway, caller, &name, params)).await,
        };
    }
    // Before upstream tools: a card sends its nonce to this name, and no upstream may get it.
    if name == cards::answer::NAME && CardSupport::of(ctx) == CardSupport::Shown {
        return Box::pin(cards::answer::call(gateway, caller, params)).await.into_reply(request_id);
    }
    let bare = surface == ToolSurface::Direct && gateway.catalog.load().is_bare();
    if let Some(own) = own::own_tool_named(gateway, &name).filter(|_| !bare) {
        trace::about(own);
        let answer = Box::pin(own::call_own_tool(gateway, ctx, caller, surface, own, params)).await;
        return answer.into_reply(request_id);
    }
    match surface {
        ToolSurface::Router => Box::pin(refuse_unknown_tool(gateway, caller, &name, params)).await,
        ToolSurface::Direct => call_direct_tool(gateway, ctx, caller, &name, params).await,
    }
}

/// In bytes.
pub(crate) const LONGEST_NAME: usize = 1 << 10;

/// Refuses a request that is too large, before anything parses or copies it.
fn check_size(gateway: &GatewayState, name: &str, params: &RawValue) -> Result<(), Refusal> {
    let most = usize::try_from(gateway.policy.load().config.limits.arguments).unwrap_or(usize::MAX);
    let size = |member: &str| raw::get(params, member).map_or(0, |value| value.get().len());
    let parts = [
        ("name", name.len(), LONGEST_NAME),
        ("arguments", size("arguments"), most),
        ("_meta", size("_meta"), most),
    ];
    match parts.into_iter().find(|(_, size, most)| size > most) {
        Some((field, size, most)) => {
            let why = format!("has {size} bytes, and at most {most} are taken");
            let refusal = crate::pipeline::request::invalid(field, why).because("arguments_too_large");
            Err(refusal.with("size", size).with("limit", most))
        }
        None => Ok(()),
    }
}

/// Refuses a call that is too large. Its row holds the tool's name and nothing else of it.
async fn refuse_large(
    gateway: &Arc<GatewayState>,
    caller: &Caller,
    name: &str,
    refusal: Refusal,
    params: &RawValue,
) -> Answer {
    let variant = definitions::variant(name);
    let inside = || raw::get(params, "arguments").and_then(|given| raw::get_str(given, "name"));
    let named = variant.and_then(|_| inside()).filter(|inside| inside.len() <= LONGEST_NAME);
    let command = if name.len() > LONGEST_NAME { "tools/call" } else { name };
    let named = named.as_deref().unwrap_or(command);
    let tool = named.parse().unwrap_or_else(|_| FullName::new("", named));
    refuse_unread(gateway, caller, tool, variant, command, refusal, params).await
}

async fn call_router_tool(
    gateway: &Arc<GatewayState>,
    ctx: &RequestContext,
    caller: Caller,
    variant: CallToolVariant,
    params: &RawValue,
) -> Reply {
    let request_id = caller.request_id.clone();
    match ToolCallRequest::from_router(variant, params) {
        Ok(request) => {
            let form = text_form(gateway, &request.name);
            let answer = run_tool_call(gateway, Some(ctx), caller, request).await;
            answer.into_reply_with(form, request_id.as_ref())
        }
        Err((name, refusal)) => {
            let tool = name.unwrap_or_else(|| FullName::new("", variant.call_tool()));
            let form = text_form(gateway, &tool);
            let refused =
                refuse_unread(gateway, &caller, tool, Some(variant), variant.call_tool(), refusal, params);
            Box::pin(refused).await.into_reply_with(form, request_id.as_ref())
        }
    }
}

/// The text block of our answers about a tool. The tools of `pack` follow their original (seed 001).
fn text_form(gateway: &GatewayState, tool: &FullName) -> TextForm {
    let policy = gateway.policy.load();
    match policy.config.upstream(&tool.upstream).map(|written| &written.kind) {
        Some(UpstreamKind::Native { kind: NativeKind::Pack, .. }) => TextForm::Envelope,
        Some(_) | None => TextForm::ForModel,
    }
}

async fn call_direct_tool(
    gateway: &Arc<GatewayState>,
    ctx: &RequestContext,
    caller: Caller,
    name: &str,
    params: &RawValue,
) -> Reply {
    let upstream = upstream_of_direct_name(gateway, name);
    if let Some(upstream) = &upstream {
        Box::pin(wait_for_upstream(gateway, ctx, upstream)).await;
    }
    let found = gateway.catalog.load().by_direct_name(name).map(|listed| {
        let previews = crate::preview_argument(&listed.tool);
        (listed.tool.full_name(), previews)
    });
    let Some((full_name, previews)) = found else {
        // Say why the upstream lists nothing rather than "not found": a person may have to sign in to it.
        let unlisted = upstream.filter(|upstream| gateway.startup.is_unlisted(upstream));
        return match unlisted {
            Some(upstream) => Box::pin(refuse_unlisted_tool(gateway, caller, upstream, name, params)).await,
            None => Box::pin(refuse_unknown_tool(gateway, caller, name, params)).await,
        };
    };
    let request_id = caller.request_id.clone();
    let answer = match ToolCallRequest::from_direct(full_name.clone(), previews, params) {
        Ok(request) => run_tool_call(gateway, Some(ctx), caller, request).await,
        Err(refusal) => {
            let command = full_name.to_string();
            let refused = refuse_unread(gateway, &caller, full_name.clone(), None, &command, refusal, params);
            Box::pin(refused).await
        }
    };
    let is_ours = matches!(answer, Answer::Envelope(_) | Answer::Carded(..));
    let reply = answer.into_reply_with(text_form(gateway, &full_name), request_id.as_ref());
    if is_ours && lists_output_schema(gateway, &full_name) {
        // Our answer does not fit the tool's schema, and clients would reject it. The text block says the same.
        return reply.map(|reply| raw::remove(&reply, "structuredContent").unwrap_or(reply));
    }
    reply
}

fn lists_output_schema(gateway: &GatewayState, name: &FullName) -> bool {
    gateway.catalog.load().get(name).is_some_and(|listed| {
        listed.keeps_output_schema() && listed.tool.definition.contains_key("outputSchema")
    })
}

/// The upstream of a direct name. A tool that is not listed yet is recognised by its prefix.
fn upstream_of_direct_name(gateway: &GatewayState, name: &str) -> Option<UpstreamId> {
    let catalog = gateway.catalog.load();
    if let Some(listed) = catalog.by_direct_name(name) {
        return Some(listed.tool.upstream.clone());
    }
    let upstreams = gateway.upstreams.load();
    let is_meant = |id: &UpstreamId| {
        catalog.is_bare() || name.strip_prefix(id.as_str()).is_some_and(|rest| rest.starts_with("__"))
    };
    upstreams.keys().find(|id| is_meant(id) && gateway.startup.is_unlisted(id)).cloned()
}

/// Waits for the upstream a call needs, for as long as its client waits.
pub(crate) async fn wait_for_upstream(gateway: &GatewayState, ctx: &RequestContext, upstream: &UpstreamId) {
    tokio::select! {
        () = gateway.wait_for_upstream(upstream) => {}
        () = ctx.cancelled() => {}
    }
}

/// Plain `call_tool` gets its own message, for models that learned the older interface.
async fn refuse_unknown_tool(
    gateway: &Arc<GatewayState>,
    caller: Caller,
    name: &str,
    params: &RawValue,
) -> Reply {
    let message = if name == "call_tool" {
        "Tool 'call_tool' not found. Use call_tool_read, call_tool_write, or call_tool_destructive with matching \
         intent.operation_type. See retrieve_tools for annotations and recommendations."
            .to_owned()
    } else {
        format!("Tool '{}' not found", crate::escape::visible(name))
    };
    let refusal = Refusal::new(Code::ToolNotFound, message);
    let tool = name.parse().unwrap_or_else(|_| FullName::new("", name));
    let refused = refuse_unread(gateway, &caller, tool, None, name, refusal, params).await;
    refused.into_reply(caller.request_id.as_ref())
}

/// Refuses a tool of an upstream that has not listed its tools: whether it exists is not known.
async fn refuse_unlisted_tool(
    gateway: &Arc<GatewayState>,
    caller: Caller,
    upstream: UpstreamId,
    name: &str,
    params: &RawValue,
) -> Reply {
    let prefix = format!("{upstream}__");
    let tool = FullName::new(upstream, name.strip_prefix(&prefix).unwrap_or(name));
    let CatalogStatus::Unlisted(why) = gateway.standing(&tool) else {
        // It was listed since, and the tool is not on the list.
        return refuse_unknown_tool(gateway, caller, name, params).await;
    };
    let refusal = gate::unlisted(&tool.upstream, &why);
    let refused = refuse_unread(gateway, &caller, tool, None, name, refusal, params).await;
    refused.into_reply(caller.request_id.as_ref())
}

/// Refuses a request that could not be read as a call. Its row has the caller, the name and a digest of the bytes.
pub(crate) async fn refuse_unread(
    gateway: &Arc<GatewayState>,
    caller: &Caller,
    tool: FullName,
    variant: Option<CallToolVariant>,
    command: &str,
    refusal: Refusal,
    params: &RawValue,
) -> Answer {
    let record = CallRecord {
        intent: declared_intent(params),
        ..CallRecord::unread(caller, tool, variant, params.get().as_bytes())
    };
    CallLog { started: None }.refused(&record, &refusal);
    if let Err(fault) = gateway.store.refused(&record, &refusal, gateway.now()).await {
        tracing::error!(
            incident = fault.incident(),
            fault = fault.inside(),
            "a refusal could not be recorded"
        );
    }
    Answer::refused(command, &refusal)
}

/// The longest text of a declared field in the row of such a call, in bytes.
const DECLARED_LIMIT: usize = 64 << 10;

/// The intent that such a request declares, on either surface.
fn declared_intent(params: &RawValue) -> Option<DeclaredIntent> {
    let arguments = raw::get(params, "arguments")?;
    let of = |object: &RawValue| {
        let names = ["intent", "intent_operation_type", "intent_data_sensitivity", "intent_reason"];
        let given = names.into_iter().filter_map(|name| {
            let value = raw::get(object, name).filter(|value| value.get().len() <= DECLARED_LIMIT)?;
            Some((name.to_owned(), strict_json::read_to_show(value.get())?))
        });
        DeclaredIntent::found_in(&given.collect())
    };
    raw::get(arguments, "countersign").and_then(of).or_else(|| of(arguments))
}

/// Refuses a retry whose state is unknown, used or another call's. Recorded: it may be an attack.
pub(crate) async fn refuse_request_state(
    gateway: &Arc<GatewayState>,
    caller: &Caller,
    params: Option<&RawValue>,
    error: &RpcError,
) -> RpcError {
    let none = raw::empty_object();
    let params = params.unwrap_or(&none);
    let name = raw::get_str(params, "name").unwrap_or_default();
    let refusal = Refusal::new(Code::ArgumentsInvalid, error.message())
        .because("request_state_invalid")
        .with("field", "requestState");
    let tool = FullName::new("countersign", &*name);
    refuse_unread(gateway, caller, tool, None, &name, refusal.clone(), params).await;
    let data = json!({"code": refusal.code.as_str(), "details": refusal.details_value()});
    RpcError::with_data(error.code(), &error.message(), &data)
}

/// Refuses a request whose member names can be read in two ways: a call with an envelope, other methods with an error.
pub(crate) async fn refuse_members(
    gateway: &Arc<GatewayState>,
    caller: &Caller,
    method: &str,
    params: Option<&RawValue>,
    refusal: Refusal,
) -> Reply {
    let none = raw::empty_object();
    let params = params.unwrap_or(&none);
    if method != "tools/call" {
        let data = json!({"code": refusal.code.as_str(), "details": refusal.details_value()});
        let error = RpcError::with_data(code::INVALID_PARAMS, &refusal.message, &data);
        let tool = FullName::new("countersign", method);
        refuse_unread(gateway, caller, tool, None, method, refusal, params).await;
        return Err(error);
    }
    let name = raw::get_str(params, "name").unwrap_or_default();
    let variant = definitions::variant(&name);
    let tool = match variant {
        Some(_) => raw::get_str_in(params, &["arguments", "name"]).and_then(|name| name.parse().ok()),
        None => gateway.catalog.load().by_direct_name(&name).map(|listed| listed.tool.full_name()),
    };
    let tool = tool.unwrap_or_else(|| FullName::new("", &*name));
    let refused = refuse_unread(gateway, caller, tool, variant, &name, refusal, params).await;
    refused.into_reply(caller.request_id.as_ref())
}

pub(crate) type RawToolDefinition = RawJson;
