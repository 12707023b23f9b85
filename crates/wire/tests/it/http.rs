//! Streamable HTTP over loopback.
