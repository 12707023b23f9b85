//! What all routes of the desk share.

use std::sync::Arc;

use countersign_gateway::house::House;

use crate::access::Gate;
use crate::attempts::Attempts;
use crate::events::Bell;

/// How the desk is reached.
#[derive(Clone, Debug)]
pub struct DeskOptions {
    /// Names it is called by, without a port; `*` allows every name.
    pub allowed_hosts: Vec<String>,
    /// Origins besides its own that may call, such as that of a proxy before it.
    pub allowed_origins: Vec<String>,
    /// Whether browsers reach it over TLS: then the cookie is for TLS only.
    pub secure: bool,
}

impl DeskOptions {
    /// For a listener on loopback.
    pub fn loopback() -> Self {
        Self {
            allowed_hosts: ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned).to_vec(),
            allowed_origins: Vec::new(),
            secure: false,
        }
    }
}

/// The desk of one gateway.
pub struct Desk {
    pub(crate) house: Arc<House>,
    pub(crate) gate: Gate,
    pub(crate) bell: Bell,
    pub(crate) attempts: Attempts,
}

impl Desk {
    /// A desk before this house.
    pub fn new(house: Arc<House>, options: DeskOptions) -> Arc<Self> {
        let bell = Bell::new(Arc::clone(&house));
        Arc::new(Self { house, gate: Gate::new(options), bell, attempts: Attempts::default() })
    }

    /// Ends every stream of events, so that a listener can close.
    pub fn close(&self) {
        self.bell.close();
    }
}
