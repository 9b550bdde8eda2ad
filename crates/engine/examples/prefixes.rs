//! Prefix extractors: a scan of one user's keys leaves out the runs that have none of them.
//!
//! ```text
//! cargo run -p shamba --example prefixes
//! ```

use shamba::{Db, KeyspaceOptions, Prefix, Result};

const RUNS: u32 = 8;
const USERS_EACH: u32 = 500;

/// Sessions of users: each flush has the keys of other users, scattered over all of them.
fn fill(db: &Db) -> Result<()> {
    for run in 0..RUNS {
        for user in 0..USERS_EACH {
            let user = user * RUNS + run;
            for session in 0..3 {
                db.put(format!("user{user:05}:session{session}"), "since monday")?;
            }
        }
        db.flush()?;
    }
    Ok(())
}

/// Scans the sessions of some users, who may have none. Returns the entries found, and the runs
/// left out.
fn scan(db: &Db, users: impl Iterator<Item = u32>) -> Result<(usize, u64)> {
    let before = db.stats();
    let mut found = 0;
    for user in users {
        for entry in db.prefix(format!("user{user:05}:")) {
            entry?;
            found += 1;
        }
    }
    Ok((found, db.stats().since(&before).prefix_runs_skipped))
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::temp_dir().join(format!("shamba-prefixes-{}", std::process::id()));
    let by_user = KeyspaceOptions::new().prefix(Prefix::Delimited(b':'));
    // Runs are left as they are flushed, to show something.
    let builder = Db::builder(&directory).experimental(|options| options.auto_compaction(false));
    let db = builder.keyspace("default", by_user).open()?;
    fill(&db)?;
    let (found, skipped) = scan(&db, 0..100)?;
    println!("100 users: {found} sessions, {skipped} of {} runs left out", 100 * RUNS);
    let (none, skipped) = scan(&db, 90_000..90_100)?;
    println!("100 users who are not there: {none} sessions, {skipped} runs left out");
    println!("{}", db.explain_prefix("user00042:")?);
    assert_eq!((found, none), (300, 0));
    db.close()?;
    Ok(std::fs::remove_dir_all(&directory)?)
}
