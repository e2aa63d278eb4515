//! Tests of the ranks together.

mod call_counts;
