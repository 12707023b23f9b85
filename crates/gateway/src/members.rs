//! Member names of requests. What is decided by one name must not reach an upstream under another: every request is checked
//! here once, before anything reads it. Also chooses which members of a request are sent along.

use countersign_mcp::raw::{self, MemberEdit, RawJson};
use countersign_policy::call::Arguments;
use countersign_policy::canonical;
use countersign_policy::fold::{self, NameSet};
use countersign_policy::gate::SentMeta;
use countersign_policy::intent::CallToolVariant;
use countersign_policy::refusal::Refusal;
use serde_json::value::RawValue;

use crate::pipeline::request::invalid;

/// Members of `params` that mean something to us or to the protocol, of all methods.
const KNOWN: [&str; 16] = [
    "name",
    "arguments",
    "_meta",
    "task",
    "requestState",
    "inputResponses",
    "uri",
    "ref",
    "argument",
    "context",
    "cursor",
    "level",
    "taskId",
    "requestId",
    "progressToken",
    "notifications",
];

/// Members of `tools/call` that are sent along with the name and the arguments.
const ALONG: [&str; 4] = ["_meta", "task", "requestState", "inputResponses"];

const REFERENCE: [&str; 3] = ["type", "name", "uri"];

/// Members of `_meta` that carry progress and traces. They are not part of the call.
const OF_TRANSPORT: [&str; 4] = ["progressToken", "traceparent", "tracestate", "baggage"];

/// Prefix of the protocol's names in `_meta`.
const OF_PROTOCOL: &str = "io.modelcontextprotocol/";

/// Prefix of our names in `_meta`.
const OURS: &str = "countersign";

/// The longest `_meta` a plan keeps, in bytes.
const LONGEST_META: usize = 64 << 10;

/// Refuses params that another reader could take for something else: names of one object, at any depth, that are equal or differ
/// only by case, and names that differ from a known one only by case. The arguments of a call are checked where they are read,
/// so that the refusal can name their field.
pub(crate) fn check_member_names(method: &str, params: Option<&RawValue>) -> Result<(), Refusal> {
    let Some(params) = params else { return Ok(()) };
    if !raw::is_object(params) {
        return Err(invalid("params", "must be an object"));
    }
    let found = if method == "tools/call" {
        first_collision_outside_arguments(params)
    } else {
        first_collision(params)
    };
    if let Some(name) = found {
        return Err(not_strict(
            &name,
            "stands twice in one object, or differs from another name only by case",
        ));
    }
    check_lookalikes(params, "", &KNOWN)?;
    if let Some(reference) = raw::get(params, "ref") {
        check_lookalikes(reference, "ref.", &REFERENCE)?;
    }
    let Some(meta) = raw::get(params, "_meta").filter(|meta| meta.get() != "null") else { return Ok(()) };
    if !raw::is_object(meta) {
        return Err(invalid("_meta", "must be an object"));
    }
    check_lookalikes(meta, "_meta.", &OF_TRANSPORT)?;
    match raw::names(meta)
        .find(|name| !name.starts_with(OF_PROTOCOL) && fold::folded(name).starts_with(OF_PROTOCOL))
    {
        Some(name) => Err(not_strict(&format!("_meta.{name}"), "differs from a known name only by case")),
        None => Ok(()),
    }
}

fn check_lookalikes(object: &RawValue, inside: &str, known: &[&str]) -> Result<(), Refusal> {
    for name in raw::names(object) {
        if let Some(meant) = fold::lookalike(&name, known.iter().copied()) {
            let why = format!("differs from `{inside}{meant}` only by case");
            return Err(not_strict(&format!("{inside}{name}"), &why));
        }
    }
    Ok(())
}

fn not_strict(field: &str, why: &str) -> Refusal {
    let field = crate::escape::excerpt(field, 200);
    invalid(&field, why).because("arguments_not_strict")
}

