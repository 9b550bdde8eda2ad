//! The judge: the cost of a design for the present database, in nanoseconds per operation. Pure.
//!
//! The cost model knows a design's *steady* tree, which has as many runs as continuous writes
//! produce. A reader meets the *present* tree, which changes little while there are few writes. The
//! costs of lookups and ranges are therefore a weighted mean over both trees. The weight of the
//! steady tree is the share of the data that writes will replace within [`HORIZON_S`]. Updates are
//! judged by the model alone.
//!
//! Three inputs of the model are adapted to the engine. Flushed runs are compacted in *batches*, so
//! the model's write buffer is a batch. Compactions read and write sequentially, so their cost per
//! page is measured separately and does not follow from the cost of a lookup's read. The model's
//! filters are Bloom filters; those of another layout count as Bloom filters of the same rate.
//!
//! If the mix of operations changes from window to window, designs are compared by the worst mix
//! within that divergence of the observed one ([`shamba_model::robust`]).
//!
//! Not here: the origin of the inputs, and acting on the result ([`super`]).

use shamba_filter::{FilterLayout, measured};
use shamba_model::allocation::Allocation;
use shamba_model::cost::{
    CpuTimes, DataSet, Device, FilterBits, LookupWork, Plan, RunGroup, Situation, Workload as Asked,
    empty_lookup, found_lookup, predict_merging,
};
use shamba_model::miss_ratio::MissRatioCurve;
use shamba_model::monkey::bloom_bits_per_key;
use shamba_model::navigator::{Bounds, LargestBuffer, Options, navigate};
use shamba_model::robust::worst;
use shamba_model::updates::{MergeShape, Merging};
use shamba_model::{Design, MergePolicy};

use crate::tree_design::TreeDesign;
use crate::workload::Workload;

/// Unit of a read.
const PAGE_BYTES: u64 = 4096;
/// CPU times in nanoseconds: hashing a key; checking fences and filter of a run; searching an index
/// and a block.
const HASH_NS: f64 = 20.0;
const PROBE_NS: f64 = 60.0;
const SEARCH_NS: f64 = 600.0;
/// Fixed times of operations in nanoseconds, independent of the design: a lookup, an update (with
/// its log record), a range.
const LOOKUP_NS: f64 = 180.0;
const UPDATE_NS: f64 = 700.0;
const RANGE_NS: f64 = 3_000.0;
/// Weight of the prior, as a fraction of all operations: lookups and ranges, half of the lookups
/// empty, are added to the observed mix. Without it, a pure write workload would choose a design
/// with hundreds of runs, which later reads would have to search.
const PRIOR_PART: f64 = 0.02;
/// Time in seconds within which a tree must be replaced completely to be judged by its design
/// alone.
const HORIZON_S: f64 = 300.0;
/// Maximum runs of a tiered level: each run is one more place to search, and at least one open
/// table.
const RUNS_MAX: f64 = 11.0;
/// Maximum size ratio of leveled levels.
const RATIO_MAX: f64 = 32.0;
/// Minimum increase of filter bits per key that advice proposes, because other filters require a
/// rewrite of all tables. Advice never reduces the bits. The part of a filter that is not in memory
/// costs only disk space, and is available when lookups return.
const BITS_STEP: f64 = 2.5;
/// Maximum bits per key that advice proposes: more are never worth their memory.
const BITS_MAX: f64 = 16.0;

/// All inputs of a judgement.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Scene {
    pub workload: Workload,
    /// Updates per second in the latest window: the rate at which the present data is replaced.
    pub updates_per_s: f64,
    /// Entries in tables, and their bytes.
    pub entries: u64,
    pub bytes: u64,
    /// Memory shared by filters, buffers, block cache and fences.
    pub memory_bytes: u64,
    /// The smallest and the largest write buffer that the budget allows.
    pub buffer_bytes: (u64, u64),
    /// Flushed runs that are compacted at once.
    pub batch_runs: f64,
    pub merging: Merging,
    /// Time to read a page in a lookup, and to move a byte in a compaction.
    pub read_ns: f64,
    pub move_ns_per_byte: f64,
    pub shared_digest: bool,
    /// Divergence from the observed mix within which a design must do well.
    pub uncertainty: f64,
    pub in_force: TreeDesign,
    /// Layout of the filters.
    pub layout: FilterLayout,
    /// How lookups repeat: the share of their reads that a block cache of a given size serves.
    pub locality: MissRatioCurve,
}

