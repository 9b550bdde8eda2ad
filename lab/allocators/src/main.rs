//! Resident memory compared with the budget: fills a database, changes it, reads it in several
//! ways, and samples the resident memory of the process all the while.
//!
//! The allocator is that of the build (`--features mimalloc` or `jemalloc`). Entries have keys of
//! 16 bytes, or of the maximum length. The data is several times the budget (twice a budget of
//! 512 MiB), so that every part of memory is in use. Prints one JSON object at the end. `cargo
//! xtask resident` builds the program once for each allocator and runs it under a memory limit of
//! the operating system.
//!
//! Not here: the watch (`shamba_lab::checks::watch`), heavier load
//! (`shamba_lab::checks::overload`).

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use shamba::{Db, Error};
use shamba_lab::checks::watch::MemoryWatch;
use shamba_workload::{Zipf, mix2, rss_bytes};

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
#[cfg(all(feature = "jemalloc", not(feature = "mimalloc")))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const ALLOCATOR_NAME: &str = if cfg!(feature = "mimalloc") {
    "mimalloc"
} else if cfg!(feature = "jemalloc") {
    "jemalloc"
} else {
    "system"
};

const USAGE: &str = "usage: shamba-allocators --budget MIB --keys small|largest --dir DIR [--seconds N]";
/// Length of the largest key that the engine takes.
const LARGEST_KEY_BYTES: usize = 65_535;
const SMALL_KEY_BYTES: usize = 16;
const VALUE_BYTES: usize = 100;
/// Data as a multiple of the budget, and its bounds.
const DATA_BUDGETS: u64 = 4;
const DATA_BYTES_MIN: u64 = 128 << 20;
const DATA_BYTES_MAX: u64 = 1 << 30;
const THREADS: u64 = 2;

/// One operation, by a number that no other operation of the phase has; the buffer is for a key.
type Work<'a> = dyn Fn(u64, &mut Vec<u8>) -> Result<(), Error> + Sync + 'a;

struct Options {
    budget_bytes: u64,
    key_bytes: usize,
    dir: PathBuf,
    /// Seconds of each phase but the fill.
    seconds: u64,
}

fn parse() -> Option<Options> {
    let (mut budget_bytes, mut key_bytes, mut dir, mut seconds) = (None, None, None, 5);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next()?;
        match (word.as_str(), value.as_str()) {
            ("--budget", mib) => budget_bytes = Some(mib.parse::<u64>().ok()? << 20),
            ("--keys", "small") => key_bytes = Some(SMALL_KEY_BYTES),
            ("--keys", "largest") => key_bytes = Some(LARGEST_KEY_BYTES),
            ("--dir", path) => dir = Some(PathBuf::from(path)),
            ("--seconds", number) => seconds = number.parse().ok()?,
            _ => return None,
        }
    }
    Some(Options { budget_bytes: budget_bytes?, key_bytes: key_bytes?, dir: dir?, seconds })
}

fn main() -> ExitCode {
    let Some(options) = parse() else {
        eprintln!("{USAGE}");
        return ExitCode::from(64);
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", error.chain());
            ExitCode::FAILURE
        }
    }
}

/// The entries: the keys of successive items are in random order.
#[derive(Clone, Copy)]
struct Entries {
    key_bytes: usize,
    count: u64,
}

impl Entries {
    fn key(self, item: u64, key: &mut Vec<u8>) {
        key.clear();
        key.extend_from_slice(&mix2(item, 0).to_be_bytes());
        key.extend_from_slice(&item.to_be_bytes());
        while key.len() < self.key_bytes {
            let more = mix2(item, key.len() as u64).to_be_bytes();
            let missing = (self.key_bytes - key.len()).min(more.len());
            key.extend_from_slice(&more[..missing]);
        }
    }

    fn put(self, db: &Db, item: u64, version: u64, key: &mut Vec<u8>) -> Result<(), Error> {
        self.key(item, key);
        let mut value = [0; VALUE_BYTES];
        for (at, piece) in value.chunks_mut(8).enumerate() {
            let bytes = mix2(item ^ version, at as u64).to_be_bytes();
            piece.copy_from_slice(&bytes[..piece.len()]);
        }
        db.put(&*key, value)
    }
}

