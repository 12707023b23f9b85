//! Tools that flip between definitions: what is known of them, the set a person accepts, and what never gets into one.

use countersign_policy::digest::Digest;
use countersign_policy::ids::FullName;
use countersign_policy::record::{ActorRole, RowKind};
use countersign_store::{
    DefinitionAcceptance, LedgerFilter, MOST_KNOWN, PinState, Store, ToolDefinition, ToolPin,
};
use serde_json::json;

use crate::place::{Place, on_both};
use crate::world::at;

on_both!(
    what_was_accepted_is_known_and_offered_as_a_set,
    a_set_is_kept_beside_what_is_new_and_ends_with_only,
    attack_what_nobody_accepted_never_gets_into_a_set,
    attack_many_definitions_are_not_all_kept,
    attack_a_set_is_of_one_tool_of_one_upstream,
    a_set_is_accepted_as_it_was_looked_at_and_recorded,
);

fn definition(text: &str) -> ToolDefinition {
    let definition = json!({"name": "write_it", "description": text});
    let definition = definition.as_object().unwrap().clone();
    ToolDefinition { fingerprint: countersign_policy::tool::fingerprint(&definition), definition }
}

fn print(text: &str) -> Digest {
    definition(text).fingerprint
}

/// A tool, and the seconds that went by.
struct Scene {
    store: Store,
    tool: FullName,
    seconds: i64,
}

impl Scene {
    async fn open(place: &Place, state: PinState) -> Self {
        let (store, tool) = (place.store().await, FullName::new("files", "write_it"));
        let first = [(tool.tool.clone(), definition("a"))];
        assert!(store.pin_all(&tool.upstream, &first, state, at(0)).await.unwrap());
        Self { store, tool, seconds: 0 }
    }

    async fn lists(&mut self, text: &str) -> bool {
        self.seconds += 1;
        let seen = definition(text);
        self.store.propose_pin(&self.tool, &seen, at(self.seconds)).await.unwrap().is_some()
    }

    async fn accepts(&mut self, acceptance: DefinitionAcceptance) -> bool {
        self.seconds += 1;
        let (store, now) = (&self.store, at(self.seconds));
        store.accept_definitions(&self.tool, acceptance, &"ann".into(), now).await.unwrap().is_some()
    }

    /// The upstream lists it, a person accepts it.
    async fn takes(&mut self, text: &str) {
        assert!(
            self.lists(text).await && self.accepts(DefinitionAcceptance::Waiting(print(text))).await,
            "{text}"
        );
    }

    async fn pin(&self) -> ToolPin {
        self.store.pin_of(&self.tool).await.unwrap().unwrap()
    }

    /// What is known, newest first; a star marks the set.
    async fn known(&self) -> String {
        let pin = self.pin().await;
        assert_eq!(self.store.pins(&self.tool.upstream).await.unwrap(), std::slice::from_ref(&pin));
        let one = |known: &countersign_store::KnownDefinition| {
            let text = known.definition.definition["description"].as_str().unwrap();
            format!("{text}{}", if known.in_set { "*" } else { "" })
        };
        pin.known.iter().map(one).collect::<Vec<_>>().join(" ")
    }
}

