//! Point lookups over a view: one key ([`get`]), many keys ([`multi_get`]), the expiry of a value
//! ([`expires`]), and the trace of a lookup ([`explain`]). [`prefix`] asks the filters for the
//! prefix of a scan, [`value_reads`] reads many values of value files at once.

mod aside;
pub mod candidate;
mod cold;
pub mod expires;
pub mod explain;
pub mod explain_prefix;
mod fold;
pub mod get;
pub mod multi_get;
pub mod opened;
pub mod pool;
pub mod prefix;
mod recorded;
pub mod sampler;
mod separated;
pub mod timer;
pub mod value_reads;
