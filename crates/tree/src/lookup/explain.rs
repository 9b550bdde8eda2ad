//! `explain`: what one lookup touched and skipped, with reasons and costs.
//!
//! The lookup itself ([`super::get`]) calls a [`Recorder`] at each decision. [`Silent`] compiles to
//! nothing; [`Trace`] keeps the steps. There is no second code path whose behaviour could differ.

mod module;

pub use self::module::{ModuleStep, SkipReason};

use std::fmt;

use shamba_key::{EntryKind, Expiry, Prefix, SeqNo};
use shamba_table::{Entry, ReadCounters, TableReader, Value, ValueFileRef};

use self::module::joined;
use super::candidate::Verdict;
use super::get::Lookup;
use crate::counters::{LookupCounts, ReadsByKind};
use crate::merging::Merging;
use crate::records::Cached;
use crate::slice::Slice;
use crate::version::Run;
use crate::view::RunPlan;

/// Observer of the decisions of a lookup.
///
/// A method that a recorder does not define compiles to nothing.
pub trait Recorder {
    /// Whether steps are kept.
    const RECORDS: bool = false;
    /// One step; the closure runs only if steps are kept.
    #[inline(always)]
    fn step(&mut self, _step: impl FnOnce() -> Step) {}
    /// The newest range tombstone over the key.
    #[inline(always)]
    fn floor(&mut self, _floor: SeqNo) {}
    /// The handling of one module of the filter that is being tested.
    #[inline(always)]
    fn module(&mut self, _step: impl FnOnce() -> ModuleStep) {}
    /// The filter of table `number` of the run has been tested, module by module.
    #[inline(always)]
    fn filter(&mut self, _plan: &RunPlan, _number: usize, _verdict: Verdict) {}
    /// Table `number` of the run was searched, after its filter had returned `verdict`. `found` is
    /// whether it holds an entry of the key.
    #[inline(always)]
    fn searched(&mut self, _plan: &RunPlan, _number: usize, _verdict: Verdict, _found: bool) {}
    /// The record cache answered in place of the tables, which hold an entry of the key if `found`.
    #[inline(always)]
    fn recorded(&mut self, _found: bool) {}
    /// The search read index partition `number` of this table.
    #[inline(always)]
    fn partition(&mut self, _reader: &TableReader, _number: usize) {}
    /// The value that is returned, or that operands apply to, expires.
    #[inline(always)]
    fn expires(&mut self, _expiry: Expiry) {}
}

/// A recorder that keeps nothing.
pub struct Silent;

impl Recorder for Silent {}

/// A recorder that keeps everything.
#[derive(Default)]
pub struct Trace {
    /// Steps so far.
    pub steps: Vec<Step>,
    /// Newest range tombstone over the key; `ZERO` without one.
    pub floor: SeqNo,
    /// Steps of the filter that is being tested.
    modules: Vec<ModuleStep>,
}

impl Recorder for Trace {
    const RECORDS: bool = true;
    fn step(&mut self, step: impl FnOnce() -> Step) {
        self.steps.push(step());
    }
    fn floor(&mut self, floor: SeqNo) {
        self.floor = floor;
    }
    fn module(&mut self, step: impl FnOnce() -> ModuleStep) {
        self.modules.push(step());
    }
    fn filter(&mut self, plan: &RunPlan, number: usize, verdict: Verdict) {
        let modules = std::mem::take(&mut self.modules);
        self.steps.push(Step::filter(plan, number, verdict, modules));
    }
    // `searched`, `recorded` and `partition` are not kept: the steps hold more.
}

/// The place of a step of a lookup.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Place {
    /// A memtable; 0 is the one that takes writes.
    Memtable {
        /// Its position among the memtables, newest first.
        number: usize,
    },
    /// The record cache.
    Records,
    /// The merge operator of the keyspace.
    Operator,
    /// The clock by which entries expire.
    Clock,
    /// A value file.
    ValueFile {
        /// Its number.
        file: u64,
    },
    /// A run.
    Run {
        /// Its level.
        level: u32,
        /// Its number.
        run: u64,
    },
    /// A table of a run.
    Table {
        /// The run's level.
        level: u32,
        /// The run's number.
        run: u64,
        /// The table's number.
        table: u64,
    },
}

