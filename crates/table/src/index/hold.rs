//! The three ways to hold the partitions of an index.
//!
//! * *Pinned*: all of them in memory, from open on.
//! * *Budgeted*: partition by partition, as somebody outside decides; none at first. What is not in memory is read for
//!   each lookup that needs it, and so are the blocks that it lists: nothing notes where the cache has them.
//! * *Cached*, the baseline: the stored bytes of a partition are a block in the block cache, fetched when a lookup misses
//!   it, which competes with the data blocks. Where the cache keeps each data block (4 bytes a block) stays in memory
//!   all the same, in the index's part of the ledger, so that data blocks are found as in the other ways.
//!
//! Whoever looks at a resident partition has it for as long as it looks (`arc-swap` protects it without a
//! contended count), so that it can be dropped at any time; its memory, and the charge for it, go with the last who
//! looks.
//!
//! Not here: who decides what is resident (whoever has the table open).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arc_swap::{ArcSwapOption, Guard};

use super::partition::Partition;
use super::slot::FrameSlot;
use crate::reader::Residency;

/// The partitions, as they are held.
#[derive(Debug)]
pub(super) enum HeldPartitions {
    Pinned(Box<[Arc<Partition>]>),
    Budgeted(Box<[Cell]>),
    Cached(CachedSlots),
}

/// Place for one partition, resident or not.
#[derive(Debug, Default)]
pub(super) struct Cell {
    pub(super) partition: ArcSwapOption<Partition>,
    /// What it takes in memory: about, until it was there once.
    pub(super) bytes: AtomicU32,
    /// Searches that were counted and not yet taken.
    pub(super) searches: AtomicU32,
}

impl Cell {
    fn new(expected_bytes: u64) -> Self {
        let bytes = AtomicU32::new(u32::try_from(expected_bytes).unwrap_or(u32::MAX));
        Self { bytes, ..Self::default() }
    }

    /// Makes the partition resident; false if another one is already.
    pub(super) fn publish(&self, partition: Partition) -> bool {
        let bytes = u32::try_from(partition.memory_bytes()).unwrap_or(u32::MAX);
        self.bytes.store(bytes, Ordering::Relaxed);
        let nobody: Guard<Option<Arc<Partition>>> = Guard::from_inner(None);
        self.partition.compare_and_swap(&*nobody, Some(Arc::new(partition))).is_none()
    }
}

/// Where the cache keeps partitions and blocks.
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
    /// Of the `partitions`, if all of them are held, else of as many as there are figures of what they will take.
    pub(super) fn new(hold: Residency, partitions: Vec<Partition>, expected: &[u64], blocks: usize) -> Self {
        let slots = |count| (0..count).map(|_| FrameSlot::new()).collect();
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

    /// What it takes beside the partitions, which are charged one by one.
    pub(super) fn memory_bytes(&self) -> usize {
        match self {
            Self::Pinned(partitions) => size_of_val(&**partitions),
            Self::Budgeted(cells) => size_of_val(&**cells),
            Self::Cached(slots) => size_of_val(&*slots.partitions) + size_of_val(&*slots.blocks),
        }
    }
}

/// Where the cache keeps a block: usable for as long as this lives.
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
