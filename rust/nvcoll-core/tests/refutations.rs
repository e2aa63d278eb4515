//! Every rule of the proof, broken once in a small schedule written by hand: the verifier names the rule and the steps.

use nvcoll_core::algorithm::ALGORITHMS;
use nvcoll_core::builder::Builder;
use nvcoll_core::collective::{Roles, ALL_GATHER, ALL_REDUCE};
use nvcoll_core::schedule::{Aliasing, Buffer, Dependency, Event, Path, Schedule, Step, View};
use nvcoll_core::text::parse;
use nvcoll_core::verify::{refute, verify, Refutation, StepName, Violation, Waiter};

/// Rank 1 folds, rank 0 copies the sum.
const MAPPED: &str = "
    schedule all_reduce hand  world_size 2  chunks_per_part 1  path mapped  aliasing out_of_place
    r1.q0.0  output[r1].0 = input[r0].0*s0 + input[r1].0*s1  final  after r0.enter
    r0.q0.0  output[r0].0 = output[r1].0                            after r1.enter r1.q0.0
    leave r0
    leave r1                                                        after r0.q0.0";

/// The same through staging.
const STAGED: &str = "
    schedule all_reduce hand  world_size 2  chunks_per_part 1  path staged  aliasing out_of_place
    r0.q0.0  staging0[r0].0 = input[r0].0                                             after r1.enter r1.q0.0@2
    r1.q0.0  output[r1].0, staging0[r1].0 = staging0[r0].0*s0 + input[r1].0*s1  final  after r0.enter r0.q0.0 r0.q1.0@2
    r0.q1.0  output[r0].0 = staging0[r1].0                                            after r1.enter r1.q0.0
    leave r0
    leave r1";

/// The same with an early step, as in a small call.
const EARLY: &str = "
    schedule all_reduce hand  world_size 2  chunks_per_part 1  path staged  aliasing out_of_place
    r0.q1.0  staging0[r0].0 = input[r0].0
    r1.q0.0  output[r1].0, staging0[r1].0 = staging0[r0].0*s0 + input[r1].0*s1  final  after r0.enter
    r0.q0.0  output[r0].0 = staging0[r1].0                                            after r1.enter r1.q0.0
    enter r0  after r0.q1
    leave r0
    leave r1";

/// Rank 0 tells rank 1.
const GATHER: &str = "
    schedule all_gather hand  world_size 1  chunks_per_part 2  path mapped  aliasing out_of_place
    r0.q0.0  output[r0].0..2 = input[r0].0..2
    leave r0";

fn refutation_of(schedule: Schedule) -> Refutation {
    verify(schedule).map(|_| ()).expect_err("it is wrong")
}

/// Replaces one piece of a schedule's text, and returns what the verifier says to it.
fn refutation(text: &str, found: &str, instead: &str) -> Refutation {
    assert!(text.contains(found), "`{found}` is not in the schedule");
    refutation_of(parse(&text.replacen(found, instead, 1)).unwrap_or_else(|error| panic!("{error}")))
}

/// The message without the name of the schedule.
fn message(text: &str, found: &str, instead: &str) -> String {
    refutation(text, found, instead).violation.to_string()
}

#[test]
fn the_schedules_that_the_other_tests_break_are_right() {
    for text in [MAPPED, STAGED, EARLY, GATHER] {
        verify(parse(text).unwrap()).unwrap_or_else(|refutation| panic!("{refutation}"));
    }
}

#[test]
fn a_refutation_names_the_schedule_the_rule_and_the_two_steps() {
    let refutation = refutation(MAPPED, "r1.enter r1.q0.0", "r1.enter");
    assert_eq!(
        refutation.to_string(),
        "all_reduce hand of 2 ranks, mapped, out of place: r0.q0.0 reads output[r1].0 and r1.q0.0 writes it, in no order: \
         let r0.q0.0 wait for r1.q0.0"
    );
    let step = |rank| Waiter::Step(StepName { rank, queue: 0, index: 0 });
    assert_eq!(refutation.violation.places(), [step(0), step(1)]);
}

