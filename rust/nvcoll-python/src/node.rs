//! `Node` and `Plan`: calls that one thread makes for all ranks.

use std::sync::Arc;

use pyo3::prelude::*;

use nvcoll_core::collective::{Collective, ALL_REDUCE};
use nvcoll_core::schedule::Aliasing;
use nvcoll_engine::kernel::Isa;
use nvcoll_engine::Buffers;

use crate::arrays::{check, of_ranks, Array};
use crate::calls::{buffers, deadline, path_named, Choice, Detached, Reduction, SharedProgram, Signals};
use crate::error::{invalid, of_engine};
use crate::team::Team;

/// Ranks in this process: a node of virtual GPUs. See `nvcoll.Node`.
#[pyclass(name = "Node", module = "nvcoll._nvcoll", subclass, frozen)]
pub(crate) struct Node {
    pub(crate) engine: Arc<nvcoll_engine::node::Node>,
}

#[pymethods]
impl Node {
    #[new]
    #[pyo3(signature = (world_size, *, workers=None, isa=None))]
    fn new(py: Python<'_>, world_size: u32, workers: Option<usize>, isa: Option<&str>) -> PyResult<Self> {
        let mut engine = nvcoll_engine::node::Node::new(world_size, workers).map_err(|e| of_engine(py, &e))?;
        if let Some(name) = isa {
            let available = Isa::available();
            let Some(&isa) = available.iter().find(|isa| isa.name() == name) else {
                let known: Vec<&str> = available.iter().map(|isa| isa.name()).collect();
                return Err(invalid(
                    py,
                    format!("no instruction set is called `{name}` here: choose from {}", known.join(", ")),
                ));
            };
            engine.set_isa(isa);
        }
        Ok(Self { engine: Arc::new(engine) })
    }

    /// The number of ranks.
    #[getter]
    fn world_size(&self) -> u32 {
        self.engine.world_size()
    }

    /// The number of threads that work for a call, the caller included.
    #[getter]
    fn workers(&self) -> usize {
        self.engine.workers()
    }

    #[pyo3(signature = (arrays, op=None, *, algorithm=None, out=None, path="mapped", timeout=None))]
    #[allow(clippy::too_many_arguments)]
    fn all_reduce<'py>(
        &self,
        py: Python<'py>,
        arrays: &Bound<'py, PyAny>,
        op: Option<&Bound<'py, PyAny>>,
        algorithm: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
        path: &str,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut prepared = self.prepare(py, &ALL_REDUCE, arrays, op, algorithm, out, path)?;
        self.execute(py, &prepared.program, &mut prepared.buffers, timeout)?;
        for array in prepared.written() {
            array.write_back()?;
        }
        Ok(out.unwrap_or(arrays).clone())
    }

    #[pyo3(signature = (collective, arrays, op=None, *, algorithm=None, out=None, path="mapped"))]
    #[allow(clippy::too_many_arguments)]
    fn plan<'py>(
        slf: &Bound<'py, Self>,
        py: Python<'py>,
        collective: &str,
        arrays: &Bound<'py, PyAny>,
        op: Option<&Bound<'py, PyAny>>,
        algorithm: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
        path: &str,
    ) -> PyResult<Plan> {
        if collective != ALL_REDUCE.name {
            return Err(invalid(py, format!("no plan for `{collective}`: a node runs all_reduce")));
        }
        let prepared = slf.get().prepare(py, &ALL_REDUCE, arrays, op, algorithm, out, path)?;
        if prepared.inputs.iter().chain(&prepared.outputs).any(|array| array.is_strided()) {
            return Err(invalid(py, "a plan keeps addresses, and an array is strided: pass contiguous arrays"));
        }
        Ok(Plan {
            node: slf.get().engine.clone(),
            program: prepared.program,
            buffers: std::sync::Mutex::new(Detached(prepared.buffers)),
            _arrays: (arrays.clone().unbind(), out.map(|out| out.clone().unbind())),
        })
    }

    /// Makes a team of this node's ranks, each of which makes its own calls.
    fn team(&self, py: Python<'_>) -> PyResult<Team> {
        Team::new(py, self.engine.clone())
    }
}

