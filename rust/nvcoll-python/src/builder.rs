//! `Builder` and `View`: how an algorithm is written in Python. Thin over the core's builder; errors are raised at the line
//! that broke a rule.

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
use crate::schedule::{collective_named, roles, Schedule};

/// Chunks of one buffer of one rank: a place, not a value. A later step that writes it changes what it holds.
#[pyclass(name = "View", module = "nvcoll", frozen, from_py_object)]
#[derive(Clone)]
pub(crate) struct View(Region);

#[pymethods]
impl View {
    /// The rank whose memory it is.
    #[getter]
    fn rank(&self) -> u32 {
        self.0.rank
    }

    fn __repr__(&self) -> String {
        self.0.to_string()
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

/// Records the sequential program of all ranks, step by step: a step sees what the steps before it have written.
///
/// Views are places. In place, `output(r, c)` is the memory of `input(r, c)`: a step that writes it replaces the
/// contribution of rank r. What must wait for what is derived from the order of the program.
#[pyclass(name = "Builder", module = "nvcoll", frozen)]
pub(crate) struct Builder {
    core: Mutex<CoreBuilder>,
    /// The step that will be wrong in the end, and what will be wrong with it: see [`Builder::fail_at`].
    fails_at: OnceLock<(usize, String)>,
}

#[pymethods]
impl Builder {
    #[new]
    #[pyo3(signature = (collective, world_size, *, root=None, in_place=false))]
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

    /// The rank that has or receives everything; 0 if the collective has no root.
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

    /// Cuts every part into `per_part` chunks and returns the indices of all chunks, part by part.
    fn chunks(&self, per_part: &Bound<'_, PyAny>) -> PyResult<Vec<u32>> {
        let number = integer("per_part", per_part, ANY)?;
        self.record(per_part.py(), |b| b.chunks(number).collect())
    }

    /// Makes the steps that follow belong to `channel`: an independent slice of the collective with queues of its own.
    fn channel(&self, channel: &Bound<'_, PyAny>) -> PyResult<()> {
        let number = integer("channel", channel, ANY)?;
        self.record(channel.py(), |b| b.channel(number))
    }

    /// Names a chunk, or a `range` of chunks, of a rank's input.
    fn input(&self, rank: &Bound<'_, PyAny>, chunk: &Bound<'_, PyAny>) -> PyResult<View> {
        let (py, rank, chunks) = (rank.py(), integer("rank", rank, ANY)?, chunks(chunk)?);
        self.named(py, |b| b.input(rank, chunks))
    }

    /// Names a chunk, or a `range` of chunks, of a rank's output.
    fn output(&self, rank: &Bound<'_, PyAny>, chunk: &Bound<'_, PyAny>) -> PyResult<View> {
        let (py, rank, chunks) = (rank.py(), integer("rank", rank, ANY)?, chunks(chunk)?);
        self.named(py, |b| b.output(rank, chunks))
    }

    /// Names a chunk, or a `range` of chunks, of a rank's scratch: memory for intermediate values, in layers as long as the data.
    #[pyo3(signature = (rank, chunk, *, layer=None), text_signature = "($self, rank, chunk, *, layer=0)")]
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

    /// Folds views, in the order listed, into every view of `into`; returns the first of them.
    ///
    /// `at="switch"`: a fabric with the ability does the step in the switch.
    #[pyo3(signature = (*views, into, at=None))]
    fn fold(&self, views: &Bound<'_, PyTuple>, into: &Bound<'_, PyAny>, at: Option<&str>) -> PyResult<View> {
        let py = into.py();
        self.step(py, &regions(views.as_any())?, &regions(into)?, at)
    }

    /// Copies a view into every view of `into`; returns the first of them. `at` as in `fold`.
    #[pyo3(signature = (view, into, *, at=None))]
    fn copy(&self, view: &View, into: &Bound<'_, PyAny>, at: Option<&str>) -> PyResult<View> {
        self.step(into.py(), std::slice::from_ref(&view.0), &regions(into)?, at)
    }

    /// Copies a view into every view of `into`, executed by the rank that has it; returns the first of `into`.
    fn push(&self, view: &View, into: &Bound<'_, PyAny>) -> PyResult<View> {
        let dst = regions(into)?;
        self.record(into.py(), |b| View(b.push(&view.0, &dst)))
    }

    /// The groups of `per_group` neighbouring ranks, or of the ranks that are `stride` apart.
    #[pyo3(signature = (per_group=None, *, stride=None))]
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

    /// Reduces each group's views and leaves member i the i-th share; returns the shares, by rank.
    #[pyo3(
        signature = (views, *, over, algorithm=None),
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

    /// Reduces each group's views and leaves every member the whole; returns it, by rank.
    #[pyo3(
        signature = (views, *, over, algorithm=None),
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

    /// Collects each group's shares into `into` on every member; returns it, by rank.
    #[pyo3(
        signature = (views, *, into, over, algorithm=None),
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

    /// Derives queues and dependencies and returns the mapped schedule; its name is a word of the text form.
    fn finish(&self, py: Python<'_>, name: &str) -> PyResult<Schedule> {
        if name.is_empty() || name.contains(|c: char| c.is_whitespace() || c == '#') {
            return Err(invalid(py, format!("the name is {name:?}: it must be one word, without blanks and #")));
        }
        let mut builder = self.lock().clone();
        builder.set_interrupt(&interrupt());
        py.detach(|| builder.finish(name)).map(Schedule::of).map_err(|e| of_core(py, &e))
    }

    /// Makes the call that records this step raise BuildError: what `finish` found wrong with it, at its line.
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
        check.map(|()| value).map_err(|e| of_core(py, &e)) // not under the lock: making an exception lets other threads in
    }

    /// Names a place, which must be there.
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
        let shares = match algorithm.map_or(Ok("auto".to_owned()), |algorithm| algorithm.extract::<String>()) {
            Ok(name) => self.record(py, |b| b.compose(collective, &from, into.as_deref(), &over, &name)),
            Err(_) => {
                let written = Written::of(py, collective, algorithm)?;
                self.compose_written(&written, &from, into.as_deref(), &over)
            }
        };
        Ok(shares?.into_iter().map(View).collect())
    }