/// What the verifier says is missing, in the spelling of the text form; empty if nothing is.
fn missing(text: &str, found: &str, instead: &str) -> String {
    refutation(text, found, instead).violation.missing().map(|missing| missing.to_string()).unwrap_or_default()
}

#[test]
fn what_is_missing_is_named_as_the_text_form_writes_it() {
    assert_eq!(missing(MAPPED, "r1.enter r1.q0.0", "r1.enter"), "r0.q0.0  after r1.q0.0");
    assert_eq!(missing(MAPPED, "after r0.enter", ""), "r1.q0.0  after r0.enter");
    assert_eq!(missing(MAPPED, "after r0.q0.0", ""), "leave r1  after r0.q0.0");
    assert_eq!(missing(STAGED, " r1.q0.0@2", ""), "r0.q0.0  after r1.q0.0@2");
    let alone = missing(MAPPED, "output[r1].0 = input[r0].0*s0 + input[r1].0*s1  final", "output[r1].0 = input[r0].0");
    assert_eq!(alone, "the contribution of r1");
    let nothing = missing(MAPPED, "output[r0].0 = output[r1].0", "scratch0[r0].0 = output[r1].0");
    assert_eq!(nothing, "the contributions of r0, r1");
    let early = MAPPED.replace("world_size 2", "world_size 3").replace("leave r1", "leave r2\n leave r1");
    assert_eq!(missing(&early, "hand", "hand"), "the contribution of r2");
    let repeated = missing(MAPPED, "input[r1].0*s1", "input[r0].0*s0");
    assert_eq!(repeated, "", "what is there too often is not missing");
}

#[test]
fn a_slot_that_comes_back_too_early_is_a_race_two_tiles_apart() {
    assert_eq!(
        message(STAGED, " r1.q0.0@2", ""),
        "r0.q0.0 writes staging0[r0].0 and r1.q0.0 reads it 2 tiles before, in no order: let r0.q0.0 wait for r1.q0.0@2"
    );
    assert_eq!(
        message(STAGED, " r0.q1.0@2", ""),
        "r1.q0.0 writes staging0[r1].0 and r0.q1.0 reads it 2 tiles before, in no order: let r1.q0.0 wait for r0.q1.0@2"
    );
}

#[test]
fn a_schedule_for_two_slots_is_refuted_with_one_and_proved_with_three() {
    let schedule = parse(STAGED).unwrap();
    let violation = *refute(&schedule, 1).expect("one slot is too few").violation;
    assert!(matches!(violation, Violation::Race { lag: 1, .. }), "{violation}");
    assert_eq!(refute(&schedule, 2), None);
    assert_eq!(refute(&schedule, 3), None);
}

#[test]
fn every_registered_algorithm_that_stages_needs_its_second_slot() {
    for algorithm in ALGORITHMS {
        let schedules = (2..=5).flat_map(|world_size| algorithm.schedules(world_size)).map(Result::unwrap);
        for staged in schedules.filter(|s| s.path == Path::Staged && !s.has_early_steps()) {
            let refutation = refute(&staged, 1);
            let stages = staged.steps.iter().flat_map(Step::views).any(|view| view.buffer.is_staging());
            assert_eq!(refutation.is_some(), stages, "{}", staged.title());
        }
    }
}

#[test]
fn steps_that_wait_for_each_other_are_a_deadlock() {
    assert_eq!(
        message(MAPPED, "after r0.enter", "after r0.enter r0.q0.0"),
        "these steps wait for each other for ever: r1.q0.0 waits for r0.q0.0 waits for r1.q0.0; \
         take one wait out of the circle"
    );
    assert!(message(STAGED, "r1.q0.0@2", "r1.q0.0").contains("for ever"), "a lag may close the circle");
}

