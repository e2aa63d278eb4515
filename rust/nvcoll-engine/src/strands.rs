//! Strands: the independent parts of a schedule.
//!
//! Two steps that touch one chunk of one buffer belong to the same strand, and so does what they are tied to through
//! others. A ring of n ranks has n strands, one per chunk; so has nvswitch, each a single step. Different strands share no
//! byte, so any worker may run any of them at any time; within a strand, program order is an order in which its
//! dependencies hold. Cost: near linear in views.

use nvcoll_core::schedule::{Buffer, Schedule};

/// Returns the steps of each strand, in program order; strands begin in program order too.
pub(crate) fn strands(schedule: &Schedule) -> Vec<Vec<u32>> {
    let (chunks, layers) = (schedule.chunks() as usize, 1 + usize::from(schedule.scratch_layers()));
    let mut toucher: Vec<Option<u32>> = vec![None; schedule.world_size as usize * layers * chunks];
    let mut tied: Vec<u32> = (0..schedule.steps.len() as u32).collect();
    for (step, number) in schedule.steps.iter().zip(0..) {
        for view in step.views() {
            let layer = match view.buffer {
                // In place they are the same memory; else they are tied needlessly, by steps that mostly are tied anyhow.
                Buffer::Input | Buffer::Output => 0,
                Buffer::Scratch(layer) => 1 + usize::from(layer),
                Buffer::Staging(_) => unreachable!("schedules with staging are not shared out by strands"),
            };
            let row = (view.rank as usize * layers + layer) * chunks;
            for chunk in view.chunks.clone() {
                if let Some(earlier) = toucher[row + chunk as usize].replace(number) {
                    tie(&mut tied, earlier, number);
                }
            }
        }
    }
    let mut strand_of: Vec<Option<usize>> = vec![None; tied.len()];
    let mut strands: Vec<Vec<u32>> = Vec::new();
    for step in 0..tied.len() as u32 {
        let first = first_of(&mut tied, step) as usize;
        let strand = *strand_of[first].get_or_insert_with(|| {
            strands.push(Vec::new());
            strands.len() - 1
        });
        strands[strand].push(step);
    }
    strands
}

/// Returns the first step of the strand of `step`, as far as it is known, and shortens the way to it.
fn first_of(tied: &mut [u32], mut step: u32) -> u32 {
    while tied[step as usize] != step {
        tied[step as usize] = tied[tied[step as usize] as usize];
        step = tied[step as usize];
    }
    step
}

fn tie(tied: &mut [u32], a: u32, b: u32) {
    let (a, b) = (first_of(tied, a), first_of(tied, b));
    tied[a.max(b) as usize] = a.min(b);
}

#[cfg(test)]
mod tests {
    use super::*;
    use nvcoll_core::algorithm::{build, ALGORITHMS};
    use nvcoll_core::schedule::Aliasing;

    #[test]
    fn strands_are_all_steps_once_and_share_no_chunk() {
        for algorithm in ALGORITHMS {
            for n in [1, 2, 3, 8] {
                let schedule = build(algorithm.collective, algorithm.name, n, Aliasing::InPlace).unwrap();
                let strands = strands(&schedule);
                let mut steps = strands.concat();
                steps.sort_unstable();
                assert_eq!(steps, (0..schedule.steps.len() as u32).collect::<Vec<_>>());
                let mut seen = std::collections::HashMap::new();
                for (number, strand) in strands.iter().enumerate() {
                    assert!(strand.is_sorted());
                    for view in strand.iter().flat_map(|&step| schedule.steps[step as usize].views()) {
                        let is_user = matches!(view.buffer, Buffer::Input | Buffer::Output);
                        for chunk in view.chunks.clone() {
                            let cell = (view.rank, is_user, if is_user { Buffer::Input } else { view.buffer }, chunk);
                            assert_eq!(*seen.entry(cell).or_insert(number), number, "{} of {n}", algorithm.name);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_ring_has_a_strand_per_chunk_and_nvswitch_a_step_per_strand() {
        let all_reduce = &nvcoll_core::collective::ALL_REDUCE;
        let of = |name| strands(&build(all_reduce, name, 8, Aliasing::InPlace).unwrap());
        assert_eq!((of("ring").len(), of("nvswitch").len()), (8, 8));
        assert!(of("nvswitch").iter().all(|strand| strand.len() == 1));
    }
}
