//! Short pieces of keys: compared, copied and read without a function call.
//!
//! Not here: the places of the pieces ([`super::tagged`]).

use shamba_key::chunks;

/// Bytes copied at once, whatever the length of the piece.
pub(super) const CHUNK_BYTES: usize = 16;

/// Whether `key` consists of these three pieces. Compares the suffix first: it differs for most
/// false tag matches.
#[inline(always)]
pub(super) fn is_of(key: &[u8], common: &[u8], prefix: &[u8], suffix: &[u8]) -> bool {
    if key.len() != common.len() + prefix.len() + suffix.len() {
        return false;
    }
    let Some((start, end)) = key.split_at_checked(common.len() + prefix.len()) else {
        return false;
    };
    let Some((start, middle)) = start.split_at_checked(common.len()) else {
        return false;
    };
    is_same(end, suffix) && is_same(start, common) && is_same(middle, prefix)
}

/// Whether two pieces of equal length are equal. They are short, often empty: a call of `memcmp`
/// costs more (in some implementations, for an empty slice at a dangling address, as much as a
/// whole search).
#[inline(always)]
pub(super) fn is_same(a: &[u8], b: &[u8]) -> bool {
    if let (Some(a_last), Some(b_last)) = (a.last_chunk::<8>(), b.last_chunk::<8>()) {
        // The last word covers the bytes after the whole words; it may overlap them.
        let differs = |(a, b): (&[u8; 8], &[u8; 8])| u64::from_ne_bytes(*a) != u64::from_ne_bytes(*b);
        return a_last == b_last && !chunks(a).0.zip(chunks(b).0).any(differs);
    }
    a.len() == b.len() && !a.iter().zip(b).any(|(a, b)| a != b)
}

/// The chunk at `at`, if `length` fits into a chunk and the whole chunk exists: copied without a
/// call.
#[inline(always)]
pub(super) fn chunk_at(bytes: &[u8], at: usize, length: usize) -> Option<[u8; CHUNK_BYTES]> {
    if length > CHUNK_BYTES {
        return None;
    }
    bytes.get(at..)?.first_chunk().copied()
}

/// Appends the first `length` bytes of a chunk.
#[inline(always)]
pub(super) fn append_part(keys: &mut Vec<u8>, chunk: [u8; CHUNK_BYTES], length: usize) {
    let end = keys.len() + length;
    debug_assert!(length <= CHUNK_BYTES, "{length} bytes of a chunk of {CHUNK_BYTES}");
    keys.extend_from_slice(&chunk);
    keys.truncate(end);
}

/// As [`super::tagged::Tagged::number`], where fewer than eight bytes follow.
#[cold]
pub(super) fn number_near_the_end(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    let found = bytes.get(at..)?.get(..width)?;
    let mut word = [0; 8];
    word.get_mut(..width)?.copy_from_slice(found);
    Some(u64::from_le_bytes(word))
}
