//! The builder of steps on streams, for the dry run and for readers of traces.

use std::collections::BTreeMap;

use pyo3::prelude::*;
use serde::de::value::{Error as Refused, StrDeserializer};
use serde::de::IntoDeserializer;
use serde::Deserialize;

use nvcoll_fabric::predict::{Pattern, Server};
use nvcoll_step::attention::Attention;
use nvcoll_step::builder::{group_word as word, Issue, StreamsBuilder, Totals};
use nvcoll_step::constants::Constants;
use nvcoll_step::layout::Dtype;
use nvcoll_step::memory::{MemoryPart, RankMemory};
use nvcoll_step::software::AttentionKernel;
use nvcoll_step::step::streams::HostClock;
use nvcoll_step::step::work::{Awaited, Direction, MoveRate, StepWork, Way};

use super::{of_step, WorkStep};
use crate::error::invalid;

/// Allocated and reserved bytes, bytes by part, and lines at the peak, innermost last.
type AllocatorMemory = (f64, f64, BTreeMap<String, f64>, Vec<String>);

/// Returns the value of a word of the JSON of steps.
fn named<'w, T: Deserialize<'w>>(py: Python<'_>, word: &'w str) -> PyResult<T> {
    let from: StrDeserializer<'w, Refused> = word.into_deserializer();
    T::deserialize(from).map_err(|error| invalid(py, error.to_string()))
}

/// Returns the part of the layout that the description of a process group names, as ``tp``; None: it names none, or several.
#[pyfunction]
pub(crate) fn group_word(description: &str) -> Option<&'static str> {
    word(description)
}

/// Makes a recorded step, operation by operation.
///
/// `group` and `rank` come first, then operations of ranks, then `finish`. Groups get names and kinds from what frameworks call them, or from
/// their calls; events for which nothing waits are left out.
///
/// Args:
///     name: of the step, for people.
///     gpus: the number of GPUs.
///     gpu: the model of GPU for which its kernels were chosen, as ``h100-sxm``.
#[pyclass(module = "nvcoll")]
pub(crate) struct StepBuilder(StreamsBuilder);

#[pymethods]
impl StepBuilder {
    #[new]
    #[pyo3(signature = (name, *, gpus, gpu))]
    fn new(name: &str, gpus: u32, gpu: &str) -> Self {
        Self(StreamsBuilder::new(name, gpus, gpu))
    }

    /// Returns the number of the group of a rank; the same group has the same number.
    ///
    /// Args:
    ///     ranks: its ranks.
    ///     rank: one of them that is recorded.
    ///     called: what the framework calls it, as ``mesh_tp``.
    ///
    /// Raises:
    ///     InvalidArgument: it has no ranks, or one twice.
    #[pyo3(signature = (ranks, *, rank, called=""))]
    fn group(&mut self, py: Python<'_>, ranks: Vec<u32>, rank: u32, called: &str) -> PyResult<usize> {
        self.0.group(&ranks, rank, called).map_err(|error| of_step(py, &error))
    }

    /// Returns the number of a group if only its size and stride are known.
    #[pyo3(signature = (size, stride, *, called=""))]
    fn shape(&mut self, size: u32, stride: u32, called: &str) -> usize {
        self.0.shape(size, stride, called)
    }

    /// Adds a rank.
    ///
    /// Args:
    ///     number: the rank.
    ///     stands_for: the number of ranks that do the same.
    ///     name: of these ranks.
    ///     operators: operators that the processor dispatched. Default: one for each operation of the GPU.
    ///     timed: whether operations `host` have all time of the processor: launches take none.
    ///     memory: allocated and reserved bytes, bytes by part, and lines at the peak, innermost last. Default: not known.
    #[pyo3(
        signature = (
            number, *, stands_for, name, operators=None, timed=false,
            memory: "tuple[float, float, Mapping[str, float], Sequence[str]] | None" = None
        )
    )]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    fn rank(
        mut slf: PyRefMut<'_, Self>,
        py: Python<'_>,
        number: u32,
        stands_for: u32,
        name: &str,
        operators: Option<f64>,
        timed: bool,
        memory: Option<AllocatorMemory>,
    ) -> PyResult<RankBuilder> {
        let host = if timed { HostClock::Timed } else { HostClock::Launches { operators, spread: None } };
        let part = |(name, &bytes): (&String, &f64)| Ok(MemoryPart { name: named(py, name)?, bytes });
        let memory = match memory {
            None => None,
            Some((allocated, reserved, parts, stack)) => {
                let parts = parts.iter().map(part).collect::<PyResult<Vec<_>>>()?;
                Some(RankMemory::Allocator { allocated, reserved, parts, stack })
            }
        };
        let at = slf.0.rank(number, stands_for, name, host, memory);
        Ok(RankBuilder { step: slf.into(), at })
    }

    /// Returns the name of a group in the finished step.
    ///
    /// Raises:
    ///     InvalidArgument: the step is not finished, or there is no such group.
    fn name_of(&self, py: Python<'_>, group: usize) -> PyResult<String> {
        let name = self.0.name_of(group).map(str::to_owned);
        name.ok_or_else(|| invalid(py, format!("there is no group {group} in a finished step: call `finish` first")))
    }

    /// Adds an assumption.
    fn note(&mut self, text: &str) {
        self.0.note(text);
    }

    /// The assumptions, each once.
    #[getter]
    fn notes(&self) -> Vec<String> {
        self.0.notes().to_vec()
    }

    /// Makes the step.
    ///
    /// Args:
    ///     tokens: of all ranks. Default: not known.
    ///     dtype: the precision of most products. Default: found in the operations.
    ///     has_passes: whether operations of the backward pass were marked: then FLOPs of the model are known.
    ///
    /// Raises:
    ///     InvalidArgument: the step contradicts itself.
    #[pyo3(signature = (*, tokens=None, dtype=None, has_passes=false))]
    fn finish(
        &mut self,
        py: Python<'_>,
        tokens: Option<f64>,
        dtype: Option<&str>,
        has_passes: bool,
    ) -> PyResult<WorkStep> {
        let dtype: Option<Dtype> = dtype.map(|word| named(py, word)).transpose()?;
        let step = self.0.finish(Totals { tokens, dtype, has_passes }).map_err(|error| of_step(py, &error))?;
        Ok(WorkStep(step))
    }
}

