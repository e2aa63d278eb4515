//! Calls without data in which each rank tells two words to all others: a split, and the agreement on the path of a group.
//!
//! The words lie in the record, where other calls have addresses. The call is a barrier: who leaves it has seen everybody enter, and reads
//! the words of all before it enters the next call but one, under the stamp rule.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::call::{Call, CallPurpose};
use crate::error::Result;
use crate::kernel::Isa;
use crate::memory::world::rank_lines::RankLines;
use crate::memory::world::World;
use crate::program::make::prove;
use crate::program::Program;
use crate::sync::single_flight::{SingleFlight, Unlocked};

type WordsKey = (u32, CallPurpose);

static PROGRAMS: Mutex<Option<HashMap<WordsKey, Weak<Program>>>> = Mutex::new(None);
static IN_FLIGHT: SingleFlight<WordsKey> = SingleFlight::new();

/// Returns the program of such a call of `world_size` ranks, which is that of a barrier. It lives as long as a member that made one.
///
/// # Errors
/// An interruption by the caller.
pub(crate) fn program(world_size: u32, purpose: CallPurpose, unlocked: &impl Unlocked) -> Result<Arc<Program>> {
    let key = (world_size, purpose);
    let programs = || PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner);
    let find = || programs().as_ref().and_then(|programs| programs.get(&key)?.upgrade());
    let make = || {
        let call = Call::of_words(purpose);
        let proof = prove(&call, "auto", world_size, unlocked)?;
        let program = Arc::new(unlocked.run(|| Program::bind(&proof, call, usize::MAX, Isa::Baseline))?);
        let mut programs = programs();
        let programs = programs.get_or_insert_default();
        programs.retain(|_, program| program.strong_count() > 0);
        programs.insert(key, Arc::downgrade(&program));
        Ok(program)
    };
    IN_FLIGHT.find_or_make(&key, unlocked, find, make)
}

/// Returns the words of all ranks in call number `call`; `None` if a rank has not entered it, or made a different call.
pub(crate) fn words(world: &World, program: &Program, call: u32) -> Option<Vec<[u64; 2]>> {
    let of_rank = |lines: &RankLines| {
        let record = lines.stamp.has_entered(call).then(|| lines.record.read(call))?;
        (record[..3] == program.fingerprint).then_some([record[3], record[4]])
    };
    world.lines.iter().map(of_rank).collect()
}
