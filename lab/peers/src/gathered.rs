//! Aggregation of rows: for each engine and workload the median of the repetitions, with minimum
//! and maximum.
//!
//! Several runs may append to one file, each after a line with its facts. All of them must come
//! from one machine; the runs of one situation from one build with the same requests; and no row
//! may occur twice. Otherwise a median would cover different things. Different situations may come
//! from different builds, because measuring all of them takes nights; each states its build.
//!
//! Not here: presentation ([`crate::table`], [`crate::published`], [`crate::figure`]).

use std::collections::BTreeMap;
use std::path::Path;

use crate::peer::{Compression, Engine, Io, Result, Stated};
use crate::result::{self, Line, Row, Situation};
use crate::workload::Workload;

/// A measured quantity. Lower is better for all of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Metric {
    /// Nanoseconds per operation, inside the call.
    Time,
    /// Nanoseconds per operation until background work has ended.
    Settled,
    /// CPU nanoseconds per operation, all threads.
    Cpu,
    /// Median latency.
    P50,
    /// 99th percentile of latencies.
    P99,
    /// 99.9th percentile.
    P999,
    /// Bytes written per byte put.
    Written,
    /// Bytes read by system calls, per operation.
    CallRead,
    /// Bytes read from the device, per operation.
    DeviceRead,
    /// Resident bytes.
    Rss,
    /// Bytes on disk.
    Space,
}

impl Metric {
    /// All metrics, in the order of tables.
    pub const ALL: [Self; 11] = [
        Self::Time,
        Self::Settled,
        Self::Cpu,
        Self::P50,
        Self::P99,
        Self::P999,
        Self::Written,
        Self::CallRead,
        Self::DeviceRead,
        Self::Rss,
        Self::Space,
    ];

    /// The name in explanations.
    pub fn name(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Settled => "settled",
            Self::Cpu => "cpu",
            Self::P50 => "p50",
            Self::P99 => "p99",
            Self::P999 => "p99.9",
            Self::Written => "written",
            Self::CallRead => "read-calls",
            Self::DeviceRead => "read-device",
            Self::Rss => "rss",
            Self::Space => "space",
        }
    }

    /// The heading of its full table.
    pub fn title(self) -> &'static str {
        match self {
            Self::Time => "Time: ns per operation, inside the call",
            Self::Settled => "Time until background work ends: ns per operation",
            Self::Cpu => "CPU: ns per operation, all threads, until background work ends",
            Self::P50 => "p50, ns",
            Self::P99 => "p99, ns",
            Self::P999 => "p99.9, ns",
            Self::Written => "Bytes written by system calls per byte put, until background work ends",
            Self::CallRead => "Bytes read by system calls, per operation (memory maps need none)",
            Self::DeviceRead => "Bytes read from the device, per operation",
            Self::Rss => {
                "Resident MiB after the last operation, without the driver's; pages of the memory maps of LMDB and \
                 LevelDB count, the kernel's page cache does not"
            }
            Self::Space => "MiB on disk, once the process is idle",
        }
    }

    /// Whether the metric is meaningful for the workload.
    pub fn is_of(self, workload: Workload) -> bool {
        match self {
            Self::Written | Self::Settled => !workload.only_reads(),
            Self::CallRead | Self::DeviceRead => !workload.only_writes(),
            Self::Space => matches!(workload, Workload::FillSeq | Workload::FillRandom | Workload::Overwrite),
            // A mean of a thousand entries is no percentile of one.
            Self::P50 | Self::P99 | Self::P999 => workload != Workload::ReadSeq,
            Self::Time | Self::Cpu | Self::Rss => true,
        }
    }

    /// The value in a row; `None` for a percentile with too few samples.
    fn of(self, row: &Row) -> Option<f64> {
        let samples = match self {
            Self::P50 => 1,
            Self::P99 => 1000,
            Self::P999 => 10_000,
            _ => 0,
        };
        (row.samples >= samples).then(|| self.figure(row))
    }

    fn figure(self, row: &Row) -> f64 {
        let per_op = |count: u64| count as f64 / row.ops.max(1) as f64;
        match self {
            Self::Time => row.ns_per_op,
            Self::Settled => (row.seconds + row.settle_seconds) * 1e9 / row.ops.max(1) as f64,
            Self::Cpu => row.cpu_ns_per_op,
            Self::P50 => row.p50_ns as f64,
            Self::P99 => row.p99_ns as f64,
            Self::P999 => row.p999_ns as f64,
            Self::Written => row.call_write_bytes as f64 / row.user_bytes.max(1) as f64,
            Self::CallRead => per_op(row.call_read_bytes),
            Self::DeviceRead => per_op(row.device_read_bytes),
            Self::Rss => row.rss_bytes as f64 / f64::from(1 << 20),
            Self::Space => row.space_bytes as f64 / f64::from(1 << 20),
        }
    }
}

