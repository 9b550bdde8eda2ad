//! The bytes of one value, independent of the block that they came from: inline, in a buffer, or
//! part of a buffer.
//!
//! Short values are stored in the [`Value`] itself, without an allocation. A value of up to
//! [`COPY_UP_TO_BYTES`] that is part of a larger buffer (a block) is copied out of it, because
//! sharing keeps the whole buffer alive; a longer one shares it, and so do its clones. The
//! thresholds are measured: `docs/decisions/0006-values.md`.
//!
//! Not here: the slice that callers of the database see (package `shamba`), which adds conversions.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::{Deref, Range};

use bytes::Bytes;

use crate::cache::{FramePin, PinnedBlock};

/// Maximum length of an inline value. With it a value takes 40 bytes, a quarter more than a shared
/// buffer alone would.
pub const INLINE_BYTES: usize = 31;
const _: () = assert!(INLINE_BYTES <= u8::MAX as usize, "the length of an inline value has one byte");

/// Maximum length of a value that is copied out of a larger buffer. A block is 4 KiB: a shorter
/// value that kept it alive would hold at least four times its length in memory. Copying a kilobyte
/// costs tens of nanoseconds, no more than the reference count that sharing needs.
pub const COPY_UP_TO_BYTES: usize = 1024;
const _: () = assert!(COPY_UP_TO_BYTES >= INLINE_BYTES, "an inline value is a copy");

/// The bytes of a value. Dereferences to `[u8]`; a clone shares the buffer or copies at most
/// [`COPY_UP_TO_BYTES`].
#[derive(Clone)]
pub struct Value(Repr);

/// The tag takes a word, so that all forms are moved by whole words. A tag of one byte, with seven
/// more bytes inline after it, is moved apart from the 39 bytes after it, by loads that do not fit
/// the stores of a value just written. Each move then waits until the stores have left the
/// processor's queue: an entry of an iterator took 69 ns instead of 41.
#[derive(Clone)]
#[repr(u64)]
enum Repr {
    /// The first `len` of `bytes`.
    Inline { bytes: [u8; INLINE_BYTES], len: u8 },
    /// A buffer of its own, of at most [`COPY_UP_TO_BYTES`].
    Own(Box<[u8]>),
    /// A buffer, or part of one.
    Shared(Bytes),
    /// Part of a cached block, which is not evicted meanwhile.
    Pinned(FramePin),
}

impl Value {
    /// A value with its own copy of `bytes`.
    #[inline]
    pub fn copy_of(bytes: &[u8]) -> Self {
        match Self::inline(bytes) {
            Some(value) => value,
            None if bytes.len() <= COPY_UP_TO_BYTES => Self(Repr::Own(bytes.into())),
            None => Self(Repr::Shared(Bytes::copy_from_slice(bytes))),
        }
    }

    /// A value with its own copy of part of a buffer; empty if the range exceeds it. Cheaper than
    /// [`Self::copy_of`] for a short part that at least [`INLINE_BYTES`] of the buffer follow: its
    /// length is then known when the code is compiled, and no function is called.
    #[inline(always)]
    pub fn copy_of_part(buffer: &[u8], part: Range<usize>) -> Self {
        let window = buffer.get(part.start..).and_then(<[u8]>::first_chunk::<INLINE_BYTES>);
        match (part.end.checked_sub(part.start), window) {
            // The bytes after `len` are never read.
            (Some(len @ 0..=INLINE_BYTES), Some(window)) => {
                Self(Repr::Inline { len: len as u8, bytes: *window })
            }
            _ => Self::copy_of_any_part(buffer, part),
        }
    }

    #[inline(never)]
    fn copy_of_any_part(buffer: &[u8], part: Range<usize>) -> Self {
        Self::copy_of(buffer.get(part).unwrap_or_default())
    }

    /// A value that takes over a buffer: shared, unless it is short enough to be inline.
    #[inline]
    pub fn from_bytes(bytes: Bytes) -> Self {
        Self::inline(&bytes).unwrap_or(Self(Repr::Shared(bytes)))
    }

    /// A value that is part of a larger buffer: a copy when it is short, so that it does not keep
    /// the whole buffer alive; shared otherwise.
    #[inline]
    pub fn of_part(bytes: Bytes) -> Self {
        if bytes.len() <= COPY_UP_TO_BYTES { Self::copy_of(&bytes) } else { Self(Repr::Shared(bytes)) }
    }

    /// A value that is part of a pinned block; `None` if the range exceeds it. Shared, however
    /// short.
    pub(crate) fn from_pin(block: PinnedBlock, range: Range<usize>) -> Option<Self> {
        debug_assert!(range.start <= range.end, "the part {range:?} of a block");
        match block {
            PinnedBlock::Frame(pin) => pin.narrow(range).map(|pin| Self(Repr::Pinned(pin))),
            PinnedBlock::Heap(bytes) if bytes.get(range.clone()).is_some() => {
                Some(Self(Repr::Shared(bytes.slice(range))))
            }
            PinnedBlock::Heap(_) => None,
        }
    }

