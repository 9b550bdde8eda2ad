//! Filters and indexes together: the modules and index partitions that are worth their memory.
//!
//! A search of a file costs more if its index partition has to be read first, so a filter module
//! saves more there. A file whose filter rejects nearly every probe is rarely searched, so its
//! index is worth less. With `w` empty and `v` other probes a second, `s` searches that probe no
//! filter (seeks), modules 1 to d in memory and the share x of the index:
//!
//! ```text
//! searches a second             S = s + v + w * f_1 ... f_d
//! their cost a second           S * (data_ns + (1 - x) * index_ns)
//! the next module saves         w * f_1 ... f_d * (1 - f_{d+1}) * (data_ns + (1 - x) * index_ns)
//! the rest of the index saves   (1 - x) * S * index_ns
//! ```
//!
//! A module that is not in memory is skipped, or it is *fetched*: read for each probe that reaches
//! it. With modules up to r >= d fetched, the cost of the file is
//!
//! ```text
//!   sum over j from d to r - 1 of (v + w * f_1 ... f_j) * fetch_ns_j
//! + (s + v + w * f_1 ... f_r) * (data_ns + (1 - x) * index_ns)
//! ```
//!
//! where r minimizes the cost, but is at least the number of modules that must not be skipped
//! (`Skipping::None`, `Partial`). The saving of a piece is the difference of the file's cost
//! without and with it.
//!
//! Each piece lowers the value of the others, and none raises it. So the piece with the highest
//! saving per byte is taken next, and values are recomputed when they reach the front of the queue:
//! a piece whose value has dropped goes back into the queue. Modules that pay only together are
//! evaluated together.
//!
//! A module and an index are cut into equal pieces, and the last one that does not fit as a whole
//! is taken in part.
//!
//! *Workload shift*: if all lookups found their key and then none do, each of them is a search
//! until the shift is detected and the evicted modules are loaded again. Therefore a share u of the
//! found lookups is assumed to find nothing ([`Weighing::shift_part`]): savings of modules are
//! computed with w + u * v for w and (1 - u) * v for v.
//!
//! A module that still saves less than its probes cost is not taken, however much memory is free.
//! If it is already in memory and the memory is not needed otherwise, it may stay as *dormant*:
//! held in memory but not probed ([`Weighing::keeps`]).
//!
//! Invariants: never more bytes than the budget; a module has slices only if the modules before it
//! are whole; a dormant module was in memory before, and takes no memory from pieces that save
//! time; the answer depends only on the arguments.
//!
//! Not here: loading and eviction of slices, and measurements (package `shamba`).

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::ops::Range;

use crate::input;
use crate::price::ReadPrice;
use crate::skip::FileProbes;

/// A filter module in its file.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Module {
    /// Memory of the whole module.
    pub bytes: u64,
    /// Its equal slices, each of `bytes / slices`, rounded up.
    pub slices: u32,
    /// Its false-positive rate.
    pub fpr: f64,
}

impl Module {
    /// Bytes of a slice.
    pub fn slice_bytes(&self) -> u64 {
        self.bytes.div_ceil(u64::from(self.slices.max(1)))
    }
}

/// A file's index: equal partitions, each of which is in memory or not.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct FileIndex {
    /// Memory of all partitions.
    pub bytes: u64,
    /// Number of partitions.
    pub partitions: u32,
}

/// One file and its pieces that memory could hold.
#[derive(Clone, PartialEq, Debug)]
pub struct FileMemory {
    /// The probes that reach the file.
    pub probes: FileProbes,
    /// Searches that probe no filter: those of seeks.
    pub seeks_per_second: f64,
    /// Cost of a search whose index partition is in memory.
    pub data_ns: f64,
    /// Additional cost if the index partition is not in memory.
    pub index_ns: f64,
    /// The filter's modules, in probe order.
    pub modules: Vec<Module>,
    /// Number of modules, from the first on, that must not be skipped.
    pub asked_modules: usize,
    /// Price of fetching a slice of a module that is not in memory, by the slice's bytes.
    pub fetch: ReadPrice,
    /// The index; without partitions there is nothing to hold.
    pub index: FileIndex,
    /// Number of modules in memory now, from the first on.
    pub held_modules: usize,
    /// Number of these that are probed; the others are dormant.
    pub asked_now: usize,
    /// Whether the index is in memory now.
    pub holds_index: bool,
}

