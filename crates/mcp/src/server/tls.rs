//! TLS for the HTTP listener: certificate and key from PEM texts. The listener limits the time of a handshake.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

#[derive(Clone)]
pub struct Certificate(Arc<ServerConfig>);

impl std::fmt::Debug for Certificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Certificate(***)")
    }
}

impl Certificate {
    /// Reads the chain, leaf first, and the key of the leaf. TLS 1.2 and 1.3, no client certificates.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, String> {
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(chain)
            .collect::<Result<_, _>>()
            .map_err(|error| format!("the certificate can't be read: {error}"))?;
        if chain.is_empty() {
            return Err("the certificate's file holds no certificate".to_owned());
        }
        let key =
            PrivateKeyDer::from_pem_slice(key).map_err(|error| format!("the key can't be read: {error}"))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|error| format!("certificate and key do not go together: {error}"))?;
        Ok(Self(Arc::new(config)))
    }

    pub(super) fn acceptor(self) -> TlsAcceptor {
        TlsAcceptor::from(self.0)
    }
}
