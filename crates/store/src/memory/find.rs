//! Finding by words: the same terms and the same order in both databases. Terms are letters and digits only, so no text
//! is ever read as an operator; kind and place are terms of their own, so that a narrow question stays a small one.

use countersign_core::memory::{Authority, RecordKind, RecordStatus, Scope};

use super::place_key;
use super::records::{self, Record};
use crate::Store;
use crate::engine::{Cell, Dialect};
use crate::fault::StoreFault;

/// How many bytes of terms a text may bring: PostgreSQL keeps less than a megabyte of them.
const MOST_BYTES: usize = 600_000;
/// How long a term may be.
const LONGEST: usize = 64;

/// Which words are looked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Terms {
    /// Anything.
    #[default]
    Whatever,
    /// All of these.
    All(Vec<String>),
    /// One of these at least.
    Any(Vec<String>),
}

/// Whether only what holds is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Holding {
    /// Only what is authoritative and holds: what agents may read.
    #[default]
    Only,
    /// Everything there is.
    Whatever,
}

/// Which records are wanted.
#[derive(Clone, Debug, Default)]
pub struct RecordQuery {
    /// Of these kinds.
    pub kinds: Vec<RecordKind>,
    /// In exactly these places, one after the other; empty means everywhere.
    pub places: Vec<(Scope, String)>,
    /// With these terms.
    pub terms: Terms,
    /// Whether only what holds.
    pub holding: Holding,
    /// Only what came before this, by order of arrival: for the next page.
    pub before: Option<i64>,
    /// How many at most of each place and kind; newest first.
    pub limit: u32,
}

/// The usable terms of a text of terms, each once.
pub(super) fn clean(words: &str) -> Vec<String> {
    let mut seen = std::collections::HashSet::new();
    let mut bytes = 0;
    let usable =
        words.split_ascii_whitespace().filter(|word| word.bytes().all(|b| b.is_ascii_alphanumeric()));
    usable
        .map(|word| word.get(..LONGEST).unwrap_or(word).to_ascii_lowercase())
        .take_while(|word| {
            bytes += word.len() + 1;
            bytes <= MOST_BYTES
        })
        .filter(|word| seen.insert(word.clone()))
        .collect()
}

pub(super) fn kind_term(kind: RecordKind) -> String {
    format!("k_{kind}")
}

pub(super) fn place_term(place: &str) -> String {
    format!("s_{place}")
}

/// The question as the database reads it; none where there is nothing to ask for.
pub(super) fn expression(terms: &Terms, also: &[Vec<String>], dialect: Dialect) -> Option<String> {
    let (and, or) = match dialect {
        Dialect::Sqlite => (" AND ", " OR "),
        Dialect::Postgres => (" & ", " | "),
    };
    let quote = |word: &String| match dialect {
        Dialect::Sqlite => format!("\"{word}\""),
        Dialect::Postgres => format!("'{word}'"),
    };
    let group = |words: &[String], join: &str| {
        let words: Vec<String> = words.iter().map(quote).collect();
        format!("({})", words.join(join))
    };
    let asked = match terms {
        Terms::Whatever => return None,
        Terms::All(words) => (clean(&words.join(" ")), and),
        Terms::Any(words) => (clean(&words.join(" ")), or),
    };
    if asked.0.is_empty() {
        // Nothing that could be found was asked for: that finds nothing, not everything.
        return Some(quote(&"no_such_term".to_owned()));
    }
    let mut groups = vec![group(&asked.0, asked.1)];
    groups.extend(also.iter().filter(|words| !words.is_empty()).map(|words| group(words, or)));
    Some(groups.join(and))
}

/// What to select from, and the condition, for rows of a table that match the value at a place.
pub(super) fn matching(table: &str, alias: &str, place: &str, dialect: Dialect) -> (String, String) {
    match dialect {
        // CROSS JOIN keeps the order: first the words, then the rows they lead to.
        Dialect::Sqlite => (
            format!("memory_{table}_text t CROSS JOIN memory_{table} {alias} ON {alias}.seq = t.rowid"),
            format!("memory_{table}_text MATCH {place}"),
        ),
        Dialect::Postgres => (
            format!("memory_{table} {alias}"),
            format!("{alias}.search @@ CAST(CAST({place} AS TEXT) AS tsquery)"),
        ),
    }
}

