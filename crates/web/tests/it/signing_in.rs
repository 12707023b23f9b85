//! Signing in: a link works once, for a minute; a pass phrase is slowed down; a session ends with its credential.

use countersign_policy::ids::Secret;
use countersign_policy::record::RowStatus;
use countersign_policy::role::Role;
use countersign_store::{LedgerFilter, page_proof, session_digest, sign_in_digest};
use jiff::{Timestamp, ToSpan as _};
use serde_json::json;

use crate::kit::{HOST, Scene, credential};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_works_once() {
    let scene = Scene::open().await;
    let code = scene.code("the-code").await;
    let first = scene.sign_in(json!({"code": code})).await;
    assert_eq!(first.status, 200, "{}", first.text);
    let cookie = first.headers["set-cookie"].to_str().unwrap().to_owned();
    for part in ["countersign_session_", "HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=43200"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    let second = scene.sign_in(json!({"code": code})).await;
    assert_eq!((second.status.as_u16(), second.code().as_str()), (401, "E_CREDENTIAL_REQUIRED"));
    let failed = LedgerFilter { status: Some(RowStatus::Refused), ..LedgerFilter::default() };
    assert_eq!(scene.rows(failed).await.len(), 1, "a try that fails is a row");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_works_for_a_minute_and_of_many_who_bring_it_one_gets_in() {
    let scene = Scene::open().await;
    let (now, ada) = (Timestamp::now(), credential("ada", Role::Human, Timestamp::now()));
    let old = sign_in_digest(&Secret::new("old"));
    scene.store.add_sign_in(old, &ada, now + 60.seconds(), now).await.unwrap();
    let session = session_digest(&Secret::new("s"));
    let late = scene.store.take_sign_in(old, session, now + 1.hour(), now + 61.seconds()).await.unwrap();
    assert_eq!(late, None);
    let code = scene.code("raced").await;
    let all = (0..20).map(|_| scene.sign_in(json!({"code": code})));
    let all = futures_util::future::join_all(all).await;
    assert_eq!(all.iter().filter(|reply| reply.status == 200).count(), 1);
}

#[tokio::test]
async fn a_session_ends_when_its_person_signs_out_or_loses_the_credential() {
    let scene = Scene::open().await;
    let me = async |cookie: &str| {
        let request =
            axum::http::Request::builder().uri("/api/v1/me").header("host", HOST).header("cookie", cookie);
        scene.send(request.body(axum::body::Body::empty()).unwrap()).await.status.as_u16()
    };
    let page = scene.page().await;
    assert_eq!(me(&page.cookie).await, 200);
    let kept = page.cookie.split_once('=').unwrap().1;
    let bytes = std::fs::read_dir(scene.folder())
        .unwrap()
        .flat_map(|file| std::fs::read(file.unwrap().path()).unwrap());
    let bytes: Vec<u8> = bytes.collect();
    assert!(!bytes.windows(kept.len()).any(|window| window == kept.as_bytes()), "only its digest is kept");
    let out = axum::http::Request::builder()
        .method("DELETE")
        .uri("/api/v1/session")
        .header("host", HOST)
        .header("origin", crate::kit::ORIGIN)
        .header("sec-fetch-site", "same-origin")
        .header("cookie", &page.cookie)
        .header("x-csrf-token", &page.proof);
    assert_eq!(scene.send(out.body(axum::body::Body::empty()).unwrap()).await.data()["ended"], true);
    assert_eq!(me(&page.cookie).await, 401);
    let page = scene.page().await;
    scene.store.revoke_credential(&"crd_ada".into(), &"root".into(), Timestamp::now()).await.unwrap();
    assert_eq!(me(&page.cookie).await, 401);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pass_phrase_is_argon2id_and_tries_are_limited() {
    let scene = Scene::open().await;
    let short = scene.ask("post", "/me/passphrase", Some(json!({"passphrase": "short"}))).await;
    assert_eq!(short.status, 400);
    let phrase = "correct horse battery staple";
    assert_eq!(scene.ask("post", "/me/passphrase", Some(json!({"passphrase": phrase}))).await.status, 200);
    let kept = scene.store.phrases(&"ada".into(), Timestamp::now()).await.unwrap();
    assert!(kept[0].1.starts_with("$argon2id$"), "{kept:?}");
    assert_eq!(scene.sign_in(json!({"name": "ada", "passphrase": phrase})).await.status, 200);
    let wrong = || scene.sign_in(json!({"name": "ada", "passphrase": "correct horse battery stapler"}));
    for _ in 0..10 {
        assert_eq!(wrong().await.status, 401);
    }
    let slowed = wrong().await;
    assert_eq!((slowed.status.as_u16(), slowed.code().as_str()), (429, "E_LIMIT_EXCEEDED"));
    assert_eq!(slowed.headers["retry-after"], "60");
    let right = scene.sign_in(json!({"name": "ada", "passphrase": phrase})).await;
    assert_eq!(right.status, 429, "whoever guesses is not told that they guessed right");
    assert_eq!(scene.sign_in(json!({"name": "eve", "passphrase": phrase})).await.status, 401);
    let code = scene.code("another").await;
    assert_eq!(scene.sign_in(json!({"code": code})).await.status, 200, "a link still works");
}

#[tokio::test]
async fn a_credential_signs_the_page_in_unless_it_is_an_agents() {
    let scene = Scene::open().await;
    assert_eq!(scene.sign_in(json!({"credential": scene.ada})).await.status, 200);
    let agent = scene.sign_in(json!({"credential": scene.bot})).await;
    assert_eq!((agent.status.as_u16(), agent.code().as_str()), (403, "E_ROLE_FORBIDDEN"));
    assert_eq!(
        scene
            .rows(LedgerFilter { code: Some("E_ROLE_FORBIDDEN".into()), ..LedgerFilter::default() })
            .await
            .len(),
        1
    );
    assert_eq!(scene.sign_in(json!({})).await.status, 400);
    assert_eq!(scene.sign_in(json!({"code": "x", "credential": "y"})).await.status, 400);
}

/// Browsers share cookies between all ports of a host: two gateways on one computer must not take each other's place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signing_in_at_one_desk_does_not_sign_out_of_another() {
    let (one, other) = (Scene::open().await, Scene::open().await);
    let (first, second) = (one.page().await, other.page().await);
    let both = format!("{}; {}", first.cookie, second.cookie);
    for scene in [&one, &other] {
        let request = axum::http::Request::builder().uri("/api/v1/me").header("host", HOST);
        let request = request.header("cookie", &both).body(axum::body::Body::empty()).unwrap();
        assert_eq!(scene.send(request).await.status, 200);
    }
    let name = |cookie: &str| cookie.split_once('=').unwrap().0.to_owned();
    assert_ne!(name(&first.cookie), name(&second.cookie));
    assert_eq!(name(&first.cookie), name(&one.page().await.cookie), "one name for a store");
}

/// A request of a page with this session: what a browser sends with a change.
async fn change(scene: &Scene, session: &Secret, path: &str, body: serde_json::Value) -> crate::kit::Reply {
    let request = axum::http::Request::builder()
        .method("POST")
        .uri(format!("/api/v1{path}"))
        .header("host", HOST)
        .header("origin", crate::kit::ORIGIN)
        .header("sec-fetch-site", "same-origin")
        .header("content-type", "application/json")
        .header("cookie", scene.page().await.other_session(session.expose()))
        .header("x-csrf-token", page_proof(session));
    scene.send(request.body(axum::body::Body::from(body.to_string())).unwrap()).await
}

#[tokio::test]
async fn attack_16_a_lasting_human_credential_needs_a_fresh_sign_in() {
    let scene = Scene::open().await;
    let (now, ada) = (Timestamp::now(), "crd_ada".into());
    for (name, since, status) in [("stale", now - 6.minutes(), 403), ("fresh", now - 1.minutes(), 200)] {
        let session = Secret::new(format!("session-{name}"));
        let digest = session_digest(&session);
        scene.store.open_desk_session(&ada, "credential", digest, now + 1.hours(), since).await.unwrap();
        let person = json!({"role": "human", "name": format!("person-{name}")});
        let made = change(&scene, &session, "/credentials", person).await;
        assert_eq!(made.status.as_u16(), status, "{name}: {:?}", made.json());
        // A pass phrase outlasts the session as well.
        let phrase = json!({"passphrase": "correct horse battery staple"});
        let set = change(&scene, &session, "/me/passphrase", phrase).await;
        assert_eq!(set.status.as_u16(), status, "{name}: {:?}", set.json());
        if status == 403 {
            assert_eq!(made.code(), "E_CREDENTIAL_REQUIRED");
            let details = &made.json()["error"]["details"];
            assert_eq!(details["reason_code"], "sign_in_stale", "{details}");
            assert!(made.json()["error"]["message"].as_str().unwrap().contains("countersign open"));
        }
        // An agent's opens nothing here, and needs no more than before.
        let agent = json!({"role": "agent", "name": format!("agent-{name}")});
        assert_eq!(change(&scene, &session, "/credentials", agent).await.status.as_u16(), 200);
    }
    // A request with the credential itself counts as a fresh sign-in.
    let made = scene.ask("post", "/credentials", Some(json!({"role": "human", "name": "bearer"}))).await;
    assert_eq!(made.status.as_u16(), 200);
}
