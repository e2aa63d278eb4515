//! The builder: the interface for authors of algorithms.
//!
//! An author writes the steps of all ranks in **one sequential program**, whose order defines the result. The core derives
//! dependencies, queues, lags, slots and signals from the regions of the steps (`depend`).
//!
//! ```
//! use nvcoll_core::{builder::Builder, collective::{Roles, ALL_REDUCE}, schedule::Aliasing};
//!
//! let mut b = Builder::new(&ALL_REDUCE, Roles::of(4), Aliasing::Disjoint)?;
//! for c in b.chunks(4) {
//!     let all: Vec<_> = (0..4).map(|r| b.input(r, c)).collect();
//!     let everywhere: Vec<_> = (0..4).map(|i| b.output((c + i) % 4, c)).collect();
//!     b.fold(&all, &everywhere);                          // executed by rank c, the first destination's
//! }
//! let schedule = b.finish("mine")?;
//! assert_eq!(schedule.steps.len(), 4);
//! # Ok::<(), nvcoll_core::Error>(())
//! ```
//!
//! A **region** is a fraction of the data in one buffer of one rank. An algorithm may divide the data differently at different
//! times, as composition does. [`Builder::finish`] divides every part into the number of chunks that all regions need, and turns
//! regions into views. The rank of the first destination executes a step, except that the rank of the source executes
//! [`Builder::push`].
//!
//! The builder keeps the first error and returns it from [`Builder::finish`], so that algorithms need no error handling. The Python
//! builder raises it at the offending line. Messages about a step begin with its number in the program, from 0.

use crate::collective::{Collective, Folds, Parts, Roles};
use crate::depend::{derive, Draft};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::limits::{most_chunks, MAX_CHUNKS_PER_PART, MAX_WORLD_SIZE};
use crate::schedule::{Aliasing, Buffer, Schedule, View};
use crate::size::Size;
use crate::words::counted;

/// The largest number of channels of a schedule. Chosen: with three queues per channel, the text form can name every queue.
pub(crate) const MAX_CHANNELS: u32 = 1024;

/// A region: the fraction `lo/of .. hi/of` of the data in one buffer of one rank.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Region {
    /// The rank that owns the buffer.
    pub rank: u32,
    /// The buffer.
    pub buffer: Buffer,
    pub(crate) lo: u64,
    pub(crate) hi: u64,
    pub(crate) of: u64,
}

/// One chunk or a range of chunks.
#[derive(Debug, Clone, Copy)]
pub struct Chunks {
    lo: u64,
    hi: u64,
}

impl From<u32> for Chunks {
    fn from(chunk: u32) -> Self {
        Self { lo: chunk.into(), hi: u64::from(chunk) + 1 }
    }
}

impl From<std::ops::Range<u32>> for Chunks {
    fn from(chunks: std::ops::Range<u32>) -> Self {
        Self { lo: chunks.start.into(), hi: chunks.end.into() }
    }
}

/// Records the sequential program of all ranks.
#[derive(Debug, Clone)]
pub struct Builder {
    collective: &'static Collective,
    roles: Roles,
    aliasing: Aliasing,
    parts: u32,
    chunks_per_part: u32,
    channel: u32,
    pub(crate) channels: u32,
    pub(crate) scratch_layers: u16,
    /// The steps; empty once there are too many.
    pub(crate) lines: Vec<Draft<Region>>,
    /// The size of the program, counted even if there are too many steps.
    pub(crate) size: Size,
    /// Whether steps are only counted and not kept.
    pub(crate) only_counts: bool,
    pub(crate) interrupt: Interrupt,
    error: Option<Error>,
}

