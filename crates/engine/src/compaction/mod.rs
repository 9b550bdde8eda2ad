//! Compaction: carries out the jobs that the policy ([`shamba_tree::compaction`]) picks.

pub(crate) mod job;
pub(crate) mod plan;
