//! The schedule: the program of all ranks for any message size, made of one kind of instruction.
//!
//! > A **step** folds a list of source views into a list of destination views.
//!
//! A step with one source is a copy; with several destinations, a multicast; with several sources, a reduction. Three things are
//! separate: the data that moves (views), the op (bound later) and the signals (the waits in `after`).
//!
//! ```text
//! rank 0                                          rank 1
//!   enter ────────────────────────────┐             enter
//!   q0: step 0, step 1, …  (fold)     │ r1.q0.0       q0: …      queues run in order, beside each other;
//!   q1: step 0, …          (copy)     └─after─▶       q1: …      every queue passes once per tile
//!   leave                                           leave
//! ```
//!
//! `steps` lists the steps in the author's sequential order, which is a topological order of one tile. `(rank, queue, index)` is
//! the position of a step. From a rank's **enter** on, other ranks may access its buffers; after its **leave**, no rank does. A rank
//! may have an **early queue**, whose steps come before its enter; such a schedule runs in one tile ([`crate::lower::stage_early`]). A
//! rank has **contact** with another rank when it accesses that rank's memory or waits for its steps. Contact needs that rank's
//! enter first, because there the engine compares the two calls.
//!
//! A schedule is plain data and can be wrong: mutation tests and hand-written text make such schedules. Only a
//! [`crate::verify::Verified`] schedule runs.

use std::ops::Range;

use crate::collective::{Collective, Roles};
use crate::words::counted;

pub use crate::collective::Aliasing;

/// A buffer of one rank. All buffers are divided into the same chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Buffer {
    /// The input that the caller passes.
    Input,
    /// The output that the caller passes.
    Output,
    /// Layer k of the memory for intermediate values during one call; a layer is as long as the data.
    Scratch(u16),
    /// Layer k of the memory through which ranks exchange tiles if they cannot reach each other's buffers; a layer is one tile
    /// long.
    Staging(u16),
}

impl Buffer {
    /// Says whether the buffer belongs to the caller.
    pub const fn is_user(self) -> bool {
        matches!(self, Buffer::Input | Buffer::Output)
    }

    /// Says whether the buffer is staging.
    pub const fn is_staging(self) -> bool {
        matches!(self, Buffer::Staging(_))
    }

    /// Returns the buffer that holds the memory: in place, the input holds the memory of the output.
    pub fn memory(self, aliasing: Aliasing) -> Self {
        match (self, aliasing) {
            (Buffer::Output, Aliasing::InPlace) => Buffer::Input,
            _ => self,
        }
    }
}

/// A range of chunks in one buffer of one rank.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct View {
    /// The rank that owns the buffer.
    pub rank: u32,
    /// The buffer.
    pub buffer: Buffer,
    /// The range of chunks; never empty.
    pub chunks: Range<u32>,
}

/// A view that a step reads.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Source {
    /// The view that is read.
    pub view: View,
    /// `Some(rank)` if the value is the unfolded contribution of `rank`; `premul_sum` scales it by the scalar of `rank`.
    pub contribution: Option<u32>,
}

/// One instruction: folds `src`, in the listed order, into every view of `dst`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Step {
    /// The rank that executes the step.
    pub rank: u32,
    /// The queue of that rank.
    pub queue: u32,
    /// The position in that queue.
    pub index: u32,
    /// The sources, in the order in which they are folded.
    pub src: Vec<Source>,
    /// The destinations of the result. A destination may equal a source, but must not overlap one in part.
    pub dst: Vec<View>,
    /// Whether the step completes the reduction; `avg` divides in such a step.
    pub is_final: bool,
    /// Whether a switch executes the step, on a fabric with such switches.
    pub at_switch: bool,
    /// The events that must have happened before the step.
    pub after: Vec<Dependency>,
}

/// An event for which a rank can wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Event {
    /// The rank has entered the call.
    Enter,
    /// A step of the rank is done.
    Step {
        /// The queue of the step.
        queue: u32,
        /// The position in the queue.
        index: u32,
    },
}

/// A wait for an event of a rank that lies `lag` tiles back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dependency {
    /// The rank of the event.
    pub rank: u32,
    /// The event.
    pub event: Event,
    /// The number of tiles back. An event before the first tile has always happened. 0 for `Enter`.
    pub lag: u32,
}

crate::names! {
    /// The way in which a rank accesses the memory of another rank.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Path {
        /// All memory is addressable: steps access it directly.
        Mapped = "mapped",
        /// Only staging is addressable: a value passes through a slot of the rank that has it.
        Staged = "staged",
        /// Only staging is addressable, and only for stores: a value passes through a slot of each rank that reads it.
        Pushed = "pushed",
    }
}

impl Path {
    /// Returns the default number of slots of staging. With two slots, one tile is stored while the tile before it is read.
    pub const fn slots(self) -> u32 {
        match self {
            Path::Mapped => 0,
            Path::Staged | Path::Pushed => 2,
        }
    }
}

/// The largest number of slots. Chosen: eight times the slots of NCCL.
pub const MAX_SLOTS: u32 = 64;

