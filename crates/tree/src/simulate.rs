//! Simulation of the policy: flushes and compactions without files, with every invariant checked.
//!
//! Entries are uniform key numbers of a fixed size. A flush adds a buffer of them to level 0. The
//! policy's jobs are carried out slice by slice as in the engine, as real merges of sorted lists.
//!
//! Checks: the version after every edit, the job before every job, the shape and the debt when no
//! job is left. Lookups, in lookup order, must find the newest version of a key. A simulated crash
//! drops a job between two slices; flushes may happen there too. So the simulation shows that the
//! policy terminates, and measures the shape and the bytes written. One job runs at a time, the
//! deepest level first; [`parallel`] simulates the scheduler.
//!
//! Puts may have values in value files ([`values`]): then what tables refer to is recounted after
//! every edit.
//!
//! The same settings and seed give the same tree. Other crates use [`fill`]. Not here: time,
//! filters, caches, files.

pub mod fill;
pub mod parallel;
pub mod values;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use shamba_env::{Rng, SeededRng};
use shamba_key::SeqNo;
use shamba_model::{Design, Sizing};
use shamba_table::{BirthId, TableId, ValueFileId};

use crate::allocation::{JobBits, Rule};

use self::values::{SimulatedFiles, SimulatedValues};
use crate::compaction::policy::{
    CompactionJob, OutputRun, Rules, debt_bytes, move_edit, pick, slice_edit, slices,
};
use crate::compaction::schedule::victims;
use crate::version::{Change, KeyRange, TableMeta, TableUse, Version, VersionEdit};
use shamba_key::{Age, KeyspaceId, RunId};

/// Maximum number of jobs after one flush; a policy that exceeds it does not terminate.
const JOBS_PER_FLUSH_MAX: u64 = 100_000;
/// Keys looked up after every job.
const LOOKUPS_PER_JOB: u64 = 4;

/// Settings of a simulation.
#[derive(Clone, Debug)]
pub struct SimulationSettings {
    /// The design that the policy follows.
    pub design: Design,
    /// Source of the capacities.
    pub sizing: Sizing,
    /// Runs in level 0 that make a compaction due.
    pub l0_compaction_trigger: u32,
    /// Entries of a flush.
    pub flush_entries: u64,
    /// Size of every entry.
    pub entry_bytes: u64,
    /// Entries of a full table.
    pub table_entries: usize,
    /// Input bytes of a slice.
    pub slice_bytes: u64,
    /// Number of distinct keys to draw from.
    pub key_count: u64,
    /// One entry in this many is a tombstone; 0 for none.
    pub delete_one_in: u64,
    /// After one slice in this many the job is dropped, as by a crash; 0 for never.
    pub crash_one_in: u64,
    /// After one slice in this many a buffer is flushed; 0 for never.
    pub flush_one_in: u64,
    /// Maximum number of such flushes after each call of `flush`: compactions may not keep up with
    /// more.
    pub flushes_between: u32,
    /// At this many runs in level 0 writers stall: nothing is flushed between slices.
    pub l0_runs_max: usize,
    /// A compaction of at least this many bytes is long.
    pub long_bytes: u64,
    /// Tables of fewer bytes are small: adjacent ones are compacted.
    pub small_bytes: u64,
    /// Allocation of filter bits; `None` for no filters.
    pub rule: Option<Rule>,
    /// The values of puts, if these are in value files.
    pub values: Option<SimulatedValues>,
    /// Seed of keys, tombstones and crashes.
    pub seed: u64,
}

impl SimulationSettings {
    /// A buffer of 16 entries, tables as large as level 1, and many more keys than a test writes.
    pub fn new(design: Design, seed: u64) -> Self {
        let entry_bytes = (design.buffer_bytes / 16).max(1);
        let table_entries = (16.0 * design.size_ratio) as usize;
        Self {
            design,
            sizing: Sizing::Manual,
            l0_compaction_trigger: 1,
            flush_entries: design.buffer_bytes / entry_bytes,
            entry_bytes,
            table_entries,
            slice_bytes: entry_bytes * table_entries as u64 * 8,
            key_count: 1 << 40,
            delete_one_in: 0,
            crash_one_in: 0,
            flush_one_in: 0,
            flushes_between: 3,
            l0_runs_max: 24,
            long_bytes: u64::MAX,
            small_bytes: 0,
            rule: None,
            values: None,
            seed,
        }
    }
}

