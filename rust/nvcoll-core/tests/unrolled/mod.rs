//! Brute force: all tiles side by side, the whole happens-before relation, and every pair of accesses compared.
//!
//! ```text
//! node = (tile, step)      edges: queue order, also from the end of a tile to the start of the next; waits, `lag` tiles back
//! past[node] = union of { earlier } and past[earlier] over its edges                    one row of bits per node
//! a race = two nodes on one cell, one of them writing, neither in the past of the other
//! ```
//!
//! Nothing is clever here, and nothing is shared with the verifier: that is its worth. Cost: the square of tiles x steps.

use std::collections::HashMap;

use nvcoll_core::schedule::{Aliasing, Buffer, Event, Schedule, View};

/// What unrolling finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finding {
    /// All tiles run, and every two conflicting accesses are ordered.
    Fine,
    /// Two accesses to a cell, one of them a write, that nothing orders.
    Race,
    /// Steps that wait for each other.
    Deadlock,
}

/// Unrolls a well-formed schedule.
pub(crate) fn unroll(schedule: &Schedule, tiles: usize) -> Finding {
    let steps = schedule.steps.len();
    let before = edges(schedule, tiles);
    let Some(order) = sort(&before) else { return Finding::Deadlock };
    let mut past = vec![vec![false; tiles * steps]; tiles * steps];
    for node in order {
        let mut row = vec![false; tiles * steps];
        for &earlier in &before[node] {
            row[earlier] = true;
            row.iter_mut().zip(&past[earlier]).for_each(|(bit, &is_past)| *bit |= is_past);
        }
        past[node] = row;
    }
    let is_race = accesses(schedule, tiles).values().any(|accesses| {
        let pairs = accesses.iter().enumerate().flat_map(|(at, a)| accesses[..at].iter().map(move |b| (a, b)));
        pairs.filter(|(a, b)| a.0 != b.0 && (a.1 || b.1)).any(|(a, b)| !past[a.0][b.0] && !past[b.0][a.0])
    });
    if is_race {
        Finding::Race
    } else {
        Finding::Fine
    }
}

/// For each node, those directly before it.
fn edges(schedule: &Schedule, tiles: usize) -> Vec<Vec<usize>> {
    let (steps, queues) = (schedule.steps.len(), schedule.queues());
    let mut before = vec![Vec::new(); tiles * steps];
    for (position, step) in schedule.steps.iter().enumerate() {
        let queue = &queues[step.rank as usize][step.queue as usize];
        for tile in 0..tiles {
            let edges = &mut before[tile * steps + position];
            match step.index {
                0 if tile == 0 => {}
                0 => edges.push((tile - 1) * steps + queue[queue.len() - 1]),
                index => edges.push(tile * steps + queue[index as usize - 1]),
            }
            for wait in step.after.iter().filter(|wait| wait.lag as usize <= tile) {
                if let Event::Step { queue, index } = wait.event {
                    let awaited = queues[wait.rank as usize][queue as usize][index as usize];
                    edges.push((tile - wait.lag as usize) * steps + awaited);
                }
            }
        }
    }
    before
}

/// An order of all nodes, if there is one.
fn sort(before: &[Vec<usize>]) -> Option<Vec<usize>> {
    let (mut order, mut is_done) = (Vec::new(), vec![false; before.len()]);
    while order.len() < before.len() {
        let found = order.len();
        for node in 0..before.len() {
            if !is_done[node] && before[node].iter().all(|&earlier| is_done[earlier]) {
                is_done[node] = true;
                order.push(node);
            }
        }
        if order.len() == found {
            return None;
        }
    }
    Some(order)
}

/// (rank, memory, tile or slot, chunk)
type Cell = (u32, Buffer, usize, u32);

/// For each cell the nodes that touch it, and whether they write.
fn accesses(schedule: &Schedule, tiles: usize) -> HashMap<Cell, Vec<(usize, bool)>> {
    let mut accesses: HashMap<Cell, Vec<(usize, bool)>> = HashMap::new();
    for tile in 0..tiles {
        for (position, step) in schedule.steps.iter().enumerate() {
            let reads = step.src.iter().map(|source| (&source.view, false));
            for (view, is_write) in reads.chain(step.dst.iter().map(|view| (view, true))) {
                for chunk in view.chunks.clone() {
                    let home = if view.buffer.is_staging() { tile % schedule.slots as usize } else { tile };
                    let cell = (view.rank, memory(schedule, view, chunk), home, chunk);
                    accesses.entry(cell).or_default().push((tile * schedule.steps.len() + position, is_write));
                }
            }
        }
    }
    accesses
}

/// In place, what the input and the output of a rank both hold is one memory.
fn memory(schedule: &Schedule, view: &View, chunk: u32) -> Buffer {
    let is_input = schedule.input_holds(view.rank, chunk);
    match (schedule.aliasing, view.buffer) {
        (Aliasing::InPlace, Buffer::Output) if is_input => Buffer::Input,
        (_, buffer) => buffer,
    }
}
