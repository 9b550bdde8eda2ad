//! Time to open a database after its process was killed: tables without pending compactions, and a
//! log of some size to replay.
//!
//! A gibibyte is filled, and pending compactions complete. Then, for each log size, that many bytes
//! are written and left in the log (the write buffer is larger), and the database is dropped
//! without a close, which leaves the files in the same state as a kill. Copies of these files are
//! opened one after the other; each time includes the open and one lookup. The files are in the
//! system's page cache, as after a crash of a process; after a crash of the machine the device's
//! read time is added.
//!
//! Not here: correctness of recovery (the suites in `tests`).

use std::path::{Path, PathBuf};
use std::time::Instant;

use shamba::{Db, Durability, Error};

use shamba_workload::Values;
use shamba_workload::{KeyShape, Keys};

/// Maximum time of an open with a log of [`LOG_BYTES`], and maximum increase per further step of
/// log.
pub const OPEN_MS_MAX: u64 = 2_000;
/// See [`OPEN_MS_MAX`].
pub const MORE_MS_MAX: u64 = 1_000;
/// The step by which logs grow here.
pub const LOG_BYTES: u64 = 64 << 20;
/// Tested log sizes, in steps.
const STEPS: [u64; 4] = [0, 1, 2, 4];
/// Opens per log size; the median is used.
const REPEATS: usize = 5;
const KEY_BYTES: usize = 16;
const VALUE_BYTES: usize = 100;

/// Options of the check.
#[derive(Clone, Debug)]
pub struct Options {
    /// Directory of the database.
    pub dir: PathBuf,
    /// Bytes of keys and values in tables.
    pub bytes: u64,
    /// Seed of the written data.
    pub seed: u64,
}

/// Opens with a log of one size.
#[derive(Clone, Debug)]
pub struct Opens {
    /// Bytes of the live logs on disk.
    pub log_bytes: u64,
    /// Milliseconds of each open and lookup, sorted.
    pub ms: Vec<u64>,
}

impl Opens {
    /// The median.
    pub fn median_ms(&self) -> u64 {
        self.ms[self.ms.len() / 2]
    }
}

/// Outcome.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Options of the run.
    pub options: Options,
    /// Opens by growing log.
    pub opens: Vec<Opens>,
}

/// Runs it.
///
/// # Errors
/// Errors of the database; a wrong answer.
pub fn run(options: Options) -> Result<Outcome, String> {
    let said = |error: Error| error.chain().to_string();
    let entries = (options.bytes / (KEY_BYTES + VALUE_BYTES) as u64).max(1);
    let logged = STEPS[STEPS.len() - 1] * LOG_BYTES / VALUE_BYTES as u64;
    let keys = Keys::new(KeyShape::Random, KEY_BYTES, entries + logged)?;
    let values = Values::new(VALUE_BYTES, options.seed);
    // The buffer is larger than the longest log's entries, so that nothing is flushed.
    let buffer_bytes = 2 * STEPS[STEPS.len() - 1] * LOG_BYTES;
    let builder = |dir: &Path| {
        let builder = Db::builder(dir).memory_budget(4 * buffer_bytes).write_buffer(buffer_bytes);
        builder.experimental(|e| e.max_wal_bytes(4 * buffer_bytes)).durability(Durability::NoSync)
    };
    let (mut key, mut value) = (Vec::new(), Vec::new());
    let mut write = |db: &Db, items: std::ops::Range<u64>| -> Result<(), String> {
        for item in items {
            keys.existing(item, &mut key);
            values.write(item, &mut value);
            db.put(&key, &value).map_err(said)?;
        }
        Ok(())
    };
    let db = builder(&options.dir).open().map_err(said)?;
    write(&db, 0..entries)?;
    db.flush().map_err(said)?;
    db.wait_idle().map_err(said)?;
    db.close().map_err(said)?;

    let mut opens = Vec::new();
    let mut written = entries;
    for step in STEPS {
        let db = builder(&options.dir).open().map_err(said)?;
        while logs_bytes(&options.dir)? < step * LOG_BYTES {
            write(&db, written..written + 10_000)?;
            written += 10_000;
        }
        drop(db);
        let log_bytes = logs_bytes(&options.dir)?;
        let mut ms = Vec::new();
        for _ in 0..REPEATS {
            // Each open starts from the same files: an open does not replay again what an earlier
            // one replayed.
            let killed = options.dir.with_extension("killed");
            copy(&options.dir, &killed)?;
            let begun = Instant::now();
            let db = builder(&killed).open().map_err(said)?;
            let mut key = Vec::new();
            keys.existing(written - 1, &mut key);
            let found = db.get(&key).map_err(said)?;
            ms.push(begun.elapsed().as_millis() as u64);
            let mut value = Vec::new();
            values.write(written - 1, &mut value);
            if found.as_deref() != Some(&value[..]) {
                return Err(format!(
                    "the last write before the kill is missing, with {log_bytes} bytes of log"
                ));
            }
            drop(db);
            std::fs::remove_dir_all(&killed).map_err(|error| format!("{}: {error}", killed.display()))?;
        }
        ms.sort_unstable();
        opens.push(Opens { log_bytes, ms });
    }
    Ok(Outcome { options, opens })
}

