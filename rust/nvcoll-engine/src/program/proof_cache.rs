//! The cache of proofs of a process. It keeps the proofs that a node uses, and the most recently used of the others.
//!
//! A proof takes long to make, and the nodes of a process share it. While a program holds a proof, keeping it costs nothing. Proofs that
//! no program holds stay for the next node, up to [`MOST_UNUSED_BYTES`] together; the least recently used one goes first.
//!
//! Cost: one look-up to find a proof. Keeping one scans the cache, which is little beside the proof.

use std::collections::HashMap;
use std::sync::Arc;

use nvcoll_core::collective::Roles;
use nvcoll_core::schedule::{Aliasing, Path, Schedule};
use nvcoll_core::verify::Verified;

/// The limit on the bytes of schedules that no program holds. Chosen: some hundreds of small worlds, or the ring of
/// 256 ranks.
const MOST_UNUSED_BYTES: usize = 64 << 20;

/// Identifies a proof: collective, algorithm, roles, path, aliasing, and whether it has early steps.
pub(crate) type ProofKey = (&'static str, String, Roles, Path, Aliasing, bool);

/// A kept proof.
#[derive(Debug)]
struct KeptProof {
    verified: Verified,
    bytes: usize,
    /// The number of the request that used it last.
    asked: u64,
}

impl KeptProof {
    fn is_unused(&self) -> bool {
        Arc::strong_count(self.verified.schedule()) == 1
    }
}

/// Proofs, and the request at which each was used last.
#[derive(Debug)]
pub(crate) struct ProofCache {
    kept: HashMap<ProofKey, KeptProof>,
    requests: u64,
    most_unused_bytes: usize,
}

impl Default for ProofCache {
    fn default() -> Self {
        Self { kept: HashMap::new(), requests: 0, most_unused_bytes: MOST_UNUSED_BYTES }
    }
}

impl ProofCache {
    /// Returns a kept proof.
    pub(crate) fn find(&mut self, key: &ProofKey) -> Option<Verified> {
        self.requests += 1;
        let kept = self.kept.get_mut(key)?;
        kept.asked = self.requests;
        Some(kept.verified.clone())
    }

    /// Keeps a proof, and drops unused ones beyond the limit.
    pub(crate) fn keep(&mut self, key: ProofKey, verified: Verified) {
        let bytes = bytes_of(verified.schedule());
        self.kept.insert(key, KeptProof { verified, bytes, asked: self.requests });
        self.trim();
    }

    /// Drops the least recently used proofs that no program holds, until the others fit.
    pub(crate) fn trim(&mut self) {
        let unused = self.kept.iter().filter(|(_, proof)| proof.is_unused());
        let mut unused: Vec<_> = unused.map(|(key, proof)| (proof.asked, proof.bytes, key.clone())).collect();
        let mut bytes: usize = unused.iter().map(|(_, bytes, _)| bytes).sum();
        unused.sort_unstable_by_key(|(asked, ..)| *asked);
        for (_, of_proof, key) in unused {
            if bytes <= self.most_unused_bytes {
                break;
            }
            bytes -= of_proof;
            self.kept.remove(&key);
        }
    }
}

/// Returns the approximate bytes of a schedule.
fn bytes_of(schedule: &Schedule) -> usize {
    let steps = schedule.steps.iter().map(|step| {
        size_of_val(step) + size_of_val(&step.src[..]) + size_of_val(&step.dst[..]) + size_of_val(&step.after[..])
    });
    steps.sum::<usize>() + schedule.leave.iter().map(|after| size_of_val(&after[..])).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use nvcoll_core::algorithm::build;
    use nvcoll_core::collective::ALL_REDUCE;
    use nvcoll_core::verify::verify;

    use super::*;

    fn key(root: u32) -> ProofKey {
        (ALL_REDUCE.name, "ring".into(), Roles { world_size: 4, root }, Path::Mapped, Aliasing::InPlace, false)
    }

    fn proof() -> Verified {
        verify(build(&ALL_REDUCE, "ring", Roles::of(4), Aliasing::InPlace).unwrap()).unwrap()
    }

    #[test]
    fn unused_proofs_fit_their_bytes_and_the_one_asked_for_longest_ago_goes_first() {
        let bytes = bytes_of(proof().schedule());
        assert!(bytes > 4 * 6 * size_of::<usize>(), "four ranks take six steps each");
        let mut cache = ProofCache { most_unused_bytes: 3 * bytes, ..ProofCache::default() };
        for root in 0..100 {
            assert!(cache.find(&key(root)).is_none());
            cache.keep(key(root), proof());
            cache.find(&key(0));
        }
        let mut roots: Vec<u32> = cache.kept.keys().map(|key| key.2.root).collect();
        roots.sort_unstable();
        assert_eq!(roots, [0, 98, 99], "the first was asked for again and again");
    }

    #[test]
    fn a_proof_that_somebody_uses_is_found_until_nobody_does() {
        let mut cache = ProofCache { most_unused_bytes: 0, ..ProofCache::default() };
        let used = proof();
        cache.keep(key(0), used.clone());
        cache.keep(key(1), proof());
        assert!(cache.find(&key(0)).is_some() && cache.find(&key(1)).is_none());
        drop(used);
        cache.trim();
        assert!(cache.kept.is_empty());
    }
}
