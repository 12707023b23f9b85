//! TLS to PostgreSQL, against the server the environment names: a real one with a certificate that `./test` made.

use countersign_store::{ConnectOptions, FaultKind, Store, StoreFault, StoreUrl};

use crate::place::options;

/// Where a PostgreSQL with TLS listens (`user:password@host:port/database`), and the file with its authority's certificate.
fn server() -> Option<(String, String)> {
    let named = |name: &str| std::env::var(name).ok();
    let found = named("COUNTERSIGN_TEST_POSTGRES_TLS").zip(named("COUNTERSIGN_TEST_POSTGRES_ROOT"));
    if found.is_none() {
        println!("skipped: COUNTERSIGN_TEST_POSTGRES_TLS and _ROOT name no server");
    }
    found
}

async fn open(server: &str, query: &str) -> Result<Store, StoreFault> {
    let room = tempfile::tempdir().unwrap();
    let url: StoreUrl = format!("postgres://{server}?connect_timeout=5&{query}").parse().unwrap();
    // Opened to read: whether there are tables is another question than who answers.
    Store::connect_to_read(&url, ConnectOptions { key_file: Some(room.path().join("k")), ..options() }).await
}

/// What became of the connection: the server was believed if its tables were looked for.
async fn outcome(server: &str, query: &str) -> Option<FaultKind> {
    match open(server, query).await {
        Ok(_) => None,
        Err(fault) if fault.kind() == FaultKind::Empty => None,
        Err(fault) => Some(fault.kind()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn attack_14_a_server_that_cannot_prove_who_it_is_gets_no_password() {
    let Some((server, root)) = server() else { return };
    let by_name = server.replace("127.0.0.1", "localhost");
    let full = format!("sslmode=verify-full&sslrootcert={root}");
    assert_eq!(outcome(&by_name, &full).await, None, "the certificate is for localhost, by this authority");
    assert_eq!(outcome(&server, &full).await, Some(FaultKind::Untrusted), "not for this name");
    assert_eq!(
        outcome(&by_name, "sslmode=verify-full").await,
        Some(FaultKind::Untrusted),
        "of no known authority"
    );
    let fault = open(&by_name, "sslmode=verify-full").await.err().unwrap();
    assert!(fault.outside().contains("TLS"), "{}", fault.outside());
    assert!(fault.inside().contains("certificate"), "{}", fault.inside());
    assert_eq!(outcome(&by_name, "sslmode=require").await, None, "encrypted, and nothing is checked");
    assert_eq!(outcome(&server, &format!("sslmode=require&sslrootcert={root}")).await, None, "any name");
    assert_eq!(
        outcome(&by_name, "sslmode=require&sslrootcert=/nowhere.pem").await,
        Some(FaultKind::Untrusted)
    );
    assert_eq!(outcome(&by_name, "sslmode=prefer").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn attack_14_what_is_sent_over_tls_is_not_sent_in_the_clear() {
    let Some((server, root)) = server() else { return };
    // The server takes passwords over TLS alone (`hostssl`): a connection that gives TLS up is refused.
    assert!(outcome(&server, "sslmode=disable").await.is_some());
    let by_name = server.replace("127.0.0.1", "localhost");
    assert_eq!(outcome(&by_name, &format!("sslmode=verify-full&sslrootcert={root}")).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn attack_14_a_server_without_tls_is_refused_where_tls_is_required() {
    let Ok(plain) = std::env::var("COUNTERSIGN_TEST_POSTGRES") else {
        println!("skipped: COUNTERSIGN_TEST_POSTGRES names no server");
        return;
    };
    let join = if plain.contains('?') { '&' } else { '?' };
    let url: StoreUrl = format!("{plain}{join}sslmode=require").parse().unwrap();
    let fault = Store::connect_to_read(&url, options()).await.err().unwrap();
    assert_eq!(fault.kind(), FaultKind::Untrusted, "{}", fault.inside());
}
