//! Groups of things that pairs tie together: near linear in the pairs (Tarjan 1975, with path halving).

/// Returns the groups of `0..len`, each in order, and ordered by their first members.
pub fn connected_components(len: u32, ties: impl IntoIterator<Item = (u32, u32)>) -> Vec<Vec<u32>> {
    let mut tied: Vec<u32> = (0..len).collect();
    for (a, b) in ties {
        let (a, b) = (first_of(&mut tied, a), first_of(&mut tied, b));
        tied[a.max(b) as usize] = a.min(b);
    }
    let mut groups: Vec<Vec<u32>> = Vec::new();
    let mut number_of = vec![0; len as usize];
    for one in 0..len {
        let first = first_of(&mut tied, one);
        if first == one {
            number_of[one as usize] = groups.len();
            groups.push(Vec::new());
        }
        groups[number_of[first as usize]].push(one);
    }
    groups
}

/// Finds the first member of a group, as far as it is known, and halves the way there.
fn first_of(tied: &mut [u32], mut one: u32) -> u32 {
    while tied[one as usize] != one {
        tied[one as usize] = tied[tied[one as usize] as usize];
        one = tied[one as usize];
    }
    one
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_pairs_tie_together_is_a_group() {
        let groups = super::connected_components(7, [(5, 3), (0, 2), (3, 0), (6, 6)]);
        assert_eq!(groups, [vec![0, 2, 3, 5], vec![1], vec![4], vec![6]]);
    }
}
