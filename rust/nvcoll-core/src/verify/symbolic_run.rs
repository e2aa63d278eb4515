//! The symbolic run: executes the schedule on expressions instead of numbers.
//!
//! The run covers one tile, in any order that the waits allow. The schedule has no races, so all such orders give the same values,
//! and all tiles are alike. At the start, inputs hold contributions and all other memory holds nothing.
//!
//! Rules for folds: a fold contains no contribution twice. The step that completes a fold is `final`, and no other step is. A final
//! value is copied and never folded. A source is marked if and only if a fold or a final step reads an unfolded contribution,
//! because `premul_sum` scales there. At the end every output holds the promised value, the same expression on every rank.

use super::expressions::{Expressions, Id};
use super::graph::{name_of, Graph};
use super::location::{BufferChunk, StepName};
use super::memory::Memory;
use super::report::Violation;
use crate::algorithm::Order;
use crate::collective::{Folds, Promise};
use crate::schedule::{Buffer, Source, Step, View};

/// The value of an unwritten cell.
const NOTHING: u32 = u32::MAX;

/// The values of all cells while the schedule runs.
pub(super) struct SymbolicRun<'g, 'a> {
    graph: &'g Graph<'a>,
    memory: &'g Memory,
    /// The value of each cell: `NOTHING`, or expression x 2, plus 1 if it is final.
    cells: Vec<u32>,
    expressions: Expressions,
    /// The folds that were found to contain each contribution at most once.
    is_each_once: Vec<bool>,
    /// Whether incomplete folds are checked too, which is slow.
    looks_at_all: bool,
    operands: Vec<Id>,
}

/// Returns the first fold that repeats a contribution, if a violation may be a consequence of one.
pub(super) fn earliest(graph: &Graph<'_>, memory: &Memory, found: Violation) -> Violation {
    if !matches!(found, Violation::Repeated { .. } | Violation::AfterFinal { .. }) {
        return found;
    }
    let mut values = SymbolicRun { looks_at_all: true, ..SymbolicRun::new(graph, memory) };
    graph.order().iter().find_map(|&step| values.run(step).err()).unwrap_or(found)
}

/// The values of the outputs at the end of a run.
pub(super) struct Outcome {
    pub(super) expressions: Expressions,
    /// The value of each chunk in all outputs that hold it; if ranks are promised different values, the value of the last rank.
    pub(super) outputs: Vec<Option<Id>>,
    /// The weakest order of all outputs.
    pub(super) order: Order,
}

impl<'g, 'a> SymbolicRun<'g, 'a> {
    pub(super) fn new(graph: &'g Graph<'a>, memory: &'g Memory) -> Self {
        let mut cells = vec![NOTHING; memory.len()];
        memory.contributions().for_each(|(cell, rank)| cells[cell] = rank * 2);
        let expressions = Expressions::new(graph.schedule.world_size);
        Self { graph, memory, cells, expressions, is_each_once: Vec::new(), looks_at_all: false, operands: Vec::new() }
    }

    /// Runs a step chunk by chunk.
    pub(super) fn run(&mut self, step: u32) -> Result<(), Violation> {
        let step = self.graph.step(step);
        let reduces = step.is_fold() || step.is_final;
        if reduces && !self.graph.schedule.collective.folds() {
            return Err(Violation::FoldInCopy { step: name_of(step), collective: self.graph.schedule.collective.name });
        }
        let first = step.src[0].view.chunks.start;
        for chunk in step.src[0].view.chunks.clone() {
            let value = if reduces { self.reduced(step, chunk - first)? } else { self.copied(step, chunk - first)? };
            for view in &step.dst {
                self.cells[self.memory.cell(view, chunk)] = value;
            }
        }
        Ok(())
    }

