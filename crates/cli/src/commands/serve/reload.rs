//! Following the configuration while it is served: a changed file takes effect without dropping a session, and a bad one
//! keeps the old one running and says so.

use std::sync::Arc;
use std::time::Duration;

use countersign_gateway::assemble::Assembly;
use countersign_gateway::catalog_refresh::CatalogRefresher;
use countersign_gateway::state::GatewayState;
use countersign_policy::mode::Mode;
use countersign_policy::record::{RowKind, RowStatus};
use countersign_store::Entry;

use super::HostConnection;
use crate::config_file::ConfigFiles;
use crate::output::{banner, counts};

/// How often the files are looked at. Reading a few kilobytes a second costs nothing and works on every file system.
const LOOK: Duration = Duration::from_secs(1);

/// What the command line says, whatever the files say.
pub(super) struct ServeOverrides {
    pub(super) mode: Option<Mode>,
    pub(super) audience: Option<HostConnection>,
}

pub(super) async fn follow(
    mut files: ConfigFiles,
    overrides: ServeOverrides,
    gateway: Arc<GatewayState>,
    refresher: Arc<CatalogRefresher>,
    mut assembly: Assembly,
) {
    loop {
        tokio::time::sleep(LOOK).await;
        let Ok(now) = files.reread() else { continue };
        if now.sources == files.sources {
            continue;
        }
        files = now;
        let (status, told) = match take(&files, &overrides, &gateway, &refresher, &mut assembly).await {
            Ok(()) => (RowStatus::Success, "configuration reloaded".to_owned()),
            Err(why) => {
                (RowStatus::Refused, format!("configuration not reloaded, the old one goes on: {why}"))
            }
        };
        // Recorded before it is announced: who reads the message may look for the row.
        let row = Entry::new(RowKind::Config, status)
            .with_fact("action", "reload")
            .with_fact("message", told.as_str());
        if let Err(fault) = gateway.store.append(row, gateway.now()).await {
            tracing::error!(fault = fault.inside(), "a reload could not be recorded");
        }
        banner(&told);
        tracing::info!(status = status.as_str(), "configuration reload");
    }
}

async fn take(
    files: &ConfigFiles,
    overrides: &ServeOverrides,
    gateway: &Arc<GatewayState>,
    refresher: &Arc<CatalogRefresher>,
    assembly: &mut Assembly,
) -> Result<(), String> {
    let parsed = countersign_config::parse(&files.sources);
    let settled = parsed.and_then(|config| config.settle(&|reference| files.look_up(reference)));
    let mut config = settled.map_err(|found| {
        let first = found.first().map(ToString::to_string).unwrap_or_default();
        format!("{}\n{first}", counts(&found))
    })?;
    config.gateway.mode = overrides.mode.unwrap_or(config.gateway.mode);
    if let Some(connection) = &overrides.audience {
        connection.keep_own(&mut config);
    }
    assembly.reload(gateway, refresher, &config).await.map_err(|cannot| cannot.to_string())
}