/// What a call needs, checked.
struct Prepared<'py> {
    program: SharedProgram,
    buffers: Vec<Buffers>,
    inputs: Vec<Array<'py>>,
    outputs: Vec<Array<'py>>,
}

impl<'py> Prepared<'py> {
    fn written(&self) -> &[Array<'py>] {
        if self.outputs.is_empty() {
            &self.inputs
        } else {
            &self.outputs
        }
    }
}

impl Node {
    #[allow(clippy::too_many_arguments)]
    fn prepare<'py>(
        &self,
        py: Python<'py>,
        collective: &'static Collective,
        arrays: &Bound<'py, PyAny>,
        op: Option<&Bound<'py, PyAny>>,
        algorithm: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
        path: &str,
    ) -> PyResult<Prepared<'py>> {
        let world_size = self.engine.world_size();
        let inputs = of_ranks(arrays, world_size, "arrays")?;
        let outputs = match out {
            Some(out) if !out.is(arrays) => of_ranks(out, world_size, "out")?,
            _ => Vec::new(),
        };
        check(py, &inputs, &outputs, collective.name)?;
        let aliasing = if outputs.is_empty() { Aliasing::InPlace } else { Aliasing::Disjoint };
        let path = path_named(py, path)?;
        let reduction = Reduction::of_option(op, world_size as usize)?;
        reduction.check(py, inputs[0].dtype)?;
        let choice = Choice::of_option(algorithm, world_size, path, aliasing)?;
        let call = choice.call(collective, inputs[0].dtype, reduction.op, inputs[0].count, path, aliasing);
        let program = self.engine.program(&call, choice.proof.as_ref()).map_err(|e| of_engine(py, &e))?;
        Ok(Prepared { program, buffers: buffers(&inputs, &outputs, &reduction), inputs, outputs })
    }

    fn execute(
        &self,
        py: Python<'_>,
        program: &SharedProgram,
        buffers: &mut [Buffers],
        timeout: Option<f64>,
    ) -> PyResult<()> {
        run(py, &self.engine, program, buffers, timeout)
    }
}

/// Runs a program without the GIL, with an eye on Ctrl-C.
fn run(
    py: Python<'_>,
    engine: &nvcoll_engine::node::Node,
    program: &SharedProgram,
    buffers: &mut [Buffers],
    timeout: Option<f64>,
) -> PyResult<()> {
    let (mut buffers, deadline) = (Detached(buffers), deadline(py, timeout)?);
    let (outcome, raised) = py.detach(|| {
        let mut signals = Signals::new();
        // SAFETY: the arrays were checked for count, dtype and overlap, and their holders live until the caller returns.
        let outcome = unsafe { engine.run(program, buffers.get(), deadline, &mut || signals.check()) };
        (outcome, signals.raised)
    });
    match (outcome, raised) {
        (_, Some(raised)) => Err(raised),
        (Err(error), None) => Err(of_engine(py, &error)),
        (Ok(()), None) => Ok(()),
    }
}

/// A call with everything resolved: proof, kernels, addresses. See `nvcoll.Plan`.
#[pyclass(name = "Plan", module = "nvcoll", frozen)]
pub(crate) struct Plan {
    node: Arc<nvcoll_engine::node::Node>,
    program: SharedProgram,
    buffers: std::sync::Mutex<Detached<Vec<Buffers>>>,
    _arrays: (Py<PyAny>, Option<Py<PyAny>>),
}

#[pymethods]
impl Plan {
    /// Runs the call on the arrays that the plan was made for.
    #[pyo3(signature = (*, timeout=None))]
    fn run(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let Ok(mut buffers) = self.buffers.try_lock() else {
            return Err(of_engine(
                py,
                &nvcoll_engine::Error::Busy("the plan is running in another thread: wait for it"),
            ));
        };
        run(py, &self.node, &self.program, buffers.get(), timeout)
    }

    /// The number of tiles in which the plan passes over the data.
    #[getter]
    fn tiles(&self) -> u32 {
        self.program.tiles()
    }

    fn __repr__(&self) -> String {
        format!("<nvcoll.Plan {}>", self.program.call())
    }
}
