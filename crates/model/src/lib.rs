//! The design knobs of a tree and the cost model over them: pure mathematics, no I/O.
//!
//! A [`Design`] is a point in the space of fluid LSM-trees: size ratio T, at most K runs on inner
//! levels and Z on the last level, the write buffer, and filter bits per key. The classical merge
//! policies are values of (K, Z), which [`MergePolicy`] names. The engine applies a design, the
//! manifest records it, and the experiments and the command line compute with the same functions.
//!
//! - [`allocation`]: filter bits of each file. [`monkey`] has Monkey's closed forms, which
//!   experiments and tests compare with.
//! - [`skip`]: the filter modules that are worth probing. [`joint`]: the modules and index
//!   partitions that are worth their memory.
//! - [`memory`]: the division of a memory budget between filters and indexes, the block cache and
//!   the write buffer, with the table of its constants.
//! - [`miss_ratio`]: reads saved by the block cache under skewed lookups.
//! - [`presets`]: defaults of other systems.
//! - [`cost`]: the cost of a design in a situation. [`updates`] has the equations of writes and
//!   ranges, [`robust`] the worst costs near an expected mix, and [`per_level`] trees with a size
//!   ratio and a run count per level.
//! - [`values`]: values in value files, and the length from which on they pay.
//! - [`navigator`]: searches all designs for the best one. [`what_if`]: differences between two
//!   cases.
//!
//! Not here: the policy that moves data between levels (crate `shamba`, `compaction/policy`).
#![forbid(unsafe_code)]
#![deny(missing_docs)]

// Inputs: designs, workloads, devices.
mod design;
mod input;
pub mod updates;

// Parts of the cost.
pub mod allocation;
pub mod miss_ratio;
pub mod price;
mod sizing;
pub mod skip;
pub mod value;

// Monkey; residency of filters and indexes; the division of memory.
pub mod joint;
pub mod memory;
pub mod monkey;
pub mod presets;

// The cost of a design.
pub mod cost;
pub mod robust;
pub mod values;
pub mod what_if;

// The search for a design.
pub mod navigator;
pub mod per_level;

pub use design::{Design, MAX_LEVELS, MAX_RUNS, MAX_SIZE_RATIO, MergePolicy};
pub use memory::memtable_bytes_max;
pub use shamba_filter::MAX_BITS_PER_KEY;
pub use sizing::{Capacities, Sizing};
