//! Tiles that repeat are passed over. When queues, transfers and links are as they were some tiles ago, but for the
//! time and for how far each queue is, then what followed then follows now, that much later.
//!
//! ```text
//! tile of the marker   1 2 3 4 5 6 7 8 9 …                              … last
//! state kept           ▲ ▲   ▲       ▲                  compared with the last kept, at every tile (Brent 1980)
//!                                    └─ equal after p tiles: as many periods as fit are passed over at once
//! ```
//!
//! A schedule over many equal tiles is close to a linear system over (max, +), which is periodic after a transient
//! (Baccelli, Cohen, Olsder, Quadrat, Synchronization and Linearity, 1992); shared links are not linear, so nothing is
//! believed but equality of all that decides what comes: to the picosecond, and to the bit of what transfers have left.
//! What is passed over is exactly what a run would have found. Where nothing repeats, as where rounding moves two queues
//! against each other or rates have no common period, every tile is run.
//!
//! **Queues may go at different speeds**: in a period one does seven tiles, another that waits for it one. Then the waits
//! between them must have been over, and heard of, before the period began: the faster is only farther ahead later.
//!
//! A state is all that there is at one time, so while repeats are looked for no queue goes ahead of the clock.
//!
//! Cost: for each tile of one queue a comparison, which mostly ends at the first number. Limitations: queues that drift
//! apart and share links have no period.

use std::ops::Range;

use super::{Done, Execution, RunRecord, StepCause, NOBODY};
use crate::simulate::flat::{Flat, ENTER};
use crate::simulate::sharing::{SharingModel, BEGINS};
use crate::units::Ps;

/// Fewer tiles are run without looking. Chosen: what is found out must be used some times to be worth its cost.
const LEAST_TILES: u32 = 8;

/// What is looked for in a run.
pub(super) struct Repeats {
    /// The queue at each of whose tiles the state is looked at; [`NOBODY`] if it is not.
    pub(super) marker: u32,
    /// Whether the marker has ended a tile at this time.
    pub(super) is_due: bool,
    /// Whether repeats are looked for in this run.
    pub(super) is_looking: bool,
    looks: u64,
    next_kept: u64,
    kept: Option<Kept>,
    /// The tiles before which bytes of steps change, by number.
    changes: Vec<u32>,
    /// When everybody has heard of every enter.
    entered: Ps,
    longest_signal: Ps,
    longest_lag_of_leaves: u32,
}

/// The state that later ones are compared with, and what was counted until then.
struct Kept {
    now: Ps,
    state: Vec<u64>,
    tiles: Vec<u32>,
    progress: Vec<u64>,
    /// For each queue, how many of its last steps somebody may not have heard of.
    unheard: Vec<u32>,
    moved: Vec<u64>,
    used: Vec<Ps>,
}

/// What passes in a period.
struct Period {
    takes: Ps,
    /// For each queue the tiles that it does, and the steps.
    tiles: Vec<u32>,
    steps: Vec<u64>,
}

impl Repeats {
    pub(super) fn new(flat: &Flat, starts: &[Ps], is_wanted: bool) -> Self {
        let working = flat.working_queues() as u32;
        let lag = |queues: Range<u32>| queues.flat_map(|queue| flat.waits_of(queue)).map(|wait| wait.lag).max();
        let longest_signal = flat.signals.iter().max().copied().unwrap_or(0);
        let is_looking = is_wanted && flat.tiles >= LEAST_TILES && working > 0;
        Self {
            marker: if is_looking { 0 } else { NOBODY },
            is_due: false,
            is_looking,
            looks: 0,
            next_kept: 1,
            kept: None,
            changes: if is_looking { flat.changes() } else { Vec::new() },
            entered: starts.iter().max().map_or(0, |last| last + longest_signal),
            longest_signal,
            longest_lag_of_leaves: lag(working..flat.queues() as u32).unwrap_or(0),
        }
    }

    fn start_again(&mut self, marker: u32) {
        (self.marker, self.looks, self.next_kept, self.kept) = (marker, 0, 1, None);
    }

