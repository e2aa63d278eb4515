//! Calls and those who make them: nodes, communicators, teams, groups, works and plans.

pub(crate) mod call_counts;
pub(crate) mod choices;
pub(crate) mod collectives;
pub(crate) mod communicator;
pub(crate) mod endpoint;
pub(crate) mod faults;
pub(crate) mod group;
pub(crate) mod issue;
pub(crate) mod job;
pub(crate) mod left_fold;
pub(crate) mod node;
pub(crate) mod open_group;
pub(crate) mod passed;
pub(crate) mod plan;
pub(crate) mod recorder;
pub(crate) mod request;
pub(crate) mod team;
pub(crate) mod tuning;
pub(crate) mod work;
