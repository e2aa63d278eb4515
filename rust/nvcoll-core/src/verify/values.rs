//! Values: one tile executed over symbols, in an order in which it can run; races are excluded, so any such order will do.

use std::collections::HashMap;

use super::form::Held;
use super::order::HappensBefore;
use super::violation::{Cell, StepName, Violation};
use crate::collective::Promise;
use crate::schedule::{Buffer, Schedule, Step, View};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Expression {
    /// The contribution of a rank.
    Leaf(u32),
    /// A left fold.
    Fold(Vec<u32>),
}

/// What a cell holds: an expression by number, and whether the reduction was completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Value {
    expression: u32,
    is_final: bool,
}

/// The expressions of a schedule; equal ones have equal numbers.
#[derive(Debug, Default)]
pub(super) struct Values {
    expressions: Vec<Expression>,
    /// How many leaves each has.
    leaves: Vec<u32>,
    numbers: HashMap<Expression, u32>,
    /// The expression that each chunk ends as.
    results: Vec<Option<u32>>,
}

/// (rank, memory, chunk)
type Contents = HashMap<(u32, Buffer, u32), Value>;

impl Values {
    /// Proves the marks of every step and the promise of every output.
    pub(super) fn prove(schedule: &Schedule, order: &HappensBefore) -> Result<Self, Violation> {
        let held = Held::of(schedule);
        let mut values = Self { results: vec![None; schedule.chunks() as usize], ..Self::default() };
        let mut contents = Contents::new();
        for rank in 0..schedule.world_size {
            let leaf = values.number(Expression::Leaf(rank));
            for chunk in 0..schedule.chunks() {
                if held.holds(rank, Buffer::Input, chunk) {
                    contents.insert((rank, Buffer::Input, chunk), Value { expression: leaf, is_final: false });
                }
            }
        }
        for &position in &order.topological {
            let step = &schedule.steps[position as usize];
            for nth in 0..step.dst[0].chunks.len() as u32 {
                values.execute(schedule, &held, step, nth, &mut contents)?;
            }
        }
        values.check_promises(schedule, &held, &contents)?;
        Ok(values)
    }

    fn number(&mut self, expression: Expression) -> u32 {
        if let Some(&number) = self.numbers.get(&expression) {
            return number;
        }
        let number = self.expressions.len() as u32;
        self.leaves.push(match &expression {
            Expression::Leaf(_) => 1,
            Expression::Fold(parts) => parts.iter().map(|&part| self.leaves[part as usize]).sum(),
        });
        self.expressions.push(expression.clone());
        self.numbers.insert(expression, number);
        number
    }

    fn execute(
        &mut self,
        schedule: &Schedule,
        held: &Held,
        step: &Step,
        nth: u32,
        contents: &mut Contents,
    ) -> Result<(), Violation> {
        let place = |view: &View| {
            let chunk = view.chunks.start + nth;
            (view.rank, held.memory(schedule.aliasing, view.rank, view.buffer, chunk), chunk)
        };
        let name = StepName::of(step);
        let mut sources = Vec::with_capacity(step.src.len());
        for source in &step.src {
            let Some(&value) = contents.get(&place(&source.view)) else {
                let chunk = source.view.chunks.start + nth;
                let cell = Cell(View { chunks: chunk..chunk + 1, ..source.view.clone() });
                return Err(Violation::Unwritten { step: name, cell });
            };
            sources.push(value);
        }
        let expression = match sources[..] {
            [only] => only.expression,
            _ => self.number(Expression::Fold(sources.iter().map(|value| value.expression).collect())),
        };
        let was_final = sources.iter().any(|value| value.is_final);
        self.check_marks(schedule, step, &sources, expression, was_final)?;
        let value = Value { expression, is_final: was_final || step.is_final };
        for view in &step.dst {
            contents.insert(place(view), value);
        }
        Ok(())
    }

