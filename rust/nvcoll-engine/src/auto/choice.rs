//! The algorithm of `auto`.
//!
//! ```text
//! candidates   algorithms in the order of ranks; all algorithms of a collective that does not reduce
//! 1. one candidate, or one rank             the first candidate
//! 2. more than MODELLED_RANKS ranks         the first of the registry, because counting takes seconds
//! 3. else                                   the lowest estimate; the first of the registry if it is less than 5 % slower
//! ```
//!
//! The choice is made with the program, once per shape of call, and never while one runs. It depends only on the call, the number of ranks
//! and workers, and the node's table, so all ranks choose alike. Candidates have the same bits.
//!
//! Cost: the first time, each candidate is built, lowered and counted, which takes some milliseconds on 8 ranks. The counts are kept per
//! (collective, ranks, path, aliasing). They are made for root 0, whatever the root.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::estimate::{best, seconds, terms, Load, Mode, Terms};
use super::fusible;
use super::tuning::{candidates, Tuning};
use nvcoll_core::algorithm::{self, Algorithm};
use nvcoll_core::collective::{Collective, Roles};
use nvcoll_core::cost::Cost;
use nvcoll_core::counts::held_count;
use nvcoll_core::interrupt::Interrupt;
use nvcoll_core::lower::lower_interruptible;
use nvcoll_core::schedule::{Aliasing, Path};

use crate::auto::components::connected_components;
use crate::auto::work_split::{may_stream, staged_tile_bytes, wants_help, WorkSplit};
use crate::call::Call;
use crate::error::Result;
use crate::sync::single_flight::{SingleFlight, Unlocked};
use nvcoll_core::limits::slot_bytes;

/// The most ranks for which candidates are estimated; beyond, `auto` is the first of the registry. Chosen: counting a
/// ring of 64 ranks takes tens of milliseconds, one of 1024 takes seconds.
pub const MODELLED_RANKS: u32 = 64;

/// The counts of a candidate, which do not depend on the size of the call.
#[derive(Debug)]
pub(crate) struct CandidateCost {
    algorithm: &'static str,
    cost: Cost,
    chunks: usize,
    chunks_per_part: u32,
    components: usize,
    /// The number of folds of all ranks after fusion.
    fused_folds: u64,
    has_one_step_each: bool,
}

/// The estimated time of a call by one algorithm.
#[derive(Debug, Clone)]
pub struct Estimate {
    /// The name of the algorithm.
    pub algorithm: &'static str,
    /// The bytes that all ranks read and write.
    pub moved_bytes: f64,
    /// The handoffs on the longest chain of one tile.
    pub waits: u32,
    /// The steps of all ranks in one tile.
    pub steps: u64,
    /// The terms of the estimate.
    pub terms: Terms,
    /// The estimated time.
    pub seconds: f64,
}

/// The choice of `auto`, with its reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChosenAlgorithm {
    /// The name of the algorithm.
    pub algorithm: &'static str,
    /// The reason, in words.
    pub why: &'static str,
}

type CandidatesKey = (&'static str, u32, Path, Aliasing);

static COUNTED: Mutex<Option<HashMap<CandidatesKey, Arc<[CandidateCost]>>>> = Mutex::new(None);
static IN_FLIGHT: SingleFlight<CandidatesKey> = SingleFlight::new();

/// A call with everything on which the choice depends.
#[derive(Debug, Clone, Copy)]
pub struct CallContext<'a> {
    /// The call; its algorithm does not matter.
    pub call: &'a Call,
    /// The work split.
    pub split: WorkSplit,
    /// The number of ranks that make it.
    pub world_size: u32,
    /// The number of workers of the node.
    pub workers: usize,
}

impl CallContext<'_> {
    fn mode(&self) -> Mode {
        match (self.split, self.call.path) {
            (WorkSplit::ByTile, _) => Mode::Tile,
            // Pushing makes the handoffs of pulling and stores on the other side; it has no coefficients of its own.
            (WorkSplit::ByRank, Path::Staged | Path::Pushed) => Mode::Staged,
            (WorkSplit::ByRank, Path::Mapped) => Mode::Ranks,
        }
    }

    /// Returns the elements of every part and of the longer buffer of every rank.
    fn lengths(&self) -> (Vec<usize>, Vec<usize>) {
        let (collective, roles) = (self.call.collective, self.call.roles(self.world_size));
        let parts = self.call.counts.of_parts(collective, roles);
        let held = |rank| [collective.input(roles, rank), collective.output(roles, rank)];
        let longer = |rank| held(rank).map(|held| held_count(&parts, held)).into_iter().max().unwrap_or(0);
        let buffers = (0..self.world_size).map(longer).collect();
        (parts, buffers)
    }
}

