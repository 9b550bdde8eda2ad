//! The cell that views are published in: `arc-swap`'s.
//!
//! It is re-exported under a name of the engine's own, so that code built on it can be compiled
//! with another implementation. Exploration of schedules assumes that `arc-swap` itself is correct:
//! a cell that is loaded and stored in one step.

pub(crate) use arc_swap::{ArcSwap, Guard};