/// The program of all ranks for one collective, for any count, dtype and op.
#[derive(Debug, Clone, PartialEq, Hash)]
pub struct Schedule {
    /// The contract that the schedule fulfils.
    pub collective: &'static Collective,
    /// The name of the algorithm.
    pub algorithm: String,
    /// The number of ranks.
    pub world_size: u32,
    /// The rank that holds or receives all data; 0 if the collective has no root.
    pub root: u32,
    /// The number of chunks in each part of the contract.
    pub chunks_per_part: u32,
    /// The way in which ranks access each other's memory.
    pub path: Path,
    /// The number of slots of staging, 0 on the mapped path. A tile is stored in slot `tile mod slots`.
    pub slots: u32,
    /// The aliasing for which its dependencies were derived.
    pub aliasing: Aliasing,
    /// All steps, in the author's sequential order.
    pub steps: Vec<Step>,
    /// For each rank, the events before its leave, besides the ends of its own queues.
    pub leave: Vec<Vec<Dependency>>,
    /// For each rank, its early queue, whose steps come before its enter. The list is empty if no rank has one. A schedule with an
    /// early queue runs in one tile.
    pub early: Vec<Option<u32>>,
}

impl Schedule {
    /// Returns a mapped schedule without steps, in which no rank waits.
    pub(crate) fn empty(
        collective: &'static Collective,
        algorithm: String,
        roles: Roles,
        chunks_per_part: u32,
        aliasing: Aliasing,
    ) -> Self {
        let Roles { world_size, root } = roles;
        Self {
            collective,
            algorithm,
            world_size,
            root,
            chunks_per_part,
            path: Path::Mapped,
            slots: Path::Mapped.slots(),
            aliasing,
            steps: Vec::new(),
            leave: vec![Vec::new(); world_size as usize],
            early: Vec::new(),
        }
    }

    /// Returns the mapped schedule of the same form without steps.
    pub(crate) fn without_steps(&self) -> Self {
        Self::empty(self.collective, self.algorithm.clone(), self.roles(), self.chunks_per_part, self.aliasing)
    }

    /// Returns the title of the schedule in messages: `broadcast tree of 5, root 3, staged, out of place`. The title leaves out
    /// the hash that distinguishes schedules of users.
    pub fn title(&self) -> String {
        let Self { collective, algorithm, world_size, root, path, slots, aliasing, .. } = self;
        let algorithm = algorithm.split_once('#').map_or(algorithm.as_str(), |(name, _)| name);
        let root = if collective.has_root { format!(", root {root}") } else { String::new() };
        let slots = if *slots == path.slots() { String::new() } else { format!(" ({})", counted(*slots, "slot")) };
        let (collective, path, aliasing) = (collective.name, path.name(), aliasing.words());
        format!("{collective} {algorithm} of {world_size}{root}, {path}{slots}, {aliasing}")
    }

    /// Returns the world size and the root.
    pub fn roles(&self) -> Roles {
        Roles { world_size: self.world_size, root: self.root }
    }

    /// Returns the number of chunks over all parts.
    pub fn chunks(&self) -> u32 {
        self.collective.parts(self.roles()) * self.chunks_per_part
    }

    /// Says whether the input of a rank holds a chunk.
    pub fn input_holds(&self, rank: u32, chunk: u32) -> bool {
        self.collective.input(self.roles(), rank).contains(chunk / self.chunks_per_part)
    }

    /// Says whether the output of a rank holds a chunk.
    pub fn output_holds(&self, rank: u32, chunk: u32) -> bool {
        self.collective.output(self.roles(), rank).contains(chunk / self.chunks_per_part)
    }

    /// Returns the early queue of a rank.
    pub fn early_queue(&self, rank: u32) -> Option<u32> {
        self.early.get(rank as usize).copied().flatten()
    }

    /// Says whether steps come before enters, so that the schedule runs in one tile.
    pub fn has_early_steps(&self) -> bool {
        !self.early.is_empty()
    }

    /// Returns, for each queue of each rank, the positions of its steps in `steps`, in queue order.
    ///
    /// Positions that no step fills (in a malformed schedule) hold `usize::MAX`.
    pub fn queues(&self) -> Vec<Vec<Vec<usize>>> {
        let mut queues = vec![Vec::<Vec<usize>>::new(); self.world_size as usize];
        for (position, step) in self.steps.iter().enumerate() {
            let rank = &mut queues[step.rank as usize];
            if rank.len() <= step.queue as usize {
                rank.resize(step.queue as usize + 1, Vec::new());
            }
            let queue = &mut rank[step.queue as usize];
            if queue.len() <= step.index as usize {
                queue.resize(step.index as usize + 1, usize::MAX);
            }
            queue[step.index as usize] = position;
        }
        queues
    }
}

impl Step {
    /// Yields all views of the step, sources first.
    pub fn views(&self) -> impl Iterator<Item = &View> + Clone {
        self.src.iter().map(|s| &s.view).chain(&self.dst)
    }

    /// Says whether the step has several sources and so reduces them.
    pub fn is_fold(&self) -> bool {
        self.src.len() > 1
    }
}
