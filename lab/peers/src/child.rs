//! The process that measures: one engine in one situation, so that its memory is its own.
//!
//! It prints a JSON line for the engine's options and one for each workload, and nothing else to
//! standard output.

use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use shamba_workload::{CpuTimer, Permutation};

use crate::book::{Book, Dataset};
use crate::engines;
use crate::meter::{self, Tally};
use crate::peer::{BLOCK_BYTES, Engine, Io, LEVEL_0_RUNS, Peer, Result, Setup, stated};
use crate::process::{self, Io as Counters, Resident};
use crate::result::{self, Line, Row, Situation};
use crate::workload::Workload;

/// Task of the process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// The engine.
    pub engine: Engine,
    /// The situation.
    pub at: Situation,
    /// The workloads, in order: a fill of a new database, or those that a filled one is asked.
    pub workloads: Vec<Workload>,
    /// Gets of a workload; the others' counts follow from it.
    pub ops: u64,
    /// The longest that caches fill before the first workload.
    pub warm_seconds: f64,
    /// The seed of all requests.
    pub seed: u64,
    /// The seed of the values, the same as long as the database lives.
    pub value_seed: u64,
    /// Which repetition.
    pub repeat: u32,
    /// The database.
    pub dir: PathBuf,
    /// The file that says what is in it.
    pub book: PathBuf,
}

/// Takes each line as it comes.
pub type Keep<'k> = &'k mut dyn FnMut(&Line) -> Result<()>;

/// Gets between two looks at the clock while caches fill.
const WARM_OPS: u64 = 1000;

/// Does what the task says, with the engine that it names.
///
/// # Errors
/// Errors of the engine, the first wrong answer, or an engine that is not in this build.
pub fn run(task: &Task, keep: Keep<'_>) -> Result<()> {
    match task.engine {
        Engine::Shamba | Engine::ShambaValues | Engine::ShambaUndrained | Engine::ShambaMapped => {
            measure::<engines::shamba::Shamba>(task, keep)
        }
        #[cfg(feature = "rocksdb")]
        Engine::Rocksdb
        | Engine::RocksdbCompacted
        | Engine::RocksdbUndrained
        | Engine::RocksdbCached
        | Engine::RocksdbPartitioned
        | Engine::RocksdbRibbon
        | Engine::RocksdbHash
        | Engine::RocksdbBlob
        | Engine::RocksdbBlobTuned => measure::<engines::rocksdb::RocksDb>(task, keep),
        #[cfg(feature = "leveldb")]
        Engine::Leveldb => measure::<engines::leveldb::LevelDb>(task, keep),
        #[cfg(feature = "fjall")]
        Engine::Fjall => measure::<engines::fjall::Fjall>(task, keep),
        #[cfg(feature = "redb")]
        Engine::Redb => measure::<engines::redb::Redb>(task, keep),
        #[cfg(feature = "lmdb")]
        Engine::Lmdb => measure::<engines::lmdb::Lmdb>(task, keep),
        #[allow(unreachable_patterns)]
        engine => Err(format!("{engine} is not in this build: give --features {engine}")),
    }
}

