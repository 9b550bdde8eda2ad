//! Memory of an open database as callers see it: [`MemoryReport`] and its parts.
//!
//! Not here: the accounting (crate `shamba-table`, `Ledger`); filling these types
//! ([`crate::residency`]).

use std::fmt;

/// Bytes held in memory, by part.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct MemoryReport {
    /// The budget that was set, or the part of a shared [`Budget`](crate::Budget) that this
    /// database may hold now.
    pub budget_bytes: u64,
    /// The part of a shared budget that it should hold, which it follows within a window; otherwise
    /// [`Self::budget_bytes`].
    pub budget_target_bytes: u64,
    /// The whole budget, shared or not.
    pub budget_total_bytes: u64,
    /// Size at which the settings seal memtables: the design's write buffer, or the limit that the
    /// budget allows. The division of memory moves it between a quarter and twice this size, as
    /// writes and reads need memory.
    pub memtable_bytes: u64,
    /// Parts and their bytes.
    pub parts: Vec<(String, u64)>,
    /// Their sum.
    pub ledger_bytes: u64,
    /// Maximum of the sum since the database was opened.
    pub peak_bytes: u64,
    /// Resident memory of the whole process as the operating system reports it; `None` where it
    /// does not.
    pub rss_bytes: Option<u64>,
    /// Filters and indexes held in memory, by level.
    pub levels: Vec<LevelMemory>,
    /// Value of memory for filters and indexes.
    pub prices: MemoryPrices,
}

impl fmt::Display for MemoryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (part, bytes) in &self.parts {
            writeln!(f, "{part:<18}{bytes:>14}")?;
        }
        writeln!(f, "{:<18}{:>14}", "accounted", self.ledger_bytes)?;
        write!(f, "{:<18}{:>14}", "peak", self.peak_bytes)?;
        if let Some(rss_bytes) = self.rss_bytes {
            write!(f, "\n{:<18}{rss_bytes:>14}", "resident (process)")?;
        }
        Ok(())
    }
}

/// Resident filters and indexes of one level of one keyspace.
#[derive(Clone, PartialEq, Debug, Default)]
#[non_exhaustive]
pub struct LevelMemory {
    /// The keyspace.
    pub keyspace: String,
    /// The level; 0 holds flushed runs.
    pub level: u32,
    /// Number of tables.
    pub tables: u64,
    /// Bytes of the resident filter slices.
    pub filter_held_bytes: u64,
    /// Bytes of dormant filters among them: resident while no other use for the memory exists, but
    /// not probed, because nearly all lookups find their key.
    pub filter_dormant_bytes: u64,
    /// Bytes of all slices.
    pub filter_bytes: u64,
    /// For each module, in the order of probing: resident slices, and all slices.
    pub modules: Vec<(u64, u64)>,
    /// Bytes of the resident index partitions.
    pub index_held_bytes: u64,
    /// Resident index partitions, and all of them.
    pub partitions: (u64, u64),
    /// Old name of [`Self::filter_dormant_bytes`].
    #[deprecated(since = "0.2.0", note = "renamed to `filter_dormant_bytes`")]
    pub filter_resting_bytes: u64,
}

/// Value of memory for filters and indexes as of the last plan, in expected nanoseconds saved per
/// second and byte. All 0 before the first plan, and if residency is not budgeted.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
#[non_exhaustive]
pub struct MemoryPrices {
    /// Saving of the next byte.
    pub filter_gain_per_byte: f64,
    /// Marginal saving of the least valuable resident byte, without dormant filters.
    pub filter_loss_per_byte: f64,
    /// Bytes of all filters and indexes that save anything, and of what is resident in any case.
    pub filter_useful_bytes: u64,
    /// Modelled cost of lookups and seeks beyond memtables, in nanoseconds per second.
    pub model_cost_ns_per_second: f64,
    /// Modelled reads per lookup (filter slices, index partitions, data blocks) with the present
    /// residency. The model uses the sampled lookups, the measured false-positive rates, and the
    /// block cache hit rate.
    pub model_reads_per_lookup: f64,
    /// The same with the filter modules and index partitions that minimize the time of lookups
    /// alone, using all of the budget that memtables and the tables' own data leave.
    pub ideal_reads_per_lookup: f64,
    /// Old name of [`Self::ideal_reads_per_lookup`].
    #[deprecated(since = "0.2.0", note = "renamed to `ideal_reads_per_lookup`")]
    pub fewest_reads_per_lookup: f64,
}
