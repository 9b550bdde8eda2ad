//! Moves of memory at the end of a window: from the consumer that loses least to the one that gains
//! most.
//!
//! Every consumer has a saving of one step more (gain) and of its last step (loss), in nanoseconds
//! per second per byte. A step goes from giver to taker if
//! `gain > loss * (1 + margin) + moving_ns_per_byte / payback_seconds`, in this window *and* in the
//! last one. Pairs move in descending order of the difference, each consumer in at most one pair.
//! A consumer that grew since the last window gives nothing, and one that shrank takes nothing: the
//! value of its new size has not been measured yet. Moves end when the marginal values are equal,
//! which is the optimum for diminishing savings.
//!
//! Invariants: the sum of all bytes stays the same; no consumer falls below its floor or grows
//! beyond its maximum; the answer depends only on the arguments, and among equals the first in
//! order moves.
//!
//! Memory cannot oscillate. Gains and losses are those of a whole step, not of one byte. Each move
//! therefore raises the sum of all savings by at least the cost of moving, and the abandoned
//! division is never better. (When less than a step moves, diminishing savings make this hold with
//! a larger margin.) Where savings do not diminish, a giver's loss counts as at least its own gain,
//! so that on constant values memory only moves toward higher savings. The two windows and the
//! margin guard against noise.
//!
//! Not here: floors and shares ([`super::decide`]); the values ([`super::consumers`]).

/// One consumer in one window.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Standing {
    /// Bytes that it has.
    pub bytes: u64,
    /// Bytes that it can give: those above its floor, or none if it takes no part in this window.
    pub spare_bytes: u64,
    /// Bytes that it can take.
    pub room_bytes: u64,
    /// Saving of one step more, in nanoseconds per second per byte: a number of at least 0.
    pub gain_per_byte: f64,
    /// Saving of its last step, alike.
    pub loss_per_byte: f64,
}

/// Conditions under which a move is worth making.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Rules {
    /// Maximum bytes that one consumer gives or takes in a window. Gains and losses are those of a
    /// step.
    pub step_bytes: u64,
    /// One-time cost of moving a byte: dropping what it held, and filling it again.
    pub moving_ns_per_byte: f64,
    /// Time within which the savings of a move must repay its cost.
    pub payback_seconds: f64,
    /// Share by which a gain must exceed a loss to count as more than noise.
    pub margin: f64,
}

impl Rules {
    /// Difference between a gain and a loss plus the cost of moving; the move does not pay at 0 or
    /// less.
    fn gap(&self, from: &Standing, to: &Standing) -> f64 {
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

/// The moves at the end of this window. None if the last window had other consumers.
pub(super) fn moves(rules: &Rules, last: &[Standing], now: &[Standing]) -> Vec<Move> {
    let mut moves = Vec::new();
    if last.len() != now.len() {
        return moves;
    }
    let mut moved = vec![false; now.len()];
    for (from, to, _) in pairs(rules, last, now) {
        if moved[from] || moved[to] {
            continue;
        }
        (moved[from], moved[to]) = (true, true);
        let bytes = rules.step_bytes.min(now[from].spare_bytes).min(now[to].room_bytes);
        moves.push(Move { from, to, bytes });
    }
    moves
}

/// Giver, taker and gap (the lesser of two windows) of each move that pays, the largest gap first.
fn pairs(rules: &Rules, last: &[Standing], now: &[Standing]) -> Vec<(usize, usize, f64)> {
    // The memory to share varies as other uses vary. A change of less than a quarter of a step does
    // not count as growth or shrinkage.
    let slack_bytes = rules.step_bytes / 4;
    let gives = |at: &usize| {
        now[*at].spare_bytes > 0 && now[*at].bytes <= last[*at].bytes.saturating_add(slack_bytes)
    };
    let takes =
        |at: &usize| now[*at].room_bytes > 0 && now[*at].bytes.saturating_add(slack_bytes) >= last[*at].bytes;
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
