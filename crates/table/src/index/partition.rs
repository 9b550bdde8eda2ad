//! One partition of the index, as it is held in memory.
//!
//! [Heads](LayeredHeads) over the separators find the block; a separator itself is read only where heads leave
//! the question open. Beside them lie the blocks' handles and a [slot](FrameSlot) for each, so that a block
//! that is cached is found without a map. Sequence numbers are held only if one of them is not 0. What it
//! takes is charged for as long as it lives, whoever holds it.
//!
//! Memory for each block, with keys of no pattern: a head of 8 bytes, a handle of 8, a slot of 4, the place of
//! the separator 4 and the separator.
//!
//! Not here: the form in the file, which is searched without being taken apart ([`super::stored`]).

use shamba_key::{LayeredHeads, SeqNo, prefetch_slice};

use super::handle::{Handle, Handles};
use super::separators::{Found, Separators, SeparatorsBuilder};
use super::slot::FrameSlot;
use crate::ledger::Charge;

/// What a partition takes beside what it holds on the heap: itself, and the two counts of those who share it.
const FIXED_BYTES: usize = size_of::<Partition>() + 2 * size_of::<usize>();

/// The separators of consecutive blocks, ascending. Never empty.
#[derive(Debug)]
pub(crate) struct Partition {
    heads: LayeredHeads,
    slots: Box<[FrameSlot]>,
    handles: Handles,
    separators: Separators,
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
            self.separators.prefetch();
        }
        self.separators.find(&self.heads, key, seq)
    }

    pub(super) fn separator(&self, number: usize) -> (&[u8], SeqNo) {
        self.separators.get(number)
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

/// About what a partition of so many blocks takes in memory, of which `stored_bytes` are stored: exact, if its
/// separators carry no numbers and heads tell them apart.
pub(super) fn estimated_bytes(blocks: u32, stored_bytes: u64) -> u64 {
    // Head, slot, handle and end of each against its trailer, key length, handle and offset in the file.
    let (held, stored) = (8 + 4 + 8 + 4, 8 + 1 + 16 + 2);
    let keys = stored_bytes.saturating_sub(u64::from(blocks) * stored + 13); // A frame around it, a header before.
    FIXED_BYTES as u64 + u64::from(blocks) * held + keys
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
        let mut partition = Partition {
            heads: separators.heads(),
            slots: self.handles.iter().map(|_| FrameSlot::new()).collect(),
            handles: Handles::new(&self.handles),
            separators,
            charge,
        };
        let bytes = FIXED_BYTES
            + partition.heads.memory_bytes()
            + size_of_val(&*partition.slots)
            + partition.handles.memory_bytes()
            + partition.separators.memory_bytes();
        partition.charge.resize(bytes as u64);
        partition
    }
}
