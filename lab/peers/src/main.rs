//! Shamba and other engines: the same workloads behind one trait, each engine in its own process.
//!
//! `run` measures and writes `results.jsonl`, `results.md` and pictures; `table` makes the latter
//! two again, also from the published rows; `differential` compares answers with RocksDB's instead
//! of times; `advised` has RocksDB read the advisor's files. `README.md` has the commands, and
//! states the conditions that are equal and those that are not.

mod advised;
mod book;
mod child;
mod differential;
mod dots;
mod driver;
mod engines;
mod explain;
mod facts;
mod figure;
mod gathered;
mod group;
mod growth;
mod meter;
mod peer;
mod process;
mod published;
mod result;
mod table;
#[cfg(feature = "rocksdb")]
mod trace;
mod verdict;
mod workload;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::book::Dataset;
use crate::driver::Plan;
use crate::peer::{Compression, Engine, Io, Result};
use crate::workload::Workload;

#[derive(Parser)]
#[command(name = "shamba-peers", about = "Compares Shamba with other engines")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measures, and writes results.jsonl, results.md and pictures.
    Run(RunArgs),
    /// Writes results.md and pictures again from the rows.
    Table(TableArgs),
    /// Lists the engines in this build.
    Engines,
    /// Sends the same random trace to Shamba, RocksDB and a sorted map, and compares the answers.
    Differential(differential::Options),
    /// Has RocksDB's own option parser read what `shamba plan --rocksdb` proposes.
    Advised(advised::Options),
    /// Runs in each measuring process.
    #[command(hide = true)]
    Child { task: String },
}

#[derive(Args)]
struct RunArgs {
    /// Engines [default: all in this build, without the variants for long values and undrained
    /// trees]
    #[arg(long, value_delimiter = ',')]
    engines: Vec<Engine>,
    /// Data sets: ITEMSxKEY+VALUE bytes.
    #[arg(long, value_delimiter = ',', default_value = "10000000x16+100,2000000x512+512")]
    datasets: Vec<Dataset>,
    /// Budgets for caches and write buffers together, in MiB.
    #[arg(long, value_delimiter = ',', default_value = "256,8,4096")]
    budgets_mib: Vec<u64>,
    /// How tables are read: page-cache, direct.
    #[arg(long, value_delimiter = ',', default_value = "page-cache,direct")]
    io: Vec<Io>,
    /// Compression of blocks: none, lz4 (engines without it get no rows).
    #[arg(long, default_value = "none")]
    compression: Compression,
    /// Repetitions; tables show the median with minimum and maximum.
    #[arg(long, default_value_t = 3)]
    repeats: u32,
    /// Gets per workload through the page cache; the numbers of other operations derive from it.
    #[arg(long, default_value_t = 500_000)]
    ops: u64,
    /// Gets per workload with direct I/O.
    #[arg(long, default_value_t = 50_000)]
    direct_ops: u64,
    /// Longest time, in seconds, that caches are filled before the first measured workload: one get
    /// per block of the budget, or per item if there are fewer.
    #[arg(long, default_value_t = 15.0)]
    warm_seconds: f64,
    /// Seed of all requests.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Measures `rewrite` in place of all other requests of the filled database: every item once
    /// more, until all is in one sorted run. For variants of Shamba and RocksDB, through the page
    /// cache.
    #[arg(long, conflicts_with = "io")]
    rewrite: bool,
    /// Omits fillseq, which is measured with the first budget only.
    #[arg(long)]
    no_fillseq: bool,
    /// A small run, one repetition, that still flushes and compacts: 1,000,000 and 200,000 items,
    /// 32 and 8 MiB.
    #[arg(long, conflicts_with_all = ["datasets", "budgets_mib", "ops", "direct_ops", "repeats"])]
    quick: bool,
    /// Directory for the databases, on the device to be measured.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Directory for the results; it must not hold those of another run.
    #[arg(long, default_value = "results")]
    out: PathBuf,
    /// Adds the rows of this run that the results lack: repetitions, data sets, engines, or the
    /// rest of an interrupted run. The results must be of this machine, and those of a situation
    /// that is measured again of this build and the same requests.
    #[arg(long)]
    add: bool,
    /// Also publishes the page as docs/results/peers.md, with pictures and compressed rows.
    #[arg(long)]
    write: bool,
}

