//! The judge: what a design costs a database as it is, in nanoseconds an operation. Pure.
//!
//! The cost model knows a design's *steady* tree: as full of runs as it gets while writes come. What a reader meets now is
//! the tree that there *is*, and while little is written it stays so. So lookups and ranges are judged on both, in
//! proportion to how much of the data the writes of the next minutes will replace; updates by the model alone.
//!
//! Two figures of the model are turned into the engine's: a *batch* of flushed runs is merged down at once, and is the model's
//! buffer; and merges read and write in long strokes, so what a page of them costs is measured as a whole and does not follow
//! from what a lookup's read takes.
//!
//! Where the mix of operations changes from window to window, designs are compared by the worst mix within that
//! divergence of the observed one ([`shamba_model::robust`]).
//!
//! Not here: where the figures come from, and what is done about them ([`super`]).

use shamba_model::allocation::Allocation;
use shamba_model::cost::{
    CpuTimes, DataSet, Device, FilterBits, LookupWork, Plan, RunGroup, Situation, Workload as Asked,
    empty_lookup, found_lookup, predict_merging,
};
use shamba_model::miss_ratio::MissRatioCurve;
use shamba_model::monkey::bloom_fpr;
use shamba_model::navigator::{Bounds, LargestBuffer, Options, navigate};
use shamba_model::robust::worst;
use shamba_model::updates::Merging;
use shamba_model::{Design, MergePolicy};

use crate::redesign::TreeDesign;
use crate::workload::Workload;

/// What is read at once.
const PAGE_BYTES: u64 = 4096;
/// Hashing a key, asking a run's fences and filter, searching an index and a block of it.
const HASH_NS: f64 = 20.0;
const PROBE_NS: f64 = 60.0;
const SEARCH_NS: f64 = 600.0;
/// What operations take whatever the design: a lookup, an update (its log included), a range.
const LOOKUP_NS: f64 = 180.0;
const UPDATE_NS: f64 = 700.0;
const RANGE_NS: f64 = 3_000.0;
/// As if this part of all operations were lookups and ranges, half of the lookups in vain, whatever was seen: no design is so
/// bent on writing that a reader who comes tomorrow finds hundreds of runs.
const PRIOR_PART: f64 = 0.02;
/// A tree that is wholly replaced within this time is judged by its design alone.
const HORIZON_S: f64 = 300.0;
/// Tiered levels have no more runs than this: each is a place to look at, and an open table or more.
const RUNS_MOST: f64 = 11.0;
/// Leveled levels are no more than this times the one above.
const RATIO_MOST: f64 = 32.0;
/// Filter bits stay what they are unless there should be so many more a key: others mean writing all tables again. Fewer are
/// never written by advice: what memory does not hold of a filter costs nothing but its place on the disk, and when
/// somebody reads again it is there.
const BITS_STEP: f64 = 2.5;
/// More bits per key than this are not worth their memory to anybody.
const BITS_MOST: f64 = 16.0;

/// All that a judgement depends on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Scene {
    pub workload: Workload,
    /// Updates a second just now: whether what there is now will be replaced.
    pub updates_per_s: f64,
    /// Entries in tables, and their bytes.
    pub entries: u64,
    pub bytes: u64,
    /// What filters, buffers, block cache and fences share.
    pub memory_bytes: u64,
    /// The smallest and the largest write buffer that there is room for.
    pub buffer_bytes: (u64, u64),
    /// Flushed runs that are merged down at once.
    pub batch_runs: f64,
    pub merging: Merging,
    /// Reading a page in a lookup, and moving a byte in a merge.
    pub read_ns: f64,
    pub move_ns_per_byte: f64,
    pub shared_digest: bool,
    /// Divergence from the observed mix up to which a design must do well.
    pub uncertainty: f64,
    pub in_force: TreeDesign,
    /// How lookups repeat: what a block cache serves of their reads.
    pub locality: MissRatioCurve,
}

/// A run of a real tree.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct RealRun {
    pub entries: u64,
    pub bits_per_key: f64,
}

/// What a design is expected to cost, in nanoseconds.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
#[non_exhaustive]
pub struct Prediction {
    /// A lookup of the observed mix.
    pub lookup_ns: f64,
    /// An update, its share of merging included.
    pub update_ns: f64,
    /// A range of the observed length.
    pub range_ns: f64,
    /// An operation of the observed mix.
    pub operation_ns: f64,
    /// An operation of the worst mix within [`Advice::uncertainty`](crate::Advice::uncertainty), which designs are compared
    /// by; the same without an uncertainty.
    pub worst_operation_ns: f64,
    /// Pages that a lookup reads.
    pub lookup_reads: f64,
    /// Runs that a reader meets.
    pub runs: f64,
    /// Bytes that flushes and merges write for each byte flushed.
    pub write_amplification: f64,
}

