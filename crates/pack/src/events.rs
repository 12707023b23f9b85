//! `record` and `score`: users' reports on how well modules do. One JSON line per event; skips lines that can't be read.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;

use countersign_policy::refusal::{Code, Refusal};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::error::{PackError, PackResult};
use crate::place::PackEnvironment;
use crate::reply::PackCommandReply;

fn path(place: &PackEnvironment) -> PathBuf {
    place.state().join("logs").join("events.jsonl")
}

fn module_of(event: &Value) -> Option<&str> {
    event.get("module_id").or(event.get("moduleId")).and_then(Value::as_str)
}

fn success_of(event: &Value) -> Option<bool> {
    event.get("success").or(event.get("ok")).and_then(Value::as_bool)
}

pub fn record(place: &PackEnvironment, text: &str, now: Timestamp) -> PackResult<PackCommandReply> {
    let event: Value = serde_json::from_str(text).map_err(|error| {
        PackError::from(
            Refusal::new(Code::ArgumentsInvalid, format!("stdin is not JSON: {error}"))
                .with("field", "stdin"),
        )
    })?;
    let mut line = Map::new();
    line.insert("schema_version".into(), 1.into());
    line.insert("recorded_at".into(), now.to_string().into());
    line.insert("machine_id".into(), place.machine.as_str().into());
    if let Some(module) = module_of(&event) {
        line.insert("module_id".into(), module.into());
    }
    if let Some(success) = success_of(&event) {
        line.insert("success".into(), success.into());
    }
    line.insert("event".into(), event);
    let path = path(place);
    let io = |error: std::io::Error| PackError::io("write", &path, &error);
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(io)?;
    }
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(&path).map_err(io)?;
    file.write_all(format!("{}\n", Value::Object(line)).as_bytes()).map_err(io)?;
    Ok(PackCommandReply::default()
        .with_path("path", &path)
        .with("recorded", true)
        .with("recorded_at", now.to_string())
        .with("machine_id", place.machine.as_str()))
}

pub fn score(place: &PackEnvironment) -> PackResult<PackCommandReply> {
    let path = path(place);
    let text = match std::fs::read(&path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(PackError::io("read", &path, &error)),
    };
    let mut scores: BTreeMap<String, ModuleScore> = BTreeMap::new();
    let (mut read, mut malformed, mut unsupported, mut empty) = (0u64, 0u64, 0u64, 0u64);
    let mut warnings = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            empty += 1;
            continue;
        }
        let mut skip =
            |why: &str| warnings.push(format!("events.jsonl: line {} is skipped: {why}", number + 1));
        let Ok(value) = serde_json::from_str::<Value>(line) else {
            malformed += 1;
            skip("it is not JSON");
            continue;
        };
        let Some(recorded_at) = value.get("recorded_at").and_then(Value::as_str) else {
            malformed += 1;
            skip("it has no `recorded_at`");
            continue;
        };
        if value.get("schema_version").and_then(Value::as_u64) != Some(1) {
            unsupported += 1;
            skip("its version is not 1");
            continue;
        }
        read += 1;
        let event = value.get("event").unwrap_or(&Value::Null);
        let Some(module) = module_of(&value).or(module_of(event)) else { continue };
        let good = success_of(&value).or(success_of(event)).unwrap_or(true);
        let score = scores.entry(module.to_owned()).or_default();
        score.total += 1;
        score.failures += u64::from(!good);
        if score.last_seen_at.as_str() < recorded_at {
            score.last_seen_at = recorded_at.to_owned();
        }
    }
    let modules: Vec<Value> = scores
        .iter()
        .map(|(id, score)| {
            let rate = score.failures as f64 / score.total.max(1) as f64;
            json!({
                "module_id": id, "total": score.total, "failures": score.failures, "failure_rate": rate,
                "last_seen_at": score.last_seen_at,
            })
        })
        .collect();
    let stats = json!({
        "lines_total": text.lines().count(),
        "lines_empty": empty,
        "records_ok": read,
        "skipped_total": malformed + unsupported,
        "skipped_malformed_json": malformed,
        "skipped_unsupported_schema_version": unsupported,
        "skipped_io_errors": 0,
    });
    Ok(PackCommandReply::default().with("modules", modules).with("read_stats", stats).warn(warnings))
}

#[derive(Default)]
struct ModuleScore {
    total: u64,
    failures: u64,
    last_seen_at: String,
}
