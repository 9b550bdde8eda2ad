//! The cost of a design in a situation: I/Os of lookups, updates and ranges, memory, time.
//!
//! [`predict`] takes a [`Situation`] (data, workload, device) and a [`Plan`] (a design and a use of
//! memory) and returns [`Costs`]. It uses the closed forms ([`crate::monkey`], [`crate::updates`])
//! and, in separate fields named `*_exact`, the sums for the tree's number of levels. The papers'
//! symbols: N `entries`, E `entry_bytes`, B the entries per page, phi `write_ns / read_ns`, v /
//! (v+1) the found share of lookups, s `range_selectivity`.
//!
//! Time consists of pages and CPU work: equations 21 and 22, with the CPU part added:
//!
//! ```text
//! lookup   reads * miss ratio * read_ns + hashes * hash_ns + filters * probe_ns
//!          + searches * search_ns
//! range    pages * (1 - share of pages cached) * read_ns + runs * search_ns
//! update   merges per entry / B * (read_ns + write_ns)
//! ```
//!
//! **The block cache.** A cache of c bytes is assumed to hold the share c / (N E) of all data
//! pages. The share of lookups' page reads that miss at that size is the situation's
//! [`locality`](Situation::locality): 1 - share for lookups that are spread evenly over the keys,
//! less for skewed ones. Ranges are assumed to be spread evenly. Compactions bypass the cache.
//! Filters and fences are in memory and cost no I/O.
//!
//! The tree is the papers' perfect one: every level is full, each T times the one above. Every
//! answer is finite: input that is NaN or out of bounds, or a result that exceeds the range of a
//! float, is an error.
//!
//! Not here: the search for the best design ([`crate::navigator`]).

mod checked;
mod lookups;
mod remerged;

pub use checked::OperationShares;
pub(crate) use checked::finite;
pub use lookups::{LookupWork, RunGroup, empty_lookup, found_lookup};

use crate::Design;
use crate::allocation::Allocation;
use crate::input;
use crate::miss_ratio::MissRatioCurve;
use crate::monkey::{PaperTree, bloom_fpr};
use crate::updates::{MergeShape, Merging};

/// Memory of an index per data page: the prefix of a key and a position. The Monkey paper's figure.
pub const FENCE_BYTES_PER_PAGE: f64 = 24.0;

/// The stored data.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DataSet {
    /// N: entries in the tree; at least 1.
    pub entries: u64,
    /// E: the bytes of an entry on storage; above 0.
    pub entry_bytes: f64,
    /// The bytes of a page; at least 1. B, the entries per page, is this over `entry_bytes`.
    pub page_bytes: u64,
}

/// The operations: rates or shares in any unit, of which only the proportions count; not all 0.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Workload {
    /// Lookups that find nothing.
    pub empty_lookups: f64,
    /// Lookups that find their key.
    pub found_lookups: f64,
    /// Puts and deletes.
    pub updates: f64,
    /// Range lookups.
    pub ranges: f64,
    /// s: the share of all entries that one range reads, from 0 to 1.
    pub range_selectivity: f64,
}

/// Times of pages and of CPU work.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Device {
    /// Reading a page, in nanoseconds; above 0.
    pub read_ns: f64,
    /// Writing a page, in nanoseconds. phi is this over `read_ns`.
    pub write_ns: f64,
    /// CPU times.
    pub cpu: CpuTimes,
}

/// CPU times of the parts of a lookup, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CpuTimes {
    /// T_H: hashing a key.
    pub hash_ns: f64,
    /// T_P: probing a filter.
    pub probe_ns: f64,
    /// Searching a run's index and a page of it.
    pub search_ns: f64,
    /// Whether a key is hashed once for all filters of a lookup, or for each.
    pub shared_digest: bool,
}

impl Costs {
    /// The time of an operation relative to `other`'s; 1 where both take none.
    pub fn times_the_cost_of(&self, other: &Self) -> f64 {
        let (mine, its) = (self.cost_ns_per_op, other.cost_ns_per_op);
        if mine == its { 1.0 } else { (mine / its).min(f64::MAX) }
    }
}

