//! The arbiter: how much memory moves from whom to whom, one window at a time.
//!
//! Every consumer of memory (caches, filters, index partitions, write buffers) says what it holds, what one
//! step more would save it, and what giving up its last step would cost it, all in nanoseconds per second per
//! byte ([`crate::value`]). Memory moves, a step at a time, from where it is missed least to where it saves
//! most, until no move pays: there the marginal values are equal, which for savings that shrink is the optimum.
//!
//! One window:
//!
//! 1. Whoever holds less than its floor is filled up first, from those who lose least by it.
//! 2. Then pairs, the largest gap first, each consumer in one pair at most: a step goes from giver to taker if
//!    `gain > loss * (1 + margin) + moving_ns_per_byte / payback_seconds`, in this window *and* in the last one.
//! 3. Who grew since the last window gives nothing, and who shrank takes nothing: it has had no time to show
//!    what its new size is worth.
//!
//! Invariants: no byte is made or lost; nobody falls below its floor or gives reserved bytes; the answer
//! depends on nothing but the arguments, and among equals the first in order moves.
//!
//! It cannot swing to and fro. Gains and losses are those of a whole step, not of one byte, so each move raises
//! the sum of all savings, by what moving costs at least, and what has been left is never better. (With less
//! than a step to move, savings that shrink make that only truer.) Where savings do not shrink, a giver's loss
//! counts for at least its own gain, so that on constant values memory only goes uphill. Against noise stand
//! the two windows and the margin.
//!
//! A consumer stands still if its reserve is all that it holds and its most is no more: so the write buffer can
//! be weighed every minute and the caches every second. Memory is taken away altogether by one more consumer
//! with nothing but a floor.
//!
//! ```
//! use shamba_model::arbiter::{ArbiterRules, Consumer, Move, moves};
//!
//! let rules =
//!     ArbiterRules { step_bytes: 1 << 20, moving_ns_per_byte: 25.0, payback_seconds: 60.0, margin: 0.1 };
//! let holding = |bytes, gain_per_byte, loss_per_byte| Consumer {
//!     bytes,
//!     floor_bytes: 4 << 20,
//!     reserved_bytes: 0,
//!     most_bytes: u64::MAX,
//!     gain_per_byte,
//!     loss_per_byte,
//! };
//! let window = [holding(64 << 20, 1.0, 1.5), holding(8 << 20, 9.0, 12.0)];
//! assert_eq!(moves(&rules, None, &window)?, []);
//! assert_eq!(moves(&rules, Some(&window), &window)?, [Move { from: 0, to: 1, bytes: 1 << 20 }]);
//! # Ok::<(), String>(())
//! ```
//!
//! Not here: the values ([`crate::value`], [`crate::residency`]); windows, measuring and moving (crate `shamba`).

use crate::input;

/// One consumer of memory in one window.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Consumer {
    /// What it holds.
    pub bytes: u64,
    /// What it must hold at least.
    pub floor_bytes: u64,
    /// What it cannot give now: pinned, or promised.
    pub reserved_bytes: u64,
    /// What it may hold at most.
    pub most_bytes: u64,
    /// What one step more would save, in nanoseconds per second per byte.
    pub gain_per_byte: f64,
    /// What its last step saves, in nanoseconds per second per byte.
    pub loss_per_byte: f64,
}

impl Consumer {
    /// What it can give.
    fn spare_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.floor_bytes.max(self.reserved_bytes))
    }

    /// What it can take.
    fn room_bytes(&self) -> u64 {
        self.most_bytes.saturating_sub(self.bytes)
    }

    fn validate(&self) -> Result<(), String> {
        input::not_negative("its gain per byte", self.gain_per_byte)?;
        input::not_negative("its loss per byte", self.loss_per_byte)?;
        if self.floor_bytes <= self.most_bytes {
            return Ok(());
        }
        Err(format!("its floor is {} bytes, above its most, {}", self.floor_bytes, self.most_bytes))
    }
}

/// When a move is worth making.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ArbiterRules {
    /// The most that one consumer gives or takes in a window, floors aside. Gains and losses are those of a step.
    pub step_bytes: u64,
    /// What moving a byte costs once: dropping what it held, and filling it again.
    pub moving_ns_per_byte: f64,
    /// How soon a move must have earned that back.
    pub payback_seconds: f64,
    /// By what share a gain must exceed a loss to count as more than noise.
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

    /// By how much a gain beats a loss and the cost of moving; 0 or less: it does not.
    fn gap(&self, from: &Consumer, to: &Consumer) -> f64 {
        let cost = self.moving_ns_per_byte / self.payback_seconds;
        // Nobody gives what it would have back at that price: where savings do not shrink (the rest of a loop
        // that the cache does not hold yet) a gain may be above the loss, and memory would go in circles.
        let loss_per_byte = from.loss_per_byte.max(from.gain_per_byte);
        to.gain_per_byte - (loss_per_byte * (1.0 + self.margin) + cost)
    }
}

/// Bytes that go from one consumer to another; consumers are named by their place in the list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Move {
    /// Who gives.
    pub from: usize,
    /// Who takes.
    pub to: usize,
    /// How much.
    pub bytes: u64,
}

/// What moves at the end of this window. Without a last window (at the start, or when consumers came or went)
/// only floors are filled.
///
/// # Errors
/// A value or a rule that is no number or negative, a floor above the most, or a last window of other consumers.
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

/// What those below their floor are given: in order, each from those who lose least.
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
    // What others hold wavers, and with it what is left to share: less than a part of a step is no move.
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
