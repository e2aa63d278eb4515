//! The world: the words and the memory that ranks share.

pub(crate) mod addresses;
mod gathering;
pub(crate) mod identity;
pub(crate) mod notice;
pub(crate) mod notice_board;
pub(crate) mod rank_lines;

use std::alloc::{handle_alloc_error, Layout};
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crate::deadline::WaitLimit;
use crate::error::{Error, Result};
use crate::memory::block::MemoryBlock;
use crate::memory::heap::{HeapBlock, IsHarmless};
use crate::sync::{Abort, Cause, Deaths};
use crate::system::caches::{ring_bytes, staging_bytes};
use addresses::Addresses;
use identity::Identity;
use notice::{Notice, RankList, WorldName, SUBSET};
use notice_board::NoticeBoard;
use rank_lines::{RankBells, RankLines, RankWords};

pub(crate) use rank_lines::HasLeft;

/// A world: the lines of each rank, the abort word, staging, and the ranks themselves.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) lines: Vec<RankLines>,
    staging: OnceLock<Vec<Arc<MemoryBlock>>>,
    /// Of each rank.
    staging_bytes: usize,
    pub(crate) addresses: Addresses,
    ranks: Vec<u32>,
    is_group: bool,
    /// The deaths of ranks of the run.
    pub(crate) deaths: Arc<Deaths>,
    /// The streams of messages that this process made, with the rank that reads each.
    streams: Mutex<Vec<(u32, ReachableBlock)>>,
    origin: Box<dyn WorldOrigin>,
    kin: OnceLock<Kin>,
}

/// What a world knows of the run: its name there, and the board of all ranks.
#[derive(Debug)]
struct Kin {
    name: WorldName,
    board: Arc<NoticeBoard>,
}

/// Memory that every rank of a world can reach, or that none but its rank need reach.
#[derive(Debug)]
pub(crate) enum ReachableBlock {
    /// Ranks are threads, or only this one uses it.
    Own(MemoryBlock),
    /// Ranks are processes.
    Symmetric(HeapBlock),
}

impl ReachableBlock {
    /// Allocates memory for a purpose.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub(crate) fn allocate(world: &World, what: &'static str, bytes: usize) -> Result<Self> {
        match world.origin().allocate(bytes)? {
            Some(block) => Ok(Self::Symmetric(block)),
            None => Self::of_its_own(what, bytes),
        }
    }

    /// Allocates memory that ranks reach only if they are threads.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub(crate) fn of_its_own(what: &'static str, bytes: usize) -> Result<Self> {
        MemoryBlock::try_zeroed(bytes).map(Self::Own).ok_or(Error::NoMemory { what, bytes })
    }

    pub(crate) fn start(&self) -> *mut u8 {
        match self {
            Self::Own(block) => block.start(),
            Self::Symmetric(block) => block.start(),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Own(block) => block.bytes(),
            Self::Symmetric(block) => block.bytes(),
        }
    }
}

/// By what the ranks of a subset of a world find each other, beside their list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum SubsetKey {
    /// They have this color in a call that splits the world.
    Split {
        /// The number of the call.
        call: u32,
        /// The color.
        color: u32,
    },
    /// They are left of the world, and have met in this attempt. Worlds that were shrunk from one root count their attempts together.
    Shrink {
        /// The number of the attempt.
        attempt: u32,
    },
    /// They make a subset with this tag.
    Tagged {
        /// The tag.
        tag: u32,
        /// The number of the subset, of those with this tag and list.
        attempt: u32,
    },
}

