//! Another process, as the kernel tells of it: how it ended, whether a thread of it still runs, and what it does.
//!
//! `/proc/PID/stat` has the exit status as soon as the end begins, and until the parent has collected it. Afterwards a descriptor of the
//! process tells it (`PIDFD_GET_INFO`, Linux 6.15), which was opened while the process lived. The kernel uses numbers of processes again:
//! the time at which a process started says whether it is still the same.
//!
//! Source: proc_pid_stat(5), pidfd_open(2), linux/pidfd.h, membarrier(2).

use std::fs::{read_dir, read_to_string};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::process::{pidfd_open, Pid, PidfdFlags};
use rustix::thread::{membarrier, MembarrierCommand};

/// How long a status other than 0 of a process that has begun to end is waited for. Chosen: it is set before the life word, but a busy machine
/// takes milliseconds. So the report of an end by `_exit(0)` or `exec`, which both show 0, takes this time.
const STATUS_WAIT: Duration = Duration::from_millis(50);

/// Lets other processes interrupt this one by [`interrupt_registered`].
pub(crate) fn register_for_interrupts() {
    _ = membarrier(MembarrierCommand::RegisterGlobalExpedited);
}

/// Interrupts every processor that runs a thread of a registered process, and says whether it did. A thread that has been sent SIGKILL
/// before never runs code of its program again: no processor returns to that code without a look at the signals.
pub(crate) fn interrupt_registered() -> bool {
    membarrier(MembarrierCommand::GlobalExpedited).is_ok()
}

/// The flag of a thread that has begun to end, and never runs code of its program again. Cited: `PF_EXITING`, linux/sched.h.
const EXITING: u64 = 4;

/// What `/proc/PID/stat` says of a process, or of a thread.
struct ProcessLine {
    /// The letter of its state.
    state: u8,
    is_exiting: bool,
    /// When it started, which with its number says which process it is.
    started: u64,
    /// Its wait status, once it has begun to end.
    status: u16,
}

impl ProcessLine {
    fn of(text: &str) -> Option<Self> {
        // The name of the program stands in parentheses, and may contain any.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        let state = fields.first()?.bytes().next()?;
        let is_exiting = number(9)? & EXITING != 0 || matches!(state, b'Z' | b'X');
        Some(Self { state, is_exiting, started: number(22)?, status: number(52)? as u16 })
    }

    /// Reads a file `stat`; `None` if the process does not exist, or cannot be seen from here.
    fn read(path: &str) -> Option<Self> {
        Self::of(&read_to_string(path).ok()?)
    }
}

/// Says whether a process is stopped, by a signal or a debugger.
pub(crate) fn is_stopped(process: u32) -> bool {
    ProcessLine::read(&format!("/proc/{process}/stat")).is_some_and(|line| matches!(line.state, b'T' | b't'))
}

/// Another process.
#[derive(Debug)]
pub(crate) struct OtherProcess {
    number: u32,
    started: u64,
    descriptor: Option<OwnedFd>,
}

impl OtherProcess {
    /// Looks at a process that runs; `None` if it cannot be seen from here.
    pub(crate) fn of(number: u32) -> Option<Self> {
        let started = ProcessLine::read(&format!("/proc/{number}/stat"))?.started;
        let descriptor = Pid::from_raw(number as i32).and_then(|number| pidfd_open(number, PidfdFlags::empty()).ok());
        Some(Self { number, started, descriptor: descriptor.filter(|descriptor| information(descriptor).is_some()) })
    }

    fn line(&self) -> Option<ProcessLine> {
        let line = ProcessLine::read(&format!("/proc/{}/stat", self.number))?;
        (line.started == self.started).then_some(line)
    }

