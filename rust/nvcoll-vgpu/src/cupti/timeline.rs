//! When each noted record runs, by the profiler's clock.
use std::collections::HashMap;
use std::time::Duration;

use super::notes::{stamp, Anchor, Note, LAUNCH_NS, MADE_UP_NS};
use crate::real_time::monotonic_ns;
use crate::times;

/// Shortest time over which the unit of the profiler's clock is measured.
const MEASURED_NS: i64 = 2_000_000;

/// Start and end of each note, in stamps of the profiler's clock.
pub(super) fn timeline(notes: &[Note], anchor: Option<Anchor>) -> Vec<(u64, u64)> {
    let unit = unit(anchor);
    let ns = |stamps: u64| stamps as f64 / unit;
    let first = notes.first().map_or(0, |note| note.stamp);
    let issued: Vec<u64> = notes.iter().map(|note| ns(note.stamp.saturating_sub(first)) as u64 + LAUNCH_NS).collect();
    let placed: Vec<Option<times::PredictedRun>> = notes.iter().map(|note| times::of(note.position)).collect();
    let stamps = |ns: u64| first.saturating_add((ns as f64 * unit) as u64);
    let runs = runs(&issued, &placed, notes.iter().map(|note| note.record.stream));
    runs.into_iter().map(|(start, end)| (stamps(start), stamps(end))).collect()
}

/// Stamps per ns.
fn unit(anchor: Option<Anchor>) -> f64 {
    let (before, since) = anchor.unwrap_or_else(|| (stamp(), monotonic_ns()));
    while monotonic_ns().saturating_sub(since) < MEASURED_NS {
        std::thread::sleep(Duration::from_nanos(MEASURED_NS as u64 / 4));
    }
    let (stamps, ns) = (stamp().saturating_sub(before), monotonic_ns().saturating_sub(since));
    (stamps as f64 / ns as f64).max(f64::MIN_POSITIVE)
}

/// Sleeps until a stamp of the profiler's clock, or for a minute (chosen: longer than a step).
pub(super) fn sleep_until(until: u64, anchor: Option<Anchor>) {
    let ns = until.saturating_sub(stamp()) as f64 / unit(anchor);
    std::thread::sleep(Duration::from_nanos(ns as u64).min(Duration::from_secs(60)));
}

/// Start and end in ns of each record that reached the GPU at `issued`, where `placed` says when it runs in its step.
///
/// A step starts so late that none of its records runs before it is issued, and not before the step before it ends.
fn runs(issued: &[u64], placed: &[Option<times::PredictedRun>], streams: impl Iterator<Item = u32>) -> Vec<(u64, u64)> {
    let mut starts: HashMap<usize, u64> = HashMap::new();
    for (issued, place) in issued.iter().zip(placed) {
        if let Some(place) = place {
            let start = starts.entry(place.step).or_default();
            *start = (*start).max(issued.saturating_sub(place.start_ns));
        }
    }
    let mut begins: Vec<(usize, u64)> = placed.iter().flatten().map(|place| (place.step, place.begins_ns)).collect();
    begins.sort_unstable();
    begins.dedup();
    for pair in begins.windows(2) {
        let earliest = starts[&pair[0].0].saturating_add(pair[1].1.saturating_sub(pair[0].1));
        starts.entry(pair[1].0).and_modify(|start| *start = (*start).max(earliest));
    }
    let mut busy: HashMap<u32, u64> = HashMap::new();
    let run = |((issued, place), stream): ((&u64, &Option<times::PredictedRun>), u32)| {
        let free = busy.entry(stream).or_default();
        let (start, end) = match place {
            Some(place) => {
                let begin = starts[&place.step];
                (begin.saturating_add(place.start_ns), begin.saturating_add(place.end_ns))
            }
            None => ((*issued).max(*free), (*issued).max(*free) + MADE_UP_NS),
        };
        *free = end;
        (start, end)
    };
    issued.iter().zip(placed).zip(streams).map(run).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(step: usize, begins_ns: u64, start_ns: u64, end_ns: u64) -> Option<times::PredictedRun> {
        Some(times::PredictedRun { step, begins_ns, start_ns, end_ns })
    }

    #[test]
    fn without_times_kernels_follow_each_other_on_their_streams() {
        let runs = runs(&[0, 100, 200], &[None; 3], [1, 1, 2].into_iter());
        assert_eq!(runs, [(0, 2_000), (2_000, 4_000), (200, 2_200)]);
    }

    #[test]
    fn a_step_starts_so_late_that_no_record_runs_before_it_is_issued() {
        let placed = [place(0, 0, 0, 50), place(0, 0, 60, 90), place(1, 100, 0, 50)];
        let runs = runs(&[10, 500, 510], &placed, [0; 3].into_iter());
        assert_eq!(runs, [(440, 490), (500, 530), (540, 590)], "the second step follows the first by its period");
    }
}
