//! Predictions for Python: how long a collective of NCCL takes on a fabric.

use std::collections::HashMap;
use std::fmt::{self, Display, Formatter};
use std::hash::{DefaultHasher, Hash, Hasher};

use pyo3::prelude::*;
use pyo3::types::PyDict;

use nvcoll_fabric::nccl::{NcclAlgorithm, Protocol};
use nvcoll_fabric::predict::constants::{self, Constants};
use nvcoll_fabric::predict::{AlgorithmFilter, Candidates, CollectiveCall, Launch, Pattern, Predictor, Server};
use nvcoll_fabric::Result;

use crate::error::of_fabric;
use crate::machines::fabric::Fabric;
use crate::machines::settings::settings_of;
use crate::pickled::pickled;
use crate::rows::{ConstantRow, PatternRow};
use crate::schedules::schedule::in_notebook;
use crate::sizes::sizes_of;
use crate::units::{sized, timed};

/// The predicted time of a call of one size. Made by :meth:`Fabric.predict`.
///
/// Example:
///     >>> import nvcoll
///     >>> prediction = nvcoll.predict("all_reduce", "1G", on="hgx-h100")
///     >>> prediction.algorithm, prediction.low_us < prediction.time_us < prediction.high_us
///     ('NVLS', True)
#[pyclass(frozen, get_all, eq, module = "nvcoll")]
#[derive(PartialEq)]
pub(crate) struct Prediction {
    /// The name of the fabric.
    fabric: String,
    /// The name of the collective.
    collective: String,
    /// The size in bytes, as nccl-tests counts it.
    nbytes: u64,
    /// How the call is launched, as of :meth:`Fabric.predict`.
    launch: String,
    /// The algorithm as NCCL prints it: `Ring`, `Tree`, `NVLS`, `NVLSTree`; `SendRecv` for what it builds of sends and receives. Of a
    /// model server, its kernel.
    algorithm: String,
    /// The protocol as NCCL prints it: `LL`, `LL128`, `Simple`. Empty for a kernel of a model server.
    protocol: String,
    /// What runs the call: `NCCL`, or a model server and its kernel, as `vLLM one_shot`.
    implementation: String,
    /// The most channels that NCCL gives the call, or one message of a call of sends; None if NCCL's choice is not known.
    channels: Option<u32>,
    /// The predicted time in microseconds; never less than the lower bound.
    time_us: f64,
    /// The lower end of the 90 % interval, in microseconds.
    low_us: f64,
    /// The upper end of the 90 % interval, in microseconds.
    high_us: f64,
    /// Bytes over the time, decimal GB/s.
    algbw: f64,
    /// algbw times nccl-tests' factor, decimal GB/s.
    busbw: f64,
    /// The lower bound in microseconds: no schedule takes less, on the machine as the settings leave it.
    floor_us: f64,
    /// The estimate of NCCL's own tuning model, in microseconds; None where it has no model or is at its last resort.
    nccl_us: Option<f64>,
    /// The part of the machine that takes most of the time, in words.
    bottleneck: String,
    /// The same without its share: predictions with the same words are limited alike.
    limited_by: String,
    /// The parts of the time: (name, microseconds). They add up to `time_us`.
    parts: Vec<(String, f64)>,
    /// The accuracy of predictions of such sizes on such machines, as `validated on 9 systems` or `not validated`.
    trust: String,
    /// Whether measurements of such calls on such machines were compared with predictions.
    is_validated: bool,
    /// What chooses the algorithm: NCCL's cost model, the rule of a model server, or rings, with the reason.
    choice: String,
    /// Whether NCCL's cost model chooses it.
    is_by_nccl: bool,
}

pickled!(Prediction: fabric, collective, nbytes, launch, algorithm, protocol, implementation, channels, time_us, low_us, high_us, algbw, busbw, floor_us,
    nccl_us, bottleneck, limited_by, parts, trust, is_validated, choice, is_by_nccl);

#[pymethods]
impl Prediction {
    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.fabric, &self.collective, self.nbytes, self.time_us.to_bits()).hash(&mut hasher);
        hasher.finish()
    }

    fn __repr__(&self) -> String {
        format!("<nvcoll.Prediction {self}>")
    }

    /// Returns one line with units: call, time with its 90 % interval, bus bandwidth, algorithm, accuracy.
    fn __str__(&self) -> String {
        self.to_string()
    }

    /// Returns a table for notebooks.
    #[pyo3(signature = () -> "str")]
    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        in_notebook("prediction_html", slf.as_any())
    }
}

impl Display for Prediction {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (time, interval) = (timed(&[self.time_us]), timed(&[self.low_us, self.high_us]));
        let Self { collective, fabric, busbw, trust, .. } = self;
        let by = match self.implementation.as_str() {
            "NCCL" => format!("{} {}", self.algorithm, self.protocol),
            server => server.to_owned(),
        };
        let bytes = sized(self.nbytes);
        write!(f, "{collective} of {bytes} on {fabric}: {time} (90 %: {interval}), ")?;
        write!(f, "{busbw:.1} GB/s busbw, {by}, {trust}")
    }
}

