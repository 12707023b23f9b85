//! The columns of a ledger row, in one table. INSERT and SELECT, the hashed text, the exports, the filters, the text search, the
//! REST description and the check of the migrations are derived from it. A new column is one line here, a field of [`Entry`](super::Entry) and one
//! migration for each database. What a value means is decided elsewhere.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::LazyLock;

use countersign_policy::canonical;
use countersign_policy::digest::Digest;
use countersign_policy::effect::Effect;
use countersign_policy::ids::{
    LedgerId, PlanId, PrincipalId, RequestId, SessionId, ToolName, UpstreamId, WriterId,
};
use countersign_policy::intent::CallToolVariant;
use countersign_policy::mode::Mode;
use countersign_policy::record::{ActorRole, RowKind, RowStatus, Source};
use jiff::Timestamp;
use serde_json::value::RawValue;

use super::activity::LedgerFilter;
use super::row::{Json, LedgerRow};
use crate::engine::{Cell, FoundRow};
use crate::fault::StoreFault;

/// The version of the rows that are written now. A column added with a later version is empty in rows of earlier ones.
pub(super) const ROW_VERSION: u32 = 2;

/// One column of the ledger.
pub struct LedgerColumn {
    /// Its name in SQL.
    pub name: &'static str,
    /// Its type in SQL, the same in both databases.
    pub sql_type: &'static str,
    /// Its member in a row's JSON, `object.member` for one of a nested object. None: not hashed, not in JSON.
    pub json: Option<&'static str>,
    /// What it holds, for the description of the REST interface.
    pub about: &'static str,
    /// The first row version that may have a value here.
    since: u32,
    in_csv: bool,
    in_text_search: bool,
    filter: Option<ColumnFilter>,
    value: for<'r> fn(&'r LedgerRow) -> ColumnValue<'r>,
    read: fn(&mut LedgerRow, &mut FoundRow) -> Result<(), StoreFault>,
}

/// The filter of a column.
struct ColumnFilter {
    /// Filters that leave the fewest rows come first: SQLite follows the index of the first one.
    rank: u8,
    /// `?` stands for the value; none means that the column equals it.
    condition: Option<&'static str>,
    value: for<'f> fn(&'f LedgerFilter) -> ColumnValue<'f>,
}

/// Shorthand for the table: `column!(name, type, field of the row, "about")`; `field?` may be empty.
macro_rules! column {
    ($name:literal, $sql:ident, $($field:ident).+ ?, $about:literal) => {
        LedgerColumn::new(
            $name,
            stringify!($sql),
            $about,
            |row| value_of(row.$($field).+.as_ref()),
            |row, found| { row.$($field).+ = ColumnType::read(found)?; Ok(()) },
        )
    };
    ($name:literal, $sql:ident, $($field:ident).+, $about:literal) => {
        LedgerColumn::new(
            $name,
            stringify!($sql),
            $about,
            |row| ColumnType::value(&row.$($field).+),
            |row, found| {
                let missing = || StoreFault::corrupt(concat!("the ledger's column ", $name, " is empty"));
                row.$($field).+ = ColumnType::read(found)?.ok_or_else(missing)?;
                Ok(())
            },
        )
    };
}

macro_rules! intent_column {
    ($name:literal, $field:ident, $about:literal) => {
        LedgerColumn::new(
            $name,
            "TEXT",
            $about,
            |row| value_of(row.intent.as_ref().and_then(|intent| intent.$field.as_ref())),
            |row, found| {
                if let Some(text) = found.maybe_text()? {
                    row.entry.intent.get_or_insert_default().$field = Some(text);
                }
                Ok(())
            },
        )
    };
}

