//! Which addresses an HTTP upstream may have. Checked on the resolved address right before connecting, so that a name cannot change its
//! address in between.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper_util::client::legacy::connect::dns::Name;
use tower_service::Service;

use super::AddressRule;
use crate::fault::{FaultKind, TransportFault};

/// Denies what only an attacker would want to reach: link-local and cloud metadata addresses, multicast, broadcast, the unspecified
/// address. Loopback and private networks are allowed: many upstreams are there.
pub fn default_address_rule(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let metadata = [
        IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
        IpAddr::V6("fd00:ec2::254".parse().unwrap_or(std::net::Ipv6Addr::UNSPECIFIED)),
    ];
    if address.is_unspecified() || address.is_multicast() || metadata.contains(&address) {
        return false;
    }
    match address {
        IpAddr::V4(address) => !address.is_link_local() && !address.is_broadcast(),
        IpAddr::V6(address) => !address.is_unicast_link_local(),
    }
}

#[derive(Debug, thiserror::Error)]
#[error("address {0} is not allowed")]
pub(crate) struct DeniedAddress(pub(super) IpAddr);

/// A literal address never reaches the resolver, so it is checked before.
pub(crate) fn check_literal(host: &str, rule: &AddressRule) -> Result<(), TransportFault> {
    match host.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(address) if !rule(address) => {
            Err(TransportFault::unsent(FaultKind::AddressDenied(address.to_string())))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Resolves names to allowed addresses only.
#[derive(Clone)]
pub(crate) struct CheckedResolver {
    pub(crate) rule: AddressRule,
}

impl Service<Name> for CheckedResolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, io::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let rule = self.rule.clone();
        Box::pin(async move {
            let found = tokio::task::spawn_blocking(move || {
                (name.as_str(), 0).to_socket_addrs().map(Iterator::collect::<Vec<_>>)
            })
            .await
            .map_err(io::Error::other)??;
            // One denied address rejects the name: a mixed answer is how DNS rebinding looks.
            match found.iter().find(|address| !rule(address.ip())) {
                Some(address) => {
                    Err(io::Error::new(io::ErrorKind::PermissionDenied, DeniedAddress(address.ip())))
                }
                None => Ok(found.into_iter()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_out_of_reach() {
        for (address, allowed) in [
            ("127.0.0.1", true),
            ("10.1.2.3", true),
            ("::1", true),
            ("169.254.169.254", false),
            ("::ffff:169.254.169.254", false),
            ("fe80::1", false),
            ("fd00:ec2::254", false),
            ("100.100.100.200", false),
            ("0.0.0.0", false),
            ("224.0.0.1", false),
        ] {
            assert_eq!(default_address_rule(address.parse().unwrap()), allowed, "{address}");
        }
    }
}
