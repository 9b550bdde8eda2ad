//! Iterators over a view: the entries of a run, merged sources, visible entries, and scans that
//! survive their view.

pub mod batch;
pub mod both_ends;
pub mod later;
pub mod merge;
pub mod notes;
pub mod registry;
pub mod run_iter;
pub mod scan;
pub mod slot;
pub mod source;
#[cfg(test)]
pub(crate) mod testing;
pub mod visible;