/// Every column. The order is that of CSV exports, where new columns come last; JSON is in the order of its names.
#[rustfmt::skip]
pub static COLUMNS: &[LedgerColumn] = &[
    column!("version", BIGINT, version, "The version of the row's format.").json("v"),
    column!("id", TEXT, id, "The row's id; ids sort by time.").hashed().csv(),
    column!("time", BIGINT, time, "The moment, to the microsecond.").hashed().csv(),
    column!("writer", TEXT, writer, "The chain the row belongs to.").hashed().csv(),
    column!("sequence", BIGINT, sequence, "The row's place in its chain, from 1.").hashed().csv(),
    // Not hashed: it follows from the times up to here, and verification computes it again.
    column!("position", BIGINT, position, "The row's place in listings."),
    column!("kind", TEXT, entry.kind, "The subject: call, decision, approval, mode, tool_change, config, memory, pack, question, system.")
        .hashed().csv().filter(9, |filter| value_of(filter.kind.as_ref())),
    column!("status", TEXT, entry.status, "The outcome so far: allowed, refused, success, error, pending.")
        .hashed().csv().filter(8, |filter| value_of(filter.status.as_ref())),
    column!("principal", TEXT, entry.principal?, "The principal.")
        .hashed().csv().text_search().filter(5, |filter| value_of(filter.principal.as_ref())),
    column!("role", TEXT, entry.role?, "The principal's role.")
        .hashed().csv().filter(10, |filter| value_of(filter.role.as_ref())),
    column!("session", TEXT, entry.session?, "The session.")
        .hashed().csv().filter(2, |filter| value_of(filter.session_id.as_ref())),
    column!("source", TEXT, entry.source?, "The entry point: mcp, cli, api, page, hook.").hashed().csv(),
    column!("upstream", TEXT, entry.upstream?, "The upstream.")
        .hashed().csv().text_search().filter(6, |filter| value_of(filter.server.as_ref())),
    column!("tool", TEXT, entry.tool?, "The tool, by its own name.")
        .hashed().csv().text_search().filter(4, |filter| value_of(filter.tool.as_ref())),
    column!("variant", TEXT, entry.variant?, "The call tool it came through: read, write, destructive.").hashed().csv(),
    column!("effect", TEXT, entry.effect?, "The tool's effect.").hashed().csv(),
    column!("mode", TEXT, entry.mode?, "The mode in force.").hashed().csv(),
    intent_column!("intent_type", operation_type, "The declared operation.")
        .json("intent.operation_type").csv().filter(7, |filter| value_of(filter.intent_type.as_ref())),
    intent_column!("intent_sensitivity", data_sensitivity, "The declared sensitivity.")
        .json("intent.data_sensitivity").csv(),
    intent_column!("intent_reason", reason, "The declared reason.").json("intent.reason").csv().text_search(),
    column!("arguments", TEXT, entry.arguments?, "The arguments, with secrets replaced.").hashed().csv().text_search(),
    column!("arguments_digest", TEXT, entry.arguments_digest?, "The digest of the arguments as they were.").hashed().csv(),
    column!("plan_id", TEXT, entry.plan_id?, "The plan.")
        .hashed().csv().filter(1, |filter| value_of(filter.plan_id.as_ref())),
    column!("plan_hash", TEXT, entry.plan_hash?, "The plan's hash.").hashed().csv(),
    column!("approval", TEXT, entry.approval?, "The approval: who, over which channel, how strong.").hashed().csv(),
    column!("code", TEXT, entry.code?, "The code of a refusal or of a failed call.")
        .hashed().csv().text_search().filter(3, |filter| value_of(filter.code.as_ref())),
    column!("duration_us", BIGINT, entry.duration_us?, "How long the call took, in microseconds.").hashed().csv(),
    column!("result_digest", TEXT, entry.result_digest?, "The digest of the result.").hashed().csv(),
    column!("detail", TEXT, entry.detail?, "Facts of other kinds of rows.").hashed().csv().text_search(),
    column!("prev_hash", TEXT, prev_hash, "The hash of the row before.").hashed(),
    column!("hash", TEXT, hash, "The hash of this row.").hashed().csv(),
    column!("host", TEXT, entry.host?, "The program on the other end of the connection: `{program?, version?, folder?}`.")
        .hashed().csv(),
    // Not hashed: the hash covers the arguments themselves, wherever they are stored.
    column!("arguments_from", BIGINT, arguments_from?, "The row of the chain that stores the arguments."),
    column!("request_id", TEXT, entry.request_id?, "The request, as logs and traces name it.")
        .hashed().csv().since(2).filter(0, |filter| value_of(filter.request_id.as_ref()))
        // Rows of version 1 have it in their detail; REPLACE is the one search for a text that both databases have.
        .filter_as("(request_id = ? OR (version = 1 AND detail <> REPLACE(detail, '\"request_id\":\"' || ? || '\"', '')))"),
];

