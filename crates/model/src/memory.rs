//! The division of a memory budget: who may hold how many bytes.
//!
//! [`decide`] is a pure function from measurements to shares. One window:
//!
//! 1. What others hold (memtables, tables being built, iterators, metadata) and a fixed part of the
//!    budget are set aside; the remainder is *shared* ([`shared_bytes`]).
//! 2. Each consumer gets its share of the last decision, at least its floor and at most its
//!    maximum. One consumer ([`Role::Rest`]) gets what the others leave. If the floors exceed the
//!    shared memory, that is the [`Outcome`], and floors are granted in order.
//! 3. If the last window is known, one step of memory moves from the consumer that loses least to
//!    the one that gains most, if that pays in both windows (`moves`).
//!
//! The write buffer is a [`Role::Limit`]: its memory counts as held by others while memtables hold
//! entries, and its share only says when they are sealed.
//!
//! All numbers are in one table, [`constants`]. [`filters_and_indexes`], [`block_cache`],
//! [`record_cache`] and [`write_buffer`] compute the consumers of the engine from measurements;
//! another consumer is one more [`Consumer`] in the list.
//!
//! Invariants: the shares of the shared memory never exceed it; with [`Outcome::Divided`] every
//! share is at least its floor; equal inputs give equal shares; on constant values memory reaches a
//! fixed division within [`CONVERGENCE_WINDOWS`] and stays there; every input has an answer (values
//! that are NaN or negative count as 0).
//!
//! ```
//! use shamba_model::memory::{self, Inputs, Measured, Outcome, PlanValue};
//!
//! const MIB: u64 = 1 << 20;
//! let budget_bytes = 64 * MIB;
//! let plan = PlanValue {
//!     gain_per_byte: 9.0,
//!     loss_per_byte: 9.0,
//!     useful_bytes: 60 * MIB,
//!     kept_bytes: 0,
//! };
//! let measured = Measured { seconds: 1.0, read_ns: 1_000.0, ..Measured::default() };
//! let consumers = [
//!     memory::filters_and_indexes(budget_bytes, &plan, MIB, u64::MAX),
//!     memory::block_cache(budget_bytes, Some(32 * MIB), u64::MAX, measured.cache_gain_per_byte()),
//! ];
//! let inputs = Inputs { budget_bytes, others_bytes: 6 * MIB, consumers: &consumers, last: None };
//! let first = memory::decide(&inputs);
//! assert_eq!((first.outcome, first.bytes), (Outcome::Divided, vec![24 * MIB, 32 * MIB]));
//! // The cache has no misses that more memory would spare: in the second window a step moves.
//! let second = memory::decide(&Inputs { last: Some(&first.window), ..inputs });
//! assert_eq!(second.bytes, [26 * MIB, 30 * MIB]);
//! ```
//!
//! Not here: measuring, and carrying out (package `shamba`); which pieces filters and indexes hold
//! in their share ([`crate::joint`]); filter bits ([`crate::allocation`]).

pub mod constants;
mod consumers;
pub mod databases;
mod moves;
mod parts;
mod ribbon;

pub use consumers::{
    Measured, PlanValue, RecordLookups, block_cache, filters_and_indexes, is_cache_worth_moving,
    record_cache, record_sample_bytes, write_buffer, write_buffer_bytes,
};
pub use moves::Move;
pub use parts::{
    budget_bytes_min, decayed_peak_bytes, early_bytes, is_capacity_changed, iterator_bytes, job_bytes,
    job_bytes_min, jobs_bytes_max, kept_free_bytes, memtable_bytes_max, memtable_charge, missing_bytes,
    read_ahead_bytes, recent_ratio, shared_bytes, shed_bytes, slack_bytes, table_metadata_bytes,
    tables_bytes_max, work_bytes,
};
pub use ribbon::LastRunFilters;

use self::constants::{MARGIN, MOVING_NS_PER_BYTE, PAYBACK_SECONDS, STEP_PART};
use self::moves::{Rules, Standing, moves};

/// Windows within which shares follow a change of constant values, for consumers that decide in
/// every window: one step of 1/[`STEP_PART`] of the budget a window, after two windows of
/// confirmation.
pub const CONVERGENCE_WINDOWS: u64 = STEP_PART + 2;

