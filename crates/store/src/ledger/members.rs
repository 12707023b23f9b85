//! The text of a row as it grows: canonical JSON written in the order of the names it is given, which is the caller's to keep.

use std::fmt::Write as _;

use countersign_core::canonical;
use countersign_core::digest::Digest;
use countersign_core::intent::DeclaredIntent;

/// An object's text as it grows. Rows are written by the thousand: nothing is built that is not kept.
pub(super) struct Members(String);

impl Default for Members {
    fn default() -> Self {
        Self(String::with_capacity(1024))
    }
}

impl Members {
    fn name(&mut self, name: &str) {
        self.0.push(if self.0.is_empty() { '{' } else { ',' });
        self.0.push('"');
        self.0.push_str(name);
        self.0.push_str("\":");
    }
    pub(super) fn raw(&mut self, name: &str, value: Option<&str>) {
        let Some(value) = value else { return };
        self.name(name);
        self.0.push_str(value);
    }
    pub(super) fn text(&mut self, name: &str, value: Option<&str>) {
        let Some(value) = value else { return };
        self.name(name);
        canonical::write_string(value, &mut self.0);
    }
    pub(super) fn number(&mut self, name: &str, value: Option<u64>) {
        let Some(value) = value else { return };
        self.name(name);
        // A `String` takes everything it is given.
        let _ = write!(self.0, "{value}");
    }
    pub(super) fn digest(&mut self, name: &str, value: Option<Digest>) {
        let Some(value) = value else { return };
        self.name(name);
        self.0.push('"');
        value.push_hex(&mut self.0);
        self.0.push('"');
    }
    pub(super) fn intent(&mut self, intent: Option<&DeclaredIntent>) {
        let Some(intent) = intent else { return };
        self.name("intent");
        let mut inside = Self(String::new());
        inside.text("data_sensitivity", intent.data_sensitivity.as_deref());
        inside.text("operation_type", intent.operation_type.as_deref());
        inside.text("reason", intent.reason.as_deref());
        self.0.push_str(&inside.end());
    }
    pub(super) fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}