impl LedgerColumn {
    const fn new(
        name: &'static str,
        sql_type: &'static str,
        about: &'static str,
        value: for<'r> fn(&'r LedgerRow) -> ColumnValue<'r>,
        read: fn(&mut LedgerRow, &mut FoundRow) -> Result<(), StoreFault>,
    ) -> Self {
        Self {
            name,
            sql_type,
            about,
            json: None,
            since: 1,
            in_csv: false,
            in_text_search: false,
            filter: None,
            value,
            read,
        }
    }

    const fn hashed(self) -> Self {
        let name = self.name;
        self.json(name)
    }
    const fn json(mut self, member: &'static str) -> Self {
        self.json = Some(member);
        self
    }
    const fn csv(mut self) -> Self {
        self.in_csv = true;
        self
    }
    const fn text_search(mut self) -> Self {
        self.in_text_search = true;
        self
    }
    const fn since(mut self, version: u32) -> Self {
        self.since = version;
        self
    }
    const fn filter(mut self, rank: u8, value: for<'f> fn(&'f LedgerFilter) -> ColumnValue<'f>) -> Self {
        self.filter = Some(ColumnFilter { rank, condition: None, value });
        self
    }
    const fn filter_as(mut self, condition: &'static str) -> Self {
        if let Some(filter) = &mut self.filter {
            filter.condition = Some(condition);
        }
        self
    }

    /// What SELECT says for this column.
    fn selected(&self) -> &'static str {
        if self.name == "arguments" { ARGUMENTS } else { self.name }
    }
}

/// The arguments of a row of `ledger`, also where an earlier row of the call stores them. A row that has both was not written by us:
/// it reads as one without arguments, and its hash does not fit.
const ARGUMENTS: &str = "CASE WHEN ledger.arguments_from IS NULL THEN ledger.arguments \
     WHEN ledger.arguments IS NULL THEN (SELECT origin.arguments FROM ledger AS origin \
     WHERE origin.writer = ledger.writer AND origin.sequence = ledger.arguments_from) END";

/// The columns a row is read from. Where the arguments are stored is none of a reader's business.
fn read_columns() -> impl Iterator<Item = &'static LedgerColumn> {
    COLUMNS.iter().filter(|column| column.name != "arguments_from")
}

/// What is selected of a row, for [`decode`].
pub(crate) static SELECTED: LazyLock<String> =
    LazyLock::new(|| read_columns().map(LedgerColumn::selected).collect::<Vec<_>>().join(", "));

/// The statement that adds a row of [`cells`].
pub(crate) static INSERT: LazyLock<String> = LazyLock::new(|| {
    let names: Vec<&str> = COLUMNS.iter().map(|column| column.name).collect();
    let places: Vec<String> = (1..=names.len()).map(|place| format!("${place}")).collect();
    format!("INSERT INTO ledger ({}) VALUES ({})", names.join(", "), places.join(", "))
});

/// A row as [`INSERT`] takes it; without its arguments where an earlier row stores them.
pub(crate) fn cells(row: &LedgerRow) -> Vec<Cell> {
    let is_elsewhere = |column: &LedgerColumn| column.name == "arguments" && row.arguments_from.is_some();
    COLUMNS
        .iter()
        .map(|column| if is_elsewhere(column) { Cell::Null } else { (column.value)(row).into_cell() })
        .collect()
}

/// Reads a row; every way in which it differs from what is ever written is a fault.
pub(crate) fn decode(mut found: FoundRow) -> Result<LedgerRow, StoreFault> {
    let mut row = LedgerRow::empty();
    for column in read_columns() {
        (column.read)(&mut row, &mut found)?;
    }
    let is_later = |column: &&LedgerColumn| column.since > row.version && !(column.value)(&row).is_null();
    match COLUMNS.iter().find(is_later) {
        Some(_) => Err(StoreFault::corrupt("a row has a column that rows of its version do not have")),
        None => Ok(row),
    }
}

/// The hashed columns in the order of canonical JSON: the object a member is nested in, where it is, and the member's name.
static MEMBERS: LazyLock<Vec<(Option<&'static str>, &'static str, &'static LedgerColumn)>> =
    LazyLock::new(|| {
        let named = |column: &'static LedgerColumn| {
            let path = column.json?;
            Some(match path.split_once('.') {
                Some((object, member)) => (Some(object), member, column),
                None => (None, path, column),
            })
        };
        let mut members: Vec<_> = COLUMNS.iter().filter_map(named).collect();
        members.sort_by_key(|(object, member, _)| (object.unwrap_or(member), *member));
        members
    });

