//! Benchmark of the navigator's choice against the default designs of other systems, with the same
//! memory.
//!
//! The setting is that of the Monkey paper's comparison: entries of 116 bytes, memory of 2 % of the
//! data, an emulated device of 100 us per read, and mixes of empty lookups and updates; in addition
//! mixes with found lookups and short ranges. For each mix the compared designs are the navigator's
//! choice ([`entrants`]), the usual default (leveling, T = 10, uniform 10 bits per key; also
//! LevelDB's and RocksDB's) and other systems' defaults. All have the same memory: a write buffer
//! that does not fit next to filters and index is reduced.
//!
//! A tree begins with all entries sorted in its last level; then a uniform sample of them is put
//! again, until the levels above have the shape of the design ([`fill`]), without emulation and
//! with ample memory. (With T = 2 the levels above hold as much as the last one, and with tiering
//! the last level has many runs: these trees have not reached their final shape, which is an
//! advantage for them.) The tree is copied for each mix. A run ([`run`]) opens a copy with the
//! common memory budget on the slow device and executes the mix: first a warm-up, then the measured
//! part, until enough write buffers are flushed that compactions had to follow. There is one client
//! thread and one compaction thread. The increase of compaction debt during the run is charged: the
//! time to work it off is added, so that no design gains by deferring work.
//!
//! **The device.** Each read or write takes a fixed time, independent of its length. Compactions
//! read and write a quarter of a MiB at once, so a page of a compaction costs far less than a page
//! of a lookup, mostly CPU time. The model has one price for a page, so the navigator gets the
//! updates scaled in proportion: [`MERGE_PAGE_NS`] relative to reading and writing one page.
//!
//! Not here: starting the processes, and the figure (example `experiment`).

mod entrants;
mod mixes;

use std::path::Path;
use std::time::{Duration, Instant};

use shamba::{Builder, Db, Error, Sizing, Stats};

pub use self::entrants::{Entrant, MERGE_PAGE_NS, Predicted, entrants};
pub use self::mixes::{MIXES, Mix};
use shamba_model::cost::FilterBits;

use crate::checks::watch::parts_json;
use crate::items::Items;
use shamba_workload::Permutation;
use shamba_workload::mix2;
use shamba_workload::{Distribution, Picker};

/// Bytes of an entry, and the share of the data that the memory is.
const ENTRY_BYTES: u64 = 116;
const MEMORY_SHARE: f64 = 0.02;
/// A read of the device, in microseconds; writes take as long.
const DEVICE_US: f64 = 100.0;
/// Trees grow with this memory.
const FILL_BUDGET_BYTES: u64 = 256 << 20;
/// Entries of a short range.
const RANGE_ENTRIES: usize = 16;
/// Operations between two looks at the clock.
const ROUND: u64 = 64;
/// Compaction debt below this, or below this many write buffers, counts as none.
const DEBT_BYTES_MIN: u64 = 4 << 20;
const INBOX_RUNS: u64 = 24;
/// Nobody waits longer for what merges owe.
const PAYING_MAX: Duration = Duration::from_secs(120);
/// Write buffers flushed in the measured part of a run, if its time allows.
const FLUSHES_WANTED: u64 = 24;

/// The size of everything.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Entries in the tree.
    pub entries: u64,
    /// The part of the entries that is put again after the first load.
    pub grown_share: f64,
    /// Seed of the order of keys, and of operations.
    pub seed: u64,
    /// Seconds before the counted part of a run.
    pub warm_seconds: f64,
    /// Seconds of the counted part, at least.
    pub seconds: f64,
    /// Seconds of the counted part, at most.
    pub seconds_max: f64,
}

impl Setting {
    fn items(&self) -> Items {
        Items { count: self.entries, entry_bytes: ENTRY_BYTES, seed: self.seed }
    }

    /// All memory of a run.
    pub fn memory_bytes(&self) -> u64 {
        (self.items().bytes() as f64 * MEMORY_SHARE) as u64
    }
}

/// Options that all runs of an entrant have, the fill among them.
fn builder(dir: &Path, entrant: &Entrant, setting: &Setting) -> Builder {
    // The log is left out: it costs every design the same, and the model has none.
    let builder = Db::builder(dir)
        .experimental(|e| e.design(entrant.design()))
        .experimental(|e| {
            e.sizing(Sizing::Auto)
                .filter_allocation(entrant.plan.allocation)
                .digest_seed(setting.seed)
                .no_wal(true)
        })
        .background_threads(1);
    // A design with a fixed number of filter bytes, not bits per key, includes the filters of
    // obsolete versions.
    match entrant.plan.filters {
        FilterBits::Bytes(bytes) => builder.experimental(|e| e.filter_memory(bytes as u64)),
        FilterBits::PerKey(_) => builder,
    }
}

