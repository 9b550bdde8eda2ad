//! A file system that counts the pages of 4 KiB that go through it: those of reads, each rounded up, and the bytes
//! written. So ranges and merges are counted as lookups are.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shamba::env::{Layer, RandomFile, Vfs, WriteFile};

pub(super) const PAGE_BYTES: u64 = 4_096;

/// Counts of all files.
#[derive(Default, Debug)]
pub(super) struct Counts {
    read_pages: AtomicU64,
    written_bytes: AtomicU64,
}

impl Counts {
    /// Pages read and written so far.
    pub fn pages(&self) -> f64 {
        let written_bytes = self.written_bytes.load(Ordering::Relaxed);
        self.read_pages.load(Ordering::Relaxed) as f64 + written_bytes as f64 / PAGE_BYTES as f64
    }
}

/// The file system.
#[derive(Debug)]
pub(super) struct CountingFs {
    pub inner: Arc<dyn Vfs>,
    pub counts: Arc<Counts>,
}

impl Layer for CountingFs {
    fn below(&self) -> &dyn Vfs {
        self.inner.as_ref()
    }

    fn over_reads(&self, inner: Arc<dyn RandomFile>) -> Arc<dyn RandomFile> {
        Arc::new(Reads { inner, counts: Arc::clone(&self.counts) })
    }

    fn over_writes(&self, inner: Box<dyn WriteFile>) -> Box<dyn WriteFile> {
        Box::new(Writes { inner, counts: Arc::clone(&self.counts) })
    }
}

#[derive(Debug)]
struct Reads {
    inner: Arc<dyn RandomFile>,
    counts: Arc<Counts>,
}

impl RandomFile for Reads {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read_at(offset, buf)?;
        self.counts.read_pages.fetch_add((read as u64).div_ceil(PAGE_BYTES), Ordering::Relaxed);
        Ok(read)
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn alignment_bytes(&self) -> usize {
        self.inner.alignment_bytes()
    }

    fn is_direct(&self) -> bool {
        self.inner.is_direct()
    }
}

#[derive(Debug)]
struct Writes {
    inner: Box<dyn WriteFile>,
    counts: Arc<Counts>,
}

impl WriteFile for Writes {
    fn append(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.append(bytes)?;
        self.counts.written_bytes.fetch_add(written as u64, Ordering::Relaxed);
        Ok(written)
    }

    fn sync_data(&mut self) -> io::Result<()> {
        self.inner.sync_data()
    }

    fn sync_all(&mut self) -> io::Result<()> {
        self.inner.sync_all()
    }

    fn truncate(&mut self, bytes: u64) -> io::Result<()> {
        self.inner.truncate(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shamba::env::MemFs;
    use std::path::Path;

    #[test]
    fn reads_are_rounded_up_to_pages_and_writes_are_not() {
        let counts = Arc::new(Counts::default());
        let fs = CountingFs { inner: Arc::new(MemFs::new()), counts: Arc::clone(&counts) };
        let path = Path::new("/file");
        let mut file = fs.create(path).expect("created");
        assert_eq!(file.append(&[1; 6_144]).expect("written"), 6_144);
        assert!((counts.pages() - 1.5).abs() < 1e-12);
        let file = fs.open_read(path).expect("opened");
        assert_eq!(file.read_at(4_000, &mut [0; 100]).expect("read"), 100);
        assert_eq!(file.read_at(0, &mut [0; 5_000]).expect("read"), 5_000);
        assert!((counts.pages() - 4.5).abs() < 1e-12);
    }
}
