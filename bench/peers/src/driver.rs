//! Starts the measuring processes, one after the other, and keeps what they print.
//!
//! A repetition goes through all engines before the next begins, so that a machine's slow minute falls on one
//! repetition of each, not on one engine. Each engine fills a database and is asked in it, once through the page cache
//! and once past it; then the database goes.
//!
//! Not here: measuring ([`crate::child`]), tables and figures ([`crate::table`], [`crate::figure`]).

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::book::Dataset;
use crate::child::Task;
use crate::facts;
use crate::gathered;
use crate::peer::{Compression, Engine, Io, Result};
use crate::result::{self, Line, Situation};
use crate::workload::Workload;

/// What is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The engines, in order.
    pub engines: Vec<Engine>,
    /// What databases are filled with.
    pub datasets: Vec<Dataset>,
    /// Budgets in bytes.
    pub budgets: Vec<u64>,
    /// Ways of reading.
    pub ios: Vec<Io>,
    /// How blocks are compressed.
    pub compression: Compression,
    /// How often all of it.
    pub repeats: u32,
    /// Gets of a workload through the page cache, and past it.
    pub ops: u64,
    /// See `ops`.
    pub direct_ops: u64,
    /// Seconds for which caches fill before the first workload.
    pub warm_seconds: f64,
    /// The seed of all requests.
    pub seed: u64,
    /// The budget that `fillseq` is measured with.
    pub fillseq_budget: Option<u64>,
    /// Where databases are made.
    pub dir: PathBuf,
    /// Where results go.
    pub out: PathBuf,
    /// Whether they are added to those that are there.
    pub adds: bool,
}

/// Carries the plan out; lines are appended to `results.jsonl` as they come, so that an interrupted run keeps what it has.
///
/// # Errors
/// Where results are already that these may not be added to, before anything is measured; where processes failed, after all others have run.
pub fn run(plan: &Plan) -> Result<PathBuf> {
    fs::create_dir_all(&plan.out).map_err(|error| format!("{}: {error}", plan.out.display()))?;
    let file = plan.out.join("results.jsonl");
    let facts = facts::gather(&plan.dir);
    if plan.adds {
        for line in result::read(&file)? {
            if let Line::Facts { facts: before } = line {
                gathered::check_same(&before, &facts)?;
            }
        }
    }
    let mut kept = Kept::open(&file, plan.adds)?;
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

fn of_engine(
    plan: &Plan,
    engine: Engine,
    dataset: Dataset,
    budget_bytes: u64,
    repeat: u32,
    kept: &mut Kept,
) -> Result<()> {
    let at = |io| Situation { dataset, budget_bytes, io, compression: plan.compression };
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
            // What is asked past the page cache comes after what was asked through it, and is not the same.
            seed: plan.seed ^ u64::from(io == Io::Direct) << 40,
            value_seed: plan.seed,
            repeat,
            dir,
            book: scratch.path().join(format!("{name}.book")),
        })
    };
    if let Some(reason) = engine.absence(Io::PageCache, plan.compression) {
        return kept.absent(at(Io::PageCache), engine, reason);
    }
    if plan.fillseq_budget == Some(budget_bytes) {
        kept.start(&task("fillseq", Io::PageCache, &[Workload::FillSeq], plan.ops)?)?;
        let _ = fs::remove_dir_all(scratch.path().join("fillseq"));
    }
    let is_filled = kept.start(&task("db", Io::PageCache, &[Workload::FillRandom], plan.ops)?)?;
    for io in plan.ios.iter().filter(|_| is_filled) {
        if let Some(reason) = engine.absence(*io, plan.compression) {
            kept.absent(at(*io), engine, reason)?;
            continue;
        }
        let ops = if *io == Io::Direct { plan.direct_ops } else { plan.ops };
        if !kept.start(&task("db", *io, &Workload::ASKED, ops)?)? {
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
        Ok(Self { file, name: name.to_path_buf(), failures: 0 })
    }

    fn keep(&mut self, line: &Line) -> Result<()> {
        let text = result::to_json(line)?;
        writeln!(self.file, "{text}").map_err(|error| format!("{}: {error}", self.name.display()))
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
        self.keep(&Line::Failure { at, engine: task.engine, message })?;
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
