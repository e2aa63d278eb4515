//! What happens once in a step: reductions and gathers as far as the last backward and the first forward pass do not hide them.
//!
//! ```text
//! bare(traffic, pass)  = max(traffic - hiding x pass, data_exposed x traffic)
//! slowed               = contention x min(traffic, both passes, traffic at the speed of NVLink)
//! ```

use super::Pricer;
use crate::error::Result;
use crate::parts::{TimePart, TimeParts};
use crate::step::layers::{Hides, LayerOp};
use crate::step::work::StepWork;
use crate::step::WorkStep;

/// Traffic behind one pass.
#[derive(Debug, Clone, Copy, Default)]
struct HiddenTraffic {
    seconds: f64,
    nearby: f64,
}

impl Pricer<'_> {
    /// Returns the parts of what a role does once; `forward` and `backward` are its first forward and last backward pass.
    pub(super) fn once(&self, step: &WorkStep, ops: &[LayerOp], [forward, backward]: [f64; 2]) -> Result<TimeParts> {
        let mut parts = TimeParts::default();
        let [mut behind_forward, mut behind_backward] = [HiddenTraffic::default(); 2];
        for LayerOp { hides, op } in ops {
            let StepWork::Collective { group, .. } = &op.work else {
                parts.add(op.part.unwrap_or(TimePart::Data), self.seconds_of(op)?);
                continue;
            };
            let seconds = self.collective(step, op)?;
            let traffic = match hides {
                Hides::LastBackward => &mut behind_backward,
                Hides::FirstForward => &mut behind_forward,
                _ => {
                    let part = match step.groups[group].kind.part() {
                        TimePart::Sharded if *hides != Hides::Half => TimePart::Data,
                        part => part,
                    };
                    parts.add(part, seconds * self.exposed(*hides));
                    continue;
                }
            };
            traffic.seconds += seconds;
            traffic.nearby += self.nearby(step, op)?;
        }
        let constants = self.constants;
        let bare = |traffic: HiddenTraffic, pass: f64| {
            (traffic.seconds - constants.hiding * pass).max(constants.data_exposed * traffic.seconds)
        };
        let all = behind_forward.seconds + behind_backward.seconds;
        let nearby = behind_forward.nearby + behind_backward.nearby;
        let slowed = constants.contention * all.min(forward + backward).min(nearby);
        parts.add(TimePart::Data, bare(behind_forward, forward) + bare(behind_backward, backward) + slowed);
        Ok(parts)
    }
}
