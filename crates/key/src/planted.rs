//! Injected defects: switches that break the engine on purpose, so that tests can prove that they
//! detect it.
//!
//! Each is in the place of a real bug, as one `if is_planted(Defect::X)`. They exist only in builds
//! with debug assertions (the dev profile, which tests inherit): in a release build every check is
//! the constant `false`. At most one is active in a process. The environment variable [`VARIABLE`]
//! selects it and is read at the first check, so any test of any crate can be run against it
//! unchanged. When inactive they cost one relaxed load.
//!
//! They are in the lowest crate because filters, tables and the engine have some. Not here: the
//! tests that detect each defect, and how soon (`docs/results/planted.md`).

#[cfg(debug_assertions)]
use std::sync::atomic::{AtomicU8, Ordering};

/// The environment variable that names the active defect; `none` for none.
pub const VARIABLE: &str = "SHAMBA_PLANT";

/// The environment has not been read yet.
#[cfg(debug_assertions)]
const UNREAD: u8 = u8::MAX;
#[cfg(debug_assertions)]
const NONE: u8 = u8::MAX - 1;
/// The number of the active defect.
#[cfg(debug_assertions)]
static PLANTED: AtomicU8 = AtomicU8::new(UNREAD);

macro_rules! defects {
    ($($defect:ident, $name:literal, $breaks:literal;)*) => {
        /// A defect that can be activated. The documentation of each describes the resulting
        /// behaviour.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum Defect {
            $(#[doc = $breaks] $defect,)*
        }

        impl Defect {
            /// Every defect.
            pub const ALL: &[Self] = &[$(Self::$defect,)*];

            /// Its name in the environment and in tables.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$defect => $name,)*
                }
            }

            /// The behaviour of the engine with the defect.
            pub fn breaks(self) -> &'static str {
                match self {
                    $(Self::$defect => $breaks,)*
                }
            }
        }
    };
}

