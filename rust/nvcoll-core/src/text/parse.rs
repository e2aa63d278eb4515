//! The parser: one function per noun of the grammar of [`super`], then a check that every named step exists.
//!
//! Ranks and chunks are checked while they are read; places and waits are checked when all steps are known. Every input gives a
//! schedule or an error with a line number; none panics. A short text that would need much memory is refused.

use std::collections::{BTreeMap, HashMap};

use super::scan::{shortened, Scanner};
use crate::collective::{Collective, Roles, COLLECTIVES};
use crate::error::{Error, Result};
use crate::limits::{most_chunks, MAX_WORLD_SIZE};
use crate::schedule::{Aliasing, Buffer, Dependency, Event, Path, Schedule, Source, Step, View};

/// The largest number of a queue. Chosen: far more than any algorithm has, while a table of queues for every rank fits in memory.
const LAST_QUEUE: u32 = 4095;

/// Parses the text form of a schedule.
///
/// # Errors
/// [`Error::Text`] names the line, what was found and what was expected.
pub fn parse(text: &str) -> Result<Schedule> {
    let scanners = text.lines().enumerate().map(|(i, line)| (i + 1, Scanner::new(line, i + 1)));
    let mut lines = scanners.filter_map(|(number, mut scan)| (!scan.is_done()).then_some((number, scan)));
    let Some((_, first)) = lines.next() else {
        return Err(Error::Text { line: 1, message: "the text is empty, expected a line `schedule …`".into() });
    };
    let mut reader =
        ScheduleParser { schedule: header(first)?, lines: Vec::new(), left: BTreeMap::new(), entered: BTreeMap::new() };
    for (number, scan) in lines {
        reader.line(scan, number)?;
    }
    reader.finish()
}

impl std::str::FromStr for Schedule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        parse(text)
    }
}

fn header(mut scan: Scanner<'_>) -> Result<Schedule> {
    keyword(&mut scan, "schedule")?;
    let collective = named(&mut scan, "collective", COLLECTIVES, |c| c.name)?;
    let algorithm = match scan.word() {
        "" => return Err(scan.found("the name of an algorithm")),
        name => name.to_owned(),
    };
    let world_size = setting(&mut scan, "world_size")?;
    let root = if collective.has_root { setting(&mut scan, "root")? } else { 0 };
    let chunks_per_part = setting(&mut scan, "chunks_per_part")?;
    let roles = Roles { world_size, root };
    check_sizes(&scan, collective, roles, chunks_per_part)?;
    keyword(&mut scan, "path")?;
    let path = *named(&mut scan, "path", &Path::ALL, |p| p.name())?;
    scan.skip_blanks();
    let slots = if scan.is_next("slots") { setting(&mut scan, "slots")? } else { path.slots() };
    keyword(&mut scan, "aliasing")?;
    let aliasing = *named(&mut scan, "aliasing", &Aliasing::ALL, |a| a.name())?;
    if !scan.is_done() {
        return Err(scan.found("the end of the line"));
    }
    if !collective.aliasings().contains(&aliasing) {
        return Err(scan.error(format!("{} has no {} form", collective.name, aliasing.words())));
    }
    Ok(Schedule { path, slots, ..Schedule::empty(collective, algorithm, roles, chunks_per_part, aliasing) })
}

fn check_sizes(scan: &Scanner<'_>, collective: &Collective, roles: Roles, chunks_per_part: u32) -> Result<()> {
    let Roles { world_size, root } = roles;
    if !(1..=MAX_WORLD_SIZE).contains(&world_size) {
        return Err(scan.error(Error::WorldSize { found: world_size, most: MAX_WORLD_SIZE }.to_string()));
    }
    if !collective.roots(world_size).contains(&root) {
        return Err(scan.error(format!("root {root} is not in 0..{world_size}")));
    }
    if chunks_per_part == 0 {
        return Err(scan.error("chunks_per_part is 0: a part is cut into at least 1 chunk"));
    }
    let most = most_chunks(collective.parts(roles)) / u64::from(collective.parts(roles).max(1));
    if u64::from(chunks_per_part) > most {
        return Err(scan.error(format!("chunks_per_part is {chunks_per_part}: from 1 to {most} are possible here")));
    }
    Ok(())
}

fn keyword(scan: &mut Scanner<'_>, keyword: &str) -> Result<()> {
    match scan.word() {
        "" => Err(scan.found(&format!("`{keyword}`"))),
        word if word == keyword => Ok(()),
        word => Err(scan.error(format!("found `{}`, expected `{keyword}`", shortened(word)))),
    }
}

fn setting(scan: &mut Scanner<'_>, name: &str) -> Result<u32> {
    keyword(scan, name)?;
    scan.skip_blanks();
    scan.number("a number")
}

fn named<'t, T>(
    scan: &mut Scanner<'_>,
    kind: &'static str,
    table: &'t [T],
    name: impl Fn(&T) -> &str,
) -> Result<&'t T> {
    let word = scan.word();
    table.iter().find(|row| name(row) == word).ok_or_else(|| {
        let known = table.iter().map(&name).collect::<Vec<_>>().join(", ");
        scan.error(Error::Unknown { kind: kind.into(), name: shortened(word), known }.to_string())
    })
}

