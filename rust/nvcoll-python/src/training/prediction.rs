//! The price of a step for Python: what `nvcoll plan` prints, as attributes.

use std::collections::BTreeMap;

use pyo3::prelude::*;
use serde::Serialize;
use serde_json::{json, Value};

use nvcoll_step::memory::Fit;
use nvcoll_step::options::LayoutOptions;
use nvcoll_step::planner::Request;
use nvcoll_step::pricing::{CollectivePrice, StepReport};
use nvcoll_step::step::WorkStep as Step;

use super::{json as saved, of_step, WorkStep};
use crate::error::invalid;
use crate::machines::fabric::Fabric;
use crate::rows::{word, ByName, Calibration, LinePrice, MemoryTable, RolePrice};
use crate::schedules::schedule::in_notebook;
use crate::units::{sized, timed};

/// What was priced.
pub(crate) enum StepSource {
    /// What a request plans; the step is planned again when it is asked for, because sweeps have thousands.
    Request(Box<Request>),
    /// A step.
    Step(Py<WorkStep>),
}

/// The predicted time of a step on a machine, what it consists of, and whether it fits. `nvcoll.training.plan` and `sweep` make it.
#[pyclass(module = "nvcoll.training", frozen)]
pub(crate) struct StepPrediction {
    pub(super) report: StepReport,
    pub(super) machine: Py<Fabric>,
    pub(super) priced: StepSource,
}

attributes! { StepPrediction(found) {
    /// The number of GPUs.
    gpus: u32 = found.report.gpus,
    /// Whether the step was recorded, and not planned.
    is_recorded: bool = found.report.blocks.is_empty(),
    /// Seconds of the step.
    seconds: f64 = found.report.seconds,
    /// The lower end of the 90 % interval, in seconds.
    low_s: f64 = found.report.low_s,
    /// The upper end of the 90 % interval, in seconds.
    high_s: f64 = found.report.high_s,
    /// Why the interval is wider than usual.
    extrapolated: Vec<String> = found.report.extrapolated.clone(),
    /// Tokens per second and GPU; 0 if the tokens are not known.
    tokens_per_second: f64 = found.report.tokens_per_second.unwrap_or_default(),
    /// The FLOPs over the dense peak of the step's precision; None: not known, as of a trace.
    mfu: Option<f64> = found.report.mfu,
    /// 10^12 FLOPs per second and GPU; None: not known.
    tflops: Option<f64> = found.report.tflops,
    /// The FLOPs that `mfu` and `tflops` count: ``model`` (of the model) or ``recorded``.
    flops_of: &str = &found.report.flops_of,
    /// Seconds by part of the time, which sum up to `seconds`: of the slowest stage, or of the rank that waits least.
    parts: ByName = ByName::of(found.report.parts.named()),
    /// Seconds in which the GPU computes: all that are neither exposed nor idle.
    computes_s: f64 = found.report.computes_s(),
    /// Seconds of exposed communication, and the seconds that compute loses because a call runs beside it.
    exposed_s: f64 = found.report.exposed_s(),
    /// Seconds in which the GPU waits for other stages, the processor, stalls of the software, and copies.
    idle_s: f64 = found.report.idle_s(),
    /// What takes most of the time, in words.
    limit: String = found.report.limit(),
    /// The roles of ranks.
    roles: Vec<RolePrice> = found.report.roles.iter().cloned().map(RolePrice).collect(),
    /// Each collective of the step.
    collectives: Vec<PricedCollective> = found.report.collectives.iter().cloned().map(PricedCollective).collect(),
    /// Lines of the script for which the GPU waits, most first; none of a planned step.
    lines: Vec<LinePrice> = found.report.lines.iter().cloned().map(LinePrice).collect(),
    /// Seconds that the processor takes to issue a recorded step, which the GPU may hide; None: the step was planned.
    issue_s: Option<f64> = found.report.issue_s,
    /// The memory of each role; None: not known.
    memory: Option<Vec<MemoryTable>> = found.report.memory.as_ref().map(|all| all.iter().cloned().map(MemoryTable).collect()),
    /// GiB of the fullest rank; 0 if the memory is not known.
    memory_gib: f64 = found.report.memory_gib.unwrap_or_default(),
    /// GiB that programs get of the GPU.
    gpu_memory_gib: f64 = found.report.gpu_memory_gib,
    /// Whether the step fits in the GPUs and in RAM: ``fits``, ``tight`` (may fit) or ``too_large``; None: not known.
    fit: Option<String> = found.report.fit.as_ref().map(word),
    /// Whether the step fits in the GPUs, as `fit`.
    gpu_fit: Option<String> = found.report.gpu_fit().as_ref().map(word),
    /// Whether what waits in RAM fits there, as `fit`; None: nothing waits.
    ram_fit: Option<String> = found.report.ram_fit.as_ref().map(word),
    /// The least and the most GiB that wait in the RAM of the fullest host; None: nothing waits.
    ram_gib: Option<(f64, f64)> = found.report.ram_gib.map(Into::into),
    /// The least and the most GiB of RAM of a host, which is a node or a tray of a rack; None: not known.
    host_ram_gib: Option<(u32, u32)> = found.report.host_ram_gib.map(Into::into),
    /// Whether even the most memory that the step may need is in the GPU, and in RAM.
    fits: bool = found.report.fit == Some(Fit::Fits),
    /// The layout in the short words of the field; empty for a step that was not planned here.
    words: String = found.request().map_or(String::new(), |request| request.layout.to_string()),
} }

