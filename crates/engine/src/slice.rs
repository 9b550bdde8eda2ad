//! The bytes that reads hand out: [`Slice`], cheap to clone, free of the database's life.
//!
//! A slice either owns its bytes or shares a larger buffer (a cached block, a memtable's value). Sharing
//! saves a copy but keeps the whole buffer alive, so only values that are large share; small ones are
//! copied ([`Slice::from_bytes`]).

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;

use bytes::Bytes;

/// Values up to this long are copied out of the block that holds them. A block is 4 KiB: a slice that
/// pinned one for less would hold at least four times what it shows, while copying a kilobyte costs some
/// tens of nanoseconds, no more than the reference count and the promotion that sharing needs.
const COPY_UP_TO_BYTES: usize = 1024;

/// A key or value that a read returned. Dereferences to `[u8]`; a clone shares the bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Slice(Bytes);

impl Slice {
    /// A slice with its own copy of `bytes`.
    pub fn copied(bytes: &[u8]) -> Self {
        Self(Bytes::copy_from_slice(bytes))
    }

    /// A slice of `bytes`: a copy when they are few, so that they do not keep a whole block alive; shared
    /// otherwise.
    pub fn from_bytes(bytes: Bytes) -> Self {
        if bytes.len() <= COPY_UP_TO_BYTES { Self::copied(&bytes) } else { Self(bytes) }
    }

    /// The bytes as a vector; copies only if they are shared.
    pub fn into_vec(self) -> Vec<u8> {
        self.0.into()
    }

    /// The bytes, to be shared further.
    pub fn into_bytes(self) -> Bytes {
        self.0
    }
}

impl Deref for Slice {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Borrow<[u8]> for Slice {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for Slice {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

impl From<&[u8]> for Slice {
    fn from(bytes: &[u8]) -> Self {
        Self::copied(bytes)
    }
}

impl From<&str> for Slice {
    fn from(text: &str) -> Self {
        Self::copied(text.as_bytes())
    }
}

impl From<Slice> for Vec<u8> {
    fn from(slice: Slice) -> Self {
        slice.into_vec()
    }
}

impl PartialEq<[u8]> for Slice {
    fn eq(&self, other: &[u8]) -> bool {
        **self == *other
    }
}

impl PartialEq<&[u8]> for Slice {
    fn eq(&self, other: &&[u8]) -> bool {
        **self == **other
    }
}

impl<const N: usize> PartialEq<&[u8; N]> for Slice {
    fn eq(&self, other: &&[u8; N]) -> bool {
        **self == other[..]
    }
}

impl PartialEq<str> for Slice {
    fn eq(&self, other: &str) -> bool {
        **self == *other.as_bytes()
    }
}

impl PartialEq<&str> for Slice {
    fn eq(&self, other: &&str) -> bool {
        **self == *other.as_bytes()
    }
}

/// Text with escapes: `b"user:1\x00"`.
impl fmt::Debug for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.0.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_values_leave_their_block_and_large_ones_share_it() {
        let block = Bytes::from(vec![7u8; 4096]);
        let small = Slice::from_bytes(block.slice(..COPY_UP_TO_BYTES));
        let large = Slice::from_bytes(block.slice(..COPY_UP_TO_BYTES + 1));
        assert_ne!(small.as_ptr(), block.as_ptr());
        assert_eq!(large.as_ptr(), block.as_ptr());
        assert_eq!(small[..], block[..COPY_UP_TO_BYTES]);
        assert_eq!(large.into_vec(), vec![7u8; COPY_UP_TO_BYTES + 1]);
    }

    #[test]
    fn debug_escapes_and_comparisons_see_plain_bytes() {
        let slice = Slice::copied(b"a\x00\"\xff");
        assert_eq!(format!("{slice:?}"), r#"b"a\x00\"\xff""#);
        assert_eq!(Slice::from("k"), "k");
        assert_eq!(Slice::from(vec![1, 2]), &[1, 2]);
        assert!([Slice::from("a"), Slice::from("b\0"), Slice::from("b\x01")].is_sorted());
    }
}
