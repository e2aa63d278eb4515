//! The end of a failed call: the rank waits until no peer can touch its buffers. What it reports then is in `report.rs`.

use std::future::poll_fn;
use std::ops::Range;
use std::task::Poll;
use std::time::{Duration, Instant};

use crate::memory::world::rank_lines::RankLines;
use crate::memory::world::World;
use crate::sync::{Backoff, Doorbell};

/// The longest sleep of a rank that waits for its peers to stop. Peers that acknowledge ring afterwards, and peers that
/// complete the call do not. Chosen: a step lasts no longer.
const LONGEST_SLEEP: Duration = Duration::from_millis(1);

/// Waits until no peer can touch the buffers of `own` ranks, which have acknowledged the abort. An issued call is pending meanwhile: its
/// thread has to acknowledge the abort of others.
///
/// Peers acknowledge between two steps. A step is at most a tile long. From a process that is stopped, memory is withheld
/// (`memory/heap.rs`).
pub(crate) async fn until_quiet(world: &World, own: &Range<u32>, is_issued: bool) {
    // Its fence is also what a rank needs that only saw the abort, before it looks who is active.
    ring_everybody(world);
    let is_quiet = || (0..world.world_size()).all(|rank| world.is_quiet(rank));
    if is_issued {
        let give_up = give_up_at(world);
        let is_over = || is_quiet() || give_up.is_some_and(|at| Instant::now() >= at);
        poll_fn(|_| if is_over() { Poll::Ready(()) } else { Poll::Pending }).await;
    } else {
        sleep_until_quiet(world, world.lines[own.start as usize].doorbell(), is_quiet);
    }
    (0..world.world_size()).filter(|&rank| !world.is_quiet(rank)).for_each(|rank| world.withhold_from(rank));
}

/// Returns when a failed call waits no longer for its peers.
fn give_up_at(world: &World) -> Option<Instant> {
    world.origin().longest_quiesce().and_then(|longest| Instant::now().checked_add(longest))
}

/// Waits at a bell until all peers are quiet, as long as a failed call may.
pub(crate) fn sleep_until_quiet(world: &World, bell: &Doorbell, is_quiet: impl Fn() -> bool) {
    let (give_up, mut backoff) = (give_up_at(world), Backoff::of_rank());
    while !is_quiet() && give_up.is_none_or(|at| Instant::now() < at) {
        backoff.wait(|| bell.sleep(&is_quiet, Instant::now().checked_add(LONGEST_SLEEP)));
    }
}

/// Wakes all ranks, so that they see an abort or a departure.
pub(crate) fn ring_everybody(world: &World) {
    Doorbell::ring_all(world.lines.iter().flat_map(RankLines::bells));
}
