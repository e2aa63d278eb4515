//! SPMD: every rank is a thread of its own and makes its own calls.

use std::sync::Arc;

use crate::buffers::Buffers;
use crate::by_rank::Crew;
use crate::deadline::{Deadline, Patience};
use crate::error::{Error, Result};
use crate::failing::ring_everybody;
use crate::forks::Process;
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
        let crew = Crew::of_member(self.0.world_size(), rank);
        Member { world: self.0.clone(), rank, number: 0, crew, scratch: None, process: Process::current() }
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
    process: Process,
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
    /// `Mismatch`, `Returned`, `Overlap`, `Aborted`, `Interrupted`, `Timeout`: afterwards every call of the team fails.
    /// `Closed` in the child of a fork, where no peer is; `NoMemory` before the call was entered.
    pub unsafe fn run(&mut self, program: &Program, buffers: Buffers, deadline: Deadline) -> Result<()> {
        if !self.process.is_current() {
            return Err(Error::Closed("this process was forked off inside a run, its peers are threads of the parent"));
        }
        if self.scratch.as_ref().map_or(0, Block::bytes) < program.scratch_bytes() {
            let bytes = program.scratch_bytes();
            self.scratch = Some(Block::try_zeroed(bytes).ok_or(Error::NoMemory { what: "scratch", bytes })?);
        }
        self.world.make_staging(program.staging_bytes())?;
        let scratch = self.scratch.as_ref().map_or(std::ptr::null_mut(), Block::start);
        let buffers = [Buffers { scratch, ..buffers }];
        let _environment = FloatEnvironment::round_to_nearest();
        self.number = self.number.wrapping_add(1);
        let mut patience = Patience { deadline, is_interrupted: &mut || false };
        // SAFETY: the caller's; scratch is this member's.
        unsafe { self.crew.run(&self.world, program, self.number, &buffers, &mut patience) }
    }

    /// Says that this rank makes no more calls: a peer that makes one more is told so instead of waiting for ever.
    pub fn depart(self) {
        self.world.lines[self.rank as usize].departure.publish(self.number);
        ring_everybody(&self.world);
    }
}
