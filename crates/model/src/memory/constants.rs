//! The table of constants: every number that decides who gets how much memory, with its unit, the
//! reason for its value, and the evidence.
//!
//! Each row declares a constant of this module and a [`Constant`] in [`CONSTANTS`], so that the
//! table is complete by construction. A unit of `1/budget` means that the constant divides the
//! memory budget.
//!
//! Evidence names a decision record (`docs/decisions`), a page of results (`docs/results`), or a
//! test. "Chosen, not measured." marks a value that was set by judgement and never compared with
//! others: a candidate for an experiment.
//!
//! Not here: the arithmetic ([`super`]); constants of the allocation of filter bits
//! ([`crate::allocation`]) and of the cost model ([`crate::cost`]).

/// One row of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Constant {
    /// Its name in this module.
    pub name: &'static str,
    /// Its value, as written in the source.
    pub value: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Its meaning, and why it has this value.
    pub reason: &'static str,
    /// The measurement or bound behind the value.
    pub evidence: &'static str,
}

/// Declares the constants and their table from rows of
/// `NAME: type = value, unit, reason, evidence;`.
macro_rules! constants {
    ($($name:ident: $kind:ty = $value:expr, $unit:literal, $reason:literal, $evidence:literal;)*) => {
        $(
            #[doc = $reason]
            #[doc = ""]
            #[doc = concat!("Unit: ", $unit, ". Evidence: ", $evidence)]
            pub const $name: $kind = $value;
        )*

        /// All constants of the division of memory.
        pub const CONSTANTS: &[Constant] = &[$(
            Constant {
                name: stringify!($name),
                value: stringify!($value),
                unit: $unit,
                reason: $reason,
                evidence: $evidence,
            },
        )*];
    };
}

