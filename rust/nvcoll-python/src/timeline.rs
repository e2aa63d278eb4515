//! A schedule in virtual time, as Python sees it.

use pyo3::prelude::*;

use nvcoll_core::counts::Counts;
use nvcoll_core::dtype::DType;
use nvcoll_core::partition::Partition;
use nvcoll_core::schedule::Schedule as Core;
use nvcoll_fabric::nccl;
use nvcoll_fabric::predict::Launch;
use nvcoll_fabric::simulate::{
    protocol, AtSwitch, Critical, Detail, Piece, Reason, Settings, Sharing, Simulation, Timeline as Simulated,
};
use nvcoll_fabric::units::{Ps, PS_PER_US};
use nvcoll_fabric::{Error, Result};

use crate::conditions::{damages_of, slowdowns_of, starts_of};
use crate::error::{invalid, of_fabric};
use crate::fabric::{nbytes_of, Fabric};
use crate::gil::watched_in_fabric;
use crate::schedule::{Schedule, Step};
use crate::whole::whole;

/// What one direction of a link did: from, to, bytes that crossed it, microseconds in which something was on it.
type LinkRow = (String, String, u64, f64);

/// A step in a tile: rank, queue, step, tile, microseconds when it was ready, microseconds when it was done.
type SpanRow = (u32, u32, u32, u32, f64, f64);

/// A schedule in virtual time: when each rank left, what each link did, what the end was waiting for.
///
/// Made by :meth:`Fabric.simulate`. Times are microseconds from 0, when the first rank enters unless `starts` says else.
#[pyclass(frozen, module = "nvcoll")]
pub(crate) struct Timeline {
    /// When the last rank left, in microseconds.
    #[pyo3(get)]
    microseconds: f64,
    /// For each rank, when it left, in microseconds.
    #[pyo3(get)]
    end: Vec<f64>,
    /// For each link of one direction: (from, to, bytes that crossed it, the protocol's included, busy microseconds).
    #[pyo3(get)]
    links: Vec<LinkRow>,
    /// For each rank, the bytes that its own steps read from and wrote to its memory.
    #[pyo3(get)]
    memory_bytes: Vec<u64>,
    /// What the time is spent on, the most first: `62 % of the time is gpu3 -> nvswitch, 21 % latency`.
    #[pyo3(get)]
    bottleneck: String,
    /// How often the schedule passed.
    #[pyo3(get)]
    tiles: u32,
    /// Every step in every tile by rank, queue and time: (rank, queue, step, tile, start and end in microseconds); None
    /// unless asked for.
    #[pyo3(get)]
    spans: Option<Vec<SpanRow>>,
    /// The schedule, in words.
    #[pyo3(get)]
    schedule: String,
    /// The name of the fabric.
    #[pyo3(get)]
    fabric: String,
    path: Critical,
    ran: Py<Schedule>,
}

#[pymethods]
impl Timeline {
    /// The critical path: what the end was waiting for, in order of time; each piece begins where the one before ends.
    #[getter]
    fn critical(&self) -> Vec<CriticalPiece> {
        self.path.pieces.iter().map(|piece| self.told(piece)).collect()
    }

    /// The steps of the schedule, in the author's order.
    #[getter]
    fn steps(&self) -> Vec<Step> {
        self.ran.get().core.steps.iter().map(Step::of).collect()
    }

