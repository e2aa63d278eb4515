//! The line that the kernel writes about a process, or about a thread. Source: proc_pid_stat(5).

use std::fs::read_to_string;

/// The flag of a thread that has begun to end, and never runs code of its program again. Cited: `PF_EXITING`, linux/sched.h.
const EXITING: u64 = 4;

/// What `/proc/PID/stat` says of a process, or of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessLine {
    /// The letter of its state.
    pub(crate) state: u8,
    pub(crate) is_exiting: bool,
    /// The CPU time of all its threads.
    pub(crate) cpu_ticks: u64,
    /// When it started, which with its number says which process it is.
    pub(crate) started: u64,
    /// Its wait status, once it has begun to end.
    pub(crate) status: u16,
}

impl ProcessLine {
    pub(crate) fn of(text: &str) -> Option<Self> {
        // The name of the program stands in parentheses, and may contain any.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        let state = fields.first()?.bytes().next()?;
        Some(Self {
            state,
            is_exiting: number(9)? & EXITING != 0 || matches!(state, b'Z' | b'X'),
            cpu_ticks: number(14)? + number(15)?,
            started: number(22)?,
            status: number(52)? as u16,
        })
    }

    /// Reads a file `stat`; `None` if the process does not exist, or cannot be seen from here.
    pub(crate) fn read(path: &str) -> Option<Self> {
        Self::of(&read_to_string(path).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_program_may_contain_anything() {
        let mut text = "12 (a) b) S 1".to_owned();
        (5..=52).for_each(|field| text += &format!(" {field}"));
        let line = ProcessLine::of(&text).unwrap();
        assert_eq!((line.state, line.cpu_ticks, line.started, line.status), (b'S', 14 + 15, 22, 52));
    }
}
