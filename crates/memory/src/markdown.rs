//! Records as Markdown for a repository, and back. Texts are quotations, so that no text can be taken for structure; the comment above
//! carries what a quotation can't. The same records give the same page.

use std::collections::HashMap;

use countersign_policy::memory::{DecisionOutcome, RecordKind, RecordRelation, RecordStatus, Scope};
use countersign_policy::visible_text;
use countersign_store::memory::{MemoryRecord, NewRecord, RecordLink};
use serde_json::{Map, Value, json};

use crate::govern::{RecordDraft, proposal_body};

const OPENS: &str = "<!-- countersign ";
const CLOSES: &str = " -->";

/// A page that can't be read, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotAPage {
    /// The line, from 1.
    pub line: usize,
    pub message: String,
}

/// How one record of a page stands to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageRecordLink {
    /// The id of the first.
    pub source: String,
    pub relation: RecordRelation,
    pub target: String,
}

/// The page of these records, and how they stand to each other.
pub fn write(records: &[MemoryRecord], links: &[RecordLink]) -> String {
    let titles: HashMap<&str, String> =
        records.iter().map(|record| (record.id.as_str(), title(&record.body.content))).collect();
    // Links to what is not on the page lead nowhere.
    let mut of: HashMap<&str, Vec<(&RecordLink, &str)>> = HashMap::new();
    for link in links {
        if let Some(title) = titles.get(link.target_id.as_str()) {
            of.entry(link.source_id.as_str()).or_default().push((link, title));
        }
    }
    let mut page = String::from(
        "# Memory\n\nWhat this project decided and learnt. Written by `countersign memory export`, read back by `countersign memory \
         import`; each text is the quotation below its comment.\n",
    );
    let sections = [
        (RecordKind::Decision, "Decisions"),
        (RecordKind::Learning, "Learnings"),
        (RecordKind::Idea, "Ideas"),
    ];
    for (kind, title) in sections {
        let mut of_kind: Vec<&MemoryRecord> = records.iter().filter(|record| record.kind == kind).collect();
        of_kind.sort_by(|left, right| {
            (right.body.scope, &left.body.path, left.created, &left.id).cmp(&(
                left.body.scope,
                &right.body.path,
                right.created,
                &right.id,
            ))
        });
        if of_kind.is_empty() {
            continue;
        }
        page.push_str(&format!("\n## {title}\n"));
        for record in of_kind {
            one(&mut page, record, of.get(record.id.as_str()).map_or(&[][..], Vec::as_slice));
        }
    }
    page
}

fn one(page: &mut String, record: &MemoryRecord, links: &[(&RecordLink, &str)]) {
    let body = &record.body;
    page.push_str(&format!("\n### {}\n\n", title(&body.content)));
    page.push_str(&format!("{OPENS}{}{CLOSES}\n\n", comment_safe(&facts(record, links))));
    page.push_str(&quote(&body.content));
    let mut about = Vec::new();
    if body.scope != Scope::Palace {
        about.push(format!("{} `{}`", body.scope, body.path.replace(['`', '\n', '\r'], " ")));
    }
    if record.status != RecordStatus::Active {
        about.push(record.status.to_string());
    }
    if record.outcome != DecisionOutcome::Unknown {
        about.push(format!("outcome: {}", record.outcome));
    }
    if !about.is_empty() {
        page.push_str(&format!("\n*{}*\n", about.join(" · ")));
    }
    for (name, text) in [("Rationale", &body.rationale), ("Context", &body.context)] {
        if !text.is_empty() {
            page.push_str(&format!("\n**{name}**\n\n{}", quote(text)));
        }
    }
    if !links.is_empty() {
        page.push('\n');
    }
    for (link, title) in links {
        page.push_str(&format!("- *{}* {title}\n", link.relation.as_str().replace('_', " ")));
    }
}

