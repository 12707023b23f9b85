//! One row: how it is hashed, kept and read back. Every column is under the hash, and the hashed text is
//! canonical JSON that anyone can make again from an exported line.

use countersign_core::confirm::Approval;
use countersign_core::digest::{Digest, Domain};
use countersign_core::effect::Effect;
use countersign_core::ids::{LedgerId, PlanId, PrincipalId, SessionId, ToolName, UpstreamId, WriterId};
use countersign_core::intent::{DeclaredIntent, Variant};
use countersign_core::mode::Mode;
use countersign_core::record::{ActorRole, RowKind, RowStatus, Source};
use jiff::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::entry::{Entry, canonical_text, storable};
use super::members::Members;
use crate::engine::{Cell, Found};
use crate::fault::StoreFault;

/// A JSON value as the canonical text it is kept as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Json(String);

impl Json {
    /// The canonical text of a value.
    pub fn of(value: &Value) -> Self {
        Self(canonical_text(value))
    }
    /// The text.
    pub fn text(&self) -> &str {
        &self.0
    }
    /// The value.
    pub fn value(&self) -> Value {
        // A `Json` is made from a value or checked by `decode`, so it can always be read.
        serde_json::from_str(&self.0).unwrap_or(Value::Null)
    }
}

/// One row of the ledger.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Which shape the row has.
    pub version: u32,
    /// Its name; sorts by time.
    pub id: LedgerId,
    /// When, to the microsecond.
    pub time: Timestamp,
    /// Whose chain it is in.
    pub writer: WriterId,
    /// Its place in that chain, from 1.
    pub sequence: u64,
    /// Its place in listings, in microseconds. Strictly increasing within a chain; follows from the times before it, so it is not hashed.
    pub position: i64,
    /// What it is about.
    pub kind: RowKind,
    /// How the matter stands.
    pub status: RowStatus,
    /// Who.
    pub principal: Option<PrincipalId>,
    /// In which role.
    pub role: Option<ActorRole>,
    /// In which session.
    pub session: Option<SessionId>,
    /// Through which door.
    pub source: Option<Source>,
    /// Of which upstream.
    pub upstream: Option<UpstreamId>,
    /// Which tool.
    pub tool: Option<ToolName>,
    /// Through which call tool.
    pub variant: Option<Variant>,
    /// What the tool does.
    pub effect: Option<Effect>,
    /// The mode in force.
    pub mode: Option<Mode>,
    /// What was declared.
    pub intent: Option<DeclaredIntent>,
    /// Arguments with secrets replaced.
    pub arguments: Option<Json>,
    /// The digest of the arguments as they were.
    pub arguments_digest: Option<Digest>,
    /// The plan.
    pub plan_id: Option<PlanId>,
    /// The plan's hash.
    pub plan_hash: Option<Digest>,
    /// Who agreed, as JSON of an [`Approval`].
    pub approval: Option<Json>,
    /// The code of a refusal or of a failed call.
    pub code: Option<String>,
    /// How long the call took.
    pub duration_us: Option<u64>,
    /// The digest of what came back.
    pub result_digest: Option<Digest>,
    /// Facts of other kinds of rows.
    pub detail: Option<Json>,
    /// The hash of the row before.
    pub prev_hash: Digest,
    /// The hash of this row.
    pub hash: Digest,
}

/// The columns, in the order `decode` and `cells` take them.
pub(crate) const COLUMNS: &str = "writer, sequence, version, id, time, kind, status, principal, role, session, source, \
     upstream, tool, variant, effect, mode, intent_type, intent_sensitivity, intent_reason, arguments, arguments_digest, \
     plan_id, plan_hash, approval, code, duration_us, result_digest, detail, prev_hash, hash, position";

/// The statement that adds a row.
pub(crate) fn insert_sql() -> String {
    let places: Vec<String> = (1..=COLUMNS.split(',').count()).map(|place| format!("${place}")).collect();
    format!("INSERT INTO ledger ({COLUMNS}) VALUES ({})", places.join(", "))
}

