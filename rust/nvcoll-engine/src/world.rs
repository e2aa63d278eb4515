//! The words and the memory that the ranks of one world share.

use std::sync::OnceLock;

use crate::memory::Block;
use crate::program::QUEUES;
use crate::sync::{Abort, Activity, Departure, Doorbell, Progress, RecordLine, Stamp};

/// The lines of one rank.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    pub(crate) stamp: Stamp,
    pub(crate) record: RecordLine,
    pub(crate) activity: Activity,
    pub(crate) doorbell: Doorbell,
    pub(crate) departure: Departure,
    pub(crate) progress: [Progress; QUEUES],
}

/// Everything that is shared: lines per rank, the abort word, staging.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) lines: Vec<Lines>,
    pub(crate) abort: Abort,
    staging: OnceLock<Vec<Block>>,
}

/// Staging of a rank in a small world. Chosen: four slots that fit a second-level cache together.
const STAGING_BYTES: usize = 1 << 20;

/// Staging per rank of the world, where that is more. Chosen: four slots of three layers of the shortest float64 tiles.
const STAGING_BYTES_PER_RANK: usize = 4096;

/// Returns the bytes of staging of one rank.
pub(crate) fn staging_bytes(world_size: u32) -> usize {
    STAGING_BYTES.max(STAGING_BYTES_PER_RANK * world_size as usize)
}

impl World {
    pub(crate) fn new(world_size: u32) -> Self {
        Self {
            lines: (0..world_size).map(|_| Lines::default()).collect(),
            abort: Abort::default(),
            staging: OnceLock::new(),
        }
    }

    pub(crate) fn world_size(&self) -> u32 {
        self.lines.len() as u32
    }

    /// Returns where the staging of a rank begins; all ranks' staging is made when the first is asked for.
    pub(crate) fn staging(&self, rank: u32) -> *mut u8 {
        let bytes = staging_bytes(self.world_size());
        let blocks = self.staging.get_or_init(|| self.lines.iter().map(|_| Block::zeroed(bytes)).collect());
        blocks[rank as usize].start()
    }
}
