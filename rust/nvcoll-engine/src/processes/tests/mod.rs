//! Tests of ranks that are processes.

mod scribbled_stream;
mod split;