async fn what_was_accepted_is_known_and_offered_as_a_set(place: Place) {
    let mut scene = Scene::open(&place, PinState::Accepted).await;
    assert_eq!(scene.known().await, "a");
    assert!(scene.pin().await.offered_set().is_empty(), "one definition is no set");
    assert!(!scene.accepts(DefinitionAcceptance::Known(vec![print("a")])).await);
    scene.takes("b").await;
    assert_eq!(scene.known().await, "b a");
    let pin = scene.pin().await;
    assert_eq!((&pin.known[0].accepted_by, &pin.known[1].accepted_by), (&Some("ann".into()), &None));
    assert!(pin.flipped_to().is_none());
    // It flips back: withheld, and on offer.
    assert!(scene.lists("a").await);
    let pin = scene.pin().await;
    assert_eq!((pin.state, pin.offered_set().len()), (PinState::Changed, 2));
    assert_eq!(pin.flipped_to().unwrap().definition, definition("a"));
    assert!(scene.accepts(DefinitionAcceptance::Known(vec![print("a"), print("b")])).await);
    let pin = scene.pin().await;
    assert_eq!((pin.state, &pin.pinned, &pin.candidate), (PinState::Accepted, &definition("a"), &None));
    assert_eq!(scene.known().await, "b* a*");
    assert_eq!(scene.pin().await.known[1].accepted_by, Some("ann".into()), "a person has accepted it now");
    // A member of the set is not a change; anything else is.
    assert!(!scene.lists("b").await && !scene.lists("a").await);
    assert!(scene.lists("c").await);
    assert_eq!(scene.pin().await.state, PinState::Changed);
}

async fn a_set_is_kept_beside_what_is_new_and_ends_with_only(place: Place) {
    let mut scene = Scene::open(&place, PinState::Accepted).await;
    scene.takes("b").await;
    assert!(scene.accepts(DefinitionAcceptance::Known(vec![print("b"), print("a")])).await);
    scene.takes("c").await;
    assert_eq!(scene.known().await, "c b* a*");
    scene.takes("d").await;
    assert_eq!(scene.known().await, "d c b* a*");
    assert!(scene.lists("c").await, "accepted once, not of the set");
    // Only a pending or formerly accepted definition can be the only one.
    assert!(!scene.accepts(DefinitionAcceptance::Only(print("x"))).await);
    assert!(scene.accepts(DefinitionAcceptance::Only(print("a"))).await);
    let pin = scene.pin().await;
    let waits = Some(definition("c"));
    assert_eq!((pin.state, &pin.pinned, &pin.candidate), (PinState::Changed, &definition("a"), &waits));
    assert!(pin.accepted_set().next().is_none());
    assert!(scene.accepts(DefinitionAcceptance::Only(print("c"))).await);
    let pin = scene.pin().await;
    assert_eq!((pin.state, &pin.pinned, &pin.candidate), (PinState::Accepted, &definition("c"), &None));
    assert!(scene.lists("b").await, "the set is over");
}

async fn attack_what_nobody_accepted_never_gets_into_a_set(place: Place) {
    let mut scene = Scene::open(&place, PinState::Pending).await;
    assert!(scene.lists("b").await);
    assert_eq!(scene.known().await, "", "what waits at first sight is not known");
    assert!(!scene.accepts(DefinitionAcceptance::Only(print("a"))).await, "nor can it be named");
    assert!(scene.accepts(DefinitionAcceptance::Waiting(print("b"))).await);
    assert_eq!(scene.known().await, "b", "what was replaced before anyone accepted it is forgotten");
    scene.takes("c").await;
    // Listed and left, listed and replaced: never accepted.
    assert!(scene.lists("evil").await);
    for all in [vec!["b", "c", "evil"], vec!["c", "evil"], vec!["b"], vec![]] {
        let looked_at = all.iter().map(|text| print(text)).collect();
        assert!(!scene.accepts(DefinitionAcceptance::Known(looked_at)).await, "{all:?}");
    }
    // A pending definition outside the set stays pending.
    assert!(scene.accepts(DefinitionAcceptance::Known(vec![print("b"), print("c")])).await);
    let pin = scene.pin().await;
    let waits = Some(definition("evil"));
    assert_eq!((pin.state, &pin.pinned, &pin.candidate), (PinState::Changed, &definition("c"), &waits));
    assert_eq!(scene.known().await, "c* b*");
    assert!(scene.lists("worse").await);
    assert_eq!(scene.known().await, "c* b*");
}

