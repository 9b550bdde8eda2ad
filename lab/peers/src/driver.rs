//! Starts the measuring processes, one after the other, and keeps what they print.
//!
//! A repetition goes through all engines before the next begins, so that a machine's slow minute
//! falls on one repetition of each, not on one engine. Each engine fills a database and is asked in
//! it, once through the page cache and once past it; then the database goes.
//!
//! Not here: measuring ([`crate::child`]), tables and figures ([`crate::table`],
//! [`crate::figure`]).

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::book::Dataset;
use crate::child::Task;
use crate::facts;
use crate::gathered;
use crate::peer::{Compression, Engine, Io, Result, Stated, stated};
use crate::result::{self, Line, Situation};
use crate::workload::Workload;

/// Plan of the measurement.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The engines, in order.
    pub engines: Vec<Engine>,
    /// Datasets of the databases.
    pub datasets: Vec<Dataset>,
    /// Budgets in bytes.
    pub budgets: Vec<u64>,
    /// Ways of reading.
    pub ios: Vec<Io>,
    /// How blocks are compressed.
    pub compression: Compression,
    /// Number of repetitions.
    pub repeats: u32,
    /// Gets of a workload through the page cache, and past it.
    pub ops: u64,
    /// See `ops`.
    pub direct_ops: u64,
    /// The longest that caches fill before the first workload, in seconds.
    pub warm_seconds: f64,
    /// The seed of all requests.
    pub seed: u64,
    /// Workloads of a filled database, in that order.
    pub asked: Vec<Workload>,
    /// The budget that `fillseq` is measured with.
    pub fillseq_budget: Option<u64>,
    /// Directory of the databases.
    pub dir: PathBuf,
    /// Directory of the results.
    pub out: PathBuf,
    /// Whether they are added to those that are there: rows that are there are not measured again.
    pub adds: bool,
}

impl Plan {
    /// Whether it measures there.
    fn has(&self, at: Situation) -> bool {
        self.datasets.contains(&at.dataset)
            && self.budgets.contains(&at.budget_bytes)
            && self.ios.contains(&at.io)
            && self.compression == at.compression
    }

    /// Parameters that determine the requests: runs that differ in them are not comparable. The
    /// read modes are included, because each request continues from the state that the previous one
    /// left.
    fn requests(&self) -> String {
        let ios: Vec<&str> = self.ios.iter().map(|io| io.name()).collect();
        let mut requests = format!(
            "seed {}, {} gets, {} past the page cache; {}",
            self.seed,
            self.ops,
            self.direct_ops,
            ios.join(", then ")
        );
        if self.asked != Workload::ASKED {
            let asked: Vec<&str> = self.asked.iter().map(|workload| workload.name()).collect();
            requests = format!("{requests}; {}", asked.join(", "));
        }
        requests
    }
}

/// Carries the plan out; lines are appended to `results.jsonl` as they come, so that an interrupted
/// run keeps what it has.
///
/// # Errors
/// Where results are already that these may not be added to, before anything is measured; where
/// processes failed, after all others have run.
pub fn run(plan: &Plan) -> Result<PathBuf> {
    fs::create_dir_all(&plan.out).map_err(|error| format!("{}: {error}", plan.out.display()))?;
    let file = plan.out.join("results.jsonl");
    let mut facts = facts::gather(&plan.dir);
    facts.push(stated("requests", plan.requests()));
    let before = if plan.adds { result::read(&file)? } else { Vec::new() };
    check_addition(plan, &before, &facts)?;
    let mut kept = Kept::open(&file, plan.adds)?;
    kept.know(before);
    kept.keep(&Line::Facts { facts })?;
    for repeat in 0..plan.repeats {
        for dataset in &plan.datasets {
            for (place, budget) in plan.budgets.iter().enumerate() {
                for engine in &plan.engines {
                    if engine.ignores_budget() && place > 0 {
                        continue;
                    }
                    of_engine(plan, *engine, *dataset, *budget, repeat, &mut kept)?;
                }
            }
        }
    }
    match kept.failures {
        0 => Ok(file),
        count => Err(format!("{count} processes failed; the rest is in {}", file.display())),
    }
}

/// Checks, before anything is measured, that the plan's rows are comparable with the existing ones.
fn check_addition(plan: &Plan, before: &[Line], facts: &[Stated]) -> Result<()> {
    let mut of_rows: &[Stated] = &[];
    for line in before {
        match line {
            Line::Facts { facts: before } => {
                gathered::check_machine(before, facts)?;
                of_rows = before;
            }
            Line::Row(row) if plan.has(row.at) => gathered::check_situation(of_rows, facts)?,
            _ => {}
        }
    }
    Ok(())
}

