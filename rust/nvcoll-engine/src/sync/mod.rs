//! How ranks wait for each other: the words they share and the rules of reading and writing them. The protocol, its
//! states and its races are on their own page, `sync/README.md`.
//!
//! Every word lies on a line of its own, has one writer (the doorbell and the abort word excepted), starts as zero and
//! contains no pointer, so that the same words serve ranks that are threads and ranks that are processes.

pub mod abort;
pub mod atomic;
pub mod backoff;
pub mod batch_records;
pub mod completion;
pub mod condition;
pub mod departure;
pub mod doorbell;
pub mod frames;
pub(crate) mod futex;
pub mod life;
pub mod offers;
pub mod outbox;
pub mod posted;
pub mod progress;
pub mod record;
pub mod rendezvous;
pub mod single_flight;
pub mod stamp;
pub mod try_lock;
pub mod wanted;

pub use abort::{Abort, Activity, Cause, Pair};
pub use backoff::Backoff;
pub use batch_records::BatchRecords;
pub use completion::Completion;
pub use condition::WaitEnd;
pub use departure::Departure;
pub use doorbell::Doorbell;
pub use life::{Deaths, Life, WaitStatus};
pub use outbox::Outbox;
pub use posted::{Posted, TakenPlaces};
pub use progress::Progress;
pub use record::{Record, RecordLine};
pub use rendezvous::Rendezvous;
pub use stamp::Stamp;