impl Scene {
    /// The database in the model's words.
    fn situation(&self) -> Situation {
        let seen = &self.workload;
        let prior = seen.operations().max(1.0) * PRIOR_PART;
        let entries_per_range = if seen.ranges > 0.0 { seen.entries_per_range() } else { 16.0 };
        let page_ns = self.move_ns_per_byte * PAGE_BYTES as f64;
        let write_ns = (page_ns - self.read_ns).max(0.0);
        // Where long strokes are cheaper than the read of one page, updates count for less instead.
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

    /// The design as the model takes it.
    fn plan(&self, target: &TreeDesign) -> Plan {
        let buffer_bytes = self.flushed_bytes(target);
        let filters = match target.filter_memory_bytes {
            Some(bytes) => FilterBits::Bytes(bytes as f64),
            None => FilterBits::PerKey(target.design.bits_per_key),
        };
        let filter_bytes = filters.bits(self.entries.max(1)).unwrap_or(0.0) / 8.0;
        let fence_bytes = self.bytes as f64 / PAGE_BYTES as f64 * Options::ENGINE.fence_bytes_per_page;
        let taken = filter_bytes + fence_bytes + buffer_bytes * Options::ENGINE.buffers;
        let batch_bytes = (buffer_bytes * self.batch_runs) as u64;
        Plan {
            design: Design { buffer_bytes: batch_bytes.max(1 << 10), ..target.design },
            filters,
            allocation: target.allocation,
            cache_bytes: (self.memory_bytes as f64 - taken).max(0.0) as u64,
            levels: None,
        }
    }

    /// What a flush brings: the buffer, as far as there is room for it.
    fn flushed_bytes(&self, target: &TreeDesign) -> f64 {
        target.design.buffer_bytes.min(self.buffer_bytes.1) as f64
    }

    /// How much of a reader's cost comes from the steady tree of a design.
    fn steady_part(&self) -> f64 {
        let replaced = self.updates_per_s * self.entry_bytes() * HORIZON_S;
        (replaced / self.bytes.max(1) as f64).min(1.0)
    }

    /// What a design costs, if the tree would be this one at rest.
    ///
    /// # Errors
    /// Figures that the model refuses.
    pub fn judge(&self, target: &TreeDesign, tree: &[RealRun]) -> Result<Prediction, String> {
        let situation = self.situation();
        let plan = self.plan(target);
        let steady = predict_merging(&situation, &plan, self.merging)?;
        let Situation { data, workload, device, .. } = situation;
        // The newest run first.
        let groups: Vec<RunGroup> = tree
            .iter()
            .map(|run| RunGroup { runs: 1.0, entries: run.entries as f64, fpr: bloom_fpr(run.bits_per_key) })
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

    /// Designs that are worth a closer look: what the navigator says for each policy, and what is in force with other
    /// runs.
    ///
    /// # Errors
    /// What the navigator refuses: a memory too small, say.
    pub fn candidates(&self) -> Result<Vec<TreeDesign>, String> {
        let bounds = Bounds { memory_bytes: self.memory_bytes, max_lookup_ios: None, max_update_ios: None };
        let options = Options {
            // The model's buffer is a batch of which the memory holds one run.
            buffers: Options::ENGINE.buffers / self.batch_runs.max(1.0),
            // The target's is cut to what the budget has room for.
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
            // The last so large that most trees have one level.
            for size_ratio in [design.size_ratio, 4.0, 8.0, 32.0] {
                let size_ratio = size_ratio.min(most_ratio(policy));
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

    /// The model's measured allocation is Monkey for lookups that are spread evenly, which is all that it knows.
    fn navigated_allocation(&self) -> Allocation {
        self.in_force.allocation
    }

    /// The model's design as the engine's, within what the engine is ready to do by itself.
    fn target(&self, plan: &Plan) -> TreeDesign {
        let policy = plan.design.policy().unwrap_or(MergePolicy::Leveling);
        let size_ratio = plan.design.size_ratio.min(most_ratio(policy));
        let (least, most) = self.buffer_bytes;
        let flushed = (plan.design.buffer_bytes as f64 / self.batch_runs.max(1.0)) as u64;
        // Whole quarters of a MiB: a design that people read.
        let rounded = |bytes: u64| (bytes >> 18).max(1) << 18;
        let buffer_bytes = rounded(flushed).clamp(least, most.max(least));
        let bits = plan.filters.bits(self.entries.max(1)).unwrap_or(0.0) / self.entries.max(1) as f64;
        let bits = (bits.min(BITS_MOST) * 2.0).round() / 2.0;
        let TreeDesign { design: now, filter_memory_bytes, allocation } = self.in_force;
        let keeps_bits = filter_memory_bytes.is_some() || bits < now.bits_per_key + BITS_STEP;
        let bits = if keeps_bits { now.bits_per_key } else { bits };
        let design = Design::new(policy, (size_ratio * 2.0).round() / 2.0, buffer_bytes, bits);
        TreeDesign { design, filter_memory_bytes, allocation }
    }
}

/// How large T may be.
fn most_ratio(policy: MergePolicy) -> f64 {
    if policy == MergePolicy::Leveling { RATIO_MOST } else { RUNS_MOST }
}

/// Whether nobody would move a database from the one to the other.
pub(crate) fn is_alike(one: &TreeDesign, other: &TreeDesign) -> bool {
    let near = |a: f64, b: f64, times: f64| a.max(b) <= a.min(b) * times;
    let (a, b) = (&one.design, &other.design);
    (a.inner_runs > 1, a.last_runs > 1) == (b.inner_runs > 1, b.last_runs > 1)
        && near(a.size_ratio, b.size_ratio, 1.35)
        && near(a.buffer_bytes as f64, b.buffer_bytes as f64, 1.6)
        && (a.bits_per_key - b.bits_per_key).abs() < BITS_STEP
        && one.filter_memory_bytes == other.filter_memory_bytes
        && one.allocation == other.allocation
}
