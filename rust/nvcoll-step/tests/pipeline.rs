//! Pipelines against an oracle: explicit lists of passes for each stage, and begins that are raised until nothing changes.

use nvcoll_step::pipeline::{split, Balance, Chunk, Pass, Pipeline, Schedule, Span, Timeline};
use nvcoll_step::Error;
use proptest::prelude::*;
use Pass::{Backward as B, Forward as F, Weight as W};

/// A pass of a list: kind, micro-batch, chunk.
type Slot = (Pass, usize, usize);

/// The order of a stage, written as in the papers.
fn listed(schedule: Schedule, stage: usize, p: usize, v: usize, m: usize) -> Vec<Slot> {
    let mut list: Vec<Slot> = Vec::new();
    let (forwards, backwards): (Vec<Slot>, Vec<Slot>) = match schedule {
        Schedule::GPipe => ((0..m).map(|i| (F, i, 0)).collect(), (0..m).rev().map(|i| (B, i, 0)).collect()),
        _ => {
            let groups = |pass, chunks: Vec<usize>| {
                let size = if v == 1 { 1 } else { p };
                let mut slots = Vec::new();
                for group in 0..m / size {
                    for &chunk in &chunks {
                        slots.extend((group * size..(group + 1) * size).map(|i| (pass, i, chunk)));
                    }
                }
                slots
            };
            (groups(F, (0..v).collect()), groups(B, (0..v).rev().collect()))
        }
    };
    let warm = match schedule {
        Schedule::GPipe => m,
        Schedule::Interleaved => 2 * (p - stage - 1) + (v - 1) * p,
        _ => p - stage - 1,
    };
    let warm = warm.min(m * v);
    list.extend(&forwards[..warm]);
    for (forward, backward) in forwards[warm..].iter().zip(&backwards) {
        list.extend([forward, backward]);
    }
    list.extend(&backwards[m * v - warm..]);
    list
}

fn whole(seconds: f64) -> u64 {
    (seconds * 1e12).round() as u64
}

/// Begins and ends of all lists: every begin is raised to the ends before it, until nothing changes.
fn fixpoint(pipeline: &Pipeline, lists: &[Vec<Slot>]) -> Vec<Vec<(u64, u64)>> {
    let (p, v) = (pipeline.stages.len(), pipeline.stages[0].len());
    let send = if p == 1 { 0 } else { whole(pipeline.send) };
    let time = |stage: usize, (pass, _, chunk): Slot| {
        let Chunk { forward, backward, weight } = pipeline.stages[stage][chunk];
        match pass {
            F => whole(forward),
            B if pipeline.schedule.splits_backward() => whole(backward),
            B => whole(backward) + whole(weight),
            W => whole(weight),
        }
    };
    let place = |stage: usize, wanted: Slot| lists[stage].iter().position(|slot| *slot == wanted).unwrap();
    let needs = |stage: usize, (pass, i, chunk): Slot| -> Option<(usize, usize, u64)> {
        let (here, last) = (chunk * p + stage, p * v - 1);
        let at = |pass, there: usize, send| Some((there % p, place(there % p, (pass, i, there / p)), send));
        match pass {
            F if here == 0 => None,
            F => at(F, here - 1, send),
            B if here == last => at(F, here, 0),
            B => at(B, here + 1, send),
            W => at(B, here, 0),
        }
    };
    let needed: Vec<Vec<_>> =
        lists.iter().enumerate().map(|(stage, list)| list.iter().map(|slot| needs(stage, *slot)).collect()).collect();
    let mut spans: Vec<Vec<(u64, u64)>> = lists.iter().map(|list| vec![(0, 0); list.len()]).collect();
    loop {
        let mut changes = false;
        for stage in 0..p {
            for (k, &slot) in lists[stage].iter().enumerate() {
                let before = if k == 0 { 0 } else { spans[stage][k - 1].1 };
                let arrival =
                    needed[stage][k].map_or(0, |(there, k, send): (usize, usize, u64)| spans[there][k].1 + send);
                let start = before.max(arrival);
                let span = (start, start + time(stage, slot));
                changes |= spans[stage][k] != span;
                spans[stage][k] = span;
            }
        }
        if !changes {
            return spans;
        }
    }
}

fn slots(spans: &[Span]) -> Vec<Slot> {
    spans.iter().map(|one| (one.pass, one.micro_batch as usize, one.chunk as usize)).collect()
}

