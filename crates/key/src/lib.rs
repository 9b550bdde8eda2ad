//! Keys, sequence numbers, entry kinds and the one digest of a lookup.
//!
//! The lowest crate: everything above speaks in these types. A user key is a plain `&[u8]` of at most
//! [`MAX_KEY_BYTES`]; what the engine stores is ordered by (user key ascending, [`SeqNo`] descending).
//! A lookup makes one [`KeyDigest`] with [`DigestFn::digest`] and hands it down by value.
//!
//! Not here: filters (crate `shamba-filter`), files (crate `shamba-env`).
#![deny(missing_docs)]

mod digest;
mod heads;
mod kind;
pub mod planted;
mod prefetch;
mod seqno;

pub use digest::{DigestFn, DigestKind, KeyDigest, hashes_on_this_thread};
pub use heads::LayeredHeads;
pub use kind::EntryKind;
pub use prefetch::{prefetch_address, prefetch_line, prefetch_slice};
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_order_as_keys_do() {
        let mut keys: Vec<Vec<u8>> =
            vec![b"".into(), b"\0".into(), b"\0\0".into(), vec![255; 7], vec![255; 9]];
        for text in ["a", "a\0", "ab", "abcdefg", "abcdefgh", "abcdefghi", "abcdefgi", "b", "\u{80}"] {
            keys.push(text.into());
        }
        let mut ties = 0;
        for a in &keys {
            for b in &keys {
                if head(a) < head(b) {
                    assert!(a < b, "{a:?} {b:?}");
                }
                ties += u32::from(a != b && head(a) == head(b));
            }
        }
        assert!(ties > 0, "ties are part of the contract, so the keys must show one");
        assert_eq!(head(b"ab"), 0x6162_0000_0000_0000);
        assert_eq!(head(b"abcdefghi"), 0x6162_6364_6566_6768);
    }

    #[test]
    fn prefetching_is_harmless_wherever_it_points() {
        let bytes = [1, 2, 3];
        for offset in [0, 2, 3, usize::MAX] {
            prefetch_line(&bytes, offset);
        }
        prefetch_line(&[], 0);
        assert_eq!(bytes, [1, 2, 3]);
    }
}