/// One collective of a step: where it is, among which ranks, what it takes.
#[pyclass(name = "CollectivePrice", module = "nvcoll.training", frozen, eq)]
#[derive(PartialEq)]
pub(crate) struct PricedCollective(CollectivePrice);

attributes! { PricedCollective(one) {
    /// The block or role in which it is.
    of: &str = &one.0.of,
    /// ``forward``, ``backward``, ``once``, ``pipeline``, or ``streams`` of a recorded step.
    pass_: &str = &one.0.pass,
    /// Its name.
    name: &str = &one.0.name,
    /// The name of its group.
    group: &str = &one.0.group,
    /// Where the ranks of the group are.
    ranks: &str = &one.0.ranks,
    /// The number of its calls there.
    count: f64 = one.0.count,
    /// Bytes, as nccl-tests counts.
    bytes: f64 = one.0.bytes,
    /// Seconds of one call, if nothing hid it.
    seconds: f64 = one.0.seconds,
    /// What it hides behind; ``nothing``: computing waits for it. None where the step was recorded.
    hides: Option<String> = one.0.hides.as_ref().map(word),
    /// Seconds of all calls that nothing hides, where the step was recorded.
    exposed_s: Option<f64> = one.0.exposed_s,
} }

#[pymethods]
impl PricedCollective {
    #[pyo3(signature = () -> "tuple[Any, ...]")]
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (String,))> {
        Ok((slf.get_type().getattr("_restored")?, (saved(&slf.get().0),)))
    }

    // For pickle.
    #[staticmethod]
    fn _restored(py: Python<'_>, saved: &str) -> PyResult<Self> {
        serde_json::from_str(saved).map(Self).map_err(|error| unread(py, &error))
    }

    fn __repr__(&self) -> String {
        let CollectivePrice { name, ranks, count, bytes, seconds, .. } = &self.0;
        format!("<CollectivePrice {count} x {name} of {}, {ranks}: {}>", sized(*bytes as u64), timed(&[seconds * 1e6]))
    }
}

fn unread(py: Python<'_>, error: &serde_json::Error) -> PyErr {
    invalid(py, format!("a saved price cannot be read: {error}"))
}

/// Machine, report, whether it was planned, and the request or the step.
type SavedPrediction = (Py<Fabric>, String, bool, String);

impl StepPrediction {
    pub(super) fn request(&self) -> Option<&Request> {
        match &self.priced {
            StepSource::Request(request) => Some(request),
            StepSource::Step(_) => None,
        }
    }

    fn options(&self) -> Option<LayoutOptions> {
        self.request().map(|request| (&request.layout).into())
    }

    fn copied(&self, py: Python<'_>, report: StepReport) -> Self {
        let priced = match &self.priced {
            StepSource::Request(request) => StepSource::Request(request.clone()),
            StepSource::Step(step) => StepSource::Step(step.clone_ref(py)),
        };
        Self { report, machine: self.machine.clone_ref(py), priced }
    }
}

fn or_empty(value: Option<impl Serialize>) -> Value {
    value.map_or(json!({}), |value| json!(value))
}

/// Returns what JSON has, as Python's dicts and lists.
pub(super) fn as_objects<'py>(py: Python<'py>, value: &impl Serialize) -> PyResult<Bound<'py, PyAny>> {
    py.import("json")?.call_method1("loads", (saved(value),))
}

#[pymethods]
impl StepPrediction {
    /// The machine.
    #[getter]
    fn machine(&self, py: Python<'_>) -> Py<Fabric> {
        self.machine.clone_ref(py)
    }

    /// The step.
    #[getter]
    fn step(&self, py: Python<'_>) -> PyResult<Py<WorkStep>> {
        match &self.priced {
            StepSource::Request(request) => Py::new(py, WorkStep(request.plan().map_err(|error| of_step(py, &error))?)),
            StepSource::Step(step) => Ok(step.clone_ref(py)),
        }
    }

    /// Seconds of one micro-batch by block, pass and part of the time; none of a recorded step.
    #[getter]
    fn blocks(&self) -> BTreeMap<&str, BTreeMap<&str, ByName>> {
        let passes =
            |forward, backward| BTreeMap::from([("forward", ByName::of(forward)), ("backward", ByName::of(backward))]);
        let blocks = self.report.blocks.iter();
        blocks.map(|(name, one)| (name.as_str(), passes(one.forward.named(), one.backward.named()))).collect()
    }