defects! {
    SecondHash, "second-hash", "A lookup hashes its key a second time.";

    AckBeforeSync, "ack-before-sync", "A write is acknowledged under `Sync` without the sync.";
    IntervalForgotten, "interval-forgotten", "An interval's sync never comes due.";
    AppendErrorSwallowed, "append-error-swallowed", "A write that the log did not take is acknowledged.";
    AppendAfterTornTail, "append-after-torn-tail", "A log goes on behind the half of a record that an append left.";
    FsyncRetried, "fsync-retried", "A failed sync of a log is tried again, and believed.";
    DirectorySyncRetried, "directory-sync-retried", "A failed sync of the directory is tried again, and believed.";
    SealedLogUnsynced, "sealed-log-unsynced", "A log is synced while an older one is not: no sync at rotation.";
    LogNameUnsynced, "log-name-unsynced", "The name of a new log is not made durable.";
    PromiseAhead, "promise-ahead", "A promise counts what is not synced yet.";
    PromiseIgnored, "promise-ignored", "Damage below a promise is dropped as if it were a torn tail.";
    TailRefused, "tail-refused", "A torn tail that nothing promises is taken for corruption.";
    LookAheadSkipped, "look-ahead-skipped", "Behind a hole in a log nobody looks for promises.";
    RecycledRecord, "recycled-record", "Records of another life of a log file are replayed.";
    LogNumberUnchecked, "log-number-unchecked", "A log under another log's name is read.";
    JointUnchecked, "joint-unchecked", "A log cut at a record's end is not missed when the next one is replayed.";
    TailCopyPromises, "tail-copy-promises", "The copy of a log tail promises itself before the manifest names it.";
    TailCopyUnsynced, "tail-copy-unsynced", "The manifest names the copy of a log tail that is not synced.";
    TailCopyShort, "tail-copy-short", "The last batch of a log tail is not copied to the new log.";
    SequenceGap, "sequence-gap", "Replay goes on over missing sequence numbers.";
    ReadErrorEndsLog, "read-error-ends-log", "A read error during replay is taken for the end of the log.";
    BatchSplitInLog, "batch-split-in-log", "A batch is logged as two records.";

    FollowerAcked, "follower-acked", "A follower of a group that failed is told that its write succeeded.";
    HalfBatchVisible, "half-batch-visible", "Readers see a batch while it is being applied.";
    VisibleLate, "visible-late", "Readers see a write only when the next one is written.";
    WritesAfterFailure, "writes-after-failure", "Writes go on after a failure that turns them off.";

    CurrentUnsynced, "current-unsynced", "The directory is not synced after the rename of `CURRENT`.";
    ManifestUnsynced, "manifest-unsynced", "`CURRENT` names a manifest whose content is not synced.";
    EditUnsynced, "edit-unsynced", "An edit is applied in memory, and acted upon, before the manifest is synced.";
    EditPromiseIgnored, "edit-promise-ignored", "A damaged edit that was synced is dropped as unfinished.";
    ManifestUnlinkedEarly, "manifest-unlinked-early", "The old manifest goes before `CURRENT` names the new one.";
    TablesUnlinkedEarly, "tables-unlinked-early", "Inputs of a merge go before the edit that replaces them is durable.";
    TableUnsynced, "table-unsynced", "A new table's content is not synced.";
    TableNamesUnsynced, "table-names-unsynced", "The names of new tables are not made durable.";
    LeftOversKept, "left-overs-kept", "Files that a crash left over are never removed.";
    TableUnlinkedWhileRead, "table-unlinked-while-read", "A dead table goes while a reader still needs it.";
    ValuesUnlinkedWhileRead, "values-unlinked-while-read", "A dead log goes while a memtable has values in it.";
    RefusedTablesKept, "refused-tables-kept", "Tables that a close forestalls are not removed with it.";

    FlushForgetsRangeDeletes, "flush-forgets-range-deletes", "A flush leaves range tombstones out.";
    FlushForgetsKeyspaces, "flush-forgets-keyspaces", "A flush writes the first keyspace only, and gives up the log.";
    FailedFlushDone, "failed-flush-done", "A flush that failed counts as done.";

    IgnoreSnapshots, "ignore-snapshots", "A merge ignores the oldest snapshot.";
    DropTombstones, "drop-tombstones", "A merge drops tombstones that still hide something below.";
    MergeForgetsRangeDeletes, "merge-forgets-range-deletes", "A merge leaves range tombstones out.";
    RangeDeleteIgnoresSnapshots, "range-delete-ignores-snapshots",
        "In a merge a range tombstone hides what older snapshots see.";
    ReadErrorEndsInput, "read-error-ends-input", "A merge takes a read error for the end of its inputs.";
    KeySplitOverTables, "key-split-over-tables", "The versions of one key are split over two tables of a run.";
    OutputUnverified, "output-unverified", "Tables just written are not read back.";
    SlicesOutOfOrder, "slices-out-of-order", "Slices of a merge are installed as they are finished.";
    SliceOverBystander, "slice-over-bystander", "A slice reaches over a table of the target run that stays.";
    SliceBoundaryLost, "slice-boundary-lost", "What is left of an input begins behind the key that ended a slice.";
    BesideTakesInputs, "beside-takes-inputs", "Merges beside a long one pick from its inputs.";
    RedesignUnrecorded, "redesign-unrecorded", "A new design is in force and not recorded.";

    FilterWithoutLastKey, "filter-without-last-key", "A filter is built without a table's last key.";
    ChecksumWithoutFile, "checksum-without-file", "Checksums are not salted with the file's birth id.";
    ChecksumWithoutPlace, "checksum-without-place", "Checksums are not salted with the offset.";
    ChecksumConstant, "checksum-constant", "Every checksum is the same, so that damage passes: fuzzing is done so.";
    FenceOffByOne, "fence-off-by-one", "A separator is the first key of the next block.";
    NeighbourPrefix, "neighbour-prefix", "The last entry of a block gets the prefix of the group before its own.";
    SequenceCut, "sequence-cut", "Sequence numbers in a block lose all but the lowest byte of their distance.";
    FirstTagOnly, "first-tag-only", "A search of a block gives up at the first equal tag of another key.";
    ChunkUnchecked, "chunk-unchecked", "Chunks of large values are not checked.";
    ModuleMisplaced, "module-misplaced", "A filter's second module is filled by the places of the first.";
    AbsentModuleDenies, "absent-module-denies", "A filter module that memory does not hold says \"absent\".";
    DamagedSliceDenies, "damaged-slice-denies", "A damaged slice of a filter says \"absent\".";
    CacheNumberReused, "cache-number-reused", "All tables share one number in the block cache.";
    FiltersUncharged, "filters-uncharged", "Filter slices are not charged to the ledger.";
    MemtablesUncharged, "memtables-uncharged", "Memtables are not charged to the ledger.";

    IndexMissesEntry, "index-misses-entry", "The memtable's index loses an entry when a segment grows.";
    VersionFromFuture, "version-from-future", "A memtable gives a version newer than its reader.";
    RangeDeleteFromFuture, "range-delete-from-future", "A range tombstone newer than its reader hides keys.";
    RunRangeDeletesUnseen, "run-range-deletes-unseen", "Lookups do not ask tables for range tombstones.";
    ErrorAsNotFound, "error-as-not-found", "A lookup takes a read error for \"not there\".";
    MultiGetWithoutFloor, "multi-get-without-floor", "`multi_get` ignores range tombstones.";
    MultiGetStopsEarly, "multi-get-stops-early", "`multi_get` gives a key up at a filter's false positive.";
    TurnWithoutSeek, "turn-without-seek", "A merge of sources turns round without seeking them.";
    UpperBoundIncluded, "upper-bound-included", "A walk from the back begins with the upper bound itself.";
    MemtableSwitchMissed, "memtable-switch-missed", "An iterator that is used again keeps the view before a switch.";
    GrownMemtableMissed, "grown-memtable-missed", "An iterator that is used again misses what a memtable gained.";
    RevokedIteratorMovesOn, "revoked-iterator-moves-on", "An iterator whose view was taken goes on at the newest state.";
    KeyGivenTwice, "key-given-twice", "Where front and back of an iterator meet, a key is given twice.";
    PrefixWithoutCarry, "prefix-without-carry", "The end of a prefix is the prefix and 0xff.";
    SnapshotReleasedEarly, "snapshot-released-early", "A reader's end gives up the number of others that share it.";

    CheckpointForgetsMemory, "checkpoint-forgets-memory", "A checkpoint leaves out what is not in tables yet.";
    CheckpointNameUnsynced, "checkpoint-name-unsynced", "The name of a checkpoint's directory is not made durable.";
    DropUnsynced, "drop-unsynced", "A keyspace's drop is durable before the writes that came before it.";
    SecondOpener, "second-opener", "A second opener gets in beside a writer.";
    NewerFeature, "newer-feature", "Files with unknown required features are read.";
    ReadOnlyCleansUp, "read-only-cleans-up", "An open for reading removes what a crash left over.";
}

