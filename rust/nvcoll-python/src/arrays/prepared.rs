//! Calls that are ready to run: a program, and the addresses of its arrays.
//!
//! ```text
//! Prepared ─run─▶                       once, now
//!     └─keep─▶ Kept ─run─▶ run─▶ …      a plan
//!                └─▶ Launch             calls of a group, see `launch`
//! ```
//!
//! These types alone pass addresses to the engine. The engine demands of the buffers of a call:
//!
//! | demand | kept by |
//! |---|---|
//! | they have the lengths and the aliasing that the program's call says | `Prepared::new` compares program and operands |
//! | they do not overlap where one is written | [`Operands::new`] for one call, [`super::Launch::new`] for several |
//! | they live until the run is over | the operands hold the owners of the arrays |
//! | they have not moved since the call was prepared | a [`Prepared`] runs at once; a [`Kept`] looks before each run |
//! | nobody else touches them | the caller's promise, which no array library can enforce |

use pyo3::prelude::*;

use nvcoll_core::collective::ALL_GATHER;
use nvcoll_core::counts::Counts;
use nvcoll_core::dtype::DType;
use nvcoll_core::schedule::Aliasing;
use nvcoll_engine::call::{Call, CallPurpose};
use nvcoll_engine::ranks::member::Member;
use nvcoll_engine::{Buffers, Deadline, OriginalArray};

use super::bound::BoundArrays;
use super::in_flight::{self, LaneOfRank};
use super::operands::Operands;
use crate::calls::choices::SharedProgram;
use crate::calls::endpoint::Endpoint;
use crate::gil::{watched, watched_rank};

/// A call that can run once.
pub(crate) struct Prepared {
    pub(super) program: SharedProgram,
    /// The program of the same call on the mapped path, if ranks may agree on it.
    pub(super) mapped: Option<SharedProgram>,
    pub(super) operands: Operands,
    /// Of the arrays in `operands`.
    pub(super) buffers: Vec<Buffers>,
}

impl Prepared {
    /// Puts together a program and the arrays of its call; `scalar(i)` is the scalar of the i-th rank in premul_sum.
    ///
    /// # Panics
    /// If the program is of another call than the arrays.
    pub(crate) fn new(
        program: SharedProgram,
        mapped: Option<SharedProgram>,
        operands: Operands,
        scalar: impl Fn(usize) -> f64,
    ) -> Self {
        assert!(operands.are_of(&program), "the program of {} got the arrays of another call", program.call());
        let buffers = operands.buffers(scalar);
        Self { program, mapped, operands, buffers }
    }

    /// Runs the call for the ranks of `endpoint`, without the GIL, and returns its program. Strided arrays are packed before and
    /// written back after.
    pub(crate) fn run(mut self, py: Python<'_>, endpoint: &Endpoint, deadline: Deadline) -> PyResult<SharedProgram> {
        self.execute(py, endpoint, deadline)?;
        Ok(self.program)
    }

    /// Returns the program on the mapped path, if ranks agreed on it and the call left the path open.
    pub(super) fn chosen(&self, is_mapped: bool) -> SharedProgram {
        self.mapped.as_ref().filter(|_| is_mapped).unwrap_or(&self.program).clone()
    }

    /// Keeps the call for later runs.
    pub(crate) fn keep(self, py: Python<'_>) -> Kept {
        Kept { bound: self.operands.bind(py), call: self }
    }

    #[inline]
    fn execute(&mut self, py: Python<'_>, endpoint: &Endpoint, deadline: Deadline) -> PyResult<()> {
        self.refuse_in_flight(py, None)?;
        match endpoint.member() {
            None => watched(py, |is_interrupted| {
                self.operands.gather();
                // SAFETY: the table of this file says what keeps each demand; the node checks the number of ranks.
                unsafe { endpoint.node().run(&self.program, &mut self.buffers, deadline, is_interrupted) }?;
                self.operands.write_back();
                Ok(())
            }),
            Some(member) => {
                watched_rank(py, member, |is_interrupted| self.run_of_rank(member, deadline, is_interrupted))
            }
        }
    }

