//! Every row of the registry is proved, on both paths, under both aliasings.

use nvcoll_core::algorithm::{self, Order, ALGORITHMS};
use nvcoll_core::lower::lower;
use nvcoll_core::schedule::{Aliasing, Path};
use nvcoll_core::verify::{check, verify};

#[test]
fn every_algorithm_is_proved_on_every_path_and_aliasing() {
    for algorithm in ALGORITHMS {
        for world_size in (1..=17).chain([32, 64]) {
            for &aliasing in Aliasing::ALL {
                let mapped = algorithm::build(algorithm.collective, algorithm.name, world_size, aliasing).unwrap();
                for &path in Path::ALL {
                    let schedule = lower(&mapped, path).unwrap();
                    let verified = verify(schedule).unwrap_or_else(|violation| {
                        panic!("{} {} {world_size} {path:?} {aliasing:?}: {violation}", algorithm.collective.name, algorithm.name)
                    });
                    assert!(verified.is_symmetric());
                    assert!(algorithm.order != Order::Rank || verified.is_rank_order());
                }
            }
        }
    }
}

#[test]
fn the_number_of_tiles_does_not_matter_beyond_slots_and_one() {
    for algorithm in ALGORITHMS {
        for world_size in 1..=6 {
            let mapped = algorithm::build(algorithm.collective, algorithm.name, world_size, Aliasing::InPlace).unwrap();
            let staged = lower(&mapped, Path::Staged).unwrap();
            assert_eq!(check(&staged, 8), Ok(()), "{}", algorithm.name);
        }
    }
}
