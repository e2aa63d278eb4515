//! How transfers that go on at once share links: max-min fair.
//!
//! ```text
//! repeat:  the link whose fair share (what is left of it / flows that are not settled) is least
//!          settles its flows at that share, and takes it from every other link that they cross
//! ```
//!
//! No flow could be faster without making one slower that is not faster than itself. Source: progressive filling, Bertsekas
//! and Gallager, Data Networks, 1992, section 6.5. Cost: rounds x links; a round settles at least one link. A link crossed
//! twice by a route is crossed by two flows' worth.

use crate::units::Rate;

/// Returns the rate of each flow; `routes` has the links that each crosses, `capacities` the rate of every link. A flow that
/// crosses no link gets `Rate(u64::MAX)`.
pub fn share(routes: &[&[usize]], capacities: &[Rate]) -> Vec<Rate> {
    let crossed = |route: &&[usize]| route.iter().map(|&link| (link, 1)).collect();
    share_among_many(&routes.iter().map(crossed).collect::<Vec<_>>(), capacities)
}

/// Returns the rate of each flow of several classes of equal flows: `classes` has the links that the flows of a class cross,
/// each with the number of these flows that cross it.
pub(crate) fn share_among_many(classes: &[Vec<(usize, u64)>], capacities: &[Rate]) -> Vec<Rate> {
    let mut left: Vec<f64> = capacities.iter().map(|rate| rate.0 as f64).collect();
    let mut crossings = vec![0u64; capacities.len()];
    let mut classes_of = vec![Vec::new(); capacities.len()];
    for (class, crossed) in classes.iter().enumerate() {
        for &(link, flows) in crossed {
            crossings[link] += flows;
            classes_of[link].push(class);
        }
    }
    let mut rates = vec![None; classes.len()];
    while let Some((link, fair)) = narrowest(&left, &crossings) {
        for &class in &classes_of[link] {
            if rates[class].is_some() {
                continue;
            }
            rates[class] = Some(Rate(fair as u64));
            for &(crossed, flows) in &classes[class] {
                left[crossed] = (left[crossed] - fair * flows as f64).max(0.0);
                crossings[crossed] -= flows;
            }
        }
    }
    rates.into_iter().map(|rate| rate.unwrap_or(Rate(u64::MAX))).collect()
}

/// Returns the first link of the least fair share among those with flows that are not settled.
fn narrowest(left: &[f64], crossings: &[u64]) -> Option<(usize, f64)> {
    let share = |link: usize| left[link] / crossings[link] as f64;
    let busy = (0..left.len()).filter(|&link| crossings[link] > 0);
    busy.map(|link| (link, share(link))).reduce(|best, next| if next.1 < best.1 { next } else { best })
}

#[cfg(test)]
mod tests {
    use super::share;
    use crate::units::Rate;

    #[test]
    fn who_is_held_up_elsewhere_leaves_the_rest_to_the_others() {
        // Link 0 of 10 carries all three; link 1 of 2 the first only.
        let rates = share(&[&[0, 1], &[0], &[0]], &[Rate(10), Rate(2)]);
        assert_eq!(rates, [Rate(2), Rate(4), Rate(4)]);
    }

    #[test]
    fn a_link_crossed_twice_is_shared_by_both_crossings() {
        assert_eq!(share(&[&[0, 0]], &[Rate(10)]), [Rate(5)]);
        assert_eq!(share(&[&[]], &[]), [Rate(u64::MAX)]);
    }
}
