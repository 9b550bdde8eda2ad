//! The arbiter: decides how much memory moves between consumers at the end of each window.
//!
//! Every consumer of memory (caches, filters, index partitions, write buffers) reports the bytes
//! that it holds, the saving of one more step, and the loss of giving up its last step. Savings and
//! losses are in nanoseconds per second per byte ([`crate::value`]). Memory moves, one step at a
//! time, from the smallest loss to the largest gain, until no move pays. At that point the marginal
//! values are equal, which is the optimum for diminishing savings.
//!
//! One window:
//!
//! 1. Each consumer below its floor is filled to the floor first, from the consumers with the
//!    smallest losses.
//! 2. Then pairs move, the largest gap first, each consumer in at most one pair. A step goes from
//!    giver to taker if `gain > loss * (1 + margin) + moving_ns_per_byte / payback_seconds`, in
//!    this window *and* in the last one.
//! 3. A consumer that grew since the last window gives nothing, and one that shrank takes nothing:
//!    the value of its new size has not been measured yet.
//!
//! Invariants: the sum of all bytes stays the same; no consumer falls below its floor or gives
//! reserved bytes; the answer depends only on the arguments, and among equals the first in order
//! moves.
//!
//! The arbiter cannot oscillate. Gains and losses are those of a whole step, not of one byte. Each
//! move therefore raises the sum of all savings by at least the cost of moving, and the abandoned
//! division is never better. (When less than a step moves, diminishing savings make this hold with
//! a larger margin.) Where savings do not diminish, a giver's loss counts as at least its own gain,
//! so that on constant values memory only moves toward higher savings. The two windows and the
//! margin guard against noise.
//!
//! A consumer is excluded from moves if its reserved bytes and its maximum both equal what it
//! holds. This lets the write buffer be evaluated every minute and the caches every second. To take
//! memory away from all consumers, add one more consumer that has only a floor.
//!
//! ```
//! use shamba_model::arbiter::{ArbiterRules, Consumer, Move, moves};
//!
//! let rules = ArbiterRules {
//!     step_bytes: 1 << 20,
//!     moving_ns_per_byte: 25.0,
//!     payback_seconds: 60.0,
//!     margin: 0.1,
//! };
//! let holding = |bytes, gain_per_byte, loss_per_byte| Consumer {
//!     bytes,
//!     floor_bytes: 4 << 20,
//!     reserved_bytes: 0,
//!     bytes_max: u64::MAX,
//!     gain_per_byte,
//!     loss_per_byte,
//! };
//! let window = [holding(64 << 20, 1.0, 1.5), holding(8 << 20, 9.0, 12.0)];
//! assert_eq!(moves(&rules, None, &window)?, []);
//! assert_eq!(moves(&rules, Some(&window), &window)?, [Move { from: 0, to: 1, bytes: 1 << 20 }]);
//! # Ok::<(), String>(())
//! ```
//!
//! Not here: the values ([`crate::value`], [`crate::residency`]); windows, measuring and moving
//! (crate `shamba`).

use crate::input;

/// One consumer of memory in one window.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Consumer {
    /// Bytes that it holds.
    pub bytes: u64,
    /// Minimum that it must hold.
    pub floor_bytes: u64,
    /// Bytes that it cannot give now: pinned, or promised.
    pub reserved_bytes: u64,
    /// Maximum that it may hold.
    pub bytes_max: u64,
    /// Saving of one step more, in nanoseconds per second per byte.
    pub gain_per_byte: f64,
    /// Saving of its last step, in nanoseconds per second per byte.
    pub loss_per_byte: f64,
}

impl Consumer {
    /// Bytes that it can give.
    fn spare_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.floor_bytes.max(self.reserved_bytes))
    }

    /// Bytes that it can take.
    fn room_bytes(&self) -> u64 {
        self.bytes_max.saturating_sub(self.bytes)
    }

    fn validate(&self) -> Result<(), String> {
        input::not_negative("its gain per byte", self.gain_per_byte)?;
        input::not_negative("its loss per byte", self.loss_per_byte)?;
        if self.floor_bytes <= self.bytes_max {
            return Ok(());
        }
        Err(format!("its floor is {} bytes, above its most, {}", self.floor_bytes, self.bytes_max))
    }
}

/// Conditions under which a move is worth making.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ArbiterRules {
    /// Maximum bytes that one consumer gives or takes in a window, floors aside. Gains and losses
    /// are those of a step.
    pub step_bytes: u64,
    /// One-time cost of moving a byte: dropping what it held, and filling it again.
    pub moving_ns_per_byte: f64,
    /// Time within which the savings of a move must repay its cost.
    pub payback_seconds: f64,
    /// Share by which a gain must exceed a loss to count as more than noise.
    pub margin: f64,
}

