//! Predictions of the time of NCCL's collectives: closed forms of its algorithms over fitted physical constants.
//!
//! ```text
//! Fabric ─machine─▶ GPUs, nodes, interconnect, line rates ─params─▶ the constants that hold there
//!            │                                                          │
//!            └─nccl::Model─▶ which algorithm ────────selection──────────┴─▶ ring · nvls · tree · sends ─▶ time of each protocol
//!                                                                             least of them + launch, never below the floor
//! ```
//!
//! [`crate::nccl`] says which algorithm NCCL selects by its own formula. [`crate::simulate`] runs one schedule event by event.
//! This module predicts what a program would measure. A test holds rings and chains to the event simulator with the same
//! constants.
//!
//! | module | what it holds |
//! |---|---|
//! | [`constants`] | a number per physical effect and generation, with unit, source and range |
//! | `machine`, `params` | the machine summary that predictions use; the constants that hold on it |
//! | `rates`, `bottleneck` | the rates of links in use; links and cuts that hold up a pattern before the links of GPUs do |
//! | `predictor` | the predictor of a fabric, and the calls that it is asked about |
//! | `set_fabric` | the machine as NCCL's settings leave it |
//! | `pattern`, `selection` | the collectives there are; which algorithm and protocols are weighed |
//! | `ring`, `nvls`, `tree`, `pat`, `sends` | the closed forms; their documentation has the formulas |
//! | `served`, `served_rules`, `served_prediction` | all_reduce as model servers run it: their kernels, and the rules by which they choose |
//! | `breakdown`, `prediction` | what a time is made of; what a caller gets |
//! | `simulation_settings` | the same constants as settings of the event simulator |
//! | `trust` | intervals, and the number of systems behind each |
//!
//! **Bytes and time.** Time grows with size while algorithm, protocol, chunk and channels stay the same. They change with size:
//! from some size on NCCL takes larger chunks in the switch and more channels for a send, and its own formula, not the time,
//! selects algorithm and protocol. Wider links may make a small call slower on Volta and Ampere: NCCL lays more channels over
//! them, and each takes its time to start.
//!
//! **Settings.** A variable of [`NcclSettings`](crate::nccl::NcclSettings) that changes the time of a call, and that the closed
//! forms do not know, is an error ([`Predictor::weigh`]).
//!
//! **What is not modelled.** SHARP and tuner plugins; buffers that the user registers, without which NCCL does not run
//! all_gather and reduce_scatter by NVLS; what else runs on the machine; the processor, on which most of a small call's time
//! depends; launching from CUDA graphs, because no public measurement says what it saves. Of the network between nodes, the
//! cards and the narrowest tier are modelled: [`crate::simulate`] knows how flows meet in its switches.

mod bottleneck;
mod breakdown;
pub mod constants;
mod machine;
mod nvls;
mod params;
mod pat;
mod pattern;
mod prediction;
mod predictor;
mod rates;
mod ring;
mod selection;
mod sends;
mod served;
mod served_prediction;
mod served_rules;
mod set_fabric;
mod simulation_settings;
mod tree;
mod trust;

pub use pattern::Pattern;
pub use prediction::Prediction;
pub use predictor::{CollectiveCall, Launch, Predictor};
pub use selection::{AlgorithmFilter, Candidates};
pub use served_rules::Server;
pub use simulation_settings::SimulationSettings;
