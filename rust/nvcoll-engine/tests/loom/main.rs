//! The protocols under the model checker loom, each with the broken variant that loom must catch:
//! `RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=3 cargo test --profile gate -p nvcoll-engine --test loom`.
//!
//! A broken variant leaves out a step of the real words' protocol, or repeats the protocol on bare words with a weaker
//! ordering. loom treats sequentially consistent loads and stores as weaker than they are, so the protocols use fences.
#![cfg(loom)]

mod messages;
mod processes;
mod ranks;
mod workers;

use std::panic::{catch_unwind, AssertUnwindSafe};

use loom::cell::UnsafeCell;

/// Data that a protocol protects; loom reports unordered accesses.
#[derive(Debug)]
struct Data(UnsafeCell<u32>);

// SAFETY: loom checks every access.
unsafe impl Sync for Data {}
// SAFETY: as above.
unsafe impl Send for Data {}

impl Data {
    fn new() -> Self {
        Self(UnsafeCell::new(0))
    }

    fn write(&self, value: u32) {
        // SAFETY: loom checks that no other access is concurrent.
        self.0.with_mut(|data| unsafe { *data = value });
    }

    fn read(&self) -> u32 {
        // SAFETY: loom checks that no write is concurrent.
        self.0.with(|data| unsafe { *data })
    }
}

fn must_fail(model: impl Fn() + Sync + Send + 'static) {
    assert!(
        catch_unwind(AssertUnwindSafe(|| loom::model(model))).is_err(),
        "loom finds nothing wrong with a broken variant"
    );
}

#[test]
fn every_model_that_the_page_of_the_protocols_names_exists() {
    let page = include_str!("../../src/sync/README.md");
    let models = [include_str!("messages.rs"), include_str!("processes.rs"), include_str!("ranks.rs")].concat();
    let mut named = 0;
    for row in page.lines().filter(|row| row.starts_with('|') && row.ends_with("` |")) {
        for model in row.rsplit('|').nth(1).unwrap().split(", ").map(|model| model.trim().trim_matches('`')) {
            assert!(models.contains(&format!("fn {model}(")) || models.contains(&format!("fn {model}<")), "{model}");
            named += 1;
        }
    }
    assert!(named > 15, "only {named} models were found: the test reads the page wrongly");
}