fn facts(record: &MemoryRecord, links: &[(&RecordLink, &str)]) -> Value {
    let body = &record.body;
    let mut facts = json!({
        "id": record.id,
        "as": record.kind,
        "scope": body.scope,
        "scope_path": body.path,
        "status": record.status,
        "outcome": record.outcome,
        "confidence": record.confidence,
        "tags": body.tags,
        "created_at": record.created.to_string(),
    });
    if !record.outcome_note.is_empty() {
        set(&mut facts, "outcome_note", record.outcome_note.as_str().into());
    }
    if let Some(at) = record.outcome_at {
        set(&mut facts, "outcome_at", at.to_string().into());
    }
    if !links.is_empty() {
        let links =
            links.iter().map(|(link, _)| json!({"relation": link.relation, "target": link.target_id}));
        set(&mut facts, "links", links.collect());
    }
    let texts = [("content", &body.content), ("rationale", &body.rationale), ("context", &body.context)];
    let exact: Map<String, Value> = texts
        .into_iter()
        .filter(|(_, text)| shown(text) != **text)
        .map(|(name, text)| (name.to_owned(), text.as_str().into()))
        .collect();
    if !exact.is_empty() {
        set(&mut facts, "exact", exact.into());
    }
    facts
}

fn set(object: &mut Value, name: &str, value: Value) {
    if let Some(members) = object.as_object_mut() {
        members.insert(name.to_owned(), value);
    }
}

/// A text as it can be shown on a page: what deceives stands as a replacement.
fn shown(text: &str) -> String {
    visible_text::replace_hidden(text, '\u{fffd}')
}

fn quote(text: &str) -> String {
    let line = |line: &str| if line.is_empty() { ">\n".to_owned() } else { format!("> {line}\n") };
    shown(text).split('\n').map(line).collect()
}

/// The first line, short, without anything Markdown would act on.
fn title(content: &str) -> String {
    let shown = shown(content);
    let first = shown.lines().find(|line| !line.trim().is_empty()).unwrap_or("(empty)").trim();
    let mut title: String = first.chars().take(80).collect();
    if first.chars().nth(80).is_some() {
        title.push('…');
    }
    let acts = |c: char| matches!(c, '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '#' | '|' | '!' | '&');
    title.chars().flat_map(|c| acts(c).then_some('\\').into_iter().chain([c])).collect()
}

/// JSON that can't end the comment it stands in, and deceives nobody there either.
fn comment_safe(value: &Value) -> String {
    let text = value.to_string().replace('>', "\\u003e").replace("--", "-\\u002d");
    let mut units = [0; 2];
    let mut safe = |c: char| match visible_text::is_invisible(c) {
        true => c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")).collect(),
        false => c.to_string(),
    };
    text.chars().map(&mut safe).collect()
}

pub fn read(page: &str) -> Result<Vec<NewRecord>, NotAPage> {
    let lines: Vec<&str> = page.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line)).collect();
    let mut records = Vec::new();
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        at += 1;
        let Some(rest) = line.strip_prefix(OPENS) else { continue };
        let here = at;
        let bad = |message: &str| NotAPage { line: here, message: message.to_owned() };
        let text = rest.strip_suffix(CLOSES).ok_or_else(|| bad("the comment does not end on its line"))?;
        let facts: Map<String, Value> =
            serde_json::from_str(text).map_err(|error| bad(&format!("the comment is not JSON: {error}")))?;
        let mut quotes = QuotedFields::default();
        at = quotes.read(&lines, at);
        records.push(record(&facts, quotes).map_err(|message| bad(&message))?);
    }
    Ok(records)
}

/// How the records of a page stand to each other; what can't be read of that is left out.
pub fn links(page: &str) -> Vec<PageRecordLink> {
    let facts = page.lines().filter_map(|line| line.strip_prefix(OPENS)?.strip_suffix(CLOSES));
    let facts = facts.filter_map(|text| serde_json::from_str::<Value>(text).ok());
    let mut all = Vec::new();
    for facts in facts {
        let Some(source) = facts.get("id").and_then(Value::as_str) else { continue };
        let links = facts.get("links").and_then(Value::as_array).into_iter().flatten();
        all.extend(links.filter_map(|link| {
            let text = |name: &str| link.get(name).and_then(Value::as_str);
            Some(PageRecordLink {
                source: source.to_owned(),
                relation: text("relation")?.parse().ok()?,
                target: text("target")?.to_owned(),
            })
        }));
    }
    all
}

