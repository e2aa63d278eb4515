//! Errors of the core. The Python binding chooses the Python exception for each variant.

use crate::interrupt::Interrupted;
use crate::limits::{MAX_STEPS, MAX_VIEWS};

/// An error of the core.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No registry knows the name.
    #[error("no {kind} is called `{name}`: choose from {known}")]
    Unknown {
        /// The kind of thing that the caller named.
        kind: String,
        /// The name.
        name: String,
        /// The known names.
        known: String,
    },
    /// The world size is too large or 0.
    #[error("world_size is {found}: it must be from 1 to {most}")]
    WorldSize {
        /// The requested number of ranks.
        found: u32,
        /// The largest number of ranks: [`crate::limits::MAX_WORLD_SIZE`] or [`crate::limits::MAX_RUNNING_RANKS`].
        most: u32,
    },
    /// A program has more steps or views than a schedule can have.
    #[error(
        "{what} would have {steps} steps with {views} views: a schedule has at most {MAX_STEPS} steps and {MAX_VIEWS} views"
    )]
    TooLarge {
        /// The program that is too large.
        what: String,
        /// The number of its steps.
        steps: u64,
        /// The number of sources and destinations of all its steps.
        views: u64,
    },
    /// An algorithm does not have the parameter, or the parameter does not accept the value.
    #[error("{0}")]
    Parameter(String),
    /// An algorithm broke a rule of the builder.
    #[error("{0}")]
    Build(String),
    /// A step of an algorithm broke a rule of the builder.
    #[error("step {step}: {message}")]
    Step {
        /// The number of the step, in the order in which the algorithm wrote them.
        step: usize,
        /// The rule.
        message: String,
    },
    /// The op is not defined on the dtype.
    #[error("{op} is not defined on {dtype}: it is defined on {defined}; {dtype} has {ops}")]
    Undefined {
        /// The op.
        op: &'static str,
        /// The dtype.
        dtype: &'static str,
        /// The dtypes on which the op is defined.
        defined: String,
        /// The ops that are defined on the dtype.
        ops: String,
    },
    /// A schedule can be proved, but is too large to run.
    #[error("{0}")]
    CannotRun(String),
    /// The caller stopped the work.
    #[error("{Interrupted}")]
    Interrupted,
    /// The text is not a schedule.
    #[error("line {line}: {message}")]
    Text {
        /// The number of the line, from 1.
        line: usize,
        /// The message: what was found and what was expected.
        message: String,
    },
}

impl From<Interrupted> for Error {
    fn from(_: Interrupted) -> Self {
        Self::Interrupted
    }
}

/// The result of an operation of the core that can fail.
pub type Result<T> = std::result::Result<T, Error>;