    /// The timeline as Perfetto and Chrome (`chrome://tracing`) read it: a process for each rank, a thread for each queue.
    ///
    /// Returns:
    ///     A dict that `json` can write. `traceEvents` has an event for every step in every tile, in microseconds, and the
    ///     critical path as a process of its own; `otherData` says what ran where, and what each link moved.
    ///
    /// Raises:
    ///     InvalidArgument: spans were not kept.
    fn trace<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("nvcoll.trace")?.call_method1("trace", (slf,))
    }

    /// Writes :meth:`trace` to a file, which <https://ui.perfetto.dev> opens.
    ///
    /// Args:
    ///     path: str or path; the file is made or replaced.
    ///
    /// Raises:
    ///     InvalidArgument: spans were not kept.
    ///     OSError: the file cannot be written.
    fn save_trace(slf: &Bound<'_, Self>, path: &Bound<'_, PyAny>) -> PyResult<()> {
        slf.py().import("nvcoll.trace")?.call_method1("save", (slf, path))?;
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
    #[pyo3(signature = (*others))]
    fn to_svg<'py>(slf: &Bound<'py, Self>, others: Vec<Bound<'py, Self>>) -> PyResult<Bound<'py, PyAny>> {
        let all: Vec<&Bound<'py, Self>> = [slf].into_iter().chain(&others).collect();
        slf.py().import("nvcoll.timelines")?.call_method1("svg", (all,))
    }

    /// For notebooks: a picture, or None if spans were not kept or it is too large.
    fn _repr_svg_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("nvcoll.notebook")?.call_method1("timeline_svg", (slf,))
    }

    fn __repr__(&self) -> String {
        let Self { schedule, fabric, microseconds, bottleneck, .. } = self;
        let most = bottleneck.split(", ").next().unwrap_or_default();
        format!("<nvcoll.Timeline {schedule} on {fabric}: {microseconds:.1} us, {most}>")
    }
}

impl Timeline {
    fn told(&self, piece: &Piece) -> CriticalPiece {
        let ends = |link: usize| (self.links[link].0.clone(), self.links[link].1.clone());
        let words = piece.words(|link| format!("{} -> {}", self.links[link].0, self.links[link].1));
        let (link, users) = match piece.reason {
            Reason::Link(link) => (Some(ends(link)), None),
            Reason::Shared(link, users) => (Some(ends(link)), Some(users)),
            Reason::SharedMemory(_, users) => (None, Some(users)),
            _ => (None, None),
        };
        let other = match piece.reason {
            Reason::Entering(rank) | Reason::Signal(rank) => Some(rank),
            Reason::Memory(rank) | Reason::SharedMemory(rank, _) => Some(rank),
            _ => None,
        };
        let of_step = |number: u32| (!piece.is_leave).then_some(number);
        CriticalPiece {
            rank: piece.rank,
            queue: of_step(piece.queue),
            step: of_step(piece.step),
            tile: piece.tile,
            start: micros(piece.start_ps),
            end: micros(piece.end_ps),
            reason: piece.reason.name(),
            link,
            users,
            other,
            words,
        }
    }
}

/// A piece of the critical path: who waits or works, when, and what passes the time.
#[pyclass(frozen, get_all, module = "nvcoll")]
pub(crate) struct CriticalPiece {
    /// The rank that waits or works.
    rank: u32,
    /// Its queue; None where it leaves the call.
    queue: Option<u32>,
    /// The step in that queue; None where the rank leaves the call.
    step: Option<u32>,
    /// The tile.
    tile: u32,
    /// When it begins, in microseconds.
    start: f64,
    /// When it ends, in microseconds.
    end: f64,
    /// What passes the time: `starting` (the call, before ranks enter), `entering` (`other` has not entered), `signal` (that of `other` is on the way), `fixed` (what
    /// every step costs), `latency`, `link` (bytes over the narrowest), `shared_link`, `memory` (of `other`),
    /// `shared_memory`, or `moving` (link after link: sharing `fifo` does not tell them apart).
    reason: &'static str,
    /// The link, as the names of its ends; None if it is no link.
    link: Option<(String, String)>,
    /// How many transfers shared it; None if it was not shared.
    users: Option<u32>,
    /// The rank that was waited for, or whose memory it is.
    other: Option<u32>,
    /// All this in words.
    words: String,
}

#[pymethods]
impl CriticalPiece {
    fn __repr__(&self) -> String {
        format!("<nvcoll.CriticalPiece {:.3} to {:.3} us, {}>", self.start, self.end, self.words)
    }
}

fn micros(ps: Ps) -> f64 {
    ps as f64 / PS_PER_US as f64
}

/// Steps over all tiles that a simulation may have: the record takes 32 bytes of each. Chosen: 2 GB, and minutes.
const MOST_STEPS: u64 = 1 << 26;

/// How much of a chunk a tile moves unless it is said. Cited: a slice of NCCL's all_reduce under Simple, two of the
/// eight steps of its buffer of 4 MiB.
const SLICE_BYTES: i64 = 1 << 20;

