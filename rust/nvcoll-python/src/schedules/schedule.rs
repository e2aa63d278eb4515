//! `Schedule`, `Step` and `Proof`.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Instant;

use pyo3::prelude::*;

use nvcoll_core::algorithm::build_interruptible;
use nvcoll_core::collective::{Collective, Parts, Roles};
use nvcoll_core::cost::{why as core_why, Cost};
use nvcoll_core::counts::Counts;
use nvcoll_core::dtype::DType;
use nvcoll_core::limits::MAX_WORLD_SIZE;
use nvcoll_core::lower::{lower_interruptible, push_interruptible, Fifo};
use nvcoll_core::runnable::check_runnable;
use nvcoll_core::schedule::{Aliasing, Dependency, Event, Path, Schedule as CoreSchedule};
use nvcoll_core::text;
use nvcoll_core::verify::{verify_interruptible, Unproved, Verified};
use nvcoll_core::words::counted;

use crate::counts::row as counts_of_parts;
use crate::engine::proofs::Proofs;
use crate::error::{invalid, of_core, raised};
use crate::gil::interrupt;
use crate::integers::{integer, ANY};
use crate::pickled::pickled;
use crate::refuted::refuted;

/// The program of all ranks, for any count, dtype and op. Made by `nvcoll.schedule`, by `Algorithm.schedule` or by `parse`.
/// `str` returns the text that `parse` reads.
///
/// Example:
///     >>> import nvcoll
///     >>> ring = nvcoll.schedule("all_reduce", "ring", world_size=4)
///     >>> ring.chunks, len(ring.steps)
///     (4, 24)
#[pyclass(name = "Schedule", module = "nvcoll", frozen)]
pub(crate) struct Schedule {
    pub(crate) core: CoreSchedule,
    pub(crate) proofs: Proofs,
}

impl Schedule {
    pub(crate) fn of(core: CoreSchedule) -> Self {
        Self { core, proofs: Proofs::default() }
    }
}

fn lowered(py: Python<'_>, schedule: &CoreSchedule, path: Path) -> PyResult<CoreSchedule> {
    py.detach(|| lower_interruptible(schedule, path, &interrupt())).map_err(|error| of_core(py, &error))
}

/// Counts the cost of a schedule, with checks for Ctrl-C.
fn cost_of(py: Python<'_>, schedule: &CoreSchedule) -> PyResult<Cost> {
    py.detach(|| Cost::of_interruptible(schedule, &interrupt())).map_err(|_| raised())
}

#[pymethods]
impl Schedule {
    /// Reads a schedule from its text form.
    ///
    /// Raises:
    ///     BuildError: the text is not a schedule; the message names the line.
    #[staticmethod]
    fn parse(py: Python<'_>, text: &str) -> PyResult<Self> {
        text::parse(text).map(Self::of).map_err(|error| of_core(py, &error))
    }

