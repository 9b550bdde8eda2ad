//! Projection of jobs: the tree as it will be when they are done, without files.
//!
//! The live bytes of the inputs become output tables of the usual size, cut where inputs begin.
//! Every version is kept, since nobody knows which ones a compaction would drop. So is every
//! reference to a value. Projected tables
//! have numbers above all numbers of the tree, so a job that names one can be recognised.
//!
//! Used by forecasts ([`super::forecast`]) and by the scheduler, which picks jobs from the tree as
//! the running ones will leave it ([`super::schedule`]).

use std::sync::Arc;

use bytes::Bytes;
use shamba_key::SeqNo;
use shamba_table::{BirthId, TableId};

use super::policy::{CompactionJob, OutputRun, move_edit, slice_edit};
use crate::version::live_entries;
use crate::version::{ConsumedValues, KeyRange, TableMeta, TableUse, ValueUse, ValueUses, Version};
use shamba_key::{Age, KeyspaceId, RunId};

/// A tree on which jobs are projected.
pub(super) struct Projection {
    /// The tree after the jobs so far.
    pub version: Version,
    /// The largest number in use; the next table, run or age gets a larger one.
    pub last_id: u64,
}

impl Projection {
    /// Begins with `version`.
    pub fn of(version: &Version) -> Self {
        Self { version: version.clone(), last_id: largest_id(version) }
    }

    /// Projects one job, with a new output run if it needs one; returns the bytes that it writes.
    ///
    /// # Errors
    /// The job does not fit the tree.
    pub fn carry_out(&mut self, job: &CompactionJob, table_bytes: u64) -> Result<u64, String> {
        let (run, age) = (RunId(self.next_id()), Age(self.next_id()));
        let output_run = job.output_run(&self.version, run, age)?;
        self.carry_out_into(job, output_run, table_bytes)
    }

    /// Projects the part of a job whose inputs are still in the tree; returns the bytes that it
    /// writes. Outputs are cut at about `table_bytes`.
    ///
    /// # Errors
    /// The job does not fit the tree.
    pub fn carry_out_into(
        &mut self,
        job: &CompactionJob,
        output_run: OutputRun,
        table_bytes: u64,
    ) -> Result<u64, String> {
        if job.is_trivial_move(&self.version) {
            self.version = self.version.apply(&move_edit(KeyspaceId(0), &self.version, job, output_run))?;
            return Ok(0);
        }
        let inputs: Vec<TableUse> =
            job.uses(&self.version).into_iter().map(|(_, _, table)| table.clone()).collect();
        let bytes = inputs.iter().fold(0u64, |sum, table| sum.saturating_add(table.live_bytes));
        let outputs = self.merged(inputs, table_bytes.max(1));
        debug_assert_eq!(
            outputs.iter().fold(0u64, |sum, table| sum.saturating_add(table.meta.file_bytes)),
            bytes,
            "{job}: the outputs hold other bytes than the inputs"
        );
        // All slices at once: nothing happens between slices here.
        let all = KeyRange::everything();
        let live = |table: &TableUse, _: &KeyRange| table.live_bytes;
        let built = (outputs, &ConsumedValues::default());
        let edit = slice_edit(KeyspaceId(0), &self.version, job, &all, built, output_run, &live);
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
            open.bytes = open.bytes.saturating_add(input.live_bytes);
            open.entries = open.entries.saturating_add(live_entries(input));
            open.deletes =
                open.deletes.saturating_add(input.meta.deletes.saturating_add(input.meta.range_deletes));
            open.values.extend_from_slice(input.values.files());
            // Files of which no value is in use are named, too: they live as long as the table.
            open.named.extend_from_slice(input.meta.values.get().files());
        }
        outputs.extend(open.map(|open| self.table(open)));
        debug_assert!(
            outputs.windows(2).all(|pair| !pair[0].range.is_above(&pair[1].range.lower)),
            "outputs share keys: {outputs:?}"
        );
        debug_assert!(outputs.iter().all(|output| !output.range.is_empty()), "an output without keys");
        outputs
    }

    fn table(&mut self, Open { range, bytes, entries, deletes, values, named }: Open) -> TableUse {
        let values = ValueUses::sum(values);
        let table = TableUse::whole(Arc::new(TableMeta {
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
            oldest_tombstone: Default::default(),
            older_versions: Default::default(),
            expiring: Default::default(),
            values: ValueUses::sum(named).into(),
            statistics: Default::default(),
        }));
        TableUse { values, ..table }
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
    values: Vec<ValueUse>,
    named: Vec<ValueUse>,
}

impl Open {
    /// An empty table over the range of an input.
    fn of(table: &TableUse) -> Self {
        Self {
            range: table.range.clone(),
            bytes: 0,
            entries: 0,
            deletes: 0,
            values: Vec::new(),
            named: Vec::new(),
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compaction::policy::{CompactionInput, Reason, Target};

    #[test]
    fn outputs_refer_to_the_values_of_their_inputs() {
        let text = "L0: r2@2[2:a..z 40 val=31:4:400 val=32:1:90]\n\
                    L1: r1@1[1:c..m 20 val=31:3:50, 3:m..p of a..p 20 of 40 val=31:1:10 of 2:20, 4:x..z 9]\n\
                    V: 000031 1128 n=10, 000032 228 n=1\n";
        let tree: Version = text.parse().expect("notation");
        let input = |level, run, tables: &[u64]| CompactionInput {
            level,
            run: RunId(run),
            tables: tables.iter().map(|id| TableId(*id)).collect(),
        };
        let job = CompactionJob {
            inputs: vec![input(0, 2, &[2]), input(1, 1, &[1, 3, 4])],
            target_level: 1,
            target_run: Target::Existing(RunId(1)),
            reason: Reason::Level0,
        };
        let mut projection = Projection::of(&tree);
        projection.carry_out(&job, 50).expect("a good job");
        assert_eq!(projection.version.value_bytes(), tree.value_bytes());
        assert_eq!(
            projection.version.to_string(),
            "L1: r1@1[000007:a..m 60 val=31:7:450 val=32:1:90, 000008:m..z 29 val=31:1:10 of 2:20]\n\
             V: 000031 1128 n=10, 000032 228 n=1\n"
        );
    }
}
