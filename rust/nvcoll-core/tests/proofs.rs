//! Every row of the registry is proved, on both paths, under both aliasings.

use nvcoll_core::algorithm::{self, Order, ALGORITHMS};
use nvcoll_core::lower::lower;
use nvcoll_core::schedule::{Aliasing, Path};
use nvcoll_core::verify::verify;

#[test]
fn every_algorithm_is_proved_on_every_path_and_aliasing() {
    for algorithm in ALGORITHMS {
        for world_size in (1..=17).chain([32, 64]) {
            for &aliasing in Aliasing::ALL {
                let mapped = algorithm::build(algorithm.collective, algorithm.name, world_size, aliasing).unwrap();
                for &path in Path::ALL {
                    let schedule = lower(&mapped, path).unwrap();
                    let verified = verify(schedule).unwrap_or_else(|refutation| panic!("{refutation}"));
                    assert!(verified.is_symmetric());
                    assert!(algorithm.order != Order::Rank || verified.is_rank_order());
                }
            }
        }
    }
}
