//! What a refuted schedule lacks: a wait, or contributions.
//!
//! The message of a [`Violation`] is for reading; this is the same as data, in the spelling of the text form, so that it can
//! be shown beside the steps, or put into a schedule. Most rules are broken by what is there and not by what is missing:
//! for these there is nothing to say.

use super::location::{StepName, Waiter};
use super::report::Violation;
use crate::schedule::{Dependency, Event};

/// How many ranks are named before the rest is only counted. Chosen.
const NAMED: usize = 8;

/// What would have to be added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    /// A wait.
    Wait {
        /// Who must wait.
        place: Waiter,
        /// For what.
        event: Dependency,
    },
    /// The contributions of some ranks to a result.
    Contributions(Vec<u32>),
}

/// `r0.q0.0  after r1.q0.0`, as the text form has it, or `the contributions of r1, r2`.
impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Missing::Wait { place, event } => write!(f, "{place}  after {event}"),
            Missing::Contributions(ranks) => {
                let named: Vec<String> = ranks.iter().take(NAMED).map(|rank| format!("r{rank}")).collect();
                let plural = if ranks.len() == 1 { "" } else { "s" };
                write!(f, "the contribution{plural} of {}", named.join(", "))?;
                match ranks.len().saturating_sub(NAMED) {
                    0 => Ok(()),
                    more => write!(f, " and {more} more"),
                }
            }
        }
    }
}

impl Violation {
    /// Returns what is missing, where something is.
    pub fn missing(&self) -> Option<Missing> {
        use Violation as V;
        let wait = |place, rank, event, lag| Some(Missing::Wait { place, event: Dependency { rank, event, lag } });
        let done = |step: &StepName| Event::Step { queue: step.queue, index: step.index };
        match self {
            V::Race { first, second, lag, .. } => wait(Waiter::Step(*second), first.rank, done(first), *lag),
            V::LeavesEarly { rank, step, .. } => wait(Waiter::Leave(*rank), step.rank, done(step), 0),
            V::NoContact { place, rank } => wait(*place, *rank, Event::Enter, 0),
            V::NotSynchronised { rank, other, .. } => wait(Waiter::Leave(*rank), *other, Event::Enter, 0),
            V::FinalTooEarly { missing, .. } => Some(Missing::Contributions(vec![*missing])),
            V::WrongOutput { lacks, .. } if !lacks.is_empty() => Some(Missing::Contributions(lacks.clone())),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_contributions_are_counted_rather_than_listed() {
        let text = |ranks: u32| Missing::Contributions((0..ranks).collect()).to_string();
        assert_eq!(text(1), "the contribution of r0");
        assert_eq!(text(2), "the contributions of r0, r1");
        assert_eq!(text(1000), "the contributions of r0, r1, r2, r3, r4, r5, r6, r7 and 992 more");
    }
}
