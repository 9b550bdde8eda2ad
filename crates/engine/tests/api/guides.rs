//! The examples of the README and of the guides in `docs/guide`: each stands here word for word,
//! where it is compiled and, unless it would wait for ever, run.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use shamba::{Batch, Change, ChangeOp, ChangePosition, Db, Iter, Result};

/// A consumer of changes, as those who read the guides have one.
#[derive(Default)]
struct Index(HashMap<(String, Vec<u8>), Option<Vec<u8>>>);

impl Index {
    fn apply(&mut self, keyspace: &str, op: ChangeOp<'_>) {
        if let ChangeOp::Put { key, value, .. } = op {
            self.0.insert((keyspace.to_owned(), key.to_vec()), Some(value.to_vec()));
        }
    }

    fn commit(&mut self, _position: ChangePosition) {}

    fn note(&mut self, _change: Change) {}

    fn load(&mut self, entries: Iter) -> Result<()> {
        for entry in entries {
            let (key, value) = entry?;
            self.0.insert(("default".into(), key.to_vec()), Some(value.to_vec()));
        }
        Ok(())
    }
}

fn amount(stored: Option<impl AsRef<[u8]>>) -> u64 {
    stored.map_or(0, |bytes| u64::from_le_bytes(bytes.as_ref().try_into().expect("eight bytes")))
}

#[rustfmt::skip]
mod blocks {
    use super::*;

    pub fn backup(db: &Db) -> Result<()> {
        db.checkpoint("/var/lib/service/copies/2026-11-29")?;
        Ok(())
    }

    pub fn changes(path: &Path, position: ChangePosition, index: &mut Index) -> Result<()> {
        use std::time::Duration;

        use shamba::{Change, Db};

        let db = Db::builder(path).keep_log(1 << 30, Duration::from_secs(24 * 3600)).record().open()?;
        for change in db.changes_since(position)? {                 // waits for the next one
            match change? {
                Change::Batch(batch) => {
                    for (keyspace, op) in batch.operations() { index.apply(keyspace, op); }
                    index.commit(batch.position());                  // continue here after a restart
                }
                other => index.note(other),
            }
        }
        Ok(())
    }

    pub fn changes_after_a_copy(db: &Db, copy: &mut Index) -> Result<shamba::Changes> {
        let snapshot = db.snapshot();
        copy.load(snapshot.iter())?;                                 // and the other keyspaces
        let changes = db.changes_since(snapshot.change_position())?;
        Ok(changes)
    }

    pub fn compaction_filters(path: &Path) -> Result<Db> {
        use shamba::filter::{CompactionFilter, FilterEntry, Verdict};
        use shamba::{Db, KeyspaceOptions};

        struct Temporary;

        impl CompactionFilter for Temporary {
            fn name(&self) -> &str { "example.temporary" }

            fn filter(&self, entry: &FilterEntry<'_>) -> Verdict {
                if entry.key().starts_with(b"tmp:") { Verdict::Remove } else { Verdict::Keep }
            }
        }

        let options = KeyspaceOptions::new().compaction_filter(Temporary);
        let db = Db::builder(path).keyspace("default", options).open()?;
        Ok(db)
    }

    pub fn expiry(path: &Path) -> Result<Db> {
        use std::time::Duration;
        use shamba::{Db, KeyspaceOptions, WriteOptions};

        let day = KeyspaceOptions::new().time_to_live(Duration::from_secs(86_400));
        let db = Db::builder(path).keyspace("cache", day).open()?;
        let cache = db.keyspace("cache")?;
        cache.put("page:/home", "<html>")?;                                       // lives for a day
        let minute = WriteOptions::new().time_to_live(Duration::from_secs(60));
        cache.put_with("session:7", "asha", minute)?;                             // for a minute
        db.put_with("lock:report", "asha", minute)?;                              // in any keyspace

        if !cache.set_time_to_live("session:7", Duration::from_secs(60))? {
            println!("the session has ended");
        }
        Ok(db)
    }

