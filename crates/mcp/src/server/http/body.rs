//! Reads a request body up to a limit. The rest of a longer one is read and discarded for a while: a client that is still sending
//! when the connection closes would never see the response.

use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody as _};
use http_body_util::BodyExt as _;

const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// How much more than the limit is read before the response.
const THROWN_AWAY: usize = 64 << 20;
/// How long that may take.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyError {
    TooLong,
    Cut,
    Slow,
}

/// Reads the whole body within the limits of size and time.
pub async fn read_body(body: Body, longest: usize) -> Result<Bytes, BodyError> {
    tokio::time::timeout(BODY_TIMEOUT, read(body, longest)).await.unwrap_or(Err(BodyError::Slow))
}

async fn read(mut body: Body, longest: usize) -> Result<Bytes, BodyError> {
    if body.size_hint().lower() > longest as u64 {
        discard(body).await;
        return Err(BodyError::TooLong);
    }
    // Most bodies come in one piece, which needs no copy.
    let (mut only, mut all) = (Bytes::new(), Vec::new());
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| BodyError::Cut)?.into_data() else { continue };
        if only.len() + all.len() + data.len() > longest {
            discard(body).await;
            return Err(BodyError::TooLong);
        }
        if only.is_empty() && all.is_empty() {
            only = data;
            continue;
        }
        if !only.is_empty() {
            all.extend_from_slice(&std::mem::take(&mut only));
        }
        all.extend_from_slice(&data);
    }
    Ok(if all.is_empty() { only } else { all.into() })
}

async fn discard(mut body: Body) {
    let reading = async {
        let mut read = 0;
        while let Some(Ok(frame)) = body.frame().await {
            read += frame.data_ref().map_or(0, Bytes::len);
            if read > THROWN_AWAY {
                break;
            }
        }
    };
    // A slower client had its chance to read the response.
    let _ = tokio::time::timeout(PATIENCE, reading).await;
}
