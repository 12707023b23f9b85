//! Search by words, with the same terms and order in both databases. Terms are letters and digits only, so no text is read as an operator;
//! kind and place are terms of their own, so that a narrow query stays cheap.

use countersign_policy::memory::{RecordAuthority, RecordKind, RecordStatus, Scope};

use super::place_key;
use super::records::{self, MemoryRecord};
use crate::Store;
use crate::engine::{Cell, SqlDialect};
use crate::fault::StoreFault;

/// The most bytes of terms of a text: PostgreSQL indexes less than a megabyte.
const MOST_BYTES: usize = 600_000;
/// How long a term may be.
const LONGEST: usize = 64;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Terms {
    #[default]
    Whatever,
    All(Vec<String>),
    Any(Vec<String>),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Holding {
    /// Only valid, authoritative records: what agents may read.
    #[default]
    Only,
    Whatever,
}

#[derive(Clone, Debug, Default)]
pub struct RecordQuery {
    pub kinds: Vec<RecordKind>,
    /// In exactly these places; empty means everywhere.
    pub places: Vec<(Scope, String)>,
    pub terms: Terms,
    pub holding: Holding,
    /// Only records that arrived before this one: for the next page.
    pub before: Option<i64>,
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

/// The query in the database's syntax; none without terms.
pub(super) fn expression(terms: &Terms, also: &[Vec<String>], dialect: SqlDialect) -> Option<String> {
    let (and, or) = match dialect {
        SqlDialect::Sqlite => (" AND ", " OR "),
        SqlDialect::Postgres => (" & ", " | "),
    };
    let quote = |word: &String| match dialect {
        SqlDialect::Sqlite => format!("\"{word}\""),
        SqlDialect::Postgres => format!("'{word}'"),
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
        // A query without usable terms finds nothing, not everything.
        return Some(quote(&"no_such_term".to_owned()));
    }
    let mut groups = vec![group(&asked.0, asked.1)];
    groups.extend(also.iter().filter(|words| !words.is_empty()).map(|words| group(words, or)));
    Some(groups.join(and))
}

/// The FROM clause and the condition for rows of a table that match a parameter.
pub(super) fn matching(table: &str, alias: &str, place: &str, dialect: SqlDialect) -> (String, String) {
    match dialect {
        // CROSS JOIN keeps the order: first the words, then the rows they lead to.
        SqlDialect::Sqlite => (
            format!("memory_{table}_text t CROSS JOIN memory_{table} {alias} ON {alias}.seq = t.rowid"),
            format!("memory_{table}_text MATCH {place}"),
        ),
        SqlDialect::Postgres => (
            format!("memory_{table} {alias}"),
            format!("{alias}.search @@ CAST(CAST({place} AS TEXT) AS tsquery)"),
        ),
    }
}

/// The condition for what agents may read: valid, and authoritative or an idea.
fn readable(alias: &str) -> String {
    let quoted =
        |words: Vec<&str>| words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(", ");
    let authorities =
        RecordAuthority::ALL.iter().filter(|one| one.is_authoritative()).map(|one| one.as_str()).collect();
    let statuses = RecordStatus::ALL.iter().filter(|one| one.holds()).map(|one| one.as_str()).collect();
    format!(
        "({alias}.authority IN ({}) OR ({alias}.kind = 'idea' AND {alias}.authority IS NULL)) AND {alias}.status IN ({})",
        quoted(authorities),
        quoted(statuses)
    )
}

impl Store {
    /// Records, place by place and kind by kind, each newest first.
    pub async fn find_records(&self, query: RecordQuery) -> Result<Vec<MemoryRecord>, StoreFault> {
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

fn statements(query: &RecordQuery, dialect: SqlDialect) -> Vec<(String, Vec<Cell>)> {
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
    dialect: SqlDialect,
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
        if dialect == SqlDialect::Sqlite {
            // Reads the word index from its newest end, without a sort.
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
        assert_eq!(expression(&terms, &[], SqlDialect::Sqlite).as_deref(), Some("(\"or\" AND \"ok\")"));
        assert_eq!(expression(&terms, &[], SqlDialect::Postgres).as_deref(), Some("('or' & 'ok')"));
        let none = Terms::All(vec!["*".into()]);
        assert_eq!(expression(&none, &[], SqlDialect::Sqlite).as_deref(), Some("\"no_such_term\""));
    }
}