/// The row as canonical JSON. Stored JSON goes in as it is, so that any changed byte of it shows; an empty column is left out, so
/// that columns added later do not change the hash of the rows before them.
pub(super) fn canonical_text(row: &LedgerRow, with_hash: bool) -> String {
    let mut text = String::with_capacity(1024);
    let mut open_object = None;
    text.push('{');
    for (object, member, column) in MEMBERS.iter() {
        let value = (column.value)(row);
        if value.is_null() || (column.name == "hash" && !with_hash) {
            continue;
        }
        if open_object != *object {
            if open_object.is_some() {
                text.push('}');
            }
            if let Some(object) = object {
                push_name(&mut text, object);
                text.push('{');
            }
            open_object = *object;
        }
        push_name(&mut text, member);
        value.push_json(&mut text);
    }
    if open_object.is_some() {
        text.push('}');
    }
    text.push('}');
    text
}

fn push_name(text: &mut String, name: &str) {
    // No JSON value ends with an opening brace: after one, this is the first member.
    if !text.ends_with('{') {
        text.push(',');
    }
    text.push('"');
    text.push_str(name);
    text.push_str("\":");
}

/// The names of the CSV columns.
pub(super) fn csv_names() -> Vec<String> {
    let exported = COLUMNS.iter().filter(|column| column.in_csv);
    exported.map(|column| column.json.unwrap_or(column.name).replace('.', "_")).collect()
}

/// The fields of a row's CSV line, not yet quoted.
pub(super) fn csv_fields(row: &LedgerRow) -> impl Iterator<Item = String> {
    COLUMNS.iter().filter(|column| column.in_csv).map(|column| (column.value)(row).into_text())
}

/// The conditions of a filter with `?` for their values, the most selective first.
pub(super) fn filter_conditions(filter: &LedgerFilter) -> Vec<(Cow<'static, str>, Cell)> {
    let given = |column: &'static LedgerColumn| {
        let by = column.filter.as_ref()?;
        let value = (by.value)(filter);
        let condition = match by.condition {
            Some(condition) => condition.into(),
            None => format!("{} = ?", column.name).into(),
        };
        (!value.is_null()).then(|| (by.rank, condition, value.into_cell()))
    };
    let mut all: Vec<(u8, Cow<'static, str>, Cell)> = COLUMNS.iter().filter_map(given).collect();
    all.sort_by_key(|(rank, ..)| *rank);
    all.into_iter().map(|(_, condition, value)| (condition, value)).collect()
}

/// What a text is searched in.
pub(super) fn searched() -> impl Iterator<Item = &'static str> {
    COLUMNS.iter().filter(|column| column.in_text_search).map(LedgerColumn::selected)
}

/// A column's value in a row.
enum ColumnValue<'r> {
    Null,
    Int(i64),
    /// Free text, as it can be stored.
    Text(Cow<'r, str>),
    Word(&'static str),
    Digest(Digest),
    Json(&'r str),
    Time(Timestamp),
}

impl ColumnValue<'_> {
    fn is_null(&self) -> bool {
        matches!(self, ColumnValue::Null)
    }

    fn into_cell(self) -> Cell {
        match self {
            ColumnValue::Null => Cell::Null,
            ColumnValue::Int(number) => Cell::Int(number),
            ColumnValue::Text(text) => Cell::Text(text.into_owned()),
            ColumnValue::Word(word) => Cell::Word(word),
            ColumnValue::Digest(digest) => digest.into(),
            ColumnValue::Json(text) => text.into(),
            ColumnValue::Time(time) => time.into(),
        }
    }

    fn into_text(self) -> String {
        match self {
            ColumnValue::Null => String::new(),
            ColumnValue::Int(number) => number.to_string(),
            ColumnValue::Text(text) => text.into_owned(),
            ColumnValue::Word(text) | ColumnValue::Json(text) => text.to_owned(),
            ColumnValue::Digest(digest) => digest.hex(),
            ColumnValue::Time(time) => time.to_string(),
        }
    }

    fn push_json(&self, out: &mut String) {
        match self {
            ColumnValue::Null => out.push_str("null"),
            // A `String` takes everything it is given.
            ColumnValue::Int(number) => drop(write!(out, "{number}")),
            ColumnValue::Text(text) => canonical::write_string(text, out),
            ColumnValue::Word(word) => canonical::write_string(word, out),
            ColumnValue::Json(text) => out.push_str(text),
            ColumnValue::Time(time) => drop(write!(out, "\"{time}\"")),
            ColumnValue::Digest(digest) => {
                out.push('"');
                digest.push_hex(out);
                out.push('"');
            }
        }
    }
}

/// A type that a column can hold.
trait ColumnType: Sized {
    fn value(&self) -> ColumnValue<'_>;
    /// Takes the next column of a row; none where it is empty.
    fn read(found: &mut FoundRow) -> Result<Option<Self>, StoreFault>;
}

fn value_of<T: ColumnType>(value: Option<&T>) -> ColumnValue<'_> {
    value.map_or(ColumnValue::Null, ColumnType::value)
}

