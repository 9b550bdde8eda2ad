//! The compared designs: the usual default, other systems' defaults, and the navigator's choice,
//! all with the same memory.

use shamba::Design;
use shamba_model::MergePolicy;
use shamba_model::allocation::Allocation;
use shamba_model::cost::{
    CpuTimes, DataSet, Device, FENCE_BYTES_PER_PAGE, FilterBits, Plan, Situation, predict_merging,
};
use shamba_model::miss_ratio::MissRatioCurve;
use shamba_model::navigator::{Bounds, LargestBuffer, Options, navigate};
use shamba_model::presets::{Preset, PresetBuffer};

use super::{DEVICE_US, ENTRY_BYTES, Mix, RANGE_ENTRIES, Setting};

/// Time of reading, merging and writing a page in a compaction: up to a quarter of a MiB at once on
/// this device, plus the CPU time of its entries. Measured: 36 us (compactions of a GiB and more
/// with one thread, 105 to 120 MB/s). But compactions run concurrently with the client, on another
/// core, and the model adds both times: it gets half of the measured time, which is right where
/// neither waits for the other all the time.
pub const MERGE_PAGE_NS: f64 = 18_000.0;
/// A put into the memtable.
const PUT_NS: f64 = 600.0;
const PAGE_BYTES: u64 = 4096;
/// No write buffer is smaller than this: what each flush costs whatever it writes is not in the
/// model.
const BUFFER_BYTES_MIN: u64 = 512 << 10;
/// As the engine is.
const OPTIONS: Options = Options {
    sensitivity: false,
    smallest_buffer_bytes: BUFFER_BYTES_MIN,
    // As measured: the memory of a setting is the remainder of the engine's budget, not the budget.
    largest_buffer: LargestBuffer::AllMemory,
    ..Options::ENGINE
};
/// Memory that the engine reserves for one flush and one compaction, in addition to a thirty-second
/// of its budget.
const WORK_BYTES: f64 = (1792 << 10) as f64;
/// Memory of an open table per byte of its file.
const TABLE_BYTES_PER_BYTE: f64 = 2.0 / 2048.0;

/// A design that takes part.
#[derive(Clone, Debug)]
pub struct Entrant {
    /// Whose it is.
    pub name: &'static str,
    /// The design and its memory.
    pub plan: Plan,
    /// Predictions of the model for the mix.
    pub predicted: Predicted,
}

/// Predictions of the model.
#[derive(Clone, Copy, Debug)]
pub struct Predicted {
    /// Operations a second, one after the other.
    pub ops_per_s: f64,
    /// Pages that a lookup of the mix reads.
    pub reads_per_lookup: f64,
    /// The I/Os of an update, reads and writes of pages.
    pub update_ios: f64,
}

impl Entrant {
    /// The design as the engine takes it.
    pub fn design(&self) -> Design {
        self.plan.design
    }

    /// Label that distinguishes the trees of two designs.
    pub fn label(&self) -> String {
        let design = self.plan.design;
        format!(
            "T{}-K{}-Z{}-{}-{:.3}-{}",
            design.size_ratio,
            design.inner_runs,
            design.last_runs,
            design.buffer_bytes,
            design.bits_per_key,
            self.plan.allocation
        )
    }
}

/// All who take part in `mix`: the default first, the navigator's choice last.
///
/// # Errors
/// Errors of the model for the setting.
pub fn entrants(setting: &Setting, mix: &Mix) -> Result<Vec<Entrant>, String> {
    let situation = situation(setting, mix);
    let mut all =
        vec![entrant("default", usual(setting, MergePolicy::Leveling, 10.0, 10.0, u64::MAX)?, setting, mix)?];
    for preset in Preset::ALL {
        let buffer_bytes = match preset.buffer {
            PresetBuffer::Bytes(bytes) => bytes,
            PresetBuffer::OfMemory(share) => (setting.memory_bytes() as f64 * share) as u64,
        };
        let plan = usual(setting, preset.policy, preset.size_ratio, preset.bits_per_key, buffer_bytes)?;
        // LevelDB and RocksDB with the same memory are the default.
        if all.iter().all(|other| other.plan.design != plan.design) {
            all.push(entrant(preset.name, plan, setting, mix)?);
        }
    }
    let bounds =
        Bounds { memory_bytes: usable_bytes(setting) as u64, max_lookup_ios: None, max_update_ios: None };
    let mut plan = navigate(&situation, &bounds, &OPTIONS)?.plan;
    // The model's buffer is just large enough for its levels; filters and cache get the remaining
    // memory.
    plan.design.bits_per_key = bits_per_key(&plan, setting);
    all.push(entrant("navigator", plan, setting, mix)?);
    Ok(all)
}

