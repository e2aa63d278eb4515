//! Rust errors as Python exceptions: one variant, one arm.

use std::cell::RefCell;

use pyo3::exceptions::{PyKeyboardInterrupt, PyOSError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyString, PyType};

use nvcoll_core::Error as CoreError;
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
