//! `memory list`, `memory show` and `memory search`: proposals and records for people, who may see what agents may not.

use anstyle::Style;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use countersign_memory::{TextLength, inbox, proposal_view, record_view, words};
use countersign_policy::memory::{ProposalStatus, RecordKind};
use countersign_policy::refusal::{Code, Refusal};
use countersign_store::memory::{Holding, MemoryRecord, Proposal, ProposalQuery, RecordQuery, Terms};
use countersign_store::{Store, StoreUrl};
use countersign_terminal::command_result::{Answer, CommandError, CommandResult};
use countersign_terminal::output::{
    Column, DIM, GOOD, NAME, OutputSettings, Table, paint, shown, visible, zone,
};
use countersign_terminal::partial_id::PartialId;
use countersign_terminal::records;
use jiff::Timestamp;
use serde_json::Value;

use crate::{command_error, open_memory, sheet};

/// Shown under the help.
pub(crate) const EXAMPLES: &str = "Examples:
  countersign memory list
  countersign memory list --status pending
  countersign memory list --as learning --limit 100 --json";
/// Shown under the help.
pub(crate) const SHOW_EXAMPLES: &str = "Examples:
  countersign memory show prop_01KA4Z7Q3V9M5T2X8R6W0YPROP
  countersign memory show d_01KA4Z7Q3V9M5T2X8R6W0YDECS --json";
/// Shown under the help.
pub(crate) const SEARCH_EXAMPLES: &str = "Examples:
  countersign memory search 'release signing'
  countersign memory search postgres --as decision --limit 5";

/// What `memory list` takes.
#[derive(Args, Debug)]
pub(crate) struct MemoryListArgs {
    /// Only proposals that stand so: pending, approved, rejected or expired
    #[arg(long, value_name = "STATUS", value_parser = PossibleValuesParser::new(ProposalStatus::ALL.iter().map(|word| word.as_str())).try_map(|word| word.parse::<ProposalStatus>()))]
    status: Option<ProposalStatus>,

    /// Only these: decision, learning or idea
    #[arg(long = "as", value_name = "KIND", value_parser = super::kinds())]
    kind: Option<RecordKind>,

    /// How many of each at most
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
}

/// What `memory show` takes.
#[derive(Args, Debug)]
pub(crate) struct MemoryShowArgs {
    /// A proposal's or record's id; of a proposal at least 6 characters of its beginning or end
    id: String,
}

/// What `memory search` takes.
#[derive(Args, Debug)]
pub(crate) struct MemorySearchArgs {
    /// A few words
    query: String,

    /// Only these: decision, learning or idea
    #[arg(long = "as", value_name = "KIND", value_parser = super::kinds())]
    kind: Option<RecordKind>,

    /// How many of each at most
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
}

fn wanted(kind: Option<RecordKind>) -> Vec<RecordKind> {
    kind.map_or_else(|| RecordKind::ALL.to_vec(), |kind| vec![kind])
}

/// Lists them.
pub(crate) fn run(args: &MemoryListArgs, url: &StoreUrl, voice: OutputSettings) -> CommandResult {
    let now = Timestamp::now();
    let (proposals, found) = records::with(url, async |store| {
        let fault = |fault| records::trouble(&fault, url);
        store.expire_proposals(now).await.map_err(fault)?;
        let query = ProposalQuery {
            status: Some(args.status.unwrap_or(ProposalStatus::Pending)),
            kind: args.kind,
            limit: args.limit,
            ..ProposalQuery::default()
        };
        let proposals = store.proposals(query, now).await.map_err(fault)?;
        let query = RecordQuery {
            kinds: wanted(args.kind),
            limit: args.limit,
            holding: Holding::Whatever,
            ..RecordQuery::default()
        };
        let found = match args.status {
            Some(_) => Vec::new(),
            None => store.find_records(query).await.map_err(fault)?,
        };
        Ok((proposals, found))
    })?;
    Ok(table(&proposals, &found, voice, now))
}

