//! Filters: a digest in, "certainly absent" or "maybe present" out.
//!
//! A filter takes a [`KeyDigest`](shamba_key::KeyDigest), has no way to see a key and does no I/O. It never
//! denies a key that it was built from. One family exists, [`BlockedFilter`]: one 64-byte line per key, the
//! cheapest probe there is. A filter is cut into equal slices of at most 64 KiB, the unit in which files
//! store it and in which memory may hold it; a slice that is absent answers "maybe".
//!
//! [`FilterShape`] is the fixed-size description from which a stored filter is put together again; its first
//! byte names the family, so that others can join. [`fpr`] holds the theory that tests hold the code to.
//!
//! Not here: where slices lie in a file and their checksums (crate `shamba-table`), how many bits a file gets
//! and which slices stay in memory (crates `shamba-model` and `shamba`).
#![deny(unsafe_code)]
#![deny(missing_docs)]

mod blocked;
pub mod fpr;
mod shape;
mod simd;

pub use blocked::{BlockedFilter, Question};
pub use shape::{FilterFamily, FilterShape, MAX_BITS_PER_KEY};

/// The bytes of one line, the cache line that a key's probes share.
pub const LINE_BYTES: usize = 64;
/// The bits of one line.
pub const LINE_BITS: usize = LINE_BYTES * 8;
/// The largest slice, in bytes.
pub const MAX_SLICE_BYTES: usize = 64 << 10;
