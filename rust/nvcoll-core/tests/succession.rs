//! Calls that follow each other use the same staging: what the stamp rule is for.

mod random;

use nvcoll_core::algorithm::{self, ALGORITHMS};
use nvcoll_core::collective::{Roles, ALL_REDUCE};
use nvcoll_core::lower::lower;
use nvcoll_core::schedule::{Aliasing, Path, Schedule};
use nvcoll_core::text::parse;
use nvcoll_core::verify::{succession, verify, StampRule, Violation};

use random::Random;

/// Of three ranks, rank 0 stages its input and leaves at once; `reader` fetches it whenever it likes; the third does nothing.
///
/// A broadcast as far as staging is concerned. It does not keep the contract it names, which succession does not ask.
fn rooted(reader: u32) -> Schedule {
    let text = format!(
        "schedule all_reduce rooted  world_size 3  chunks_per_part 1  path staged  aliasing out_of_place
         r0.q0.0  staging0[r0].0 = input[r0].0                after r{reader}.enter r{reader}.q0.0@2
         r{reader}.q0.0  output[r{reader}].0 = staging0[r0].0  after r0.enter r0.q0.0
         leave r0
         leave r1
         leave r2"
    );
    parse(&text).unwrap()
}

/// One schedule of every registered algorithm, path and aliasing.
fn registered(world_size: u32) -> Vec<Schedule> {
    ALGORITHMS.iter().flat_map(|algorithm| algorithm.schedules(world_size)).map(Result::unwrap).collect()
}

/// How many times three calls are drawn for each world size. Chosen.
const TRIPLES: usize = 3000;

/// What an engine does: a rank waits for stamps before it enters, unless the call before was symmetric.
fn rule_after(call: &Schedule) -> StampRule {
    if verify(call.clone()).is_ok_and(|verified| verified.is_symmetric()) {
        StampRule::Ignored
    } else {
        StampRule::BeforeEnter
    }
}

/// Every call three times in a row, and random others in every order.
#[test]
fn registered_calls_share_staging_and_records_in_any_order() {
    let mut random = Random::new(1);
    for world_size in 1..=4 {
        let mut calls = registered(world_size);
        if world_size == 3 {
            calls.extend([rooted(1), rooted(2)]);
        }
        let rules: Vec<StampRule> = calls.iter().map(rule_after).collect();
        let same = (0..calls.len()).map(|call| [call; 3]);
        let random: Vec<[usize; 3]> = (0..TRIPLES).map(|_| [(); 3].map(|()| random.below(calls.len()))).collect();
        for three in same.chain(random) {
            let [first, second, third] = three.map(|call| &calls[call]);
            succession(&[first, second, third], rules[three[1]]).unwrap_or_else(|refutation| {
                panic!("{} between {} and {}: {refutation}", second.title(), first.title(), third.title())
            });
        }
    }
}

#[test]
fn symmetric_calls_need_no_stamps() {
    for call in registered(4).into_iter().filter(|call| call.collective.synchronises) {
        succession(&[&call, &call, &call], StampRule::Ignored).unwrap_or_else(|refutation| panic!("{refutation}"));
    }
}

#[test]
fn without_the_stamp_rule_a_root_overruns_a_reader_of_two_calls_ago() {
    let calls = [&rooted(1), &rooted(2), &rooted(2)];
    let violation = *succession(&calls, StampRule::Ignored).unwrap_err().violation;
    assert!(matches!(violation, Violation::StagingOverrun { .. }), "{violation}");
}

#[test]
fn the_stamp_rule_holds_a_root_back() {
    let calls = [&rooted(1), &rooted(2), &rooted(2)];
    succession(&calls, StampRule::BeforeEnter).unwrap_or_else(|refutation| panic!("{refutation}"));
    let before_staging = succession(&calls, StampRule::BeforeStaging).map_err(|refutation| *refutation.violation);
    let is_staging_safe = matches!(before_staging, Ok(()) | Err(Violation::RecordOverrun { .. }));
    assert!(is_staging_safe, "records are another matter: {before_staging:?}");
}

#[test]
fn a_symmetric_call_in_between_holds_a_root_back_too() {
    let between =
        lower(&algorithm::build(&ALL_REDUCE, "ring", Roles::of(3), Aliasing::Disjoint).unwrap(), Path::Staged).unwrap();
    let calls = [&rooted(1), &between, &rooted(2)];
    succession(&calls, StampRule::Ignored).unwrap_or_else(|refutation| panic!("{refutation}"));
}
