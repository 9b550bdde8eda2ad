//! Compaction: what to merge (pure functions of version and design) and the merging itself.

pub(crate) mod forecast;
pub(crate) mod job;
pub(crate) mod output;
pub(crate) mod plan;
pub(crate) mod policy;
mod reading;
pub(crate) mod retention;
pub(crate) mod simulate;
pub(crate) mod syncing;
pub(crate) mod table_size;
