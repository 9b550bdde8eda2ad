//! Residency: which filter modules are to be in memory for a number of bytes.
//!
//! Module d of a file saves w * f_1 ... f_(d-1) * (1 - f_d) searches a second ([`crate::skip`]), each worth
//! what a search of that file costs, and costs its probe whenever one reaches it. The plan takes the modules
//! that save most per byte, each file's in order. Because each saves less than the one before it, the best next
//! is the best altogether: with lookups spread evenly this is Monkey, with skewed ones it follows the skew, and
//! what it leaves out is what skipping would skip.
//!
//! Where a small module stands before a large one, the later may save more per byte than the earlier; such
//! modules are weighed as one, so that savings per byte never rise along a file (the concave hull of its
//! savings).
//!
//! A module is cut in equal slices, which hold equal shares of its keys: half of the slices save half. The one
//! module that does not fit as a whole is taken in part, as many slices as fit; what is then left is less than
//! a slice, and goes to whatever smaller things still fit. So the plan is within one slice of the best of all
//! plans.
//!
//! Invariants: never more bytes than the budget; a module has slices only if all of the modules before it are
//! whole.
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
//! Not here: how many bits are written ([`crate::allocation`]); who moves slices in and out (crate `shamba`).

use crate::input;
use crate::savings::{Holding, SavingsCurve};
use crate::skip::FileProbes;

/// A filter module as it lies in its file.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Module {
    /// What all of it takes in memory.
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

/// The modules of one file and what they are good for.
#[derive(Clone, PartialEq, Debug)]
pub struct FileModules {
    /// The probes that reach the file.
    pub probes: FileProbes,
    /// What one search that a module saves would cost ([`crate::value::Prices::search_ns`]).
    pub search_ns: f64,
    /// In the order in which they are consulted.
    pub modules: Vec<Module>,
}

/// What is to be in memory.
#[derive(Clone, PartialEq, Debug)]
pub struct Residency {
    /// Of each file, of each module: how many slices.
    pub slices: Vec<Vec<u32>>,
    /// The bytes of all these slices.
    pub bytes: u64,
    /// What they save.
    pub saved_ns_per_second: f64,
}

/// The modules of all files in the order in which memory is worth most.
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
    /// Weighs all modules; probing one costs `probe_ns` (0 in the mode that counts I/Os).
    ///
    /// # Errors
    /// A module without bytes or slices, or a rate or cost that is none.
    pub fn new(files: &[FileModules], probe_ns: f64) -> Result<Self, String> {
        input::not_negative("the cost of a probe", probe_ns)?;
        let mut steps = Vec::new();
        for (at, file) in files.iter().enumerate() {
            let of_file = steps_of(at, file, probe_ns).map_err(|error| format!("file {at}: {error}"))?;
            steps.extend(of_file.into_iter().filter(|step| step.holding.saved_ns_per_second > 0.0));
        }
        // Stable: equals go in the order of the files, and a file's steps, which never rise, in theirs.
        steps.sort_by(|a, b| b.holding.per_byte().total_cmp(&a.holding.per_byte()));
        let curve = SavingsCurve::new(&steps.iter().map(|step| step.holding).collect::<Vec<_>>())?;
        Ok(Self { steps, files: files.iter().map(|file| file.modules.clone()).collect(), curve })
    }

    /// The same, but what is `resident` now stays unless something saves more than `1 + margin` times as much
    /// per byte: so measurements that waver do not exchange modules of about the same worth again and again. A
    /// plan then saves at least 1 / (1 + margin) of the best one.
    ///
    /// # Errors
    /// A margin that is none, or a residency of other files or modules.
    pub fn keeping(mut self, resident: &Residency, margin: f64) -> Result<Self, String> {
        input::not_negative("the margin", margin)?;
        if !self.files.iter().map(Vec::len).eq(resident.slices.iter().map(Vec::len)) {
            return Err("what is resident are modules of other files".to_owned());
        }
        let files = &self.files;
        let per_byte = |step: &Step| {
            // From the first on, so that savings still never rise along a file.
            let mut modules = 0..step.end;
            let whole = modules.all(|at| resident.slices[step.file][at] == files[step.file][at].slices);
            step.holding.per_byte() * if whole { 1.0 + margin } else { 1.0 }
        };
        self.steps.sort_by(|a, b| per_byte(b).total_cmp(&per_byte(a)));
        Ok(self)
    }

    /// What filters save as a function of their bytes: what the arbiter weighs against other memory.
    pub fn savings(&self) -> &SavingsCurve {
        &self.curve
    }

    /// What is to be in memory when filters may take `budget_bytes`.
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
            // Modules that are weighed together are worth it only together.
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

/// A file's modules in order, those put together that pay only together.
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