#[derive(Args)]
struct TableArgs {
    /// Directory for results.md and pictures.
    #[arg(default_value = "results")]
    out: PathBuf,
    /// The rows, plain or compressed by gzip [default: results.jsonl in that directory]
    #[arg(long)]
    from: Option<PathBuf>,
    /// Fails where a lost row has no explanation, or where a value has a single repetition.
    #[arg(long)]
    strict: bool,
    /// Also publishes the page as docs/results/peers.md, with pictures and compressed rows.
    #[arg(long)]
    write: bool,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Run(args) => run(args),
        Command::Table(args) => {
            let rows = args.from.unwrap_or_else(|| args.out.join(ROWS));
            present(&rows, &args.out, args.strict, args.write)
        }
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
    let built = || Engine::ALL.into_iter().filter(|engine| engine.is_built() && !engine.is_on_request());
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
        asked: Workload::ASKED.to_vec(),
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
    if args.rewrite {
        (plan.ios, plan.asked) = (vec![Io::PageCache], vec![Workload::Rewrite]);
    }
    plan.fillseq_budget = plan.budgets.first().copied().filter(|_| !args.no_fillseq);
    let measured = driver::run(&plan);
    // Rows are shown even where a part of the run failed.
    present(&plan.out.join(ROWS), &plan.out, false, args.write && measured.is_ok())?;
    measured.map(|_| ())
}

/// Writes the full tables of `rows` and their pictures into `out`, and publishes the page if
/// wanted.
fn present(rows: &Path, out: &Path, is_strict: bool, is_published: bool) -> Result<()> {
    let gathered = gathered::Gathered::read(rows)?;
    let file = out.join("results.md");
    let failed = |error: std::io::Error| format!("{}: {error}", file.display());
    std::fs::create_dir_all(out).map_err(failed)?;
    let mut drawn = figure::draw_all(&gathered, out)?;
    drawn.extend(growth::draw_all(&gathered, out)?);
    std::fs::write(&file, table::render(&gathered, &drawn)).map_err(failed)?;
    eprintln!("{} and {} pictures", file.display(), drawn.len());
    gathered.check_answers()?;
    if is_published {
        publish(&gathered, rows)?;
    }
    if is_strict && gathered.repeats(None).0 < 2 {
        return Err(
            "values of a single repetition have no spread, so that losses cannot be judged".to_owned()
        );
    }
    let unexplained = verdict::Verdicts::of(&gathered).unexplained();
    if is_strict && unexplained > 0 {
        return Err(format!("{unexplained} lost rows have no explanation (src/explanations.json)"));
    }
    Ok(())
}

/// The name of the rows in a directory of results.
const ROWS: &str = "results.jsonl";

/// The directory of published results.
fn published_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results")
}

/// Replaces the published page, its pictures and its rows.
fn publish(all: &gathered::Gathered, rows: &Path) -> Result<()> {
    let results = published_dir();
    let (pictures, raw) = (results.join("peers"), results.join("raw/peers"));
    let failed = |error: std::io::Error| format!("{}: {error}", results.display());
    // First, for they may be read from there.
    std::fs::create_dir_all(&raw).map_err(failed)?;
    result::publish(rows, &raw.join("results.jsonl.gz"))?;
    if pictures.exists() {
        std::fs::remove_dir_all(&pictures).map_err(failed)?;
    }
    std::fs::create_dir_all(&pictures).map_err(failed)?;
    let drawn = dots::draw_all(all)?;
    for (group, image) in &drawn {
        std::fs::write(pictures.join(group.file_name()), image).map_err(failed)?;
    }
    std::fs::write(results.join("peers.md"), page(all, &drawn)).map_err(failed)?;
    eprintln!("published in docs/results: peers.md, peers/, raw/peers/results.jsonl.gz");
    Ok(())
}

/// The published page with these pictures.
fn page(all: &gathered::Gathered, drawn: &[(group::Group, String)]) -> String {
    published::render(all, &|group| {
        let is_drawn = drawn.iter().any(|(of, _)| *of == group);
        is_drawn.then(|| format!("peers/{}", group.file_name()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_page_and_pictures_are_those_of_the_published_rows() {
        let results = published_dir();
        let rows = results.join("raw/peers/results.jsonl.gz");
        let all = gathered::Gathered::read(&rows).expect("the published rows");
        let drawn = dots::draw_all(&all).expect("pictures");
        let page = page(&all, &drawn);
        let kept = std::fs::read_to_string(results.join("peers.md")).expect("the published page");
        assert_eq!(kept, page, "table --from {} --write publishes it again", rows.display());
        assert!(page.lines().count() <= 200, "{} lines", page.lines().count());
        for (group, image) in drawn {
            let file = results.join("peers").join(group.file_name());
            let kept = std::fs::read_to_string(&file).expect("a published picture");
            assert_eq!(kept, image, "{}", file.display());
        }
    }
}