impl FileMemory {
    /// Price of fetching a slice of a module, in nanoseconds.
    fn fetch_ns(&self, module: usize) -> f64 {
        self.modules.get(module).map_or(0.0, |module| self.fetch.ns(module.slice_bytes()))
    }
}

/// Parameters of the evaluation.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Weighing {
    /// Cost of probing a module; 0 in counting mode.
    pub probe_ns: f64,
    /// Hysteresis: a resident piece stays unless another one saves more than `1 + margin` times as
    /// much per byte, so that noisy measurements do not exchange pieces of similar value
    /// repeatedly. A plan then saves at least 1 / (1 + margin) of the best one, probe costs aside.
    /// Within the same margin, active modules stay active and dormant ones dormant.
    pub margin: f64,
    /// Whether modules that are in memory and save nothing may stay dormant in the unused part of
    /// the budget.
    pub keeps: bool,
    /// The share of found lookups that is assumed to find nothing: an allowance for a workload
    /// shift, until the modules that the new lookups need are loaded.
    pub shift_part: f64,
}

/// The pieces to hold in memory.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct JointPlan {
    /// For each file and each module: the number of slices.
    pub slices: Vec<Vec<u32>>,
    /// For each file: the dormant modules, in memory but not probed.
    pub dormant: Vec<Range<usize>>,
    /// The bytes of modules that are held only as dormant: they save nothing.
    pub kept_bytes: u64,
    /// For each file: the number of index partitions.
    pub partitions: Vec<u32>,
    /// For each file: the number of modules, from the first on, that are fetched if they are not in
    /// memory; the others are skipped.
    pub fetched: Vec<usize>,
    /// The bytes of all pieces.
    pub bytes: u64,
    /// The cost of lookups and seeks under the plan, in nanoseconds per second: searches and
    /// probes.
    pub cost_ns_per_second: f64,
    /// The saving of the next bytes, in nanoseconds per second per byte: the price of memory here
    /// (margin included). 0 when no piece that saves anything is left out.
    pub gain_per_byte: f64,
    /// The saving per byte of the last bytes that were taken for their saving.
    pub loss_per_byte: f64,
}

/// A candidate for the next step.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Offer {
    per_byte: f64,
    file: usize,
    /// Modules up to this one; `None`: the index.
    end: Option<usize>,
}

impl Eq for Offer {}

impl Ord for Offer {
    fn cmp(&self, other: &Self) -> Ordering {
        // Ties: the first file first, and its filter before its index.
        let order = self.per_byte.total_cmp(&other.per_byte);
        order.then(other.file.cmp(&self.file)).then(self.end.is_some().cmp(&other.end.is_some()))
    }
}

impl PartialOrd for Offer {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The pieces of a file taken so far.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    modules: usize,
    index: bool,
    /// Set when a piece was taken in part: nothing more of that kind follows.
    filter_ended: bool,
    index_ended: bool,
}

