//! The web matrix: Host × Origin × Sec-Fetch-Site × cookie × proof over every route. Only the legal cell passes. The routes
//! come from the list the router is made from: a new one is in here without anybody thinking of it.

use axum::body::Body;
use axum::http::{Method, Request};
use countersign_web::route_list;

use crate::kit::{HOST, ORIGIN, Scene};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Given {
    Nothing,
    Right,
    Wrong,
}

const HOSTS: [Option<&str>; 4] =
    [Some(HOST), Some("evil.example:7878"), Some("127.0.0.1.evil.example"), None];
const ORIGINS: [Option<&str>; 4] = [None, Some(ORIGIN), Some("http://evil.example"), Some("null")];
const SITES: [Option<&str>; 5] =
    [None, Some("none"), Some("same-origin"), Some("same-site"), Some("cross-site")];
const GIVEN: [Given; 3] = [Given::Nothing, Given::Right, Given::Wrong];

fn is_legal(
    verb: &str,
    path: &str,
    host: Option<&str>,
    origin: Option<&str>,
    site: Option<&str>,
    cookie: Given,
    proof: Given,
) -> bool {
    let ours = host == Some(HOST)
        && matches!(origin, None | Some(ORIGIN))
        && matches!(site, None | Some("none" | "same-origin"));
    let is_page = origin == Some(ORIGIN) && site == Some("same-origin");
    match (verb, path) {
        _ if !ours => false,
        ("post", "/api/v1/session") => is_page,
        ("get", _) => cookie == Given::Right,
        _ => is_page && cookie == Given::Right && proof == Given::Right,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_legal_cell_passes() {
    let scene = Scene::open().await;
    let mut page = scene.page().await;
    let (mut cells, mut legal) = (0, 0);
    for (verb, path) in route_list() {
        let uri =
            path.replace("{id}", "nothing").replace("{name}", "infra:none").replace("{principal}", "nobody");
        for host in HOSTS {
            for origin in ORIGINS {
                for site in SITES {
                    for cookie in GIVEN {
                        for proof in GIVEN {
                            let mut request = Request::builder()
                                .method(Method::from_bytes(verb.to_uppercase().as_bytes()).unwrap())
                                .uri(uri.as_str());
                            let mut header = |name: &str, value: Option<&str>| {
                                if let Some(value) = value {
                                    request = std::mem::take(&mut request).header(name, value);
                                }
                            };
                            header("host", host);
                            header("origin", origin);
                            header("sec-fetch-site", site);
                            match cookie {
                                Given::Nothing => {}
                                Given::Right => header("cookie", Some(&page.cookie)),
                                Given::Wrong => header("cookie", Some(&page.other_session("AAAA"))),
                            }
                            match proof {
                                Given::Nothing => {}
                                Given::Right => header("x-csrf-token", Some(&page.proof)),
                                Given::Wrong => header("x-csrf-token", Some(&"0".repeat(64))),
                            }
                            let status = scene.raw(request.body(Body::empty()).unwrap()).await.status();
                            let passed = !matches!(status.as_u16(), 401 | 403);
                            let expected = is_legal(verb, &path, host, origin, site, cookie, proof);
                            assert_eq!(
                                passed, expected,
                                "{verb} {path}: host {host:?}, origin {origin:?}, site {site:?}, cookie {cookie:?}, \
                                 proof {proof:?}: {status}"
                            );
                            assert!(status.as_u16() < 500, "{verb} {path}: {status}");
                            cells += 1;
                            legal += usize::from(passed);
                            if passed && (verb, path.as_str()) == ("delete", "/api/v1/session") {
                                page = scene.page().await;
                            }
                        }
                    }
                }
            }
        }
    }
    assert_eq!(cells, route_list().len() * 720);
    assert!(legal > route_list().len(), "{legal}");
}

#[tokio::test]
async fn the_page_opens_by_a_link_from_anywhere_and_is_never_framed() {
    let scene = Scene::open().await;
    let ask = async |headers: &[(&str, &str)]| {
        let mut request = Request::builder().uri("/plans/pln_1").header("host", HOST);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        scene.send(request.body(Body::empty()).unwrap()).await
    };
    let visit =
        [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
    assert_ne!(ask(&visit).await.status, 403);
    let framed =
        [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "iframe")];
    assert_eq!(ask(&framed).await.status, 403);
    assert_eq!(ask(&[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")]).await.status, 403);
    let headers = ask(&[]).await.headers;
    let policy = headers["content-security-policy"].to_str().unwrap();
    for part in ["default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'"] {
        assert!(policy.contains(part), "{policy}");
    }
    assert_eq!(headers["x-frame-options"], "DENY");
    assert_eq!(headers["x-content-type-options"], "nosniff");
    assert_eq!(headers["referrer-policy"], "no-referrer");
}

#[tokio::test]
async fn a_header_that_is_there_twice_is_nobodys() {
    let scene = Scene::open().await;
    let page = scene.page().await;
    let base = || Request::builder().uri("/api/v1/me").header("host", HOST).header("cookie", &page.cookie);
    let good = scene.send(base().body(Body::empty()).unwrap()).await;
    assert_eq!(good.status, 200);
    for (name, value) in [("host", "evil.example"), ("origin", "http://evil.example")] {
        let twice = base().header("origin", ORIGIN).header(name, value);
        assert_eq!(scene.send(twice.body(Body::empty()).unwrap()).await.status, 403, "{name}");
    }
    let twice = base().header("cookie", page.other_session("other"));
    assert_eq!(scene.send(twice.body(Body::empty()).unwrap()).await.status, 401);
}
