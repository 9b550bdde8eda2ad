//! Batches and snapshots: move money between accounts, and read a consistent sum meanwhile.
//!
//! ```text
//! cargo run -p shamba --example batch_and_snapshot
//! ```

use std::error::Error;

use shamba::{Db, Snapshot};

const ACCOUNTS: u32 = 10;
const EACH: u64 = 100;

fn key(account: u32) -> String {
    format!("account:{account:03}")
}

fn amount(value: &[u8]) -> Result<u64, Box<dyn Error>> {
    Ok(u64::from_be_bytes(value.try_into()?))
}

/// The sum of all accounts as of one moment.
fn total(snapshot: &Snapshot) -> Result<u64, Box<dyn Error>> {
    let mut sum = 0;
    for entry in snapshot.prefix("account:") {
        sum += amount(&entry?.1)?;
    }
    Ok(sum)
}

/// Moves `amount_moved` from one account to another: both writes become visible together, and
/// survive a crash together.
fn transfer(db: &Db, from: u32, to: u32, amount_moved: u64) -> Result<(), Box<dyn Error>> {
    let (from, to) = (key(from), key(to));
    let balance = |key: &str| -> Result<u64, Box<dyn Error>> {
        amount(&db.get(key)?.ok_or("there is no such account")?)
    };
    let (less, more) = (balance(&from)?.checked_sub(amount_moved), balance(&to)? + amount_moved);
    let less = less.ok_or("the account does not have that much")?;
    let mut batch = db.batch();
    batch.put(&from, less.to_be_bytes()).put(&to, more.to_be_bytes());
    batch.commit()?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let db = Db::open(dir.path())?;
    let mut batch = db.batch();
    for account in 0..ACCOUNTS {
        batch.put(key(account), EACH.to_be_bytes());
    }
    batch.commit()?;

    // Readers take snapshots while a writer moves money; each sees a moment between two batches.
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            for _ in 0..200 {
                let sum = total(&db.snapshot()).map_err(|error| error.to_string())?;
                assert_eq!(sum, u64::from(ACCOUNTS) * EACH);
            }
            Ok::<(), String>(())
        });
        for step in 0..1_000 {
            let from = step % ACCOUNTS;
            transfer(&db, from, (from + 1 + step % 3) % ACCOUNTS, 1)?;
        }
        reader.join().map_err(|_| "the reader panicked")??;
        Ok::<(), Box<dyn Error>>(())
    })?;

    let before = db.snapshot();
    transfer(&db, 0, 1, 1)?;
    assert_ne!(before.get(key(0))?, db.get(key(0))?);
    println!("every snapshot had a total of {}", u64::from(ACCOUNTS) * EACH);
    Ok(())
}
