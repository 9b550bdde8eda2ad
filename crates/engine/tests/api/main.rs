//! The engine through its public surface, in one program, because each program costs a link.
//!
//! Two tests have programs of their own: `examples.rs` runs other programs, and `workers.rs` counts
//! the threads of its process.

mod cache_units;
mod changes;
mod closed_tables;
mod cold_batches;
mod cold_seeks;
mod compact_range;
mod compaction_filter;
mod compression;
mod conditional;
#[cfg(feature = "zstd")]
mod dictionaries;
mod drops;
mod expiry;
mod expiry_merge;
mod failures;
mod fifo;
mod fifo_repair;
mod files;
mod guides;
mod handles;
mod keyspace_options;
mod large_values;
mod listeners;
mod mapped_reads;
mod memory;
mod merge;
mod merge_admin;
mod miss_ratio;
mod options;
mod prefixes;
mod ranges;
mod read_costs;
mod read_times;
mod record_cache;
mod recorded_options;
mod redesign;
mod reopen;
mod shared_budget;
mod small_tables;
mod smoke;
mod support;
mod tickets;
mod tombstones;
mod transaction_model;
mod transactions;
mod value_files;
mod verify;
mod waits;
mod writes;
