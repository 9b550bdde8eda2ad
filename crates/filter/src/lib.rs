//! Filters: a digest in, "certainly absent" or "maybe present" out.
//!
//! A filter takes a [`KeyDigest`](shamba_key::KeyDigest), never sees a key and does no I/O. It
//! never rejects a key that it was built from. The families ([`FilterLayout`]):
//!
//! - *blocked*: one 64-byte line per key, the cheapest probe there is;
//! - *modular*: one to seven blocked filters over the same keys that share the bits. A lookup reads
//!   them in order up to the first that rejects the key, so the later ones contribute little and
//!   may be absent from memory;
//! - *ribbon*: one to three modules that solve a linear system, for less memory at the same rate
//!   and more time to build;
//! - *standard*: the Bloom filter of the papers, for their experiments.
//!
//! A filter is cut into equal slices of at most 64 KiB, the unit of storage in files and of
//! residency in memory; an absent slice answers "maybe". [`Filter`] owns its slices.
//! [`FilterGeometry`] gives the position of a key's bits when another component holds the slices;
//! its stored form suffices to reconstruct a filter.
//!
//! [`fpr`] holds the theory of false positives, [`measured`] the measured rates; [`sim`] measures
//! them.
//!
//! Not here: the position of slices in a file and their checksums (crate `shamba-table`), the
//! number of bits of a file and the slices in memory (crates `shamba-model` and `shamba`).
#![deny(unsafe_code)]
#![deny(missing_docs)]

// Sizes and layouts.
mod layout;
mod limits;
mod place;

// Probes and rates.
pub mod fpr;
pub mod measured;
mod question;
mod shape;
mod simd;

// One filter.
mod geometry;
mod ribbon;
mod standard;

// Filters of several modules.
mod filter;

// Measured rates.
pub mod sim;

pub use filter::Filter;
pub use geometry::{ALL_MODULES, FilterGeometry, ModuleShape, ModuleSite, Site};
pub use layout::{FilterLayout, MAX_MODULES, MAX_RIBBON_MODULES, Modules, Probing};
pub use limits::{LINE_BITS, LINE_BYTES, MAX_BITS_PER_KEY, MAX_SLICE_BYTES};
pub use question::Question;
pub use ribbon::RibbonSite;
pub use shape::{FilterFamily, FilterShape};
pub use simd::lines::Line;
pub use standard::StandardSite;
