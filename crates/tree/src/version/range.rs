//! Arithmetic of key ranges, and of the parts of tables that runs use.
//!
//! A range is `[lower, upper)`. A missing upper bound means that the range has no end, so it is the
//! *largest* upper bound. Comparing the stored `Option`s would order it first; [`cmp_upper`]
//! compares correctly.
//!
//! Not here: the types themselves ([`super::edit`]), and the ranges that callers pass to scans
//! (`crate::key_range`).

use std::cmp::Ordering;
use std::sync::Arc;

use bytes::Bytes;

use super::edit::{KeyRange, TableMeta, TableUse};

/// The reference counts of a table and of its two keys, and the allocator's overhead.
const COUNTS_BYTES: usize = 96;

/// Compares two exclusive upper bounds.
pub fn cmp_upper(a: Option<&Bytes>, b: Option<&Bytes>) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => a.cmp(b),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => Ordering::Equal,
    }
}

impl KeyRange {
    /// A range that contains no key.
    pub fn nothing() -> Self {
        Self { lower: Bytes::new(), upper: Some(Bytes::new()) }
    }

    /// Whether the range contains no key.
    pub fn is_empty(&self) -> bool {
        !self.is_above(&self.lower)
    }

    /// Whether the range contains every key of `other`.
    pub fn covers(&self, other: &Self) -> bool {
        self.lower <= other.lower && cmp_upper(other.upper.as_ref(), self.upper.as_ref()).is_le()
    }

    /// The keys in both ranges; `None` if there are none.
    pub fn intersection(&self, other: &Self) -> Option<Self> {
        let lower = self.lower.clone().max(other.lower.clone());
        let upper = match cmp_upper(self.upper.as_ref(), other.upper.as_ref()) {
            Ordering::Greater => other.upper.clone(),
            _ => self.upper.clone(),
        };
        let both = Self { lower, upper };
        debug_assert!(
            self.covers(&both) && other.covers(&both),
            "{both:?} is more than {self:?} and {other:?}"
        );
        (!both.is_empty()).then_some(both)
    }

    /// The smallest range that contains both.
    #[must_use]
    pub fn hull(&self, other: &Self) -> Self {
        let lower = self.lower.clone().min(other.lower.clone());
        let upper = match cmp_upper(self.upper.as_ref(), other.upper.as_ref()) {
            Ordering::Less => other.upper.clone(),
            _ => self.upper.clone(),
        };
        let hull = Self { lower, upper };
        debug_assert!(
            hull.covers(self) && hull.covers(other),
            "{hull:?} lacks keys of {self:?} or {other:?}"
        );
        hull
    }
}

impl TableMeta {
    /// The range that covers every entry and range tombstone of the file.
    pub fn key_range(&self) -> KeyRange {
        KeyRange { lower: self.smallest.clone(), upper: self.upper.clone() }
    }
}

impl TableUse {
    /// Creates a use of the whole table.
    pub fn whole(meta: Arc<TableMeta>) -> Self {
        let (range, live_bytes, values) = (meta.key_range(), meta.file_bytes, meta.values.get().clone());
        Self { meta, range, live_bytes, values }
    }

    /// Memory of this use and of the table's manifest metadata. The bounds are not counted: the
    /// open table counts them, and shares them. A narrowed range has keys of its own, which are
    /// counted. So is a list of references that is not the table's.
    pub fn memory_bytes(&self) -> usize {
        let own = |key: &Bytes, shared: Option<&Bytes>| if shared == Some(key) { 0 } else { key.len() };
        let lower_bytes = own(&self.range.lower, Some(&self.meta.smallest));
        let upper_bytes = self.range.upper.as_ref().map_or(0, |upper| own(upper, self.meta.upper.as_ref()));
        let of_table = self.meta.values.get();
        let values_bytes = of_table.memory_bytes(None) + self.values.memory_bytes(Some(of_table));
        size_of::<Self>() + size_of::<TableMeta>() + COUNTS_BYTES + lower_bytes + upper_bytes + values_bytes
    }

    /// Whether only a part of the file is used.
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

    #[test]
    fn a_use_counts_its_table_and_what_it_does_not_share_with_it() {
        let table = |text: &str| {
            let text = format!("L1: r1@1[{text}]\nV: 31 9128 n=30\n");
            let version: crate::version::Version = text.parse().expect("notation");
            version.level(1)[0].tables()[0].clone()
        };
        let alone = size_of::<TableUse>() + size_of::<TableMeta>() + COUNTS_BYTES;
        for (text, own_bytes) in [
            ("1:apple..melon 90", 0),
            ("1:apple.. 90", 0),
            ("1:banana..melon of apple..melon 60 of 90", 6),
            ("1:apple..kiwi of apple..melon 60 of 90", 4),
            ("1:apple..kiwi of apple.. 60 of 90", 4),
            ("1:banana..kiwi of apple..melon 60 of 90", 10),
        ] {
            assert_eq!(table(text).memory_bytes(), alone + own_bytes, "{text}");
        }
        // The list of a part is its own, and that of a whole table is shared.
        let part = table("1:banana..kiwi of apple..melon 60 of 90 val=31:1:100 of 2:300");
        let list_bytes = part.values.memory_bytes(None);
        assert!(list_bytes > 0);
        assert_eq!(part.memory_bytes(), alone + 10 + 2 * list_bytes);
        assert_eq!(TableUse::whole(Arc::clone(&part.meta)).memory_bytes(), alone + list_bytes);
    }
}