/// When and where an operation is issued, and what people call it.
///
/// Args:
///     stream: its stream.
///     name: its name; of work that moves bytes and of known time, it tells the part of the time.
///     line: the line of the script.
///     backward: whether it is of the backward pass.
///     by_graph: whether a CUDA graph launched it.
///     together: the number of a group call.
#[pyclass(name = "Issue", module = "nvcoll", frozen)]
pub(crate) struct IssueOf(Issue);

#[pymethods]
impl IssueOf {
    #[new]
    #[pyo3(signature = (stream, name="", *, line=None, backward=false, by_graph=false, together=None))]
    fn new(
        stream: u32,
        name: &str,
        line: Option<String>,
        backward: bool,
        by_graph: bool,
        together: Option<u64>,
    ) -> Self {
        Self(Issue { stream, name: name.to_owned(), line, is_backward: backward, by_graph, together })
    }
}

/// Adds the operations of one rank, in the order in which its processor issued them. Each returns its handle.
#[pyclass(module = "nvcoll", frozen)]
pub(crate) struct RankBuilder {
    step: Py<StepBuilder>,
    at: usize,
}

impl RankBuilder {
    fn add(&self, py: Python<'_>, issue: &IssueOf, work: StepWork) -> usize {
        self.step.borrow_mut(py).0.op(self.at, issue.0.clone(), work)
    }
}

#[pymethods]
#[expect(clippy::too_many_arguments, reason = "keywords of Python")]
impl RankBuilder {
    /// Adds products of (m, k) and (k, n) in one kernel, which moves ``nbytes`` (default: of the matrices). Of these ``widened`` are weights of
    /// fewer bits than the products, which take longer to read.
    #[pyo3(signature = (issue, m, n, k, *, dtype, batch=1.0, experts=false, nbytes=None, widened=0.0))]
    fn gemm(
        &self,
        py: Python<'_>,
        issue: &IssueOf,
        m: f64,
        n: f64,
        k: f64,
        dtype: &str,
        batch: f64,
        experts: bool,
        nbytes: Option<f64>,
        widened: f64,
    ) -> PyResult<usize> {
        let (dtype, experts) = (named(py, dtype)?, experts.then_some(1.0));
        let bytes = nbytes.map(|all| all + (Constants::shipped().widened_weights - 1.0) * widened);
        let work = StepWork::Gemm { m, n, k, batch, dtype, experts, bytes };
        Ok(self.add(py, issue, work))
    }

    /// Adds attention of all heads of the rank, which moves ``nbytes``. ``again`` says that its kernel is one of the backward pass.
    #[pyo3(signature = (issue, queries, keys, *, sequences, heads, qk_dim, v_dim, kernel, again=false, causal=true, nbytes=None))]
    fn attention(
        &self,
        py: Python<'_>,
        issue: &IssueOf,
        queries: f64,
        keys: f64,
        sequences: f64,
        heads: f64,
        qk_dim: f64,
        v_dim: f64,
        kernel: &str,
        again: bool,
        causal: bool,
        nbytes: Option<f64>,
    ) -> PyResult<usize> {
        let kernel: AttentionKernel = named(py, kernel)?;
        let (window, backward, bytes) = (None, again, nbytes);
        let work =
            Attention { queries, keys, window, sequences, heads, qk_dim, v_dim, kernel, backward, causal, bytes };
        Ok(self.add(py, issue, StepWork::Attention(work)))
    }

