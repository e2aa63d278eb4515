//! The number of elements of each part.
//!
//! ```text
//! Even(10) of 4 ranks     all_reduce 10            reduce_scatter 3 3 2 2        all_to_all 3 3 2 2  3 3 2 2  3 3 2 2  3 3 2 2
//! Table                   one number for each part, 0 allowed, the same table on every rank
//! ```

use std::sync::Arc;

use crate::collective::{Collective, Parts, Roles};

/// The number of elements of each part.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Counts {
    /// A total number of elements. If there are several parts, they divide it as evenly as possible, the longer parts first, as
    /// numpy's `array_split` does.
    Even(usize),
    /// One number for each part.
    Table(Arc<[usize]>),
}

impl Counts {
    /// Returns the shortest form of one number for each part: [`Counts::Even`] if the parts are even.
    ///
    /// # Panics
    /// If the table is not one number for each part of the contract.
    pub fn of_table(collective: &Collective, roles: Roles, table: Vec<usize>) -> Self {
        let senders = table.len().div_ceil(roles.world_size as usize).max(1);
        let even = Counts::Even(table.iter().sum::<usize>() / senders);
        match even.of_parts(collective, roles) == table {
            true => even,
            false => Counts::Table(table.into()),
        }
    }

    /// Returns the elements of every part.
    ///
    /// # Panics
    /// If the table is not one number for each part of the contract.
    pub fn of_parts(&self, collective: &Collective, roles: Roles) -> Vec<usize> {
        let parts = collective.parts(roles) as usize;
        match self {
            Counts::Table(table) => {
                assert_eq!(table.len(), parts, "a table has a number for each part");
                table.to_vec()
            }
            Counts::Even(total) => {
                let among = parts.clamp(1, roles.world_size as usize);
                (0..parts).map(|part| total / among + usize::from(part % among < total % among)).collect()
            }
        }
    }
}

/// Returns the number of elements of a buffer that holds these parts.
pub fn held_count(counts: &[usize], held: Parts) -> usize {
    held.iter().map(|part| counts[part as usize]).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::{ALL_REDUCE, ALL_TO_ALL, BARRIER, REDUCE_SCATTER};

    #[test]
    fn an_even_count_is_cut_as_array_split_does_for_every_sender() {
        let of = |collective, n| Counts::Even(10).of_parts(collective, Roles::of(n));
        assert_eq!(of(&ALL_REDUCE, 4), [10]);
        assert_eq!(of(&REDUCE_SCATTER, 4), [3, 3, 2, 2]);
        assert_eq!(of(&ALL_TO_ALL, 3), [4, 3, 3, 4, 3, 3, 4, 3, 3]);
        assert_eq!(of(&BARRIER, 4), []);
        for (collective, n) in [(&ALL_REDUCE, 4), (&REDUCE_SCATTER, 4), (&ALL_TO_ALL, 3), (&ALL_TO_ALL, 1)] {
            let counts = |table| Counts::of_table(collective, Roles::of(n), table);
            assert_eq!(counts(of(collective, n)), Counts::Even(10), "{collective:?}");
        }
        let uneven = Counts::of_table(&REDUCE_SCATTER, Roles::of(4), vec![2, 2, 3, 3]);
        assert_eq!(uneven, Counts::Table([2, 2, 3, 3].into()));
        assert_eq!(held_count(&of(&ALL_TO_ALL, 3), ALL_TO_ALL.output(Roles::of(3), 0)), 12, "three times the longest");
    }
}
