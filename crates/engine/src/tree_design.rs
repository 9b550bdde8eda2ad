//! The design of a database: the settings that [`crate::Db::redesign`] changes while it is open.

use std::fmt;

use shamba_model::Design;
use shamba_model::allocation::Allocation;

/// The part of a database's design that [`crate::Db::redesign`] can change: the shape of the tree
/// and the plan of its filters.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct TreeDesign {
    /// Size ratio, runs, write buffer, filter bits per key.
    pub design: Design,
    /// Bytes of all filters together, in place of the design's bits per key; `None`: by the bits
    /// per key.
    pub filter_memory_bytes: Option<u64>,
    /// Distribution of filter bits over tables when they are built.
    pub allocation: Allocation,
}

impl fmt::Display for TreeDesign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} filters", self.design, self.allocation)?;
        self.filter_memory_bytes.map_or(Ok(()), |bytes| write!(f, " of {bytes} bytes"))
    }
}
