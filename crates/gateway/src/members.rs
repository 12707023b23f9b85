//! Member names of requests: what is judged by one name must not reach an upstream under another. Every request is checked here
//! once, whatever its method, surface or era, before anything reads it; and what of a request goes along is chosen here.

use countersign_core::call::Arguments;
use countersign_core::canonical;
use countersign_core::fold::{self, NameSet};
use countersign_core::gate::SentMeta;
use countersign_core::intent::Variant;
use countersign_core::refusal::Refusal;
use countersign_wire::raw::{self, Edit, Raw};
use serde_json::value::RawValue;

use crate::asked::invalid;

/// Members of `params` that we or the protocol judge a request by, of all methods.
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

/// Members of `tools/call` that go along with the name and the arguments, by exact name.
const ALONG: [&str; 4] = ["_meta", "task", "requestState", "inputResponses"];

/// Members of a completion's `ref`.
const REFERENCE: [&str; 3] = ["type", "name", "uri"];

/// Members of `_meta` that carry progress and traces, not the call.
const OF_TRANSPORT: [&str; 4] = ["progressToken", "traceparent", "tracestate", "baggage"];

/// What begins a name of the protocol's own in `_meta`.
const OF_PROTOCOL: &str = "io.modelcontextprotocol/";

/// What begins a name of ours in `_meta`.
const OURS: &str = "countersign";

/// The longest `_meta` a plan keeps, in bytes.
const LONGEST_META: usize = 64 << 10;

/// Refuses params that another reader could take for something else: names of one object, at any depth, that are equal or fold to
/// one text; and names that fold onto one we judge by without being it.
///
/// The arguments of a call are left to whoever reads them: strictly, and with their own field's name in the refusal.
pub fn check(method: &str, params: Option<&RawValue>) -> Result<(), Refusal> {
    let Some(params) = params else { return Ok(()) };
    if !raw::is_object(params) {
        return Err(invalid("params", "must be an object"));
    }
    let found = if method == "tools/call" { colliding_outside_arguments(params) } else { colliding(params) };
    if let Some(name) = found {
        return Err(not_strict(
            &name,
            "stands twice in one object, or differs from another name only by case",
        ));
    }
    lookalikes(params, "", &KNOWN)?;
    if let Some(reference) = raw::get(params, "ref") {
        lookalikes(reference, "ref.", &REFERENCE)?;
    }
    let Some(meta) = raw::get(params, "_meta").filter(|meta| meta.get() != "null") else { return Ok(()) };
    if !raw::is_object(meta) {
        return Err(invalid("_meta", "must be an object"));
    }
    lookalikes(meta, "_meta.", &OF_TRANSPORT)?;
    match raw::names(meta)
        .find(|name| !name.starts_with(OF_PROTOCOL) && fold::folded(name).starts_with(OF_PROTOCOL))
    {
        Some(name) => Err(not_strict(&format!("_meta.{name}"), "differs from a known name only by case")),
        None => Ok(()),
    }
}

