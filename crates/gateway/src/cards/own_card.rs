//! The card an upstream brings for its own tool. It is kept: its preview is shown as the upstream draws it, and its button sends the
//! message that repeats the call through the gateway. Our confirmation is beside it, in the text and on every other channel.

use countersign_mcp::raw::{self, RawJson};
use countersign_policy::plan::Plan;
use countersign_policy::preview::is_interface_tree;
use countersign_policy::tool::Tool;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// Where the tree waits in `_meta` until the reply is complete.
const TREE: &str = "countersign/own_card";
/// Where our envelope is in a reply whose structure is the upstream's card.
const ENVELOPE: &str = "countersign/answer";

/// Whether the tool names a card of its own.
pub(crate) fn brings_card(tool: &Tool) -> bool {
    let meta = tool.definition.get("_meta");
    let named = |path: &str| meta.and_then(|meta| meta.pointer(path)).is_some_and(Value::is_string);
    named("/ui/resourceUri") || named("/ui~1resourceUri")
}

/// The upstream's card of this preview, with its buttons led through the gateway.
pub(super) fn own_tree(plan: &Plan, apply: &str) -> Option<(String, Value)> {
    let mut tree =
        plan.preview.shown.get("structuredContent").filter(|tree| is_interface_tree(tree))?.clone();
    reroute_calls(&mut tree, plan.tool.tool.as_str(), apply);
    Some((TREE.to_owned(), tree))
}

/// Every call of the tool itself becomes the message: the window can't confirm, and its result would not reach the agent.
fn reroute_calls(part: &mut Value, tool: &str, apply: &str) {
    match part {
        Value::Array(items) => items.iter_mut().for_each(|item| reroute_calls(item, tool, apply)),
        Value::Object(members) if is_call(members, tool) => {
            *part = json!({"action": "sendMessage", "content": apply});
        }
        Value::Object(members) => {
            members.values_mut().for_each(|member| reroute_calls(member, tool, apply));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn is_call(members: &Map<String, Value>, tool: &str) -> bool {
    let is = |name: &str, value: &str| members.get(name).and_then(Value::as_str) == Some(value);
    is("action", "toolCall") && is("tool", tool)
}

/// Puts the upstream's card where its window looks for it; our envelope goes to `_meta`. None where the reply has no such card.
pub(crate) fn show_own_card(reply: &RawValue) -> Option<RawJson> {
    let tree = raw::get_in(reply, &["_meta", TREE])?;
    let envelope = raw::get(reply, "structuredContent")?;
    let shown = raw::set(reply, "structuredContent", tree)?;
    let meta = raw::set(raw::get(&shown, "_meta")?, ENVELOPE, envelope)?;
    let meta = raw::remove(&meta, TREE)?;
    raw::set(&shown, "_meta", &meta)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_the_tool_itself_become_the_message_and_others_stay() {
        let mut tree = json!({"$prefab": {}, "view": {"children": [
            {"label": "Confirm", "onClick": [{"action": "setState", "key": "pending", "value": true},
                {"action": "toolCall", "tool": "create_customer", "arguments": {"preview": false}, "onSuccess": []}]},
            {"label": "Look", "onClick": {"action": "toolCall", "tool": "get_customer", "arguments": {}}},
        ]}});
        reroute_calls(&mut tree, "create_customer", "Apply: call x(preview=False)");
        let buttons = &tree["view"]["children"];
        assert_eq!(
            buttons[0]["onClick"][1],
            json!({"action": "sendMessage", "content": "Apply: call x(preview=False)"})
        );
        assert_eq!(buttons[0]["onClick"][0]["key"], "pending");
        assert_eq!(buttons[1]["onClick"]["tool"], "get_customer");
    }

    #[test]
    fn the_card_is_the_structure_and_our_envelope_is_kept_beside_it() {
        let reply = raw::to_raw(&json!({"content": [], "structuredContent": {"ok": true},
            "_meta": {"countersign": {"envelope": true}, TREE: {"$prefab": {}}}}));
        let shown: Value = serde_json::from_str(show_own_card(&reply).unwrap().get()).unwrap();
        assert_eq!(shown["structuredContent"], json!({"$prefab": {}}));
        assert_eq!(shown["_meta"], json!({"countersign": {"envelope": true}, ENVELOPE: {"ok": true}}));
        assert!(show_own_card(&raw::to_raw(&json!({"structuredContent": {}}))).is_none());
    }
}
