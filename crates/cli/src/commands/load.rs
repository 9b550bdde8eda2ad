//! `shamba load DB [FILE|-]`: loads records from a file or standard input.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;
use shamba::env::Env;
use shamba::{Db, Keyspace};

use crate::exit::Failure;
use crate::keyspace::CreatedKeyspace;
use crate::load::{Format, Item, Lifetime, Records};
use crate::open;
use crate::options::EngineOptions;
use crate::output::{Out, warn};
use crate::progress;
use crate::sizes::counted;

/// Maximum records and bytes of a batch: large enough to make commit costs negligible, and small
/// enough for any buffer.
const BATCH_RECORDS: usize = 1000;
const BATCH_BYTES: usize = 1 << 20;
/// Maximum number of malformed lines that are listed; further ones are only counted.
const NAMED_MAX: u64 = 10;

const FORMATS: &str = "\
    The key is column 1 or field \"key\", or as given by --key. The value is the rest: the other columns; of a JSON \
    object the field \"value\" if it is the only other field and a string, otherwise the whole line. The first record \
    of a csv file is its header and is not loaded, unless --no-header is given; other formats have no header. Formats by \
    extension: .csv is csv, .jsonl and .ndjson are jsonl, .txt is lines, others are tsv.";

/// Arguments of `load`.
#[derive(Args)]
#[command(after_help = FORMATS)]
pub struct LoadArgs {
    /// The database; created if missing
    db: PathBuf,
    /// The file; - is standard input
    #[arg(default_value = "-")]
    file: PathBuf,
    /// Input format (default: by file extension, otherwise tsv)
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Key column (its number, or its name in a csv header) or key field (jsonl)
    #[arg(long, value_name = "COL")]
    key: Option<String>,
    /// The first record of the csv file is data, not a header
    #[arg(long)]
    no_header: bool,
    #[command(flatten)]
    keyspace: CreatedKeyspace,
    /// Skip malformed lines, and count them
    #[arg(long)]
    skip_bad: bool,
    /// Keys and values are hex, as dump prints them; in tsv, the time of an expiry may follow
    #[arg(long)]
    hex: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    engine: EngineOptions,
}

pub fn run(args: &LoadArgs, out: &mut Out) -> Result<(), Failure> {
    let format = args.format.unwrap_or_else(|| Format::of_name(&args.file));
    let stdin = args.file == Path::new("-");
    let name = if stdin { "standard input".to_string() } else { args.file.display().to_string() };
    // The input is opened first: an unreadable file must not leave an empty database behind.
    let input: Box<dyn io::BufRead> = if stdin {
        Box::new(io::stdin().lock())
    } else {
        let file = File::open(&args.file).map_err(|error| Failure::io(&name, error))?;
        if file.metadata().is_ok_and(|metadata| metadata.is_dir()) {
            return Err(Failure::io(
                format!("{name}: load reads a file or standard input"),
                io::ErrorKind::IsADirectory.into(),
            ));
        }
        Box::new(BufReader::with_capacity(256 << 10, file))
    };
    args.keyspace.check()?;
    let mut input = input;
    // Text formats have no zero bytes. This guess is only used to explain a malformed line.
    let has_zeros = input.fill_buf().map_err(|error| Failure::io(&name, error))?.contains(&0);
    let mut records =
        Records::new(format, input, args.key.as_deref(), args.hex, args.no_header).map_err(Failure::Usage)?;
    // Neither must a file whose first record is malformed.
    let first = records.next().map_err(|error| Failure::io(&name, error))?;
    let guessed = args.format.is_none().then_some(format);
    let hint = hint(guessed, has_zeros);
    if let Some(Item::Fatal { line, reason }) = &first {
        return Err(fatal(&name, *line, reason, 0));
    }
    if let Some(Item::Malformed { line, reason }) = &first
        && !args.skip_bad
    {
        return Err(malformed(&name, *line, reason, 0, &hint));
    }
    let db = open::create_for(&args.db, &args.engine, &args.keyspace)?;
    let start = Instant::now();
    // Records before a malformed line stay loaded.
    let (loaded, skipped, expired) = open::closing(db, |db| {
        let keyspace = args.keyspace.of(db)?;
        let mut load = Load {
            db,
            keyspace: &keyspace,
            name: &name,
            skip_bad: args.skip_bad,
            hint: &hint,
            loaded: 0,
            skipped: 0,
            expired: 0,
        };
        load.run(first, &mut records)?;
        Ok((load.loaded, load.skipped, load.expired))
    })?;
    if skipped > NAMED_MAX {
        warn(format!("{name}: {} skipped in all", counted(skipped, "line", "lines")));
    }
    let seconds = start.elapsed().as_secs_f64();
    if args.json {
        return out.json(&json!({
            "schema": "shamba.load/1",
            "loaded": loaded,
            "skipped": skipped,
            "expired": expired,
            "seconds": seconds,
            "format": format.name(),
            "key_place": records.key_place(),
            "header": records.has_read_header(),
        }));
    }
    let header = match records.has_read_header() {
        true => "; the first row is the header and was not loaded (--no-header loads it)",
        false => "",
    };
    let expired = match expired {
        0 => String::new(),
        expired => format!(", {expired} had expired"),
    };
    out.line(format!(
        "{} loaded, {} skipped{expired}, {seconds:.1} s; {}, key: {}{header}",
        counted(loaded, "record", "records"),
        counted(skipped, "line", "lines"),
        format.name(),
        records.key_place(),
    ))
}

