//! The transitive reduction of a program: drops the needs of a step that its other needs imply, before queues are assigned.
//!
//! ```text
//! copy needs  the fold it reads from, and that cell's old readers and writer       fold ◀─ fold ◀─ … ◀─ copy
//!             … which the fold it reads from has needed long before:  drop them      ▲───────────────┘
//! ```
//!
//! A **strand** is a connected component of the graph of needs; in a ring, the steps of one chunk. In each strand, every step gets
//! one bit for each earlier step of the strand that happens before it. Needs are visited from the latest to the earliest, because
//! only a later need can imply an earlier need. A strand longer than [`LONGEST`] is divided into stretches of that length; the search
//! in [`super::waits`] handles needs between stretches.
//!
//! Cost: one word per need for every 64 steps of the strand. Source: ours.

use crate::connected_components::connected_components;
use crate::interrupt::{Interrupt, Interrupted};

/// The largest number of steps in a stretch. Chosen: their bits take 128 MiB; a strand of a ring of 1024 ranks has 2046 steps.
const LONGEST: usize = 1 << 15;

/// Drops implied needs. The needs of a step are a sorted list of earlier steps.
pub(super) fn reduce(needs: &mut [Vec<u32>], interrupt: &Interrupt) -> Result<(), Interrupted> {
    let mut local = vec![0; needs.len()];
    let mut bits = Vec::new();
    let ties: Vec<_> =
        needs.iter().zip(0..).flat_map(|(earlier, step)| earlier.iter().map(move |&need| (need, step))).collect();
    for strand in connected_components(needs.len() as u32, ties) {
        for stretch in strand.chunks(LONGEST) {
            interrupt.check(stretch.len())?;
            reduce_stretch(needs, stretch, &mut local, &mut bits);
        }
    }
    Ok(())
}

/// Reduces the needs of a stretch of steps among each other; the stretch is in program order.
fn reduce_stretch(needs: &mut [Vec<u32>], stretch: &[u32], local: &mut [u32], bits: &mut Vec<u64>) {
    if stretch.iter().all(|&step| needs[step as usize].len() < 2) {
        return;
    }
    let width = stretch.len().div_ceil(64);
    bits.clear();
    bits.resize(stretch.len() * width, 0);
    for (nth, &step) in stretch.iter().enumerate() {
        local[step as usize] = nth as u32;
        let (before, past) = bits.split_at_mut(nth * width);
        let past = &mut past[..width];
        let mut kept = std::mem::take(&mut needs[step as usize]);
        kept.reverse();
        kept.retain(|&need| {
            let at = local[need as usize] as usize;
            if need < stretch[0] {
                return true;
            }
            let is_implied = past[at / 64] >> (at % 64) & 1 == 1;
            if !is_implied {
                let known = at / 64 + 1;
                past[..known].iter_mut().zip(&before[at * width..]).for_each(|(mine, &theirs)| *mine |= theirs);
                past[at / 64] |= 1 << (at % 64);
            }
            !is_implied
        });
        kept.reverse();
        needs[step as usize] = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns, for each step, all its direct and indirect needs.
    fn closure(needs: &[Vec<u32>]) -> Vec<Vec<bool>> {
        let mut closure: Vec<Vec<bool>> = Vec::new();
        for earlier in needs {
            let mut row = vec![false; needs.len()];
            for &need in earlier {
                row[need as usize] = true;
                row.iter_mut().zip(&closure[need as usize]).for_each(|(bit, &is_past)| *bit |= is_past);
            }
            closure.push(row);
        }
        closure
    }

    fn programs() -> impl Strategy<Value = Vec<Vec<u32>>> {
        proptest::collection::vec(proptest::collection::btree_set(0u32..40, 0..4), 0..40).prop_map(|program| {
            let earlier = |(step, needs): (usize, std::collections::BTreeSet<u32>)| {
                needs.into_iter().filter(|&need| (need as usize) < step).collect()
            };
            program.into_iter().enumerate().map(earlier).collect()
        })
    }

    proptest! {
        #[test]
        fn what_is_left_implies_everything_and_nothing_of_it_is_implied(program in programs()) {
            let mut reduced = program.clone();
            reduce(&mut reduced, &Interrupt::never()).unwrap();
            let closure_of_all = closure(&program);
            prop_assert_eq!(&closure(&reduced), &closure_of_all);
            for left in reduced {
                let is_implied = |need: u32| left.iter().any(|&other| closure_of_all[other as usize][need as usize]);
                prop_assert!(!left.iter().any(|&need| is_implied(need)));
            }
        }
    }
}
