//! Steps of training: planned, read, priced. Steps, models and software pass the door as JSON, which users write, too; prices are typed.

/// Makes getters.
macro_rules! attributes {
    ($class:ident($self:ident) { $($(#[doc = $doc:literal])+ $name:ident: $type:ty = $value:expr,)+ }) => {
        #[pymethods]
        impl $class {
            $(
                $(#[doc = $doc])+
                #[getter]
                fn $name(&self) -> $type {
                    let $self = self;
                    $value
                }
            )+
        }
    };
}

pub(crate) mod builder;
pub(crate) mod prediction;
pub(crate) mod pricer;
pub(crate) mod serving;

use std::hash::{DefaultHasher, Hash, Hasher};

use pyo3::prelude::*;
use serde::Serialize;

use nvcoll_step::constants;
use nvcoll_step::memory::{Fit, MemoryLine};
use nvcoll_step::model::Model;
use nvcoll_step::options::PlanInput;
use nvcoll_step::parts::PARTS;
use nvcoll_step::serving::precision::Precision;
use nvcoll_step::serving::software::ModelServer;
use nvcoll_step::software::Software;
use nvcoll_step::step::WorkStep as Step;
use nvcoll_step::{Error, Result};

use crate::error::{invalid, of_fabric};
use crate::rows::word;

fn of_step(py: Python<'_>, error: &Error) -> PyErr {
    match error {
        Error::Fabric(error) => of_fabric(py, error),
        _ => invalid(py, error.to_string()),
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("all keys are texts")
}

/// What serde found, without a position in JSON that the caller never sees.
fn unplaced(error: &serde_json::Error) -> String {
    let message = error.to_string();
    message.split(" at line ").next().unwrap_or(&message).to_owned()
}

fn input(text: &str) -> Result<PlanInput> {
    serde_json::from_str(text).map_err(|error| Error::Request(unplaced(&error)))
}

/// A step of work: what each rank computes, sends and keeps in memory, in planned layers or on recorded streams.
///
/// `nvcoll.training.plan` makes one; ``docs/reference/training-step.md`` documents its JSON.
#[pyclass(module = "nvcoll.training", frozen)]
pub(crate) struct WorkStep(Step);

#[pymethods]
impl WorkStep {
    /// Plans a step.
    ///
    /// Args:
    ///     asked: JSON of model, software and options.
    ///     gpus: the number of GPUs.
    ///     domain: the number of GPUs that NVLink joins.
    ///
    /// Raises:
    ///     InvalidArgument: it is no such JSON, or the layout breaks a rule, which the message says.
    #[staticmethod]
    #[pyo3(signature = (asked, *, gpus, domain))]
    fn plan(py: Python<'_>, asked: &str, gpus: u32, domain: u32) -> PyResult<Self> {
        let planned = input(asked).and_then(|asked| asked.request(gpus, domain)?.plan());
        planned.map(Self).map_err(|error| of_step(py, &error))
    }

    /// Reads a step from JSON.
    ///
    /// Raises:
    ///     InvalidArgument: it is no such JSON, or contradicts itself.
    #[staticmethod]
    fn from_json(py: Python<'_>, text: &str) -> PyResult<Self> {
        Step::from_json(text).map(Self).map_err(|error| of_step(py, &error))
    }

    /// Returns the step as JSON.
    fn to_json(&self) -> String {
        self.0.to_json()
    }

    /// Returns what `pickle` needs: the JSON, which `from_json` reads.
    #[pyo3(signature = () -> "tuple[Any, ...]")]
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (String,))> {
        Ok((slf.get_type().getattr("from_json")?, (slf.get().to_json(),)))
    }

    /// What it is a step of.
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    /// The number of GPUs.
    #[getter]
    fn gpus(&self) -> u32 {
        self.0.gpus
    }

    /// Whether it has streams, as recorded steps do, and not layers.
    #[getter]
    fn is_recorded(&self) -> bool {
        self.0.streams().is_some()
    }

    /// The tokens of a step of all GPUs together; None: not known.
    #[getter]
    fn tokens(&self) -> Option<f64> {
        self.0.tokens
    }

    /// The FLOPs of the model in a step of all GPUs together; None: not known.
    #[getter]
    fn model_flops(&self) -> Option<f64> {
        self.0.model_flops
    }

    /// The FLOPs of products and attention on streams, recomputation included: of all ranks, or of one recorded rank by its position.
    ///
    /// Raises:
    ///     InvalidArgument: the step has no streams, or fewer ranks.
    #[pyo3(signature = (at=None))]
    fn flops(&self, py: Python<'_>, at: Option<usize>) -> PyResult<f64> {
        let Some(streams) = self.0.streams() else {
            return Err(invalid(py, format!("`{}` was planned: it has no streams", self.0.name)));
        };
        let Some(at) = at else { return Ok(streams.flops()) };
        let rank = streams.ranks.get(at);
        let rank = rank.ok_or_else(|| invalid(py, format!("there are {} recorded ranks", streams.ranks.len())))?;
        Ok(rank.issued.iter().map(|one| one.op.flops()).sum())
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.0.name, self.0.gpus).hash(&mut hasher);
        hasher.finish()
    }

    fn __repr__(&self) -> String {
        format!("<WorkStep {}>", self.0.name)
    }
}

/// Returns the models that are shipped, as JSON.
#[pyfunction]
pub(crate) fn training_models() -> String {
    json(&Model::all())
}

/// Returns the software that is shipped, as JSON.
#[pyfunction]
pub(crate) fn training_software() -> String {
    json(&Software::all())
}

/// Returns the model servers that are known, as JSON.
#[pyfunction]
pub(crate) fn serving_software() -> String {
    json(&ModelServer::all())
}

/// Returns the names of formats of weights.
#[pyfunction]
pub(crate) fn precisions() -> Vec<&'static str> {
    Precision::ALL.iter().map(|one| one.name()).collect()
}

/// Names with what they are.
type Titles = Vec<(String, &'static str)>;

/// Returns the words of priced steps: name, kind and title of each part of the time; name and title of each line of memory, and of each
/// answer about memory, best first.
#[pyfunction]
pub(crate) fn step_words() -> (Vec<(&'static str, String, &'static str)>, Titles, Titles) {
    let parts = PARTS.iter().map(|(name, kind, title)| (*name, word(kind), *title)).collect();
    let lines = MemoryLine::ALL.iter().map(|line| (word(line), line.name())).collect();
    (parts, lines, Fit::ALL.iter().map(|fit| (word(fit), fit.title())).collect())
}

/// Returns the constants of steps, as JSON.
#[pyfunction]
pub(crate) fn training_constants() -> String {
    json(&constants::rows())
}
