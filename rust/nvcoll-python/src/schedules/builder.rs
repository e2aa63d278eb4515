//! `Builder` and `View`: an algorithm in Python. They call the core's builder. A line that breaks a rule raises there.

use std::sync::{Mutex, OnceLock, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyList, PyRange, PyRangeMethods, PyTuple};

use nvcoll_core::builder::{Builder as CoreBuilder, Chunks, Region};
use nvcoll_core::collective::Collective;
use nvcoll_core::compose::Groups;
use nvcoll_core::error::Error;
use nvcoll_core::schedule::Aliasing;

use crate::error::{invalid, of_core};
use crate::gil::interrupt;
use crate::integers::{integer, ANY};
use crate::schedules::schedule::{collective_named, roles, Schedule};

/// Chunks of one buffer of one rank. A view is a place, not a value: a later step can overwrite it.
///
/// Example:
///     >>> import nvcoll
///     >>> b = nvcoll.Builder("all_reduce", 2)
///     >>> b.input(1, 0)
///     input[r1].0 of 1
#[pyclass(name = "View", module = "nvcoll", frozen, eq, from_py_object)]
#[derive(Clone, PartialEq)]
pub(crate) struct View(Region);

#[pymethods]
impl View {
    /// The rank that owns the memory.
    #[getter]
    fn rank(&self) -> u32 {
        self.0.rank
    }

    fn __repr__(&self) -> String {
        self.0.to_string()
    }
}

/// Records one sequential program of all ranks. A step sees the writes of all steps before it; `finish` derives the waits.
///
/// Views are places. In place, `output(r, c)` is the memory of `input(r, c)`: a step that writes it overwrites the
/// contribution of rank r.
///
/// Args:
///     collective: the name of a collective.
///     world_size: the number of ranks.
///     root: the root, for a collective that has one. Default: 0.
///     in_place: whether input and output are the same memory.
///
/// Raises:
///     InvalidArgument: the collective is unknown, or a number is out of range.
///     BuildError: here, and at each method: the call broke a rule of the builder; the message names it.
///
/// Example:
///     >>> import nvcoll
///     >>> b = nvcoll.Builder("broadcast", 2)
///     >>> for rank in range(2):
///     ...     view = b.copy(b.input(0, 0), into=b.output(rank, 0))
///     >>> nvcoll.verify(b.finish("star")).expression(0)
///     'r0'
#[pyclass(name = "Builder", module = "nvcoll", frozen)]
pub(crate) struct Builder {
    core: Mutex<CoreBuilder>,
    /// The step at which `fail_at` raises, and its message.
    fails_at: OnceLock<(usize, String)>,
}

#[pymethods]
impl Builder {
    #[new]
    #[pyo3(signature = (collective, world_size: "int", *, root: "int | None" = None, in_place=false))]
    fn new(
        py: Python<'_>,
        collective: &str,
        world_size: &Bound<'_, PyAny>,
        root: Option<&Bound<'_, PyAny>>,
        in_place: bool,
    ) -> PyResult<Self> {
        let roles = roles(world_size, root)?;
        let aliasing = if in_place { Aliasing::InPlace } else { Aliasing::Disjoint };
        let builder = CoreBuilder::new(collective_named(py, collective)?, roles, aliasing);
        builder.map(|b| Self { core: Mutex::new(b), fails_at: OnceLock::new() }).map_err(|e| of_core(py, &e))
    }

    /// The root; 0 if the collective has none.
    #[getter]
    fn root(&self) -> u32 {
        self.lock().root()
    }

    /// The number of ranks.
    #[getter]
    fn world_size(&self) -> u32 {
        self.lock().world_size()
    }

    /// Whether input and output are the same memory.
    #[getter]
    fn in_place(&self) -> bool {
        self.lock().is_in_place()
    }

    /// The whole input of every rank, by rank.
    #[getter]
    fn inputs(&self) -> Vec<View> {
        self.lock().inputs().into_iter().map(View).collect()
    }

    /// The whole output of every rank, by rank.
    #[getter]
    fn outputs(&self) -> Vec<View> {
        self.lock().outputs().into_iter().map(View).collect()
    }

    /// Cuts every part into `per_part` chunks and returns the numbers of all chunks, part by part.
    #[pyo3(signature = (per_part: "int"))]
    fn chunks(&self, per_part: &Bound<'_, PyAny>) -> PyResult<Vec<u32>> {
        let number = integer("per_part", per_part, ANY)?;
        self.record(per_part.py(), |b| b.chunks(number).collect())
    }

    /// Puts the following steps into `channel`. The queues of different channels are independent.
    #[pyo3(signature = (channel: "int"))]
    fn channel(&self, channel: &Bound<'_, PyAny>) -> PyResult<()> {
        let number = integer("channel", channel, ANY)?;
        self.record(channel.py(), |b| b.channel(number))
    }

