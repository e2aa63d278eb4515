//! Tables that are looked into for every step: a hash of a few multiplications, the same in every run. Keys are numbers
//! of ranks and chunks, which nobody chooses to collide.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// A table with that hash; its order is never looked at.
pub(super) type FastMap<K, V> = HashMap<K, V, BuildHasherDefault<MultiplicativeHasher>>;

/// Makes a table.
pub(super) fn fast_map<K: Hash + Eq, V, const N: usize>(known: [(K, V); N]) -> FastMap<K, V> {
    known.into_iter().collect()
}

/// Multiplicative hashing (Knuth, volume 3, 6.4), a number at a time; the halves change places between them, as a
/// product's low bits know nothing of a factor's high ones.
#[derive(Default)]
pub(super) struct MultiplicativeHasher(u64);

impl Hasher for MultiplicativeHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for word in bytes.chunks(8) {
            let mut padded = [0; 8];
            padded[..word.len()].copy_from_slice(word);
            self.write_u64(u64::from_le_bytes(padded));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }
}