/// Median and range of the repetitions of one value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
    /// Number of repetitions; with one the spread is unknown.
    pub count: usize,
}

impl Spread {
    fn of(mut figures: Vec<f64>) -> Option<Self> {
        figures.sort_by(f64::total_cmp);
        let (min, max) = (*figures.first()?, *figures.last()?);
        let upper = figures.len() / 2;
        let lower = (figures.len() - 1) / 2;
        Some(Self { median: f64::midpoint(figures[lower], figures[upper]), min, max, count: figures.len() })
    }

    /// Whether the ranges overlap, so that the values may be equal.
    pub fn overlaps(self, other: Self) -> bool {
        self.min <= other.max && other.min <= self.max
    }
}

/// Facts that may differ between runs whose rows share a cell.
const OF_A_RUN: [&str; 2] = ["command", "day"];
/// Facts that may differ, too, between runs whose rows share a table.
const OF_A_SITUATION: [&str; 2] = ["commit", "requests"];

/// The value of a fact.
fn value<'a>(facts: &'a [Stated], name: &str) -> &'a str {
    facts.iter().find(|fact| fact.0 == name).map_or("not stated", |fact| fact.1.as_str())
}

/// Checks that these facts are equal in both runs.
fn check_facts<'a>(
    names: impl Iterator<Item = &'a str>,
    before: &[Stated],
    now: &[Stated],
    place: &str,
) -> Result<()> {
    for name in names {
        let (before, now) = (value(before, name), value(now, name));
        if before != now {
            return Err(format!("runs that cannot share one {place}: {name} was {before:?} and is {now:?}"));
        }
    }
    Ok(())
}

/// Checks that rows of runs with these facts may share a table: the machine is the same.
///
/// # Errors
/// The first fact that differs.
pub fn check_machine(before: &[Stated], now: &[Stated]) -> Result<()> {
    let names = before.iter().chain(now).map(|fact| fact.0.as_str());
    let of_machine = names.filter(|name| !OF_A_RUN.contains(name) && !OF_A_SITUATION.contains(name));
    check_facts(of_machine, before, now, "table")
}

/// Checks that rows of runs with these facts may share a cell: build and requests are the same.
///
/// # Errors
/// The first fact that differs.
pub fn check_situation(before: &[Stated], now: &[Stated]) -> Result<()> {
    check_facts(OF_A_SITUATION.into_iter(), before, now, "cell")
}

/// The runs that measured a situation.
pub struct Runs {
    pub at: Situation,
    /// Facts of the first of them.
    facts: Vec<Stated>,
    /// Days of all of them.
    days: Vec<String>,
    /// Commands of all of them.
    commands: Vec<String>,
}

impl Runs {
    /// The commit that was built.
    pub fn commit(&self) -> &str {
        value(&self.facts, "commit")
    }

    /// Seed and numbers of the requests.
    pub fn requests(&self) -> &str {
        value(&self.facts, "requests")
    }

    /// Days of measurement.
    pub fn days(&self) -> String {
        self.days.join(", ")
    }
}

/// A process that failed and that no later run repeated with success.
pub struct Failure {
    pub at: Situation,
    pub engine: Engine,
    pub message: String,
    workloads: Vec<Workload>,
    repeat: u32,
}

