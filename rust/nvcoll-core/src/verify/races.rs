//! Races: every two accesses to one cell, one of them a write, must be ordered.
//!
//! ```text
//! read    must come after the last write
//! write   must come after the last write, and after every read since
//! ```
//!
//! Steps are passed in a topological order. If every access passes the test against the few that it is compared with, all
//! pairs are ordered, because order is transitive: write, then its reads, then the next write. So a pair of the same cell is
//! never looked at twice, and time is linear in the number of accesses.
//!
//! User buffers and scratch are as long as the data, so different tiles touch different memory and one tile proves all. A
//! slot of staging is used again `slots` tiles later: there the accesses of the first tile stay on record while the tile
//! that comes back to its slot is passed.

use super::clocks::Clocks;
use super::graph::Graph;
use super::location::{Access, BufferChunk};
use super::memory::Memory;
use super::report::Violation;
use crate::schedule::View;

/// Nobody, in the records of a cell.
const NONE: u32 = u32::MAX;

/// The accesses on record.
pub(super) struct Races<'g, 'a> {
    graph: &'g Graph<'a>,
    memory: &'g Memory,
    /// For each cell, who wrote it last, as step + steps x tile.
    writers: Vec<u32>,
    /// For each cell, its latest entry in `reads`.
    readers: Vec<u32>,
    /// Who read, and the entry before of the same cell.
    reads: Vec<(u32, u32)>,
}

impl<'g, 'a> Races<'g, 'a> {
    pub(super) fn new(graph: &'g Graph<'a>, memory: &'g Memory) -> Self {
        let cells = memory.len();
        Self { graph, memory, writers: vec![NONE; cells], readers: vec![NONE; cells], reads: Vec::new() }
    }

    /// Checks and records what the step at hand does: everything in the first tile, staging in later ones.
    pub(super) fn pass(&mut self, clocks: &Clocks<'_, '_>, step: u32, tile: u32) -> Result<(), Violation> {
        let graph = self.graph;
        let node = step + tile * graph.order().len() as u32;
        for view in graph.step(step).src.iter().map(|source| &source.view) {
            if tile == 0 || view.buffer.is_staging() {
                view.chunks.clone().try_for_each(|chunk| self.read(clocks, (view, chunk), node))?;
            }
        }
        for view in &graph.step(step).dst {
            if tile == 0 || view.buffer.is_staging() {
                view.chunks.clone().try_for_each(|chunk| self.write(clocks, (view, chunk), node))?;
            }
        }
        Ok(())
    }

    fn read(&mut self, clocks: &Clocks<'_, '_>, at: (&View, u32), node: u32) -> Result<(), Violation> {
        let cell = self.memory.cell(at.0, at.1);
        let writer = self.writers[cell];
        if writer != NONE && !self.is_past(clocks, writer) {
            return Err(self.race(at, (writer, Access::Writes), (node, Access::Reads)));
        }
        self.reads.push((node, self.readers[cell]));
        self.readers[cell] = self.reads.len() as u32 - 1;
        Ok(())
    }

    fn write(&mut self, clocks: &Clocks<'_, '_>, at: (&View, u32), node: u32) -> Result<(), Violation> {
        let cell = self.memory.cell(at.0, at.1);
        let writer = std::mem::replace(&mut self.writers[cell], node);
        if writer == node {
            let step = self.graph.name(self.place(node).0);
            return Err(Violation::WrittenTwice { step, cell: BufferChunk::of(at.0, at.1) });
        }
        if writer != NONE && !self.is_past(clocks, writer) {
            return Err(self.race(at, (writer, Access::Writes), (node, Access::Writes)));
        }
        let mut entry = std::mem::replace(&mut self.readers[cell], NONE);
        while entry != NONE {
            let (reader, before) = self.reads[entry as usize];
            if reader != node && !self.is_past(clocks, reader) {
                return Err(self.race(at, (reader, Access::Reads), (node, Access::Writes)));
            }
            entry = before;
        }
        Ok(())
    }

    fn is_past(&self, clocks: &Clocks<'_, '_>, node: u32) -> bool {
        let (step, tile) = self.place(node);
        clocks.knows(step, tile)
    }

    fn place(&self, node: u32) -> (u32, u32) {
        let steps = self.graph.order().len() as u32;
        (node % steps, node / steps)
    }

    fn race(&self, at: (&View, u32), first: (u32, Access), second: (u32, Access)) -> Violation {
        let ((early, early_tile), (late, late_tile)) = (self.place(first.0), self.place(second.0));
        Violation::Race {
            first: self.graph.name(early),
            first_access: first.1,
            second: self.graph.name(late),
            second_access: second.1,
            cell: BufferChunk::of(at.0, at.1),
            lag: late_tile - early_tile,
        }
    }
}