/// The pieces of `files` to hold in memory within `budget_bytes`.
///
/// # Errors
/// A module or an index of no bytes in some pieces, or a rate or cost that is NaN, infinite or
/// negative.
pub fn plan_jointly(
    files: &[FileMemory],
    weighing: Weighing,
    budget_bytes: u64,
) -> Result<JointPlan, String> {
    input::not_negative("the cost of a probe", weighing.probe_ns)?;
    input::not_negative("the margin", weighing.margin)?;
    input::share("the part of lookups that may turn", weighing.shift_part)?;
    let mut rates = Vec::with_capacity(files.len());
    for (at, file) in files.iter().enumerate() {
        rates.push(Rates::of(file, weighing.shift_part).map_err(|error| format!("file {at}: {error}"))?);
    }
    let mut taken = vec![Taken::default(); files.len()];
    let mut plan = JointPlan {
        slices: files.iter().map(|file| vec![0; file.modules.len()]).collect(),
        partitions: vec![0; files.len()],
        ..JointPlan::default()
    };
    let mut queue: BinaryHeap<Offer> = BinaryHeap::new();
    for (at, file) in files.iter().enumerate() {
        queue.extend(next_modules(at, file, &rates[at], taken[at], weighing));
        queue.extend(whole_index(at, file, &rates[at], taken[at], weighing));
    }
    let mut left = budget_bytes;
    plan.loss_per_byte = f64::INFINITY;
    while let Some(offer) = queue.pop() {
        let (at, file) = (offer.file, &files[offer.file]);
        let now = match offer.end {
            Some(_) => next_modules(at, file, &rates[at], taken[at], weighing),
            None => whole_index(at, file, &rates[at], taken[at], weighing),
        };
        let Some(now) = now else { continue };
        if now.per_byte < offer.per_byte {
            queue.push(now); // It has lost value since.
            continue;
        }
        let bytes = match now.end {
            Some(end) => bytes_of(&file.modules[taken[at].modules..end]),
            None => file.index.bytes,
        };
        let fits = bytes <= left;
        plan.gain_per_byte = plan.gain_per_byte.max(if fits { 0.0 } else { now.per_byte });
        match now.end {
            Some(end) => {
                let modules = &file.modules[taken[at].modules..end];
                if fits {
                    take_whole(file, taken[at].modules..end, &mut plan.slices[at]);
                    taken[at].modules = end;
                    left -= bytes;
                    queue.extend(next_modules(at, file, &rates[at], taken[at], weighing));
                } else {
                    taken[at].filter_ended = true;
                    if let [module] = modules {
                        let slice_bytes = module.bytes.div_ceil(u64::from(module.slices));
                        let fitting = (left / slice_bytes).min(u64::from(module.slices));
                        plan.slices[at][taken[at].modules] = fitting as u32;
                        left -= fitting * slice_bytes;
                    }
                }
            }
            None if fits => {
                plan.partitions[at] = file.index.partitions;
                taken[at].index = true;
                left -= bytes;
            }
            None => {
                taken[at].index_ended = true;
                let partition_bytes = file.index.bytes.div_ceil(u64::from(file.index.partitions));
                let fitting = (left / partition_bytes).min(u64::from(file.index.partitions));
                plan.partitions[at] = fitting as u32;
                left -= fitting * partition_bytes;
            }
        }
        if fits {
            plan.loss_per_byte = plan.loss_per_byte.min(now.per_byte);
        }
    }
    plan.loss_per_byte = if plan.loss_per_byte.is_finite() { plan.loss_per_byte } else { 0.0 };
    for (at, file) in files.iter().enumerate() {
        let index_held = part(plan.partitions[at], file.index.partitions);
        let slices = &mut plan.slices[at];
        let kept = if weighing.keeps { kept(file, slices, left - plan.kept_bytes) } else { 0..0 };
        let fetched = rates[at].fetched(file, slices, index_held, weighing.probe_ns);
        // Modules that would otherwise be fetched are probed if they are in memory.
        let dormant = kept.start.max(fetched).min(kept.end)..kept.end;
        take_whole(file, kept.start..dormant.start, slices);
        plan.cost_ns_per_second +=
            Rates::of(file, 0.0)?.cost_fetching(file, slices, index_held, fetched, weighing.probe_ns);
        take_whole(file, dormant.clone(), slices);
        plan.kept_bytes += bytes_of(&file.modules[kept]);
        plan.fetched.push(fetched);
        plan.dormant.push(dormant);
    }
    plan.bytes = budget_bytes - left + plan.kept_bytes;
    Ok(plan)
}

/// The modules of a file that are in memory, were not taken, and fit into `left` bytes.
fn kept(file: &FileMemory, slices: &[u32], left: u64) -> Range<usize> {
    let first = slices.iter().take_while(|slices| **slices > 0).count();
    if first > 0 && slices[first - 1] < file.modules[first - 1].slices {
        return first..first; // There was memory for a part of it, and none for more.
    }
    let held = first..file.held_modules.min(file.modules.len());
    let fitting = held.rev().find(|last| bytes_of(&file.modules[first..=*last]) <= left);
    first..fitting.map_or(first, |last| last + 1)
}