#[test]
fn an_early_step_waits_for_nothing_and_its_readers_wait_for_the_enter() {
    let cases = [
        (
            "staging0[r0].0 = input[r0].0",
            "staging0[r0].0 = input[r0].0  after r1.enter",
            "r0.q1.0 comes before the enter of its rank and waits for r1.enter: an early step waits for nothing",
        ),
        (
            "staging0[r0].0 = input[r0].0",
            "staging0[r0].0 = staging0[r1].0",
            "r0.q1.0 touches or waits for rank 1 without contact: let it, or a step of its rank before it, wait for r1.enter",
        ),
        (
            "after r0.enter",
            "after r0.enter r0.q1.0",
            "r1.q0.0 waits for r0.q1.0, an early step: let it wait for r0.enter",
        ),
        (
            "enter r0  after r0.q1",
            "",
            "r1.q0.0 reads staging0[r0].0 and r0.q1.0 writes it, in no order: let r1.q0.0 wait for r0.q1.0",
        ),
        ("after r1.enter r1.q0.0", "after r1.enter r1.q0.0@1", "r0.q0.0 waits for r1.q0.0@1: here a lag is from 0 to 0"),
    ];
    for (found, instead, expected) in cases {
        assert_eq!(message(EARLY, found, instead), expected);
    }
}

#[test]
fn memory_is_not_touched_before_contact() {
    assert_eq!(
        message(MAPPED, "after r0.enter", ""),
        "r1.q0.0 touches or waits for rank 0 without contact: let it, or a step of its rank before it, wait for r0.enter"
    );
}

#[test]
fn a_step_of_another_rank_is_not_awaited_before_contact_however_late() {
    assert!(message(STAGED, "after r1.enter r1.q0.0@2", "after r1.q0.0@2").starts_with("r0.q0.0 touches or waits"));
}

#[test]
fn contact_in_another_queue_counts_only_if_it_comes_before() {
    let third = "r0.q1.0  output[r0].0 = staging0[r1].0                                            after r1.q0.0";
    let second =
        "r0.q1.0  output[r0].0 = staging0[r1].0                                            after r1.enter r1.q0.0";
    let knows_by_then = parse(&STAGED.replace(second, third)).unwrap();
    verify(knows_by_then).unwrap_or_else(|refutation| panic!("{refutation}"));
    let both = STAGED.replace(second, third).replace("after r1.enter r1.q0.0@2", "");
    assert!(message(&both, "leave r0", "leave r0 after r1.enter").starts_with("r0.q1.0 touches or waits for rank 1"));
}

#[test]
fn a_leave_waits_for_everyone_who_touches_the_ranks_buffers() {
    assert_eq!(
        message(MAPPED, "after r0.q0.0", ""),
        "r1 may leave while r0.q0.0 still reads output[r1].0: let leave r1 wait for r0.q0.0"
    );
}

#[test]
fn nobody_leaves_before_all_have_entered_if_the_collective_synchronises() {
    let text = "schedule barrier hand  world_size 2  chunks_per_part 1  path mapped  aliasing out_of_place
                leave r0  after r1.enter
                leave r1  after r0.enter";
    verify(parse(text).unwrap()).unwrap_or_else(|refutation| panic!("{refutation}"));
    assert_eq!(
        message(text, "  after r0.enter", ""),
        "r1 may leave before r0 has entered, and barrier promises that it does not: let leave r1 wait for r0.enter"
    );
}

#[test]
fn a_contribution_is_folded_once() {
    assert_eq!(
        message(MAPPED, "input[r1].0*s1", "input[r0].0*s0"),
        "r1.q0.0 folds the contribution of rank 0 into output[r1].0 a second time: fold each rank's once"
    );
    assert!(message(MAPPED, "input[r1].0*s1", "input[r1].0*s1 + input[r0].0*s0").contains("rank 0 into output[r1].0"));
}