fn lookalikes(object: &RawValue, inside: &str, known: &[&str]) -> Result<(), Refusal> {
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
fn colliding(params: &RawValue) -> Option<String> {
    // One set for each object that is open; a closed one's place is taken by the next at its depth.
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

fn colliding_outside_arguments(params: &RawValue) -> Option<String> {
    let own = first_twin(params);
    own.or_else(|| {
        let others = raw::members(params).into_iter().filter(|(name, _)| name != "arguments");
        others.into_iter().find_map(|(_, value)| colliding(value))
    })
}

/// The first name of this object alone that another of its names folds onto.
pub fn first_twin(object: &RawValue) -> Option<String> {
    let mut names = NameSet::default();
    raw::names(object).find(|name| !names.add_cow(name.clone())).map(|name| name.into_owned())
}

fn is_ours(name: &str) -> bool {
    fold::folded(name).starts_with(OURS)
}

fn is_of_transport(name: &str) -> bool {
    OF_TRANSPORT.contains(&name) || name.starts_with(OF_PROTOCOL)
}

/// The members of `_meta` that a plan keeps: they are hashed and shown, and sent when it runs.
pub fn planned_meta(params: Option<&RawValue>) -> Result<Option<Arguments>, Refusal> {
    let Some(meta) = params.and_then(|params| raw::get(params, "_meta")) else { return Ok(None) };
    let gone = |name: &str| is_ours(name) || is_of_transport(name);
    let names: Vec<_> = raw::names(meta).filter(|name| gone(name)).collect();
    let edits: Vec<Edit<'_>> = names.iter().map(|name| Edit::Remove(name)).collect();
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

/// What stands for the params of a request when its call is sent: on the direct surface the params themselves, of which
/// [`call_params`] takes what may go along; of a router call only what belongs to no field of ours. `_meta` holds what nobody has
/// to agree to, or what was agreed to. None where the params stay as they are.
pub fn along(params: Option<&RawValue>, variant: Option<Variant>, meta: &SentMeta) -> Option<Raw> {
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
        (Some(_), Some(params)) => only(params, &["_meta", "requestState", "inputResponses"]),
        (_, None) => raw::empty_object(),
    };
    // Added after the others are gone: a name of the plan may be one of the request.
    let removed: Vec<Edit<'_>> = gone.iter().map(|name| Edit::Remove(name)).collect();
    let cleared = raw::edit_inside(base.get(), "_meta", &removed)?;
    let added: Vec<Edit<'_>> = planned.iter().map(|(name, value)| Edit::Set(name, value)).collect();
    raw::from_text(raw::edit_inside(&cleared, "_meta", &added)?)
}

/// Params of a request that passes on, without what is ours in `_meta`; none where nothing is to be taken out.
pub fn without_ours(params: &RawValue) -> Option<Raw> {
    let gone: Vec<_> =
        raw::get(params, "_meta").into_iter().flat_map(raw::names).filter(|name| is_ours(name)).collect();
    if gone.is_empty() {
        return None;
    }
    let edits: Vec<Edit<'_>> = gone.iter().map(|name| Edit::Remove(name)).collect();
    raw::from_text(raw::edit_inside(params.get(), "_meta", &edits)?)
}

/// The params of `tools/call` for an upstream, built from what was judged: the name, the arguments, and of the request's own the
/// members that may go along, in the order they came, each the bytes it came as.
pub fn call_params(tool: &str, arguments: &str, rest: Option<&RawValue>) -> Raw {
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
fn only(object: &RawValue, wanted: &[&str]) -> Raw {
    let kept: Vec<(&str, &RawValue)> =
        wanted.iter().filter_map(|name| Some((*name, raw::get(object, name)?))).collect();
    let edits: Vec<Edit<'_>> = kept.iter().map(|(name, value)| Edit::Set(name, value.get())).collect();
    raw::edit(&raw::empty_object(), &edits).unwrap_or_else(raw::empty_object)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(text: &str) -> Raw {
        raw::from_text(text).unwrap()
    }

    fn field(text: &str) -> Option<String> {
        check("any/method", Some(&params(text)))
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
        assert_eq!(check("m", Some(&params("[1]"))).unwrap_err().details["field"], "params");
        assert!(check("m", None).is_ok());
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
        let sent = |variant, meta: &SentMeta| along(Some(&request), variant, meta).unwrap().get().to_owned();
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
            sent(Some(Variant::Write), &SentMeta::OfPlan(None)),
            r#"{"_meta":{"progressToken":7,"traceparent":"00-1"}}"#
        );
        assert_eq!(along(None, None, &plan).unwrap().get(), r#"{"_meta":{"tenant":"a"}}"#);
        assert!(along(None, None, &SentMeta::OfPlan(None)).is_none());
        assert!(along(Some(&params(r#"{"_meta":{"a":1}}"#)), None, &SentMeta::OfRequest).is_none());
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