fn measure<P: Peer>(task: &Task, keep: Keep<'_>) -> Result<()> {
    let is_fill = task.workloads.iter().any(|workload| workload.is_fill());
    let setup = Setup {
        engine: task.engine,
        dir: task.dir.clone(),
        budget_bytes: task.at.budget_bytes,
        io: task.at.io,
        compression: task.at.compression,
        auto_compaction: is_fill || !task.engine.is_undrained(),
    };
    let mut book = if is_fill {
        Book::new(task.at.dataset, task.value_seed)?
    } else {
        Book::load(task.at.dataset, task.value_seed, &task.book)?
    };
    if is_fill {
        book.reserve(task.at.dataset.items);
    }
    let order = task.workloads.contains(&Workload::FillSeq).then(|| book.in_key_order(task.at.dataset.items));
    let base = Resident::now();
    let begin = Instant::now();
    let peer = P::open(&setup)?;
    let (opened, resident) = (begin.elapsed(), Resident::now().above(base));
    rest(&peer)?;
    if !setup.auto_compaction {
        add_runs(&setup, &peer, &book, task.at.dataset)?;
    }
    if !is_fill {
        warm(task, &peer, &mut book)?;
    }
    // Only now: threads have their names, and tables that were read are open.
    let mut options = peer.options();
    if task.at.io == Io::Direct {
        let (direct, all) = process::direct_files(&task.dir);
        options.push(stated("open past the page cache", format!("{direct} of {all} files")));
    }
    if !is_fill {
        let (ms, mib) = (opened.as_secs_f64() * 1e3, resident.bytes as f64 / f64::from(1 << 20));
        options.push(stated("open of the filled database", format!("{ms:.1} ms, {mib:.1} MiB")));
    }
    keep(&Line::Options { at: task.at, engine: task.engine, version: peer.version(), options })?;
    let mut last: Option<Row> = None;
    for workload in &task.workloads {
        if let Some(row) = last.take() {
            keep(&Line::Row(Box::new(row)))?;
        }
        let row = row(task, &peer, &mut book, *workload, order.as_deref(), base)
            .map_err(|message| format!("{}: {message}", workload.name()))?;
        last = Some(row);
    }
    peer.close()?;
    if let Some(mut row) = last {
        // An open database may keep files that nobody needs, and some engines delete them only at
        // the close.
        row.space_bytes = process::allocated_bytes(&task.dir);
        keep(&Line::Row(Box::new(row)))?;
    }
    book.save(&task.book)
}

/// Writes [`LEVEL_0_RUNS`] runs of items with the values that they have: the answers stay those of
/// the other engines.
fn add_runs<P: Peer>(setup: &Setup, peer: &P, book: &Book, dataset: Dataset) -> Result<()> {
    let items = setup.write_buffer_bytes() / 2 / (dataset.key_bytes + dataset.value_bytes) as u64;
    let (mut key, mut value) = (Vec::new(), Vec::new());
    for run in 0..LEVEL_0_RUNS {
        let order = Permutation::new(dataset.items, run);
        for number in 0..items.min(dataset.items) {
            let item = order.at(number);
            book.key(item, &mut key);
            book.value(item, &mut value);
            peer.put(&key, &value, false)?;
        }
        peer.flush()?;
    }
    Ok(())
}

/// Gets of as many items as the budget has blocks, or of all: the same number for every engine, for
/// a fast one would fill its caches further in the same time.
fn warm<P: Peer>(task: &Task, peer: &P, book: &mut Book) -> Result<()> {
    let begin = Instant::now();
    let view = peer.reader()?;
    let gets = (task.at.budget_bytes / BLOCK_BYTES as u64).min(task.at.dataset.items);
    let mut done = 0;
    while done < gets && begin.elapsed().as_secs_f64() < task.warm_seconds {
        let ops = WARM_OPS.min(gets - done);
        let seed = task.seed ^ (done / WARM_OPS + 1) << 20;
        meter::drive(peer, &view, book, Workload::ReadRandom, ops, seed, None)?;
        done += ops;
    }
    drop(view);
    rest(peer).map(|_| ())
}

fn rest<P: Peer>(peer: &P) -> Result<f64> {
    let begin = Instant::now();
    peer.settle()?;
    let told = begin.elapsed();
    Ok((told + process::wait_for_rest()?).as_secs_f64())
}

