//! Fusible folds: steps that apply the same fold to successive chunks, so that one kernel call can replace them.

use nvcoll_core::schedule::{Buffer, Schedule, Step};

/// Counts the folds after fusion. A fold is fused with the fold before it in program order if its chunks follow, the sources are
/// the same in the same order, and the destinations are the same in any order.
pub(super) fn folds_when_fused(schedule: &Schedule) -> u64 {
    let mut last = None;
    let mut runs = 0;
    for step in &schedule.steps {
        let chunks = &step.dst[0].chunks;
        let this = (sources(step), destinations(step));
        runs += u64::from(last.as_ref() != Some(&(this.clone(), chunks.start)));
        last = Some((this, chunks.end));
    }
    runs
}

/// A view relative to its step: rank, buffer, and first chunk counted from the step's first chunk. All views of a step have the
/// same length.
type RelativeView = (u32, Buffer, i64);

fn sources(step: &Step) -> Vec<RelativeView> {
    let first = i64::from(step.dst[0].chunks.start);
    step.src.iter().map(|s| (s.view.rank, s.view.buffer, i64::from(s.view.chunks.start) - first)).collect()
}

fn destinations(step: &Step) -> Vec<RelativeView> {
    let first = i64::from(step.dst[0].chunks.start);
    let mut places: Vec<RelativeView> =
        step.dst.iter().map(|view| (view.rank, view.buffer, i64::from(view.chunks.start) - first)).collect();
    places.sort_unstable_by_key(|place| (place.0, place.2));
    places
}