fn take_whole(file: &FileMemory, modules: Range<usize>, slices: &mut [u32]) {
    for (slices, module) in slices[modules.clone()].iter_mut().zip(&file.modules[modules]) {
        *slices = module.slices;
    }
}

/// The cost of lookups and seeks with these pieces in memory, in nanoseconds per second, where the
/// first `fetched` modules of each file are fetched if they are not in memory.
///
/// # Errors
/// A rate or cost that is NaN, infinite or negative, or lists that do not match the files.
pub fn cost_ns_per_second(
    files: &[FileMemory],
    slices: &[Vec<u32>],
    partitions: &[u32],
    fetched: &[usize],
    probe_ns: f64,
) -> Result<f64, String> {
    if [slices.len(), partitions.len(), fetched.len()] != [files.len(); 3] {
        return Err("what is held is of other files".to_owned());
    }
    let mut sum = 0.0;
    for (((file, slices), partitions), fetched) in files.iter().zip(slices).zip(partitions).zip(fetched) {
        let index_held = part(*partitions, file.index.partitions);
        sum += Rates::of(file, 0.0)?.cost_fetching(file, slices, index_held, *fetched, probe_ns);
    }
    Ok(sum)
}

/// The share `held / all`; 1 if there are no pieces.
fn part(held: u32, all: u32) -> f64 {
    if all == 0 { 1.0 } else { f64::from(held.min(all)) / f64::from(all) }
}

/// Probes a second that pass the first modules.
struct Rates {
    /// Empty probes that pass the first 0, 1, 2 ... modules.
    empty: Vec<f64>,
    found: f64,
    seeks: f64,
}

impl Rates {
    /// The rates if the share `shift_part` of the found lookups found nothing.
    fn of(file: &FileMemory, shift_part: f64) -> Result<Self, String> {
        file.probes.validate()?;
        input::not_negative("seeks per second", file.seeks_per_second)?;
        input::not_negative("the cost of a search", file.data_ns)?;
        input::not_negative("the cost of an index read", file.index_ns)?;
        file.fetch.validate()?;
        let turning = shift_part * file.probes.found_per_second;
        let mut empty = vec![file.probes.empty_per_second + turning];
        for (number, module) in file.modules.iter().enumerate() {
            if module.bytes == 0 || module.slices == 0 || u64::from(module.slices) > module.bytes {
                return Err(format!(
                    "module {number} has {} bytes in {} slices",
                    module.bytes, module.slices
                ));
            }
            input::share("the false-positive rate of a module", module.fpr)?;
            empty.extend(empty.last().map(|last| last * module.fpr));
        }
        let FileIndex { bytes, partitions } = file.index;
        if partitions > 0 && bytes < u64::from(partitions) {
            return Err(format!("an index of {bytes} bytes in {partitions} partitions"));
        }
        Ok(Self { empty, found: file.probes.found_per_second - turning, seeks: file.seeks_per_second })
    }

    /// Probes that pass the first `modules`.
    fn reaching(&self, modules: usize) -> f64 {
        self.found + self.empty[modules]
    }

    /// Searches when the first `modules` are probed.
    fn searches(&self, modules: usize) -> f64 {
        self.seeks + self.reaching(modules)
    }

    /// The cost of the file with its first `modules` in memory and this share of its index,
    /// including fetches but not probes.
    fn whole_cost(&self, file: &FileMemory, modules: usize, index_held: f64) -> f64 {
        let search_ns = file.data_ns + (1.0 - index_held) * file.index_ns;
        let (mut fetching, mut least) = (0.0, f64::INFINITY);
        for end in modules..=file.modules.len() {
            if end >= file.asked_modules.min(file.modules.len()) {
                least = least.min(fetching + self.searches(end) * search_ns);
            }
            if end < file.modules.len() {
                fetching += self.reaching(end) * file.fetch_ns(end);
            }
        }
        least
    }

