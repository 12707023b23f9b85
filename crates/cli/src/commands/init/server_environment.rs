//! Variables that servers commonly need and a host hands them without being told: certificates, proxies, folders, interpreters. Those
//! that are set here are written by reference, so that a server behind the gateway still has them. Reads names, never values.

use toml_edit::{InlineTable, Value};

use crate::environment;

const NAMES: [&str; 13] = [
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "https_proxy",
    "http_proxy",
    "all_proxy",
    "no_proxy",
];

const PREFIXES: [&str; 2] = ["XDG_", "PYTHON"];

fn is_common(name: &str) -> bool {
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// The common variables that are set here, in order.
pub(super) fn common_variables() -> Vec<String> {
    let names = environment::all().into_iter().filter(|(_, value)| !value.is_empty());
    let names = names.filter_map(|(name, _)| name.into_string().ok());
    let mut names: Vec<String> = names.filter(|name| is_common(name)).collect();
    names.sort();
    names
}

/// Where the variable is not set, as in a host that a desktop starts, the server has none either.
fn reference(name: &str) -> String {
    format!("${{env:{name}:-}}")
}

/// Adds the variables to a server's own, which win.
pub(super) fn add_references(env: &mut InlineTable, names: &[String]) {
    for name in names {
        if !env.contains_key(name) {
            env.insert(name, reference(name).into());
        }
    }
}

/// Whether a variable is there because it was set when `init` ran: it says nothing about which server this is.
pub(super) fn is_reference(env: &InlineTable, name: &str) -> bool {
    is_common(name) && env.get(name).and_then(Value::as_str) == Some(reference(name).as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_written_by_reference_and_never_over_a_servers_own() {
        let mut env = InlineTable::new();
        env.insert("HTTPS_PROXY", "http://own:1".into());
        let names = ["HTTPS_PROXY", "SSL_CERT_FILE"].map(str::to_owned);
        add_references(&mut env, &names);
        add_references(&mut env, &names);
        let text = env.to_string();
        assert_eq!(text, r#"{ HTTPS_PROXY = "http://own:1", SSL_CERT_FILE = "${env:SSL_CERT_FILE:-}" }"#);
        assert!(is_reference(&env, "SSL_CERT_FILE") && !is_reference(&env, "HTTPS_PROXY"));
        for (name, expect) in [
            ("XDG_RUNTIME_DIR", true),
            ("PYTHONPATH", true),
            ("AWS_SECRET_ACCESS_KEY", false),
            ("HOME", false),
        ] {
            assert_eq!(is_common(name), expect, "{name}");
        }
    }
}