    /// Returns the view of a chunk, or of a `range` of chunks, of a rank's input.
    #[pyo3(signature = (rank: "int", chunk: "int | range"))]
    fn input(&self, rank: &Bound<'_, PyAny>, chunk: &Bound<'_, PyAny>) -> PyResult<View> {
        let (py, rank, chunks) = (rank.py(), integer("rank", rank, ANY)?, chunks(chunk)?);
        self.named(py, |b| b.input(rank, chunks))
    }

    /// Returns the view of a chunk, or of a `range` of chunks, of a rank's output.
    #[pyo3(signature = (rank: "int", chunk: "int | range"))]
    fn output(&self, rank: &Bound<'_, PyAny>, chunk: &Bound<'_, PyAny>) -> PyResult<View> {
        let (py, rank, chunks) = (rank.py(), integer("rank", rank, ANY)?, chunks(chunk)?);
        self.named(py, |b| b.output(rank, chunks))
    }

    /// Returns the view of a chunk, or of a `range` of chunks, of a rank's scratch: memory for intermediate values. Each layer is as
    /// long as the data.
    #[pyo3(
        signature = (
            rank: "int", chunk: "int | range", *, layer: "int" = None
        ), text_signature = "($self, rank, chunk, *, layer=0)"
    )]
    fn scratch(
        &self,
        rank: &Bound<'_, PyAny>,
        chunk: &Bound<'_, PyAny>,
        layer: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<View> {
        let (py, rank, chunks) = (rank.py(), integer("rank", rank, ANY)?, chunks(chunk)?);
        let layer = layer.map_or(Ok(0), |layer| integer("layer", layer, 0..=u32::from(u16::MAX) - 1))?;
        self.named(py, |b| b.scratch(rank, layer as u16, chunks))
    }

    /// Folds views, in the order of the arguments, and stores the result in every view of `into`. Returns the first view of `into`.
    ///
    /// Args:
    ///     views: views, or lists of views, of one rank or several.
    ///     into: a view, or a list of views.
    ///     at: ``"switch"``: a fabric that can does the step in the switch.
    #[pyo3(signature = (*views: "View | Sequence[View]", into: "View | Sequence[View]", at=None))]
    fn fold(&self, views: &Bound<'_, PyTuple>, into: &Bound<'_, PyAny>, at: Option<&str>) -> PyResult<View> {
        let py = into.py();
        self.step(py, &regions(views.as_any())?, &regions(into)?, at)
    }

    /// Copies a view into every view of `into`. Returns the first view of `into`. `at="switch"`: a fabric that can does the step in
    /// the switch.
    #[pyo3(signature = (view, into: "View | Sequence[View]", *, at=None))]
    fn copy(&self, view: &View, into: &Bound<'_, PyAny>, at: Option<&str>) -> PyResult<View> {
        self.step(into.py(), std::slice::from_ref(&view.0), &regions(into)?, at)
    }

    /// Copies a view into every view of `into`; the rank that owns the view executes the step. Returns the first view of `into`.
    #[pyo3(signature = (view, into: "View | Sequence[View]"))]
    fn push(&self, view: &View, into: &Bound<'_, PyAny>) -> PyResult<View> {
        let dst = regions(into)?;
        self.record(into.py(), |b| View(b.push(&view.0, &dst)))
    }

    /// Returns the groups of `per_group` neighbouring ranks, or of the ranks at distances of `stride`.
    #[pyo3(signature = (per_group: "int | None" = None, *, stride: "int | None" = None))]
    fn groups(
        &self,
        py: Python<'_>,
        per_group: Option<&Bound<'_, PyAny>>,
        stride: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Vec<Vec<u32>>> {
        let number = |name, value: Option<&Bound<'_, PyAny>>| value.map(|value| integer(name, value, ANY)).transpose();
        match (number("per_group", per_group)?, number("stride", stride)?) {
            (Some(per_group), None) => self.record(py, |b| b.groups(per_group)),
            (None, Some(stride)) => self.record(py, |b| b.strided_groups(stride)),
            _ => Err(invalid(py, "groups needs either the ranks per group or `stride`")),
        }
    }

    /// Reduces the views of each group; member i receives the i-th share.
    ///
    /// Args:
    ///     views: one view per rank.
    ///     over: groups of ranks, in which every rank occurs once.
    ///     algorithm: a name, or an algorithm of reduce_scatter.
    ///
    /// Returns:
    ///     The shares, one view per rank.
    #[pyo3(
        signature = (views, *, over: "Sequence[Sequence[int]]", algorithm=None),
        text_signature = "($self, views, *, over, algorithm='auto')"
    )]
    fn reduce_scatter(
        &self,
        py: Python<'_>,
        views: Vec<View>,
        over: &Bound<'_, PyAny>,
        algorithm: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Vec<View>> {
        self.compose(py, &nvcoll_core::collective::REDUCE_SCATTER, views, None, over, algorithm)
    }

    /// Reduces the views of each group; every member receives the whole result.
    ///
    /// Args:
    ///     views: one view per rank.
    ///     over: groups of ranks, in which every rank occurs once.
    ///     algorithm: a name, or an algorithm of all_reduce.
    ///
    /// Returns:
    ///     The results, one view per rank.
    #[pyo3(
        signature = (views, *, over: "Sequence[Sequence[int]]", algorithm=None),
        text_signature = "($self, views, *, over, algorithm='auto')"
    )]
    fn all_reduce(
        &self,
        py: Python<'_>,
        views: Vec<View>,
        over: &Bound<'_, PyAny>,
        algorithm: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Vec<View>> {
        self.compose(py, &nvcoll_core::collective::ALL_REDUCE, views, None, over, algorithm)
    }

    /// Gathers the shares of each group into `into` on every member.
    ///
    /// Args:
    ///     views: the shares, one view per rank.
    ///     into: the destinations, one view per rank.
    ///     over: groups of ranks, in which every rank occurs once.
    ///     algorithm: a name, or an algorithm of all_gather.
    ///
    /// Returns:
    ///     `into`.
    #[pyo3(
        signature = (views, *, into, over: "Sequence[Sequence[int]]", algorithm=None),
        text_signature = "($self, views, *, into, over, algorithm='auto')"
    )]
    fn all_gather(
        &self,
        py: Python<'_>,
        views: Vec<View>,
        into: Vec<View>,
        over: &Bound<'_, PyAny>,
        algorithm: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Vec<View>> {
        self.compose(py, &nvcoll_core::collective::ALL_GATHER, views, Some(into), over, algorithm)
    }

    /// Derives queues and waits, and returns the mapped schedule. `name` is one word, without blanks and `#`.
    fn finish(&self, py: Python<'_>, name: &str) -> PyResult<Schedule> {
        if name.is_empty() || name.contains(|c: char| c.is_whitespace() || c == '#') {
            return Err(invalid(py, format!("the name is {name:?}: it must be one word, without blanks and #")));
        }
        let mut builder = self.lock().clone();
        builder.set_interrupt(&interrupt());
        py.detach(|| builder.finish(name)).map(Schedule::of).map_err(|e| of_core(py, &e))
    }

    /// Makes the call that records a step raise BuildError with a message. The package runs an algorithm again in this way, so that
    /// an error of `finish` is raised at the line of the step.
    fn fail_at(&self, step: usize, message: String) {
        let _ = self.fails_at.set((step, message)); // the first stays
    }
}

