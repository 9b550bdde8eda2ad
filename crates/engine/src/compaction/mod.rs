//! Compaction: carrying out what the policy ([`shamba_tree::compaction`]) picks.

pub(crate) mod job;
pub(crate) mod output;
pub(crate) mod plan;
pub(crate) mod syncing;
