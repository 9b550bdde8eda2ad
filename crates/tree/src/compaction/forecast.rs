//! Forecast of the bytes that compactions write until a tree has the shape that its rules ask for.
//! Pure.
//!
//! The forecast asks the policy itself for job after job and simulates each one. The live bytes of
//! the inputs become output tables of the usual size, cut where inputs begin. Versions that a
//! compaction would drop are unknown and count as written. So the figure is an upper bound, exact
//! where no key is in two runs. No flushes are simulated. Trivial moves out of level 0 count as 0
//! bytes, even where memory limits would turn them into rewrites.
//!
//! Not here: entries, and so the results of lookups ([`crate::simulate`]).

use std::sync::Arc;

use bytes::Bytes;
use shamba_key::SeqNo;
use shamba_table::{BirthId, TableId};

use super::policy::{CompactionJob, Rules, move_edit, pick, pick_full, slice_edit};
use crate::version::live_entries;
use crate::version::{KeyRange, TableMeta, TableUse, Version};
use shamba_key::{Age, KeyspaceId, RunId};

/// Maximum number of simulated jobs; a tree that needs more gets an incomplete forecast.
const JOBS_MAX: usize = 4_000;

/// Result of a forecast.
#[derive(Clone, Debug)]
pub struct Forecast {
    /// Bytes that compactions will write.
    pub written_bytes: u64,
    /// Bytes that the tree holds now.
    pub tree_bytes: u64,
    /// The tree after the last simulated job.
    pub tree: Version,
    /// Tables in `tree` with larger numbers than this do not exist yet.
    pub last_id: u64,
    /// Whether the simulation reached a tree without due compactions.
    pub is_whole: bool,
}

/// Forecasts the compactions until the policy has no job for `version`. Output tables are cut at
/// about `table_bytes`.
pub fn forecast(version: &Version, rules: &Rules, table_bytes: u64) -> Forecast {
    // Compactions of small tables write little, and the simulation does not know where their
    // outputs would be cut.
    let rules = &Rules { small_bytes: 0, ..*rules };
    let mut paper = Paper::of(version);
    let last_id = paper.last_id;
    let mut written_bytes = 0u64;
    let mut is_whole = false;
    for _ in 0..JOBS_MAX {
        let Some(job) = pick(&paper.version, rules) else {
            is_whole = true;
            break;
        };
        match paper.carry_out(&job, table_bytes) {
            Ok(bytes) => written_bytes = written_bytes.saturating_add(bytes),
            // No job of the policy is refused. If one were, the bytes so far stand, marked as
            // incomplete.
            Err(_) => break,
        }
    }
    Forecast { written_bytes, tree_bytes: version.bytes(), tree: paper.version, last_id, is_whole }
}

/// Forecasts a full compaction of `version` into one run.
pub fn forecast_full(version: &Version, rules: &Rules, table_bytes: u64) -> Forecast {
    let mut paper = Paper::of(version);
    let last_id = paper.last_id;
    let done = match pick_full(version, &Rules { small_bytes: 0, ..*rules }) {
        Some(job) => paper.carry_out(&job, table_bytes),
        None => Ok(0),
    };
    let (written_bytes, is_whole) = (done.as_ref().copied().unwrap_or(0), done.is_ok());
    Forecast { written_bytes, tree_bytes: version.bytes(), tree: paper.version, last_id, is_whole }
}

/// A simulated tree without files.
struct Paper {
    version: Version,
    last_id: u64,
}

impl Paper {
    fn of(version: &Version) -> Self {
        Self { version: version.clone(), last_id: largest_id(version) }
    }

    /// Simulates one job; returns the bytes that it writes.
    fn carry_out(&mut self, job: &CompactionJob, table_bytes: u64) -> Result<u64, String> {
        let (run, age) = (RunId(self.next_id()), Age(self.next_id()));
        let output_run = job.output_run(&self.version, run, age)?;
        if job.is_trivial_move(&self.version) {
            self.version = self.version.apply(&move_edit(KeyspaceId(0), &self.version, job, output_run))?;
            return Ok(0);
        }
        let inputs: Vec<TableUse> =
            job.uses(&self.version).into_iter().map(|(_, _, table)| table.clone()).collect();
        let bytes = inputs.iter().map(|table| table.live_bytes).sum();
        let outputs = self.merged(inputs, table_bytes.max(1));
        // All slices at once: nothing happens between slices here.
        let all = KeyRange::everything();
        let live = |table: &TableUse, _: &KeyRange| table.live_bytes;
        let edit = slice_edit(KeyspaceId(0), &self.version, job, &all, outputs, output_run, &live);
        self.version = self.version.apply(&edit)?;
        Ok(bytes)
    }

    /// The output tables of a compaction of `inputs`. They are cut at gaps between inputs, since
    /// tables that are not inputs may lie there, and at the start of an input once they hold
    /// `table_bytes`.
    fn merged(&mut self, mut inputs: Vec<TableUse>, table_bytes: u64) -> Vec<TableUse> {
        inputs.sort_by(|a, b| a.range.lower.cmp(&b.range.lower));
        let mut outputs = Vec::new();
        let mut open: Option<Open> = None;
        for input in &inputs {
            let lower = &input.range.lower;
            let has_ended = |open: &Open| !open.range.is_above(lower);
            let is_full = |open: &Open| open.bytes >= table_bytes && open.range.lower < *lower;
            if let Some(full) = open.take_if(|open| has_ended(open) || is_full(open)) {
                open = (!has_ended(&full)).then(|| Open {
                    range: KeyRange { lower: lower.clone(), upper: full.range.upper.clone() },
                    ..Open::of(input)
                });
                outputs.push(self.table(full.up_to(lower)));
            }
            let open = open.get_or_insert_with(|| Open::of(input));
            open.range = open.range.hull(&input.range);
            open.bytes += input.live_bytes;
            open.entries += live_entries(input);
            open.deletes += input.meta.deletes + input.meta.range_deletes;
        }
        outputs.extend(open.map(|open| self.table(open)));
        outputs
    }

    fn table(&mut self, Open { range, bytes, entries, deletes }: Open) -> TableUse {
        TableUse::whole(Arc::new(TableMeta {
            id: TableId(self.next_id()),
            birth: BirthId(0),
            file_bytes: bytes,
            entries,
            deletes,
            range_deletes: 0,
            smallest: range.lower,
            upper: range.upper,
            smallest_seq: SeqNo::ZERO,
            largest_seq: SeqNo::ZERO,
            bits_per_key: 0.0,
            reader: Default::default(),
            statistics: Default::default(),
        }))
    }

    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }
}

/// An output table under construction.
struct Open {
    range: KeyRange,
    bytes: u64,
    entries: u64,
    deletes: u64,
}

impl Open {
    /// An empty table over the range of an input.
    fn of(table: &TableUse) -> Self {
        Self { range: table.range.clone(), bytes: 0, entries: 0, deletes: 0 }
    }

    /// The same table with its range cut off at `end`.
    fn up_to(mut self, end: &Bytes) -> Self {
        if self.range.is_above(end) {
            self.range.upper = Some(end.clone());
        }
        self
    }
}

/// Largest number of a table, run or age in the tree.
fn largest_id(version: &Version) -> u64 {
    version.tables().map(|(_, run, table)| run.id.0.max(run.age.0).max(table.meta.id.0)).max().unwrap_or(0)
}
