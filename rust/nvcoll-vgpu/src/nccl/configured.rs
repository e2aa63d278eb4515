//! Collectives with a configuration of their own, of NCCL 2.31 and later: the plain collective, and the event of its launch.
//!
//! What a configuration says of channels and algorithms changes no result and is not logged: such a call is named as unanswered.
use std::ffi::{c_char, c_int, CStr};

use super::answer;
use super::collectives::*;
use crate::arguments::List;
use crate::entry_points::functions;
use crate::unanswered::note_unanswered;
use crate::{Answer, Failure, Handle};

/// `NCCL_CONFIG_UNDEF_INT`.
const UNSET: c_int = c_int::MIN;

/// `ncclCollConfig_t` of 2.32. Its first field is its size in bytes; in 2.31 it ends before the event.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CollectiveConfig {
    pub(super) size: usize,
    pub(super) magic: u32,
    pub(super) version: u32,
    pub(super) extensions: usize,
    /// Least and most channels, channels of NVLS, size of a cluster of blocks.
    pub(super) channels: [c_int; 4],
    pub(super) algorithms: *const c_char,
    pub(super) is_forced: c_int,
    pub(super) policy: c_int,
    pub(super) tag: u64,
    pub(super) launched: Handle,
}

/// Names a configuration that steers the call, and records the event of its launch.
fn apply(config: List<CollectiveConfig>, stream: Handle, name: &'static CStr) -> Answer {
    if config.is_null() {
        return Ok(());
    }
    let bytes = config.cast::<usize>().read(1)?[0];
    let event = std::mem::offset_of!(CollectiveConfig, launched);
    if bytes < event {
        return Err(Failure::INVALID_VALUE);
    }
    let words = config.cast::<usize>().read(bytes.min(size_of::<CollectiveConfig>()) / size_of::<usize>())?;
    let channels = config.cast::<c_int>().read(10)?;
    // A text of algorithms has an address.
    if channels[6..].iter().any(|value| *value != UNSET) || words[5] != 0 {
        note_unanswered(name);
    }
    match words.get(event / size_of::<usize>()) {
        Some(&event) if event != 0 => record_behind(event, stream),
        _ => Ok(()),
    }
}

macro_rules! configured {
    ($($name:ident of $plain:ident($($at:ident)*; $($number:ident)*) $text:literal;)*) => { functions! { answer: $(
        $name($($at: Handle,)* count: usize, dtype: c_int, $($number: c_int,)* comm: Handle, stream: Handle,
            config: List<CollectiveConfig>) => match $plain($($at,)* count, dtype, $($number,)* comm, stream) {
                0 => apply(config, stream, $text),
                _ => Err(Failure::INVALID_VALUE),
            };
    )* } };
}

configured! {
    ncclAllReduceConfig of ncclAllReduce(send receive; op) c"ncclCollConfig_t of ncclAllReduceConfig";
    ncclReduceScatterConfig of ncclReduceScatter(send receive; op) c"ncclCollConfig_t of ncclReduceScatterConfig";
    ncclReduceConfig of ncclReduce(send receive; op root) c"ncclCollConfig_t of ncclReduceConfig";
    ncclAllGatherConfig of ncclAllGather(send receive;) c"ncclCollConfig_t of ncclAllGatherConfig";
    ncclAlltoAllConfig of ncclAlltoAll(send receive;) c"ncclCollConfig_t of ncclAlltoAllConfig";
    ncclBroadcastConfig of ncclBroadcast(send receive; root) c"ncclCollConfig_t of ncclBroadcastConfig";
    ncclGatherConfig of ncclGather(send receive; root) c"ncclCollConfig_t of ncclGatherConfig";
    ncclScatterConfig of ncclScatter(send receive; root) c"ncclCollConfig_t of ncclScatterConfig";
}
