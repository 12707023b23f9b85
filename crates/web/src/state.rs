//! The state that all routes share, and how the listener is reached.

use std::sync::Arc;

use axum::extract::State;
use countersign_gateway::state::GatewayState;
use countersign_store::PlanRow;

use crate::auth::OriginPolicy;
use crate::events::EventBroadcaster;
use crate::sign_in_limits::SignInLimits;
use crate::views::{self, PlanView};

#[derive(Clone, Debug)]
pub struct WebOptions {
    /// Host names it is called by, without a port; `*` allows every name.
    pub allowed_hosts: Vec<String>,
    /// Origins besides its own that may send requests, such as that of a proxy.
    pub allowed_origins: Vec<String>,
    /// Whether browsers reach it over TLS: the cookie is `Secure` then.
    pub secure: bool,
}

impl WebOptions {
    pub fn loopback() -> Self {
        Self {
            allowed_hosts: ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned).to_vec(),
            allowed_origins: Vec::new(),
            secure: false,
        }
    }
}

/// The state as handlers extract it.
pub(crate) type Web = State<Arc<WebState>>;

pub struct WebState {
    pub(crate) gateway: Arc<GatewayState>,
    pub(crate) origins: OriginPolicy,
    pub(crate) events: EventBroadcaster,
    pub(crate) limits: SignInLimits,
}

impl WebState {
    pub fn new(gateway: Arc<GatewayState>, options: WebOptions) -> Arc<Self> {
        let events = EventBroadcaster::new(Arc::clone(&gateway));
        let origins = OriginPolicy::new(options, gateway.store.salt());
        Arc::new(Self { gateway, origins, events, limits: SignInLimits::default() })
    }

    /// A plan as routes return it now.
    pub(crate) fn plan_view(&self, row: &PlanRow) -> PlanView {
        let gateway = &self.gateway;
        let catalog = gateway.catalog.load();
        let schema_of = |tool: &str| {
            let listed = catalog.get(&tool.parse().ok()?)?;
            listed.tool.definition.get("inputSchema").cloned()
        };
        let home = gateway.policy.load().home.clone();
        views::plan(row, &gateway.redactor, gateway.now(), home.as_deref()).arrange(schema_of)
    }

    /// Ends every event stream, so that the listener can shut down.
    pub fn close(&self) {
        self.events.close();
    }
}