/// The action of a step.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Action {
    /// The memtable was searched.
    MemtableSearched {
        /// Number of entries in it.
        entries: u64,
    },
    /// The record cache had the newest entry of the key in the tables, or the proof that there is
    /// none; no table was searched.
    RecordFound,
    /// No table of the run has the key in its range: nothing was touched.
    OutOfRange,
    /// No table of the run can have a key with the prefix: nothing was touched.
    OutOfPrefix,
    /// The table is kept closed, so its filter is not in memory: it must be searched.
    Closed,
    /// The filter holds no prefixes: the table must be searched.
    NoPrefixes,
    /// Keys of the scan may have different prefixes by the extractor of the table, which must be
    /// searched.
    PrefixNotFixed {
        /// The extractor that the table was written with.
        extractor: Prefix,
    },
    /// The table has no filter (none was written, or it is damaged): it must be searched.
    NoFilter,
    /// At least one module of the filter was tested.
    FilterProbed {
        /// False: the key is certainly not in the table, which was skipped.
        maybe: bool,
        /// Step of each module, up to the first "no".
        modules: Vec<ModuleStep>,
    },
    /// No module of the filter was tested: the table must be searched.
    FilterSkipped {
        /// The reason for each module.
        modules: Vec<ModuleStep>,
    },
    /// Index and data block were searched.
    TableSearched {
        /// Blocks read from the file.
        data_reads: u64,
        /// Blocks found in the cache.
        cache_hits: u64,
        /// Index partitions read from the file.
        index_reads: u64,
        /// Nanoseconds, file reads included.
        ns: u64,
        /// Whether a filter had said "maybe": if nothing was found, that was a false positive.
        filtered: bool,
    },
    /// The entry that was found has expired.
    Expired {
        /// The time from which it is not visible, in milliseconds since 1970-01-01 UTC.
        expiry_ms: u64,
        /// The time of the reader.
        now_ms: u64,
    },
    /// The value of the entry that was found was read.
    ValueRead {
        /// Offset in the file.
        offset: u64,
        /// Stored bytes.
        bytes: u64,
        /// Reads from the file.
        reads: u64,
        /// Nanoseconds.
        ns: u64,
    },
    /// The operands that were found were folded into the value.
    Folded {
        /// Number of operands; combined ones count once.
        operands: usize,
        /// Whether there is a value below them that they apply to.
        has_base: bool,
        /// Name of the merge operator.
        operator: String,
    },
}

/// One step of a lookup.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Step {
    /// The place.
    pub place: Place,
    /// The action.
    pub action: Action,
    /// The entry found: its sequence number and whether it is a tombstone.
    pub found: Option<(u64, bool)>,
}

impl Step {
    fn found_of(entry: Option<&Entry>) -> Option<(u64, bool)> {
        entry.map(|entry| (entry.seq.0, entry.kind == EntryKind::Delete))
    }

    /// Memtable `number` was searched.
    pub fn memtable(number: usize, entries: u64, entry: Option<&Entry>) -> Self {
        let action = Action::MemtableSearched { entries };
        Self { place: Place::Memtable { number }, action, found: Self::found_of(entry) }
    }

    /// The record cache answered the lookup.
    pub fn record(cached: &Cached) -> Self {
        let (seq, is_tombstone) = match cached {
            Cached::Value { seq, .. } => (*seq, false),
            Cached::Absent { seq, is_tombstone } => (*seq, *is_tombstone),
            Cached::Unknown { .. } => (SeqNo::ZERO, false),
        };
        let found = (seq > SeqNo::ZERO).then_some((seq.0, is_tombstone));
        Self { place: Place::Records, action: Action::RecordFound, found }
    }

    /// Operands were folded.
    pub fn folded(operands: usize, has_base: bool, merging: Option<&Merging>) -> Self {
        let operator = merging.map_or_else(String::new, |merging| merging.name().to_owned());
        let action = Action::Folded { operands, has_base, operator };
        Self { place: Place::Operator, action, found: None }
    }

    /// The entry found has expired.
    pub fn expired(expiry: Expiry, now_ms: u64) -> Self {
        let action = Action::Expired { expiry_ms: expiry.0, now_ms };
        Self { place: Place::Clock, action, found: None }
    }

    /// A value was read from its value file.
    pub fn value(reference: ValueFileRef, reads: u64, ns: u64) -> Self {
        let ValueFileRef { file, offset, stored_bytes, .. } = reference;
        let action = Action::ValueRead { offset, bytes: stored_bytes.into(), reads, ns };
        Self { place: Place::ValueFile { file: file.0 }, action, found: None }
    }

    /// The key lies outside every table of the run.
    pub fn outside(level: u32, run: &Run) -> Self {
        Self { place: Place::Run { level, run: run.id.0 }, action: Action::OutOfRange, found: None }
    }

    /// No table of the run reaches into the keys with the prefix.
    pub fn without_prefix(level: u32, run: &Run) -> Self {
        Self { place: Place::Run { level, run: run.id.0 }, action: Action::OutOfPrefix, found: None }
    }

