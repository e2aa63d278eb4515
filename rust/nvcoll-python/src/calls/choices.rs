//! Arguments of calls: op, algorithm, timeout.

use pyo3::exceptions::PyException;
use pyo3::inspect::PyStaticExpr;
use pyo3::intern;
use pyo3::prelude::*;

use nvcoll_core::algorithm::NamedAlgorithm;
use nvcoll_core::collective::{Collective, Roles};
use nvcoll_core::dtype::DType;
use nvcoll_core::op::Op;
use nvcoll_core::verify::Verified;
use nvcoll_core::words::counted;
use nvcoll_engine::call::Call;
use nvcoll_engine::Deadline;

use crate::error::{invalid, of_core};
use crate::integers::{items_of, shown};
use crate::schedules::schedule::written;

/// The op that multiplies each contribution by the scalar of its rank and adds. Made by `nvcoll.premul_sum`.
///
/// Example:
///     >>> import nvcoll
///     >>> nvcoll.premul_sum(0.5)
///     nvcoll.premul_sum(0.5)
#[pyclass(name = "PremulSum", module = "nvcoll", frozen)]
pub(crate) struct PremulSum {
    scalars: Vec<f64>,
}

#[pymethods]
impl PremulSum {
    fn __repr__(&self) -> String {
        match &self.scalars[..] {
            [scalar] => format!("nvcoll.premul_sum({scalar:?})"),
            scalars => format!("nvcoll.premul_sum({scalars:?})"),
        }
    }
}

/// Returns the op that multiplies the contribution of each rank by its scalar and adds.
///
/// Args:
///     scalars: one real number, or a list of one per rank for a call of a `Node`. Integer dtypes take integers alone.
///
/// Raises:
///     InvalidArgument: a scalar is not a real number, or a float64 cannot hold it.
///
/// Example:
///     >>> import numpy as np, nvcoll
///     >>> op = nvcoll.premul_sum([0.5, 0.25])  # rank 0 times 0.5, rank 1 times 0.25
///     >>> nvcoll.Node(2).all_reduce(np.full((2, 3), 4.0), op)[0].tolist()
///     [3.0, 3.0, 3.0]
#[pyfunction]
#[pyo3(signature = (scalars: "float | Sequence[float]"))]
pub(crate) fn premul_sum(scalars: &Bound<'_, PyAny>) -> PyResult<PremulSum> {
    let wanted = "a number, or a list of one number per rank";
    let scalars = match scalars.try_iter() {
        Err(_) => vec![exact(scalars)?],
        Ok(_) => items_of("premul_sum's `scalars`", scalars, wanted)?.iter().map(exact).collect::<PyResult<_>>()?,
    };
    Ok(PremulSum { scalars })
}

/// Reads a scalar. Integers that a float64 cannot hold are refused.
fn exact(scalar: &Bound<'_, PyAny>) -> PyResult<f64> {
    let py = scalar.py();
    let value: f64 = scalar.extract().map_err(|_| {
        let kind = scalar.get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string());
        invalid(py, format!("premul_sum scales by a {kind}: pass a real number, or one per rank"))
    })?;
    let Ok(index) = scalar.call_method0(intern!(py, "__index__")) else { return Ok(value) };
    match index.eq(value)? {
        true => Ok(value),
        false => {
            let message =
                format!("premul_sum scales by {scalar}, which a float64 does not hold: pass float(x) or less");
            Err(invalid(py, message))
        }
    }
}

/// An op and its scalars, one per rank of the call.
pub(crate) struct Reduction {
    pub(crate) op: Op,
    scalars: Vec<f64>,
}

impl Reduction {
    /// Reads `op=`, whose default is sum.
    pub(crate) fn of_option(op: Option<&Bound<'_, PyAny>>, ranks: usize) -> PyResult<Self> {
        op.map_or(Ok(Self { op: Op::Sum, scalars: Vec::new() }), |op| Self::of(op, ranks))
    }

    /// Reads `op=` of a call for `ranks` ranks.
    fn of(op: &Bound<'_, PyAny>, ranks: usize) -> PyResult<Self> {
        let py = op.py();
        if let Ok(premul) = op.cast::<PremulSum>() {
            let scalars = &premul.get().scalars;
            if scalars.len() != 1 && scalars.len() != ranks {
                let found = scalars.len();
                let (scalars, speaks_for) = (counted(found as u64, "scalar"), counted(ranks as u64, "rank"));
                let advice = if ranks == 1 { "pass the scalar of this rank alone" } else { "pass one, or one each" };
                let message = format!("premul_sum has {scalars}, the call speaks for {speaks_for}: {advice}");
                return Err(invalid(py, message));
            }
            return Ok(Self { op: Op::PremulSum, scalars: scalars.clone() });
        }
        let name = name_of(op)?;
        match Op::named(&name).or_else(|| op_called(&name)) {
            Some(Op::PremulSum) => {
                Err(invalid(py, "`op` is \"premul_sum\" without scalars: pass nvcoll.premul_sum(scalars)"))
            }
            Some(op) => Ok(Self { op, scalars: Vec::new() }),
            None => {
                let known: Vec<&str> = Op::ALL.iter().map(|op| op.name()).collect();
                Err(invalid(py, format!("no op is called `{name}`: choose from {}", known.join(", "))))
            }
        }
    }

