//! The cost of a transaction next to that of a batch: 8 threads read four keys and write them
//! again, disjoint from those of the other threads.
//!
//! Both sides do the same gets and puts. The batch checks nothing, the transaction that what it has
//! read is unchanged. They run in turns; the program prints the median time of a commit with its
//! reads, per thread, and the ratio of the medians.
//!
//! ```text
//! cargo run --release -p shamba --example transaction_cost -- 20000 9
//! ```
//!
//! The arguments are the number of commits of each thread in a round, and the number of rounds.

use std::error::Error;
use std::time::Instant;

use shamba::Db;

const THREADS: u64 = 8;
const KEYS: u64 = 4;
/// Each thread writes this many keys again and again.
const KEYS_OF_THREAD: u64 = 10_000;

fn key(thread: u64, number: u64) -> [u8; 16] {
    let number = number % KEYS_OF_THREAD;
    let mixed = u128::from(thread << 32 | number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    mixed.to_be_bytes()
}

fn batch(db: &Db, thread: u64, from: u64) -> shamba::Result<()> {
    let mut batch = db.batch();
    for number in from..from + KEYS {
        db.get(key(thread, number))?;
        batch.put(key(thread, number), [7; 100]);
    }
    batch.commit()
}

fn transaction(db: &Db, thread: u64, from: u64) -> shamba::Result<()> {
    db.transact(|tx| {
        for number in from..from + KEYS {
            tx.get(key(thread, number))?;
            tx.put(key(thread, number), [7; 100])?;
        }
        Ok(())
    })
}

/// Nanoseconds of one commit with its reads, of `commits` by each thread.
fn round(
    db: &Db,
    commits: u64,
    commit: impl Fn(&Db, u64, u64) -> shamba::Result<()> + Sync,
) -> shamba::Result<u64> {
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let run = |thread| (0..commits).try_for_each(|turn| commit(db, thread, turn * KEYS));
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || run(thread))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    Ok(begin.elapsed().as_nanos() as u64 / (commits * THREADS))
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse());
    let commits: u64 = arguments.next().unwrap_or(Ok(200))?;
    let rounds: u64 = arguments.next().unwrap_or(Ok(3))?;
    let directory = std::env::temp_dir().join(format!("shamba-cost-{}", std::process::id()));
    let db = Db::open(&directory)?;
    round(&db, KEYS_OF_THREAD / KEYS, batch)?;
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        times[0].push(round(&db, commits, batch)?);
        times[1].push(round(&db, commits, transaction)?);
    }
    let [batches, transactions] = times.map(|mut times| {
        times.sort_unstable();
        (times[times.len() / 2], times[0], times[times.len() - 1])
    });
    println!("batch        {} ns ({} to {})", batches.0, batches.1, batches.2);
    println!("transaction  {} ns ({} to {})", transactions.0, transactions.1, transactions.2);
    println!("ratio        {:.2}", transactions.0 as f64 / batches.0 as f64);
    db.close()?;
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}