/// Reads the arguments of a prediction.
fn call_of(collective: &str, launch: &str, algorithm: Option<&str>, protocol: Option<&str>) -> Result<CollectiveCall> {
    let algorithm = algorithm.map(NcclAlgorithm::named).transpose()?;
    let protocol = protocol.map(Protocol::named).transpose()?;
    let forced = AlgorithmFilter { algorithm, protocol };
    Ok(CollectiveCall { pattern: Pattern::named(collective)?, launch: Launch::named(launch)?, forced })
}

#[pymethods]
impl Fabric {
    /// Predicts how long a collective of NCCL takes among all GPUs.
    ///
    /// NCCL's tuning model selects the algorithm; closed forms over physical constants give the time. The constants and
    /// their accuracy are in ``docs/predict/predictions.md``.
    ///
    /// Args:
    ///     collective: all_reduce, all_gather, reduce_scatter, broadcast, reduce, all_to_all, gather, scatter; or sendrecv,
    ///         nccl-tests' own.
    ///     nbytes: a size in bytes, a text such as `"1G"`, or several sizes. nccl-tests' count: of all ranks together for all_gather
    ///         and reduce_scatter.
    ///     launch: ``process_per_gpu``: a process per GPU; ``single_process``: one process for all GPUs of a node;
    ///         ``framework``: a process per GPU that calls from torch or a similar framework.
    ///     algorithm: an algorithm of NCCL, as ``Ring``, in any case. Default: NCCL's tuning model selects it.
    ///     protocol: a protocol of NCCL, as ``LL``, in any case. Default: the one that NCCL chooses.
    ///     version: a version of NCCL, as ``2.27.7``. Default: the newest whose release was read.
    ///     settings: environment variables of NCCL, as ``{"NCCL_ALGO": "Tree"}``; ``docs/predict/predictions.md`` lists them. Default: none
    ///         is set.
    ///     as_: ``vllm``, ``sglang`` or ``trtllm``: the all_reduce of bf16 as this model server runs it in a CUDA graph. Its rule chooses
    ///         one of its kernels or NCCL. Default: NCCL.
    ///
    /// Returns:
    ///     A `Prediction`, in microseconds; for several sizes a list in their order. A fabric keeps the work that is equal for
    ///     all sizes.
    ///
    /// Raises:
    ///     InvalidArgument: a name or a version is unknown; the fabric cannot run the algorithm or the protocol; the fabric has
    ///         one GPU, or nodes that differ; a setting is unknown, has a wrong value, is not read by the version, or changes
    ///         the time in a way that nvcoll cannot predict; ``as_`` with another collective than all_reduce, with another launch or a
    ///         forced algorithm, or on a machine whose kernels nvcoll does not know.
    #[pyo3(
        signature = (
            collective, nbytes: "_Size", *, launch: "_Launch" = "process_per_gpu", algorithm=None, protocol=None, version=None,
            settings: "Mapping[str, str | int] | None" = None, as_: "_Server | None" = None
        ) -> "Prediction"
    )]
    #[expect(clippy::too_many_arguments, reason = "the keywords of one Python function")]
    fn predict<'py>(
        &self,
        py: Python<'py>,
        collective: &str,
        nbytes: &Bound<'py, PyAny>,
        launch: &str,
        algorithm: Option<&str>,
        protocol: Option<&str>,
        version: Option<&str>,
        settings: Option<&Bound<'py, PyAny>>,
        as_: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (sizes, settings) = (sizes_of(nbytes)?, settings_of(settings)?);
        let rows = py.detach(|| {
            let call = call_of(collective, launch, algorithm, protocol)?;
            let predictor = self.cache().predictor(self.hardware(), version, &settings)?;
            let find = || call.pattern.floor(Predictor::seen(self.hardware(), &settings)?.as_ref());
            let floor = self.cache().floor(call.pattern.name(), &settings, find)?;
            let server = as_.map(Server::named).transpose()?;
            let predict = |&size: &u64| predictor.predict_as(server, &call, size, &floor);
            let rows = sizes.all().iter().map(predict).collect::<Result<Vec<_>>>()?;
            Ok((predictor, call, rows))
        });
        let (predictor, call, rows) = rows.map_err(|error| of_fabric(py, &error))?;
        let bus_factor = call.pattern.bus_factor(self.hardware().world_size());
        let made = rows.into_iter().map(|row| {
            let algbw = row.nbytes as f64 / row.us / 1e3;
            Prediction {
                fabric: self.hardware().name.clone(),
                collective: call.pattern.name().to_owned(),
                nbytes: row.nbytes,
                launch: call.launch.name().to_owned(),
                algorithm: row.algorithm.to_owned(),
                protocol: row.protocol.to_owned(),
                is_by_nccl: predictor.is_by_nccl() && row.implementation == "NCCL",
                implementation: row.implementation,
                channels: row.channels,
                time_us: row.us,
                low_us: row.low_us,
                high_us: row.high_us,
                algbw,
                busbw: algbw * bus_factor,
                floor_us: row.floor_us,
                nccl_us: row.nccl_us,
                bottleneck: row.bottleneck,
                limited_by: row.limited_by,
                parts: row.parts.into_iter().map(|(name, us)| (name.to_owned(), us)).collect(),
                trust: row.trust,
                is_validated: row.is_validated,
                choice: row.rule.unwrap_or_else(|| predictor.chooses().to_owned()),
            }
        });
        sizes.answers(py, made.collect())
    }
}