#[test]
fn the_step_that_overwrote_what_a_repeated_fold_reads_is_named() {
    let text = "schedule all_reduce hand  world_size 3  chunks_per_part 1  path mapped  aliasing in_place
        r0.q0.0  output[r0].0 = input[r0].0*s0 + input[r1].0*s1                         after r1.enter
        r1.q0.0  output[r1].0 = input[r0].0 + input[r1].0*s1 + input[r2].0*s2  final  after r0.enter r2.enter r0.q0.0
        leave r0
        leave r1
        leave r2";
    let violation = *refutation_of(parse(text).unwrap()).violation;
    assert_eq!(
        violation.to_string(),
        "r1.q0.0 folds the contribution of rank 1 into output[r1].0 a second time (what it reads in input[r0].0 was \
         written by r0.q0.0): fold each rank's once"
    );
    let step = |rank| Waiter::Step(StepName { rank, queue: 0, index: 0 });
    assert_eq!(violation.places(), [step(1), step(0)]);
}

#[test]
fn a_contribution_is_marked_where_it_is_folded_and_nowhere_else() {
    assert_eq!(
        message(MAPPED, "input[r1].0*s1", "input[r1].0"),
        "r1.q0.0 marks input[r1].0 as no contribution to scale, and it is the contribution of rank 1 to scale: \
         each contribution is marked where it is folded, once"
    );
    assert!(message(MAPPED, "*s0", "*s1").contains("and it is the contribution of rank 0"));
    assert!(message(STAGED, "= input[r0].0", "= input[r0].0*s0").contains("and it is no contribution to scale"));
}

#[test]
fn exactly_the_step_that_completes_a_fold_is_final() {
    assert!(
        message(MAPPED, "final", "").ends_with("completes the fold of output[r1].0 and is not final: mark it final")
    );
    let early = MAPPED.replace("world_size 2", "world_size 3").replace("leave r1", "leave r2\n leave r1");
    assert!(message(&early, "hand", "hand").contains("is final, and output[r1].0 lacks the contribution of rank 2"));
    assert!(
        message(MAPPED, "= output[r1].0  ", "= output[r1].0 final").contains("output[r1].0, which is final already")
    );
    let folds_again = message(MAPPED, "= output[r1].0", "= output[r1].0 + input[r0].0*s0");
    assert!(folds_again.contains("output[r1].0, which is final already"), "{folds_again}");
}

#[test]
fn a_lonely_rank_still_finishes_its_fold() {
    let text = "schedule all_reduce hand  world_size 1  chunks_per_part 1  path mapped  aliasing in_place
                r0.q0.0  output[r0].0 = input[r0].0*s0  final
                leave r0";
    assert_eq!(verify(parse(text).unwrap()).unwrap().expression(0), "r0");
    let unfinished = "output[r0].0 ends as r0: it must be the final fold of every rank's contribution";
    assert_eq!(message(text, "*s0  final", ""), unfinished);
    assert_eq!(message(text, "r0.q0.0  output[r0].0 = input[r0].0*s0  final", ""), unfinished);
}

#[test]
fn every_output_holds_what_is_promised() {
    let gone = message(MAPPED, "output[r0].0 = output[r1].0", "scratch0[r0].0 = output[r1].0");
    assert_eq!(gone, "output[r0].0 ends as nothing: it must be the final fold of every rank's contribution");
    let text = "schedule all_gather hand  world_size 2  chunks_per_part 1  path mapped  aliasing in_place
                r0.q0.0  output[r1].0 = input[r0].0  after r1.enter
                r1.q0.0  output[r0].1 = input[r1].1  after r0.enter
                leave r0  after r1.q0.0
                leave r1  after r0.q0.0";
    verify(parse(text).unwrap()).unwrap_or_else(|refutation| panic!("{refutation}"));
    assert_eq!(message(text, "r1.q0.0  output[r0].1 = input[r1].1", "r1.q0.0  scratch0[r0].1 = input[r1].1"), {
        "output[r0].1 ends as nothing: it must be r1"
    });
}