impl Builder {
    /// Starts an empty program.
    ///
    /// # Errors
    /// [`Error::WorldSize`] outside 1..=[`MAX_WORLD_SIZE`]. [`Error::Build`] if the root is no rank, or the collective has no such
    /// aliasing.
    pub fn new(collective: &'static Collective, roles: Roles, aliasing: Aliasing) -> Result<Self> {
        let (Roles { world_size, root }, name) = (roles, collective.name);
        if !(1..=MAX_WORLD_SIZE).contains(&world_size) {
            return Err(Error::WorldSize { found: world_size, most: MAX_WORLD_SIZE });
        }
        if !collective.roots(world_size).contains(&root) {
            let there_is =
                if collective.has_root { format!("has {}", counted(world_size, "rank")) } else { "has no root".into() };
            return Err(Error::Build(format!("root is {root}, and {name} {there_is}: choose another")));
        }
        if !collective.aliasings().contains(&aliasing) {
            return Err(Error::Build(format!("{name} has no {} form: pass an output", aliasing.words())));
        }
        Ok(Self {
            collective,
            roles,
            aliasing,
            parts: collective.parts(roles),
            chunks_per_part: 1,
            channel: 0,
            channels: 1,
            scratch_layers: 0,
            lines: Vec::new(),
            size: Size::default(),
            only_counts: false,
            interrupt: Interrupt::never(),
            error: None,
        })
    }

    /// Lets a caller stop the work of this builder. Recorded steps and [`Builder::finish`] then fail.
    pub fn set_interrupt(&mut self, interrupt: &Interrupt) {
        self.interrupt = interrupt.clone();
    }

    /// Returns the number of ranks.
    pub fn world_size(&self) -> u32 {
        self.roles.world_size
    }

    /// Returns the rank that holds or receives all data; 0 if the collective has no root.
    pub fn root(&self) -> u32 {
        self.roles.root
    }