/// What agents may read: authoritative, or an idea; and holding. The words come from the one place that knows.
fn readable(alias: &str) -> String {
    let quoted =
        |words: Vec<&str>| words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(", ");
    let authorities =
        Authority::ALL.iter().filter(|one| one.is_authoritative()).map(|one| one.as_str()).collect();
    let statuses = RecordStatus::ALL.iter().filter(|one| one.holds()).map(|one| one.as_str()).collect();
    format!(
        "({alias}.authority IN ({}) OR ({alias}.kind = 'idea' AND {alias}.authority IS NULL)) AND {alias}.status IN ({})",
        quoted(authorities),
        quoted(statuses)
    )
}

impl Store {
    /// Records, place by place and kind by kind, each newest first.
    pub async fn find_records(&self, query: RecordQuery) -> Result<Vec<Record>, StoreFault> {
        self.read(move |view| {
            let mut all = Vec::new();
            for (sql, values) in statements(&query, view.dialect()) {
                for mut found in view.query(&sql, &values)? {
                    all.push(records::decode(&mut found)?);
                }
            }
            Ok(all)
        })
        .await
    }
}

fn statements(query: &RecordQuery, dialect: Dialect) -> Vec<(String, Vec<Cell>)> {
    let places: Vec<Option<String>> = if query.places.is_empty() {
        vec![None]
    } else {
        query.places.iter().map(|(scope, path)| Some(place_key(*scope, path))).collect()
    };
    let mut all = Vec::new();
    for place in &places {
        for kind in &query.kinds {
            all.push(statement(query, place.as_deref(), *kind, dialect));
        }
    }
    all
}

fn statement(
    query: &RecordQuery,
    place: Option<&str>,
    kind: RecordKind,
    dialect: Dialect,
) -> (String, Vec<Cell>) {
    let mut values: Vec<Cell> = vec![kind.as_str().into()];
    let mut conditions = vec!["r.kind = $1".to_owned()];
    let mut from = "memory_records r".to_owned();
    let mut order = "r.seq";
    let mut also = vec![vec![kind_term(kind)]];
    if let Some(place) = place {
        values.push(place.into());
        conditions.push(format!("r.scope_key = ${}", values.len()));
        also.push(vec![place_term(place)]);
    }
    if let Some(wanted) = expression(&query.terms, &also, dialect) {
        values.push(wanted.into());
        let (source, condition) = matching("records", "r", &format!("${}", values.len()), dialect);
        from = source;
        conditions.push(condition);
        if dialect == Dialect::Sqlite {
            // The index of words is walked from its newest end, without a sort.
            order = "t.rowid";
        }
    }
    if let Some(before) = query.before {
        values.push(before.into());
        conditions.push(format!("r.seq < ${}", values.len()));
    }
    if query.holding == Holding::Only {
        conditions.push(readable("r"));
    }
    let columns: Vec<String> =
        records::COLUMNS.split(',').map(|column| format!("r.{}", column.trim())).collect();
    let sql = format!(
        "SELECT {} FROM {from} WHERE {} ORDER BY {order} DESC LIMIT {}",
        columns.join(", "),
        conditions.join(" AND "),
        query.limit.clamp(1, 1000)
    );
    (sql, values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_becomes_an_operator() {
        let terms = Terms::All(vec!["a\" OR \"b".into(), "NEAR(".into(), "x_y".into(), "ok".into()]);
        assert_eq!(expression(&terms, &[], Dialect::Sqlite).as_deref(), Some("(\"or\" AND \"ok\")"));
        assert_eq!(expression(&terms, &[], Dialect::Postgres).as_deref(), Some("('or' & 'ok')"));
        let none = Terms::All(vec!["*".into()]);
        assert_eq!(expression(&none, &[], Dialect::Sqlite).as_deref(), Some("\"no_such_term\""));
    }
}
