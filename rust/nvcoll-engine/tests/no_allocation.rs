//! A planned call allocates nothing: not by tile, not by rank, not with helpers, not in SPMD.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::{in_place, watchdog};
use nvcoll_core::collective::ALL_REDUCE;
use nvcoll_core::counts::Counts;
use nvcoll_core::schedule::{Aliasing, Path};
use nvcoll_engine::call::Call;
use nvcoll_engine::ranks::node::Node;
use nvcoll_engine::ranks::team::Team;
use nvcoll_engine::Buffers;

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: the caller's.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn call(path: Path, count: usize) -> Call {
    let (algorithm, counts, aliasing) = ("ring".into(), Counts::Even(count), Aliasing::InPlace);
    Call { algorithm, counts, path, aliasing, ..Call::without_data(&ALL_REDUCE) }
}

#[test]
fn a_planned_call_allocates_nothing() {
    for (path, count) in [(Path::Mapped, 64), (Path::Mapped, 300_000), (Path::Staged, 64), (Path::Staged, 30_000)] {
        let node = Node::new(4, Some(2)).unwrap();
        let program = node.program(&call(path, count), None).unwrap();
        let mut data = vec![vec![1f32; count]; 4];
        let mut all: Vec<Buffers> = data.iter_mut().map(|x| in_place(x)).collect();
        let mut run = || {
            // SAFETY: four live vectors of `count` floats, in place.
            unsafe { node.run(&program, &mut all, watchdog(), &mut || false) }.unwrap();
        };
        let mut allocations = || {
            let before = ALLOCATIONS.load(Ordering::Relaxed);
            (0..50).for_each(|_| run());
            ALLOCATIONS.load(Ordering::Relaxed) - before
        };
        // The first call starts the helpers, and a thread that starts allocates: once, though nobody knows when.
        let is_at_rest = (0..100).any(|_| {
            std::thread::sleep(Duration::from_millis(5));
            allocations() == 0
        });
        assert!(is_at_rest, "{path:?} {count}: fifty calls allocate every time");
    }

    let node = Node::new(1, None).unwrap();
    let program = node.program_of_rank(&call(Path::Mapped, 64), None).unwrap();
    let (member, mut data) = (Team::new(1).member(0).unwrap(), vec![1f32; 64]);
    let mut run = || {
        // SAFETY: a live vector of 64 floats.
        unsafe { member.run(&program, in_place(&mut data), watchdog()) }.unwrap();
    };
    run();
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    (0..50).for_each(|_| run());
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed) - before, 0, "one rank of a team");
}
