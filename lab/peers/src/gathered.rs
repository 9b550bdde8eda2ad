//! Rows put together: of each workload of each engine the median of its repetitions, with the least and the most.
//!
//! Several runs may have added to one file, each after a line with its facts: on one machine, those of a situation of one build that was
//! asked the same, and no row twice. Otherwise medians would be over what is not the same. Situations may be of several builds: a
//! table of all of them takes nights, and each says of which it is.
//!
//! Not here: how that is shown ([`crate::table`], [`crate::figure`]).

use std::collections::BTreeMap;
use std::path::Path;

use crate::peer::{Compression, Engine, Io, Result, Stated};
use crate::result::{self, Line, Row, Situation};
use crate::workload::Workload;

/// What is compared. Less is better, of each.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Metric {
    /// Nanoseconds of an operation.
    Time,
    /// Likewise, with what it left to the background.
    Settled,
    /// CPU nanoseconds of an operation, all threads.
    Cpu,
    /// Median latency.
    P50,
    /// 99th percentile of latencies.
    P99,
    /// 99.9th percentile.
    P999,
    /// Bytes written for each byte that was put.
    Written,
    /// Bytes read by system calls, an operation.
    CallRead,
    /// Bytes read by the device, an operation.
    DeviceRead,
    /// Resident bytes.
    Rss,
    /// Bytes on disk.
    Space,
}

impl Metric {
    /// Every one, in the order of tables.
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

    /// A heading.
    pub fn title(self) -> &'static str {
        match self {
            Self::Time => "Time: ns of an operation, inside its call",
            Self::Settled => "Time until the background is at rest: ns of an operation",
            Self::Cpu => "CPU: ns of an operation, all threads, until the background is at rest",
            Self::P50 => "p50, ns",
            Self::P99 => "p99, ns",
            Self::P999 => "p99.9, ns",
            Self::Written => {
                "Bytes written by system calls for each byte put, until the background is at rest"
            }
            Self::CallRead => "Bytes read by system calls, an operation (memory maps read without)",
            Self::DeviceRead => "Bytes read by the device, an operation",
            Self::Rss => {
                "Resident MiB after the last operation, without the driver's; pages of LMDB's and LevelDB's maps count, the kernel's cache counts for nobody"
            }
            Self::Space => "MiB on disk, at rest and closed",
        }
    }

    /// Whether the workload says anything about it.
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

    /// The figure; `None` where a percentile has too few samples above it.
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

/// The median of some figures, and their ends.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Spread {
    pub median: f64,
    pub least: f64,
    pub most: f64,
    /// Of how many: one has no spread.
    pub count: usize,
}

impl Spread {
    fn of(mut figures: Vec<f64>) -> Option<Self> {
        figures.sort_by(f64::total_cmp);
        let (least, most) = (*figures.first()?, *figures.last()?);
        let upper = figures.len() / 2;
        let lower = (figures.len() - 1) / 2;
        Some(Self {
            median: f64::midpoint(figures[lower], figures[upper]),
            least,
            most,
            count: figures.len(),
        })
    }

    /// Whether both might be the same.
    pub fn overlaps(self, other: Self) -> bool {
        self.least <= other.most && other.least <= self.most
    }
}

/// The facts in which runs may differ whose rows stand in one cell.
const OF_A_RUN: [&str; 2] = ["command", "day"];
/// Those in which runs may differ whose rows stand in one table.
const OF_A_SITUATION: [&str; 2] = ["commit", "requests"];

/// The value of a fact.
fn value<'a>(facts: &'a [Stated], name: &str) -> &'a str {
    facts.iter().find(|fact| fact.0 == name).map_or("not stated", |fact| fact.1.as_str())
}

/// Whether these facts are the same in both.
fn check_facts<'a>(
    names: impl Iterator<Item = &'a str>,
    before: &[Stated],
    now: &[Stated],
    place: &str,
) -> Result<()> {
    for name in names {
        let (before, now) = (value(before, name), value(now, name));
        if before != now {
            return Err(format!(
                "runs that cannot stand in one {place}: {name} was {before:?} and is {now:?}"
            ));
        }
    }
    Ok(())
}

/// Whether rows of runs with these facts may stand in one table: the machine is the same.
///
/// # Errors
/// Where not, with the fact.
pub fn check_machine(before: &[Stated], now: &[Stated]) -> Result<()> {
    let names = before.iter().chain(now).map(|fact| fact.0.as_str());
    let of_machine = names.filter(|name| !OF_A_RUN.contains(name) && !OF_A_SITUATION.contains(name));
    check_facts(of_machine, before, now, "table")
}

/// Whether rows of runs with these facts may stand in one cell: the build is the same, and what it was asked.
///
/// # Errors
/// Where not, with the fact.
pub fn check_situation(before: &[Stated], now: &[Stated]) -> Result<()> {
    check_facts(OF_A_SITUATION.into_iter(), before, now, "cell")
}

/// The runs that measured a situation.
pub struct Runs {
    pub at: Situation,
    /// Of the first of them.
    facts: Vec<Stated>,
    /// On which days, and by which commands.
    days: Vec<String>,
    commands: Vec<String>,
}

impl Runs {
    /// The commit that was built.
    pub fn commit(&self) -> &str {
        value(&self.facts, "commit")
    }

    /// What was asked.
    pub fn requests(&self) -> &str {
        value(&self.facts, "requests")
    }

    /// When.
    pub fn days(&self) -> String {
        self.days.join(", ")
    }
}

/// A process that failed, and was not made up for by a later run.
pub struct Failure {
    pub at: Situation,
    pub engine: Engine,
    pub message: String,
    workloads: Vec<Workload>,
    repeat: u32,
}