/// Counters of a simulation.
#[derive(Clone, Default, Debug)]
pub struct Report {
    /// Buffers flushed.
    pub flushes: u64,
    /// Bytes that flushes wrote.
    pub flushed_bytes: u64,
    /// Bytes that flushes and compactions wrote.
    pub written_bytes: u64,
    /// Bytes that compactions wrote to each level, level 0 first.
    pub merged_bytes: Vec<u64>,
    /// Jobs that rewrote tables.
    pub merges: u64,
    /// Jobs that moved tables without a rewrite.
    pub moves: u64,
    /// Maximum number of runs in level 0.
    pub l0_runs_max: usize,
    /// Jobs dropped half-way.
    pub crashes: u64,
    /// Deepest level and number of runs after each flush and the compactions that followed.
    pub history: Vec<(u32, usize)>,
}

impl Report {
    fn merged(&mut self, level: usize, bytes: u64) {
        self.written_bytes += bytes;
        if self.merged_bytes.len() <= level {
            self.merged_bytes.resize(level + 1, 0);
        }
        self.merged_bytes[level] += bytes;
    }

    /// Bytes written per byte flushed.
    pub fn write_amplification(&self) -> f64 {
        self.written_bytes as f64 / self.flushed_bytes.max(1) as f64
    }
}

/// One version of a key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Entry {
    key: u64,
    seq: u64,
    is_delete: bool,
    /// The file that has its value.
    file: Option<ValueFileId>,
}

/// A simulated tree.
pub struct Simulation {
    /// May be changed at any time, as a caller may change options.
    pub settings: SimulationSettings,
    /// The tree.
    pub version: Version,
    /// Counters so far.
    pub report: Report,
    files: HashMap<TableId, Arc<[Entry]>>,
    value_files: SimulatedFiles,
    newest: HashMap<u64, Entry>,
    written_keys: Vec<u64>,
    rng: SeededRng,
    last_id: u64,
    last_seq: u64,
    flushes_left: u32,
}

impl Simulation {
    /// An empty tree.
    pub fn new(settings: SimulationSettings) -> Self {
        Self {
            rng: SeededRng::new(settings.seed),
            settings,
            version: Version::empty(),
            report: Report::default(),
            files: HashMap::new(),
            value_files: SimulatedFiles::default(),
            newest: HashMap::new(),
            written_keys: Vec::new(),
            last_id: 0,
            last_seq: 0,
            flushes_left: 0,
        }
    }

    /// Flushes one buffer of entries into level 0.
    ///
    /// # Errors
    /// Description of a violation.
    pub fn flush(&mut self) -> Result<(), String> {
        let key_count = self.settings.key_count;
        self.flush_keys(|rng, _| rng.next_u64() % key_count)
    }

    /// Flushes a buffer of entries with larger keys than all before into level 0.
    ///
    /// # Errors
    /// Description of a violation.
    #[cfg(test)]
    pub fn flush_ascending(&mut self) -> Result<(), String> {
        self.flush_keys(|_, seq| seq)
    }

