//! What a line sees: the router's three call tools and search, or every tool by its name; our own tools on both.

pub mod definitions;
pub mod own;

use std::sync::Arc;

use countersign_core::call::Caller;
use countersign_core::config::Surface;
use countersign_core::ids::FullName;
use countersign_core::intent::{DeclaredIntent, Variant};
use countersign_core::record::CallRecord;
use countersign_core::refusal::{Code, Refusal};
use countersign_core::role::Role;
use countersign_core::strict_json;
use countersign_wire::frame::{Reply, RpcError};
use countersign_wire::raw::{self, Raw};
use countersign_wire::serve::Ctx;
use serde_json::json;
use serde_json::value::RawValue;

use crate::answer::Answer;
use crate::asked::Asked;
use crate::cards::{self, Cards};
use crate::conduct::conduct;
use crate::house::House;
use crate::trace;

/// `tools/list`: our tools, and on the direct surface every upstream's, in one stable order.
pub fn list(house: &House, caller: &Caller, surface: Surface, cards: Cards) -> Reply {
    let mut text = String::from("{\"tools\":[");
    let mut push = |definition: &str| {
        if !text.ends_with('[') {
            text.push(',');
        }
        text.push_str(definition);
    };
    match surface {
        Surface::Router => {
            let tasks = crate::tasks::are_offered(house);
            for tool in definitions::ROUTER.iter() {
                let tool = definitions::carded(tool, cards);
                // Which tool it calls decides whether there is something to follow; the call tools only may.
                let followed =
                    tasks.then(|| raw::set(&tool, "execution", &definitions::MAY_BE_TASK)).flatten();
                push(followed.as_deref().unwrap_or(&tool).get());
            }
            definitions::OWN.iter().for_each(|tool| push(definitions::carded(tool, cards).get()));
            own::aliases(house).iter().for_each(|tool| push(tool.get()));
        }
        Surface::Direct => {
            let catalog = house.catalog.load();
            if !catalog.is_bare() {
                definitions::OWN.iter().for_each(|tool| push(definitions::carded(tool, cards).get()));
                own::aliases(house).iter().for_each(|tool| push(tool.get()));
            }
            let reachable =
                |upstream| caller.scopes.upstreams.as_ref().is_none_or(|all| all.contains(upstream));
            for listed in catalog.accepted().filter(|listed| reachable(&listed.tool.upstream)) {
                let hidden = caller.role == Role::Agent && listed.outlook.role == Some(Role::Human);
                match cards {
                    _ if hidden => {}
                    Cards::Shown if listed.may_ask() => {
                        push(cards::linked(listed.direct_definition(), cards::PLAN).get());
                    }
                    Cards::Shown | Cards::Hidden => push(listed.direct_definition().get()),
                }
            }
        }
    }
    if cards == Cards::Shown && house.catalog.load().by_direct_name(cards::answer::NAME).is_none() {
        push(cards::answer::definition().get());
    }
    text.push_str("]}");
    raw::from_text(text).ok_or_else(|| RpcError::new(-32603, "the tool list could not be written"))
}

/// `tools/call`.
pub async fn call(
    house: &Arc<House>,
    ctx: &Ctx,
    caller: Caller,
    surface: Surface,
    params: Option<&RawValue>,
) -> Reply {
    let none = raw::empty_object();
    let params = params.unwrap_or(&none);
    let Some(name) = raw::get_str(params, "name") else {
        return Err(RpcError::invalid_params("`name` is required: the tool to call"));
    };
    if let Some(variant) = definitions::variant(&name) {
        return match surface {
            Surface::Router => router(house, ctx, caller, variant, params).await.into_reply(),
            Surface::Direct => Box::pin(unknown(house, caller, &name, params)).await,
        };
    }
    if name == cards::answer::NAME
        && Cards::of(ctx) == Cards::Shown
        && house.catalog.load().by_direct_name(&name).is_none()
    {
        return Box::pin(cards::answer::call(house, caller, params)).await.into_reply();
    }
    let bare = surface == Surface::Direct && house.catalog.load().is_bare();
    if let Some(own) = own::meant(house, &name).filter(|_| !bare) {
        trace::about(own);
        return Box::pin(own::call(house, ctx, caller, surface, own, params)).await.into_reply();
    }
    match surface {
        Surface::Router => Box::pin(unknown(house, caller, &name, params)).await,
        Surface::Direct => direct(house, ctx, caller, &name, params).await,
    }
}

