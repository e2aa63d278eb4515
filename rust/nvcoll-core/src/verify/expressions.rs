//! Expressions: the value of a chunk, in symbols.
//!
//! A value is the contribution of a rank (`r2`: this chunk of its input) or a fold of values, in the order of the sources of one
//! step. `(r0 + r1 + r2)` is one step and rounds once; `((r0 + r1) + r2)` is two steps. A chunk never moves to another position, so
//! one symbol serves all chunks. Equal expressions get equal numbers (hash-consing, Ershov 1958). Comparing two expressions is
//! therefore comparing two integers, and the n^2 partial sums of a ring of n ranks share their tails.

use std::collections::HashMap;

use crate::algorithm::Order;
use crate::collective::Promise;

/// The number of an expression.
pub(super) type Id = u32;

/// The expressions of a proof, each stored once.
#[derive(Debug, Clone)]
pub(super) struct Expressions {
    world_size: u32,
    /// The operands of each fold, in order of creation.
    folds: Vec<Box<[Id]>>,
    numbers: HashMap<Box<[Id]>, Id>,
    /// The number of contributions of each expression, including repetitions.
    counts: Vec<u32>,
}

impl Expressions {
    /// Starts with one expression per rank; expression r is the contribution of rank r.
    pub(super) fn new(world_size: u32) -> Self {
        Self { world_size, folds: Vec::new(), numbers: HashMap::new(), counts: vec![1; world_size as usize] }
    }

    /// Returns the number of a fold.
    pub(super) fn fold(&mut self, operands: &[Id]) -> Id {
        if let Some(&known) = self.numbers.get(operands) {
            return known;
        }
        let id = self.counts.len() as Id;
        let count = operands.iter().fold(0u32, |sum, &operand| sum.saturating_add(self.count(operand)));
        self.counts.push(count);
        self.folds.push(operands.into());
        self.numbers.insert(operands.into(), id);
        id
    }

    /// Returns the number of contributions of an expression, including repetitions.
    pub(super) fn count(&self, id: Id) -> u32 {
        self.counts[id as usize]
    }

    /// Returns the rank whose unfolded contribution an expression is, if it is one.
    pub(super) fn contribution(&self, id: Id) -> Option<u32> {
        (id < self.world_size).then_some(id)
    }

    /// Returns the number of contributions of each rank.
    pub(super) fn tally(&self, id: Id) -> Vec<u32> {
        let mut tally = vec![0; self.world_size as usize];
        let mut stack = vec![id];
        while let Some(id) = stack.pop() {
            match self.contribution(id) {
                Some(rank) => tally[rank as usize] += 1,
                None => stack.extend(self.operands(id)),
            }
        }
        tally
    }

    /// Returns an expression by its number.
    pub(super) fn at(&self, id: Id) -> Expression<'_> {
        Expression { all: self, id }
    }

    fn operands(&self, id: Id) -> &[Id] {
        &self.folds[(id - self.world_size) as usize]
    }
}

/// The value of a chunk as an expression, such as `((r0 + r1) + r2)`.
#[derive(Clone, Copy)]
pub struct Expression<'a> {
    all: &'a Expressions,
    id: Id,
}

/// The outermost term of an expression.
#[derive(Debug, Clone)]
pub enum Term<'a> {
    /// The contribution of a rank.
    Contribution(u32),
    /// A fold by one step of these operands, in this order.
    Fold(Vec<Expression<'a>>),
}

impl<'a> Expression<'a> {
    /// Returns the outermost term.
    pub fn term(self) -> Term<'a> {
        match self.all.contribution(self.id) {
            Some(rank) => Term::Contribution(rank),
            None => Term::Fold(self.all.operands(self.id).iter().map(|&id| self.all.at(id)).collect()),
        }
    }

    /// Returns the number of the expression; within one proof, equal expressions have equal numbers.
    pub fn number(self) -> u32 {
        self.id
    }

    /// Classifies the order of its folds.
    ///
    /// The order is `rank` if one step folds the promised ranks in order. It is `nested` if each fold has either contributions only
    /// or folds only. Otherwise it is `own`.
    pub(super) fn order(self, promise: &Promise) -> Order {
        let Promise::FoldOf(ranks) = promise else { return Order::None };
        let in_order = |terms: &[Expression<'_>]| terms.iter().map(|t| t.id).eq(ranks.clone());
        match self.term() {
            Term::Contribution(_) => Order::Rank,
            Term::Fold(terms) if in_order(&terms) => Order::Rank,
            Term::Fold(_) if self.is_nested() => Order::Nested,
            Term::Fold(_) => Order::Own,
        }
    }

    fn is_nested(self) -> bool {
        let Term::Fold(terms) = self.term() else { return true };
        let raw = terms.iter().filter(|term| self.all.contribution(term.id).is_some()).count();
        raw == terms.len() || (raw == 0 && terms.into_iter().all(Expression::is_nested))
    }
}

impl std::fmt::Display for Expression<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.term() {
            Term::Contribution(rank) => write!(f, "r{rank}"),
            Term::Fold(terms) => {
                for (i, term) in terms.iter().enumerate() {
                    write!(f, "{}{term}", if i == 0 { "(" } else { " + " })?;
                }
                f.write_str(")")
            }
        }
    }
}

impl std::fmt::Debug for Expression<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}
