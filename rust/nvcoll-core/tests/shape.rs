//! What building and lowering give, for schedules small enough to read.

use nvcoll_core::algorithm;
use nvcoll_core::schedule::Path;

#[test]
fn every_algorithm_builds_and_lowers_for_every_small_world() {
    for algorithm in algorithm::ALGORITHMS {
        for world_size in 1..=17 {
            let schedules: Vec<_> = algorithm.schedules(world_size).map(Result::unwrap).collect();
            for forms in schedules.chunk_by(|_, next| next.path != Path::Mapped) {
                assert!(forms.iter().all(|lowered| lowered.steps.len() >= forms[0].steps.len()) || world_size == 1);
            }
        }
    }
}
