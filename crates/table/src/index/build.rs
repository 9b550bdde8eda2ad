//! Builder of the stored index: short separators, partitions, the top level.
//!
//! Not here: the form in memory ([`super::partition`]).

use shamba_key::{EntryKind, SeqNo, internal_cmp};

use super::handle::{HANDLE_BYTES, Handle};
use super::stored::{Bounds, StoredPartition};
use crate::block::BlockBuilder;
use crate::block::frame::FRAME_BYTES;
use crate::format::partitions::PartitionSummary;
use crate::{Error, Result};

/// Maximum size of a partition of several separators, frame included: one page, the unit of
/// residency.
const PARTITION_BYTES: usize = 4_096;
const _: () = assert!(PARTITION_BYTES > FRAME_BYTES + HANDLE_BYTES, "a partition has room for a separator");

/// The shortest key `s` with `last <= s < next`.
pub(crate) fn separator<'a>(last: &'a [u8], next: &'a [u8], made: &'a mut Vec<u8>) -> &'a [u8] {
    debug_assert!(last < next);
    let common = last.iter().zip(next).take_while(|(a, b)| a == b).count();
    let Some(last_byte) = last.get(common) else {
        // `last` is a prefix of `next`.
        return last;
    };
    match next.get(..=common) {
        Some(short) if short.len() < next.len() => short,
        Some([.., next_byte]) if last_byte + 1 < *next_byte => {
            made.clear();
            made.extend_from_slice(&last[..common]);
            made.push(last_byte + 1);
            made
        }
        _ => last,
    }
}

/// Keys longer than this get a shorter separator at the end of a table: it stays in memory, and a
/// few bytes suffice.
const LAST_BYTES_MAX: usize = 64;

/// A separator for the last block of a table, whose last key is `last`: that key or, if it is long,
/// a short key after it.
pub(crate) fn last_separator<'a>(last: &'a [u8], made: &'a mut Vec<u8>) -> &'a [u8] {
    let start = last.get(..LAST_BYTES_MAX).unwrap_or_default();
    debug_assert!(
        last.len() <= LAST_BYTES_MAX || start.len() == LAST_BYTES_MAX,
        "{} of {} bytes are compared",
        start.len(),
        last.len()
    );
    match start.iter().rposition(|byte| *byte < u8::MAX) {
        Some(at) if last.len() > LAST_BYTES_MAX => {
            made.clear();
            made.extend_from_slice(&start[..at]);
            made.push(start[at] + 1);
            made
        }
        _ => last,
    }
}

/// An index whose partitions were written.
pub(crate) struct WrittenIndex {
    /// Payload of the top level.
    pub(crate) top: Vec<u8>,
    /// One for each partition.
    pub(crate) summaries: Vec<PartitionSummary>,
    /// Total length of the last separators of the partitions.
    pub(crate) lasts_bytes: usize,
}

/// Maximum memory that an open table holds for a partition which is not resident, besides its last
/// separator: its entries in the lists of the top level, its cell, and its heads.
const ABSENT_PARTITION_BYTES: usize = 192;
/// Maximum copies of each byte of the last separators: one in the separators, and at most one in
/// the prefixes of their heads.
const LASTS_TIMES: usize = 2;
/// Memory that an open table holds for a block: its slot if partitions are cached, and its part of
/// a hint.
const BLOCK_BYTES: usize = 5;

impl WrittenIndex {
    /// Maximum memory of the index of an open table none of whose partitions is resident, for this
    /// number of blocks.
    pub(crate) fn open_bytes(&self, blocks: u64) -> usize {
        LASTS_TIMES * self.lasts_bytes
            + ABSENT_PARTITION_BYTES * self.summaries.len()
            + BLOCK_BYTES * blocks as usize
    }
}

/// Collects separators into partitions.
#[derive(Default)]
pub(crate) struct IndexBuilder {
    open: BlockBuilder,
    last: (Vec<u8>, SeqNo),
    /// Finished partitions: last separator, payload, number of separators.
    partitions: Vec<(Vec<u8>, SeqNo, Vec<u8>, u32)>,
    finished_bytes: usize,
}

