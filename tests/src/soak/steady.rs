//! One database under mixed load for any length of time: it must not grow, and must hold what was
//! written.
//!
//! Each of two threads owns half of the keys of every keyspace, so it knows what they hold. It
//! writes them in every way, and compares reads, held snapshots and held scans with its copy. The
//! first thread also makes checkpoints, redesigns, ingests, and keyspaces that are dropped again;
//! a third follows the stream of changes. Meanwhile resident memory, descriptors, files and their
//! bytes are sampled. The load is the same all the time, so their means of the last third must not
//! exceed those of the second third by more than an allowance; the first third is for growing. At
//! the end no file is left over, and everything is compared again, before and after a reopen.
//!
//! Not here: kills and faults ([`super::Soak`]).

mod worker;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use shamba::filter::{CompactionFilter, FilterEntry, Verdict};
use shamba::merge::AddU64;
use shamba::{Builder, ChangePosition, Db, Fifo, KeyspaceOptions, Prefix};

use self::worker::{Worker, said};
use crate::tally::Tally;

/// Threads that write.
const WRITERS: u64 = 2;
/// Time between two samples.
const INTERVAL: Duration = Duration::from_millis(200);
/// Memory of the database.
const BUDGET_BYTES: u64 = 24 << 20;

/// A keyspace of the load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Space {
    /// The default one.
    Plain,
    /// With value files.
    Blobs,
    /// With prefixes in its filters, and a compaction filter.
    Users,
    /// Whose values live for a second or two.
    Sessions,
    /// Of sums.
    Counters,
}

impl Space {
    const ALL: [Self; 5] = [Self::Plain, Self::Blobs, Self::Users, Self::Sessions, Self::Counters];

    fn name(self) -> &'static str {
        match self {
            Self::Plain => "default",
            Self::Blobs => "blobs",
            Self::Users => "users",
            Self::Sessions => "sessions",
            Self::Counters => "counters",
        }
    }

    fn options(self) -> KeyspaceOptions {
        let options = KeyspaceOptions::new();
        match self {
            Self::Plain => options,
            Self::Blobs => options.value_threshold(1_000),
            Self::Users => options.prefix(Prefix::Delimited(b':')).compaction_filter(Unwanted),
            Self::Sessions => options.time_to_live(Duration::from_millis(1_500)),
            Self::Counters => options.merge_operator(AddU64),
        }
    }
}

/// Prefix of the keys that the compaction filter removes. They are no thread's own.
const UNWANTED: &str = "unwanted:";

/// Removes the unwanted keys.
struct Unwanted;

impl CompactionFilter for Unwanted {
    fn name(&self) -> &str {
        "steady.unwanted"
    }

    fn filter(&self, entry: &FilterEntry<'_>) -> Verdict {
        if entry.key().starts_with(UNWANTED.as_bytes()) { Verdict::Remove } else { Verdict::Keep }
    }
}

/// A keyspace that drops its oldest tables.
const JOURNAL: &str = "journal";

fn builder(path: &Path) -> Builder {
    let builder = Db::builder(path).memory_budget(BUDGET_BYTES).write_buffer(1 << 20).info_log(false);
    let builder =
        builder.keep_log(4 << 20, Duration::from_secs(3_600)).experimental(|e| e.file_size(1 << 20));
    let journal = KeyspaceOptions::new().fifo(Fifo::bytes(2 << 20));
    let spaces = Space::ALL.into_iter().map(|space| (space.name(), space.options()));
    spaces
        .chain([(JOURNAL, journal)])
        .fold(builder, |builder, (name, options)| builder.keyspace(name, options))
}

/// Figures that must not grow, at one moment or added up.
#[derive(Clone, Copy, Default, Debug)]
struct Sample {
    resident_bytes: u64,
    descriptors: u64,
    files: u64,
    file_bytes: u64,
    /// Number of samples.
    count: u64,
}

impl Sample {
    fn take(path: &Path) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        let (mut files, mut file_bytes) = (0, 0);
        for entry in std::fs::read_dir(path).map_err(failed)? {
            // One that has gone since is not counted.
            let metadata = entry.map_err(failed)?.metadata();
            files += u64::from(metadata.is_ok());
            file_bytes += metadata.map_or(0, |metadata| metadata.len());
        }
        let descriptors = std::fs::read_dir("/proc/self/fd").map_or(0, |list| list.count() as u64);
        let resident_bytes = shamba::env::process_rss_bytes().unwrap_or(0);
        Ok(Self { resident_bytes, descriptors, files, file_bytes, count: 1 })
    }

    fn add(&mut self, other: Self) {
        self.resident_bytes += other.resident_bytes;
        self.descriptors += other.descriptors;
        self.files += other.files;
        self.file_bytes += other.file_bytes;
        self.count += other.count;
    }

    /// Name, mean and allowed growth of each.
    fn means(self) -> [(&'static str, u64, u64); 4] {
        let count = self.count.max(1);
        [
            ("KiB resident", self.resident_bytes >> 10, 2 << 10),
            ("descriptors", self.descriptors, 8),
            ("files", self.files, 8),
            ("KiB of files", self.file_bytes >> 10, 4 << 10),
        ]
        .map(|(name, sum, least)| (name, sum / count, least + sum / count / 8))
    }
}

