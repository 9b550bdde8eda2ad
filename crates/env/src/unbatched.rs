//! A file system that makes no batches of reads: the caller makes them one by one.

use std::sync::Arc;

use crate::layer::Layer;
use crate::vfs::Vfs;

/// A file system without [`Vfs::read_batch`].
#[derive(Clone, Debug)]
pub struct UnbatchedReads(Arc<dyn Vfs>);

impl UnbatchedReads {
    /// `inner` without batches of reads.
    pub fn new(inner: Arc<dyn Vfs>) -> Self {
        Self(inner)
    }
}

impl Layer for UnbatchedReads {
    fn below(&self) -> &dyn Vfs {
        self.0.as_ref()
    }

    fn batches_reads(&self) -> bool {
        false
    }
}
