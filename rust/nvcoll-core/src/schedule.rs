//! The schedule: the size-free program of all ranks, and the one instruction it is made of.
//!
//! > A **step** folds a list of source views into a list of destination views.
//!
//! One source is a copy, several destinations are a multicast, several sources are a reduction. What moves (views), how it
//! folds (the op, bound later) and how it is signalled (the waits in `after`) are kept apart.
//!
//! ```text
//! rank 0                                          rank 1
//!   enter ────────────────────────────┐             enter
//!   q0: step 0, step 1, …  (fold)     │ r1.q0.0       q0: …      queues run in order, beside each other;
//!   q1: step 0, …          (copy)     └─after─▶       q1: …      every queue passes once per tile
//!   leave                                           leave
//! ```
//!
//! `steps` is the author's sequential order, which is a topological order of one tile; a step's place in its queue is
//! `(rank, queue, index)`. **Enter** is the moment a rank's buffers may be touched by others; **leave** is the moment after
//! which nobody touches them. A rank has contact with another when it touches that rank's memory or waits for its steps,
//! and contact needs that rank's enter first: that is where the engine compares the two calls.
//!
//! A schedule is plain data, free to be wrong: mutation tests and hand-written text make such schedules. What may run is a
//! [`crate::verify::Verified`].

use std::ops::Range;

use crate::collective::{Collective, Roles};
use crate::words::counted;

pub use crate::collective::Aliasing;

/// A buffer of one rank. Every buffer is divided by the same chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Buffer {
    /// What the user passes in.
    Input,
    /// Where the user wants the result.
    Output,
    /// Memory for intermediate values during one call, as long as the data: layer k.
    Scratch(u16),
    /// Memory through which ranks that cannot reach each other's buffers exchange tiles, one tile long: layer k.
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

    /// Returns the buffer whose memory it is: in place, that of the output is the input's.
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
    /// The rank whose memory it is.
    pub rank: u32,
    /// Which of its buffers.
    pub buffer: Buffer,
    /// Which chunks of it; never empty.
    pub chunks: Range<u32>,
}

/// A view that a step reads.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Source {
    /// What is read.
    pub view: View,
    /// `Some(rank)` if the value is the unfolded contribution of `rank`, to be scaled by its scalar in `premul_sum`.
    pub contribution: Option<u32>,
}

/// The instruction: folds `src`, in the order listed, into every view of `dst`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The rank that executes it.
    pub rank: u32,
    /// The queue of that rank.
    pub queue: u32,
    /// The place in that queue.
    pub index: u32,
    /// What is folded.
    pub src: Vec<Source>,
    /// Where the result goes; a `dst` may equal a `src` exactly and never overlap it partly.
    pub dst: Vec<View>,
    /// Whether the step completes the reduction: `avg` divides here.
    pub is_final: bool,
    /// Whether a fabric with the ability does the step inside the switch.
    pub at_switch: bool,
    /// What must have happened before.
    pub after: Vec<Dependency>,
}

/// Something a rank can wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Event {
    /// The rank has entered the call.
    Enter,
    /// A step of the rank is done.
    Step {
        /// The queue of the step.
        queue: u32,
        /// Its place in the queue.
        index: u32,
    },
}

/// A wait for an event of a rank, `lag` tiles back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dependency {
    /// Whose event.
    pub rank: u32,
    /// Which event.
    pub event: Event,
    /// How many tiles back; an event before the first tile has happened. Always 0 for `Enter`.
    pub lag: u32,
}

/// How a rank reaches the views of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Path {
    /// Its memory is addressable: views are used as they stand.
    Mapped,
    /// Only its staging is addressable: values pass through slots of the rank that has them.
    Staged,
    /// Only its staging is addressable, and only for stores: values pass through slots of the ranks that read them.
    Pushed,
}

impl Path {
    /// Every path.
    pub const ALL: &'static [Path] = &[Path::Mapped, Path::Staged, Path::Pushed];

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            Path::Mapped => "mapped",
            Path::Staged => "staged",
            Path::Pushed => "pushed",
        }
    }

    /// Returns how many slots staging has unless a schedule is made for more or fewer: two let one tile be stored while the
    /// one before is read.
    pub const fn slots(self) -> u32 {
        match self {
            Path::Mapped => 0,
            Path::Staged | Path::Pushed => 2,
        }
    }
}

/// The largest number of slots. Chosen: eight times those of NCCL.
pub const MAX_SLOTS: u32 = 64;

/// The program of all ranks for one collective, for any count, dtype and op.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// What it is to achieve.
    pub collective: &'static Collective,
    /// The name of the algorithm.
    pub algorithm: String,
    /// The number of ranks.
    pub world_size: u32,
    /// The rank that has or receives everything; 0 if the collective has no root.
    pub root: u32,
    /// Into how many chunks each part of the contract is cut.
    pub chunks_per_part: u32,
    /// How ranks reach each other's memory.
    pub path: Path,
    /// How many slots staging has, 0 where memory is mapped: a tile lives in slot `tile mod slots`.
    pub slots: u32,
    /// The aliasing for which its dependencies were derived.
    pub aliasing: Aliasing,
    /// All steps, in the author's sequential order.
    pub steps: Vec<Step>,
    /// For each rank, what must have happened before it may leave, besides its own queues.
    pub leave: Vec<Vec<Dependency>>,
}

impl Schedule {
    /// Returns what the schedule is called in messages: `broadcast tree of 5, root 3, staged, out of place`; without the hash
    /// that tells a schedule of its user's from another of that name.
    pub fn title(&self) -> String {
        let Self { collective, algorithm, world_size, root, path, slots, aliasing, .. } = self;
        let algorithm = algorithm.split_once('#').map_or(algorithm.as_str(), |(name, _)| name);
        let root = if collective.has_root { format!(", root {root}") } else { String::new() };
        let slots = if *slots == path.slots() { String::new() } else { format!(" ({})", counted(*slots, "slot")) };
        let (collective, path, aliasing) = (collective.name, path.name(), aliasing.words());
        format!("{collective} {algorithm} of {world_size}{root}, {path}{slots}, {aliasing}")
    }

    /// Returns who takes part.
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

    /// Returns, for each rank and queue, the positions in `steps` of that queue's steps, in queue order.
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

    /// Returns how many layers of scratch the steps use.
    pub fn scratch_layers(&self) -> u16 {
        self.layers(|b| if let Buffer::Scratch(layer) = b { Some(layer) } else { None })
    }

    /// Returns how many layers of staging the steps use.
    pub fn staging_layers(&self) -> u16 {
        self.layers(|b| if let Buffer::Staging(layer) = b { Some(layer) } else { None })
    }

    fn layers(&self, layer_of: impl Fn(Buffer) -> Option<u16>) -> u16 {
        self.steps.iter().flat_map(Step::views).filter_map(|v| layer_of(v.buffer)).map(|l| l + 1).max().unwrap_or(0)
    }
}

impl Step {
    /// Returns all views that the step touches, sources first.
    pub fn views(&self) -> impl Iterator<Item = &View> + Clone {
        self.src.iter().map(|s| &s.view).chain(&self.dst)
    }

    /// Says whether the step reduces (several sources) rather than copies.
    pub fn is_fold(&self) -> bool {
        self.src.len() > 1
    }
}
