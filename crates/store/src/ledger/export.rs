//! Export: the ledger as text, page by page, oldest first, never all in memory. A line of JSON is the hashed form of
//! its row plus the hash, so that others can check the chain without us.

use super::activity::{Filter, Order, page};
use super::row::Row;
use crate::Store;
use crate::fault::StoreFault;

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One JSON object a line.
    Jsonl,
    /// Comma-separated values with a head line.
    Csv,
}

/// An export under way.
pub struct Export {
    store: Store,
    filter: Option<Filter>,
    format: Format,
    begun: bool,
}

const CSV_COLUMNS: [&str; 28] = [
    "id",
    "time",
    "writer",
    "sequence",
    "kind",
    "status",
    "principal",
    "role",
    "session",
    "source",
    "upstream",
    "tool",
    "variant",
    "effect",
    "mode",
    "intent_operation_type",
    "intent_data_sensitivity",
    "intent_reason",
    "arguments",
    "arguments_digest",
    "plan_id",
    "plan_hash",
    "approval",
    "code",
    "duration_us",
    "result_digest",
    "detail",
    "hash",
];

impl Store {
    /// An export of the rows a filter wants. Its `limit` is the size of a page in memory, not of the export.
    pub fn export(&self, filter: Filter, format: Format) -> Export {
        let filter = Filter { limit: filter.limit.or(Some(500)), ..filter };
        Export { store: self.clone(), filter: Some(filter), format, begun: false }
    }
}

impl Export {
    /// The next piece of text; none at the end.
    pub async fn next(&mut self) -> Result<Option<String>, StoreFault> {
        let mut text = String::new();
        if !std::mem::replace(&mut self.begun, true) && self.format == Format::Csv {
            text.push_str(&CSV_COLUMNS.join(","));
            text.push_str("\r\n");
        }
        if let Some(filter) = self.filter.take() {
            let found = page(&self.store, filter.clone(), Order::Oldest).await?;
            for row in &found.rows {
                match self.format {
                    Format::Jsonl => {
                        text.push_str(&row.json());
                        text.push('\n');
                    }
                    Format::Csv => push_csv(&mut text, row),
                }
            }
            self.filter = found.next_cursor.map(|cursor| Filter { cursor: Some(cursor), ..filter });
        }
        Ok((!text.is_empty()).then_some(text))
    }
}

fn push_csv(text: &mut String, row: &Row) {
    let intent = row.intent.as_ref();
    let word = |text: Option<&str>| text.unwrap_or_default().to_owned();
    let hex = |digest: Option<countersign_core::digest::Digest>| {
        digest.map(|digest| digest.hex()).unwrap_or_default()
    };
    let json = |json: Option<&super::row::Json>| json.map(|json| json.text().to_owned()).unwrap_or_default();
    let fields = [
        row.id.to_string(),
        row.time.to_string(),
        row.writer.to_string(),
        row.sequence.to_string(),
        row.kind.to_string(),
        row.status.to_string(),
        word(row.principal.as_ref().map(|id| id.as_str())),
        word(row.role.map(|role| role.as_str())),
        word(row.session.as_ref().map(|id| id.as_str())),
        word(row.source.map(|source| source.as_str())),
        word(row.upstream.as_ref().map(|id| id.as_str())),
        word(row.tool.as_ref().map(|id| id.as_str())),
        word(row.variant.map(|variant| variant.as_str())),
        word(row.effect.map(|effect| effect.as_str())),
        word(row.mode.map(|mode| mode.as_str())),
        word(intent.and_then(|intent| intent.operation_type.as_deref())),
        word(intent.and_then(|intent| intent.data_sensitivity.as_deref())),
        word(intent.and_then(|intent| intent.reason.as_deref())),
        json(row.arguments.as_ref()),
        hex(row.arguments_digest),
        word(row.plan_id.as_ref().map(|id| id.as_str())),
        hex(row.plan_hash),
        json(row.approval.as_ref()),
        word(row.code.as_deref()),
        row.duration_us.map(|us| us.to_string()).unwrap_or_default(),
        hex(row.result_digest),
        json(row.detail.as_ref()),
        row.hash.hex(),
    ];
    let quoted: Vec<String> = fields.iter().map(|field| csv_field(field)).collect();
    text.push_str(&quoted.join(","));
    text.push_str("\r\n");
}

/// Quoted where it must be. Text that a spreadsheet would run as a formula gets an apostrophe in front: an agent
/// chooses the words that stand here, a person opens the file.
fn csv_field(field: &str) -> String {
    let guarded = if field.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        format!("'{field}")
    } else {
        field.to_owned()
    };
    if guarded.contains(['"', ',', '\n', '\r']) || guarded.starts_with('\'') {
        format!("\"{}\"", guarded.replace('"', "\"\""))
    } else {
        guarded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_and_formulas_disarmed() {
        let check = |field: &str, expect: &str| assert_eq!(csv_field(field), expect);
        check("plain", "plain");
        check("", "");
        check("a,b", "\"a,b\"");
        check("say \"x\"", "\"say \"\"x\"\"\"");
        check("line\nbreak", "\"line\nbreak\"");
        check("=cmd()", "\"'=cmd()\"");
        check("@x", "\"'@x\"");
    }
}
