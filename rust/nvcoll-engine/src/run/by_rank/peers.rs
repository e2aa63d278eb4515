//! Meetings: a rank that runs a call sees that a peer has entered it, compares the two calls, and learns the peer's buffers.
//!
//! **Ranks that call for themselves check each other's buffers.** After a rank has stamped its line and rung, it meets every peer that
//! has entered already. Of two ranks at least one finds the other there, because each stamps, fences and then looks. So every pair is
//! compared, although no rank waits for it and a schedule need not bring all pairs together. Cost: one load per peer, and the records
//! of earlier peers, which most algorithms read anyway. A rank may complete before another enters, as in a broadcast. It then has its
//! memory back, and the other may pass that memory anew. So ranks that completed before this one stamped are not compared with it;
//! a rank that works on copies has completed when its results are in its own arrays.
//!
//! **Ranks agree on a path.** A rank that offers to run a call mapped meets everybody first. If all records make the same offer, all
//! ranks run it mapped. A rank that offers nothing need not look: its own record says that nobody does.

use super::worker::{RankWorker, ID};
use crate::memory::buffers::Buffers;
use crate::memory::footprint::{arrays_overlap, overlap, packed_arrays, Footprint};
use crate::memory::world::addresses::{Addresses, Unreached};
use crate::memory::world::notice::Notice;
use crate::memory::world::notice_board::PostedNotice;
use crate::memory::world::World;
use crate::program::batch::Pass;
use crate::run::wait_graph::wait_graph;
use crate::sync::atomic::Ordering;
use crate::sync::backoff::give_way;
use crate::sync::record::{CALLS, COPIES, FLAGS, PLACE, PLACES, REACHABLE};
use crate::sync::{Cause, Pair, Record};

impl RankWorker {
    /// Notes on what all ranks must agree.
    #[inline]
    pub(super) fn note_call(&mut self, pass: Pass<'_>) {
        self.fingerprint = pass.fingerprint();
        self.digest = digest(self.fingerprint, pass);
    }