    pub fn fifo(path: &Path) -> Result<Db> {
        use shamba::{Db, Fifo, KeyspaceOptions};
        use std::time::Duration;

        let limits = Fifo::bytes(1 << 30).with_age(Duration::from_secs(86_400));
        let db = Db::builder(path).keyspace("events", KeyspaceOptions::new().fifo(limits)).open()?;
        db.keyspace("events")?.put("2026-11-26T10:00:00 000017", "signed in")?;
        Ok(db)
    }

    pub fn keyspaces(path: &Path) -> Result<Db> {
        use shamba::{Compression, Db, KeyspaceOptions, MergePolicy};

        let db = Db::builder(path)
            .keyspace("users", KeyspaceOptions::new().bits_per_key(14.0))
            .open()?;
        let events = KeyspaceOptions::new().compression(Compression::Zstd).merge_policy(MergePolicy::Tiering);
        let events = db.keyspace_with("events", events)?;            // created, or given these options
        events.put("2026-11-26T10:00:00 17", "signed in")?;
        Ok(db)
    }

    pub fn merge(path: &Path) -> Result<Db> {
        use shamba::{Db, KeyspaceOptions, merge::AddU64};

        let counting = KeyspaceOptions::new().merge_operator(AddU64);
        let db = Db::builder(path).keyspace("visits", counting).open()?;
        let visits = db.keyspace("visits")?;
        visits.merge("/home", 1u64.to_le_bytes())?;                  // by any number of threads
        visits.merge("/home", 1u64.to_le_bytes())?;
        assert_eq!(visits.get("/home")?.as_deref(), Some(&2u64.to_le_bytes()[..]));
        Ok(db)
    }

    pub mod tags {
        use std::collections::BTreeSet;

        use shamba::merge::{AssociativeMerge, MergeResult};

        /// A set of tags, sorted and separated by newlines.
        struct Tags;

        impl AssociativeMerge for Tags {
            fn name(&self) -> &str { "example.tags.1" }

            fn merge(&self, _key: &[u8], older: &[u8], newer: &[u8]) -> MergeResult<Vec<u8>> {
                let tags: BTreeSet<&[u8]> = older.split(|b| *b == b'\n').chain(newer.split(|b| *b == b'\n')).collect();
                Ok(tags.into_iter().collect::<Vec<_>>().join(&b'\n'))
            }
        }

        pub fn options() -> shamba::KeyspaceOptions {
            shamba::KeyspaceOptions::new().merge_operator(Tags)
        }
    }

    pub mod mean {
        use shamba::merge::{MergeOperator, MergeResult};

        /// The mean of samples. An operand is a sample, 8 bytes, or a count and a sum of several,
        /// 16 bytes; so is a value.
        struct Mean;

        fn count_and_sum(bytes: &[u8]) -> MergeResult<(u64, i64)> {
            match bytes.len() {
                8 => Ok((1, i64::from_le_bytes(bytes.try_into()?))),
                16 => Ok((u64::from_le_bytes(bytes[..8].try_into()?), i64::from_le_bytes(bytes[8..].try_into()?))),
                other => Err(format!("a sample of {other} bytes").into()),
            }
        }

        impl MergeOperator for Mean {
            fn name(&self) -> &str { "example.mean.1" }

            fn check(&self, _key: &[u8], operand: &[u8]) -> MergeResult<()> {
                count_and_sum(operand).map(drop)
            }

            fn merge(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> MergeResult<Vec<u8>> {
                let (mut count, mut sum) = (0u64, 0i64);
                for part in base.iter().chain(operands) {
                    let (more, added) = count_and_sum(part)?;
                    (count, sum) = (count.wrapping_add(more), sum.wrapping_add(added));
                }
                Ok([count.to_le_bytes(), sum.to_le_bytes()].concat())
            }

            fn combine(&self, key: &[u8], operands: &[&[u8]]) -> MergeResult<Option<Vec<u8>>> {
                self.merge(key, None, operands).map(Some)
            }
        }

        pub fn options() -> shamba::KeyspaceOptions {
            shamba::KeyspaceOptions::new().merge_operator(Mean)
        }
    }