/// How a consumer takes part in the division.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Has a share of the shared memory; before the first decision `1/first_part` of it.
    Share {
        /// Divisor of the shared memory.
        first_part: u64,
    },
    /// Has the shared memory that the others leave. The first such consumer counts.
    Rest,
    /// Has a size limit. What it holds counts as held by others.
    Limit,
}

/// One consumer of memory in one window.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Consumer {
    /// How it takes part.
    pub role: Role,
    /// Its share of the last decision that changed it.
    pub share_bytes: Option<u64>,
    /// Minimum that it must have. Above `bytes_max` the floor counts.
    pub floor_bytes: u64,
    /// Maximum that it may have.
    pub bytes_max: u64,
    /// Size beyond which more memory saves nothing: it takes no step beyond it.
    pub useful_bytes: u64,
    /// Windows between two decisions about it; 0 if it never gives or takes a step.
    pub every_windows: u64,
    /// Saving of one step more, in nanoseconds per second per byte.
    pub gain_per_byte: f64,
    /// Saving of its last step, alike.
    pub loss_per_byte: f64,
}

/// Measurements on which a decision is based.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Inputs<'a> {
    /// The memory budget.
    pub budget_bytes: u64,
    /// Bytes that are not divided: held by others, or kept free for them.
    pub others_bytes: u64,
    /// The consumers, in descending order of their claim to a floor.
    pub consumers: &'a [Consumer],
    /// The previous window. Without it, and if it had other consumers, no step moves.
    pub last: Option<&'a Window>,
}

/// Result of a division.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Every consumer has at least its floor.
    Divided,
    /// The floors exceed the shared memory by this much. Floors are granted in order, that of
    /// [`Role::Rest`] last.
    FloorsExceedBudget {
        /// Bytes that are missing.
        missing_bytes: u64,
    },
}

/// The state of the consumers at the end of a window: an input of the next decision.
#[derive(Clone, PartialEq, Debug)]
pub struct Window {
    number: u64,
    standings: Vec<Standing>,
}

/// The shares of all consumers.
#[derive(Clone, PartialEq, Debug)]
pub struct Shares {
    /// The outcome.
    pub outcome: Outcome,
    /// Bytes of each consumer, in the order of the inputs.
    pub bytes: Vec<u64>,
    /// The moves that led to them.
    pub moves: Vec<Move>,
    /// Shares of all consumers after the moves, which they keep while less is shared.
    decided: Vec<Option<u64>>,
    /// Input of the next decision.
    pub window: Window,
}

impl Shares {
    /// The new share of this consumer if a step moved to or from it: what the caller remembers as
    /// its [`Consumer::share_bytes`]. It exceeds the present bytes while others hold more than
    /// before. Other shares vary with what is shared and need not be remembered.
    pub fn moved(&self, at: usize) -> Option<u64> {
        let has_moved = self.moves.iter().any(|moved| moved.from == at || moved.to == at);
        self.decided.get(at).copied().flatten().filter(|_| has_moved)
    }
}

/// The share of each consumer.
pub fn decide(inputs: &Inputs<'_>) -> Shares {
    let Inputs { budget_bytes, others_bytes, consumers, last } = *inputs;
    let shared_bytes = shared_bytes(budget_bytes, others_bytes);
    let mut decided: Vec<Option<u64>> = consumers.iter().map(|consumer| consumer.share_bytes).collect();
    let (outcome, bytes) = divide(shared_bytes, consumers, &decided);
    let number = last.map_or(1, |last| last.number.saturating_add(1));
    let standings: Vec<Standing> =
        consumers.iter().zip(&bytes).map(|(consumer, bytes)| consumer.standing(*bytes, number)).collect();
    let moves = match (outcome, last) {
        (Outcome::Divided, Some(last)) => moves(&rules(budget_bytes), &last.standings, &standings),
        _ => Vec::new(),
    };
    let window = Window { number, standings };
    if moves.is_empty() {
        return Shares { outcome, bytes, moves, decided, window };
    }
    for moved in &moves {
        decided[moved.from] = Some(bytes[moved.from].saturating_sub(moved.bytes));
        decided[moved.to] = Some(bytes[moved.to].saturating_add(moved.bytes));
    }
    let (outcome, bytes) = divide(shared_bytes, consumers, &decided);
    Shares { outcome, bytes, moves, decided, window }
}

