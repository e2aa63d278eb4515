//! A call of any collective in Python: from arguments to operands and the engine's call.

use pyo3::prelude::*;

use nvcoll_core::collective::{Collective, Roles};
use nvcoll_core::schedule::Path;
use nvcoll_core::verify::Verified;
use nvcoll_engine::call::{Call, CallPurpose};
use nvcoll_engine::ranks::member::Member;
use nvcoll_engine::Deadline;

use crate::arrays::{BoundCall, Contract, Operands, Passed, PlainCall, Programs, SharedProgram};
use crate::calls::choices::{choose, Reduction};
use crate::counts::{self, Table};
use crate::error::invalid;
use crate::integers::integer;
use crate::schedules::schedule::path_named;

/// An argument that may be left out.
pub(crate) type Argument<'a, 'py> = Option<&'a Bound<'py, PyAny>>;

/// The arguments of a call.
#[derive(Clone)]
pub(crate) struct Request<'a, 'py> {
    pub(crate) collective: &'static Collective,
    pub(crate) arrays: &'a Bound<'py, PyAny>,
    pub(crate) op: Argument<'a, 'py>,
    pub(crate) root: Argument<'a, 'py>,
    pub(crate) counts: Argument<'a, 'py>,
    /// The table of counts, if it was read before; `counts` is then ignored.
    pub(crate) table: Option<Table>,
    pub(crate) algorithm: Argument<'a, 'py>,
    pub(crate) out: Argument<'a, 'py>,
    /// None: the default of the endpoint.
    pub(crate) path: Option<&'a str>,
    /// Whether the call runs after its result was returned: new arrays then hold zeros.
    pub(crate) is_deferred: bool,
}

impl<'a, 'py> Request<'a, 'py> {
    /// Makes a request without optional arguments.
    pub(crate) fn new(collective: &'static Collective, arrays: &'a Bound<'py, PyAny>, path: Option<&'a str>) -> Self {
        let (op, root, counts, table, algorithm, out) = (None, None, None, None, None, None);
        Self { collective, arrays, op, root, counts, table, algorithm, out, path, is_deferred: false }
    }

    /// Returns the call, if it has neither counts nor a path.
    #[inline]
    pub(crate) fn plain(&self) -> Option<PlainCall<'a, 'py>> {
        let has_more = self.counts.is_some() || self.table.is_some() || self.path.is_some();
        let Self { collective, arrays, out, .. } = *self;
        (!has_more).then_some(PlainCall { collective, arrays, out, options: [self.op, self.root, self.algorithm] })
    }

    /// Reads and checks all arguments of a call by `member`, one of `world_size` ranks, or by a node for all of them. Makes new arrays
    /// for the result if the caller passed none. Binds the arrays to the programs that `program` finds, and returns the result, too.
    ///
    /// # Errors
    /// `InvalidArgument`, with the name of the argument; `Timeout` if the deadline passes while an algorithm of the user
    /// is proved; the errors of `program`.
    pub(crate) fn bind(
        mut self,
        member: Option<&Member>,
        world_size: u32,
        default_path: Path,
        deadline: Deadline,
        program: impl Fn(&Call, Option<&Verified>) -> PyResult<SharedProgram>,
    ) -> PyResult<(BoundCall, Bound<'py, PyAny>)> {
        let (collective, py) = (self.collective, self.arrays.py());
        let (operands, result, reduction) = self.read(member.map(Member::rank), member, world_size)?;
        let (aliasing, dtype, roles) = (operands.aliasing, operands.dtype, operands.contract.roles);
        let (path, is_path_agreed) = match (self.path, default_path) {
            (Some(path), _) => (path_named(py, path)?, false),
            (None, Path::Mapped) => (Path::Mapped, false),
            (None, other) => (other, true),
        };
        let (op, counts, algorithm) = (reduction.op, operands.contract.counts.clone(), "auto".into());
        let purpose = CallPurpose::Itself;
        let root = roles.root;
        let call = Call { collective, root, algorithm, dtype, op, counts, path, is_path_agreed, aliasing, purpose };
        let program_of = |mut call: Call| {
            let proof = self.algorithm.map(|algorithm| choose(algorithm, &mut call, roles, deadline)).transpose()?;
            program(&call, proof.flatten().as_ref())
        };
        // Every rank can reach the arrays, and ranks agree on the path in the call.
        let is_offered = is_path_agreed && member.is_some_and(|member| operands.are_reachable(member));
        let mapped = is_offered.then(|| program_of(Call { path: Path::Mapped, ..call.clone() })).transpose()?;
        let programs = Programs { own: program_of(call)?, mapped };
        Ok((BoundCall::new(programs, operands, |at| reduction.scalar(at)), result))
    }

    /// Reads and checks the arrays and the op of a call by rank `own`, or by a node for all ranks. Makes new arrays for the result if the
    /// caller passed none, and returns the result, too.
    ///
    /// # Errors
    /// `InvalidArgument`, with the name of the argument.
    pub(crate) fn read(
        &mut self,
        own: Option<u32>,
        member: Option<&Member>,
        world_size: u32,
    ) -> PyResult<(Operands, Bound<'py, PyAny>, Reduction)> {
        let (collective, py) = (self.collective, self.arrays.py());
        self.refuse_superfluous(py)?;
        let root = self.root.map_or(Ok(0), |root| integer("root", root, 0..=world_size - 1))?;
        let roles = Roles { world_size, root };
        let read = |counts| counts::read(collective, world_size, counts);
        let table = self.table.take().map_or_else(|| self.counts.map(read).transpose(), |table| Ok(Some(table)))?;
        let counts = table.map(|table| counts::of_table(py, collective, roles, table)).transpose()?;
        let passed = Passed { arrays: self.arrays, out: self.out, counts, is_deferred: self.is_deferred, member };
        let (operands, result) = Operands::new(py, Contract::new(collective, roles, own), passed)?;
        let reduction = Reduction::of_option(self.op, own.map_or(world_size as usize, |_| 1))?;
        reduction.check(py, operands.dtype)?;
        Ok((operands, result, reduction))
    }

    /// Refuses arguments that the collective does not have. `plan` accepts the arguments of all collectives.
    fn refuse_superfluous(&self, py: Python<'py>) -> PyResult<()> {
        let name = self.collective.name;
        let superfluous = if self.root.is_some() && !self.collective.has_root {
            format!("`root` is given, and {name} has none")
        } else if self.op.is_some() && !self.collective.folds() {
            format!("`op` is given, and {name} folds nothing")
        } else {
            return Ok(());
        };
        Err(invalid(py, format!("{superfluous}: leave it out")))
    }
}