#[derive(Default)]
struct QuotedFields {
    content: Option<String>,
    rationale: Option<String>,
    context: Option<String>,
}

impl QuotedFields {
    /// Reads up to the next heading or comment; where it stopped.
    fn read(&mut self, lines: &[&str], mut at: usize) -> usize {
        let mut into = &mut self.content;
        while let Some(line) = lines.get(at) {
            if line.starts_with('#') || line.starts_with(OPENS) {
                break;
            }
            match *line {
                "**Rationale**" => into = &mut self.rationale,
                "**Context**" => into = &mut self.context,
                quoted if quoted.starts_with('>') => {
                    let rest =
                        quoted.strip_prefix("> ").or_else(|| quoted.strip_prefix('>')).unwrap_or_default();
                    match into {
                        Some(text) => {
                            text.push('\n');
                            text.push_str(rest);
                        }
                        None => *into = Some(rest.to_owned()),
                    }
                }
                _ => {}
            }
            at += 1;
        }
        at
    }
}

fn record(facts: &Map<String, Value>, quotes: QuotedFields) -> Result<NewRecord, String> {
    let text = |name: &str| facts.get(name).and_then(Value::as_str).unwrap_or_default();
    let kind: RecordKind =
        text("as").parse().map_err(|_| "`as` must be decision, learning, or idea".to_owned())?;
    let exact = facts.get("exact").and_then(Value::as_object);
    // What a person changed in the quotation counts; else the exact text does.
    let settle = |name: &str, quoted: Option<String>| {
        let quoted = quoted.unwrap_or_default();
        let kept = exact.and_then(|exact| exact.get(name)).and_then(Value::as_str);
        kept.filter(|kept| shown(kept) == quoted).map(str::to_owned).unwrap_or(quoted)
    };
    let content = settle("content", quotes.content);
    if content.trim().is_empty() {
        return Err("there is no quotation below it".to_owned());
    }
    let place = match text("scope").parse::<Scope>() {
        Ok(scope @ (Scope::File | Scope::Room)) => {
            let path = text("scope_path");
            if path.is_empty() {
                return Err(format!("`scope_path` is required for scope {scope}"));
            }
            Some((scope, path.to_owned()))
        }
        Ok(Scope::Palace) => None,
        Err(_) if !facts.contains_key("scope") => None,
        Err(_) => return Err("`scope` must be file, room, or palace".to_owned()),
    };
    let tags = facts.get("tags").and_then(Value::as_array).into_iter().flatten();
    let wording = RecordDraft {
        content,
        rationale: settle("rationale", quotes.rationale),
        context: settle("context", quotes.context),
        tags: tags.filter_map(Value::as_str).map(str::to_owned).collect(),
        place,
    };
    let usual = if kind == RecordKind::Learning { 700 } else { 1000 };
    let confidence =
        facts.get("confidence").and_then(Value::as_u64).and_then(|number| u32::try_from(number).ok());
    Ok(NewRecord {
        kind,
        body: proposal_body(wording),
        confidence: confidence.unwrap_or(usual).min(1000),
        source: "import".to_owned(),
        session_id: String::new(),
        status: text("status").parse().unwrap_or(RecordStatus::Active),
        outcome: text("outcome").parse().unwrap_or(DecisionOutcome::Unknown),
        outcome_note: text("outcome_note").to_owned(),
        outcome_at: text("outcome_at").parse().ok(),
        id: facts.get("id").and_then(Value::as_str).map(str::to_owned),
        created: text("created_at").parse().ok(),
    })
}