/// Lets the tree of `entrant` grow in `dir` and copies it once for each of `copies`.
///
/// # Errors
/// Errors of the engine.
pub fn fill(
    dir: &Path,
    entrant: &Entrant,
    setting: &Setting,
    copies: &[std::path::PathBuf],
) -> Result<(), String> {
    let said = |error: Error| format!("{}: {}", entrant.name, error.chain());
    let items = setting.items();
    // Tables as the run will write them.
    let file_bytes = (setting.memory_bytes() / 16).max(2 << 20);
    let db = builder(dir, entrant, setting)
        .memory_budget(FILL_BUDGET_BYTES)
        .experimental(|e| e.file_size(file_bytes))
        .open()
        .map_err(said)?;
    let pair = |item| {
        let mut value = Vec::new();
        items.value(item, &mut value);
        (items.key(item, false), value)
    };
    db.ingest((0..items.count).map(pair)).map_err(said)?;
    db.wait_idle().map_err(said)?;
    let order = Permutation::new(items.count, items.seed);
    let mut value = Vec::new();
    for number in 0..(items.count as f64 * setting.grown_share) as u64 {
        let item = order.at(number);
        items.value(item, &mut value);
        db.put(items.key(item, false), &value).map_err(said)?;
    }
    db.flush().map_err(said)?;
    db.wait_idle().map_err(said)?;
    for copy in copies {
        db.checkpoint(copy).map_err(said)?;
    }
    db.close().map_err(said)
}

/// Runs `mix` on the copy in `dir`; answers with a line of JSON.
///
/// # Errors
/// Errors of the engine, or a wrong answer.
pub fn run(dir: &Path, entrant: &Entrant, mix: &Mix, setting: &Setting) -> Result<String, String> {
    let said = |error: Error| format!("{}, {}: {}", mix.name, entrant.name, error.chain());
    let db = builder(dir, entrant, setting)
        .memory_budget(setting.memory_bytes().max(4 << 20))
        .experimental(|e| e.device_read_us(DEVICE_US).device_write_us(DEVICE_US))
        .open()
        .map_err(said)?;
    let mut client = Client::new(&db, *mix, setting.items());
    client.ask(setting.warm_seconds, setting.warm_seconds, 0)?;
    let before = db.stats();
    let wanted = FLUSHES_WANTED * entrant.plan.design.buffer_bytes / ENTRY_BYTES;
    let wanted = if mix.updates > 0.0 { wanted } else { 0 };
    let (done, seconds) = client.ask(setting.seconds, setting.seconds_max, wanted)?;
    let (after, memory) = (db.stats(), db.memory());
    let paying_seconds = pay(&db, before.debt_bytes);
    db.close().map_err(said)?;
    let parts = parts_json(&memory.parts);
    Ok(line(entrant, mix, setting, [&before, &after], &done, [seconds, paying_seconds], &parts))
}

/// Waits until merges owe no more than `debt_bytes`; the seconds that took.
fn pay(db: &Db, debt_bytes: u64) -> f64 {
    let since = Instant::now();
    // Runs in level 0 below the compaction trigger are not debt.
    let least = DEBT_BYTES_MIN.max(INBOX_RUNS * db.design().buffer_bytes);
    while db.stats().debt_bytes > debt_bytes.max(least) && since.elapsed() < PAYING_MAX {
        std::thread::sleep(Duration::from_millis(20));
    }
    since.elapsed().as_secs_f64()
}

/// Executed operations.
#[derive(Clone, Copy, Default, Debug)]
struct Done {
    empty_lookups: u64,
    found_lookups: u64,
    updates: u64,
    ranges: u64,
}

impl Done {
    fn all(&self) -> u64 {
        self.empty_lookups + self.found_lookups + self.updates + self.ranges
    }
}

struct Client<'d> {
    db: &'d Db,
    mix: Mix,
    items: Items,
    picker: Picker,
    drawn: u64,
    value: Vec<u8>,
}

impl<'d> Client<'d> {
    fn new(db: &'d Db, mix: Mix, items: Items) -> Self {
        let picker = Picker::new(Distribution::Uniform, items.count, items.seed ^ 1, items.seed);
        Self { db, mix, items, picker, drawn: 0, value: Vec::new() }
    }