fn of_engine(
    plan: &Plan,
    engine: Engine,
    dataset: Dataset,
    budget_bytes: u64,
    repeat: u32,
    kept: &mut Kept,
) -> Result<()> {
    let at = |io| Situation { dataset, budget_bytes, io, compression: plan.compression };
    let mut ios = Vec::new();
    for io in &plan.ios {
        match engine.absence(*io, plan.compression) {
            Some(reason) => kept.absent(at(*io), engine, reason)?,
            None => ios.push(*io),
        }
    }
    if ios.is_empty() {
        return Ok(());
    }
    let fills_in_order = plan.fillseq_budget == Some(budget_bytes);
    let lacks_order = fills_in_order && kept.lacks(at(Io::PageCache), engine, &[Workload::FillSeq], repeat);
    let lacks_random = kept.lacks(at(Io::PageCache), engine, &[Workload::FillRandom], repeat)
        || ios.iter().any(|io| kept.lacks(at(*io), engine, &plan.asked, repeat));
    let scratch = tempfile::Builder::new()
        .prefix(&format!("peers-{engine}-"))
        .tempdir_in(&plan.dir)
        .map_err(|error| format!("{}: {error}", plan.dir.display()))?;
    let task = |name: &str, io, workloads: &[Workload], ops: u64| -> Result<Task> {
        let dir = scratch.path().join(name);
        fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        Ok(Task {
            engine,
            at: at(io),
            workloads: workloads.to_vec(),
            ops,
            warm_seconds: plan.warm_seconds,
            // What is asked past the page cache comes after what was asked through it, and is not
            // the same.
            seed: plan.seed ^ u64::from(io == Io::Direct) << 40,
            value_seed: plan.seed,
            repeat,
            dir,
            book: scratch.path().join(format!("{name}.book")),
        })
    };
    if lacks_order {
        kept.start(&task("fillseq", Io::PageCache, &[Workload::FillSeq], plan.ops)?)?;
        let _ = fs::remove_dir_all(scratch.path().join("fillseq"));
    }
    if !lacks_random {
        return Ok(());
    }
    let is_filled = kept.start(&task("db", Io::PageCache, &[Workload::FillRandom], plan.ops)?)?;
    for io in ios.into_iter().filter(|_| is_filled) {
        let ops = if io == Io::Direct { plan.direct_ops } else { plan.ops };
        if !kept.start(&task("db", io, &plan.asked, ops)?)? {
            break;
        }
    }
    Ok(())
}

/// The file of results.
struct Kept {
    file: File,
    name: PathBuf,
    failures: u32,
    /// Rows that are in the file.
    known: HashSet<(Situation, Engine, Workload, u32)>,
}

impl Kept {
    /// A new file, or the one that is there if `adds`.
    fn open(name: &Path, adds: bool) -> Result<Self> {
        let failed = |error: io::Error| match error.kind() {
            ErrorKind::AlreadyExists => format!(
                "{} has another run's results: name another --out, or add to them with --add",
                name.display()
            ),
            _ => format!("{}: {error}", name.display()),
        };
        let file = OpenOptions::new().create_new(!adds).append(true).open(name).map_err(failed)?;
        Ok(Self { file, name: name.to_path_buf(), failures: 0, known: HashSet::new() })
    }

    /// Takes note of the rows that an earlier run left.
    fn know(&mut self, lines: Vec<Line>) {
        for line in lines {
            if let Line::Row(row) = line {
                self.known.insert((row.at, row.engine, row.workload, row.repeat));
            }
        }
    }

    /// Whether any of these rows is not in the file.
    fn lacks(&self, at: Situation, engine: Engine, workloads: &[Workload], repeat: u32) -> bool {
        workloads.iter().any(|workload| !self.known.contains(&(at, engine, *workload, repeat)))
    }

    /// Appends a line; a row that is there already, from a run that broke off between it and its
    /// process's end, is not kept twice.
    fn keep(&mut self, line: &Line) -> Result<()> {
        if let Line::Row(row) = line
            && !self.known.insert((row.at, row.engine, row.workload, row.repeat))
        {
            return Ok(());
        }
        // In one call, so that a killed run does not leave half a line.
        let text = result::to_json(line)? + "\n";
        self.file.write_all(text.as_bytes()).map_err(|error| format!("{}: {error}", self.name.display()))
    }

