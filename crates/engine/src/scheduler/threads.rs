//! Number of compaction threads, by processors, settings and memory.

use shamba_env::Spawner;

use crate::options::settings::Settings;

/// Default maximum of compaction threads; with more the disk would be the limit.
const COMPACTION_THREADS_MAX: usize = 4;
/// Memory budget per compaction thread.
const MERGE_THREAD_BUDGET_BYTES: u64 = 32 << 20;
/// Memory budget from which there is a second compaction thread. Writers then hardly wait for
/// compactions, each of which takes no more memory than a table.
const SECOND_THREAD_BUDGET_BYTES: u64 = 8 << 20;

/// Maximum number of compaction threads for a memory budget: each needs memory to read tables and
/// to build one.
fn compaction_threads_max(budget_bytes: u64) -> usize {
    unrestricted_compaction_threads(budget_bytes)
        .max(1 + usize::from(budget_bytes >= SECOND_THREAD_BUDGET_BYTES))
}

/// Number of compaction threads that the budget allows whatever they compact.
pub(super) fn unrestricted_compaction_threads(budget_bytes: u64) -> usize {
    usize::try_from(budget_bytes / MERGE_THREAD_BUDGET_BYTES).unwrap_or(usize::MAX).max(1)
}

/// Number of compaction threads.
pub(super) fn compaction_threads(spawner: &dyn Spawner, settings: &Settings) -> usize {
    if spawner.is_inline() {
        return 1;
    }
    let wanted = settings
        .background_threads
        .map_or_else(|| spawner.parallelism().min(COMPACTION_THREADS_MAX), |threads| threads as usize);
    let threads = wanted.min(compaction_threads_max(settings.budget_bytes()));
    debug_assert!(threads > 0, "no thread runs compactions: {wanted} are wanted");
    threads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_lets_so_many_threads_merge() {
        for (budget_mib, threads) in [(4, 1), (7, 1), (8, 2), (64, 2), (95, 2), (96, 3), (1024, 32)] {
            assert_eq!(compaction_threads_max(budget_mib << 20), threads, "{budget_mib} MiB");
        }
    }
}
