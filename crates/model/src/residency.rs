//! Residency: the filter modules to hold in a given number of bytes.
//!
//! Module d of a file saves w * f_1 ... f_(d-1) * (1 - f_d) searches a second ([`crate::skip`]),
//! each at the cost of a search of that file. It costs a probe whenever a lookup reaches it. The
//! plan takes the modules that save most per byte, each file's in order. Because each saves less
//! than the one before it, the greedy choice is optimal. With lookups spread evenly this is Monkey;
//! with skewed lookups it follows the skew; the modules that it leaves out are those that skipping
//! would skip.
//!
//! If a module saves more per byte than the one before it, the two are evaluated as one. So savings
//! per byte never increase along a file (the concave hull of its savings).
//!
//! A module is cut into equal slices, which hold equal shares of its keys: half of the slices save
//! half. The one module that does not fit as a whole is taken in part, as many slices as fit. The
//! remaining bytes are less than one slice and go to smaller pieces that still fit. So the plan is
//! within one slice of the optimum.
//!
//! Invariants: never more bytes than the budget; a module has slices only if all of the modules
//! before it are whole.
//!
//! ```
//! use shamba_model::residency::{FileModules, Module, ResidencyPlanner};
//! use shamba_model::skip::FileProbes;
//! use shamba_model::value::Prices;
//!
//! let search_ns = Prices::COUNTING_IOS.search_ns(0.5)?;
//! let file = |empty_per_second| FileModules {
//!     probes: FileProbes { empty_per_second, found_per_second: 5.0 },
//!     search_ns,
//!     modules: vec![Module { bytes: 64 << 10, slices: 1, fpr: 0.1 }; 2],
//! };
//! let planner = ResidencyPlanner::new(&[file(100.0), file(1.0), file(20.0)], 0.0)?;
//! let plan = planner.plan(192 << 10);
//! // 90 and 9 searches a second of the first file and 18 of the third; 1.8 and less are left out.
//! assert_eq!(plan.slices, [[1, 1], [0, 0], [1, 0]]);
//! assert_eq!(plan.saved_ns_per_second, 117.0);
//! # Ok::<(), String>(())
//! ```
//!
//! Not here: the number of bits written ([`crate::allocation`]); loading and eviction of slices
//! (crate `shamba`).

use crate::input;
use crate::savings::{Holding, SavingsCurve};
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

/// The modules of one file, its probes, and the cost of a search.
#[derive(Clone, PartialEq, Debug)]
pub struct FileModules {
    /// The probes that reach the file.
    pub probes: FileProbes,
    /// Cost of one search, which a module may save ([`crate::value::Prices::search_ns`]).
    pub search_ns: f64,
    /// The modules, in probe order.
    pub modules: Vec<Module>,
}

/// The slices to hold in memory.
#[derive(Clone, PartialEq, Debug)]
pub struct Residency {
    /// For each file and each module: the number of slices.
    pub slices: Vec<Vec<u32>>,
    /// The bytes of all these slices.
    pub bytes: u64,
    /// Their saving.
    pub saved_ns_per_second: f64,
}

/// The modules of all files in descending order of their saving per byte.
#[derive(Clone, PartialEq, Debug)]
pub struct ResidencyPlanner {
    steps: Vec<Step>,
    /// Slices and bytes of each module of each file.
    files: Vec<Vec<Module>>,
    curve: SavingsCurve,
}

/// Modules `first..end` of a file, taken together.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Step {
    file: usize,
    first: usize,
    end: usize,
    holding: Holding,
}

impl ResidencyPlanner {
    /// Evaluates all modules; probing one costs `probe_ns` (0 in counting mode).
    ///
    /// # Errors
    /// A module without bytes or slices, or a rate or cost that is NaN, infinite or negative.
    pub fn new(files: &[FileModules], probe_ns: f64) -> Result<Self, String> {
        input::not_negative("the cost of a probe", probe_ns)?;
        let mut steps = Vec::new();
        for (at, file) in files.iter().enumerate() {
            let of_file = steps_of(at, file, probe_ns).map_err(|error| format!("file {at}: {error}"))?;
            steps.extend(of_file.into_iter().filter(|step| step.holding.saved_ns_per_second > 0.0));
        }
        // Stable: equals stay in the order of the files, and a file's steps, whose savings per byte
        // never increase, in their order.
        steps.sort_by(|a, b| b.holding.per_byte().total_cmp(&a.holding.per_byte()));
        let curve = SavingsCurve::new(&steps.iter().map(|step| step.holding).collect::<Vec<_>>())?;
        Ok(Self { steps, files: files.iter().map(|file| file.modules.clone()).collect(), curve })
    }