    fn flush_keys(&mut self, next_key: impl Fn(&SeededRng, u64) -> u64) -> Result<(), String> {
        let SimulationSettings { flush_entries, entry_bytes, delete_one_in, .. } = self.settings;
        let mut buffer = BTreeMap::new();
        for _ in 0..flush_entries.max(1) {
            self.last_seq += 1;
            let key = next_key(&self.rng, self.last_seq);
            let is_delete = self.one_in(delete_one_in);
            let entry = Entry { key, seq: self.last_seq, is_delete, file: None };
            buffer.insert(key, entry);
            if self.newest.insert(key, entry).is_none() {
                self.written_keys.push(key);
            }
        }
        let mut entries: Vec<_> = buffer.into_values().collect();
        self.write_values(&mut entries);
        let rule = self.settings.rule;
        let bits = rule.map(|rule| JobBits::of_flush(rule, &self.version, entries.len() as u64));
        let tables = self.write(&entries, &KeyRange::everything(), bits.as_ref());
        let bytes = entries.len() as u64 * entry_bytes;
        self.report.flushes += 1;
        self.report.flushed_bytes += bytes;
        self.report.written_bytes += bytes;
        let (run, age) = (RunId(self.next_id()), Age(self.next_id()));
        let changes = tables.into_iter().map(|table| Change::Add { level: 0, run, age, table }).collect();
        self.apply(&VersionEdit { keyspace: KeyspaceId(0), changes })?;
        self.flushes_left = self.settings.flushes_between;
        self.report.l0_runs_max = self.report.l0_runs_max.max(self.version.level(0).len());
        Ok(())
    }

    /// Carries out jobs until the policy has none, then checks the shape.
    ///
    /// # Errors
    /// Description of a violation.
    pub fn run_due_jobs(&mut self) -> Result<(), String> {
        self.settle_by(false)
    }

    /// As [`Self::run_due_jobs`], but also empties level 0.
    ///
    /// # Errors
    /// Description of a violation.
    #[cfg(test)]
    pub fn drain(&mut self) -> Result<(), String> {
        self.settle_by(true)?;
        if self.settings.sizing == Sizing::Auto && !self.version.level(0).is_empty() {
            return Err(format!("the inbox is not drained:\n{}", self.version));
        }
        Ok(())
    }

    fn rules(&self, is_draining: bool) -> Rules {
        let SimulationSettings { design, sizing, l0_compaction_trigger, long_bytes, small_bytes, .. } =
            self.settings;
        Rules {
            design,
            sizing,
            l0_compaction_trigger,
            l0_slowdown_runs: u32::MAX,
            is_draining,
            long_bytes,
            rewrites_all: false,
            expired_ms: 0,
            fifo: None,
            small_bytes,
            values: self.settings.values.map(|values| values.rules),
        }
    }

    fn settle_by(&mut self, is_draining: bool) -> Result<(), String> {
        let mut jobs = 0;
        loop {
            let rules = self.rules(is_draining);
            let job = pick(&self.version, &rules);
            let debt = debt_bytes(&self.version, &rules);
            if job.is_some() != (debt > 0) {
                return Err(format!("the debt is {debt} and the next job {job:?}"));
            }
            let Some(job) = job else { break };
            self.carry_out(&job)?;
            jobs += 1;
            if jobs > JOBS_PER_FLUSH_MAX {
                return Err(format!("the policy does not end; last job: {job}"));
            }
        }
        self.rules(is_draining).check_shape(&self.version)?;
        self.report.history.push((self.version.deepest_level(), self.version.run_count()));
        Ok(())
    }

    /// Compacts everything into one run, as a caller's `compact` does; repeats after each crash.
    ///
    /// # Errors
    /// Description of a violation.
    #[cfg(test)]
    pub fn compact(&mut self) -> Result<(), String> {
        while let Some(job) = crate::compaction::policy::pick_full(&self.version, &self.rules(false)) {
            self.carry_out(&job)?;
            // Without this the loop would not end.
            self.flushes_left = 0;
        }
        if self.version.run_count() > 1 || self.version.tables().any(|(_, _, table)| table.meta.deletes > 0) {
            return Err(format!("not one run without tombstones:\n{}", self.version));
        }
        Ok(())
    }

    /// Looks up every key ever written.
    ///
    /// # Errors
    /// A key whose newest version is not found.
    #[cfg(test)]
    pub fn check_all_keys(&self) -> Result<(), String> {
        self.written_keys.iter().try_for_each(|key| self.check_key(*key))
    }

