//! The smaller records: grants, credentials, sessions, pins, runs.

use countersign_policy::digest::Digest;
use countersign_policy::grant::Grant;
use countersign_policy::ids::{CredentialId, FullName, GrantId, RunId, Secret, ToolName, UpstreamId};
use countersign_policy::mode::Mode;
use countersign_policy::record::Source;
use countersign_policy::role::Role;
use countersign_store::{
    BackgroundRun, Credential, GrantFilter, ListingOccurrence, ModeSetter, PinState, RunState, SavedLine,
    StoreUrl, ToolDefinition, secret_digest,
};
use serde_json::json;

use crate::place::{Place, on_both, options};
use crate::world::at;

on_both!(
    grants_are_listed_and_taken_back,
    credentials_are_found_by_their_digest_alone,
    a_mode_belongs_to_one_principal_and_survives,
    a_pin_changes_only_to_what_was_looked_at,
    a_first_sight_is_pinned_whole_or_not_at_all,
    attack_17_an_empty_first_list_is_a_first_sight,
    runs_are_kept_and_end_once,
    the_salt_is_made_once,
    a_saved_line_outlives_the_store,
);

async fn grants_are_listed_and_taken_back(place: Place) {
    let store = place.store().await;
    let grant = |number: u128, expires: i64| Grant {
        id: GrantId::mint(at(0), number),
        principal: "agent".into(),
        tool: "files:write_it".into(),
        fingerprint: Digest::plain(b"f"),
        arguments: Default::default(),
        uses_left: 3,
        expires: at(expires),
        by: "ann".into(),
    };
    for one in [grant(1, 10), grant(2, 100)] {
        store.grant(&one, at(0)).await.unwrap();
    }
    assert_eq!(store.grants(GrantFilter::All).await.unwrap().len(), 2);
    let usable = store.grants(GrantFilter::Usable(at(10))).await.unwrap();
    assert_eq!(usable.iter().map(|row| row.grant.clone()).collect::<Vec<_>>(), [grant(2, 100)]);
    let id = usable[0].grant.id.clone();
    assert!(store.revoke_grant(&id, &"ann".into(), at(11)).await.unwrap().is_some());
    assert!(store.revoke_grant(&id, &"ann".into(), at(12)).await.unwrap().is_none());
    assert!(store.grants(GrantFilter::Usable(at(12))).await.unwrap().is_empty());
    let covering =
        store.grants_covering(&"agent".into(), &"files:write_it".parse().unwrap(), at(5)).await.unwrap();
    assert_eq!(covering, [grant(1, 10)]);
}

async fn credentials_are_found_by_their_digest_alone(place: Place) {
    let store = place.store().await;
    let secret = Secret::new("csg_human_very-secret");
    let credential = Credential {
        id: CredentialId::mint(at(0), 1),
        role: Role::Human,
        name: "ann".into(),
        scopes: json!({"max_mode": "execute"}),
        created: at(0),
        expires: Some(at(100)),
        revoked: None,
    };
    store.add_credential(&credential, secret_digest(&secret), &"root".into(), at(0)).await.unwrap();
    let found = store.credential(secret_digest(&secret)).await.unwrap().unwrap();
    assert_eq!(found, credential);
    assert!(found.is_live(at(99)) && !found.is_live(at(100)));
    assert!(store.credential(secret_digest(&Secret::new("other"))).await.unwrap().is_none());
    assert_eq!(store.credentials().await.unwrap(), std::slice::from_ref(&credential));
    assert!(store.revoke_credential(&credential.id, &"root".into(), at(5)).await.unwrap().is_some());
    assert!(store.revoke_credential(&credential.id, &"root".into(), at(6)).await.unwrap().is_none());
    assert!(!store.credential(secret_digest(&secret)).await.unwrap().unwrap().is_live(at(7)));
}

async fn a_mode_belongs_to_one_principal_and_survives(place: Place) {
    let store = place.store().await;
    let setter = |who: &str| ModeSetter {
        principal: who.into(),
        session: "s1".into(),
        role: Role::Agent,
        source: Source::Mcp,
        host: None,
    };
    store.set_mode(&setter("agent"), Mode::Plan, at(0)).await.unwrap();
    store.set_mode(&setter("agent"), Mode::Execute, at(2)).await.unwrap();
    drop(store);
    let store = place.store().await;
    let session = store.session(&"agent".into(), &"s1".into()).await.unwrap().unwrap();
    assert_eq!((session.mode, session.created, session.last_seen), (Some(Mode::Execute), at(0), at(2)));
    assert!(store.session(&"other".into(), &"s1".into()).await.unwrap().is_none());
}

fn definition(text: &str) -> ToolDefinition {
    let definition = json!({"name": "write_it", "description": text});
    let definition = definition.as_object().unwrap().clone();
    ToolDefinition { fingerprint: countersign_policy::tool::fingerprint(&definition), definition }
}

