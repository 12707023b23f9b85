//! The audit of the memory, read from the ledger, newest first. The same rows as the view `audit_log`, without those about plans.

use countersign_policy::ids::LedgerId;
use countersign_policy::role::Role;
use jiff::Timestamp;
use serde_json::Value;

use crate::Store;
use crate::engine::{Cell, SqlDialect};
use crate::fault::StoreFault;

/// The actions the audit is about.
pub const AUDITED: [&str; 3] = ["direct_write", "approve", "reject"];

#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    /// What was done; without it, one of [`AUDITED`].
    pub action: Option<String>,
    pub entity_type: Option<String>,
    pub entity_id: Option<String>,
    /// How many at most; 50 without it.
    pub limit: Option<u32>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct MemoryAuditRow {
    pub id: LedgerId,
    pub action: String,
    pub actor_type: Option<Role>,
    pub actor_id: String,
    pub entity_type: String,
    pub entity_id: String,
    pub metadata: Value,
    pub created_at: Timestamp,
}

impl Store {
    pub async fn memory_audit(&self, filter: AuditFilter) -> Result<Vec<MemoryAuditRow>, StoreFault> {
        self.read(move |view| {
            let (sql, values) = select(&filter, view.dialect());
            view.query(&sql, &values)?
                .into_iter()
                .map(|mut found| {
                    let (id, created_at) = (found.text()?.into(), found.time()?);
                    let (actor_type, principal) = (found.maybe()?, found.maybe_text()?);
                    let metadata: Value = found.json()?;
                    let of = |name: &str| metadata.get(name).and_then(Value::as_str).map(str::to_owned);
                    Ok(MemoryAuditRow {
                        id,
                        created_at,
                        actor_type,
                        action: of("action").unwrap_or_default(),
                        actor_id: of("actor_id").or(principal).unwrap_or_default(),
                        entity_type: of("entity_type").unwrap_or_default(),
                        entity_id: of("entity_id").unwrap_or_default(),
                        metadata,
                    })
                })
                .collect()
        })
        .await
    }
}

fn select(filter: &AuditFilter, dialect: SqlDialect) -> (String, Vec<Cell>) {
    let member = |name: &str| match dialect {
        SqlDialect::Sqlite => format!("json_extract(detail, '$.{name}')"),
        SqlDialect::Postgres => format!("CAST(detail AS JSON) ->> '{name}'"),
    };
    let mut values: Vec<Cell> = Vec::new();
    let mut conditions = vec!["kind = 'memory'".to_owned(), "detail IS NOT NULL".to_owned()];
    let wanted =
        [("action", &filter.action), ("entity_type", &filter.entity_type), ("entity_id", &filter.entity_id)];
    for (name, value) in wanted {
        if let Some(value) = value {
            values.push(value.replace('\0', "\u{2400}").into());
            conditions.push(format!("{} = ${}", member(name), values.len()));
        }
    }
    if filter.action.is_none() {
        let actions: Vec<String> = AUDITED.iter().map(|action| format!("'{action}'")).collect();
        conditions.push(format!("{} IN ({})", member("action"), actions.join(", ")));
    }
    let sql = format!(
        "SELECT id, time, role, principal, detail FROM ledger WHERE {} AND status = 'success' ORDER BY position DESC, writer DESC LIMIT {}",
        conditions.join(" AND "),
        filter.limit.unwrap_or(50).clamp(1, 1000)
    );
    (sql, values)
}
