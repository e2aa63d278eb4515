//! Predicted times of each record of a step, in a second run of a script.
//!
//! The first run records a step, pricing predicts the times of each of its records, and a second run of the same script
//! hands these times to the profiler (`cupti`), to events and to the clock. Python says at the start of each step:
//!
//! ```text
//! set_times(start, end, first, n, period)     record first + i of the log runs from start[i] to end[i] ns after the step starts
//! ```
//!
//! Steps follow each other: step s + 1 starts one period after step s, however long the host takes. Records behind
//! `first + n` that no later call covers repeat the step.
use std::sync::{Arc, Mutex};

use crate::lock::lock;

/// The times of one step.
#[derive(Clone, Debug)]
struct TimedStep {
    /// The position of its first record in the log.
    first: u64,
    /// Start and end of each record in ns after the step starts; steps that are alike share it.
    times: Arc<[[u64; 2]]>,
    period_ns: u64,
    /// When the step starts, in ns after the first one does.
    begins_ns: u64,
}

static STEPS: Mutex<Vec<TimedStep>> = Mutex::new(Vec::new());

/// When a record runs, in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PredictedRun {
    /// The number of its step, from 0.
    pub(crate) step: usize,
    /// When that step starts, after the first one does.
    pub(crate) begins_ns: u64,
    /// Start and end after the step starts.
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
}

/// When the record at `position` runs; none before the first step with known times.
pub(crate) fn of(position: u64) -> Option<PredictedRun> {
    let steps = lock(&STEPS);
    let step = steps.partition_point(|step| step.first <= position).checked_sub(1)?;
    let TimedStep { first, times, period_ns, begins_ns } = &steps[step];
    let count = times.len() as u64;
    let (rounds, index) = ((position - first) / count, (position - first) % count);
    let later = rounds.saturating_mul(*period_ns);
    let [start, end] = times[index as usize];
    let place = |time: u64| time.saturating_add(later);
    Some(PredictedRun { step, begins_ns: *begins_ns, start_ns: place(start), end_ns: place(end) })
}

/// Milliseconds between the ends of two records, if both have times.
pub(crate) fn between_ms(start: u64, end: u64) -> Option<f32> {
    let ends = [start, end].map(|position| of(position).map(|place| place.begins_ns.saturating_add(place.end_ns)));
    let [Some(start), Some(end)] = ends else { return None };
    Some((end as i64).wrapping_sub(start as i64) as f32 / 1e6)
}

/// Says when the records of a step run, which starts at the record `first`; without times nothing changes.
pub(crate) fn set(first: u64, times: &[[u64; 2]], period_ns: u64) {
    let mut steps = lock(&STEPS);
    let last = steps.last();
    let begins_ns = last.map_or(0, |last| last.begins_ns.saturating_add(last.period_ns));
    let times = match last {
        Some(last) if *last.times == *times => Arc::clone(&last.times),
        _ => Arc::from(times),
    };
    if last.is_none_or(|last| last.first < first) {
        steps.push(TimedStep { first, times, period_ns, begins_ns });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_follow_each_other_by_their_periods_and_the_last_repeats() {
        let far = u64::MAX / 2;
        assert!(of(far).is_none());
        set(far, &[[0, 10], [20, 50]], 100);
        set(far + 5, &[[0, 10], [20, 50]], 60);
        let at =
            |offset| of(far + offset).map(|place| (place.step, place.begins_ns, place.start_ns, place.end_ns)).unwrap();
        assert_eq!(at(1), (0, 0, 20, 50));
        assert_eq!(at(2), (0, 0, 100, 110), "the third record repeats the first, a period later");
        assert_eq!(at(6), (1, 100, 20, 50));
        assert_eq!(between_ms(far + 1, far + 6), Some(100.0 / 1e6));
        assert!(between_ms(far - 1, far).is_none());
    }
}
