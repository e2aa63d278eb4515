//! Where the ranks of a group sit: how many in each node, in how many nodes, and who shares the cards there.
//!
//! ```text
//! nodes of 8, size 4, stride 2:   0 . 2 . 4 . 6 .   . 1 . 3 . 5 . 7      4 of one node
//! nodes of 8, size 4, stride 4:   0 . . . 4 . . . │ 8 . . . 12 . . .     2 each of 2 nodes, four such groups
//! nodes of 8, size 12, stride 1:  0 … 7 │ 8 … 11  and  12 … 15 │ 16 … 23 uneven: as 4 each of 3 nodes
//! nodes of 8, size 4, stride 1, 2 runs, 16 apart:  0 1 . . . . . . │ │ 16 17 . . . . . .      2 each of 2 nodes
//! ```
//!
//! Groups of a size and stride fill blocks of size × stride ranks. **Uneven groups** have other numbers of ranks in one node than in
//! another. Closed forms know equal nodes, so the price is the price of the worst case that they know: each node has the largest
//! number that divides all of these, and the number of nodes follows from it, but is at most the machine's. A ring over
//! nodes is held up by the node with the fewest cards in use, which is no faster than this.

use std::fmt;

use nvcoll_fabric::predict::Pattern;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Groups of ranks `r`, `r + stride`, `r + 2 stride`, and so on; perhaps in several runs, as `0 1 2 3` and `16 17 18 19`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// The number of ranks of a group.
    pub size: u32,
    /// The distance between two ranks of a group, or of a run of it, that follow each other.
    pub stride: u32,
    /// The number of runs that share its ranks equally: 1 if all are `stride` apart.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub runs: u32,
    /// The distance between the first ranks of two runs that follow each other.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub apart: u32,
}

const fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_one(number: &u32) -> bool {
    *number == 1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Group {
    /// Returns groups whose ranks are evenly apart.
    pub const fn even(size: u32, stride: u32) -> Self {
        Self { size, stride, runs: 1, apart: 0 }
    }

    /// Says whether it is one: it has ranks in equal runs, and the gaps between ranks of a run hold whole runs.
    pub(crate) fn is_sound(self) -> bool {
        let is_even = self.size > 0 && self.stride > 0 && self.runs > 0 && self.size.is_multiple_of(self.runs);
        is_even && (self.runs == 1 || self.apart > 0 && u64::from(self.apart) % self.run() == 0)
    }

    /// Ranks from the first of a run to the next run, if one follows at once.
    fn run(self) -> u64 {
        u64::from(self.size / self.runs) * u64::from(self.stride)
    }

    /// Returns the number of ranks from the first to the last, with all ranks in between.
    fn extent(self) -> u64 {
        self.run() + u64::from(self.runs - 1) * u64::from(self.apart)
    }

    /// Returns the ranks of the group that begins with a rank, ascending.
    pub(crate) fn ranks(self, first: u32) -> impl Iterator<Item = u32> {
        (0..self.runs).flat_map(move |run| {
            (0..self.size / self.runs).map(move |nth| first + run * self.apart + nth * self.stride)
        })
    }

    /// Returns the first rank of the group in which a rank is.
    pub(crate) fn first(self, rank: u32) -> u32 {
        let run = if self.runs > 1 { rank / self.apart % self.runs } else { 0 };
        let within = rank / self.stride % (self.size / self.runs);
        rank - run * self.apart - within * self.stride
    }

    /// Says whether a rank is in the group that begins with another.
    pub(crate) fn holds(self, first: u32, rank: u32) -> bool {
        rank >= first && u64::from(rank) < u64::from(first) + self.extent() && self.first(rank) == first
    }

    /// Says whether the group of a rank is among the ranks of a step.
    pub(crate) fn fits(self, rank: u32, gpus: u32) -> bool {
        u64::from(self.first(rank)) + self.extent() < u64::from(gpus) + u64::from(self.stride)
    }
}

/// How the groups of a kind lie on a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    /// The number of ranks of a group in each of its nodes. GPUs that an NVSwitch joins are one node.
    pub local: u32,
    /// The number of nodes of a group.
    pub nodes: u32,
    /// The largest number of groups that leave one node by its cards.
    pub siblings: u32,
    /// Whether each node of each group has as many ranks.
    pub is_even: bool,
}

