//! Merge operators: threads count visits with a built-in operator and keep the three best scores
//! with one of their own. No thread reads a value before it changes it.
//!
//! ```text
//! cargo run --release -p shamba --example counters
//! ```

use shamba::merge::{AddU64, AssociativeMerge, MergeResult};
use shamba::{Db, KeyspaceOptions};

const THREADS: u64 = 4;
const VISITS: u64 = 5_000;

/// Keeps the three largest numbers of lists of big-endian ones, whose bytes compare as they do.
struct TopThree;

impl AssociativeMerge for TopThree {
    fn name(&self) -> &str {
        "example.top-three.1"
    }

    fn check(&self, _key: &[u8], operand: &[u8]) -> MergeResult<()> {
        if operand.len() == 4 { Ok(()) } else { Err("a score has 4 bytes".into()) }
    }

    fn merge(&self, _key: &[u8], older: &[u8], newer: &[u8]) -> MergeResult<Vec<u8>> {
        let mut scores: Vec<&[u8]> = older.chunks(4).chain(newer.chunks(4)).collect();
        scores.sort_by(|one, other| other.cmp(one));
        scores.truncate(3);
        Ok(scores.concat())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::temp_dir().join(format!("shamba-counters-{}", std::process::id()));
    let db = Db::builder(&directory)
        .keyspace("visits", KeyspaceOptions::new().merge_operator(AddU64))
        .keyspace("scores", KeyspaceOptions::new().merge_operator(TopThree))
        .open()?;
    let (visits, scores) = (db.keyspace("visits")?, db.keyspace("scores")?);
    std::thread::scope(|scope| {
        let count = |thread: u64| {
            (0..VISITS).try_for_each(|number| {
                visits.merge("/home", 1u64.to_le_bytes())?;
                scores.merge("game", ((number * THREADS + thread) as u32).to_be_bytes())
            })
        };
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || count(thread))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    let total = u64::from_le_bytes((*visits.get("/home")?.ok_or("no visits")?).try_into()?);
    let best = scores.get("game")?.ok_or("no scores")?;
    let best: Vec<u32> = best.chunks(4).map(|score| score.try_into().map_or(0, u32::from_be_bytes)).collect();
    println!("{total} visits, best scores {best:?}");
    assert_eq!((total, best), (THREADS * VISITS, vec![19_999, 19_998, 19_997]));
    db.close()?;
    Ok(std::fs::remove_dir_all(&directory)?)
}