/// All lines of a file of results, by kind.
#[derive(Default)]
pub struct Gathered {
    /// Facts about the machine.
    pub facts: Vec<Stated>,
    /// Situations, in the order of tables.
    pub situations: Vec<Situation>,
    /// The runs of each situation.
    pub runs: Vec<Runs>,
    /// Engines, in the order of tables.
    pub engines: Vec<Engine>,
    /// Options of each engine: first situation in the file, engine, version, options.
    pub options: Vec<(Situation, Engine, String, Vec<Stated>)>,
    /// Why engines are absent.
    pub absences: BTreeMap<String, String>,
    /// Processes that failed.
    pub failures: Vec<Failure>,
    rows: Vec<Row>,
}

impl Gathered {
    /// Reads a file of results.
    pub fn read(file: &Path) -> Result<Self> {
        Self::of(result::read(file)?).map_err(|error| format!("{}: {error}", file.display()))
    }

    /// Collects the lines by kind.
    ///
    /// # Errors
    /// A run on another machine than the first; a run of a situation by another build than the
    /// first; a row that was measured twice.
    pub fn of(lines: Vec<Line>) -> Result<Self> {
        let mut all = Self::default();
        // Facts of the first run, and of the run whose rows follow.
        let (mut first, mut now): (Option<Vec<Stated>>, Vec<Stated>) = (None, Vec::new());
        for line in lines {
            match line {
                Line::Facts { facts } => {
                    check_machine(first.get_or_insert_with(|| facts.clone()), &facts)?;
                    now = facts;
                }
                Line::Options { at, engine, version, options } => {
                    if !all.options.iter().any(|(seen, of, ..)| (*seen, *of) == (at, engine)) {
                        all.options.push((at, engine, version, options));
                    }
                }
                Line::Absent { at, engine, reason } => {
                    all.absences.insert(format!("{engine}, {}", at.io.name()), reason);
                }
                Line::Failure { at, engine, workloads, repeat, message } => {
                    all.failures.push(Failure { at, engine, workloads, repeat, message });
                }
                Line::Row(row) => {
                    if !all.situations.contains(&row.at) {
                        all.situations.push(row.at);
                    }
                    if all.rows.iter().any(|known| cell(known) == cell(&row) && known.repeat == row.repeat) {
                        return Err(format!("{} was measured twice", name_of(&row)));
                    }
                    all.note_run(row.at, &now)?;
                    all.failures.retain(|failure| {
                        (failure.at, failure.engine, failure.repeat) != (row.at, row.engine, row.repeat)
                            || !failure.workloads.contains(&row.workload)
                    });
                    all.rows.push(*row);
                }
            }
        }
        all.facts = first.unwrap_or_default();
        all.facts.retain(|fact| {
            !OF_A_RUN.contains(&fact.0.as_str()) && !OF_A_SITUATION.contains(&fact.0.as_str())
        });
        all.engines = Engine::ALL
            .into_iter()
            .filter(|engine| all.rows.iter().any(|row| row.engine == *engine))
            .collect();
        all.situations.sort_by_key(|at| {
            let set = at.dataset;
            let is_compressed = at.compression != Compression::None;
            let size = (set.key_bytes, set.value_bytes, set.items);
            (size, is_compressed, at.io == Io::Direct, at.budget_bytes)
        });
        Ok(all)
    }

    /// Notes that a run with these facts measured a situation.
    fn note_run(&mut self, at: Situation, facts: &[Stated]) -> Result<()> {
        let place = self.runs.iter().position(|runs| runs.at == at).unwrap_or_else(|| {
            let facts = facts.to_vec();
            self.runs.push(Runs { at, facts, days: Vec::new(), commands: Vec::new() });
            self.runs.len() - 1
        });
        let runs = &mut self.runs[place];
        check_situation(&runs.facts, facts)?;
        for (known, name) in [(&mut runs.days, "day"), (&mut runs.commands, "command")] {
            let value = value(facts, name).to_owned();
            if !known.contains(&value) {
                known.push(value);
            }
        }
        Ok(())
    }

    /// The commands of all runs.
    pub fn commands(&self) -> Vec<&str> {
        let mut commands: Vec<&str> = Vec::new();
        for command in self.runs.iter().flat_map(|runs| &runs.commands) {
            if !commands.contains(&command.as_str()) {
                commands.push(command);
            }
        }
        commands
    }

