//! `Fabric.simulate`: a schedule, or an algorithm for all GPUs, in virtual time.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use nvcoll_core::algorithm::build_interruptible;
use nvcoll_core::collective::{Collective, Roles};
use nvcoll_core::counts::Counts;
use nvcoll_core::dtype::DType;
use nvcoll_core::partition::Partition;
use nvcoll_core::schedule::{Aliasing, Schedule as Core};
use nvcoll_fabric::nccl::{NcclSettings, Protocol};
use nvcoll_fabric::predict::{Launch, SimulationSettings};
use nvcoll_fabric::simulate::{protocol, AtSwitch, Settings, Simulation, Timeline as Simulated};
use nvcoll_fabric::units::Ps;
use nvcoll_fabric::{Error, Result};

use crate::error::{invalid, of_core, of_fabric};
use crate::gil::{interrupt, watched_in_fabric};
use crate::integers::integer;
use crate::machines::conditions::{damages_of, slowdowns_of, starts_of};
use crate::machines::fabric::Fabric;
use crate::machines::timeline::Timeline;
use crate::schedules::schedule::{collective_named, written, Schedule};
use crate::sizes::{sizes_of, Sizes};

/// The most steps of a simulation, over all tiles. Each has a record of 32 bytes. Chosen: 2 GiB, and minutes.
const MOST_STEPS: u64 = 1 << 26;

/// The default bytes of a chunk in one tile. Cited: a slice of NCCL's all_reduce with the protocol Simple, two of the eight steps of
/// its buffer of 4 MiB.
const SLICE_BYTES: u64 = 1 << 20;

#[pymethods]
impl Fabric {
    /// Simulates a schedule in virtual time. No bytes move. The first GPUs are its ranks.
    ///
    /// Nothing is proved: a schedule that :func:`verify` refutes has a time too. Time is whole picoseconds inside, so the same
    /// input gives the same output on every machine. Without `launch`, a step costs its bytes and NCCL's published latencies of
    /// the protocol: the times compare schedules and predict no call. For several sizes, routes are found once.
    ///
    /// Args:
    ///     schedule: a `Schedule` for at most ``world_size`` ranks; or an algorithm for all GPUs, written in
    ///         Python or named.
    ///     nbytes: a size in bytes, a text such as `"1M"`, or several sizes: the longer buffer of a rank, a multiple of the
    ///         element's bytes. nccl-tests' count.
    ///     collective: the collective of a named algorithm; None for others.
    ///     dtype: the dtype of the elements, by name.
    ///     protocol: ``ideal`` (bytes over links alone), ``ll``, ``ll128`` or ``simple``.
    ///     slice_bytes: bytes of every chunk in one tile; for several sizes also one number per size. Default: 1 MiB.
    ///     spans: whether to keep every step in every tile.
    ///     at_switch: for steps at a switch, where no switch can do them: ``refuse``, or ``ignore`` (ranks do them point to
    ///         point).
    ///     launch: None, or a launch of :meth:`predict`. With a launch, rates, latencies and the time before the first step
    ///         are the fitted constants of :meth:`predict`. A ring with slices of the whole size takes the time that it
    ///         predicts.
    ///     starts: the microseconds at which ranks enter: a number per rank, or a mapping from ranks. Default: 0.
    ///     slowdowns: the factor by which the steps of ranks take longer, 1 to 1000: a number per rank, or a mapping from
    ///         ranks. Default: 1.
    ///     damage: the part of the rate that links keep, 0 (cut, routes go round) to 1: a mapping from pairs of names in
    ///         `devices`, as ``{("gpu0", "nvswitch"): 0.5}``. A pair holds for both directions, unless the mapping has the
    ///         reverse pair too.
    ///
    /// Returns:
    ///     A `Timeline`, in microseconds; for several sizes a list in their order.
    ///
    /// Raises:
    ///     InvalidArgument: a name is unknown; a number is out of range; there are fewer GPUs than ranks; no switch can do a
    ///         step; there is no path; there are more than 2^26 steps.
    ///     BuildError: the waits of the schedule form a cycle, or an algorithm broke a rule of the builder.
    ///     KeyboardInterrupt: Ctrl-C ended the simulation.
    #[pyo3(
        signature = (
            schedule: "Schedule | Algorithm | str", nbytes: "_Size", *, collective=None, dtype="float32", protocol="simple",
            slice_bytes: "int | Sequence[int] | None" = None, spans=false,
            at_switch: "Literal['refuse', 'ignore']" = "refuse", launch: "_Launch | None" = None,
            starts: "Sequence[float] | Mapping[int, float] | None" = None,
            slowdowns: "Sequence[float] | Mapping[int, float] | None" = None,
            damage: "Mapping[tuple[str, str], float] | None" = None
        ) -> "Timeline"
    )]
    #[allow(clippy::too_many_arguments)]
    fn simulate<'py>(
        slf: &Bound<'py, Self>,
        schedule: &Bound<'py, PyAny>,
        nbytes: &Bound<'py, PyAny>,
        collective: Option<&str>,
        dtype: &str,
        protocol: &str,
        slice_bytes: Option<&Bound<'_, PyAny>>,
        spans: bool,
        at_switch: &str,
        launch: Option<&str>,
        starts: Option<&Bound<'_, PyAny>>,
        slowdowns: Option<&Bound<'_, PyAny>>,
        damage: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        let dtype = dtype_of(py, dtype)?;
        let costs = protocol::named(protocol).map_err(|error| of_fabric(py, &error))?;
        let sizes = sizes_of(nbytes)?;
        let slices = slices_of(py, slice_bytes, &sizes)?;
        let counts = sizes.all().iter().map(|&nbytes| elements_of(py, nbytes, dtype)).collect::<PyResult<Vec<_>>>()?;
        let given = this.schedule_of(schedule, collective)?;
        let core = &given.get().core;
        let settings = Settings {
            spans,
            at_switch: AtSwitch::named(at_switch).map_err(|error| of_fabric(py, &error))?,
            starts_ps: starts_of(starts, core.world_size)?,
            slowdowns: slowdowns_of(slowdowns, core.world_size)?,
            damages: damages_of(damage, this.hardware())?,
            ..Settings::new(costs, SLICE_BYTES)
        };
        let launched = launch.map(|launch| launched(py, launch, protocol)).transpose()?;
        let asked = Asked { fabric: this, schedule: core, dtype, settings, launched };
        let simulated = watched_in_fabric(py, |is_interrupted| asked.run(&counts, &slices, is_interrupted))?;
        let how = PyDict::new(py);
        how.set_item("dtype", dtype.name())?;
        how.set_item("protocol", protocol)?;
        how.set_item("spans", spans)?;
        how.set_item("at_switch", at_switch)?;
        how.set_item("launch", launch)?;
        for (name, value) in [("starts", starts), ("slowdowns", slowdowns), ("damage", damage)] {
            how.set_item(name, value)?;
        }
        let timelines = simulated.into_iter().zip(sizes.all().iter().zip(&slices)).map(|(one, (nbytes, slice))| {
            let asked = how.copy()?;
            asked.set_item("nbytes", nbytes)?;
            asked.set_item("slice_bytes", slice)?;
            Ok(Timeline::of(one, slf, given.clone().unbind(), spans, asked.unbind()))
        });
        sizes.answers(py, timelines.collect::<PyResult<Vec<_>>>()?)
    }
}