    /// Checks the outputs against the contract.
    pub(super) fn finish(self) -> Result<Outcome, Violation> {
        let (collective, roles) = (self.graph.schedule.collective, self.graph.schedule.roles());
        let mut outputs: Vec<Option<(u32, BufferChunk)>> = vec![None; self.memory.chunks() as usize];
        let mut order = if collective.folds() { Order::Rank } else { Order::None };
        for (at, rank, chunk) in self.memory.outputs() {
            let (value, cell) = (self.cells[at], BufferChunk { rank, buffer: Buffer::Output, chunk });
            let promise = collective.promise(roles, rank, self.memory.part_of(chunk));
            if !self.is_kept(&promise, value) {
                let (found, expected) = (self.text_of(value), self.text_of_promise(&promise));
                return Err(Violation::WrongOutput { cell, found, expected, lacks: self.lacking(promise, value) });
            }
            let before = outputs[chunk as usize].replace((value, cell));
            if before.is_none_or(|(known, _)| known != value) {
                order = order.weaker(self.expressions.at(value / 2).order(&promise));
            }
            // A scan promises each rank another value.
            if let Some((known, other)) = before.filter(|(known, _)| !self.promises_each() && *known != value) {
                let (found, other_found) = (self.text_of(value), self.text_of(known));
                return Err(Violation::Disagreement { cell, found, other, other_found });
            }
        }
        let outputs = outputs.into_iter().map(|output| output.map(|(value, _)| value / 2)).collect();
        Ok(Outcome { expressions: self.expressions, outputs, order })
    }

    /// Returns the value that a copy moves.
    fn copied(&mut self, step: &Step, nth: u32) -> Result<u32, Violation> {
        let source = &step.src[0];
        let value = self.value_of(step, source, nth)?;
        self.check_mark(step, source, nth, None)?;
        Ok(value)
    }

    /// Returns the value of a fold, or of a final step with one source.
    fn reduced(&mut self, step: &Step, nth: u32) -> Result<u32, Violation> {
        self.operands.clear();
        for source in &step.src {
            let value = self.value_of(step, source, nth)?;
            if value % 2 == 1 {
                let cell = cell_of(&source.view, nth);
                let writer = self.last_writer(step, &source.view, cell.chunk);
                return Err(Violation::AfterFinal { step: name_of(step), cell, writer });
            }
            let scaled = self.expressions.contribution(value / 2).filter(|_| !self.promises_each());
            self.check_mark(step, source, nth, scaled)?;
            self.operands.push(value / 2);
        }
        let id = if step.is_fold() { self.expressions.fold(&self.operands) } else { self.operands[0] };
        self.check_complete(step, nth, id)?;
        Ok(id * 2 + u32::from(step.is_final))
    }

    /// Checks that a fold has no contribution twice, and is final if and only if it has all contributions.
    fn check_complete(&mut self, step: &Step, nth: u32, id: Id) -> Result<(), Violation> {
        let (count, all) = (self.expressions.count(id), self.graph.schedule.world_size);
        let cell = || cell_of(&step.dst[0], nth);
        if (count >= all || self.looks_at_all) && !self.is_each_once.get(id as usize).is_some_and(|&known| known) {
            let tally = self.expressions.tally(id);
            if let Some(rank) = tally.iter().position(|&times| times > 1) {
                let brought = self.written_source(step, nth, rank);
                return Err(Violation::Repeated { step: name_of(step), cell: cell(), rank: rank as u32, brought });
            }
            self.is_each_once.resize(self.is_each_once.len().max(id as usize + 1), false);
            self.is_each_once[id as usize] = true;
        }
        if self.promises_each() {
            return match step.is_final {
                true => {
                    Err(Violation::FinalPrefix { step: name_of(step), collective: self.graph.schedule.collective.name })
                }
                false => Ok(()),
            };
        }
        if count == all && !step.is_final {
            return Err(Violation::NotFinal { step: name_of(step), cell: cell() });
        }
        if count < all && step.is_final {
            let tally = self.expressions.tally(id);
            let missing = tally.iter().position(|&times| times == 0).expect("fewer contributions than ranks") as u32;
            return Err(Violation::FinalTooEarly { step: name_of(step), cell: cell(), missing });
        }
        Ok(())
    }