/// Predicts the same calls of one fabric for many sets of constants, for `tools/predict/fit.py`. Not public.
///
/// The choice of NCCL, which no constant changes, is made once.
#[pyclass(module = "nvcoll")]
pub(crate) struct Trial {
    predictor: Predictor,
    call: CollectiveCall,
    weighed: Vec<Candidates>,
}

#[pymethods]
impl Trial {
    /// Weighs the calls; arguments as of :meth:`Fabric.predict`.
    #[new]
    #[pyo3(
        signature = (
            fabric, collective, nbytes, *, launch: "_Launch" = "process_per_gpu", algorithm=None, protocol=None, version=None,
            settings: "Mapping[str, str | int] | None" = None
        )
    )]
    #[expect(clippy::too_many_arguments, reason = "the keywords of one Python function")]
    fn new(
        py: Python<'_>,
        fabric: &Fabric,
        collective: &str,
        nbytes: Vec<u64>,
        launch: &str,
        algorithm: Option<&str>,
        protocol: Option<&str>,
        version: Option<&str>,
        settings: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let settings = settings_of(settings)?;
        let made = || {
            let call = call_of(collective, launch, algorithm, protocol)?;
            let predictor = Predictor::with_settings(fabric.hardware(), version, &settings)?;
            let weighed = nbytes.iter().map(|&size| predictor.weigh(&call, size)).collect::<Result<_>>()?;
            Ok(Self { predictor, call, weighed })
        };
        made().map_err(|error| of_fabric(py, &error))
    }

    /// The class, in the table of measurements, to which the fabric belongs.
    #[getter]
    fn fabric_class(&self) -> &'static str {
        self.predictor.class()
    }

    /// The number of nodes; GPUs that an NVSwitch joins are one node.
    #[getter]
    fn nodes(&self) -> u32 {
        self.predictor.nodes()
    }

    /// Returns, for each call, what joins the GPUs of a node and what takes most of the time.
    fn limits(&self) -> Vec<String> {
        self.weighed.iter().map(|weighed| self.predictor.limit(&self.call, weighed)).collect()
    }

    /// Predicts each call in microseconds with other values of constants, without a lower bound and an interval.
    #[pyo3(signature = (values: "Mapping[str, float]"))]
    fn times(&mut self, py: Python<'_>, values: &Bound<'_, PyDict>) -> PyResult<Vec<f64>> {
        let values: HashMap<String, f64> = values.extract()?;
        let values = values.iter().map(|(name, &value)| (name.as_str(), value));
        let constants = Constants::shipped().with(values).map_err(|error| of_fabric(py, &error))?;
        self.predictor.set(&constants);
        Ok(self.weighed.iter().map(|weighed| self.predictor.us(&self.call, weighed)).collect())
    }
}

/// Returns the constants of predictions.
#[pyfunction]
pub(crate) fn constants_of_predictions() -> Vec<ConstantRow> {
    constants::all().iter().map(ConstantRow).collect()
}

/// Returns the patterns that predictions know.
#[pyfunction]
pub(crate) fn patterns() -> Vec<PatternRow> {
    Pattern::ALL.iter().copied().map(PatternRow).collect()
}

/// Returns the names of all launches.
#[pyfunction]
#[pyo3(signature = () -> "list[_Launch]")]
pub(crate) fn launches() -> Vec<&'static str> {
    Launch::ALL.map(Launch::name).to_vec()
}

/// Returns the names of the model servers whose all_reduce is known.
#[pyfunction]
#[pyo3(signature = () -> "list[_Server]")]
pub(crate) fn model_servers() -> Vec<&'static str> {
    Server::ALL.map(Server::name).to_vec()
}

/// Returns the name of a launch.
///
/// Raises:
///     InvalidArgument: the name is unknown.
#[pyfunction]
#[pyo3(signature = (name) -> "_Launch")]
pub(crate) fn launch_named(py: Python<'_>, name: &str) -> PyResult<&'static str> {
    Launch::named(name).map(Launch::name).map_err(|error| of_fabric(py, &error))
}
