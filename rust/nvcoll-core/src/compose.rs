//! Composition: a collective over groups of ranks as one line of an algorithm.
//!
//! ```text
//! inner, outer = groups(per_node), strided_groups(per_node)
//! shard = reduce_scatter(inputs,  over inner)          rank i of a node holds shard i of the node's sum
//! total = all_reduce(shard,       over outer)          the ranks with the same shard agree across nodes
//!         all_gather(total, into outputs, over inner)
//! ```
//!
//! The inner algorithm is written against a builder of its own, for as many ranks as the group has; its lines are then
//! translated: its rank i is the group's member i, its data is the region it was given, its scratch is fresh scratch, its
//! channels are fresh channels, so that phases pipeline against each other. Where the members' inputs and outputs are the
//! same memory the inner algorithm is built for in-place use. Source: ours.

use crate::algorithm;
use crate::builder::{Builder, Line, Region, MAX_CHANNELS};
use crate::collective::{Collective, Holding, Parts, Roles, ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER};
use crate::error::{Error, Result};
use crate::schedule::{Aliasing, Buffer};
use crate::words::counted;

/// The collectives of which an algorithm can be made up.
const COMPOSED: [&Collective; 3] = [&ALL_REDUCE, &REDUCE_SCATTER, &ALL_GATHER];

/// Disjoint lists of ranks that cover the world.
pub type Groups = Vec<Vec<u32>>;

/// A part of the data, as a fraction `lo/of .. hi/of`.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Share {
    lo: u64,
    hi: u64,
    of: u64,
}

impl Share {
    fn of(region: &Region) -> Self {
        let (lo, hi, of) = region.reduced();
        Self { lo, hi, of }
    }

    /// The fraction `lo/of .. hi/of` of this share.
    fn part(self, lo: u64, hi: u64, of: u64) -> Self {
        let width = self.hi - self.lo;
        Self { lo: self.lo * of + width * lo, hi: self.lo * of + width * hi, of: self.of * of }.reduced()
    }

    /// What a buffer that holds `held` of `parts` holds of this share.
    fn held(self, held: Parts, parts: u32) -> Self {
        let range = held.range().unwrap_or(0..parts);
        self.part(range.start.into(), range.end.into(), parts.into())
    }

    fn reduced(self) -> Self {
        let divisor = crate::builder::gcd(crate::builder::gcd(self.lo, self.hi), self.of);
        Self { lo: self.lo / divisor, hi: self.hi / divisor, of: self.of / divisor }
    }

    fn at(self, rank: u32, buffer: Buffer) -> Region {
        Region { rank, buffer, lo: self.lo, hi: self.hi, of: self.of }
    }
}

impl Builder {
    /// Returns the groups of `per_group` neighbouring ranks.
    pub fn groups(&mut self, per_group: u32) -> Groups {
        let n = self.world_size();
        if per_group == 0 || !n.is_multiple_of(per_group) {
            self.fail(format!("groups of {per_group} do not divide {}: choose a divisor", counted(n, "rank")));
            return (0..n).map(|r| vec![r]).collect();
        }
        (0..n / per_group).map(|g| (g * per_group..(g + 1) * per_group).collect()).collect()
    }

    /// Returns the groups of ranks that are `stride` apart.
    pub fn strided_groups(&mut self, stride: u32) -> Groups {
        let n = self.world_size();
        if stride == 0 || !n.is_multiple_of(stride) {
            self.fail(format!("a stride of {stride} does not divide {}: choose a divisor", counted(n, "rank")));
            return (0..n).map(|r| vec![r]).collect();
        }
        (0..stride).map(|first| (first..n).step_by(stride as usize).collect()).collect()
    }

    /// Reduces each group's regions and leaves member i the i-th share; returns the shares, by rank.
    pub fn reduce_scatter(&mut self, from: &[Region], over: &Groups, algorithm: &str) -> Vec<Region> {
        self.compose(&REDUCE_SCATTER, from, None, over, algorithm)
    }

    /// Reduces each group's regions and leaves every member the whole; returns it, by rank.
    pub fn all_reduce(&mut self, from: &[Region], over: &Groups, algorithm: &str) -> Vec<Region> {
        self.compose(&ALL_REDUCE, from, None, over, algorithm)
    }

    /// Collects each group's shares into `into` on every member; returns it, by rank.
    pub fn all_gather(&mut self, from: &[Region], into: &[Region], over: &Groups, algorithm: &str) -> Vec<Region> {
        self.compose(&ALL_GATHER, from, Some(into), over, algorithm)
    }

    /// Runs a collective over groups; regions are listed by world rank.
    pub fn compose(
        &mut self,
        collective: &'static Collective,
        from: &[Region],
        into: Option<&[Region]>,
        over: &Groups,
        algorithm: &str,
    ) -> Vec<Region> {
        self.compose_by(collective, from, into, over, &mut |inner| {
            algorithm::NamedAlgorithm::read(collective, algorithm)?.write(inner);
            Ok(())
        })
    }

    /// Like [`Builder::compose`]; `write` writes the steps of one group with a builder of its own.
    pub fn compose_by(
        &mut self,
        collective: &'static Collective,
        from: &[Region],
        into: Option<&[Region]>,
        over: &Groups,
        write: &mut dyn FnMut(&mut Builder) -> Result<()>,
    ) -> Vec<Region> {
        let mut results = from.to_vec();
        if let Err(message) = self.check_groups(collective, from, into, over) {
            self.fail(message);
        }
        if self.check_but_size().is_err() {
            return self.outputs();
        }
        let (channel, layer) = (self.channels, self.scratch_layers);
        for group in over {
            if let Err(error) = self.compose_group(collective, from, into, group, write, (channel, layer), &mut results)
            {
                self.fail_with(error);
                break;
            }
        }
        results
    }

