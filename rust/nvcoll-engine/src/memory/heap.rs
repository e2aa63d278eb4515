//! The symmetric heap of a rank: memory for arrays that every rank can reach.
//!
//! ```text
//! region 0   |block|free      |block     |        a region is memory that processes share (`shared.rs`)
//! region 1   |block              |free      |     each new region is as long as all before together, or as long as its first block
//!            |pages|no pages                |     a region has pages where blocks are, and where some were
//! ```
//!
//! A block is the smallest free range that is long enough. A released block joins the free ranges beside it. Regions stay until the
//! process ends, because peers have mapped them; their number is small, since they double. Pages that no block has had yet cost nothing.
//!
//! **Pages go back.** A released block keeps its pages, so that an array of the next step has them at once, while the free ranges have at most
//! the pages of the blocks, or [`KEPT_BYTES`]. Beyond that the system gets the pages of all free ranges.
//!
//! **Quarantine.** A rank whose call failed gives up waiting for a peer that is stopped. That peer may still store into the blocks of the
//! call when it runs again. From then on, released blocks are withheld until it is quiet or dead: no other array gets their memory. The
//! heap withholds all released blocks, not only the blocks of the call: it does not know which array was in which call.
//!
//! What it does not do: it gives no region back, and it does not move blocks.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Result, SYMMETRIC_MEMORY};
use crate::memory::block::MemoryBlock;
use crate::memory::world::addresses::MOST_REGIONS;

/// Blocks begin at multiples of this many bytes. Chosen: two cache lines, which are fetched together.
const ALIGNMENT_BYTES: usize = 128;

/// Regions are multiples of this many bytes. Cited: a huge page on x86-64 and most arm64 Linux.
const REGION_STEP_BYTES: usize = 2 << 20;

/// The bytes of free pages that a heap keeps in any case. Chosen: some buckets of gradients.
const KEPT_BYTES: usize = 64 << 20;

/// The least range whose pages are given back. Chosen: a huge page.
const RETURNED_FROM_BYTES: usize = 2 << 20;

/// A page. Cited: the smallest of Linux on x86-64; larger ones are multiples, and the system gives no part of one back.
const PAGE_BYTES: usize = 4096;

/// The memory behind a region, which has pages where they are asked for.
pub(crate) trait HeapPages: std::fmt::Debug + Send + Sync {
    /// Gives a range pages, if it has none.
    ///
    /// # Errors
    /// [`Error::NoMemory`], [`Error::System`].
    fn fill(&self, range: Range<usize>) -> Result<()>;

    /// Gives the pages inside of a range back to the system. What is read there is zeros.
    fn empty(&self, range: Range<usize>);
}

/// A region of a heap: its mapping, and the memory behind it. Without that it has all pages.
#[derive(Debug, Clone)]
pub(crate) struct HeapRegion {
    pub(crate) block: Arc<MemoryBlock>,
    pub(crate) memory: Option<Arc<dyn HeapPages>>,
}

/// A range without a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FreeRange {
    bytes: usize,
    /// The most bytes of it that have pages.
    held_bytes: usize,
    /// Whether pages may be missing in it.
    has_holes: bool,
}

/// Makes region number `n` of some bytes, for which peers may ask.
pub(crate) type MakeRegion = dyn Fn(usize, usize) -> Result<HeapRegion> + Send + Sync;

/// Says whether a peer that was stopped in a failed call writes no memory of this rank any more.
pub(crate) type IsHarmless = dyn Fn() -> bool + Send + Sync;

/// The heap of one rank.
pub(crate) struct SymmetricHeap {
    state: Mutex<HeapState>,
    make_region: Box<MakeRegion>,
}

#[derive(Default)]
struct HeapState {
    regions: Vec<HeapRegion>,
    /// The free ranges, by region and offset.
    free: BTreeMap<(usize, usize), FreeRange>,
    /// The bytes of all blocks.
    used_bytes: usize,
    /// Released blocks that some peer may still write.
    withheld: Vec<((usize, usize), usize)>,
    /// Each says whether one such peer is harmless now.
    are_harmless: Vec<Box<IsHarmless>>,
}

/// A block of a heap. It is returned when the value is dropped.
#[derive(Debug)]
pub struct HeapBlock {
    heap: Arc<SymmetricHeap>,
    place: (usize, usize),
    bytes: usize,
    start: *mut u8,
}

// SAFETY: a block is an address and a length, and whoever has it alone uses the memory.
unsafe impl Send for HeapBlock {}
// SAFETY: a shared block gives away its address and length only.
unsafe impl Sync for HeapBlock {}

