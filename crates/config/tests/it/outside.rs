//! What reaches beyond this machine: which listeners may be opened, and whom to tell.

use countersign_config::{self as config, AgentAuth, ProxyPlacement, Source, UnsafeListener, exposure};
use countersign_policy::confirm::ApprovalStrength;

fn read(text: &str) -> config::Config {
    config::parse(&[Source::new("a.toml", text)]).unwrap_or_else(|found| panic!("{found:?}"))
}

fn first(text: &str) -> String {
    config::parse(&[Source::new("a.toml", text)])
        .map(|_| String::new())
        .unwrap_or_else(|found| found[0].message.clone())
}

#[test]
fn only_guarded_addresses_are_opened() {
    let check = |text: &str, address: &str| {
        exposure(address.parse().unwrap(), read(&format!("[gateway]\n{text}")).gateway.guards())
    };
    let tls = "tls = { cert = \"c\", key = \"k\" }\n";
    let required = "agent_auth = \"required\"\n";
    for local in ["127.0.0.1:1", "[::1]:1", "127.9.9.9:1"] {
        assert_eq!(check("", local), Ok(()));
    }
    let out = "10.0.0.1:1".parse().unwrap();
    let open = "agent_auth = \"loopback-open\"\n";
    assert_eq!(check(open, "10.0.0.1:1"), Err(UnsafeListener::Open(out)));
    assert_eq!(check(&format!("{open}{tls}"), "10.0.0.1:1"), Err(UnsafeListener::Open(out)));
    assert_eq!(check("", "10.0.0.1:1"), Err(UnsafeListener::Plain(out)));
    assert_eq!(check(tls, "10.0.0.1:1"), Ok(()));
    assert_eq!(check(required, "10.0.0.1:1"), Err(UnsafeListener::Plain(out)));
    assert_eq!(check(&format!("{required}{tls}"), "10.0.0.1:1"), Ok(()));
    assert_eq!(check("behind_proxy = true\n", "10.0.0.1:1"), Ok(()));
    let all = "0.0.0.0:1".parse().unwrap();
    assert_eq!(check(&format!("{required}{tls}"), "0.0.0.0:1"), Err(UnsafeListener::Nameless(all)));
    assert_eq!(check(&format!("{required}{tls}hosts = [\"a.example\"]\n"), "[::]:1"), Ok(()));
}

#[test]
fn a_proxy_ends_the_exception_for_local_lines() {
    let gateway = read("[gateway]\nbehind_proxy = true\n").gateway;
    assert_eq!((gateway.agent_auth, gateway.proxy), (AgentAuth::Required, ProxyPlacement::InFront));
    assert_eq!(read("").gateway.agent_auth, AgentAuth::Required);
    assert!(
        first("[gateway]\nbehind_proxy = true\nagent_auth = \"loopback-open\"\n").contains("behind a proxy")
    );
    for bad in
        ["hosts = [\"*\"]", "hosts = [\"https://a.example/\"]", "tls = { cert = \"c\" }", "tls = \"c.pem\""]
    {
        assert_ne!(first(&format!("[gateway]\n{bad}\n")), "", "{bad}");
    }
    assert!(first("[desk]\nurl = \"desk.example\"\n").contains("not the address of a page"));
    assert_eq!(
        read("[desk]\nurl = \"https://desk.example/\"\n").desk.url.as_deref(),
        Some("https://desk.example")
    );
}

#[test]
fn whom_to_tell_and_of_what() {
    assert!(read("").notify.is_empty());
    let notify = read("[notify]\ncommand = [\"tell\", \"${env:WHO}\"]\n").notify;
    assert!(
        notify.tells(ApprovalStrength::Host)
            && notify.tells(ApprovalStrength::Human)
            && !notify.tells(ApprovalStrength::Caller)
    );
    let notify =
        read("[notify]\nwebhook = \"http://127.0.0.1:1/x\"\nsecret = \"${env:S}\"\nstrength = \"human\"\n")
            .notify;
    assert!(notify.tells(ApprovalStrength::Human) && !notify.tells(ApprovalStrength::Host));
    let config = read("[notify]\nwebhook = \"https://a.example\"\nsecret = \"${env:S}\"\n");
    assert!(
        config.settle(&|_| Err("it is not set".to_owned())).is_err(),
        "a secret that is not there is said"
    );
    assert!(
        !format!(
            "{:?}",
            read("[notify]\nwebhook = \"https://a.example\"\nsecret = \"0123456789abcdef\"\n").notify
        )
        .contains("0123456789")
    );
}