    /// Writes what peers must know of a rank's call beside its record, and returns the record. `own` are the rank's buffers in each call
    /// of the pass.
    pub(super) fn describe<'a>(
        &self,
        world: &'a World,
        pass: Pass<'a>,
        rank: u32,
        is_reachable: bool,
        number: u32,
        mut own: impl Iterator<Item = &'a Buffers> + 'a,
    ) -> Record {
        let lines = &world.lines[rank as usize];
        if let Some([first, second]) = pass.words() {
            let [fingerprint, small, count] = self.fingerprint;
            return [fingerprint, small, count, first, second, 0, 0, 1];
        }
        let word_of = move |address| world.addresses.word_of(rank, address);
        let has_copies = pass.footprint().map_or(!pass.originals().is_empty(), Footprint::has_originals);
        if has_copies {
            // Relaxed: the stamp publishes it.
            lines.notes.has_copies.store(true, Ordering::Relaxed);
        }
        if let Some(footprint) = pass.footprint() {
            lines.batch.write(number, pass.id(), records_of(pass, own, word_of));
            lines.notes.footprints.write(number, pass.id(), footprint);
            return record_of_pass(self.fingerprint, pass);
        }
        let mut record = record_of(self.fingerprint, own.next().expect("a call has the rank's buffers"), word_of);
        if has_copies {
            lines.notes.originals.write(number, pass.originals());
            record[CALLS] |= COPIES;
        }
        if is_reachable {
            record[CALLS] |= REACHABLE;
        }
        record
    }

    /// Posts what the record of a call of the pass does not say, beside the record.
    #[inline]
    pub(super) fn describe_call(&self, world: &World, pass: Pass<'_>, number: u32, nth: usize) {
        let Some(description) = &pass.programs()[nth.min(pass.programs().len() - 1)].description else { return };
        let place = &world.lines[self.ranks.start as usize].described[number as usize % PLACES];
        if !place.begins_with(description[0]) {
            place.post(description);
        }
    }

    /// Meets a rank that has entered, and says whether every rank can reach its buffers.
    pub(super) fn meet_reachable(
        &mut self,
        world: &World,
        pass: Pass<'_>,
        rank: u32,
        number: u32,
    ) -> Result<bool, Cause> {
        self.compare_and_meet(world, pass, rank, number, self.ranks.start)?;
        Ok(world.lines[rank as usize].record.read(number)[CALLS] & REACHABLE != 0)
    }

    /// Notes which members are through with a call that this one has yet to enter.
    pub(super) fn see_who_is_gone(&mut self, world: &World, pass: Pass<'_>, number: u32) {
        if !self.is_member || pass.is_symmetric() {
            self.gone.fill(false);
            return;
        }
        // A rank that has entered the call and is quiet has finished it: it begins the next when this rank has entered this one.
        // Acquire: pairs with the Release in `Member::results_are_back`. A user who passes memory that another rank had before
        // got it after that store.
        for (gone, lines) in self.gone.iter_mut().zip(&world.lines) {
            let is_done = lines.stamp.has_entered(number) && lines.activity.is_quiet();
            *gone = is_done && !lines.notes.has_copies.load(Ordering::Acquire);
        }
    }

    /// Meets every rank that has entered the call before this one looked.
    pub(super) fn meet_early_comers(&mut self, world: &World, pass: Pass<'_>, number: u32) -> Result<(), Cause> {
        let own = self.ranks.start;
        for rank in 0..world.world_size() {
            // The fence of the doorbells lies between this worker's stamp and this look.
            if world.lines[rank as usize].stamp.has_entered(number) {
                self.compare_and_meet(world, pass, rank, number, own)?;
            }
        }
        Ok(())
    }

    /// Compares the call of a peer that has entered with that of this worker's rank `own`, and learns the peer's
    /// buffers.
    pub(super) fn compare_and_meet(
        &mut self,
        world: &World,
        pass: Pass<'_>,
        rank: u32,
        number: u32,
        own: u32,
    ) -> Result<(), Cause> {
        if self.met[rank as usize] {
            return Ok(());
        }
        let lines = &world.lines[rank as usize];
        let has_one_space = matches!(world.addresses, Addresses::OneSpace);
        if !has_one_space && pass.needs_no_records() && lines.stamp.digest(number) == self.digest {
            self.known.buffers[rank as usize].staging = staging_of(world, pass, rank, number);
            self.met[rank as usize] = true;
            return Ok(());
        }
        let record = lines.record.read(number);
        // Whichever of the two finds the other, they are named in one order.
        let pair = Pair { ranks: [own.min(rank), own.max(rank)], call: number };
        if record[..3] != self.fingerprint || record[CALLS] & !FLAGS != calls_word(pass) {
            return Err(world.abort().raise(Cause::Mismatch(pair)));
        }
        if pass.id() != 0 && self.known.peers[rank as usize] == record[ID] {
            self.met[rank as usize] = true;
            return Ok(());
        }
        let mut posted = None;
        let address_of = |word| world.addresses.address_of(rank, word);
        while let Err(unreached) = self.meet(world, pass, rank, number, &record, address_of) {
            if lines.departure.last().is_some() && !touches_arrays(pass, own, rank) {
                // It is through with the call, and passes no memory any more. Its staging is in reach.
                return self.meet(world, pass, rank, number, &record, |_| Ok(std::ptr::null_mut())).or(Ok(()));
            }
            let notice = post_wait(world, number, [own, rank], &mut posted);
            self.ask_again(world, rank, own, unreached, &notice)?;
        }
        let is_gone = self.gone[rank as usize];
        if self.is_member && !is_gone && self.overlaps(world, pass, own, rank, number, &record) {
            return Err(world.abort().raise(Cause::Overlap(pair)));
        }
        // A rank that was gone is compared when it is met again.
        self.known.peers[rank as usize] = if is_gone { 0 } else { record[ID] };
        Ok(())
    }

    /// Says whether the memory of a peer overlaps that of this worker's rank `own`.
    fn overlaps(&self, world: &World, pass: Pass<'_>, own: u32, rank: u32, number: u32, record: &Record) -> bool {
        match pass.footprint() {
            None if pass.originals().is_empty() && record[CALLS] & COPIES == 0 => {
                overlap(&pass.first().user_bytes, &self.known.buffers, own, rank)
            }
            None => self.originals_overlap(world, pass, own, rank, number, record),
            Some(footprint) => world.lines[rank as usize].notes.footprints.overlap(number, footprint),
        }
    }

    /// Says whether the arrays of a peer overlap the arrays of rank `own` in a single call, if one of the two works on
    /// copies.
    #[cold]
    fn originals_overlap(
        &self,
        world: &World,
        pass: Pass<'_>,
        own: u32,
        rank: u32,
        number: u32,
        record: &Record,
    ) -> bool {
        if own == rank {
            return false;
        }
        let packed =
            |rank: u32| packed_arrays(pass.first().user_bytes[rank as usize], &self.known.buffers[rank as usize]);
        let own_packed = packed(own);
        let own = if pass.originals().is_empty() { &own_packed[..] } else { pass.originals() };
        match record[CALLS] & COPIES {
            0 => arrays_overlap(own, &packed(rank)),
            _ => world.lines[rank as usize].notes.originals.read(number, |others| arrays_overlap(own, others)),
        }
    }

    /// Notes the buffers of a rank of this worker, one for each call of the pass.
    pub(super) fn know_own<'a>(
        &mut self,
        world: &World,
        pass: Pass<'_>,
        rank: u32,
        number: u32,
        own: impl Iterator<Item = &'a Buffers>,
    ) {
        let staging = staging_of(world, pass, rank, number);
        let places = self.known.buffers.iter_mut().skip(rank as usize).step_by(world.lines.len());
        places.zip(own).for_each(|(place, own)| *place = Buffers { staging, ..*own });
        self.met[rank as usize] = true;
    }

    /// Says whether to ask a peer again for memory that its record names, and raises the abort if not.
    #[cold]
    fn ask_again(
        &mut self,
        world: &World,
        rank: u32,
        own: u32,
        unreached: Unreached,
        notice: &Notice,
    ) -> std::result::Result<(), Cause> {
        if let Some(cause) = world.abort().cause() {
            return Err(cause);
        }
        let refused = || (unreached == Unreached::Refused).then_some(Cause::NoMemory(own));
        let cause = match world.death_of(rank) {
            None if self.deadline.has_passed() => {
                self.wait_graph = wait_graph(world, world.ranks()[own as usize], notice);
                Some(Cause::TimedOut(own))
            }
            death => death.or_else(refused),
        };
        let Some(cause) = cause else {
            give_way();
            return Ok(());
        };
        Err(world.abort().raise(cause))
    }

    /// Learns the buffers of a peer, and its scalar; `address_of` gives the address for a word of its record.
    fn meet(
        &mut self,
        world: &World,
        pass: Pass<'_>,
        rank: u32,
        number: u32,
        record: &Record,
        address_of: impl Fn(u64) -> std::result::Result<*mut u8, Unreached>,
    ) -> std::result::Result<(), Unreached> {
        if pass.words().is_some() {
            self.met[rank as usize] = true;
            return Ok(()); // such a call has no buffers
        }
        let staging = staging_of(world, pass, rank, number);
        let places = self.known.buffers.iter_mut().skip(rank as usize).step_by(world.lines.len());
        let learn = |(place, record): (&mut Buffers, Record)| {
            *place = buffers_in(&record, staging, &address_of)?;
            Ok(())
        };
        if pass.footprint().is_none() {
            places.zip([*record]).try_for_each(learn)?;
        } else {
            let records = world.lines[rank as usize].batch.read(number, pass.programs().len());
            places.zip(records).try_for_each(learn)?;
        }
        self.met[rank as usize] = true;
        Ok(())
    }
}

