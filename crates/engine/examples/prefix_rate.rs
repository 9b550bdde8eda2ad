//! The rate of scans of one prefix, with and without a prefix extractor, over runs that overlap: of
//! prefixes that one run has, that no run has, and that every run has.
//!
//! Two keyspaces hold the same entries, ten for each user, all of a user in one run, and users in
//! turns over the runs. The rounds alternate between the keyspaces. The program prints the median
//! rate, with the slowest and the fastest round, and the ratio of the medians.
//!
//! ```text
//! cargo run --release -p shamba --example prefix_rate -- 1000000 8 20000 9
//! ```
//!
//! The arguments are the number of entries, of runs, of scans in a round, and of rounds.

use std::error::Error;
use std::time::Instant;

use shamba::{Db, Keyspace, KeyspaceOptions, Prefix};

/// Entries of a user.
const EACH: u64 = 10;
/// Teams, of which every run has an entry.
const TEAMS: u64 = 1_000;

/// Title, entries found by a scan, and the prefix that a random number asks for.
type Mode = (&'static str, u64, Box<dyn Fn(u64) -> String>);

/// Users have even numbers; the odd ones are absent.
fn user(number: u64) -> String {
    format!("user{number:08}:")
}

/// The entries of one run.
fn fill(keyspace: &Keyspace, entries: u64, (run, runs): (u64, u64)) -> shamba::Result<()> {
    for number in (run..entries / EACH).step_by(runs as usize) {
        for entry in 0..EACH {
            keyspace.put(format!("{}{entry}", user(2 * number)), "twenty bytes of text")?;
        }
    }
    for team in 0..TEAMS {
        keyspace.put(format!("team{team:08}:{run}"), "twenty bytes of text")?;
    }
    Ok(())
}

/// Scans a second, and the entries that they found.
fn round(keyspace: &Keyspace, scans: u64, prefix: &dyn Fn(u64) -> String) -> shamba::Result<(f64, u64)> {
    let begin = Instant::now();
    let mut found = 0;
    for scan in 0..scans {
        // The high bits of a product with an odd number are spread evenly.
        let random = scan.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        for entry in keyspace.prefix(prefix(random)) {
            entry?;
            found += 1;
        }
    }
    Ok((scans as f64 / begin.elapsed().as_secs_f64(), found))
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u64>());
    let entries = arguments.next().unwrap_or(Ok(10_000))?;
    let runs = arguments.next().unwrap_or(Ok(8))?.max(1);
    let scans = arguments.next().unwrap_or(Ok(200))?;
    let rounds = arguments.next().unwrap_or(Ok(3))?;
    let directory = std::env::temp_dir().join(format!("shamba-prefix-rate-{}", std::process::id()));
    // The runs stay as they are flushed.
    let builder = Db::builder(&directory).memory_budget(512 << 20).write_buffer(64 << 20);
    let db = builder.experimental(|options| options.auto_compaction(false)).open()?;
    let by_colon = KeyspaceOptions::new().prefix(Prefix::Delimited(b':'));
    let sides = [db.keyspace_with("with", by_colon)?, db.keyspace("without")?];
    for run in 0..runs {
        sides.iter().try_for_each(|keyspace| fill(keyspace, entries, (run, runs)))?;
        db.flush()?;
    }
    let users = entries / EACH;
    let modes: [Mode; 3] = [
        ("in one run", EACH, Box::new(move |random| user(random % users * 2))),
        ("in no run", 0, Box::new(move |random| user(random % users * 2 + 1))),
        ("in every run", runs, Box::new(|random| format!("team{:08}:", random % TEAMS))),
    ];
    println!("{entries} entries in {runs} runs, {scans} scans a round");
    for (title, each, prefix) in &modes {
        let mut rates = [Vec::new(), Vec::new()];
        for _ in 0..rounds.max(1) {
            for (keyspace, rates) in sides.iter().zip(&mut rates) {
                let (rate, found) = round(keyspace, scans, prefix)?;
                assert_eq!(found, scans * each, "{title}");
                rates.push(rate);
            }
        }
        let [with, without] = rates.map(|mut rates| {
            rates.sort_by(f64::total_cmp);
            (rates[rates.len() / 2], rates[0], rates[rates.len() - 1])
        });
        println!("prefixes {title}, {each} entries each");
        for (name, (median, slowest, fastest)) in [("with", with), ("without", without)] {
            println!("  {name:7}  {median:>10.0} scans a second ({slowest:.0} to {fastest:.0})");
        }
        println!("  ratio    {:>10.2}", with.0 / without.0);
    }
    println!("{} runs left out by {} filters", db.stats().prefix_runs_skipped, db.stats().prefix_filters);
    db.close()?;
    Ok(std::fs::remove_dir_all(&directory)?)
}
