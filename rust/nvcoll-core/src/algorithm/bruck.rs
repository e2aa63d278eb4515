//! Bruck's all_gather: in every round each rank fetches as much as it has from a rank as far away as it has parts.
//!
//! ```text
//! n = 6     rank r has     fetches                      from rank
//! d = 1     r              r+1                          r+1
//! d = 2     r, r+1         r+2, r+3                     r+2
//! d = 4     r .. r+3       r+4, r+5                     r+4            all cyclic; the last round fetches what is missing
//! ```
//!
//! Bruck's ranks keep their parts in rotated order and turn them round at the end. Here a part has its place in the output
//! from the start, and a range that passes the last part is two steps. Steps a rank: log2 n rounded up, and one for each round
//! that passes the end. Bytes per rank: 2 N, in place 2 N (n-1)/n. Source: Bruck, Ho, Kipnis, Upfal and Weathersby,
//! "Efficient algorithms for all-to-all communications in multiport message-passing systems", 1997.

use super::{place_own_parts, Algorithm, Order};
use crate::collective::ALL_GATHER as COLLECTIVE;

/// The registry line.
pub(super) static ALL_GATHER: Algorithm = Algorithm {
    name: "bruck",
    collective: &COLLECTIVE,
    order: Order::None,
    summary: "each rank fetches as many parts as it has from a rank as far away, any number of ranks",
    source: "Bruck et al. 1997",
    build: |b| {
        let n = b.world_size();
        place_own_parts(b);
        let mut distance = 1;
        while distance < n {
            for r in 0..n {
                let from = (r + distance) % n;
                let end = from + distance.min(n - distance);
                for parts in [from..end.min(n), 0..end.saturating_sub(n)].into_iter().filter(|parts| !parts.is_empty())
                {
                    b.copy(&b.output(from, parts.clone()), &[b.output(r, parts)]);
                }
            }
            distance *= 2;
        }
    },
};