fn entrant(name: &'static str, plan: Plan, setting: &Setting, mix: &Mix) -> Result<Entrant, String> {
    let situation = situation(setting, mix);
    let costs = predict_merging(&situation, &plan, OPTIONS.merging)?;
    // The shares as they are, each with its own time.
    let lookups = mix.empty_lookups + mix.found_lookups;
    let update_ns = PUT_NS + costs.update_ns * merge_page_share();
    let ns = lookups * costs.lookup_ns + mix.updates * update_ns + mix.ranges * costs.range_ns;
    let predicted =
        Predicted { ops_per_s: 1e9 / ns, reads_per_lookup: costs.lookup_reads, update_ios: costs.update_ios };
    Ok(Entrant { name, plan, predicted })
}

/// Cost of a page in a compaction, relative to reading and writing it alone.
fn merge_page_share() -> f64 {
    MERGE_PAGE_NS / (2.0 * DEVICE_US * 1e3)
}

/// Memory available to a design: the total minus the engine's fixed needs.
pub(super) fn usable_bytes(setting: &Setting) -> f64 {
    let memory = setting.memory_bytes() as f64;
    let tables = (setting.entries * ENTRY_BYTES) as f64 * TABLE_BYTES_PER_BYTE;
    (memory - memory / 32.0 - WORK_BYTES - tables).max(0.0)
}

fn situation(setting: &Setting, mix: &Mix) -> Situation {
    let data = DataSet { entries: setting.entries, entry_bytes: ENTRY_BYTES as f64, page_bytes: PAGE_BYTES };
    let device = Device { read_ns: DEVICE_US * 1e3, write_ns: DEVICE_US * 1e3, cpu: CpuTimes::ENGINE };
    let range_selectivity = RANGE_ENTRIES as f64 / setting.entries as f64;
    Situation {
        data,
        workload: mix.workload(merge_page_share(), range_selectivity),
        device,
        locality: MissRatioCurve::EVEN,
    }
}

/// A design with uniform filters in the memory that all have. What it does not use is block cache.
fn usual(
    setting: &Setting,
    policy: MergePolicy,
    size_ratio: f64,
    bits_per_key: f64,
    buffer_bytes: u64,
) -> Result<Plan, String> {
    let buffers = OPTIONS.buffers;
    let pages = setting.entries as f64 * ENTRY_BYTES as f64 / PAGE_BYTES as f64;
    let filter_bytes = setting.entries as f64 * bits_per_key / 8.0;
    // Who has more filters than fit keeps those that save most, as the engine always does.
    let left = usable_bytes(setting) - pages * FENCE_BYTES_PER_PAGE - filter_bytes;
    let most = (left / 2.0 / buffers).max(BUFFER_BYTES_MIN as f64);
    let buffer_bytes = (buffer_bytes as f64).min(most).max(BUFFER_BYTES_MIN as f64);
    Ok(Plan {
        design: Design::new(policy, size_ratio, buffer_bytes as u64, bits_per_key),
        filters: FilterBits::PerKey(bits_per_key),
        allocation: Allocation::Uniform,
        // `as` saturates: none where there is nothing left.
        cache_bytes: (left - buffers * buffer_bytes) as u64,
        levels: None,
    })
}

fn bits_per_key(plan: &Plan, setting: &Setting) -> f64 {
    match plan.filters {
        FilterBits::PerKey(bits) => bits,
        FilterBits::Bytes(bytes) => bytes * 8.0 / setting.entries as f64,
    }
}
