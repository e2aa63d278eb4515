//! Rust errors as Python exceptions: one variant, one arm.

use std::cell::RefCell;

use pyo3::exceptions::{PyBaseException, PyKeyboardInterrupt, PyMemoryError, PyOSError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyString, PyTuple, PyType};

use nvcoll_core::Error as CoreError;
use nvcoll_engine::error::NamedRanks;
use nvcoll_engine::ranks::member::Member;
use nvcoll_engine::sync::WaitStatus;
use nvcoll_engine::Error as EngineError;
use nvcoll_fabric::Error as FabricError;

/// The module of the exceptions. It is held, because they are raised also while the interpreter ends.
static CLASSES: PyOnceLock<Py<PyModule>> = PyOnceLock::new();

fn classes(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    let module = CLASSES.get_or_try_init(py, || py.import("nvcoll.errors").map(Bound::unbind))?;
    Ok(module.bind(py))
}

/// Adds the exceptions to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    for (name, class) in classes(module.py())?.dict().iter().filter(|(_, value)| value.is_instance_of::<PyType>()) {
        module.add(name.cast::<PyString>()?, class)?;
    }
    Ok(())
}

/// The most characters at the beginning and at the end of a message. Chosen: messages of nvcoll are shorter, unless they repeat a text
/// of the user.
const SHOWN: usize = 4096;

/// Shortens a message that repeats a long text of the user.
fn shortened(message: String) -> String {
    let ends = (message.char_indices().nth(SHOWN), message.char_indices().nth_back(SHOWN));
    match ends {
        (Some((first, _)), Some((last, _))) if first < last => format!("{} … {}", &message[..first], &message[last..]),
        _ => message,
    }
}

/// Makes the exception called `name`.
pub(crate) fn raise(py: Python<'_>, name: &str, message: String) -> PyErr {
    let class = classes(py).and_then(|classes| Ok(classes.getattr(name)?.cast_into::<PyType>()?));
    class.map_or_else(|error| error, |class| PyErr::from_type(class, shortened(message)))
}

/// An argument that cannot be used.
pub(crate) fn invalid(py: Python<'_>, message: impl Into<String>) -> PyErr {
    raise(py, "InvalidArgument", message.into())
}

thread_local! {
    /// The exception that a signal handler raised on this thread while the core worked. The core's error cannot hold it.
    pub(crate) static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Returns the exception that a signal handler raised on this thread while the core worked.
pub(crate) fn raised() -> PyErr {
    RAISED.take().unwrap_or_else(|| PyKeyboardInterrupt::new_err(()))
}

/// The core's errors.
pub(crate) fn of_core(py: Python<'_>, error: &CoreError) -> PyErr {
    let name = match error {
        CoreError::Unknown { .. }
        | CoreError::Parameter(_)
        | CoreError::WorldSize { .. }
        | CoreError::Undefined { .. }
        | CoreError::CannotRun(_) => "InvalidArgument",
        CoreError::Step { step, .. } => {
            let raised = raise(py, "BuildError", error.to_string());
            return raised.value(py).setattr("step", step).map_or_else(|failed| failed, |()| raised);
        }
        CoreError::Build(_) | CoreError::TooLarge { .. } | CoreError::Text { .. } => "BuildError",
        CoreError::Interrupted => return raised(),
    };
    raise(py, name, error.to_string())
}

/// The fabric's errors.
pub(crate) fn of_fabric(py: Python<'_>, error: &FabricError) -> PyErr {
    let name = match error {
        FabricError::Unknown { .. }
        | FabricError::Description { .. }
        | FabricError::NoPath { .. }
        | FabricError::Setting { .. }
        | FabricError::Unable { .. } => "InvalidArgument",
        FabricError::Schedule { .. } => "BuildError",
        FabricError::Interrupted => return PyKeyboardInterrupt::new_err(()),
    };
    raise(py, name, error.to_string())
}

/// Makes the exception of a file: the subclass of OSError for its number, with the name of the file.
pub(crate) fn of_file(py: Python<'_>, error: &std::io::Error, path: &std::path::Path) -> PyErr {
    let Some(number) = error.raw_os_error() else {
        return PyOSError::new_err(format!("{}: {error}", path.display()));
    };
    let words = py.import("os").and_then(|os| os.call_method1("strerror", (number,))?.extract::<String>());
    match words {
        Ok(words) => PyOSError::new_err((number, words, path.as_os_str().to_owned())),
        Err(error) => error,
    }
}

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
