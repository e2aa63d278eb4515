//! Running by rank: a worker runs the queues of its ranks and waits on progress words.
//!
//! ```text
//! enter       activity, record, stamp                                   (the stamp rule first)
//! loop        for every queue of my ranks: while its next step need not wait: run it, publish, ring the ranks that wait for it
//!             nothing moved?  pause, yield, at last sleep on the doorbell
//! leave       when all queues are done and the waits of `leave` are over
//! ```
//!
//! Ranks that call for themselves always run so, with one rank per worker. A caller that drives all ranks uses it for staged and pushed
//! programs, with several ranks per worker, which share the doorbell of the first. A worker learns a rank's buffers when it first sees
//! that rank enter. There it compares the two calls, before data move between the two. Every wait ends by progress, by the abort, by
//! the deadline or by the user's interrupt; where ranks call for themselves, also by the return or the death of a peer. A failing rank returns when no peer can still touch its buffers (`run/quiesce.rs`).
//!
//! | file | subject |
//! |---|---|
//! | [`worker`] | the queues of some ranks, and their steps |
//! | [`peers`] | what a rank learns of its peers when it sees them enter |
//! | [`call_flight`] | a call from its enter to its end, which a wait advances |

mod call_flight;
mod peers;
mod worker;

pub(crate) use worker::RankWorker;
