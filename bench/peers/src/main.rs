//! Shamba beside other engines: the same workloads behind one trait, each engine in a process of its own.
//!
//! `run` measures and writes `results.jsonl`, `results.md` and figures; `table` makes the latter two again;
//! `differential` compares answers with RocksDB's instead of times. See `README.md` for the commands, for what is equal
//! and for what cannot be.

mod book;
mod child;
mod differential;
mod driver;
mod engines;
mod explain;
mod facts;
mod figure;
mod gathered;
mod meter;
mod peer;
mod process;
mod result;
mod table;
#[cfg(feature = "rocksdb")]
mod trace;
mod workload;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::book::Dataset;
use crate::driver::Plan;
use crate::peer::{Compression, Engine, Io, Result};

#[derive(Parser)]
#[command(name = "shamba-peers", about = "Shamba beside other engines")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measures, and writes results.jsonl, results.md and figures.
    Run(RunArgs),
    /// Writes results.md and figures again from results.jsonl.
    Table(TableArgs),
    /// Lists the engines of this build.
    Engines,
    /// The same random trace to Shamba, RocksDB and a sorted map: answers must be the same.
    Differential(differential::Options),
    /// What a measuring process runs.
    #[command(hide = true)]
    Child { task: String },
}

#[derive(Args)]
struct RunArgs {
    /// Engines; all of this build unless given.
    #[arg(long, value_delimiter = ',')]
    engines: Vec<Engine>,
    /// Data sets: ITEMSxKEY+VALUE bytes.
    #[arg(long, value_delimiter = ',', default_value = "10000000x16+100,2000000x512+512")]
    datasets: Vec<Dataset>,
    /// Budgets for caches and write buffers together, in MiB.
    #[arg(long, value_delimiter = ',', default_value = "256,8,4096")]
    budgets_mib: Vec<u64>,
    /// Ways of reading: page-cache, direct.
    #[arg(long, value_delimiter = ',', default_value = "page-cache,direct")]
    io: Vec<Io>,
    /// Compression of blocks: none, lz4 (engines without it have no rows).
    #[arg(long, default_value = "none")]
    compression: Compression,
    /// Repetitions; the median is shown, with least and most.
    #[arg(long, default_value_t = 3)]
    repeats: u32,
    /// Gets of a workload through the page cache; other workloads' operations follow from it.
    #[arg(long, default_value_t = 500_000)]
    ops: u64,
    /// Gets of a workload past the page cache.
    #[arg(long, default_value_t = 50_000)]
    direct_ops: u64,
    /// Seconds of gets, or one for each item, before the first measured workload: caches fill.
    #[arg(long, default_value_t = 15.0)]
    warm_seconds: f64,
    /// The seed of all requests.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Leaves out fillseq, which is measured with the first budget.
    #[arg(long)]
    no_fillseq: bool,
    /// A small run that shows that all of it works: 100,000 and 20,000 items, 8 and 256 MiB.
    #[arg(long)]
    quick: bool,
    /// Where databases are made; the device that is measured.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Where results go; there must be none of another run.
    #[arg(long, default_value = "results")]
    out: PathBuf,
    /// Adds rows to the results there, which must be of this machine and this build, and of other rows.
    #[arg(long)]
    add: bool,
}

#[derive(Args)]
struct TableArgs {
    /// The directory with results.jsonl.
    #[arg(default_value = "results")]
    out: PathBuf,
    /// Fails where a row that Shamba loses has no explanation.
    #[arg(long)]
    strict: bool,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Run(args) => run(args),
        Command::Table(args) => present(&args.out, args.strict),
        Command::Engines => {
            Engine::ALL
                .into_iter()
                .filter(|engine| engine.is_built())
                .for_each(|engine| println!("{engine}"));
            Ok(())
        }
        Command::Differential(options) => differential::run(&options),
        Command::Child { task } => serde_json::from_str(&task)
            .map_err(|error| format!("the task: {error}"))
            .and_then(|task| child::run(&task, &mut child::print)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: RunArgs) -> Result<()> {
    let built = || Engine::ALL.into_iter().filter(|engine| engine.is_built());
    let engines: Vec<Engine> = if args.engines.is_empty() { built().collect() } else { args.engines };
    if let Some(engine) = engines.iter().find(|engine| !engine.is_built()) {
        return Err(format!("{engine} is not in this build"));
    }
    let mut plan = Plan {
        engines,
        datasets: args.datasets,
        budgets: args.budgets_mib.iter().map(|mib| mib << 20).collect(),
        ios: args.io,
        compression: args.compression,
        repeats: args.repeats,
        ops: args.ops,
        direct_ops: args.direct_ops,
        warm_seconds: args.warm_seconds,
        seed: args.seed,
        fillseq_budget: None,
        dir: args.dir.unwrap_or_else(std::env::temp_dir),
        out: args.out,
        adds: args.add,
    };
    if args.quick {
        plan.datasets = vec!["100000x16+100".parse()?, "20000x512+512".parse()?];
        plan.budgets = vec![256 << 20, 8 << 20];
        (plan.ops, plan.direct_ops) = (100_000, 10_000);
    }
    plan.fillseq_budget = plan.budgets.first().copied().filter(|_| !args.no_fillseq);
    let measured = driver::run(&plan);
    // What was measured is shown even where some of it failed.
    present(&plan.out, false)?;
    measured.map(|_| ())
}

fn present(out: &Path, is_strict: bool) -> Result<()> {
    let gathered = gathered::Gathered::read(&out.join("results.jsonl"))?;
    let (text, unexplained) = table::render(&gathered);
    let file = out.join("results.md");
    std::fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    let figures = figure::draw_all(&gathered, out)?;
    eprintln!("{} and {figures} figures beside it", file.display());
    gathered.check_answers()?;
    if is_strict && unexplained > 0 {
        return Err(format!("{unexplained} rows that are lost have no explanation (src/explanations.json)"));
    }
    Ok(())
}
