//! Navigator: the best design for a situation within a memory limit.
//!
//! It searches the merge policy (leveling, tiering, lazy leveling, any K and Z where they are
//! clearly better), the size ratio, and the division of memory between write buffer, filters and
//! block cache. It evaluates designs by [`crate::cost`], the exact model for an integer number of
//! levels, not by the closed forms. Monkey's Algorithm 1 searches the same space: the number of
//! levels and what follows from it.
//!
//! With L levels and a size ratio T a tree takes the data exactly with a buffer of
//!
//! ```text
//! M_buf = N E (T - 1) / T^(L+1)        equation 1, solved for the buffer; N with room to grow
//! ```
//!
//! A larger buffer saves nothing until it saves a level. So for each (policy, L, T) the buffer has
//! this size, and the remaining memory goes to filters and cache. Two numbers are searched: T and
//! the filters' share (`search.rs`).
//!
//! *Ties*: among designs within [`Options::tie`] of the fastest, the simplest wins. Leveling comes
//! before lazy leveling before tiering before any other K and Z, an integer T before a fractional
//! one, then T near 10, the usual value.
//!
//! *Bounds* on lookups, updates or space discard designs. A policy without a design within the
//! bounds is reported with the design that comes nearest to them. If no design remains, the error
//! names the bound that cannot be kept and its minimum feasible value.
//!
//! *Uncertainty*: with [`Options::uncertainty`] designs are compared by the worst mix of operations
//! near the workload ([`crate::robust`]) instead of the workload itself. Filters are still
//! allocated for the workload.
//!
//! Not here: the cost of a design ([`crate::cost`]); moving a database to a design (crate
//! `shamba`).

mod search;
mod sensitivity;
mod words;

pub use sensitivity::{Input, Response, Sensitivity};

use crate::allocation::Allocation;
use crate::cost::{Costs, FENCE_BYTES_PER_PAGE, Plan, Situation, predict_held};
use crate::design::{MAX_BUFFER_BYTES, MIN_BUFFER_BYTES, MergePolicy};
use crate::input;
use crate::memtable_bytes_max;
use crate::robust::{OPERATIONS, Worst};
use crate::updates::Merging;
use search::{Candidate, Goal, Search};

/// Limits that a design must keep.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bounds {
    /// Memory of buffers, filters, cache and fences together.
    pub memory_bytes: u64,
    /// Maximum reads of a lookup of the workload's mix ([`Costs::lookup_reads`]).
    pub max_lookup_ios: Option<f64>,
    /// Maximum I/Os of an update as levels are compacted ([`Costs::merged_update_ios`]).
    pub max_update_ios: Option<f64>,
}

/// Memory accounting, and the extent of the search.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Options {
    /// Memory per byte of the write buffer; above 0. The engine's value is 2: one buffer is filled
    /// while the last one is flushed. It is less than 1 where a batch that is compacted at once is
    /// larger than the memory that it takes.
    pub buffers: f64,
    /// Minimum write buffer.
    pub smallest_buffer_bytes: u64,
    /// Maximum share of the memory for the write buffer; the minimum is always allowed.
    pub largest_buffer: LargestBuffer,
    /// Memory of the fences per page of data; 0 to leave them out. Where they would take more than
    /// half of all memory, half of it holds fences, and the other fences are read when they are
    /// needed.
    pub fence_bytes_per_page: f64,
    /// Factor by which the entries may grow before the tree needs another level; at least 1.
    pub growth: f64,
    /// Whether memory may be used for a block cache.
    pub block_cache: bool,
    /// Allocation of filter bits.
    pub allocation: Allocation,
    /// Maximum bytes stored per byte of live data ([`Costs::space_amplification`], with the maximum
    /// number of obsolete entries); at least 1, infinite for no bound.
    pub max_space: f64,
    /// How levels are compacted.
    pub merging: Merging,
    /// Whether to search beyond the classical policies.
    pub fluid: bool,
    /// Relative cost difference that counts as a tie with the minimum.
    pub tie: f64,
    /// Whether to compute the effect of other inputs; takes longer than the search itself.
    pub sensitivity: bool,
    /// Kullback-Leibler divergence from the workload, in nats, within which the worst mix counts; 0
    /// for the workload alone.
    pub uncertainty: f64,
}

