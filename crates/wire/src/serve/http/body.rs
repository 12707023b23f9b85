//! Reading a body up to a limit. One that is longer is read on and thrown away for a while: a client that is still
//! sending when the line closes would never see why.

use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody as _};
use http_body_util::BodyExt as _;

/// How long a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// How much more than the limit is read for the sake of an answer.
const THROWN_AWAY: usize = 64 << 20;
/// How long that may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why there is no body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoBody {
    /// It is longer than the limit.
    TooLong,
    /// It broke off.
    Cut,
    /// It did not come in time.
    Slow,
}

/// The whole body, if it is no longer than that many bytes and comes in time.
pub async fn read_body(body: Body, longest: usize) -> Result<Bytes, NoBody> {
    tokio::time::timeout(BODY_TIMEOUT, read(body, longest)).await.unwrap_or(Err(NoBody::Slow))
}

async fn read(mut body: Body, longest: usize) -> Result<Bytes, NoBody> {
    if body.size_hint().lower() > longest as u64 {
        throw_away(body).await;
        return Err(NoBody::TooLong);
    }
    // Most bodies come in one piece, which is taken as it is.
    let (mut only, mut all) = (Bytes::new(), Vec::new());
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| NoBody::Cut)?.into_data() else { continue };
        if only.len() + all.len() + data.len() > longest {
            throw_away(body).await;
            return Err(NoBody::TooLong);
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

async fn throw_away(mut body: Body) {
    let reading = async {
        let mut read = 0;
        while let Some(Ok(frame)) = body.frame().await {
            read += frame.data_ref().map_or(0, Bytes::len);
            if read > THROWN_AWAY {
                break;
            }
        }
    };
    // Whoever is slower than that has had its chance to read the answer.
    let _ = tokio::time::timeout(PATIENCE, reading).await;
}
