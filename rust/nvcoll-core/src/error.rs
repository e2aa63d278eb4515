//! What can go wrong before anything runs. Each variant is one Python exception (the binding maps them one to one).

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
    /// A world size outside 1..=1024.
    #[error("world_size is {0}: it must be from 1 to 1024")]
    WorldSize(u32),
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
    /// Text that is no tuning table.
    #[error("the tuning table cannot be used: {0}")]
    Tuning(String),
    /// Text that is not a schedule.
    #[error("line {line}: {message}")]
    Text {
        /// The line, from 1.
        line: usize,
        /// What was found and expected.
        message: String,
    },
}

/// The result of anything in the core that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// The largest world size.
pub const MAX_WORLD_SIZE: u32 = 1024;
