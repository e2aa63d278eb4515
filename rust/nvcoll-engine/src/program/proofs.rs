//! Proofs, kept: a registered algorithm is built, lowered and proved once per world size, root, path and aliasing.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nvcoll_core::algorithm;
use nvcoll_core::collective::{Collective, Roles};
use nvcoll_core::lower::lower_interruptible;
use nvcoll_core::schedule::{Aliasing, Path};
use nvcoll_core::verify::{verify_interruptible, Unproved, Verified};

use crate::error::{Error, Result};
use crate::sync::single_flight::{SingleFlight, Unlocked};

type ProofKey = (&'static str, String, Roles, Path, Aliasing);

static PROOFS: Mutex<Option<HashMap<ProofKey, Verified>>> = Mutex::new(None);
static IN_FLIGHT: SingleFlight<ProofKey> = SingleFlight::new();

/// Returns the proof of a registered algorithm; `auto` is the collective's default. It is found here or made `aside`.
///
/// # Errors
/// An unknown name, a world size out of range, a refutation, or an interruption by the caller.
pub fn prove(
    collective: &'static Collective,
    name: &str,
    roles: Roles,
    path: Path,
    aliasing: Aliasing,
    unlocked: &impl Unlocked,
) -> Result<Verified> {
    let name = algorithm::Named::read(collective, name)?.name();
    let key = (collective.name, name.clone(), roles, path, aliasing);
    let find = || proofs().as_ref().and_then(|proofs| proofs.get(&key).cloned());
    let make = || {
        let interrupt = unlocked.interrupt();
        let verified = unlocked.run(|| {
            let mapped = algorithm::build_interruptible(collective, &name, roles, aliasing, &interrupt)?;
            let schedule = lower_interruptible(&mapped, path, &interrupt)?;
            verify_interruptible(schedule, &interrupt).map_err(|unproved| match unproved {
                Unproved::Refuted(refutation) => Error::Refuted(refutation.to_string()),
                Unproved::Interrupted(interrupted) => Error::Core(interrupted.into()),
            })
        })?;
        proofs().get_or_insert_default().insert(key.clone(), verified.clone());
        Ok(verified)
    };
    IN_FLIGHT.find_or_make(&key, unlocked, find, make)
}

fn proofs() -> MutexGuard<'static, Option<HashMap<ProofKey, Verified>>> {
    PROOFS.lock().unwrap_or_else(PoisonError::into_inner)
}
