//! A transfer between accounts by several threads at once, as a serializable transaction: the sum
//! of all accounts never changes, and no account goes below zero.
//!
//! ```text
//! cargo run --release -p shamba --example transfer
//! ```

use std::error::Error;

use shamba::{Db, Slice};

const ACCOUNTS: u32 = 10;
const EACH: i64 = 100;

fn amount(value: Option<Slice>) -> i64 {
    value.and_then(|bytes| (*bytes).try_into().ok()).map_or(0, i64::from_le_bytes)
}

/// Moves `moved` if the account has that much. Returns whether it has.
fn transfer(db: &Db, from: u32, to: u32, moved: i64) -> shamba::Result<bool> {
    let (from, to) = (from.to_be_bytes(), to.to_be_bytes());
    // Runs again if another thread changes one of the two accounts before the commit.
    db.transact(|tx| {
        let has = amount(tx.get(from)?);
        if has < moved || from == to {
            return Ok(false);
        }
        tx.put(from, (has - moved).to_le_bytes())?;
        let other = amount(tx.get(to)?);
        tx.put(to, (other + moved).to_le_bytes())?;
        Ok(true)
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::temp_dir().join(format!("shamba-transfer-{}", std::process::id()));
    let db = Db::open(&directory)?;
    for account in 0..ACCOUNTS {
        db.put(account.to_be_bytes(), EACH.to_le_bytes())?;
    }
    std::thread::scope(|scope| {
        let threads = (1..=4_u32).map(|step| {
            let db = &db;
            scope.spawn(move || {
                (0..1_000).try_for_each(|turn: u32| {
                    let (from, to) = (turn % ACCOUNTS, (turn + step) % ACCOUNTS);
                    transfer(db, from, to, i64::from(turn % 17)).map(drop)
                })
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    let sum = db.iter().try_fold(0, |sum, entry| Ok::<_, shamba::Error>(sum + amount(Some(entry?.1))))?;
    let stats = db.stats();
    println!("{} transactions, {} of them again: sum {sum}", stats.transactions, stats.transaction_retries);
    assert_eq!(sum, i64::from(ACCOUNTS) * EACH);
    db.close()?;
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}
