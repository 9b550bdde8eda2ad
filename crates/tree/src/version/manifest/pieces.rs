//! A record in the making that shares its long keys instead of copying them.
//!
//! An edit names each table by four keys, and a snapshot names all tables. Keys may have 64 KiB: a record of copies
//! would for a moment take many times what the tables themselves take. So only short things are copied, one after the
//! other; a long key stays where it is, and the record knows before which byte it comes.
//!
//! Not here: what a record says ([`super::codec`]), its frames ([`crate::log`]).

use bytes::Bytes;

use shamba_log::framing::codec::put_varint;

/// Shorter keys are copied: a place of its own takes about as much.
const SHARED_FROM_BYTES: usize = 256;

/// Bytes, some of them shared.
#[derive(Debug, Default)]
pub struct Pieces {
    /// What is copied.
    pub short: Vec<u8>,
    /// Long keys, and before which byte of `short` each stands; ascending.
    long: Vec<(usize, Bytes)>,
    long_bytes: usize,
}

impl Pieces {
    /// How long the record is.
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

    /// Appends the length of another record as a varint, then that record.
    pub fn put_prefixed(&mut self, other: Self) {
        put_varint(&mut self.short, other.len() as u64);
        let moved = self.short.len();
        self.short.extend_from_slice(&other.short);
        self.long.extend(other.long.into_iter().map(|(at, key)| (at + moved, key)));
        self.long_bytes += other.long_bytes;
    }

    /// The record's bytes, in parts.
    pub fn parts(&self) -> Vec<&[u8]> {
        let mut parts = Vec::with_capacity(2 * self.long.len() + 1);
        let mut from = 0;
        for (at, key) in &self.long {
            parts.push(self.short.get(from..*at).unwrap_or_default());
            parts.push(key);
            from = *at;
        }
        parts.push(self.short.get(from..).unwrap_or_default());
        parts
    }
}
