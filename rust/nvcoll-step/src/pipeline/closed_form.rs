//! The time of a step as a formula: for sweeps over layouts, where virtual time is too slow by a thousand times.
//!
//! With t = the seconds of a micro-batch in a stage, s = the send, sums over stages, m micro-batches, p stages, v chunks:
//!
//! | schedule | time |
//! |---|---|
//! | GPipe | (m - 1)(max f + max b) + sum t + 2 (p - 1) s; exact |
//! | 1F1B | (m - 1) c + sum t + 2 (p - 1) s, with c = the slowest cycle between two stages |
//! | interleaved | m max t + (sum t - max t) / v + 2 (v p - 1) s |
//! | zero bubble 1p | m max t + max(0, sum of the other stages' f + b - w) + 4 (p - 1) s |
//! | zero bubble 2p | m max t + what forward passes leave of the first bubble, or weight passes of the last |
//!
//! The cycle of 1F1B: stages a and b pass one micro-batch back and forth, which moves the step on by b - a + 1 micro-batches. A cycle takes
//! the t of the stages between and 2 (b - a) sends, so sends that nothing hides cost nearly two per micro-batch.
//!
//! Source of the forms without sends: Narayanan et al. 2021, section 2.2; Qi et al. 2024, table 2. Sends: ours.

use super::{Chunk, Pipeline, Schedule};

impl Pipeline {
    /// Returns the seconds of a step by the formula of its schedule; see [`run`](Self::run) for the exact time. The pipeline must have
    /// passed [`check`](Self::check).
    pub fn closed_form(&self) -> f64 {
        let [m, p, v] = [self.micro_batches as usize, self.stages.len(), self.chunks()].map(|count| count as f64);
        let send = if p > 1.0 { self.send } else { 0.0 };
        let of_stage =
            |time: fn(&Chunk) -> f64| self.stages.iter().map(move |chunks| chunks.iter().map(time).sum::<f64>());
        let sum: f64 = of_stage(Chunk::total).sum();
        let slowest = of_stage(Chunk::total).fold(0.0, f64::max);
        match self.schedule {
            Schedule::GPipe => {
                let forward = of_stage(|one| one.forward).fold(0.0, f64::max);
                let backward = of_stage(|one| one.backward + one.weight).fold(0.0, f64::max);
                (m - 1.0) * (forward + backward) + sum + 2.0 * (p - 1.0) * send
            }
            Schedule::OneFOneB => {
                (m - 1.0) * self.cycle(&of_stage(Chunk::total).collect::<Vec<_>>(), send) + sum + 2.0 * (p - 1.0) * send
            }
            Schedule::Interleaved => m * slowest + (sum - slowest) / v + 2.0 * (v * p - 1.0) * send,
            Schedule::ZeroBubble1p => {
                let way = |one: &Chunk| one.forward + one.backward - one.weight;
                let ways: f64 = of_stage(way).sum();
                let last = of_stage(way).fold(0.0, f64::max);
                m * slowest + (ways - last + 4.0 * (p - 1.0) * send).max(0.0)
            }
            Schedule::ZeroBubble2p => m * slowest + self.bubble_2p(send),
        }
    }

    /// Returns the seconds per micro-batch of the slowest cycle, of a stage alone or between two stages.
    fn cycle(&self, times: &[f64], send: f64) -> f64 {
        let depth = times.len().min(self.micro_batches as usize);
        let mut slowest: f64 = 0.0;
        for first in 0..times.len() {
            let mut sum = 0.0;
            for (hops, time) in times[first..].iter().take(depth).enumerate() {
                sum += time;
                slowest = slowest.max((sum + 2.0 * hops as f64 * send) / (hops + 1) as f64);
            }
        }
        slowest
    }

    /// Returns the bubble of zero bubble 2p: before the first backward pass of stage 0 if memory is short of forward passes (appendix B of
    /// the paper), or after the last backward pass of the last stage if it is short of weight passes.
    fn bubble_2p(&self, send: f64) -> f64 {
        let (p, m) = (self.stages.len() as f64, f64::from(self.micro_batches));
        let mean = |time: fn(&Chunk) -> f64| self.stages.iter().flatten().map(time).sum::<f64>() / p;
        let [forward, backward, weight] = [mean(|one| one.forward), mean(|one| one.backward), mean(|one| one.weight)];
        let first = (p - 1.0) * (backward + 2.0 * send) + (p - m.min(2.0 * p)) * forward;
        let pending = if self.kept > 0.0 { m.min((2.0 * p / self.kept).floor()) } else { m };
        let last = (p - 1.0) * (forward + backward + 2.0 * send) - (pending - 1.0) * weight;
        first.max(last).max(0.0)
    }
}
