//! The ear: one connection that hears what other replicas tell (`LISTEN`), made again whenever it is lost. It also says that
//! this process lives, so that a writer between two connections is not taken for dead. Changes nothing.

use std::future::poll_fn;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio_postgres::{AsyncMessage, Config};

use super::super::News;
use super::tls::Tls;
use super::{channel, lock_key};

/// How long a lost connection is waited for before it is made again.
const AGAIN: Duration = Duration::from_millis(500);
/// How often a quiet connection is asked whether it is still there.
const PULSE: Duration = Duration::from_secs(10);

pub(super) fn listen(
    config: &Config,
    tls: &Tls,
    instance: &str,
    heard: &mut dyn FnMut(News<'_>),
    mut end: oneshot::Receiver<()>,
) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
    runtime.block_on(async {
        loop {
            tokio::select! {
                _ = hear(config, tls, instance, heard) => {}
                _ = &mut end => return,
            }
            heard(News::Deaf);
            tokio::select! {
                () = tokio::time::sleep(AGAIN) => {}
                _ = &mut end => return,
            }
        }
    });
}

/// Hears until the connection is lost.
async fn hear(
    config: &Config,
    tls: &Tls,
    instance: &str,
    heard: &mut dyn FnMut(News<'_>),
) -> Result<(), tokio_postgres::Error> {
    let (client, mut connection) = config.connect(tls.clone()).await?;
    let (tell, mut told) = mpsc::unbounded_channel();
    let driver = tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(news) = message
                && tell.send(news.payload().to_owned()).is_err()
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
    heard(News::Hearing);
    loop {
        tokio::select! {
            news = told.recv() => match news {
                Some(news) => heard(News::Said(&news)),
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