    /// The name of the collective.
    #[getter]
    fn collective(&self) -> &'static str {
        self.core.collective.name
    }

    /// The name of the algorithm, with its parameters.
    #[getter]
    fn algorithm(&self) -> &str {
        &self.core.algorithm
    }

    /// The number of ranks.
    #[getter]
    fn world_size(&self) -> u32 {
        self.core.world_size
    }

    /// The path by which data move: mapped, staged or pushed.
    #[getter]
    fn path(&self) -> &'static str {
        self.core.path.name()
    }

    /// Whether input and output are the same memory.
    #[getter]
    fn in_place(&self) -> bool {
        self.core.aliasing == Aliasing::InPlace
    }

    /// The root; 0 if the collective has none.
    #[getter]
    fn root(&self) -> u32 {
        self.core.root
    }

    /// The number of chunks of all parts.
    #[getter]
    fn chunks(&self) -> u32 {
        self.core.chunks()
    }

    /// All steps, in the author's order.
    #[getter]
    fn steps(&self) -> Vec<Step> {
        self.core.steps.iter().map(Step::of).collect()
    }

    /// The number of steps of all ranks.
    #[getter]
    fn step_count(&self) -> usize {
        self.core.steps.len()
    }

    /// The number of ordered pairs of ranks between which bytes move.
    #[getter]
    fn pairs(&self) -> usize {
        let mut pairs = HashSet::new();
        for step in &self.core.steps {
            pairs.extend(step.src.iter().map(|source| (source.view.rank, step.rank)));
            pairs.extend(step.dst.iter().map(|view| (step.rank, view.rank)));
        }
        pairs.into_iter().filter(|(from, to)| from != to).count()
    }

    /// Whether the schedule has steps for a switch, which reduces or multicasts.
    #[getter]
    fn needs_switch(&self) -> bool {
        self.core.steps.iter().any(|step| step.at_switch)
    }

    /// The number of slots of staging; 0 for mapped memory.
    #[getter]
    fn slots(&self) -> u32 {
        self.core.slots
    }

    /// Returns the schedule for another path.
    ///
    /// Args:
    ///     path: mapped, staged or pushed.
    ///     channels: for pushed, the path of NCCL: the number of slices of every chunk, each with its own queues. Default: 1.
    ///     slots: for pushed: the depth of the FIFO into which ranks push. Default: 2; NCCL has 8.
    ///
    /// Raises:
    ///     InvalidArgument: the path is unknown, a number is out of range, or `channels` or `slots` is given for another path.
    ///     BuildError: the schedule is lowered already, or would have too many steps.
    #[pyo3(signature = (path: "_Path | str", *, channels: "int | None" = None, slots: "int | None" = None))]
    fn lower(
        &self,
        py: Python<'_>,
        path: &str,
        channels: Option<&Bound<'_, PyAny>>,
        slots: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let path = path_named(py, path)?;
        if channels.is_none() && slots.is_none() {
            return Ok(Self::of(lowered(py, &self.core, path)?));
        }
        if path != Path::Pushed {
            let message = "`channels` and `slots` are of the path pushed, not";
            return Err(invalid(py, format!("{message} {}: leave them out", path.name())));
        }
        let fifo = Fifo {
            channels: channels.map_or(Ok(1), |channels| integer("channels", channels, ANY))?,
            slots: slots.map_or(Ok(path.slots()), |slots| integer("slots", slots, ANY))?,
        };
        let pushed = py.detach(|| push_interruptible(&self.core, fifo, &interrupt()));
        pushed.map(Self::of).map_err(|error| of_core(py, &error))
    }

    /// Returns the line diff of the two text forms.
    fn diff(&self, other: &Self) -> String {
        text::diff(&self.core, &other.core)
    }

    /// Returns two numbers: the average data that a rank moves, in units of its longer buffer, and the waits on the longest chain.
    fn cost(&self, py: Python<'_>) -> PyResult<(f64, u32)> {
        let cost = cost_of(py, &self.core)?;
        Ok((cost.moved(), cost.waits))
    }

    /// Returns the data that the busiest rank moves, in units of its longer buffer.
    fn moved_by_busiest(&self, py: Python<'_>) -> PyResult<f64> {
        Ok(cost_of(py, &self.core)?.moved_by_busiest())
    }

    /// Returns (first element, end) of every chunk, counted from the start of its part.
    ///
    /// Args:
    ///     counts: the number of elements, cut into parts as a call does; or a list of the elements per part.
    ///
    /// Raises:
    ///     InvalidArgument: not whole numbers from 0, or not one per part.
    #[pyo3(signature = (counts: "int | Sequence[int]"))]
    fn chunk_ranges(&self, counts: &Bound<'_, PyAny>) -> PyResult<Vec<(usize, usize)>> {
        let (collective, roles) = (self.core.collective, self.core.roles());
        let counts = match counts.try_iter() {
            Ok(_) => counts_of_parts("counts", counts, collective.parts(roles), "part")?,
            Err(_) => Counts::Even(integer("count", counts, 0..=i64::MAX)? as usize).of_parts(collective, roles),
        };
        let partition = nvcoll_core::partition::Partition::new(counts, self.core.chunks_per_part);
        Ok((0..partition.chunks()).map(|c| partition.range_in_part(c)).map(|r| (r.start, r.end)).collect())
    }

    /// Returns the chunks of a rank's input and the chunks of its output, in memory order.
    ///
    /// Raises:
    ///     InvalidArgument: the schedule has no such rank.
    #[pyo3(signature = (rank: "int"))]
    fn chunks_of(&self, py: Python<'_>, rank: &Bound<'_, PyAny>) -> PyResult<(Vec<u32>, Vec<u32>)> {
        let rank = integer("rank", rank, ANY)?;
        if rank >= self.core.world_size {
            return Err(invalid(py, format!("rank is {rank}, the schedule has {}", self.core.world_size)));
        }
        let (collective, roles, per_part) = (self.core.collective, self.core.roles(), self.core.chunks_per_part);
        let chunks = |parts: Parts| parts.iter().flat_map(|part| part * per_part..(part + 1) * per_part).collect();
        Ok((chunks(collective.input(roles, rank)), chunks(collective.output(roles, rank))))
    }

    fn __str__(&self) -> String {
        text::print(&self.core)
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.core == other.core
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.core.hash(&mut hasher);
        hasher.finish()
    }

    /// Returns what `pickle` needs: the text form, which `parse` reads. Its proofs stay behind.
    #[pyo3(signature = () -> "tuple[Any, ...]")]
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (String,))> {
        Ok((slf.get_type().getattr("parse")?, (text::print(&slf.get().core),)))
    }

    fn __repr__(&self) -> String {
        let CoreSchedule { collective, algorithm, world_size, path, .. } = &self.core;
        let ranks = counted(*world_size, "rank");
        format!("<nvcoll.Schedule {} {algorithm}, {ranks}, {}>", collective.name, path.name())
    }

    /// Returns a summary for notebooks, with a picture if it is small enough.
    #[pyo3(signature = () -> "str")]
    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        in_notebook("schedule_html", slf.as_any())
    }

    /// Returns a picture for notebooks, or None if it would be too large.
    #[pyo3(signature = () -> "str | None")]
    fn _repr_svg_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        in_notebook("schedule_svg", slf.as_any())
    }
}