/// A run of a real tree.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct RealRun {
    pub entries: u64,
    /// False-positive rate of its filters.
    pub fpr: f64,
}

/// Predicted costs of a design, in nanoseconds.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
#[non_exhaustive]
pub struct Prediction {
    /// A lookup, in the observed mix of empty and found ones.
    pub lookup_ns: f64,
    /// An update, including its share of compaction.
    pub update_ns: f64,
    /// A range scan of the observed length.
    pub range_ns: f64,
    /// An operation of the observed mix.
    pub operation_ns: f64,
    /// An operation of the worst mix within [`Advice::uncertainty`](crate::Advice::uncertainty), by
    /// which designs are compared; equal to `operation_ns` without an uncertainty.
    pub worst_operation_ns: f64,
    /// Pages that a lookup reads.
    pub lookup_reads: f64,
    /// Runs that a lookup or range has to consider.
    pub runs: f64,
    /// Bytes that flushes and compactions write per byte flushed.
    pub write_amplification: f64,
}

impl Scene {
    /// The database as input of the model.
    fn situation(&self) -> Situation {
        let seen = &self.workload;
        let prior = seen.operations().max(1.0) * PRIOR_PART;
        let entries_per_range = if seen.ranges > 0.0 { seen.entries_per_range() } else { 16.0 };
        let page_ns = self.move_ns_per_byte * PAGE_BYTES as f64;
        let write_ns = (page_ns - self.read_ns).max(0.0);
        // Where moving a page sequentially is cheaper than reading one in a lookup, the weight of
        // updates is reduced instead.
        let updates = seen.updates() * (page_ns / (self.read_ns + write_ns));
        Situation {
            data: DataSet {
                entries: self.entries.max(1),
                entry_bytes: self.entry_bytes(),
                page_bytes: PAGE_BYTES,
            },
            workload: Asked {
                empty_lookups: seen.empty_lookups + prior / 3.0,
                found_lookups: seen.found_lookups + prior / 3.0,
                updates,
                ranges: seen.ranges + prior / 3.0,
                range_selectivity: (entries_per_range / self.entries.max(1) as f64).min(1.0),
            },
            device: Device {
                read_ns: self.read_ns,
                write_ns,
                cpu: CpuTimes {
                    hash_ns: HASH_NS,
                    probe_ns: PROBE_NS,
                    search_ns: SEARCH_NS,
                    shared_digest: self.shared_digest,
                },
            },
            locality: self.locality,
        }
    }

    fn entry_bytes(&self) -> f64 {
        (self.bytes as f64 / self.entries.max(1) as f64).max(1.0)
    }

    /// Bits per key of the Bloom filter that has the rate of this layout with `bits_per_key`.
    fn bloom_bits_per_key(&self, bits_per_key: f64) -> f64 {
        bloom_bits_per_key(measured::fpr(self.layout, bits_per_key)).max(0.0)
    }

    /// The design as input of the model.
    fn plan(&self, target: &TreeDesign) -> Plan {
        let buffer_bytes = self.flushed_bytes(target);
        let filters = match target.filter_memory_bytes {
            Some(bytes) => FilterBits::Bytes(bytes as f64),
            None => FilterBits::PerKey(target.design.bits_per_key),
        };
        let filter_bits = filters.bits(self.entries.max(1)).unwrap_or(0.0);
        let filter_bytes = filter_bits / 8.0;
        let fence_bytes = self.bytes as f64 / PAGE_BYTES as f64 * Options::ENGINE.fence_bytes_per_page;
        let taken = filter_bytes + fence_bytes + buffer_bytes * Options::ENGINE.buffers;
        let batch_bytes = (buffer_bytes * self.batch_runs) as u64;
        Plan {
            design: Design { buffer_bytes: batch_bytes.max(1 << 10), ..target.design },
            filters: FilterBits::PerKey(self.bloom_bits_per_key(filter_bits / self.entries.max(1) as f64)),
            allocation: target.allocation,
            cache_bytes: (self.memory_bytes as f64 - taken).max(0.0) as u64,
            levels: None,
        }
    }

