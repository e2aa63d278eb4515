//! How devices of a machine are joined: networks between nodes, routes, and the flows that links let through.
//!
//! | module | what it holds |
//! |---|---|
//! | [`cluster`] | several nodes and the network between them |
//! | `communicator` | the part of a machine on which some ranks run |
//! | `switches` | the tiers of switches of a network |
//! | `saved` | a machine as data for another process |
//! | [`loss`] | a machine that has lost lanes, cards, or a part of the rate of its network |
//! | `equal_nodes` | clusters of equal nodes: a few nodes answer for all |
//! | `excerpt` | a few equal nodes that stand for a large cluster |
//! | `what_if` | a machine with a change: wider links, other cards, no NVLink |
//! | [`route`] | the links that a transfer between two GPUs crosses |
//! | `matrix` | how pairs are joined, in the words of nvidia-smi |
//! | [`rates`] | pairs alone, at once, and cuts |
//! | `max_flow`, `flow_network` | the largest flow between devices, and the cut that limits it |
//! | [`ports`] | what the ports of one GPU carry, as its datasheet says |

pub mod cluster;
mod communicator;
pub(crate) mod equal_nodes;
pub(crate) mod excerpt;
pub(crate) mod flow_network;
pub mod loss;
mod matrix;
pub(crate) mod max_flow;
pub mod ports;
pub mod rates;
pub mod route;
mod saved;
mod switches;
mod what_if;
