//! The check that one machine can run a schedule.

use crate::error::{Error, Result};
use crate::limits::{most_staged_chunks, MAX_RUNNING_QUEUES, MAX_RUNNING_RANKS};
use crate::schedule::{Buffer, Schedule, Step};
use crate::words::counted;

/// Checks that one machine can run a schedule on elements of this size. A proved schedule may still be too large to run.
///
/// # Errors
/// [`Error::CannotRun`] names the limit and the remedy.
pub fn check_runnable(schedule: &Schedule, element_bytes: usize) -> Result<()> {
    let refuse = |message: String| Err(Error::CannotRun(message));
    if schedule.world_size > MAX_RUNNING_RANKS {
        let ranks = counted(schedule.world_size, "rank");
        return refuse(format!("the schedule has {ranks}, {MAX_RUNNING_RANKS} are possible: use fewer ranks"));
    }
    let queues = schedule.queues();
    if let Some(rank) = queues.iter().position(|queues| queues.len() > MAX_RUNNING_QUEUES as usize) {
        let found = queues[rank].len();
        return refuse(format!(
            "rank {rank} has {found} queues, {MAX_RUNNING_QUEUES} are possible: use fewer channels"
        ));
    }
    let most = most_staged_chunks(schedule.world_size, schedule.slots, element_bytes);
    if let Some((rank, found)) = staged_chunks(schedule).into_iter().enumerate().find(|&(_, found)| found > most) {
        let slots = counted(schedule.slots, "slot");
        return refuse(format!(
            "rank {rank} stages {found} chunks, {most} of {element_bytes}-byte elements are possible in {slots}: \
             use fewer chunks or slots"
        ));
    }
    Ok(())
}

/// Returns, for each rank, the number of chunks of staging that steps access.
fn staged_chunks(schedule: &Schedule) -> Vec<usize> {
    let mut touched: Vec<Vec<(Buffer, u32)>> = vec![Vec::new(); schedule.world_size as usize];
    for view in schedule.steps.iter().flat_map(Step::views).filter(|view| view.buffer.is_staging()) {
        touched[view.rank as usize].extend(view.chunks.clone().map(|chunk| (view.buffer, chunk)));
    }
    let count = |mut of_rank: Vec<(Buffer, u32)>| {
        of_rank.sort_unstable();
        of_rank.dedup();
        of_rank.len()
    };
    touched.into_iter().map(count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::Builder;
    use crate::collective::{Roles, ALL_REDUCE};
    use crate::lower::lower;
    use crate::schedule::{Aliasing, Path};
    use crate::verify::verify;

    /// Builds a schedule in which rank 0 folds and every rank copies, chunk by chunk, in one channel per chunk or one for all.
    fn star(chunks: u32, has_channels: bool, path: Path) -> Schedule {
        let mut b = Builder::new(&ALL_REDUCE, Roles::of(2), Aliasing::Disjoint).unwrap();
        for chunk in b.chunks(chunks) {
            b.channel(if has_channels { chunk } else { 0 });
            b.fold(&[b.input(0, chunk), b.input(1, chunk)], &[b.output(0, chunk), b.output(1, chunk)]);
        }
        lower(&b.finish("star").unwrap(), path).unwrap()
    }

    #[test]
    fn what_is_proved_and_too_large_to_run_is_told_with_the_limit_and_what_to_change() {
        let refusal = |schedule: Schedule| {
            assert!(verify(schedule.clone()).is_ok());
            check_runnable(&schedule, 4).err().map(|error| error.to_string())
        };
        assert_eq!(refusal(star(16, true, Path::Mapped)), None);
        assert_eq!(
            refusal(star(17, true, Path::Mapped)).unwrap(),
            "rank 0 has 17 queues, 16 are possible: use fewer channels"
        );
        let most = most_staged_chunks(2, 2, 4) as u32;
        assert_eq!(refusal(star(most, false, Path::Staged)), None);
        let found = refusal(star(most + 1, false, Path::Staged)).unwrap();
        let expected =
            format!("stages {} chunks, {most} of 4-byte elements are possible in 2 slots: use fewer", most + 1);
        assert!(found.contains(&expected), "{found}");
    }
}
