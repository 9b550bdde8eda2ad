//! Endure: *A Robust Tuning Paradigm for LSM Trees Under Workload Uncertainty* (PVLDB 15(8), 2022),
//! and its successor *Towards flexibility and robustness of LSM trees* (VLDB Journal, 2024).
//!
//! A nominal tuning is the best for one expected mix of operations; a robust one is the best in the
//! worst mix within a Kullback-Leibler divergence rho of it. Both are compared on mixes drawn at
//! random.

mod delta;
mod measured;
mod per_level;
mod setup;

use crate::experiment::Experiment;

/// In the order of the papers.
pub(super) static ALL: &[Experiment] =
    &[delta::EXPERIMENT, delta::NAVIGATOR, measured::EXPERIMENT, per_level::EXPERIMENT];