    /// Median and range of a metric; the values of an engine without a budget hold for each budget.
    pub fn spread(
        &self,
        at: Situation,
        workload: Workload,
        engine: Engine,
        metric: Metric,
    ) -> Option<Spread> {
        if !metric.is_of(workload) {
            return None;
        }
        // An engine without a budget has the values of the situation itself, else of the first in
        // which it was measured, so that they come from one build.
        let is_alike = |row: &Situation| {
            engine.ignores_budget() && Situation { budget_bytes: at.budget_bytes, ..*row } == at
        };
        let of = |row: &&Row| row.engine == engine && row.workload == workload;
        let places: Vec<Situation> = self.rows.iter().filter(of).map(|row| row.at).collect();
        let place =
            if places.contains(&at) { Some(at) } else { places.into_iter().find(|place| is_alike(place)) };
        let is_there = |row: &Situation| Some(*row) == place;
        let rows = self
            .rows
            .iter()
            .filter(|row| row.engine == engine && row.workload == workload && is_there(&row.at));
        Spread::of(rows.filter_map(|row| metric.of(row)).collect())
    }

    /// Lowest and highest number of repetitions of a value, in one situation or in all.
    pub fn repeats(&self, at: Option<Situation>) -> (usize, usize) {
        let count = |row: &Row| self.rows.iter().filter(|other| cell(other) == cell(row)).count();
        let counts = || self.rows.iter().filter(|row| at.is_none_or(|at| row.at == at)).map(count);
        (counts().min().unwrap_or(0), counts().max().unwrap_or(0))
    }

    /// Checks that all engines gave the same answers to the same requests.
    ///
    /// # Errors
    /// The first request with different answers, and the engines.
    pub fn check_answers(&self) -> Result<()> {
        let mut of: BTreeMap<String, (String, Engine)> = BTreeMap::new();
        for row in &self.rows {
            let asked = format!("{} ({} operations)", asked_of(row), row.ops);
            let (answers, engine) =
                of.entry(asked.clone()).or_insert_with(|| (row.answers.clone(), row.engine));
            if *answers != row.answers {
                return Err(format!(
                    "{asked}: {engine} and {} answered differently (or runs with different --ops or --seed are together in one file)",
                    row.engine
                ));
            }
        }
        Ok(())
    }
}

/// The key of a cell: rows that differ in the repetition alone.
fn cell(row: &Row) -> (Situation, Engine, Workload) {
    (row.at, row.engine, row.workload)
}

/// Description of the requests of a row.
fn asked_of(row: &Row) -> String {
    let at = row.at;
    format!(
        "{} budget {} MiB {} {} {}",
        at.dataset,
        at.budget_bytes >> 20,
        at.io.name(),
        at.compression.name(),
        row.workload.name()
    )
}