impl CpuTimes {
    /// CPU work costs nothing, as in the papers.
    pub const NONE: Self = Self { hash_ns: 0.0, probe_ns: 0.0, search_ns: 0.0, shared_digest: true };
    /// Times measured on the machine of `docs/results/speed.md`, rounded.
    pub const ENGINE: Self = Self { hash_ns: 10.0, probe_ns: 15.0, search_ns: 300.0, shared_digest: true };
}

/// Data, workload and device, and the locality of lookups.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Situation {
    /// The stored data.
    pub data: DataSet,
    /// The operations on it.
    pub workload: Workload,
    /// The storage device and the CPU.
    pub device: Device,
    /// The share of lookups' page reads that miss in a block cache, as a function of the share of
    /// the data that it holds.
    pub locality: MissRatioCurve,
}

/// The memory of the filters.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum FilterBits {
    /// Bits for each entry, on average.
    PerKey(f64),
    /// M_filt, in bytes, whatever the number of entries.
    Bytes(f64),
}

/// A design, and a use of memory.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Plan {
    /// T, K, Z and the buffer. Its bits per key are ignored: `filters` counts.
    pub design: Design,
    /// The filters' memory.
    pub filters: FilterBits,
    /// The allocation of the filters' memory. Monkey follows the empty share of the workload's
    /// lookups. Workload is the same here, because measured probes of even lookups would have the
    /// same rates.
    pub allocation: Allocation,
    /// The block cache; 0 for none, as in the papers.
    pub cache_bytes: u64,
    /// L; `None` for the number of levels that the data needs by equation 1.
    pub levels: Option<u32>,
}

/// The costs of a plan in a situation.
#[derive(Clone, PartialEq, Debug)]
pub struct Costs {
    /// L.
    pub levels: u32,
    /// L_unfiltered: the number of levels whose filters have no bits.
    pub unfiltered_levels: u32,
    /// The number of runs, when each level has its maximum.
    pub runs: u64,
    /// The false-positive rate of each filter of a level, smallest level first.
    pub fpr_per_level: Vec<f64>,
    /// The bits per key of each filter of a level, smallest level first.
    pub bits_per_key_per_level: Vec<f64>,
    /// The filters' memory.
    pub filter_bytes: f64,
    /// The memory of the fences that are held: [`FENCE_BYTES_PER_PAGE`] for each of their pages of
    /// data.
    pub fence_bytes: f64,
    /// The share of data pages that the block cache holds.
    pub cached_share: f64,
    /// The share of lookups' page reads that miss in it.
    pub cache_miss_ratio: f64,
    /// R by closed form, equation 7 or 56: the I/Os of a lookup that finds nothing. This and the
    /// following fields are without the cache.
    pub zero_result_lookup_ios: f64,
    /// R for this number of levels.
    pub zero_result_lookup_ios_exact: f64,
    /// V (equation 9) by closed form: the I/Os of a lookup that finds its key in the oldest run.
    pub nonzero_result_lookup_ios: f64,
    /// V for this number of levels.
    pub nonzero_result_lookup_ios_exact: f64,
    /// Z (equations 13, 19, 20) by closed form: the I/Os of a lookup of the workload's mix.
    pub mixed_lookup_ios: f64,
    /// Z for this number of levels.
    pub mixed_lookup_ios_exact: f64,
    /// The I/Os of a lookup that finds its key, drawn evenly over all entries, for this number of
    /// levels.
    pub found_lookup_ios: f64,
    /// W (equation 10): the I/Os of an update, in reads, when whole levels are compacted.
    pub update_ios: f64,
    /// The I/Os of an update, in reads, as levels are compacted here: the basis of its time;
    /// equation 10 for whole levels.
    pub merged_update_ios: f64,
    /// Q (equation 11): the I/Os of a range lookup.
    pub range_ios: f64,
    /// theta (equation 21): the I/Os of an operation of the workload: its shares times Z by closed
    /// form, W and Q.
    pub operation_ios: f64,
    /// Bytes that flushes and compactions write per byte flushed.
    pub write_amplification: f64,
    /// Bytes stored per byte of live data, with the maximum number of obsolete entries.
    pub space_amplification: f64,
    /// Filters that a lookup of the mix probes.
    pub filters_per_lookup: f64,
    /// Hashes that a lookup of the mix computes.
    pub hashes_per_lookup: f64,
    /// CPU time of a lookup of the mix, in nanoseconds.
    pub cpu_ns_per_lookup: f64,
    /// R with the cache: the reads of a lookup that finds nothing, counted as in
    /// [`Self::lookup_reads`].
    pub empty_lookup_reads: f64,
    /// V with the cache: the reads of a lookup that finds its key, counted as in
    /// [`Self::lookup_reads`].
    pub found_lookup_reads: f64,
    /// The reads of a lookup of the mix that the cache does not save, including those of fences
    /// that are not held. Keys that are found are drawn evenly.
    pub lookup_reads: f64,
    /// Time of a lookup of the mix, in nanoseconds.
    pub lookup_ns: f64,
    /// Time of a lookup that finds nothing, in nanoseconds.
    pub empty_lookup_ns: f64,
    /// Time of a lookup that finds its key, drawn evenly over all entries, in nanoseconds.
    pub found_lookup_ns: f64,
    /// Time of an update, in nanoseconds.
    pub update_ns: f64,
    /// Time of a range lookup, in nanoseconds.
    pub range_ns: f64,
    /// Time of an operation of the workload, in nanoseconds.
    pub cost_ns_per_op: f64,
    /// tau (equation 22): operations of the workload per second, executed serially; the largest
    /// float where nothing takes time.
    pub throughput_per_s: f64,
}

