//! Where a tile stages its chunks: a place in a ring that goes through all the staging of a rank.
//!
//! ```text
//! bank of even calls |place 0|place 1|place 2|place 3| …           call 2n uses places from n x tiles on, its tile t the t-th of them
//! bank of odd calls  |place 0|place 1|place 2|place 3| …           a place has the chunks of one tile, as packed as the tile is short
//! ```
//!
//! **Why a ring.** A line that a peer's second-level cache still holds costs its writer an invalidation: 9 ns where two processors share a
//! third-level cache. When the line has been evicted to that cache, it costs 2.8 ns. So the places that calls use one after the other
//! are together larger than a second-level cache, and smaller than the third (`system/caches.rs`).
//!
//! **Why a long call takes less.** What else a call brings through the second-level caches evicts lines, too: the rest of the staging that
//! a rank reads and writes, the user's arrays. So a call that goes round its bank takes as many places as bring as much through them as
//! short calls do, all of the staging. That leaves the third-level cache to the user: an all_to_all of 4 MiB brings 6 bytes for each that it
//! stages, and takes 0.5 MiB of 1.5.
//!
//! **Why it is proved.** The proof needs that successive calls stage in different banks, and that a tile meets nothing in its slot but
//! the tile that is `slots` before it, whose readers it waits for. Here the banks are halves of the staging, for all programs. The
//! tile that had a place before is at least `slots` tiles before, for a bank has at least `slots` places: readers take tiles in order,
//! so they are done with it too. All calls of a pass have one distance between chunks, so what lies in a place is the same chunks.

use crate::program::batch::Pass;

/// The most places of a bank. Chosen: a call that stages more than 16 KiB goes through all of 4 MiB.
const MOST_PLACES: usize = 128;

/// A place of staging: its offset, and the distance between its chunks, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Slot {
    start: usize,
    spacing: usize,
}

impl Slot {
    /// The slot of programs that stage nothing.
    pub(crate) const NONE: Slot = Slot { start: 0, spacing: 0 };

    /// Returns the offset of a chunk by its number.
    #[inline(always)]
    pub(crate) fn chunk(self, number: usize) -> usize {
        self.start + number * self.spacing
    }
}

/// The places of a call.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StagingRing {
    /// The offset of the bank.
    bank: usize,
    /// The number of places of a bank, and the one of the first tile.
    places: usize,
    first: usize,
    place_bytes: usize,
    spacing: usize,
}

impl StagingRing {
    /// Returns the places of call `number` in a staging of `bytes`, at least those of a program's [`staging_bytes`].
    ///
    /// [`staging_bytes`]: crate::program::Program::staging_bytes
    pub(crate) fn of(pass: Pass<'_>, number: u32, bytes: usize) -> Self {
        let (spacing, chunks) = (pass.spacing_bytes(), pass.first().staged_chunks);
        if chunks == 0 || pass.is_inline() {
            return Self { places: 1, spacing, ..Self::default() };
        }
        let (place_bytes, slots) = (spacing * chunks, pass.first().verified().schedule().slots as usize);
        let goes_round = pass.tiles() as usize * place_bytes > bytes / 2;
        let bank_bytes = if goes_round { bytes / pass.first().cached_bytes.max(2) } else { bytes / 2 };
        let places = (bank_bytes / place_bytes).min(MOST_PLACES).max(slots);
        // A product of two numbers below 2^32.
        let first = (number >> 1) as usize * pass.tiles() as usize % places;
        Self { bank: (number & 1) as usize * (bytes / 2), places, first, place_bytes, spacing }
    }

    /// Returns the place of a tile.
    #[inline(always)]
    pub(crate) fn slot(&self, tile: u32) -> Slot {
        let place = (self.first + tile as usize) % self.places;
        Slot { start: self.bank + place * self.place_bytes, spacing: self.spacing }
    }

