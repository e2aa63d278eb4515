//! The door between a caller and its helpers: the job on offer, the number of helpers inside, and the helpers to wake.
//!
//! ```text
//! word      open bit (63) · job number (16..63) · helpers inside (0..16)
//! caller    write the job ─▶ open ─▶ wake sleeping helpers ─▶ do a share ─▶ close ─▶ wait until empty ─▶ drop the job
//! helper    look ─▶ enter: count one more inside, if that job is still on offer ─▶ read the job, do a share ─▶ leave
//! ```
//!
//! A helper touches the job only between entering and leaving. The caller touches it only while the door is closed and nobody is
//! inside. The job number keeps a helper that saw one job from entering for the next. A helper that falls asleep sets its flag, fences
//! and looks again; a caller that opens fences and then looks for sleeping helpers. One of the two sees the other.

use crate::sync::atomic::{fence, AtomicBool, AtomicU64, Ordering};

const OPEN: u64 = 1 << 63;
const INSIDE: u64 = 0xffff;
const ONE_JOB: u64 = 1 << 16;

/// The door of one pool. One caller at a time opens and closes it.
#[derive(Debug, Default)]
pub struct Door(AtomicU64);

/// The state of a door at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DoorState(u64);

impl DoorState {
    /// Says whether a job is on offer.
    pub fn is_open(self) -> bool {
        self.0 & OPEN != 0
    }

    /// Returns the number of the job on offer, or of the last.
    pub fn job(self) -> u64 {
        self.0 & !(OPEN | INSIDE)
    }
}

impl Door {
    /// Offers the next job, which was written while nobody was inside. The caller looks for sleeping helpers next.
    pub fn open(&self) {
        // Relaxed: this thread closed it last, or got it from who did.
        let next = DoorState(self.0.load(Ordering::Relaxed)).job().wrapping_add(ONE_JOB);
        // Release: pairs with the Acquire in `enter`, so that who is inside sees the job.
        self.0.store(OPEN | DoorState(next).job(), Ordering::Release);
        // SeqCst: pairs with the fence in `doze`.
        fence(Ordering::SeqCst);
    }

    /// Closes the door: no further helper enters.
    pub fn close(&self) {
        // Relaxed: `is_empty` is what orders; a helper that enters meanwhile is counted or sees the door closed.
        self.0.fetch_and(!OPEN, Ordering::Relaxed);
    }

    /// Says whether nobody is inside, after `close`. The work of the helpers is then visible.
    pub fn is_empty(&self) -> bool {
        // Acquire: pairs with the Release of everyone who left; each of these continues the Release before.
        self.0.load(Ordering::Acquire) & INSIDE == 0
    }

    /// Looks at the door.
    pub fn look(&self) -> DoorState {
        // Relaxed: who wants the job enters for it.
        DoorState(self.0.load(Ordering::Relaxed))
    }

    /// Enters, if that job is still on offer.
    pub fn enter(&self, job: u64) -> bool {
        let mut seen = self.look();
        while seen.is_open() && seen.job() == job {
            // Acquire: pairs with the Release in `open`. Relaxed: a failed exchange only looks.
            match self.0.compare_exchange_weak(seen.0, seen.0 + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(found) => seen = DoorState(found),
            }
        }
        false
    }

    /// Leaves.
    pub fn leave(&self) {
        // Release: pairs with the Acquire in `is_empty`.
        self.0.fetch_sub(1, Ordering::Release);
    }

    /// Sleeps by `park`, unless the door has changed since it was `seen`. `park` returns at once after an earlier
    /// wake-up.
    pub fn doze(&self, seen: DoorState, is_asleep: &AtomicBool, park: impl FnOnce()) {
        // Relaxed: the fence orders it before the look at the door.
        is_asleep.store(true, Ordering::Relaxed);
        // SeqCst: pairs with the fence in `open`: this thread sees the new job, or the caller sees it asleep.
        fence(Ordering::SeqCst);
        if self.look() == seen {
            park();
        }
        // Relaxed: a caller that still reads true wakes a thread that is awake.
        is_asleep.store(false, Ordering::Relaxed);
    }
}