    /// Table `number` of the run is not open.
    pub fn closed(plan: &RunPlan, number: usize) -> Self {
        Self { place: Self::table(plan, number), action: Action::Closed, found: None }
    }

    /// The filter of table `number` of the run holds no prefixes.
    pub fn no_prefixes(plan: &RunPlan, number: usize) -> Self {
        Self { place: Self::table(plan, number), action: Action::NoPrefixes, found: None }
    }

    /// The extractor of table `number` of the run may give the keys different prefixes.
    pub fn prefix_not_fixed(plan: &RunPlan, number: usize, extractor: Prefix) -> Self {
        let action = Action::PrefixNotFixed { extractor };
        Self { place: Self::table(plan, number), action, found: None }
    }

    /// The place of table `number` of the run.
    fn table(plan: &RunPlan, number: usize) -> Place {
        let table = plan.run.tables().get(number).map_or(0, |table| table.meta.id.0);
        Place::Table { level: plan.level, run: plan.run.id.0, table }
    }

    /// Table `number` of the run has no filter to ask.
    pub fn no_filter(plan: &RunPlan, number: usize) -> Self {
        Self { place: Self::table(plan, number), action: Action::NoFilter, found: None }
    }

    fn filter(plan: &RunPlan, number: usize, verdict: Verdict, modules: Vec<ModuleStep>) -> Self {
        let action = match verdict {
            Verdict::Unasked => Action::FilterSkipped { modules },
            Verdict::No | Verdict::Maybe => {
                Action::FilterProbed { maybe: verdict == Verdict::Maybe, modules }
            }
        };
        Self { place: Self::table(plan, number), action, found: None }
    }

    /// A table was searched.
    pub fn search(
        plan: &RunPlan,
        number: usize,
        io: &ReadCounters,
        entry: Option<&Entry>,
        ns: u64,
        filtered: bool,
    ) -> Self {
        let (data_reads, index_reads, cache_hits) = (io.data.count, io.index.count, io.cache_hits);
        let action = Action::TableSearched { data_reads, cache_hits, index_reads, ns, filtered };
        Self { place: Self::table(plan, number), action, found: Self::found_of(entry) }
    }
}

/// Outcome of a lookup.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// A value was found.
    Found {
        /// The value.
        value: Slice,
    },
    /// A tombstone was found, or an entry that a range tombstone hides.
    Deleted,
    /// No entry was found.
    Absent,
}

/// The record of one lookup. Its `Display` is for people.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// The key.
    pub key: Vec<u8>,
    /// Its digest.
    pub digest: u64,
    /// Digests computed.
    pub hashes: u64,
    /// The sequence number that the lookup read at.
    pub sequence: u64,
    /// The newest range tombstone over the key, if there is one.
    pub range_delete_floor: Option<u64>,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// The outcome.
    pub outcome: Outcome,
    /// Filters tested.
    pub filters: u64,
    /// Tables in which nothing was found although their filter said "maybe".
    pub false_positives: u64,
    /// Reads from files by kind: number, bytes and pages.
    pub reads: ReadsByKind,
    /// Filter modules skipped: not in memory, or dormant.
    pub modules_skipped: u64,
    /// Total nanoseconds, including the recording.
    pub total_ns: u64,
}

