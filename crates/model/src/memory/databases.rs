//! The division of a budget that several databases share.
//!
//! [`divide`] is a pure function from what each database reports to a target per database. One
//! window:
//!
//! 1. Every database gets its floor. If the floors exceed the budget, that is the [`Outcome`], and
//!    floors are granted in order. Then memory for the next database that joins is set aside.
//! 2. A database that is written to gets what its memtables need, at most an equal part.
//! 3. One that has joined gets an equal part of the rest. The others keep their proportions above
//!    that, also when a database has left.
//! 4. If the last window is known, one step of memory moves from the databases that lose least to
//!    those that gain most, if that pays in both windows.
//!
//! The values of a database are those of its own division ([`super::decide`]), in nanoseconds saved
//! per second per byte, so memory moves between databases by the rule by which it moves within one.
//!
//! Invariants: the targets never exceed the budget; with [`Outcome::Divided`] every target is at
//! least its floor; databases with equal inputs get equal targets; on constant inputs the targets
//! are constant after [`convergence_windows`]; every input has an answer.
//!
//! ```
//! use shamba_model::memory::databases::{Database, Inputs, divide};
//!
//! const MIB: u64 = 1 << 20;
//! let database = |id| Database { id, floor_bytes: 4 * MIB, ..Database::default() };
//! let inputs = Inputs {
//!     budget_bytes: 68 * MIB,
//!     newcomer_bytes: 4 * MIB,
//!     databases: &[database(1), database(2)],
//!     last: None,
//! };
//! let first = divide(&inputs);
//! assert_eq!(first.bytes, [32 * MIB; 2]);
//! // The second one is read from, and the first one is not.
//! let busy = Database { gain_per_byte: 9.0, loss_per_byte: 9.0, ..database(2) };
//! let bytes = 32 * MIB;
//! let databases = [database(1), busy]
//!     .map(|of| Database { share_bytes: Some(bytes), held_bytes: bytes, ..of });
//! let second = divide(&Inputs { databases: &databases, ..inputs });
//! let third = divide(&Inputs { databases: &databases, last: Some(&second.window), ..inputs });
//! assert!(third.bytes[0] < 32 * MIB && third.bytes[1] > 32 * MIB);
//! ```
//!
//! Not here: measuring, and carrying out (package `shamba`).

use super::constants::{FILLED_PART, MARGIN, MOVING_NS_PER_BYTE, PAYBACK_SECONDS, STEP_PART};
use super::{Outcome, price, step_bytes};

/// Windows within which targets follow a change of constant inputs: one step of 1/[`STEP_PART`] of
/// the budget a window, two windows for each database that runs out of memory to give, and two of
/// confirmation.
pub fn convergence_windows(databases: usize) -> u64 {
    STEP_PART + 2 * databases as u64 + 2
}

/// One database in one window.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Database {
    /// Its identity from window to window.
    pub id: u64,
    /// Minimum that it must have.
    pub floor_bytes: u64,
    /// Its target of the last division; `None` if it has joined since.
    pub share_bytes: Option<u64>,
    /// Bytes that it holds, with those that it keeps free for work.
    pub held_bytes: u64,
    /// Memory that its memtables need beyond the floor at the present rate of writes.
    pub demand_bytes: u64,
    /// Saving of one step more, in nanoseconds per second per byte.
    pub gain_per_byte: f64,
    /// Saving of its last step, alike.
    pub loss_per_byte: f64,
}

/// Measurements on which a division is based.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Inputs<'a> {
    /// The budget of all databases.
    pub budget_bytes: u64,
    /// Memory to keep for the next database that joins, as far as the floors leave it.
    pub newcomer_bytes: u64,
    /// The databases, in descending order of their claim to a floor.
    pub databases: &'a [Database],
    /// The previous window. Without it, and if it had other databases, no step moves.
    pub last: Option<&'a Window>,
}

/// The databases at the end of a window: an input of the next division.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Window {
    standings: Vec<Standing>,
}

/// A database as a party to moves.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Standing {
    id: u64,
    bytes: u64,
    /// Bytes that it can give.
    spare_bytes: u64,
    /// Whether it uses what it has, and could use more.
    is_filled: bool,
    gain_per_byte: f64,
    loss_per_byte: f64,
}

/// The targets of all databases.
#[derive(Clone, PartialEq, Debug)]
pub struct Division {
    /// The outcome.
    pub outcome: Outcome,
    /// Target of each database, in the order of the inputs.
    pub bytes: Vec<u64>,
    /// Input of the next division.
    pub window: Window,
}

/// The target of each database.
pub fn divide(inputs: &Inputs<'_>) -> Division {
    let Inputs { budget_bytes, newcomer_bytes, databases, last } = *inputs;
    let floors: u128 = databases.iter().map(|of| u128::from(of.floor_bytes)).sum();
    let Some(free_bytes) = u128::from(budget_bytes).checked_sub(floors) else {
        let mut left_bytes = budget_bytes;
        let in_order = databases.iter().map(|database| {
            let bytes = database.floor_bytes.min(left_bytes);
            left_bytes -= bytes;
            bytes
        });
        let bytes = in_order.collect();
        let missing_bytes = u64::try_from(floors - u128::from(budget_bytes)).unwrap_or(u64::MAX);
        let outcome = Outcome::FloorsExceedBudget { missing_bytes };
        return Division { outcome, bytes, window: Window::default() };
    };
    let left_bytes = u64::try_from(free_bytes).unwrap_or(u64::MAX).saturating_sub(newcomer_bytes);
    let mut bytes = shares(left_bytes, databases);
    let part_bytes = left_bytes / databases.len().max(1) as u64;
    let standings: Vec<Standing> =
        databases.iter().zip(&bytes).map(|(of, bytes)| of.standing(*bytes, of.base(part_bytes))).collect();
    if let Some(last) = last {
        step(step_bytes(budget_bytes), &last.standings, &standings, &mut bytes);
    }
    debug_assert!(bytes.iter().sum::<u64>() <= budget_bytes, "targets {bytes:?} exceed {budget_bytes} bytes");
    Division { outcome: Outcome::Divided, bytes, window: Window { standings } }
}

