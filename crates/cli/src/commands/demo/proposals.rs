//! The three changes the demo's agent asks for: one to approve, one to reject, one of several steps.

use serde_json::{Value, json};

/// A change the agent wants, and what the demo says of it.
pub(super) struct Proposal {
    /// The agent's words.
    pub(super) says: &'static str,
    /// How the person finds it in the list of pending plans.
    pub(super) title: &'static str,
    /// What the demo suggests to the person.
    pub(super) advice: &'static str,
    /// Whether the person's part, where it is played, agrees.
    pub(super) played_yes: bool,
    /// The order it would delete.
    pub(super) order: Option<&'static str>,
    reason: &'static str,
    steps: fn() -> Vec<(&'static str, &'static str, Value)>,
}

pub(super) const PROPOSALS: [Proposal; 3] = [
    Proposal {
        says: "PO-1041 is a duplicate of PO-1040. I delete it.",
        title: "Delete PO-1041",
        advice: "a duplicate: approve it",
        played_yes: true,
        order: Some("PO-1041"),
        reason: "it duplicates PO-1040",
        steps: || vec![("destructive", "delete_purchase_order", json!({"number": "PO-1041"}))],
    },
    Proposal {
        says: "SO-1043 is not due before March. I delete it, too.",
        title: "Delete SO-1043",
        advice: "a customer ordered 34 bicycles: reject it",
        played_yes: false,
        order: Some("SO-1043"),
        reason: "it is not due before March",
        steps: || vec![("destructive", "delete_sales_order", json!({"number": "SO-1043"}))],
    },
    Proposal {
        says: "Chains and brakes run low. I order more, and earlier next time.",
        title: "Restock chains and brakes",
        advice: "one plan of three steps: look at each, approve or reject the whole",
        played_yes: true,
        order: None,
        reason: "their stock is below the reorder point",
        steps: || {
            let lines = json!([{"sku": "CHAIN-8S", "quantity": 100}, {"sku": "BRAKE-HS", "quantity": 20}]);
            vec![
                ("write", "create_purchase_order", json!({"supplier": "Taiko Components", "lines": lines})),
                ("destructive", "modify_item", json!({"sku": "CHAIN-8S", "reorder_point": 100})),
                ("destructive", "modify_item", json!({"sku": "BRAKE-HS", "reorder_point": 40})),
            ]
        },
    },
];

impl Proposal {
    /// The tool of the gateway that asks for it, and the arguments. It does not wait for the decision: the agent goes on.
    pub(super) fn request(&self) -> (String, Value) {
        let mut steps: Vec<Value> = (self.steps)()
            .into_iter()
            .map(|(operation, tool, arguments)| {
                json!({
                    "name": format!("orders:{tool}"),
                    "args": arguments,
                    "intent": {"operation_type": operation, "reason": self.reason},
                })
            })
            .collect();
        if steps.len() > 1 {
            let draft =
                json!({"title": self.title, "reason": self.reason, "steps": steps, "wait_seconds": 0});
            return ("draft_plan".to_owned(), draft);
        }
        let mut call = steps.pop().unwrap_or_default();
        if let Some(members) = call.as_object_mut() {
            members.insert("wait_seconds".to_owned(), 0.into());
        }
        ("call_tool_destructive".to_owned(), call)
    }
}
