//! LMDB, through heed: a B-tree in a memory map, copied on write.
//!
//! Its only cache is the system's: no budget limits it, and direct I/O is impossible. A commit
//! without sync hands the pages to the system, so it survives the end of the process as the others'
//! logs do.

use std::ops::Bound;

use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, RoTxn, WithTls};

use crate::peer::{Engine, Peer, Read, Result, Setup, Stated, stated};

/// The largest the database may grow: address space, not memory.
const MAP_BYTES: usize = 64 << 30;
/// Puts of a fill in one transaction.
const FILL: usize = 1000;

type Entries = Database<'static, Bytes, Bytes>;

/// An open database.
pub struct Lmdb {
    env: Env<WithTls>,
    entries: Entries,
}

/// A read transaction.
pub struct View<'a> {
    transaction: RoTxn<'a, WithTls>,
    entries: Entries,
}

fn failed(call: &'static str) -> impl Fn(heed::Error) -> String {
    move |error| Setup::failure(Engine::Lmdb, call, error)
}

impl Read for View<'_> {
    #[inline]
    fn get<R>(&self, key: &[u8], see: impl FnOnce(Option<&[u8]>) -> R) -> Result<R> {
        self.entries.get(&self.transaction, key).map(see).map_err(failed("get"))
    }

    fn scan(&self, from: &[u8], entries: u64, mut see: impl FnMut(&[u8], &[u8])) -> Result<()> {
        // LMDB has no empty keys, and refuses to look for one.
        let first = if from.is_empty() { Bound::Unbounded } else { Bound::Included(from) };
        let bounds = (first, Bound::Unbounded);
        let range = self.entries.range(&self.transaction, &bounds).map_err(failed("range"))?;
        for entry in range.take(entries as usize) {
            let (key, value) = entry.map_err(failed("scan"))?;
            see(key, value);
        }
        Ok(())
    }
}

impl Read for Lmdb {
    #[inline]
    fn get<R>(&self, key: &[u8], see: impl FnOnce(Option<&[u8]>) -> R) -> Result<R> {
        self.reader()?.get(key, see)
    }

    fn scan(&self, from: &[u8], entries: u64, see: impl FnMut(&[u8], &[u8])) -> Result<()> {
        self.reader()?.scan(from, entries, see)
    }
}

impl Peer for Lmdb {
    type Reader<'a> = View<'a>;

    const FILL_TRANSACTION: usize = FILL;

    // Opening a memory map is unsafe if another process changes the file meanwhile; flags that
    // reduce durability are unsafe as well.
    #[allow(unsafe_code)]
    fn open(setup: &Setup) -> Result<Self> {
        let mut options = EnvOpenOptions::new();
        options.map_size(MAP_BYTES);
        // SAFETY: NO_SYNC may lose or damage the database when the machine stops, which ends a
        // measurement anyway.
        unsafe { options.flags(EnvFlags::NO_SYNC) };
        // SAFETY: the directory is this process's own, and nobody else touches the file while it is
        // open.
        let env = unsafe { options.open(&setup.dir) }.map_err(failed("open"))?;
        let transaction = env.write_txn().map_err(failed("write_txn"))?;
        let entries = env
            .create_databases_and_commit(transaction, |opener, transaction| {
                opener.create_database::<Bytes, Bytes>(transaction, None).map(CommitOrAbort::<_, ()>::Commit)
            })
            .map_err(failed("create_database"))?
            .unwrap_commit();
        Ok(Self { env, entries })
    }

    fn version(&self) -> String {
        "0.9.70 (heed 0.23.1)".to_owned()
    }

    fn options(&self) -> Vec<Stated> {
        vec![
            stated(
                "limits memory of",
                "nothing: the memory map is the system's page cache, and counts as resident",
            ),
            stated(
                "flags",
                "NO_SYNC; syncs are asked for, and wait once where a commit of its own would wait twice (data, then meta page)",
            ),
            stated("map_size", MAP_BYTES),
            stated("page size", "4096 (fixed)"),
            stated(
                "transactions",
                format!("one a write, {FILL} puts each in fills; reads of a read-only workload share one"),
            ),
            stated("longest key", "raised at build time (longer-keys)"),
            stated("compression", "none"),
            stated("checksums", "none"),
            stated(
                "durability",
                "pages handed to the system at every commit; syncput: mdb_env_sync after it",
            ),
        ]
    }

    fn reader(&self) -> Result<View<'_>> {
        let transaction = self.env.read_txn().map_err(failed("read_txn"))?;
        Ok(View { transaction, entries: self.entries })
    }

    #[inline]
    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<()> {
        self.fill(std::iter::once((key, value)))?;
        if sync {
            self.env.force_sync().map_err(failed("sync"))?;
        }
        Ok(())
    }

    fn fill<'e>(&self, entries: impl std::iter::Iterator<Item = (&'e [u8], &'e [u8])>) -> Result<()> {
        let mut transaction = self.env.write_txn().map_err(failed("write_txn"))?;
        for (key, value) in entries {
            self.entries.put(&mut transaction, key, value).map_err(failed("put"))?;
        }
        transaction.commit().map_err(failed("commit"))
    }

    fn close(self) -> Result<()> {
        self.env.force_sync().map_err(failed("sync"))
    }
}