    /// Returns how many calls go through all places, of both banks.
    pub(crate) fn calls(pass: Pass<'_>, bytes: usize) -> usize {
        2 * Self::of(pass, 0, bytes).places.div_ceil(pass.tiles().max(1) as usize)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::ops::Range;
    use std::sync::Arc;

    use nvcoll_core::algorithm::build;
    use nvcoll_core::collective::{ALL_GATHER, ALL_REDUCE};
    use nvcoll_core::counts::Counts;
    use nvcoll_core::lower::{push, Fifo};
    use nvcoll_core::schedule::Path;
    use nvcoll_core::verify::verify;
    use proptest::prelude::*;

    use super::*;
    use crate::call::Call;
    use crate::kernel::Isa;
    use crate::program::Program;
    use crate::system::caches::staging_bytes;

    const RANKS: u32 = 3;

    fn program(is_ring: bool, slots: u32, count: usize) -> Arc<Program> {
        let (collective, algorithm) = if is_ring { (&ALL_REDUCE, "ring") } else { (&ALL_GATHER, "nvswitch") };
        let (path, counts) = (Path::Pushed, Counts::Even(count));
        let call = Call { path, algorithm: algorithm.into(), counts, ..Call::without_data(collective) };
        let mapped = build(collective, algorithm, call.roles(RANKS), call.aliasing).unwrap();
        let verified = verify(push(&mapped, Fifo { channels: 1, slots }).unwrap()).unwrap();
        Arc::new(Program::bind(&verified, call, usize::MAX, Isa::detect()).unwrap())
    }

    fn programs() -> impl Strategy<Value = (Arc<Program>, u32)> {
        let slots = prop_oneof![Just(1u32), Just(2), Just(3), Just(7), Just(60)];
        (any::<bool>(), slots, 1usize..3_000_000)
            .prop_map(|(is_ring, slots, count)| (program(is_ring, slots, count), slots))
    }

    /// The bytes of all chunks of a tile.
    fn bytes(ring: &StagingRing, program: &Program, tile: u32) -> Range<usize> {
        ring.slot(tile).chunk(0)..ring.slot(tile).chunk(program.staged_chunks)
    }

    fn share(one: &Range<usize>, other: &Range<usize>) -> bool {
        one.start < other.end && other.start < one.end
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn tiles_share_bytes_with_those_that_are_over_and_none_else(
            (program, slots) in programs(),
            (next, _) in programs(),
            number in any::<u32>(),
            wider in 0usize..(8 << 20),
        ) {
            let staging = staging_bytes(RANKS, wider);
            let ring = StagingRing::of(Pass::of_one(&program), number, staging);
            let after = StagingRing::of(Pass::of_one(&next), number.wrapping_add(1), staging);
            for tile in 0..program.tiles {
                let own = bytes(&ring, &program, tile);
                prop_assert!(own.end <= staging && own.end - own.start == program.staged_chunks * program.spacing_bytes);
                prop_assert!(program.spacing_bytes >= program.tile_bytes.min(program.most_spacing_bytes));
                for behind in 1..slots.min(program.tiles - tile) {
                    prop_assert!(!share(&own, &bytes(&ring, &program, tile + behind)), "{slots} slots, tile {tile}");
                }
                for tile in 0..next.tiles.min(200) {
                    prop_assert!(!share(&own, &bytes(&after, &next, tile)), "successive calls");
                }
            }
        }
    }

    #[test]
    fn calls_one_after_the_other_go_through_all_of_the_staging() {
        let program = program(true, 2, 3 * 4096);
        let (pass, staging) = (Pass::of_one(&program), staging_bytes(RANKS, 4 << 20));
        let calls = StagingRing::calls(pass, staging);
        let starts: std::collections::BTreeSet<_> =
            (0..calls as u32).map(|number| StagingRing::of(pass, number, staging).slot(0).chunk(0)).collect();
        assert_eq!(starts.len(), calls, "each has a place of its own");
        assert!(calls * program.staged_chunks * program.spacing_bytes > staging * 9 / 10);
    }
}