    /// Operations for `seconds`, and on until `updates` were made or `seconds_max` are over.
    fn ask(&mut self, seconds: f64, seconds_max: f64, updates: u64) -> Result<(Done, f64), String> {
        let since = Instant::now();
        let (least, most) = (Duration::from_secs_f64(seconds), Duration::from_secs_f64(seconds_max));
        let mut done = Done::default();
        loop {
            for _ in 0..ROUND {
                self.operation(&mut done)?;
            }
            let elapsed = since.elapsed();
            if elapsed >= most || (elapsed >= least && done.updates >= updates) {
                return Ok((done, elapsed.as_secs_f64()));
            }
        }
    }

    fn operation(&mut self, done: &mut Done) -> Result<(), String> {
        let said = |error: Error| error.chain().to_string();
        let item = self.picker.pick(self.items.count);
        self.drawn += 1;
        let draw = mix2(self.drawn, self.items.seed ^ 2) as f64 / u64::MAX as f64;
        let Mix { empty_lookups, found_lookups, updates, .. } = self.mix;
        if draw < empty_lookups {
            done.empty_lookups += 1;
            match self.db.contains_key(self.items.key(item, true)).map_err(said)? {
                true => Err(format!("absent item {item} was found")),
                false => Ok(()),
            }
        } else if draw < empty_lookups + found_lookups {
            done.found_lookups += 1;
            let is_right = |value: &[u8]| value.starts_with(&item.to_le_bytes());
            match self.db.get_with(self.items.key(item, false), is_right).map_err(said)? {
                Some(true) => Ok(()),
                found => Err(format!("item {item} is {}", if found.is_some() { "wrong" } else { "absent" })),
            }
        } else if draw < empty_lookups + found_lookups + updates {
            done.updates += 1;
            self.items.value(item, &mut self.value);
            self.db.put(self.items.key(item, false), &self.value).map_err(said)
        } else {
            done.ranges += 1;
            let from = item.min(self.items.count.saturating_sub(RANGE_ENTRIES as u64));
            let mut found = 0;
            for entry in self.db.range(self.items.key(from, false)..).take(RANGE_ENTRIES) {
                entry.map_err(said)?;
                found += 1;
            }
            match found == RANGE_ENTRIES.min(self.items.count as usize) {
                true => Ok(()),
                false => Err(format!("a range from item {from} has {found} entries")),
            }
        }
    }
}

fn line(
    entrant: &Entrant,
    mix: &Mix,
    setting: &Setting,
    [before, after]: [&Stats; 2],
    done: &Done,
    [seconds, paying_seconds]: [f64; 2],
    parts: &str,
) -> String {
    let stats = after.since(before);
    let lookups = (done.empty_lookups + done.found_lookups).max(1) as f64;
    let user_bytes = (done.updates * ENTRY_BYTES).max(1) as f64;
    let Entrant { name, plan, predicted } = entrant;
    let design = entrant.design();
    let policy = design.policy().map_or("fluid".to_owned(), |policy| policy.to_string());
    format!(
        "{{\"schema\":\"navigator/1\",\"mix\":\"{}\",\"design\":\"{name}\",\"policy\":\"{policy}\",\"size_ratio\":{},\
         \"inner_runs\":{},\"last_runs\":{},\"buffer_bytes\":{},\"bits_per_key\":{:.3},\"allocation\":\"{}\",\
         \"entries\":{},\"memory_bytes\":{},\"device_us\":{DEVICE_US},\"model_ops_per_s\":{:.1},\"model_reads_per_lookup\":{:.5},\
         \"model_update_ios\":{:.5},\"ops_per_s\":{:.1},\"operations\":{},\"seconds\":{seconds:.2},\"paying_seconds\":{paying_seconds:.2},\"updates\":{},\
         \"data_reads_per_lookup\":{:.5},\"index_reads_per_lookup\":{:.5},\"filter_reads_per_lookup\":{:.5},\
         \"write_amplification\":{:.3},\"flushes\":{},\"stall_share\":{:.4},\"runs\":{},\"debt_before_bytes\":{},\"debt_after_bytes\":{},\"parts\":{parts}}}",
        mix.name,
        design.size_ratio,
        design.inner_runs,
        design.last_runs,
        design.buffer_bytes,
        design.bits_per_key,
        plan.allocation,
        setting.entries,
        setting.memory_bytes(),
        predicted.ops_per_s,
        predicted.reads_per_lookup,
        predicted.update_ios,
        done.all() as f64 / (seconds + paying_seconds),
        done.all(),
        done.updates,
        stats.reads.data.count as f64 / lookups,
        stats.reads.index.count as f64 / lookups,
        stats.reads.filter.count as f64 / lookups,
        (stats.bytes_flushed + stats.bytes_compacted) as f64 / user_bytes,
        stats.flushes,
        stats.stall_us as f64 / 1e6 / seconds,
        after.runs,
        before.debt_bytes,
        after.debt_bytes,
    )
}

#[cfg(test)]
mod tests;
