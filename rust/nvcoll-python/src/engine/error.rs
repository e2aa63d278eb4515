//! The engine's errors as Python exceptions, with the ranks that they name.

use pyo3::exceptions::{PyBaseException, PyKeyboardInterrupt, PyMemoryError, PyOSError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use nvcoll_engine::error::NamedRanks;
use nvcoll_engine::ranks::member::Member;
use nvcoll_engine::sync::WaitStatus;
use nvcoll_engine::Error as EngineError;

use crate::error::{of_core, raise};

/// Makes the exception of an engine's error in the call of a rank. A communicator that was split off has ranks of its own: the message
/// says their numbers in the run.
pub(crate) fn of_member(py: Python<'_>, member: &Member, error: &EngineError) -> PyErr {
    if let Some(numbers) = member.names_of_ranks() {
        return of_engine(py, &error.renumbered(numbers));
    }
    let is_about_ranks = error.named_ranks() != NamedRanks::default()
        || matches!(error, EngineError::Timeout { .. } | EngineError::Overdue { .. });
    if !(is_about_ranks && member.is_of_group()) || matches!(error, EngineError::Left { .. }) {
        return of_engine(py, error);
    }
    let ranks = listed(member.ranks());
    with_message(py, error, format!("{error} (the ranks of this communicator are {ranks} of the run)"))
}

/// The most ranks in a list. Chosen.
const MOST_LISTED: usize = 16;

/// Lists ranks in words.
pub(crate) fn listed(ranks: &[u32]) -> String {
    let shown: Vec<String> = ranks.iter().take(MOST_LISTED).map(u32::to_string).collect();
    let more = if ranks.len() > MOST_LISTED { ", …" } else { "" };
    format!("rank{} {}{more}", if ranks.len() == 1 { "" } else { "s" }, shown.join(", "))
}

/// The engine's errors.
pub(crate) fn of_engine(py: Python<'_>, error: &EngineError) -> PyErr {
    with_message(py, error, error.to_string())
}

fn with_message(py: Python<'_>, error: &EngineError, message: String) -> PyErr {
    let name = match error {
        EngineError::Core(core) => return of_core(py, core),
        EngineError::NoMemory { .. } => return PyMemoryError::new_err(message),
        EngineError::Interrupted => return PyKeyboardInterrupt::new_err(()),
        EngineError::System { number, .. } => return PyOSError::new_err((*number, message)),
        EngineError::Invalid(_) | EngineError::Tuning(_) | EngineError::NoIsa { .. } | EngineError::Overlap { .. } => {
            "InvalidArgument"
        }
        EngineError::Mismatch { .. }
        | EngineError::Returned { .. }
        | EngineError::UnlikeMessage { .. }
        | EngineError::NoPeer { .. } => "Mismatch",
        EngineError::Aborted { .. } | EngineError::Exited { .. } => "Aborted",
        EngineError::PeerLost(_) => "PeerLost",
        EngineError::Timeout { .. } | EngineError::Overdue { .. } => "Timeout",
        EngineError::Busy(_) => "Busy",
        EngineError::Closed(_) | EngineError::Left { .. } => "Closed",
        EngineError::Refuted(_) => "Refuted",
    };
    let raised = raise(py, name, message);
    match tell(raised.value(py), error) {
        Ok(()) => raised,
        Err(error) => error,
    }
}

/// Gives an exception what programs ask of it: the ranks that it is about, and how the process of one ended.
fn tell(exception: &Bound<'_, PyBaseException>, error: &EngineError) -> PyResult<()> {
    let NamedRanks { ranks, late, stopped, left } = error.named_ranks();
    for (name, ranks) in [("ranks", ranks), ("late", late), ("stopped", stopped), ("left", left)] {
        if !ranks.is_empty() {
            exception.setattr(name, PyTuple::new(exception.py(), ranks)?)?;
        }
    }
    match error {
        EngineError::Exited { status, .. } => exception.setattr("status", status),
        EngineError::PeerLost(peer) => {
            exception.setattr("rank", peer.rank)?;
            exception.setattr("pid", peer.process)?;
            exception.setattr("signal", peer.status.and_then(WaitStatus::signal))?;
            exception.setattr("status", peer.status.and_then(WaitStatus::exit_status))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_ranks_is_short_and_counts_one_in_the_singular() {
        assert_eq!(listed(&[7]), "rank 7");
        assert_eq!(listed(&[3, 0]), "ranks 3, 0");
        let many = listed(&(0..1024).collect::<Vec<_>>());
        assert!(many.starts_with("ranks 0, 1,") && many.ends_with(", 15, …"), "{many}");
    }
}
