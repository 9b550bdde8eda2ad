//! Keys, sequence numbers, entry kinds and the one digest of a lookup.
//!
//! The lowest crate: everything above speaks in these types. A user key is a plain `&[u8]` of at most
//! [`MAX_KEY_BYTES`]; what the engine stores is ordered by (user key ascending, [`SeqNo`] descending).
//! A lookup makes one [`KeyDigest`] with [`DigestFn::digest`] and hands it down by value.
//!
//! Not here: filters (crate `shamba-filter`), files (crate `shamba-env`).
#![deny(missing_docs)]

mod digest;
mod kind;
mod prefetch;
mod seqno;

pub use digest::{DigestFn, DigestKind, KeyDigest, hashes_on_this_thread};
pub use kind::EntryKind;
pub use prefetch::prefetch_line;
pub use seqno::SeqNo;

/// The longest key, in bytes.
pub const MAX_KEY_BYTES: usize = 65_535;
/// The longest value, in bytes.
pub const MAX_VALUE_BYTES: usize = 256 << 20;

/// The first eight bytes of `key` as a big-endian number, zero-padded: `head(a) < head(b)` implies `a < b`,
/// and a tie decides nothing.
#[inline]
pub fn head(key: &[u8]) -> u64 {
    if let Some(first) = key.first_chunk::<8>() {
        return u64::from_be_bytes(*first);
    }
    let mut bytes = [0u8; 8];
    bytes[..key.len()].copy_from_slice(key);
    u64::from_be_bytes(bytes)
}
