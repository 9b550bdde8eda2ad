//! Observed locality: the miss ratio of the block cache as a function of its size, from the lookups
//! of this open.
//!
//! The cache samples references to data blocks ([`shamba_table::BlockCache::observing_reuse`]);
//! lookups count all of them. Advice ([`crate::tuning::advise`]) uses the curve in the costs of
//! every design, so the navigator weighs the cache against filters and write buffer under the
//! observed skew. Until enough was sampled, lookups are assumed to be spread evenly.
//!
//! Compactions write new blocks: the first references to them are misses here, as in the cache.
//!
//! Not here: passing the counts on ([`super::WorkloadObserver`]); the curve and its sampling (crate
//! `shamba-model`, `miss_ratio`).

use shamba_model::miss_ratio::ReuseSampler;

/// Divisor: the sample takes at most this fraction of the memory budget.
const BUDGET_PART: u64 = 64;
/// Maximum number of blocks that the sample tracks. From 65,536 data blocks (256 MiB) on, the
/// sampling rate falls, so that the cost per lookup falls as the data grows. A sample of 4,000
/// blocks gives a miss ratio within 15 %; 1,000 are not enough for every seed
/// (`docs/decisions/0022-locality-of-lookups.md`).
const BLOCKS_MAX: u64 = 8_192;

/// Maximum number of blocks that the sample tracks within a memory budget.
pub(crate) fn sampled_blocks_max(budget_bytes: u64) -> usize {
    let of_one = (ReuseSampler::bytes_max(1) - ReuseSampler::bytes_max(0)) as u64;
    let others = ReuseSampler::bytes_max(0) as u64;
    let blocks = ((budget_bytes / BUDGET_PART).saturating_sub(others) / of_one).min(BLOCKS_MAX) as usize;
    debug_assert!(
        blocks == 0 || ReuseSampler::bytes_max(blocks) as u64 <= budget_bytes / BUDGET_PART,
        "{blocks} sampled blocks take more than their part of {budget_bytes} bytes"
    );
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_keeps_to_its_part_of_the_budget() {
        for shift in 20..40 {
            let budget_bytes = 1u64 << shift;
            let blocks = sampled_blocks_max(budget_bytes);
            let bytes = ReuseSampler::bytes_max(blocks) as u64;
            assert!(bytes <= budget_bytes / BUDGET_PART, "{blocks} blocks, {bytes} of {budget_bytes} bytes");
            assert!(blocks as u64 <= BLOCKS_MAX && (shift < 23 || blocks >= 1_000), "{blocks}");
        }
    }
}
