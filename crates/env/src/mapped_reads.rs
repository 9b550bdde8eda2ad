//! A file system whose files are mapped for short reads, where the operating system permits it.

use std::sync::Arc;

use crate::layer::Layer;
#[cfg(target_os = "linux")]
use crate::random_file::RandomFile;
use crate::vfs::Vfs;

/// A file system with [`crate::RandomFile::mapped`]: on Linux, for files of the real file system
/// that are not read directly. Elsewhere it is the file system below.
#[derive(Clone, Debug)]
pub struct MappedReads(Arc<dyn Vfs>);

impl MappedReads {
    /// `inner` with mapped files.
    pub fn new(inner: Arc<dyn Vfs>) -> Self {
        Self(inner)
    }
}

impl Layer for MappedReads {
    fn below(&self) -> &dyn Vfs {
        self.0.as_ref()
    }

    #[cfg(target_os = "linux")]
    fn over_reads(&self, file: Arc<dyn RandomFile>) -> Arc<dyn RandomFile> {
        match file.descriptor() {
            Some(_) if !file.is_direct() => Arc::new(crate::mapped::reads::MappedRandomFile::new(file)),
            _ => file,
        }
    }
}
