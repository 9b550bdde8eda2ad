//! The cell that views are published in: `arc-swap`'s.
//!
//! By a name of the engine's own, so that what is built on it can be compiled over another one: searches over schedules take
//! `arc-swap` itself for granted, as a cell that is loaded and stored in one step.

pub(crate) use arc_swap::{ArcSwap, Guard};
