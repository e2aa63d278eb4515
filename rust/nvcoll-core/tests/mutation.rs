//! How good the verifier is: it must refute schedules with one thing wrong, and may accept one only if it is not wrong.
//!
//! Every registered algorithm on every path, under both aliasings, is mutated in every way there is; a fixed sample of each
//! kind is tried. What the verifier accepts has to survive 1,000 random interleavings in the interpreter, which knows
//! nothing of proofs, and has to end in exactly the expressions that the proof printed. To see that the verifier does not
//! simply refute, some interleavings of refuted mutants are run too: most of them do go wrong.
//!
//! `cargo test --release --test mutation -- --nocapture` prints the counts. `NVCOLL_MUTANTS` sets how many mutants of each
//! kind are tried for each schedule. By default it is one mutant for a fifth of the schedules, another fifth for each kind.

mod interpreter;
mod mutants;
mod random;

use interpreter::Interpreter;
use mutants::{mutants, Kind};
use nvcoll_core::algorithm::ALGORITHMS;
use nvcoll_core::collective::Promise;
use nvcoll_core::schedule::Schedule;
use nvcoll_core::verify::{verify, Verified};

/// How many interleavings excuse an accepted mutant.
const INTERLEAVINGS: u64 = 1_000;

/// How many interleavings are given to a refuted one to go wrong. Chosen.
const ATTEMPTS: u64 = 40;

/// One in how many schedules is mutated in each kind by default. Chosen: all take more than a minute, and
/// a prime meets every form of an algorithm.
const ONE_IN: usize = 5;

/// Every schedule that is mutated, with a name.
fn originals() -> Vec<(String, Schedule)> {
    let mut originals = Vec::new();
    for algorithm in ALGORITHMS {
        for world_size in 2..=5 {
            let schedules = algorithm.schedules(world_size).map(Result::unwrap);
            // The roots in between are like the last.
            let schedules = schedules.filter(|schedule| [0, world_size - 1].contains(&schedule.root));
            originals.extend(schedules.map(|schedule| (schedule.title(), schedule)));
        }
    }
    originals
}

/// Runs interleavings and compares every result with what the proof says it is.
fn survives(schedule: &Schedule, verified: Option<&Verified>, interleavings: u64) -> Result<(), String> {
    let mut interpreter = Interpreter::new(schedule);
    for seed in 0..interleavings {
        interpreter.run(seed)?;
    }
    for chunk in (0..schedule.chunks()).filter(|_| verified.is_some()) {
        let (ran, proved) = (interpreter.expression(chunk), verified.map_or(String::new(), |v| v.expression(chunk)));
        if ran != proved {
            return Err(format!("chunk {chunk} became {ran}, but {proved} was proved"));
        }
        if verified.is_some_and(Verified::is_rank_order) && ran != in_rank_order(schedule, chunk) {
            return Err(format!("chunk {chunk} became {ran}, but rank order was proved"));
        }
    }
    Ok(())
}

/// The fold of what the last rank that holds a chunk is promised, in the order of ranks.
fn in_rank_order(schedule: &Schedule, chunk: u32) -> String {
    let last = (0..schedule.world_size).rev().find(|&rank| schedule.output_holds(rank, chunk)).unwrap();
    let promise = schedule.collective.promise(schedule.roles(), last, chunk / schedule.chunks_per_part);
    let Promise::FoldOf(ranks) = promise else { panic!("what is copied has no order") };
    let ranks: Vec<String> = ranks.map(|rank| format!("r{rank}")).collect();
    if let [one] = &ranks[..] {
        return one.clone();
    }
    format!("({})", ranks.join(" + "))
}

#[derive(Default)]
struct Count {
    tried: usize,
    refuted: usize,
    seen_wrong: usize,
    exempt: usize,
}

#[test]
fn every_accepted_mutant_keeps_the_contract_in_a_thousand_interleavings() {
    let limit = std::env::var("NVCOLL_MUTANTS").ok().and_then(|value| value.parse().ok());
    let originals = originals();
    let (mut wrongly_accepted, mut lines) = (Vec::new(), Vec::new());
    for (of_kind, &kind) in Kind::ALL.iter().enumerate() {
        let mut count = Count::default();
        let is_chosen = |nth: usize| limit.is_some() || nth % ONE_IN == of_kind % ONE_IN;
        for (nth, (name, original)) in originals.iter().enumerate().filter(|(nth, _)| is_chosen(*nth)) {
            for mutant in mutants(original, kind, nth as u64).take(limit.unwrap_or(1)) {
                count.tried += 1;
                match verify(mutant.clone()) {
                    Err(_) => {
                        count.refuted += 1;
                        count.seen_wrong += usize::from(survives(&mutant, None, ATTEMPTS).is_err());
                    }
                    Ok(verified) => match survives(&mutant, Some(&verified), INTERLEAVINGS) {
                        Ok(()) => count.exempt += 1,
                        Err(what) => wrongly_accepted.push(format!("{kind:?} of {name}: {what}")),
                    },
                }
            }
        }
        let Count { tried, refuted, seen_wrong, exempt } = count;
        lines.push(format!("{:24} {tried:>6} {refuted:>8} {seen_wrong:>12} {exempt:>7}", format!("{kind:?}")));
        assert!(seen_wrong > 0, "no mutant of kind {kind:?} goes wrong: this kind tests nothing");
    }
    println!("{:24} {:>6} {:>8} {:>12} {:>7}", "kind", "tried", "refuted", "of them seen", "exempt");
    println!("{}\nwrongly accepted: {}", lines.join("\n"), wrongly_accepted.len());
    assert!(wrongly_accepted.is_empty(), "wrongly accepted:\n{}", wrongly_accepted.join("\n"));
}

#[test]
fn the_originals_keep_the_contract_in_every_interleaving_tried() {
    for (name, original) in originals() {
        let verified = verify(original.clone()).unwrap();
        survives(&original, Some(&verified), 20).unwrap_or_else(|what| panic!("{name}: {what}"));
    }
}