#[test]
fn every_rank_receives_the_same_expression() {
    let twice = "schedule all_reduce hand  world_size 2  chunks_per_part 1  path mapped  aliasing out_of_place
                 r0.q0.0  output[r0].0 = input[r0].0*s0 + input[r1].0*s1  final  after r1.enter
                 r1.q0.0  output[r1].0 = input[r0].0*s0 + input[r1].0*s1  final  after r0.enter
                 leave r0  after r1.q0.0
                 leave r1  after r0.q0.0";
    verify(parse(twice).unwrap()).unwrap_or_else(|refutation| panic!("{refutation}"));
    assert_eq!(
        message(
            twice,
            "output[r1].0 = input[r0].0*s0 + input[r1].0*s1",
            "output[r1].0 = input[r1].0*s1 + input[r0].0*s0"
        ),
        "output[r1].0 ends as (r1 + r0), final and output[r0].0 as (r0 + r1), final: \
         every rank must receive the same expression"
    );
}

#[test]
fn a_collective_that_copies_does_not_fold() {
    let folds = message(GATHER, "= input[r0].0..2", "= input[r0].0..2 + input[r0].0..2");
    assert_eq!(folds, "r0.q0.0 folds or finishes, and all_gather only copies: use one source, and no final");
    assert_eq!(message(GATHER, "= input[r0].0..2", "= input[r0].0..2  final"), folds);
}

#[test]
fn nothing_is_read_before_it_is_written() {
    assert_eq!(
        message(MAPPED, "input[r1].0*s1", "scratch3[r1].0"),
        "r1.q0.0 reads scratch3[r1].0, which nothing has written before: let a step write it first"
    );
}

#[test]
fn an_input_stays_as_it_is() {
    let both = message(MAPPED, "output[r1].0 = input", "output[r1].0, input[r0].0 = input");
    assert_eq!(
        both,
        "r1.q0.0 writes input[r0].0, and an input stays as it is where it shares no memory with the output: \
         write output or scratch"
    );
}

#[test]
fn destinations_are_apart() {
    assert_eq!(
        message(MAPPED, "output[r1].0 =", "output[r1].0, output[r1].0 ="),
        "r1.q0.0 writes output[r1].0 twice: list each destination once"
    );
    let in_place = MAPPED.replace("out_of_place", "in_place");
    assert!(message(&in_place, "output[r1].0 =", "output[r1].0, input[r1].0 =").contains("twice"));
}

#[test]
fn a_view_stays_where_its_path_reaches() {
    assert!(
        message(STAGED, "staging0[r1].0  ", "output[r1].0").contains("output[r1].0, which the staged path does not")
    );
    assert!(message(MAPPED, "output[r0].0", "staging0[r0].0").contains("which the mapped path does not reach"));
}

#[test]
fn a_buffer_is_touched_only_where_it_holds_something() {
    let text = "schedule reduce_scatter hand  world_size 2  chunks_per_part 1  path mapped  aliasing out_of_place
                r0.q0.0  output[r0].1 = input[r0].1*s0 + input[r1].1*s1  final  after r1.enter
                leave r0
                leave r1";
    assert_eq!(
        refutation_of(parse(text).unwrap()).violation.to_string(),
        "r0.q0.0 touches output[r0].1, and that buffer does not hold these chunks: see the contract of the collective"
    );
}

#[test]
fn chunks_stay_in_their_place() {
    let text = GATHER.replace("output[r0].0..2 =", "output[r0].0..1 =");
    assert!(refutation_of(parse(&text).unwrap()).violation.to_string().contains("whose chunks differ"));
}

/// A schedule that no parser accepts, made from one that is right.
fn broken(change: impl Fn(&mut Schedule)) -> Violation {
    let mut schedule = parse(STAGED).unwrap();
    change(&mut schedule);
    *refutation_of(schedule).violation
}

/// Lets one view be all chunks of many layers of staging: of the user's buffers alone a proof would have room.
fn many_layers(schedule: &mut Schedule) {
    schedule.chunks_per_part = 1 << 22;
    let step = &mut schedule.steps[0];
    step.dst = (0..64).map(|n| View { rank: 0, buffer: Buffer::Staging(n), chunks: 0..1 << 22 }).collect();
}

