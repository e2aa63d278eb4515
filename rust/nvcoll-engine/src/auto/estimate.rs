//! Estimates of `auto`: the time of a call, as a sum of terms. A term is a count of the schedule times a measured coefficient.
//!
//! `auto` compares algorithms that give the same bits. They differ in bytes, steps and waits, which [`Cost`] counts. The time of a
//! byte, a step and a wait depends on the machine and is in a [`Tuning`](crate::auto::tuning::Tuning) table.
//!
//! ```text
//! seconds = call                                           the same for every candidate
//!         + wait   x handoffs between ranks on the longest chain          by tile: 1 if helpers are woken
//!         + step   x folds that a worker starts, over all tiles
//!         + first  x bytes that the call touches for the first time       from memory or caches
//!         + again  x bytes that the call touches again                    from a cache
//!         + spread x bytes that copies store to their second and later destinations
//!                    (with streaming stores: bytes of stores that must fetch cache lines first)
//!         + near   x first bytes beyond the near caches of the workers    first bytes x max(0, 1 - cache / buffers)
//!         + far    x first bytes beyond the last-level cache
//! ```
//!
//! Folds and bytes are counted for one worker. By tile, every worker takes an equal share. By rank, a worker takes an equal share or
//! the share of the busiest rank, whichever is larger.
//!
//! Example: one_shot and two_shot, 8 ranks, mapped, in place. one_shot moves 11 N (4 N of them for the first time, with its
//! scratch). two_shot moves 2.9 N (2 N) and has one handoff more.
//!
//! **Departures from hardware.** The model is linear. Nothing overlaps, caches fill by share and not by address, and a kernel with
//! many streams is as fast as a kernel with few. Uneven parts count as even parts.
//!
//! Cost: a dozen operations. Source: ours. Latency plus bytes over rate is the model of Hockney (1994); the terms per level of
//! memory follow McCalpin's STREAM.

use nvcoll_core::cost::{Cost, RankCost};
use nvcoll_core::schedule::Path;

/// The number of terms.
pub const TERMS: usize = 8;

/// The name of each coefficient in a table, which ends in its unit, and the number of these units in a second.
pub const COEFFICIENTS: [(&str, f64); TERMS] = [
    ("call_ns", 1e9),
    ("wait_ns", 1e9),
    ("step_ns", 1e9),
    ("first_ps_per_byte", 1e12),
    ("again_ps_per_byte", 1e12),
    ("spread_ps_per_byte", 1e12),
    ("near_ps_per_byte", 1e12),
    ("far_ps_per_byte", 1e12),
];

/// The terms of one call by one schedule: the factor of each coefficient.
pub type Terms = [f64; TERMS];

nvcoll_core::names! {
    /// The mode in which a call runs. Each mode has its own coefficients.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum Mode {
        /// By tile: one caller drives all ranks on mapped memory, workers share the tiles, and no worker waits.
        Tile = "tile",
        /// By rank, staged: ranks wait for each other, and copy through slots.
        Staged = "staged",
        /// By rank, mapped: every rank is a thread that makes its own calls and waits for other ranks.
        Ranks = "ranks",
    }
}

impl Mode {
    /// Returns the path of a mode.
    pub const fn path(self) -> Path {
        match self {
            Mode::Staged => Path::Staged,
            Mode::Tile | Mode::Ranks => Path::Mapped,
        }
    }
}

/// The caches of a machine, in bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Caches {
    /// The second-level cache of one worker.
    pub near_bytes: f64,
    /// The last-level cache, of all workers together.
    pub far_bytes: f64,
}

/// The properties of a call on which its time depends, beside the schedule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// The mean bytes of a chunk.
    pub chunk_bytes: f64,
    /// The sum over all ranks of the longer buffer, in bytes.
    pub buffer_bytes: f64,
    /// The number of slices of a chunk, which run one after another.
    pub tiles: f64,
    /// The number of workers.
    pub workers: f64,
    /// The number of folds after fusion; `None` if the program is not fused.
    pub fused_folds: Option<u64>,
    /// Whether stores to memory that no other step touches may bypass the caches.
    pub is_streamed: bool,
}

/// Counts the terms of a call.
pub fn terms(cost: &Cost, mode: Mode, load: &Load, caches: &Caches) -> Terms {
    let share = |count: &dyn Fn(&RankCost) -> u64| {
        let even = cost.total(count) as f64 / load.workers;
        match mode {
            Mode::Tile => even,
            Mode::Staged | Mode::Ranks => even.max(cost.most(count) as f64),
        }
    };
    let steps = match (mode, load.fused_folds) {
        (Mode::Tile, Some(folds)) => folds as f64,
        (Mode::Tile, None) => share(&|rank| rank.folds) * load.tiles,
        (Mode::Staged | Mode::Ranks, _) => share(&|rank| rank.steps) * load.tiles,
    };
    let waits = match mode {
        Mode::Tile => f64::from(u8::from(load.workers > 1.0)),
        Mode::Staged | Mode::Ranks => f64::from(cost.waits),
    };
    let first = share(&|rank| rank.first_chunks) * load.chunk_bytes;
    let moved = share(&RankCost::moved_chunks) * load.chunk_bytes;
    let beyond = |cache: f64| first * (1.0 - cache / load.buffer_bytes.max(1.0)).max(0.0);
    let (near, far) = (beyond(caches.near_bytes * load.workers), beyond(caches.far_bytes));
    let spread: &dyn Fn(&RankCost) -> u64 =
        if load.is_streamed { &|rank| rank.fetched_chunks } else { &|rank| rank.spread_chunks };
    let spread = share(spread) * load.chunk_bytes;
    [1.0, waits, steps, first, (moved - first).max(0.0), spread, near, far]
}

