//! Races: every two accesses to a cell, one of them a write, happen one before the other.
//!
//! A cell is one chunk of one memory of one rank: of a tile where memory is as long as the data, of a slot where it is
//! staging. Going through the tiles in an order in which they can run, a read must come after the last write, a write after
//! the reads since, or after the last write if there are none; all other pairs follow.

use std::collections::HashMap;

use super::form::Held;
use super::order::HappensBefore;
use super::violation::{Cell, StepName, Violation};
use crate::schedule::{Buffer, Schedule, View};

#[derive(Default)]
struct Accesses {
    writer: Option<usize>,
    readers: Vec<usize>,
}

/// (rank, memory, tile or slot, chunk)
type CellKey = (u32, Buffer, u32, u32);

pub(super) fn check(schedule: &Schedule, order: &mut HappensBefore) -> Result<(), Violation> {
    let held = Held::of(schedule);
    let slots = schedule.path.slots().max(1);
    let mut cells: HashMap<CellKey, Accesses> = HashMap::new();
    for tile in 0..order.tiles {
        for at in 0..order.steps {
            let position = order.topological[at];
            let step = &schedule.steps[position as usize];
            let node = order.node(tile, position);
            let key = |view: &View, chunk: u32| -> CellKey {
                let home = if view.buffer.is_staging() { tile % slots } else { tile };
                (view.rank, held.memory(schedule.aliasing, view.rank, view.buffer, chunk), home, chunk)
            };
            for (view, chunk) in step.src.iter().flat_map(|s| s.view.chunks.clone().map(move |c| (&s.view, c))) {
                let accesses = cells.entry(key(view, chunk)).or_default();
                if let Some(writer) = accesses.writer {
                    demand(schedule, order, writer, node, view, chunk)?;
                }
                accesses.readers.push(node);
            }
            for (view, chunk) in step.dst.iter().flat_map(|v| v.chunks.clone().map(move |c| (v, c))) {
                let accesses = cells.entry(key(view, chunk)).or_default();
                let readers = std::mem::take(&mut accesses.readers);
                let earlier = if readers.iter().all(|&r| r == node) { accesses.writer.into_iter().collect() } else { readers };
                for reader in earlier.into_iter().filter(|&reader| reader != node) {
                    demand(schedule, order, reader, node, view, chunk)?;
                }
                accesses.writer = Some(node);
            }
        }
    }
    Ok(())
}

fn demand(
    schedule: &Schedule,
    order: &mut HappensBefore,
    earlier: usize,
    later: usize,
    view: &View,
    chunk: u32,
) -> Result<(), Violation> {
    if order.is_before(earlier, later) {
        return Ok(());
    }
    let ((earlier_tile, a), (later_tile, b)) = (order.tile_and_position(earlier), order.tile_and_position(later));
    Err(Violation::Race {
        earlier: StepName::of(&schedule.steps[a as usize]),
        earlier_tile,
        later: StepName::of(&schedule.steps[b as usize]),
        later_tile,
        cell: Cell(View { chunks: chunk..chunk + 1, ..view.clone() }),
    })
}
