//! One connection that receives notifications of other replicas (`LISTEN`), made again whenever it is lost. It also marks this process as
//! alive, so that a writer between two connections is not taken for dead. Changes nothing.

use std::future::poll_fn;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio_postgres::{AsyncMessage, Config};

use super::super::ReplicaMessage;
use super::tls::PostgresTls;
use super::{channel, lock_key};

/// The pause before a lost connection is made again.
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);
/// How often a quiet connection is checked.
const PULSE: Duration = Duration::from_secs(10);

pub(super) fn listen(
    config: &Config,
    tls: &PostgresTls,
    instance: &str,
    receive: &mut dyn FnMut(ReplicaMessage<'_>),
    mut end: oneshot::Receiver<()>,
) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
    runtime.block_on(async {
        loop {
            tokio::select! {
                _ = receive_until_lost(config, tls, instance, receive) => {}
                _ = &mut end => return,
            }
            tracing::debug!("the connection for changes of other replicas was lost, it is made again");
            receive(ReplicaMessage::Disconnected);
            tokio::select! {
                () = tokio::time::sleep(RECONNECT_PAUSE) => {}
                _ = &mut end => return,
            }
        }
    });
}

async fn receive_until_lost(
    config: &Config,
    tls: &PostgresTls,
    instance: &str,
    receive: &mut dyn FnMut(ReplicaMessage<'_>),
) -> Result<(), tokio_postgres::Error> {
    let (client, mut connection) = config.connect(tls.clone()).await?;
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let driver = tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(notification) = message
                && sender.send(notification.payload().to_owned()).is_err()
            {
                return;
            }
        }
    });
    let row = client.query_one("SELECT CAST(current_schema() AS TEXT)", &[]).await?;
    let schema = row.try_get::<_, Option<String>>(0)?.unwrap_or_default();
    let alive = lock_key(&schema, "instance", instance);
    client
        .batch_execute(&format!("LISTEN {}; SELECT pg_advisory_lock_shared({alive})", channel(&schema)))
        .await?;
    receive(ReplicaMessage::Connected);
    loop {
        tokio::select! {
            message = receiver.recv() => match message {
                Some(message) => receive(ReplicaMessage::Received(&message)),
                None => return Ok(()),
            },
            () = tokio::time::sleep(PULSE) => {
                let alive = tokio::time::timeout(PULSE, client.batch_execute("")).await;
                if !matches!(alive, Ok(Ok(()))) {
                    driver.abort();
                    return Ok(());
                }
            }
        }
    }
}
