//! `shamba bench DB NAME...`: runs and measures workloads in order; with `--json` prints one object
//! per line.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use shamba::Db;
use shamba_workload::{
    BenchResult, Distribution, KeyShape, Options, Progress, Workload, run as run_workload,
};

use crate::exit::Failure;
use crate::json;
use crate::open;
use crate::options::EngineOptions;
use crate::output::{Out, warn};
use crate::progress;
use crate::sizes::{parse_size, show_count, show_ns};

/// Arguments of `bench`.
#[derive(Args)]
pub struct BenchArgs {
    /// The database; created if missing
    db: PathBuf,
    /// Workloads: fillseq, fillrandom, overwrite, readrandom, readmissing, multireadrandom,
    /// multireadmissing, readseq, readreverse, seekrandom, seekafterputs, readwhilewriting,
    /// deleterandom, queue, scandeletedrange, scandeletedkeys, replay, ycsb-a to ycsb-f
    #[arg(required = true, value_name = "NAME", value_parser = str::parse::<Workload>)]
    names: Vec<Workload>,
    /// Number of items in the database, or to fill it with
    #[arg(long, default_value_t = 1_000_000)]
    num: u64,
    /// Number of operations of workloads that do not fill (default: --num)
    #[arg(long)]
    reads: Option<u64>,
    /// Key size in bytes (default: 16; 56, 72 and 24 for path, url and prefix-time)
    #[arg(long, value_name = "SIZE", value_parser = parse_usize)]
    key_size: Option<usize>,
    /// Value size in bytes
    #[arg(long, value_name = "SIZE", default_value = "100", value_parser = parse_usize)]
    value_size: usize,
    /// Shape of keys: random, sequential, path, url or prefix-time
    #[arg(long, value_name = "SHAPE", default_value_t = KeyShape::Random)]
    key_shape: KeyShape,
    /// Threads that share the operations
    #[arg(long, default_value_t = 1)]
    threads: u32,
    /// Distribution of operations over items: uniform, zipf, zipf-local, latest, hotspot, normal or
    /// beta
    #[arg(long, value_name = "NAME", default_value_t = Distribution::Uniform)]
    distribution: Distribution,
    /// Share of absent keys in the lookups of readrandom, multireadrandom, seekrandom and
    /// readwhilewriting
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    empty_fraction: f64,
    /// Number of entries that seekrandom reads after the first
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    seek_nexts: u32,
    /// Number of keys per call of multireadrandom and multireadmissing
    #[arg(long, value_name = "KEYS", default_value_t = 32)]
    multi_get: u32,
    /// Random seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Trace to replay: recorded, or from `shamba-lab generate` or the K-V-Workload-Generator
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Fail if a replayed lookup differs from the answer in its trace
    #[arg(long, requires = "trace")]
    check_answers: bool,
    /// Record the operations of all workloads as a trace in a new file
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Allow fills, and the deletes of scandeletedrange and scandeletedkeys, in a database that is
    /// not empty
    #[arg(long)]
    use_existing: bool,
    /// Print one JSON object per workload and line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    engine: EngineOptions,
}

fn parse_usize(text: &str) -> Result<usize, String> {
    usize::try_from(parse_size(text)?).map_err(|_| format!("{text:?} is too large"))
}

pub fn run(args: &BenchArgs, out: &mut Out) -> Result<(), Failure> {
    let options = Options {
        num: args.num,
        reads: args.reads.unwrap_or(args.num),
        key_size: args.key_size,
        value_size: args.value_size,
        key_shape: args.key_shape,
        threads: args.threads,
        distribution: args.distribution,
        empty_fraction: args.empty_fraction,
        seek_nexts: args.seek_nexts,
        multi_get: args.multi_get,
        seed: args.seed,
        turn: 0,
        trace: args.trace.clone(),
    };
    if args.trace.is_some() && !args.names.contains(&Workload::Replay) {
        return Err(Failure::Usage("--trace applies only to the workload replay".to_owned()));
    }
    // All workloads are checked before a database is created, because the first of them may run for
    // an hour.
    args.names.iter().try_for_each(|&workload| options.check(workload))?;
    let db = open::create(&args.db, &args.engine)?;
    open::closing(db, |db| run_all(args, db, &options, out))
}

fn run_all(args: &BenchArgs, db: &Db, options: &Options, out: &mut Out) -> Result<(), Failure> {
    let deleting = args.names.iter().find(|workload| workload.deletes_all() && !args.use_existing);
    if let Some(workload) = deleting
        && db.iter().next().transpose()?.is_some()
    {
        return Err(Failure::Usage(format!(
            "{workload} deletes all entries, and {} is not empty; --use-existing allows it",
            args.db.display()
        )));
    }
    let recording = args.record.as_ref().map(|path| db.record_trace(path)).transpose()?;
    // Whether the database holds exactly what a fill of this run wrote, so that the expected result
    // of reads is known.
    let mut known = false;
    for (turn, &workload) in (0..).zip(&args.names) {
        if workload.is_fill() {
            let empty = db.iter().next().transpose()?.is_none();
            if !empty && !args.use_existing {
                return Err(Failure::Usage(format!(
                    "{workload} fills an empty database, and {} is not empty; --use-existing allows it",
                    args.db.display()
                )));
            }
            known = empty;
        }
        let result = watched(db, workload, &Options { turn, ..options.clone() })?;
        check_answers(args, &result)?;
        if let Some(expected) = result.expected_found_share.filter(|_| known)
            && (result.found_share - expected).abs() > 1e-9
        {
            let found = result.found_share;
            return Err(Failure::Data(format!(
                "{workload} found a share of {found} of its keys; {expected} expected"
            )));
        }
        let absent =
            matches!(workload, Workload::ReadMissing | Workload::MultiReadMissing | Workload::Replay);
        if !known && workload.reads() && result.found_share == 0.0 && !absent {
            warn(format!(
                "{workload} found nothing: is the database filled with the same --num, --key-size and --key-shape?"
            ));
        }
        known &= !workload.deletes();
        if args.json {
            out.json(&object(&result))?;
        } else {
            if turn == 0 {
                out.line(HEADINGS)?;
            }
            out.line(line(&result))?;
        }
        out.flush()?;
    }
    if let (Some(recording), Some(path)) = (recording, &args.record) {
        open::finish(recording, path)?;
    }
    Ok(())
}

