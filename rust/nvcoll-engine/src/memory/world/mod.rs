//! The world: the words and the memory that ranks share.

pub(crate) mod addresses;
mod gathering;
pub(crate) mod rank_lines;

use std::alloc::{handle_alloc_error, Layout};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::deadline::WaitLimit;
use crate::error::{Error, Result};
use crate::memory::block::MemoryBlock;
use crate::memory::heap::HeapBlock;
use crate::sync::Abort;
use addresses::Addresses;
use gathering::GatheringGroups;
use nvcoll_core::limits::staging_bytes;
use rank_lines::{RankBells, RankLines, RankWords};

/// A world: the lines of each rank, the abort word, staging, and the ranks themselves.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) lines: Vec<RankLines>,
    staging: OnceLock<Vec<Arc<MemoryBlock>>>,
    pub(crate) addresses: Addresses,
    ranks: Vec<u32>,
    is_group: bool,
    origin: Box<dyn WorldOrigin>,
}

/// Where a world came from: what differs between ranks that are threads and ranks that are processes.
pub(crate) trait WorldOrigin: std::fmt::Debug + Send + Sync {
    /// Returns the world of these ranks of the run, which form the group of a color in split number `call`. Each of them asks once.
    ///
    /// # Errors
    /// [`Error::NoMemory`], or the failure of a peer that should have passed its memory. Ranks that are processes fail together.
    fn make_group(&self, call: u32, color: u32, ranks: Vec<u32>, limit: &mut WaitLimit<'_>) -> Result<Arc<World>>;

    /// Allocates memory that every rank can reach; `None` if ranks are threads, which reach all memory.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    fn allocate(&self, bytes: usize) -> Result<Option<HeapBlock>>;

    /// Says whether a rank of the run has ended without a word: its process is gone. It may be asked every millisecond.
    fn is_gone(&self, rank: u32) -> bool;

    /// Returns how long a rank whose call failed waits for peers that may still touch its buffers; `None` if it cannot return
    /// before, because they would touch memory that is freed.
    fn longest_quiesce(&self) -> Option<Duration>;
}

/// The memory of one rank that its peers map, as it is mapped here.
#[derive(Debug)]
pub(crate) struct RankRegions {
    /// Of at least [`WORDS_BYTES`].
    pub(crate) words: Arc<MemoryBlock>,
    /// Of at least [`BELLS_BYTES`].
    pub(crate) bells: Arc<MemoryBlock>,
    /// Of [`staging_bytes`].
    pub(crate) staging: Arc<MemoryBlock>,
}

/// The size of a rank's words.
pub(crate) const WORDS_BYTES: usize = size_of::<RankWords>();

/// The size of a rank's bells.
pub(crate) const BELLS_BYTES: usize = size_of::<RankBells>();

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
        let (words, bells) = (zeroed(ranks.len(), WORDS_BYTES), zeroed(ranks.len(), BELLS_BYTES));
        let lines = |at| RankLines::at((&words, at * WORDS_BYTES), (&bells, at * BELLS_BYTES));
        Self {
            lines: (0..ranks.len()).map(lines).collect(),
            staging: OnceLock::new(),
            addresses: Addresses::OneSpace,
            ranks,
            is_group,
            origin: Box::new(GatheringGroups::default()),
        }
    }

    /// Makes a world of ranks that map each other's memory, which is given for each.
    pub(crate) fn of_regions(
        ranks: Vec<u32>,
        is_group: bool,
        regions: Vec<RankRegions>,
        addresses: Addresses,
        origin: Box<dyn WorldOrigin>,
    ) -> Self {
        let lines = regions.iter().map(|region| RankLines::at((&region.words, 0), (&region.bells, 0))).collect();
        let staging: Vec<_> = regions.into_iter().map(|region| region.staging).collect();
        Self { lines, staging: OnceLock::from(staging), addresses, ranks, is_group, origin }
    }

    /// Returns the abort word.
    #[inline]
    pub(crate) fn abort(&self) -> &Abort {
        self.lines[0].abort()
    }

    /// Returns what differs between threads and processes.
    pub(crate) fn origin(&self) -> &dyn WorldOrigin {
        &*self.origin
    }

    /// Says whether the process of a rank of this world is gone.
    pub(crate) fn is_gone(&self, rank: u32) -> bool {
        self.origin.is_gone(self.ranks[rank as usize])
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
        let block = |_| MemoryBlock::try_zeroed(bytes).map(Arc::new);
        let blocks: Option<Vec<_>> = self.lines.iter().map(block).collect();
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

/// Allocates zeros for some ranks; ends the process if there is no memory, as `Vec` does.
fn zeroed(ranks: usize, bytes: usize) -> Arc<MemoryBlock> {
    let block = MemoryBlock::try_zeroed(ranks * bytes);
    Arc::new(block.unwrap_or_else(|| handle_alloc_error(Layout::new::<RankWords>())))
}
