//! The FIFO keyspace of the model runs.
//!
//! It has no merge operator, which such a keyspace may not have, and so large tables that most runs
//! are one table. Then a drop takes the oldest writes, up to one of them.

use std::time::Duration;

use shamba::{Fifo, KeyspaceOptions};

use crate::expiry::TICK_MS;
use crate::ops::Op;
use crate::oracle::Change;

/// Index into [`crate::oracle::SPACES`].
pub const SPACE: usize = 1;

/// The limits of number `index`: an age in ticks, bytes, or both.
pub fn limits(index: usize) -> Fifo {
    let bytes = [20_000, 45_000, 90_000][index / 3 % 3];
    let age = Duration::from_millis([6, 10][index / 2 % 2] * TICK_MS);
    match index % 3 {
        0 => Fifo::age(age),
        1 => Fifo::bytes(bytes),
        _ => Fifo::bytes(bytes).with_age(age),
    }
}

/// The options of the keyspace.
pub fn options(limits: Fifo) -> KeyspaceOptions {
    let options = KeyspaceOptions::new().fifo(limits);
    options.set_option("file-size", "16777216").expect("an option of a keyspace")
}

/// Makes an operation one that the keyspace takes and the oracle can follow: an iterator that is
/// kept may or may not see data go that was due when it began.
pub fn suit(op: &mut Op) {
    match op {
        Op::Write(change) => suit_change(change),
        Op::Batch { changes, .. } => changes.iter_mut().for_each(suit_change),
        Op::Transaction(op) => {
            let op = &mut **op;
            op.changes.iter_mut().chain(&mut op.outside).for_each(suit_change);
        }
        Op::IterOpen { space: SPACE, span } => {
            *op = Op::Scan { space: SPACE, span: span.clone(), reverse: false };
        }
        _ => {}
    }
}

fn suit_change(change: &mut Change) {
    if let Change::Merge { space: SPACE, key, operand } = change {
        let (key, value) = (std::mem::take(key), std::mem::take(operand));
        *change = Change::Put { space: SPACE, key, value };
    }
}