    /// The value without its first `count` bytes; empty if it has no more.
    #[must_use]
    pub fn without_start(self, count: usize) -> Self {
        let range = count.min(self.len())..self.len();
        match self.0 {
            Repr::Inline { .. } | Repr::Own(_) => Self::copy_of(&self[range]),
            Repr::Shared(bytes) => Self::from_bytes(bytes.slice(range)),
            Repr::Pinned(pin) => pin.narrow(range).map(|pin| Self(Repr::Pinned(pin))).unwrap_or_default(),
        }
    }

    /// The bytes as a vector; copies only if they are inline or shared.
    pub fn into_vec(self) -> Vec<u8> {
        match self.0 {
            Repr::Inline { .. } | Repr::Pinned(_) => self.to_vec(),
            Repr::Own(bytes) => bytes.into(),
            Repr::Shared(bytes) => bytes.into(),
        }
    }

    /// The bytes, in a shareable form.
    pub fn into_bytes(self) -> Bytes {
        match self.0 {
            Repr::Inline { .. } => Bytes::copy_from_slice(&self),
            Repr::Own(bytes) => bytes.into(),
            Repr::Shared(bytes) => bytes,
            Repr::Pinned(pin) => Bytes::from_owner(pin),
        }
    }

    #[inline]
    fn inline(source: &[u8]) -> Option<Self> {
        let mut bytes = [0; INLINE_BYTES];
        bytes.get_mut(..source.len())?.copy_from_slice(source);
        Some(Self(Repr::Inline { bytes, len: source.len() as u8 }))
    }
}

impl Deref for Value {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Repr::Own(bytes) => bytes,
            Repr::Shared(bytes) => bytes,
            Repr::Pinned(pin) => pin,
        }
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Default for Value {
    fn default() -> Self {
        Self(Repr::Inline { len: 0, bytes: [0; INLINE_BYTES] })
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Self::from_bytes(bytes.into())
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Value {}

impl PartialEq<[u8]> for Value {
    fn eq(&self, other: &[u8]) -> bool {
        **self == *other
    }
}

impl PartialEq<Vec<u8>> for Value {
    fn eq(&self, other: &Vec<u8>) -> bool {
        **self == **other
    }
}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Value {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_ref().cmp(other.as_ref())
    }
}

/// The same hash as that of the bytes, so that a map with values as keys can be searched with a
/// slice.
impl Hash for Value {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_ref().hash(state);
    }
}

/// Text with escapes: `b"user:1\x00"`.
impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_reads_back_whatever_it_was_made_from() {
        let block = Bytes::from((0..4096).map(|at| (at * 7 + at / 256) as u8).collect::<Vec<u8>>());
        for length in (0..100).chain([COPY_UP_TO_BYTES - 1, COPY_UP_TO_BYTES, COPY_UP_TO_BYTES + 1, 4000]) {
            let part = block.slice(11..11 + length);
            for value in
                [Value::copy_of(&part), Value::from_bytes(part.clone()), Value::of_part(part.clone())]
            {
                assert_eq!(value[..], part[..]);
                assert_eq!(value.clone(), value);
                assert_eq!(value.clone().into_vec(), part[..]);
                assert_eq!(value.into_bytes(), part);
            }
        }
        assert_eq!((size_of::<Value>(), size_of::<Option<Value>>()), (40, 40));
    }

    #[test]
    fn short_values_leave_their_buffer_and_long_ones_share_it() {
        let block = Bytes::from(vec![7u8; 4096]);
        let shares = |value: Value| value.as_ptr() == block.as_ptr();
        assert!(!shares(Value::from_bytes(block.slice(..INLINE_BYTES))));
        assert!(shares(Value::from_bytes(block.slice(..INLINE_BYTES + 1))));
        assert!(!shares(Value::of_part(block.slice(..COPY_UP_TO_BYTES))));
        assert!(shares(Value::of_part(block.slice(..COPY_UP_TO_BYTES + 1))));
    }

    #[test]
    fn order_and_hash_are_those_of_the_bytes() {
        let hash = |bytes: &dyn Fn(&mut std::hash::DefaultHasher)| {
            let mut hasher = std::hash::DefaultHasher::new();
            bytes(&mut hasher);
            hasher.finish()
        };
        let long = [9u8; 50];
        for bytes in [&b""[..], b"a", b"a\0", &long] {
            let value = Value::copy_of(bytes);
            assert_eq!(hash(&|hasher| value.hash(hasher)), hash(&|hasher| bytes.hash(hasher)));
        }
        let sorted = [&b""[..], &long, b"a", b"a\0", b"b"].map(Value::copy_of);
        assert!(sorted.is_sorted());
        assert_eq!(format!("{:?}", Value::copy_of(b"a\x00\"\xff")), r#"b"a\x00\"\xff""#);
    }
}
