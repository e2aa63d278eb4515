//! Timelines: simulated schedules for Python.

use std::hash::{DefaultHasher, Hash, Hasher};

use pyo3::prelude::*;
use pyo3::types::PyDict;

use nvcoll_fabric::simulate::{self, Critical, DelayReason, LinkUse, Timeline as Simulated};
use nvcoll_fabric::units::{Ps, PS_PER_US};

use crate::machines::fabric::Fabric;
use crate::schedules::schedule::{in_notebook, Schedule, Step};
use crate::units::timed;

/// One direction of a link: from, to, bytes that crossed it, busy microseconds.
type LinkRow = (String, String, u64, f64);

/// A step in a tile: rank, queue, step, tile, start and end in microseconds.
type SpanRow = (u32, u32, u32, u32, f64, f64);

/// The arguments of a simulation: the fabric, the schedule, and the others by name.
type TimelineArguments = (Py<Fabric>, Py<Schedule>, Py<PyDict>);

/// A schedule in virtual time: the end of each rank, the load of each link, the critical path.
///
/// Made by :meth:`Fabric.simulate`. Times are microseconds from 0. Ranks enter at 0 unless `starts` says otherwise.
///
/// Example:
///     >>> import nvcoll
///     >>> timeline = nvcoll.fabric("hgx-h100").simulate("ring", "1M", collective="all_reduce")
///     >>> len(timeline.end_us), timeline.time_us == max(timeline.end_us)
///     (8, True)
#[pyclass(frozen, module = "nvcoll")]
pub(crate) struct Timeline {
    /// The time at which the last rank left, in microseconds.
    #[pyo3(get)]
    time_us: f64,
    /// The time at which each rank left, in microseconds.
    #[pyo3(get)]
    end_us: Vec<f64>,
    /// For each rank, the bytes that its own steps read from and wrote to its memory.
    #[pyo3(get)]
    memory_bytes: Vec<u64>,
    /// The links and latencies on which the time is spent, the most first: `62 % of the time is gpu3 -> nvswitch, 21 % latency`.
    #[pyo3(get)]
    bottleneck: String,
    /// The number of tiles, each a pass of the schedule over a part of the data.
    #[pyo3(get)]
    tiles: u32,
    /// Every step in every tile by rank, queue and time: (rank, queue, step, tile, start and end in microseconds); None
    /// unless asked for.
    #[pyo3(get)]
    spans: Option<Vec<SpanRow>>,
    /// The schedule, in words.
    #[pyo3(get)]
    schedule: String,
    on: Py<Fabric>,
    links: Vec<LinkUse>,
    path: Critical,
    ran: Py<Schedule>,
    /// The other arguments of the simulation.
    asked: Py<PyDict>,
    /// For each span, the position of its way in `ways`.
    way_of_span: Vec<u32>,
    /// The ways: microseconds from the start of a step until its bytes move, and the links that they cross.
    ways: Vec<(f64, Vec<usize>)>,
}

#[pymethods]
impl Timeline {
    /// The name of the fabric.
    #[getter]
    fn fabric(&self) -> &str {
        &self.on.get().hardware().name
    }

    /// For each link of one direction: (from, to, bytes that crossed it, the protocol's included, busy microseconds).
    #[getter]
    fn links(&self) -> Vec<LinkRow> {
        let row = |(link, used): (usize, &LinkUse)| {
            let (from, to) = self.ends_of(link);
            (from, to, used.nbytes, micros(used.busy_ps))
        };
        self.links.iter().enumerate().map(row).collect()
    }

    /// The critical path in order of time. Each piece begins at the end of the piece before.
    #[getter]
    fn critical(&self) -> Vec<CriticalPiece> {
        self.path.pieces.iter().map(|piece| self.row(piece)).collect()
    }

    /// The steps of the schedule, in the author's order.
    #[getter]
    fn steps(&self) -> Vec<Step> {
        self.ran.get().core.steps.iter().map(Step::of).collect()
    }

    /// The way of each span, as a position in the second list. A way has the microseconds from the start of a step until its bytes
    /// move, and the positions in `links` that they cross. Not public.
    fn _ways(&self) -> (Vec<u32>, Vec<(f64, Vec<usize>)>) {
        (self.way_of_span.clone(), self.ways.clone())
    }