/// The first name that another name of its object folds onto.
fn first_collision(params: &RawValue) -> Option<String> {
    // One set of names for each open object. The next object at the same depth replaces a closed one.
    let mut open: Vec<(usize, NameSet<'_>)> = Vec::new();
    let found = raw::find_name(params.get(), |place, name| {
        open.truncate(place.depth);
        if open.last().is_none_or(|(object, _)| *object != place.object) {
            open.truncate(place.depth.saturating_sub(1));
            open.push((place.object, NameSet::default()));
        }
        open.last_mut().is_none_or(|(_, names)| names.add_cow(name.clone()))
    });
    found.map(|name| name.into_owned())
}

fn first_collision_outside_arguments(params: &RawValue) -> Option<String> {
    let own = first_repeated_name(params);
    own.or_else(|| {
        let others = raw::members(params).into_iter().filter(|(name, _)| name != "arguments");
        others.into_iter().find_map(|(_, value)| first_collision(value))
    })
}

/// The first name of this object alone that another of its names folds onto.
pub(crate) fn first_repeated_name(object: &RawValue) -> Option<String> {
    let mut names = NameSet::default();
    raw::names(object).find(|name| !names.add_cow(name.clone())).map(|name| name.into_owned())
}

fn is_ours(name: &str) -> bool {
    fold::folded(name).starts_with(OURS)
}

fn is_of_transport(name: &str) -> bool {
    OF_TRANSPORT.contains(&name) || name.starts_with(OF_PROTOCOL)
}

/// The members of `_meta` that a plan keeps. They are hashed, shown, and sent when it runs.
pub(crate) fn planned_meta(params: Option<&RawValue>) -> Result<Option<Arguments>, Refusal> {
    let Some(meta) = params.and_then(|params| raw::get(params, "_meta")) else { return Ok(None) };
    let gone = |name: &str| is_ours(name) || is_of_transport(name);
    let names: Vec<_> = raw::names(meta).filter(|name| gone(name)).collect();
    let edits: Vec<MemberEdit<'_>> = names.iter().map(|name| MemberEdit::Remove(name)).collect();
    let Some(kept) = raw::edit(meta, &edits) else { return Ok(None) };
    if kept.get().len() > LONGEST_META {
        return Err(invalid(
            "_meta",
            format_args!("of a call that is asked for is at most {LONGEST_META} bytes"),
        ));
    }
    let read = Arguments::parse(kept.get().as_bytes())
        .map_err(|fault| invalid("_meta", fault).because("arguments_not_strict"))?;
    Ok((!read.value().is_empty()).then_some(read))
}

/// The params of a request as its call is sent; none where they stay as they are. A router call forwards only members that are no
/// fields of ours. `_meta` is the request's own without our members, or exactly what the plan showed.
pub(crate) fn forwarded_params(
    params: Option<&RawValue>,
    variant: Option<CallToolVariant>,
    meta: &SentMeta,
) -> Option<RawJson> {
    let is_gone = |name: &str| match meta {
        SentMeta::OfRequest => is_ours(name),
        SentMeta::OfPlan(_) => !is_of_transport(name),
    };
    let given = params.and_then(|params| raw::get(params, "_meta"));
    let gone: Vec<_> = given.into_iter().flat_map(raw::names).filter(|name| is_gone(name)).collect();
    let planned: Vec<(&String, String)> = match meta {
        SentMeta::OfPlan(Some(meta)) => {
            meta.value().iter().map(|(name, value)| (name, canonical::to_string(value))).collect()
        }
        SentMeta::OfRequest | SentMeta::OfPlan(None) => Vec::new(),
    };
    let base = match (variant, params) {
        (None, _) if gone.is_empty() && planned.is_empty() => return None,
        (None, Some(params)) => params.to_owned(),
        (Some(_), Some(params)) => only_members(params, &["_meta", "requestState", "inputResponses"]),
        (_, None) => raw::empty_object(),
    };
    // Removed first, then added: the plan may have a name that the request has, too.
    let removed: Vec<MemberEdit<'_>> = gone.iter().map(|name| MemberEdit::Remove(name)).collect();
    let cleared = raw::edit_inside(base.get(), "_meta", &removed)?;
    let added: Vec<MemberEdit<'_>> =
        planned.iter().map(|(name, value)| MemberEdit::Set(name, value)).collect();
    raw::from_text(raw::edit_inside(&cleared, "_meta", &added)?)
}

/// Params of a request that is passed through, without our members of `_meta`; none where there are none.
pub(crate) fn without_ours(params: &RawValue) -> Option<RawJson> {
    let gone: Vec<_> =
        raw::get(params, "_meta").into_iter().flat_map(raw::names).filter(|name| is_ours(name)).collect();
    if gone.is_empty() {
        return None;
    }
    let edits: Vec<MemberEdit<'_>> = gone.iter().map(|name| MemberEdit::Remove(name)).collect();
    raw::from_text(raw::edit_inside(params.get(), "_meta", &edits)?)
}

/// The params of `tools/call` for an upstream: the name and arguments that were decided on, and the members that are sent along,
/// byte for byte and in their order.
pub(crate) fn call_params(tool: &str, arguments: &str, rest: Option<&RawValue>) -> RawJson {
    let name = raw::to_raw(tool);
    let mut members: Vec<(&str, &str)> = Vec::new();
    for (member, value) in rest.into_iter().flat_map(raw::members) {
        match ALONG.into_iter().find(|along| *along == member) {
            Some(along) => members.push((along, value.get())),
            None if member == "name" => members.push(("name", name.get())),
            None if member == "arguments" => members.push(("arguments", arguments)),
            None => {}
        }
    }
    for (member, value) in [("arguments", arguments), ("name", name.get())] {
        if !members.iter().any(|(known, _)| *known == member) {
            members.insert(0, (member, value));
        }
    }
    let text: Vec<String> = members.iter().map(|(member, value)| format!("\"{member}\":{value}")).collect();
    raw::from_text(format!("{{{}}}", text.join(","))).unwrap_or_else(raw::empty_object)
}

/// An object with these members of another, each the bytes it came as.
fn only_members(object: &RawValue, wanted: &[&str]) -> RawJson {
    let kept: Vec<(&str, &RawValue)> =
        wanted.iter().filter_map(|name| Some((*name, raw::get(object, name)?))).collect();
    let edits: Vec<MemberEdit<'_>> =
        kept.iter().map(|(name, value)| MemberEdit::Set(name, value.get())).collect();
    raw::edit(&raw::empty_object(), &edits).unwrap_or_else(raw::empty_object)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(text: &str) -> RawJson {
        raw::from_text(text).unwrap()
    }

    fn field(text: &str) -> Option<String> {
        check_member_names("any/method", Some(&params(text)))
            .err()
            .map(|refusal| refusal.details["field"].as_str().unwrap().to_owned())
    }

    #[test]
    fn attack_02_names_that_fold_onto_a_judged_one_are_refused() {
        for name in KNOWN {
            assert_eq!(field(&format!(r#"{{"{name}":null}}"#)), None, "{name}");
            for twin in [name.to_uppercase(), format!("{name}\\u0000"), format!("{name}\\u0000\\u0000")] {
                assert!(field(&format!(r#"{{"x":1,"{twin}":1}}"#)).is_some(), "{twin}");
            }
        }
        for twin in
            ["ta\u{17f}k", "ta\\u017fk", "tas\u{212a}", "argument\u{17f}", "u\u{131}ri", "Uri", "\\u004eame"]
        {
            let refused = field(&format!(r#"{{"{twin}":1}}"#));
            assert_eq!(refused.is_some(), twin != "u\u{131}ri", "{twin}");
        }
        assert!(field(r#"{"ref":{"type":"ref/prompt","Name":"x"}}"#).is_some());
        assert!(field(r#"{"_meta":{"ProgressToken":1}}"#).is_some());
        assert!(field(r#"{"_meta":{"IO.modelcontextprotocol/clientInfo":{}}}"#).is_some());
        assert!(field(r#"{"_meta":"x"}"#).is_some());
        assert_eq!(check_member_names("m", Some(&params("[1]"))).unwrap_err().details["field"], "params");
        assert!(check_member_names("m", None).is_ok());
    }

    #[test]
    fn attack_02_names_of_one_object_that_collide_are_refused_at_any_depth() {
        for text in [
            r#"{"name":"a","name":"b"}"#,
            r#"{"x":1,"X":2}"#,
            r#"{"_meta":{"a":1,"A":2}}"#,
            r#"{"task":{"ttl":1,"TTL":2}}"#,
            r#"{"inputResponses":{"q":[{"a":{"k":1,"\u212a":2}}]}}"#,
            r#"{"requestState":[{"a":1},{"s":1,"\u017f":2}]}"#,
            r#"{"a":{"b":{}},"c":[{}],"A":1}"#,
        ] {
            assert!(field(text).is_some(), "{text}");
        }
        for text in [
            r#"{"a":{"b":1},"c":{"B":1},"d":[{"b":1},{"B":1}]}"#,
            r#"{"_meta":{"n":12345678901234567890123,"s":"\ud800"},"name":"x"}"#,
            r#"{"arguments":{"a":{"x":1},"b":{"X":2},"c":"\"A\":"}}"#,
        ] {
            assert_eq!(field(text), None, "{text}");
        }
    }

    #[test]
    fn attack_02_calls_are_built_from_what_was_judged() {
        let check = |rest: Option<&str>, expect: &str| {
            let rest = rest.map(params);
            assert_eq!(call_params("a\"b", r#"{"n": 1.50}"#, rest.as_deref()).get(), expect);
        };
        check(None, r#"{"name":"a\"b","arguments":{"n": 1.50}}"#);
        check(Some("[1]"), r#"{"name":"a\"b","arguments":{"n": 1.50}}"#);
        check(
            Some(
                r#"{ "_meta":{"v/x": 12345678901234567890123},"name":"x","arguments":{"name":"x"} ,"task":{ }}"#,
            ),
            r#"{"_meta":{"v/x": 12345678901234567890123},"name":"a\"b","arguments":{"n": 1.50},"task":{ }}"#,
        );
        // What no check has seen is not there, whatever it is called.
        check(
            Some(
                r#"{"Name":"delete","Arguments":{},"name\u0000":1,"tool":"delete","x":1,"requestState":"s"}"#,
            ),
            r#"{"name":"a\"b","arguments":{"n": 1.50},"requestState":"s"}"#,
        );
    }

    #[test]
    fn attack_02_a_confirmed_call_sends_the_meta_of_its_plan() {
        let request = params(
            r#"{"name":"x","_meta":{"progressToken":7,"tenant":"b","more":1.50,"traceparent":"00-1","Countersign/x":1}}"#,
        );
        let sent = |variant, meta: &SentMeta| {
            forwarded_params(Some(&request), variant, meta).unwrap().get().to_owned()
        };
        assert_eq!(
            sent(None, &SentMeta::OfRequest),
            r#"{"name":"x","_meta":{"progressToken":7,"tenant":"b","more":1.50,"traceparent":"00-1"}}"#
        );
        let plan = SentMeta::OfPlan(Some(Arguments::parse(br#"{"tenant":"a"}"#).unwrap()));
        assert_eq!(
            sent(None, &plan),
            r#"{"name":"x","_meta":{"progressToken":7,"traceparent":"00-1","tenant":"a"}}"#
        );
        assert_eq!(
            sent(Some(CallToolVariant::Write), &SentMeta::OfPlan(None)),
            r#"{"_meta":{"progressToken":7,"traceparent":"00-1"}}"#
        );
        assert_eq!(forwarded_params(None, None, &plan).unwrap().get(), r#"{"_meta":{"tenant":"a"}}"#);
        assert!(forwarded_params(None, None, &SentMeta::OfPlan(None)).is_none());
        assert!(
            forwarded_params(Some(&params(r#"{"_meta":{"a":1}}"#)), None, &SentMeta::OfRequest).is_none()
        );
    }

    #[test]
    fn attack_02_a_plan_keeps_what_is_forwarded_but_for_progress_and_traces() {
        let kept = |meta: &str| planned_meta(Some(&params(&format!(r#"{{"_meta":{meta}}}"#))));
        assert_eq!(
            kept(r#"{"progressToken":1,"baggage":"x","io.modelcontextprotocol/related-task":{}}"#).unwrap(),
            None
        );
        assert_eq!(kept(r#"{"countersign/session":"s"}"#).unwrap(), None);
        let meta = kept(r#"{"progressToken":1,"tenant":{"b":1,"a":2.0}}"#).unwrap().unwrap();
        assert_eq!(meta.canonical(), r#"{"tenant":{"a":2,"b":1}}"#);
        assert_eq!(kept(r#"{"n":12345678901234567890123}"#).unwrap_err().reason_code, "arguments_not_strict");
        assert!(kept(&format!(r#"{{"n":"{}"}}"#, "x".repeat(LONGEST_META))).is_err());
        assert_eq!(planned_meta(None).unwrap(), None);
    }
}
