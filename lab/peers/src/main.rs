//! Shamba beside other engines: the same workloads behind one trait, each engine in a process of its own.
//!
//! `run` measures and writes `results.jsonl`, `results.md` and figures; `table` makes the latter two again;
//! `differential` compares answers with RocksDB's instead of times; `advised` has RocksDB read the advisor's files. See
//! `README.md` for the commands, for what is equal and for what cannot be.

mod advised;
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
    /// RocksDB's own option parser on what `shamba plan --rocksdb` proposes.
    Advised(advised::Options),
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
    /// The longest that caches fill before the first measured workload: a get for each block of the budget, or for each item where
    /// those are fewer.
    #[arg(long, default_value_t = 15.0)]
    warm_seconds: f64,
    /// The seed of all requests.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Leaves out fillseq, which is measured with the first budget.
    #[arg(long)]
    no_fillseq: bool,
    /// A small run, once, that shows that all of it works and still flushes and merges: 1,000,000 and 200,000 items, 32 and 8 MiB.
    #[arg(long, conflicts_with_all = ["datasets", "budgets_mib", "ops", "direct_ops", "repeats"])]
    quick: bool,
    /// Where databases are made; the device that is measured.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Where results go; there must be none of another run.
    #[arg(long, default_value = "results")]
    out: PathBuf,
    /// Adds to the results there what they lack of this run: repetitions, data sets, engines, or what a run that broke off did not
    /// come to. They must be of this machine, and of situations that are measured again of this build and the same requests.
    #[arg(long)]
    add: bool,
    /// Keeps the page in docs/results/peers.md, with figures and rows.
    #[arg(long)]
    write: bool,
}

#[derive(Args)]
struct TableArgs {
    /// The directory with results.jsonl.
    #[arg(default_value = "results")]
    out: PathBuf,
    /// Fails where a figure that Shamba loses in has no explanation, or where single repetitions cannot tell.
    #[arg(long)]
    strict: bool,
    /// Keeps the page in docs/results/peers.md, with figures and rows.
    #[arg(long)]
    write: bool,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Run(args) => run(args),
        Command::Table(args) => present(&args.out, args.strict, args.write),
        Command::Engines => {
            Engine::ALL
                .into_iter()
                .filter(|engine| engine.is_built())
                .for_each(|engine| println!("{engine}"));
            Ok(())
        }
        Command::Differential(options) => differential::run(&options),
        Command::Advised(options) => advised::run(&options),
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
        plan.datasets = vec!["1000000x16+100".parse()?, "200000x512+512".parse()?];
        plan.budgets = vec![32 << 20, 8 << 20];
        (plan.ops, plan.direct_ops, plan.repeats) = (100_000, 10_000, 1);
    }
    plan.fillseq_budget = plan.budgets.first().copied().filter(|_| !args.no_fillseq);
    let measured = driver::run(&plan);
    // What was measured is shown even where some of it failed.
    present(&plan.out, false, args.write && measured.is_ok())?;
    measured.map(|_| ())
}

fn present(out: &Path, is_strict: bool, is_kept: bool) -> Result<()> {
    let rows = out.join("results.jsonl");
    let gathered = gathered::Gathered::read(&rows)?;
    let drawn = figure::draw_all(&gathered, out)?;
    let (text, unexplained) = table::render(&gathered, &drawn);
    let file = out.join("results.md");
    let failed = |file: &Path, error: std::io::Error| format!("{}: {error}", file.display());
    std::fs::write(&file, &text).map_err(|error| failed(&file, error))?;
    eprintln!("{} and {} figures beside it", file.display(), drawn.len());
    gathered.check_answers()?;
    if is_kept {
        keep_page(&gathered, &rows, &drawn)?;
    }
    if is_strict && gathered.repeats(None).0 < 2 {
        return Err("figures of a single repetition have no spread: nothing can be said of losses".to_owned());
    }
    if is_strict && unexplained > 0 {
        return Err(format!(
            "{unexplained} figures that are lost have no explanation (src/explanations.json)"
        ));
    }
    Ok(())
}

/// The page among the other results, the figures that were drawn beside `rows` in a folder beside it, and rows among the raw ones, all
/// in place of those before. What failed is told at the page's head, where it belongs.
fn keep_page(all: &gathered::Gathered, rows: &Path, drawn: &[String]) -> Result<()> {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
    let (figures, raw) = (results.join("peers"), results.join("raw/peers"));
    let failed = |error: std::io::Error| format!("{}: {error}", results.display());
    if figures.exists() {
        std::fs::remove_dir_all(&figures).map_err(failed)?;
    }
    std::fs::create_dir_all(&figures).map_err(failed)?;
    std::fs::create_dir_all(&raw).map_err(failed)?;
    for name in drawn {
        std::fs::copy(rows.with_file_name(name), figures.join(name)).map_err(failed)?;
    }
    let beside: Vec<String> = drawn.iter().map(|name| format!("peers/{name}")).collect();
    let (text, _) = table::render(all, &beside);
    std::fs::write(results.join("peers.md"), text).map_err(failed)?;
    std::fs::copy(rows, raw.join("results.jsonl")).map_err(failed)?;
    eprintln!("kept in docs/results: peers.md, peers/, raw/peers/results.jsonl");
    Ok(())
}