async fn router(
    house: &Arc<House>,
    ctx: &Ctx,
    caller: Caller,
    variant: Variant,
    params: &RawValue,
) -> Answer {
    match Asked::router(variant, params) {
        Ok(asked) => conduct(house, ctx, caller, asked).await,
        Err((name, refusal)) => {
            let tool = name.unwrap_or_else(|| FullName::new("", variant.call_tool()));
            let refused =
                refuse_unread(house, &caller, tool, Some(variant), variant.call_tool(), refusal, params);
            Box::pin(refused).await
        }
    }
}

async fn direct(house: &Arc<House>, ctx: &Ctx, caller: Caller, name: &str, params: &RawValue) -> Reply {
    let found = house.catalog.load().by_direct_name(name).map(|listed| {
        let previews = crate::preview_argument(&listed.tool);
        (listed.tool.full_name(), previews)
    });
    let Some((full_name, previews)) = found else {
        return Box::pin(unknown(house, caller, name, params)).await;
    };
    match Asked::direct(full_name.clone(), previews, params) {
        Ok(asked) => conduct(house, ctx, caller, asked).await.into_reply(),
        Err(refusal) => {
            let command = full_name.to_string();
            let refused = refuse_unread(house, &caller, full_name, None, &command, refusal, params);
            Box::pin(refused).await.into_reply()
        }
    }
}

/// A name no surface has. Plain `call_tool` gets the words that help whoever learned the old way.
async fn unknown(house: &Arc<House>, caller: Caller, name: &str, params: &RawValue) -> Reply {
    let message = if name == "call_tool" {
        "Tool 'call_tool' not found. Use call_tool_read, call_tool_write, or call_tool_destructive with matching \
         intent.operation_type. See retrieve_tools for annotations and recommendations."
            .to_owned()
    } else {
        format!("Tool '{}' not found", crate::escape::visible(name))
    };
    let refusal = Refusal::new(Code::ToolNotFound, message);
    let tool = name.parse().unwrap_or_else(|_| FullName::new("", name));
    refuse_unread(house, &caller, tool, None, name, refusal, params).await.into_reply()
}

/// Refuses a call that never became one; its row keeps who and what was named, and a digest of the bytes.
pub(crate) async fn refuse_unread(
    house: &Arc<House>,
    caller: &Caller,
    tool: FullName,
    variant: Option<Variant>,
    command: &str,
    refusal: Refusal,
    params: &RawValue,
) -> Answer {
    let record = CallRecord {
        intent: declared_in(params),
        ..CallRecord::unread(caller, tool, variant, params.get().as_bytes())
    };
    if let Err(fault) = house.store.refused(&record, &refusal, house.now()).await {
        tracing::error!(
            incident = fault.incident(),
            fault = fault.inside(),
            "a refusal could not be recorded"
        );
    }
    Answer::refused(command, &refusal)
}

/// The longest text of a declared field that is read for the row of a refused call, in bytes.
const DECLARED_LIMIT: usize = 64 << 10;

/// What a request that never became a call declares, on either surface. Reads the fields of the intent alone.
fn declared_in(params: &RawValue) -> Option<DeclaredIntent> {
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

/// Refuses a retry that brings a state which is unknown, used or another call's: somebody may be trying something.
pub(crate) async fn refuse_state(
    house: &Arc<House>,
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
    refuse_unread(house, caller, tool, None, &name, refusal.clone(), params).await;
    let data = json!({"code": refusal.code.as_str(), "details": refusal.details_value()});
    RpcError::with_data(error.code(), &error.message(), &data)
}

/// A definition of ours as raw JSON.
pub(crate) type Definition = Raw;
