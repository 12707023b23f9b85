//! What must hold for any bytes that arrive as a frame: they are a message or an error, never a panic; a message written again
//! is read as the same message; what is edited in one place is unchanged in all others.

use countersign_mcp::jsonrpc::{self, Frame, FrameLimits, JsonRpcId, Message};
use countersign_mcp::raw::{self, MemberEdit};

/// Bytes that get far, for a start.
#[allow(dead_code, reason = "libFuzzer takes the files themselves")]
pub(crate) const SEEDS: &[&[u8]] = &[
    include_bytes!("../seeds/frame/01"),
    include_bytes!("../seeds/frame/02"),
    include_bytes!("../seeds/frame/03"),
    include_bytes!("../seeds/frame/04"),
    include_bytes!("../seeds/frame/05"),
    include_bytes!("../seeds/frame/06"),
];

/// Checks one input.
pub(crate) fn check(bytes: &[u8]) {
    let limits = FrameLimits { frame: 1 << 16, nesting: 64 };
    match jsonrpc::parse(bytes, limits) {
        Ok(Frame::One(message)) => same_again(&message, limits),
        Ok(Frame::Batch(parts)) => parts.iter().flatten().for_each(|message| same_again(message, limits)),
        Err(malformed) => assert!(malformed.error.code() < 0, "an error has a code"),
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        edits(text);
    }
}

fn same_again(message: &Message, limits: FrameLimits) {
    let mut out = Vec::new();
    match message {
        Message::Request(request) => {
            let params = request.params.as_deref().map(|params| params.get());
            jsonrpc::write_request(&mut out, &request.id, &request.method, params);
        }
        Message::Notification(notification) => {
            let params = notification.params.as_deref().map(|params| params.get());
            jsonrpc::write_notification(&mut out, &notification.method, params);
        }
        Message::Response(response) => {
            jsonrpc::write_response(&mut out, response.id.as_ref(), &response.reply);
        }
    }
    let again = match jsonrpc::parse(&out, FrameLimits { frame: limits.frame * 8, ..limits }) {
        Ok(Frame::One(again)) => again,
        other => panic!("written as {:?}, read as {other:?}", String::from_utf8_lossy(&out)),
    };
    assert_eq!(parts(message), parts(&again));
}

/// What a message is made of, as text.
fn parts(message: &Message) -> (Option<&JsonRpcId>, Option<&str>, Option<&str>) {
    match message {
        Message::Request(one) => {
            (Some(&one.id), Some(&one.method), one.params.as_deref().map(|raw| raw.get()))
        }
        Message::Notification(one) => (None, Some(&one.method), one.params.as_deref().map(|raw| raw.get())),
        Message::Response(one) => {
            let said = match &one.reply {
                Ok(result) => result.get(),
                Err(error) => error.as_raw().get(),
            };
            (one.id.as_ref(), None, Some(said))
        }
    }
}

/// Setting a member leaves every other as it was, and gives valid JSON.
fn edits(text: &str) {
    let Some(object) = raw::from_text(text).filter(|value| raw::is_object(value)) else { return };
    let Some(edited) = raw::edit_text(text, &[MemberEdit::Set("name", "[1]"), MemberEdit::Remove("gone")])
    else {
        return;
    };
    let edited = raw::from_text(edited.as_str()).unwrap();
    assert_eq!(raw::get(&edited, "name").map(|value| value.get()), Some("[1]"));
    assert!(raw::get(&edited, "gone").is_none());
    for (name, value) in raw::members(&object) {
        if name != "name" && name != "gone" {
            assert_eq!(
                raw::get(&edited, &name).map(|value| value.get()),
                raw::get(&object, &name).map(|value| value.get()),
                "{value}"
            );
        }
    }
}
