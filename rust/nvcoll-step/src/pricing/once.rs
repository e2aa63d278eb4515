//! What happens once in a step: reductions and gathers as far as the last backward and the first forward pass do not hide them.
//!
//! ```text
//! bare(traffic, pass)  = max(traffic - hiding x pass, data_exposed x traffic)
//! slowed               = contention x min(traffic, both passes, traffic at the speed of NVLink)
//! ```

use super::block::collective_part;
use super::parts::{Part, Parts};
use super::Pricer;
use crate::error::Result;
use crate::training_step::{Hides, Op, TrainingStep, Work};

/// Traffic behind one pass.
#[derive(Debug, Clone, Copy, Default)]
struct Traffic {
    seconds: f64,
    nearby: f64,
}

impl Pricer<'_> {
    /// Returns the parts of what a role does once; `forward` and `backward` are its first forward and last backward pass.
    pub(super) fn once(&self, step: &TrainingStep, ops: &[Op], [forward, backward]: [f64; 2]) -> Result<Parts> {
        let mut parts = Parts::default();
        let [mut behind_forward, mut behind_backward] = [Traffic::default(); 2];
        for op in ops {
            let Work::Collective { hides, .. } = op.work else {
                let part = if matches!(op.work, Work::Stream { .. }) || op.name == "optimizer" {
                    Part::Optimizer
                } else {
                    Part::Data
                };
                parts.add(part, self.compute().seconds(&op.work, op.count)?);
                continue;
            };
            let seconds = self.collective(step, op)?;
            let traffic = match hides {
                Hides::LastBackward => &mut behind_backward,
                Hides::FirstForward => &mut behind_forward,
                _ => {
                    let part = if collective_part(op) == Part::Sharded && hides != Hides::Half {
                        Part::Data
                    } else {
                        collective_part(op)
                    };
                    parts.add(part, seconds * self.exposed(hides));
                    continue;
                }
            };
            traffic.seconds += seconds;
            traffic.nearby += self.nearby(step, op)?;
        }
        let constants = self.constants;
        let bare = |traffic: Traffic, pass: f64| {
            (traffic.seconds - constants.hiding * pass).max(constants.data_exposed * traffic.seconds)
        };
        let all = behind_forward.seconds + behind_backward.seconds;
        let nearby = behind_forward.nearby + behind_backward.nearby;
        let slowed = constants.contention * all.min(forward + backward).min(nearby);
        parts.add(Part::Data, bare(behind_forward, forward) + bare(behind_backward, backward) + slowed);
        Ok(parts)
    }
}
