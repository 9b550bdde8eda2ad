//! A file system whose logs are written with system calls, as other files are.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::layer::Layer;
use crate::vfs::{Vfs, WriteFile};

/// A file system without the logs of [`Vfs::create_log`]: it creates ordinary files instead.
#[derive(Clone, Debug)]
pub struct UnmappedLogs(Arc<dyn Vfs>);

impl UnmappedLogs {
    /// `inner` with ordinary logs.
    pub fn new(inner: Arc<dyn Vfs>) -> Self {
        Self(inner)
    }
}

impl Layer for UnmappedLogs {
    fn below(&self) -> &dyn Vfs {
        self.0.as_ref()
    }

    fn create_log_below(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.0.create(path)
    }
}