/// Checks that a timeline has the oracle's begins and ends for its own order of passes.
fn compare(pipeline: &Pipeline, timeline: &Timeline) {
    let lists: Vec<Vec<Slot>> = timeline.stages.iter().map(|one| slots(&one.spans)).collect();
    let expected = fixpoint(pipeline, &lists);
    for (stage, expected) in timeline.stages.iter().zip(&expected) {
        let found: Vec<_> = stage.spans.iter().map(|one| (one.start_ps, one.end_ps)).collect();
        assert_eq!(&found, expected);
    }
    let end = expected.iter().flatten().map(|span| span.1).max().unwrap();
    assert_eq!(whole(timeline.makespan), end);
}

/// Checks that every pass is there once, and the sums of the stages.
fn check_whole(pipeline: &Pipeline, timeline: &Timeline) {
    let (v, m) = (pipeline.stages[0].len(), pipeline.micro_batches as usize);
    for (stage, time) in timeline.stages.iter().enumerate() {
        let spans = &time.spans;
        let mut found = slots(spans);
        found.sort_unstable();
        let passes: &[Pass] = if pipeline.schedule.splits_backward() { &[F, B, W] } else { &[F, B] };
        let mut wanted: Vec<Slot> = Vec::new();
        for &pass in passes {
            wanted.extend((0..m).flat_map(|i| (0..v).map(move |chunk| (pass, i, chunk))));
        }
        wanted.sort_unstable();
        assert_eq!(found, wanted);
        let busy: u64 = spans.iter().map(|one| one.end_ps - one.start_ps).sum();
        let idle: u64 = spans.windows(2).map(|pair| pair[1].start_ps - pair[0].end_ps).sum();
        assert_eq!((time.busy_ps, time.idle_ps()), (busy, idle));
        assert_eq!((time.start_ps, time.end_ps), (spans[0].start_ps, spans.last().unwrap().end_ps));
        let all: f64 = pipeline.stages[stage].iter().map(Chunk::total).sum::<f64>() * m as f64;
        assert!((busy as f64 / 1e12 - all).abs() < 1e-9);
    }
    assert!(timeline.step <= timeline.makespan && whole(timeline.step) >= timeline.stages[0].busy_ps);
}

/// The most activations at the ends of passes, counted from the spans.
fn peak(pipeline: &Pipeline, spans: &[Span]) -> f64 {
    let (mut held, mut peak) = (0.0f64, 0.0f64);
    for span in spans {
        held += match span.pass {
            F => 1.0,
            B if pipeline.schedule.splits_backward() => pipeline.kept - 1.0,
            B => -1.0,
            W => -pipeline.kept,
        };
        peak = peak.max(held);
    }
    peak
}

fn milliseconds() -> impl Strategy<Value = f64> {
    (0u32..100).prop_map(|time| f64::from(time) * 1e-3)
}

fn chunk() -> impl Strategy<Value = Chunk> {
    (milliseconds(), milliseconds(), milliseconds()).prop_map(|(forward, backward, weight)| Chunk {
        forward: forward + 1e-3,
        backward,
        weight,
    })
}