async fn a_pin_changes_only_to_what_was_looked_at(place: Place) {
    let store = place.store().await;
    let tool = FullName::new("files", "write_it");
    let (first, second, third) = (definition("a"), definition("b"), definition("c"));
    let first_sight = async |seen: &ToolDefinition, state, seconds| {
        store.pin_all(&tool.upstream, &[(tool.tool.clone(), seen.clone())], state, at(seconds)).await.unwrap()
    };
    assert!(first_sight(&first, PinState::Accepted, 0).await);
    assert!(!first_sight(&second, PinState::Accepted, 1).await, "pinned is pinned");
    assert!(!first_sight(&second, PinState::Pending, 1).await, "pinned is pinned");
    assert!(store.propose_pin(&tool, &first, at(1)).await.unwrap().is_none(), "no change");
    assert!(store.propose_pin(&tool, &second, at(2)).await.unwrap().is_some());
    assert!(store.propose_pin(&tool, &second, at(3)).await.unwrap().is_none(), "noted once");
    let pin = store.pin_of(&tool).await.unwrap().unwrap();
    assert_eq!((pin.state, &pin.pinned, &pin.candidate), (PinState::Changed, &first, &Some(second.clone())));
    store.propose_pin(&tool, &third, at(4)).await.unwrap();
    let stale = store.accept_pin(&tool, second.fingerprint, &"ann".into(), at(5)).await.unwrap();
    assert!(stale.is_none(), "what was looked at is not what is there now");
    assert!(store.accept_pin(&tool, third.fingerprint, &"ann".into(), at(6)).await.unwrap().is_some());
    let pins = store.pins(&"files".into()).await.unwrap();
    assert_eq!(pins.len(), 1);
    assert_eq!((pins[0].state, &pins[0].pinned, &pins[0].candidate), (PinState::Accepted, &third, &None));
    assert_eq!(pins[0].decided_by, Some("ann".into()));
}

/// Gateways that start together see an upstream for the first time together: one of them pins the whole list, the others find it.
async fn a_first_sight_is_pinned_whole_or_not_at_all(place: Place) {
    let stores = [place.store().await, place.store().await, place.store().await];
    let names: Vec<ToolName> = (0..150).map(|number| ToolName::new(format!("t{number:03}"))).collect();
    let list: Vec<(ToolName, ToolDefinition)> =
        names.iter().map(|name| (name.clone(), definition("a"))).collect();
    for round in 0..4 {
        let upstream = UpstreamId::new(format!("u{round}"));
        let mut work = tokio::task::JoinSet::new();
        for store in &stores {
            let (store, list, upstream) = (store.clone(), list.clone(), upstream.clone());
            work.spawn(async move {
                let first = store.pin_all(&upstream, &list, PinState::Accepted, at(0)).await.unwrap();
                usize::from(first)
            });
        }
        let watcher = stores[0].clone();
        work.spawn(async move {
            loop {
                let seen = watcher.pins(&upstream).await.unwrap().len();
                assert!(seen == 0 || seen == 150, "{seen} of 150");
                if seen > 0 {
                    return 0;
                }
            }
        });
        let first: usize = work.join_all().await.into_iter().sum();
        assert_eq!(first, 1, "one is first, and the others are told so");
    }
    // What comes later is not seen for the first time any more.
    let late = [(ToolName::new("later"), definition("a"))];
    assert!(!stores[1].pin_all(&"u0".into(), &late, PinState::Accepted, at(1)).await.unwrap());
    assert!(stores[1].pin_of(&FullName::new("u0", "later")).await.unwrap().is_none());
}

async fn attack_17_an_empty_first_list_is_a_first_sight(place: Place) {
    let store = place.store().await;
    let upstream = UpstreamId::new("u");
    assert_eq!(store.sight_of(&upstream).await.unwrap(), ListingOccurrence::First);
    assert!(store.pin_all(&upstream, &[], PinState::Pending, at(0)).await.unwrap());
    assert_eq!(store.sight_of(&upstream).await.unwrap(), ListingOccurrence::Later);
    let late = [(ToolName::new("late"), definition("a"))];
    assert!(!store.pin_all(&upstream, &late, PinState::Accepted, at(1)).await.unwrap());
    assert!(store.pins(&upstream).await.unwrap().is_empty());
    assert!(store.pin_all(&upstream, &late, PinState::Pending, at(1)).await.unwrap());
}

async fn runs_are_kept_and_end_once(place: Place) {
    let store = place.store().await;
    let mut run = BackgroundRun {
        id: RunId::mint(at(0), 1),
        principal: "agent".into(),
        session: "s1".into(),
        tool: "infra:apply".into(),
        state: RunState::Running,
        ledger_id: None,
        started: at(0),
        ended: None,
        exit_code: None,
        log_tail: vec![],
    };
    store.begin_run(&run).await.unwrap();
    run.state = RunState::Success;
    run.ended = Some(at(1));
    run.exit_code = Some(0);
    run.log_tail = vec!["done".into()];
    store.update_run(&run).await.unwrap();
    let ended = run.clone();
    run.state = RunState::Failed;
    store.update_run(&run).await.unwrap();
    assert_eq!(store.run(&run.id).await.unwrap(), Some(ended.clone()));
    assert_eq!(store.runs(Some(&"agent".into()), 10).await.unwrap(), [ended]);
    assert!(store.runs(Some(&"other".into()), 10).await.unwrap().is_empty());
}

async fn the_salt_is_made_once(place: Place) {
    let first = place.store().await.salt().to_vec();
    assert_eq!(first.len(), 32);
    assert_eq!(place.store().await.salt(), first);
}

async fn a_saved_line_outlives_the_store(place: Place) {
    let line = SavedLine { owner: "agent".into(), saved: json!({"era": "2025-11-25"}) };
    let id = "s1".into();
    place.store().await.save_line(&id, &line, at(0)).await.unwrap();
    let store = place.store().await;
    assert_eq!(store.saved_line(&id).await.unwrap(), Some(line));
    store.forget_line(&id).await.unwrap();
    assert_eq!(store.saved_line(&id).await.unwrap(), None);
}

#[tokio::test]
async fn a_store_in_memory_does_it_all_on_one_connection() {
    let store = countersign_store::Store::connect(&StoreUrl::Memory, options()).await.unwrap();
    crate::world::hold(&store, "a", 1, at(0)).await;
    let opened = store.open(crate::world::permit_for(&store, "a", at(1)).await, at(1)).await.unwrap();
    store.close(opened, crate::calls::success(), at(2)).await.unwrap();
    assert!(countersign_store::ledger::verify(&store, None).await.unwrap().is_clean());
}
