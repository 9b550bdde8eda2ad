//! Navigator: the best design for a situation within a memory.
//!
//! It searches merge policy (leveling, tiering, lazy leveling, any K and Z where that wins clearly), size ratio, and
//! the division of memory between write buffer, filters and block cache, and judges by [`crate::cost`], the real model
//! with whole levels and filters for its number of levels, not by its limits. Monkey's Algorithm 1 walks the same
//! space: the number of levels and what follows from it.
//!
//! With L levels and a size ratio T a tree takes the data exactly with a buffer of
//!
//! ```text
//! M_buf = N E (T - 1) / T^(L+1)        equation 1, solved for the buffer; N with room to grow
//! ```
//!
//! More buffer buys nothing until it buys a level, so for each (policy, L, T) the buffer is that, and what is left of
//! the memory is filters and cache: two numbers to search, T and the filters' part (`search.rs`).
//!
//! *Ties*, designs within [`Options::tie`] of the fastest, go to the simplest: leveling before lazy leveling before
//! tiering before any other K and Z, whole T before broken ones, then T near 10, the usual one.
//!
//! *Bounds* on lookups, updates or space discard designs; a policy that they leave none of is told with what it comes
//! nearest with. If nothing is left, the error says which bound cannot be kept and
//! the least that can.
//!
//! *Uncertainty*: with [`Options::uncertainty`] designs are compared by the worst mix of operations near the
//! workload ([`crate::robust`]) instead of the workload itself. Filters stay those for the workload.
//!
//! Not here: what a design costs ([`crate::cost`]); moving a database to one (crate `shamba`).

mod search;
mod sensitivity;
mod words;

pub use sensitivity::{Input, Response, Sensitivity};

use crate::allocation::Allocation;
use crate::cost::{Costs, FENCE_BYTES_PER_PAGE, Plan, Situation, predict_held};
use crate::design::{MAX_BUFFER_BYTES, MIN_BUFFER_BYTES, MergePolicy};
use crate::input;
use crate::memtable_bytes_most;
use crate::robust::{OPERATIONS, Worst};
use crate::updates::Merging;
use search::{Candidate, Goal, Search};

/// What a design must keep within.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bounds {
    /// Buffers, filters, cache and fences together.
    pub memory_bytes: u64,
    /// The reads of a lookup of the workload's mix ([`Costs::lookup_reads`]) at most.
    pub max_lookup_ios: Option<f64>,
    /// The I/Os of an update as levels merge ([`Costs::merged_update_ios`]) at most.
    pub max_update_ios: Option<f64>,
}

/// How memory is counted, and what is searched.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Options {
    /// Memory for each byte of the write buffer; above 0. The engine's 2: one is filled while the last one is flushed. Less
    /// than 1 where what is merged down at once is more than memory holds of it.
    pub buffers: f64,
    /// The smallest write buffer.
    pub smallest_buffer_bytes: u64,
    /// What the write buffer may have of the memory, but the smallest in any case.
    pub largest_buffer: LargestBuffer,
    /// Memory of the fences for each page of data; 0 to leave them out. Where they would take more than half of all memory, they
    /// get half, and the rest of them is read when it is needed.
    pub fence_bytes_per_page: f64,
    /// Entries that the tree must take before it needs a further level, for each that there is now; at least 1.
    pub growth: f64,
    /// Whether a block cache may have memory.
    pub block_cache: bool,
    /// How filter bits are shared out.
    pub allocation: Allocation,
    /// Bytes stored for each byte of live data ([`Costs::space_amplification`], when all entries are obsolete that can be) at
    /// most; at least 1, infinite for no bound.
    pub max_space: f64,
    /// How levels merge.
    pub merging: Merging,
    /// Whether to look beyond the classical policies.
    pub fluid: bool,
    /// Costs that are no more than this share above the least count as equal.
    pub tie: f64,
    /// Whether to find out what other inputs would change; takes longer than the search itself.
    pub sensitivity: bool,
    /// Kullback-Leibler divergence from the workload, in nats, up to which a design must do well; 0 for the workload
    /// alone.
    pub uncertainty: f64,
}

impl Options {
    /// What the engine does.
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
    /// What Monkey's paper counts: one buffer, no fences, no cache, no room to grow, the classical policies.
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
                "the bound on bytes stored for a byte of data must be at least 1, not {}",
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

/// What of all memory one write buffer may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LargestBuffer {
    /// As much as there is.
    AllMemory,
    /// What the engine lets a memtable have of its budget ([`memtable_bytes_most`]): a larger buffer would be a
    /// promise that it does not keep.
    Memtable,
}

impl Options {
    /// The largest write buffer in a memory of so many bytes.
    pub(crate) fn largest_buffer_bytes(&self, memory_bytes: u64) -> u64 {
        let most = match self.largest_buffer {
            LargestBuffer::AllMemory => memory_bytes,
            LargestBuffer::Memtable => memtable_bytes_most(memory_bytes),
        };
        most.max(self.smallest_buffer_bytes).min(MAX_BUFFER_BYTES)
    }
}

/// The best design, and what else was considered.
#[derive(Clone, PartialEq, Debug)]
pub struct Navigation {
    /// The best design.
    pub plan: Plan,
    /// What it costs.
    pub costs: Costs,
    /// The worst mix within the uncertainty, and the time of an operation of it; `None` without an uncertainty.
    pub worst: Option<Worst<OPERATIONS>>,
    /// Why it is the one, in words.
    pub why: String,
    /// The best of every other policy, and the fastest of all if a tie went to a simpler one. Fastest first; those
    /// that break a bound last.
    pub alternatives: Vec<Alternative>,
    /// The classical policies of which there is no design at all.
    pub absent: Vec<Absent>,
    /// What other inputs would change; empty if that was not asked.
    pub sensitivity: Vec<Sensitivity>,
}

/// A design that was not chosen.
#[derive(Clone, PartialEq, Debug)]
pub struct Alternative {
    /// The design.
    pub plan: Plan,
    /// What it costs.
    pub costs: Costs,
    /// The time of an operation, for each of the chosen design's; with an uncertainty each in its worst mix.
    pub times_the_cost: f64,
    /// Whether it keeps the bounds. One that does not is what comes nearest to them of its policy.
    pub keeps_bounds: bool,
    /// Why it lost, in words.
    pub why: String,
}

/// A policy of which there is no design.
#[derive(Clone, PartialEq, Debug)]
pub struct Absent {
    /// The policy.
    pub policy: MergePolicy,
    /// Why, in words.
    pub why: String,
}

/// The best design for `situation` within `bounds`.
///
/// # Errors
/// Input that is no number or out of bounds; a memory below the least; bounds that no design keeps: which, and the
/// least that one can.
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

/// What a search comes to.
struct Chosen {
    /// The simplest of those that are as good as the fastest.
    best: Candidate,
    /// The fastest.
    fastest: Candidate,
    /// The fastest of each classical policy; of one that cannot keep the bounds, what comes nearest to them.
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

/// How much cheaper a K and Z without a name must be than the classical policies.
const WINS_CLEARLY: f64 = 0.03;

/// The fences that are in memory, in bytes, and what share of them that is.
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
        "a memory of {} bytes is too little: the smallest write buffers take {buffers:.0} bytes, and the fences of \
         this data up to half of the memory, {fences:.0}",
        bounds.memory_bytes
    ))
}

#[cfg(test)]
mod tests;
