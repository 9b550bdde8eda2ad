//! [`Slice`]: the bytes that reads return. It is cheap to clone and does not keep the database
//! open.
//!
//! A slice holds few bytes inline, owns a buffer, or shares a larger one (a cached block, a
//! memtable's value). Sharing saves a copy but keeps the whole buffer alive, so only large values
//! are shared. The wrapped [`shamba_table::Value`] decides.

use std::borrow::Borrow;
use std::fmt;
use std::ops::{Deref, Range};

use bytes::Bytes;
use shamba_table::Value;

/// A key or value that a read returned. Dereferences to `[u8]`; a clone shares the bytes, or copies
/// them if they are few.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Slice(Value);

impl Slice {
    /// A slice with its own copy of `bytes`.
    pub fn copied(bytes: &[u8]) -> Self {
        Self(Value::copy_of(bytes))
    }

    /// A slice with its own copy of part of a buffer; empty if the range exceeds it.
    #[inline(always)]
    pub(crate) fn copied_part(buffer: &[u8], part: Range<usize>) -> Self {
        Self(Value::copy_of_part(buffer, part))
    }

    /// A slice of part of a buffer: a copy when it is short, so that it does not keep a whole block
    /// alive, and shared otherwise.
    pub fn from_bytes(bytes: Bytes) -> Self {
        Self(Value::of_part(bytes))
    }

    /// Wraps the value that a lookup found.
    #[inline]
    pub fn from_value(value: Value) -> Self {
        Self(value)
    }

    /// The bytes as a vector. Copies only if they are inline or shared.
    pub fn into_vec(self) -> Vec<u8> {
        self.0.into_vec()
    }

    /// The bytes as a shareable buffer.
    pub fn into_bytes(self) -> Bytes {
        self.0.into_bytes()
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

/// As [`Slice::from_bytes`].
impl From<Bytes> for Slice {
    fn from(bytes: Bytes) -> Self {
        Self::from_bytes(bytes)
    }
}

/// As [`Slice::into_bytes`].
impl From<Slice> for Bytes {
    fn from(slice: Slice) -> Self {
        slice.into_bytes()
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
    fn debug_escapes_and_comparisons_see_plain_bytes() {
        let slice = Slice::copied(b"a\x00\"\xff");
        assert_eq!(format!("{slice:?}"), r#"b"a\x00\"\xff""#);
        assert_eq!(Slice::from("k"), "k");
        assert_eq!(Slice::from(vec![1, 2]), &[1, 2]);
        assert!([Slice::from("a"), Slice::from("b\0"), Slice::from("b\x01")].is_sorted());
    }
}
