//! Max-min fair shares of resources among tasks that run at the same time.
//!
//! A task at full speed needs a part of each resource, at most 1. All speeds rise together; when a resource is full, the tasks that need
//! it keep their speed, and the speeds of the others rise on, at most to 1. Source: progressive filling (Bertsekas and Gallager,
//! "Data Networks", 1992, section 6.5.2). Cost: tasks x resources for each resource that fills.

/// A need of a task at full speed: the resource, and the part of it.
pub(super) type Need = (usize, f64);

/// The part below which a need, or the rest of a resource, counts as 0. Chosen.
const LEAST: f64 = 1e-6;

/// Returns the speed of each task, from 0 to 1, for `resources` resources.
pub(super) fn fair(needs: &[&[Need]], resources: usize) -> Vec<f64> {
    let mut speeds = vec![1.0; needs.len()];
    let mut asked = vec![0.0; resources];
    let counts = |needs: &[Need]| needs.iter().copied().filter(|(_, part)| *part > LEAST).collect::<Vec<_>>();
    needs.iter().for_each(|one| counts(one).into_iter().for_each(|(of, part)| asked[of] += part));
    if asked.iter().all(|&asked| asked <= 1.0 + LEAST) {
        return speeds;
    }
    let mut left = vec![1.0; resources];
    let mut rising: Vec<usize> = (0..needs.len()).collect();
    let mut level = 0.0;
    while !rising.is_empty() {
        let limit = |(&left, &asked): (&f64, &f64)| if asked > LEAST { left / asked } else { f64::INFINITY };
        let more = left.iter().zip(&asked).map(limit).fold(1.0 - level, f64::min).max(0.0);
        level += more;
        left.iter_mut().zip(&asked).for_each(|(left, asked)| *left -= more * asked);
        let is_held = |task: usize| {
            level >= 1.0 - LEAST || needs[task].iter().any(|&(of, part)| part > LEAST && left[of] <= LEAST)
        };
        let (held, on): (Vec<usize>, Vec<usize>) = rising.into_iter().partition(|&task| is_held(task));
        for task in held {
            speeds[task] = level;
            counts(needs[task]).into_iter().for_each(|(of, part)| asked[of] -= part);
        }
        rising = on;
    }
    speeds
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn equal_needs_are_halved_and_other_resources_are_not_touched() {
        assert_eq!(fair(&[&[(0, 1.0)], &[(0, 1.0)], &[(1, 1.0)]], 2), [0.5, 0.5, 1.0]);
    }

    #[test]
    fn what_one_task_cannot_use_goes_to_the_others() {
        // The first is held by resource 0 at 1/2, so the third has 3/4 of resource 1: 1/2 x 1/2 + 3/4 = 1.
        let speeds = fair(&[&[(0, 1.0), (1, 0.5)], &[(0, 1.0)], &[(1, 1.0)]], 2);
        assert_eq!(speeds, [0.5, 0.5, 0.75]);
        assert_eq!(fair(&[&[(0, 0.5)], &[(0, 0.5)], &[]], 1), [1.0, 1.0, 1.0]);
    }

    proptest! {
        #[test]
        fn no_resource_is_overfull_and_nobody_can_rise_alone(
            needs in prop::collection::vec(prop::collection::vec((0..4_usize, 0.01..1.0_f64), 0..3), 1..6)
        ) {
            let needs: Vec<Vec<Need>> = needs.into_iter().map(|one| {
                let mut parts = [0.0_f64; 4];
                one.into_iter().for_each(|(of, part)| parts[of] = part);
                parts.into_iter().enumerate().filter(|(_, part)| *part > 0.0).collect()
            }).collect();
            let borrowed: Vec<&[Need]> = needs.iter().map(Vec::as_slice).collect();
            let speeds = fair(&borrowed, 4);
            let mut used = [0.0; 4];
            for (speed, needs) in speeds.iter().zip(&needs) {
                prop_assert!(*speed > 0.0 && *speed <= 1.0);
                needs.iter().for_each(|&(of, part)| used[of] += speed * part);
            }
            prop_assert!(used.iter().all(|&used| used <= 1.0 + 1e-4), "{used:?}");
            for (speed, needs) in speeds.iter().zip(&needs) {
                prop_assert!(*speed > 1.0 - 1e-4 || needs.iter().any(|&(of, _)| used[of] > 1.0 - 1e-4), "{speeds:?}");
            }
        }
    }
}
