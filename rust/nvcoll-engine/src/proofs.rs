//! Proofs, kept: a registered algorithm is built, lowered and proved once per world size, path and aliasing.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use nvcoll_core::algorithm;
use nvcoll_core::collective::Collective;
use nvcoll_core::lower::lower;
use nvcoll_core::schedule::{Aliasing, Path};
use nvcoll_core::verify::{verify, Verified};

use crate::error::{Error, Result};

type Key = (&'static str, &'static str, u32, Path, Aliasing);

static PROOFS: Mutex<Option<HashMap<Key, Verified>>> = Mutex::new(None);

/// Returns the proof of a registered algorithm; `auto` is the collective's default.
///
/// # Errors
/// An unknown name, a world size out of range, or a refutation.
pub fn prove(
    collective: &'static Collective,
    name: &str,
    world_size: u32,
    path: Path,
    aliasing: Aliasing,
) -> Result<Verified> {
    let name = algorithm::find(collective, name)?.name;
    let key = (collective.name, name, world_size, path, aliasing);
    let mut proofs = PROOFS.lock().unwrap_or_else(PoisonError::into_inner);
    let proofs = proofs.get_or_insert_default();
    if let Some(known) = proofs.get(&key) {
        return Ok(known.clone());
    }
    let schedule = lower(&algorithm::build(collective, name, world_size, aliasing)?, path)?;
    let verified = verify(schedule).map_err(|violation| Error::Refuted(violation.to_string()))?;
    proofs.insert(key, verified.clone());
    Ok(verified)
}
