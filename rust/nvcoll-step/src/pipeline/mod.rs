//! Pipelines: the order in which stages work on micro-batches, and when each pass begins and ends in virtual time.
//!
//! A micro-batch passes forward (F) through all stages and backward (B) through them again; the gradients of the weights (W) belong to the
//! backward pass, or run later where a schedule splits them off. All orders have one shape: **a stage begins a forward pass while fewer
//! than `warm_up` micro-batches are in flight on it, and a backward pass otherwise.** A schedule is the number `warm_up` of each stage:
//!
//! | schedule | `warm_up` of stage r of p, v chunks, m micro-batches | source |
//! |---|---|---|
//! | GPipe | m | Huang et al. 2019, arXiv 1811.06965: backward in reverse |
//! | 1F1B | p - r | PipeDream-Flush; Narayanan et al. 2021, arXiv 2104.04473, section 2.2 |
//! | interleaved | 2 (p - r - 1) + (v - 1) p + 1 chunks | the same, section 2.2; groups of p micro-batches walk through the chunks |
//! | zero bubble 1p | p - r; r weight passes are deferred | ZB-H1 of Qi et al. 2024, arXiv 2401.10241, section 2.1 |
//! | zero bubble 2p | the best of a few, see `zero_bubble` | the same, section 3.1 |
//!
//! A pass begins when its stage is free and its input has arrived: the end of the pass before it, plus `send`. So a stage needs to know
//! only its own order and the ends on its two neighbours, and the result does not depend on the order in which stages are visited.
//! Time is in integer picoseconds. Cost: one visit per pass, micro-batches x stages x chunks.
//!
//! Held against the figures of arXiv 2401.10241, with the times of its table 9 (`tests/pipeline_paper.rs`): the bubbles of 1F1B and ZB-1p
//! agree with its table 5 in all four digits; interleaved ones are 0.08 to 0.35 points larger, which are p sends; bubbles of zero bubble 2p
//! are as small or smaller in 10 of 12 rows, and up to 0.13 points larger in two.
//!
//! DualPipe has a closed form alone. It does not model: sends that block the sender, ZB-V, unequal numbers of chunks.

mod closed_form;
mod schedule;
mod split;
mod timeline;
mod virtual_time;
mod zero_bubble;

pub use schedule::{Chunk, Pipeline, Schedule, KEPT};
pub use split::{split, Balance};
pub use timeline::{Pass, Span, StageTime, Timeline};

impl Pipeline {
    /// Returns the seconds of a step: in virtual time, or by the closed form where a schedule has no other.
    pub fn exact(&self) -> f64 {
        if self.schedule == Schedule::DualPipe {
            self.closed_form()
        } else {
            self.run().step
        }
    }

    /// Returns the time of a step, by stage. The pipeline must have passed [`check`](Self::check).
    ///
    /// # Panics
    /// If the schedule cannot run the pipeline.
    pub fn run(&self) -> Timeline {
        self.timed(false)
    }

    /// Returns the time of a step, with the begin and end of every pass.
    ///
    /// # Panics
    /// If the schedule cannot run the pipeline.
    pub fn run_with_spans(&self) -> Timeline {
        self.timed(true)
    }

    fn timed(&self, with_spans: bool) -> Timeline {
        let splits = self.schedule.splits_backward();
        let order = if self.schedule == Schedule::ZeroBubble2p { zero_bubble::best(self) } else { self.order() };
        Timeline::new(virtual_time::run(self, &order, with_spans), splits)
    }
}