impl Builder {
    fn lock(&self) -> std::sync::MutexGuard<'_, CoreBuilder> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record<T>(&self, py: Python<'_>, line: impl FnOnce(&mut CoreBuilder) -> T) -> PyResult<T> {
        let (value, check, steps) = {
            let mut builder = self.lock();
            (line(&mut builder), builder.check(), builder.steps())
        };
        let check = check.and_then(|()| match self.fails_at.get() {
            Some((step, message)) if *step < steps => Err(Error::Build(message.clone())),
            _ => Ok(()),
        });
        check.map(|()| value).map_err(|e| of_core(py, &e)) // not under the lock: to make an exception may run other threads
    }

    /// Returns a view, whose chunks must exist.
    fn named(&self, py: Python<'_>, name: impl FnOnce(&mut CoreBuilder) -> Region) -> PyResult<View> {
        let (region, found) = self.record(py, |b| {
            let region = name(b);
            let found = b.admit_region(&region);
            (region, found)
        })?;
        found.map(|()| View(region)).map_err(|message| of_core(py, &Error::Build(message)))
    }

    fn step(&self, py: Python<'_>, src: &[Region], dst: &[Region], at: Option<&str>) -> PyResult<View> {
        match at {
            None => self.record(py, |b| View(b.fold(src, dst))),
            Some("switch") => self.record(py, |b| View(b.at_switch(src, dst))),
            Some(other) => Err(invalid(py, format!("`at` is {other:?}: it must be \"switch\" or left out"))),
        }
    }

    fn compose(
        &self,
        py: Python<'_>,
        collective: &'static Collective,
        views: Vec<View>,
        into: Option<Vec<View>>,
        over: &Bound<'_, PyAny>,
        algorithm: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Vec<View>> {
        let (world_size, over) = (self.lock().world_size(), groups(over)?);
        let is_complete = |views: &Vec<View>| views.len() == world_size as usize;
        if !is_complete(&views) || into.as_ref().is_some_and(|into| !is_complete(into)) {
            return Err(invalid(py, format!("views are listed by rank: pass {world_size}, one per rank")));
        }
        let mut members: Vec<u32> = over.iter().flatten().copied().collect();
        members.sort_unstable();
        if !members.iter().copied().eq(0..world_size) {
            return Err(invalid(py, "`over` must name every rank once: use groups()"));
        }
        let regions = |views: Vec<View>| views.into_iter().map(|view| view.0).collect::<Vec<Region>>();
        let (from, into) = (regions(views), into.map(regions));
        let name = algorithm.map_or(Ok("auto".to_owned()), |algorithm| algorithm.extract::<String>());
        let shares = match (name, algorithm) {
            (Err(_), Some(written)) => {
                check_written(written, collective)?;
                self.compose_written(collective, written, &from, into.as_deref(), &over)
            }
            (name, _) => {
                let name = name?;
                self.record(py, |b| b.compose(collective, &from, into.as_deref(), &over, &name))
            }
        };
        Ok(shares?.into_iter().map(View).collect())
    }

    /// Composes an algorithm that is written in Python. No lock is held while it runs, because it may use this builder.
    fn compose_written(
        &self,
        collective: &'static Collective,
        written: &Bound<'_, PyAny>,
        from: &[Region],
        into: Option<&[Region]>,
        over: &Groups,
    ) -> PyResult<Vec<Region>> {
        let (py, mut outer, mut raised) = (written.py(), self.lock().clone(), None);
        let before = outer.steps();
        let shares = outer.compose_by(collective, from, into, over, &mut |inner| {
            written_on(written, inner).map_err(|error| {
                raised = Some(error);
                Error::Build("the algorithm of a group raised an exception".into())
            })
        });
        if let Some(error) = raised {
            return Err(error);
        }
        if self.lock().steps() != before {
            let message = "the algorithm of a group wrote to the builder of all ranks";
            return Err(of_core(py, &Error::Build(message.into())));
        }
        self.record(py, |b| {
            *b = outer;
            shares
        })
    }
}

