//! What building and lowering give, for schedules small enough to read.

use nvcoll_core::algorithm;
use nvcoll_core::lower::lower;
use nvcoll_core::schedule::{Aliasing, Path};

#[test]
fn every_algorithm_builds_and_lowers_for_every_small_world() {
    for algorithm in algorithm::ALGORITHMS {
        for world_size in (1..=17).chain([32, 64]) {
            for &aliasing in Aliasing::ALL {
                let schedule = algorithm::build(algorithm.collective, algorithm.name, world_size, aliasing).unwrap();
                let staged = lower(&schedule, Path::Staged).unwrap();
                assert!(staged.steps.len() >= schedule.steps.len() || world_size == 1);
            }
        }
    }
}

#[test]
fn the_largest_world_builds() {
    for algorithm in algorithm::ALGORITHMS {
        algorithm::build(algorithm.collective, algorithm.name, 1024, Aliasing::Disjoint).unwrap();
    }
}