impl SymmetricHeap {
    /// Makes an empty heap.
    pub(crate) fn new(make_region: Box<MakeRegion>) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), make_region })
    }

    /// Allocates at least `bytes` bytes, whose contents are undefined.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub(crate) fn allocate(self: &Arc<Self>, bytes: usize) -> Result<HeapBlock> {
        let no_memory = Error::NoMemory { what: SYMMETRIC_MEMORY, bytes };
        let wanted = bytes.max(1).checked_next_multiple_of(ALIGNMENT_BYTES).ok_or(no_memory)?;
        let mut state = self.lock();
        state.end_quarantine();
        let place = match state.take(wanted)? {
            Some(place) => place,
            None => {
                self.grow(&mut state, wanted)?;
                state.take(wanted)?.expect("the new region is long enough")
            }
        };
        let start = state.regions[place.0].block.start().wrapping_add(place.1);
        Ok(HeapBlock { heap: self.clone(), place, bytes: wanted, start })
    }

    /// Withholds blocks that are released from now on, until a peer is harmless.
    pub(crate) fn withhold_until(&self, is_harmless: Box<IsHarmless>) {
        self.lock().are_harmless.push(is_harmless);
    }

    /// Adds a region with room for `wanted` bytes.
    fn grow(&self, state: &mut HeapState, wanted: usize) -> Result<()> {
        let number = state.regions.len();
        let no_memory = Error::NoMemory { what: SYMMETRIC_MEMORY, bytes: wanted };
        let least =
            wanted.checked_next_multiple_of(REGION_STEP_BYTES).filter(|_| number < MOST_REGIONS).ok_or(no_memory)?;
        let present: usize = state.regions.iter().map(|region| region.block.bytes()).sum();
        let region = (self.make_region)(number, least.max(present)).or_else(|_| (self.make_region)(number, least))?;
        let has_holes = region.memory.is_some();
        state.free.insert((number, 0), FreeRange { bytes: region.block.bytes(), held_bytes: 0, has_holes });
        state.regions.push(region);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, HeapState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HeapState {
    /// Takes the smallest free range that has room, and sees to its pages.
    fn take(&mut self, wanted: usize) -> Result<Option<(usize, usize)>> {
        let fitting = self.free.iter().filter(|(_, range)| range.bytes >= wanted);
        let Some((&place, &range)) = fitting.min_by_key(|(_, range)| range.bytes) else { return Ok(None) };
        if let (true, Some(memory)) = (range.has_holes, &self.regions[place.0].memory) {
            let end = (place.1 + wanted).next_multiple_of(PAGE_BYTES).min(place.1 + range.bytes);
            memory.fill(place.1..end)?;
        }
        self.free.remove(&place);
        if range.bytes > wanted {
            let bytes = range.bytes - wanted;
            let rest = FreeRange { bytes, held_bytes: range.held_bytes.min(bytes), ..range };
            self.free.insert((place.0, place.1 + wanted), rest);
        }
        self.used_bytes += wanted;
        Ok(Some(place))
    }

    /// Releases what was withheld, if no peer may write it any more; says whether none may.
    fn end_quarantine(&mut self) -> bool {
        self.are_harmless.retain(|is_harmless| !is_harmless());
        if self.are_harmless.is_empty() {
            std::mem::take(&mut self.withheld).into_iter().for_each(|(place, bytes)| self.release(place, bytes));
        }
        self.are_harmless.is_empty()
    }

    /// Returns a range, and joins it with its free neighbours.
    fn release(&mut self, (region, mut offset): (usize, usize), bytes: usize) {
        self.used_bytes -= bytes;
        let mut released = FreeRange { bytes, held_bytes: bytes, has_holes: false };
        if let Some(behind) = self.free.remove(&(region, offset + bytes)) {
            released = released.joined(behind);
        }
        let before = self.free.range(..(region, offset)).next_back();
        let before = before.filter(|(&(of, start), range)| of == region && start + range.bytes == offset);
        if let Some((&place, &range)) = before {
            self.free.remove(&place);
            (offset, released) = (place.1, released.joined(range));
        }
        self.free.insert((region, offset), released);
        if self.free.values().map(|range| range.held_bytes).sum::<usize>() > self.used_bytes.max(KEPT_BYTES) {
            self.return_pages();
        }
    }

    /// Gives the pages of the free ranges back to the system.
    fn return_pages(&mut self) {
        for (&(region, offset), range) in &mut self.free {
            let pages = offset.next_multiple_of(PAGE_BYTES)..(offset + range.bytes) / PAGE_BYTES * PAGE_BYTES;
            let Some(memory) = &self.regions[region].memory else { continue };
            if range.held_bytes > 0 && pages.len() >= RETURNED_FROM_BYTES {
                memory.empty(pages);
                (range.held_bytes, range.has_holes) = (0, true);
            }
        }
    }
}

impl FreeRange {
    fn joined(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            held_bytes: self.held_bytes + other.held_bytes,
            has_holes: self.has_holes || other.has_holes,
        }
    }
}

