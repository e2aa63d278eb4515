//! Sync.
