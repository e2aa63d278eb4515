//! The world: the words and the memory that ranks share.

mod batch_records;
mod gathering;

use std::sync::OnceLock;

use crate::call::PositionedCall;
use crate::error::{Error, Result};
use crate::memory::block::MemoryBlock;
use crate::memory::originals::OriginalArrays;
use crate::sync::atomic::AtomicBool;
use crate::sync::progress::QUEUES;
use crate::sync::{Abort, Activity, Departure, Doorbell, Progress, RecordLine, Stamp};
use batch_records::BatchRecords;
use gathering::GatheringGroups;
use nvcoll_core::limits::staging_bytes;

/// The lines of one rank.
#[derive(Debug, Default)]
pub(crate) struct RankLines {
    pub(crate) stamp: Stamp,
    pub(crate) record: RecordLine,
    pub(crate) activity: Activity,
    pub(crate) doorbell: Doorbell,
    pub(crate) departure: Departure,
    pub(crate) progress: [Progress; QUEUES],
    pub(crate) batch: BatchRecords,
    pub(crate) originals: OriginalArrays,
    /// Whether the rank still has results in copies: from before its stamp until the results are in its arrays.
    pub(crate) has_copies: AtomicBool,
    /// The number and the description of the call in which the rank failed first; records have no room for all of it.
    /// It is written before the rank acknowledges the abort.
    pub(crate) failed_in: OnceLock<(u32, Vec<PositionedCall>)>,
}

/// A world: the lines of each rank, the abort word, staging, and the ranks themselves.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) lines: Vec<RankLines>,
    pub(crate) abort: Abort,
    staging: OnceLock<Vec<MemoryBlock>>,
    ranks: Vec<u32>,
    is_group: bool,
    pub(crate) groups: GatheringGroups,
}

impl World {
    /// Makes the world of all ranks.
    pub(crate) fn new(world_size: u32) -> Self {
        Self::of((0..world_size).collect(), false)
    }

    /// Makes the world of some ranks of the run. Their rank in it is their index in the list.
    pub(crate) fn of_group(ranks: Vec<u32>) -> Self {
        Self::of(ranks, true)
    }

    fn of(ranks: Vec<u32>, is_group: bool) -> Self {
        Self {
            lines: ranks.iter().map(|_| RankLines::default()).collect(),
            abort: Abort::default(),
            staging: OnceLock::new(),
            ranks,
            is_group,
            groups: GatheringGroups::default(),
        }
    }

    /// Returns the ranks of the run, in the order of ranks here.
    pub(crate) fn ranks(&self) -> &[u32] {
        &self.ranks
    }

    /// Says whether the world was split off from another.
    pub(crate) fn is_group(&self) -> bool {
        self.is_group
    }

    pub(crate) fn world_size(&self) -> u32 {
        self.lines.len() as u32
    }

    /// Makes the staging of all ranks, unless it exists or the program uses none (`used` is 0).
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub(crate) fn make_staging(&self, used: usize) -> Result<()> {
        if used == 0 || self.staging.get().is_some() {
            return Ok(());
        }
        let bytes = staging_bytes(self.world_size());
        let blocks: Option<Vec<MemoryBlock>> = self.lines.iter().map(|_| MemoryBlock::try_zeroed(bytes)).collect();
        let blocks = blocks.ok_or(Error::NoMemory { what: "staging", bytes })?;
        // A peer that was faster has made the one that counts.
        let _ = self.staging.set(blocks);
        Ok(())
    }

    /// Returns the address of a rank's staging, which must exist.
    pub(crate) fn staging(&self, rank: u32) -> *mut u8 {
        self.staging.get().expect("it is made before a call begins that needs it")[rank as usize].start()
    }
}
