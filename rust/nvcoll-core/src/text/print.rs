//! Printing: every noun of a schedule implements `Display`, and a schedule prints its nouns in aligned columns.
//!
//! ```text
//! place    destinations   sources                          marks            waits
//! r1.q0.0  output[r1].0 = input[r0].0*s0 + input[r1].0*s1  final at switch  after r0.enter
//! ```
//!
//! A column is as wide as its widest cell, but at most [`WIDEST`], so that a fold of 64 sources does not push every copy off the
//! screen. Leave lines have no columns. A schedule is rendered twice, once to measure columns and once to write lines, so that
//! lines are not kept in memory.

use std::fmt::{Display, Formatter, Result, Write};

use crate::schedule::{Buffer, Dependency, Event, Schedule, Source, Step, View};

/// The largest width of a column, in characters. Chosen: four sources of a small schedule.
const WIDEST: usize = 72;

/// The blanks after each column.
const GAPS: [usize; 5] = [2, 1, 2, 2, 0];

/// Prints a schedule; [`super::parse`] reads it back.
pub fn print(schedule: &Schedule) -> String {
    schedule.to_string()
}

/// The cells of a step's line: place, destinations, sources, marks, waits.
type Columns = [String; 5];

/// The width of each column.
#[derive(Default, Clone, Copy)]
pub(super) struct Widths([usize; 5]);

impl Widths {
    /// Widens the columns for every line of `schedule`.
    pub(super) fn admit(&mut self, schedule: &Schedule) {
        for cells in schedule.steps.iter().map(cells) {
            for (width, cell) in self.0.iter_mut().zip(&cells) {
                *width = (*width).max(cell.len().min(WIDEST));
            }
        }
    }

    /// Lays out a line, without trailing blanks.
    fn line(&self, cells: &Columns) -> String {
        let mut line = String::new();
        for ((&width, gap), cell) in self.0.iter().zip(GAPS).zip(cells) {
            if width > 0 {
                line.push_str(cell);
                line.extend(std::iter::repeat_n(' ', width.saturating_sub(cell.len()) + gap));
            }
        }
        line.truncate(line.trim_end().len());
        line
    }
}

/// Returns all lines of a schedule, its steps laid out in columns of these widths.
pub(super) fn lines(schedule: &Schedule, widths: Widths) -> impl Iterator<Item = String> + '_ {
    let header = format!(
        "schedule {} {}  world_size {}{}  chunks_per_part {}  path {}{}  aliasing {}",
        schedule.collective.name,
        schedule.algorithm,
        schedule.world_size,
        if schedule.collective.has_root { format!("  root {}", schedule.root) } else { String::new() },
        schedule.chunks_per_part,
        schedule.path.name(),
        if schedule.slots == schedule.path.slots() { String::new() } else { format!("  slots {}", schedule.slots) },
        schedule.aliasing.name()
    );
    let steps = schedule.steps.iter().map(move |step| widths.line(&cells(step)));
    let leave = schedule.leave.iter().enumerate().map(|(rank, after)| {
        let line = format!("leave r{rank}  {}", waits(after));
        line.trim_end().to_owned()
    });
    let enter = (0..).zip(&schedule.early).filter_map(|(rank, queue)| Some((rank, (*queue)?)));
    let enter = enter.map(|(rank, queue): (u32, u32)| format!("enter r{rank}  after r{rank}.q{queue}"));
    std::iter::once(header).chain(steps).chain(enter).chain(leave)
}

fn cells(step: &Step) -> Columns {
    let place = place(step.rank, Event::Step { queue: step.queue, index: step.index });
    let marks = match (step.is_final, step.at_switch) {
        (false, false) => "",
        (true, false) => "final",
        (false, true) => "at switch",
        (true, true) => "final at switch",
    };
    [place, joined(&step.dst, ", "), format!("= {}", joined(&step.src, " + ")), marks.to_owned(), waits(&step.after)]
}

fn waits(after: &[Dependency]) -> String {
    if after.is_empty() {
        String::new()
    } else {
        format!("after {}", joined(after, " "))
    }
}

fn place(rank: u32, event: Event) -> String {
    match event {
        Event::Enter => format!("r{rank}.enter"),
        Event::Step { queue, index } => format!("r{rank}.q{queue}.{index}"),
    }
}

/// Joins items with a separator; without items, returns `nothing`, which the parser refuses.
fn joined<T: Display>(items: &[T], between: &str) -> String {
    let mut text = String::new();
    for (i, item) in items.iter().enumerate() {
        let before = if i == 0 { "" } else { between };
        write!(text, "{before}{item}").expect("writing to a string cannot fail");
    }
    if items.is_empty() {
        "nothing".to_owned()
    } else {
        text
    }
}

impl Display for Buffer {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Buffer::Input => f.write_str("input"),
            Buffer::Output => f.write_str("output"),
            Buffer::Scratch(layer) => write!(f, "scratch{layer}"),
            Buffer::Staging(layer) => write!(f, "staging{layer}"),
        }
    }
}

impl Display for View {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{}[r{}].{}", self.buffer, self.rank, self.chunks.start)?;
        if Some(self.chunks.end) != self.chunks.start.checked_add(1) {
            write!(f, "..{}", self.chunks.end)?;
        }
        Ok(())
    }
}

impl Display for Source {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        self.view.fmt(f)?;
        self.contribution.map_or(Ok(()), |rank| write!(f, "*s{rank}"))
    }
}

impl Display for Dependency {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(&place(self.rank, self.event))?;
        if self.lag == 0 {
            Ok(())
        } else {
            write!(f, "@{}", self.lag)
        }
    }
}

/// Prints a step on one line without padding.
impl Display for Step {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let mut words = cells(self).into_iter().filter(|cell| !cell.is_empty());
        f.write_str(&words.next().unwrap_or_default())?;
        f.write_str(" ")?;
        words.try_for_each(|cell| write!(f, " {cell}"))
    }
}

impl Display for Schedule {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let mut widths = Widths::default();
        widths.admit(self);
        lines(self, widths).try_for_each(|line| writeln!(f, "{line}"))
    }
}
