//! NCCL's tuning model for Python: the algorithm it selects on a fabric, and its estimate.

use pyo3::prelude::*;

use nvcoll_core::collective::Collective;
use nvcoll_core::words::counted;
use nvcoll_fabric::nccl::{Candidate, Model, NcclSettings};
use nvcoll_fabric::units::PS_PER_US;
use nvcoll_fabric::Result;

use crate::error::of_fabric;
use crate::machines::fabric::Fabric;
use crate::machines::settings::settings_of;
use crate::schedules::schedule::collective_named;
use crate::sizes::sizes_of;
use crate::units::{sized, timed};

/// An algorithm and a protocol that NCCL weighs for a call of one size.
///
/// Example:
///     >>> import nvcoll
///     >>> estimate = nvcoll.fabric("hgx-h100").nccl("all_reduce", "1G")
///     >>> [one.algorithm for one in estimate.candidates if one.protocol == "Simple"]
///     ['NVLS', 'Ring', 'Tree', 'NVLSTree', 'PAT']
#[pyclass(frozen, get_all, module = "nvcoll")]
pub(crate) struct NcclCandidate {
    /// The algorithm as NCCL prints it: `Tree`, `Ring`, `NVLS`, `NVLSTree`, `PAT`.
    algorithm: &'static str,
    /// The protocol as NCCL prints it: `LL`, `LL128`, `Simple`.
    protocol: &'static str,
    /// The most channels that the call has; 0 if the pair is not considered.
    channels: u32,
    /// NCCL's own estimate, in microseconds; None if the pair is not considered.
    time_us: Option<f64>,
    /// Bytes over the estimate, decimal GB/s; None if there is no estimate or it is 0.
    algbw: Option<f64>,
    /// algbw times nccl-tests' factor, decimal GB/s.
    busbw: Option<f64>,
    /// The reason why the pair is not considered; None if it is.
    why_disabled: Option<&'static str>,
}

impl NcclCandidate {
    fn of(candidate: &Candidate, nbytes: u64, bus_factor: f64) -> Self {
        let time_us = candidate.time_ps.map(|ps| ps as f64 / PS_PER_US as f64);
        let algbw = time_us.filter(|&us| us > 0.0).map(|us| nbytes as f64 / us / 1e3);
        Self {
            algorithm: candidate.algorithm.name(),
            protocol: candidate.protocol.name(),
            channels: candidate.channels,
            time_us,
            algbw,
            busbw: algbw.map(|algbw| algbw * bus_factor),
            why_disabled: candidate.why_disabled,
        }
    }
}

#[pymethods]
impl NcclCandidate {
    fn __repr__(&self) -> String {
        let what = match (self.time_us, self.why_disabled) {
            (Some(us), _) => format!("{}, {}", timed(&[us]), counted(self.channels, "channel")),
            (None, why) => format!("not considered: {}", why.unwrap_or("no time")),
        };
        format!("<nvcoll.NcclCandidate {} {}: {what}>", self.algorithm, self.protocol)
    }
}

/// The algorithm that NCCL's tuning model selects for a call of one size, and its estimate. Made by :meth:`Fabric.nccl`.
///
/// Example:
///     >>> import nvcoll
///     >>> estimate = nvcoll.fabric("hgx-h100").nccl("all_reduce", "1G")
///     >>> estimate.chosen.algorithm, estimate.chosen.protocol
///     ('NVLS', 'Simple')
#[pyclass(frozen, get_all, module = "nvcoll")]
pub(crate) struct NcclEstimate {
    /// The size in bytes, as nccl-tests counts it.
    nbytes: u64,
    /// The tag of NCCL whose constants these are, as `v2.27.7-1`.
    tag: String,
    /// Whether NCCL found no ring and runs one channel as a last resort. Its estimates then mean nothing.
    is_last_resort: bool,
    /// The candidates: first the selected one, then the others by estimate, then candidates that NCCL does not consider.
    candidates: Vec<Py<NcclCandidate>>,
}

#[pymethods]
impl NcclEstimate {
    /// The candidate that NCCL selects: the first one.
    #[getter]
    fn chosen(&self, py: Python<'_>) -> Py<NcclCandidate> {
        self.candidates[0].clone_ref(py)
    }

