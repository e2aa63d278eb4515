//! The words and the memory that the ranks of one world share.

use std::sync::OnceLock;

use crate::batch::Table;
use crate::error::{Error, Result};
use crate::groups::Groups;
use crate::memory::Block;
use crate::sync::{Abort, Activity, Departure, Doorbell, Progress, RecordLine, Stamp};

/// Queues of one rank that have a progress word. Chosen: three phases of a two-level tree need no more.
pub(crate) const QUEUES: usize = 16;

/// The lines of one rank.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    pub(crate) stamp: Stamp,
    pub(crate) record: RecordLine,
    pub(crate) activity: Activity,
    pub(crate) doorbell: Doorbell,
    pub(crate) departure: Departure,
    pub(crate) progress: [Progress; QUEUES],
    pub(crate) batch: Table,
}

/// Everything that is shared: lines per rank, the abort word, staging; and who the ranks are.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) lines: Vec<Lines>,
    pub(crate) abort: Abort,
    staging: OnceLock<Vec<Block>>,
    ranks: Vec<u32>,
    is_group: bool,
    pub(crate) groups: Groups,
}

/// Slots begin at multiples of this many bytes. Chosen: a cache line.
const LINE_BYTES: usize = 64;

/// Staging of a rank in a small world. Chosen: four slots that fit a second-level cache together.
const STAGING_BYTES: usize = 1 << 20;

/// Staging per rank of the world, where that is more. Chosen: four slots of three layers of the shortest float64 tiles.
const STAGING_BYTES_PER_RANK: usize = 4096;

/// Returns the bytes of staging of one rank.
pub(crate) fn staging_bytes(world_size: u32) -> usize {
    STAGING_BYTES.max(STAGING_BYTES_PER_RANK * world_size as usize)
}

/// Returns the bytes of one slot: there are two banks, for calls by turns, of so many slots, for tiles by turns.
pub(crate) fn slot_bytes(world_size: u32, slots: u32) -> usize {
    staging_bytes(world_size) / (2 * slots.max(1) as usize) / LINE_BYTES * LINE_BYTES
}

impl World {
    /// Makes the world of all ranks.
    pub(crate) fn new(world_size: u32) -> Self {
        Self::of((0..world_size).collect(), false)
    }

    /// Makes the world of some ranks of the run, which have other numbers in it: their places in the list.
    pub(crate) fn of_group(ranks: Vec<u32>) -> Self {
        Self::of(ranks, true)
    }

    fn of(ranks: Vec<u32>, is_group: bool) -> Self {
        Self {
            lines: ranks.iter().map(|_| Lines::default()).collect(),
            abort: Abort::default(),
            staging: OnceLock::new(),
            ranks,
            is_group,
            groups: Groups::default(),
        }
    }

    /// Returns the ranks of the run, by rank here.
    pub(crate) fn ranks(&self) -> &[u32] {
        &self.ranks
    }

    /// Says whether it was split off from another.
    pub(crate) fn is_group(&self) -> bool {
        self.is_group
    }

    pub(crate) fn world_size(&self) -> u32 {
        self.lines.len() as u32
    }

    /// Makes the staging of all ranks, unless that was done, or a program uses none (`used` is 0).
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub(crate) fn make_staging(&self, used: usize) -> Result<()> {
        if used == 0 || self.staging.get().is_some() {
            return Ok(());
        }
        let bytes = staging_bytes(self.world_size());
        let blocks: Option<Vec<Block>> = self.lines.iter().map(|_| Block::try_zeroed(bytes)).collect();
        let blocks = blocks.ok_or(Error::NoMemory { what: "staging", bytes })?;
        // A peer that was faster has made the one that counts.
        let _ = self.staging.set(blocks);
        Ok(())
    }

    /// Returns where the staging of a rank begins, which was made.
    pub(crate) fn staging(&self, rank: u32) -> *mut u8 {
        self.staging.get().expect("it is made before a call begins that needs it")[rank as usize].start()
    }
}