impl Shape {
    /// Returns the bytes that leave a node for one group, as a multiple of the bytes of the call.
    pub(super) fn leaving(self, pattern: Pattern) -> f64 {
        let others = f64::from(self.nodes - 1) / f64::from(self.nodes);
        match pattern {
            Pattern::AllReduce => 2.0 * others,
            Pattern::AllGather | Pattern::ReduceScatter | Pattern::Gather | Pattern::Scatter => others,
            Pattern::AllToAll => f64::from(self.local) * others,
            Pattern::Broadcast | Pattern::Reduce | Pattern::SendRecv => 1.0,
        }
    }
}

impl fmt::Display for Shape {
    /// Writes `8 GPUs of one node`, `4 GPUs each of 16 nodes`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gpus = if self.local == 1 { "one GPU".to_owned() } else { format!("{} GPUs", self.local) };
        match self.nodes {
            1 => write!(f, "{gpus} of one node")?,
            nodes => write!(f, "{gpus} each of {nodes} nodes")?,
        }
        f.write_str(if self.is_even { "" } else { ", for groups that lie unevenly" })
    }
}

/// The seats of a group: its shape, and the ranks that stand for it.
#[derive(Debug)]
pub(super) struct Seats {
    pub(super) shape: Shape,
    pub(super) ranks: Vec<u32>,
}

impl Seats {
    /// Finds the seats of groups among `gpus` ranks with `domain` of them in each node.
    ///
    /// # Errors
    /// [`Error::Layout`] for a group that does not fit.
    pub(super) fn of(group: Group, gpus: u32, domain: u32) -> Result<Self> {
        let Group { size, stride, .. } = group;
        if !group.is_sound() || group.extent() > u64::from(gpus) {
            let message = format!("groups of {size} ranks, {stride} apart, do not fit on {gpus} GPUs");
            return Err(Error::layout(format!("{message}: size x stride must be from 1 to {gpus}")));
        }
        let counts = GroupCounts::of(group, gpus, domain);
        let (local, most) = counts.local;
        let is_even = local == most;
        let nodes = if is_even { size / local } else { (size / local).min(gpus.div_ceil(domain)) };
        let ranks = if is_even {
            group.ranks(0).collect()
        } else {
            (0..nodes).flat_map(|node| (0..local).map(move |nth| node * domain + nth * stride)).collect()
        };
        Ok(Self { shape: Shape { local, nodes, siblings: counts.siblings, is_even }, ranks })
    }
}

/// What is counted over all groups of a kind.
struct GroupCounts {
    /// The greatest common divisor, and the largest, of the numbers of ranks that a group has in a node.
    local: (u32, u32),
    siblings: u32,
}

impl GroupCounts {
    fn of(group: Group, gpus: u32, domain: u32) -> Self {
        let (mut divisor, mut most) = (0, 0);
        let mut leaving = vec![0; gpus.div_ceil(domain) as usize];
        for start in (0..gpus).filter(|&rank| group.first(rank) == rank && group.fits(rank, gpus)) {
            let nodes: Vec<u32> = group.ranks(start).map(|rank| rank / domain).collect();
            for node in nodes.chunk_by(|one, next| one == next) {
                let count = node.len() as u32;
                (divisor, most) = (gcd(divisor, count), most.max(count));
                leaving[node[0] as usize] += u32::from(count < group.size);
            }
        }
        Self { local: (divisor, most), siblings: leaving.into_iter().max().unwrap_or(0).max(1) }
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 {
        a
    } else {
        gcd(b, a % b)
    }
}