/// Chooses the algorithm of a call.
///
/// # Errors
/// A candidate that cannot be built.
///
/// # Panics
/// If the call has a table of counts that is not as long as the collective has parts.
pub fn choose(context: &CallContext<'_>, tuning: &Tuning, unlocked: &impl Unlocked) -> Result<ChosenAlgorithm> {
    let first = algorithm::of(context.call.collective).next().expect("a collective has an algorithm").name;
    let chosen = |algorithm, why| Ok(ChosenAlgorithm { algorithm, why });
    let mut all = candidates(context.call.collective).map(|algorithm| algorithm.name);
    match (all.next(), all.next()) {
        (None, _) => return chosen(first, "the default, since no algorithm reduces in rank order"),
        (Some(only), None) => return chosen(only, "the only candidate"),
        (Some(first), _) if context.world_size == 1 => {
            return chosen(first, "the default, since with one rank all algorithms do the same")
        }
        _ => {}
    }
    if context.world_size > MODELLED_RANKS {
        return chosen(first, "the default, since there are too many ranks to estimate");
    }
    let estimates = estimates(context, tuning, unlocked)?;
    let at = best(&estimates.iter().map(|estimate| estimate.seconds).collect::<Vec<_>>());
    let why = match at {
        0 if estimates.iter().any(|other| other.seconds < estimates[0].seconds) => {
            "the default, since no other estimate is more than 5 % lower"
        }
        _ => "the lowest estimate",
    };
    chosen(estimates[at].algorithm, why)
}

/// Estimates every candidate, the default first; none if there are more than [`MODELLED_RANKS`] ranks.
///
/// # Errors
/// A candidate that cannot be built.
///
/// # Panics
/// As [`choose`].
pub fn estimates(context: &CallContext<'_>, tuning: &Tuning, unlocked: &impl Unlocked) -> Result<Vec<Estimate>> {
    if context.world_size > MODELLED_RANKS {
        return Ok(Vec::new());
    }
    let Call { collective, path, aliasing, .. } = *context.call;
    let key = (collective.name, context.world_size, path, aliasing);
    let find = || kept().as_ref().and_then(|kept| kept.get(&key).cloned());
    let make = || {
        let roles = Roles::of(context.world_size);
        let interrupt = unlocked.interrupt();
        let count = |algorithm| CandidateCost::of(collective, algorithm, roles, path, aliasing, &interrupt);
        let counted: Arc<[CandidateCost]> =
            unlocked.run(|| candidates(collective).map(count).collect::<Result<_>>())?;
        kept().get_or_insert_default().insert(key, counted.clone());
        Ok::<_, crate::error::Error>(counted)
    };
    let counted = IN_FLIGHT.find_or_make(&key, unlocked, find, make)?;
    let lengths = context.lengths();
    Ok(counted.iter().map(|counted| counted.estimate(context, &lengths, tuning)).collect())
}

fn kept() -> MutexGuard<'static, Option<HashMap<CandidatesKey, Arc<[CandidateCost]>>>> {
    COUNTED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CandidateCost {
    fn of(
        collective: &'static Collective,
        algorithm: &Algorithm,
        roles: Roles,
        path: Path,
        aliasing: Aliasing,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let mapped = algorithm::build_interruptible(collective, algorithm.name, roles, aliasing, interrupt)?;
        let schedule = lower_interruptible(&mapped, path, interrupt)?;
        let components = connected_components(&schedule).len();
        Ok(Self {
            algorithm: algorithm.name,
            cost: Cost::of_interruptible(&schedule, interrupt).map_err(nvcoll_core::Error::from)?,
            chunks: (collective.parts(roles) * schedule.chunks_per_part) as usize,
            chunks_per_part: schedule.chunks_per_part,
            components,
            fused_folds: fusible::folds_when_fused(&schedule),
            has_one_step_each: components == schedule.steps.len(),
        })
    }

    fn estimate(
        &self,
        context: &CallContext<'_>,
        (parts, buffers): &(Vec<usize>, Vec<usize>),
        tuning: &Tuning,
    ) -> Estimate {
        let (mode, element) = (context.mode(), context.call.dtype.bytes());
        let (buffer_bytes, total) = (buffers.iter().sum::<usize>() * element, parts.iter().sum::<usize>() * element);
        let chunk_bytes = total as f64 / self.chunks.max(1) as f64;
        let longest_chunk =
            parts.iter().max().map_or(0, |longest| longest * element / self.chunks_per_part.max(1) as usize);
        let slice_bytes = match context.call.path {
            Path::Staged | Path::Pushed => {
                let chunks = self.cost.most(|rank| rank.staging_chunks).max(1) as usize;
                let room = slot_bytes(context.world_size, self.cost.slots) / chunks;
                room.min(staged_tile_bytes(context.call.collective.has_root, context.world_size, longest_chunk))
            }
            Path::Mapped => context.split.slice_bytes(
                longest_chunk,
                buffer_bytes,
                self.components,
                self.has_one_step_each,
                context.world_size,
                context.workers,
            ),
        };
        let tiles = longest_chunk.div_ceil(slice_bytes.max(1)).max(1);
        let is_alone = mode == Mode::Tile && !wants_help(buffer_bytes);
        let load = Load {
            chunk_bytes,
            buffer_bytes: buffer_bytes as f64,
            tiles: tiles as f64,
            workers: if is_alone { 1.0 } else { context.workers.min(context.world_size as usize) as f64 },
            fused_folds: (is_alone && tiles == 1 && self.has_one_step_each).then_some(self.fused_folds),
            is_streamed: context.call.path == Path::Mapped && may_stream(buffer_bytes),
        };
        let terms = terms(&self.cost, mode, &load, &tuning.caches);
        Estimate {
            algorithm: self.algorithm,
            moved_bytes: self.cost.total(|rank| rank.moved_chunks()) as f64 * chunk_bytes,
            waits: self.cost.waits,
            steps: self.cost.steps(),
            terms,
            seconds: seconds(&terms, tuning.coefficients(mode)),
        }
    }
}
