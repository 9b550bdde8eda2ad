//! One partition of the index, as it is held in memory.
//!
//! [Heads](LayeredHeads) over the separators find the block; of the separators themselves only [what heads do not
//! say](super::tails) is kept, and read only where they leave the question open. Beside them lie the blocks' handles and a [slot](FrameSlot) for each, so that a block
//! that is cached is found without a map. Sequence numbers are held only if one of them is not 0. What it
//! takes is charged for as long as it lives, whoever holds it.
//!
//! Memory for each block, with keys of no pattern: a head of 8 bytes, a handle of 8, a slot of 4. With
//! long keys that have much in common, the tail of the separator and 2 for its place.
//!
//! Not here: the form in the file, which is searched without being taken apart ([`super::stored`]).

use shamba_key::{LayeredHeads, SeqNo, prefetch_slice};

use super::handle::{Handle, Handles};
use super::separators::{Found, SeparatorsBuilder};
use super::slot::FrameSlot;
use super::tails::Tails;
use crate::ledger::Charge;

/// What a partition takes beside what it holds on the heap: itself, and the two counts of those who share it.
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
        // What the end of the search will want: its dependent loads would wait for one line after another.
        self.heads.prefetch();
        prefetch_slice(&self.slots);
        if self.heads.is_layered() {
            self.tails.prefetch();
        }
        self.tails.find(&self.heads, key, seq)
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

    /// What it takes in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        // Charged to the byte when it was made.
        usize::try_from(self.charge.bytes()).unwrap_or(usize::MAX)
    }
}

/// About what a partition takes in memory, told from its separators without taking it apart: exact, if heads in one layer
/// tell them apart.
pub(super) struct Estimate {
    /// What all keys start with.
    common: usize,
    blocks: u64,
    keys: u64,
    tail_bytes: u64,
    is_numbered: bool,
}

impl Estimate {
    /// Of the partition that starts and ends with these keys.
    pub(super) fn new(first: &[u8], last: &[u8]) -> Self {
        let common = first.iter().zip(last).take_while(|(a, b)| a == b).count();
        Self { common, blocks: 0, keys: 0, tail_bytes: 0, is_numbered: false }
    }

    /// Takes the next separator into account.
    pub(super) fn add(&mut self, key: &[u8], seq: SeqNo, is_same_key: bool) {
        self.blocks += 1;
        self.is_numbered |= seq > SeqNo::ZERO;
        if !is_same_key {
            self.keys += 1;
            // Seven bytes of each are in its head.
            self.tail_bytes += key.len().saturating_sub(self.common + 7) as u64;
        }
    }

    /// The sum.
    pub(super) fn bytes(&self) -> u64 {
        let slots_and_handles = self.blocks * (4 + 8);
        let seqs = if self.is_numbered { self.blocks * size_of::<SeqNo>() as u64 } else { 0 };
        FIXED_BYTES as u64 + slots_and_handles + self.keys * 8 + self.tail_bytes + seqs
    }
}

/// Gathers the separators of one partition.
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

    /// The partition; `charge` becomes what it takes.
    pub(super) fn finish(self, charge: Charge) -> Partition {
        let separators = self.separators.finish();
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
        partition
    }
}