/// Where a world came from: what differs between ranks that are threads and ranks that are processes.
pub(crate) trait WorldOrigin: std::fmt::Debug + Send + Sync {
    /// Returns the world of some ranks of this one, by their numbers in the run. They find each other by the key and the list. Each of them
    /// asks once.
    ///
    /// # Errors
    /// [`Error::NoMemory`], or the failure of a peer that should have passed its memory. Ranks that are processes fail together.
    fn make_subset(&self, key: SubsetKey, ranks: Vec<u32>, limit: &mut WaitLimit<'_>) -> Result<Arc<World>>;

    /// Returns the number of the world from which this one was shrunk, maybe in several steps.
    fn root(&self) -> u64;

    /// Allocates memory that every rank can reach; `None` if ranks are threads, which reach all memory.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    fn allocate(&self, bytes: usize) -> Result<Option<HeapBlock>>;

    /// Returns the number of a rank's process, if it is another than this one and the system tells it.
    fn process_of(&self, rank: u32) -> Option<u32>;

    /// Notes that a stream to a rank of the run lies in a block, which the rank may read when this one has left.
    fn note_stream(&self, to: u32, block: &HeapBlock);

    /// Keeps a block of symmetric memory until the peer that may read it has left.
    fn keep_until(&self, block: HeapBlock, has_left: HasLeft);

    /// Keeps memory that other ranks can reach from being used again until a peer is harmless.
    fn withhold_until(&self, is_harmless: Box<IsHarmless>);

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
    /// As long as that of every other rank, at least [`most_filled`](nvcoll_core::limits::staging_bytes).
    pub(crate) staging: Arc<MemoryBlock>,
}

/// The size of a rank's words.
pub(crate) const WORDS_BYTES: usize = size_of::<RankWords>();

/// The size of a rank's bells.
pub(crate) const BELLS_BYTES: usize = size_of::<RankBells>();

impl World {
    /// Makes a world of ranks that are threads, by their numbers in the run. Their rank in it is their index in the list.
    fn of(ranks: Vec<u32>, is_group: bool, origin: Box<dyn WorldOrigin>) -> Self {
        let (words, bells) = (zeroed(ranks.len(), WORDS_BYTES), zeroed(ranks.len(), BELLS_BYTES));
        let lines = |at| RankLines::at((&words, at * WORDS_BYTES), (&bells, at * BELLS_BYTES));
        let lines: Vec<_> = (0..ranks.len()).map(lines).collect();
        Self {
            lines,
            staging: OnceLock::new(),
            staging_bytes: staging_bytes(ranks.len() as u32, ring_bytes(ranks.len() as u32)),
            addresses: Addresses::OneSpace,
            ranks,
            is_group,
            deaths: Arc::default(),
            streams: Mutex::default(),
            origin,
            kin: OnceLock::new(),
        }
    }