/// Calls a function of `nvcoll.draw.notebook`. The module is imported here, because few programs run in a notebook.
pub(crate) fn in_notebook<'py>(function: &str, object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    object.py().import("nvcoll.draw.notebook")?.call_method1(function, (object,))
}

pickled!(Step: rank, queue, index, sources, destinations, src, dst, is_final, at_switch, after, waits);

/// One step of a schedule, on one queue of one rank: it folds its sources into its destinations.
///
/// Example:
///     >>> import nvcoll
///     >>> nvcoll.schedule("all_reduce", "ring", world_size=2).steps[0]
///     <nvcoll.Step r1.q0.0: output[r1].0 = input[r0].0*s0 + input[r1].0*s1>
#[pyclass(name = "Step", module = "nvcoll", frozen, get_all, eq, hash)]
#[derive(PartialEq, Hash)]
pub(crate) struct Step {
    /// The rank that executes the step.
    rank: u32,
    /// The queue of that rank.
    queue: u32,
    /// The position in that queue.
    index: u32,
    /// The sources: (rank, buffer, first chunk, end of chunks, contributing rank or None).
    sources: Vec<(u32, String, u32, u32, Option<u32>)>,
    /// The destinations: (rank, buffer, first chunk, end of chunks).
    destinations: Vec<(u32, String, u32, u32)>,
    /// The sources as the text form writes them.
    src: Vec<String>,
    /// The destinations as the text form writes them.
    dst: Vec<String>,
    /// Whether the step completes a reduction.
    is_final: bool,
    /// Whether a switch can do the step.
    at_switch: bool,
    /// The waits before the step, as the text form writes them.
    after: Vec<String>,
    /// The steps of the same tile among the waits: (rank, queue, index).
    waits: Vec<(u32, u32, u32)>,
}

#[pymethods]
impl Step {
    fn __repr__(&self) -> String {
        let (rank, queue, index) = (self.rank, self.queue, self.index);
        let listed = |views: &[String], between: &str| match views {
            [first, .., last] if views.len() > MOST_VIEWS => format!("{first}{between}…{between}{last}"),
            _ => views.join(between),
        };
        format!("<nvcoll.Step r{rank}.q{queue}.{index}: {} = {}>", listed(&self.dst, ", "), listed(&self.src, " + "))
    }
}