fn pipelines() -> impl Strategy<Value = Pipeline> {
    let schedule = prop_oneof![
        Just(Schedule::GPipe),
        Just(Schedule::OneFOneB),
        Just(Schedule::Interleaved),
        Just(Schedule::ZeroBubble1p),
        Just(Schedule::ZeroBubble2p),
    ];
    (schedule, 1usize..7, 2usize..5, 1u32..25, prop_oneof![Just(0.0), milliseconds()], 0.0..1.0).prop_flat_map(
        |(schedule, stages, chunks, micro_batches, send, kept)| {
            let is_interleaved = schedule == Schedule::Interleaved;
            let chunks = if is_interleaved { chunks } else { 1 };
            let micro_batches =
                if is_interleaved { micro_batches.div_ceil(stages as u32) * stages as u32 } else { micro_batches };
            let stages = prop_oneof![
                prop::collection::vec(prop::collection::vec(chunk(), chunks), stages),
                chunk().prop_map(move |one| vec![vec![one; chunks]; stages]),
            ];
            stages.prop_map(move |stages| Pipeline { kept, ..Pipeline::new(schedule, stages, micro_batches, send) })
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn virtual_time_is_the_oracles(pipeline in pipelines()) {
        pipeline.check().unwrap();
        let timeline = pipeline.run_with_spans();
        compare(&pipeline, &timeline);
        check_whole(&pipeline, &timeline);
        let (p, v, m) = (pipeline.stages.len(), pipeline.stages[0].len(), pipeline.micro_batches as usize);
        for (stage, time) in timeline.stages.iter().enumerate() {
            let spans = &time.spans;
            if !pipeline.schedule.splits_backward() {
                prop_assert_eq!(slots(spans), listed(pipeline.schedule, stage, p, v, m));
            }
            let limit = match pipeline.schedule {
                Schedule::ZeroBubble1p => p as f64,
                Schedule::ZeroBubble2p => 2.0 * p as f64,
                _ => f64::INFINITY,
            };
            let found = time.activations;
            prop_assert!((found - peak(&pipeline, spans)).abs() < 1e-9 && found <= limit + 1e-9);
            let sum = f64::from(time.in_flight.iter().sum::<u32>()) + pipeline.kept * f64::from(time.pending);
            prop_assert!((sum - found).abs() < 1e-9);
        }
        let mut without = timeline;
        without.stages.iter_mut().for_each(|one| one.spans.clear());
        prop_assert_eq!(pipeline.run(), without);
    }

    #[test]
    fn a_layout_is_split_whole_and_its_slowest_part_is_as_fast_as_can_be(
        layers in 1u32..30, stages in 1u32..5, chunks in 1u32..4, head in 0.0..6.0,
    ) {
        for balance in [Balance::Layers, Balance::LayersAndEnds, Balance::Cost { head }] {
            let Ok(counts) = split(layers, stages, chunks, balance) else {
                prop_assert!(stages * chunks > layers);
                continue;
            };
            prop_assert_eq!(counts.iter().flatten().sum::<u32>(), layers);
            prop_assert!(counts.len() == stages as usize && counts.iter().all(|one| one.len() == chunks as usize));
        }
        let parts = (stages * chunks) as usize;
        if let Ok(counts) = split(layers, stages, chunks, Balance::Cost { head }) {
            let of = |part: usize| counts[part % stages as usize][part / stages as usize];
            let slowest = |counts: &[f64]| counts.iter().copied().fold(0.0, f64::max);
            let mut costs: Vec<f64> = (0..parts).map(|part| f64::from(of(part))).collect();
            costs[parts - 1] += head;
            prop_assert!(slowest(&costs) <= best_partition(layers, parts, head) + 1e-9);
        }
    }
}

/// The slowest part of the best contiguous partition: by dynamic programming, with any number of layers in each part.
fn best_partition(layers: u32, parts: usize, head: f64) -> f64 {
    let mut best: Vec<f64> = (0..=layers).map(|last| f64::from(last) + head).collect();
    for _ in 1..parts {
        best = (0..=layers as usize)
            .map(|all| (0..=all).map(|here| best[all - here].max(here as f64)).fold(f64::INFINITY, f64::min))
            .collect();
    }
    best[layers as usize]
}

fn equal(schedule: Schedule, p: usize, v: usize, m: u32, send: f64) -> Pipeline {
    let part = 1.0 / v as f64;
    let one = Chunk { forward: 0.010 * part, backward: 0.011 * part, weight: 0.008 * part };
    Pipeline::new(schedule, vec![vec![one; v]; p], m, send)
}

#[test]
fn the_bubble_of_equal_stages_is_that_of_the_papers() {
    for (p, m) in [(1, 1), (2, 8), (4, 4), (4, 3), (8, 64), (16, 16)] {
        let step = |schedule, v| equal(schedule, p, v, m, 0.0).run().step;
        let all = f64::from(m + p as u32 - 1) * 0.029;
        assert!((step(Schedule::OneFOneB, 1) - all).abs() < 1e-9);
        assert!((step(Schedule::GPipe, 1) - all).abs() < 1e-9);
        let ideal = f64::from(m) * 0.029;
        for v in [2, 4, 5].into_iter().filter(|_| (m as usize).is_multiple_of(p)) {
            let bubble = step(Schedule::Interleaved, v) - ideal;
            assert!((bubble - (p - 1) as f64 * 0.029 / v as f64).abs() < 1e-9, "p {p} m {m} v {v}: {bubble}");
        }
        if m as usize >= 2 * p {
            assert!((step(Schedule::ZeroBubble1p, 1) - ideal - (p - 1) as f64 * 0.013).abs() < 1e-9);
        }
    }
}

#[test]
fn a_stage_holds_as_many_micro_batches_as_its_schedule_says() {
    for (p, m) in [(1, 1), (4, 2), (4, 16), (8, 5)] {
        for (schedule, expected) in [
            (Schedule::GPipe, Box::new(|_| m) as Box<dyn Fn(u32) -> u32>),
            (Schedule::OneFOneB, Box::new(|stage| m.min(p as u32 - stage))),
        ] {
            for (stage, time) in equal(schedule, p, 1, m, 1e-3).run().stages.iter().enumerate() {
                assert_eq!(time.in_flight, [expected(stage as u32)]);
                assert_eq!(time.activations, f64::from(expected(stage as u32)));
            }
        }
    }
    let interleaved = equal(Schedule::Interleaved, 4, 3, 16, 0.0).run();
    assert_eq!(interleaved.stages.iter().map(|one| one.activations).collect::<Vec<_>>(), [15.0, 13.0, 11.0, 9.0]);
    assert_eq!(interleaved.stages[0].in_flight, [7, 4, 4]);
}

#[test]
fn a_pipeline_that_its_schedule_cannot_run_is_refused_with_the_rule() {
    let refusal = |pipeline: Pipeline| match pipeline.check() {
        Err(Error::Layout(reason)) => reason,
        other => panic!("{other:?}"),
    };
    let of = |schedule, p, v, m| equal(schedule, p, v, m, 0.0);
    assert!(refusal(of(Schedule::OneFOneB, 0, 1, 1)).contains("at least one stage"));
    assert!(refusal(of(Schedule::OneFOneB, 2, 1, 0)).contains("at least one stage"));
    assert!(refusal(of(Schedule::Interleaved, 4, 2, 6)).contains("6 and 4 were found"));
    assert!(refusal(of(Schedule::Interleaved, 4, 1, 8)).contains("2 chunks or more"));
    assert!(refusal(of(Schedule::ZeroBubble2p, 4, 2, 8)).contains("2 chunks per stage need the interleaved"));
    assert!(refusal(of(Schedule::GPipe, 64, 1, 1 << 20)).contains("67108864 micro-batches on chunks"));
    let mut uneven = of(Schedule::Interleaved, 4, 2, 8);
    uneven.stages[2].pop();
    assert!(refusal(uneven).contains("a stage has 1 chunks and stage 0 has 2"));
    for (time, words) in [(f64::NAN, "NaN s"), (-1.0, "-1 s"), (1e7, "up to 9000000")] {
        let mut wrong = of(Schedule::OneFOneB, 4, 1, 8);
        wrong.stages[1][0].weight = time;
        assert!(refusal(wrong).contains(words));
    }
    assert!(refusal(Pipeline { kept: 1.5, ..of(Schedule::OneFOneB, 4, 1, 8) }).contains("keep 1.5 of the activations"));
    assert!(split(7, 8, 1, Balance::Layers).unwrap_err().to_string().contains("7 layers on 8 stages of 1 chunks"));
    assert!(split(8, 2, 1, Balance::Cost { head: f64::NAN }).is_err());
}

#[test]
fn layers_are_split_as_frameworks_do() {
    let of = |layers, stages, chunks, balance| split(layers, stages, chunks, balance).unwrap();
    assert_eq!(of(10, 4, 1, Balance::Layers), [[3], [3], [2], [2]]);
    assert_eq!(of(46, 16, 1, Balance::LayersAndEnds).concat(), [&[2][..], &[3; 14], &[2]].concat());
    assert_eq!(of(22, 4, 2, Balance::LayersAndEnds), [[2, 3], [3, 3], [3, 3], [3, 2]]);
    assert_eq!(of(32, 4, 1, Balance::Cost { head: 1.0 }), [[8], [8], [8], [8]]);
    assert_eq!(of(32, 4, 1, Balance::Cost { head: 4.0 }), [[9], [9], [9], [5]]);
    assert_eq!(of(4, 4, 1, Balance::Cost { head: 9.0 }).concat(), [2, 1, 1, 0]);
}

/// The errors that the module states, for 4 micro-batches per stage or more.
#[test]
fn the_closed_form_is_near_virtual_time() {
    for (schedule, v, [equal_or_last, middle]) in [
        (Schedule::GPipe, 1, [1e-9, 1e-9]),
        (Schedule::OneFOneB, 1, [0.004, 0.001]),
        (Schedule::Interleaved, 2, [1e-4, 0.028]),
        (Schedule::Interleaved, 5, [1e-4, 0.014]),
        (Schedule::ZeroBubble1p, 1, [0.023, 0.017]),
        (Schedule::ZeroBubble2p, 1, [0.019, 0.012]),
    ] {
        for (p, rounds) in [1, 2, 4, 8, 16].into_iter().flat_map(|p| [4, 16, 64].map(|rounds| (p, rounds))) {
            let near = |pipeline: &Pipeline, tolerance: f64| {
                let error = pipeline.closed_form() / pipeline.run().step - 1.0;
                assert!(error.abs() <= tolerance, "{error:+.5}: {schedule:?} v {v} p {p} rounds {rounds} {pipeline:?}");
            };
            for send in [0.0, 0.0003, 0.001] {
                near(&equal(schedule, p, v, (rounds * p) as u32, send), equal_or_last);
            }
            let pipeline = equal(schedule, p, v, (rounds * p) as u32, 0.0);
            let scaled = |times: f64, places: &[(usize, usize)]| {
                let mut scaled = pipeline.clone();
                for &(stage, chunk) in places {
                    let one = &mut scaled.stages[stage][chunk];
                    for time in [&mut one.forward, &mut one.backward, &mut one.weight] {
                        *time *= times;
                    }
                }
                scaled
            };
            near(&scaled(1.1, &[(p - 1, v - 1)]), equal_or_last);
            near(&scaled(1.5, &[(p - 1, v - 1)]), equal_or_last);
            near(&scaled(0.75, &[(0, 0), (p - 1, v - 1)]), middle);
        }
    }
}

#[test]
fn a_pipeline_and_its_timeline_have_a_json_form() {
    let mut pipeline = equal(Schedule::Interleaved, 2, 2, 2, 0.001);
    let text = serde_json::to_string(&pipeline).unwrap();
    let chunk = r#"{"forward":0.005,"backward":0.0055,"weight":0.004}"#;
    assert_eq!(
        text,
        format!(
            r#"{{"schedule":"interleaved","stages":[[{chunk},{chunk}],[{chunk},{chunk}]],"micro_batches":2,"send":0.001,"kept":{}}}"#,
            pipeline.kept
        )
    );
    pipeline.schedule = serde_json::from_str(r#""gpipe""#).unwrap();
    let names = [Schedule::OneFOneB, Schedule::ZeroBubble1p, Schedule::ZeroBubble2p];
    assert_eq!(serde_json::to_string(&names).unwrap(), r#"["1f1b","zero-bubble-1p","zero-bubble-2p"]"#);
    let timeline = equal(Schedule::OneFOneB, 1, 1, 1, 0.0).run_with_spans();
    assert_eq!(
        serde_json::to_string(&timeline.stages[0]).unwrap(),
        concat!(
            r#"{"start_ps":0,"end_ps":29000000000,"busy_ps":29000000000,"activations":1.0,"in_flight":[1],"pending":0,"spans":["#,
            r#"{"pass":"F","micro_batch":0,"chunk":0,"start_ps":0,"end_ps":10000000000},"#,
            r#"{"pass":"B","micro_batch":0,"chunk":0,"start_ps":10000000000,"end_ps":29000000000}]}"#
        )
    );
}

#[test]
fn a_step_is_as_long_as_its_busiest_stage_whichever_it_is() {
    let stage = |forward: f64| vec![Chunk { forward, backward: 2.0 * forward, weight: 0.0 }];
    for slow in 0..4 {
        for others in [0.0, 0.1, 0.5] {
            let stages = (0..4).map(|nth| stage(if nth == slow { 1.0 } else { others })).collect();
            let pipeline = Pipeline::new(Schedule::OneFOneB, stages, 16, 0.0);
            let (exact, formula) = (pipeline.run().step, pipeline.closed_form());
            assert!(formula >= 16.0 * 3.0, "{slow} {others}: {formula}");
            assert!((formula / exact - 1.0).abs() < 0.04, "{slow} {others}: {formula} and {exact}");
        }
    }
}
