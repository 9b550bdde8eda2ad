//! Scripts for lives with faults: writes in a small key space, each with a marker key, and all
//! other operations in between.
//!
//! Not here: the faults, and the guarantees ([`super`]).

use fastrand::Rng;

use crate::oracle::Change;

/// One step of a script.
#[derive(Clone, Debug)]
pub enum Step {
    /// A batch in which marker i belongs to the i-th write.
    Write {
        /// The changes, in order.
        changes: Vec<Change>,
        /// Whether it must be durable when acknowledged.
        sync: bool,
    },
    /// Flushes the memtables.
    Flush,
    /// Compacts everything.
    Compact,
    /// Syncs the log.
    Sync,
    /// Closes and opens the database.
    Reopen,
    /// Reads everything.
    Read,
}

/// The script of a seed: writes in a small key space with all other operations in between.
pub fn script(seed: u64, writes: usize) -> Vec<Step> {
    let mut rng = Rng::with_seed(seed);
    let mut steps = Vec::new();
    for write in 0..writes {
        let mut changes =
            vec![Change::Put { space: 0, key: marker(write), value: write.to_string().into_bytes() }];
        for part in 0..rng.usize(1..4) {
            let space = [0, 0, 0, 0, 1, 2][rng.usize(..6)];
            let key = format!("k/{:02}", rng.u8(..24)).into_bytes();
            changes.push(match rng.u8(..10) {
                0 => Change::Delete { space, key },
                1 => {
                    let end = format!("k/{:02}", rng.u8(..24)).into_bytes();
                    let span = (std::ops::Bound::Included(key), std::ops::Bound::Excluded(end));
                    Change::DeleteRange { space, span }
                }
                2..5 => Change::Merge { space, key, operand: format!("{write}.{part}").into_bytes() },
                _ => {
                    let value = format!("{write}.{part}.{}", "v".repeat(rng.usize(..120))).into_bytes();
                    Change::Put { space, key, value }
                }
            });
        }
        steps.push(Step::Write { changes, sync: rng.u8(..5) == 0 });
        match rng.u8(..20) {
            0 | 1 => steps.push(Step::Flush),
            2 => steps.push(Step::Compact),
            3 => steps.push(Step::Sync),
            4 => steps.push(Step::Reopen),
            5 | 6 => steps.push(Step::Read),
            _ => {}
        }
    }
    steps.extend([Step::Read, Step::Reopen, Step::Read]);
    steps
}

/// The marker key of write number `write`.
pub(super) fn marker(write: usize) -> Vec<u8> {
    format!("m/{write:04}").into_bytes()
}