/// A schedule during parsing, with the line numbers of its steps and leaves.
struct ScheduleParser {
    schedule: Schedule,
    lines: Vec<usize>,
    left: BTreeMap<usize, usize>,
    /// The early queue of each rank that has one, and its line.
    entered: BTreeMap<u32, (u32, usize)>,
}

/// The line of every step, by rank, queue and index.
type Places = HashMap<(u32, u32, u32), usize>;

impl ScheduleParser {
    fn line(&mut self, mut scan: Scanner<'_>, number: usize) -> Result<()> {
        if scan.take("leave") {
            scan.pass_blank()?;
            let rank = self.rank(&mut scan)? as usize;
            scan.pass_blank()?;
            let after = if scan.is_done() { Vec::new() } else { self.waits(&mut scan)? };
            if let Some(line) = self.left.insert(rank, number) {
                return Err(scan.error(format!("rank {rank} leaves on line {line} already: write one line per rank")));
            }
            self.schedule.leave[rank] = after;
        } else if scan.take("enter") {
            self.enter(&mut scan, number)?;
        } else {
            let step = self.step(&mut scan)?;
            self.schedule.steps.push(step);
            self.lines.push(number);
        }
        Ok(())
    }

    /// Parses the line of an enter, which names the early queue of its rank.
    fn enter(&mut self, scan: &mut Scanner<'_>, number: usize) -> Result<()> {
        scan.pass_blank()?;
        let rank = self.rank(scan)?;
        scan.pass_blank()?;
        if !scan.take("after") {
            return Err(scan.found("`after` and the early queue, such as r0.q1"));
        }
        scan.pass_blank()?;
        let (owner, queue) = (self.rank(scan)?, queue_in_rank(scan)?);
        if owner != rank {
            return Err(scan.error(format!("the early queue of rank {rank} is one of its own: write r{rank}.q{queue}")));
        }
        scan.pass_blank()?;
        if !scan.is_done() {
            return Err(scan.found("the end of the line"));
        }
        if let Some((_, line)) = self.entered.insert(rank, (queue, number)) {
            return Err(scan.error(format!("rank {rank} enters on line {line} already: write one line per rank")));
        }
        self.schedule.early.resize(self.schedule.world_size as usize, None);
        self.schedule.early[rank as usize] = Some(queue);
        Ok(())
    }

    fn step(&self, scan: &mut Scanner<'_>) -> Result<Step> {
        if !scan.is_next("r") {
            return Err(scan.found("a step such as `r0.q0.0 …`, `leave r0 …` or `enter r0 …`"));
        }
        let rank = self.rank(scan)?;
        let (queue, index) = place_in_rank(scan)?;
        scan.pass_blank()?;
        let mut step = Step {
            rank,
            queue,
            index,
            src: Vec::new(),
            dst: self.list(scan, ",", Self::view)?,
            is_final: false,
            at_switch: false,
            after: Vec::new(),
        };
        scan.skip_blanks();
        scan.expect("=", "`=` and the sources")?;
        step.src = self.list(scan, "+", Self::source)?;
        scan.pass_blank()?;
        while !scan.is_done() {
            if scan.take("final") {
                step.is_final = true;
            } else if scan.take("at switch") {
                step.at_switch = true;
            } else {
                step.after = self.waits(scan)?;
            }
            scan.pass_blank()?;
        }
        Ok(step)
    }

    fn list<'a, T>(
        &self,
        scan: &mut Scanner<'a>,
        between: &str,
        item: impl Fn(&Self, &mut Scanner<'a>) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut items = Vec::new();
        loop {
            scan.skip_blanks();
            items.push(item(self, scan)?);
            if !scan.take_past_blanks(between) {
                return Ok(items);
            }
        }
    }

    fn source(&self, scan: &mut Scanner<'_>) -> Result<Source> {
        let view = self.view(scan)?;
        if !scan.take("*") {
            return Ok(Source { view, contribution: None });
        }
        let rank = scan.numbered("s", "the rank whose contribution it is, such as s0")?;
        Ok(Source { view, contribution: Some(self.within(scan, rank)?) })
    }

    fn view(&self, scan: &mut Scanner<'_>) -> Result<View> {
        const VIEW: &str = "a view such as output[r0].1, scratch0[r1].2 or staging0[r0].2..4";
        let buffer = buffer(scan, VIEW)?;
        scan.expect("[", VIEW)?;
        let rank = self.rank(scan)?;
        let start = scan.numbered("].", VIEW)?;
        let end = if scan.take("..") {
            scan.number("the chunk before which the range ends")?
        } else {
            start.saturating_add(1)
        };
        if start >= end {
            return Err(scan.error(format!("the range {start}..{end} holds no chunk: write the lower end first")));
        }
        match self.schedule.chunks() {
            chunks if end > chunks => Err(scan.error(format!("chunk {} does not exist: there are {chunks}", end - 1))),
            _ => Ok(View { rank, buffer, chunks: start..end }),
        }
    }