    /// Returns the last tile that a queue which is in one may come to by passing over.
    fn last_alike(&self, tile: u32, tiles: u32) -> u32 {
        let change = self.changes[self.changes.partition_point(|&change| change <= tile)];
        (change - 1).min(tiles.saturating_sub(2 + self.longest_lag_of_leaves))
    }
}

impl<S: SharingModel> Execution<'_, S> {
    /// Looks whether the state is one that was, after all that happened at a time; passes over what it can.
    pub(super) fn look_for_repeats(&mut self, now: Ps) {
        self.repeats.is_due = false;
        if self.is_over(self.repeats.marker) {
            let working = 0..self.flat.working_queues() as u32;
            let slowest =
                working.filter(|&queue| !self.is_over(queue)).min_by_key(|&queue| self.queues[queue as usize].tile);
            return self.repeats.start_again(slowest.unwrap_or(NOBODY));
        }
        self.repeats.looks += 1;
        let period = self.repeats.kept.as_ref().and_then(|kept| self.period_since(kept, now));
        if let Some((period, times)) = period {
            self.pass_over(&period, times, now);
            self.repeats.start_again(self.repeats.marker);
        } else if self.repeats.looks >= self.repeats.next_kept && self.is_settled(now) {
            self.repeats.next_kept = 2 * self.repeats.looks;
            self.repeats.kept = Some(self.keep(now));
        }
    }

    fn is_over(&self, queue: u32) -> bool {
        self.queues[queue as usize].tile == self.flat.tiles
    }

    /// Says whether enters play no part any more.
    ///
    /// Lags need no such care. A wait that is for a tile before the first, in the period that is compared, is later for a
    /// step that was done and heard of when the period began: queues as fast do as many tiles in one, faster ones more.
    fn is_settled(&self, now: Ps) -> bool {
        now >= self.repeats.entered
    }

    fn keep(&self, now: Ps) -> Kept {
        let mut state = Vec::new();
        self.state(now, &mut |number| {
            state.push(number);
            true
        });
        Kept {
            now,
            state,
            tiles: self.queues.iter().map(|queue| queue.tile).collect(),
            progress: self.done.iter().map(Done::steps).collect(),
            unheard: (0..self.queues.len()).map(|queue| self.unheard(queue, now).count() as u32).collect(),
            moved: self.moved.clone(),
            used: self.sharing.used(now),
        }
    }

    /// Returns what has passed since the state was the same, and how often it can pass again.
    fn period_since(&self, kept: &Kept, now: Ps) -> Option<(Period, u64)> {
        let mut known = kept.state.iter();
        if !self.state(now, &mut |number| known.next() == Some(&number)) || known.next().is_some() {
            return None;
        }
        let queues = self.queues.iter().zip(&kept.tiles);
        let period = Period {
            takes: now - kept.now,
            tiles: queues.map(|(queue, before)| queue.tile - before).collect(),
            steps: self.done.iter().zip(&kept.progress).map(|(done, before)| done.steps() - before).collect(),
        };
        let times = (0..self.flat.working_queues() as u32).filter(|&queue| !self.is_over(queue)).map(|queue| {
            let (before, tile) = (kept.tiles[queue as usize], self.queues[queue as usize].tile);
            let left = self.repeats.last_alike(before, self.flat.tiles).saturating_sub(tile);
            let can_repeat = self.waits_repeat(queue, kept, &period);
            if can_repeat {
                left.checked_div(period.tiles[queue as usize]).unwrap_or(0)
            } else {
                0
            }
        });
        let times = times.min().unwrap_or(0);
        (times > 0).then_some((period, times.into()))
    }

    /// Says whether waits of a queue, which is not over, are for queues as fast, or were over before the period began and
    /// are so all the more in the next.
    fn waits_repeat(&self, queue: u32, kept: &Kept, period: &Period) -> bool {
        let (own, tile) = (period.tiles[queue as usize], self.queues[queue as usize].tile);
        self.flat.waits_of(queue).iter().filter(|wait| wait.queue & ENTER == 0).all(|wait| {
            let other = wait.queue as usize;
            let heard = kept.progress[other] - u64::from(kept.unheard[other]);
            let is_past = || self.target(wait, tile).is_none_or(|target| target <= heard);
            let is_faster = self.is_over(wait.queue) || period.tiles[other] > own;
            !self.is_over(wait.queue) && period.tiles[other] == own || is_faster && is_past()
        })
    }

    /// Tells all that decides what happens from now on, times as distances from now and steps as distances from where
    /// queues are, until `visit` says no; says whether it never did.
    fn state(&self, now: Ps, visit: &mut impl FnMut(u64) -> bool) -> bool {
        let working = self.flat.working_queues();
        let all = (0..self.queues.len()).all(|number| {
            let queue = &self.queues[number];
            if self.is_over(number as u32) {
                return visit(u64::MAX);
            }
            let ready = if number < working { now.wrapping_sub(queue.ready) } else { queue.ready };
            visit(u64::from(queue.step) << 32 | u64::from(queue.waits)) && visit(ready)
        });
        all && self.sharing.state(now, visit)
            && (0..self.queues.len()).all(|number| self.state_of_signals(number, now, visit))
            && self.state_of_causes(visit)
            && self.state_of_agenda(now, visit)
    }

    fn state_of_signals(&self, queue: usize, now: Ps, visit: &mut impl FnMut(u64) -> bool) -> bool {
        self.unheard(queue, now).all(|done| visit(now.wrapping_sub(done))) && visit(u64::MAX)
    }

    /// Returns when the last steps of a queue were done, backwards, as far as somebody may not have heard of it.
    fn unheard(&self, queue: usize, now: Ps) -> impl Iterator<Item = Ps> + '_ {
        let longest = self.repeats.longest_signal;
        self.done[queue].at.iter().rev().copied().take_while(move |done| done + longest > now)
    }

    fn state_of_causes(&self, visit: &mut impl FnMut(u64) -> bool) -> bool {
        let working = self.flat.working_queues();
        self.record.is_none()
            || (0..self.queues.len()).filter(|&queue| !self.is_over(queue as u32)).all(|number| {
                let cause = self.queues[number].cause;
                match StepCause::read(cause) {
                    StepCause::Step(at) if number < working => {
                        let (queue, done) = self.flat.done_of_number(at);
                        visit(queue.into()) && visit(self.done[queue as usize].steps() - done)
                    }
                    _ => visit(cause),
                }
            })
    }

    fn state_of_agenda(&self, now: Ps, visit: &mut impl FnMut(u64) -> bool) -> bool {
        let decides = |event: u64| !S::KNOWS_ENDS || event as u32 == BEGINS;
        let mut pending: Vec<(Ps, u64)> = self.agenda.pending().filter(|&(_, event)| decides(event)).collect();
        pending.sort_unstable();
        pending.into_iter().all(|(at, event)| visit(at - now) && visit(event))
    }

    /// Lets so many periods pass.
    fn pass_over(&mut self, period: &Period, times: u64, now: Ps) {
        let (by, working) = (period.takes * times, self.flat.working_queues());
        let kept = self.repeats.kept.take().expect("what is passed over was compared with it");
        if let Some(record) = &mut self.record {
            for queue in 0..working as u32 {
                record.repeat(
                    self.flat,
                    queue,
                    kept.progress[queue as usize]..self.done[queue as usize].steps(),
                    period,
                    times,
                );
            }
        }
        let used = self.sharing.used(now);
        let more: Vec<Ps> = used.iter().zip(&kept.used).map(|(after, before)| (after - before) * times).collect();
        self.sharing.postpone(by, &more);
        for (after, before) in self.moved.iter_mut().zip(&kept.moved) {
            *after += (*after - before) * times;
        }
        self.agenda.postpone(by);
        for number in (0..working as u32).filter(|&queue| !self.is_over(queue)).collect::<Vec<_>>() {
            self.postpone(number, by, period, times);
        }
    }

    fn postpone(&mut self, number: u32, by: Ps, period: &Period, times: u64) {
        let at = number as usize;
        let mut queue = self.queues[at].clone();
        queue.tile += period.tiles[at] * times as u32;
        queue.ready += by;
        queue.cause += later(self.flat, period, queue.cause) * times;
        let waited_for = self.flat.waits(queue.step).get(queue.waits as usize).filter(|wait| wait.queue & ENTER == 0);
        if let Some(target) = waited_for.and_then(|wait| self.target(wait, queue.tile)) {
            queue.target = target;
        }
        self.queues[at] = queue;
        self.done[at].forgotten += period.steps[at] * times;
        self.done[at].at.iter_mut().for_each(|done| *done += by);
    }
}