    /// Returns the wait status of a process that has begun to end, as far as the kernel tells.
    pub(crate) fn wait_status(&self) -> Option<u16> {
        let began = Instant::now();
        loop {
            let is_late = began.elapsed() > STATUS_WAIT;
            match self.line() {
                Some(line) if line.status != 0 && line.state != b'T' => return Some(line.status),
                // A thread that becomes another program ends the first one before it takes its place.
                Some(line) if line.is_exiting && is_late => return Some(line.status),
                Some(_) => (),
                None => {
                    if let Some(status) = self.descriptor.as_ref().and_then(information).flatten() {
                        return Some(status);
                    }
                }
            }
            if is_late {
                return None;
            }
            std::thread::sleep(STATUS_WAIT / 500);
        }
    }

    /// Says whether every thread of the process has begun to end: none runs code of the program any more.
    pub(crate) fn is_over(&self) -> bool {
        if self.line().is_none() {
            return true;
        }
        let Ok(threads) = read_dir(format!("/proc/{}/task", self.number)) else { return true };
        threads.flatten().all(|thread| {
            let line = ProcessLine::read(&thread.path().join("stat").to_string_lossy());
            line.is_none_or(|line| line.is_exiting)
        })
    }
}

/// Returns the wait status of a process that was collected, if the kernel can tell it at all.
fn information(descriptor: &OwnedFd) -> Option<Option<u16>> {
    /// Cited: `struct pidfd_info`, linux/pidfd.h.
    #[repr(C)]
    #[derive(Default)]
    struct Information {
        mask: u64,
        control_group: u64,
        numbers: [u32; 11],
        status: i32,
    }
    /// Cited: `_IOWR(0xFF, 11, struct pidfd_info)`, linux/pidfd.h.
    const PIDFD_GET_INFO: libc::c_ulong = 3 << 30 | (size_of::<Information>() as libc::c_ulong) << 16 | 0xff << 8 | 11;
    /// Cited: linux/pidfd.h.
    const PIDFD_INFO_EXIT: u64 = 1 << 3;
    let mut found = Information { mask: PIDFD_INFO_EXIT, ..Information::default() };
    // SAFETY: `found` is a place for the answer, as long as the number of the request says.
    let status = unsafe { libc::ioctl(descriptor.as_raw_fd(), PIDFD_GET_INFO as _, &raw mut found) };
    let number = std::io::Error::last_os_error().raw_os_error();
    match status {
        0 => Some((found.mask & PIDFD_INFO_EXIT != 0).then_some(found.status as u16)),
        _ => (number == Some(libc::ESRCH)).then_some(None), // it ended, and nothing else is known
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// Returns what is known of a process that ran a program of the shell, once before and once after it was collected.
    fn ends_of(program: &str) -> [Option<u16>; 2] {
        let program = format!("read x; {program}");
        let mut child = Command::new("sh").args(["-c", &program]).stdin(Stdio::piped()).spawn().unwrap();
        let process = OtherProcess::of(child.id()).unwrap();
        assert!(!process.is_over());
        drop(child.stdin.take());
        while !process.is_over() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let before = process.wait_status();
        child.wait().unwrap();
        [before, process.wait_status()]
    }

    #[test]
    fn the_name_of_a_program_may_contain_anything() {
        let mut text = "12 (a) b) S 1".to_owned();
        (5..=52).for_each(|field| text += &format!(" {field}"));
        let line = ProcessLine::of(&text).unwrap();
        assert_eq!((line.state, line.started, line.status), (b'S', 22, 52));
    }

    #[test]
    fn the_status_of_a_process_is_known_before_and_after_it_was_collected() {
        let after = |status| if ends_after_collection_are_told() { Some(status) } else { None };
        for (program, status) in [("exit 7", 7 << 8), ("kill -9 $$", 9), ("true", 0)] {
            assert_eq!(ends_of(program), [Some(status), after(status)], "{program}");
        }
    }

    /// Says whether the kernel is of 6.15 or later.
    fn ends_after_collection_are_told() -> bool {
        let release = read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse::<u32>().ok());
        (numbers.next().unwrap(), numbers.next().unwrap()) >= (6, 15)
    }
}