    /// Carries out one job, or the part of it before a simulated crash.
    fn carry_out(&mut self, job: &CompactionJob) -> Result<(), String> {
        job.check(&self.version).map_err(|why| format!("{job}: {why}\n{}", self.version))?;
        let (run, age) = (RunId(self.next_id()), Age(self.next_id()));
        let output_run = job.output_run(&self.version, run, age)?;
        let victims = victims(&self.version, job, &self.rules(false));
        if victims.is_empty() && job.is_trivial_move(&self.version) {
            self.report.moves += 1;
            self.apply(&move_edit(KeyspaceId(0), &self.version, job, output_run))?;
            return self.check_some_keys();
        }
        self.report.merges += 1;
        let entry_bytes = self.settings.entry_bytes;
        let bits = self.settings.rule.map(|rule| JobBits::of_compaction(rule, &self.version, job));
        for slice in &self.slices(job) {
            let mut entries = self.merge(&self.version, job, slice)?;
            self.relocate(&mut entries, &victims);
            self.report.merged(job.target_level as usize, entries.len() as u64 * entry_bytes);
            let outputs = self.write(&entries, slice, bits.as_ref());
            self.install(job, slice, outputs, output_run)?;
            if self.one_in(self.settings.crash_one_in) {
                self.report.crashes += 1;
                break;
            }
            let has_room = self.version.level(0).len() < self.settings.l0_runs_max;
            if has_room && self.flushes_left > 0 && self.one_in(self.settings.flush_one_in) {
                let left = self.flushes_left - 1;
                self.flush()?;
                self.flushes_left = left;
            }
        }
        self.check_some_keys()
    }

    /// The slices of a job.
    fn slices(&self, job: &CompactionJob) -> Vec<KeyRange> {
        let entry_bytes = self.settings.entry_bytes;
        let split_keys = |table: &TableUse, every_bytes: u64| {
            let every = (every_bytes / entry_bytes).max(1) as usize;
            entries_in(&self.files, table, &table.range)
                .iter()
                .step_by(every)
                .map(|entry| bytes_of(entry.key))
                .collect()
        };
        slices(job, &self.version, self.settings.slice_bytes, &split_keys)
    }

    /// Installs a finished slice.
    fn install(
        &mut self,
        job: &CompactionJob,
        slice: &KeyRange,
        outputs: Vec<TableUse>,
        output_run: OutputRun,
    ) -> Result<(), String> {
        let entry_bytes = self.settings.entry_bytes;
        let live = |table: &TableUse, range: &KeyRange| {
            entries_in(&self.files, table, range).len() as u64 * entry_bytes
        };
        let consumed = self.consumed(job, slice);
        let built = (outputs, &consumed);
        let edit = slice_edit(KeyspaceId(0), &self.version, job, slice, built, output_run, &live);
        self.apply(&edit)
    }

    /// The newest version of every key of the slice; tombstones only if something older may be
    /// below.
    fn merge(&self, version: &Version, job: &CompactionJob, slice: &KeyRange) -> Result<Vec<Entry>, String> {
        let drops_tombstones = job.below(version, slice).is_empty();
        let mut newest: BTreeMap<u64, Entry> = BTreeMap::new();
        for (_, run, table) in job.uses(version) {
            let Some(range) = table.range.intersection(slice) else { continue };
            for entry in entries_in(&self.files, table, &range) {
                // Inputs come in lookup order, so the first version of a key must be the newest.
                let first = *newest.entry(entry.key).or_insert(*entry);
                if first.seq < entry.seq {
                    return Err(format!(
                        "{job}: run {} has {entry:?}, newer than {first:?} above it",
                        run.id
                    ));
                }
            }
        }
        newest.retain(|_, entry| !(drops_tombstones && entry.is_delete));
        Ok(newest.into_values().collect())
    }