impl RunRecord {
    /// Writes what a queue does in the periods that are passed over, from what it did in `done`, the last.
    fn repeat(&mut self, flat: &Flat, queue: u32, done: Range<u64>, period: &Period, times: u64) {
        let len = (done.end - done.start) as usize;
        let first = flat.number(queue, done.end) as usize;
        let by: Vec<u64> = self.cause[first - len..first].iter().map(|&cause| later(flat, period, cause)).collect();
        for round in 0..times as usize {
            for (nth, by) in by.iter().enumerate() {
                let at = first + round * len + nth;
                self.ready[at] = self.ready[at - len] + period.takes;
                self.done[at] = self.done[at - len] + period.takes;
                self.cause[at] = self.cause[at - len] + by;
                self.limit[at] = self.limit[at - len];
            }
        }
    }
}

/// Returns by how many numbers in the record a cause is later in the next period.
fn later(flat: &Flat, period: &Period, cause: u64) -> u64 {
    match StepCause::read(cause) {
        StepCause::Step(at) => period.steps[flat.done_of_number(at).0 as usize],
        StepCause::Own | StepCause::Enter(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use nvcoll_core::algorithm::{build, ALGORITHMS};
    use nvcoll_core::collective::{Roles, ALL_REDUCE};
    use nvcoll_core::counts::Counts;
    use nvcoll_core::dtype::DType;
    use nvcoll_core::lower::lower;
    use nvcoll_core::partition::Partition;
    use nvcoll_core::schedule::{Aliasing, Path, Schedule};
    use nvcoll_core::text;
    use proptest::prelude::*;

    use crate::preset::preset;
    use crate::simulate::{protocol, AtSwitch, Detail, LinkSharing, Ratio, Settings, Simulation, StepCosts, Timeline};
    use crate::units::Ps;

    const MACHINES: [&str; 6] =
        ["hgx-h100", "hgx-a100", "dgx1-v100", "rtx4090-8-staged", "mi300x-8", "a100-pcie-8-bridge"];

    /// Counts, not necessarily even, of all parts of a collective, so that its longest chunk has so many tiles or more.
    fn partition(schedule: &Schedule, count: usize) -> Partition {
        let counts = Counts::Even(count).of_parts(schedule.collective, schedule.roles());
        Partition::new(counts, schedule.chunks_per_part)
    }

    fn simulation(schedule: &Schedule, partition: &Partition, machine: &str, settings: &Settings) -> Simulation {
        Simulation::new(schedule, partition, DType::F32, &preset(machine).unwrap(), settings).unwrap()
    }

    /// Runs every tile, and again passing over those that repeat.
    fn both(simulation: &mut Simulation) -> [Timeline; 2] {
        [false, true].map(|repeats| {
            simulation.repeats = repeats;
            simulation.run().unwrap()
        })
    }

    prop_compose! {
        /// A schedule of the registry.
        fn any_schedule()(
            algorithm in any::<prop::sample::Index>(), n in 1u32..9, path in prop::sample::select(Path::ALL),
            form in any::<prop::sample::Index>()
        ) -> Schedule {
            let algorithm = ALGORITHMS[algorithm.index(ALGORITHMS.len())];
            let forms: Vec<_> = algorithm.collective.forms(n).collect();
            let (roles, aliasing) = forms[form.index(forms.len())];
            lower(&build(algorithm.collective, algorithm.name, roles, aliasing).unwrap(), path).unwrap()
        }
    }

    prop_compose! {
        fn any_settings()(
            protocol in prop::sample::select(vec!["ideal", "simple", "ll128"]), fifo in any::<bool>(),
            starts in prop_oneof![Just(vec![0; 8]), prop::collection::vec(0u64..50_000_000, 8)],
            slow in prop_oneof![3 => Just((8, 1)), 1 => (0usize..8, 2u32..4)], slice in 64u64..100_000,
        ) -> Settings {
            let slowdowns = (0..8).map(|rank| Ratio::new(if rank == slow.0 { slow.1 } else { 1 }, 1)).collect();
            Settings {
                sharing: if fifo { LinkSharing::Fifo } else { LinkSharing::MaxMin },
                at_switch: AtSwitch::Ignore,
                detail: Detail::Spans,
                starts_ps: starts,
                slowdowns,
                ..Settings::new(protocol::named(protocol).unwrap(), slice * 4)
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn tiles_that_are_passed_over_are_as_if_they_had_been_run(
            schedule in any_schedule(), mut settings in any_settings(), machine in prop::sample::select(&MACHINES[..]),
            tiles in 1usize..120, more in 0usize..100_000,
        ) {
            let n = schedule.world_size as usize;
            settings.starts_ps.truncate(n);
            settings.slowdowns.truncate(n);
            let count = tiles * settings.slice_bytes as usize / 4 * schedule.chunks_per_part as usize + more % (2 * n + 1);
            let mut simulation = simulation(&schedule, &partition(&schedule, count), machine, &settings);
            let [every, passed] = both(&mut simulation);
            prop_assert!(every == passed, "{} {machine} {} tiles", schedule.title(), every.tiles);
        }
    }

    /// Copies of chunks of one length between ranks around a switch, or within one.
    fn by_hand(steps: &str, protocol: &str, tiles: u32, slice_bytes: u64) -> [Timeline; 2] {
        let header = "schedule all_reduce by_hand world_size 4 chunks_per_part 4 path mapped aliasing out_of_place\n";
        let schedule = text::parse(&format!("{header}{steps}")).unwrap();
        let settings =
            Settings { detail: Detail::Spans, ..Settings::new(protocol::named(protocol).unwrap(), slice_bytes) };
        let partition = Partition::new(vec![4 * tiles as usize * slice_bytes as usize], 4);
        let simulation =
            &mut Simulation::new(&schedule, &partition, DType::U8, &preset("hgx-h100").unwrap(), &settings);
        both(simulation.as_mut().unwrap())
    }

    #[test]
    fn a_queue_that_may_run_a_hundred_tiles_ahead_is_held_back_in_time() {
        let copies = "r0.q0.0 output[r0].0 = input[r1].0 after r2.q0.2@100\n\
                      r0.q0.1 output[r0].1 = input[r1].1\n\
                      r2.q0.0 output[r2].0 = input[r3].0\n\
                      r2.q0.1 output[r2].1 = input[r3].1\n\
                      r2.q0.2 output[r2].2 = input[r3].2\n";
        let [every, passed] = by_hand(copies, "simple", 500, 1 << 20);
        assert!(every == passed, "three tiles of rank 0 are as long as two of rank 2");
    }

    #[test]
    fn who_leaves_before_the_last_tile_does_so_in_time() {
        let copies = "r0.q0.0 output[r0].0 = input[r1].0\nleave r1 after r0.q0.0@17\n";
        let [every, passed] = by_hand(copies, "simple", 100, 1 << 20);
        assert!(every.ends_ps[1] < every.ends_ps[0]);
        assert!(every == passed);
    }

    /// Eight ranks around a switch, of which some copy: 64 tiles of chunks, but 25 of chunk 1.
    fn copies(steps: &str, protocol: &StepCosts, starts_ps: Vec<Ps>) -> [Timeline; 2] {
        let header = "schedule all_gather by_hand world_size 8 chunks_per_part 1 path mapped aliasing out_of_place\n";
        let schedule = text::parse(&format!("{header}{steps}")).unwrap();
        let partition = Partition::new((0..8).map(|part| 64 * if part == 1 { 25 } else { 64 }).collect(), 1);
        let settings = Settings { starts_ps, detail: Detail::Ends, ..Settings::new(protocol, 64) };
        let simulation = Simulation::new(&schedule, &partition, DType::U8, &preset("hgx-h100").unwrap(), &settings);
        both(&mut simulation.unwrap())
    }

    /// Copies of which each takes two units of time, and a signal so many; ranks start at so many. Rank 0 waits for nobody,
    /// and ends when it should.
    fn in_units(steps: &str, signal: u32, starts: [u64; 8]) -> [Timeline; 2] {
        let ideal = protocol::named("ideal").unwrap();
        let pair = "r0.q0.0 output[r0].0 = input[r1].0\nr2.q0.0 output[r2].0 = input[r3].0 after r0.q0.0\n";
        let ends = &copies(pair, ideal, Vec::new())[0].ends_ps;
        let copy = ends[0] / 64;
        let unit = ends[2] - ends[0] - copy;
        let protocol = StepCosts { fixed_ps: 2 * unit - copy, signal: Ratio::new(signal, 1), ..ideal.clone() };
        let outcomes = copies(steps, &protocol, starts.map(|start| start * unit).to_vec());
        let steps_of_0 = steps.lines().filter(|line| line.trim_start().starts_with("r0")).count() as u64;
        assert_eq!(outcomes[0].ends_ps[0], (starts[0] + 128 * steps_of_0) * unit);
        outcomes
    }

    #[test]
    fn bytes_that_change_within_a_period_end_it() {
        let copies = "r0.q0.0 output[r0].0 = input[r1].0\n\
                      r2.q0.0 output[r2].0 = input[r3].0\n\
                      r2.q0.1 output[r2].1 = input[r3].1\n";
        // Before rank 6 enters no state is kept: then rank 2 begins the last tile in which chunk 1 has bytes.
        let [every, passed] = in_units(copies, 1, [0, 0, 0, 0, 0, 0, 95, 0]);
        assert!(every == passed);
    }

    #[test]
    fn a_queue_that_was_waited_for_and_is_faster_is_not_waited_for_again() {
        let copies = "r0.q0.0 output[r0].0 = input[r1].0\n\
                      r2.q0.0 output[r2].0 = input[r3].0\n\
                      r2.q0.1 output[r2].0 = input[r3].0\n\
                      r2.q0.2 output[r2].0 = input[r3].0 after r4.q0.2\n\
                      r2.q0.3 output[r2].0 = input[r3].0\n\
                      r4.q0.0 output[r4].0 = input[r5].0\n\
                      r4.q0.1 output[r4].0 = input[r5].0\n\
                      r4.q0.2 output[r4].0 = input[r5].0\n";
        let [every, passed] = in_units(copies, 1, [0, 0, 13, 0, 14, 0, 0, 0]);
        assert!(every == passed, "the first tile of rank 2 takes as long as six copies, every other as four");
    }

    #[test]
    fn a_queue_that_was_done_and_not_heard_of_was_waited_for() {
        let copies = "r0.q0.0 output[r0].0 = input[r1].0\n\
                      r0.q0.1 output[r0].0 = input[r1].0\n\
                      r2.q0.0 output[r2].0 = input[r3].0\n\
                      r2.q0.1 output[r2].0 = input[r3].0 after r6.enter r0.q0.1@1\n\
                      r2.q0.2 output[r2].0 = input[r3].0\n";
        let [every, passed] = in_units(copies, 7, [8, 0, 7, 0, 0, 0, 4, 0]);
        assert!(every == passed, "two tiles of rank 2 take as long as four copies, every other as three");
    }

    #[test]
    fn four_thousand_tiles_are_as_if_they_had_been_run() {
        for algorithm in ALGORITHMS.iter().filter(|algorithm| algorithm.collective.name == ALL_REDUCE.name) {
            let schedule = build(&ALL_REDUCE, algorithm.name, Roles::of(8), Aliasing::InPlace).unwrap();
            for sharing in [LinkSharing::MaxMin, LinkSharing::Fifo] {
                let settings = Settings { sharing, ..Settings::new(protocol::named("simple").unwrap(), 1 << 20) };
                let [every, passed] =
                    both(&mut simulation(&schedule, &partition(&schedule, 1 << 30), "hgx-h100", &settings));
                assert!(every == passed, "{} {sharing:?}", algorithm.name);
            }
        }
    }
}
