//! Sizes that follow from the budget alone, or from the budget and the present charges.
//!
//! These functions say how much memory a part may take, how much is kept free, and when the block
//! cache changes its capacity. All take and return plain values.
//!
//! Not here: the division of the rest between consumers ([`super::decide`]).

use super::constants::{
    BLOCKS_MIN, BUDGET_BYTES_MIN, EARLY_PART, INDEX_TOP_ENTRY_BYTES, INDEX_TOP_EVERY_BYTES,
    ITERATOR_BYTES_ROOMY, ITERATOR_LARGE_PART, ITERATOR_PART, JOBS_PART, MEMTABLE_ENTRY_BYTES,
    MEMTABLE_GROWTH_PART, MEMTABLE_LARGE_BUDGET_BYTES, MEMTABLE_LARGE_PART, MEMTABLE_SMALL_PART,
    MEMTABLE_STEP_PART, OTHERS_DECAY_PART, READ_AHEAD_PART, SHED_PART, SLACK_PART, SLACK_SHARE_PART,
    TABLE_BYTES, TABLES_PART, UNSHARED_PART, WORK_BYTES_MIN, WORK_JOBS, WORK_PART, WORK_TABLE_PART,
};

/// Memory that is divided between filters, indexes and the block cache when everything else takes
/// `others_bytes`.
pub fn shared_bytes(budget_bytes: u64, others_bytes: u64) -> u64 {
    (budget_bytes - budget_bytes / UNSHARED_PART).saturating_sub(others_bytes)
}

/// Bytes that `others_bytes` exceed the divided part of the budget by.
pub fn missing_bytes(budget_bytes: u64, others_bytes: u64) -> u64 {
    others_bytes.saturating_sub(budget_bytes - budget_bytes / UNSHARED_PART)
}

/// Maximum memtable size under a budget. Up to three memtables are full at once, waiting for their
/// flush, besides everything else that the budget covers. The engine seals
/// memtables by this rule, and [`crate::navigator`] proposes no larger ones.
pub fn memtable_bytes_max(budget_bytes: u64) -> u64 {
    let is_large = budget_bytes >= MEMTABLE_LARGE_BUDGET_BYTES;
    budget_bytes / if is_large { MEMTABLE_LARGE_PART } else { MEMTABLE_SMALL_PART }
}

/// Memory for one flush and one compaction, so that neither waits for memory. Each may build one
/// table: its gathered bytes, the digests of its keys, its filter.
pub fn work_bytes(budget_bytes: u64, table_bytes: u64) -> u64 {
    WORK_JOBS * (WORK_BYTES_MIN.min(budget_bytes / WORK_PART) + table_bytes / WORK_TABLE_PART)
}

/// The part of [`work_bytes`] for one job.
pub fn job_bytes_min(work_bytes: u64) -> u64 {
    work_bytes / WORK_JOBS
}

/// Memory that a compaction reserves when it builds tables whose digests take `building_bytes`:
/// these, read-ahead of its inputs, and the fixed memory of building a table.
pub fn job_bytes(budget_bytes: u64, work_bytes: u64, building_bytes: u64) -> u64 {
    let fixed_bytes = read_ahead_bytes(budget_bytes) + WORK_BYTES_MIN.min(budget_bytes / WORK_PART);
    building_bytes.saturating_add(fixed_bytes).max(job_bytes_min(work_bytes))
}

/// Read-ahead of all inputs of a compaction.
pub fn read_ahead_bytes(budget_bytes: u64) -> u64 {
    budget_bytes / READ_AHEAD_PART
}

/// Maximum memory that compactions which run at the same time reserve together, where
/// `fixed_bytes` cannot be evicted for them.
pub fn jobs_bytes_max(budget_bytes: u64, work_bytes: u64, fixed_bytes: u64) -> u64 {
    let for_flush_bytes = job_bytes_min(work_bytes);
    shared_bytes(budget_bytes, fixed_bytes.saturating_add(for_flush_bytes)).min(budget_bytes / JOBS_PART)
}