    /// Adds kernels that read and write bytes. ``flops`` count for the model, and take no time. ``bound``: of the kernels only the bytes of their
    /// arguments are known.
    #[pyo3(signature = (issue, nbytes, *, launches=1.0, flops=0.0, bound=false))]
    fn r#move(&self, py: Python<'_>, issue: &IssueOf, nbytes: f64, launches: f64, flops: f64, bound: bool) -> usize {
        let rate = if bound { MoveRate::Bound } else { MoveRate::Counted };
        self.add(py, issue, StepWork::Move { bytes: nbytes, launches, rate, flops })
    }

    /// Adds one more launch, of some bytes, to kernels that move bytes. Returns whether the operation of the handle is such.
    fn more(&self, py: Python<'_>, handle: usize, nbytes: f64) -> bool {
        self.step.borrow_mut(py).0.more(self.at, handle, nbytes)
    }

    /// Adds a copy: ``h2d``, ``d2h`` or ``d2d``.
    fn copy(&self, py: Python<'_>, issue: &IssueOf, nbytes: f64, direction: &str) -> PyResult<usize> {
        let direction: Direction = named(py, direction)?;
        Ok(self.add(py, issue, StepWork::Copy { bytes: nbytes, direction }))
    }

    /// Adds a kernel of known time.
    fn timed(&self, py: Python<'_>, issue: &IssueOf, seconds: f64) -> usize {
        self.add(py, issue, StepWork::Timed { seconds })
    }

    /// Adds time of the processor.
    fn host(&self, py: Python<'_>, seconds: f64) -> usize {
        self.add(py, &IssueOf(Issue::default()), StepWork::Host { seconds })
    }

    /// Records an event on a stream.
    fn record(&self, py: Python<'_>, issue: &IssueOf, event: u64) -> usize {
        self.add(py, issue, StepWork::Record { event })
    }

    /// Makes a stream wait for an event.
    fn wait(&self, py: Python<'_>, issue: &IssueOf, event: u64) -> usize {
        self.add(py, issue, StepWork::StreamWait { event })
    }

    /// Makes the processor wait for all work, or for a stream or an event.
    #[pyo3(signature = (*, stream=None, event=None, by_graph=false))]
    fn host_wait(&self, py: Python<'_>, stream: Option<u32>, event: Option<u64>, by_graph: bool) -> usize {
        let target = stream.map(Awaited::Stream).or(event.map(Awaited::Event)).unwrap_or(Awaited::Device);
        self.add(py, &IssueOf(Issue { by_graph, ..Issue::default() }), StepWork::HostWait { target })
    }

    /// Adds a collective of a group. ``share``: the bytes are one rank's; nccl-tests counts the bytes of all ranks. ``server``: the
    /// model server that makes it, as ``vllm``; else NCCL does.
    #[pyo3(signature = (issue, pattern, nbytes, group, *, share=false, server=None))]
    fn collective(
        &self,
        py: Python<'_>,
        issue: &IssueOf,
        pattern: &str,
        nbytes: f64,
        group: usize,
        share: bool,
        server: Option<&str>,
    ) -> PyResult<usize> {
        let pattern = Pattern::named(pattern).map_err(|error| invalid(py, error.to_string()))?;
        let server = server.map(|name| named::<Server>(py, name)).transpose()?;
        let mut step = self.step.borrow_mut(py);
        let made = step.0.collective(self.at, issue.0.clone(), pattern, nbytes, group, share, server);
        made.map_err(|error| of_step(py, &error))
    }

    /// Adds a message that is sent (``send``) to a peer, or received (``recv``) from it. A group gives it name and tag.
    #[pyo3(signature = (issue, way, nbytes, peer, *, group=None, tag=0))]
    fn message(
        &self,
        py: Python<'_>,
        issue: &IssueOf,
        way: &str,
        nbytes: f64,
        peer: u32,
        group: Option<usize>,
        tag: u64,
    ) -> PyResult<usize> {
        let work = StepWork::Message { way: named::<Way>(py, way)?, bytes: nbytes, peer, tag };
        let made = self.step.borrow_mut(py).0.message(self.at, issue.0.clone(), work, group);
        made.map_err(|error| of_step(py, &error))
    }

    /// Makes a stream wait for operations of other streams; None: the processor waits.
    fn after(&self, py: Python<'_>, stream: Option<u32>, handles: Vec<usize>) {
        self.step.borrow_mut(py).0.after(self.at, stream, &handles);
    }

    /// Returns the position of an operation in the finished step; -1: it was left out.
    fn place(&self, py: Python<'_>, handle: usize) -> i64 {
        self.step.borrow(py).0.place(self.at, handle).map_or(-1, |place| place as i64)
    }
}