/// Refuses an object that is no algorithm of a collective: one with `collective` and `write(builder)`.
fn check_written(algorithm: &Bound<'_, PyAny>, collective: &Collective) -> PyResult<()> {
    if !algorithm.hasattr("write").unwrap_or(false) {
        return Err(invalid(algorithm.py(), "`algorithm` must be a name or an algorithm"));
    }
    let of: String = algorithm.getattr("collective")?.extract()?;
    match of == collective.name {
        true => Ok(()),
        false => {
            let message = format!("`algorithm` is one of {of}, {} is composed", collective.name);
            Err(invalid(algorithm.py(), message))
        }
    }
}

/// Runs an algorithm that is written in Python on `inner`.
fn written_on(algorithm: &Bound<'_, PyAny>, inner: &mut CoreBuilder) -> PyResult<()> {
    let builder = Builder { core: Mutex::new(inner.clone()), fails_at: OnceLock::new() };
    let builder = Bound::new(algorithm.py(), builder)?;
    algorithm.call_method1("write", (&builder,))?;
    *inner = builder.get().lock().clone();
    Ok(())
}

/// Reads a chunk or a range of chunks.
fn chunks(chunk: &Bound<'_, PyAny>) -> PyResult<Chunks> {
    let Ok(range) = chunk.cast::<PyRange>() else { return Ok(integer("chunk", chunk, ANY)?.into()) };
    let ends = [range.start()?, range.stop()?].map(u32::try_from);
    match (ends, range.step()?) {
        ([Ok(start), Ok(stop)], 1) if start < stop => Ok((start..stop).into()),
        _ => {
            Err(invalid(chunk.py(), format!("chunk is {}: a range must count up by 1 and not be empty", range.repr()?)))
        }
    }
}

/// Reads lists of ranks.
fn groups(over: &Bound<'_, PyAny>) -> PyResult<Vec<Vec<u32>>> {
    let group = |ranks: PyResult<Bound<'_, PyAny>>| -> PyResult<Vec<u32>> {
        ranks?.try_iter()?.map(|rank| integer("a rank in `over`", &rank?, ANY)).collect()
    };
    over.try_iter()?.map(group).collect()
}

/// Reads a view, or a list or tuple of views, perhaps nested.
fn regions(views: &Bound<'_, PyAny>) -> PyResult<Vec<Region>> {
    if let Ok(view) = views.cast::<View>() {
        return Ok(vec![view.get().0.clone()]);
    }
    if views.is_instance_of::<PyList>() || views.is_instance_of::<PyTuple>() {
        let mut all = Vec::new();
        for view in views.try_iter()? {
            all.extend(regions(&view?)?);
        }
        return Ok(all);
    }
    Err(invalid(views.py(), format!("expected a view or a list of views, found {}", views.get_type().name()?)))
}