/// Posts that rank `own` waits in its call for the memory of a peer; returns the notice.
#[cold]
fn post_wait<'world>(
    world: &'world World,
    call: u32,
    [own, peer]: [u32; 2],
    posted: &mut Option<PostedNotice<'world>>,
) -> Notice {
    let of_run = |rank: u32| world.ranks()[rank as usize];
    let notice = world.notice_of_call(own, call, [of_run(peer)].into_iter().collect());
    posted.get_or_insert_with(|| PostedNotice::new(world.board(), of_run(own))).post(notice, false)
}

/// Says whether a step of rank `own` touches arrays or scratch of a peer.
#[cold]
fn touches_arrays(pass: Pass<'_>, own: u32, peer: u32) -> bool {
    let steps = &pass.order().verified().schedule().steps;
    let mut views = steps.iter().filter(|step| step.rank == own).flat_map(|step| step.views());
    views.any(|view| view.rank == peer && !view.buffer.is_staging())
}

/// Returns the record of a single call; `word_of` gives the word for an address.
fn record_of([fingerprint, small, count]: [u64; 3], own: &Buffers, word_of: impl Fn(*mut u8) -> u64) -> Record {
    let [input, output, scratch] = [own.input, own.output, own.scratch].map(word_of);
    [fingerprint, small, count, input, output, scratch, own.scalar.to_bits(), 1]
}