/// Returns the seconds of a call. `coefficients` have the units of [`COEFFICIENTS`].
pub fn seconds(terms: &Terms, coefficients: &[f64; TERMS]) -> f64 {
    let products = terms.iter().zip(coefficients).zip(COEFFICIENTS);
    products.map(|((count, coefficient), (_, per_second))| count * coefficient / per_second).sum()
}

/// The least relative difference of estimates at which a faster algorithm replaces the first. Chosen: smaller differences are noise.
pub const MARGIN: f64 = 0.05;

/// Returns the index of the chosen candidate by their estimates: the fastest, or the first if it is slower by less than [`MARGIN`].
///
/// # Panics
/// If there is no candidate.
pub fn best(seconds: &[f64]) -> usize {
    let fastest = (0..seconds.len()).min_by(|&a, &b| seconds[a].total_cmp(&seconds[b])).expect("there is a candidate");
    if seconds[fastest] < (1.0 - MARGIN) * seconds[0] {
        fastest
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nvcoll_core::algorithm::build;
    use nvcoll_core::collective::{Roles, ALL_GATHER, ALL_REDUCE, BROADCAST, REDUCE};
    use nvcoll_core::lower::lower;
    use nvcoll_core::schedule::Aliasing;

    const CACHES: Caches = Caches { near_bytes: 1000.0, far_bytes: 4000.0 };

    fn all_reduce(name: &str, path: Path) -> Cost {
        let schedule = build(&ALL_REDUCE, name, Roles::of(8), Aliasing::InPlace).unwrap();
        Cost::of(&lower(&schedule, path).unwrap())
    }

    fn load(workers: f64) -> Load {
        Load { chunk_bytes: 125.0, buffer_bytes: 8000.0, tiles: 1.0, workers, fused_folds: None, is_streamed: false }
    }

    #[test]
    fn terms_count_the_work_of_one_worker() {
        let cost = all_reduce("nvswitch", Path::Mapped);
        let bytes = 2.0 * 8.0 * 8.0 * 125.0;
        let alone = terms(&cost, Mode::Tile, &load(1.0), &CACHES);
        assert_eq!(alone, [1.0, 0.0, 8.0, bytes, 0.0, 0.0, bytes * 7.0 / 8.0, bytes / 2.0]);
        let joined = terms(&cost, Mode::Tile, &Load { fused_folds: Some(1), ..load(1.0) }, &CACHES);
        assert_eq!(joined[2], 1.0, "one kernel does all chunks");
        let helped = terms(&cost, Mode::Tile, &Load { tiles: 3.0, ..load(2.0) }, &CACHES);
        assert_eq!(helped[..5], [1.0, 1.0, 12.0, bytes / 2.0, 0.0]);
        assert_eq!(helped[6], bytes / 2.0 * 6.0 / 8.0, "two workers have two near caches");
        let ranks = terms(&cost, Mode::Ranks, &load(2.0), &CACHES);
        assert_eq!(ranks[..4], [1.0, 2.0, 4.0, bytes / 2.0], "two handoffs, and half of the ranks on each worker");
    }

    #[test]
    fn a_copy_to_several_ranks_is_spread_and_a_fold_into_several_is_not() {
        let of = |schedule| terms(&Cost::of(&schedule), Mode::Tile, &load(1.0), &CACHES)[5];
        let gather = build(&ALL_GATHER, "nvswitch", Roles::of(8), Aliasing::Disjoint).unwrap();
        let streamed = Load { is_streamed: true, ..load(1.0) };
        assert_eq!(terms(&Cost::of(&gather), Mode::Tile, &streamed, &CACHES)[5], 0.0, "all of it is written once");
        let tree = Cost::of(&build(&BROADCAST, "tree", Roles::of(8), Aliasing::InPlace).unwrap());
        let passed_on = 3.0 * 2.0 * 125.0;
        assert_eq!(terms(&tree, Mode::Tile, &streamed, &CACHES)[5], passed_on, "3 of 7 ranks pass a half on");
        assert_eq!(of(gather), 7.0 * 8.0 * 125.0, "each of 8 parts goes to 7 more");
        assert_eq!(of(build(&ALL_REDUCE, "nvswitch", Roles::of(8), Aliasing::InPlace).unwrap()), 0.0);
    }

    #[test]
    fn by_rank_the_share_of_a_busy_root_counts() {
        let cost = Cost::of(&build(&REDUCE, "direct", Roles::of(8), Aliasing::InPlace).unwrap());
        let of = |mode| terms(&cost, mode, &load(2.0), &CACHES)[3];
        assert_eq!(of(Mode::Ranks), 2.0 * of(Mode::Tile));
    }

    #[test]
    fn seconds_are_products_in_the_units_of_the_names() {
        let terms = [1.0, 2.0, 3.0, 4000.0, 5000.0, 6000.0, 7000.0, 8000.0];
        assert!((seconds(&terms, &[1.0; TERMS]) - (6.0 + 30.0) * 1e-9).abs() < 1e-18);
    }

    #[test]
    fn only_a_clearly_faster_candidate_replaces_the_first() {
        assert_eq!(best(&[1.0, 0.96, 2.0]), 0);
        assert_eq!(best(&[1.0, 0.9, 0.8]), 2);
        assert_eq!(best(&[1.0]), 0);
    }
}