/// The costs of `plan` in `situation`, when whole levels are compacted, as in the papers.
///
/// # Errors
/// Input that is NaN or out of bounds, or results that exceed the range of a float, with the
/// reason.
pub fn predict(situation: &Situation, plan: &Plan) -> Result<Costs, String> {
    predict_merging(situation, plan, Merging::WholeLevels)
}

/// The costs of `plan` in `situation`, when levels are compacted as `merging` says. Only the time
/// of updates, what follows from it, [`Costs::merged_update_ios`] and
/// [`Costs::write_amplification`] depend on it; [`Costs::update_ios`] is always equation 10.
///
/// # Errors
/// As [`predict`].
pub fn predict_merging(situation: &Situation, plan: &Plan, merging: Merging) -> Result<Costs, String> {
    predict_held(situation, plan, merging, 1.0)
}

/// The same where memory holds only the share `held_fences` of the fences. Each search of a run
/// whose fences are not held reads them first: one page more.
///
/// # Errors
/// As [`predict`], or a share outside 0 to 1.
pub fn predict_held(
    situation: &Situation,
    plan: &Plan,
    merging: Merging,
    held_fences: f64,
) -> Result<Costs, String> {
    input::share("the share of the fences that is held", held_fences)?;
    situation.validate()?;
    plan.design.validate()?;
    let Situation { data, workload, device, locality } = situation;
    let design = &plan.design;
    let levels = plan.levels.map_or_else(|| data.levels(design), Ok)?;
    let runs = (f64::from(design.inner_runs), f64::from(design.last_runs));
    let tree = PaperTree::fluid(design.size_ratio, runs, levels, data.entries)?;
    let empty_fraction = workload.empty_fraction();
    let filter_bits = plan.filters.bits(data.entries)?;

    let (closed, bits_per_key_per_level) = match plan.allocation {
        Allocation::Uniform => (
            tree.lookups_uniform(filter_bits, empty_fraction)?,
            vec![filter_bits / data.entries as f64; levels as usize],
        ),
        Allocation::Monkey | Allocation::Workload => (
            tree.lookups_closed(filter_bits, empty_fraction)?,
            tree.best_bits_per_key_exact(filter_bits, empty_fraction)?,
        ),
    };
    let fprs: Vec<f64> = bits_per_key_per_level.iter().copied().map(bloom_fpr).collect();
    let exact = tree.lookups_of(&fprs, empty_fraction);
    let group = |(level, fpr): (u32, &f64)| RunGroup {
        runs: tree.runs(level),
        entries: tree.level_entries(level),
        fpr: *fpr,
    };
    let groups: Vec<RunGroup> = (1..).zip(&fprs).map(group).collect();
    let found = found_lookup(&groups);
    let empty = empty_lookup(&groups);
    let lookup = LookupWork::mix(empty, found, empty_fraction);

    let shape = MergeShape { size_ratio: design.size_ratio, inner_runs: runs.0, last_runs: runs.1, levels };
    let cached_share = (plan.cache_bytes as f64 / data.bytes()).min(1.0);
    let range_ios = shape.range_ios(data.pages(), workload.range_selectivity);
    let hashes_per_lookup = device.cpu.hashes(lookup.filters);
    let cpu_ns_per_lookup = device.cpu.lookup_ns(lookup);
    let (cache_miss_ratio, reads_of_fences) = (locality.miss_ratio(cached_share), 1.0 - held_fences);
    let reads_of = |work: LookupWork| work.searches * (cache_miss_ratio + reads_of_fences);
    let time_of = |work: LookupWork| reads_of(work) * device.read_ns + device.cpu.lookup_ns(work);
    let lookup_ns = time_of(lookup);
    let merged_pages = shape.merges_per_entry(merging) / data.entries_per_page();
    let update_ns = merged_pages * (device.read_ns + device.write_ns);
    let merged_update_ios = merged_pages * (1.0 + device.write_per_read());
    let range_reads = range_ios * (1.0 - cached_share) + shape.run_count() * reads_of_fences;
    let range_ns = range_reads * device.read_ns + shape.run_count() * device.cpu.search_ns;
    let update_ios = shape.update_ios(data.entries_per_page(), device.write_per_read());
    let shares = workload.shares();
    let operation_ios =
        shares.lookups * closed.mixed_cost + shares.updates * update_ios + shares.ranges * range_ios;
    let cost_ns_per_op = shares.lookups * lookup_ns + shares.updates * update_ns + shares.ranges * range_ns;

    let costs = Costs {
        levels,
        unfiltered_levels: exact.unfiltered_levels,
        runs: u64::from(levels - 1) * u64::from(design.inner_runs) + u64::from(design.last_runs),
        fpr_per_level: fprs,
        bits_per_key_per_level,
        filter_bytes: filter_bits / 8.0,
        fence_bytes: data.pages() * FENCE_BYTES_PER_PAGE * held_fences,
        cached_share,
        cache_miss_ratio,
        zero_result_lookup_ios: closed.zero_result_cost,
        zero_result_lookup_ios_exact: exact.zero_result_cost,
        nonzero_result_lookup_ios: closed.found_cost,
        nonzero_result_lookup_ios_exact: exact.found_cost,
        mixed_lookup_ios: closed.mixed_cost,
        mixed_lookup_ios_exact: exact.mixed_cost,
        found_lookup_ios: found.searches,
        update_ios,
        merged_update_ios,
        range_ios,
        operation_ios,
        write_amplification: shape.write_amplification(merging),
        space_amplification: shape.space_amplification(tree.level_entries(levels) / data.entries as f64),
        filters_per_lookup: lookup.filters,
        hashes_per_lookup,
        cpu_ns_per_lookup,
        empty_lookup_reads: reads_of(empty),
        found_lookup_reads: reads_of(found),
        lookup_reads: reads_of(lookup),
        lookup_ns,
        empty_lookup_ns: time_of(empty),
        found_lookup_ns: time_of(found),
        update_ns,
        range_ns,
        cost_ns_per_op,
        throughput_per_s: (1e9 / cost_ns_per_op).min(f64::MAX),
    };
    finite(costs)
}

#[cfg(test)]
pub(crate) mod tests;