fn dtype_of(py: Python<'_>, name: &str) -> PyResult<DType> {
    DType::named(name).ok_or_else(|| invalid(py, format!("no dtype is called `{name}`")))
}

/// Reads how calls are launched, and the protocol by the name that NCCL prints, in any case.
fn launched(py: Python<'_>, launch: &str, protocol: &str) -> PyResult<(Launch, Protocol)> {
    let launch = Launch::named(launch).map_err(|error| of_fabric(py, &error))?;
    Ok((launch, Protocol::named(protocol).map_err(|error| of_fabric(py, &error))?))
}

/// Returns the number of elements of `nbytes`, which must be whole elements.
fn elements_of(py: Python<'_>, nbytes: u64, dtype: DType) -> PyResult<u64> {
    let element = dtype.bytes() as u64;
    if !nbytes.is_multiple_of(element) {
        return Err(invalid(py, format!("nbytes is {nbytes}: pass a multiple of {element}, which {dtype} has")));
    }
    Ok(nbytes / element)
}

/// Returns the bytes of a slice for each size: one number holds for all sizes.
fn slices_of(py: Python<'_>, value: Option<&Bound<'_, PyAny>>, sizes: &Sizes) -> PyResult<Vec<u64>> {
    let one = |value: &Bound<'_, PyAny>| Ok(integer("slice_bytes", value, 1..=i64::MAX)?.unsigned_abs());
    let number = sizes.all().len();
    let Some(value) = value else { return Ok(vec![SLICE_BYTES; number]) };
    let Some(each) = matches!(sizes, Sizes::Many(_)).then(|| value.try_iter().ok()).flatten() else {
        return Ok(vec![one(value)?; number]);
    };
    let slices: Vec<u64> = each.map(|slice| one(&slice?)).collect::<PyResult<_>>()?;
    if slices.len() != number {
        let message = format!("slice_bytes has {} numbers for {number} sizes: pass one for each, or one", slices.len());
        return Err(invalid(py, message));
    }
    Ok(slices)
}

/// In place where the collective can be, as the default of `nvcoll.schedule`.
fn aliasing_of(collective: &Collective) -> Aliasing {
    if collective.can_be_in_place {
        Aliasing::InPlace
    } else {
        Aliasing::Disjoint
    }
}