    fn rank(&self, scan: &mut Scanner<'_>) -> Result<u32> {
        let rank = scan.numbered("r", "a rank such as r0")?;
        self.within(scan, rank)
    }

    fn within(&self, scan: &Scanner<'_>, rank: u32) -> Result<u32> {
        let n = self.schedule.world_size;
        if rank < n {
            Ok(rank)
        } else {
            Err(scan.error(format!("rank {rank} does not exist: world_size is {n}")))
        }
    }

    /// Parses `after` and the waits, to the end of the line.
    fn waits(&self, scan: &mut Scanner<'_>) -> Result<Vec<Dependency>> {
        if !scan.take("after") {
            return Err(scan.found("`final`, `at switch`, `after` or the end of the line"));
        }
        let mut waits = Vec::new();
        scan.pass_blank()?;
        loop {
            waits.push(self.wait(scan)?);
            scan.pass_blank()?;
            if scan.is_done() {
                return Ok(waits);
            }
        }
    }

    fn wait(&self, scan: &mut Scanner<'_>) -> Result<Dependency> {
        let rank = self.rank(scan)?;
        if scan.take(".enter") {
            return Ok(Dependency { rank, event: Event::Enter, lag: 0 });
        }
        let (queue, index) = place_in_rank(scan)?;
        let lag = if scan.take("@") { scan.number("the lag, a number of tiles")? } else { 0 };
        Ok(Dependency { rank, event: Event::Step { queue, index }, lag })
    }

    fn finish(self) -> Result<Schedule> {
        let places = self.places()?;
        self.check_queues()?;
        self.check_waits(&places)?;
        for (&rank, &(queue, line)) in &self.entered {
            if !places.contains_key(&(rank, queue, 0)) {
                return Err(Error::Text {
                    line,
                    message: format!("r{rank}.q{queue} has no step: name a queue with steps"),
                });
            }
        }
        Ok(self.schedule)
    }

    fn steps(&self) -> impl Iterator<Item = (&Step, usize)> {
        self.schedule.steps.iter().zip(self.lines.iter().copied())
    }

    /// Returns the line of every place, and refuses a place that two steps have.
    fn places(&self) -> Result<Places> {
        let mut places = Places::new();
        for (step, line) in self.steps() {
            if let Some(other) = places.insert((step.rank, step.queue, step.index), line) {
                let message = format!("this place is taken on line {other}: number the steps of a queue 0, 1, 2, …");
                return Err(Error::Text { line, message });
            }
        }
        Ok(places)
    }

    /// Refuses a queue with gaps.
    fn check_queues(&self) -> Result<()> {
        let mut lengths = HashMap::new();
        for (step, _) in self.steps() {
            *lengths.entry((step.rank, step.queue)).or_insert(0) += 1;
        }
        for (step, line) in self.steps() {
            let length = lengths[&(step.rank, step.queue)];
            if step.index >= length {
                let message =
                    format!("place {} in a queue of length {length}: number its steps 0, 1, 2, …", step.index);
                return Err(Error::Text { line, message });
            }
        }
        Ok(())
    }

    /// Refuses a wait for a step that does not exist.
    fn check_waits(&self, places: &Places) -> Result<()> {
        let of_steps = self.steps().map(|(step, line)| (&step.after, line));
        let of_leaves = self.left.iter().map(|(&rank, &line)| (&self.schedule.leave[rank], line));
        for (after, line) in of_steps.chain(of_leaves) {
            let is_nowhere = |wait: &&Dependency| match wait.event {
                Event::Step { queue, index } => !places.contains_key(&(wait.rank, queue, index)),
                Event::Enter => false,
            };
            if let Some(wait) = after.iter().find(is_nowhere) {
                return Err(Error::Text { line, message: format!("waits for {wait}, which no line defines") });
            }
        }
        Ok(())
    }
}

fn queue_in_rank(scan: &mut Scanner<'_>) -> Result<u32> {
    let queue = scan.numbered(".q", "the queue and place of a step, such as .q0.1")?;
    if queue > LAST_QUEUE {
        return Err(scan.error(format!("queue {queue} is above the last, {LAST_QUEUE}: number queues from 0")));
    }
    Ok(queue)
}

fn place_in_rank(scan: &mut Scanner<'_>) -> Result<(u32, u32)> {
    Ok((queue_in_rank(scan)?, scan.numbered(".", "the place in the queue, such as .1")?))
}

fn buffer(scan: &mut Scanner<'_>, what: &str) -> Result<Buffer> {
    let layer = |scan: &mut Scanner<'_>| -> Result<u16> {
        let number = scan.number("the number of a layer, such as 0")?;
        number.try_into().map_err(|_| scan.error(format!("layer {number} is above the last, {}", u16::MAX)))
    };
    if scan.take("input") {
        Ok(Buffer::Input)
    } else if scan.take("output") {
        Ok(Buffer::Output)
    } else if scan.take("scratch") {
        Ok(Buffer::Scratch(layer(scan)?))
    } else if scan.take("staging") {
        Ok(Buffer::Staging(layer(scan)?))
    } else {
        Err(scan.found(what))
    }
}
