//! What the catalogue costs: checking arguments against a schema, reading a list of generated tools (1,000, or the number given
//! as the first argument), building the catalogue, looking a name up.
//! `cargo run --release -p countersign-gateway --example catalog_bench [TOOLS]`
#![allow(clippy::print_stdout, reason = "a bench prints its figures")]
#![allow(clippy::unwrap_used, reason = "a bench that has nothing to measure ends there")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use countersign_config::{ToolNamePrefix, UpstreamTrust};
use countersign_gateway::catalog::{Catalog, CatalogSource, HeaderMirroring, ListedTools, plan_pins};
use countersign_gateway::schema::Schemas;
use countersign_mcp::raw;
use countersign_policy::gate::SchemaChecker;
use countersign_policy::ids::{FullName, UpstreamId};
use countersign_policy::rules::RuleSet;
use countersign_policy::tool::Tool;
use serde_json::{Value, json};

/// A tool as servers for issue trackers list them; the number makes each schema a new one.
fn definition(number: usize) -> Value {
    json!({"name": format!("create_issue_{number}"), "description": "Creates an issue in a repository and assigns it.",
        "inputSchema": {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {
            "owner": {"type": "string", "description": "Repository owner"}, "repo": {"type": "string", "minLength": 1},
            "title": {"type": "string"}, "body": {"type": "string"}, "draft": {"type": "boolean"},
            "labels": {"type": "array", "items": {"type": "string"}, "maxItems": 100},
            "milestone": {"type": "integer", "minimum": 1, "maximum": number + 100},
            "state": {"type": "string", "enum": ["open", "closed", "all"]},
            "sha": {"type": "string", "pattern": "^[0-9a-f]{40}$"},
            "options": {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"sort": {"type": "string"},
                "page": {"type": "number"}}, "additionalProperties": false}]}},
            "required": ["owner", "repo", "title"], "additionalProperties": false}})
}

fn timed<T>(what: &str, times: u32, mut work: impl FnMut() -> T) {
    let started = Instant::now();
    for _ in 0..times {
        black_box(work());
    }
    println!("{what:<44} {:?}", started.elapsed() / times);
}

fn main() {
    let count = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1_000);
    let (schemas, upstream) = (Schemas::default(), UpstreamId::new("tracker"));
    let tool = Tool::read(upstream.clone(), definition(0).as_object().unwrap().clone()).unwrap();
    let fits = json!({"owner": "acme", "repo": "site", "title": "A title", "body": "long text ".repeat(20), "draft": false,
        "labels": ["a", "b", "c"], "milestone": 3, "state": "open", "sha": "0123456789abcdef0123456789abcdef01234567",
        "options": {"sort": "asc", "page": 2}});
    let misses = json!({"owner": "acme", "repo": "", "title": 5, "labels": "x", "extra": 1});
    for (what, arguments) in [("arguments that fit", fits), ("arguments with four faults", misses)] {
        let arguments = arguments.as_object().unwrap();
        timed(what, 100_000, || schemas.check(&tool, arguments));
    }
    timed("compiling a schema", 1_000, || Schemas::default().check(&tool, &serde_json::Map::new()));

    let list: Vec<_> = (0..count).map(|number| raw::to_raw(&definition(number))).collect();
    println!("{count} tools");
    timed("reading a list of new tools", 1, || {
        ListedTools::read(&upstream, list.clone(), HeaderMirroring::Plain, &Schemas::default())
    });
    let listed = Arc::new(ListedTools::read(&upstream, list.clone(), HeaderMirroring::Plain, &schemas));
    timed("reading the same list again", 3, || {
        ListedTools::read(&upstream, list.clone(), HeaderMirroring::Plain, &schemas)
    });
    let standings = plan_pins(
        UpstreamTrust::FirstSight,
        countersign_store::ListingOccurrence::First,
        &[],
        &listed.sound(),
    )
    .standings;
    let source = [CatalogSource { listed, standings, prefix: ToolNamePrefix::Upstream, is_starting: false }];
    timed("building the catalogue", 3, || Catalog::build(&source, &RuleSet::default()));
    let catalog = Catalog::build(&source, &RuleSet::default());
    let (known, unknown) =
        (FullName::new("tracker", "create_issue_7"), FullName::new("tracker", "create_isue_7"));
    timed("a tool by its name", 100_000, || catalog.standing(&known));
    timed("the nearest to a name that does not exist", 100, || catalog.standing(&unknown));
}
