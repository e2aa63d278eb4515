//! The proofs of a schedule that calls run: one for each path, made when the first call needs it.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;

use nvcoll_core::interrupt::{Interrupt, Interrupted};
use nvcoll_core::lower::lower_interruptible;
use nvcoll_core::schedule::{Path, Schedule};
use nvcoll_core::verify::{verify_interruptible, Unproved, Verified};
use nvcoll_core::Error;
use nvcoll_engine::call::Call;
use nvcoll_engine::sync::single_flight::{SingleFlight, Unlocked};
use nvcoll_engine::{Deadline, UntilDeadline};

use crate::engine::error::of_engine;
use crate::engine::gil::WithoutGil;
use crate::error::of_core;
use crate::refuted::refuted;

/// Proofs by path, with the name of the schedule in calls.
#[derive(Default)]
pub(crate) struct Proofs {
    known: Mutex<HashMap<Path, (String, Verified)>>,
    makers: SingleFlight<Path>,
}

/// The reason why a call has no proof: the schedule cannot be lowered or proved. None if the caller stopped the work, or the wait for
/// the work of another thread.
struct NoProof(Option<PyErr>);

impl From<Interrupted> for NoProof {
    fn from(_: Interrupted) -> Self {
        Self(None)
    }
}

impl Proofs {
    /// Returns the proof for the path of `call`, with the name of the schedule in calls. It lowers and proves without the GIL, until
    /// the deadline of the call.
    pub(crate) fn proved_for(
        &self,
        py: Python<'_>,
        schedule: &Schedule,
        call: &Call,
        deadline: Deadline,
    ) -> PyResult<(String, Verified)> {
        let (path, without_gil) = (call.path, WithoutGil::AtOnce(py));
        let unlocked = UntilDeadline::new(&without_gil, deadline);
        let given_up = || {
            let call = Call { algorithm: schedule.algorithm.clone(), ..call.clone() };
            of_engine(py, &unlocked.explain(Error::Interrupted.into(), &call, "its schedule was being proved"))
        };
        let make = || self.prove(py, schedule, path, &unlocked.interrupt());
        let proved = self.makers.find_or_make(&path, &unlocked, || self.known().get(&path).cloned(), make);
        proved.map_err(|NoProof(error)| error.unwrap_or_else(given_up))
    }

    /// Lowers and proves, and keeps the proof.
    fn prove(
        &self,
        py: Python<'_>,
        schedule: &Schedule,
        path: Path,
        interrupt: &Interrupt,
    ) -> Result<(String, Verified), NoProof> {
        let lowered = py.detach(|| match schedule.path == path {
            true => Ok(schedule.clone()),
            false => lower_interruptible(schedule, path, interrupt),
        });
        let refused = |error| NoProof((error != Error::Interrupted).then(|| of_core(py, &error)));
        let lowered = lowered.map_err(refused)?;
        let (name, verified) = py.detach(|| {
            let mut hasher = DefaultHasher::new();
            lowered.hash(&mut hasher);
            let verified = verify_interruptible(lowered.clone(), interrupt);
            (format!("{}#{:x}", lowered.algorithm, hasher.finish()), verified)
        });
        // No lock is held here: making an exception may run Python code, which may ask for this proof.
        let verified = verified.map_err(|unproved| match unproved {
            Unproved::Refuted(refutation) => NoProof(Some(refuted(py, &lowered, &refutation))),
            Unproved::Interrupted(interrupted) => interrupted.into(),
        })?;
        self.known().insert(path, (name.clone(), verified.clone()));
        Ok((name, verified))
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Path, (String, Verified)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