/// Returns the record of a pass of a batch.
fn record_of_pass([fingerprint, small, count]: [u64; 3], pass: Pass<'_>) -> Record {
    let mut record = [fingerprint, small, count, 0, 0, 0, 0, 0];
    (record[ID], record[CALLS]) = (pass.id(), calls_word(pass));
    record
}

/// Returns the records of the calls of a pass, given the rank's own buffers in each.
fn records_of<'a>(
    pass: Pass<'a>,
    own: impl Iterator<Item = &'a Buffers> + 'a,
    word_of: impl Fn(*mut u8) -> u64 + 'a,
) -> impl Iterator<Item = Record> + 'a {
    pass.programs().iter().zip(own).enumerate().map(move |(nth, (program, own))| {
        let (place, of) = pass.place(nth);
        let mut record = record_of(program.fingerprint, own, &word_of);
        record[PLACE] = place as u64 | (of as u64) << 32;
        record
    })
}

/// Returns a number that is equal where two ranks make the same call. Calls that differ in one word of the fingerprint have different
/// ones, because each step of the hash can be undone.
///
/// Source of the hash: FxHash of Firefox and rustc.
#[inline]
fn digest([fingerprint, small, count]: [u64; 3], pass: Pass<'_>) -> u64 {
    let step = |hash: u64, word: u64| (hash.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    [small, count, calls_word(pass)].into_iter().fold(fingerprint, step)
}

fn calls_word(pass: Pass<'_>) -> u64 {
    match pass.place(0) {
        (_, 1) => 1,
        (_, of) => pass.programs().len() as u64 | (of as u64) << 32,
    }
}

/// Returns the buffers that a record names; `address_of` gives the address for a word.
fn buffers_in(
    record: &Record,
    staging: *mut u8,
    address_of: impl Fn(u64) -> std::result::Result<*mut u8, Unreached>,
) -> std::result::Result<Buffers, Unreached> {
    let (input, output, scratch) = (address_of(record[3])?, address_of(record[4])?, address_of(record[5])?);
    Ok(Buffers { input, output, scratch, staging, scalar: f64::from_bits(record[6]) })
}

/// Returns the staging of a rank in call `number`; null if the pass uses none.
fn staging_of(world: &World, pass: Pass<'_>, rank: u32, number: u32) -> *mut u8 {
    match pass.first().staging_bytes() {
        0 => std::ptr::null_mut(),
        _ if pass.is_inline() => world.lines[rank as usize].stamp.data(number),
        _ => world.staging(rank),
    }
}
