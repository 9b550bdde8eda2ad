//! The atomic pointer in which views are published, from `arc-swap`.
//!
//! It has its own name here, so that schedule exploration can compile the code that uses it with
//! another implementation. Exploration assumes that `arc-swap` itself is correct: each load and
//! store is one step.

pub(crate) use arc_swap::{ArcSwap, Guard};
