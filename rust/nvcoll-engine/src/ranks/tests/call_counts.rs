//! How calls of a node are counted.

use std::sync::Arc;

use nvcoll_core::collective::ALL_REDUCE;
use nvcoll_core::counts::Counts;
use nvcoll_core::schedule::Aliasing;

use crate::auto::work_split::WorkSplit;
use crate::call::Call;
use crate::deadline::Deadline;
use crate::memory::buffers::Buffers;
use crate::program::batch::Batch;
use crate::program::call_counts::{CallCounts, CountedCall, MOST_KINDS};
use crate::program::Program;
use crate::ranks::node::Node;
use crate::sync::single_flight::Unlocked;

fn call(count: usize) -> Call {
    let (algorithm, aliasing) = ("ring".into(), Aliasing::InPlace);
    Call { algorithm, counts: Counts::Even(count), aliasing, ..Call::without_data(&ALL_REDUCE) }
}

fn buffers(data: &mut [[f32; 8]; 2]) -> Vec<Buffers> {
    let own = |x: &mut [f32; 8]| {
        let start: *mut u8 = x.as_mut_ptr().cast();
        Buffers::new(start, start, 1.0)
    };
    data.iter_mut().map(own).collect()
}

fn run(node: &Node, program: &Arc<Program>) {
    let mut data = [[1f32; 8]; 2];
    // SAFETY: two live arrays, long enough for any call here, in place.
    unsafe { node.run(program, &mut buffers(&mut data), Deadline::after(None), &mut || false) }.unwrap();
}

fn counted(node: &Node) -> Vec<(usize, usize, u64)> {
    node.programs().call_counts().counted().iter().map(|one| (one.kind.count, one.kind.calls, one.times)).collect()
}

#[test]
fn what_succeeded_is_counted_also_when_its_program_was_bound_anew() {
    let mut node = Node::new(2, Some(1)).unwrap();
    let first = node.program(&call(5), None).unwrap();
    assert!(counted(&node).is_empty(), "nothing was called");
    run(&node, &first);
    run(&node, &first);
    node.programs_mut().set_isa(crate::kernel::Isa::Baseline).unwrap();
    let anew = node.program(&call(5), None).unwrap();
    assert!(!Arc::ptr_eq(&first, &anew));
    run(&node, &anew);
    assert_eq!(counted(&node), [(5, 1, 3)]);
}

/// Does the work of a caller while another thread holds the counts, as a thread that forks does. Says whether the work
/// ended before the counts were released, which a watchdog does after 30 seconds.
fn ends_while_call_counts_are_held<T: Send>(call_counts: &CallCounts, work: impl FnOnce() -> T + Send) -> (T, bool) {
    let held = call_counts.lock();
    std::thread::scope(|scope| {
        let worker = scope.spawn(work);
        let begun = std::time::Instant::now();
        while !worker.is_finished() && begun.elapsed().as_secs() < 30 {
            std::thread::yield_now();
        }
        let is_over = worker.is_finished();
        drop(held);
        (worker.join().unwrap(), is_over)
    })
}

/// Another thread holds the counts whenever the caller has released its own lock.
struct HeldWhileUnlocked<'a>(&'a CallCounts);

impl Unlocked for HeldWhileUnlocked<'_> {
    fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let (outcome, is_over) = ends_while_call_counts_are_held(self.0, work);
        assert!(is_over, "unlocked work took the lock of the counts");
        outcome
    }
}

#[test]
fn nothing_that_runs_without_the_caller_s_lock_takes_the_lock_of_the_counts() {
    let node = Node::new(2, Some(1)).unwrap();
    let programs = [2, 3].map(|count| {
        node.programs()
            .find_or_make(&call(count), WorkSplit::ByTile, 2, None, &HeldWhileUnlocked(node.programs().call_counts()))
            .unwrap()
    });
    let mut data = [[[1f32; 8]; 2]; 2];
    let mut batch = Batch::new(programs.into_iter().zip(&mut data).map(|(p, data)| (p, buffers(data))).collect());
    let (outcome, is_over) = ends_while_call_counts_are_held(node.programs().call_counts(), || {
        // SAFETY: arrays of their own for every call, as long as it says.
        unsafe { node.run_batch(&mut batch, Deadline::after(None), &mut || false) }
    });
    assert!(outcome.is_ok() && is_over, "a batch took the lock of the counts");
}

#[test]
fn the_order_is_that_of_the_first_calls_whoever_found_the_counters_first() {
    let node = Node::new(2, Some(1)).unwrap();
    let (program, call_counts) = (node.program_of_rank(&call(1), None).unwrap(), node.programs().call_counts());
    let [later, sooner] = [[1], [0]].map(|ranks| call_counts.among(&program, &ranks));
    [&sooner, &later, &sooner].into_iter().for_each(|counter| counter.count());
    let ranks = |one: &CountedCall| one.kind.ranks.to_vec();
    assert_eq!(call_counts.counted().iter().map(ranks).collect::<Vec<_>>(), [[0], [1]]);
}

#[test]
fn ranks_of_another_order_are_another_kind_and_kinds_have_an_end() {
    let node = Node::new(2, Some(1)).unwrap();
    let (program, call_counts) = (node.program_of_rank(&call(1), None).unwrap(), node.programs().call_counts());
    call_counts.among(&program, &[1, 0]).count();
    program.count();
    call_counts.among(&program, &[0, 1]).count();
    assert_eq!(call_counts.counted().iter().map(|one| one.times).collect::<Vec<_>>(), [1, 2]);
    for rank in 0..=MOST_KINDS as u32 {
        call_counts.among(&program, &[rank]).count();
    }
    assert_eq!(call_counts.counted().len(), MOST_KINDS);
    assert_eq!(call_counts.others(), 3, "two kinds were known");
}