    fn __repr__(&self) -> String {
        let first = self.candidates[0].get();
        let doubt = if self.is_last_resort { ", a last resort: the estimate means nothing" } else { "" };
        let (bytes, time) = (sized(self.nbytes), first.time_us.map_or_else(|| "no time".to_owned(), |us| timed(&[us])));
        let (algorithm, protocol) = (first.algorithm, first.protocol);
        format!("<nvcoll.NcclEstimate {bytes}: {algorithm} {protocol}, {time}, NCCL {}{doubt}>", self.tag)
    }
}

#[pymethods]
impl Fabric {
    /// Returns the algorithm that NCCL's tuning model selects for a collective among all GPUs, and its estimate.
    ///
    /// The model is a port of the public source. It answers which algorithm NCCL selects, not how long a call takes: it has no
    /// term for the launch of a call or for filling a pipeline. The Rust module `nvcoll_fabric::nccl` lists its known
    /// differences. :meth:`predict` predicts the time.
    ///
    /// Args:
    ///     collective: all_reduce, all_gather, reduce_scatter, broadcast or reduce: NCCL models no other.
    ///     nbytes: a size in bytes, a text such as `"1G"`, or several sizes. nccl-tests' count: of all ranks together for all_gather
    ///         and reduce_scatter.
    ///     version: a version of NCCL, as ``2.27.7`` or ``2.27``. Default: the newest whose release was read. Another version has
    ///         the constants of the last known version before it.
    ///     settings: environment variables of NCCL, as ``{"NCCL_ALGO": "Tree"}``; ``docs/predict/predictions.md`` lists them. Default: none
    ///         is set.
    ///
    /// Returns:
    ///     An `NcclEstimate`, in microseconds; for several sizes a list in their order.
    ///
    /// Raises:
    ///     InvalidArgument: NCCL has no model of the collective; a size or a version is unknown; NCCL does not know a GPU or a link;
    ///         a setting is unknown, has a wrong value, is not read by the version, or leaves NCCL no algorithm.
    ///
    /// Source: github.com/NVIDIA/nccl, src/graph/tuning.cc and search.cc, at the tags of ``versions.toml``.
    #[pyo3(
        signature = (
            collective, nbytes: "_Size", *, version=None, settings: "Mapping[str, str | int] | None" = None
        ) -> "NcclEstimate"
    )]
    fn nccl<'py>(
        &self,
        py: Python<'py>,
        collective: &str,
        nbytes: &Bound<'py, PyAny>,
        version: Option<&str>,
        settings: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let contract = collective_named(py, collective)?;
        let (sizes, settings) = (sizes_of(nbytes)?, settings_of(settings)?);
        sizes.answers(py, self.weighed(py, contract, sizes.all(), version, &settings)?)
    }
}

impl Fabric {
    fn weighed(
        &self,
        py: Python<'_>,
        collective: &'static Collective,
        sizes: &[u64],
        version: Option<&str>,
        settings: &NcclSettings,
    ) -> PyResult<Vec<NcclEstimate>> {
        let version = version.unwrap_or(Model::newest());
        let weigh = || -> Result<(Model, Vec<Vec<Candidate>>)> {
            let model = Model::with_settings(version, self.hardware(), settings)?;
            let rows = sizes.iter().map(|&nbytes| in_order(&model, collective, nbytes)).collect::<Result<_>>()?;
            Ok((model, rows))
        };
        let (model, rows) = py.detach(weigh).map_err(|error| of_fabric(py, &error))?;
        let bus_factor = (collective.bus_factor)(self.hardware().world_size());
        let estimate = |(&nbytes, row): (&u64, &Vec<Candidate>)| {
            let candidates = row.iter().map(|one| Py::new(py, NcclCandidate::of(one, nbytes, bus_factor)));
            let candidates = candidates.collect::<PyResult<_>>()?;
            Ok(NcclEstimate { nbytes, tag: model.tag().to_owned(), is_last_resort: model.is_last_resort(), candidates })
        };
        sizes.iter().zip(&rows).map(estimate).collect()
    }
}

/// Sorts the candidates of a size by time, those without a time last.
fn in_order(model: &Model, collective: &Collective, nbytes: u64) -> Result<Vec<Candidate>> {
    model.choice(collective, nbytes)?;
    let mut candidates = model.candidates(collective, nbytes)?;
    // The sort is stable: among equals NCCL takes the first.
    candidates.sort_by_key(|candidate| (candidate.time_ps.is_none(), candidate.time_ps));
    Ok(candidates)
}

/// Returns the versions of NCCL with known constants, from the oldest.
#[pyfunction]
pub(crate) fn nccl_versions() -> Vec<&'static str> {
    Model::versions()
}
