//! The order in which the stages of a pipeline work on micro-batches, and when they end: virtual time.
