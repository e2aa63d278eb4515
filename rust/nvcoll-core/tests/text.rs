//! The text form: what is printed is read back as the same schedule, and what is not a schedule is refused with its line.

use std::ops::Range;

use nvcoll_core::algorithm::ALGORITHMS;
use nvcoll_core::collective::{Roles, COLLECTIVES};
use nvcoll_core::schedule::{Aliasing, Buffer, Dependency, Event, Path, Schedule, Source, Step, View};
use nvcoll_core::{text, Error};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, Index};

const RING: &str = "\
schedule all_reduce ring  world_size 2  chunks_per_part 2  path mapped  aliasing out_of_place
r1.q0.0  output[r1].0 = input[r0].0*s0 + input[r1].0*s1  final  after r0.enter
r0.q1.0  output[r0].0 = output[r1].0                            after r1.enter r1.q0.0
r0.q0.0  output[r0].1 = input[r1].1*s1 + input[r0].1*s0  final  after r1.enter
r1.q1.0  output[r1].1 = output[r0].1                            after r0.enter r0.q0.0
leave r0  after r1.q0.0 r1.q1.0
leave r1  after r0.q0.0 r0.q1.0
";

const EVERY_NOUN: &str = "\
schedule all_reduce by_hand  world_size 2  chunks_per_part 6  path staged  aliasing in_place
r0.q0.0  staging0[r0].2..4, output[r0].2..4 = scratch1[r0].2..4  final at switch
r0.q0.1  scratch3[r1].0                     = input[r0].0..6     at switch        after r1.enter r1.q2.0@2 r0.q0.0
r1.q2.0  output[r1].0                       = input[r1].0*s1
leave r0
leave r1  after r0.q0.1
";

#[test]
fn a_schedule_is_one_header_then_steps_in_aligned_columns_then_leaves() {
    assert_eq!(text::print(&text::parse(RING).unwrap()), RING);
}

#[test]
fn every_noun_has_a_place_in_the_text() {
    let schedule = text::parse(EVERY_NOUN).unwrap();
    let view = |rank, buffer, chunks: Range<u32>| View { rank, buffer, chunks };
    assert_eq!(schedule.steps[0].dst, [view(0, Buffer::Staging(0), 2..4), view(0, Buffer::Output, 2..4)]);
    assert_eq!(schedule.steps[0].src, [Source { view: view(0, Buffer::Scratch(1), 2..4), contribution: None }]);
    assert!(schedule.steps[0].is_final && schedule.steps[0].at_switch);
    assert_eq!(schedule.steps[2].src, [Source { view: view(1, Buffer::Input, 0..1), contribution: Some(1) }]);
    assert_eq!(
        schedule.steps[1].after,
        [
            Dependency { rank: 1, event: Event::Enter, lag: 0 },
            Dependency { rank: 1, event: Event::Step { queue: 2, index: 0 }, lag: 2 },
            Dependency { rank: 0, event: Event::Step { queue: 0, index: 0 }, lag: 0 },
        ]
    );
    assert_eq!((schedule.path, schedule.aliasing), (Path::Staged, Aliasing::InPlace));
    assert_eq!(text::print(&schedule), EVERY_NOUN);
}

#[test]
fn blanks_comments_and_missing_leaves_mean_nothing() {
    let terse = "\n# two ranks\nschedule barrier direct world_size 2 chunks_per_part 1 path mapped aliasing out_of_place # header\n\n\tleave   r1 after r0.enter#x";
    let schedule = text::parse(terse).unwrap();
    assert_eq!(schedule.leave[0], []);
    assert_eq!(schedule.leave[1], [Dependency { rank: 0, event: Event::Enter, lag: 0 }]);
    let glued = text::parse(&RING.replace(" + ", "+").replace("  =", "=").replace("= ", "=")).unwrap();
    assert_eq!(glued, text::parse(RING).unwrap());
}

#[test]
fn a_step_prints_as_one_line_of_text() {
    let schedule = text::parse(RING).unwrap();
    let line = schedule.steps[0].to_string();
    assert_eq!(line, "r1.q0.0  output[r1].0 = input[r0].0*s0 + input[r1].0*s1 final after r0.enter");
}

