//! The answer for a model server, for Python: what `nvcoll serve` prints, as attributes.

use pyo3::prelude::*;

use nvcoll_step::serving::price::ServingReport;
use nvcoll_step::serving::ServingRequest;

use super::json;
use super::prediction::as_objects;
use crate::machines::fabric::Fabric;
use crate::rows::ByName;
use crate::units::timed;

/// What requests see of a model server on a machine: times, tokens per second, the cache, and what limits. `nvcoll.serving.serve` makes it.
#[pyclass(module = "nvcoll.serving", frozen)]
pub(crate) struct ServingPrediction {
    report: ServingReport,
    machine: Py<Fabric>,
    request: ServingRequest,
}

impl ServingPrediction {
    pub(super) const fn of(report: ServingReport, machine: Py<Fabric>, request: ServingRequest) -> Self {
        Self { report, machine, request }
    }
}

attributes! { ServingPrediction(found) {
    /// The number of GPUs.
    gpus: u32 = found.report.gpus,
    /// The layout in words.
    words: String = found.request.layout.to_string(),
    /// Tokens for which the cache of one server has room.
    cache_tokens: f64 = found.report.cache_tokens,
    /// GiB of the cache on a GPU.
    cache_gib: f64 = found.report.cache_gib,
    /// GiB of weights on a GPU.
    weights_gib: f64 = found.report.weights_gib,
    /// Requests of the mean length for which there is room at once.
    at_once: f64 = found.report.at_once,
    /// Mean seconds until the first token of a request.
    ttft_s: f64 = found.report.ttft_s,
    /// Mean seconds of each token after it.
    tpot_s: f64 = found.report.tpot_s,
    /// Generated tokens per second and GPU.
    tokens_per_second: f64 = found.report.tokens_per_second,
    /// The ends of the 90 % interval of `ttft_s`.
    ttft_90: [f64; 2] = found.report.ttft_90,
    /// The ends of the 90 % interval of `tpot_s`.
    tpot_90: [f64; 2] = found.report.tpot_90,
    /// The ends of the 90 % interval of `tokens_per_second`.
    tokens_per_second_90: [f64; 2] = found.report.tokens_per_second_90,
    /// Sequences of which a server generates a token at once, mean over time.
    batch: f64 = found.report.batch,
    /// Seconds of an iteration that generates a token of as many sequences, by part of the time.
    decode: ByName = ByName::of(found.report.decode.parts.named()),
    /// Seconds of an iteration that reads a prompt, or a chunk of one, by part of the time.
    prefill: ByName = ByName::of(found.report.prefill.parts.named()),
    /// Seconds of a token in which collectives are exposed.
    exposed_s: f64 = found.report.decode.exposed_s(),
    /// What limits the tokens per second, in words.
    limit: &str = &found.report.limit,
    /// Whether requests come faster than they are served.
    is_saturated: bool = found.report.is_saturated,
    /// What the answer assumes, and why its interval is wider than usual.
    notes: Vec<String> = found.report.notes.clone(),
} }

#[pymethods]
impl ServingPrediction {
    /// The machine.
    #[getter]
    fn machine(&self, py: Python<'_>) -> Py<Fabric> {
        self.machine.clone_ref(py)
    }

    /// What was asked: model, software, layout, precision, load, and what drafts tokens.
    #[getter]
    #[pyo3(name = "request")]
    fn asked<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        as_objects(py, &self.request)
    }

    /// Returns everything as JSON: the answer, and what was asked.
    fn to_json(&self) -> String {
        json(&(&self.report, &self.request))
    }

    /// Returns one line with units.
    fn __repr__(&self) -> String {
        let [first, each] = [self.report.ttft_s, self.report.tpot_s].map(|seconds| timed(&[seconds * 1e6]));
        let (model, machine) = (&self.request.model.name, &self.machine.get().hardware().name);
        format!(
            "<ServingPrediction {model}, {}, {machine}: {first} to the first token, {each} for each>",
            self.request.layout
        )
    }
}
