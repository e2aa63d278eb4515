//! Composition: a collective over groups of ranks as one line of an algorithm.
//!
//! ```text
//! inner, outer = groups(per_node), strided_groups(per_node)
//! shard = reduce_scatter(inputs,  over inner)          rank i of a node holds shard i of the node's sum
//! total = all_reduce(shard,       over outer)          the ranks with the same shard agree across nodes
//!         all_gather(total, into outputs, over inner)
//! ```
//!
//! The inner algorithm writes to a builder of its own, whose world is the group. Each line is then translated:
//!
//! | in the group's program | in the whole program |
//! |---|---|
//! | rank i | member i of the group |
//! | data | the region that was passed |
//! | scratch and channels | fresh scratch and fresh channels, so that phases overlap |
//!
//! If the members' inputs and outputs are the same memory, the inner algorithm is built for in-place use. Source: ours.

use crate::algorithm;
use crate::builder::{Builder, Region, MAX_CHANNELS};
use crate::collective::{Collective, Holding, Parts, Roles, ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER};
use crate::depend::Draft;
use crate::error::{Error, Result};
use crate::schedule::{Aliasing, Buffer};
use crate::words::counted;

/// The collectives that can run over groups.
const COMPOSED: [&Collective; 3] = [&ALL_REDUCE, &REDUCE_SCATTER, &ALL_GATHER];

/// Disjoint lists of ranks that cover the world.
pub type Groups = Vec<Vec<u32>>;

/// A contiguous share of the data, as a fraction `lo/of .. hi/of`.
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

    /// Returns the fraction `lo/of .. hi/of` of this share.
    fn part(self, lo: u64, hi: u64, of: u64) -> Self {
        let width = self.hi - self.lo;
        Self { lo: self.lo * of + width * lo, hi: self.lo * of + width * hi, of: self.of * of }.reduced()
    }

    /// Returns the share of a buffer that holds the parts `held`, if this share is divided into `parts` parts.
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
    /// Returns groups of `per_group` consecutive ranks.
    pub fn groups(&mut self, per_group: u32) -> Groups {
        let n = self.world_size();
        if per_group == 0 || !n.is_multiple_of(per_group) {
            self.fail(format!("groups of {per_group} do not divide {}: choose a divisor", counted(n, "rank")));
            return (0..n).map(|r| vec![r]).collect();
        }
        (0..n / per_group).map(|g| (g * per_group..(g + 1) * per_group).collect()).collect()
    }

    /// Returns groups of ranks that are `stride` apart.
    pub fn strided_groups(&mut self, stride: u32) -> Groups {
        let n = self.world_size();
        if stride == 0 || !n.is_multiple_of(stride) {
            self.fail(format!("a stride of {stride} does not divide {}: choose a divisor", counted(n, "rank")));
            return (0..n).map(|r| vec![r]).collect();
        }
        (0..stride).map(|first| (first..n).step_by(stride as usize).collect()).collect()
    }

    /// Reduces each group's regions and leaves the i-th share on member i; returns the shares by rank.
    pub fn reduce_scatter(&mut self, from: &[Region], over: &Groups, algorithm: &str) -> Vec<Region> {
        self.compose(&REDUCE_SCATTER, from, None, over, algorithm)
    }

    /// Reduces each group's regions and leaves the whole result on every member; returns the results by rank.
    pub fn all_reduce(&mut self, from: &[Region], over: &Groups, algorithm: &str) -> Vec<Region> {
        self.compose(&ALL_REDUCE, from, None, over, algorithm)
    }

    /// Collects each group's shares in `into` on every member; returns the results by rank.
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

    /// Runs a collective over groups, as [`Builder::compose`] does; `write` writes the steps of one group.
    pub fn compose_by(
        &mut self,
        collective: &'static Collective,
        from: &[Region],
        into: Option<&[Region]>,
        over: &Groups,
        write: &mut dyn FnMut(&mut Builder) -> Result<()>,
    ) -> Vec<Region> {
        let (channel, layer) = (self.channels, self.scratch_layers);
        let composition = Composition { collective, from, into, is_in_place: self.is_in_place(), channel, layer };
        if let Err(message) = composition.check_groups(self.world_size(), over) {
            self.fail(message);
        }
        if self.check_but_size().is_err() {
            return self.outputs();
        }
        let mut results = from.to_vec();
        for group in over {
            if let Err(error) = self.compose_group(&composition, group, write, &mut results) {
                self.fail_with(error);
                break;
            }
        }
        results
    }

    /// Appends the steps of one group, and writes the regions of its results into `results`.
    fn compose_group(
        &mut self,
        composition: &Composition<'_>,
        group: &[u32],
        write: &mut dyn FnMut(&mut Builder) -> Result<()>,
        results: &mut [Region],
    ) -> Result<()> {
        let whole = composition.whole_of(group)?;
        let inner = self.inner_program(composition, group, write)?;
        for (member, &rank) in group.iter().enumerate() {
            results[rank as usize] = composition.result(group, member, whole)?;
        }
        if inner.size.fits() && !self.only_counts {
            inner.lines.iter().for_each(|line| self.replay(composition.translated(line, group, whole)));
        } else {
            (self.lines, self.size) = (Vec::new(), inner.size);
        }
        self.channels = self.channels.max(composition.channel + inner.channels);
        self.scratch_layers = self.scratch_layers.max(composition.layer + inner.scratch_layers);
        Ok(())
    }

    /// Returns the program of one group in terms of its members; its size counts on from the size of this program.
    fn inner_program(
        &self,
        composition: &Composition<'_>,
        group: &[u32],
        write: &mut dyn FnMut(&mut Builder) -> Result<()>,
    ) -> Result<Builder> {
        let roles = Roles::of(group.len() as u32);
        let mut inner = Builder::new(composition.collective, roles, composition.aliasing(group))?;
        (inner.size, inner.only_counts) = (self.size, self.only_counts);
        inner.set_interrupt(&self.interrupt);
        write(&mut inner)?;
        inner.check_but_size()?;
        let has_channels = composition.channel + inner.channels <= MAX_CHANNELS;
        if !has_channels || composition.layer.checked_add(inner.scratch_layers).is_none() {
            let name = composition.collective.name;
            let message = format!("{name} is composed too often: channels or layers of scratch run out");
            return Err(Error::Build(message));
        }
        if group.len() == 1 && inner.size == self.size {
            inner.copy_through();
        }
        Ok(inner)
    }
}

