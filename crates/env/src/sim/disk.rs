//! The disk under a [`super::SimFs`]: the durable state, and the calls that are not durable yet.
//!
//! A [`Disk`] is the state after some number of recorded calls ([`Disk::position`]). Each [`Op`]
//! either adds to the pending list (a write, a truncation, a change of names), in the order of the
//! calls, or makes pending entries durable (a sync). Contents and directories are shared buffers,
//! so cloning a disk costs a pointer for each.
//!
//! Each write keeps its offset. If a write is lost and a later one of the same file survives, the
//! file has a hole of zeros, as with unordered write-back.
//!
//! Not here: the choice of the pending entries that survive a crash ([`super::CrashPolicy`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::FsyncFailure;
use crate::tree::{Content, DirId, FileCell, FileId, NameChange, Node, NodeId, ROOT, Tree};

/// One recorded call.
#[derive(Clone, Debug)]
pub(super) enum Op {
    /// A write or a truncation of a file.
    Data(FileId, Write),
    /// Names added and removed by one call.
    Names(Vec<NameChange>),
    /// A sync of a file, and the kind of its failure if it failed.
    SyncFile(FileId, Option<FsyncFailure>),
    /// The same for a sync of a directory.
    SyncDir(DirId, Option<FsyncFailure>),
    /// All pending calls become durable.
    WriteBack,
}

/// A change of one file's content.
#[derive(Clone, Debug)]
pub(super) enum Write {
    /// Writes these bytes from this offset on.
    Bytes { offset: u64, bytes: Arc<[u8]> },
    /// Sets the length.
    Length(u64),
}

/// A call whose effect may or may not survive a crash.
#[derive(Clone, Debug)]
pub(super) enum Pending {
    Data(FileId, Write),
    Names {
        /// The changes not yet durable: a sync of one directory leaves the changes in the other
        /// pending, after a rename across two.
        changes: Vec<NameChange>,
        /// A file was synced since: a journal written in order would have made this durable with
        /// it.
        journaled: bool,
    },
}

type Directory = BTreeMap<Arc<str>, NodeId>;

/// Durable state and pending calls.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    /// Number of recorded calls in this state.
    pub(super) position: usize,
    /// Pending calls, in order.
    pub(super) pending: Vec<Pending>,
    files: BTreeMap<FileId, Arc<Content>>,
    dirs: BTreeMap<DirId, Arc<Directory>>,
}

impl Disk {
    /// An empty root.
    pub(super) fn new() -> Self {
        Self {
            position: 0,
            pending: Vec::new(),
            files: BTreeMap::new(),
            dirs: BTreeMap::from([(ROOT, Arc::default())]),
        }
    }

    /// The minimum state after a crash: only what is durable.
    pub(super) fn without_pending(&self) -> Self {
        Self {
            position: self.position,
            pending: Vec::new(),
            files: self.files.clone(),
            dirs: self.dirs.clone(),
        }
    }

    /// The durable content of a file.
    pub(super) fn content(&self, file: FileId) -> Arc<Content> {
        self.files.get(&file).cloned().unwrap_or_default()
    }

    /// Applies the next recorded call.
    pub(super) fn record(&mut self, op: &Op) {
        self.position += 1;
        match op {
            Op::Data(file, write) => self.pending.push(Pending::Data(*file, write.clone())),
            Op::Names(changes) => {
                for change in changes.iter().filter(|change| change.added) {
                    match change.node {
                        NodeId::File(file) => drop(self.files.entry(file).or_default()),
                        NodeId::Dir(dir) => drop(self.dirs.entry(dir).or_default()),
                    }
                }
                self.pending.push(Pending::Names { changes: changes.clone(), journaled: false });
            }
            Op::SyncFile(file, failure) => self.sync_file(*file, *failure),
            Op::SyncDir(dir, failure) => self.sync_dir(*dir, *failure),
            Op::WriteBack => {
                for pending in std::mem::take(&mut self.pending) {
                    self.apply(&pending);
                }
            }
        }
    }

    fn sync_file(&mut self, file: FileId, failure: Option<FsyncFailure>) {
        if failure == Some(FsyncFailure::Keep) {
            return;
        }
        let mut kept = Vec::with_capacity(self.pending.len());
        for mut pending in std::mem::take(&mut self.pending) {
            match &mut pending {
                Pending::Data(of, write) if *of == file => {
                    if failure.is_none() {
                        self.apply_write(file, write);
                    }
                    continue;
                }
                Pending::Names { journaled, .. } if failure.is_none() => *journaled = true,
                _ => {}
            }
            kept.push(pending);
        }
        self.pending = kept;
    }

