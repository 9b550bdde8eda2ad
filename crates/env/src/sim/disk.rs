//! The disk under a [`super::SimFs`]: what is durable, and the calls whose effect is not yet.
//!
//! A [`Disk`] is the state after some number of recorded calls ([`Disk::position`]). Each [`Op`] either adds
//! to the pending list (a write, a cut, a change of names), in the order of the calls, or makes pending
//! entries durable (a sync). Contents and directories are shared buffers, so cloning a disk costs a pointer for each.
//!
//! Writes keep the offset that they were made at: when one is lost and a later one of the same file arrives,
//! the file has a hole of zeros, as unordered write-back leaves it.
//!
//! Not here: which pending entries a crash lets through ([`super::CrashPolicy`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::FsyncFailure;
use crate::tree::{Content, DirId, FileCell, FileId, NameChange, Node, NodeId, ROOT, Tree};

/// One recorded call.
#[derive(Clone, Debug)]
pub(super) enum Op {
    /// A write or a cut of a file.
    Data(FileId, Write),
    /// Names that came and went by one call.
    Names(Vec<NameChange>),
    /// A sync of a file, and how it failed if it did.
    SyncFile(FileId, Option<FsyncFailure>),
    /// A sync of a directory likewise.
    SyncDir(DirId, Option<FsyncFailure>),
    /// Everything reaches the disk.
    Settle,
}

/// A change of one file's content.
#[derive(Clone, Debug)]
pub(super) enum Write {
    /// These bytes from this offset on.
    Bytes { offset: u64, bytes: Arc<[u8]> },
    /// The length becomes this.
    Length(u64),
}

/// A call whose effect may or may not survive a crash.
#[derive(Clone, Debug)]
pub(super) enum Pending {
    Data(FileId, Write),
    Names {
        /// The changes not yet durable: syncing one directory of a rename across two leaves those of the other.
        changes: Vec<NameChange>,
        /// A file was synced since: a journal that is written in order would have carried this along.
        journaled: bool,
    },
}

type Directory = BTreeMap<Arc<str>, NodeId>;

/// Durable state and pending calls.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    /// How many recorded calls are in this state.
    pub(super) position: usize,
    /// In the order of the calls.
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

    /// What a crash leaves for sure.
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

    /// Takes in the next recorded call.
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
            Op::Settle => {
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

    /// Makes one pending call durable. It stays in the list: the caller has taken the list or throws it away.
    pub(super) fn apply(&mut self, pending: &Pending) {
        match pending {
            Pending::Data(file, write) => self.apply_write(*file, write),
            Pending::Names { changes, .. } => changes.iter().for_each(|change| self.apply_name(change)),
        }
    }

    /// Makes one change of a name durable; a name that went is removed only if it still stands for the same.
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

    /// Puts bytes at their place in the durable content; what lies between the old end and them is zeros.
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

    /// The tree that one finds on this disk after a restart, and the disk cut down to what the root reaches.
    /// The pending calls are lost. `next_id` must be above every id.
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
                    // Half of a directory's rename can leave it under two names; it is found under one.
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
fn in_memory(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
