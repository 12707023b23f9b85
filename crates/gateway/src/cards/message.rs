//! The texts a card sends to the chat in the user's name, so that the agent repeats the call and sees its result. They hold every
//! argument as a Python literal; the host has nothing to fill in.

use countersign_mcp::raw;
use countersign_policy::intent::CallEntryPoint;
use countersign_policy::plan::Plan;
use countersign_policy::python;
use countersign_policy::words::plural;
use serde_json::value::RawValue;

/// The call to repeat.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RepeatedCall<'a> {
    pub entry_point: CallEntryPoint,
    /// The params of its `tools/call`.
    pub params: Option<&'a RawValue>,
}

/// `Apply: call <tool>(<args>, preview=False)`: the arguments of the first call in their order, then the confirmation.
pub(super) fn apply_text(plan: &Plan, again: RepeatedCall<'_>, token: &str) -> String {
    let token = python::string(token);
    let (tool, mut arguments) = if plan.steps.is_empty() {
        let named = again.params.and_then(|params| raw::get_str(params, "name"));
        let given = again.params.and_then(|params| raw::get(params, "arguments"));
        match again.entry_point {
            CallEntryPoint::Router(variant) => {
                let skipped = ["preview", "confirm_token", "yes"];
                let mut arguments = arguments(given, &skipped);
                arguments.push(format!("confirm_token={token}"));
                arguments.push("yes=True".to_owned());
                (variant.call_tool().to_owned(), arguments)
            }
            CallEntryPoint::Direct => {
                let mut arguments = arguments(given, &["preview", "countersign"]);
                arguments.push(format!("countersign={}", countersign_argument(given, &token)));
                let plain = || format!("{}__{}", plan.tool.upstream, plan.tool.tool);
                (named.map_or_else(plain, |named| named.into_owned()), arguments)
            }
        }
    } else {
        let id = python::string(plan.id.as_str());
        let arguments =
            vec![format!("plan_id={id}"), format!("confirm_token={token}"), "yes=True".to_owned()];
        ("run_plan".to_owned(), arguments)
    };
    arguments.push("preview=False".to_owned());
    format!("Apply: call {tool}({})", arguments.join(", "))
}

/// `Retry: call <tool>(<args>)`: the first call again, for a new plan.
pub(super) fn retry_text(plan: &Plan, again: RepeatedCall<'_>) -> String {
    let given = again.params.and_then(|params| raw::get(params, "arguments"));
    let named = again.params.and_then(|params| raw::get_str(params, "name"));
    match (plan.steps.is_empty(), named) {
        (true, Some(named)) => {
            format!(
                "Retry: call {named}({})",
                arguments(given, &["confirm_token", "yes", "preview"]).join(", ")
            )
        }
        _ => "Retry: draft that plan again.".to_owned(),
    }
}

fn arguments(given: Option<&RawValue>, skipped: &[&str]) -> Vec<String> {
    let members = given.map(raw::members).unwrap_or_default();
    members
        .into_iter()
        .filter(|(name, _)| !skipped.contains(&name.as_ref()))
        .filter_map(|(name, value)| Some(python::argument(&name, &python::literal(value.get())?)))
        .collect()
}

/// The argument `countersign` of the direct surface: its members in the first call, then the confirmation.
fn countersign_argument(given: Option<&RawValue>, token: &str) -> String {
    let before = given.and_then(|given| raw::get(given, "countersign")).map(raw::members).unwrap_or_default();
    let mut pairs: Vec<String> = before
        .into_iter()
        .filter(|(name, _)| !["confirm_token", "yes", "preview"].contains(&name.as_ref()))
        .filter_map(|(name, value)| {
            Some(format!("{}: {}", python::string(&name), python::literal(value.get())?))
        })
        .collect();
    pairs.push(format!("'confirm_token': {token}"));
    pairs.push("'yes': True".to_owned());
    format!("{{{}}}", pairs.join(", "))
}

/// `Cancel: do not apply <description>.`
pub(super) fn cancel_text(plan: &Plan) -> String {
    format!("Cancel: do not apply {}.", described(plan))
}