    /// Runs the call for its rank, on a thread without the GIL.
    #[inline]
    pub(crate) fn run_of_rank(
        &mut self,
        member: &Member,
        deadline: Deadline,
        is_interrupted: &mut dyn FnMut() -> bool,
    ) -> nvcoll_engine::Result<()> {
        self.operands.require_rank(member.rank());
        self.operands.gather();
        let (originals, mapped) = (self.operands.originals(), self.mapped.as_ref());
        // SAFETY: the table of this file says what keeps each demand, and the arrays are this rank's. The engine compares the
        // footprints of ranks when they meet, so that no rank writes an array of another.
        unsafe { member.run_on_copies(&self.program, mapped, self.buffers[0], &originals, deadline, is_interrupted) }?;
        self.operands.write_back();
        if self.operands.is_copied() {
            member.results_are_back();
        }
        Ok(())
    }

    /// Refuses the call if an array that it touches is in flight, other than in calls before it on `lane`, where it is issued.
    #[inline]
    pub(crate) fn refuse_in_flight(&self, py: Python<'_>, lane: Option<LaneOfRank>) -> PyResult<()> {
        if !in_flight::any() {
            return Ok(());
        }
        in_flight::check(py, self.program.call(), &self.operands.arrays(), lane, |at| self.operands.name(at))
    }

    /// Returns the call.
    pub(crate) fn call(&self) -> &Call {
        self.program.call()
    }

    /// Returns the arrays as the user passed them.
    pub(crate) fn arrays(&self) -> Vec<OriginalArray> {
        self.operands.arrays()
    }

    /// Returns the program.
    pub(crate) fn program(&self) -> &SharedProgram {
        &self.program
    }
}

/// A call that can run again, on the arrays with which it was prepared.
pub(crate) struct Kept {
    pub(super) call: Prepared,
    pub(super) bound: BoundArrays,
}

impl Kept {
    /// Runs the call of a plan again: see [`Prepared::run`].
    ///
    /// # Errors
    /// `InvalidArgument` if a numpy array has moved since the call was kept; the exceptions of the run.
    pub(crate) fn run(&mut self, py: Python<'_>, endpoint: &Endpoint, deadline: Deadline) -> PyResult<()> {
        self.bound.check(py, "plan")?;
        self.call.execute(py, endpoint, deadline)
    }

    /// Returns the program.
    pub(crate) fn program(&self) -> &SharedProgram {
        self.call.program()
    }

    /// Returns the Python objects that the call holds, for the garbage collector.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &Py<PyAny>> {
        self.call.operands.objects().chain(self.bound.objects())
    }
}

/// The call by which every rank gets the words of all ranks: an all_gather in place.
pub(crate) struct WordExchange {
    program: SharedProgram,
    words: usize,
}

impl WordExchange {
    /// Prepares the exchange of `words` words in all, as many for each rank.
    ///
    /// # Panics
    /// If the words cannot be divided among the ranks.
    pub(crate) fn new(
        py: Python<'_>,
        endpoint: &Endpoint,
        world_size: u32,
        words: usize,
        deadline: Deadline,
    ) -> PyResult<Self> {
        assert!(words.is_multiple_of(world_size as usize), "{words} words for {world_size} ranks");
        let call = Call {
            dtype: DType::I32,
            counts: Counts::Even(words),
            path: endpoint.default_path(),
            aliasing: Aliasing::InPlace,
            purpose: CallPurpose::RowsOfCounts,
            ..Call::without_data(&ALL_GATHER)
        };
        Ok(Self { program: endpoint.program(py, &call, None, deadline)?, words })
    }

    /// Exchanges words, on a thread without the GIL. `words` has them in the order of ranks; a rank calls with its own there.
    pub(crate) fn run_of_rank(
        &self,
        member: &Member,
        words: &mut [u32],
        deadline: Deadline,
        is_interrupted: &mut dyn FnMut() -> bool,
    ) -> nvcoll_engine::Result<()> {
        assert_eq!(words.len(), self.words);
        let own_bytes = size_of_val(words) / member.ranks().len();
        let all: *mut u8 = words.as_mut_ptr().cast();
        let buffers = Buffers::new(all.wrapping_add(member.rank() as usize * own_bytes), all, 1.0);
        // SAFETY: the program gathers as many words in place as `words` has, which is borrowed until the run is over; the input
        // is this rank's part of it.
        unsafe { member.run_on_copies(&self.program, None, buffers, &[], deadline, is_interrupted) }
    }
}
