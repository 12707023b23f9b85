//! The native upstreams this program brings along, made for the gateway.

mod demo;

use std::sync::Arc;

use countersign_config::NativeKind;
use countersign_gateway::upstreams::native::{NativeContext, NativeFactory, NativeServer};
use countersign_memory::Memory;
use countersign_memory::upstream::MemoryUpstream;
use countersign_pack::upstream::{PackUpstream, TokenIssuer};
use serde_json::{Map, Value};

use crate::commands::pack;

/// The tools of a native upstream, without making it.
pub(crate) fn definitions(kind: NativeKind) -> Vec<Value> {
    let values = |all: Vec<Map<String, Value>>| all.into_iter().map(Value::Object).collect();
    match kind {
        NativeKind::Demo => countersign_demo::definitions(),
        NativeKind::Memory => values(countersign_memory::tools::definitions()),
        NativeKind::Pack => values(countersign_pack::tools::definitions()),
    }
}

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