impl IndexBuilder {
    pub(crate) fn push(&mut self, key: &[u8], seq: SeqNo, handle: Handle) {
        let with = self.open.payload_bytes_with(key.len(), HANDLE_BYTES);
        debug_assert!(
            self.open.is_empty() && self.partitions.is_empty()
                || internal_cmp(&self.last.0, self.last.1, key, seq).is_lt(),
            "the separator \"{}\" does not come after the last one",
            key.escape_ascii()
        );
        debug_assert!(handle.entries > 0, "the block at {} has no entries", handle.offset);
        if !self.open.is_empty() && with + FRAME_BYTES > PARTITION_BYTES {
            self.cut();
        }
        self.open.push(key, seq, EntryKind::Put, &handle.encode());
        self.last.0.clear();
        self.last.0.extend_from_slice(key);
        self.last.1 = seq;
    }

    /// Approximate bytes of the index in the file.
    pub(crate) fn bytes(&self) -> usize {
        self.finished_bytes + self.open.payload_bytes()
    }

    fn cut(&mut self) {
        let separators = self.open.len() as u32;
        assert!(separators > 0, "a partition without separators is cut");
        let payload = self.open.finish();
        self.finished_bytes += payload.len() + FRAME_BYTES;
        self.partitions.push((self.last.0.clone(), self.last.1, payload, separators));
    }

    /// Checks every partition and writes it with `write`, which returns the frame's place. The
    /// first block is at `data_start` or after it.
    pub(crate) fn finish(
        mut self,
        data_start: u64,
        mut write: impl FnMut(&[u8]) -> Result<(u64, u32)>,
    ) -> Result<WrittenIndex> {
        if !self.open.is_empty() {
            self.cut();
        }
        let mut top = BlockBuilder::new();
        let count = self.partitions.len();
        let mut summaries: Vec<PartitionSummary> = Vec::with_capacity(count);
        let mut before: Option<(Vec<u8>, SeqNo)> = None;
        let mut lasts_bytes = 0;
        for (key, seq, payload, separators) in self.partitions {
            let bounds = Bounds {
                separators,
                start: summaries.last().map_or(data_start, |last| last.blocks_end),
                end: u64::MAX,
                is_end_known: false,
                after: before.as_ref().map(|(key, seq)| (key.as_slice(), *seq)),
                last: (&key, seq),
            };
            let checked = StoredPartition::view(&payload, separators).and_then(|view| view.check(&bounds));
            let checked = checked
                .map_err(|detail| Error::Invalid(format!("an index partition to be written: {detail}")))?;
            summaries.push(checked.summary);
            let (offset, bytes) = write(&payload)?;
            let handle = Handle { offset, bytes, entries: separators };
            top.push(&key, seq, EntryKind::Put, &handle.encode());
            lasts_bytes += key.len();
            before = Some((key, seq));
        }
        assert_eq!(top.len(), count, "the top level lists another number of partitions than were written");
        Ok(WrittenIndex { top: top.finish(), summaries, lasts_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_separator_is_short_and_not_before_the_last_key() {
        let mut made = Vec::new();
        for (last, expected_bytes) in [
            (vec![b'a'; LAST_BYTES_MAX], LAST_BYTES_MAX),
            (vec![b'a'; LAST_BYTES_MAX + 1], LAST_BYTES_MAX),
            ([&[7; 3][..], &[0xff; 65_532]].concat(), 3),
            (vec![0xff; 65_535], 65_535),
            (Vec::new(), 0),
        ] {
            let found = last_separator(&last, &mut made);
            assert_eq!(found.len(), expected_bytes);
            assert!(*last <= *found);
        }
    }

    #[test]
    fn separators_lie_between_and_are_short() {
        let mut made = Vec::new();
        for (last, next, expected) in [
            (&b"abcdef"[..], &b"abzzzz"[..], &b"abz"[..]),
            (b"abcdef", b"abf", b"abd"),
            (b"abcdef", b"abd", b"abcdef"),
            (b"abc", b"abcdef", b"abc"),
            (b"", b"a", b""),
            (b"a\xff", b"b", b"a\xff"),
            (b"a\xfe", b"c\x00", b"c"),
        ] {
            let found = separator(last, next, &mut made);
            assert_eq!(found, expected, "{last:?} {next:?}");
            assert!(last <= found && found < next);
        }
    }
}
