//! Addresses in records. A rank says where its memory lies, and each peer finds it in its own address space.
//!
//! | ranks | a record says | a peer finds it |
//! |---|---|---|
//! | threads | the address | there |
//! | processes | the number of a region of the rank and the offset in it, or 0 for memory of its own | where it mapped that region |
//!
//! A rank makes regions as it needs them. A peer asks for a region and maps it when a record first names it, and asks again if that failed.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::error::Result;
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

    /// Returns the address here of the memory for which a word of `rank` stands; null for memory of its own.
    #[inline]
    pub(crate) fn address_of(&self, rank: u32, word: u64) -> std::result::Result<*mut u8, Unreached> {
        match self {
            Self::OneSpace => Ok(word as usize as *mut u8),
            Self::Regions { table, ranks } => table.address_of(ranks[rank as usize], word),
        }
    }

    /// Returns the reason for which memory of a peer could not be mapped at last, if there is one.
    pub(crate) fn refusal(&self) -> Option<String> {
        match self {
            Self::OneSpace => None,
            Self::Regions { table, .. } => table.refusal.lock().unwrap_or_else(PoisonError::into_inner).clone(),
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

/// The reason for which memory of a peer is not mapped here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unreached {
    /// The peer has not answered yet.
    Unanswered,
    /// The peer, or this process, cannot: see [`Addresses::refusal`].
    Refused,
}

/// Asks for a region, by rank of the run and number, and maps it; `None` if the rank has not answered yet.
pub(crate) type AskForRegion = dyn Fn(u32, usize) -> Result<Option<Arc<MemoryBlock>>> + Send + Sync;

/// The regions of every rank of the run, as far as they are mapped here.
pub(crate) struct RegionTable {
    mapped: Vec<[OnceLock<Arc<MemoryBlock>>; MOST_REGIONS]>,
    ask: Box<AskForRegion>,
    /// Held by the thread that asks.
    asking: Mutex<()>,
    /// The last reason for which memory could not be mapped.
    refusal: Mutex<Option<String>>,
}

impl RegionTable {
    /// Makes the table of ranks that have no regions yet.
    pub(crate) fn new(world_size: u32, ask: Box<AskForRegion>) -> Self {
        let mapped = (0..world_size).map(|_| [const { OnceLock::new() }; MOST_REGIONS]).collect();
        Self { mapped, ask, asking: Mutex::default(), refusal: Mutex::default() }
    }

    /// Adds a region of a rank, which stays.
    pub(crate) fn add(&self, rank: u32, number: usize, block: Arc<MemoryBlock>) {
        let _ = self.mapped[rank as usize][number].set(block);
    }

    fn region_of(&self, own: u32, address: *mut u8, bytes: usize) -> Option<(usize, usize)> {
        // The regions of a peer are mapped in any order, so there may be gaps.
        let regions = self.mapped[own as usize].iter().enumerate();
        let regions = regions.filter_map(|(number, place)| Some((number, place.get()?)));
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

    fn address_of(&self, rank: u32, word: u64) -> std::result::Result<*mut u8, Unreached> {
        if word == 0 {
            return Ok(std::ptr::null_mut());
        }
        let (number, offset) = ((word >> OFFSET_BITS) as usize, (word & ((1 << OFFSET_BITS) - 1)) as usize);
        let number = number.checked_sub(1).filter(|&number| number < MOST_REGIONS).ok_or(Unreached::Refused)?;
        let place = &self.mapped[rank as usize][number];
        let block = match place.get() {
            Some(block) => block,
            None => self.ask_for(rank, number, place)?,
        };
        (offset < block.bytes()).then(|| block.start().wrapping_add(offset)).ok_or(Unreached::Refused)
    }

    /// Asks for a region that is not mapped here. Of several threads one asks, and the others wait.
    #[cold]
    fn ask_for<'a>(
        &self,
        rank: u32,
        number: usize,
        place: &'a OnceLock<Arc<MemoryBlock>>,
    ) -> std::result::Result<&'a Arc<MemoryBlock>, Unreached> {
        let _asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(block) = place.get() {
            return Ok(block);
        }
        match (self.ask)(rank, number) {
            Ok(Some(block)) => Ok(place.get_or_init(|| block)),
            Ok(None) => Err(Unreached::Unanswered),
            Err(error) => {
                *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
                Err(Unreached::Refused)
            }
        }
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
    use crate::error::Error;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread::{scope, sleep};
    use std::time::Duration;

    #[test]
    fn a_region_is_asked_for_by_one_thread_at_a_time_until_it_is_there() {
        let asked = Arc::new(AtomicU32::new(0));
        let count = asked.clone();
        let ask = move |_, number| {
            sleep(Duration::from_millis(20)); // the other thread comes meanwhile
            match (count.fetch_add(1, Ordering::Relaxed), number) {
                (0, _) => Ok(None),
                (_, 0) => Ok(Some(Arc::new(MemoryBlock::try_zeroed(100).unwrap()))),
                _ => Err(Error::Invalid("no memory today".into())),
            }
        };
        let table = Arc::new(RegionTable::new(1, Box::new(ask)));
        let addresses = Addresses::Regions { table, ranks: vec![0] };
        assert_eq!(addresses.address_of(0, 1 << OFFSET_BITS), Err(Unreached::Unanswered));
        scope(|scope| {
            let both = [(); 2].map(|()| scope.spawn(|| addresses.address_of(0, 1 << OFFSET_BITS).map(<*mut u8>::addr)));
            let [one, other] = both.map(|thread| thread.join().unwrap());
            assert!(one.is_ok() && one == other);
        });
        assert_eq!((asked.load(Ordering::Relaxed), addresses.refusal()), (2, None));
        for _ in 0..2 {
            assert_eq!(addresses.address_of(0, 2 << OFFSET_BITS), Err(Unreached::Refused));
        }
        assert_eq!(asked.load(Ordering::Relaxed), 4, "asked again");
        assert_eq!(addresses.refusal().as_deref(), Some("no memory today"));
    }

    #[test]
    fn a_word_leads_to_the_same_byte_in_another_mapping() {
        let block = |bytes| Arc::new(MemoryBlock::try_zeroed(bytes).unwrap());
        let table = RegionTable::new(
            2,
            Box::new(move |rank, number| match number {
                0 => Ok(Some(block(100 + rank as usize))),
                _ => Err(Error::Invalid("no such region".into())),
            }),
        );
        let (first, second, private) = (block(100), block(200), block(100));
        table.add(0, 0, first.clone());
        table.add(0, 1, second.clone());
        let addresses = Addresses::Regions { table: Arc::new(table), ranks: vec![1, 0] };
        let word = addresses.word_of(1, second.start().wrapping_add(7));
        assert_eq!(addresses.address_of(1, word), Ok(second.start().wrapping_add(7)));
        assert!(addresses.is_reachable(1, first.start(), 100) && !addresses.is_reachable(1, first.start(), 101));
        assert_eq!(addresses.word_of(1, private.start()), 0, "memory of its own");
        assert_eq!(addresses.address_of(1, 0), Ok(std::ptr::null_mut()));
        let received = addresses.address_of(0, 1 << OFFSET_BITS).unwrap();
        assert_eq!(addresses.address_of(0, 1 << OFFSET_BITS | 100), Ok(received.wrapping_add(100)), "mapped once");
        assert_eq!(addresses.address_of(0, word), Err(Unreached::Refused), "there is no such region");
        assert_eq!(addresses.address_of(0, u64::MAX), Err(Unreached::Refused));
    }
}
