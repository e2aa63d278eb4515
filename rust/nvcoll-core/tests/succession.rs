//! Calls that follow each other use the same staging: what the stamp rule is for.

use nvcoll_core::algorithm::{self, ALGORITHMS};
use nvcoll_core::collective::ALL_REDUCE;
use nvcoll_core::lower::lower;
use nvcoll_core::schedule::{Aliasing, Path, Schedule};
use nvcoll_core::text::parse;
use nvcoll_core::verify::{succession, StampRule, Violation};

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
    let rows = ALGORITHMS.iter().flat_map(|algorithm| Aliasing::ALL.iter().map(move |&aliasing| (algorithm, aliasing)));
    let mapped = rows.map(|(a, aliasing)| algorithm::build(a.collective, a.name, world_size, aliasing).unwrap());
    mapped.flat_map(|mapped| Path::ALL.iter().map(move |&path| lower(&mapped, path).unwrap())).collect()
}

#[test]
fn every_three_registered_calls_share_staging_under_the_stamp_rule() {
    for world_size in 1..=3 {
        let calls = registered(world_size);
        for (first, third) in calls.iter().flat_map(|first| calls.iter().map(move |third| (first, third))) {
            for second in calls.iter().filter(|second| second.aliasing == Aliasing::InPlace) {
                succession(&[first, second, third], StampRule::BeforeStaging)
                    .unwrap_or_else(|refutation| panic!("{refutation}"));
            }
        }
    }
}

/// As an engine keeps it: a rank waits for stamps before it enters, unless the call before was symmetric.
#[test]
fn rooted_and_registered_calls_share_staging_and_records_in_any_order() {
    let mut calls = registered(3);
    calls.retain(|call| call.aliasing == Aliasing::InPlace);
    calls.extend([rooted(1), rooted(2)]);
    for (first, third) in calls.iter().flat_map(|first| calls.iter().map(move |third| (first, third))) {
        for second in &calls {
            succession(&[first, second, third], StampRule::BeforeEnter)
                .unwrap_or_else(|refutation| panic!("{} after {}: {refutation}", second.algorithm, first.algorithm));
        }
    }
}

#[test]
fn symmetric_calls_need_no_stamps() {
    for call in registered(4) {
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
    let between = lower(&algorithm::build(&ALL_REDUCE, "ring", 3, Aliasing::Disjoint).unwrap(), Path::Staged).unwrap();
    let calls = [&rooted(1), &between, &rooted(2)];
    succession(&calls, StampRule::Ignored).unwrap_or_else(|refutation| panic!("{refutation}"));
}
