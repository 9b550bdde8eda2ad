//! Ranges of keys, as callers write them and as the engine uses them.
//!
//! Callers write `"a".."b"`, `..="z"`, `..` or a pair of [`Bound`]s. The engine works with
//! half-open ranges `[lower, upper)`, where an upper bound of `None` means no end. [`half_open`]
//! converts them: the smallest key after `k` is `k` followed by a zero byte.
//!
//! A reversed or empty range holds no key. It is never an error and never a panic.
//!
//! The ranges that tables and runs record are [`shamba_tree::version::edit::KeyRange`].

use std::ops::{Bound, Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use bytes::Bytes;
use shamba_key::MAX_KEY_BYTES;

use crate::error::{Error, Result};
use shamba_tree::version::edit::KeyRange as HalfOpen;

/// Checks that `key` is not too long for a stored key. Bounds of reads may be longer.
///
/// # Errors
/// `Invalid`, naming the length.
#[inline]
pub(crate) fn check_key(key: &[u8]) -> Result<()> {
    if key.len() <= MAX_KEY_BYTES { Ok(()) } else { Err(too_long(key)) }
}

#[cold]
#[inline(never)]
fn too_long(key: &[u8]) -> Error {
    let (bytes, most) = (key.len(), MAX_KEY_BYTES);
    Error::invalid(format!("the key has {bytes} bytes; the maximum is {most}"))
}

/// A range of keys: every range type of the standard library over `AsRef<[u8]>`, and pairs of
/// [`Bound`]s.
///
/// A range whose start lies beyond its end holds no key.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = shamba::Db::open(dir.path().join("db"))?;
/// use std::ops::Bound::{Excluded, Unbounded};
///
/// for key in ["a", "b", "c"] {
///     db.put(key, "")?;
/// }
/// assert_eq!(db.range("a".."c").count(), 2);
/// assert_eq!(db.range("b"..).count(), 2);
/// assert_eq!(db.range((Excluded("a"), Unbounded)).count(), 2);
/// # Ok::<(), shamba::Error>(())
/// ```
pub trait KeyRange {
    /// The start and the end of the range.
    fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>);
}

impl KeyRange for RangeFull {
    fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (Bound::Unbounded, Bound::Unbounded)
    }
}

impl<K: AsRef<[u8]>> KeyRange for Range<K> {
    fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (Bound::Included(self.start.as_ref()), Bound::Excluded(self.end.as_ref()))
    }
}

impl<K: AsRef<[u8]>> KeyRange for RangeInclusive<K> {
    fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (Bound::Included(self.start().as_ref()), Bound::Included(self.end().as_ref()))
    }
}

impl<K: AsRef<[u8]>> KeyRange for RangeFrom<K> {
    fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (Bound::Included(self.start.as_ref()), Bound::Unbounded)
    }
}

impl<K: AsRef<[u8]>> KeyRange for RangeTo<K> {
    fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (Bound::Unbounded, Bound::Excluded(self.end.as_ref()))
    }
}

impl<K: AsRef<[u8]>> KeyRange for RangeToInclusive<K> {
    fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (Bound::Unbounded, Bound::Included(self.end.as_ref()))
    }
}

impl<K: AsRef<[u8]>> KeyRange for (Bound<K>, Bound<K>) {
    fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (self.0.as_ref().map(AsRef::as_ref), self.1.as_ref().map(AsRef::as_ref))
    }
}

impl<R: KeyRange + ?Sized> KeyRange for &R {
    fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (**self).bounds()
    }
}

/// `range` as `[lower, upper)`. A range that holds no key becomes an empty range.
pub(crate) fn half_open(range: &(impl KeyRange + ?Sized)) -> HalfOpen {
    let nothing = HalfOpen::nothing();
    let (from, to) = range.bounds();
    let lower = match from {
        Bound::Unbounded => Some(Bytes::new()),
        Bound::Included(key) => Some(Bytes::copy_from_slice(key)),
        Bound::Excluded(key) => successor(key),
    };
    let Some(lower) = lower else { return nothing };
    let upper = match to {
        Bound::Unbounded => None,
        Bound::Included(key) => successor(key),
        Bound::Excluded(key) => Some(Bytes::copy_from_slice(key)),
    };
    let range = HalfOpen { lower, upper };
    if range.is_empty() { nothing } else { range }
}

/// Every key that starts with `prefix`, as `[prefix, upper)`.
pub(crate) fn prefix_range(prefix: &[u8]) -> HalfOpen {
    HalfOpen { lower: Bytes::copy_from_slice(prefix), upper: beyond_prefix(prefix) }
}

/// The keys that begin with a prefix, as a range: for the methods that take ranges.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = shamba::Db::open(dir.path().join("db"))?;
/// use shamba::PrefixRange;
///
/// db.put("user:1", "Asha")?;
/// db.put("visit:1", "user:1")?;
/// let users = PrefixRange::of("user:");
/// assert_eq!(users.end(), Some(&b"user;"[..]));
/// assert_eq!(db.approximate_count(&users)?, 1);
/// assert_eq!(db.keys(&users).count(), 1);
/// # Ok::<(), shamba::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PrefixRange(HalfOpen);