/// Runs the load on a new database in `dir` for `time`. If the process `is_alone` with it, neither
/// its memory nor its descriptors may grow.
///
/// # Errors
/// The first difference, error of the engine, or growth.
pub fn run(dir: &Path, seed: u64, time: Duration, is_alone: bool) -> Result<Tally, String> {
    let path = dir.join("steady");
    let db = builder(&path).open().map_err(said("the database"))?;
    let (ends, begun) = (AtomicBool::new(false), Instant::now());
    let (mut tally, mut middle, mut last) = (Tally::default(), Sample::default(), Sample::default());
    let mut workers: Vec<Worker> = Vec::new();
    for number in 0..WRITERS {
        workers.push(Worker::new(&db, dir, seed, number).map_err(said("the database"))?);
    }
    let loaded: Result<(), String> = std::thread::scope(|scope| {
        let threads: Vec<_> = workers.iter_mut().map(|worker| scope.spawn(|| worker.work(&ends))).collect();
        let follower = scope.spawn(|| follow(&db, &ends));
        let mut sampled = Ok(());
        while begun.elapsed() < time && sampled.is_ok() && threads.iter().all(|thread| !thread.is_finished())
        {
            std::thread::sleep(INTERVAL);
            sampled = Sample::take(&path).map(|sample| match begun.elapsed() {
                passed if passed < time / 3 => {}
                passed if passed < time * 2 / 3 => middle.add(sample),
                _ => last.add(sample),
            });
        }
        ends.store(true, Ordering::Release);
        for thread in threads {
            tally.merge(&thread.join().map_err(|_| "a thread panicked".to_owned())??);
        }
        tally.add("batches followed", follower.join().map_err(|_| "the follower panicked".to_owned())??);
        sampled
    });
    loaded?;
    for ((name, before, allowance), (_, after, _)) in middle.means().into_iter().zip(last.means()) {
        tally.raise(&format!("{name}, mean of the second third"), before);
        tally.raise(&format!("{name}, mean of the last third"), after);
        if is_alone && after > before + allowance {
            return Err(format!("{name} grew from {before} to {after} (allowance {allowance})\n{tally}"));
        }
    }
    let (writes, bytes) = (db.stats().batches, db.stats().bytes_written());
    tally.raise("batches of the database", writes);
    tally.raise("KiB written", bytes >> 10);
    check_all(&db, &mut workers)?;
    workers.iter_mut().for_each(Worker::release);
    db.flush().and_then(|()| db.wait_idle()).map_err(said("the database"))?;
    no_file_is_left(&db, &path)?;
    let filtered = db.stats().entries_filtered;
    db.close().map_err(said("the database"))?;
    let db = builder(&path).create_if_missing(false).open().map_err(said("the database"))?;
    for worker in &mut workers {
        worker.reopen(&db).map_err(said("the database"))?;
    }
    check_all(&db, &mut workers)?;
    no_unwanted_key_is_left(&db, filtered)?;
    tally.add("entries filtered", filtered);
    tally.add("seconds", begun.elapsed().as_secs());
    Ok(tally)
}

/// Waits for the end of the files that no keyspace refers to any more.
fn no_file_is_left(db: &Db, path: &Path) -> Result<(), String> {
    let (begun, mut last) = (Instant::now(), String::new());
    while begun.elapsed() < Duration::from_secs(30) {
        let mut live = [0, 0];
        for name in db.keyspaces() {
            let stats = db.keyspace(&name).map_err(said("the database"))?.stats();
            live[0] += stats.levels.iter().map(|level| level.tables).sum::<u64>();
            live[1] = live[1].max(stats.value_files);
        }
        let names = std::fs::read_dir(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let names: Vec<_> =
            names.filter_map(|entry| Some(entry.ok()?.path().extension()?.to_owned())).collect();
        let files = ["sst", "values"].map(|kind| names.iter().filter(|name| *name == kind).count() as u64);
        if files == live {
            return Ok(());
        }
        last = format!("files {files:?}, live {live:?}");
        std::thread::sleep(INTERVAL);
    }
    Err(format!("tables and value files are left over: {last}"))
}

/// Checks that a compaction asks the filter about all that the load's compactions have not
/// rewritten.
fn no_unwanted_key_is_left(db: &Db, filtered: u64) -> Result<(), String> {
    let users = db.keyspace(Space::Users.name()).map_err(said("the database"))?;
    let before = users.prefix(UNWANTED).count() as u64;
    users.compact().map_err(said("compact"))?;
    match (filtered + before, users.prefix(UNWANTED).count()) {
        (0, _) => Err("no unwanted key was written".to_owned()),
        (_, 0) => Ok(()),
        (_, left) => Err(format!("{left} of {before} unwanted keys are left after a compaction")),
    }
}

/// Compares everything, and reads every byte.
fn check_all(db: &Db, workers: &mut [Worker]) -> Result<(), String> {
    workers.iter_mut().try_for_each(Worker::compare_all)?;
    let report = db.verify().map_err(said("verify"))?;
    if report.is_clean() { Ok(()) } else { Err(format!("damage: {report:?}")) }
}

fn is_later(position: ChangePosition, than: ChangePosition) -> bool {
    (position.epoch, position.sequence) > (than.epoch, than.sequence)
}

/// Reads the stream of changes: the positions ascend. Returns the number of batches.
fn follow(db: &Db, ends: &AtomicBool) -> Result<u64, String> {
    let mut position = db.change_position();
    let mut changes = db.changes_since(position).map_err(said("stream"))?;
    let mut batches = 0;
    while !ends.load(Ordering::Acquire) {
        match changes.next_timeout(Duration::from_millis(20)) {
            Ok(Some(change)) if is_later(change.position(), position) => {
                position = change.position();
                batches += 1;
            }
            Ok(Some(change)) => return Err(format!("stream: {} after {position}", change.position())),
            Ok(None) => {}
            // It was too slow for the kept logs, and goes on from here.
            Err(error) if error.kind() == shamba::ErrorKind::Gone => {
                position = db.change_position();
                changes = db.changes_since(position).map_err(said("stream"))?;
            }
            Err(error) => return Err(said("stream")(error)),
        }
    }
    Ok(batches)
}