    /// Returns the contract that the program must fulfil.
    pub fn collective(&self) -> &'static Collective {
        self.collective
    }

    /// Says whether input and output are the same memory.
    pub fn is_in_place(&self) -> bool {
        self.aliasing == Aliasing::InPlace
    }

    /// Divides every part into `per_part` chunks, and returns the indices of all chunks, part by part.
    pub fn chunks(&mut self, per_part: u32) -> std::ops::Range<u32> {
        let most = self.most_chunks() / u64::from(self.parts.max(1));
        if !(1..=most).contains(&u64::from(per_part)) {
            self.fail(format!("a part is cut into {per_part} chunks: from 1 to {most} are possible"));
        } else {
            self.chunks_per_part = per_part;
        }
        0..self.parts * self.chunks_per_part
    }

    /// Assigns the following steps to `channel`, an independent slice of the collective with its own queues.
    pub fn channel(&mut self, channel: u32) {
        if channel >= MAX_CHANNELS {
            return self.fail(format!("channel {channel} is above the last, {}: number them from 0", MAX_CHANNELS - 1));
        }
        self.channel = channel;
        self.channels = self.channels.max(channel + 1);
    }

    /// Returns a chunk or a range of chunks of a rank's input.
    pub fn input(&self, rank: u32, chunks: impl Into<Chunks>) -> Region {
        self.region(rank, Buffer::Input, chunks.into())
    }

    /// Returns a chunk or a range of chunks of a rank's output.
    pub fn output(&self, rank: u32, chunks: impl Into<Chunks>) -> Region {
        self.region(rank, Buffer::Output, chunks.into())
    }

    /// Returns a chunk or a range of chunks of a rank's scratch. Scratch holds intermediate values, in layers as long as the data.
    pub fn scratch(&mut self, rank: u32, layer: u16, chunks: impl Into<Chunks>) -> Region {
        match layer.checked_add(1) {
            Some(layers) => self.scratch_layers = self.scratch_layers.max(layers),
            None => self.fail(format!("scratch layer {layer} is above the last, {}: number them from 0", layer - 1)),
        }
        self.region(rank, Buffer::Scratch(layer), chunks.into())
    }

    /// Returns the whole input of every rank.
    pub fn inputs(&self) -> Vec<Region> {
        (0..self.world_size()).map(|r| self.whole(r, Buffer::Input)).collect()
    }

    /// Returns the whole output of every rank.
    pub fn outputs(&self) -> Vec<Region> {
        (0..self.world_size()).map(|r| self.whole(r, Buffer::Output)).collect()
    }

    /// Folds regions, in the listed order, into every region of `dst`; returns the first region of `dst`.
    pub fn fold(&mut self, src: &[Region], dst: &[Region]) -> Region {
        self.record(executor(dst), src, dst, false)
    }

    /// Copies a region into every region of `dst`; returns the first region of `dst`.
    pub fn copy(&mut self, src: &Region, dst: &[Region]) -> Region {
        self.record(executor(dst), std::slice::from_ref(src), dst, false)
    }

    /// Copies a region into every region of `dst`; the rank of the source executes the copy. Returns the first region of `dst`.
    pub fn push(&mut self, src: &Region, dst: &[Region]) -> Region {
        self.record(src.rank, std::slice::from_ref(src), dst, false)
    }

    /// Folds or copies regions, as [`Builder::fold`] and [`Builder::copy`] do; a switch executes the step on a fabric with such
    /// switches.
    pub fn at_switch(&mut self, src: &[Region], dst: &[Region]) -> Region {
        self.record(executor(dst), src, dst, true)
    }

    /// Returns the number of steps so far; 0 once there are too many.
    pub fn steps(&self) -> usize {
        self.lines.len()
    }

    /// Returns the first error so far.
    ///
    /// # Errors
    /// [`Error::Build`] names the broken rule. [`Error::TooLarge`] if there are too many steps already; [`Builder::finish`] tells the
    /// total number of steps.
    pub fn check(&self) -> Result<()> {
        self.check_but_size()?;
        self.size.check(|| format!("{} of {}, so far,", self.collective.name, counted(self.world_size(), "rank")))
    }

    /// Returns the first error other than a size that is too large.
    pub(crate) fn check_but_size(&self) -> Result<()> {
        self.error.clone().map_or(Ok(()), Err)
    }

    /// Numbers the chunks, derives queues and dependencies, and returns the mapped schedule.
    ///
    /// # Errors
    /// The first error of the program, or [`Error::TooLarge`] if it has too many steps.
    pub fn finish(mut self, algorithm: &str) -> Result<Schedule> {
        self.check_but_size()?;
        self.check_size(algorithm)?;
        if self.world_size() == 1 && self.lines.is_empty() {
            self.copy_through();
        }
        let per_part = self.finest()?;
        let total = per_part * u64::from(self.parts);
        let number = |region: &Region| View {
            rank: region.rank,
            buffer: region.buffer,
            chunks: (region.lo * (total / region.of)) as u32..(region.hi * (total / region.of)) as u32,
        };
        let drafts = self.lines.iter().map(|line| line.map(number));
        let algorithm = algorithm.to_owned();
        let schedule = Schedule::empty(self.collective, algorithm, self.roles, per_part as u32, self.aliasing);
        derive(schedule, drafts.collect(), &self.interrupt)
    }

    /// Checks the size of a complete program.
    pub(crate) fn check_size(&self, algorithm: &str) -> Result<()> {
        let ranks = counted(self.world_size(), "rank");
        self.size.check(|| format!("{} {algorithm} of {ranks}", self.collective.name))
    }

    /// Writes the copy that every collective is on one rank, where the loops of most algorithms write no step.
    pub(crate) fn copy_through(&mut self) {
        self.chunks_per_part = 1;
        for part in self.held(0, Buffer::Output).iter() {
            self.copy(&self.input(0, part), &[self.output(0, part)]);
        }
    }

    pub(crate) fn fail(&mut self, message: String) {
        self.error.get_or_insert(Error::Build(message));
    }

    /// Keeps the error of a group; every error but an interruption becomes [`Error::Build`].
    pub(crate) fn fail_with(&mut self, error: Error) {
        match error {
            Error::Interrupted => self.error = Some(error),
            broken => self.fail(broken.to_string()),
        }
    }

    /// Returns the least number of chunks per part for which every region consists of whole chunks.
    fn finest(&self) -> Result<u64> {
        let most = self.most_chunks();
        let mut total = u64::from(self.parts.max(1));
        for (nth, line) in self.lines.iter().enumerate() {
            for region in line.src.iter().chain(&line.dst) {
                let finer = (total / gcd(total, region.of)).checked_mul(region.of).filter(|&total| total <= most);
                total = finer.ok_or_else(|| {
                    let limit = format!("more than {MAX_CHUNKS_PER_PART} chunks per part");
                    let message = format!("{region} and the regions before it need {limit}: cut alike");
                    Error::Step { step: nth, message }
                })?;
            }
        }
        Ok(total / u64::from(self.parts.max(1)))
    }

    /// Returns the largest number of chunks of all parts together.
    fn most_chunks(&self) -> u64 {
        most_chunks(self.parts)
    }

    /// Returns the parts that a user buffer of a rank holds.
    fn held(&self, rank: u32, buffer: Buffer) -> Parts {
        match buffer {
            Buffer::Output => self.collective.output(self.roles, rank),
            _ => self.collective.input(self.roles, rank),
        }
    }

    fn region(&self, rank: u32, buffer: Buffer, Chunks { lo, hi }: Chunks) -> Region {
        Region { rank, buffer, lo, hi, of: u64::from(self.parts) * u64::from(self.chunks_per_part) }
    }

    fn whole(&self, rank: u32, buffer: Buffer) -> Region {
        // Where it holds nothing, or no run of neighbours, the whole is more than there is, and no step admits it.
        let range = self.held(rank, buffer).range().filter(|held| !held.is_empty()).unwrap_or(0..self.parts);
        Region { rank, buffer, lo: range.start.into(), hi: range.end.into(), of: self.parts.into() }
    }

    fn record(&mut self, rank: u32, src: &[Region], dst: &[Region], at_switch: bool) -> Region {
        if self.error == Some(Error::Interrupted) {
            // The author's loops go on to their end and write nothing.
        } else if let Err(interrupted) = self.interrupt.check(1 + src.len() + dst.len()) {
            (self.lines, self.error) = (Vec::new(), Some(interrupted.into()));
        } else if self.only_counts || !self.size.fits() {
            self.count(src, dst);
        } else if self.admits(src, dst) {
            self.keep(Draft { rank, src: src.to_vec(), dst: dst.to_vec(), channel: self.channel, at_switch });
        }
        dst.first().or(src.first()).cloned().unwrap_or_else(|| self.whole(0, Buffer::Output))
    }

    pub(crate) fn replay(&mut self, line: Draft<Region>) {
        if self.error.is_none() && self.size.fits() && self.admits(&line.src, &line.dst) {
            self.keep(line);
        }
    }

    /// Adds a step; if there are too many, drops all steps and keeps no more.
    fn keep(&mut self, line: Draft<Region>) {
        self.count(&line.src, &line.dst);
        if self.size.fits() {
            self.lines.push(line);
        } else {
            self.lines = Vec::new();
        }
    }

    fn count(&mut self, src: &[Region], dst: &[Region]) {
        if !self.moves_nothing(src, dst) {
            self.size.add(src.len() + dst.len());
        }
    }

    /// Says whether a step is valid and moves data; keeps the error of a step that is not valid.
    fn admits(&mut self, src: &[Region], dst: &[Region]) -> bool {
        match self.admit(src, dst) {
            Ok(()) => !self.moves_nothing(src, dst),
            Err(message) => {
                self.error.get_or_insert(Error::Step { step: self.lines.len(), message });
                false
            }
        }
    }

    fn admit(&self, src: &[Region], dst: &[Region]) -> std::result::Result<(), String> {
        let (Some(_), Some(first)) = (src.first(), dst.first()) else {
            return Err("a step needs a source and a destination: pass at least one of each".into());
        };
        for region in src.iter().chain(dst) {
            self.admit_region(region)?;
            if region.reduced() != first.reduced() {
                return Err(format!("{region} and {first} are not the same chunks: a step folds like chunks"));
            }
        }
        for (views, role) in [(src, "source"), (dst, "destination")] {
            let mut seen: Vec<_> = views.iter().map(|v| (v.rank, v.buffer.memory(self.aliasing))).collect();
            seen.sort_unstable();
            if let Some(twice) = seen.windows(2).find(|pair| pair[0] == pair[1]) {
                return Err(format!("rank {} is the same {role} twice in one step: name it once", twice[0].0));
            }
        }
        if let Some(input) = dst.iter().find(|d| d.buffer == Buffer::Input && !self.is_in_place()) {
            return Err(format!("{input} is a destination: write to the output or to scratch"));
        }
        Ok(())
    }

    /// Says whether a step copies memory onto itself, as loops of algorithms do in place. On one rank such a copy stays, because
    /// it is the whole fold, and `premul_sum` scales in it.
    fn moves_nothing(&self, src: &[Region], dst: &[Region]) -> bool {
        let ([src], [dst]) = (src, dst) else { return false };
        let is_same = src.rank == dst.rank && src.buffer.memory(self.aliasing) == dst.buffer.memory(self.aliasing);
        let is_a_fold = self.world_size() == 1 && self.collective.folds == Folds::Everyone;
        is_same && (src.buffer == dst.buffer || !is_a_fold)
    }

    /// Checks that a region lies inside the data and that its buffer holds it.
    ///
    /// # Errors
    /// The message of the error.
    pub fn admit_region(&self, region: &Region) -> std::result::Result<(), String> {
        if region.rank >= self.world_size() {
            return Err(format!("rank {} is not one of 0 to {}", region.rank, self.world_size() - 1));
        }
        if region.lo >= region.hi {
            return Err(format!("{region} names no chunk: a range ends above its start"));
        }
        if region.of == 0 {
            return Err(format!("{} has no data: leave its steps out", self.collective.name));
        }
        if region.hi > region.of {
            return Err(format!("{region} is outside the data: chunks are 0..{}", region.of));
        }
        let held = match region.buffer {
            Buffer::Input | Buffer::Output => self.held(region.rank, region.buffer),
            Buffer::Scratch(_) => return Ok(()),
            Buffer::Staging(_) => return Err("staging is the lowering's: write to scratch".into()),
        };
        let per_part = region.of / u64::from(self.parts);
        let parts = region.lo / per_part..region.hi.div_ceil(per_part);
        let is_all = held.len() == self.parts;
        match parts.clone().find(|p| !is_all && !held.contains(*p as u32)) {
            Some(part) => Err(format!("{region} is not there: {}", self.what_is_held(region, part as u32))),
            None => Ok(()),
        }
    }

    /// Describes the parts that a buffer holds, for the message about a part that it does not hold.
    fn what_is_held(&self, region: &Region, part: u32) -> String {
        let (name, rank, root) = (self.collective.name, region.rank, self.root());
        let what = if region.buffer == Buffer::Output { "output" } else { "input" };
        let held = self.held(rank, region.buffer);
        if !held.is_empty() {
            let parts: Vec<String> = held.iter().take(3).map(|part| part.to_string()).collect();
            let more = if held.len() > 3 { ", ..." } else { "" };
            let number = if held.len() == 1 { "part" } else { "parts" };
            let parts = parts.join(", ");
            return format!(
                "part {part} is not in it, the {what} of rank {rank} in {name} holds {number} {parts}{more}"
            );
        }
        let is_of_root = self.collective.has_root && !self.held(root, region.buffer).is_empty();
        match is_of_root {
            true => format!("in {name} only the root, rank {root}, has an {what}"),
            false => format!("in {name} rank {rank} has no {what}"),
        }
    }
}

/// Returns the rank that executes a step: the rank of its first destination.
fn executor(dst: &[Region]) -> u32 {
    dst.first().map_or(0, |region| region.rank)
}

impl Region {
    /// Returns the fraction in lowest terms.
    pub(crate) fn reduced(&self) -> (u64, u64, u64) {
        let divisor = gcd(gcd(self.lo, self.hi), self.of);
        (self.lo / divisor, self.hi / divisor, self.of / divisor)
    }
}

impl std::fmt::Display for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}[r{}].{}", self.buffer, self.rank, self.lo)?;
        if self.hi != self.lo + 1 {
            write!(f, "..{}", self.hi)?;
        }
        write!(f, " of {}", self.of)
    }
}

pub(crate) fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 {
        a.max(1)
    } else {
        gcd(b, a % b)
    }
}