impl Explanation {
    /// The explanation of a lookup that was recorded by `trace` and found `value`.
    pub fn new(lookup: &Lookup<'_>, trace: Trace, counts: &LookupCounts, value: Option<Value>) -> Self {
        let outcome = match value {
            Some(value) => Outcome::Found { value: Slice::from_value(value) },
            None if trace.steps.iter().any(|step| step.found.is_some()) => Outcome::Deleted,
            None => Outcome::Absent,
        };
        let is_probe = |step: &&Step| matches!(step.action, Action::FilterProbed { .. });
        debug_assert_eq!(
            counts.filters,
            trace.steps.iter().filter(is_probe).count() as u64,
            "each filter that was consulted is a step"
        );
        Self {
            key: lookup.key.to_vec(),
            digest: lookup.digest.raw(),
            hashes: counts.hashes,
            sequence: lookup.seq.0,
            range_delete_floor: (trace.floor > SeqNo::ZERO).then_some(trace.floor.0),
            steps: trace.steps,
            outcome,
            filters: counts.filters,
            false_positives: counts.false_positives,
            reads: counts.reads(),
            modules_skipped: counts.modules_skipped,
            total_ns: counts.rare_so_far().total_ns,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Memtable { number: 0 } => f.write_str("memtable (active)")?,
            Place::Memtable { number } => write!(f, "memtable {number} (sealed)")?,
            Place::Records => f.write_str("record cache")?,
            Place::Operator => f.write_str("merge operator")?,
            Place::Clock => f.write_str("clock")?,
            Place::ValueFile { file } => write!(f, "value file {file}")?,
            Place::Run { level, run } => write!(f, "level {level}, run {run}")?,
            Place::Table { level, run, table } => write!(f, "level {level}, run {run}, table {table}")?,
        }
        f.write_str(": ")?;
        match &self.action {
            Action::MemtableSearched { entries } => write!(f, "searched among {entries} entries")?,
            Action::RecordFound if self.found.is_some() => {
                f.write_str("has the newest entry of the tables; nothing read")?
            }
            Action::RecordFound => f.write_str("knows that the tables have no entry")?,
            Action::Expired { expiry_ms, now_ms } => {
                let ago_ms = now_ms.saturating_sub(*expiry_ms);
                write!(f, "the entry has expired, {ago_ms} ms ago (at {expiry_ms} ms since 1970)")?;
            }
            Action::ValueRead { offset, bytes, reads, ns } => {
                write!(f, "the value: {bytes} bytes at {offset}, {reads} reads")?;
                if *ns > 0 {
                    write!(f, ", {ns} ns")?;
                }
            }
            Action::Folded { operands, has_base, operator } => {
                let base = if *has_base { "the value below them" } else { "no value" };
                let plural = if *operands == 1 { "" } else { "s" };
                write!(f, "{operator:?} applied {operands} operand{plural} to {base}")?;
            }
            Action::OutOfRange => f.write_str("no table has the key in its range; nothing read")?,
            Action::OutOfPrefix => f.write_str("no table reaches into the prefix; nothing read")?,
            Action::Closed => f.write_str("closed, so it must be searched")?,
            Action::NoPrefixes => f.write_str("no prefixes in its filter, so it must be searched")?,
            Action::PrefixNotFixed { extractor } => {
                write!(f, "the prefix is too short for its extractor, {extractor}, so it must be searched")?;
            }
            Action::NoFilter => f.write_str("no filter, so it must be searched")?,
            Action::FilterProbed { maybe, modules } => {
                f.write_str(if *maybe { "filter says maybe" } else { "filter says no; skipped" })?;
                // A single module has the same result as the filter.
                if !matches!(&modules[..], [ModuleStep::Held { .. }]) {
                    write!(f, " ({})", joined(modules))?;
                }
            }
            Action::FilterSkipped { modules } => {
                write!(f, "filter not probed ({}), so it must be searched", joined(modules))?;
            }
            Action::TableSearched { data_reads, cache_hits, index_reads, ns, .. } => {
                write!(f, "searched: {data_reads} blocks read, {cache_hits} from the cache")?;
                if *index_reads > 0 {
                    write!(f, ", {index_reads} index partitions read")?;
                }
                if *ns > 0 {
                    write!(f, ", {ns} ns")?;
                }
            }
        }
        match (self.found, &self.action) {
            (Some((seq, false)), _) => write!(f, "; found the entry of sequence {seq}"),
            (Some((seq, true)), _) => write!(f, "; found the tombstone of sequence {seq}"),
            (None, Action::TableSearched { filtered: true, .. }) => {
                f.write_str("; not found (false positive)")
            }
            (None, Action::TableSearched { .. }) => f.write_str("; not there"),
            (None, _) => Ok(()),
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "key       \"{}\" ({} bytes)", self.key.escape_ascii(), self.key.len())?;
        writeln!(f, "digest    {:016x}, {} computed for this lookup", self.digest, self.hashes)?;
        writeln!(f, "sequence  {}", self.sequence)?;
        match self.range_delete_floor {
            Some(floor) => writeln!(f, "range tombstones: the newest over the key has sequence {floor}")?,
            None => writeln!(f, "range tombstones: none over the key")?,
        }
        for (number, step) in self.steps.iter().enumerate() {
            writeln!(f, "{:>3}. {step}", number + 1)?;
        }
        let outcome = match &self.outcome {
            Outcome::Found { value } => format!("found, a value of {} bytes", value.len()),
            Outcome::Deleted => "deleted".into(),
            Outcome::Absent => "absent: no entry anywhere".into(),
        };
        writeln!(f, "outcome   {outcome}")?;
        write!(
            f,
            "cost      filters probed {}, modules skipped {}, false positives {}; read: {} filter slices, {} index \
             partitions, {} blocks, {} pieces of values ({} bytes, {} pages); {} ns (recording included)",
            self.filters,
            self.modules_skipped,
            self.false_positives,
            self.reads.filter.count,
            self.reads.index.count,
            self.reads.data.count,
            self.reads.value.count,
            self.reads.all().bytes,
            self.reads.all().pages,
            self.total_ns
        )
    }
}