    /// Returns the timeline as Perfetto and Chrome (`chrome://tracing`) read it: a process for each rank, a thread for each queue.
    ///
    /// Returns:
    ///     A dict that `json` can write. `traceEvents` has an event for every step in every tile, in microseconds, the
    ///     critical path as a process of its own, and for each link a counter of the steps whose bytes are on it.
    ///     `otherData` names the schedule and the fabric, and has the bytes of each link.
    ///
    /// Raises:
    ///     InvalidArgument: spans were not kept.
    fn trace<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("nvcoll.draw.perfetto")?.call_method1("trace", (slf,))
    }

    /// Writes :meth:`trace` to a file, which <https://ui.perfetto.dev> opens.
    ///
    /// Args:
    ///     path: str or path; the file is made or replaced.
    ///
    /// Raises:
    ///     InvalidArgument: spans were not kept.
    ///     OSError: the file cannot be written.
    #[pyo3(signature = (path: "str | PathLike[str]"))]
    fn save_trace(slf: &Bound<'_, Self>, path: &Bound<'_, PyAny>) -> PyResult<()> {
        slf.py().import("nvcoll.draw.perfetto")?.call_method1("save", (slf, path))?;
        Ok(())
    }

    /// Draws the timeline, and others below it on the same clock.
    ///
    /// Args:
    ///     others: any number of timelines.
    ///
    /// Returns:
    ///     A self-contained SVG document: ranks as rows, a bar for each step on a line for each queue.
    ///
    /// Raises:
    ///     InvalidArgument: spans were not kept.
    #[pyo3(signature = (*others: "Timeline") -> "str")]
    fn to_svg<'py>(slf: &Bound<'py, Self>, others: Vec<Bound<'py, Self>>) -> PyResult<Bound<'py, PyAny>> {
        let all: Vec<&Bound<'py, Self>> = [slf].into_iter().chain(&others).collect();
        slf.py().import("nvcoll.draw.timelines")?.call_method1("svg", (all,))
    }

    /// Returns a picture for notebooks, or None if spans were not kept or it is too large.
    #[pyo3(signature = () -> "str | None")]
    fn _repr_svg_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        in_notebook("timeline_svg", slf.as_any())
    }

    fn __eq__(&self, other: &Self) -> bool {
        let ends = |one: &Self| (one.time_us, one.end_us.clone(), one.memory_bytes.clone(), one.tiles);
        ends(self) == ends(other)
            && self.spans == other.spans
            && self.links() == other.links()
            && self.ran.get().core == other.ran.get().core
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.time_us.to_bits(), self.tiles, &self.ran.get().core).hash(&mut hasher);
        hasher.finish()
    }

    /// Returns what `pickle` needs: the arguments of the simulation, which is run again where the timeline is unpickled.
    #[pyo3(signature = () -> "tuple[Any, ...]")]
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, TimelineArguments)> {
        let (py, this) = (slf.py(), slf.get());
        let arguments = (this.on.clone_ref(py), this.ran.clone_ref(py), this.asked.clone_ref(py));
        Ok((slf.get_type().getattr("_again")?, arguments))
    }

    /// Runs a simulation again, for `pickle`. Not public.
    #[staticmethod]
    #[pyo3(signature = (on, schedule, asked) -> "Timeline")]
    fn _again<'py>(
        on: &Bound<'py, Fabric>,
        schedule: &Bound<'py, Schedule>,
        asked: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        on.call_method("simulate", (schedule,), Some(asked))
    }

    fn __copy__<'py>(slf: &Bound<'py, Self>) -> Bound<'py, Self> {
        slf.clone()
    }

    #[pyo3(signature = (_memo: "object", /))]
    fn __deepcopy__<'py>(slf: &Bound<'py, Self>, _memo: &Bound<'_, PyAny>) -> Bound<'py, Self> {
        slf.clone()
    }

    /// Returns a table for notebooks: the time, what takes most of it, and when each rank ended.
    #[pyo3(signature = () -> "str")]
    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        in_notebook("timeline_html", slf.as_any())
    }

    fn __repr__(&self) -> String {
        let (Self { schedule, time_us, bottleneck, .. }, fabric) = (self, self.fabric());
        let most = bottleneck.split(", ").next().unwrap_or_default();
        format!("<nvcoll.Timeline {schedule} on {fabric}: {}, {most}>", timed(&[*time_us]))
    }
}

