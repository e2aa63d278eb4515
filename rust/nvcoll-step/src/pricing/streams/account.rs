//! The account of a recorded rank: each picosecond of its time belongs to one part.
//!
//! ```text
//! a kernel computes                the part of the kernel; time lost to a collective beside it belongs to the collective
//! else data move                   the part of the collective, send or copy that began first: exposed
//! else it waits for another rank   bubble
//! else                             the processor: no operation was issued that could run
//! ```

use nvcoll_fabric::units::Ps;

use super::program::StreamTask;
use crate::parts::{TimePart, TimeParts};

/// Seconds of an operation that nothing hides, and seconds before it begins.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Bare {
    /// Seconds in which it moves data, or slows computing.
    pub(super) exposed: f64,
    /// Seconds in which it waits for other ranks.
    pub(super) waits: f64,
    /// Seconds in which the GPU waits for the processor to issue it.
    pub(super) host: f64,
}

/// The account of a rank.
#[derive(Debug, Default)]
pub(super) struct Account {
    since: Ps,
    slow: f64,
    is_open: bool,
    /// Seconds by part.
    pub(super) parts: TimeParts,
    /// Exposed and waiting seconds by operation.
    pub(super) ops: Vec<Bare>,
    /// Seconds of the processor before the next operation, which is not known yet.
    idle: f64,
}

impl Account {
    pub(super) fn new(ops: usize) -> Self {
        Self { slow: 1.0, ops: vec![Bare::default(); ops], ..Self::default() }
    }

    /// Starts counting.
    pub(super) fn open(&mut self) {
        self.is_open = true;
    }

    /// Stops counting.
    pub(super) fn close(&mut self) {
        self.is_open = false;
    }

    /// Sets the speed of computing from now on.
    pub(super) fn set_slow(&mut self, slow: f64) {
        self.slow = slow;
    }

    /// Accounts for the time up to now: `active` ran in it, `arrived` waited for other ranks, and `next` begins now.
    pub(super) fn until<'t>(
        &mut self,
        now: Ps,
        active: impl Iterator<Item = (usize, &'t StreamTask)>,
        arrived: Option<usize>,
        next: Option<usize>,
    ) {
        let seconds = (now - self.since) as f64 / 1e12;
        self.since = now;
        if !self.is_open {
            return;
        }
        if seconds > 0.0 {
            self.add(seconds, active, arrived);
        }
        if let Some(op) = next {
            self.ops[op].host += std::mem::take(&mut self.idle);
        }
    }

    fn add<'t>(&mut self, seconds: f64, active: impl Iterator<Item = (usize, &'t StreamTask)>, arrived: Option<usize>) {
        let (mut computing, mut moving, mut slowing): (Option<TimePart>, Option<(usize, TimePart)>, _) =
            (None, None, None);
        let mut is_slowed = false;
        for (op, task) in active {
            if task.computes {
                is_slowed |= !task.is_measured;
                computing = computing.filter(|&one| first(one) <= first(task.part)).or(Some(task.part));
            } else {
                moving = moving.or(Some((op, task.part)));
                slowing = slowing.or((task.nearby > 0.0).then_some((op, task.part)));
            }
        }
        let (part, op) = match (computing, moving, arrived) {
            (Some(part), ..) => {
                let slowing = slowing.filter(|_| is_slowed);
                let lost = slowing.map_or(0.0, |_| (1.0 - self.slow) * seconds);
                self.parts.add(part, seconds - lost);
                let Some((op, part)) = slowing else { return };
                self.ops[op].exposed += lost;
                return self.parts.add(part, lost);
            }
            (None, Some((op, part)), _) => (part, &mut self.ops[op].exposed),
            (None, None, Some(op)) => (TimePart::Bubble, &mut self.ops[op].waits),
            (None, None, None) => (TimePart::Host, &mut self.idle),
        };
        *op += seconds;
        self.parts.add(part, seconds);
    }
}

/// The order in which parts count where several kernels run at once.
const fn first(part: TimePart) -> usize {
    match part {
        TimePart::Gemm => 0,
        TimePart::Attention => 1,
        TimePart::Optimizer => 2,
        _ => 3,
    }
}