    /// Makes a world of ranks that map each other's memory, which is given for each.
    pub(crate) fn of_regions(
        ranks: Vec<u32>,
        is_group: bool,
        regions: Vec<RankRegions>,
        addresses: Addresses,
        deaths: Arc<Deaths>,
        origin: Box<dyn WorldOrigin>,
    ) -> Self {
        let lines: Vec<_> =
            regions.iter().map(|region| RankLines::at((&region.words, 0), (&region.bells, 0))).collect();
        let staging: Vec<_> = regions.into_iter().map(|region| region.staging).collect();
        let staging_bytes = staging.iter().map(|block| block.bytes()).min().unwrap_or(0);
        let (kin, streams) = (OnceLock::new(), Mutex::default());
        let staging = OnceLock::from(staging);
        Self { lines, staging, staging_bytes, addresses, ranks, is_group, deaths, streams, origin, kin }
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

    /// Returns the cause by which calls end if the process of a rank has ended without a word.
    pub(crate) fn death_of(&self, rank: u32) -> Option<Cause> {
        let end = self.deaths.end_of(self.ranks[rank as usize])?;
        // It may depart and end between two looks. Who has seen the end sees the departure.
        let has_departed = self.lines[rank as usize].departure.last().is_some();
        (!has_departed).then_some(Cause::Gone(rank, end))
    }

    /// Returns the cause by which calls end if a process of this world has ended without a word.
    #[inline]
    pub(crate) fn first_death(&self) -> Option<Cause> {
        if !self.deaths.is_any() {
            return None;
        }
        (0..self.world_size()).find_map(|rank| self.death_of(rank))
    }

    /// Returns the number of the process of a rank, if it is another than this one and the system tells it.
    pub(crate) fn process_of(&self, rank: u32) -> Option<u32> {
        self.origin.process_of(self.ranks[rank as usize])
    }

    /// Says whether a rank touches nobody's buffers: it is in no call, has acknowledged an abort, or runs no more.
    pub(crate) fn is_quiet(&self, rank: u32) -> bool {
        self.lines[rank as usize].activity.is_quiet() || self.deaths.is_over(self.ranks[rank as usize])
    }

    /// Withholds memory that a rank may still write, until it is quiet.
    pub(crate) fn withhold_from(&self, rank: u32) {
        // The words, not the world: it holds the heap.
        let words = self.lines[rank as usize].words().clone();
        let (deaths, of_run) = (self.deaths.clone(), self.ranks[rank as usize]);
        self.origin.withhold_until(Box::new(move || words.activity.is_quiet() || deaths.is_over(of_run)));
    }

    /// Returns the ranks of the run, in the order of ranks here.
    pub(crate) fn ranks(&self) -> &[u32] {
        &self.ranks
    }

    /// Says whether the world was split off from another.
    pub(crate) fn is_group(&self) -> bool {
        self.is_group
    }

    /// Gives a subset of `parent` its name. The first of its ranks in this process does it, before it makes a call there.
    pub(crate) fn name_subset(&self, parent: &Self, key: SubsetKey) {
        let (of, split) = match key {
            SubsetKey::Split { call, .. } => (parent.name().id, call),
            SubsetKey::Shrink { .. } => (parent.origin.root(), 0),
            SubsetKey::Tagged { .. } => (parent.name().id, SUBSET),
        };
        let mut hasher = DefaultHasher::new();
        (of, key, &self.ranks).hash(&mut hasher);
        let name = WorldName { id: hasher.finish().max(1), split, ranks: self.ranks.iter().copied().collect() };
        _ = self.kin.set(Kin { name, board: parent.kin().board.clone() });
    }

    fn kin(&self) -> &Kin {
        let of_all = || WorldName { id: 0, split: 0, ranks: self.ranks.iter().copied().collect() };
        self.kin.get_or_init(|| Kin { name: of_all(), board: NoticeBoard::of(&self.lines) })
    }

    /// Returns the name of this communicator.
    pub(crate) fn name(&self) -> &WorldName {
        &self.kin().name
    }

    /// Writes into the words of rank `own` whose they are, for readers in other programs; `job` names the job, or is empty.
    pub(crate) fn identify(&self, own: u32, job: &str) {
        let rank = self.ranks[own as usize];
        let world_size = self.board().world_size();
        let identity =
            Identity { process: std::process::id(), rank, world_size, world: *self.name(), job: job.to_owned() };
        self.lines[own as usize].identity.post(&identity.words(WORDS_BYTES));
    }

    /// Returns the notice that rank `own` waits in a call for some ranks of the run.
    pub(crate) fn notice_of_call(&self, own: u32, call: u32, awaited: RankList) -> Notice {
        let record = self.lines[own as usize].record.read(call);
        Notice { world: *self.name(), call, record, awaited, since_ns: 0, until_ns: 0 }
    }

    /// Returns the board of all ranks of the run.
    pub(crate) fn board(&self) -> &NoticeBoard {
        &self.kin().board
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
        let bytes = self.staging_bytes;
        let block = |_| MemoryBlock::try_zeroed(bytes).map(Arc::new);
        let blocks: Option<Vec<_>> = self.lines.iter().map(block).collect();
        let blocks = blocks.ok_or(Error::NoMemory { what: "staging", bytes })?;
        // A peer that was faster has made the one that counts.
        let _ = self.staging.set(blocks);
        Ok(())
    }

    /// Returns the bytes of staging of each rank.
    #[inline]
    pub(crate) fn staging_bytes(&self) -> usize {
        self.staging_bytes
    }

    /// Makes the memory of a stream of messages to a rank, which lives as long as the world; returns its address.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub(crate) fn make_stream(&self, to: u32, bytes: usize) -> Result<*mut u8> {
        let block = ReachableBlock::allocate(self, "messages", bytes)?;
        if let ReachableBlock::Symmetric(block) = &block {
            self.origin.note_stream(self.ranks[to as usize], block);
        }
        let start = block.start();
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).push((to, block));
        Ok(start)
    }

    /// Returns the address of a rank's staging, which must exist.
    pub(crate) fn staging(&self, rank: u32) -> *mut u8 {
        self.staging.get().expect("it is made before a call begins that needs it")[rank as usize].start()
    }
}

impl Drop for World {
    /// Keeps the streams to ranks that are processes and have not left this world yet, for they may read them.
    fn drop(&mut self) {
        for (to, block) in std::mem::take(self.streams.get_mut().unwrap_or_else(PoisonError::into_inner)) {
            if let ReachableBlock::Symmetric(block) = block {
                self.origin.keep_until(block, self.lines[to as usize].departure_of_peer());
            }
        }
    }
}

/// Allocates zeros for some ranks; ends the process if there is no memory, as `Vec` does.
fn zeroed(ranks: usize, bytes: usize) -> Arc<MemoryBlock> {
    let block = MemoryBlock::try_zeroed(ranks * bytes);
    Arc::new(block.unwrap_or_else(|| handle_alloc_error(Layout::new::<RankWords>())))
}