    /// Checks that there is a region for every rank, and that groups are disjoint lists of ranks.
    fn check_groups(
        &self,
        collective: &'static Collective,
        from: &[Region],
        into: Option<&[Region]>,
        over: &Groups,
    ) -> std::result::Result<(), String> {
        let (name, n) = (collective.name, self.world_size() as usize);
        if !COMPOSED.contains(&collective) {
            let known = COMPOSED.map(|c| c.name).join(", ");
            return Err(format!("{name} over groups is not possible: choose from {known}"));
        }
        if let Some(found) = [Some(from), into].into_iter().flatten().map(<[Region]>::len).find(|&found| found != n) {
            return Err(format!("{name} over groups got {found} regions: pass one for each of the {n} ranks"));
        }
        let mut is_member = vec![false; n];
        for group in over {
            if group.is_empty() {
                return Err(format!("a group of {name} has no rank: leave it out"));
            }
            for &rank in group {
                match is_member.get_mut(rank as usize) {
                    None => return Err(format!("rank {rank} in a group of {name} is not in 0..{n}")),
                    Some(true) => return Err(format!("rank {rank} is in the groups of {name} twice: name it once")),
                    Some(is_new) => *is_new = true,
                }
            }
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments)]
    fn compose_group(
        &mut self,
        collective: &'static Collective,
        from: &[Region],
        into: Option<&[Region]>,
        group: &[u32],
        write: &mut dyn FnMut(&mut Builder) -> Result<()>,
        (channel, layer): (u32, u16),
        results: &mut [Region],
    ) -> Result<()> {
        let size = group.len() as u32;
        let roles = Roles::of(size);
        let member = |i: u32| group[i as usize];
        let whole = whole_of_group(collective, from, group)?;
        let target = |rank: u32| into.map_or(Buffer::Output, |regions| regions[rank as usize].buffer);
        let source = |rank: u32| from[rank as usize].buffer;
        let is_same = |rank: u32| {
            let (a, b) = (source(rank), target(rank));
            a == b || (self.is_in_place() && a.is_user() && b.is_user())
        };
        let aliasing = if group.iter().all(|&r| is_same(r)) { Aliasing::InPlace } else { Aliasing::Disjoint };

        let mut inner = Builder::new(collective, roles, aliasing)?;
        (inner.size, inner.only_counts) = (self.size, self.only_counts);
        inner.set_interrupt(&self.interrupt);
        write(&mut inner)?;
        inner.check_but_size()?;
        if channel + inner.channels > MAX_CHANNELS || layer.checked_add(inner.scratch_layers).is_none() {
            let message = format!("{} is composed too often: channels or layers of scratch run out", collective.name);
            return Err(Error::Build(message));
        }
        if size == 1 && inner.size == self.size {
            inner.copy_through();
        }

        let translate = |region: &Region| {
            let rank = member(region.rank);
            let buffer = match region.buffer {
                Buffer::Input => source(rank),
                Buffer::Output => target(rank),
                Buffer::Scratch(k) => Buffer::Scratch(layer + k),
                Buffer::Staging(_) => unreachable!("the builder admits no staging"),
            };
            whole.part(region.lo, region.hi, region.of).at(rank, buffer)
        };
        let lines: Vec<Line> = inner
            .lines
            .iter()
            .map(|line| Line {
                rank: member(line.rank),
                src: line.src.iter().map(translate).collect(),
                dst: line.dst.iter().map(translate).collect(),
                channel: channel + line.channel,
                at_switch: line.at_switch,
            })
            .collect();
        for (i, &rank) in group.iter().enumerate() {
            let share = whole.held(collective.output(roles, i as u32), collective.parts(roles));
            if into.is_some_and(|regions| Share::of(&regions[rank as usize]) != share) {
                let message = format!("`into` of rank {rank} is not what {} leaves there", collective.name);
                return Err(Error::Build(message));
            }
            results[rank as usize] = share.at(rank, target(rank));
        }
        if inner.size.fits() && !self.only_counts {
            lines.into_iter().for_each(|line| self.replay(line));
        } else {
            (self.lines, self.size) = (Vec::new(), inner.size);
        }
        self.channels = self.channels.max(channel + inner.channels);
        self.scratch_layers = self.scratch_layers.max(layer + inner.scratch_layers);
        Ok(())
    }
}

/// The data that a group's collective is about: what each member holds, or together for all_gather.
fn whole_of_group(collective: &'static Collective, from: &[Region], group: &[u32]) -> Result<Share> {
    let shares: Vec<Share> = group.iter().map(|&r| Share::of(&from[r as usize])).collect();
    let (size, first) = (group.len() as u64, shares[0]);
    let roles = Roles::of(group.len() as u32);
    let whole = if collective.input == Holding::All {
        first
    } else {
        let width = first.hi - first.lo;
        Share { lo: first.lo, hi: first.lo + width * size, of: first.of }.reduced()
    };
    for (i, &share) in shares.iter().enumerate() {
        if whole.held(collective.input(roles, i as u32), collective.parts(roles)) != share {
            let message =
                format!("rank {} brings other chunks than {} over its group needs", group[i], collective.name);
            return Err(Error::Build(message));
        }
    }
    Ok(whole)
}
