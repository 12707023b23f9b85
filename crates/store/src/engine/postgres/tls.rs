//! TLS to a PostgreSQL server with rustls and ring. Checks the certificate and the name of the server, or less if the address says so.
//! Does not use client certificates or channel binding.

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;

use super::address::{PostgresAddress, TlsUse};
use crate::fault::{FailureScope, FaultKind, StoreFault};

#[derive(Clone)]
pub(crate) struct PostgresTls {
    config: Arc<ClientConfig>,
}

impl PostgresTls {
    pub(crate) fn new(address: &PostgresAddress) -> Result<Self, StoreFault> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| refused(&error))?;
        let config = match (address.tls, &address.root) {
            (TlsUse::Disable | TlsUse::Prefer, _) | (TlsUse::Require, None) => {
                let anyone = Verifier { provider, chain: None };
                builder.dangerous().with_custom_certificate_verifier(Arc::new(anyone))
            }
            (TlsUse::Require, Some(root)) => {
                let chain = WebPkiServerVerifier::builder_with_provider(
                    Arc::new(from_file(root)?),
                    Arc::clone(&provider),
                );
                let chain = Some(chain.build().map_err(|error| refused(&error))?);
                builder.dangerous().with_custom_certificate_verifier(Arc::new(Verifier { provider, chain }))
            }
            (TlsUse::VerifyFull, Some(root)) => builder.with_root_certificates(from_file(root)?),
            (TlsUse::VerifyFull, None) => builder.with_root_certificates(from_platform()),
        };
        Ok(Self { config: Arc::new(config.with_no_client_auth()) })
    }
}

fn refused(why: &dyn std::fmt::Display) -> StoreFault {
    StoreFault::new(FaultKind::Untrusted, FailureScope::Connection, format!("TLS can't be used: {why}"))
}

fn from_file(path: &Path) -> Result<RootCertStore, StoreFault> {
    let bad = |why: &dyn std::fmt::Display| refused(&format_args!("sslrootcert `{}`: {why}", path.display()));
    let mut roots = RootCertStore::empty();
    for found in CertificateDer::pem_file_iter(path).map_err(|error| bad(&error))? {
        roots.add(found.map_err(|error| bad(&error))?).map_err(|error| bad(&error))?;
    }
    if roots.is_empty() { Err(bad(&"there is no certificate in it")) } else { Ok(roots) }
}

/// The platform's authorities. Without any, no server can be verified and every connection is refused.
fn from_platform() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

/// For `require`: accepts a certificate of the given authorities under any name, or any certificate.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    chain: Option<Arc<WebPkiServerVerifier>>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        cert: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(chain) = &self.chain else { return Ok(ServerCertVerified::assertion()) };
        match chain.verify_server_cert(cert, between, name, ocsp, now) {
            // The chain is checked before the name.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            checked => checked,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

pub(crate) struct Handshake {
    connector: TlsConnector,
    /// None where a certificate can't name the server, as with a Unix socket.
    name: Option<ServerName<'static>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for PostgresTls {
    type Stream = SecuredStream<S>;
    type TlsConnect = Handshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<Handshake> {
        // The driver calls this before it knows whether TLS will be used.
        let name = ServerName::try_from(host.to_owned()).ok();
        Ok(Handshake { connector: TlsConnector::from(Arc::clone(&self.config)), name })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Handshake {
    type Stream = SecuredStream<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<SecuredStream<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let name = self.name.ok_or_else(|| io::Error::other("the server has no name to be checked"))?;
            self.connector.connect(name, stream).await.map(SecuredStream)
        })
    }
}

pub(crate) struct SecuredStream<S>(tokio_rustls::client::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for SecuredStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, into)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for SecuredStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for SecuredStream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}