    fn sync_dir(&mut self, dir: DirId, failure: Option<FsyncFailure>) {
        if failure == Some(FsyncFailure::Keep) {
            return;
        }
        let mut kept = Vec::with_capacity(self.pending.len());
        for mut pending in std::mem::take(&mut self.pending) {
            if let Pending::Names { changes, .. } = &mut pending {
                if failure.is_none() {
                    changes
                        .iter()
                        .filter(|change| change.dir == dir)
                        .for_each(|change| self.apply_name(change));
                }
                changes.retain(|change| change.dir != dir);
                if changes.is_empty() {
                    continue;
                }
            }
            kept.push(pending);
        }
        self.pending = kept;
    }

    /// Makes one pending call durable. It stays in the list: the caller has taken the list or
    /// discards it.
    pub(super) fn apply(&mut self, pending: &Pending) {
        match pending {
            Pending::Data(file, write) => self.apply_write(*file, write),
            Pending::Names { changes, .. } => changes.iter().for_each(|change| self.apply_name(change)),
        }
    }

    /// Makes one change of a name durable; a removed name is deleted only if it still refers to the
    /// same node.
    pub(super) fn apply_name(&mut self, change: &NameChange) {
        let directory = Arc::make_mut(self.dirs.entry(change.dir).or_default());
        if change.added {
            directory.insert(Arc::clone(&change.name), change.node);
        } else if directory.get(&change.name) == Some(&change.node) {
            directory.remove(&change.name);
        }
    }

    /// Makes a write durable.
    pub(super) fn apply_write(&mut self, file: FileId, write: &Write) {
        match write {
            Write::Bytes { offset, bytes } => self.apply_bytes(file, *offset, bytes),
            Write::Length(bytes) => {
                let content = Arc::make_mut(self.files.entry(file).or_default()).change();
                content.resize(in_memory(*bytes), 0);
            }
        }
    }

    /// Writes bytes into the durable content; a gap between the old end and them is filled with
    /// zeros.
    pub(super) fn apply_bytes(&mut self, file: FileId, offset: u64, bytes: &[u8]) {
        let content = Arc::make_mut(self.files.entry(file).or_default()).change();
        let start = in_memory(offset);
        if content.len() < start {
            content.resize(start, 0);
        }
        let overlap = bytes.len().min(content.len() - start);
        let (over, beyond) = bytes.split_at(overlap);
        content[start..start + overlap].copy_from_slice(over);
        content.extend_from_slice(beyond);
    }

    /// The tree found on this disk after a restart, and the disk reduced to what is reachable from
    /// the root. The pending calls are lost. `next_id` must be above every id.
    pub(super) fn restart(&self, next_id: u64) -> (Tree, Disk) {
        let mut disk = Disk::new();
        let mut live = BTreeMap::new();
        let mut cells: BTreeMap<FileId, Arc<FileCell>> = BTreeMap::new();
        let mut seen = BTreeSet::from([ROOT]);
        let mut waiting = vec![ROOT];
        while let Some(dir) = waiting.pop() {
            let durable = self.dirs.get(&dir).cloned().unwrap_or_default();
            let mut names = BTreeMap::new();
            for (name, id) in durable.iter() {
                let node = match id {
                    NodeId::File(file) => {
                        let cell = cells.entry(*file).or_insert_with(|| {
                            let content = self.content(*file);
                            disk.files.insert(*file, Arc::clone(&content));
                            Arc::new(FileCell::new(*file, content))
                        });
                        Node::File(Arc::clone(cell))
                    }
                    // A half-durable rename of a directory can leave it under two names; it is
                    // found under one.
                    NodeId::Dir(child) if !seen.insert(*child) => continue,
                    NodeId::Dir(child) => {
                        waiting.push(*child);
                        Node::Dir(*child)
                    }
                };
                names.insert(Arc::clone(name), node);
            }
            let durable = if names.len() == durable.len() {
                durable
            } else {
                Arc::new(names.iter().map(|(name, node)| (Arc::clone(name), node.id())).collect())
            };
            disk.dirs.insert(dir, durable);
            live.insert(dir, names);
        }
        (Tree::from_dirs(live, next_id), disk)
    }
}

/// Lengths and offsets come from files held in memory, so they fit.
pub(super) fn in_memory(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
