//! One partition of the index in memory.
//!
//! [Heads](LayeredHeads) over the separators find the block. Of the separators themselves only [the
//! bytes that the heads do not contain](super::tails) are kept, and read only if the heads do not
//! decide. The partition also has the blocks' handles and a [slot](FrameSlot) for each, so that a
//! cached block is found without a map. Sequence numbers are held only if one of them is not 0. The
//! memory is charged until the partition is dropped.
//!
//! Memory per block, with keys without common prefixes: a head of 8 bytes, a handle of 8, a slot of
//! 4. With long keys that share long prefixes, also the tail of the separator and 2 bytes for its
//! end.
//!
//! Not here: the stored form, which is searched without being decoded ([`super::stored`]).

use shamba_key::{LayeredHeads, SeqNo, prefetch_slice};

use super::handle::{Handle, Handles};
use super::separators::{Found, SeparatorsBuilder};
use super::tails::Tails;
use crate::ledger::Charge;
use crate::slot::FrameSlot;

/// Bytes besides the heap parts: the partition itself, and the two counts of its `Arc`.
const FIXED_BYTES: usize = size_of::<Partition>() + 2 * size_of::<usize>();

/// The separators of consecutive blocks, ascending. Never empty.
#[derive(Debug)]
pub(crate) struct Partition {
    heads: LayeredHeads,
    slots: Box<[FrameSlot]>,
    handles: Handles,
    tails: Tails,
    charge: Charge,
}

impl Partition {
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The first block whose separator is at or after `(key, seq)`; [`Self::len`] if there is none.
    #[inline]
    pub(super) fn find(&self, key: &[u8], seq: SeqNo) -> Found {
        self.prefetch();
        self.find_prefetched(key, seq)
    }

    /// As [`Self::find`], some time after [`Self::prefetch`].
    #[inline]
    pub(super) fn find_prefetched(&self, key: &[u8], seq: SeqNo) -> Found {
        debug_assert!(!self.slots.is_empty(), "a search of a partition without blocks");
        self.tails.find(&self.heads, key, seq)
    }

    /// Prefetches the lines that a search reads, whose loads depend on each other.
    #[inline]
    pub(super) fn prefetch(&self) {
        self.heads.prefetch();
        prefetch_slice(&self.slots);
        if self.heads.is_layered() {
            self.tails.prefetch();
        }
    }

    /// Whether the separator of block `number` lies between two versions of `key`.
    pub(super) fn goes_on(&self, number: usize, key: &[u8]) -> bool {
        self.tails.goes_on(&self.heads, number, key)
    }

    pub(super) fn handle(&self, number: usize) -> Option<Handle> {
        self.handles.get(number)
    }

    #[inline]
    pub(super) fn slot(&self, number: usize) -> Option<&FrameSlot> {
        self.slots.get(number)
    }

    /// The slots of all its blocks, in order.
    pub(super) fn slots(&self) -> &[FrameSlot] {
        &self.slots
    }

    /// Bytes in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        // Charged exactly when the partition was made.
        usize::try_from(self.charge.bytes()).unwrap_or(usize::MAX)
    }
}

/// Estimate of a partition's memory, computed from its separators without decoding it. Exact if
/// heads of one layer distinguish the separators.
pub(super) struct Estimate {
    /// Length of the prefix that all keys share.
    common: usize,
    blocks: u64,
    keys: u64,
    tail_bytes: u64,
    is_numbered: bool,
}

impl Estimate {
    /// Starts the estimate of a partition whose first and last keys are these.
    pub(super) fn new(first: &[u8], last: &[u8]) -> Self {
        let common = first.iter().zip(last).take_while(|(a, b)| a == b).count();
        Self { common, blocks: 0, keys: 0, tail_bytes: 0, is_numbered: false }
    }

    /// Adds the next separator.
    pub(super) fn add(&mut self, key: &[u8], seq: SeqNo, is_same_key: bool) {
        self.blocks += 1;
        self.is_numbered |= seq > SeqNo::ZERO;
        if !is_same_key {
            self.keys += 1;
            // Seven bytes of each are in its head.
            self.tail_bytes += key.len().saturating_sub(self.common + 7) as u64;
        }
    }

    /// The estimated bytes.
    pub(super) fn bytes(&self) -> u64 {
        debug_assert!(self.keys <= self.blocks, "{} keys of {} separators", self.keys, self.blocks);
        let slots_and_handles = self.blocks * (4 + 8);
        let seqs = if self.is_numbered { self.blocks * size_of::<SeqNo>() as u64 } else { 0 };
        FIXED_BYTES as u64 + slots_and_handles + self.keys * 8 + self.tail_bytes + seqs
    }
}

/// Collects the separators of one partition.
#[derive(Default)]
pub(super) struct PartitionBuilder {
    separators: SeparatorsBuilder,
    handles: Vec<Handle>,
}

impl PartitionBuilder {
    /// Appends a separator; false if it is not after the last one.
    pub(super) fn push(&mut self, key: &[u8], seq: SeqNo, handle: Handle) -> bool {
        self.handles.push(handle);
        self.separators.push(key, seq)
    }

    /// Returns the partition; resizes `charge` to its memory.
    pub(super) fn finish(self, charge: Charge) -> Partition {
        let separators = self.separators.finish();
        assert!(!self.handles.is_empty(), "a partition lists no block");
        assert_eq!(separators.len(), self.handles.len(), "a partition has one separator for each block");
        let heads = separators.heads();
        let mut partition = Partition {
            tails: Tails::new(separators, &heads),
            heads,
            slots: self.handles.iter().map(|_| FrameSlot::new()).collect(),
            handles: Handles::new(&self.handles),
            charge,
        };
        let bytes = FIXED_BYTES
            + partition.heads.memory_bytes()
            + size_of_val(&*partition.slots)
            + partition.handles.memory_bytes()
            + partition.tails.memory_bytes();
        partition.charge.resize(bytes as u64);
        debug_assert_eq!(
            partition.memory_bytes(),
            bytes,
            "a partition is charged for another size than its own"
        );
        partition
    }
}
