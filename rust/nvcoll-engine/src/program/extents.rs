//! Offsets of parts in user buffers, and the lengths of those buffers.

use nvcoll_core::collective::Parts;
use nvcoll_core::partition::Partition;
use nvcoll_core::schedule::Schedule;

/// The parts of the input (0) and the output (1) of every rank.
#[derive(Debug)]
pub(super) struct Extents(Vec<[Extent; 2]>);

/// The parts of one buffer, with the first element of each; the last entry is the end.
#[derive(Debug)]
struct Extent {
    parts: Parts,
    starts: Vec<usize>,
}

impl Extents {
    pub(super) fn of(schedule: &Schedule, partition: &Partition) -> Self {
        let extent = |parts: Parts| {
            let mut starts = vec![0];
            for part in parts.iter() {
                starts.push(starts[starts.len() - 1] + partition.part_count(part));
            }
            Extent { parts, starts }
        };
        let (collective, roles) = (schedule.collective, schedule.roles());
        let of_rank = |rank| [collective.input(roles, rank), collective.output(roles, rank)].map(extent);
        Self((0..schedule.world_size).map(of_rank).collect())
    }

    /// Returns the first element of a part in the input (0) or the output (1) of a rank.
    pub(super) fn start(&self, rank: u32, side: usize, part: u32) -> usize {
        let Extent { parts, starts } = &self.0[rank as usize][side];
        starts[parts.place_of(part).expect("the proof says that the buffer holds it") as usize]
    }

    /// Returns the elements of the input and of the output of each rank.
    pub(super) fn counts(&self) -> impl Iterator<Item = [usize; 2]> + '_ {
        self.0.iter().map(|of_rank| of_rank.each_ref().map(|extent| extent.starts[extent.starts.len() - 1]))
    }
}