/// The most sources and destinations in the repr of a step. Chosen: one line.
const MOST_VIEWS: usize = 4;

impl Step {
    pub(crate) fn of(step: &nvcoll_core::schedule::Step) -> Self {
        let view = |v: &nvcoll_core::schedule::View| (v.rank, v.buffer.to_string(), v.chunks.start, v.chunks.end);
        let source = |s: &nvcoll_core::schedule::Source| {
            let (rank, buffer, first, end) = view(&s.view);
            (rank, buffer, first, end, s.contribution)
        };
        Self {
            rank: step.rank,
            queue: step.queue,
            index: step.index,
            sources: step.src.iter().map(source).collect(),
            destinations: step.dst.iter().map(view).collect(),
            src: step.src.iter().map(ToString::to_string).collect(),
            dst: step.dst.iter().map(ToString::to_string).collect(),
            is_final: step.is_final,
            at_switch: step.at_switch,
            after: step.after.iter().map(ToString::to_string).collect(),
            waits: step.after.iter().filter_map(in_tile).collect(),
        }
    }
}

/// Returns the step of the same tile for which a dependency waits.
fn in_tile(wait: &Dependency) -> Option<(u32, u32, u32)> {
    match wait.event {
        Event::Step { queue, index } if wait.lag == 0 => Some((wait.rank, queue, index)),
        _ => None,
    }
}

/// The proof of a schedule. Made by `nvcoll.verify`.
///
/// Example:
///     >>> import nvcoll
///     >>> nvcoll.verify("all_reduce", "tree", world_size=4).expression(0)
///     '((r0 + r1 + r2) + r3)'
#[pyclass(name = "Proof", module = "nvcoll", frozen)]
pub(crate) struct Proof {
    verified: Verified,
    /// The schedule.
    #[pyo3(get)]
    schedule: Py<Schedule>,
    /// The time of the proof in seconds.
    #[pyo3(get)]
    seconds: f64,
}

#[pymethods]
impl Proof {
    /// Whether every element is reduced in the order of ranks, from rank 0.
    #[getter]
    fn is_rank_order(&self) -> bool {
        self.verified.is_rank_order()
    }

    /// The order of the reduction, the weakest of all chunks: rank, nested or own; none if nothing is reduced.
    #[getter]
    fn order(&self) -> &'static str {
        self.verified.order().name()
    }

    /// The number of steps of the schedule.
    #[getter]
    fn steps(&self) -> usize {
        self.verified.schedule().steps.len()
    }

    /// The reason why a node cannot run the schedule with elements of 4 bytes, with advice; None if it can.
    #[getter]
    fn cannot_run(&self) -> Option<String> {
        check_runnable(self.verified.schedule(), DType::F32.bytes()).err().map(|error| error.to_string())
    }

    /// Returns the expression by which a chunk is reduced, as `(r0 + r1 + r2)`.
    ///
    /// Raises:
    ///     InvalidArgument: the schedule has no such chunk.
    #[pyo3(signature = (chunk: "int"))]
    fn expression(&self, py: Python<'_>, chunk: &Bound<'_, PyAny>) -> PyResult<String> {
        let (chunk, chunks) = (integer("chunk", chunk, ANY)?, self.verified.schedule().chunks());
        if chunk >= chunks {
            return Err(invalid(py, format!("chunk is {chunk}, the schedule has {chunks}")));
        }
        Ok(self.verified.expression(chunk))
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.verified.schedule() == other.verified.schedule()
    }

    fn __hash__(&self) -> u64 {
        self.schedule.get().__hash__()
    }

    /// Returns what `pickle` needs: the schedule, which is proved again where it is unpickled.
    #[pyo3(signature = () -> "tuple[Any, ...]")]
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (Py<Schedule>,))> {
        let py = slf.py();
        Ok((py.import("nvcoll")?.getattr("verify")?, (slf.get().schedule.clone_ref(py),)))
    }

    fn __copy__<'py>(slf: &Bound<'py, Self>) -> Bound<'py, Self> {
        slf.clone()
    }

    #[pyo3(signature = (_memo: "object", /))]
    fn __deepcopy__<'py>(slf: &Bound<'py, Self>, _memo: &Bound<'_, PyAny>) -> Bound<'py, Self> {
        slf.clone()
    }

    fn __repr__(&self) -> String {
        let schedule = self.verified.schedule();
        let steps = counted(schedule.steps.len() as u64, "step");
        format!("<nvcoll.Proof {} {}, {steps}>", schedule.collective.name, schedule.algorithm)
    }

    /// Returns a table for notebooks.
    #[pyo3(signature = () -> "str")]
    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        in_notebook("proof_html", slf.as_any())
    }
}