    /// Number of times that `design` merges an entry, of `entries` that take `bytes` in tables.
    ///
    /// # Errors
    /// A message when the model rejects the numbers.
    pub fn merges(&self, design: &TreeDesign, (entries, bytes): (u64, u64)) -> Result<f64, String> {
        let design = self.plan(design).design;
        let entry_bytes = (bytes as f64 / entries.max(1) as f64).max(1.0);
        let data = DataSet { entries: entries.max(1), entry_bytes, page_bytes: PAGE_BYTES };
        let shape = MergeShape {
            size_ratio: design.size_ratio,
            inner_runs: f64::from(design.inner_runs),
            last_runs: f64::from(design.last_runs),
            levels: data.levels(&design)?,
        };
        Ok(shape.merges_per_entry(self.merging))
    }

    /// Size of a flush: the write buffer, limited by memory.
    fn flushed_bytes(&self, target: &TreeDesign) -> f64 {
        target.design.buffer_bytes.min(self.buffer_bytes.1) as f64
    }

    /// Weight of a design's steady tree in a reader's costs.
    fn steady_part(&self) -> f64 {
        let replaced = self.updates_per_s * self.entry_bytes() * HORIZON_S;
        (replaced / self.bytes.max(1) as f64).min(1.0)
    }

    /// Costs of a design whose tree is `tree` after the pending compactions.
    ///
    /// # Errors
    /// A message when the model rejects the inputs.
    pub fn judge(&self, target: &TreeDesign, tree: &[RealRun]) -> Result<Prediction, String> {
        let situation = self.situation();
        let plan = self.plan(target);
        let steady = predict_merging(&situation, &plan, self.merging)?;
        let Situation { data, workload, device, .. } = situation;
        // Newest run first.
        let groups: Vec<RunGroup> = tree
            .iter()
            .map(|run| RunGroup { runs: 1.0, entries: run.entries as f64, fpr: run.fpr })
            .collect();
        let (empty, found) = (empty_lookup(&groups), found_lookup(&groups));
        let work = LookupWork::mix(empty, found, workload.empty_fraction());
        let missed = steady.cache_miss_ratio;
        let runs = tree.len() as f64;
        let pages = workload.range_selectivity * data.pages() + runs;
        let time_of = |work: LookupWork| work.searches * missed * device.read_ns + device.cpu.lookup_ns(work);
        let lookup_ns = time_of(work);
        let range_ns = pages * (1.0 - steady.cached_share) * device.read_ns + runs * device.cpu.search_ns;
        let part = self.steady_part();
        debug_assert!((0.0..=1.0).contains(&part), "a tree is in {part} of its steady state");
        let blend = |steady: f64, real: f64| steady * part + real * (1.0 - part);
        let per_byte_ns = self.move_ns_per_byte * self.entry_bytes();
        let prediction = Prediction {
            lookup_ns: LOOKUP_NS + blend(steady.lookup_ns, lookup_ns),
            update_ns: UPDATE_NS + steady.write_amplification * per_byte_ns,
            range_ns: RANGE_NS + blend(steady.range_ns, range_ns),
            operation_ns: 0.0,
            worst_operation_ns: 0.0,
            lookup_reads: blend(steady.lookup_reads, work.searches * missed),
            runs: blend(steady.runs as f64, runs),
            write_amplification: steady.write_amplification,
        };
        let Asked { empty_lookups, found_lookups, ranges, .. } = workload;
        let updates = self.workload.updates();
        let sum = (empty_lookups + found_lookups) * prediction.lookup_ns
            + updates * prediction.update_ns
            + ranges * prediction.range_ns;
        let operations = empty_lookups + found_lookups + updates + ranges;
        let operation_ns = sum / operations.max(f64::MIN_POSITIVE);
        let worst_operation_ns = match self.uncertainty > 0.0 {
            false => operation_ns,
            true => {
                let lookup = |steady: f64, real: LookupWork| LOOKUP_NS + blend(steady, time_of(real));
                let costs = [
                    lookup(steady.empty_lookup_ns, empty),
                    lookup(steady.found_lookup_ns, found),
                    prediction.update_ns,
                    prediction.range_ns,
                ];
                worst(&costs, &[empty_lookups, found_lookups, updates, ranges], self.uncertainty)?.cost
            }
        };
        Ok(Prediction { operation_ns, worst_operation_ns, ..prediction })
    }

