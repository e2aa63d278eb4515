//! Fusible folds: steps that do the same to chunks that follow each other, which one kernel can do in one go.

use nvcoll_core::schedule::{Buffer, Schedule, Step};

/// Counts the folds that are left when each fold is fused with the one before it in program order, wherever it continues that
/// one: with the same sources in the same order, and the same destinations in any order.
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

/// The memory of a view, but for which chunks, counted from the step's own first: all views of a step are as long.
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