    /// Writes sorted entries to tables.
    fn write(&mut self, entries: &[Entry], slice: &KeyRange, bits: Option<&JobBits>) -> Vec<TableUse> {
        let mut tables = Vec::new();
        let mut earlier = 0;
        for entries in entries.chunks(self.settings.table_entries) {
            let (Some(first), Some(last)) = (entries.first(), entries.last()) else { continue };
            let count = entries.len() as u64;
            let ends = (&first.key.to_be_bytes()[..], &last.key.to_be_bytes()[..]);
            let bits_per_key = bits.map_or(0.0, |bits| bits.bits_per_key(ends, slice, count, earlier));
            earlier += count;
            let seqs = || entries.iter().map(|entry| SeqNo(entry.seq));
            let meta = TableMeta {
                id: TableId(self.next_id()),
                birth: BirthId(0),
                file_bytes: entries.len() as u64 * self.settings.entry_bytes,
                entries: entries.len() as u64,
                deletes: entries.iter().filter(|entry| entry.is_delete).count() as u64,
                range_deletes: 0,
                smallest: bytes_of(first.key),
                upper: Some(bytes_of(last.key + 1)),
                smallest_seq: seqs().min().unwrap_or_default(),
                largest_seq: seqs().max().unwrap_or_default(),
                bits_per_key,
                reader: Default::default(),
                oldest_tombstone: Default::default(),
                older_versions: Default::default(),
                expiring: Default::default(),
                values: self.references(entries).into(),
                statistics: Default::default(),
            };
            self.files.insert(meta.id, entries.into());
            tables.push(TableUse::whole(Arc::new(meta)));
        }
        tables
    }

    fn apply(&mut self, edit: &VersionEdit) -> Result<(), String> {
        self.version = self.version.apply(edit)?;
        self.version.check().map_err(|why| format!("{why}\n{}", self.version))?;
        self.recount()?;
        let added: HashSet<_> = edit
            .changes
            .iter()
            .filter_map(|change| match change {
                Change::Add { table, .. } => Some(table.meta.id),
                _ => None,
            })
            .collect();
        for change in &edit.changes {
            if let Change::Remove { table, .. } = change {
                if !added.contains(table) {
                    self.files.remove(table);
                }
            }
        }
        Ok(())
    }

    fn check_some_keys(&self) -> Result<(), String> {
        let keys = (0..LOOKUPS_PER_JOB.min(self.written_keys.len() as u64))
            .map(|_| self.written_keys[(self.rng.next_u64() % self.written_keys.len() as u64) as usize]);
        keys.into_iter().try_for_each(|key| self.check_key(key))
    }

    fn check_key(&self, key: u64) -> Result<(), String> {
        let bytes = key.to_be_bytes();
        let found = self.version.runs().find_map(|(_, run)| {
            let file = self.files.get(&run.table_for(&bytes)?.meta.id)?;
            file.binary_search_by_key(&key, |entry| entry.key).ok().map(|at| file[at])
        });
        let wanted = self.newest.get(&key).copied();
        // A dropped tombstone leaves no entry: the same result for a reader.
        let visible = |entry: Option<Entry>| entry.filter(|entry| !entry.is_delete).map(|entry| entry.seq);
        if visible(found) == visible(wanted) {
            return Ok(());
        }
        Err(format!("key {key}: {found:?} is found, {wanted:?} was written\n{}", self.version))
    }

    fn one_in(&self, count: u64) -> bool {
        count > 0 && self.rng.next_u64() % count == 0
    }

    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }
}

/// The entries of a table inside `range`.
fn entries_in<'f>(
    files: &'f HashMap<TableId, Arc<[Entry]>>,
    table: &TableUse,
    range: &KeyRange,
) -> &'f [Entry] {
    let entries = files.get(&table.meta.id).map_or(&[] as &[Entry], |entries| entries);
    let from = entries.partition_point(|entry| entry.key.to_be_bytes().as_slice() < range.lower.as_ref());
    let to = entries.partition_point(|entry| range.is_above(&entry.key.to_be_bytes()));
    entries.get(from..to).unwrap_or_default()
}

/// Key of a number; keys have the order of their numbers.
fn bytes_of(key: u64) -> Bytes {
    Bytes::copy_from_slice(&key.to_be_bytes())
}

#[cfg(test)]
mod tests;