    /// Candidates: the navigator's plan for each policy, and the design in force with other
    /// policies and size ratios.
    ///
    /// # Errors
    /// A message when the navigator rejects the inputs, such as too little memory.
    pub fn candidates(&self) -> Result<Vec<TreeDesign>, String> {
        let bounds = Bounds { memory_bytes: self.memory_bytes, max_lookup_ios: None, max_update_ios: None };
        let options = Options {
            // The model's buffer is a batch, of which memory holds one run.
            buffers: Options::ENGINE.buffers / self.batch_runs.max(1.0),
            // [`Self::target`] limits the buffer to the size that the budget allows.
            largest_buffer: LargestBuffer::AllMemory,
            smallest_buffer_bytes: (self.buffer_bytes.0 as f64 * self.batch_runs) as u64,
            growth: 1.3,
            allocation: self.navigated_allocation(),
            merging: self.merging,
            fluid: false,
            sensitivity: false,
            uncertainty: self.uncertainty,
            ..Options::ENGINE
        };
        let navigation = navigate(&self.situation(), &bounds, &options)?;
        let plans =
            [navigation.plan].into_iter().chain(navigation.alternatives.iter().map(|other| other.plan));
        let mut candidates: Vec<TreeDesign> = plans.map(|plan| self.target(&plan)).collect();
        let design = &self.in_force.design;
        for policy in MergePolicy::ALL {
            // With the last ratio most trees have one level.
            for size_ratio in [design.size_ratio, 4.0, 8.0, 32.0] {
                let size_ratio = size_ratio.min(ratio_max(policy));
                candidates.push(TreeDesign {
                    design: Design::new(policy, size_ratio, design.buffer_bytes, design.bits_per_key),
                    ..self.in_force
                });
            }
        }
        let mut distinct: Vec<TreeDesign> = Vec::new();
        for candidate in candidates {
            if !distinct.iter().any(|other| is_alike(other, &candidate)) {
                distinct.push(candidate);
            }
        }
        Ok(distinct)
    }

    /// The model's measured allocation equals Monkey for evenly spread lookups, the only ones that
    /// it models.
    fn navigated_allocation(&self) -> Allocation {
        self.in_force.allocation
    }

    /// Converts the model's plan to a design of the engine, within the limits of automatic changes.
    fn target(&self, plan: &Plan) -> TreeDesign {
        let policy = plan.design.policy().unwrap_or(MergePolicy::Leveling);
        let size_ratio = plan.design.size_ratio.min(ratio_max(policy));
        let (least, most) = self.buffer_bytes;
        let flushed = (plan.design.buffer_bytes as f64 / self.batch_runs.max(1.0)) as u64;
        // Multiples of a quarter of a MiB, for readability.
        let rounded = |bytes: u64| (bytes >> 18).max(1) << 18;
        let buffer_bytes = rounded(flushed).clamp(least, most.max(least));
        let bits = plan.filters.bits(self.entries.max(1)).unwrap_or(0.0) / self.entries.max(1) as f64;
        let bits = (bits.min(BITS_MAX) * 2.0).round() / 2.0;
        let TreeDesign { design: now, filter_memory_bytes, .. } = self.in_force;
        let keeps_bits = filter_memory_bytes.is_some() || bits < now.bits_per_key + BITS_STEP;
        let bits = if keeps_bits { now.bits_per_key } else { bits };
        let design = Design::new(policy, (size_ratio * 2.0).round() / 2.0, buffer_bytes, bits);
        TreeDesign { design, ..self.in_force }
    }
}

/// Maximum size ratio under a policy.
fn ratio_max(policy: MergePolicy) -> f64 {
    if policy == MergePolicy::Leveling { RATIO_MAX } else { RUNS_MAX }
}

/// Whether two designs are too similar for a move from one to the other.
pub(crate) fn is_alike(one: &TreeDesign, other: &TreeDesign) -> bool {
    let near = |a: f64, b: f64, times: f64| a.max(b) <= a.min(b) * times;
    let (a, b) = (&one.design, &other.design);
    (a.inner_runs > 1, a.last_runs > 1) == (b.inner_runs > 1, b.last_runs > 1)
        && near(a.size_ratio, b.size_ratio, 1.35)
        && near(a.buffer_bytes as f64, b.buffer_bytes as f64, 1.6)
        && (a.bits_per_key - b.bits_per_key).abs() < BITS_STEP
        && TreeDesign { design: one.design, ..*other } == *one
}
