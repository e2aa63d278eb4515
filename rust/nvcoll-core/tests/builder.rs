//! The builder: misuse is an error that names the step, and whatever it accepts is ordered as its program says.

use nvcoll_core::algorithm;
use nvcoll_core::builder::{Builder, Region};
use nvcoll_core::collective::{
    Collective, Roles, ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, BARRIER, BROADCAST, COLLECTIVES, EXSCAN, GATHER,
    REDUCE_SCATTER, SCATTER,
};
use nvcoll_core::limits::{MAX_VIEWS, MAX_WORLD_SIZE};
use nvcoll_core::lower::{lower, push, Fifo};
use nvcoll_core::schedule::{Aliasing, Buffer, Path, Schedule, Step, View};
use nvcoll_core::text;
use nvcoll_core::verify::{verify, Violation};
use nvcoll_core::Error;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

fn refusal(program: impl FnOnce(&mut Builder)) -> String {
    refusal_of(&ALL_REDUCE, program)
}

fn refusal_of(collective: &'static Collective, program: impl FnOnce(&mut Builder)) -> String {
    let mut b = Builder::new(collective, Roles::of(4), Aliasing::Disjoint).unwrap();
    program(&mut b);
    match b.finish("mine") {
        Err(error @ (Error::Build(_) | Error::Step { .. })) => error.to_string(),
        other => panic!("expected an error of the builder, found {other:?}"),
    }
}

#[test]
fn a_range_names_neighbouring_chunks_that_are_there() {
    let with_range = |chunks: std::ops::Range<u32>| {
        refusal(|b| {
            b.chunks(4);
            b.copy(&b.input(0, chunks.clone()), &[b.output(1, chunks.clone())]);
        })
    };
    assert!(with_range(2..2).starts_with("step 0: input[r0].2..2 of 4 names no chunk"));
    assert!(with_range(2..5).starts_with("step 0: input[r0].2..5 of 4 is outside the data"));
    let mut b = Builder::new(&ALL_REDUCE, Roles::of(4), Aliasing::Disjoint).unwrap();
    b.chunks(4);
    b.copy(&b.input(0, 1..3), &[b.output(1, 1..3)]);
    assert_eq!(b.finish("mine").unwrap().steps[0].dst[0].chunks, 1..3);
}

/// What a fold reads there may be contributions of different ranks, and each is marked with its own.
#[test]
fn a_copy_carries_chunks_of_different_kinds() {
    let mut b = Builder::new(&ALL_REDUCE, Roles::of(2), Aliasing::Disjoint).unwrap();
    b.chunks(2);
    let (here, there) = (b.scratch(0, 0, 0..2), b.scratch(1, 0, 0..2));
    for part in 0..2 {
        let own = b.scratch(0, 0, part);
        b.copy(&b.input(part, part), &[own]);
    }
    b.copy(&here, &[there]);
    for part in 0..2 {
        let moved = b.scratch(1, 0, part);
        b.fold(&[moved, b.input(1 - part, part)], &[b.output(0, part), b.output(1, part)]);
    }
    let schedule = b.finish("mine").unwrap();
    let folds: Vec<_> = schedule.steps.iter().filter(|step| step.is_fold()).collect();
    let marks = |nth: usize| folds[nth].src.iter().map(|source| source.contribution).collect::<Vec<_>>();
    assert_eq!((marks(0), marks(1)), (vec![Some(0), Some(1)], vec![Some(1), Some(0)]));
    verify(schedule).unwrap_or_else(|refutation| panic!("{refutation}"));
}

#[test]
fn every_algorithm_composes() {
    let names = |collective| algorithm::of(collective).map(|a| a.name).collect::<Vec<_>>();
    for (half, other) in
        names(&REDUCE_SCATTER).into_iter().flat_map(|h| names(&ALL_GATHER).into_iter().map(move |o| (h, o)))
    {
        for (whole, &aliasing) in names(&ALL_REDUCE).into_iter().flat_map(|w| Aliasing::ALL.iter().map(move |a| (w, a)))
        {
            let mut b = Builder::new(&ALL_REDUCE, Roles::of(6), aliasing).unwrap();
            let (inner, outer) = (b.groups(3), b.strided_groups(3));
            let shard = b.reduce_scatter(&b.inputs(), &inner, half);
            let total = b.all_reduce(&shard, &outer, whole);
            b.all_gather(&total, &b.outputs(), &inner, other);
            for path in Path::ALL {
                let schedule = lower(&b.clone().finish("composed").unwrap(), path).unwrap();
                verify(schedule).unwrap_or_else(|refutation| panic!("{half} {whole} {other}: {refutation}"));
            }
        }
    }
}

