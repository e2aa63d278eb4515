//! What the calls of a member reuse, one after the other.

use std::sync::Arc;

use nvcoll_core::schedule::Path;

use crate::deadline::WaitLimit;
use crate::error::{Error, Result};
use crate::memory::buffers::Buffers;
use crate::memory::world::addresses::Addresses;
use crate::memory::world::{ReachableBlock, World};
use crate::program::batch::Pass;
use crate::program::Program;
use crate::run::by_rank::RankWorker;

/// The state that calls reuse, one after the other.
#[derive(Debug)]
pub(super) struct MemberCalls {
    pub(super) number: u32,
    pub(super) rank_worker: RankWorker,
    scratch: Option<ReachableBlock>,
}

impl MemberCalls {
    /// Makes the state of a rank that has called nothing yet.
    pub(super) fn new(world_size: u32, rank: u32) -> Self {
        Self { number: 0, rank_worker: RankWorker::of_member(world_size, rank), scratch: None }
    }

    /// Makes the scratch and staging that a program needs, and returns the address of the scratch. Peers must reach it if `is_reached`.
    pub(super) fn make_room(
        &mut self,
        world: &World,
        scratch_bytes: usize,
        is_reached: bool,
        staging_bytes: usize,
    ) -> Result<*mut u8> {
        let will_do = |scratch: &ReachableBlock| {
            let is_there = || world.addresses.is_reachable(self.rank_worker.rank(), scratch.start(), scratch.bytes());
            scratch.bytes() >= scratch_bytes && (!is_reached || is_there())
        };
        if scratch_bytes > 0 && !self.scratch.as_ref().is_some_and(will_do) {
            let scratch = match is_reached {
                true => ReachableBlock::allocate(world, "scratch", scratch_bytes)?,
                false => ReachableBlock::of_its_own("scratch", scratch_bytes)?,
            };
            self.scratch = Some(scratch);
        }
        world.make_staging(staging_bytes)?;
        Ok(self.scratch.as_ref().map_or(std::ptr::null_mut(), ReachableBlock::start))
    }

    /// Makes the next call, which has no data, and says two words in it.
    ///
    /// # Safety
    /// The program is a barrier of the ranks of the world.
    pub(super) async unsafe fn say(
        &mut self,
        world: &World,
        program: &Arc<Program>,
        words: [u64; 2],
        limit: &mut WaitLimit<'_>,
    ) -> Result<()> {
        let (pass, buffers) = (Pass::of_words(program, words), [Buffers::unknown()]);
        let number = self.begin(world, pass, None, &buffers)?;
        // SAFETY: a barrier touches no buffer; the program has the ranks of the world, as this function demands.
        unsafe { self.rank_worker.run(world, pass, None, number, &buffers, limit) }.await
    }

    /// Begins the next call, or the calls of the next pass; returns its number.
    #[inline]
    pub(super) fn begin(
        &mut self,
        world: &World,
        pass: Pass<'_>,
        mapped: Option<Pass<'_>>,
        buffers: &[Buffers],
    ) -> Result<u32> {
        if !matches!(world.addresses, Addresses::OneSpace) {
            for pass in [Some(pass), mapped].into_iter().flatten() {
                for (program, own) in pass.programs().iter().zip(buffers) {
                    check_reachable(world, self.rank_worker.rank(), program, own)?;
                }
            }
        }
        self.number = self.number.wrapping_add(1);
        Ok(self.number)
    }
}

/// Refuses a mapped program if a buffer of rank `own` is memory that its peers cannot reach.
fn check_reachable(world: &World, own: u32, program: &Program, buffers: &Buffers) -> Result<()> {
    if program.call().path != Path::Mapped || program.call().collective.is_without_data() {
        return Ok(());
    }
    let [input, output] = program.user_bytes[own as usize];
    let parts = [(buffers.input, input), (buffers.output, output), (buffers.scratch, program.scratch_bytes())];
    if parts.into_iter().all(|(address, bytes)| world.addresses.is_reachable(own, address, bytes)) {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "path is mapped, and the arrays of rank {own} are memory of its own process: leave `path` out"
    )))
}