impl Row {
    /// Gives an entry its place in a chain.
    pub(crate) fn chain(entry: &Entry, id: LedgerId, now: Timestamp, place: Place<'_>) -> Self {
        // Databases keep microseconds; what is hashed must be what is kept.
        let time = Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now);
        let mut row = Self {
            version: 1,
            id,
            time,
            writer: place.writer.clone(),
            sequence: place.sequence,
            position: position_after(place.position, time),
            kind: entry.kind,
            status: entry.status,
            principal: entry.principal.as_ref().map(|id| storable(id.as_str()).into()),
            role: entry.role,
            session: entry.session.as_ref().map(|id| storable(id.as_str()).into()),
            source: entry.source,
            upstream: entry.upstream.as_ref().map(|id| storable(id.as_str()).into()),
            tool: entry.tool.as_ref().map(|id| storable(id.as_str()).into()),
            variant: entry.variant,
            effect: entry.effect,
            mode: entry.mode,
            intent: entry.intent.as_ref().map(|intent| {
                let kept = |text: &Option<String>| text.as_deref().map(storable);
                DeclaredIntent {
                    operation_type: kept(&intent.operation_type),
                    data_sensitivity: kept(&intent.data_sensitivity),
                    reason: kept(&intent.reason),
                }
            }),
            arguments: entry.arguments.clone(),
            arguments_digest: entry.arguments_digest,
            plan_id: entry.plan_id.as_ref().map(|id| storable(id.as_str()).into()),
            plan_hash: entry.plan_hash,
            approval: entry.approval.clone(),
            code: entry.code.as_deref().map(storable),
            duration_us: entry.duration_us.map(|us| us.min(i64::MAX.unsigned_abs())),
            result_digest: entry.result_digest,
            detail: entry.detail.clone(),
            prev_hash: place.prev_hash,
            hash: place.prev_hash,
        };
        row.hash = row.computed_hash();
        row
    }

    /// What the hash should be: over the previous hash's bytes and the canonical text without the hash itself.
    pub fn computed_hash(&self) -> Digest {
        Digest::of_parts(Domain::LedgerRow, &[self.prev_hash.bytes(), self.text(None).as_bytes()])
    }

    /// The row as one line of canonical JSON, hash included.
    pub fn json(&self) -> String {
        self.text(Some(self.hash))
    }

    /// Who agreed.
    pub fn approval(&self) -> Option<Approval> {
        self.approval.as_ref().and_then(|json| serde_json::from_str(json.text()).ok())
    }

    /// The members in the order of their names; kept JSON goes in as it is, so that any changed byte of it shows.
    fn text(&self, hash: Option<Digest>) -> String {
        let mut members = Members::default();
        members.raw("approval", self.approval.as_ref().map(Json::text));
        members.raw("arguments", self.arguments.as_ref().map(Json::text));
        members.digest("arguments_digest", self.arguments_digest);
        members.text("code", self.code.as_deref());
        members.raw("detail", self.detail.as_ref().map(Json::text));
        members.number("duration_us", self.duration_us);
        members.text("effect", self.effect.map(Effect::as_str));
        members.digest("hash", hash);
        members.text("id", Some(self.id.as_str()));
        members.intent(self.intent.as_ref());
        members.text("kind", Some(self.kind.as_str()));
        members.text("mode", self.mode.map(Mode::as_str));
        members.digest("plan_hash", self.plan_hash);
        members.text("plan_id", self.plan_id.as_ref().map(PlanId::as_str));
        members.digest("prev_hash", Some(self.prev_hash));
        members.text("principal", self.principal.as_ref().map(PrincipalId::as_str));
        members.digest("result_digest", self.result_digest);
        members.text("role", self.role.map(ActorRole::as_str));
        members.number("sequence", Some(self.sequence));
        members.text("session", self.session.as_ref().map(SessionId::as_str));
        members.text("source", self.source.map(Source::as_str));
        members.text("status", Some(self.status.as_str()));
        members.text("time", Some(&self.time.to_string()));
        members.text("tool", self.tool.as_ref().map(ToolName::as_str));
        members.text("upstream", self.upstream.as_ref().map(UpstreamId::as_str));
        members.number("v", Some(u64::from(self.version)));
        members.text("variant", self.variant.map(Variant::as_str));
        members.text("writer", Some(self.writer.as_str()));
        members.end()
    }

    /// The row as the statement takes it.
    pub(crate) fn into_cells(self) -> Vec<Cell> {
        fn text<T: Into<String>>(id: Option<T>) -> Cell {
            id.map_or(Cell::Null, |id| Cell::Text(id.into()))
        }
        fn word(word: Option<&'static str>) -> Cell {
            word.map_or(Cell::Null, Cell::Word)
        }
        let json = |json: Option<Json>| json.map_or(Cell::Null, |json| Cell::Text(json.0));
        let (operation, sensitivity, reason) = match self.intent {
            Some(intent) => (intent.operation_type, intent.data_sensitivity, intent.reason),
            None => (None, None, None),
        };
        vec![
            Cell::Text(self.writer.into()),
            self.sequence.into(),
            self.version.into(),
            Cell::Text(self.id.into()),
            self.time.into(),
            Cell::Word(self.kind.as_str()),
            Cell::Word(self.status.as_str()),
            text(self.principal),
            word(self.role.map(ActorRole::as_str)),
            text(self.session),
            word(self.source.map(Source::as_str)),
            text(self.upstream),
            text(self.tool),
            word(self.variant.map(Variant::as_str)),
            word(self.effect.map(Effect::as_str)),
            word(self.mode.map(Mode::as_str)),
            text(operation),
            text(sensitivity),
            text(reason),
            json(self.arguments),
            self.arguments_digest.into(),
            text(self.plan_id),
            self.plan_hash.into(),
            json(self.approval),
            text(self.code),
            self.duration_us.into(),
            self.result_digest.into(),
            json(self.detail),
            self.prev_hash.into(),
            self.hash.into(),
            self.position.into(),
        ]
    }
}