    pub fn operating(db: &Db) {
        use std::time::Duration;

        let before = db.stats();
        std::thread::sleep(Duration::from_secs(60));
        let minute = db.stats().since(&before);
        println!("{} lookups, {} data blocks read", minute.lookups, minute.reads.data.count);
    }

    pub fn prefixes(path: &Path) -> Result<Db> {
        use shamba::{Db, KeyspaceOptions, Prefix};

        // Keys such as `user42:mail` and `user42:name`: the prefix ends with the first colon.
        let by_user = KeyspaceOptions::new().prefix(Prefix::Delimited(b':'));
        let db = Db::builder(path).keyspace("default", by_user).open()?;
        db.put("user42:mail", "asha@example.com")?;
        for entry in db.prefix("user42:") {                          // asks the filters for `user42:`
            let (key, value) = entry?;
            println!("{} = {}", key.escape_ascii(), value.escape_ascii());
        }
        Ok(db)
    }

    pub fn transactions(db: &Db) -> Result<bool> {
        let is_paid = db.transact(|tx| {
            let asha = amount(tx.get("asha")?);
            if asha < 7 {
                return Ok(false);
            }
            tx.put("asha", (asha - 7).to_le_bytes())?;
            let baraka = amount(tx.get("baraka")?);
            tx.put("baraka", (baraka + 7).to_le_bytes())?;
            Ok(true)
        })?;
        Ok(is_paid)
    }

    pub mod readme {
        use shamba::{Compression, Db, Durability};

        fn main() -> shamba::Result<()> {
            let db = Db::builder("users.db")
                .memory_budget(256 << 20) // Bytes for caches, filters, indexes and write buffers together.
                .compression(Compression::Lz4)
                .durability(Durability::NoSync)
                .open()?;
            db.put("user:1", "Asha")?;
            let mut batch = db.batch(); // Atomic, also across keyspaces.
            batch.put("user:2", "Baraka").delete("user:1");
            batch.commit_with(Durability::Sync)?; // On stable storage when it returns, with every earlier write.
            for entry in db.prefix("user:") {
                let (key, value) = entry?;
                println!("{} = {}", key.escape_ascii(), value.escape_ascii());
            }
            println!("{}", db.explain("user:2")?);
            db.close()
        }

        pub fn run() -> shamba::Result<()> {
            main()
        }
    }

    pub fn tickets(mut batch: Batch, entries: String, send_to_followers: impl Fn(&str)) -> Result<()> {
        use shamba::Durability;
        let ticket = batch.commit_ticket_with(Durability::NoSync)?;   // visible; in the log, not yet on stable storage
        send_to_followers(&entries);
        ticket.wait()?;                                               // syncs, unless another call has done that
        Ok(())
    }

    pub fn value_files(path: &Path) -> Result<Db> {
        use shamba::{Db, KeyspaceOptions};

        let documents = KeyspaceOptions::new().value_threshold(4_096);
        let db = Db::builder(path).keyspace("documents", documents).open()?;
        let documents = db.keyspace("documents")?;
        documents.put("report.pdf", vec![0; 100_000])?;
        Ok(db)
    }
}

/// The lines of a text, without the space around them, without empty ones.
fn lines(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect()
}

/// The pages are outside of the package, so they are missing where the package alone was unpacked.
#[test]
fn each_block_of_the_guides_is_here() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let Ok(guides) = fs::read_dir(root.join("docs/guide")) else { return };
    let mut pages: Vec<_> = guides.map(|guide| guide.expect("an entry").path()).collect();
    pages.push(root.join("README.md"));
    let here = lines(include_str!("guides.rs"));
    let mut blocks = 0;
    for page in pages {
        let text = fs::read_to_string(&page).expect("a readable page");
        for block in text.split("```rust").skip(1) {
            let block = lines(block.split("```").next().expect("split gives one part"));
            let block = block.strip_prefix(&[",no_run"]).unwrap_or(&block);
            let is_here = here.windows(block.len()).any(|window| window == block);
            assert!(is_here, "{}: no test has this block:\n{}", page.display(), block.join("\n"));
            blocks += 1;
        }
    }
    assert!(blocks >= 17, "{blocks} blocks found");
}