/// Proves that a schedule gives the promised result, without races and deadlocks, for any count.
///
/// Args:
///     schedule: the schedule; or the names of a collective and an algorithm, as in ``verify("all_reduce", "ring")``.
///     algorithm: the algorithm of a collective, whose mapped schedule is proved.
///     world_size: the number of its ranks. Default: 8.
///
/// Returns:
///     The proof.
///
/// Raises:
///     InvalidArgument: a name is unknown, or there is no schedule.
///     Refuted: the schedule is wrong. `places` names the steps in conflict; `missing` names the missing wait, or is None.
///     KeyboardInterrupt: Ctrl-C ended the proof.
///
/// Example:
///     >>> import nvcoll
///     >>> proof = nvcoll.verify("all_reduce", "ring", world_size=4)
///     >>> proof.expression(1)
///     '(((r1 + r2) + r3) + r0)'
#[pyfunction]
#[pyo3(signature = (schedule: "Schedule | str", algorithm: "Algorithm | str | None" = None, *, world_size: "int | None" = None))]
pub(crate) fn verify(
    py: Python<'_>,
    schedule: &Bound<'_, PyAny>,
    algorithm: Option<&Bound<'_, PyAny>>,
    world_size: Option<&Bound<'_, PyAny>>,
) -> PyResult<Proof> {
    let schedule = match (schedule.cast::<Schedule>(), schedule.extract::<String>(), algorithm) {
        (Ok(schedule), _, None) if world_size.is_none() => schedule.clone().unbind(),
        (_, Ok(collective), Some(algorithm)) => {
            let eight = 8_u32.into_pyobject(py)?.into_any();
            let built = self::schedule(py, &collective, algorithm, world_size.unwrap_or(&eight), None, "mapped", None)?;
            Py::new(py, built)?
        }
        _ => {
            let found = schedule.repr().map_or_else(|_| "no schedule".to_owned(), |repr| repr.to_string());
            let advice = "pass a schedule, as nvcoll.schedule(\"all_reduce\", \"ring\", world_size=8), or \"all_reduce\", \"ring\"";
            return Err(invalid(py, format!("`schedule` is {found}: {advice}")));
        }
    };
    let start = Instant::now();
    let core = &schedule.get().core;
    let verified =
        py.detach(|| verify_interruptible(core.clone(), &interrupt())).map_err(|unproved| match unproved {
            Unproved::Refuted(refutation) => refuted(py, core, &refutation),
            Unproved::Interrupted(_) => raised(),
        })?;
    Ok(Proof { verified, schedule, seconds: start.elapsed().as_secs_f64() })
}

/// Explains in one line the data that each schedule moves and its longest chain of waits.
#[pyfunction]
pub(crate) fn why(py: Python<'_>, schedules: Vec<Py<Schedule>>) -> PyResult<String> {
    let costs = schedules.iter().map(|schedule| cost_of(py, &schedule.get().core));
    Ok(core_why(&costs.collect::<PyResult<Vec<_>>>()?))
}