impl PrefixRange {
    /// The keys that begin with `prefix`.
    pub fn of(prefix: impl AsRef<[u8]>) -> Self {
        Self(prefix_range(prefix.as_ref()))
    }

    /// The prefix, which is the smallest of these keys.
    pub fn start(&self) -> &[u8] {
        &self.0.lower
    }

    /// The smallest key after all of them: the prefix's successor. `None` if there is none.
    pub fn end(&self) -> Option<&[u8]> {
        self.0.upper.as_deref()
    }
}

impl KeyRange for PrefixRange {
    fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (Bound::Included(self.start()), self.end().map_or(Bound::Unbounded, Bound::Excluded))
    }
}

/// The smallest key after `key`; `None` when `key` is the largest possible key.
pub(crate) fn successor(key: &[u8]) -> Option<Bytes> {
    if key.len() >= MAX_KEY_BYTES {
        // No longer key exists, so the successor has this length or is shorter. A bound must not be
        // longer than the longest key: range tombstones store their bounds in the same fields.
        return beyond_prefix(key);
    }
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    debug_assert!(next.len() <= MAX_KEY_BYTES, "the successor of a key is longer than any key");
    Some(next.into())
}

/// The smallest key greater than all that start with `prefix`: the last byte that is not 0xFF is
/// incremented and the rest is cut off. `None` when there is no such byte, and so no such key.
fn beyond_prefix(prefix: &[u8]) -> Option<Bytes> {
    let last = prefix.iter().rposition(|&byte| byte != 0xff)?;
    let mut beyond = prefix[..=last].to_vec();
    beyond[last] += 1;
    debug_assert!(
        beyond[..] > *prefix && !beyond.starts_with(prefix),
        "a key beyond a prefix begins with it"
    );
    Some(beyond.into())
}

/// The longest name of a keyspace.
const NAME_BYTES_MAX: usize = 255;

/// Whether a keyspace may have this name.
///
/// # Errors
/// `Invalid` if not.
pub(crate) fn check_keyspace_name(name: &str) -> Result<()> {
    match name.len() {
        1..=NAME_BYTES_MAX => Ok(()),
        bytes => Err(Error::invalid(format!(
            "the name of a keyspace must have 1 to {NAME_BYTES_MAX} bytes, not {bytes}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(range: impl KeyRange) -> Option<(String, Option<String>)> {
        let text = |bytes: &Bytes| bytes.escape_ascii().to_string();
        let range = half_open(&range);
        (!range.is_empty()).then(|| (text(&range.lower), range.upper.as_ref().map(text)))
    }

    fn pair(lower: &str, upper: Option<&str>) -> Option<(String, Option<String>)> {
        Some((lower.to_owned(), upper.map(str::to_owned)))
    }

    #[test]
    fn every_kind_of_range_becomes_half_open() {
        assert_eq!(show(..), pair("", None));
        assert_eq!(show("a".."b"), pair("a", Some("b")));
        assert_eq!(show("a"..="b"), pair("a", Some("b\\x00")));
        assert_eq!(show("a".to_owned()..), pair("a", None));
        assert_eq!(show(..b"b".to_vec()), pair("", Some("b")));
        assert_eq!(show(..="b"), pair("", Some("b\\x00")));
        assert_eq!(show((Bound::Excluded("a"), Bound::Included("c"))), pair("a\\x00", Some("c\\x00")));
        assert_eq!(show((Bound::<&str>::Unbounded, Bound::Unbounded)), pair("", None));
        assert_eq!(show("a"..="a"), pair("a", Some("a\\x00")));
        let borrowed = "a".."b";
        assert_eq!(show(&borrowed), pair("a", Some("b")));
    }

    #[test]
    fn reversed_and_empty_ranges_hold_nothing() {
        assert_eq!(show("b".."a"), None);
        assert_eq!(show("b"..="a"), None);
        assert_eq!(show("a".."a"), None);
        assert_eq!(show(..""), None);
        assert_eq!(show((Bound::Excluded("a"), Bound::Excluded("a\0"))), None);
    }

    #[test]
    fn the_longest_key_has_a_successor_no_longer_than_itself() {
        let mut longest = vec![b'x'; MAX_KEY_BYTES];
        longest[MAX_KEY_BYTES - 1] = 0xff;
        let next = successor(&longest).expect("something follows");
        assert!(next.len() <= MAX_KEY_BYTES && next.as_ref() > longest.as_slice());
        assert_eq!(next.last(), Some(&b'y'));
        let last = vec![0xff; MAX_KEY_BYTES];
        assert_eq!(successor(&last), None);
        assert_eq!(show((Bound::Excluded(last.as_slice()), Bound::Unbounded)), None);
        assert!(half_open(&(..=last.as_slice())).upper.is_none());
    }

    #[test]
    fn prefixes_carry_over_trailing_ff() {
        let upper = |prefix: &[u8]| prefix_range(prefix).upper.map(|upper| upper.to_vec());
        assert_eq!(upper(b"user:"), Some(b"user;".to_vec()));
        assert_eq!(upper(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(upper(b"\xff\xff"), None);
        assert_eq!(upper(b""), None);
    }
}