    /// The cost of the file with these slices and this share of its index, including probes, if the
    /// first `fetched` modules are fetched where they are not in memory.
    fn cost_fetching(
        &self,
        file: &FileMemory,
        slices: &[u32],
        index_held: f64,
        fetched: usize,
        probe_ns: f64,
    ) -> f64 {
        let search_ns = file.data_ns + (1.0 - index_held) * file.index_ns;
        let (mut cost, mut empty) = (0.0, self.empty[0]);
        for (at, (module, slices)) in file.modules.iter().zip(slices).enumerate() {
            let held = part(*slices, module.slices);
            let asked = if at < fetched { 1.0 } else { held };
            let reaching = empty + self.found;
            cost += reaching * (asked * probe_ns + (asked - held) * file.fetch_ns(at));
            empty *= 1.0 - asked * (1.0 - module.fpr);
        }
        cost + (empty + self.found + self.seeks) * search_ns
    }

    /// The number of modules to fetch, where they are not in memory, that minimizes the file's cost
    /// with these slices and this share of its index.
    fn fetched(&self, file: &FileMemory, slices: &[u32], index_held: f64, probe_ns: f64) -> usize {
        let least = file.asked_modules.min(file.modules.len());
        let costs = (least..=file.modules.len())
            .map(|fetched| (self.cost_fetching(file, slices, index_held, fetched, probe_ns), fetched));
        // Among equals the smallest number: a fetch that saves nothing is not made.
        costs.min_by(|a, b| a.0.total_cmp(&b.0)).map_or(0, |(_, fetched)| fetched)
    }
}

/// Memory of modules, whose slices all have the same size.
fn bytes_of(modules: &[Module]) -> u64 {
    modules
        .iter()
        .map(|module| module.bytes.div_ceil(u64::from(module.slices)) * u64::from(module.slices))
        .sum()
}

/// The next modules of a file: one, or as many as have the highest value together.
fn next_modules(
    at: usize,
    file: &FileMemory,
    rates: &Rates,
    taken: Taken,
    weighing: Weighing,
) -> Option<Offer> {
    if taken.filter_ended {
        return None;
    }
    let index_held = if taken.index || file.index.partitions == 0 { 1.0 } else { 0.0 };
    let before = rates.whole_cost(file, taken.modules, index_held);
    let mut best: Option<Offer> = None;
    let (mut bytes, mut probes) = (0, 0.0);
    for end in taken.modules + 1..=file.modules.len() {
        bytes += bytes_of(&file.modules[end - 1..end]);
        if end > file.asked_modules {
            // Modules that must not be skipped are probed anyway.
            probes += rates.reaching(end - 1);
        }
        let (spared, probed) = (before - rates.whole_cost(file, end, index_held), probes * weighing.probe_ns);
        let more = 1.0 + weighing.margin;
        let saved = match end {
            // A dormant module must be worth more, by the margin, to become active again.
            end if end > file.asked_now && end <= file.held_modules && weighing.keeps => {
                more * (spared - more * probed)
            }
            end if end <= file.held_modules => more * spared - probed,
            _ => spared - probed,
        };
        let per_byte = saved / bytes as f64;
        if per_byte > best.map_or(0.0, |best| best.per_byte) {
            best = Some(Offer { per_byte, file: at, end: Some(end) });
        }
    }
    best
}

fn whole_index(
    at: usize,
    file: &FileMemory,
    rates: &Rates,
    taken: Taken,
    weighing: Weighing,
) -> Option<Offer> {
    if taken.index || taken.index_ended || file.index.partitions == 0 {
        return None;
    }
    let kept = if file.holds_index { 1.0 + weighing.margin } else { 1.0 };
    let cost = |index_held| rates.whole_cost(file, taken.modules, index_held);
    let per_byte = kept * (cost(0.0) - cost(1.0)) / file.index.bytes as f64;
    (per_byte > 0.0).then_some(Offer { per_byte, file: at, end: None })
}

#[cfg(test)]
mod tests;