/// Copies the files of `from` to the new directory `to`: tables, which never change, as hard links.
fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", to.display());
    std::fs::create_dir_all(to).map_err(failed)?;
    for entry in std::fs::read_dir(from).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let new = to.join(path.file_name().unwrap_or_default());
        if path.extension().is_some_and(|suffix| suffix == "sst") {
            std::fs::hard_link(&path, &new).map_err(failed)?;
        } else {
            std::fs::copy(&path, &new).map_err(failed)?;
        }
    }
    Ok(())
}

/// Bytes of the logs in `dir`.
fn logs_bytes(dir: &Path) -> Result<u64, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", dir.display());
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.path().extension().is_some_and(|suffix| suffix == "log") {
            bytes += entry.metadata().map_err(failed)?.len();
        }
    }
    Ok(bytes)
}

impl Outcome {
    /// The median open with one step of log, in milliseconds.
    pub fn open_ms(&self) -> u64 {
        self.opens[1].median_ms()
    }

    /// Maximum increase per further step of log, in milliseconds.
    pub fn more_ms(&self) -> u64 {
        let more = self.opens.windows(2).skip(1).map(|pair| {
            let steps = (pair[1].log_bytes - pair[0].log_bytes) as f64 / LOG_BYTES as f64;
            pair[1].median_ms().saturating_sub(pair[0].median_ms()) as f64 / steps
        });
        more.fold(0.0, f64::max).ceil() as u64
    }

    /// Times over their limits.
    pub fn violations(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut expect = |took: u64, most: u64, what: &str| {
            if took > most {
                wrong.push(format!("{what} took {took} ms, the limit is {most} ms"));
            }
        };
        expect(self.open_ms(), OPEN_MS_MAX, "an open with 64 MiB of log");
        expect(self.more_ms(), MORE_MS_MAX, "each further 64 MiB of log");
        wrong
    }

    /// One line of JSON.
    pub fn to_json(&self) -> String {
        let opens: Vec<String> = self
            .opens
            .iter()
            .map(|opens| format!("{{\"log_bytes\":{},\"ms\":{:?}}}", opens.log_bytes, opens.ms))
            .collect();
        format!(
            "{{\"schema\":\"reopen/1\",\"table_bytes\":{},\"seed\":{},\"opens\":[{}],\"open_ms\":{},\"more_ms\":{},\
             \"violations\":{:?}}}",
            self.options.bytes,
            self.options.seed,
            opens.join(","),
            self.open_ms(),
            self.more_ms(),
            self.violations()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(ms: [u64; 4]) -> Outcome {
        let opens = STEPS.iter().zip(ms);
        let opens =
            opens.map(|(step, ms)| Opens { log_bytes: step * LOG_BYTES, ms: vec![ms - 1, ms, ms + 50] });
        let options = Options { dir: PathBuf::new(), bytes: 1 << 30, seed: 1 };
        Outcome { options, opens: opens.collect() }
    }

    #[test]
    fn slow_opens_are_told() {
        let quick = outcome([10, 400, 700, 1_500]);
        assert_eq!((quick.open_ms(), quick.more_ms(), quick.violations().len()), (400, 400, 0));
        assert_eq!(outcome([10, 2_100, 2_200, 2_300]).violations().len(), 1);
        assert_eq!(outcome([10, 400, 1_500, 1_600]).violations().len(), 1);
        assert!(quick.to_json().contains(r#""ms":[399, 400, 450]"#), "{}", quick.to_json());
    }
}