    /// Composes an algorithm that was written in Python, which runs while nothing is locked: it may look at this builder.
    fn compose_written(
        &self,
        written: &Written<'_>,
        from: &[Region],
        into: Option<&[Region]>,
        over: &Groups,
    ) -> PyResult<Vec<Region>> {
        let py = written.algorithm.py();
        let (mut outer, mut raised) = (self.lock().clone(), None);
        let before = outer.steps();
        let shares = outer.compose_by(written.collective, from, into, over, &mut |inner| {
            written.write(inner).map_err(|error| {
                raised = Some(error);
                Error::Build("the algorithm of a group raised an exception".into())
            })
        });
        if let Some(error) = raised {
            return Err(error);
        }
        if self.lock().steps() != before {
            return Err(of_core(
                py,
                &Error::Build("the algorithm of a group wrote to the builder of all ranks".into()),
            ));
        }
        self.record(py, |b| {
            *b = outer;
            shares
        })
    }
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

/// An algorithm of a collective that is written in Python: an object with `collective` and `write(builder)`.
struct Written<'py> {
    collective: &'static Collective,
    algorithm: &'py Bound<'py, PyAny>,
}

impl<'py> Written<'py> {
    fn of(
        py: Python<'py>,
        collective: &'static Collective,
        algorithm: Option<&'py Bound<'py, PyAny>>,
    ) -> PyResult<Self> {
        let is_one = |algorithm: &&Bound<'py, PyAny>| algorithm.hasattr("write").unwrap_or(false);
        let algorithm = algorithm.filter(is_one);
        let algorithm = algorithm.ok_or_else(|| invalid(py, "`algorithm` must be a name or an algorithm"))?;
        let of: String = algorithm.getattr("collective")?.extract()?;
        if of != collective.name {
            return Err(invalid(py, format!("`algorithm` is one of {of}, {} is composed", collective.name)));
        }
        Ok(Self { collective, algorithm })
    }

    /// Lets it write with `inner`.
    fn write(&self, inner: &mut CoreBuilder) -> PyResult<()> {
        let py = self.algorithm.py();
        let builder = Bound::new(py, Builder { core: Mutex::new(inner.clone()), fails_at: OnceLock::new() })?;
        self.algorithm.call_method1("write", (&builder,))?;
        *inner = builder.get().lock().clone();
        Ok(())
    }
}

/// Reads lists of ranks.
fn groups(over: &Bound<'_, PyAny>) -> PyResult<Vec<Vec<u32>>> {
    let group = |ranks: PyResult<Bound<'_, PyAny>>| -> PyResult<Vec<u32>> {
        ranks?.try_iter()?.map(|rank| integer("a rank in `over`", &rank?, ANY)).collect()
    };
    over.try_iter()?.map(group).collect()
}

/// Reads a view, or a list or tuple of views (nested lists are flattened).
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