    /// The options of the layout: arguments of `nvcoll.training.plan`; empty for a step that was not planned here.
    #[getter]
    fn layout<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        as_objects(py, &or_empty(self.options()))
    }

    /// What was planned: model, layout and software; empty for a step that was not planned here.
    #[getter]
    #[pyo3(name = "request")]
    fn asked<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        as_objects(py, &or_empty(self.request()))
    }

    /// Returns the price of training on some tokens, in the currency of ``per_gpu_hour``.
    ///
    /// Raises:
    ///     InvalidArgument: the number of tokens of the step is not known.
    #[pyo3(signature = (per_gpu_hour, tokens=1e12))]
    fn dollars(&self, py: Python<'_>, per_gpu_hour: f64, tokens: f64) -> PyResult<f64> {
        let rate = self.report.tokens_per_second.filter(|&rate| rate > 0.0);
        let unknown = "it is not known how many tokens the step has: add its `tokens`, or pass --tokens";
        Ok(tokens / rate.ok_or_else(|| invalid(py, unknown))? / 3600.0 * per_gpu_hour)
    }

    /// Returns it with all times scaled; rates follow.
    fn scaled(&self, py: Python<'_>, scale: f64) -> Self {
        self.copied(py, self.report.scaled(scale))
    }

    /// Compares the prediction with a step that was measured.
    ///
    /// Args:
    ///     measured_s: seconds of the step, the median of several.
    ///
    /// Raises:
    ///     InvalidArgument: it is not a positive number, or more than noise differs.
    fn calibrated(&self, py: Python<'_>, measured_s: f64) -> PyResult<Calibration> {
        self.report.measured(measured_s).map(Calibration).map_err(|error| of_step(py, &error))
    }

    /// Returns everything as plain objects, for JSON: the step by its name, and None where something is unknown.
    #[pyo3(signature = () -> "dict")]
    fn to_dict<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let row = as_objects(slf.py(), &slf.get().report)?;
        row.set_item("machine", &slf.get().machine.get().hardware().name)?;
        for name in ["layout", "computes_s", "exposed_s", "idle_s", "limit", "request"] {
            row.set_item(name, slf.getattr(name)?)?;
        }
        Ok(row)
    }

    /// Returns what `pickle` and `copy` need.
    #[pyo3(signature = () -> "tuple[Any, ...]")]
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, SavedPrediction)> {
        let (py, one) = (slf.py(), slf.get());
        let (is_planned, priced) = match &one.priced {
            StepSource::Request(request) => (true, saved(request)),
            StepSource::Step(step) => (false, step.get().0.to_json()),
        };
        Ok((slf.get_type().getattr("_restored")?, (one.machine.clone_ref(py), saved(&one.report), is_planned, priced)))
    }

    // For pickle.
    #[staticmethod]
    fn _restored(py: Python<'_>, machine: Py<Fabric>, report: &str, is_planned: bool, priced: &str) -> PyResult<Self> {
        let report = serde_json::from_str(report).map_err(|error| unread(py, &error))?;
        let priced = if is_planned {
            StepSource::Request(serde_json::from_str(priced).map_err(|error| unread(py, &error))?)
        } else {
            let step = Step::from_json(priced).map_err(|error| of_step(py, &error))?;
            StepSource::Step(Py::new(py, WorkStep(step))?)
        };
        Ok(Self { report, machine, priced })
    }

    fn __eq__(&self, other: &Self) -> bool {
        let is_same = match (&self.priced, &other.priced) {
            (StepSource::Request(one), StepSource::Request(other)) => one == other,
            (StepSource::Step(one), StepSource::Step(other)) => one.get().0 == other.get().0,
            _ => false,
        };
        is_same && self.report == other.report && self.machine.get() == other.machine.get()
    }

    /// Returns one line with units: step, machine, time with its 90 % interval, memory.
    fn __repr__(&self) -> String {
        let [time, interval] = [vec![self.report.seconds], vec![self.report.low_s, self.report.high_s]]
            .map(|seconds| timed(&seconds.iter().map(|one| one * 1e6).collect::<Vec<_>>()));
        let fit = self.report.fit.map_or("memory not known", Fit::title);
        let layout = self.request().map_or(String::new(), |request| format!(", {}", request.layout));
        let (step, machine) = (&self.report.step, &self.machine.get().hardware().name);
        format!(
            "<StepPrediction {step}{layout}, {machine}: {time} (90 %: {interval}), {:.0} GiB, {fit}>",
            self.memory_gib()
        )
    }

    /// Returns a table for notebooks.
    #[pyo3(signature = () -> "str")]
    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        in_notebook("step_html", slf.as_any())
    }
}