constants! {
    // The budget and the parts that are not divided.
    BUDGET_BYTES_MIN: u64 = 4 << 20, "bytes",
        "Minimum budget of any database.",
        "Chosen, not measured. With it, the metadata of 1,017 tables takes half of the budget (decision 19).";
    UNSHARED_PART: u64 = 32, "1/budget",
        "Part of the budget that is never divided: frames that readers use are freed a little late.",
        "Chosen, not measured. With it, the ledger stays within the budget in results/memory.md, Overload.";
    MEMTABLE_LARGE_BUDGET_BYTES: u64 = 128 << 20, "bytes",
        "Budgets of at least this size allow a memtable a quarter of the budget, smaller ones an eighth. Up to \
         three memtables are full at once: those that wait for their flush when writers stall.",
        "Chosen, not measured.";
    MEMTABLE_LARGE_PART: u64 = 4, "1/budget", "Maximum memtable of a large budget.", "Chosen, not measured.";
    MEMTABLE_SMALL_PART: u64 = 8, "1/budget", "Maximum memtable of a small budget.", "Chosen, not measured.";
    MEMTABLE_STEP_PART: u64 = 64, "1/budget",
        "Memtables are charged ahead in steps of this size, so that few writes rebalance memory.",
        "Chosen, not measured.";
    MEMTABLE_GROWTH_PART: u64 = 8, "1/memtable",
        "A memtable's arena and index grow by pieces of up to this part of their size.",
        "A bound: growth of the arena's slabs and of the index's segments (crate shamba-memtable).";
    MEMTABLE_ENTRY_BYTES: u64 = 96, "bytes",
        "Maximum memory of a memtable entry in addition to its key and value: header, index, order.",
        "A bound: the sizes of the memtable's structures (decision 4).";
    WORK_BYTES_MIN: u64 = 384 << 10, "bytes",
        "Fixed memory of building a table, independent of the table's size.",
        "Chosen, not measured.";
    WORK_PART: u64 = 32, "1/budget",
        "The fixed memory of building a table counts as at most this part of a small budget.",
        "Chosen, not measured.";
    WORK_TABLE_PART: u64 = 4, "1/table",
        "Memory of building a table that grows with the table: gathered bytes, digests of its keys, its filter.",
        "Chosen, not measured.";
    WORK_JOBS: u64 = 2, "jobs",
        "Jobs whose memory is kept free while writes come: one flush and one compaction.",
        "results/memory.md, Overload: the ledger exceeded budgets of 16 and 64 MiB by 0.65 MiB before all of \
         this memory was kept free, and by 0 after.";
    JOBS_PART: u64 = 3, "1/budget",
        "Maximum memory that compactions which run at the same time reserve together. One that runs alone may \
         always begin.",
        "Chosen, not measured. It admits as many slices of small tables as the rule before it, a quarter of the \
         budget for digests alone (decision 25).";
    READ_AHEAD_PART: u64 = 64, "1/budget", "Read buffers of all inputs of a compaction together.",
        "Chosen, not measured.";
    ITERATOR_PART: u64 = 8, "1/budget", "Memory of all open iterators, up to ITERATOR_BYTES_ROOMY.",
        "Chosen, not measured.";
    ITERATOR_BYTES_ROOMY: u64 = 32 << 20, "bytes",
        "Memory of iterators beyond which only ITERATOR_LARGE_PART of the budget counts: their small pieces stay \
         with the allocator after they are freed.",
        "results/memory.md, Overload: resident memory at 512 MiB was 60 to 68 MiB above the budget before, \
         40 MiB after.";
    ITERATOR_LARGE_PART: u64 = 32, "1/budget", "Memory of iterators under a large budget.",
        "results/memory.md, Overload.";
    TABLES_PART: u64 = 2, "1/budget",
        "Maximum part of the budget for the metadata of open tables; the other parts need the rest.",
        "Decision 19: tables beyond it stay closed, so that no budget of 4 MiB or more is refused.";
    TABLE_BYTES: u64 = 2 << 10, "bytes",
        "Fixed memory of an open table, without its bounds: reader, place in its run, fences.",
        "Decision 12: 2,400 tables of half a megabyte took 5.7 MiB, 2.4 KiB each.";
    INDEX_TOP_EVERY_BYTES: u64 = 256 << 10, "bytes",
        "The top index has one entry per this many bytes of a table's file.",
        "Decision 10: a partition lists about a hundred blocks.";
    INDEX_TOP_ENTRY_BYTES: u64 = 64, "bytes", "Memory of an entry of the top index.",
        "Decision 10: some 80 bytes for each partition of about a hundred blocks.";
    OTHERS_DECAY_PART: u64 = 8, "1/peak a window",
        "Decay of the recent peak of undivided memory. Memory that a burst of writes took returns to filters \
         and indexes within half a minute, and another burst within seconds finds it free.",
        "Decision 12: without it, a fill at 8 MiB took ten times as long. The rate itself was chosen.";
    IDLE_WINDOWS: u32 = 5, "windows",
        "Windows without a write after which no memory is kept free for a flush.",
        "Chosen, not measured.";

    // The division between filters and indexes, block cache and write buffer.
    STEP_PART: u64 = 32, "1/budget",
        "Bytes that one consumer gives to another in a window.",
        "Chosen, not measured. A bound: any division reaches any other within 34 windows (test \
         a_step_of_the_input_is_followed_within_the_stated_windows).";
    CACHE_FIRST_PART: u64 = 8, "1/shared",
        "Initial share of the block cache, before its ghost entries have measured anything.",
        "Chosen, not measured.";
    CACHE_FLOOR_PART: u64 = 256, "1/budget",
        "Minimum share of the block cache, which scans and flushes need.",
        "results/memory.md, No thrash: at 8 MiB absent keys are within 13 % of the best division, this floor \
         included.";
    RECORDS_COVER: u32 = 8, "digests",
        "A record cache that has only its floor covers one digest in this many, so that lookups seldom ask it.",
        "Chosen, not measured.";
    RECORDS_FLOOR_PART: u64 = 256, "1/budget",
        "Minimum share of the record cache. Times RECORDS_COVER it is a step, so the sample tells what a step \
         would save.",
        "By definition: 1/STEP_PART, divided by RECORDS_COVER.";
    RECORDS_FLOOR_BYTES: u64 = 64 << 10, "bytes", "Minimum share of the record cache under a small budget.",
        "A bound: a shard of the cache has four chunks (crate shamba-tree).";
    RECORDS_MAX_PART: u64 = 2, "1/budget", "Maximum share of the record cache.", "Chosen, not measured.";
    RECORD_ASK_NS: f64 = 60.0, "ns", "Cost of asking the record cache: two misses of the processor's caches.",
        "Chosen, not measured.";
    RECORD_SAVED_NS: f64 = 350.0, "ns",
        "CPU time that a record saves: index and block are not searched.",
        "results/speed.md: a hit with everything in memory takes 834 ns, 162 of them for the filters.";
    RIBBON_SAVED_PART: f64 = 0.26, "ratio",
        "Part of a blocked filter's memory that a ribbon filter of the same rate spares.",
        "Decision 34: 7.41 bits per key instead of 10 at a rate of 0.96 %.";
    RIBBON_PROBE_NS: f64 = 60.0, "ns", "Time that a probe of a ribbon filter takes more than one of a blocked filter.",
        "Decision 34: 237 instructions more.";
    RIBBON_BUILD_NS: f64 = 130.0, "ns", "Time that a key in a ribbon filter takes more to build.",
        "Decision 34: 0.4 s for a fill of a million keys, which builds their filters about three times.";
    RIBBON_REPAY_SECONDS: f64 = 3_600.0, "s",
        "Time within which a ribbon filter must repay the time of building it, if its table exists for so long.",
        "Chosen, not measured.";
    MOVING_NS_PER_BYTE: f64 = 1.0, "ns/byte",
        "Cost of moving a byte: reading one in and evicting another.",
        "Chosen, not measured. 4 us for a block of 4 KiB: a read from the page cache costs 1 us (READ_NS), from \
         an SSD some 100 us.";
    PAYBACK_SECONDS: f64 = 30.0, "s",
        "Time within which the savings of a move must repay its cost.",
        "Chosen, not measured.";
    MARGIN: f64 = 0.25, "ratio",
        "Relative difference below which two values per byte count as equal, in two windows running.",
        "Chosen, not measured. The test a_difference_within_the_margin_is_noise holds the rule, not the value.";
    BUFFER_WINDOWS: u64 = 60, "windows",
        "Windows between two decisions about the write buffer: its value shows only in whole trees.",
        "Chosen, not measured.";
    BUFFER_MIN_PART: u64 = 4, "1/configured size", "Minimum share of the write buffer.",
        "Chosen, not measured.";
    BUFFER_MAX_TIMES: u64 = 2, "times the configured size", "Maximum share of the write buffer.",
        "Chosen, not measured.";
    WRITE_NS: f64 = 2_000.0, "ns",
        "Cost of writing a page in addition to reading it: a copy to the system's page cache, with one sync for \
         many.",
        "Chosen, not measured.";

    // The division of a budget that databases share.
    FILLED_PART: u64 = 2, "1/target",
        "A database that holds less than this part of its target takes no step: it does not use what it has.",
        "Chosen, not measured. The test a_database_that_does_not_fill_its_share_gets_no_more holds the rule.";
    CACHE_SMALL_PART: u64 = 16, "1/budget",
        "A block cache of at most this part counts as having nothing to give to another database.",
        "Chosen, not measured.";
    WRITTEN_MEMTABLES: u64 = 3, "memtables",
        "Memtables that a database needs at a high rate of writes: those that wait for their flush.",
        "A bound: the limit of sealed memtables.";

    // Memory on demand: shedding, tolerance of the cache's size, early loading.
    SLACK_PART: u64 = 64, "1/budget",
        "The cache's capacity is not raised while it is within this part of the budget below its share.",
        "Chosen, not measured.";
    SLACK_SHARE_PART: u64 = 16, "1/share",
        "It is not raised either while it is within this part of its share, which may be small.",
        "Found in the laboratory: without it, a cache that had shrunk below a slab held no small block. The value \
         was chosen.";
    SHED_PART: u64 = 16, "1/budget",
        "Shedding frees this part of the budget beyond the request, so that it is rare.",
        "Chosen, not measured.";
    EARLY_PART: u64 = 64, "1/budget",
        "Filters of new tables may exceed the share of filters and indexes by this part until the next plan.",
        "Decision 14: before it, lookups had no memory for new filters while a whole level was compacted.";
    KEEP_MARGIN: f64 = 0.1, "ratio",
        "Minimum relative gain for which a resident piece is exchanged for another.",
        "Decision 12: what is probed and what is dormant changes only for a tenth. Chosen, not measured.";
    SHIFT_SECONDS: f64 = 0.75, "s",
        "Time for which lookups search without filters after a workload shift: a quarter of a second until it is \
         noticed, and half a second until evicted filters are back.",
        "Decision 12: checks run 16 times a second. The time of reading filters back was chosen.";

    // Value of memory: prices and priors.
    READ_NS: f64 = 1_000.0, "ns",
        "Cost of a read before any was timed: from the system's page cache.",
        "An upper bound: a lookup at 8 MiB through the page cache takes 3.7 us with 1.2 reads (decision 21).";
    NS_PER_BYTE: f64 = 0.3, "ns/byte",
        "Cost per byte before reads of two sizes were timed, and the minimum after that: a copy out of the \
         system's page cache.",
        "Chosen, not measured (decision 21).";
    BLOCK_BYTES: u64 = 4_096, "bytes", "Approximate length of a data block.", "The default block size.";
    SEARCH_CPU_NS: f64 = 400.0, "ns", "CPU cost of searching an index and a block in memory.",
        "Chosen, not measured.";
    PARTITION_CPU_NS: f64 = 400.0, "ns",
        "CPU cost of searching an index partition that was read, in addition to the read.",
        "Chosen, not measured.";
    PROBE_NS: f64 = 8.0, "ns", "Cost of one probe of a filter module.", "Chosen, not measured.";
    SLICE_CPU_NS: f64 = 1_000.0, "ns",
        "CPU cost of fetching a cached slice for one lookup: the cache lookup, examining it, and the probe of \
         cold memory.",
        "Found by the check of self-tuning: at 0, a filter whose slices were all cached looked as good as a \
         resident one, and lookups had no filters. The value was chosen.";
    COUNTED_PAGE_NS: f64 = 1_000.0, "ns",
        "Cost of a page in the mode that counts pages. Any value works, as long as all consumers use the same.",
        "By definition.";
    PRIOR_LOOKUPS: f64 = 256.0, "sampled lookups", "Weight of the prior of lookups.", "Chosen, not measured.";
    PRIOR_SEEKS: f64 = 256.0, "sampled seeks", "Weight of the prior of seeks.", "Chosen, not measured.";
    LOOKUPS_PER_SEEK_MIN: f64 = 1.0 / 256.0, "lookups/seek",
        "Assumed minimum ratio of lookups to seeks, so that filters are loaded too if there is memory.",
        "Chosen, not measured.";
    BLOCKS_MIN: u64 = 64, "blocks",
        "Minimum number of blocks in a window that count as a measurement of the cache's hit rate.",
        "Chosen, not measured. The standard error of a rate of 64 samples is at most 1/16.";
    KEEP_TIMES: u32 = 2, "times",
        "A resident partition is evicted for another only if that has more than this many times its searches, \
         plus KEEP_SEARCHES.",
        "Chosen, not measured.";
    KEEP_SEARCHES: u32 = 4, "sampled searches", "Additional searches that an exchange of partitions needs.",
        "Chosen, not measured.";
    SEARCHES_KEPT: u64 = 32, "sampled searches",
        "Mean searches per partition of a table beyond which the counts are halved.",
        "Chosen, not measured.";

    // Times of decisions.
    WINDOW_US: u64 = 1_000_000, "us", "Length of a window: interval of decisions and of settlements.",
        "Decision 12: a second was too long after a workload shift, hence CHECKS_PER_WINDOW.";
    CHECKS_PER_WINDOW: u64 = 16, "checks", "Checks for a workload shift in a window.",
        "Decision 12: readmissing after a shift takes 245 ns instead of 1,362.";
    SETTLE_TIME_PART: u64 = 16, "1/time", "Maximum part of the time that early settlements take.",
        "Chosen, not measured.";
    HIT_RATE_CHANGE_MIN: f64 = 1.0 / 64.0, "ratio",
        "Hit-rate change that triggers an early settlement. It is small because a search costs a hundred times \
         as much as a filter probe.",
        "Chosen, not measured.";
}

/// Share of found lookups that is assumed to find nothing: an allowance for workload shifts, which
/// are assumed to come at most as often as a step of memory must pay for itself. One in 40.
pub const SHIFT_PART: f64 = SHIFT_SECONDS / PAYBACK_SECONDS;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_says_its_unit_its_reason_and_its_evidence() {
        let mut names = std::collections::BTreeSet::new();
        for row in CONSTANTS {
            assert!(names.insert(row.name), "{} stands twice", row.name);
            for text in [row.value, row.unit, row.reason, row.evidence] {
                assert!(!text.trim().is_empty(), "{} has an empty cell", row.name);
            }
            assert!(row.reason.ends_with('.') && row.evidence.ends_with('.'), "{}", row.name);
        }
        assert!(names.contains("STEP_PART") && names.contains("PAYBACK_SECONDS"));
    }

    #[test]
    fn one_found_lookup_in_forty_is_assumed_to_find_nothing() {
        assert_eq!(SHIFT_PART, 1.0 / 40.0);
    }
}