#[pymethods]
impl Fabric {
    /// Runs a schedule in virtual time: any schedule, moving no bytes. The first GPUs are its ranks.
    ///
    /// Time is whole picoseconds inside: the same input gives the same output on every machine. It runs without the GIL
    /// and ends on Ctrl-C. What a step costs besides its bytes are the constants of the protocol, which are
    /// NCCL's latencies and not fitted to measurements: it compares schedules, and does not say what a call would take.
    ///
    /// Args:
    ///     schedule: a `Schedule` for as many ranks as the fabric has GPUs, or fewer.
    ///     nbytes: int; bytes of a rank's longer buffer, as nccl-tests counts them; a multiple of the dtype's bytes.
    ///     dtype: name of the dtype of the elements.
    ///     protocol: ``ideal`` (links and nothing else), ``ll``, ``ll128`` or ``simple``.
    ///     slice_bytes: int; bytes of every chunk that one pass of the schedule moves; 1 MiB if None.
    ///     spans: whether to keep every step in every tile.
    ///     sharing: ``max_min`` (transfers share links fairly) or ``fifo`` (a link serves one after the other).
    ///     at_switch: what becomes of steps that ask for a switch where none can do them: ``refuse``, or ``ignore`` (ranks
    ///         do them point to point).
    ///     launch: None (the protocol's own constants, which are NCCL's latencies and not fitted), or how the program
    ///         launches its calls, as of :meth:`predict`: then rates, latencies and what a call takes before its first step
    ///         are the fitted constants of :meth:`predict`, and a ring takes the time that it predicts.
    ///     starts: when ranks enter, in microseconds: a number for each rank, or a mapping from some ranks, the others enter
    ///         at 0.
    ///     slowdowns: how many times as long the steps of ranks take as they would alone, 1 or more: a number for each rank,
    ///         or a mapping from some ranks.
    ///     damage: what is left of links, from 1 to 0, which cuts them, so that routes go round: a mapping from pairs of
    ///         names in `devices`, as ``{("gpu0", "nvswitch"): 0.5}``. It holds in both directions, unless the pair is
    ///         there in the other order too.
    ///
    /// Returns:
    ///     A `Timeline`.
    ///
    /// Raises:
    ///     InvalidArgument: nothing is called so; a number that cannot be; fewer GPUs than ranks; a step at a switch where
    ///         there is none; no path; more steps than can be kept.
    ///     BuildError: the waits of the schedule make a circle.
    #[pyo3(signature = (schedule, nbytes, *, dtype="float32", protocol="simple", slice_bytes=None, spans=false,
        sharing="max_min", at_switch="refuse", launch=None, starts=None, slowdowns=None, damage=None))]
    #[allow(clippy::too_many_arguments)]
    fn simulate(
        &self,
        py: Python<'_>,
        schedule: &Bound<'_, Schedule>,
        nbytes: &Bound<'_, PyAny>,
        dtype: &str,
        protocol: &str,
        slice_bytes: Option<&Bound<'_, PyAny>>,
        spans: bool,
        sharing: &str,
        at_switch: &str,
        launch: Option<&str>,
        starts: Option<&Bound<'_, PyAny>>,
        slowdowns: Option<&Bound<'_, PyAny>>,
        damage: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Timeline> {
        let ran = schedule.clone().unbind();
        let schedule = &schedule.get().core;
        let dtype = DType::named(dtype).ok_or_else(|| invalid(py, format!("no dtype is called `{dtype}`")))?;
        let (nbytes, element) = (nbytes_of(nbytes)?, dtype.bytes() as u64);
        if nbytes % element != 0 {
            let message = format!("nbytes is {nbytes}: pass a multiple of {element}, which {dtype} has");
            return Err(invalid(py, message));
        }
        let costs = protocol::named(protocol).map_err(|error| of_fabric(py, &error))?;
        let slice_bytes = slice_bytes.map_or(Ok(SLICE_BYTES), |bytes| whole("slice_bytes", bytes, 1..=i64::MAX))?;
        let detail = if spans { Detail::Spans } else { Detail::Path };
        let world_size = schedule.world_size;
        let settings = Settings {
            detail,
            sharing: Sharing::named(sharing).map_err(|error| of_fabric(py, &error))?,
            at_switch: AtSwitch::named(at_switch).map_err(|error| of_fabric(py, &error))?,
            starts_ps: starts_of(starts, world_size)?,
            slowdowns: slowdowns_of(slowdowns, world_size)?,
            damages: damages_of(damage, self.hardware())?,
            ..Settings::new(costs, slice_bytes.unsigned_abs())
        };
        let count = usize::try_from(nbytes / element).map_err(|error| invalid(py, error.to_string()))?;
        let counts = Counts::Even(count).of_parts(schedule.collective, schedule.roles());
        let partition = Partition::new(counts, schedule.chunks_per_part);
        let fabric = self.hardware();
        let check = |steps: u64| {
            let message = || format!("{steps} steps are more than {MOST_STEPS}: pass slice_bytes above {slice_bytes}");
            let too_many = || Error::Unable { fabric: fabric.name.clone(), message: message() };
            (steps <= MOST_STEPS).then_some(()).ok_or_else(too_many)
        };
        let run = |is_interrupted: &mut dyn FnMut() -> bool| -> Result<Simulated> {
            // Every byte of a buffer is moved by some step of some tile.
            check(nbytes / settings.slice_bytes.max(element))?;
            let longest = (0..partition.chunks()).map(|chunk| partition.chunk_count(chunk) as u64 * element).max();
            let step_bytes = longest.unwrap_or(0).min(settings.slice_bytes);
            let call = launch.map(|launch| Calibrated { protocol, launch, nbytes, step_bytes });
            let (settings, least) = match &call {
                Some(call) => self.calibrated(schedule, call, settings)?,
                None => (settings, 0),
            };
            let simulation = Simulation::new(schedule, &partition, dtype, fabric, &settings)?;
            check(simulation.steps())?;
            let mut simulated = simulation.run_until(is_interrupted)?;
            simulated.ends_ps.iter_mut().for_each(|end| *end = least.max(*end));
            Ok(simulated)
        };
        let simulated = watched_in_fabric(py, run)?;
        Ok(self.told(simulated, ran, spans))
    }
}

