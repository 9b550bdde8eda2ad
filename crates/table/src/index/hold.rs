//! The three residency modes of index partitions.
//!
//! * *Pinned*: all of them in memory, from open on.
//! * *Budgeted*: the owner of the table decides which partitions are resident; none at first. A
//!   lookup that needs an absent partition reads it. It also reads the data block from the file,
//!   because only a resident partition has the slots that locate blocks in the cache.
//! * *Cached*, the baseline: the stored bytes of a partition are a block of the block cache, read
//!   on a miss, which competes with data blocks. The frame slots of the data blocks (4 bytes per
//!   block) stay in memory in the index's part of the ledger, so that data blocks are found as in
//!   the other modes.
//!
//! A reader of a resident partition keeps it alive while it uses it (`arc-swap` protects it without
//! a contended reference count), so the partition can be dropped at any time. Its memory and its
//! charge are released with the last reader.
//!
//! Not here: the decision which partitions are resident (the owner of the table).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arc_swap::{ArcSwapOption, Guard};

use super::partition::Partition;
use crate::residency::Residency;
use crate::slot::FrameSlot;

/// The partitions, by residency mode.
#[derive(Debug)]
pub(super) enum HeldPartitions {
    Pinned(Box<[Arc<Partition>]>),
    Budgeted(Box<[Cell]>),
    Cached(CachedSlots),
}

/// Place of one partition, resident or not.
#[derive(Debug, Default)]
pub(super) struct Cell {
    pub(super) partition: ArcSwapOption<Partition>,
    /// Bytes of the partition in memory: an estimate until it was first resident.
    pub(super) bytes: AtomicU32,
    /// Counted searches, halved periodically.
    pub(super) searches: AtomicU32,
}

impl Cell {
    fn new(expected_bytes: u64) -> Self {
        let bytes = AtomicU32::new(u32::try_from(expected_bytes).unwrap_or(u32::MAX));
        Self { bytes, ..Self::default() }
    }

    /// Makes the partition resident; false if one is resident already.
    pub(super) fn publish(&self, partition: Partition) -> bool {
        let bytes = u32::try_from(partition.memory_bytes()).unwrap_or(u32::MAX);
        assert!(bytes > 0, "a resident partition without memory");
        self.bytes.store(bytes, Ordering::Relaxed);
        let nobody: Guard<Option<Arc<Partition>>> = Guard::from_inner(None);
        self.partition.compare_and_swap(&*nobody, Some(Arc::new(partition))).is_none()
    }
}

/// Frame slots of partitions and data blocks.
#[derive(Debug)]
pub(super) struct CachedSlots {
    pub(super) partitions: Box<[FrameSlot]>,
    pub(super) blocks: Box<[FrameSlot]>,
}

impl Default for HeldPartitions {
    fn default() -> Self {
        Self::Pinned(Box::default())
    }
}

impl HeldPartitions {
    /// Holds the `partitions` if all are pinned, else creates one cell or slot per element of
    /// `expected`.
    pub(super) fn new(hold: Residency, partitions: Vec<Partition>, expected: &[u64], blocks: usize) -> Self {
        let slots = |count| (0..count).map(|_| FrameSlot::new()).collect();
        assert!(
            hold == Residency::Pinned || partitions.is_empty(),
            "partitions are given in the mode {hold}"
        );
        match hold {
            Residency::Pinned => Self::Pinned(partitions.into_iter().map(Arc::new).collect()),
            Residency::Budgeted => Self::Budgeted(expected.iter().map(|bytes| Cell::new(*bytes)).collect()),
            Residency::Cached => {
                Self::Cached(CachedSlots { partitions: slots(expected.len()), blocks: slots(blocks) })
            }
        }
    }

    pub(super) fn hold(&self) -> Residency {
        match self {
            Self::Pinned(_) => Residency::Pinned,
            Self::Budgeted(_) => Residency::Budgeted,
            Self::Cached(_) => Residency::Cached,
        }
    }

    /// Bytes besides the partitions, which are charged one by one.
    pub(super) fn memory_bytes(&self) -> usize {
        match self {
            Self::Pinned(partitions) => size_of_val(&**partitions),
            Self::Budgeted(cells) => size_of_val(&**cells),
            Self::Cached(slots) => size_of_val(&*slots.partitions) + size_of_val(&*slots.blocks),
        }
    }
}

/// A frame slot, valid while this lives.
pub(crate) enum SlotRef<'a> {
    Here(&'a FrameSlot),
    Resident(Guard<Option<Arc<Partition>>>, usize),
}

impl SlotRef<'_> {
    pub(crate) fn get(&self) -> Option<&FrameSlot> {
        match self {
            Self::Here(slot) => Some(slot),
            Self::Resident(partition, within) => partition.as_ref()?.slot(*within),
        }
    }
}