/// Targets before any move, when `left_bytes` are left above all floors.
fn shares(left_bytes: u64, databases: &[Database]) -> Vec<u64> {
    let count = databases.len().max(1) as u64;
    let base = |of: &Database| of.base(left_bytes / count);
    let above_floors: u64 = databases.iter().map(|of| base(of) - of.floor_bytes).sum();
    let left_bytes = left_bytes - above_floors;
    let part_bytes = left_bytes / count;
    // Bytes above its base that a database had in the last window.
    let kept = |of: &Database| of.share_bytes.map(|bytes| bytes.saturating_sub(base(of)));
    let newcomers = databases.iter().filter(|of| of.share_bytes.is_none()).count() as u64;
    let kept_bytes: u128 = databases.iter().filter_map(kept).map(u128::from).sum();
    let for_kept_bytes = left_bytes - part_bytes * newcomers;
    // Rounding leaves less than a byte for each database undivided; that changes nothing.
    let is_kept =
        kept_bytes <= for_kept_bytes.into() && u128::from(for_kept_bytes) - kept_bytes <= count.into();
    let more = |of: &Database| match kept(of) {
        None => part_bytes,
        Some(bytes) if is_kept => bytes,
        Some(_) if kept_bytes == 0 => for_kept_bytes / (count - newcomers),
        Some(bytes) => {
            let bytes = u128::from(bytes) * u128::from(for_kept_bytes) / kept_bytes;
            u64::try_from(bytes).unwrap_or(for_kept_bytes)
        }
    };
    databases.iter().map(|of| base(of) + more(of)).collect()
}

/// Moves one step from the databases that lose least to those that gain most, if that pays in this
/// window and in the last one. Databases with equal values give or take equal parts.
fn step(step_bytes: u64, last: &[Standing], now: &[Standing], bytes: &mut [u64]) {
    let same = last.len() == now.len() && last.iter().zip(now).all(|(last, now)| last.id == now.id);
    if !same {
        return;
    }
    // One that has grown gives nothing, and one that has shrunk takes nothing: the value of its new
    // size has not been measured yet. Small changes do not count.
    let slack_bytes = step_bytes / 4;
    let both = || last.iter().zip(now).enumerate();
    let gives = |last: &Standing, now: &Standing| {
        now.spare_bytes > 0 && now.bytes <= last.bytes.saturating_add(slack_bytes)
    };
    let takes = |last: &Standing, now: &Standing| {
        now.is_filled && now.bytes.saturating_add(slack_bytes) >= last.bytes
    };
    let gain = |last: &Standing, now: &Standing| last.gain_per_byte.min(now.gain_per_byte);
    let loss = |last: &Standing, now: &Standing| last.loss().max(now.loss());
    let best = both().filter(|(_, (last, now))| takes(last, now)).map(|(_, (last, now))| gain(last, now));
    let least = both().filter(|(_, (last, now))| gives(last, now)).map(|(_, (last, now))| loss(last, now));
    let (Some(best), Some(least)) = (best.reduce(f64::max), least.reduce(f64::min)) else { return };
    if best <= least * (1.0 + MARGIN) + MOVING_NS_PER_BYTE / PAYBACK_SECONDS {
        return;
    }
    let at = |of: &dyn Fn(&Standing, &Standing) -> bool| -> Vec<usize> {
        both().filter(|(_, (last, now))| of(last, now)).map(|(at, _)| at).collect()
    };
    let givers = at(&|last, now| gives(last, now) && loss(last, now) <= least);
    let takers = at(&|last, now| takes(last, now) && gain(last, now) >= best);
    let mut moved_bytes = 0;
    for giver in &givers {
        let part_bytes = (step_bytes / givers.len() as u64).max(1).min(now[*giver].spare_bytes);
        bytes[*giver] -= part_bytes;
        moved_bytes += part_bytes;
    }
    for taker in &takers {
        bytes[*taker] += moved_bytes / takers.len() as u64;
    }
}

impl Database {
    /// Floor and demand, of which at most `part_bytes` count.
    fn base(&self, part_bytes: u64) -> u64 {
        self.floor_bytes.saturating_add(self.demand_bytes.min(part_bytes))
    }

    fn standing(&self, bytes: u64, base_bytes: u64) -> Standing {
        Standing {
            id: self.id,
            bytes,
            spare_bytes: bytes - base_bytes,
            is_filled: self.held_bytes >= bytes / FILLED_PART,
            gain_per_byte: price(self.gain_per_byte),
            loss_per_byte: price(self.loss_per_byte),
        }
    }
}

impl Standing {
    /// A giver's loss counts as at least its own gain, because it would ask for the memory back at
    /// that price.
    fn loss(&self) -> f64 {
        self.loss_per_byte.max(self.gain_per_byte)
    }
}

#[cfg(test)]
mod tests;