/// What is run at the cost of the fitted constants.
struct Calibrated<'a> {
    protocol: &'a str,
    launch: &'a str,
    nbytes: u64,
    /// What a step moves in a tile.
    step_bytes: u64,
}

impl Fabric {
    /// Puts the constants of predictions into settings; returns also the time before which no call ends.
    fn calibrated(&self, schedule: &Core, call: &Calibrated<'_>, settings: Settings) -> Result<(Settings, Ps)> {
        let launch = Launch::named(call.launch)?;
        let found = nccl::Protocol::ALL.into_iter().find(|p| p.name().eq_ignore_ascii_case(call.protocol));
        let protocol = found.ok_or_else(|| Error::Unknown {
            kind: "protocol that is launched",
            name: call.protocol.to_owned(),
            known: nccl::Protocol::ALL.map(|p| p.name().to_lowercase()).join(", "),
        })?;
        let fabric = self.hardware();
        let predictor = self.answers().predictor(fabric, None)?;
        let bytes = (call.nbytes, call.step_bytes);
        let fitted = predictor.settings(fabric, schedule, protocol, launch, bytes)?;
        let least = predictor.least(launch, schedule.collective.name == "all_to_all");
        Ok((Settings { protocol: fitted.protocol, fitted: fitted.fitted, ..settings }, least))
    }

    fn told(&self, simulated: Simulated, ran: Py<Schedule>, spans: bool) -> Timeline {
        let fabric = self.hardware();
        let name = |device: usize| fabric.devices[device].name.clone();
        let links = fabric.links.iter().zip(&simulated.links);
        let span = |span: &nvcoll_fabric::simulate::Span| {
            (span.rank, span.queue, span.step, span.tile, micros(span.start_ps), micros(span.end_ps))
        };
        Timeline {
            microseconds: micros(simulated.total_ps()),
            end: simulated.ends_ps.iter().copied().map(micros).collect(),
            links: links.map(|(link, did)| (name(link.from), name(link.to), did.nbytes, micros(did.busy_ps))).collect(),
            bottleneck: simulated.critical.words(fabric),
            tiles: simulated.tiles,
            spans: spans.then(|| simulated.spans.iter().map(span).collect()),
            schedule: ran.get().core.title(),
            fabric: fabric.name.clone(),
            memory_bytes: simulated.memory_bytes,
            path: simulated.critical,
            ran,
        }
    }
}

/// Adds the class to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Timeline>()?;
    module.add_class::<CriticalPiece>()
}