    fn check_marks(
        &self,
        schedule: &Schedule,
        step: &Step,
        sources: &[Value],
        expression: u32,
        was_final: bool,
    ) -> Result<(), Violation> {
        let wrong = |what: String| Err(Violation::WrongMark { step: StepName::of(step), what });
        if step.is_fold() && (was_final || !schedule.collective.folds()) {
            return wrong("it folds what is not to be folded any more".into());
        }
        let is_complete = schedule.collective.folds() && self.leaves[expression as usize] >= schedule.world_size;
        if step.is_final != (is_complete && !was_final) {
            return wrong(format!("`final` is {}, but the reduction is {}complete here", step.is_final, if is_complete { "" } else { "not " }));
        }
        for (source, value) in step.src.iter().zip(sources) {
            let raw = match self.expressions[value.expression as usize] {
                Expression::Leaf(rank) if !value.is_final && (step.is_fold() || step.is_final) => Some(rank),
                _ => None,
            };
            if source.contribution != raw {
                return wrong(format!("a source is marked as contribution of {:?}, but is that of {raw:?}", source.contribution));
            }
        }
        Ok(())
    }

    fn check_promises(&mut self, schedule: &Schedule, held: &Held, contents: &Contents) -> Result<(), Violation> {
        let n = schedule.world_size;
        for rank in 0..n {
            for part in schedule.collective.output(n, rank) {
                let promise = schedule.collective.promise(part);
                for chunk in part * schedule.chunks_per_part..(part + 1) * schedule.chunks_per_part {
                    let memory = held.memory(schedule.aliasing, rank, Buffer::Output, chunk);
                    let found = contents.get(&(rank, memory, chunk)).copied();
                    self.check_promise(n, promise, rank, chunk, found)?;
                }
            }
        }
        Ok(())
    }

    fn check_promise(
        &mut self,
        n: u32,
        promise: Promise,
        rank: u32,
        chunk: u32,
        found: Option<Value>,
    ) -> Result<(), Violation> {
        let known = self.results[chunk as usize];
        let is_right = match (promise, found) {
            (_, None) => false,
            (Promise::CopyOf { from }, Some(value)) => self.expressions[value.expression as usize] == Expression::Leaf(from),
            (Promise::FoldOfAll, Some(value)) => {
                value.is_final && known.map_or_else(|| self.has_each_once(value.expression, n), |k| k == value.expression)
            }
        };
        if is_right {
            self.results[chunk as usize] = found.map(|value| value.expression);
            return Ok(());
        }
        let promised = match (promise, known) {
            (Promise::CopyOf { from }, _) => format!("the contribution of rank {from}"),
            (Promise::FoldOfAll, Some(known)) => format!("{}, as on other ranks", self.print(known)),
            (Promise::FoldOfAll, None) => format!("a completed fold of ranks 0..{n}, each once"),
        };
        let found = match found {
            None => "nothing".to_owned(),
            Some(value) => format!("{}{}", self.print(value.expression), if value.is_final { "" } else { ", not final" }),
        };
        let view = View { rank, buffer: Buffer::Output, chunks: chunk..chunk + 1 };
        Err(Violation::WrongResult { cell: Cell(view), found, promised })
    }

    fn has_each_once(&self, expression: u32, n: u32) -> bool {
        let mut seen = vec![false; n as usize];
        let mut open = vec![expression];
        while let Some(number) = open.pop() {
            match &self.expressions[number as usize] {
                Expression::Leaf(rank) => {
                    if std::mem::replace(&mut seen[*rank as usize], true) {
                        return false;
                    }
                }
                Expression::Fold(parts) => open.extend(parts),
            }
        }
        seen.into_iter().all(|is_seen| is_seen)
    }

    pub(super) fn expression(&self, chunk: u32) -> String {
        self.results.get(chunk as usize).copied().flatten().map_or_else(String::new, |number| self.print(number))
    }

    pub(super) fn is_rank_order(&self, schedule: &Schedule) -> bool {
        let leaf = |number: &u32| match self.expressions[*number as usize] {
            Expression::Leaf(rank) => Some(rank),
            Expression::Fold(_) => None,
        };
        let is_ordered = |number: u32| match &self.expressions[number as usize] {
            Expression::Leaf(rank) => *rank == 0 && schedule.world_size == 1,
            Expression::Fold(parts) => parts.iter().map(leaf).eq((0..schedule.world_size).map(Some)),
        };
        schedule.collective.folds() && self.results.iter().flatten().all(|&number| is_ordered(number))
    }

    fn print(&self, number: u32) -> String {
        match &self.expressions[number as usize] {
            Expression::Leaf(rank) => format!("r{rank}"),
            Expression::Fold(parts) => {
                let parts: Vec<String> = parts.iter().map(|&part| self.print(part)).collect();
                format!("({})", parts.join(" + "))
            }
        }
    }
}