async fn attack_many_definitions_are_not_all_kept(place: Place) {
    let mut scene = Scene::open(&place, PinState::Accepted).await;
    for number in 0..200 {
        assert!(scene.lists(&format!("flood {number}")).await);
    }
    let kept = "SELECT CAST(COUNT(*) AS TEXT) FROM known_definitions";
    let count = async || place.raw_texts(kept).await[0][0].clone().unwrap();
    assert_eq!(count().await, "0", "an upstream adds nothing to what is kept");
    for number in 0..MOST_KNOWN + 3 {
        scene.takes(&format!("v{number}")).await;
    }
    assert_eq!(scene.known().await, "v10 v9 v8 v7 v6 v5 v4 v3");
    let all: Vec<Digest> =
        scene.pin().await.offered_set().iter().map(|known| known.definition.fingerprint).collect();
    assert!(scene.accepts(DefinitionAcceptance::Known(all)).await);
    // A full set is kept; what comes after it is accepted by itself.
    scene.takes("w0").await;
    scene.takes("w1").await;
    assert_eq!(count().await, MOST_KNOWN.to_string());
    assert_eq!(scene.known().await, "w1 v10* v9* v8* v7* v6* v5* v4* v3*");
    let pin = scene.pin().await;
    assert_eq!((pin.offered_set().len(), pin.accepted_set().count()), (MOST_KNOWN, MOST_KNOWN));
}

async fn attack_a_set_is_of_one_tool_of_one_upstream(place: Place) {
    let mut scene = Scene::open(&place, PinState::Accepted).await;
    scene.takes("b").await;
    assert!(scene.accepts(DefinitionAcceptance::Known(vec![print("a"), print("b")])).await);
    let store = scene.store.clone();
    for (upstream, tool) in [("other", "write_it"), ("files", "write_other")] {
        let name = FullName::new(upstream, tool);
        let first = [(name.tool.clone(), definition("b"))];
        store.pin_all(&name.upstream, &first, PinState::Pending, at(50)).await.unwrap();
        assert!(store.accept_pin(&name, print("b"), &"ann".into(), at(51)).await.unwrap().is_some());
        assert!(store.propose_pin(&name, &definition("a"), at(52)).await.unwrap().is_some(), "{name}");
        let pin = store.pin_of(&name).await.unwrap().unwrap();
        assert_eq!((pin.state, pin.known.len()), (PinState::Changed, 1), "{name}");
        assert!(pin.flipped_to().is_none() && pin.offered_set().is_empty(), "{name}");
    }
}

async fn a_set_is_accepted_as_it_was_looked_at_and_recorded(place: Place) {
    let mut scene = Scene::open(&place, PinState::Accepted).await;
    scene.takes("b").await;
    let looked_at = vec![print("a"), print("b")];
    // Somebody else accepts one more meanwhile.
    scene.takes("c").await;
    assert!(
        !scene.accepts(DefinitionAcceptance::Known(looked_at)).await,
        "the set is not what was looked at"
    );
    let all = vec![print("a"), print("b"), print("c")];
    assert!(scene.accepts(DefinitionAcceptance::Known(all.clone())).await);
    assert!(scene.accepts(DefinitionAcceptance::Only(print("c"))).await);
    scene.store.flush().await.unwrap();
    let filter = LedgerFilter { limit: Some(2), ..LedgerFilter::default() };
    let rows = scene.store.activity(filter).await.unwrap().rows;
    let detail = |at: usize| rows[at].detail.as_ref().unwrap().value();
    for row in &rows {
        assert_eq!((row.kind, row.role), (RowKind::ToolChange, Some(ActorRole::Human)));
        assert_eq!(row.principal, Some("ann".into()));
    }
    assert_eq!(
        (&detail(0)["action"], &detail(0)["fingerprint"]),
        (&json!("accept_only"), &json!(print("c")))
    );
    assert_eq!((&detail(1)["action"], &detail(1)["fingerprints"]), (&json!("accept_known"), &json!(all)));
}
