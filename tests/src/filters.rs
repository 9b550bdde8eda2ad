//! The compaction filter of the model runs, and what it makes of a run's values.
//!
//! A filter may be asked about a value before or after operands were folded into it, so its verdict
//! must be the same for both. It looks at the number at the beginning of a value, which operands
//! leave alone, and changes a digit of it. It removes values only of keys that have no operands:
//! of others, the operands would stay or go with the value, depending on when it was asked.

use shamba::KeyspaceOptions;
use shamba::filter::{CompactionFilter, FilterEntry, Verdict};

use crate::operators::SEPARATOR;
use crate::ops::Op;
use crate::oracle::Change;

/// The first byte of operands.
const OPERAND: u8 = b'_';

/// Removes some values of some keys, and changes some of the others.
#[derive(Clone, Copy, Debug)]
pub struct Rules;

impl CompactionFilter for Rules {
    fn name(&self) -> &str {
        "suites.rules"
    }

    fn filter(&self, entry: &FilterEntry<'_>) -> Verdict {
        entry.value().map_or(Verdict::Keep, |value| verdict(entry.key(), value))
    }
}

/// The verdict of [`Rules`]. A value that it has made is kept.
pub fn verdict(key: &[u8], value: &[u8]) -> Verdict {
    let number = value.iter().position(|byte| *byte == b'.').map(|end| &value[..end]);
    let Some([rest @ .., last]) = number.filter(|number| number.iter().all(u8::is_ascii_hexdigit)) else {
        return Verdict::Keep;
    };
    match (is_removed(key), last) {
        (true, b'3' | b'5' | b'a' | b'c') => Verdict::Remove,
        (false, b'3' | b'a') => {
            let mut value = value.to_vec();
            value[rest.len()] = b'~';
            Verdict::Replace(value)
        }
        _ => Verdict::Keep,
    }
}

/// Whether values of the key are removed rather than changed: of one key in eight.
fn is_removed(key: &[u8]) -> bool {
    key.iter().fold(5u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(*byte))) % 8 == 0
}

/// Whether a value has operands, or looks so.
pub fn has_operands(value: &[u8]) -> bool {
    let mark = [SEPARATOR, &[OPERAND]].concat();
    value.windows(mark.len()).any(|bytes| bytes == mark)
}

/// The options of a keyspace with the filter.
pub fn ruled(options: KeyspaceOptions) -> KeyspaceOptions {
    options.compaction_filter(Rules)
}

/// Makes an operation one that the oracle of a filtered run can follow: no operand begins with a
/// number, and none goes to a key whose values are removed. Long chains of operands are left out:
/// once readers have folded one, they do not see what the filter makes of its base until a flush.
pub fn suit(op: &mut Op) {
    match op {
        Op::Write(change) => suit_change(change),
        Op::Batch { changes, .. } => {
            let is_merge = |change: &Change| matches!(change, Change::Merge { .. });
            if changes.len() >= 30 && changes.iter().all(is_merge) {
                changes.truncate(3);
            }
            changes.iter_mut().for_each(suit_change);
        }
        Op::Transaction(op) => {
            let op = &mut **op;
            op.changes.iter_mut().chain(&mut op.outside).for_each(suit_change);
        }
        _ => {}
    }
}

fn suit_change(change: &mut Change) {
    let Change::Merge { space, key, operand } = change else { return };
    if is_removed(key) {
        let (space, key, value) = (*space, std::mem::take(key), std::mem::take(operand));
        *change = Change::Put { space, key, value };
    } else {
        operand.insert(0, OPERAND);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_the_same_with_operands_and_final() {
        let keys: Vec<Vec<u8>> = (0..32u8).map(|number| vec![b'k', number]).collect();
        let (removed, kept): (Vec<_>, Vec<_>) = keys.iter().partition(|key| is_removed(key));
        assert!(!removed.is_empty() && !kept.is_empty());
        let replaced = |value: &str| Verdict::Replace(value.into());
        assert_eq!(verdict(kept[0], b"13.x"), replaced("1~.x"));
        assert_eq!(verdict(kept[0], b"13.x,_24.y"), replaced("1~.x,_24.y"));
        for value in ["1~.x", "_13.x", "14.x", "13", "", "x13.x"] {
            assert_eq!(verdict(kept[0], value.as_bytes()), Verdict::Keep, "{value}");
        }
        assert_eq!(verdict(removed[0], b"13.x"), Verdict::Remove);
        assert_eq!(verdict(removed[0], b"14.x"), Verdict::Keep);
    }
}