#[test]
fn a_long_line_does_not_widen_the_columns_of_the_others() {
    let sources = (0..64).map(|r| format!("input[r{r}].0")).collect::<Vec<_>>().join(" + ");
    let header = "schedule all_reduce wide world_size 64 chunks_per_part 1 path mapped aliasing out_of_place";
    let lines = format!("r0.q0.0 output[r0].0 = {sources}\nr1.q0.0 output[r1].0 = output[r0].0 final");
    let printed = text::print(&text::parse(&format!("{header}\n{lines}")).unwrap());
    let lengths: Vec<usize> = printed.lines().map(str::len).collect();
    assert!(lengths[1] > 800 && lengths[2] < 120, "{printed}");
}

#[test]
fn every_registered_schedule_reads_back_as_itself() {
    for algorithm in ALGORITHMS {
        for schedule in [1, 2, 3, 8].into_iter().flat_map(|n| algorithm.schedules(n)).map(Result::unwrap) {
            assert_eq!(text::parse(&text::print(&schedule)).as_ref(), Ok(&schedule));
            assert_eq!(text::diff(&schedule, &schedule), "");
        }
    }
}

#[test]
fn a_difference_is_shown_with_what_surrounds_it() {
    let before = text::parse(RING).unwrap();
    let mut after = before.clone();
    after.steps[1].after.pop();
    assert_eq!(
        text::diff(&before, &after),
        "  schedule all_reduce ring  world_size 2  chunks_per_part 2  path mapped  aliasing out_of_place
  r1.q0.0  output[r1].0 = input[r0].0*s0 + input[r1].0*s1  final  after r0.enter
- r0.q1.0  output[r0].0 = output[r1].0                            after r1.enter r1.q0.0
+ r0.q1.0  output[r0].0 = output[r1].0                            after r1.enter
  r0.q0.0  output[r0].1 = input[r1].1*s1 + input[r0].1*s0  final  after r1.enter
  r1.q1.0  output[r1].1 = output[r0].1                            after r0.enter r0.q0.0
  leave r0  after r1.q0.0 r1.q1.0
"
    );
}

#[test]
fn one_long_line_is_one_difference() {
    let before = text::parse(RING).unwrap();
    let mut after = before.clone();
    after.steps[0].src.extend(before.steps[0].src.clone());
    let changed = text::diff(&before, &after).lines().filter(|line| !line.starts_with("  ")).count();
    assert_eq!(changed, 2);
}

