//! The design knobs of a tree and the cost model over them: pure mathematics, no I/O.
//!
//! A [`Design`] is a point in the space of fluid LSM-trees: size ratio T, at most K runs on inner levels
//! and Z on the last, the write buffer, and filter bits per key. The classical merge policies are values of
//! (K, Z), which [`MergePolicy`] names. The engine obeys a design, the manifest records it, and figures and
//! command line compute with the same functions.
//!
//! [`allocation`] says how many filter bits each file gets; [`monkey`] holds Monkey's closed forms, which
//! figures and tests compare with, and [`sharing`] those of one hash per lookup. [`skip`] says which modules of
//! a filter are worth consulting, [`residency`] which are worth their memory, [`value`] what a byte of each
//! kind of memory saves, and [`arbiter`] moves memory to where it saves most. [`presets`] are the
//! defaults of other systems.
//!
//! [`miss_ratio`] says how many reads the block cache saves where lookups repeat.
//!
//! [`cost`] puts them together: what a design costs in a situation. [`updates`] has the equations of writes and ranges,
//! [`split`] those of filters against the buffer; [`robust`] has the worst costs near an expected mix and
//! [`per_level`] trees whose levels have a size ratio and runs of their own;
//! [`navigator`] searches all designs for the best, and [`what_if`] shows what changes between two cases.
//!
//! Not here: what moves data between levels (crate `shamba`, `compaction/policy`).
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod allocation;
pub mod arbiter;
pub mod cost;
mod design;
mod input;
pub mod joint;
mod memtable;
pub mod miss_ratio;
pub mod monkey;
pub mod navigator;
pub mod per_level;
pub mod presets;
pub mod price;
pub mod residency;
pub mod robust;
pub mod savings;
pub mod sharing;
mod sizing;
pub mod skip;
pub mod split;
pub mod updates;
pub mod value;
pub mod what_if;

pub use design::{Design, MAX_LEVELS, MAX_RUNS, MAX_SIZE_RATIO, MergePolicy};
pub use memtable::memtable_bytes_most;
pub use shamba_filter::MAX_BITS_PER_KEY;
pub use sizing::{Capacities, Sizing};