/// A collective over groups, in terms of the program that contains it.
struct Composition<'r> {
    collective: &'static Collective,
    /// The region of each rank that the collective reads.
    from: &'r [Region],
    /// The region of each rank that the collective writes; the output of the rank if it is not given.
    into: Option<&'r [Region]>,
    /// Whether the input and the output of the whole program are the same memory.
    is_in_place: bool,
    /// The first channel of the groups' programs.
    channel: u32,
    /// The first layer of scratch of the groups' programs.
    layer: u16,
}

impl Composition<'_> {
    /// Checks that there is a region for every rank, and that groups are disjoint lists of ranks.
    fn check_groups(&self, world_size: u32, over: &Groups) -> std::result::Result<(), String> {
        let (name, n) = (self.collective.name, world_size as usize);
        if !COMPOSED.contains(&self.collective) {
            let known = COMPOSED.map(|c| c.name).join(", ");
            return Err(format!("{name} over groups is not possible: choose from {known}"));
        }
        let mut lengths = [Some(self.from), self.into].into_iter().flatten().map(<[Region]>::len);
        if let Some(found) = lengths.find(|&found| found != n) {
            return Err(format!("{name} over groups got {found} regions: pass one for each of the {n} ranks"));
        }
        let mut is_member = vec![false; n];
        if over.iter().any(Vec::is_empty) {
            return Err(format!("a group of {name} has no rank: leave it out"));
        }
        for &rank in over.iter().flatten() {
            match is_member.get_mut(rank as usize) {
                None => return Err(format!("rank {rank} in a group of {name} is not one of 0 to {}", n - 1)),
                Some(true) => return Err(format!("rank {rank} is in the groups of {name} twice: name it once")),
                Some(is_new) => *is_new = true,
            }
        }
        Ok(())
    }

    /// Returns the buffer of a rank that the collective reads.
    fn source(&self, rank: u32) -> Buffer {
        self.from[rank as usize].buffer
    }

    /// Returns the buffer of a rank that the collective writes.
    fn target(&self, rank: u32) -> Buffer {
        self.into.map_or(Buffer::Output, |regions| regions[rank as usize].buffer)
    }

    /// Returns in place if every member of a group reads and writes the same memory.
    fn aliasing(&self, group: &[u32]) -> Aliasing {
        let is_same = |&rank: &u32| {
            let (source, target) = (self.source(rank), self.target(rank));
            source == target || (self.is_in_place && source.is_user() && target.is_user())
        };
        if group.iter().all(is_same) {
            Aliasing::InPlace
        } else {
            Aliasing::Disjoint
        }
    }

    /// Returns the data of a group's collective: the region of every member, or all regions together for all_gather.
    fn whole_of(&self, group: &[u32]) -> Result<Share> {
        let shares: Vec<Share> = group.iter().map(|&rank| Share::of(&self.from[rank as usize])).collect();
        let (size, first) = (group.len() as u64, shares[0]);
        let (collective, roles) = (self.collective, Roles::of(group.len() as u32));
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

    /// Returns the region in which a member of a group finds its result.
    fn result(&self, group: &[u32], member: usize, whole: Share) -> Result<Region> {
        let (collective, roles, rank) = (self.collective, Roles::of(group.len() as u32), group[member]);
        let share = whole.held(collective.output(roles, member as u32), collective.parts(roles));
        if self.into.is_some_and(|regions| Share::of(&regions[rank as usize]) != share) {
            let message = format!("`into` of rank {rank} names other chunks than {} writes there", collective.name);
            return Err(Error::Build(message));
        }
        Ok(share.at(rank, self.target(rank)))
    }

    /// Translates a line of a group's program into a line of the program that contains it.
    fn translated(&self, line: &Draft<Region>, group: &[u32], whole: Share) -> Draft<Region> {
        let region = |region: &Region| {
            let rank = group[region.rank as usize];
            let buffer = match region.buffer {
                Buffer::Input => self.source(rank),
                Buffer::Output => self.target(rank),
                Buffer::Scratch(layer) => Buffer::Scratch(self.layer + layer),
                Buffer::Staging(_) => unreachable!("the builder admits no staging"),
            };
            whole.part(region.lo, region.hi, region.of).at(rank, buffer)
        };
        Draft { rank: group[line.rank as usize], channel: self.channel + line.channel, ..line.map(region) }
    }
}
