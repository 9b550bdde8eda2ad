//! Keys, sequence numbers, entry kinds and the one digest of a lookup.
//!
//! This is the lowest crate; all others use its types. A user key is a plain `&[u8]` of at most
//! [`MAX_KEY_BYTES`]; the engine stores entries ordered by (user key ascending, [`SeqNo`]
//! descending). A lookup computes one [`KeyDigest`] with [`DigestFn::digest`] and passes it down by
//! value.
//!
//! Not here: filters (crate `shamba-filter`), files (crate `shamba-env`).
#![deny(missing_docs)]

// No other targets are tested: arrays of atomics, the vector probes and the sizes of blocks and
// values assume this one.
#[cfg(not(all(target_pointer_width = "64", target_endian = "little")))]
compile_error!(
    "Shamba supports 64-bit little-endian targets only (such as x86-64 and aarch64): no test covers this target"
);

mod digest;
mod expiry;
mod heads;
mod ids;
mod kind;
mod operand;
mod order;
mod prefetch;
mod prefix;
mod seqno;

pub use digest::{DigestFn, DigestKind, KeyDigest, hashes_on_this_thread};
pub use expiry::Expiry;
pub use heads::LayeredHeads;
pub use ids::{Age, KeyspaceId, LogNo, RunId};
pub use kind::EntryKind;
pub use operand::{MAX_OPERAND_BYTES, Operand};
pub use order::internal_cmp;
pub use prefetch::{prefetch_address, prefetch_line, prefetch_slice};
pub use prefix::Prefix;
pub use seqno::SeqNo;

/// Maximum key length in bytes.
pub const MAX_KEY_BYTES: usize = 65_535;
/// Maximum value length in bytes.
pub const MAX_VALUE_BYTES: usize = 256 << 20;

/// The first eight bytes of `key` as a big-endian number, zero-padded: an abbreviated key. `head(a)
/// < head(b)` implies `a < b`; equal heads say nothing about the order. The heads of
/// [`LayeredHeads`] are different: seven bytes and a length.
#[inline]
pub fn head(key: &[u8]) -> u64 {
    if let Some(first) = key.first_chunk::<8>() {
        return u64::from_be_bytes(*first);
    }
    let mut bytes = [0u8; 8];
    bytes[..key.len()].copy_from_slice(key);
    u64::from_be_bytes(bytes)
}

/// Whether two keys of any length are equal. In most cases their last bytes decide, without a call.
#[inline(always)]
pub fn is_same_key(a: &[u8], b: &[u8]) -> bool {
    match (a.last_chunk::<8>(), b.last_chunk::<8>()) {
        (Some(a_last), Some(b_last)) if a_last != b_last => false,
        _ => a == b,
    }
}

/// The leading pieces of `N` bytes of `bytes`, and the remainder (fewer than `N` bytes). `N` must
/// not be 0.
#[inline(always)]
pub fn chunks<const N: usize>(bytes: &[u8]) -> (impl ExactSizeIterator<Item = &[u8; N]>, &[u8]) {
    // `<[u8]>::as_chunks` does the same from Rust 1.88 on.
    let whole = bytes.chunks_exact(N);
    let rest = whole.remainder();
    // Each piece has `N` bytes, so the default is never taken, and the compiler sees that.
    (whole.map(|piece| piece.first_chunk().unwrap_or(&[0; N])), rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_the_same_if_all_their_bytes_are() {
        let keys: [&[u8]; 10] = [
            b"",
            b"a",
            b"b",
            b"abcdefg",
            b"abcdefgh",
            b"abcdefgi",
            b"xbcdefgh",
            b"xabcdefgh",
            b"yabcdefgh",
            b"abcdefgha",
        ];
        for a in keys {
            for b in keys {
                assert_eq!(is_same_key(a, b), a == b, "{a:?} and {b:?}");
            }
        }
    }

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
    fn chunks_are_the_whole_pieces_and_the_rest() {
        let bytes: Vec<u8> = (0..21).collect();
        for length in 0..bytes.len() {
            let (pieces, rest) = chunks::<4>(&bytes[..length]);
            assert_eq!((pieces.len(), rest.len()), (length / 4, length % 4));
            let joined: Vec<u8> = pieces.flatten().chain(rest).copied().collect();
            assert_eq!(joined, bytes[..length]);
        }
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