/// Bytes that one consumer gives to another in a window.
fn step_bytes(budget_bytes: u64) -> u64 {
    (budget_bytes / STEP_PART).max(1)
}

fn rules(budget_bytes: u64) -> Rules {
    Rules {
        step_bytes: step_bytes(budget_bytes),
        moving_ns_per_byte: MOVING_NS_PER_BYTE,
        payback_seconds: PAYBACK_SECONDS,
        margin: MARGIN,
    }
}

/// Bytes of each consumer with these decided shares.
fn divide(shared_bytes: u64, consumers: &[Consumer], decided: &[Option<u64>]) -> (Outcome, Vec<u64>) {
    let rest = consumers.iter().position(|consumer| consumer.role == Role::Rest);
    let rest_floor_bytes = rest.map_or(0, |at| consumers[at].floor_bytes);
    let shares = || {
        let all = consumers.iter().enumerate();
        all.filter(|(_, consumer)| matches!(consumer.role, Role::Share { .. })).map(|(at, _)| at)
    };
    let mut bytes: Vec<u64> = consumers
        .iter()
        .zip(decided)
        .map(|(consumer, decided)| match (consumer.role, *decided) {
            (Role::Rest, _) => 0,
            (_, Some(bytes)) => consumer.bounded(bytes),
            (Role::Share { first_part }, None) => consumer.bounded(shared_bytes / first_part.max(1)),
            (Role::Limit, None) => consumer.bytes_max.max(consumer.floor_bytes),
        })
        .collect();
    let floors = shares().map(|at| consumers[at].floor_bytes).fold(rest_floor_bytes, u64::saturating_add);
    let mut left_bytes = shared_bytes;
    if floors > shared_bytes {
        for at in shares().chain(rest) {
            bytes[at] = consumers[at].floor_bytes.min(left_bytes);
            left_bytes -= bytes[at];
        }
        return (Outcome::FloorsExceedBudget { missing_bytes: floors - shared_bytes }, bytes);
    }
    // Floors first, then what was decided, in order.
    for at in shares() {
        left_bytes -= consumers[at].floor_bytes;
    }
    left_bytes -= rest_floor_bytes;
    for at in shares() {
        let more_bytes = (bytes[at] - consumers[at].floor_bytes).min(left_bytes);
        bytes[at] = consumers[at].floor_bytes + more_bytes;
        left_bytes -= more_bytes;
    }
    if let Some(at) = rest {
        bytes[at] = consumers[at].bounded(rest_floor_bytes + left_bytes);
        left_bytes -= bytes[at] - rest_floor_bytes;
    }
    // What the rest may not have goes to the others.
    for at in shares() {
        let more_bytes = consumers[at].bounded(u64::MAX).saturating_sub(bytes[at]).min(left_bytes);
        bytes[at] += more_bytes;
        left_bytes -= more_bytes;
    }
    (Outcome::Divided, bytes)
}

impl Consumer {
    /// `bytes` within its bounds; the floor counts if it is above the maximum.
    fn bounded(&self, bytes: u64) -> u64 {
        bytes.min(self.bytes_max).max(self.floor_bytes)
    }

    /// The consumer with these bytes as a party to moves in window `number`.
    fn standing(&self, bytes: u64, number: u64) -> Standing {
        let is_due = self.every_windows > 0 && number % self.every_windows == 0;
        let if_due = |bytes: u64| if is_due { bytes } else { 0 };
        Standing {
            bytes,
            spare_bytes: if_due(bytes.saturating_sub(self.floor_bytes)),
            room_bytes: if_due(self.bytes_max.min(self.useful_bytes).saturating_sub(bytes)),
            gain_per_byte: price(self.gain_per_byte),
            loss_per_byte: price(self.loss_per_byte),
        }
    }
}

/// A value per byte as a finite number of at least 0; NaN counts as 0.
fn price(value: f64) -> f64 {
    if value.is_nan() { 0.0 } else { value.clamp(0.0, f64::MAX) }
}

#[cfg(test)]
mod tests;
