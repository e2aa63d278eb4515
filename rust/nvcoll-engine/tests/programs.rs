//! Programs that a node keeps, and those that it forgets.

mod common;

use std::sync::Arc;

use common::{in_place, watchdog};
use nvcoll_core::collective::ALL_REDUCE;
use nvcoll_core::counts::Counts;
use nvcoll_core::schedule::Aliasing;
use nvcoll_engine::call::Call;
use nvcoll_engine::program::cache::KEPT;
use nvcoll_engine::ranks::node::Node;

fn call(count: usize) -> Call {
    let (algorithm, counts, aliasing) = ("ring".into(), Counts::Even(count), Aliasing::InPlace);
    Call { algorithm, counts, aliasing, ..Call::without_data(&ALL_REDUCE) }
}

#[test]
fn the_program_asked_for_longest_ago_makes_room_and_still_runs_for_who_holds_it() {
    let node = Node::new(2, Some(1)).unwrap();
    let program = |count| node.program(&call(count), None).unwrap();
    let (used, forgotten) = (program(1), program(2));
    for count in 3..=KEPT {
        program(count);
    }
    assert!(Arc::ptr_eq(&used, &program(1)), "all that there is room for are kept");
    program(KEPT + 1);
    assert!(Arc::ptr_eq(&used, &program(1)));
    assert_eq!(Arc::strong_count(&forgotten), 1, "only the test holds it");
    let mut data = [[1f32, 2.0], [3.0, 4.0]];
    let mut buffers = data.each_mut().map(|x| in_place(x));
    // SAFETY: two live arrays of two floats, in place.
    unsafe { node.run(&forgotten, &mut buffers, watchdog(), &mut || false) }.unwrap();
    assert_eq!(data, [[4.0, 6.0]; 2]);
    assert!(!Arc::ptr_eq(&forgotten, &program(2)), "asked for again, it is bound again");
}