impl Timeline {
    /// Makes the timeline of a simulation of the schedule `ran` on a fabric.
    pub(crate) fn of(
        simulated: Simulated,
        on: &Bound<'_, Fabric>,
        ran: Py<Schedule>,
        spans: bool,
        asked: Py<PyDict>,
    ) -> Self {
        let span = |span: &simulate::StepSpan| {
            (span.rank, span.queue, span.step, span.tile, micros(span.start_ps), micros(span.end_ps))
        };
        Self {
            time_us: micros(simulated.total_ps()),
            end_us: simulated.ends_ps.iter().copied().map(micros).collect(),
            links: simulated.links,
            bottleneck: simulated.critical.words(on.get().hardware()),
            tiles: simulated.tiles,
            spans: spans.then(|| simulated.spans.iter().map(span).collect()),
            schedule: ran.get().core.title(),
            on: on.clone().unbind(),
            memory_bytes: simulated.memory_bytes,
            path: simulated.critical,
            way_of_span: simulated.spans.iter().map(|span| span.way).collect(),
            ways: simulated.ways.into_iter().map(|way| (micros(way.before_ps), way.links)).collect(),
            ran,
            asked,
        }
    }

    /// Returns the names of the ends of a link.
    fn ends_of(&self, link: usize) -> (String, String) {
        let fabric = self.on.get().hardware();
        let name = |device: usize| fabric.devices[device].name.clone();
        (name(fabric.links[link].from), name(fabric.links[link].to))
    }

    fn row(&self, piece: &simulate::CriticalPiece) -> CriticalPiece {
        let words = piece.words(|link| {
            let (from, to) = self.ends_of(link);
            format!("{from} -> {to}")
        });
        let (link, users) = match piece.reason {
            DelayReason::Link(link) => (Some(self.ends_of(link)), None),
            DelayReason::Shared(link, users) => (Some(self.ends_of(link)), Some(users)),
            DelayReason::SharedMemory(_, users) => (None, Some(users)),
            _ => (None, None),
        };
        let other = match piece.reason {
            DelayReason::Entering(rank) | DelayReason::Signal(rank) => Some(rank),
            DelayReason::Memory(rank) | DelayReason::SharedMemory(rank, _) => Some(rank),
            _ => None,
        };
        let of_step = |number: u32| (!piece.is_leave).then_some(number);
        CriticalPiece {
            rank: piece.rank,
            queue: of_step(piece.queue),
            step: of_step(piece.step),
            tile: piece.tile,
            start_us: micros(piece.start_ps),
            end_us: micros(piece.end_ps),
            reason: piece.reason.name(),
            link,
            users,
            other,
            words,
        }
    }
}

/// A piece of the critical path: a rank, an interval and the reason why time passes.
///
/// Example:
///     >>> import nvcoll
///     >>> timeline = nvcoll.fabric("hgx-h100").simulate("ring", "1M", collective="all_reduce")
///     >>> last = timeline.critical[-1]
///     >>> last.end_us == timeline.time_us
///     True
#[pyclass(frozen, get_all, module = "nvcoll")]
pub(crate) struct CriticalPiece {
    /// The rank that waits or works.
    rank: u32,
    /// The queue of that rank; None where the rank leaves the call.
    queue: Option<u32>,
    /// The step in that queue; None where the rank leaves the call.
    step: Option<u32>,
    /// The number of the tile.
    tile: u32,
    /// The time at which the piece begins, in microseconds.
    start_us: f64,
    /// The time at which the piece ends, in microseconds.
    end_us: f64,
    /// The reason why time passes: `starting` (the call, before ranks enter), `entering` (`other` has not entered), `signal` (of
    /// `other`), `fixed` (the cost of every step), `latency`, `link` (bytes cross the narrowest link), `shared_link`, `memory`
    /// (of `other`), or `shared_memory`.
    reason: &'static str,
    /// The link, as the names of its ends; None if it is no link.
    link: Option<(String, String)>,
    /// The number of transfers that shared the link or the memory; None if it was not shared.
    users: Option<u32>,
    /// The rank that is waited for, or that owns the memory; None if there is none.
    other: Option<u32>,
    /// The piece as a sentence.
    words: String,
}

#[pymethods]
impl CriticalPiece {
    fn __repr__(&self) -> String {
        format!("<nvcoll.CriticalPiece {:.3} to {:.3} us, {}>", self.start_us, self.end_us, self.words)
    }
}

pub(crate) fn micros(ps: Ps) -> f64 {
    ps as f64 / PS_PER_US as f64
}