/// Builds the schedule of an algorithm and lowers it to a path.
///
/// Args:
///     collective: the name of a collective.
///     algorithm: a name, an algorithm that is written in Python, or a schedule.
///     world_size: the number of ranks.
///     root: the root, for a collective that has one. Default: 0.
///     path: mapped, staged or pushed.
///     in_place: whether input and output are the same memory, as in `Node.all_reduce` without `out`. A schedule runs calls
///         of its own kind alone. Default: True, if the collective can be in place.
///
/// Returns:
///     The schedule, which is not proved.
///
/// Raises:
///     InvalidArgument: a name is unknown, a number is out of range, or the algorithm is for another collective.
///     BuildError: the algorithm broke a rule of the builder, or has too many steps.
///
/// Example:
///     >>> import nvcoll
///     >>> ring = nvcoll.schedule("all_reduce", "ring", world_size=8)
///     >>> ring.cost()  # bytes per byte of data, and waits in the longest chain
///     (4.375, 15)
#[pyfunction]
#[pyo3(
    signature = (
        collective, algorithm, *, world_size: "int", root: "int | None" = None, path: "_Path | str" = "mapped", in_place=None
    )
)]
pub(crate) fn schedule(
    py: Python<'_>,
    collective: &str,
    algorithm: &Bound<'_, PyAny>,
    world_size: &Bound<'_, PyAny>,
    root: Option<&Bound<'_, PyAny>>,
    path: &str,
    in_place: Option<bool>,
) -> PyResult<Schedule> {
    let roles = roles(world_size, root)?;
    let collective = collective_named(py, collective)?;
    let in_place = in_place.unwrap_or(collective.can_be_in_place);
    let aliasing = if in_place { Aliasing::InPlace } else { Aliasing::Disjoint };
    let path = path_named(py, path)?;
    let Ok(name) = algorithm.extract::<String>() else {
        let written = written(algorithm, roles, aliasing)?;
        let mapped = &written.get().core;
        if (mapped.collective, mapped.roles(), mapped.aliasing) != (collective, roles, aliasing) {
            let (found, ranks, root) = (mapped.collective.name, mapped.world_size, mapped.root);
            let aliasing = mapped.aliasing.words();
            let found = format!("{found} of {ranks} ranks, root {root}, {aliasing}");
            return Err(invalid(py, format!("`algorithm` is for {found}: ask for that")));
        }
        return Ok(Schedule::of(lowered(py, mapped, path)?));
    };
    let mapped = py.detach(|| build_interruptible(collective, &name, roles, aliasing, &interrupt()));
    Ok(Schedule::of(lowered(py, &mapped.map_err(|e| of_core(py, &e))?, path)?))
}

/// Returns the mapped schedule of a `Schedule`, or of an object with the method `schedule(world_size, in_place, root)`.
pub(crate) fn written<'py>(
    algorithm: &Bound<'py, PyAny>,
    roles: Roles,
    aliasing: Aliasing,
) -> PyResult<Bound<'py, Schedule>> {
    if let Ok(schedule) = algorithm.cast::<Schedule>() {
        return Ok(schedule.clone());
    }
    if !algorithm.hasattr("schedule")? {
        return Err(invalid(algorithm.py(), "`algorithm` must be a name, an algorithm or a schedule"));
    }
    let arguments = (roles.world_size, aliasing == Aliasing::InPlace, roles.root);
    Ok(algorithm.call_method1("schedule", arguments)?.cast_into::<Schedule>()?)
}

/// Reads `world_size=` and `root=`, whose default is 0. The builder checks whether the collective has a root.
pub(crate) fn roles(world_size: &Bound<'_, PyAny>, root: Option<&Bound<'_, PyAny>>) -> PyResult<Roles> {
    let world_size = integer("world_size", world_size, 1..=MAX_WORLD_SIZE)?;
    let root = root.map_or(Ok(0), |root| integer("root", root, 0..=world_size - 1))?;
    Ok(Roles { world_size, root })
}

/// Reads the name of a collective.
pub(crate) fn collective_named(py: Python<'_>, name: &str) -> PyResult<&'static Collective> {
    Collective::named(name).ok_or_else(|| {
        let known: Vec<&str> = nvcoll_core::collective::COLLECTIVES.iter().map(|c| c.name).collect();
        invalid(py, format!("no collective is called `{name}`: choose from {}", known.join(", ")))
    })
}

/// Reads `path=`.
pub(crate) fn path_named(py: Python<'_>, name: &str) -> PyResult<Path> {
    Path::ALL.iter().copied().find(|path| path.name() == name).ok_or_else(|| {
        let known: Vec<&str> = Path::ALL.iter().map(|path| path.name()).collect();
        invalid(py, format!("no path is called `{name}`: choose from {}", known.join(", ")))
    })
}
