//! A file system in memory that can be crashed after any of its calls.
//!
//! [`SimFs`] behaves as [`crate::MemFs`] and records every call that changes something, in one
//! global order. [`SimFs::crash`] then builds the disk that a machine would find after a power loss
//! right after the k-th call. It contains the synced data, and of the unsynced data the part that a
//! [`CrashPolicy`] selects. That disk is a new, independent `SimFs` with a new recording, so a
//! recovery on it can be crashed in turn.
//!
//! A sync of a file makes its bytes and its length durable, but not its name. A sync of a directory
//! makes the names in it durable. (Creating a directory changes the names of its parent.)
//!
//! One recorded run serves thousands of crashes. A replay continues forward from its position (so
//! ask in ascending order) or starts at the nearest checkpoint, and images share the buffers that
//! they do not change.
//!
//! Not modelled: a device that reports a sync that it has not done, bit rot, misdirected sectors.
//!
//! This file has the public interface; `disk.rs` has the durable and pending state, `policy.rs` the
//! survivors of a crash, `files.rs` the calls.

mod disk;
mod files;
mod hash;
mod policy;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;

pub use policy::CrashPolicy;

use crate::sync::{Mutex, MutexGuard, PoisonError};
use crate::tree::{DirId, Node, NodeId, ROOT, Tree};
use disk::{Disk, Op, Write};
use hash::ImageHash;

/// Number of calls between checkpoints of the replay: going back costs at most the replay of that
/// many.
const CHECKPOINT_CALLS: usize = 1_024;

/// The state after a failed sync. The call returns EIO in each case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FsyncFailure {
    /// Everything stays pending; a later sync can make it durable.
    Keep,
    /// The pending changes will never be durable but stay readable until a crash, and a later sync
    /// succeeds without them, as with ext4 and XFS on Linux.
    Drop,
    /// As `Drop`, and reads return the old durable content at once. (Names in a directory stay
    /// visible.)
    Revert,
}

/// A simulated file system. Copies share it; [`SimFs::crash`] makes an independent one.
#[derive(Clone, Debug)]
pub struct SimFs {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct SyncFault {
    nth: u64,
    sticky: bool,
    failure: FsyncFailure,
}

#[derive(Debug)]
struct State {
    /// The state that a running program sees.
    tree: Tree,
    /// Every call that changed something, in order.
    log: Vec<Op>,
    trace: ImageHash,
    /// The disk before the first call, and after each [`CHECKPOINT_CALLS`] calls that the replay
    /// has passed.
    checkpoints: Vec<Disk>,
    /// Current position of the replay.
    replay: Disk,
    syncs: u64,
    sync_faults: Vec<SyncFault>,
}

impl State {
    fn new(tree: Tree, disk: Disk) -> Self {
        Self {
            tree,
            log: Vec::new(),
            trace: ImageHash::new(),
            checkpoints: vec![disk.clone()],
            replay: disk,
            syncs: 0,
            sync_faults: Vec::new(),
        }
    }

    fn record(&mut self, op: Op) {
        trace_op(&mut self.trace, &op);
        self.log.push(op);
    }

    /// Counts a sync and returns its failure, if it is to fail.
    fn next_sync_failure(&mut self) -> Option<FsyncFailure> {
        let n = self.syncs;
        self.syncs += 1;
        let due = |fault: &&SyncFault| fault.nth == n || (fault.sticky && fault.nth < n);
        self.sync_faults.iter().find(due).map(|fault| fault.failure)
    }

    /// The disk after the first `calls` calls.
    fn disk_at(&mut self, calls: usize) -> &Disk {
        let target = calls.min(self.log.len());
        let nearest = (target / CHECKPOINT_CALLS).min(self.checkpoints.len() - 1);
        let stands_at = self.replay.position;
        if stands_at > target || stands_at < self.checkpoints[nearest].position {
            self.replay = self.checkpoints[nearest].clone();
        }
        while self.replay.position < target {
            self.replay.record(&self.log[self.replay.position]);
            if self.replay.position == self.checkpoints.len() * CHECKPOINT_CALLS {
                self.checkpoints.push(self.replay.clone());
            }
        }
        &self.replay
    }
}

fn position(k: u64) -> usize {
    usize::try_from(k).unwrap_or(usize::MAX)
}

impl SimFs {
    /// An empty disk: only the root directory, which is durable.
    pub fn new() -> Self {
        Self::of(Tree::new(), Disk::new())
    }