#[test]
fn errors_say_what_was_found_and_what_was_expected() {
    let header = "schedule all_reduce ring world_size 2 chunks_per_part 2 path mapped aliasing out_of_place\n";
    let step = "r0.q0.0 output[r0].0 = input[r0].0";
    let cases = [
        ("", 1, "the text is empty, expected a line `schedule …`"),
        ("\n\nhello", 3, "found `hello`, expected `schedule`"),
        (
            "schedule all_sum",
            1,
            "no collective is called `all_sum`: choose from all_reduce, reduce_scatter, all_gather",
        ),
        ("schedule all_reduce", 1, "the line ends, expected the name of an algorithm"),
        ("schedule all_reduce x world_size two", 1, "found `two`, expected a number"),
        ("schedule all_reduce x world_size 99999999999", 1, "found `99999999999`, expected a number"),
        ("schedule all_reduce x world_size 0 chunks_per_part 1", 1, "world_size is 0: it must be from 1 to 16384"),
        ("schedule all_reduce x world_size 1 chunks_per_part 0", 1, "chunks_per_part is 0"),
        (
            "schedule all_gather x world_size 9 chunks_per_part 999999999",
            1,
            "chunks_per_part is 999999999: from 1 to 65536 are possible here",
        ),
        (&format!("{} or not", header.trim_end()), 1, "found `or`, expected the end of the line"),
        (
            &format!("{header}step"),
            2,
            "found `step`, expected a step such as `r0.q0.0 …`, `leave r0 …` or `enter r0 …`",
        ),
        (&format!("{header}r2.q0.0"), 2, "rank 2 does not exist: world_size is 2"),
        (&format!("{header}r0.0"), 2, "found `.0`, expected the queue and place of a step, such as .q0.1"),
        (&format!("{header}r0.q4096.0"), 2, "queue 4096 is above the last, 4095"),
        (&format!("{header}r0.q0.0 output[r0].0"), 2, "the line ends, expected `=` and the sources"),
        (&format!("{header}r0.q0.0 nothing = input[r0].0"), 2, "found `nothing`, expected a view such as output[r0].1"),
        (&format!("{header}r0.q0.0 output[r0].2 = input[r0].2"), 2, "chunk 2 does not exist: there are 2"),
        (&format!("{header}r0.q0.0 output[r0].1..1 = input[r0].2"), 2, "the range 1..1 holds no chunk"),
        (&format!("{header}r0.q0.0 scratch70000[r0].1 = input[r0].1"), 2, "layer 70000 is above the last, 65535"),
        (&format!("{header}{step}*s2"), 2, "rank 2 does not exist"),
        (&format!("{header}{step} finally"), 2, "found `ly`, expected a blank"),
        (
            &format!("{header}{step} last"),
            2,
            "found `last`, expected `final`, `at switch`, `after` or the end of the line",
        ),
        (&format!("{header}{step} after"), 2, "the line ends, expected a rank such as r0"),
        (&format!("{header}{step} after r1.enterr0.enter"), 2, "found `r0.enter`, expected a blank"),
        (&format!("{header}{step} after r0.q0.0@"), 2, "the line ends, expected the lag, a number of tiles"),
        (&format!("{header}{step}\n\n{step}"), 4, "this place is taken on line 2"),
        (&format!("{header}r0.q0.3 output[r0].0 = input[r0].0"), 2, "place 3 in a queue of length 1"),
        (&format!("{header}{step}\nleave r1 after r0.q1.0"), 3, "waits for r0.q1.0, which no line defines"),
        (&format!("{header}leave r1\nleave r1"), 3, "rank 1 leaves on line 2 already: write one line per rank"),
        (&format!("{header}enter r1"), 2, "the line ends, expected `after` and the early queue"),
        (&format!("{header}enter r1 after r0.q0"), 2, "the early queue of rank 1 is one of its own: write r1.q0"),
        (&format!("{header}{step}\nenter r0 after r0.q1"), 3, "r0.q1 has no step: name a queue with steps"),
        (&format!("{header}{step}\nenter r0 after r0.q0\nenter r0 after r0.q0"), 4, "rank 0 enters on line 3 already"),
    ];
    for (text, expected_line, expected) in cases {
        match text::parse(text) {
            Err(Error::Text { line, message }) => {
                assert!(line == expected_line && message.contains(expected), "{text}\n  gave {line}: {message}");
            }
            other => panic!("{text}\n  gave {other:?}"),
        }
    }
}

fn view(world_size: u32, chunks: u32) -> impl Strategy<Value = View> {
    let buffer = prop_oneof![
        Just(Buffer::Input),
        Just(Buffer::Output),
        any::<u16>().prop_map(Buffer::Scratch),
        (0u16..3).prop_map(Buffer::Staging),
    ];
    (0..world_size, buffer, 0..chunks, 1..=chunks).prop_map(move |(rank, buffer, start, length)| View {
        rank,
        buffer,
        chunks: start..(start + length).min(chunks),
    })
}

/// A step without a place: its rank, queue and views are drawn, waits and index are given later.
fn step(world_size: u32, chunks: u32) -> impl Strategy<Value = Step> {
    let source = (view(world_size, chunks), proptest::option::of(0..world_size))
        .prop_map(|(view, contribution)| Source { view, contribution });
    let lists = (vec(source, 1..4), vec(view(world_size, chunks), 1..4));
    (0..world_size, 0u32..3, lists, any::<bool>(), any::<bool>()).prop_map(
        |(rank, queue, (src, dst), is_final, at_switch)| Step {
            rank,
            queue,
            index: 0,
            src,
            dst,
            is_final,
            at_switch,
            after: Vec::new(),
        },
    )
}

/// Waits for enters (`None`) or for any of the steps.
fn waits(drawn: &[(Option<Index>, u32, u32)], steps: &[Step]) -> Vec<Dependency> {
    let wait = |(which, rank, lag): &(Option<Index>, u32, u32)| match which {
        Some(which) if !steps.is_empty() => {
            let Step { rank, queue, index, .. } = *which.get(steps);
            Dependency { rank, event: Event::Step { queue, index }, lag: *lag }
        }
        _ => Dependency { rank: *rank, event: Event::Enter, lag: 0 },
    };
    drawn.iter().map(wait).collect()
}