impl Options {
    /// The engine's behaviour.
    pub const ENGINE: Self = Self {
        buffers: 2.0,
        smallest_buffer_bytes: 64 << 10,
        largest_buffer: LargestBuffer::Memtable,
        fence_bytes_per_page: FENCE_BYTES_PER_PAGE,
        growth: 1.1,
        block_cache: true,
        allocation: Allocation::Monkey,
        max_space: f64::INFINITY,
        merging: Merging::Following,
        fluid: true,
        tie: 0.01,
        sensitivity: true,
        uncertainty: 0.0,
    };
    /// Monkey's assumptions: one buffer, no fences, no cache, no room to grow, the classical
    /// policies.
    pub const PAPER: Self = Self {
        buffers: 1.0,
        smallest_buffer_bytes: 4096,
        largest_buffer: LargestBuffer::AllMemory,
        fence_bytes_per_page: 0.0,
        growth: 1.0,
        block_cache: false,
        merging: Merging::WholeLevels,
        fluid: false,
        ..Self::ENGINE
    };

    fn validate(&self) -> Result<(), String> {
        let at_least_1 = |what: &str, value: f64| match (1.0..f64::INFINITY).contains(&value) {
            true => Ok(()),
            false => Err(format!("{what} must be a finite number of at least 1, not {value}")),
        };
        input::positive("the memory for each byte of the buffer", self.buffers)?;
        at_least_1("the room to grow", self.growth)?;
        if self.max_space.is_nan() || self.max_space < 1.0 {
            return Err(format!(
                "the bound on space amplification must be at least 1, not {}",
                self.max_space
            ));
        }
        input::not_negative("the fences' bytes per page", self.fence_bytes_per_page)?;
        input::share("the share that counts as a tie", self.tie)?;
        input::not_negative("the uncertainty", self.uncertainty)?;
        if self.smallest_buffer_bytes >= MIN_BUFFER_BYTES {
            return Ok(());
        }
        Err(format!(
            "the smallest buffer must be at least {MIN_BUFFER_BYTES} bytes, not {}",
            self.smallest_buffer_bytes
        ))
    }
}

/// Maximum share of all memory for one write buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LargestBuffer {
    /// All memory.
    AllMemory,
    /// The engine's limit of a memtable within its budget ([`memtable_bytes_max`]). The engine
    /// would not use a larger buffer.
    Memtable,
}

impl Options {
    /// Maximum write buffer in a memory of `memory_bytes`.
    pub(crate) fn largest_buffer_bytes(&self, memory_bytes: u64) -> u64 {
        let most = match self.largest_buffer {
            LargestBuffer::AllMemory => memory_bytes,
            LargestBuffer::Memtable => memtable_bytes_max(memory_bytes),
        };
        most.max(self.smallest_buffer_bytes).min(MAX_BUFFER_BYTES)
    }
}

/// The best design, and the other designs that were considered.
#[derive(Clone, PartialEq, Debug)]
pub struct Navigation {
    /// The best design.
    pub plan: Plan,
    /// Its costs.
    pub costs: Costs,
    /// The worst mix within the uncertainty, and the time of an operation of it; `None` without an
    /// uncertainty.
    pub worst: Option<Worst<OPERATIONS>>,
    /// The reason for the choice, as text.
    pub why: String,
    /// The best design of every other policy, and the fastest of all if a tie went to a simpler
    /// one. The fastest is first; those that break a bound are last.
    pub alternatives: Vec<Alternative>,
    /// The classical policies without any design.
    pub absent: Vec<Absent>,
    /// The effect of other inputs; empty if it was not requested.
    pub sensitivity: Vec<Sensitivity>,
}

/// A design that was not chosen.
#[derive(Clone, PartialEq, Debug)]
pub struct Alternative {
    /// The design.
    pub plan: Plan,
    /// Its costs.
    pub costs: Costs,
    /// The time of an operation relative to the chosen design's; with an uncertainty, each in its
    /// worst mix.
    pub times_the_cost: f64,
    /// Whether it keeps the bounds. One that does not is the nearest to them of its policy.
    pub keeps_bounds: bool,
    /// The reason why it lost, as text.
    pub why: String,
}

/// A policy without a design.
#[derive(Clone, PartialEq, Debug)]
pub struct Absent {
    /// The policy.
    pub policy: MergePolicy,
    /// The reason, as text.
    pub why: String,
}

