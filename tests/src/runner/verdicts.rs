//! Verdicts of the compaction filter in a run.
//!
//! Compactions run within operations. After an operation in which the filter has changed something,
//! every value that it may have changed is read once. Each is as it was written or as the filter
//! leaves it, and from then on the oracle knows which. All comparisons after that are exact.

use shamba::filter::Verdict;

use super::Runner;
use crate::compare::{Spaces, failed};
use crate::filters;
use crate::ops::shown;
use crate::oracle::{Moment, Oracle, SPACES};

impl Runner {
    /// Finds out what the filter has changed.
    ///
    /// # Errors
    /// A value that the filter may not leave, or a failure.
    pub(super) fn note_verdicts(&mut self) -> Result<(), String> {
        if !self.vector.is_filtered {
            return Ok(());
        }
        let Some(spaces) = &self.spaces else { return Ok(()) };
        let filtered = spaces.db.stats().entries_filtered;
        if std::mem::replace(&mut self.filtered, filtered) != filtered {
            let now = self.now();
            let spaces = self.spaces.as_ref().ok_or("the database is not open")?;
            let found = note(spaces, &mut self.oracle, now)?;
            self.tally.add("verdicts", found);
        }
        Ok(())
    }

    /// Requires that nothing is left for the filter: after a compaction of everything, without
    /// readers. It is not asked about a value that the compaction has folded, so such values are
    /// left out after the first of two. Below operands, a base that will expire stays as it is.
    ///
    /// # Errors
    /// The value.
    pub(super) fn all_is_filtered(&self, is_second: bool) -> Result<(), String> {
        if !self.vector.is_filtered || !self.snapshots.is_empty() || !self.iterators.is_empty() {
            return Ok(());
        }
        for (space, name) in SPACES.iter().enumerate() {
            let is_left = |(key, value, _): &(&[u8], &[u8], Verdict)| {
                !filters::has_operands(value) || is_second && !self.oracle.outlives_its_base(space, key)
            };
            if let Some((key, value, _)) = self.oracle.unfiltered(space, self.now()).find(is_left) {
                let (key, value) = (shown(key), shown(value));
                return Err(format!("keyspace {name}: {key} = {value} is not filtered after a compaction"));
            }
        }
        Ok(())
    }
}

/// Reads every value that the filter may have changed, and tells the oracle of a database what it
/// has. Returns how many.
///
/// # Errors
/// A value that the filter may not leave, or a failure.
pub fn note(spaces: &Spaces, oracle: &mut Oracle, now: Moment) -> Result<u64, String> {
    let mut found = Vec::new();
    for (space, name) in SPACES.iter().enumerate() {
        let Some(surface) = spaces.at(space) else { continue };
        for (key, before, verdict) in oracle.unfiltered(space, now) {
            let seen = surface.read(key).map_err(failed("get"))?;
            if seen.as_deref() == Some(before) {
                continue;
            }
            let after = match verdict {
                Verdict::Replace(value) => Some(value),
                _ => None,
            };
            if seen.as_deref() != after.as_deref() {
                let seen = seen.as_deref().map_or_else(|| "nothing".to_owned(), shown);
                return Err(format!(
                    "keyspace {name}: {} is {seen}, it was written as {} and the filter leaves {}",
                    shown(key),
                    shown(before),
                    after.as_deref().map_or_else(|| "nothing".to_owned(), shown)
                ));
            }
            found.push((space, key.to_vec(), after));
        }
    }
    let count = found.len() as u64;
    for (space, key, after) in found {
        oracle.compacted(space, &key, after, now.turn);
    }
    Ok(count)
}