/// Any schedule that names only what exists; nearly all of them are wrong.
fn schedule() -> impl Strategy<Value = Schedule> {
    let forms = (select(COLLECTIVES), 1u32..6).prop_flat_map(|(collective, n)| {
        let forms = select(collective.forms(n).collect::<Vec<_>>());
        forms.prop_map(move |(roles, aliasing)| (collective, roles, aliasing))
    });
    let frame = (forms, 1u32..5, select(&Path::ALL[..]), 0u32..10, "[a-zé:._/-]{1,8}");
    frame.prop_flat_map(|((collective, roles, aliasing), chunks_per_part, path, slots, algorithm)| {
        let Roles { world_size, root } = roles;
        let chunks = collective.parts(roles) * chunks_per_part;
        let lines = if chunks == 0 { 0..1 } else { 0..12 };
        let drawn_waits = vec((proptest::option::of(any::<Index>()), 0..world_size, 0u32..4), 0..4);
        let steps = vec((step(world_size, chunks.max(1)), drawn_waits.clone()), lines);
        (steps, vec(drawn_waits, world_size as usize)).prop_map(move |(drawn, leave)| {
            let mut lengths = std::collections::HashMap::new();
            let (mut steps, after): (Vec<Step>, Vec<_>) = drawn.into_iter().unzip();
            for step in &mut steps {
                let length = lengths.entry((step.rank, step.queue)).or_insert(0);
                step.index = *length;
                *length += 1;
            }
            let placed = steps.clone();
            for (step, after) in steps.iter_mut().zip(&after) {
                step.after = waits(after, &placed);
            }
            let leave = leave.iter().map(|after| waits(after, &placed)).collect();
            let algorithm = algorithm.clone();
            let early = match steps.iter().find(|step: &&Step| step.queue > 0) {
                Some(step) => (0..world_size).map(|rank| (rank == step.rank).then_some(step.queue)).collect(),
                None => Vec::new(),
            };
            Schedule {
                collective,
                algorithm,
                world_size,
                root,
                chunks_per_part,
                path,
                slots,
                aliasing,
                steps,
                leave,
                early,
            }
        })
    })
}

/// One edit of a text: where, how many characters go, and what comes instead.
fn edit() -> impl Strategy<Value = (Index, usize, String)> {
    let scrap = prop_oneof![
        select(vec![
            "",
            "\n",
            " ",
            ".",
            "..",
            "r9",
            "9",
            "@",
            "*s",
            "]",
            "+",
            ",",
            "after",
            "final",
            "#",
            "é",
            "4294967295"
        ])
        .prop_map(str::to_owned),
        ".{0,3}",
    ];
    (any::<Index>(), 0usize..4, scrap)
}

fn edited(text: &str, edits: &[(Index, usize, String)]) -> String {
    let mut text: Vec<char> = text.chars().collect();
    for (at, gone, scrap) in edits {
        let at = at.index(text.len() + 1);
        let end = (at + gone).min(text.len());
        text.splice(at..end, scrap.chars());
    }
    text.into_iter().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn printing_and_parsing_is_the_identity(schedule in schedule()) {
        prop_assert_eq!(text::parse(&text::print(&schedule)), Ok(schedule));
    }

    #[test]
    fn no_edit_of_a_text_makes_the_parser_panic(schedule in schedule(), edits in vec(edit(), 1..4)) {
        let text = edited(&text::print(&schedule), &edits);
        if let Ok(parsed) = text::parse(&text) {
            prop_assert_eq!(text::parse(&text::print(&parsed)), Ok(parsed));
        }
    }

    #[test]
    fn no_string_makes_the_parser_panic(text in "\\PC*|[ -~\n]{0,200}|(?s).{0,80}") {
        let refused = matches!(text::parse(&text), Err(Error::Text { .. }));
        prop_assert!(refused);
    }

    #[test]
    fn a_diff_is_empty_exactly_for_equal_schedules(a in schedule(), b in schedule()) {
        prop_assert_eq!(text::diff(&a, &a), "");
        prop_assert_eq!(text::diff(&a, &b).is_empty(), a == b);
    }
}
