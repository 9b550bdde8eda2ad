//! What do compression dictionaries cost and save? Databases of JSON records without compression,
//! with zstd, and with zstd and dictionaries of 4 and 16 KiB, side by side.
//!
//! Of each it prints the time and the processor time of a fill (random order, compacted at the
//! end), the length of the tables, and the time of a lookup, twice: with a budget that holds every
//! block, which the cache keeps decompressed, and with a small one, where most lookups read and
//! decompress a block. Files are in the page cache.
//!
//! The databases take turns in each round, so all have the same noise; numbers are medians of the
//! rounds, in brackets the least and the greatest.
//!
//! ```text
//! cargo run --release -p shamba-lab --example dictionaries -- 1000000 5
//! ```
//!
//! The arguments are the number of records and of rounds.

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use fastrand::Rng;
use shamba::{Builder, Db};
use shamba_workload::{CpuTimer, Permutation};

/// Name of a database, and its options `compression` and `compression-dictionary`.
type Setting = (&'static str, &'static str, &'static str);

const SETTINGS: [Setting; 4] = [
    ("none", "none", "0"),
    ("zstd", "zstd", "0"),
    ("zstd, 4 KiB", "zstd", "4096"),
    ("zstd, 16 KiB", "zstd", "16384"),
];

/// The budget that holds every block, and the small one.
const BUDGETS: [u64; 2] = [1 << 30, 24 << 20];

/// Lookups of a round.
const LOOKUPS: u64 = 200_000;

const NAMES: [&str; 16] = [
    "amani", "baraka", "chiku", "dalila", "eshe", "faraji", "goma", "hasani", "imara", "jabari", "kamau",
    "lulu", "makena", "neema", "oluoch", "penda",
];
const TOWNS: [&str; 8] = ["Kisumu", "Mwanza", "Arusha", "Nakuru", "Jinja", "Moshi", "Thika", "Gulu"];

fn key(item: u64) -> String {
    format!("record:{item:011}")
}

/// A record of some 210 bytes, the same for the same item.
fn record(item: u64) -> String {
    let mut rng = Rng::with_seed(item);
    let (first, last) = (NAMES[rng.usize(..16)], NAMES[rng.usize(..16)]);
    format!(
        "{{\"id\":{item},\"name\":\"{first} {last}\",\"email\":\"{first}.{last}{}@example.org\",\
         \"town\":\"{}\",\"created\":\"2026-{:02}-{:02}T{:02}:{:02}:00Z\",\"balance\":{},\"active\":{},\
         \"token\":\"{:016x}\"}}",
        rng.u32(..10_000),
        TOWNS[rng.usize(..8)],
        rng.u32(1..13),
        rng.u32(1..29),
        rng.u32(..24),
        rng.u32(..60),
        rng.u32(..1_000_000),
        rng.bool(),
        rng.u64(..),
    )
}

fn builder(path: &Path, (_, compression, dictionary): Setting) -> shamba::Result<Builder> {
    let builder = Db::builder(path).info_log(false).set_option("compression", compression)?;
    builder.set_option("compression-dictionary", dictionary)
}

/// Fills a database; returns (seconds, processor seconds).
fn fill(path: &Path, setting: Setting, records: u64) -> Result<(f64, f64), Box<dyn Error>> {
    let db = builder(path, setting)?.memory_budget(256 << 20).open()?;
    let order = Permutation::new(records, 1);
    let (begin, cpu) = (Instant::now(), CpuTimer::process());
    for number in 0..records {
        let item = order.at(number);
        db.put(key(item), record(item))?;
    }
    db.compact()?;
    let taken = (begin.elapsed().as_secs_f64(), cpu.elapsed().as_secs_f64());
    db.close()?;
    Ok(taken)
}

/// Nanoseconds of a lookup of an existing key.
fn look_up(db: &Db, records: u64, rng: &mut Rng) -> Result<f64, Box<dyn Error>> {
    let keys: Vec<String> = (0..LOOKUPS).map(|_| key(rng.u64(..records))).collect();
    let begin = Instant::now();
    for key in &keys {
        if !db.contains_key(key)? {
            return Err(format!("{key} is not there").into());
        }
    }
    Ok(begin.elapsed().as_nanos() as f64 / LOOKUPS as f64)
}

/// Median, least and greatest as text.
fn summary(mut numbers: Vec<f64>, unit: f64, digits: usize) -> String {
    numbers.sort_by(f64::total_cmp);
    let at = |place: usize| numbers.get(place).map_or(f64::NAN, |number| number / unit);
    let (middle, last) = (at(numbers.len() / 2), at(numbers.len().saturating_sub(1)));
    format!("{middle:.digits$} ({:.digits$} to {last:.digits$})", at(0))
}

fn table_bytes(path: &Path) -> Result<u64, Box<dyn Error>> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        if entry.path().extension().is_some_and(|extension| extension == "sst") {
            bytes += entry.metadata()?.len();
        }
    }
    Ok(bytes)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let records: u64 = arguments.next().map_or(Ok(1_000_000), |text| text.parse())?;
    let rounds: usize = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let home = tempfile::tempdir()?;
    let path_of = |at: usize| home.path().join(at.to_string());

    let mut fills = vec![(Vec::new(), Vec::new()); SETTINGS.len()];
    for _ in 0..rounds {
        for ((at, setting), (wall, cpu)) in SETTINGS.into_iter().enumerate().zip(&mut fills) {
            if path_of(at).exists() {
                std::fs::remove_dir_all(path_of(at))?;
            }
            let (wall_s, cpu_s) = fill(&path_of(at), setting, records)?;
            wall.push(wall_s);
            cpu.push(cpu_s);
        }
    }
    let mut times = vec![[Vec::new(), Vec::new()]; SETTINGS.len()];
    for (place, budget_bytes) in BUDGETS.into_iter().enumerate() {
        let dbs: Vec<Db> = SETTINGS
            .into_iter()
            .enumerate()
            .map(|(at, setting)| builder(&path_of(at), setting)?.memory_budget(budget_bytes).open())
            .collect::<Result<_, _>>()?;
        let mut rng = Rng::with_seed(7);
        for round in 0..rounds + 5 {
            for (db, times) in dbs.iter().zip(&mut times) {
                let ns = look_up(db, records, &mut rng)?;
                // The first rounds fill the block cache.
                if round >= 5 {
                    times[place].push(ns);
                }
            }
        }
    }

    println!("| tables | fill, s | processor, s | MB | hit, all in memory, ns | hit, 24 MiB, ns |");
    println!("|---|---:|---:|---:|---:|---:|");
    for ((at, (name, ..)), ((wall, cpu), [large, small])) in
        SETTINGS.into_iter().enumerate().zip(fills.into_iter().zip(times))
    {
        println!(
            "| {name} | {} | {} | {:.1} | {} | {} |",
            summary(wall, 1.0, 1),
            summary(cpu, 1.0, 1),
            table_bytes(&path_of(at))? as f64 / 1e6,
            summary(large, 1.0, 0),
            summary(small, 1.0, 0),
        );
    }
    Ok(())
}
