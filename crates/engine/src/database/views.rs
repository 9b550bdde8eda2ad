//! Read-only handles: a snapshot of the whole database, and reads with options.

use super::*;

/// The state of the whole database at one moment. `Clone + Send + Sync`.
#[derive(Clone)]
pub struct Snapshot {
    pub(super) db: Db,
    pub(super) keyspace: Arc<KeyspaceCore>,
    pub(super) guard: Arc<SnapshotGuard>,
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").field("sequence", &self.sequence()).finish_non_exhaustive()
    }
}

impl Snapshot {
    /// The same snapshot in another keyspace. For a keyspace of another database every read returns
    /// `Invalid`.
    #[must_use]
    pub fn keyspace(&self, keyspace: &Keyspace) -> Self {
        let keyspace = match keyspace.is_of(&self.db) {
            true => Arc::clone(&keyspace.keyspace),
            false => KeyspaceCore::foreign(&keyspace.keyspace),
        };
        Self { keyspace, ..self.clone() }
    }

    pub(crate) fn db(&self) -> &Db {
        &self.db
    }

    /// The sequence number at which the snapshot reads.
    pub fn sequence(&self) -> u64 {
        self.guard.seq().0
    }

    /// The read methods, with options; as [`Db::with`].
    pub fn with(&self, options: &ReadOptions) -> Reader {
        let (db, keyspace) = (self.db.clone(), Arc::clone(&self.keyspace));
        Reader { db, keyspace, snapshot: Some(Arc::clone(&self.guard)), options: options.clone() }
    }

    fn to_reader(&self) -> Reader {
        self.with(&ReadOptions::DEFAULT)
    }

    fn read_at(&self) -> ReadAt<'_> {
        ReadAt { keyspace: &self.keyspace, snapshot: Some(&self.guard), ..self.db.read_at() }
    }

    read_methods!();
}

/// The read methods with options. Made by [`Db::with`], [`Keyspace::with`] and [`Snapshot::with`].
#[derive(Clone)]
pub struct Reader {
    pub(super) db: Db,
    pub(super) keyspace: Arc<KeyspaceCore>,
    pub(super) snapshot: Option<Arc<SnapshotGuard>>,
    pub(super) options: ReadOptions,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Reader {
    /// Fixes the state that it reads to that of now, unless it reads a snapshot.
    pub(super) fn freeze(&mut self) {
        let reads = &self.db.core().reads;
        self.snapshot.get_or_insert_with(|| reads.snapshot());
    }

    fn to_reader(&self) -> Self {
        self.clone()
    }

    pub(super) fn read_at(&self) -> ReadAt<'_> {
        let (keyspace, snapshot) = (&self.keyspace, self.snapshot.as_ref());
        ReadAt { keyspace, snapshot, options: &self.options, ..self.db.read_at() }
    }

    read_methods!();
}