const _: () = assert!(Defect::ALL.len() < (u8::MAX - 1) as usize);

impl Defect {
    /// The defect with this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|defect| defect.name() == name)
    }
}

/// Whether the defect is active.
#[inline(always)]
#[cfg(debug_assertions)]
pub fn is_planted(defect: Defect) -> bool {
    match PLANTED.load(Ordering::Relaxed) {
        UNREAD => read_environment() == defect as u8,
        planted => planted == defect as u8,
    }
}

/// Whether the defect is active: never, in a build without debug assertions.
#[inline(always)]
#[cfg(not(debug_assertions))]
pub fn is_planted(_: Defect) -> bool {
    false
}

/// The defect that the environment names, stored for all later checks.
#[cold]
#[cfg(debug_assertions)]
fn read_environment() -> u8 {
    let planted = match std::env::var(VARIABLE).as_deref() {
        Err(_) | Ok("" | "none") => NONE,
        Ok(name) => match Defect::by_name(name) {
            Some(defect) => defect as u8,
            // A misspelt name must not look like a defect that no test detects.
            None => panic!("{VARIABLE}={name:?} names no planted defect"),
        },
    };
    PLANTED.store(planted, Ordering::Relaxed);
    planted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart() {
        for (place, defect) in Defect::ALL.iter().enumerate() {
            assert_eq!(*defect as usize, place);
            assert_eq!(Defect::by_name(defect.name()), Some(*defect));
            let name = defect.name();
            assert!(name.bytes().all(|byte| byte == b'-' || byte.is_ascii_lowercase()), "{name}");
        }
        assert_eq!(Defect::by_name("none"), None);
    }
}