impl ArbiterRules {
    fn validate(&self) -> Result<(), String> {
        if self.step_bytes == 0 {
            return Err("a step of no bytes moves nothing".to_owned());
        }
        input::not_negative("the cost of moving", self.moving_ns_per_byte)?;
        input::not_negative("the margin", self.margin)?;
        if self.payback_seconds > 0.0 && self.payback_seconds.is_finite() {
            return Ok(());
        }
        Err(format!("the payback must be a time above 0 seconds, not {}", self.payback_seconds))
    }

    /// The margin by which a gain exceeds a loss plus the cost of moving; the move does not pay at
    /// 0 or less.
    fn gap(&self, from: &Consumer, to: &Consumer) -> f64 {
        let cost = self.moving_ns_per_byte / self.payback_seconds;
        // A giver's loss counts as at least its own gain, because it would ask for the memory back
        // at that price. Where savings do not diminish (a loop that is larger than the cache) a
        // gain can exceed the loss, and memory would oscillate.
        let loss_per_byte = from.loss_per_byte.max(from.gain_per_byte);
        to.gain_per_byte - (loss_per_byte * (1.0 + self.margin) + cost)
    }
}

/// Bytes that move from one consumer to another; consumers are named by their index in the list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Move {
    /// Index of the giver.
    pub from: usize,
    /// Index of the taker.
    pub to: usize,
    /// Bytes moved.
    pub bytes: u64,
}

/// The moves at the end of this window. Without a last window (at the start, or when consumers were
/// added or removed) only floors are filled.
///
/// # Errors
/// A value or a rule that is NaN, infinite or negative, a floor above the maximum, or a last window
/// with a different number of consumers.
pub fn moves(rules: &ArbiterRules, last: Option<&[Consumer]>, now: &[Consumer]) -> Result<Vec<Move>, String> {
    rules.validate()?;
    for (at, consumer) in now.iter().chain(last.unwrap_or_default()).enumerate() {
        input::of_list("consumer", at % now.len().max(1), consumer.validate())?;
    }
    let mut moves = fill_floors(now);
    let Some(last) = last else {
        return Ok(moves);
    };
    if last.len() != now.len() {
        return Err(format!("the last window had {} consumers, this one has {}", last.len(), now.len()));
    }
    let mut moved = vec![false; now.len()];
    for filled in &moves {
        (moved[filled.from], moved[filled.to]) = (true, true);
    }
    for (from, to, _) in pairs(rules, last, now) {
        if moved[from] || moved[to] {
            continue;
        }
        (moved[from], moved[to]) = (true, true);
        let bytes = rules.step_bytes.min(now[from].spare_bytes()).min(now[to].room_bytes());
        moves.push(Move { from, to, bytes });
    }
    Ok(moves)
}

/// Fills consumers below their floor: in order, each from the givers with the smallest losses.
fn fill_floors(now: &[Consumer]) -> Vec<Move> {
    let mut givers: Vec<(usize, u64)> = now.iter().map(Consumer::spare_bytes).enumerate().collect();
    givers.sort_by(|a, b| now[a.0].loss_per_byte.total_cmp(&now[b.0].loss_per_byte).then(a.0.cmp(&b.0)));
    let mut moves = Vec::new();
    for (to, consumer) in now.iter().enumerate() {
        let mut missing = consumer.floor_bytes.saturating_sub(consumer.bytes);
        for (from, spare) in &mut givers {
            let bytes = missing.min(*spare);
            if bytes > 0 {
                missing -= bytes;
                *spare -= bytes;
                moves.push(Move { from: *from, to, bytes });
            }
        }
    }
    moves
}

/// Giver, taker and gap (the lesser of two windows) of each move that pays, the largest gap first.
fn pairs(rules: &ArbiterRules, last: &[Consumer], now: &[Consumer]) -> Vec<(usize, usize, f64)> {
    // The memory to share varies as other uses vary. A change of less than a quarter of a step does
    // not count as growth or shrinkage.
    let slack_bytes = rules.step_bytes / 4;
    let gives = |at: &usize| now[*at].spare_bytes() > 0 && now[*at].bytes <= last[*at].bytes + slack_bytes;
    let takes = |at: &usize| now[*at].room_bytes() > 0 && now[*at].bytes + slack_bytes >= last[*at].bytes;
    let mut pairs = Vec::new();
    for from in (0..now.len()).filter(gives) {
        for to in (0..now.len()).filter(takes) {
            let gap = rules.gap(&now[from], &now[to]).min(rules.gap(&last[from], &last[to]));
            if from != to && gap > 0.0 {
                pairs.push((from, to, gap));
            }
        }
    }
    pairs.sort_by(|a, b| b.2.total_cmp(&a.2).then((a.0, a.1).cmp(&(b.0, b.1))));
    pairs
}

#[cfg(test)]
mod tests;
