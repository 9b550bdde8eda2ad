//! Conditional writes of a run: what they see and what they leave, compared with the oracle.

use shamba::{Durability, Swap};

use super::Runner;
use crate::compare::failed;
use crate::expiry::options_for;
use crate::oracle::Change;

impl Runner {
    /// Sets `key` to `new`, or removes it, by an update or by compare-and-swap.
    ///
    /// # Errors
    /// A difference from the oracle, or a failure.
    pub(super) fn replace(
        &mut self,
        space: usize,
        key: &[u8],
        new: Option<&[u8]>,
        is_update: bool,
    ) -> Result<(), String> {
        // A conditional write hashes its key once, for its lookup and for its condition.
        self.hashed_gets += if is_update { 1 } else { 2 };
        let old = self.oracle.get(space, key, self.now()).map(<[u8]>::to_vec);
        let options = || options_for(new.and_then(|new| self.time_to_live(new)));
        let spaces = self.spaces()?;
        let other = space.checked_sub(1).map(|at| spaces.others[at].as_ref().expect("the runner makes it"));
        let is_written = if is_update {
            let mut seen = Vec::new();
            let change = |old: Option<&[u8]>| {
                seen.push(old.map(<[u8]>::to_vec));
                new
            };
            let updated = match other {
                None => spaces.db.update_with(key, change, options()),
                Some(other) => other.update_with(key, change, options()),
            };
            updated.map_err(failed("update"))?;
            if seen != [old.clone()] {
                return Err(format!("an update saw {seen:?} instead of {old:?}"));
            }
            old.is_some() || new.is_some()
        } else {
            let swap = |expected: Option<&[u8]>| {
                let swap = match other {
                    None => spaces.db.compare_and_swap_with(key, expected, new, options()),
                    Some(other) => other.compare_and_swap_with(key, expected, new, options()),
                };
                swap.map_err(failed("compare_and_swap"))
            };
            // What nothing has written.
            let wrong = old.as_deref().is_none().then_some(&b"no value"[..]);
            match swap(wrong)? {
                Swap::Mismatch(current) if current.as_deref() == old.as_deref() => {}
                outcome => return Err(format!("a swap of {wrong:?} for {old:?}: {outcome:?}")),
            }
            match swap(old.as_deref())? {
                Swap::Done => true,
                outcome => return Err(format!("a swap of {old:?}: {outcome:?}")),
            }
        };
        if is_written {
            let key = key.to_vec();
            let change = match new {
                Some(value) => Change::Put { space, key, value: value.to_vec() },
                None => Change::Delete { space, key },
            };
            self.commit(&[change], false, self.vector.durability == Durability::Sync);
        }
        Ok(())
    }
}