    /// The same with hysteresis: a module that is `resident` now stays unless another one saves
    /// more than `1 + margin` times as much per byte. So noisy measurements do not exchange modules
    /// of similar value repeatedly. A plan then saves at least 1 / (1 + margin) of the best one.
    ///
    /// # Errors
    /// A margin that is NaN, infinite or negative, or a residency of other files or modules.
    pub fn keeping(mut self, resident: &Residency, margin: f64) -> Result<Self, String> {
        input::not_negative("the margin", margin)?;
        if !self.files.iter().map(Vec::len).eq(resident.slices.iter().map(Vec::len)) {
            return Err("what is resident are modules of other files".to_owned());
        }
        let files = &self.files;
        let per_byte = |step: &Step| {
            // All modules from the first on must be resident, so that savings still never increase
            // along a file.
            let mut modules = 0..step.end;
            let whole = modules.all(|at| resident.slices[step.file][at] == files[step.file][at].slices);
            step.holding.per_byte() * if whole { 1.0 + margin } else { 1.0 }
        };
        self.steps.sort_by(|a, b| per_byte(b).total_cmp(&per_byte(a)));
        Ok(self)
    }

    /// The saving of filters as a function of their bytes, which the arbiter compares with other
    /// memory.
    pub fn savings(&self) -> &SavingsCurve {
        &self.curve
    }

    /// The slices to hold in memory when filters may take `budget_bytes`.
    pub fn plan(&self, budget_bytes: u64) -> Residency {
        let mut slices: Vec<Vec<u32>> = self.files.iter().map(|modules| vec![0; modules.len()]).collect();
        let mut cut_short = vec![false; self.files.len()];
        let (mut left, mut saved_ns_per_second) = (budget_bytes, 0.0);
        for step in &self.steps {
            if cut_short[step.file] {
                continue;
            }
            let modules = &self.files[step.file][step.first..step.end];
            if step.holding.bytes <= left {
                for (module, slices) in modules.iter().zip(&mut slices[step.file][step.first..]) {
                    *slices = module.slices;
                }
                left -= step.holding.bytes;
                saved_ns_per_second += step.holding.saved_ns_per_second;
                continue;
            }
            cut_short[step.file] = true;
            // Modules that are evaluated together pay only together, so they are not taken in part.
            if let [module] = modules {
                let fitting = left / module.slice_bytes();
                slices[step.file][step.first] = fitting as u32;
                left -= fitting * module.slice_bytes();
                saved_ns_per_second +=
                    step.holding.saved_ns_per_second * fitting as f64 / f64::from(module.slices);
            }
        }
        Residency { slices, bytes: budget_bytes - left, saved_ns_per_second }
    }
}

/// A file's modules in order, joined where they pay only together.
fn steps_of(at: usize, file: &FileModules, probe_ns: f64) -> Result<Vec<Step>, String> {
    input::not_negative("the cost of a search", file.search_ns)?;
    let fprs: Vec<f64> = file.modules.iter().map(|module| module.fpr).collect();
    let saved = file.probes.searches_saved_per_second(&fprs)?;
    let reaching = file.probes.reaching_per_second(&fprs)?;
    let mut steps: Vec<Step> = Vec::new();
    for (first, module) in file.modules.iter().enumerate() {
        if module.bytes == 0 || module.slices == 0 || u64::from(module.slices) > module.bytes {
            return Err(format!(
                "module {first} has {} bytes in {} slices: a slice takes at least a byte",
                module.bytes, module.slices
            ));
        }
        let saved_ns_per_second = saved[first] * file.search_ns - reaching[first] * probe_ns;
        let bytes = module.slice_bytes().saturating_mul(u64::from(module.slices));
        let mut step =
            Step { file: at, first, end: first + 1, holding: Holding { bytes, saved_ns_per_second } };
        input::of_list("module", first, step.holding.validate())?;
        while steps.last().is_some_and(|before| before.holding.per_byte() < step.holding.per_byte()) {
            let Some(before) = steps.pop() else { break };
            step.first = before.first;
            step.holding.bytes = step.holding.bytes.saturating_add(before.holding.bytes);
            step.holding.saved_ns_per_second += before.holding.saved_ns_per_second;
        }
        steps.push(step);
    }
    Ok(steps)
}

#[cfg(test)]
mod tests;
