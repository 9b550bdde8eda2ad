//! Point lookups over a view: one key ([`get`]), many keys ([`multi_get`]), and the trace of one
//! ([`explain`]).

pub mod candidate;
pub mod explain;
mod fold;
pub mod get;
pub mod multi_get;
pub mod opened;
pub mod pool;
mod recorded;
pub mod sampler;
pub mod timer;