/// All lines, sorted out.
#[derive(Default)]
pub struct Gathered {
    /// Of the machine.
    pub facts: Vec<Stated>,
    /// Situations, in the order of tables.
    pub situations: Vec<Situation>,
    /// Who measured each.
    pub runs: Vec<Runs>,
    /// Engines, in the order of tables.
    pub engines: Vec<Engine>,
    /// What each engine was opened with: where first seen, version, options.
    pub options: Vec<(Situation, Engine, String, Vec<Stated>)>,
    /// Why engines are absent.
    pub absences: BTreeMap<String, String>,
    /// What failed.
    pub failures: Vec<Failure>,
    rows: Vec<Row>,
}

impl Gathered {
    /// Reads a file of results.
    pub fn read(file: &Path) -> Result<Self> {
        Self::of(result::read(file)?).map_err(|error| format!("{}: {error}", file.display()))
    }

    /// Sorts lines out.
    ///
    /// # Errors
    /// Runs of another machine than the first, of a situation those of another build; a row that was measured twice.
    pub fn of(lines: Vec<Line>) -> Result<Self> {
        let mut all = Self::default();
        // Of the first run, and of the one whose rows come.
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
            (set.key_bytes, set.items, is_compressed, at.io == Io::Direct, at.budget_bytes)
        });
        Ok(all)
    }

    /// A run with these facts has measured there.
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

    /// The commands by which all of it was measured.
    pub fn commands(&self) -> Vec<&str> {
        let mut commands: Vec<&str> = Vec::new();
        for command in self.runs.iter().flat_map(|runs| &runs.commands) {
            if !commands.contains(&command.as_str()) {
                commands.push(command);
            }
        }
        commands
    }

    /// The figures of a workload; those of an engine without a budget stand for every budget.
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
        // Of an engine without a budget, those of the situation itself, else of the first where it was measured: of one build.
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

    /// Repetitions of the figure that has the fewest, and of the one that has the most; of one situation, or of all.
    pub fn repeats(&self, at: Option<Situation>) -> (usize, usize) {
        let count = |row: &Row| self.rows.iter().filter(|other| cell(other) == cell(row)).count();
        let counts = || self.rows.iter().filter(|row| at.is_none_or(|at| row.at == at)).map(count);
        (counts().min().unwrap_or(0), counts().max().unwrap_or(0))
    }

    /// Whether all engines gave the same answers to the same requests.
    ///
    /// # Errors
    /// Where not, with the engines.
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

/// What the figures of one cell have in common.
fn cell(row: &Row) -> (Situation, Engine, Workload) {
    (row.at, row.engine, row.workload)
}

/// What was asked, in words.
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
    fn runs_of_one_build_stand_together_and_no_others() {
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
        assert_eq!(error, r#"runs that cannot stand in one cell: commit was "a" and is "b""#);
        let Line::Row(mut elsewhere) = theirs else { panic!("a row") };
        elsewhere.at.budget_bytes *= 2;
        let lines = vec![facts("a", "run"), ours.clone(), facts("b", "run"), Line::Row(elsewhere)];
        let all = Gathered::of(lines).expect("situations of two builds");
        assert_eq!(all.runs.iter().map(Runs::commit).collect::<Vec<_>>(), ["a", "b"]);
        let machine = |name: &str| Line::Facts { facts: vec![stated("processor", name)] };
        let error = Gathered::of(vec![machine("x"), ours, machine("y")]).err().expect("another machine");
        assert_eq!(error, r#"runs that cannot stand in one table: processor was "x" and is "y""#);
    }

    #[test]
    fn a_row_that_was_measured_twice_is_no_repetition() {
        let again = vec![facts("a", "run"), row(Engine::Shamba, 0, 1.0), row(Engine::Shamba, 0, 5.0)];
        let error = Gathered::of(again).err().expect("twice");
        assert!(error.contains("repeat 0 was measured twice"), "{error}");
    }

    #[test]
    fn the_fewest_repetitions_are_told() {
        let lines = vec![row(Engine::Shamba, 0, 1.0), row(Engine::Shamba, 1, 2.0), row(Engine::Redb, 0, 1.0)];
        assert_eq!(Gathered::of(lines).expect("rows").repeats(None), (1, 2));
        assert_eq!(Gathered::of(Vec::new()).expect("nothing").repeats(None), (0, 0));
    }

    #[test]
    fn percentiles_need_samples_and_settling_counts() {
        let Line::Row(mut row) = row(Engine::Shamba, 0, 5.0) else { unreachable!("a row") };
        assert_eq!((Metric::P99.of(&row), Metric::P999.of(&row)), (Some(1.0), None));
        row.samples = 10_000;
        assert_eq!(Metric::P999.of(&row), Some(1.0));
        (row.seconds, row.settle_seconds, row.ops) = (1.0, 3.0, 4);
        assert_eq!((Metric::Time.of(&row), Metric::Settled.of(&row)), (Some(5.0), Some(1e9)));
    }

    #[test]
    fn a_failure_that_was_made_up_for_is_none() {
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
    fn medians_lie_between_least_and_most() {
        let spread = Spread::of(vec![3.0, 1.0, 2.0]).expect("three");
        assert_eq!((spread.median, spread.least, spread.most), (2.0, 1.0, 3.0));
        let spread = Spread::of(vec![4.0, 1.0]).expect("two");
        assert_eq!(spread.median, 2.5);
        assert_eq!(Spread::of(Vec::new()), None);
        let other = Spread { median: 5.0, least: 3.9, most: 6.0, count: 2 };
        assert!(spread.overlaps(other) && other.overlaps(spread));
        assert!(!spread.overlaps(Spread { least: 4.1, ..other }));
    }
}
