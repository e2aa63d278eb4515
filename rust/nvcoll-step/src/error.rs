//! What can go wrong between a layout and the time of a step.

/// An error of a step.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// A name that no table knows.
    #[error("no {kind} is called `{name}`: choose from {known}")]
    Unknown {
        /// The kind of thing that was named.
        kind: &'static str,
        /// The name.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A layout that breaks a rule.
    #[error("this layout is impossible: {0}")]
    Layout(String),
    /// A model that is no model.
    #[error("model `{name}`: {reason}")]
    Model {
        /// The name of the model.
        name: String,
        /// What was found and what was expected.
        reason: String,
    },
    /// A request that cannot be read.
    #[error("this plans no step: {0}")]
    Request(String),
    /// A measured step that no prediction can be compared with.
    #[error("the measured step {0}")]
    Measured(String),
    /// A step, read from a file or made by hand, that contradicts itself.
    #[error("this is no step: {0}")]
    Step(String),
    /// A step whose ranks wait for each other for ever.
    #[error("{0}")]
    Deadlock(String),
    /// A GPU whose numbers are not known, or that lacks what the step needs.
    #[error("{0}")]
    Gpu(String),
    /// An error of the machine or its predictions.
    #[error(transparent)]
    Fabric(#[from] nvcoll_fabric::Error),
}

/// The result of what can fail so.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Returns the error of a layout that breaks a rule.
    pub(crate) fn layout(reason: impl Into<String>) -> Self {
        Self::Layout(reason.into())
    }
}
