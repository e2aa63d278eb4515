//! What a record has no room for: the name of an algorithm with parameters or of the user, and the table of counts.
//!
//! A rank posts the description of such a call beside its record. Peers read it if calls differ, and programs outside. A call of a
//! registered algorithm with one count has none: its record says all.

use nvcoll_core::algorithm;
use nvcoll_core::counts::Counts;

use super::{Call, COUNTS};
use crate::sync::posted::{text_of, write_text};

/// Room for the name of an algorithm, 96 bytes, with the hash of its steps.
const NAME_WORDS: usize = 12;

/// How many words a description has: the fingerprint of the call, the number of counts, the counts, the name.
pub(crate) const DESCRIPTION_WORDS: usize = 2 + COUNTS + NAME_WORDS;

impl Call {
    /// Returns what a record of the call does not say; `None` if it says all.
    pub(crate) fn description(&self, fingerprint: u64) -> Option<[u64; DESCRIPTION_WORDS]> {
        // A record has a number for what comes before the parameters.
        let is_registered = |name: &str| algorithm::of(self.collective).any(|a| a.name == name && !name.contains('('));
        if matches!(self.counts, Counts::Even(_)) && (self.algorithm == "auto" || is_registered(&self.algorithm)) {
            return None;
        }
        let mut words = [0; DESCRIPTION_WORDS];
        words[0] = fingerprint;
        let (counts, name) = words[2..].split_at_mut(COUNTS);
        write_text(name, &self.algorithm);
        if let Counts::Table(table) = &self.counts {
            for (at, count) in table.iter().enumerate() {
                counts[at.min(COUNTS - 1)] += *count as u64;
            }
            words[1] = table.len() as u64;
        }
        Some(words)
    }

    /// Returns the call of a record with what its description says.
    pub(crate) fn described(self, words: &[u64; DESCRIPTION_WORDS]) -> Self {
        let (counts, name) = words[2..].split_at(COUNTS);
        let table = counts.iter().take(words[1] as usize).map(|&count| count as usize).collect();
        let counts = if words[1] == 0 { self.counts } else { Counts::Table(table) };
        Self { counts, algorithm: text_of(name), ..self }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use nvcoll_core::collective::{ALL_GATHER, ALL_REDUCE};

    use super::*;

    fn call(counts: Counts, algorithm: &str) -> Call {
        Call { counts, algorithm: algorithm.into(), ..Call::without_data(&ALL_GATHER) }
    }

    fn seen_by_a_peer(call: &Call) -> Call {
        let [fingerprint, small, count] = call.fingerprint();
        let peer = Call::from_record(&[fingerprint, small, count, 0, 0, 0, 0, 1]);
        match call.description(fingerprint) {
            Some(words) => peer.described(&words),
            None => peer,
        }
    }

    #[test]
    fn a_peer_reads_algorithms_with_parameters_and_tables_as_they_were_called() {
        let table = |n: usize| Counts::Table((1..=n).collect());
        for call in [
            call(Counts::Even(9), "auto"),
            call(Counts::Even(9), "two_level(outer=halving_doubling)"),
            call(table(5), "mine#77"),
        ] {
            assert_eq!(seen_by_a_peer(&call), call);
        }
        for (algorithm, is_said) in [("ring", true), ("auto", true), ("two_level(per_node=2)", false)] {
            let reduce = Call { collective: &ALL_REDUCE, ..call(Counts::Even(1), algorithm) };
            assert_eq!(reduce.description(1).is_none(), is_said, "{algorithm}");
            assert_eq!(seen_by_a_peer(&reduce), reduce);
        }
    }

    #[test]
    fn scribbled_tables_are_told_in_words() {
        let mut words = [u64::MAX; DESCRIPTION_WORDS];
        words[1] = 2;
        let text = call(Counts::Even(1), "ring").described(&words).to_string();
        assert!(text.starts_with(&format!("all_gather of {} ", usize::MAX)), "{text}");
    }

    #[test]
    fn a_long_table_keeps_its_beginning_and_its_sum() {
        let long = call(Counts::Table((0..100).collect()), "auto");
        let seen = seen_by_a_peer(&long);
        assert_eq!(seen.to_string(), long.to_string());
        let mut other = long.clone();
        other.counts = Counts::Table((0..100).map(|at| if at < 60 { at } else { 159 - at }).collect());
        assert_eq!(other.difference(&seen), ": their tables differ after part 46");
        other.counts = Counts::Table((0..100).rev().collect());
        assert_eq!(other.difference(&seen), ": their tables differ first in part 0, 99 and 0 elements");
    }
}
