//! Writing: batches, group commit, back-pressure, rotation of memtables, and their flush.

pub(crate) mod batch;
pub(crate) mod commit;
pub(crate) mod flush;
mod in_log;
mod line;
pub(crate) mod queue;
pub(crate) mod room;
pub(crate) mod rotate;
pub(crate) mod side;
pub(crate) mod stall;