struct Load<'a> {
    db: &'a Db,
    keyspace: &'a Keyspace,
    name: &'a str,
    skip_bad: bool,
    /// Possible reason for a malformed line, for the message.
    hint: &'a str,
    loaded: u64,
    skipped: u64,
    /// Records that were not loaded, because they have expired.
    expired: u64,
}

/// Failure for an item after which none can be read, with the number of records loaded before it.
fn fatal(name: &str, line: u64, reason: &str, before: u64) -> Failure {
    Failure::Data(match before {
        0 => format!("{name}:{line}: {reason}"),
        _ => format!("{name}:{line}: {reason} (loaded before it: {})", counted(before, "record", "records")),
    })
}

/// Failure for a malformed line, with the number of records loaded before it.
fn malformed(name: &str, line: u64, reason: &str, before: u64, hint: &str) -> Failure {
    Failure::Data(format!(
        "{name}:{line}: {reason} (loaded before it: {}; --skip-bad skips such lines{hint})",
        counted(before, "record", "records")
    ))
}

/// Possible reason for a malformed line: the format was guessed, or the file is not text.
fn hint(guessed: Option<Format>, has_zeros: bool) -> String {
    let guess = guessed.map_or_else(String::new, |format| {
        format!("; read as {}; use --format tsv|csv|jsonl|lines to change", format.name())
    });
    let zeros = if has_zeros { "; the file contains zero bytes, so it may not be text" } else { "" };
    format!("{guess}{zeros}")
}

impl Load<'_> {
    /// Loads the record that was already read, then all others.
    fn run(&mut self, first: Option<Item>, records: &mut Records<'_>) -> Result<(), Failure> {
        let bar = progress::bar("loading", None);
        let mut batch = self.db.batch();
        let mut bytes = 0;
        let mut first = Some(Ok(first));
        let clock = Env::real().clock;
        let result = loop {
            match first.take().unwrap_or_else(|| records.next()) {
                Ok(Some(Item::Record { key, value, lifetime })) => {
                    bytes += key.len() + value.len();
                    match lifetime {
                        Lifetime::OfKeyspace => batch.put_in(self.keyspace, key, value),
                        Lifetime::Lasting => batch.put_expiring_in(self.keyspace, key, value, Duration::MAX),
                        Lifetime::Until(expiry_ms) => match expiry_ms.saturating_sub(clock.unix_ms()) {
                            0 => {
                                self.expired += 1;
                                continue;
                            }
                            left_ms => {
                                let time_to_live = Duration::from_millis(left_ms);
                                batch.put_expiring_in(self.keyspace, key, value, time_to_live)
                            }
                        },
                    };
                    if batch.len() >= BATCH_RECORDS || bytes >= BATCH_BYTES {
                        self.loaded += batch.len() as u64;
                        batch.commit()?;
                        bytes = 0;
                        bar.set_position(self.loaded);
                    }
                }
                Ok(Some(Item::Fatal { line, reason })) => {
                    let before = self.loaded + batch.len() as u64;
                    break Err(fatal(self.name, line, &reason, before));
                }
                Ok(Some(Item::Malformed { line, reason })) if self.skip_bad => {
                    self.skipped += 1;
                    if self.skipped <= NAMED_MAX {
                        bar.suspend(|| warn(format!("{}:{line}: {reason}; skipped", self.name)));
                    }
                }
                Ok(Some(Item::Malformed { line, reason })) => {
                    let before = self.loaded + batch.len() as u64;
                    break Err(malformed(self.name, line, &reason, before, self.hint));
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(Failure::io(self.name, error)),
            }
        };
        bar.finish_and_clear();
        self.loaded += batch.len() as u64;
        batch.commit()?;
        result
    }
}
