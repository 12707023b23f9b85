//! Export: the ledger as text, page by page, oldest first, never all in memory. A line of JSON is the hashed form of its row plus the
//! hash, so that the chain can be checked without this program.

use super::activity::{LedgerFilter, RowOrder, page};
use super::columns;
use super::row::LedgerRow;
use crate::Store;
use crate::fault::StoreFault;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Jsonl,
    Csv,
}

pub struct LedgerExport {
    store: Store,
    filter: Option<LedgerFilter>,
    format: Format,
    begun: bool,
}

impl Store {
    /// An export of the rows a filter wants. Its `limit` is the size of a page in memory, not of the export.
    pub fn export(&self, filter: LedgerFilter, format: Format) -> LedgerExport {
        let filter = LedgerFilter { limit: filter.limit.or(Some(500)), ..filter };
        LedgerExport { store: self.clone(), filter: Some(filter), format, begun: false }
    }
}

impl LedgerExport {
    /// The next piece of text; none at the end.
    pub async fn next(&mut self) -> Result<Option<String>, StoreFault> {
        let mut text = String::new();
        if !std::mem::replace(&mut self.begun, true) && self.format == Format::Csv {
            text.push_str(&columns::csv_names().join(","));
            text.push_str("\r\n");
        }
        if let Some(filter) = self.filter.take() {
            let found = page(&self.store, filter.clone(), RowOrder::Oldest).await?;
            for row in &found.rows {
                match self.format {
                    Format::Jsonl => {
                        text.push_str(&row.json());
                        text.push('\n');
                    }
                    Format::Csv => push_csv(&mut text, row),
                }
            }
            self.filter = found.next_cursor.map(|cursor| LedgerFilter { cursor: Some(cursor), ..filter });
        }
        Ok((!text.is_empty()).then_some(text))
    }
}

fn push_csv(text: &mut String, row: &LedgerRow) {
    let fields: Vec<String> = columns::csv_fields(row).map(|field| csv_field(&field)).collect();
    text.push_str(&fields.join(","));
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