/// Finds them.
pub(crate) fn search(args: &MemorySearchArgs, url: &StoreUrl, voice: OutputSettings) -> CommandResult {
    let now = Timestamp::now();
    let asked = words::query_terms(&args.query);
    let (proposals, found) = records::with(url, async |store| {
        let fault = |fault| records::trouble(&fault, url);
        let kind = args.kind.filter(|kind| *kind != RecordKind::Idea);
        let query = ProposalQuery { status: None, kind, terms: Terms::All(asked), limit: args.limit };
        let proposals = match args.kind {
            Some(RecordKind::Idea) => Vec::new(),
            _ => store.proposals(query, now).await.map_err(fault)?,
        };
        let found =
            countersign_memory::search(&store, &wanted(args.kind), &[], Some(&args.query), args.limit).await;
        Ok((proposals, found.map_err(|stop| command_error(stop, ""))?))
    })?;
    // What was approved is among the records.
    let proposals: Vec<Proposal> =
        proposals.into_iter().filter(|proposal| proposal.status != ProposalStatus::Approved).collect();
    Ok(table(&proposals, &found, voice, now))
}

fn table(proposals: &[Proposal], found: &[MemoryRecord], voice: OutputSettings, now: Timestamp) -> Answer {
    let zone = zone(voice, now);
    let mut table = Table::new(&[
        Column::kept("ID"),
        Column::kept("STATE"),
        Column::kept("AS"),
        Column::spared("HOLDS IN", 2),
        Column::spared("WHEN", 3),
        Column::kept("TEXT"),
    ]);
    for proposal in proposals {
        table.row(vec![
            (proposal.id.clone(), NAME),
            (proposal.status.to_string(), sheet::style(proposal.status)),
            (proposal.kind.to_string(), Style::new()),
            (sheet::place(&proposal.body), Style::new()),
            (shown(proposal.created, &zone), DIM),
            (sheet::first_line(&proposal.body.content), Style::new()),
        ]);
    }
    for record in found {
        let state = match record.authority {
            Some(authority) if record.status.holds() => authority.as_str(),
            Some(_) | None => record.status.as_str(),
        };
        table.row(vec![
            (record.id.clone(), NAME),
            (state.to_owned(), if record.status.holds() { GOOD } else { DIM }),
            (record.kind.to_string(), Style::new()),
            (sheet::place(&record.body), Style::new()),
            (shown(record.created, &zone), DIM),
            (sheet::first_line(&record.body.content), Style::new()),
        ]);
    }
    let text = match (proposals.is_empty() && found.is_empty(), voice.is_watched()) {
        (true, true) => {
            format!("{}\n", paint(DIM, "nothing; countersign memory store TEXT proposes something"))
        }
        (true, false) => String::new(),
        (false, _) => table.render(voice.width()),
    };
    let proposals: Vec<Value> = proposals.iter().map(proposal_view).collect();
    let found: Vec<Value> = found.iter().map(|record| record_view(record, TextLength::Whole)).collect();
    Answer::text(text).with("proposals", proposals).with("records", found)
}

/// Shows one.
pub(crate) fn show(args: &MemoryShowArgs, url: &StoreUrl, voice: OutputSettings) -> CommandResult {
    let now = Timestamp::now();
    let zone = zone(voice, now);
    records::with(url, async |store| {
        let fault = |fault| records::trouble(&fault, url);
        if let Some(record) = store.record(args.id.trim()).await.map_err(fault)? {
            let links = store.links_of(&record.id).await.map_err(fault)?;
            let mut answer = Answer::text(sheet::record(&record, &links, &zone))
                .with("record", record_view(&record, TextLength::Whole));
            if !record.proposal_id.is_empty()
                && let Some(proposal) = store.proposal(&record.proposal_id, now).await.map_err(fault)?
            {
                answer = answer.with("proposal", proposal_view(&proposal));
            }
            return Ok(answer);
        }
        let proposal = find(&store, url, &args.id, now).await?;
        let review =
            inbox::review(&open_memory(&store), proposal).await.map_err(|stop| command_error(stop, ""))?;
        Ok(Answer::text(sheet::review(&review, &zone, now)).with("proposal", inbox::json(&review)))
    })
}

/// The proposal that is meant: the whole id, or a part of one that waits.
pub(crate) async fn find(
    store: &Store,
    url: &StoreUrl,
    typed: &str,
    now: Timestamp,
) -> Result<Proposal, CommandError> {
    const LIST: &str = "countersign memory list";
    let fault = |fault| records::trouble(&fault, url);
    if let Some(proposal) = store.proposal(typed.trim(), now).await.map_err(fault)? {
        return Ok(proposal);
    }
    let absent =
        Refusal::new(Code::NotFound, format!("there is no `{}` in the memory of `{url}`", visible(typed)));
    let query = ProposalQuery { limit: 1000, ..ProposalQuery::default() };
    let all = store.proposals(query, now).await.map_err(fault)?;
    PartialId::of("prop_", typed).one(all, |proposal| proposal.id.clone(), absent, LIST)
}