/// The best design for `situation` within `bounds`.
///
/// # Errors
/// Input that is NaN or out of bounds; a memory below the minimum; bounds that no design keeps: the
/// bound, and its minimum feasible value.
pub fn navigate(situation: &Situation, bounds: &Bounds, options: &Options) -> Result<Navigation, String> {
    let chosen = choose(situation, bounds, options, search::Grid::Fine)?;
    let sensitivity = match options.sensitivity {
        true => sensitivity::of_all(situation, bounds, options, &chosen.best),
        false => Vec::new(),
    };
    let best = &chosen.best;
    let mut others: Vec<&Candidate> = chosen.of_policies.iter().collect();
    if chosen.fastest.plan.design != best.plan.design {
        others.push(&chosen.fastest);
    }
    others.retain(|other| words::name(&other.plan) != words::name(&best.plan));
    others.sort_by(|a, b| {
        let in_order = (a.violation > 0.0).cmp(&(b.violation > 0.0));
        in_order.then(a.value.total_cmp(&b.value))
    });
    others.dedup_by(|a, b| a.plan.design == b.plan.design);
    let alternative = |other: &&Candidate| Alternative {
        plan: other.plan,
        costs: other.costs.clone(),
        times_the_cost: other.times_the_cost_of(best),
        keeps_bounds: other.violation == 0.0,
        why: words::why_lost(situation, bounds, options, best, other),
    };
    let absent = |policy: MergePolicy| Absent { policy, why: words::why_absent(policy) };
    let worst = match options.uncertainty > 0.0 {
        true => Some(best.costs.worst(&situation.workload, options.uncertainty)?),
        false => None,
    };
    Ok(Navigation {
        worst,
        why: words::why_best(bounds, options, &chosen),
        alternatives: others.iter().map(alternative).collect(),
        absent: chosen.absent.iter().copied().map(absent).collect(),
        sensitivity,
        plan: best.plan,
        costs: best.costs.clone(),
    })
}

/// The result of a search.
struct Chosen {
    /// The simplest design within the tie of the fastest.
    best: Candidate,
    /// The fastest.
    fastest: Candidate,
    /// The fastest of each classical policy; where it cannot keep the bounds, the one nearest to
    /// them.
    of_policies: Vec<Candidate>,
    /// The classical policies that have no design here.
    absent: Vec<MergePolicy>,
}

fn choose(
    situation: &Situation,
    bounds: &Bounds,
    options: &Options,
    grid: search::Grid,
) -> Result<Chosen, String> {
    options.validate()?;
    situation.validate()?;
    for (what, bound) in [("a lookup", bounds.max_lookup_ios), ("an update", bounds.max_update_ios)] {
        input::not_negative(&format!("the bound on the I/Os of {what}"), bound.unwrap_or(0.0))?;
    }
    check_memory(situation, bounds, options)?;
    let search = Search { situation, bounds, options, goal: Goal::Time, grid };
    let (mut of_policies, mut absent): (Vec<Candidate>, _) = (Vec::new(), Vec::new());
    for policy in MergePolicy::ALL {
        match search.best_of(search::Runs::Policy(policy)) {
            Some(candidate) => of_policies.push(candidate),
            None => absent.push(policy),
        }
    }
    let kept = || of_policies.iter().filter(|candidate| candidate.violation == 0.0);
    let Some(fastest) = kept().min_by(|a, b| a.compare(b)) else {
        return Err(words::infeasible(&search));
    };
    let mut fastest = fastest.clone();
    if let Some(fluid) = search.best_fluid(&fastest) {
        if fluid.violation == 0.0 && fluid.value < fastest.value * (1.0 - WINS_CLEARLY) {
            fastest = fluid;
        }
    }
    let best = search.simplest(&fastest).unwrap_or_else(|| fastest.clone());
    Ok(Chosen { best, fastest, of_policies, absent })
}

/// Minimum relative saving of an unnamed K and Z over the classical policies.
const WINS_CLEARLY: f64 = 0.03;

/// Bytes of the fences that are in memory, and their share of all fences.
pub(crate) fn held_fences(situation: &Situation, bounds: &Bounds, options: &Options) -> (f64, f64) {
    let all = situation.data.pages() * options.fence_bytes_per_page;
    let held = all.min(bounds.memory_bytes as f64 / 2.0);
    if held < all { (held, held / all) } else { (all, 1.0) }
}

fn check_memory(situation: &Situation, bounds: &Bounds, options: &Options) -> Result<(), String> {
    let (fences, _) = held_fences(situation, bounds, options);
    let buffers = options.smallest_buffer_bytes as f64 * options.buffers;
    if fences + buffers <= bounds.memory_bytes as f64 {
        return Ok(());
    }
    Err(format!(
        "a memory of {} bytes is too small: the smallest write buffers take {buffers:.0} bytes, and the fences of \
         this data up to half of the memory, {fences:.0}",
        bounds.memory_bytes
    ))
}

#[cfg(test)]
mod tests;
