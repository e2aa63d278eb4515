//! The words and the memory that the ranks of one world share.

use std::sync::OnceLock;

use crate::memory::Block;
use crate::program::QUEUES;
use crate::sync::{Abort, Activity, Doorbell, Progress, RecordLine, Stamp};

/// The lines of one rank.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    pub(crate) stamp: Stamp,
    pub(crate) record: RecordLine,
    pub(crate) activity: Activity,
    pub(crate) doorbell: Doorbell,
    pub(crate) progress: [Progress; QUEUES],
}

/// Everything that is shared: lines per rank, the abort word, staging.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) lines: Vec<Lines>,
    pub(crate) abort: Abort,
    staging: OnceLock<Vec<Block>>,
}

/// Staging of one rank. Chosen: four slots that fit a second-level cache together.
pub(crate) const STAGING_BYTES: usize = 1 << 20;

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
    pub(crate) fn staging(&self, rank: u32, bytes: usize) -> *mut u8 {
        let size = STAGING_BYTES.max(bytes);
        let blocks = self.staging.get_or_init(|| self.lines.iter().map(|_| Block::zeroed(size)).collect());
        assert!(blocks[rank as usize].bytes() >= bytes, "tiles are cut so that they fit the staging");
        blocks[rank as usize].start()
    }
}