#[test]
fn what_cannot_be_numbered_is_refused_before_anything_else() {
    let refused = [
        (broken(|s| s.world_size = 0), "world_size is 0"),
        (broken(|s| s.world_size = 16385), "world_size is 16385: it must be from 1 to 16384"),
        (broken(|s| s.world_size = 1025), "2 leaves and 1025 ranks"),
        (broken(|s| s.leave.truncate(1)), "the schedule has 1 leave and 2 ranks"),
        (broken(|s| s.chunks_per_part = u32::MAX), "use fewer ranks or chunks"),
        (broken(|s| s.chunks_per_part = 1 << 26), "bytes of memory, and may take 2147483648"),
        (broken(many_layers), "bytes of memory, and may take 2147483648"),
        (broken(|s| s.chunks_per_part = 0), "chunks_per_part is 0"),
        (broken(|s| s.early = vec![None]), "the schedule has 1 early queue and 2 ranks"),
        (broken(|s| s.early = vec![None, Some(7)]), "the early queue of rank 1 has no step"),
        (broken(|s| s.steps[0].rank = 7), "names rank 7"),
        (broken(|s| s.steps[0].src[0].view.rank = 7), "names rank 7"),
        (broken(|s| s.steps[0].queue = u32::MAX), "leaves a gap"),
        (broken(|s| s.steps[0].index = 1), "leaves a gap"),
        (broken(|s| s.steps[2].queue = 0), "takes a place twice"),
        (broken(|s| s.steps[0].src.clear()), "has 0 sources"),
        (broken(|s| s.steps[0].dst.clear()), "0 destinations"),
        (broken(|s| s.steps[0].dst[0].chunks = 0..u32::MAX), "the chunks are 0..1"),
        (broken(|s| s.steps[0].dst[0].chunks = 1..1), "not empty"),
        (broken(|s| s.steps[0].after[0].rank = 9), "r9.enter, which does not exist"),
        (broken(|s| s.steps[0].after[1].event = Event::Step { queue: 0, index: 1 }), "which does not exist"),
        (broken(|s| s.steps[0].after[1].lag = 3), "a lag is from 0 to 2"),
        (broken(|s| s.steps[0].after[0].lag = 1), "a lag is from 0 to 0"),
        (
            broken(|s| s.leave[0].push(Dependency { rank: 0, event: Event::Step { queue: 0, index: 0 }, lag: 1 })),
            "0 to 0",
        ),
        (broken(|s| (s.path, s.slots) = (Path::Mapped, 0)), "which the mapped path does not reach"),
    ];
    for (violation, expected) in refused {
        assert!(violation.to_string().contains(expected), "`{violation}` does not say `{expected}`");
    }
}

/// Two of four ranks exchange their sums with one neighbour, and the two pairs never hear of each other.
#[test]
fn a_contribution_that_never_arrives_is_told_before_the_leave_that_does_not_wait_for_it() {
    let mut b = Builder::new(&ALL_REDUCE, Roles::of(4), Aliasing::Disjoint).unwrap();
    for pair in [[0, 1], [2, 3]] {
        let inputs = pair.map(|rank| b.input(rank, 0));
        let outputs = pair.map(|rank| b.output(rank, 0));
        b.fold(&inputs, &outputs);
    }
    let refutation = refutation_of(b.finish("half").unwrap());
    assert_eq!(
        refutation.violation.to_string(),
        "output[r0].0 lacks the contributions of r2, r3: it ends as (r0 + r1), and must be the final fold of every rank's \
         contribution"
    );
    assert_eq!(refutation.violation.missing().unwrap().to_string(), "the contributions of r2, r3");
}

/// What rank 0 gathers from nobody else: the others are done when they have entered.
#[test]
fn a_copy_that_never_arrives_is_told_before_the_leave_that_does_not_wait_for_it() {
    let mut b = Builder::new(&ALL_GATHER, Roles::of(3), Aliasing::InPlace).unwrap();
    b.copy(&b.input(0, 0), &[b.output(1, 0)]);
    let message = refutation_of(b.finish("forgetful").unwrap()).violation.to_string();
    assert_eq!(message, "output[r0].1 ends as nothing: it must be r1");
}
