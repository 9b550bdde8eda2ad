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

/// Maximum ages, in ticks. Runs of an eighth of the long one are merged: what differs in age by
/// more than two ticks then lies in one table.
const AGES: [u64; 2] = [6, 20];

/// The limits of number `index`: an age in ticks, bytes, or both.
pub fn limits(index: usize) -> Fifo {
    let bytes = [20_000, 45_000, 90_000][index / 3 % 3];
    let age = Duration::from_millis(AGES[index / 2 % 2] * TICK_MS);
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

/// The age at which no data is left, if work is done after each step of time. A step is at most
/// `PASSED_MAX` ticks, within which the background does not look at ages.
pub fn gone_ms(age: Duration) -> u64 {
    age.as_millis() as u64 * 13 / 10 + PASSED_MAX * TICK_MS
}

/// Ticks that an operation lets pass at most.
const PASSED_MAX: u64 = 3;

/// One step of time in this many begins a quiet period.
const QUIET_ONE_IN: usize = 4;

/// Makes operations ones that the keyspace takes and the oracle can follow: an iterator that is
/// kept may or may not see data go that was due when it began.
///
/// Half of the puts of the default keyspace go to this one. With a maximum age there are quiet
/// periods in place of some operations: the database is opened again, which ends all readers, and
/// until everything must be gone time passes with a few short writes, too few for a flush by their
/// size.
pub fn suit(ops: &mut [Op], limits: Fifo) {
    ops.iter_mut().for_each(suit_one);
    let Some(age) = limits.max_age() else { return };
    let steps = gone_ms(age).div_ceil(PASSED_MAX * TICK_MS) as usize + 1;
    let is_pass = |op: &Op| matches!(op, Op::Pass { .. });
    let passes = ops.iter().enumerate().filter(|(_, op)| is_pass(op)).map(|(at, _)| at);
    let begins: Vec<usize> = passes.step_by(QUIET_ONE_IN).collect();
    let mut next = 0;
    for (number, begin) in begins.into_iter().enumerate() {
        if begin < next || begin + 1 + 2 * steps > ops.len() {
            continue;
        }
        next = begin + 1 + 2 * steps;
        ops[begin] = Op::Reopen { clean: number % 2 == 0, change_options: false };
        for (step, pair) in ops[begin + 1..next].chunks_exact_mut(2).enumerate() {
            let key = format!("quiet/{}", step % 3).into_bytes();
            let value = format!("{number}/{step}").into_bytes();
            pair[0] = Op::Write(Change::Put { space: SPACE, key, value });
            pair[1] = Op::Pass { ticks: PASSED_MAX };
        }
    }
}

fn suit_one(op: &mut Op) {
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
    } else if let Change::Put { space: space @ 0, value, .. } = change
        && value.len() % 2 == 0
    {
        *space = SPACE;
    }
}