/// PostgreSQL stores no U+0000 in text: its visible sign replaces it, in both databases alike.
fn storable(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { Cow::Owned(text.replace('\0', "\u{2400}")) } else { Cow::Borrowed(text) }
}

macro_rules! column_types {
    ($($kind:ty: |$value:ident| $shown:expr, |$found:ident| $read:expr;)+) => {
        $(impl ColumnType for $kind {
            fn value(&self) -> ColumnValue<'_> {
                let $value = self;
                $shown
            }
            fn read($found: &mut FoundRow) -> Result<Option<Self>, StoreFault> {
                $read
            }
        })+
    };
}

macro_rules! text_types {
    ($($kind:ty),+) => {
        column_types! { $($kind: |text| ColumnValue::Text(storable(text.as_str())), |found| Ok(found.maybe_text()?.map(Into::into));)+ }
    };
}

macro_rules! word_types {
    ($($kind:ty),+) => {
        column_types! { $($kind: |word| ColumnValue::Word(word.as_str()), |found| found.maybe();)+ }
    };
}

text_types!(String, LedgerId, PlanId, PrincipalId, RequestId, SessionId, ToolName, UpstreamId, WriterId);
word_types!(ActorRole, CallToolVariant, Effect, Mode, RowKind, RowStatus, Source);
column_types! {
    i64: |number| ColumnValue::Int(*number), |found| found.maybe_int();
    u32: |number| ColumnValue::Int(i64::from(*number)), |found| {
        let bad = |_| StoreFault::corrupt("a number is out of range");
        found.maybe_int()?.map(u32::try_from).transpose().map_err(bad)
    };
    u64: |number| ColumnValue::Int(i64::try_from(*number).unwrap_or(i64::MAX)), |found| found.maybe_count();
    Timestamp: |time| ColumnValue::Time(*time), |found| found.maybe_time();
    Digest: |digest| ColumnValue::Digest(*digest), |found| found.maybe();
    // Stored JSON must be one whole value: otherwise text could be moved from one column into the next, unseen by the hash.
    Json: |json| ColumnValue::Json(json.text()), |found| match found.maybe_text()? {
        None => Ok(None),
        Some(text) if serde_json::from_str::<&RawValue>(&text).is_ok() => Ok(Some(Json::checked(text))),
        Some(_) => Err(StoreFault::corrupt("stored JSON is not one value")),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Entry;
    use countersign_policy::intent::DeclaredIntent;

    #[test]
    fn members_are_in_the_order_of_canonical_json() {
        let row = LedgerRow { entry: filled(), ..LedgerRow::empty() };
        let text = canonical_text(&row, true);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(canonical::to_string(&value), text);
        assert_eq!(value["intent"]["reason"], "a \"reason\"\u{2400}");
    }

    /// An entry in which every column has a value.
    fn filled() -> Entry {
        let json = || Some(Json::of(&serde_json::json!({"a": 1})));
        let digest = || Some(Digest::plain(b"x"));
        Entry {
            principal: Some("p".into()),
            role: Some(ActorRole::Agent),
            session: Some("s".into()),
            request_id: Some("req_1".into()),
            source: Some(Source::Mcp),
            host: json(),
            upstream: Some("u".into()),
            tool: Some("t".into()),
            variant: Some(CallToolVariant::Read),
            effect: Some(Effect::Read),
            mode: Some(Mode::Ask),
            intent: Some(DeclaredIntent {
                operation_type: Some("read".into()),
                data_sensitivity: Some("public".into()),
                reason: Some("a \"reason\"\u{0}".into()),
            }),
            arguments: json(),
            arguments_digest: digest(),
            plan_id: Some("pln_1".into()),
            plan_hash: digest(),
            approval: json(),
            code: Some("E_X".into()),
            duration_us: Some(7),
            result_digest: digest(),
            detail: json(),
            ..Entry::new(RowKind::Call, RowStatus::Success)
        }
    }
}
