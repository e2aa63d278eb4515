//! The interpreter's values: terms that remember how they were made, each kept once, so that equal terms are equal numbers.

use std::collections::HashMap;

/// A term, by number.
pub(super) type Term = u32;

/// What memory holds before anybody has written it, and after its owner has left.
pub(super) const GARBAGE: Term = 0;

#[derive(Clone, PartialEq, Eq, Hash)]
enum Made {
    Garbage,
    Input {
        rank: u32,
        chunk: u32,
        tile: u32,
    },
    /// A term times the scalar of a rank.
    Scaled(u32, Term),
    /// The fold of terms, in this order.
    Fold(Vec<Term>),
    /// A term divided by the number of ranks.
    Divided(Term),
}

pub(super) struct Terms {
    made: Vec<Made>,
    numbers: HashMap<Made, Term>,
}

impl Default for Terms {
    fn default() -> Self {
        Self { made: vec![Made::Garbage], numbers: HashMap::from([(Made::Garbage, GARBAGE)]) }
    }
}

impl Terms {
    pub(super) fn input(&mut self, rank: u32, chunk: u32, tile: u32) -> Term {
        self.number(Made::Input { rank, chunk, tile })
    }

    pub(super) fn scaled(&mut self, rank: u32, term: Term) -> Term {
        self.number(Made::Scaled(rank, term))
    }

    pub(super) fn fold(&mut self, terms: Vec<Term>) -> Term {
        self.number(Made::Fold(terms))
    }

    pub(super) fn divided(&mut self, term: Term) -> Term {
        self.number(Made::Divided(term))
    }

    fn number(&mut self, made: Made) -> Term {
        if let Some(&number) = self.numbers.get(&made) {
            return number;
        }
        self.made.push(made.clone());
        self.numbers.insert(made, self.made.len() as u32 - 1);
        self.made.len() as u32 - 1
    }

    /// Says whether a term is the fold of every rank's input, each scaled by its own rank's scalar, divided once, at the end.
    pub(super) fn is_average_of_all(&self, term: Term, world_size: u32, chunk: u32, tile: u32) -> bool {
        let Made::Divided(fold) = self.made[term as usize] else { return false };
        let mut found = Vec::new();
        let mut open = vec![fold];
        while let Some(term) = open.pop() {
            match &self.made[term as usize] {
                Made::Fold(terms) => open.extend(terms),
                Made::Scaled(by, of) => match self.made[*of as usize] {
                    Made::Input { rank, chunk: c, tile: t } if (*by, c, t) == (rank, chunk, tile) => found.push(rank),
                    _ => return false,
                },
                Made::Garbage | Made::Input { .. } | Made::Divided(_) => return false,
            }
        }
        found.sort_unstable();
        found.into_iter().eq(0..world_size)
    }

    /// Says whether a term is a fold of the unscaled contributions of these ranks, each once.
    pub(super) fn is_fold_of(&self, term: Term, ranks: std::ops::Range<u32>, chunk: u32, tile: u32) -> bool {
        let mut found = Vec::new();
        let mut open = vec![term];
        while let Some(term) = open.pop() {
            match &self.made[term as usize] {
                Made::Fold(terms) => open.extend(terms),
                Made::Input { rank, chunk: c, tile: t } if (*c, *t) == (chunk, tile) => found.push(*rank),
                _ => return false,
            }
        }
        found.sort_unstable();
        found.into_iter().eq(ranks)
    }

    /// Prints the order of a fold, as proofs do: ranks stand for their contributions.
    pub(super) fn print(&self, term: Term) -> String {
        match &self.made[term as usize] {
            Made::Garbage => "garbage".to_owned(),
            Made::Input { rank, .. } => format!("r{rank}"),
            Made::Scaled(_, of) | Made::Divided(of) => self.print(*of),
            Made::Fold(terms) => {
                let terms: Vec<String> = terms.iter().map(|&term| self.print(term)).collect();
                format!("({})", terms.join(" + "))
            }
        }
    }
}
