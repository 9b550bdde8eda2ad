//! `explain_prefix`: which runs a scan of one prefix reads and which it leaves out, and why.
//!
//! The filters are asked as by a scan ([`super::prefix`]), with a recorder. No entry is read.

use std::fmt;

use shamba_key::SeqNo;

use super::explain::{Step, Trace};
use super::prefix::RangeQuestion;
use crate::counters::ReadsByKind;
use crate::version::KeyRange;
use crate::view::View;

/// The record of the questions that a scan asks before it reads. Its `Display` is for people.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PrefixExplanation {
    /// The prefix.
    pub prefix: Vec<u8>,
    /// The sequence number that the scan would read at.
    pub sequence: u64,
    /// One step for each memtable and each table that was asked, in order, and for each run without
    /// a table in the range.
    pub steps: Vec<Step>,
    /// Runs of the tree.
    pub runs: u64,
    /// Runs that a scan leaves out, because filters denied the prefix.
    pub runs_skipped: u64,
    /// The part of them with range tombstones, which hide entries of other runs all the same.
    pub skipped_with_range_tombstones: u64,
    /// Filters tested.
    pub filters: u64,
    /// Digests of the prefix computed: one for each extractor, in place of one for each run.
    pub hashes: u64,
    /// Filter modules skipped: not in memory, or dormant.
    pub modules_skipped: u64,
    /// Reads from files by kind.
    pub reads: ReadsByKind,
}

impl PrefixExplanation {
    /// Asks the filters of `view` for the keys of `range`, those that begin with `prefix`.
    pub fn of(view: &View, seq: SeqNo, prefix: &[u8], range: &KeyRange) -> Self {
        let mut trace = Trace::default();
        for (number, memtable) in view.memtables.iter().enumerate() {
            trace.steps.push(Step::memtable(number, memtable.entries(), None));
        }
        let mut question = RangeQuestion::new(range);
        let mut skipped_with_range_tombstones = 0;
        for plan in view.plans() {
            let skipped_before = question.asked().runs_skipped;
            question.ask(plan, &mut trace);
            let is_skipped = question.asked().runs_skipped > skipped_before;
            skipped_with_range_tombstones += u64::from(is_skipped && plan.run.has_range_deletes());
        }
        let asked = question.asked();
        Self {
            prefix: prefix.to_vec(),
            sequence: seq.0,
            steps: trace.steps,
            runs: view.plans().len() as u64,
            runs_skipped: asked.runs_skipped,
            skipped_with_range_tombstones,
            filters: asked.filters,
            hashes: asked.hashes,
            modules_skipped: asked.counts.modules_skipped,
            reads: asked.counts.reads(),
        }
    }
}

impl fmt::Display for PrefixExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (prefix, bytes) = (self.prefix.escape_ascii(), self.prefix.len());
        writeln!(f, "prefix    \"{prefix}\" ({bytes} bytes), {} digests computed", self.hashes)?;
        writeln!(f, "sequence  {}", self.sequence)?;
        for (number, step) in self.steps.iter().enumerate() {
            writeln!(f, "{:>3}. {step}", number + 1)?;
        }
        write!(f, "runs      {}, {} of them left out by their filters", self.runs, self.runs_skipped)?;
        match self.skipped_with_range_tombstones {
            0 => writeln!(f)?,
            some => writeln!(f, " ({some} with range tombstones, which count)")?,
        }
        write!(
            f,
            "cost      filters probed {}, modules skipped {}; read: {} filter slices ({} bytes)",
            self.filters, self.modules_skipped, self.reads.filter.count, self.reads.filter.bytes
        )
    }
}
