//! What can go wrong between a description of hardware and a time. Each variant is one Python exception.

/// An error of the fabric.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A name that no table knows.
    #[error("no {kind} is called `{name}`: choose from {known}")]
    Unknown {
        /// What kind of thing was named.
        kind: &'static str,
        /// The name.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A description that is no fabric.
    #[error("{origin}: {message}")]
    Description {
        /// The file or text.
        origin: String,
        /// What was found and expected.
        message: String,
    },
    /// Two devices between which nothing passes.
    #[error("{fabric}: no path from {from} to {to}: {reason}")]
    NoPath {
        /// The fabric.
        fabric: String,
        /// Where it should begin.
        from: String,
        /// Where it should end.
        to: String,
        /// Why there is none.
        reason: String,
    },
    /// A schedule that asks for what the fabric cannot do.
    #[error("{fabric}: {message}")]
    Unable {
        /// The fabric.
        fabric: String,
        /// What was asked, and what there is instead.
        message: String,
    },
    /// A schedule that cannot run anywhere: the verifier refuses it too.
    #[error("{schedule} cannot run: {message}")]
    Schedule {
        /// What it is called.
        schedule: String,
        /// What was found.
        message: String,
    },
    /// It was told to stop.
    #[error("it was interrupted")]
    Interrupted,
}

/// The result of anything in this crate that can fail.
pub type Result<T> = std::result::Result<T, Error>;
