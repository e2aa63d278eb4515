//! Races: any two accesses to one cell must be ordered if one of them is a write.
//!
//! ```text
//! read    must come after the last write
//! write   must come after the last write, and after every read since
//! ```
//!
//! Steps are passed in topological order. Each access is compared with a few earlier accesses. That orders all pairs, because order
//! is transitive: a write, then its reads, then the next write. No pair is compared twice, so time is linear in the accesses.
//!
//! User buffers and scratch are as long as the data, so tiles access different memory and one tile is enough. A slot of staging is
//! reused `slots` tiles later. For staging, the accesses of the first tile stay recorded while the tile that reuses the slot is
//! passed.

use super::clocks::Clocks;
use super::graph::Graph;
use super::location::{Access, BufferChunk};
use super::memory::Memory;
use super::report::Violation;
use crate::schedule::View;

/// The absence of an access in the records of a cell.
const NONE: u32 = u32::MAX;

/// The recorded accesses of each cell.
pub(super) struct Races<'g, 'a> {
    graph: &'g Graph<'a>,
    memory: &'g Memory,
    /// The last writer of each cell, as step + steps x tile.
    writers: Vec<u32>,
    /// The latest entry of each cell in `reads`.
    readers: Vec<u32>,
    /// The reader, and the previous entry of the same cell.
    reads: Vec<(u32, u32)>,
}

impl<'g, 'a> Races<'g, 'a> {
    pub(super) fn new(graph: &'g Graph<'a>, memory: &'g Memory) -> Self {
        let cells = memory.len();
        Self { graph, memory, writers: vec![NONE; cells], readers: vec![NONE; cells], reads: Vec::new() }
    }

    /// Checks and records the accesses of the current step: all in the first tile, only staging in later tiles.
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
