//! Hosts that call a running gateway: which address they get, and a credential for each of them. Made with the files and revoked when
//! the change is taken back. Nothing of it is kept where others can read it.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use axum::http::Uri;
use countersign_config::Gateway;
use countersign_host_config::{GatewayEntry, Host, HostFile, HostFileScope};
use countersign_policy::ids::{CredentialId, Secret};
use countersign_policy::role::Role;
use countersign_store::{Credential, StoreUrl, secret_digest};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::command_result::CommandError;
use crate::commands::token;
use crate::config_file;
use crate::local_gateway::with_store;
use crate::output::OutputSettings;
use crate::{person, records};

/// The paths a gateway serves agents under.
const ENDPOINTS: [&str; 3] = ["/mcp", "/mcp/router", "/mcp/direct"];

/// Where hosts are pointed, and what each of them needs for it.
pub(super) struct HttpHosts {
    url: String,
    may_vouch: bool,
    made: Vec<HostCredential>,
}

/// A credential that belongs to one host.
struct HostCredential {
    host: Host,
    credential: Credential,
    secret: Secret,
}

impl HttpHosts {
    /// Hosts that shall call this address; where none is given, the one the configuration listens on.
    pub(super) fn at(given: &str, gateway: &Gateway, may_vouch: bool) -> Result<Self, CommandError> {
        let given = if given.is_empty() { token::mcp_url(gateway) } else { given.to_owned() };
        let url = endpoint(&given).map_err(|why| {
            let message = format!("`{given}` can't be the gateway's address: {why}");
            CommandError::usage("invalid_value", message, "countersign init --http http://127.0.0.1:7878/mcp")
        })?;
        Ok(Self { url, may_vouch, made: Vec::new() })
    }

    /// What is written into a host's file. None where the host leads there already, or can't.
    pub(super) fn entry(
        &mut self,
        place: &HostFile,
        text: &str,
    ) -> Result<Option<GatewayEntry>, CommandError> {
        // A project's files are shared, and a credential is one person's.
        if place.scope == HostFileScope::Project
            || !place.host.accepts_url
            || place.gateway_url(text).as_deref() == Some(self.url.as_str())
        {
            return Ok(None);
        }
        let known = self.made.iter().find(|one| one.host == place.host).map(|one| one.secret.clone());
        let secret = match known {
            Some(secret) => secret,
            None => self.make(place.host)?,
        };
        Ok(Some(GatewayEntry::Address { url: self.url.clone(), secret }))
    }

    fn make(&mut self, host: Host) -> Result<Secret, CommandError> {
        let secret = person::new_secret(Role::Agent)?;
        let mut credential = person::new_credential(&name(host), Role::Agent, Timestamp::now())?;
        if self.may_vouch {
            credential.scopes = json!({"may_vouch": true});
        }
        self.made.push(HostCredential { host, credential, secret: secret.clone() });
        Ok(secret)
    }

    /// The secrets a difference must not show.
    pub(super) fn secrets(&self) -> impl Iterator<Item = &Secret> {
        self.made.iter().map(|one| &one.secret)
    }

    /// The new credentials without their secrets, for programs.
    pub(super) fn described(&self) -> Vec<Value> {
        let one = |one: &HostCredential| json!({"host": one.host.name, "id": one.credential.id.as_str(), "name": one.credential.name});
        self.made.iter().map(one).collect()
    }

    /// What a person reads about them, a line each.
    pub(super) fn notes(&self) -> Vec<String> {
        let vouches = if self.may_vouch { "; its dialogs count as strength `host`" } else { "" };
        let one = |one: &HostCredential| {
            let (title, name) = (one.host.title, &one.credential.name);
            format!(
                "{title}: gets a credential of its own, `{name}`, in a file readable by you alone{vouches}"
            )
        };
        self.made.iter().map(one).collect()
    }

    /// What `--undo` needs: their ids, and the configuration whose store has them.
    pub(super) fn list(&self, config: &Path) -> Value {
        let ids: Vec<&str> = self.made.iter().map(|one| one.credential.id.as_str()).collect();
        json!({"config": config, "ids": ids})
    }

    /// Adds them to the store of a configuration that is written by now.
    pub(super) fn add(&self, config: &Path, voice: OutputSettings) -> Result<(), CommandError> {
        if self.made.is_empty() {
            return Ok(());
        }
        let url = records::configured(&config_file::read(&[config.to_owned()])?)?;
        with_store(&url, async |store| {
            let fault = |fault| records::trouble(&fault, &url);
            let person = person::prove(&store, &url, voice).await?;
            let known = store.credentials().await.map_err(fault)?;
            for one in &self.made {
                token::check_name(&one.credential, &known)?;
                let digest = secret_digest(&one.secret);
                let now = Timestamp::now();
                store.add_credential(&one.credential, digest, &person.name, now).await.map_err(fault)?;
            }
            Ok(())
        })
    }
}