/// A plan as the object of a sentence, with its determiner.
fn described(plan: &Plan) -> String {
    if !plan.steps.is_empty() {
        return format!("the plan of {}", plural(plan.steps.len(), "step"));
    }
    let name = plan.tool.tool.as_str();
    let (verb, rest) = name.split_once('_').unwrap_or((name, ""));
    let noun = rest.replace(['_', '-'], " ");
    match (verb, noun.as_str()) {
        (_, "") => format!("the call of {}", plan.tool),
        ("create" | "add" | "new" | "insert", noun) => format!("that {noun}"),
        ("fulfill", _) => "the fulfillment".to_owned(),
        ("modify" | "update" | "edit" | "set" | "patch", noun) => format!("the changes to that {noun}"),
        ("delete" | "remove" | "drop", noun) => format!("the deletion of that {noun}"),
        ("receive", noun) => format!("the receipt of that {noun}"),
        ("correct", noun) => format!("the correction of that {noun}"),
        ("rebuild", noun) => format!("the rebuild of that {noun}"),
        _ => format!("the call of {}", plan.tool),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersign_policy::intent::CallToolVariant;
    use serde_json::json;

    fn plan(tool: &str) -> Plan {
        let zero = "0".repeat(64);
        serde_json::from_value(json!({
            "id": "pln_1", "hash": zero, "principal": "agent", "session": "s", "tool": tool, "fingerprint": zero, "arguments": "{}",
            "preview": {"source": "computed", "shown": {}, "digest": zero}, "policy_digest": zero, "effect": "write",
            "need": {"kind": "simple", "strength": "caller"}, "created": "2026-01-01T00:00:00Z", "expires": "2026-01-01T00:05:00Z",
        }))
        .unwrap()
    }

    fn text(tool: &str, entry_point: CallEntryPoint, params: serde_json::Value) -> String {
        apply_text(&plan(tool), RepeatedCall { entry_point, params: Some(&raw::to_raw(&params)) }, "tok")
    }

    #[test]
    fn a_tool_by_its_own_name_is_repeated_as_the_original_did() {
        let params = json!({"name": "create_purchase_order", "arguments": {
            "supplier_id": 7, "lines": [{"sku": "A'1", "qty": 2.50}], "note": null, "preview": true}});
        assert_eq!(
            text("katana:create_purchase_order", CallEntryPoint::Direct, params),
            "Apply: call create_purchase_order(supplier_id=7, lines=[{'sku': \"A'1\", 'qty': 2.5}], note=None, \
             countersign={'confirm_token': 'tok', 'yes': True}, preview=False)"
        );
        let said = json!({"name": "k__fulfill_order", "arguments": {"countersign": {"mode": "execute", "yes": false}}});
        assert_eq!(
            text("k:fulfill_order", CallEntryPoint::Direct, said),
            "Apply: call k__fulfill_order(countersign={'mode': 'execute', 'confirm_token': 'tok', 'yes': True}, preview=False)"
        );
    }

    #[test]
    fn a_router_call_is_repeated_whole_in_its_order() {
        let params = json!({"name": "call_tool_write", "arguments": {"intent": {"operation_type": "write"}, "name": "k:t",
            "args": {"from": true}, "mode": "execute", "preview": false}});
        assert_eq!(
            text("k:t", CallEntryPoint::Router(CallToolVariant::Write), params),
            "Apply: call call_tool_write(intent={'operation_type': 'write'}, name='k:t', args={'from': True}, mode='execute', \
             confirm_token='tok', yes=True, preview=False)"
        );
    }

    #[test]
    fn a_cancelled_thing_has_its_own_determiner() {
        for (tool, said) in [
            ("k:create_purchase_order", "that purchase order"),
            ("k:fulfill_order", "the fulfillment"),
            ("k:modify_sales_order", "the changes to that sales order"),
            ("k:delete_item", "the deletion of that item"),
            ("k:receive_purchase_order", "the receipt of that purchase order"),
            ("k:correct_sales_order", "the correction of that sales order"),
            ("k:wipe", "the call of k:wipe"),
        ] {
            assert_eq!(cancel_text(&plan(tool)), format!("Cancel: do not apply {said}."));
        }
    }
}
