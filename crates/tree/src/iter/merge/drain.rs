//! Moving the first child of a merge for as long as it stays first.
//!
//! Then only the child's position is compared, with that of the second one ([`Bound`]), and the
//! order of the others is not touched.

use shamba_key::{EntryKind, SeqNo, head};
use shamba_table::{Copies, CopyEnd, CopyLimits, EntryIter, EntryView, Result};

use crate::iter::run_iter::{RunIter, TableList};
use crate::iter::source::Source;

/// Older versions of a key that a copy passes over one by one before it seeks past the others. A
/// key that is overwritten often has thousands of them in a memtable.
const OLDER_BEFORE_SEEK: u32 = 3;

/// The position of the second child.
pub(super) struct Bound<'a> {
    pub head: u64,
    pub seq: SeqNo,
    /// Whether the first child comes before the second one when both are at the same write.
    pub newer: bool,
    pub iter: &'a Source,
}

/// Reason why the first child stopped.
pub(super) enum Drained {
    /// It is at the entry for which `each` returned false.
    Stopped,
    /// It has passed the second child.
    Passed,
    /// It has no more entries.
    Ended,
}

impl Bound<'_> {
    /// Whether the second child comes before this entry of the first.
    #[inline]
    fn is_passed_at(&self, key: &[u8], seq: SeqNo) -> bool {
        let head = head(key);
        if head != self.head {
            return head > self.head;
        }
        let order = key.cmp(self.iter.key()).then(self.seq.cmp(&seq));
        order.is_gt() || (order.is_eq() && !self.newer)
    }
}

/// Moves the first child, a valid `iter`, as long as it stays first and `each` returns true.
#[inline]
pub(super) fn drain(
    iter: &mut dyn EntryIter,
    bound: Option<Bound<'_>>,
    each: &mut impl FnMut(EntryView<'_>) -> bool,
) -> Result<Drained> {
    debug_assert!(iter.valid(), "a source without an entry is first");
    loop {
        let entry = iter.view();
        let is_tombstone = entry.kind == EntryKind::Delete;
        if !each(entry) {
            return Ok(Drained::Stopped);
        }
        if is_tombstone {
            iter.note_tombstone();
        }
        iter.next()?;
        if !iter.valid() {
            return Ok(Drained::Ended);
        }
        if bound.as_ref().is_some_and(|bound| bound.is_passed_at(iter.key(), iter.seq())) {
            return Ok(Drained::Passed);
        }
    }
}

/// As [`TableIter::copy_on`](shamba_table::TableIter::copy_on), from any source.
pub(super) fn copy(iter: &mut dyn EntryIter, out: &mut Copies, limits: &CopyLimits<'_>) -> Result<CopyEnd> {
    debug_assert!(iter.valid(), "a source without an entry is first");
    let mut older = 0;
    loop {
        let copied = out.ends.len();
        if let Some(end) = out.add(&iter.view(), limits) {
            return Ok(end);
        }
        older = if out.ends.len() == copied { older + 1 } else { 0 };
        match copied.checked_sub(1).and_then(|last| out.key(last)) {
            Some(key) if older == OLDER_BEFORE_SEEK => {
                older = 0;
                iter.seek(key, SeqNo::ZERO)?;
            }
            _ => iter.next()?,
        }
        if !iter.valid() {
            return Ok(CopyEnd::Ended);
        }
    }
}

/// As [`drain`], for tables, which have a cheaper way than single steps.
#[inline]
pub(super) fn drain_run<L: TableList>(
    iter: &mut RunIter<L>,
    bound: Option<Bound<'_>>,
    each: &mut impl FnMut(EntryView<'_>) -> bool,
) -> Result<Drained> {
    debug_assert!(iter.valid(), "a source without an entry is first");
    let mut has_passed = false;
    let stopped = iter.walk_on(|entry| {
        // False for the first entry: it comes before the second child's.
        has_passed = bound.as_ref().is_some_and(|bound| bound.is_passed_at(entry.key, entry.seq));
        !has_passed && each(entry)
    })?;
    Ok(match (stopped, has_passed) {
        (true, true) => Drained::Passed,
        (true, false) => Drained::Stopped,
        (false, _) => Drained::Ended,
    })
}
