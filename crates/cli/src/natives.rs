//! The upstreams of our own, handed to the gateway: it knows the seam, they know the law and the records, only the door knows both.

mod demo;
mod memory;
mod pack;

use std::sync::Arc;

use countersign_core::config::NativeKind;
use countersign_gateway::upstreams::native::{Ground, Native, Natives};

/// Everything this program brings along.
#[derive(Debug)]
pub(crate) struct Own;

impl Natives for Own {
    fn make(&self, kind: NativeKind, ground: Ground<'_>) -> Result<Arc<dyn Native>, String> {
        match kind {
            NativeKind::Demo => demo::Demo::open(ground),
            NativeKind::Memory => memory::Memory::open(ground),
            NativeKind::Pack => pack::Pack::open(ground),
        }
    }
}
