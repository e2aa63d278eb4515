//! The lines of one rank: the words and records that it shows to its peers.
//!
//! ```text
//! RankWords   identity, stamp, records and what they have no room for, activity,
//!             departure, life, rendezvous, progress, notices, calls of a batch,
//!             outbox, wanted                                                           the rank writes, its peers read
//! RankBells   doorbells, the bell of the guard; on the first rank the abort word of the world                every rank writes
//! RankNotes   arrays behind copies, footprints                                     ranks of one process only
//! ```
//!
//! Words and bells are atomics without addresses, and start as zero. So they can lie in memory that ranks map: on the heap for ranks
//! that are threads, in a file without a name for ranks that are processes, where peers map the words read-only.
//!
//! Notes hold what ranks tell each other about their address space. Ranks that are processes have none in common. A rank then writes
//! notes that only itself can read, and reads empty notes of its peers: no memory overlaps.

use std::ops::Deref;
use std::sync::Arc;

use crate::call::description::DESCRIPTION_WORDS;
use crate::memory::block::MemoryBlock;
use crate::memory::footprint::Footprints;
use crate::memory::originals::OriginalArrays;
use crate::memory::world::identity::IDENTITY_WORDS;
use crate::memory::world::notice::{NOTICES, NOTICE_WORDS};
use crate::sync::atomic::AtomicBool;
use crate::sync::progress::QUEUES;
use crate::sync::record::PLACES;
use crate::sync::wanted::{GuardBell, Wanted};
use crate::sync::{
    Abort, Activity, BatchRecords, Departure, Doorbell, Life, Outbox, Posted, Progress, RecordLine, Rendezvous, Stamp,
};

/// Says whether a peer has left a world, also when this rank has.
pub(crate) type HasLeft = Box<dyn Fn() -> bool + Send>;

/// The words of one rank, which it alone writes.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct RankWords {
    /// Comes first in every version of nvcoll.
    pub(crate) identity: Posted<IDENTITY_WORDS>,
    pub(crate) stamp: Stamp,
    pub(crate) record: RecordLine,
    /// What the record of the call in the same place has no room for. It is of that call if it begins with its fingerprint.
    pub(crate) described: [Posted<DESCRIPTION_WORDS>; PLACES],
    pub(crate) activity: Activity,
    pub(crate) departure: Departure,
    /// Only that in the world of all ranks is used, of ranks that are processes.
    pub(crate) life: Life,
    /// As `life`, of ranks of every kind.
    pub(crate) rendezvous: Rendezvous,
    pub(crate) progress: [Progress; QUEUES],
    /// Those in the world of all ranks are used, for the waits of all communicators of the rank.
    pub(crate) notices: [Posted<NOTICE_WORDS>; NOTICES],
    pub(crate) batch: BatchRecords,
    pub(crate) outbox: Outbox,
    /// As `life`.
    pub(crate) wanted: Wanted,
}

/// The words of one rank that its peers write too.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct RankBells {
    pub(crate) doorbell: Doorbell,
    /// On which the rank sleeps that waits for messages: another thread of it may be in a call meanwhile.
    pub(crate) message_bell: Doorbell,
    /// Only that of the first rank is used.
    pub(crate) abort: Abort,
    /// As `life`.
    pub(crate) guard_bell: GuardBell,
}

/// What a rank tells peers in its address space.
#[derive(Debug, Default)]
pub(crate) struct RankNotes {
    pub(crate) originals: OriginalArrays,
    pub(crate) footprints: Footprints,
    /// Whether the rank still has results in copies: from before its stamp until the results are in its arrays.
    pub(crate) has_copies: AtomicBool,
}

/// The lines of one rank.
#[derive(Debug)]
pub(crate) struct RankLines {
    words: InBlock<RankWords>,
    bells: InBlock<RankBells>,
    pub(crate) notes: RankNotes,
}

impl RankLines {
    /// Makes the lines of a rank whose words and bells lie in blocks, at these offsets.
    ///
    /// # Panics
    /// If a block is too short, or an offset is not that of a line.
    pub(super) fn at(words: (&Arc<MemoryBlock>, usize), bells: (&Arc<MemoryBlock>, usize)) -> Self {
        Self { words: InBlock::at(words), bells: InBlock::at(bells), notes: RankNotes::default() }
    }

    pub(crate) fn doorbell(&self) -> &Doorbell {
        &self.bells.doorbell
    }

    pub(crate) fn guard_bell(&self) -> &GuardBell {
        &self.bells.guard_bell
    }

    pub(super) fn words(&self) -> &InBlock<RankWords> {
        &self.words
    }

    pub(crate) fn message_bell(&self) -> &Doorbell {
        &self.bells.message_bell
    }

    /// Returns the words, which outlive the world.
    pub(crate) fn own_words(&self) -> InBlock<RankWords> {
        self.words.clone()
    }

    /// Returns all bells, which outlive the world.
    pub(crate) fn all_bells(&self) -> InBlock<RankBells> {
        self.bells.clone()
    }

    /// Returns a question that outlives the world: whether the rank has left it.
    pub(super) fn departure_of_peer(&self) -> HasLeft {
        let words = self.words.clone();
        Box::new(move || words.departure.last().is_some())
    }

    /// Returns the doorbells of the rank.
    pub(crate) fn bells(&self) -> [&Doorbell; 2] {
        [self.doorbell(), self.message_bell()]
    }

    pub(super) fn abort(&self) -> &Abort {
        &self.bells.abort
    }
}

impl Deref for RankLines {
    type Target = RankWords;

    #[inline]
    fn deref(&self) -> &RankWords {
        &self.words
    }
}

/// Types that consist of atomics, and of bytes that are reached by their address alone; zeros are a value.
///
/// # Safety
/// As the first line says.
pub(crate) unsafe trait Words {}

// SAFETY: every field is made of atomic integers, and of the data in stamp lines.
unsafe impl Words for RankWords {}
// SAFETY: as above.
unsafe impl Words for RankBells {}

/// Words that lie in a block.
#[derive(Debug)]
pub(crate) struct InBlock<T> {
    at: *const T,
    /// Holds the memory.
    _block: Arc<MemoryBlock>,
}

// SAFETY: it is a shared reference to atomics, and holds their memory.
unsafe impl<T: Words + Sync> Send for InBlock<T> {}
// SAFETY: as above.
unsafe impl<T: Words + Sync> Sync for InBlock<T> {}

impl<T: Words> InBlock<T> {
    pub(crate) fn at((block, offset): (&Arc<MemoryBlock>, usize)) -> Self {
        assert!(offset.checked_add(size_of::<T>()).is_some_and(|end| end <= block.bytes()), "words beyond their block");
        let at = block.start().wrapping_add(offset).cast_const().cast::<T>();
        assert!(at.is_aligned(), "words that do not begin on a line");
        Self { at, _block: block.clone() }
    }
}

impl<T> Clone for InBlock<T> {
    fn clone(&self) -> Self {
        Self { at: self.at, _block: self._block.clone() }
    }
}

impl<T: Words> Deref for InBlock<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `at` asserted that a `T` lies in the block, which lives as long as `self`. Blocks begin as zeros, and `Words`
        // says that any bytes are a `T`. Nobody reaches them but as `Words` says: blocks of words are used for nothing else.
        unsafe { &*self.at }
    }
}