    /// Refuses scalars that the dtype, an integer, cannot hold.
    pub(crate) fn check(&self, py: Python<'_>, dtype: DType) -> PyResult<()> {
        let Some((least, greatest)) = dtype.limits() else { return Ok(()) };
        let is_held = |scalar: &f64| scalar.fract() == 0.0 && (least..=greatest).contains(&(*scalar as i128));
        match self.scalars.iter().find(|scalar| !is_held(scalar)) {
            Some(&scalar) => {
                // Rust pads the shortest digits of a large float with zeros; an integer prints all its digits.
                let is_exact = scalar.fract() == 0.0 && scalar.abs() < 2f64.powi(127);
                let found = if is_exact { (scalar as i128).to_string() } else { scalar.to_string() };
                let limits = format!("pass integers that fit {dtype}, {least} to {greatest}");
                Err(invalid(py, format!("premul_sum scales {dtype} by {found}: {limits}")))
            }
            None => Ok(()),
        }
    }

    /// Returns the scalar of the call's `at`-th rank.
    pub(crate) fn scalar(&self, at: usize) -> f64 {
        self.scalars.get(at).or(self.scalars.first()).copied().unwrap_or(1.0)
    }
}

/// The names of ops in numpy, torch and MPI, in lower case.
const OTHER_NAMES: [(&str, Op); 12] = [
    ("mean", Op::Avg),
    ("add", Op::Sum),
    ("product", Op::Prod),
    ("multiply", Op::Prod),
    ("mul", Op::Prod),
    ("maximum", Op::Max),
    ("minimum", Op::Min),
    ("bitwise_and", Op::Band),
    ("bitwise_or", Op::Bor),
    ("bitwise_xor", Op::Bxor),
    ("logical_and", Op::Land),
    ("logical_or", Op::Lor),
];

/// Returns the op with a name in any case, or with a name in another library.
#[cold]
fn op_called(name: &str) -> Option<Op> {
    let name = name.to_ascii_lowercase();
    let other = || OTHER_NAMES.iter().find(|(other, _)| *other == name).map(|&(_, op)| op);
    Op::named(&name).or_else(other)
}

/// Returns the name of an op: a text, a member of an enum such as torch's `ReduceOp.SUM`, or a ufunc such as `np.add`.
fn name_of(op: &Bound<'_, PyAny>) -> PyResult<String> {
    let py = op.py();
    if let Ok(name) = op.extract::<String>() {
        return Ok(name);
    }
    // A Python function is refused, whatever its name.
    let is_own = op.hasattr(intern!(py, "__code__"))?;
    for attribute in [intern!(py, "name"), intern!(py, "__name__")] {
        let Some(name) = op.getattr_opt(attribute)?.filter(|_| !is_own) else { continue };
        if let Ok(name) = name.extract::<String>() {
            return Ok(name);
        }
    }
    Err(invalid(py, "`op` must be a name, a ufunc such as np.add, or premul_sum(scalars)"))
}

/// Reads `algorithm=` into the name in `call`: a name, a `Schedule`, or an object with the method
/// `schedule(world_size, in_place, root)`. Returns the proof of an algorithm of the user.
pub(crate) fn choose(
    algorithm: &Bound<'_, PyAny>,
    call: &mut Call,
    roles: Roles,
    deadline: Deadline,
) -> PyResult<Option<Verified>> {
    let py = algorithm.py();
    if let Ok(name) = algorithm.extract::<String>() {
        // Ranks and caches compare the name, so parameters are written in one form.
        call.algorithm = match name.contains('(') {
            true => NamedAlgorithm::read(call.collective, &name).map_err(|error| of_core(py, &error))?.name(),
            false => name,
        };
        return Ok(None);
    }
    check_collective(algorithm, call.collective)?;
    let written = written(algorithm, roles, call.aliasing)?;
    let schedule = written.get();
    let (name, proof) = schedule.proofs.proved_for(py, &schedule.core, call, deadline)?;
    call.algorithm = name;
    Ok(Some(proof))
}

/// Refuses an algorithm or a schedule of another collective.
fn check_collective(algorithm: &Bound<'_, PyAny>, collective: &'static Collective) -> PyResult<()> {
    let Some(written_for) = algorithm.getattr_opt("collective")? else { return Ok(()) };
    let Ok(written_for) = written_for.extract::<String>() else { return Ok(()) };
    if written_for == collective.name {
        return Ok(());
    }
    let message = format!("`algorithm` is of {written_for}, the call is {}: pass one of its own", collective.name);
    Err(invalid(algorithm.py(), message))
}

/// A checked `timeout=`, in seconds.
#[derive(IntoPyObject, Debug, Clone, Copy)]
pub(crate) struct Seconds(f64);

impl<'py> FromPyObject<'_, 'py> for Seconds {
    type Error = PyErr;

    const INPUT_TYPE: PyStaticExpr = f64::INPUT_TYPE;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let read = value.extract::<f64>();
        match read {
            Ok(seconds) if !seconds.is_nan() && !seconds.is_sign_negative() => Ok(Self(seconds)),
            Err(error) if !error.is_instance_of::<PyException>(value.py()) => Err(error),
            _ => {
                let found = shown(&value);
                let message = format!("`timeout` is {found}: pass seconds, 0 or more, or None to wait without a limit");
                Err(invalid(value.py(), message))
            }
        }
    }
}

/// Returns the deadline of a call that begins now.
pub(crate) fn deadline(timeout: Option<Seconds>) -> Deadline {
    Deadline::after(timeout.map(|Seconds(seconds)| seconds))
}
