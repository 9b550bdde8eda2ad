//! A replica: a second database that follows the changes of the first.
//!
//! Each batch and its position go into the replica in one atomic batch. So the replica continues
//! where it stopped, whenever either of the two ends.
//!
//! ```text
//! cargo run --release -p shamba --example replica
//! ```

use std::error::Error;
use std::time::Duration;

use shamba::{Change, ChangeOp, Db, Durability};

/// The key of the replica's position, in a keyspace of its own.
const POSITION: &str = "position";

/// Follows `source` until nothing has come for a while.
fn follow(source: &Db, replica: &Db) -> Result<u64, Box<dyn Error>> {
    let progress = replica.keyspace("progress")?;
    let position = match progress.get(POSITION)? {
        Some(position) => std::str::from_utf8(&position)?.parse()?,
        None => return Err("the replica has no position".into()),
    };
    let (mut changes, mut count) = (source.changes_since(position)?, 0);
    while let Some(change) = changes.next_timeout(Duration::from_millis(50))? {
        let mut batch = replica.batch();
        if let Change::Batch(change) = &change {
            for (keyspace, op) in change.operations() {
                let keyspace = replica.keyspace(keyspace)?;
                match op {
                    ChangeOp::Put { key, value, .. } => batch.put_in(&keyspace, key, value),
                    ChangeOp::Delete { key, .. } => batch.delete_in(&keyspace, key),
                    other => return Err(format!("{other:?} is not written here").into()),
                };
            }
        }
        batch.put_in(&progress, POSITION, change.position().to_string());
        batch.commit()?;
        count += 1;
    }
    Ok(count)
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::temp_dir().join(format!("shamba-replica-{}", std::process::id()));
    let source = Db::builder(directory.join("source")).durability(Durability::Sync);
    let source = source.keep_log(64 << 20, Duration::from_secs(24 * 3600)).open()?;
    let replica = Db::open(directory.join("replica"))?;
    // Both are empty; the replica of a database with content begins with a copy of a snapshot.
    replica.keyspace("progress")?.put(POSITION, source.change_position().to_string())?;
    for round in 0..3 {
        source.put(format!("user:{round}"), "Asha")?;
        source.keyspace("emails")?.put("asha@example.org", format!("user:{round}"))?;
        source.delete("user:0")?;
        println!("round {round}: {} changes", follow(&source, &replica)?);
    }
    let pairs = |db: &Db| db.iter().collect::<shamba::Result<Vec<_>>>();
    assert_eq!(pairs(&replica)?, pairs(&source)?);
    std::fs::remove_dir_all(directory)?;
    Ok(())
}
