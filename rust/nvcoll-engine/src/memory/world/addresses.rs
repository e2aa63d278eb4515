//! Addresses in records. A rank says where its memory lies, and each peer finds it in its own address space.
//!
//! | ranks | a record says | a peer finds it |
//! |---|---|---|
//! | threads | the address | there |
//! | processes | the number of a region of the rank and the offset in it, or 0 for memory of its own | where it mapped that region |
//!
//! A rank makes regions as it needs them, and passes each to its peers. A peer receives and maps a region when a record first names it.

use std::sync::{Arc, OnceLock};

use crate::memory::block::MemoryBlock;

/// The most regions of a rank. Chosen: each new region is as long as all before together, so that few are needed.
pub(crate) const MOST_REGIONS: usize = 48;

/// The bits of an offset. Cited: the user's half of a 48-bit address space.
const OFFSET_BITS: u32 = 47;

/// How addresses stand in records.
#[derive(Debug)]
pub(crate) enum Addresses {
    /// All ranks share one address space.
    OneSpace,
    /// Every rank has its own; `ranks` has the rank of the run for each rank of the world.
    Regions { table: Arc<RegionTable>, ranks: Vec<u32> },
}

impl Addresses {
    /// Returns the word that stands for an address of rank `own` in its records.
    #[inline]
    pub(crate) fn word_of(&self, own: u32, address: *mut u8) -> u64 {
        match self {
            Self::OneSpace => address as usize as u64,
            Self::Regions { table, ranks } => table.word_of(ranks[own as usize], address),
        }
    }

    /// Returns the address here of the memory for which a word of `rank` stands; null for memory of its own, and `None` if the
    /// memory could not be mapped here.
    #[inline]
    pub(crate) fn address_of(&self, rank: u32, word: u64) -> Option<*mut u8> {
        match self {
            Self::OneSpace => Some(word as usize as *mut u8),
            Self::Regions { table, ranks } => table.address_of(ranks[rank as usize], word),
        }
    }

    /// Says whether every rank can reach `bytes` bytes of rank `own` from `address` on.
    pub(crate) fn is_reachable(&self, own: u32, address: *mut u8, bytes: usize) -> bool {
        match self {
            Self::OneSpace => true,
            Self::Regions { table, ranks } => {
                bytes == 0 || table.region_of(ranks[own as usize], address, bytes).is_some()
            }
        }
    }
}

/// Receives and maps a region, by rank of the run and number; `None` if there is no memory or the rank is gone.
pub(crate) type ReceiveRegion = dyn Fn(u32, usize) -> Option<Arc<MemoryBlock>> + Send + Sync;

/// The regions of every rank of the run, as they are mapped here; `None` is one that could not be mapped, since its message comes once.
pub(crate) struct RegionTable {
    mapped: Vec<[OnceLock<Option<Arc<MemoryBlock>>>; MOST_REGIONS]>,
    receive: Box<ReceiveRegion>,
}

impl RegionTable {
    /// Makes the table of ranks that have no regions yet.
    pub(crate) fn new(world_size: u32, receive: Box<ReceiveRegion>) -> Self {
        Self { mapped: (0..world_size).map(|_| [const { OnceLock::new() }; MOST_REGIONS]).collect(), receive }
    }

    /// Adds a region of a rank, which stays.
    pub(crate) fn add(&self, rank: u32, number: usize, block: Arc<MemoryBlock>) {
        let _ = self.mapped[rank as usize][number].set(Some(block));
    }

    fn region_of(&self, own: u32, address: *mut u8, bytes: usize) -> Option<(usize, usize)> {
        // Those of a peer are mapped in any order, so there may be gaps.
        let regions = self.mapped[own as usize].iter().enumerate();
        let regions = regions.filter_map(|(number, place)| Some((number, place.get()?.as_ref()?)));
        let offset_in = |block: &MemoryBlock| {
            let offset = address.addr().checked_sub(block.start().addr())?;
            (offset < block.bytes() && bytes <= block.bytes() - offset).then_some(offset)
        };
        regions.filter_map(|(number, block)| Some((number, offset_in(block)?))).next()
    }

    fn word_of(&self, own: u32, address: *mut u8) -> u64 {
        let place = self.region_of(own, address, 1);
        place.map_or(0, |(number, offset)| (number as u64 + 1) << OFFSET_BITS | offset as u64)
    }

    fn address_of(&self, rank: u32, word: u64) -> Option<*mut u8> {
        if word == 0 {
            return Some(std::ptr::null_mut());
        }
        let (number, offset) = ((word >> OFFSET_BITS) as usize, (word & ((1 << OFFSET_BITS) - 1)) as usize);
        let place = self.mapped[rank as usize].get(number.checked_sub(1)?)?;
        // Of several threads one receives it, and the others wait.
        let block = place.get_or_init(|| (self.receive)(rank, number - 1)).as_ref()?;
        (offset < block.bytes()).then(|| block.start().wrapping_add(offset))
    }
}

impl std::fmt::Debug for RegionTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RegionTable").field("mapped", &self.mapped).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread::{scope, sleep};
    use std::time::Duration;

    #[test]
    fn a_region_is_received_once_by_however_many_threads_and_whether_or_not_it_can_be_mapped() {
        let received = Arc::new(AtomicU32::new(0));
        let count = received.clone();
        let receive = move |_, number| {
            count.fetch_add(1, Ordering::Relaxed);
            sleep(Duration::from_millis(20)); // the other thread comes meanwhile
            (number == 0).then(|| Arc::new(MemoryBlock::try_zeroed(100).unwrap()))
        };
        let table = RegionTable::new(1, Box::new(receive));
        for (word, is_mapped) in [(1 << OFFSET_BITS, true), (2 << OFFSET_BITS, false)] {
            scope(|scope| {
                let both = [(); 2].map(|()| scope.spawn(|| table.address_of(0, word).map(<*mut u8>::addr)));
                let found = both.map(|thread| thread.join().unwrap());
                assert_eq!(found.map(|address| address.is_some()), [is_mapped; 2]);
                assert_eq!(found[0], found[1]);
            });
        }
        assert_eq!(received.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_word_leads_to_the_same_byte_in_another_mapping() {
        let block = |bytes| Arc::new(MemoryBlock::try_zeroed(bytes).unwrap());
        let table = RegionTable::new(2, Box::new(move |rank, number| (number < 1).then(|| block(100 + rank as usize))));
        let (first, second, private) = (block(100), block(200), block(100));
        table.add(0, 0, first.clone());
        table.add(0, 1, second.clone());
        let addresses = Addresses::Regions { table: Arc::new(table), ranks: vec![1, 0] };
        let word = addresses.word_of(1, second.start().wrapping_add(7));
        assert_eq!(addresses.address_of(1, word), Some(second.start().wrapping_add(7)));
        assert!(addresses.is_reachable(1, first.start(), 100) && !addresses.is_reachable(1, first.start(), 101));
        assert_eq!(addresses.word_of(1, private.start()), 0, "memory of its own");
        assert_eq!(addresses.address_of(1, 0), Some(std::ptr::null_mut()));
        let received = addresses.address_of(0, 1 << OFFSET_BITS).unwrap();
        assert_eq!(addresses.address_of(0, 1 << OFFSET_BITS | 100), Some(received.wrapping_add(100)), "mapped once");
        assert_eq!(addresses.address_of(0, word), None, "there is no such region");
        assert_eq!(addresses.address_of(0, u64::MAX), None);
    }
}
