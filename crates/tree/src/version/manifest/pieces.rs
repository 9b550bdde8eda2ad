//! A record under construction that shares its long keys instead of copying them.
//!
//! An edit names each table by up to four keys, and a snapshot names all tables. Keys may have 64
//! KiB, so a record of copies could temporarily need several times the memory of the tables' own
//! metadata. Only short fields are copied, one after the other. A long key is shared, and the
//! record stores its position among the copied bytes.
//!
//! Not here: the encoding ([`super::codec`]), the frames ([`shamba_log::framing`]).

use bytes::Bytes;

use shamba_log::framing::codec::put_varint;

/// Shorter keys are copied: a shared entry takes about as much memory.
const SHARED_FROM_BYTES: usize = 256;

/// A byte sequence of copied and shared pieces.
#[derive(Debug, Default)]
pub struct Pieces {
    /// The copied bytes.
    pub short: Vec<u8>,
    /// Long keys, each with the index in `short` before which it stands; in ascending order.
    long: Vec<(usize, Bytes)>,
    long_bytes: usize,
}

impl Pieces {
    /// Length of the record.
    pub fn len(&self) -> usize {
        self.short.len() + self.long_bytes
    }

    /// Appends the length of a key as a varint, then the key.
    pub fn put_key(&mut self, key: &Bytes) {
        put_varint(&mut self.short, key.len() as u64);
        if key.len() < SHARED_FROM_BYTES {
            self.short.extend_from_slice(key);
        } else {
            self.long.push((self.short.len(), key.clone()));
            self.long_bytes += key.len();
        }
    }

    /// Appends a field: its tag, the length of the body that `fill` writes as a varint, and the
    /// body.
    pub fn put_field(&mut self, tag: u8, fill: impl FnOnce(&mut Self)) {
        let mut body = Self::default();
        fill(&mut body);
        self.short.push(tag);
        self.put_prefixed(body);
    }

    /// Appends the length of another record as a varint, then that record.
    pub fn put_prefixed(&mut self, other: Self) {
        put_varint(&mut self.short, other.len() as u64);
        let moved = self.short.len();
        self.short.extend_from_slice(&other.short);
        self.long.extend(other.long.into_iter().map(|(at, key)| (at + moved, key)));
        self.long_bytes += other.long_bytes;
        debug_assert!(
            self.long.is_sorted_by_key(|(at, _)| *at),
            "the long keys of a record are not in the order of their places"
        );
    }

    /// The record's bytes, as consecutive parts.
    pub fn parts(&self) -> Vec<&[u8]> {
        let mut parts = Vec::with_capacity(2 * self.long.len() + 1);
        let mut from = 0;
        for (at, key) in &self.long {
            parts.push(self.short.get(from..*at).unwrap_or_default());
            parts.push(key);
            from = *at;
        }
        parts.push(self.short.get(from..).unwrap_or_default());
        debug_assert_eq!(
            parts.iter().map(|part| part.len()).sum::<usize>(),
            self.len(),
            "the parts of a record have another length than the record"
        );
        parts
    }
}
