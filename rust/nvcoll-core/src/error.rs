//! What can go wrong before anything runs. The binding decides which Python exception each variant becomes.

use crate::interrupt::Interrupted;
use crate::limits::{MAX_STEPS, MAX_VIEWS};

/// An error of the core.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A name that no registry knows.
    #[error("no {kind} is called `{name}`: choose from {known}")]
    Unknown {
        /// What kind of thing was named.
        kind: String,
        /// The name.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A world size outside what can be described, or run.
    #[error("world_size is {found}: it must be from 1 to {most}")]
    WorldSize {
        /// How many ranks there were to be.
        found: u32,
        /// How many there can be: [`crate::limits::MAX_WORLD_SIZE`] or [`crate::limits::MAX_RUNNING_RANKS`].
        most: u32,
    },
    /// A program with more steps or views than a schedule can have.
    #[error(
        "{what} would have {steps} steps with {views} views: a schedule has at most {MAX_STEPS} steps and {MAX_VIEWS} views"
    )]
    TooLarge {
        /// What would be too large.
        what: String,
        /// How many steps it would have.
        steps: u64,
        /// How many sources and destinations they would have together.
        views: u64,
    },
    /// A parameter that an algorithm does not have, or a value that it cannot have.
    #[error("{0}")]
    Parameter(String),
    /// An algorithm broke a rule of the builder.
    #[error("{0}")]
    Build(String),
    /// An op that has no meaning on a dtype.
    #[error("{op} is not defined on {dtype}: it is defined on {defined}; {dtype} has {ops}")]
    Undefined {
        /// The op.
        op: &'static str,
        /// The dtype.
        dtype: &'static str,
        /// The dtypes on which the op is defined.
        defined: String,
        /// The ops that the dtype has.
        ops: String,
    },
    /// A schedule that can be proved and not run.
    #[error("{0}")]
    CannotRun(String),
    /// The caller stopped work that took long.
    #[error("{Interrupted}")]
    Interrupted,
    /// Text that is not a schedule.
    #[error("line {line}: {message}")]
    Text {
        /// The line, from 1.
        line: usize,
        /// What was found and expected.
        message: String,
    },
}

impl From<Interrupted> for Error {
    fn from(_: Interrupted) -> Self {
        Self::Interrupted
    }
}

/// The result of anything in the core that can fail.
pub type Result<T> = std::result::Result<T, Error>;