    /// Returns the last source of a fold that contains a rank's contribution and that a step wrote, with that step.
    fn written_source(&self, step: &Step, nth: u32, rank: usize) -> Option<(BufferChunk, StepName)> {
        let brings = step.src.iter().zip(&self.operands).filter(|(_, &id)| self.expressions.tally(id)[rank] > 0);
        let cells = brings.map(|(source, _)| (cell_of(&source.view, nth), &source.view));
        cells.rev().find_map(|(cell, view)| Some((cell, self.last_writer(step, view, cell.chunk)?)))
    }

    /// Returns the last step before `step` that wrote a chunk of a view.
    fn last_writer(&self, step: &Step, view: &View, chunk: u32) -> Option<StepName> {
        let (graph, memory) = (self.graph, self.memory);
        let is_it = |dst: &View| dst.chunks.contains(&chunk) && memory.cell(dst, chunk) == memory.cell(view, chunk);
        let before = graph.order().iter().map(|&at| graph.step(at)).take_while(|at| !std::ptr::eq(*at, step));
        before.filter(|at| at.dst.iter().any(is_it)).last().map(name_of)
    }

    fn check_mark(&self, step: &Step, source: &Source, nth: u32, expected: Option<u32>) -> Result<(), Violation> {
        let found = source.contribution;
        if found == expected {
            return Ok(());
        }
        Err(Violation::Mark { step: name_of(step), cell: cell_of(&source.view, nth), found, expected })
    }

    fn value_of(&self, step: &Step, source: &Source, nth: u32) -> Result<u32, Violation> {
        match self.cells[self.memory.cell(&source.view, source.view.chunks.start + nth)] {
            NOTHING => Err(Violation::Unwritten { step: name_of(step), cell: cell_of(&source.view, nth) }),
            value => Ok(value),
        }
    }

    /// Says whether each rank is promised a different fold, as in a scan.
    fn promises_each(&self) -> bool {
        self.graph.schedule.collective.folds == Folds::Predecessors
    }

    fn is_kept(&self, promise: &Promise, value: u32) -> bool {
        match promise {
            _ if value == NOTHING => false,
            Promise::CopyOf { from } => value == from * 2,
            Promise::FoldOf(ranks) if self.promises_each() => {
                let tally = self.expressions.tally(value / 2);
                tally.iter().zip(0..).all(|(&times, rank)| times == u32::from(ranks.contains(&rank)))
            }
            // A final value contains every contribution once, as `check_complete` found.
            Promise::FoldOf(_) => value % 2 == 1,
        }
    }

    fn text_of_promise(&self, promise: &Promise) -> String {
        match promise {
            Promise::CopyOf { from } => format!("r{from}"),
            Promise::FoldOf(ranks) if self.promises_each() => {
                format!("the fold of the contributions of ranks {} to {}", ranks.start, ranks.end - 1)
            }
            Promise::FoldOf(_) => "the final fold of every rank's contribution".to_owned(),
        }
    }

    /// Returns the ranks whose contributions were promised and are missing.
    fn lacking(&self, promise: Promise, value: u32) -> Vec<u32> {
        let tally = (value != NOTHING).then(|| self.expressions.tally(value / 2));
        let is_there = |rank: &u32| tally.as_ref().is_some_and(|tally| tally[*rank as usize] > 0);
        let promised = match promise {
            Promise::FoldOf(ranks) => ranks,
            Promise::CopyOf { from } => from..from + 1,
        };
        promised.filter(|rank| !is_there(rank)).collect()
    }

    fn text_of(&self, value: u32) -> String {
        match value {
            NOTHING => super::report::NOTHING.to_owned(),
            value => format!("{}{}", self.expressions.at(value / 2), if value % 2 == 1 { ", final" } else { "" }),
        }
    }
}

fn cell_of(view: &View, nth: u32) -> BufferChunk {
    BufferChunk::of(view, view.chunks.start + nth)
}
