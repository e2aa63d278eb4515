//! The missing part of a refuted schedule: a wait or contributions.
//!
//! The message of a [`super::Violation`] is for people. [`Missing`] is the same as data, in the spelling of the text form, so that tools can
//! show it beside the steps or insert it into a schedule. Most violations miss nothing and have no such data.

use super::location::Waiter;
use crate::schedule::Dependency;

/// The largest number of ranks in a message; further ranks are counted. Chosen.
const NAMED: usize = 8;

/// The missing part of a refuted schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    /// A missing wait.
    Wait {
        /// The step or leave that must wait.
        place: Waiter,
        /// The event for which it must wait.
        event: Dependency,
    },
    /// The missing contributions of these ranks to a result.
    Contributions(Vec<u32>),
}

/// Prints `r0.q0.0  after r1.q0.0`, as in the text form, or `the contributions of r1, r2`.
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