impl HeapBlock {
    /// Returns the address of the first byte.
    pub fn start(&self) -> *mut u8 {
        self.start
    }

    /// Returns the number of its region.
    pub(crate) fn region(&self) -> usize {
        self.place.0
    }

    /// Returns the size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for HeapBlock {
    fn drop(&mut self) {
        let mut state = self.heap.lock();
        match state.end_quarantine() {
            true => state.release(self.place, self.bytes),
            false => state.withheld.push((self.place, self.bytes)),
        }
    }
}

impl std::fmt::Debug for SymmetricHeap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.lock();
        f.debug_struct("SymmetricHeap").field("regions", &state.regions.len()).field("free", &state.free).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn heap() -> Arc<SymmetricHeap> {
        let block = |bytes| Arc::new(MemoryBlock::try_zeroed(bytes).unwrap());
        let make = move |_, bytes| Ok(HeapRegion { block: block(bytes), memory: None });
        SymmetricHeap::new(Box::new(make))
    }

    #[test]
    fn a_heap_whose_blocks_are_all_released_is_one_free_range_per_region() {
        let heap = heap();
        let blocks: Vec<_> = [1, 5 << 20, 128, 129, 3 << 20].map(|bytes| heap.allocate(bytes).unwrap()).into();
        let regions = heap.lock().regions.len();
        drop(blocks);
        let state = heap.lock();
        let whole: Vec<_> =
            state.regions.iter().enumerate().map(|(n, region)| ((n, 0), region.block.bytes())).collect();
        assert_eq!(state.free.iter().map(|(&place, range)| (place, range.bytes)).collect::<Vec<_>>(), whole);
        assert_eq!(state.used_bytes, 0);
        assert_eq!(regions, 3, "2 MiB, 6 MiB, 8 MiB");
    }

    #[test]
    fn blocks_released_in_a_quarantine_are_given_to_nobody_until_it_ends() {
        use std::sync::atomic::{AtomicBool, Ordering};
        let (heap, is_harmless) = (heap(), Arc::new(AtomicBool::new(false)));
        let places = || [(); 2].map(|()| heap.allocate(1000).unwrap().place);
        assert_eq!(places(), [(0, 0); 2], "a released block is used again");
        let peer = is_harmless.clone();
        heap.withhold_until(Box::new(move || peer.load(Ordering::Relaxed)));
        assert_eq!(places(), [(0, 0), (0, 1024)]);
        is_harmless.store(true, Ordering::Relaxed);
        assert_eq!(places(), [(0, 0); 2]);
        assert_eq!(heap.lock().free.len(), 1);
    }

    #[test]
    fn a_heap_without_blocks_keeps_few_pages_and_its_blocks_have_all_of_theirs() {
        use crate::memory::shared::SharedMemory;
        let made = Arc::new(Mutex::new(Vec::<Arc<SharedMemory>>::new()));
        let kept = made.clone();
        let heap = SymmetricHeap::new(Box::new(move |_, bytes| {
            let memory = Arc::new(SharedMemory::reserve("a test", bytes)?);
            kept.lock().unwrap().push(memory.clone());
            Ok(HeapRegion { block: Arc::new(memory.map()?), memory: Some(memory) })
        }));
        let held = || made.lock().unwrap().iter().map(|memory| memory.held_bytes()).sum::<usize>();
        for mib in [20, 30, 45, 70, 100, 150] {
            let block = heap.allocate(mib << 20).unwrap();
            assert!((mib << 20..(mib << 20) + KEPT_BYTES + (1 << 20)).contains(&held()), "{mib} MiB: {}", held());
            drop(block);
            assert!(held() <= KEPT_BYTES, "nothing is alive: {}", held());
        }
    }

    #[test]
    fn sizes_beyond_the_address_space_are_refused() {
        assert!(heap().allocate(usize::MAX).is_err());
    }

    proptest! {
        #[test]
        fn blocks_share_no_byte_and_lie_in_regions(sizes in proptest::collection::vec((1usize..3_000_000, any::<bool>()), 1..60)) {
            let heap = heap();
            let mut kept: Vec<HeapBlock> = Vec::new();
            for (bytes, is_kept) in sizes {
                let block = heap.allocate(bytes).unwrap();
                prop_assert!(block.bytes() >= bytes && block.start().addr().is_multiple_of(ALIGNMENT_BYTES));
                for other in &kept {
                    let (a, b) = (block.start().addr(), other.start().addr());
                    prop_assert!(a + block.bytes() <= b || b + other.bytes() <= a);
                }
                let is_inside = heap.lock().regions.iter().any(|region| {
                    let offset = block.start().addr().wrapping_sub(region.block.start().addr());
                    offset < region.block.bytes() && block.bytes() <= region.block.bytes() - offset
                });
                prop_assert!(is_inside);
                if is_kept {
                    kept.push(block);
                }
            }
        }
    }
}
