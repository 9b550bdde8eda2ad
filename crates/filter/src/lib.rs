//! Filters: a digest in, "certainly absent" or "maybe present" out.
//!
//! A filter takes a [`KeyDigest`](shamba_key::KeyDigest), has no way to see a key and does no I/O. It never
//! denies a key that it was built from. The families ([`FilterLayout`]):
//!
//! - *blocked*: one 64-byte line per key, the cheapest probe there is;
//! - *modular*: one to seven blocked filters over the same keys that share the bits. A lookup reads them in order up
//!   to the first no, so the later ones are hardly missed when memory lacks them;
//! - *standard*: the Bloom filter of the papers, for their experiments.
//!
//! A filter is cut into equal slices of at most 64 KiB, the unit in which files store it and in which memory may
//! hold it; a slice that is absent answers "maybe". [`Filter`] keeps its slices; [`FilterGeometry`] says where to look
//! when somebody else does, and has a stored form from which a filter is put together again. [`BlockedFilter`] with
//! [`FilterShape`] is the blocked family by itself.
//!
//! [`fpr`] holds the theory of false positives, [`measured`] the rates that were found; [`sim`] is how.
//!
//! Not here: where slices lie in a file and their checksums (crate `shamba-table`), how many bits a file gets
//! and which slices stay in memory (crates `shamba-model` and `shamba`).
#![deny(unsafe_code)]
#![deny(missing_docs)]

mod blocked;
mod filter;
pub mod fpr;
mod geometry;
mod layout;
pub mod measured;
mod place;
mod question;
mod shape;
pub mod sim;
mod simd;
mod standard;

pub use blocked::BlockedFilter;
pub use filter::Filter;
pub use geometry::{ALL_MODULES, FilterGeometry, ModuleShape, Site};
pub use layout::{FilterLayout, MAX_MODULES, Modules, Probing};
pub use question::Question;
pub use shape::{FilterFamily, FilterShape, MAX_BITS_PER_KEY};
pub use simd::lines::Line;
pub use standard::StandardSite;

/// The bytes of one line, the cache line that a key's probes share.
pub const LINE_BYTES: usize = 64;
/// The bits of one line.
pub const LINE_BITS: usize = LINE_BYTES * 8;
/// The largest slice, in bytes.
pub const MAX_SLICE_BYTES: usize = 64 << 10;
