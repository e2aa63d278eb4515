//! Faults that a test asks for: something happens to a rank at an exact moment of one of its calls.
//!
//! ```text
//! Before     the rank has not entered the call: no peer sees it there
//! After(0)   it has entered: record and stamp are written, everybody was rung
//! After(k)   it has done k of its steps, and published them
//! Leave      it has done all of its steps and waits for nobody any more, but has not left: its activity is still active
//! ```
//!
//! The fault strikes in the engine, on the thread of the call, so no code of the program runs between the moment and the fault. Before
//! it strikes it tells the time and the number of steps to a descriptor, because a killed process cannot.
//!
//! Cost: a rank without a fault looks at one `Option` per step. Source: ours.

use std::fs::{read_to_string, File};
use std::os::fd::AsRawFd;
use std::time::Duration;

use rustix::process::{getpid, getrlimit, setrlimit, Resource, Rlimit};

use crate::system::clock::monotonic_ns;

/// The bytes that a rank out of memory can still get. Chosen: its stack may grow a little, so that it fails and does not crash.
const LAST_ROOM_BYTES: u64 = 1 << 20;

/// A moment of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Before the rank enters.
    Before,
    /// After this number of its steps.
    After(u32),
    /// Before the rank leaves.
    Leave,
}

/// What happens to the rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strike {
    /// Its process sends itself a signal.
    Signal(i32),
    /// Its process ends at once with this status.
    Exit(i32),
    /// It stays where it is for this time.
    Delay(Duration),
    /// From here on its process gets no more memory.
    NoMemory,
    /// From here on its process gets no more descriptors.
    NoDescriptors,
    /// The call fails, as if an exception of the program ended it.
    Raise,
}

impl Strike {
    /// Says whether it strikes a whole process, and not one of its threads.
    pub(crate) fn is_of_process(self) -> bool {
        !matches!(self, Strike::Delay(_) | Strike::Raise)
    }
}

/// A fault that waits for its moment.
#[derive(Debug)]
pub(crate) struct Fault {
    /// The number of the call.
    call: u32,
    at: Moment,
    strike: Strike,
    /// Where it tells that it strikes.
    descriptor: Option<i32>,
    /// The steps that the rank has done in the call.
    done: u32,
}

impl Fault {
    pub(crate) fn new(call: u32, at: Moment, strike: Strike, descriptor: Option<i32>) -> Self {
        Self { call, at, strike, descriptor, done: 0 }
    }

    /// Notes that the rank has come to a moment of a call, where `After` means one more step, or none with 0. It strikes if that is its
    /// moment, and returns whether the call is to fail.
    #[cold]
    pub(crate) fn reach(&mut self, call: u32, moment: Moment) -> bool {
        if call != self.call {
            return false;
        }
        let now = match moment {
            Moment::After(more) => {
                self.done += more;
                Moment::After(self.done)
            }
            other => other,
        };
        if now != self.at {
            return false;
        }
        self.tell();
        self.strike()
    }

    /// Writes the monotonic time in nanoseconds and the number of steps, eight bytes each.
    fn tell(&self) {
        let Some(descriptor) = self.descriptor else { return };
        let words = [monotonic_ns(), u64::from(self.done)];
        // SAFETY: the system reads the sixteen bytes of `words`. A descriptor that nobody reads is the test's affair.
        unsafe { libc::write(descriptor, words.as_ptr().cast(), size_of_val(&words)) };
    }

    fn strike(&self) -> bool {
        match self.strike {
            Strike::Delay(time) => std::thread::sleep(time),
            Strike::Raise => return true,
            // SAFETY: it takes numbers only.
            Strike::Signal(number) => _ = unsafe { libc::kill(getpid().as_raw_nonzero().get(), number) },
            // SAFETY: it does not return, and runs nothing of this process.
            Strike::Exit(status) => unsafe { libc::_exit(status) },
            Strike::NoMemory => limit(Resource::As, mapped_bytes() + LAST_ROOM_BYTES),
            // The system gives the lowest free number, and refuses numbers from the limit on.
            Strike::NoDescriptors => {
                let lowest_free = File::open("/dev/null").map(|file| file.as_raw_fd() as u64);
                lowest_free.into_iter().for_each(|number| limit(Resource::Nofile, number));
            }
        }
        false
    }
}

/// Returns the bytes that this process has mapped.
fn mapped_bytes() -> u64 {
    let text = read_to_string("/proc/self/status").unwrap_or_default();
    let size =
        text.lines().find_map(|line| line.strip_prefix("VmSize:")?.split_whitespace().next()?.parse::<u64>().ok());
    size.unwrap_or(0) << 10
}

/// Lowers a limit of this process, which the process may raise again.
fn limit(resource: Resource, most: u64) {
    let now = getrlimit(resource);
    let current = Some(now.maximum.map_or(most, |maximum| most.min(maximum)));
    _ = setrlimit(resource, Rlimit { current, ..now });
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_fault_strikes_at_its_moment_of_its_call_alone() {
        for (at, expected) in [(Moment::Before, 0), (Moment::After(0), 1), (Moment::After(2), 3), (Moment::Leave, 4)] {
            let mut fault = Fault::new(7, at, Strike::Raise, None);
            let moments = [Moment::Before, Moment::After(0), Moment::After(1), Moment::After(1), Moment::Leave];
            assert!(moments.iter().all(|&moment| !fault.reach(6, moment)));
            let struck: Vec<_> = moments.iter().map(|&moment| fault.reach(7, moment)).collect();
            assert_eq!(struck.iter().position(|&struck| struck), Some(expected));
            assert_eq!(struck.iter().filter(|&&struck| struck).count(), 1);
        }
    }
}