/// A place at the end of a chain.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) writer: &'a WriterId,
    pub(crate) sequence: u64,
    pub(crate) prev_hash: Digest,
    /// The position of the row before.
    pub(crate) position: Option<i64>,
}

/// The place of a row in listings: its time, or right after the row before where the clock did not go on.
pub(crate) fn position_after(before: Option<i64>, time: Timestamp) -> i64 {
    let time = time.as_microsecond();
    before.map_or(time, |before| time.max(before.saturating_add(1)))
}

/// Reads a row; every way in which it differs from what is ever written is a fault.
pub(crate) fn decode(mut found: Found) -> Result<Row, StoreFault> {
    let found = &mut found;
    let (writer, sequence) = (found.text()?.into(), found.count()?);
    let version =
        u32::try_from(found.int()?).map_err(|_| StoreFault::corrupt("a row's version is out of range"))?;
    Ok(Row {
        writer,
        sequence,
        version,
        id: found.text()?.into(),
        time: found.time()?,
        kind: found.word()?,
        status: found.word()?,
        principal: found.maybe_text()?.map(Into::into),
        role: found.maybe()?,
        session: found.maybe_text()?.map(Into::into),
        source: found.maybe()?,
        upstream: found.maybe_text()?.map(Into::into),
        tool: found.maybe_text()?.map(Into::into),
        variant: found.maybe()?,
        effect: found.maybe()?,
        mode: found.maybe()?,
        intent: decode_intent(found)?,
        arguments: decode_json(found)?,
        arguments_digest: found.maybe()?,
        plan_id: found.maybe_text()?.map(Into::into),
        plan_hash: found.maybe()?,
        approval: decode_json(found)?,
        code: found.maybe_text()?,
        duration_us: found.maybe_count()?,
        result_digest: found.maybe()?,
        detail: decode_json(found)?,
        prev_hash: found.word()?,
        hash: found.word()?,
        position: found.int()?,
    })
}

fn decode_intent(found: &mut Found) -> Result<Option<DeclaredIntent>, StoreFault> {
    let intent = DeclaredIntent {
        operation_type: found.maybe_text()?,
        data_sensitivity: found.maybe_text()?,
        reason: found.maybe_text()?,
    };
    Ok((intent != DeclaredIntent::default()).then_some(intent))
}

/// Kept JSON must be one whole value: otherwise text could be moved from one column into the next, unseen by the hash.
fn decode_json(found: &mut Found) -> Result<Option<Json>, StoreFault> {
    let Some(text) = found.maybe_text()? else { return Ok(None) };
    match serde_json::from_str::<&RawValue>(&text) {
        Ok(_) => Ok(Some(Json(text))),
        Err(_) => Err(StoreFault::corrupt("kept JSON is not one value")),
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(to)
    }
}

impl Serialize for Row {
    /// As [`Row::json`]; for `serde_json` only.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        RawValue::from_string(self.json()).map_err(serde::ser::Error::custom)?.serialize(to)
    }
}
