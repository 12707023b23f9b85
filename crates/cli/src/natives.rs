//! The native upstreams this program brings along, made for the gateway.

mod demo;

use std::sync::Arc;

use countersign_config::NativeKind;
use countersign_gateway::upstreams::native::{NativeContext, NativeFactory, NativeServer};
use countersign_memory::Memory;
use countersign_memory::upstream::MemoryUpstream;
use countersign_pack::upstream::{PackUpstream, TokenIssuer};

use crate::commands::pack;

/// Everything this program brings along.
#[derive(Debug)]
pub(crate) struct BundledUpstreams;

impl NativeFactory for BundledUpstreams {
    fn make(&self, kind: NativeKind, ground: NativeContext<'_>) -> Result<Arc<dyn NativeServer>, String> {
        match kind {
            NativeKind::Demo => demo::DemoUpstream::open(ground),
            NativeKind::Memory => Ok(MemoryUpstream::new(Memory::new(
                ground.store.clone(),
                ground.own_folder.unwrap_or(ground.folder),
            ))),
            // `folder` is its config repo.
            NativeKind::Pack => {
                let place = pack::place(ground.own_folder, None).map_err(|usage| usage.message)?;
                Ok(Arc::new(PackUpstream::new(place, ground.store.clone(), TokenIssuer::Deploy)))
            }
        }
    }
}