/// Reports replayed lookups whose answers differ from the trace: the database is a different one,
/// or has an error.
fn check_answers(args: &BenchArgs, result: &BenchResult) -> Result<(), Failure> {
    let BenchResult { answers_checked, answers_wrong, .. } = *result;
    if answers_wrong == 0 {
        return Ok(());
    }
    let text = format!("{answers_wrong} of {answers_checked} lookups gave other answers than the trace");
    if args.check_answers {
        return Err(Failure::Data(text));
    }
    warn(format!("{text}: was the trace recorded from a different database?"));
    Ok(())
}

/// Runs a workload with a progress bar.
fn watched(db: &Db, workload: Workload, options: &Options) -> Result<BenchResult, Failure> {
    let progress = Progress::default();
    let bar = progress::bar(workload.name(), Some(0));
    let result = std::thread::scope(|scope| {
        let worker = scope.spawn(|| run_workload(db, workload, options, &progress));
        while !worker.is_finished() {
            let (done, total) = progress.read();
            bar.set_length(total);
            bar.set_position(done);
            std::thread::park_timeout(Duration::from_millis(50));
        }
        worker.join()
    });
    bar.finish_and_clear();
    Ok(result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?)
}

const HEADINGS: &str = "workload              operations        ops/s     ns/op       p50       p99     p99.9   CPU ns  found  hashes  filters  reads  pages";

fn line(result: &BenchResult) -> String {
    // Of lookups, or, without any, of scans. A dash where there was nothing to count.
    let (counted, read) = match result.gets {
        0 => (result.scans, result.scan_reads.all()),
        gets => (gets, result.reads.all()),
    };
    let per_read = |value: u64| match counted {
        0 => "-".into(),
        counted => format!("{:.2}", value as f64 / counted as f64),
    };
    let found = result.expected_found_share.map_or("-".into(), |_| format!("{:.3}", result.found_share));
    let per_get = |value: f64| if result.hashes_per_get > 0.0 { format!("{value:.2}") } else { "-".into() };
    format!(
        "{:<18}{:>14}{:>13}{:>10.0}{:>10}{:>10}{:>10}{:>9.0}{:>7}{:>8}{:>9}{:>7}{:>7}",
        result.name.name(),
        show_count(result.ops),
        show_count(result.ops_per_s as u64),
        result.ns_per_op,
        show_ns(result.p50_ns as f64),
        show_ns(result.p99_ns as f64),
        show_ns(result.p999_ns as f64),
        result.cpu_ns_per_op,
        found,
        per_get(result.hashes_per_get),
        per_get(result.filters_per_get),
        per_read(read.count),
        per_read(read.pages),
    )
}

fn object(result: &BenchResult) -> Value {
    json!({
        "schema": "shamba.bench/1",
        "name": result.name.name(),
        "ops": result.ops,
        "seconds": result.seconds,
        "ops_per_s": result.ops_per_s,
        "ns_per_op": result.ns_per_op,
        "p50_ns": result.p50_ns,
        "p99_ns": result.p99_ns,
        "p999_ns": result.p999_ns,
        "cpu_ns_per_op": result.cpu_ns_per_op,
        "found_share": result.found_share,
        "answers_checked": result.answers_checked,
        "answers_wrong": result.answers_wrong,
        "hashes_per_get": result.hashes_per_get,
        "filters_per_get": result.filters_per_get,
        "modules_per_get": result.modules_per_get,
        "modules_skipped_per_get": result.modules_skipped_per_get,
        "false_positives_per_get": result.false_positives_per_get,
        "filter_reads_per_get": result.filter_reads_per_get,
        "index_reads_per_get": result.index_reads_per_get,
        "data_reads_per_get": result.data_reads_per_get,
        "gets": result.gets,
        "reads": json::reads(&result.reads),
        "scans": result.scans,
        "scan_reads": json::reads(&result.scan_reads),
        "idle_seconds": result.idle_seconds,
        "idle_ops_per_s": result.idle_ops_per_s,
        "write_amplification": result.write_amplification,
        "debt_bytes": result.debt_bytes,
        "bytes_written": result.bytes_written,
        "rss_bytes": result.rss_bytes,
        "ledger_bytes": result.ledger_bytes,
        "model_reads_per_get": result.model_reads_per_get,
        "ideal_reads_per_get": result.ideal_reads_per_get,
        "fewest_reads_per_get": result.ideal_reads_per_get,
        "levels": result.levels,
        "runs": result.runs,
        "emulated": result.emulated,
    })
}
