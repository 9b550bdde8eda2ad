//! redb: a B-tree in one file, copied on write.
//!
//! Every read and write is a transaction. A commit without sync lives in the process only until the
//! next one with: redb has nothing between, so its writes promise *less* than the log of the
//! others, until [`COMMITS_BETWEEN_SYNCS`] bring a durable one.

use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};

use redb::{Builder, Database, Durability, ReadOnlyTable, ReadableDatabase, TableDefinition};

use crate::peer::{Engine, Peer, Read, Result, Setup, Stated, stated};

const ENTRIES: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("entries");
/// Puts of a fill in one transaction.
const FILL: usize = 1000;
/// Commits without sync before one with: pages of the former are freed only by the latter.
const COMMITS_BETWEEN_SYNCS: u64 = 1000;

/// An open database.
pub struct Redb {
    db: Database,
    commits: AtomicU64,
    stated: Vec<Stated>,
}

/// The table, in one read transaction.
pub struct View(ReadOnlyTable<&'static [u8], &'static [u8]>);

fn failed<E: std::fmt::Display>(call: &'static str) -> impl Fn(E) -> String {
    move |error| Setup::failure(Engine::Redb, call, error)
}

impl Read for View {
    #[inline]
    fn get<R>(&self, key: &[u8], see: impl FnOnce(Option<&[u8]>) -> R) -> Result<R> {
        let value = self.0.get(key).map_err(failed("get"))?;
        Ok(see(value.as_ref().map(redb::AccessGuard::value)))
    }

    fn scan(&self, from: &[u8], entries: u64, mut see: impl FnMut(&[u8], &[u8])) -> Result<()> {
        let bounds = (Bound::Included(from), Bound::Unbounded);
        let range = self.0.range::<&[u8]>(bounds).map_err(failed("range"))?;
        for entry in range.take(entries as usize) {
            let (key, value) = entry.map_err(failed("scan"))?;
            see(key.value(), value.value());
        }
        Ok(())
    }
}

impl Read for Redb {
    #[inline]
    fn get<R>(&self, key: &[u8], see: impl FnOnce(Option<&[u8]>) -> R) -> Result<R> {
        self.reader()?.get(key, see)
    }

    fn scan(&self, from: &[u8], entries: u64, see: impl FnMut(&[u8], &[u8])) -> Result<()> {
        self.reader()?.scan(from, entries, see)
    }
}

impl Redb {
    fn commit<'e>(&self, entries: impl Iterator<Item = (&'e [u8], &'e [u8])>, sync: bool) -> Result<()> {
        let mut transaction = self.db.begin_write().map_err(failed("begin_write"))?;
        let is_due =
            self.commits.fetch_add(1, Ordering::Relaxed) % COMMITS_BETWEEN_SYNCS == COMMITS_BETWEEN_SYNCS - 1;
        let durability = if sync || is_due { Durability::Immediate } else { Durability::None };
        transaction.set_durability(durability).map_err(failed("set_durability"))?;
        {
            let mut table = transaction.open_table(ENTRIES).map_err(failed("open_table"))?;
            for (key, value) in entries {
                table.insert(key, value).map_err(failed("insert"))?;
            }
        }
        transaction.commit().map_err(failed("commit"))
    }
}

impl Peer for Redb {
    type Reader<'a> = View;

    const FILL_TRANSACTION: usize = FILL;

    fn open(setup: &Setup) -> Result<Self> {
        let db = Builder::new()
            .set_cache_size(setup.budget_bytes as usize)
            .create(setup.dir.join("redb"))
            .map_err(failed("create"))?;
        let stated = vec![
            stated("limits memory of", "page cache of its own, read and written pages"),
            stated("cache_size", setup.budget_bytes),
            stated("page size", "4096 (fixed)"),
            stated(
                "transactions",
                format!("one a write, {FILL} puts each in fills; reads of a read-only workload share one"),
            ),
            stated("compression", "none"),
            stated(
                "durability",
                format!(
                    "Durability::None, Immediate (synced) every {COMMITS_BETWEEN_SYNCS} commits: between them less than a log; syncput: Immediate"
                ),
            ),
        ];
        let redb = Self { db, commits: AtomicU64::new(0), stated };
        redb.commit(std::iter::empty(), true)?;
        Ok(redb)
    }

    fn version(&self) -> String {
        "4.5.0".to_owned()
    }

    fn options(&self) -> Vec<Stated> {
        self.stated.clone()
    }

    fn reader(&self) -> Result<View> {
        let transaction = self.db.begin_read().map_err(failed("begin_read"))?;
        transaction.open_table(ENTRIES).map(View).map_err(failed("open_table"))
    }

    #[inline]
    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<()> {
        self.commit(std::iter::once((key, value)), sync)
    }

    fn fill<'e>(&self, entries: impl Iterator<Item = (&'e [u8], &'e [u8])>) -> Result<()> {
        self.commit(entries, false)
    }

    fn close(self) -> Result<()> {
        self.commit(std::iter::empty(), true)
    }
}
