//! Every route × every kind of credential, in one table. An agent's credential opens nothing, and each try is a row.

use countersign_policy::record::ActorRole;
use countersign_policy::role::Role;
use countersign_store::LedgerFilter;
use countersign_web::route_list;
use jiff::Timestamp;

use crate::kit::Scene;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_route_and_credential() {
    let scene = Scene::open().await;
    let gone = scene.enrol("gone", Role::Human, "csg_human_gone").await;
    scene.store.revoke_credential(&gone.id, &"root".into(), Timestamp::now()).await.unwrap();
    let people = [
        ("human", scene.ada.as_str()),
        ("agent", scene.bot.as_str()),
        ("revoked", "csg_human_gone"),
        ("unknown", "csg_human_x"),
    ];
    let mut table = format!(
        "{:<44} {:>7} {:>7} {:>7} {:>7} {:>7}\n",
        "route", "human", "agent", "revoked", "unknown", "nobody"
    );
    for (verb, path) in route_list() {
        let short = path.strip_prefix("/api/v1").unwrap();
        let uri =
            short.replace("{id}", "nothing").replace("{name}", "infra:none").replace("{principal}", "nobody");
        let mut line = format!("{:<44}", format!("{verb} {short}"));
        for (_, secret) in people {
            let status = if short == "/events" && secret == scene.ada {
                // A stream has no end to wait for.
                200
            } else {
                scene.ask_as(secret, verb, &uri, None).await.status.as_u16()
            };
            line.push_str(&format!(" {status:>7}"));
        }
        let request = axum::http::Request::builder()
            .method(verb.to_uppercase().as_str())
            .uri(format!("/api/v1{uri}"))
            .header("host", crate::kit::HOST);
        let nobody = scene.send(request.body(axum::body::Body::empty()).unwrap()).await.status.as_u16();
        table.push_str(&format!("{line} {nobody:>7}\n"));
    }
    insta::assert_snapshot!(table);

    let tries =
        scene.rows(LedgerFilter { code: Some("E_ROLE_FORBIDDEN".into()), ..LedgerFilter::default() }).await;
    assert_eq!(tries.len(), route_list().len(), "each try of an agent is a row");
    assert!(
        tries.iter().all(
            |row| row.principal.as_ref().unwrap().as_str() == "bot" && row.role == Some(ActorRole::Agent)
        )
    );
}

#[tokio::test]
async fn what_is_no_route_is_told_only_to_people() {
    let scene = Scene::open().await;
    assert_eq!(scene.ask("get", "/nowhere", None).await.status, 404);
    assert_eq!(scene.ask_as(&scene.bot, "get", "/nowhere", None).await.status, 403);
    assert_eq!(scene.ask("put", "/plans", None).await.status, 405);
    assert_eq!(scene.ask("post", "/me", None).await.json()["success"], false);
}