    fn of(tree: Tree, disk: Disk) -> Self {
        Self { state: Arc::new(Mutex::new(State::new(tree, disk))) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of calls so far that changed something, including syncs (failed ones too). Creating
    /// several directories at once counts each.
    pub fn op_count(&self) -> u64 {
        self.state().log.len() as u64
    }

    /// Number of syncs of files and directories so far.
    pub fn sync_count(&self) -> u64 {
        self.state().syncs
    }

    /// Makes all pending calls durable, as write-back does after some time. Counts as one call.
    pub fn write_back(&self) {
        self.state().record(Op::WriteBack);
    }

    /// Makes the `nth` sync since the creation of this file system fail (0-based, files and
    /// directories together, see [`SimFs::sync_count`]).
    pub fn fail_sync(&self, nth: u64, failure: FsyncFailure) {
        self.state().sync_faults.push(SyncFault { nth, sticky: false, failure });
    }

    /// Removes the planned failures of single syncs; those from [`SimFs::fail_syncs_from`] remain.
    pub fn forget_single_sync_failures(&self) {
        self.state().sync_faults.retain(|fault| fault.sticky);
    }

    /// As [`SimFs::fail_sync`], for that sync and all after it.
    pub fn fail_syncs_from(&self, nth: u64, failure: FsyncFailure) {
        self.state().sync_faults.push(SyncFault { nth, sticky: true, failure });
    }

    /// The disk after a crash right after the `k`-th call (0: before the first; more than there
    /// were: after the last). Locks are released, nothing is pending, planned sync failures are not
    /// copied.
    pub fn crash(&self, k: u64, policy: &CrashPolicy) -> SimFs {
        let mut state = self.state();
        state.disk_at(position(k));
        let at = &state.replay;
        let mut disk = at.without_pending();
        policy.apply(&mut disk, &at.pending, &state.log[..at.position]);
        let (tree, disk) = disk.restart(state.tree.next_id());
        Self::of(tree, disk)
    }

    /// Number of calls pending right after the `k`-th: the range of the numbers in a
    /// [`CrashPolicy`].
    pub fn pending_count(&self, k: u64) -> usize {
        self.state().disk_at(position(k)).pending.len()
    }

    /// A representative set of policies for a crash right after the `k`-th call, reproducible from
    /// the seed.
    pub fn policies_for(&self, k: u64, seed: u64) -> Vec<CrashPolicy> {
        let mut state = self.state();
        let seed = seed ^ k.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        CrashPolicy::sample(&state.disk_at(position(k)).pending, seed)
    }

    /// Every crash point from the `first` call on (0: before any), each with its set of policies,
    /// in the order in which [`SimFs::crash`] is fastest.
    pub fn crash_points(&self, first: u64, seed: u64) -> Vec<(u64, CrashPolicy)> {
        (first..=self.op_count())
            .flat_map(|k| self.policies_for(k, seed).into_iter().map(move |policy| (k, policy)))
            .collect()
    }

    /// A hash of all names and contents as a program sees them now: equal for equal trees.
    pub fn image_hash(&self) -> u64 {
        let state = self.state();
        let mut hash = ImageHash::new();
        hash_dir(&state.tree, ROOT, &mut hash);
        hash.finish()
    }

    /// A hash of the recorded calls: equal for equal runs.
    pub fn trace_hash(&self) -> u64 {
        self.state().trace.finish()
    }

    /// Description of the `k`-th call (1-based, as [`SimFs::crash`] counts), for the report of a
    /// failure.
    pub fn describe_op(&self, k: u64) -> Option<String> {
        let state = self.state();
        state.log.get(position(k.checked_sub(1)?)).map(describe)
    }

    /// Whether a name exists, for checks that must not count as calls of the program under test.
    pub fn has_name(&self, path: &Path) -> bool {
        self.state().tree.exists(path).unwrap_or(false)
    }
}

impl Default for SimFs {
    fn default() -> Self {
        Self::new()
    }
}

fn hash_bytes(bytes: &[u8]) -> u64 {
    let mut hash = ImageHash::new();
    hash.bytes(bytes);
    hash.finish()
}

fn hash_dir(tree: &Tree, dir: DirId, hash: &mut ImageHash) {
    let names = tree.names(dir).into_iter().flatten();
    for (name, node) in names {
        hash.bytes(name.as_bytes());
        match node {
            Node::File(cell) => {
                hash.number(1);
                hash.number(cell.content().hash(hash_bytes));
            }
            Node::Dir(child) => {
                hash.number(2);
                hash_dir(tree, *child, hash);
            }
        }
    }
    hash.number(3);
}

fn node_number(node: NodeId) -> u64 {
    match node {
        NodeId::File(file) => file.0,
        NodeId::Dir(dir) => dir.0,
    }
}

fn trace_op(trace: &mut ImageHash, op: &Op) {
    match op {
        Op::Data(file, Write::Bytes { bytes, .. }) => {
            trace.number(1);
            trace.number(file.0);
            trace.bytes(bytes);
        }
        Op::Data(file, Write::Length(bytes)) => trace.numbers(&[2, file.0, *bytes]),
        Op::Names(changes) => {
            trace.number(3);
            for change in changes {
                trace.number(change.dir.0);
                trace.bytes(change.name.as_bytes());
                trace.number(node_number(change.node) << 1 | u64::from(change.added));
            }
        }
        Op::SyncFile(file, failure) => trace.numbers(&[4, file.0, u64::from(failure.is_some())]),
        Op::SyncDir(dir, failure) => trace.numbers(&[5, dir.0, u64::from(failure.is_some())]),
        Op::WriteBack => trace.number(6),
    }
}

fn describe(op: &Op) -> String {
    match op {
        Op::Data(file, Write::Bytes { offset, bytes }) => {
            format!("append {} bytes at {offset} of file {}", bytes.len(), file.0)
        }
        Op::Data(file, Write::Length(bytes)) => format!("cut file {} to {bytes} bytes", file.0),
        Op::Names(changes) => {
            let words = changes.iter().map(|change| {
                let what = if change.added { "+" } else { "-" };
                format!(
                    "{what}{} (node {} in directory {})",
                    change.name,
                    node_number(change.node),
                    change.dir.0
                )
            });
            format!("names {}", words.collect::<Vec<_>>().join(", "))
        }
        Op::SyncFile(file, failure) => format!("sync file {}{}", file.0, describe_failure(*failure)),
        Op::SyncDir(dir, failure) => format!("sync directory {}{}", dir.0, describe_failure(*failure)),
        Op::WriteBack => "settle".to_owned(),
    }
}

fn describe_failure(failure: Option<FsyncFailure>) -> String {
    failure.map(|failure| format!(" (fails: {failure:?})")).unwrap_or_default()
}