#[test]
fn a_high_layer_of_scratch_costs_no_more_than_a_low_one() {
    let mut b = Builder::new(&ALL_REDUCE, Roles::of(64), Aliasing::Disjoint).unwrap();
    b.chunks(1024);
    let far = b.scratch(0, 60_000, 0);
    b.copy(&b.input(0, 0), &[far]);
    let steps = b.finish("mine").unwrap().steps;
    let last = steps.iter().flat_map(Step::views).map(|view| view.buffer).max();
    assert_eq!(last, Some(Buffer::Scratch(60_000)));
}

#[test]
fn groups_that_are_no_groups_are_refused() {
    let all_reduce = |over: Vec<Vec<u32>>| {
        refusal(|b| {
            b.all_reduce(&b.inputs(), &over, "ring");
        })
    };
    assert!(
        all_reduce(vec![vec![0, 1], vec![2, 4]]).starts_with("rank 4 in a group of all_reduce is not one of 0 to 3")
    );
    assert!(all_reduce(vec![vec![0, 1], vec![1, 2]]).starts_with("rank 1 is in the groups of all_reduce twice"));
    assert!(all_reduce(vec![vec![0, 1], vec![]]).starts_with("a group of all_reduce has no rank"));
    let barrier = refusal(|b| {
        b.compose(&BARRIER, &b.inputs(), None, &vec![vec![0, 1]], "direct");
    });
    assert!(barrier.starts_with("barrier over groups is not possible"), "{barrier}");
}

/// What a random author writes: kind, buffers, ranks and chunks, taken modulo what there is.
type Line = (u8, Vec<(u8, u32, u32)>, Vec<(u8, u32, u32)>);

fn lines() -> impl Strategy<Value = Vec<Line>> {
    let regions = || vec((0u8..4, 0u32..5, 0u32..6), 1..4);
    vec((0u8..6, regions(), regions()), 1..16)
}

fn region(b: &mut Builder, chunks: u32, &(buffer, rank, chunk): &(u8, u32, u32)) -> Region {
    let (rank, chunk) = (rank % b.world_size(), chunk % chunks.max(1));
    match buffer {
        0 | 1 => b.input(rank, chunk),
        2 => b.output(rank, chunk),
        _ => b.scratch(rank, (chunk % 2) as u16, chunk),
    }
}

/// Writes lines, and leaves out lines that the builder refuses.
fn written(collective: &'static Collective, (roles, aliasing): (Roles, Aliasing), lines: &[Line]) -> Builder {
    let mut b = Builder::new(collective, roles, aliasing).unwrap();
    let chunks = b.chunks(2).end;
    for (kind, src, dst) in lines {
        let mut tried = b.clone();
        let chunk = src[0].2;
        let src: Vec<Region> = src.iter().map(|&(k, r, _)| region(&mut tried, chunks, &(k, r, chunk))).collect();
        let dst: Vec<Region> = dst.iter().map(|&(k, r, _)| region(&mut tried, chunks, &(k, r, chunk))).collect();
        tried.channel(u32::from(*kind) % 2);
        match kind {
            0 | 1 => tried.copy(&src[0], &dst),
            2 => tried.push(&src[0], &dst),
            _ => tried.fold(&src, &dst),
        };
        if tried.clone().finish("tried").is_ok() {
            b = tried;
        }
    }
    b
}