fn name_of(row: &Row) -> String {
    format!("{} {} repeat {}", row.engine, asked_of(row), row.repeat)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::stated;

    fn facts(commit: &str, command: &str) -> Line {
        Line::Facts { facts: vec![stated("commit", commit), stated("command", command)] }
    }

    fn row(engine: Engine, repeat: u32, ns_per_op: f64) -> Line {
        let at = Situation {
            dataset: "1000x16+100".parse().expect("a data set"),
            budget_bytes: 8 << 20,
            io: Io::PageCache,
            compression: Compression::None,
        };
        Line::Row(Box::new(Row {
            at,
            engine,
            workload: Workload::ReadRandom,
            repeat,
            ops: 10,
            seconds: 1.0,
            ns_per_op,
            samples: 2000,
            p50_ns: 1,
            p99_ns: 1,
            p999_ns: 1,
            cpu_ns_per_op: 1.0,
            settle_seconds: 0.0,
            user_bytes: 0,
            device_read_bytes: 0,
            device_write_bytes: 0,
            call_read_bytes: 0,
            call_write_bytes: 0,
            rss_bytes: 1,
            rss_file_bytes: 0,
            rss_peak_bytes: 1,
            space_bytes: 1,
            runs: None,
            answers: "same".to_owned(),
        }))
    }

    #[test]
    fn only_runs_of_one_build_share_a_cell() {
        let (ours, theirs) = (row(Engine::Shamba, 0, 1.0), row(Engine::Redb, 0, 2.0));
        let lines = vec![facts("a", "run 1"), ours.clone(), facts("a", "run 2"), theirs.clone()];
        let all = Gathered::of(lines).expect("one build");
        assert_eq!((all.engines.len(), all.facts.len(), all.repeats(None)), (2, 0, (1, 1)));
        assert_eq!(
            (all.commands(), all.runs[0].commit(), all.runs[0].requests()),
            (vec!["run 1", "run 2"], "a", "not stated")
        );
        let lines = vec![facts("a", "run 1"), ours.clone(), facts("b", "run 1"), theirs.clone()];
        let error = Gathered::of(lines).err().expect("another build");
        assert_eq!(error, r#"runs that cannot share one cell: commit was "a" and is "b""#);
        let Line::Row(mut elsewhere) = theirs else { panic!("a row") };
        elsewhere.at.budget_bytes *= 2;
        let lines = vec![facts("a", "run"), ours.clone(), facts("b", "run"), Line::Row(elsewhere)];
        let all = Gathered::of(lines).expect("situations of two builds");
        assert_eq!(all.runs.iter().map(Runs::commit).collect::<Vec<_>>(), ["a", "b"]);
        let machine = |name: &str| Line::Facts { facts: vec![stated("processor", name)] };
        let error = Gathered::of(vec![machine("x"), ours, machine("y")]).err().expect("another machine");
        assert_eq!(error, r#"runs that cannot share one table: processor was "x" and is "y""#);
    }

    #[test]
    fn a_row_that_was_measured_twice_is_an_error() {
        let again = vec![facts("a", "run"), row(Engine::Shamba, 0, 1.0), row(Engine::Shamba, 0, 5.0)];
        let error = Gathered::of(again).err().expect("twice");
        assert!(error.contains("repeat 0 was measured twice"), "{error}");
    }

    #[test]
    fn the_lowest_number_of_repetitions_is_found() {
        let lines = vec![row(Engine::Shamba, 0, 1.0), row(Engine::Shamba, 1, 2.0), row(Engine::Redb, 0, 1.0)];
        assert_eq!(Gathered::of(lines).expect("rows").repeats(None), (1, 2));
        assert_eq!(Gathered::of(Vec::new()).expect("nothing").repeats(None), (0, 0));
    }

    #[test]
    fn percentiles_need_samples_and_background_work_counts() {
        let Line::Row(mut row) = row(Engine::Shamba, 0, 5.0) else { unreachable!("a row") };
        assert_eq!((Metric::P99.of(&row), Metric::P999.of(&row)), (Some(1.0), None));
        row.samples = 10_000;
        assert_eq!(Metric::P999.of(&row), Some(1.0));
        (row.seconds, row.settle_seconds, row.ops) = (1.0, 3.0, 4);
        assert_eq!((Metric::Time.of(&row), Metric::Settled.of(&row)), (Some(5.0), Some(1e9)));
    }

    #[test]
    fn a_failure_that_was_repeated_with_success_is_dropped() {
        let later = row(Engine::Shamba, 0, 1.0);
        let Line::Row(first) = later.clone() else { unreachable!("a row") };
        let failure = |repeat| Line::Failure {
            at: first.at,
            engine: Engine::Shamba,
            workloads: vec![Workload::ReadRandom],
            repeat,
            message: "killed".to_owned(),
        };
        let left = |lines| Gathered::of(lines).expect("lines").failures.len();
        assert_eq!(left(vec![failure(0), later.clone()]), 0);
        assert_eq!(left(vec![failure(1), later.clone()]), 1);
        assert_eq!(left(vec![later, failure(0)]), 1);
    }

    #[test]
    fn medians_lie_between_minimum_and_maximum() {
        let spread = Spread::of(vec![3.0, 1.0, 2.0]).expect("three");
        assert_eq!((spread.median, spread.min, spread.max), (2.0, 1.0, 3.0));
        let spread = Spread::of(vec![4.0, 1.0]).expect("two");
        assert_eq!(spread.median, 2.5);
        assert_eq!(Spread::of(Vec::new()), None);
        let other = Spread { median: 5.0, min: 3.9, max: 6.0, count: 2 };
        assert!(spread.overlaps(other) && other.overlaps(spread));
        assert!(!spread.overlaps(Spread { min: 4.1, ..other }));
    }
}