/// Credentials of a change that is about to be taken back. The store is found before the configuration that names it is gone.
pub(super) struct Revocation {
    ids: Vec<CredentialId>,
    store: Option<StoreUrl>,
}

impl Revocation {
    pub(super) fn read(list: &Value) -> Self {
        let ids = list.pointer("/credentials/ids").and_then(Value::as_array).into_iter().flatten();
        let ids: Vec<CredentialId> = ids.filter_map(|id| id.as_str().map(CredentialId::from)).collect();
        let config = list.pointer("/credentials/config").and_then(Value::as_str).map(PathBuf::from);
        let files = config.filter(|_| !ids.is_empty()).and_then(|config| config_file::read(&[config]).ok());
        Self { store: files.and_then(|files| records::configured(&files).ok()), ids }
    }

    /// Revokes them and says what became of each, a line each.
    pub(super) fn carry_out(&self, voice: OutputSettings) -> Result<Vec<String>, Vec<String>> {
        let left = || self.ids.iter().map(|id| format!("countersign token revoke {id}")).collect();
        let Some(url) = self.store.as_ref().filter(|_| !self.ids.is_empty()) else {
            return if self.ids.is_empty() { Ok(Vec::new()) } else { Err(left()) };
        };
        let revoked = records::with(url, async |store| {
            let fault = |fault| records::trouble(&fault, url);
            let person = person::prove(&store, url, voice).await?;
            for id in &self.ids {
                store.revoke_credential(id, &person.name, Timestamp::now()).await.map_err(fault)?;
            }
            Ok(())
        });
        match revoked {
            Ok(()) => Ok(self.ids.iter().map(|id| format!("{id}: revoked")).collect()),
            Err(_) => Err(left()),
        }
    }
}

/// Whose credential it is: the host, and the person it works for.
fn name(host: Host) -> String {
    let plain = |one: char| one.is_alphanumeric() || "._-+".contains(one);
    let user: String = person::our_name().chars().filter(|one| plain(*one)).take(32).collect();
    format!("{}@{user}", host.name)
}

/// An address as hosts are given it: a gateway's endpoint, reached so that nobody on the way reads the credential.
fn endpoint(given: &str) -> Result<String, String> {
    let uri: Uri = given.parse().map_err(|_| "it is no address".to_owned())?;
    let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err("it begins with https:// or http://".to_owned());
    };
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let near = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    match scheme {
        "https" => {}
        "http" if near => {}
        "http" => {
            return Err("over plain http anybody on the way could read the credential: use https".to_owned());
        }
        _ => return Err("it begins with https:// or http://".to_owned()),
    }
    if authority.as_str().contains('@') || uri.query().is_some() {
        return Err("it has a name, a password or a query in it".to_owned());
    }
    let path = match uri.path().trim_end_matches('/') {
        "" => "/mcp",
        path => path,
    };
    if !ENDPOINTS.iter().any(|end| path.ends_with(end)) {
        return Err(format!("its path ends with {}", ENDPOINTS.join(", ")));
    }
    Ok(format!("{scheme}://{authority}{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_an_endpoint_that_keeps_the_credential_to_itself() {
        for (given, expect) in [
            ("http://127.0.0.1:7878", Ok("http://127.0.0.1:7878/mcp")),
            ("http://localhost:7878/", Ok("http://localhost:7878/mcp")),
            ("http://[::1]:7878/mcp/direct", Ok("http://[::1]:7878/mcp/direct")),
            ("https://gate.example.com/team/mcp/", Ok("https://gate.example.com/team/mcp")),
            ("http://gate.example.com/mcp", Err("use https")),
            ("http://127.0.0.1.example.com/mcp", Err("use https")),
            ("https://ada:pw@gate.example.com/mcp", Err("a name, a password")),
            ("https://gate.example.com/mcp?key=1", Err("a query")),
            ("https://gate.example.com/api", Err("/mcp/router")),
            ("ftp://gate.example.com/mcp", Err("https://")),
            ("gate.example.com", Err("https://")),
            ("a b", Err("no address")),
        ] {
            match (endpoint(given), expect) {
                (Ok(url), Ok(expect)) => assert_eq!(url, expect, "{given}"),
                (Err(why), Err(part)) => assert!(why.contains(part), "{given}: {why}"),
                (got, _) => panic!("{given}: {got:?}"),
            }
        }
    }
}
