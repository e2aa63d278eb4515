//! Groups of ranks on a machine, and what collectives among them cost.