/// Memory kept free for a flush and for compactions, which have reserved `reserved_bytes`, less
/// what running work holds already. While no compaction runs, memory for one is kept. While
/// `is_lent` only reserved memory is kept: no writes come, and what uses the rest can be evicted.
pub fn kept_free_bytes(work_bytes: u64, reserved_bytes: u64, at_work_bytes: u64, is_lent: bool) -> u64 {
    let with_flush_bytes = job_bytes_min(work_bytes).saturating_add(reserved_bytes);
    let all_bytes = if is_lent { reserved_bytes } else { with_flush_bytes.max(work_bytes) };
    all_bytes.saturating_sub(at_work_bytes)
}

/// Approximate limit of the memory of all open iterators; above it idle iterators release what they
/// can read again. This memory is allocated and freed in small pieces, which the allocator keeps
/// after they are freed: the limit is therefore a smaller part of a large budget.
pub fn iterator_bytes(budget_bytes: u64) -> u64 {
    (budget_bytes / ITERATOR_PART).min(ITERATOR_BYTES_ROOMY).max(budget_bytes / ITERATOR_LARGE_PART)
}

/// Memory that an open table always holds, also when everything else of it is evicted.
pub fn table_metadata_bytes(bounds_bytes: u64, file_bytes: u64) -> u64 {
    TABLE_BYTES + bounds_bytes + file_bytes / INDEX_TOP_EVERY_BYTES * INDEX_TOP_ENTRY_BYTES
}

/// Maximum memory for the metadata of open tables.
pub fn tables_bytes_max(budget_bytes: u64) -> u64 {
    budget_bytes / TABLES_PART
}

/// Minimum budget under which tables with this much metadata can all be open.
pub fn budget_bytes_min(metadata_bytes: u64) -> u64 {
    metadata_bytes.saturating_mul(TABLES_PART).max(BUDGET_BYTES_MIN)
}

/// Memory that active memtables of `active_bytes` may take after a group of `coming_bytes` of
/// records. The second number is the charge to make when the first exceeds the present one: a step
/// more, so that the next groups need none.
pub fn memtable_charge(budget_bytes: u64, active_bytes: u64, coming_bytes: u64) -> (u64, u64) {
    let growth_bytes = active_bytes / MEMTABLE_GROWTH_PART;
    let needed_bytes = active_bytes + growth_bytes + coming_bytes.saturating_mul(2) + MEMTABLE_ENTRY_BYTES;
    (needed_bytes, needed_bytes + budget_bytes / MEMTABLE_STEP_PART)
}

/// Whether the block cache changes its capacity to `share_bytes`: always to shrink; to grow only by
/// more than a tolerance, because charges vary all the time.
pub fn is_capacity_changed(budget_bytes: u64, capacity_bytes: u64, share_bytes: u64) -> bool {
    let tolerance_bytes = slack_bytes(budget_bytes).min(share_bytes / SLACK_SHARE_PART);
    share_bytes < capacity_bytes || share_bytes > capacity_bytes.saturating_add(tolerance_bytes)
}

/// Deviation of the cache from its capacity that is tolerated.
pub fn slack_bytes(budget_bytes: u64) -> u64 {
    budget_bytes / SLACK_PART
}

/// Bytes to evict when `bytes` are missing: more than that, so that shedding is rare.
pub fn shed_bytes(budget_bytes: u64, bytes: u64) -> u64 {
    bytes.saturating_add(budget_bytes / SHED_PART)
}

/// Bytes by which filters of new tables may exceed the share of filters and indexes.
pub fn early_bytes(budget_bytes: u64) -> u64 {
    budget_bytes / EARLY_PART
}

/// The recent peak of undivided memory after another window.
pub fn decayed_peak_bytes(peak_bytes: u64) -> u64 {
    peak_bytes - peak_bytes / OTHERS_DECAY_PART
}

/// A recent ratio after a window with `hits` of `hits + misses`: the older windows have half of the
/// weight. Windows of few events change nothing.
pub fn recent_ratio(before: f64, hits: u64, misses: u64) -> f64 {
    let all = hits.saturating_add(misses);
    if all < BLOCKS_MIN { before } else { f64::midpoint(before, hits as f64 / all as f64) }
}
