//! Memory use of a database in demanding situations: the ledger compared with the resident memory
//! that the system reports.
//!
//! | situation | contents |
//! |---|---|
//! | `entries` | a million small entries under a budget of 4 MiB |
//! | `tables` | the maximum number of small tables under 64 MiB before tables grow: some thousands |
//! | `keys` | keys of 65,000 bytes under 8 MiB |
//! | `iterators` | a thousand iterators both ways over a million entries under 16 MiB |
//!
//! Each needs a process of its own, because the allocator keeps memory of earlier situations.
//!
//! Not here: the memory watch ([`super::watch`]), starting the processes.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use shamba::{Db, Error};

use crate::checks::watch::{MemorySeen, MemoryWatch, parts_json};
use shamba_workload::Values;
use shamba_workload::{KeyShape, Keys};

/// A state of a database with high memory demands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Situation {
    /// Many small entries, a small budget.
    Entries,
    /// Many small tables.
    Tables,
    /// Long keys.
    Keys,
    /// Many open iterators.
    Iterators,
}

impl Situation {
    /// Every situation.
    pub const ALL: [Self; 4] = [Self::Entries, Self::Tables, Self::Keys, Self::Iterators];

    /// The name on the command line and in output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Entries => "entries",
            Self::Tables => "tables",
            Self::Keys => "keys",
            Self::Iterators => "iterators",
        }
    }

    /// The budget of the situation, in bytes.
    pub fn budget_bytes(self) -> u64 {
        match self {
            Self::Entries => 4 << 20,
            Self::Tables => 64 << 20,
            Self::Keys => 8 << 20,
            Self::Iterators => 16 << 20,
        }
    }
}

impl fmt::Display for Situation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Situation {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|situation| situation.name() == name).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            format!("unknown situation {name:?} (known: {known})")
        })
    }
}

/// Memory of a situation.
#[derive(Clone, Debug)]
pub struct Taken {
    /// The situation.
    pub situation: Situation,
    /// Tables at the end.
    pub tables: u64,
    /// Resident bytes before anything was written.
    pub rss_before_bytes: u64,
    /// During fill and compaction.
    pub filling: MemorySeen,
    /// During reads.
    pub reading: MemorySeen,
}

impl Taken {
    /// One line of JSON.
    pub fn to_json(&self) -> String {
        let phase = |seen: &MemorySeen| {
            format!(
                "{{\"rss_bytes\":{},\"ledger_at_rss_bytes\":{},\"ledger_bytes\":{},\"parts\":{}}}",
                seen.rss_bytes,
                seen.ledger_at_rss_bytes,
                seen.ledger_bytes,
                parts_json(&seen.parts)
            )
        };
        format!(
            "{{\"schema\":\"memory-situations/1\",\"situation\":\"{}\",\"budget_bytes\":{},\"tables\":{},\
             \"rss_before_bytes\":{},\"filling\":{},\"reading\":{}}}",
            self.situation,
            self.situation.budget_bytes(),
            self.tables,
            self.rss_before_bytes,
            phase(&self.filling),
            phase(&self.reading)
        )
    }
}

/// Entries of the situations with many, by the scale of the run (1: as described).
fn scaled(count: u64, scale: f64) -> u64 {
    ((count as f64 * scale) as u64).max(1)
}

/// Creates a database in the new directory `dir` and brings it into the situation, `scale` times as
/// large as described.
///
/// # Errors
/// Errors of the database.
pub fn run(situation: Situation, dir: &Path, scale: f64) -> Result<Taken, String> {
    let builder = Db::builder(dir).memory_budget(situation.budget_bytes());
    let (entries, key_bytes, value_bytes, builder) = match situation {
        Situation::Entries | Situation::Iterators => (scaled(1_000_000, scale), 16, 100, builder),
        // Written in order, so that flushed tables stay in place.
        Situation::Tables => (
            scaled(1_200_000, scale),
            16,
            100,
            builder.experimental(|e| e.file_size(12 << 10).auto_compaction(false)),
        ),
        Situation::Keys => (scaled(2_000, scale), 65_000, 10, builder),
    };
    let shape = if situation == Situation::Tables { KeyShape::Sequential } else { KeyShape::Random };
    let keys = Keys::new(shape, key_bytes, 2 * entries)?;
    let values = Values::new(value_bytes, 1);
    let db = builder.open().map_err(said)?;
    let filling = MemoryWatch::begin(&db);
    let rss_before_bytes = filling.rss_before_bytes;
    let (mut key, mut value) = (Vec::new(), Vec::new());
    for item in 0..entries {
        keys.existing(item, &mut key);
        values.write(item, &mut value);
        db.put(&key, &value).map_err(said)?;
    }
    db.flush().map_err(said)?;
    db.wait_idle().map_err(said)?;
    let filling = filling.end();
    let reading = MemoryWatch::begin(&db);
    read(situation, &db, &keys, entries)?;
    let reading = reading.end();
    let tables = db.stats().levels.iter().map(|level| level.tables).sum();
    db.close().map_err(said)?;
    Ok(Taken { situation, tables, rss_before_bytes, filling, reading })
}

fn read(situation: Situation, db: &Db, keys: &Keys, entries: u64) -> Result<(), String> {
    let mut key = Vec::new();
    let step = (entries / 50_000).max(1);
    for item in (0..entries).step_by(step as usize) {
        keys.existing(item, &mut key);
        if db.get(&key).map_err(said)?.is_none() {
            return Err(format!("{situation}: item {item} is not found"));
        }
        keys.absent(item, &mut key);
        if db.contains_key(&key).map_err(said)? {
            return Err(format!("{situation}: absent item {item} was found"));
        }
    }
    if situation == Situation::Iterators {
        let mut cursors = Vec::new();
        for number in 0..1_000 {
            let mut cursor = db.cursor();
            keys.existing(number * (entries / 1_000), &mut key);
            cursor.seek(&key).map_err(said)?;
            cursors.push(cursor);
        }
        for (number, cursor) in cursors.iter_mut().enumerate() {
            for _ in 0..400 {
                let moved = if number % 2 == 0 { cursor.next() } else { cursor.prev() };
                moved.map_err(said)?;
            }
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let found = db.iter().take(entries as usize / 4).filter(Result::is_ok).count();
    if found < entries as usize / 4 {
        return Err(format!("{situation}: a scan found {found} entries"));
    }
    Ok(())
}

fn said(error: Error) -> String {
    error.to_string()
}
