//! The time of a step as a formula: for sweeps over layouts, where virtual time is too slow by a thousand times.
//!
//! With t = the seconds of a micro-batch in a stage, s = the send, sums over stages, m micro-batches, p stages, v chunks:
//!
//! | schedule | time |
//! |---|---|
//! | GPipe | (m - 1)(max f + max b) + sum t + 2 (p - 1) s; exact |
//! | 1F1B | sum t + 2 (p - 1) s + the longest way to the last of m micro-batches, by cycles |
//! | interleaved | m max t + (sum t - max t) / v + 2 (v p - 1) s |
//! | zero bubble 1p | m max t + max(0, sum of the other stages' f + b - w) + 4 (p - 1) s |
//! | DualPipe | m max t + (p / 2 - 1)(f + 2 b - w + 4 s), means of a chunk: arXiv 2412.19437, table 2, where a backward pass is b + w |
//! | zero bubble 2p | m max t + what forward passes leave of the first bubble, or weight passes of the last |
//!
//! A cycle of 1F1B: stages a to b work on a micro-batch, down and up, while stage a goes on to the micro-batch b - a + 1 later. It takes the
//! t of these stages and 2 (b - a) sends. So sends that nothing hides cost nearly two per micro-batch, and a cycle of one stage is its t.
//! The longest path is the way of the first micro-batch, then cycles from some stage a on; the last cycle goes to the last stage: after the
//! last forward pass of a, all later stages still work on it. No step is shorter than the way to a stage that is always
//! busy. If the last stage is slowest, this is (m - 1) max t + sum t.
//!
//! Against virtual time, with f, b, w of 10, 11, 8 ms, sends of up to 1 ms, 2 to 16 stages and 4 micro-batches per stage or more:
//!
//! | stages | 1F1B | interleaved | 1p | 2p |
//! |---|---|---|---|---|
//! | equal, or the last half a chunk slower | 0.4 % | 0.01 % | 2.3 % | 1.9 % |
//! | the first and last chunk a quarter faster | 0.1 % | 2.8 % | 1.6 % | 1.1 % |
//!
//! The errors fall with the number of micro-batches. Interleaved and 1p come out too slow where the slowest stage is in the middle, since the
//! forms let it wait for all others. With fewer than two micro-batches per stage, the forms of zero bubble are wrong by up to 16 %.
//!
//! Source of the forms without sends: Narayanan et al. 2021, section 2.2; Qi et al. 2024, table 2. Sends: ours.

use super::schedule::{Chunk, Pipeline, Schedule};

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
            Schedule::OneFOneB => self.longest_path(&of_stage(Chunk::total).collect::<Vec<_>>(), send),
            Schedule::Interleaved => m * slowest + (sum - slowest) / v + 2.0 * (v * p - 1.0) * send,
            Schedule::ZeroBubble1p => {
                let way = |one: &Chunk| one.forward + one.backward - one.weight;
                let ways: f64 = of_stage(way).sum();
                let last = of_stage(way).fold(0.0, f64::max);
                m * slowest + (ways - last + 4.0 * (p - 1.0) * send).max(0.0)
            }
            Schedule::ZeroBubble2p => m * slowest + self.bubble_2p(send),
            Schedule::DualPipe => {
                let way: f64 = of_stage(|one| one.forward + 2.0 * one.backward - one.weight).sum::<f64>() / (p * v);
                m * slowest + (p / 2.0 - 1.0) * (way + 4.0 * send).max(0.0)
            }
        }
    }

    /// Returns the seconds of the longest path through 1F1B, where `times` are the times of the stages.
    fn longest_path(&self, times: &[f64], send: f64) -> f64 {
        let (stages, more) = (times.len(), self.micro_batches as usize - 1);
        let mut longest = self.busiest(times, send);
        for first in stages.saturating_sub(more)..stages {
            let (mut sum, mut cycle, mut slowest) = (0.0, 0.0, 0.0f64);
            for (hops, time) in times[first..].iter().enumerate() {
                sum += time;
                cycle = sum + 2.0 * hops as f64 * send;
                slowest = slowest.max(cycle / (hops + 1) as f64);
            }
            longest = longest.max(cycle + (more - (stages - first)) as f64 * slowest);
        }
        times.iter().sum::<f64>() + 2.0 * (stages - 1) as f64 * send + longest
    }

    /// Returns by how much the way to a stage that is always busy, and back, is longer than the way of one micro-batch; 0 if it is not.
    fn busiest(&self, times: &[f64], send: f64) -> f64 {
        let all = times.iter().sum::<f64>() + 2.0 * (times.len() - 1) as f64 * send;
        let (mut before, mut longest) = (0.0, all);
        for time in times {
            longest = f64::max(longest, before + f64::from(self.micro_batches) * time);
            before += time + 2.0 * send;
        }
        longest - all
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
