//! Placement of helpers: each has a processor of its own, which is not the caller's.
//!
//! ```text
//! processor   0        1         2               caller found on 1      0         1        2
//!             caller   helper 1  helper 2        ────────────────▶      helper 1  caller   helper 2
//! ```
//!
//! The system often places a lingering helper on the caller's processor while another processor is idle, and leaves it there, because
//! no processor looks for work between two short calls. Measured on two processors: an unplaced helper took part in 0 of 20 calls of 50 us, a placed one
//! in all. A helper moves only when the caller is found on its processor, and takes the processor that the caller left. With more
//! workers than processors nobody is placed.

use std::thread::JoinHandle;

use crate::system::processors;

/// The processors of the caller and of its helpers; empty where nobody is placed.
#[derive(Debug, Default)]
pub(super) struct HelperPlacement {
    caller: Option<usize>,
    helpers: Vec<usize>,
}

impl HelperPlacement {
    /// Places the helpers on the processors that the calling thread may use, except its own.
    pub(super) fn take(helpers: &[JoinHandle<()>]) -> Self {
        let order = processors::allowed();
        if order.len() <= helpers.len() {
            return Self::default();
        }
        helpers.iter().zip(&order[1..]).for_each(|(helper, &seat)| processors::confine_thread(helper, &[seat]));
        Self { caller: Some(order[0]), helpers: order[1..=helpers.len()].to_vec() }
    }

    /// Moves the helper on whose processor the calling thread is now, if there is one.
    pub(super) fn give_way(&mut self, helpers: &[JoinHandle<()>]) {
        let (Some(left), here) = (self.caller, processors::current()) else { return };
        if here == left {
            return;
        }
        if let Some(helper) = self.helpers.iter().position(|&seat| seat == here) {
            self.helpers[helper] = left;
            processors::confine_thread(&helpers[helper], &[left]);
        }
        self.caller = Some(here);
    }
}
