//! SPMD: every rank is a thread of its own and makes its own calls.

use std::sync::Arc;

use crate::by_rank::{ring_everybody, Buffers, Crew, Deadline};
use crate::error::Result;
use crate::kernel::FloatEnvironment;
use crate::memory::Block;
use crate::program::Program;
use crate::sync::Cause;
use crate::world::World;

/// What the ranks of one run share.
#[derive(Debug, Clone)]
pub struct Team(Arc<World>);

impl Team {
    /// Makes a team of `world_size` ranks that have called nothing yet.
    pub fn new(world_size: u32) -> Self {
        Self(Arc::new(World::new(world_size)))
    }

    /// Ends every call of the team, now and later, because code of `rank` failed.
    pub fn fail(&self, rank: u32) {
        self.0.abort.raise(Cause::Failed(rank));
        ring_everybody(&self.0);
    }

    /// Ends every call of the team, now and later, because the user interrupted the program.
    pub fn interrupt(&self) {
        self.0.abort.raise(Cause::Interrupted);
        ring_everybody(&self.0);
    }

    /// Returns the member with this rank. A rank has one member.
    pub fn member(&self, rank: u32) -> Member {
        let crew = Crew::new(self.0.world_size(), rank..rank + 1, 1);
        Member { world: self.0.clone(), rank, number: 0, crew, scratch: None }
    }
}

/// One rank of a team.
#[derive(Debug)]
pub struct Member {
    world: Arc<World>,
    rank: u32,
    number: u32,
    crew: Crew,
    scratch: Option<Block>,
}

impl Member {
    /// Returns the rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Runs this rank's part of a program.
    ///
    /// # Safety
    /// The buffers are as long as the program's call says, aliased as it says, and touched by nobody outside the team until
    /// `run` returns, on this rank and on its peers.
    ///
    /// # Errors
    /// `Mismatch`, `Aborted`, `Timeout`; afterwards every call of the team fails.
    pub unsafe fn run(&mut self, program: &Program, buffers: Buffers, deadline: Deadline) -> Result<()> {
        if self.scratch.as_ref().map_or(0, Block::bytes) < program.scratch_bytes() {
            self.scratch = Some(Block::zeroed(program.scratch_bytes()));
        }
        let scratch = self.scratch.as_ref().map_or(std::ptr::null_mut(), Block::start);
        let buffers = [Buffers { scratch, ..buffers }];
        let _environment = FloatEnvironment::round_to_nearest();
        self.number = self.number.wrapping_add(1);
        // SAFETY: the caller's; scratch is this member's.
        unsafe { self.crew.run(&self.world, program, self.number, &buffers, &deadline) }
    }
}
