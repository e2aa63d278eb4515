//! `Recorder`: the words of a rank of another process, for `nvcoll dump`.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use nvcoll_engine::processes::recorder::{Recorder as Engine, SeenWait};

use crate::engine::error::of_engine;

/// The words of a rank that is a process, in one communicator, read from outside. Not public.
#[pyclass(name = "Recorder", module = "nvcoll._nvcoll", frozen)]
pub(crate) struct Recorder(Engine);

#[pymethods]
impl Recorder {
    /// Opens the words behind a path `/proc/PID/fd/N`.
    #[new]
    fn open(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        Engine::open(&path).map(Self).map_err(|error| of_engine(py, &error))
    }

    /// The process, as it numbers itself.
    #[getter]
    fn process(&self) -> u32 {
        self.0.process()
    }

    /// The rank, by its number in the run.
    #[getter]
    fn rank(&self) -> u32 {
        self.0.rank()
    }

    /// The number of ranks of the run.
    #[getter]
    fn world_size(&self) -> u32 {
        self.0.world_size()
    }

    /// The communicator, in words.
    #[getter]
    fn communicator(&self) -> String {
        self.0.communicator()
    }

    /// Whether the communicator is that of all ranks.
    #[getter]
    fn is_of_all(&self) -> bool {
        self.0.is_of_all()
    }

    /// The name of the job; empty unless the communicator is that of all ranks.
    #[getter]
    fn job(&self) -> &str {
        self.0.job()
    }

    /// Reads what the rank does: `call`, `is_in_call`, `has_left`, `progress`, `recent` (number and words, newest first), `waits` (words,
    /// seconds, whether it timed out).
    fn look<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let look = self.0.look();
        let found = PyDict::new(py);
        found.set_item("call", look.call)?;
        found.set_item("is_in_call", look.is_in_call)?;
        found.set_item("has_left", look.has_left)?;
        found.set_item("progress", look.progress)?;
        found.set_item("recent", look.recent)?;
        let wait = |wait: SeenWait| (wait.words, wait.for_s, wait.has_timed_out);
        found.set_item("waits", look.waits.into_iter().map(wait).collect::<Vec<_>>())?;
        Ok(found)
    }

    /// Says the cycle of waits among the ranks of a job, if there is one. `recorders` are of the communicator of all ranks.
    #[staticmethod]
    fn cycle(recorders: Vec<PyRef<'_, Self>>) -> Option<String> {
        Engine::cycle(recorders.iter().map(|recorder| &recorder.0))
    }
}
