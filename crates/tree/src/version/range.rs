//! Arithmetic of key ranges and of the parts of tables that runs use.
//!
//! A range is `[lower, upper)`; no upper means no end, so a missing upper bound is the *largest* one and
//! cannot be compared as the `Option` that it is stored in: [`cmp_upper`] does it.
//!
//! Not here: the types themselves ([`super::edit`]), and the ranges that callers pass to scans
//! (`crate::key_range`).

use std::cmp::Ordering;
use std::sync::Arc;

use bytes::Bytes;

use super::edit::{KeyRange, TableMeta, TableUse};

/// The reference counts of a table and of its two keys, and what the allocator adds.
const COUNTS_BYTES: usize = 96;

/// The order of two exclusive upper bounds.
pub fn cmp_upper(a: Option<&Bytes>, b: Option<&Bytes>) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => a.cmp(b),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => Ordering::Equal,
    }
}

impl KeyRange {
    /// Whether no key can be inside.
    pub fn is_empty(&self) -> bool {
        !self.is_above(&self.lower)
    }

    /// Whether every key of `other` is inside.
    pub fn covers(&self, other: &Self) -> bool {
        self.lower <= other.lower && cmp_upper(other.upper.as_ref(), self.upper.as_ref()).is_le()
    }

    /// The keys inside both; `None` when there are none.
    pub fn intersection(&self, other: &Self) -> Option<Self> {
        let lower = self.lower.clone().max(other.lower.clone());
        let upper = match cmp_upper(self.upper.as_ref(), other.upper.as_ref()) {
            Ordering::Greater => other.upper.clone(),
            _ => self.upper.clone(),
        };
        let both = Self { lower, upper };
        (!both.is_empty()).then_some(both)
    }

    /// The smallest range that holds both.
    #[must_use]
    pub fn hull(&self, other: &Self) -> Self {
        let lower = self.lower.clone().min(other.lower.clone());
        let upper = match cmp_upper(self.upper.as_ref(), other.upper.as_ref()) {
            Ordering::Less => other.upper.clone(),
            _ => self.upper.clone(),
        };
        Self { lower, upper }
    }
}

impl TableMeta {
    /// Every key that the file has something to say about.
    pub fn key_range(&self) -> KeyRange {
        KeyRange { lower: self.smallest.clone(), upper: self.upper.clone() }
    }
}

impl TableUse {
    /// The whole of a table.
    pub fn whole(meta: Arc<TableMeta>) -> Self {
        let (range, live_bytes) = (meta.key_range(), meta.file_bytes);
        Self { meta, range, live_bytes }
    }

    /// Memory of this use and of what the manifest knows of the table, bounds apart: the open table counts those, and
    /// shares them. Where less than the whole table counts, the range has keys of its own.
    pub fn memory_bytes(&self) -> usize {
        let own = |key: &Bytes, shared: Option<&Bytes>| if shared == Some(key) { 0 } else { key.len() };
        let lower_bytes = own(&self.range.lower, Some(&self.meta.smallest));
        let upper_bytes = self.range.upper.as_ref().map_or(0, |upper| own(upper, self.meta.upper.as_ref()));
        size_of::<Self>() + size_of::<TableMeta>() + COUNTS_BYTES + lower_bytes + upper_bytes
    }

    /// Whether some of the file counts no longer.
    pub fn is_narrowed(&self) -> bool {
        self.range.lower != self.meta.smallest || self.range.upper != self.meta.upper
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> KeyRange {
        let (lower, upper) = text.split_once("..").expect("a range");
        let upper = (!upper.is_empty()).then(|| Bytes::copy_from_slice(upper.as_bytes()));
        KeyRange { lower: Bytes::copy_from_slice(lower.as_bytes()), upper }
    }

    #[test]
    fn a_missing_upper_bound_is_the_largest() {
        assert!(range("b..").covers(&range("b..z")));
        assert!(!range("b..z").covers(&range("b..")));
        assert_eq!(range("a..").intersection(&range("..c")), Some(range("a..c")));
        assert_eq!(range("a..c").hull(&range("b..")), range("a.."));
    }

    #[test]
    fn ranges_that_only_touch_share_nothing() {
        assert_eq!(range("a..c").intersection(&range("c..d")), None);
        assert!(!range("a..c").overlaps(&range("c..d")));
        assert_eq!(range("a..c").hull(&range("c..d")), range("a..d"));
        assert!(range("c..c").is_empty() && range("d..c").is_empty() && !range("..").is_empty());
    }
}