/// Any collective in any form of up to four ranks.
fn forms() -> impl Strategy<Value = (&'static Collective, (Roles, Aliasing))> {
    (select(COLLECTIVES), 1u32..5).prop_flat_map(|(collective, n)| {
        select(collective.forms(n).collect::<Vec<_>>()).prop_map(move |form| (collective, form))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Derivation and lowering owe an order to any program; whether it keeps a contract is the author's matter.
    #[test]
    fn what_the_builder_accepts_is_ordered_on_every_path_and_reads_back(
        (collective, form) in forms(),
        lines in lines(),
    ) {
        let mapped = written(collective, form, &lines).finish("random").unwrap();
        for path in Path::ALL {
            let schedule = lower(&mapped, path).unwrap();
            let read_back = text::parse(&text::print(&schedule));
            prop_assert_eq!(read_back.as_ref(), Ok(&schedule));
            let violation = verify(schedule.clone()).err().map(|refutation| *refutation.violation);
            let is_of_contract = matches!(
                violation,
                None | Some(
                    Violation::WrongOutput { .. }
                        | Violation::Disagreement { .. }
                        | Violation::Repeated { .. }
                        | Violation::AfterFinal { .. }
                        | Violation::FinalTooEarly { .. }
                        | Violation::NotFinal { .. }
                        | Violation::FoldInCopy { .. }
                        | Violation::InputWritten { .. }
                        | Violation::NotSynchronised { .. }
                )
            );
            prop_assert!(is_of_contract, "{:?}\n{}", violation, text::print(&schedule));
        }
    }
}

#[test]
fn no_step_copies_memory_onto_itself() {
    let copies_itself = |schedule: &Schedule, step: &Step| {
        let place = |view: &View| (view.rank, view.chunks.clone());
        let is_alone = step.src.len() == 1 && step.dst.len() == 1 && !step.is_final;
        is_alone
            && schedule.aliasing == Aliasing::InPlace
            && [&step.src[0].view, &step.dst[0]].iter().all(|view| view.buffer.is_user())
            && place(&step.src[0].view) == place(&step.dst[0])
    };
    for algorithm in algorithm::ALGORITHMS {
        for schedule in (1..=9).flat_map(|n| algorithm.schedules(n)).map(Result::unwrap) {
            let idle = schedule.steps.iter().find(|step| copies_itself(&schedule, step));
            assert!(idle.is_none(), "{}: {idle:?}", schedule.title());
        }
    }
}

#[test]
fn what_a_rooted_buffer_does_not_hold_is_said_with_who_has_one() {
    let of = |b: &Builder, rank| (b.input(rank, 0), b.output(0, 0));
    let cases = [
        (&BROADCAST, "input[r1].0 of 1 is not there: in broadcast only the root, rank 0, has an input"),
        (&SCATTER, "input[r1].0 of 4 is not there: in scatter only the root, rank 0, has an input"),
        (&GATHER, "input[r1].0 of 4 is not there: part 0 is not in it, the input of rank 1 in gather holds part 1"),
        (&ALL_TO_ALL, "the input of rank 1 in all_to_all holds parts 4, 5, 6, ..."),
        (&EXSCAN, "output[r0].0 of 1 is not there: in exscan rank 0 has no output"),
        (&BARRIER, "barrier has no data"),
    ];
    for (collective, expected) in cases {
        let message = refusal_of(collective, |b| {
            let (from, to) = of(b, 1);
            b.copy(&from, &[to]);
        });
        assert!(message.contains(expected), "`{message}` does not say `{expected}`");
    }
}

/// Says how many steps and views an algorithm would have, where that is too many.
fn too_large(name: &str, world_size: u32) -> (u64, u64) {
    match algorithm::build(&ALL_REDUCE, name, Roles::of(world_size), Aliasing::Disjoint) {
        Err(Error::TooLarge { what, steps, views }) => {
            assert_eq!(what, format!("all_reduce {name} of {world_size} ranks"));
            (steps, views)
        }
        found => panic!("{name} of {world_size}: {:?}", found.map(|schedule| schedule.steps.len())),
    }
}

#[test]
fn what_is_too_large_is_counted_and_not_built() {
    let n = 2048;
    assert_eq!(too_large("ring", n as u32), (2 * n * (n - 1), 5 * n * (n - 1)));
    let n = 4096;
    assert_eq!(too_large("nvswitch", n as u32), (n, 2 * n * n));
    // In each of 8 groups a ring of 1,024; before and after it a step for each rank, with 9 views.
    let (ranks, nodes) = (1 << 13, 1 << 10);
    let rings = 8 * nodes * (nodes - 1);
    assert_eq!(too_large("two_level", 1 << 13), (2 * ranks + 2 * rings, 2 * 9 * ranks + 5 * rings));
}

#[test]
fn a_world_that_cannot_run_can_be_described() {
    let n = MAX_WORLD_SIZE;
    let tree = algorithm::build(&ALL_REDUCE, "tree", Roles::of(n), Aliasing::InPlace).unwrap();
    assert_eq!((tree.world_size, tree.steps.len()), (n, 2 * (n as usize - 1)));
    let more = algorithm::build(&ALL_REDUCE, "tree", Roles::of(n + 1), Aliasing::InPlace);
    assert_eq!(more.unwrap_err().to_string(), "world_size is 16385: it must be from 1 to 16384");
}

#[test]
fn a_lowering_that_would_be_too_large_is_refused() {
    let ring = algorithm::build(&ALL_REDUCE, "ring", Roles::of(256), Aliasing::InPlace).unwrap();
    let (steps, channels) = (ring.steps.len() as u64, 64);
    let refused = push(&ring, Fifo { channels, slots: 8 }).unwrap_err();
    assert!(
        matches!(refused, Error::TooLarge { steps: found, .. } if found == steps * u64::from(channels)),
        "{refused}"
    );
}

/// In program order each step is refused that is one too many, which tells a program that builds by hand where it stands.
#[test]
fn a_program_learns_that_it_has_too_many_views() {
    let n = MAX_WORLD_SIZE;
    let mut b = Builder::new(&ALL_REDUCE, Roles::of(n), Aliasing::Disjoint).unwrap();
    let all: Vec<Region> = b.inputs();
    let steps = MAX_VIEWS / (u64::from(n) + 1) + 1;
    for r in 0..steps as u32 {
        b.check().unwrap();
        b.fold(&all, &[b.output(r, 0)]);
    }
    let refused = b.check().unwrap_err().to_string();
    assert!(refused.starts_with("all_reduce of 16384 ranks, so far, would have 1024 steps"), "{refused}");
    assert_eq!(b.steps(), 0);
}