impl Fabric {
    /// Finds the schedule that is meant: itself, or that of an algorithm for all GPUs.
    fn schedule_of<'py>(&self, given: &Bound<'py, PyAny>, collective: Option<&str>) -> PyResult<Bound<'py, Schedule>> {
        let py = given.py();
        let contract = collective.map(|name| collective_named(py, name)).transpose()?;
        let roles = Roles { world_size: self.hardware().world_size(), root: 0 };
        if let Ok(name) = given.extract::<String>() {
            let contract = contract
                .ok_or_else(|| invalid(py, format!("`{name}` does not name its collective: pass collective=")))?;
            let mapped = py.detach(|| build_interruptible(contract, &name, roles, aliasing_of(contract), &interrupt()));
            return Bound::new(py, Schedule::of(mapped.map_err(|error| of_core(py, &error))?));
        }
        let schedule = match given.cast::<Schedule>() {
            Ok(schedule) => schedule.clone(),
            Err(_) => {
                let own = || given.getattr("collective").and_then(|name| name.extract::<String>());
                let own = own().map_err(|_| invalid(py, "`schedule` must be a schedule, an algorithm or a name"))?;
                written(given, roles, aliasing_of(collective_named(py, &own)?))?
            }
        };
        let found = schedule.get().core.collective;
        match contract {
            Some(contract) if contract != found => {
                Err(invalid(py, format!("`schedule` is for {}, `collective` is {}", found.name, contract.name)))
            }
            _ => Ok(schedule),
        }
    }
}

/// What is simulated, whatever its size.
struct Asked<'a> {
    fabric: &'a Fabric,
    schedule: &'a Core,
    dtype: DType,
    settings: Settings,
    /// How calls are launched and by which protocol of NCCL, if the fitted constants are to be paid.
    launched: Option<(Launch, Protocol)>,
}

impl Asked<'_> {
    /// Runs the schedule for each number of elements, with its slice.
    fn run(&self, counts: &[u64], slices: &[u64], is_interrupted: &mut dyn FnMut() -> bool) -> Result<Vec<Simulated>> {
        let (fabric, dtype) = (self.fabric.hardware(), self.dtype);
        let predictor =
            self.launched.map(|_| self.fabric.cache().predictor(fabric, None, &NcclSettings::default())).transpose()?;
        let fitted = predictor.as_ref().map(|predictor| predictor.simulation_settings(fabric, self.schedule));
        let mut prepared: Option<Simulation> = None;
        let mut one = |(&count, &slice_bytes): (&u64, &u64)| {
            // Every element of a buffer is moved by some step of some tile.
            self.check(count / (slice_bytes / dtype.bytes() as u64).max(1), slice_bytes)?;
            let partition = self.partition(count)?;
            let mut settings = Settings { slice_bytes, ..self.settings.clone() };
            let mut least = 0;
            if let Some((fitted, launched)) = fitted.as_ref().zip(self.launched) {
                least = self.fit(&mut settings, fitted, launched, count, &partition)?;
            }
            let simulation = match &mut prepared {
                Some(simulation) => {
                    simulation.resize(&partition, dtype, &settings)?;
                    simulation
                }
                none => none.insert(Simulation::new(self.schedule, &partition, dtype, fabric, &settings)?),
            };
            self.check(simulation.steps(), slice_bytes)?;
            let mut simulated = simulation.run_until(is_interrupted)?;
            simulated.ends_ps.iter_mut().for_each(|end| *end = least.max(*end));
            Ok(simulated)
        };
        counts.iter().zip(slices).map(&mut one).collect()
    }

    fn check(&self, steps: u64, slice_bytes: u64) -> Result<()> {
        let message = || format!("{steps} steps are more than {MOST_STEPS}: pass slice_bytes above {slice_bytes}");
        (steps <= MOST_STEPS).then_some(()).ok_or_else(|| self.unable(message()))
    }

    fn unable(&self, message: String) -> Error {
        Error::Unable { fabric: self.fabric.hardware().name.clone(), message }
    }

    fn partition(&self, count: u64) -> Result<Partition> {
        let count = usize::try_from(count).map_err(|error| self.unable(error.to_string()))?;
        let counts = Counts::Even(count).of_parts(self.schedule.collective, self.schedule.roles());
        Ok(Partition::new(counts, self.schedule.chunks_per_part))
    }

    /// Puts the constants of predictions into settings; returns the time before which no call ends.
    fn fit(
        &self,
        settings: &mut Settings,
        fitted: &SimulationSettings<'_>,
        (launch, protocol): (Launch, Protocol),
        count: u64,
        partition: &Partition,
    ) -> Result<Ps> {
        let element = self.dtype.bytes() as u64;
        let longest = (0..partition.chunks()).map(|chunk| partition.chunk_count(chunk) as u64 * element).max();
        let step_bytes = longest.unwrap_or(0).min(settings.slice_bytes);
        let of_call = fitted.of(protocol, launch, (count * element, step_bytes))?;
        (settings.protocol, settings.fitted) = (of_call.protocol, of_call.fitted);
        Ok(fitted.least(protocol, launch, count * element))
    }
}
