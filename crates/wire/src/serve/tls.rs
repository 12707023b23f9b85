//! TLS in front of the HTTP listener: certificate and key from PEM texts, handshakes apart from one another, so that a slow
//! client keeps nobody waiting. Who may come in is said further inside.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, Request};
use axum::middleware::map_request;
use axum::serve::{IncomingStream, Listener};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How many may be under way.
const HANDSHAKES: usize = 256;
/// How long to wait when the system gives no connection (too many files, say).
const BREATH: Duration = Duration::from_millis(200);

/// A certificate with its key, ready to serve.
#[derive(Clone)]
pub struct Certificate(Arc<ServerConfig>);

impl std::fmt::Debug for Certificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Certificate(***)")
    }
}

impl Certificate {
    /// From PEM texts: the chain, leaf first, and the key of the leaf. TLS 1.2 and 1.3, no client certificates.
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
}

/// Serves a router over TLS until `until` ends.
pub async fn listen_https(
    listener: TcpListener,
    certificate: Certificate,
    router: Router,
    until: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let address = listener.local_addr()?;
    let (tell, ready) = mpsc::channel(64);
    let accepting = tokio::spawn(accept(listener, TlsAcceptor::from(certificate.0), tell));
    let router = router.layer(map_request(with_peer));
    let service = router.into_make_service_with_connect_info::<Peer>();
    axum::serve(Ready { ready, address }, service)
        .with_graceful_shutdown(async move {
            until.await;
            accepting.abort();
        })
        .await
}

/// Where handlers look for their peer, whatever listener it came through.
async fn with_peer(mut request: Request) -> Request {
    let peer = request.extensions().get::<ConnectInfo<Peer>>().map(|info| info.0.0);
    if let Some(peer) = peer {
        request.extensions_mut().insert(ConnectInfo(peer));
    }
    request
}

/// Takes connections and shakes hands, each in a task of its own.
async fn accept(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    tell: mpsc::Sender<(TlsStream<TcpStream>, SocketAddr)>,
) {
    let room = Arc::new(Semaphore::new(HANDSHAKES));
    loop {
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(_) => {
                tokio::time::sleep(BREATH).await;
                continue;
            }
        };
        let (acceptor, tell) = (acceptor.clone(), tell.clone());
        tokio::spawn(async move {
            // A socket that refuses is slower, not wrong.
            let _ = stream.set_nodelay(true);
            // Whoever can't shake hands is gone without a word: there is no way to say one.
            if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
                let _ = tell.send((stream, peer)).await;
            }
            drop(place);
        });
    }
}

/// Connections whose hands were shaken.
struct Ready {
    ready: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
    address: SocketAddr,
}

impl Listener for Ready {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.ready.recv().await {
            Some(accepted) => accepted,
            // Nobody accepts any more: the server is being shut down.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

/// A peer's address.
#[derive(Clone, Copy, Debug)]
struct Peer(SocketAddr);

impl Connected<IncomingStream<'_, Ready>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Ready>) -> Self {
        Self(*stream.remote_addr())
    }
}
