//! A schedule in virtual time, as Python sees it.

use pyo3::prelude::*;

use nvcoll_core::counts::Counts;
use nvcoll_core::dtype::DType;
use nvcoll_core::partition::Partition;
use nvcoll_fabric::simulate::{protocol, Detail, Settings, Simulation, Timeline as Simulated};
use nvcoll_fabric::units::{Ps, PS_PER_US};
use nvcoll_fabric::{Error, Result};

use crate::error::{invalid, of_fabric};
use crate::fabric::{nbytes_of, Fabric};
use crate::schedule::Schedule;
use crate::whole::whole;

/// What one direction of a link did: from, to, bytes that crossed it, microseconds in which something was on it.
type LinkRow = (String, String, u64, f64);

/// A step in a tile: rank, queue, step, tile, microseconds when it was ready, microseconds when it was done.
type SpanRow = (u32, u32, u32, u32, f64, f64);

/// A schedule in virtual time: when each rank left, what each link did, what the end was waiting for.
///
/// Made by :meth:`Fabric.simulate`. All ranks enter at 0.
#[pyclass(frozen, get_all, module = "nvcoll")]
pub(crate) struct Timeline {
    /// When the last rank left, in microseconds.
    microseconds: f64,
    /// For each rank, when it left, in microseconds.
    end: Vec<f64>,
    /// For each link of one direction: (from, to, bytes that crossed it, the protocol's included, busy microseconds).
    links: Vec<LinkRow>,
    /// For each rank, the bytes that its own steps read from and wrote to its memory.
    memory_bytes: Vec<u64>,
    /// What the time is spent on, the most first: `62 % of the time is gpu3 -> nvswitch, 21 % latency`.
    bottleneck: String,
    /// How often the schedule passed.
    tiles: u32,
    /// Every step in every tile by rank, queue and time: (rank, queue, step, tile, start and end in microseconds); None
    /// unless asked for.
    spans: Option<Vec<SpanRow>>,
    /// The schedule, in words.
    schedule: String,
    /// The name of the fabric.
    fabric: String,
}

#[pymethods]
impl Timeline {
    fn __repr__(&self) -> String {
        let Self { schedule, fabric, microseconds, bottleneck, .. } = self;
        let most = bottleneck.split(", ").next().unwrap_or_default();
        format!("<nvcoll.Timeline {schedule} on {fabric}: {microseconds:.1} us, {most}>")
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
    /// Runs a schedule in virtual time: any schedule, moving no bytes. The first GPUs are its ranks; all enter at once.
    ///
    /// Time is whole picoseconds inside: the same input gives the same output on every machine. It runs without the GIL
    /// and cannot be interrupted. What a step costs besides its bytes are the constants of the protocol, which are
    /// NCCL's latencies and not fitted to measurements: it compares schedules, and does not say what a call would take.
    ///
    /// Args:
    ///     schedule: a `Schedule` for as many ranks as the fabric has GPUs, or fewer.
    ///     nbytes: int; bytes of a rank's longer buffer, as nccl-tests counts them; a multiple of the dtype's bytes.
    ///     dtype: name of the dtype of the elements.
    ///     protocol: ``ideal`` (links and nothing else), ``ll``, ``ll128`` or ``simple``.
    ///     slice_bytes: int; bytes of every chunk that one pass of the schedule moves; 1 MiB if None.
    ///     spans: whether to keep every step in every tile.
    ///
    /// Returns:
    ///     A `Timeline`.
    ///
    /// Raises:
    ///     InvalidArgument: no protocol or dtype is called so; a number that cannot be; fewer GPUs than ranks; a step
    ///         at a switch where there is none; no path; more steps than can be kept.
    ///     BuildError: the waits of the schedule make a circle.
    #[pyo3(signature = (schedule, nbytes, *, dtype="float32", protocol="simple", slice_bytes=None, spans=false))]
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
    ) -> PyResult<Timeline> {
        let schedule = &schedule.get().core;
        let dtype = DType::named(dtype).ok_or_else(|| invalid(py, format!("no dtype is called `{dtype}`")))?;
        let (nbytes, element) = (nbytes_of(nbytes)?, dtype.bytes() as u64);
        if nbytes % element != 0 {
            let message = format!("nbytes is {nbytes}: pass a multiple of {element}, which {dtype} has");
            return Err(invalid(py, message));
        }
        let protocol = protocol::named(protocol).map_err(|error| of_fabric(py, &error))?;
        let slice_bytes = slice_bytes.map_or(Ok(SLICE_BYTES), |bytes| whole("slice_bytes", bytes, 1..=i64::MAX))?;
        let detail = if spans { Detail::Spans } else { Detail::Path };
        let settings = Settings { detail, ..Settings::new(protocol, slice_bytes.unsigned_abs()) };
        let count = usize::try_from(nbytes / element).map_err(|error| invalid(py, error.to_string()))?;
        let counts = Counts::Even(count).of_parts(schedule.collective, schedule.roles());
        let partition = Partition::new(counts, schedule.chunks_per_part);
        let fabric = self.hardware();
        let check = |steps: u64| {
            let message = || format!("{steps} steps are more than {MOST_STEPS}: pass slice_bytes above {slice_bytes}");
            let too_many = || Error::Unable { fabric: fabric.name.clone(), message: message() };
            (steps <= MOST_STEPS).then_some(()).ok_or_else(too_many)
        };
        let run = || -> Result<Simulated> {
            // Every byte of a buffer is moved by some step of some tile.
            check(nbytes / settings.slice_bytes.max(element))?;
            let simulation = Simulation::new(schedule, &partition, dtype, fabric, &settings)?;
            check(simulation.steps())?;
            simulation.run()
        };
        let simulated = py.detach(run).map_err(|error| of_fabric(py, &error))?;
        Ok(self.told(&simulated, schedule.title(), spans))
    }
}

impl Fabric {
    fn told(&self, simulated: &Simulated, schedule: String, spans: bool) -> Timeline {
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
            memory_bytes: simulated.memory_bytes.clone(),
            bottleneck: simulated.critical.words(fabric),
            tiles: simulated.tiles,
            spans: spans.then(|| simulated.spans.iter().map(span).collect()),
            schedule,
            fabric: fabric.name.clone(),
        }
    }
}

/// Adds the class to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Timeline>()
}
