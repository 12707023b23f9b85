//! The arguments a call is judged by: exactly those that will be sent. Names that another reader would take for other names are
//! refused here, too; what the rules make of the rest is the gate's.

use jiff::Timestamp;

use super::{PolicySnapshot, outlook};
use crate::call::{Arguments, ToolCall};
use crate::confirm::Kind;
use crate::fold::{self, Lookalike};
use crate::intent::Intent;
use crate::mode::Mode;
use crate::preview::{self, EffectiveArguments, PreviewStyle};
use crate::refusal::{Code, Refusal};
use crate::rules::{ConditionFacts, RuleResolution};
use crate::tool::Tool;

/// What the rules say of the arguments that will be sent.
pub(super) struct ResolvedArguments {
    pub(super) rules: RuleResolution,
    pub(super) style: PreviewStyle,
    /// Why those arguments can't be told.
    pub(super) fault: Option<Refusal>,
}

/// Puts the arguments that will be sent on apply into the call, with what the rules say of them. The rules are asked about the
/// arguments as they came first: they name the argument that makes a preview.
///
/// INVARIANT (sent = hashed = shown): from here on nothing else is judged, redacted, recorded, hashed or sent.
pub(super) fn settle_arguments(
    call: &mut ToolCall,
    tool: &Tool,
    policy: &PolicySnapshot<'_>,
    intent: Option<&Intent>,
    mode: Mode,
    now: Timestamp,
) -> ResolvedArguments {
    let ask = |call: &ToolCall| {
        let (name, caller, arguments) = (&call.name, &call.caller, call.arguments.value());
        let rules = policy.rules.resolve(&ConditionFacts {
            name,
            tool: Some(tool),
            arguments,
            caller,
            intent,
            mode,
            now,
        });
        let style = preview::style(tool, rules.preview.as_ref());
        ResolvedArguments { rules, style, fault: None }
    };
    let came = ask(call);
    // What needs no second step is sent as it came.
    if outlook(tool, &came.rules).1 == Kind::None {
        return came;
    }
    match came.style.effective(&call.arguments) {
        EffectiveArguments::AsSent => came,
        EffectiveArguments::Completed(arguments) => {
            call.arguments = arguments;
            let mut settled = ask(call);
            if settled.style != came.style {
                let message = "the rules name another preview once the call says that it is none";
                settled.fault = Some(Refusal::new(Code::RuleError, message));
                settled.rules.redact.extend(came.rules.redact);
            }
            settled
        }
        EffectiveArguments::Unclear { arg } => {
            let message = format!("`{arg}` means neither the preview nor the real call");
            let refusal = Refusal::new(Code::ArgumentsInvalid, message).with("field", arg);
            ResolvedArguments { fault: Some(refusal), ..came }
        }
    }
}

/// The arguments a call would be judged and sent with, and what the rules say of them: for explanations.
pub fn effective(
    mut call: ToolCall,
    tool: &Tool,
    policy: &PolicySnapshot<'_>,
    mode: Mode,
    now: Timestamp,
) -> (Arguments, RuleResolution) {
    let intent = call.intent.declare(call.entry_point).ok().flatten();
    let settled = settle_arguments(&mut call, tool, policy, intent.as_ref(), mode, now);
    (call.arguments, settled.rules)
}

/// No argument name is one that another reader would take for another argument.
pub(super) fn check_keys(call: &ToolCall, tool: &Tool) -> Result<(), Refusal> {
    let arguments = call.arguments.value();
    let refuse = |field: String, why: String| {
        let message = format!("`{}` {why}", crate::refusal::brief(&field));
        Err(Refusal::new(Code::ArgumentsInvalid, message)
            .because("arguments_not_strict")
            .with("field", field))
    };
    if let Some(name) = fold::colliding_within(arguments) {
        return refuse(name.to_owned(), "differs from another argument only by case".to_owned());
    }
    let schema = tool.definition.get("inputSchema");
    match schema.and_then(|schema| fold::schema_lookalike(schema, arguments)) {
        Some(Lookalike { path, property }) => {
            let property = crate::refusal::brief(&property);
            refuse(path, format!("is not an argument of `{}`, but `{property}` is", call.name))
        }
        None => Ok(()),
    }
}