fn row<P: Peer>(
    task: &Task,
    peer: &P,
    book: &mut Book,
    workload: Workload,
    order: Option<&[u32]>,
    base: Resident,
) -> Result<Row> {
    let (cpu, io) = (CpuTimer::process(), Counters::now());
    let tally = ask(task, peer, book, workload, order)?;
    let resident = Resident::now().above(base);
    // What a write sets off counts with it, to the end; what reads set off must not fall into the
    // next workload.
    let mut settle_seconds = 0.0;
    if !workload.only_reads() {
        let begin = Instant::now();
        if workload.is_fill() {
            peer.finish_fill()?;
        }
        if workload == Workload::Rewrite {
            peer.compact()?;
        }
        settle_seconds = begin.elapsed().as_secs_f64() + rest(peer)?;
    }
    let cpu_ns = u64::try_from(cpu.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let io = Counters::now().since(io);
    if workload.only_reads() {
        rest(peer)?;
    }
    Ok(Row {
        at: task.at,
        engine: task.engine,
        workload,
        repeat: task.repeat,
        ops: tally.ops,
        seconds: tally.busy_ns as f64 / 1e9,
        ns_per_op: tally.ns_per_op(),
        samples: tally.samples,
        p50_ns: tally.latencies.quantile_ns(0.5),
        p99_ns: tally.latencies.quantile_ns(0.99),
        p999_ns: tally.latencies.quantile_ns(0.999),
        cpu_ns_per_op: cpu_ns.saturating_sub(tally.making_cpu_ns) as f64 / tally.ops.max(1) as f64,
        settle_seconds,
        user_bytes: tally.user_bytes,
        device_read_bytes: io.device_read_bytes,
        device_write_bytes: io.device_write_bytes,
        call_read_bytes: io.call_read_bytes,
        call_write_bytes: io.call_write_bytes,
        rss_bytes: resident.bytes,
        rss_file_bytes: resident.file_bytes,
        rss_peak_bytes: resident.peak_bytes,
        space_bytes: process::allocated_bytes(&task.dir),
        runs: peer.runs()?,
        answers: format!("{:016x}", tally.answers),
    })
}

fn ask<P: Peer>(
    task: &Task,
    peer: &P,
    book: &mut Book,
    workload: Workload,
    order: Option<&[u32]>,
) -> Result<Tally> {
    let ops = workload.ops(task.ops, task.at.dataset.items);
    let order = order.filter(|_| workload == Workload::FillSeq);
    if workload == Workload::ReadSeq {
        return meter::walk(&peer.reader()?, book.items());
    }
    if workload.only_reads() {
        let view = peer.reader()?;
        return meter::drive(peer, &view, book, workload, ops, task.seed, order);
    }
    meter::drive(peer, peer, book, workload, ops, task.seed, order)
}

/// Prints a line for the parent process.
///
/// # Errors
/// When standard output is gone.
pub fn print(line: &Line) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let failed = |error: std::io::Error| format!("standard output: {error}");
    writeln!(out, "{}", result::to_json(line)?).map_err(failed)?;
    out.flush().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gathered::Gathered;
    use crate::peer::Compression;

    /// The rows of a small fill and of everything that may be asked then.
    fn lines_of(engine: Engine, io: Io, compression: Compression) -> Vec<Line> {
        let dir = tempfile::tempdir().expect("a directory");
        let dataset = "3000x16+100".parse().expect("a data set");
        let mut task = Task {
            engine,
            at: Situation { dataset, budget_bytes: 8 << 20, io, compression },
            workloads: vec![Workload::FillRandom],
            ops: 2000,
            warm_seconds: 0.1,
            seed: 3,
            value_seed: 3,
            repeat: 0,
            dir: dir.path().join("db"),
            book: dir.path().join("book"),
        };
        std::fs::create_dir(&task.dir).expect("created");
        let mut lines = Vec::new();
        let rewrites = matches!(engine, Engine::Shamba | Engine::Rocksdb).then_some(vec![Workload::Rewrite]);
        for workloads in [vec![Workload::FillRandom], Workload::ASKED.to_vec()].into_iter().chain(rewrites) {
            task.workloads = workloads;
            task.seed += 1;
            let mut keep = |line: &Line| {
                lines.push(line.clone());
                Ok(())
            };
            run(&task, &mut keep).unwrap_or_else(|error| panic!("{engine}: {error}"));
        }
        lines
    }

    #[test]
    fn every_engine_gives_the_same_answers() {
        for compression in [Compression::None, Compression::Lz4] {
            for io in [Io::PageCache, Io::Direct] {
                let there = |engine: &Engine| engine.is_built() && engine.absence(io, compression).is_none();
                let engines: Vec<Engine> = Engine::ALL.into_iter().filter(there).collect();
                let lines = engines.iter().flat_map(|engine| lines_of(*engine, io, compression)).collect();
                let gathered = Gathered::of(lines).expect("one run");
                assert_eq!(gathered.engines, engines);
                gathered.check_answers().unwrap_or_else(|error| panic!("{error}"));
                let page = crate::table::render(&gathered, &[]);
                assert!(engines.iter().all(|engine| page.contains(engine.name())));
            }
        }
    }
}