    fn absent(&mut self, at: Situation, engine: Engine, reason: &str) -> Result<()> {
        self.keep(&Line::Absent { at, engine, reason: reason.to_owned() })
    }

    /// Runs a task in a process of its own; whether it succeeded.
    fn start(&mut self, task: &Task) -> Result<bool> {
        let at = task.at;
        eprintln!(
            "{} {} budget {} MiB {} repeat {}: {}",
            task.engine,
            at.dataset,
            at.budget_bytes >> 20,
            at.io.name(),
            task.repeat,
            task.workloads.iter().map(|workload| workload.name()).collect::<Vec<_>>().join(" "),
        );
        let program = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
        let text = serde_json::to_string(task).map_err(|error| error.to_string())?;
        let mut child = Command::new(program)
            .args(["child", &text])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("a process for {}: {error}", task.engine))?;
        let complaints = child.stderr.take().map(|stderr| {
            std::thread::spawn(move || {
                BufReader::new(stderr).lines().map_while(|line| line.ok()).collect::<Vec<_>>()
            })
        });
        for line in child.stdout.take().into_iter().flat_map(|stdout| BufReader::new(stdout).lines()) {
            let line = line.map_err(|error| format!("{}: {error}", task.engine))?;
            let line =
                serde_json::from_str(&line).map_err(|error| format!("{}: {line:?}: {error}", task.engine))?;
            if let Line::Row(row) = &line {
                eprintln!("  {:12} {:>12.0} ns/op", row.workload.name(), row.ns_per_op);
            }
            self.keep(&line)?;
        }
        let status = child.wait().map_err(|error| format!("{}: {error}", task.engine))?;
        if status.success() {
            return Ok(true);
        }
        let complaints = complaints.and_then(|thread| thread.join().ok()).unwrap_or_default();
        let message = format!("{status}: {}", complaints.join(" | "));
        eprintln!("  failed: {message}");
        self.failures += 1;
        let (engine, workloads, repeat) = (task.engine, task.workloads.clone(), task.repeat);
        self.keep(&Line::Failure { at, engine, workloads, repeat, message })?;
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::child;

    #[test]
    fn results_that_are_there_are_added_to_only_if_asked() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("results.jsonl");
        let missing = Kept::open(&file, true).err().expect("nothing to add to");
        assert!(missing.starts_with(&file.display().to_string()), "{missing}");
        let line = Line::Facts { facts: Vec::new() };
        Kept::open(&file, false).expect("a new file").keep(&line).expect("kept");
        let there = Kept::open(&file, false).err().expect("it is there");
        assert!(there.contains("another run's results"), "{there}");
        Kept::open(&file, true).expect("added to").keep(&line).expect("kept");
        assert_eq!(result::read(&file).expect("two lines").len(), 2);
    }

    #[test]
    fn rows_that_are_there_are_not_kept_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("results.jsonl");
        let (mut task, mut rows) = (task(dir.path()), Vec::new());
        for workloads in [vec![Workload::FillRandom], Workload::ASKED.to_vec()] {
            task.workloads = workloads;
            let mut keep = |line: &Line| {
                rows.extend(matches!(line, Line::Row(_)).then(|| line.clone()));
                Ok(())
            };
            child::run(&task, &mut keep).expect("measured");
        }
        let asked = |kept: &Kept, repeat| kept.lacks(task.at, task.engine, &Workload::ASKED, repeat);
        let (broken, resumed) = (&rows[..4], &rows[..]);
        let mut kept = Kept::open(&file, false).expect("a new file");
        broken.iter().for_each(|row| kept.keep(row).expect("kept"));
        assert!(asked(&kept, 0));
        let mut kept = Kept::open(&file, true).expect("it is there");
        kept.know(result::read(&file).expect("what it has"));
        assert!(asked(&kept, 0));
        resumed.iter().for_each(|row| kept.keep(row).expect("kept"));
        assert!(!asked(&kept, 0) && asked(&kept, 1));
        assert_eq!(result::read(&file).expect("each once").len(), rows.len());
        gathered::Gathered::read(&file).expect("a table can be made");
    }

    fn task(dir: &Path) -> Task {
        Task {
            engine: Engine::Shamba,
            at: Situation {
                dataset: "1000x16+100".parse().expect("a data set"),
                budget_bytes: 8 << 20,
                io: Io::PageCache,
                compression: Compression::None,
            },
            workloads: Vec::new(),
            ops: 100,
            warm_seconds: 0.1,
            seed: 3,
            value_seed: 3,
            repeat: 0,
            dir: dir.join("db"),
            book: dir.join("book"),
        }
    }
}