fn run(options: &Options) -> Result<(), Error> {
    let data_bytes = (options.budget_bytes * DATA_BUDGETS).clamp(DATA_BYTES_MIN, DATA_BYTES_MAX);
    let count = data_bytes / (options.key_bytes + VALUE_BYTES) as u64;
    let entries = Entries { key_bytes: options.key_bytes, count };
    let before_bytes = rss_bytes().unwrap_or(0);
    let db = Db::builder(&options.dir).memory_budget(options.budget_bytes).open()?;
    let watch = MemoryWatch::begin(&db);
    let mut phases = Vec::new();
    let mut phase = |name: &str, work: &dyn Fn() -> Result<u64, Error>| -> Result<(), Error> {
        let began = Instant::now();
        let operations = work()?;
        let resident_bytes = rss_bytes().unwrap_or(0);
        let ledger_bytes = db.memory().ledger_bytes;
        phases.push(json!({
            "phase": name, "operations": operations, "seconds": began.elapsed().as_secs_f64(),
            "rss_bytes": resident_bytes, "ledger_bytes": ledger_bytes,
        }));
        Ok(())
    };
    phase("fill", &|| {
        let next = AtomicU64::new(0);
        on_threads(|_| {
            let mut key = Vec::new();
            loop {
                let item = next.fetch_add(1, Ordering::Relaxed);
                if item >= entries.count {
                    return Ok(0);
                }
                entries.put(&db, item, 0, &mut key)?;
            }
        })?;
        Ok(entries.count)
    })?;
    let for_a_while = |work: &Work| {
        let end = Instant::now() + Duration::from_secs(options.seconds);
        on_threads(|thread| {
            let (mut key, mut done) = (Vec::new(), 0);
            while Instant::now() < end {
                work(mix2(done, thread + 1), &mut key)?;
                done += 1;
            }
            Ok(done)
        })
    };
    let get = |item: u64, key: &mut Vec<u8>| {
        entries.key(item, key);
        db.get(&*key).map(drop)
    };
    let scan = |number: u64, key: &mut Vec<u8>| {
        entries.key(number % count, key);
        for entry in db.range(&key[..]..).take(100) {
            entry?;
        }
        Ok(())
    };
    phase("overwrite", &|| for_a_while(&|number, key| entries.put(&db, number % count, number, key)))?;
    phase("compact", &|| db.compact().map(|()| 1))?;
    let zipf = Zipf::new(count, 0.99);
    let skewed = |number: u64| mix2(zipf.rank(&mut fastrand::Rng::with_seed(number)), 7) % count;
    phase("get zipf", &|| for_a_while(&|number, key| get(skewed(number), key)))?;
    phase("get uniform", &|| for_a_while(&|number, key| get(number % count, key)))?;
    phase("scan", &|| for_a_while(&scan))?;
    phase("mixed", &|| {
        for_a_while(&|number, key| match number % 8 {
            0..4 => get(number / 8 % count, key),
            4..7 => entries.put(&db, number / 8 % count, number, key),
            _ => scan(number / 8, key),
        })
    })?;
    phase("get again", &|| for_a_while(&|number, key| get(number % count, key)))?;
    let seen = watch.end();
    let printed = json!({
        "schema": "shamba.resident/1",
        "allocator": ALLOCATOR_NAME,
        "budget_bytes": options.budget_bytes,
        "key_bytes": options.key_bytes,
        "entries": count,
        "rss_before_bytes": before_bytes,
        "rss_bytes": seen.rss_bytes,
        "rss_end_bytes": rss_bytes().unwrap_or(0),
        "ledger_bytes": seen.ledger_bytes,
        "ledger_at_rss_bytes": seen.ledger_at_rss_bytes,
        "parts": seen.parts,
        "samples": seen.samples,
        "phases": phases,
    });
    db.close()?;
    println!("{printed}");
    Ok(())
}

/// Runs `work` on each thread, and adds up what they did.
fn on_threads(work: impl Fn(u64) -> Result<u64, Error> + Sync) -> Result<u64, Error> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn({
                    let work = &work;
                    move || work(thread)
                })
            })
            .collect();
        let mut done = 0;
        for thread in threads {
            done += thread.join().expect("a thread does not panic")?;
        }
        Ok(done)
    })
}
