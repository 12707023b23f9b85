//! Where `serve` listens: for hosts, for people, or for both at one address. Addresses are taken before the house is built, so
//! that plans can say where a person decides.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use countersign_core::config::Config;
use countersign_core::refusal::{Code, Refusal};
use countersign_desk::{Desk, DeskOptions, mount, mount_alone};
use countersign_gateway::house::House;
use countersign_store::Store;
use countersign_wire::serve::listen_http;
use tokio::net::TcpListener;

use super::{banner, broken};
use crate::answer::Trouble;

/// The listeners of one gateway.
pub(super) struct Listeners {
    /// For hosts, over HTTP.
    pub(super) hosts: Option<TcpListener>,
    /// For people, where that is an address of its own.
    people: Option<TcpListener>,
    /// Where a person decides.
    pub(super) desk_url: Option<String>,
}

impl Listeners {
    /// Takes the addresses. A desk beside a stdio line is a help, not a need: where its address is taken, another gateway of
    /// this configuration has it.
    pub(super) async fn take(http: Option<SocketAddr>, config: &Config) -> Result<Self, Trouble> {
        let hosts = match http {
            Some(address) => Some(bind(address).await?),
            None => None,
        };
        let people = match (config.desk.listen, http) {
            (None, _) => None,
            (Some(address), Some(_)) => {
                open_only_here(address)?;
                Some(bind(address).await?)
            }
            (Some(address), None) => {
                open_only_here(address)?;
                match TcpListener::bind(address).await {
                    Ok(listener) => Some(listener),
                    Err(error) => {
                        banner(&format!("no desk here: can't listen on {address}: {error}"));
                        None
                    }
                }
            }
        };
        let desk_url = match people.as_ref().or(hosts.as_ref()) {
            Some(listener) => Some(url(listener)?),
            None => None,
        };
        Ok(Self { hosts, people, desk_url })
    }

    /// Serves the desk: at its own address until the end, or as a router for the hosts' listener.
    pub(super) async fn open_desk(
        &mut self,
        house: &Arc<House>,
        store: &Store,
    ) -> Option<(Arc<Desk>, Option<axum::Router>)> {
        let url = self.desk_url.clone()?;
        let desk = Desk::new(Arc::clone(house), DeskOptions::loopback());
        // Only `countersign open` needs it, and says so when it is missing.
        let _ = store.set_desk_url(&url).await;
        banner(&format!("desk at {url}/ (countersign open signs you in)"));
        match self.people.take() {
            None => {
                let router = mount(&desk);
                Some((desk, Some(router)))
            }
            Some(listener) => {
                tokio::spawn(listen_http(listener, mount_alone(&desk), std::future::pending()));
                Some((desk, None))
            }
        }
    }
}

async fn bind(address: SocketAddr) -> Result<TcpListener, Trouble> {
    TcpListener::bind(address).await.map_err(|error| {
        let refusal = Refusal::new(Code::StoreUnavailable, format!("can't listen on {address}: {error}"));
        Trouble::refused(refusal, "name a free address: countersign serve --http 127.0.0.1:0")
    })
}

/// People sign in where nobody else can listen in.
fn open_only_here(address: SocketAddr) -> Result<(), Trouble> {
    if address.ip().is_loopback() {
        return Ok(());
    }
    let message = format!("the desk can't listen on `{address}`: others could listen in");
    let next = "write listen = \"127.0.0.1:7879\" under [desk]";
    Err(Trouble::refused(Refusal::new(Code::ConfigInvalid, message), next))
}

fn url(listener: &TcpListener) -> Result<String, Trouble> {
    let mut local = listener.local_addr().map_err(|error| broken("the address is unknown", &error))?;
    if local.ip().is_unspecified() {
        local.set_ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    Ok(format!("http://{local}"))
}
