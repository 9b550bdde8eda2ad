//! Reading: point lookups, merged scans, cursors, and the trace behind `explain`.

mod batch;
pub(crate) mod cursor;
pub(crate) mod explain;
pub(crate) mod get;
pub(crate) mod merge;
mod multi_get;
pub(crate) mod opened;
pub(crate) mod pool;
pub(crate) mod reader;
pub(crate) mod registry;
pub(crate) mod run_iter;
pub(crate) mod scan;
mod slot;
pub(crate) mod source;
#[cfg(test)]
pub(crate) mod testing;
mod visible;