#[test]
fn the_examples_do_what_their_guides_say() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| dir.path().join(name);
    let db = blocks::compaction_filters(&at("filters")).expect("open");
    db.put("tmp:1", "x").expect("put");
    db.put("user:1", "x").expect("put");
    db.compact().expect("compact");
    assert_eq!((db.get("tmp:1").expect("get"), db.get("user:1").expect("get").is_some()), (None, true));

    let db = blocks::expiry(&at("expiry")).expect("open");
    let cache = db.keyspace("cache").expect("created");
    let left = |key| cache.time_to_live_of(key).expect("read").expect("a value");
    assert!(left("session:7").as_secs() <= 60 && left("page:/home").as_secs() > 60);
    blocks::fifo(&at("fifo")).expect("open");
    #[cfg(feature = "zstd")]
    blocks::keyspaces(&at("keyspaces")).expect("open");
    blocks::merge(&at("merge")).expect("open");
    blocks::prefixes(&at("prefixes")).expect("open");
    blocks::value_files(&at("values")).expect("open");
}

#[test]
fn the_operators_of_the_guide_combine() {
    let dir = tempfile::tempdir().expect("a folder");
    let db = Db::open(dir.path().join("db")).expect("open");
    let tags = db.keyspace_with("tags", blocks::tags::options()).expect("create");
    for tag in ["red", "blue", "red"] {
        tags.merge("car", tag).expect("merge");
    }
    assert_eq!(tags.get("car").expect("get").as_deref(), Some(&b"blue\nred"[..]));
    let mean = db.keyspace_with("mean", blocks::mean::options()).expect("create");
    for sample in [4i64, 8] {
        mean.merge("load", sample.to_le_bytes()).expect("merge");
    }
    let expected = [2u64.to_le_bytes(), 12u64.to_le_bytes()].concat();
    assert_eq!(mean.get("load").expect("get").as_deref(), Some(&expected[..]));
    assert!(mean.merge("load", "three").is_err(), "no sample");
}

#[test]
fn a_payment_moves_an_amount_and_a_ticket_waits() {
    let dir = tempfile::tempdir().expect("a folder");
    let db = Db::open(dir.path().join("db")).expect("open");
    assert!(!blocks::transactions(&db).expect("commit"), "she has nothing");
    db.put("asha", 10u64.to_le_bytes()).expect("put");
    assert!(blocks::transactions(&db).expect("commit"));
    let amounts = ["asha", "baraka"].map(|name| amount(db.get(name).expect("get")));
    assert_eq!(amounts, [3, 7]);
    let mut batch = db.batch();
    batch.put("a", "1");
    blocks::tickets(batch, "a".to_owned(), |entries| assert_eq!(entries, "a")).expect("commit");
}

#[test]
fn changes_follow_a_copy() {
    let dir = tempfile::tempdir().expect("a folder");
    let db = Db::open(dir.path().join("db")).expect("open");
    db.put("a", "1").expect("put");
    let mut copy = Index::default();
    let mut changes = blocks::changes_after_a_copy(&db, &mut copy).expect("copy");
    assert_eq!(copy.0.len(), 1);
    db.put("b", "2").expect("put");
    db.sync().expect("sync");
    let change = changes.try_next().expect("a change").expect("no error");
    let Change::Batch(batch) = change else { panic!("{change:?}") };
    for (keyspace, op) in batch.operations() {
        copy.apply(keyspace, op);
    }
    assert_eq!(copy.0.len(), 2);
}

/// Those that wait for ever or for a minute, or write to a folder of the system, are compiled only.
#[test]
fn the_other_examples_compile() {
    let _: fn(&Db) -> Result<()> = blocks::backup;
    let _: fn() -> Result<()> = blocks::readme::run;
    let _: fn(&Path, ChangePosition, &mut Index) -> Result<()> = blocks::changes;
    let _: fn(&Path) -> Result<Db> = blocks::keyspaces;
    let _: fn(&Db) = blocks::operating;
}
