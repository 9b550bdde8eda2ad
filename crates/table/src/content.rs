//! The content digest: identifies a set of entries, independent of their files and order.
//!
//! It is the sum, modulo 2^128, of a hash of each entry. So a compaction verifies its outputs: the
//! digest of its inputs minus that of the dropped entries must equal the digest of its outputs,
//! however both are cut into files.

use shamba_key::{EntryKind, SeqNo};
use twox_hash::{XxHash3_64, XxHash3_128};

/// A running digest of entries (key, sequence number, kind, value).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct ContentDigest(u128);

impl ContentDigest {
    /// The digest of no entries.
    pub fn new() -> Self {
        Self::default()
    }

    /// The digest of one entry.
    #[inline]
    pub fn of(key: &[u8], seq: SeqNo, kind: EntryKind, value: &[u8]) -> Self {
        Self(entry_hash(key, seq, kind, value))
    }

    /// The digest without the entries of `other`, which must be among these.
    pub fn without(self, other: Self) -> Self {
        Self(self.0.wrapping_sub(other.0))
    }

    /// Adds one entry.
    pub fn add(&mut self, key: &[u8], seq: SeqNo, kind: EntryKind, value: &[u8]) {
        self.0 = self.0.wrapping_add(entry_hash(key, seq, kind, value));
    }

    /// Adds all entries of another digest.
    pub fn merge(&mut self, other: Self) {
        self.0 = self.0.wrapping_add(other.0);
    }

    /// The digest of one entry whose value comes in pieces: the same as that of the whole value.
    pub fn of_streamed(key: &[u8], seq: SeqNo, kind: EntryKind) -> StreamedEntry {
        StreamedEntry(Box::new(XxHash3_128::with_seed(value_seed(key, seq, kind))))
    }

    /// The 128 bits that are stored.
    pub fn to_u128(self) -> u128 {
        self.0
    }

    /// The digest with these stored bits.
    pub fn from_u128(bits: u128) -> Self {
        Self(bits)
    }
}

/// The unfinished digest of one entry, created by [`ContentDigest::of_streamed`].
pub struct StreamedEntry(Box<XxHash3_128>);

impl StreamedEntry {
    /// Adds the next piece of the value.
    pub fn push(&mut self, piece: &[u8]) {
        self.0.write(piece);
    }

    /// The digest of the entry with the value that was added.
    pub fn finish(self) -> ContentDigest {
        ContentDigest(self.0.finish_128())
    }
}

impl std::fmt::Debug for StreamedEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamedEntry").finish_non_exhaustive()
    }
}

fn entry_hash(key: &[u8], seq: SeqNo, kind: EntryKind, value: &[u8]) -> u128 {
    XxHash3_128::oneshot_with_seed(value_seed(key, seq, kind), value)
}

/// Key and trailer seed the hash of the value, so that bytes cannot move between the fields
/// unnoticed.
pub(crate) fn value_seed(key: &[u8], seq: SeqNo, kind: EntryKind) -> u64 {
    XxHash3_64::oneshot_with_seed(seq.0 << 8 | u64::from(kind.as_byte()), key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_in_pieces_has_the_digest_of_the_whole() {
        let value: Vec<u8> = (0..200_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for bytes in [0, 1, 16, 17, 128, 129, 240, 241, 1_024, 1_025, 65_536, 200_000] {
            let mut whole = ContentDigest::new();
            whole.add(b"key", SeqNo(7), EntryKind::Put, &value[..bytes]);
            for piece_bytes in [1, 255, 256, 1_024, 65_504, 200_000] {
                let mut streamed = ContentDigest::of_streamed(b"key", SeqNo(7), EntryKind::Put);
                value[..bytes].chunks(piece_bytes).for_each(|piece| streamed.push(piece));
                assert_eq!(streamed.finish(), whole, "{bytes} in pieces of {piece_bytes}");
            }
        }
    }

    #[test]
    fn order_and_files_do_not_count_but_every_field_does() {
        let (mut left, mut right, mut both) =
            (ContentDigest::new(), ContentDigest::new(), ContentDigest::new());
        left.add(b"a", SeqNo(1), EntryKind::Put, b"x");
        right.add(b"b", SeqNo(2), EntryKind::Delete, b"");
        both.add(b"b", SeqNo(2), EntryKind::Delete, b"");
        both.add(b"a", SeqNo(1), EntryKind::Put, b"x");
        left.merge(right);
        assert_eq!(left, both);
        assert_eq!(ContentDigest::from_u128(both.to_u128()), both);

        let one = |key: &[u8], seq, kind, value: &[u8]| {
            let mut digest = ContentDigest::new();
            digest.add(key, SeqNo(seq), kind, value);
            digest
        };
        let base = one(b"ab", 1, EntryKind::Put, b"c");
        for other in [
            one(b"a", 1, EntryKind::Put, b"bc"),
            one(b"ab", 2, EntryKind::Put, b"c"),
            one(b"ab", 1, EntryKind::Merge, b"c"),
            one(b"ab", 1, EntryKind::Put, b""),
        ] {
            assert_ne!(base, other);
        }
    }
}
