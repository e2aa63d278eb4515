//! Connected components of a schedule: its independent parts.
//!
//! Two steps that touch the same chunk of the same buffer belong to one component, directly or through other steps. A ring of n ranks
//! has n components, one per chunk; nvswitch has n too, each a single step. Different components share no byte, so any worker may run
//! any of them at any time. Within a component, program order respects all dependencies. Cost: near linear in views.

use std::collections::HashMap;

use nvcoll_core::connected_components;
use nvcoll_core::schedule::{Buffer, Schedule};

/// Returns the steps of each component in program order; components are ordered by their first step.
pub(crate) fn connected_components(schedule: &Schedule) -> Vec<Vec<u32>> {
    let mut toucher: HashMap<(u32, Buffer, u32), u32> = HashMap::new();
    let mut edges = Vec::new();
    for (step, number) in schedule.steps.iter().zip(0..) {
        for view in step.views() {
            // In place they are the same memory; else they are tied needlessly, by steps that mostly are tied anyhow.
            let buffer = if view.buffer.is_user() { Buffer::Input } else { view.buffer };
            for chunk in view.chunks.clone() {
                edges.extend(toucher.insert((view.rank, buffer, chunk), number).map(|earlier| (earlier, number)));
            }
        }
    }
    connected_components::connected_components(schedule.steps.len() as u32, edges)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nvcoll_core::algorithm::ALGORITHMS;
    use nvcoll_core::schedule::Path;

    #[test]
    fn components_are_all_steps_once_and_share_no_chunk() {
        for algorithm in ALGORITHMS {
            let schedules = [1, 2, 3, 8].into_iter().flat_map(|n| algorithm.schedules(n)).map(Result::unwrap);
            for schedule in schedules.filter(|schedule| schedule.path == Path::Mapped) {
                let components = connected_components(&schedule);
                let mut steps = components.concat();
                steps.sort_unstable();
                assert_eq!(steps, (0..schedule.steps.len() as u32).collect::<Vec<_>>());
                let mut seen = std::collections::HashMap::new();
                for (number, component) in components.iter().enumerate() {
                    assert!(component.is_sorted());
                    for view in component.iter().flat_map(|&step| schedule.steps[step as usize].views()) {
                        let is_user = matches!(view.buffer, Buffer::Input | Buffer::Output);
                        for chunk in view.chunks.clone() {
                            let cell = (view.rank, is_user, if is_user { Buffer::Input } else { view.buffer }, chunk);
                            assert_eq!(*seen.entry(cell).or_insert(number), number, "{}", schedule.title());
                        }
                    }
                }
            }
        }
    }
}
