//! Connected components of a graph, by union-find with path halving (Tarjan 1975). Cost: near linear in the edges.

/// Returns the connected components of the nodes `0..len`, each sorted, ordered by their first nodes.
pub fn connected_components(len: u32, edges: impl IntoIterator<Item = (u32, u32)>) -> Vec<Vec<u32>> {
    let mut parent: Vec<u32> = (0..len).collect();
    for (a, b) in edges {
        let (a, b) = (first_of(&mut parent, a), first_of(&mut parent, b));
        parent[a.max(b) as usize] = a.min(b);
    }
    let mut components: Vec<Vec<u32>> = Vec::new();
    let mut number_of = vec![0; len as usize];
    for one in 0..len {
        let first = first_of(&mut parent, one);
        if first == one {
            number_of[one as usize] = components.len();
            components.push(Vec::new());
        }
        components[number_of[first as usize]].push(one);
    }
    components
}

/// Returns the first known node of the component that contains `one`, and halves the path to it.
fn first_of(parent: &mut [u32], mut one: u32) -> u32 {
    while parent[one as usize] != one {
        parent[one as usize] = parent[parent[one as usize] as usize];
        one = parent[one as usize];
    }
    one
}

#[cfg(test)]
mod tests {
    #[test]
    fn nodes_that_edges_connect_are_one_component() {
        let components = super::connected_components(7, [(5, 3), (0, 2), (3, 0), (6, 6)]);
        assert_eq!(components, [vec![0, 2, 3, 5], vec![1], vec![4], vec![6]]);
    }
}
