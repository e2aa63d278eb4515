//! A reference interpreter: runs a schedule over symbols, in random order, and says whether the contract came out.
//!
//! It is the verifier's independent witness: it shares no code with it, proves nothing, and only watches. Four tiles run
//! through the queues of all ranks. Every source that is read and every destination that is written is an event of its own;
//! so are each rank's enter and leave. A seed decides which of the events that could be next is next: sometimes evenly,
//! sometimes with stubborn favourites, because most races need one actor to fall far behind.
//!
//! ```text
//! enter   a rank's inputs, garbage until now, get their values; if it has early steps, they come first and find the values there
//! step    waits hold ─▶ read sources one by one ─▶ scale, fold, divide ─▶ write destinations one by one ─▶ done
//! leave   its queues are done, its waits hold: outputs are compared with the contract, then everything but staging is garbage
//! ```
//!
//! A value is a term, equal only to itself: folds keep their order, a marked contribution is scaled by its rank's scalar, a
//! final step divides. Wrong is: a result that is not the promised term, or that differs between ranks; contact with a rank
//! whose enter the toucher has not waited for; a touch after the leave; a leave before everybody's enter where the collective
//! synchronises; and nothing left that can run.

use std::collections::HashMap;

use nvcoll_core::schedule::{Aliasing, Buffer, Dependency, Event, Schedule, View};

mod run;
mod terms;

use run::Run;
use terms::{Term, Terms};

/// How many tiles an interpretation runs. Chosen: every slot is used twice.
pub(crate) const TILES: u32 = 4;

/// How many tiles a schedule is run for: one if it has early steps.
fn tiles_of(schedule: &Schedule) -> u32 {
    if schedule.has_early_steps() {
        1
    } else {
        TILES
    }
}

struct Wait {
    rank: usize,
    /// `None` for the rank's enter; else the queue, its number of steps, and the awaited index.
    step: Option<(usize, u32, u32)>,
    lag: u32,
}

struct Access {
    rank: usize,
    /// The first of its cells; the cells of the other chunks follow.
    cells: Vec<usize>,
    is_staging: bool,
    contribution: Option<u32>,
}

struct Instruction {
    waits: Vec<Wait>,
    src: Vec<Access>,
    dst: Vec<Access>,
    is_final: bool,
}

struct Queue {
    rank: usize,
    /// Whether its steps come before the enter of the rank.
    is_early: bool,
    steps: Vec<Instruction>,
}

/// A schedule made ready to be run many times.
pub(crate) struct Interpreter<'a> {
    schedule: &'a Schedule,
    queues: Vec<Queue>,
    leaves: Vec<Vec<Wait>>,
    /// (rank, memory, chunk) to cells, one for each tile or slot.
    cells: HashMap<(u32, Buffer, u32), usize>,
    /// For each rank, the chunks that its input and its output hold, with their cells.
    inputs: Vec<Vec<(u32, usize)>>,
    outputs: Vec<Vec<(u32, usize)>>,
    terms: Terms,
    /// For each chunk and tile, the last result that was found to keep the promise; where each rank is promised its own,
    /// that of the last rank.
    known: Vec<Option<Term>>,
}

impl<'a> Interpreter<'a> {
    /// Prepares a schedule whose steps, ranks and awaited events exist.
    pub(crate) fn new(schedule: &'a Schedule) -> Self {
        let mut interpreter = Self {
            schedule,
            queues: Vec::new(),
            leaves: Vec::new(),
            cells: HashMap::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            terms: Terms::default(),
            known: vec![None; (schedule.chunks() * TILES) as usize],
        };
        for rank in 0..schedule.world_size {
            let (inputs, outputs) = (interpreter.held(rank, Buffer::Input), interpreter.held(rank, Buffer::Output));
            interpreter.inputs.push(inputs);
            interpreter.outputs.push(outputs);
        }
        let by_rank = schedule.queues();
        let lengths: Vec<u32> = by_rank.iter().flatten().map(|queue| queue.len() as u32).collect();
        let firsts: Vec<usize> = (0..by_rank.len()).map(|rank| by_rank[..rank].iter().map(Vec::len).sum()).collect();
        let wait = |d: &Dependency| {
            let step = |queue: u32, index: u32| {
                let queue = firsts[d.rank as usize] + queue as usize;
                (queue, lengths[queue], index)
            };
            let step = if let Event::Step { queue, index } = d.event { Some(step(queue, index)) } else { None };
            Wait { rank: d.rank as usize, step, lag: d.lag }
        };
        let queues = by_rank.iter().enumerate();
        for (rank, number, queue) in queues.flat_map(|(r, queues)| (0..).zip(queues).map(move |(n, q)| (r, n, q))) {
            let is_early = schedule.early_queue(rank as u32) == Some(number);
            let instructions = queue.iter().map(|&position| {
                let step = &schedule.steps[position];
                Instruction {
                    waits: step.after.iter().map(wait).collect(),
                    src: step.src.iter().map(|s| interpreter.access(&s.view, s.contribution)).collect(),
                    dst: step.dst.iter().map(|view| interpreter.access(view, None)).collect(),
                    is_final: step.is_final,
                }
            });
            let steps = instructions.collect();
            interpreter.queues.push(Queue { rank, is_early, steps });
        }
        interpreter.leaves = schedule.leave.iter().map(|leave| leave.iter().map(wait).collect()).collect();
        interpreter
    }

    fn access(&mut self, view: &View, contribution: Option<u32>) -> Access {
        let cells = view.chunks.clone().map(|chunk| self.cell(view.rank, view.buffer, chunk)).collect();
        Access { rank: view.rank as usize, cells, is_staging: view.buffer.is_staging(), contribution }
    }

    fn cell(&mut self, rank: u32, buffer: Buffer, chunk: u32) -> usize {
        let is_shared = self.schedule.aliasing == Aliasing::InPlace && self.holds(rank, Buffer::Input, chunk);
        let memory = if buffer == Buffer::Output && is_shared { Buffer::Input } else { buffer };
        let next = self.cells.len();
        *self.cells.entry((rank, memory, chunk)).or_insert(next)
    }

    fn held(&mut self, rank: u32, buffer: Buffer) -> Vec<(u32, usize)> {
        let chunks = (0..self.schedule.chunks()).filter(|&chunk| self.holds(rank, buffer, chunk));
        let chunks: Vec<u32> = chunks.collect();
        chunks.into_iter().map(|chunk| (chunk, self.cell(rank, buffer, chunk))).collect()
    }

    fn holds(&self, rank: u32, buffer: Buffer, chunk: u32) -> bool {
        match buffer {
            Buffer::Input => self.schedule.input_holds(rank, chunk),
            Buffer::Output => self.schedule.output_holds(rank, chunk),
            Buffer::Scratch(_) | Buffer::Staging(_) => true,
        }
    }

    /// Runs one interleaving.
    ///
    /// # Errors
    /// What went wrong, in a sentence.
    pub(crate) fn run(&mut self, seed: u64) -> Result<(), String> {
        let mut run = Run::new(self, seed);
        while run.left.contains(&false) {
            run.advance()?;
        }
        Ok(())
    }

    /// Prints what a chunk of the outputs became in the last run, or nothing if no rank receives it.
    pub(crate) fn expression(&self, chunk: u32) -> String {
        self.known[(chunk * TILES) as usize].map_or_else(String::new, |term| self.terms.print(term))
    }
}
