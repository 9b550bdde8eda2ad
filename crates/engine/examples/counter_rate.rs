//! The rate at which threads increment counters, by `merge` and by `update`: one counter for all of
//! them, and 1,000 counters at random.
//!
//! `update` reads the counter, and begins again if another thread has changed it meanwhile; `merge`
//! writes an operand. The two run in turns, each in a keyspace of its own. After each round the
//! program checks the sum of the counters. It prints the median rate of all threads together, with
//! the slowest and the fastest round, and the ratio of the medians.
//!
//! ```text
//! cargo run --release -p shamba --example counter_rate -- 16 20000 9
//! ```
//!
//! The arguments are the number of threads, the number of increments of each thread in a round, the
//! number of rounds, and `sync` if each increment is to be on stable storage when it returns.
//! Merges of several threads share one sync. Of the synced updates of one counter, each sync
//! commits one.

use std::error::Error;
use std::time::Instant;

use shamba::merge::AddU64;
use shamba::{Db, Durability, Keyspace, KeyspaceOptions};

/// Counters of the second mode.
const MANY: u64 = 1_000;

type Increment = fn(&Keyspace, u64) -> shamba::Result<()>;

fn number(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

fn merge(counters: &Keyspace, counter: u64) -> shamba::Result<()> {
    counters.merge(counter.to_be_bytes(), 1u64.to_le_bytes())
}

fn update(counters: &Keyspace, counter: u64) -> shamba::Result<()> {
    let next = |value: Option<&[u8]>| Some((value.map_or(0, number) + 1).to_le_bytes().to_vec());
    counters.update(counter.to_be_bytes(), next).map(drop)
}

/// Increments a second, of all threads together.
fn round(
    counters: &Keyspace,
    of: u64,
    (threads, each): (u64, u64),
    increment: Increment,
) -> shamba::Result<f64> {
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let run = |thread: u64| {
            // The high bits of a product with an odd number are spread evenly.
            let counter = |turn: u64| ((thread << 32 | turn).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % of;
            (0..each).try_for_each(|turn| increment(counters, counter(turn)))
        };
        let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    Ok((threads * each) as f64 / begin.elapsed().as_secs_f64())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_synced = arguments.last().is_some_and(|last| last == "sync") && arguments.pop().is_some();
    let mut arguments = arguments.iter().map(|argument| argument.parse::<u64>());
    let threads = arguments.next().unwrap_or(Ok(16))?;
    let each = arguments.next().unwrap_or(Ok(100))?;
    let rounds = arguments.next().unwrap_or(Ok(3))?;
    let directory = std::env::temp_dir().join(format!("shamba-rate-{}", std::process::id()));
    let durability = if is_synced { Durability::Sync } else { Durability::NoSync };
    let db = Db::builder(&directory).durability(durability).open()?;
    for (title, of) in [("one counter", 1), ("1,000 counters", MANY)] {
        let merged = KeyspaceOptions::new().merge_operator(AddU64);
        let sides: [(Keyspace, Increment); 2] = [
            (db.keyspace_with(&format!("{title}, merge"), merged)?, merge),
            (db.keyspace(&format!("{title}, update"))?, update),
        ];
        let mut rates = [Vec::new(), Vec::new()];
        for turn in 1..=rounds {
            for ((counters, increment), rates) in sides.iter().zip(&mut rates) {
                rates.push(round(counters, of, (threads, each), *increment)?);
                let sum: shamba::Result<u64> =
                    counters.iter().try_fold(0, |sum, entry| Ok(sum + number(&entry?.1)));
                assert_eq!(sum?, threads * each * turn, "{title}");
            }
        }
        let [merges, updates] = rates.map(|mut rates| {
            rates.sort_by(f64::total_cmp);
            (rates[rates.len() / 2], rates[0], rates[rates.len() - 1])
        });
        println!("{title}, {threads} threads, {durability:?}");
        for (name, (median, slowest, fastest)) in [("merge", merges), ("update", updates)] {
            println!("  {name:6}  {median:>10.0} a second ({slowest:.0} to {fastest:.0})");
        }
        println!("  ratio   {:>10.2}", merges.0 / updates.0);
    }
    db.close()?;
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}
