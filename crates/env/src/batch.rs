//! Several reads that are made at once: they take about as long as one where the device serves many
//! in parallel.
//!
//! A [`BatchRead`] owns its file and its buffer, so this thread, another one or the operating
//! system ([`Vfs::read_batch`](crate::Vfs::read_batch)) can make the read. As in other reads,
//! offset, length and address are multiples of what the file requires.
//!
//! Not here: the threads that make reads in parallel where the system cannot (crate `shamba-tree`).

use std::fmt;
use std::io;
use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::aligned::{AlignedBuf, read_aligned_at};
use crate::random_file::RandomFile;

/// A read of a batch.
pub struct BatchRead {
    file: Arc<dyn RandomFile>,
    /// Offset of the buffer's first byte in the file.
    offset: u64,
    buf: AlignedBuf,
    /// Place of the requested bytes in the buffer.
    requested: Range<usize>,
    /// `None` until the read was made.
    result: Option<io::Result<()>>,
}

/// The bytes of a [`BatchRead`] that has succeeded.
pub struct ReadBytes {
    buf: AlignedBuf,
    requested: Range<usize>,
}

impl BatchRead {
    /// A read of `bytes` from `offset`.
    pub fn new(file: Arc<dyn RandomFile>, offset: u64, bytes: usize) -> Self {
        let alignment = file.alignment_bytes().max(1);
        // Below the alignment.
        let before = (offset % alignment as u64) as usize;
        let requested = before..before + bytes;
        Self {
            file,
            offset: offset - before as u64,
            buf: AlignedBuf::new(requested.end),
            requested,
            result: None,
        }
    }

    /// Number of the requested bytes.
    pub fn bytes(&self) -> usize {
        self.requested.len()
    }

    /// Whether the read was made, well or not.
    pub fn is_made(&self) -> bool {
        self.result.is_some()
    }

    /// Makes the read, if it was not made yet.
    pub fn read_now(&mut self) {
        if self.result.is_none() {
            self.buf.reserve(self.requested.end);
            let length = self.length();
            self.result = Some(match self.buf.get_mut(..length) {
                Some(buf) => read_aligned_at(self.file.as_ref(), self.offset, buf, self.requested.end),
                None => Err(io::ErrorKind::InvalidInput.into()),
            });
        }
    }

    /// Length of the read: the requested bytes and those around them that the file requires.
    fn length(&self) -> usize {
        self.requested.end.next_multiple_of(self.file.alignment_bytes().max(1))
    }

    /// The requested bytes; makes the read if it was not made yet.
    ///
    /// # Errors
    /// `UnexpectedEof` when the file ends before them; else the error of the read.
    pub fn into_bytes(mut self) -> io::Result<ReadBytes> {
        self.read_now();
        self.result.unwrap_or(Ok(()))?;
        Ok(ReadBytes { buf: self.buf, requested: self.requested })
    }
}

/// For the implementation of [`crate::Vfs::read_batch`] with `io_uring` (`ring.rs`).
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
impl BatchRead {
    /// The file, where the operating system can be given its descriptor.
    pub(crate) fn file(&self) -> &dyn RandomFile {
        self.file.as_ref()
    }

    /// The offset of the read and the memory for its bytes.
    pub(crate) fn target(&mut self) -> (u64, &mut [u8]) {
        let length = self.length();
        (self.offset, self.buf.get_mut(..length).unwrap_or_default())
    }

    /// Takes note that the operating system has read `bytes` into the memory of [`Self::target`].
    /// If those are not all, the read is still to be made.
    pub(crate) fn was_read(&mut self, bytes: usize) {
        if bytes >= self.requested.end {
            self.result = Some(Ok(()));
        }
    }

    /// Gives up the buffer, which the operating system may still write to. The memory is never
    /// freed.
    pub(crate) fn abandon_buffer(&mut self) {
        std::mem::forget(std::mem::take(&mut self.buf));
    }
}

impl Deref for ReadBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.buf.get(self.requested.clone()).unwrap_or_default()
    }
}

impl fmt::Debug for BatchRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BatchRead({:?} from {}, {:?})", self.requested, self.offset, self.result)
    }
}

impl fmt::Debug for ReadBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReadBytes({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{MemFs, RealFs, UnbatchedReads, Vfs, write_file_synced};

    const FILE_BYTES: u64 = 300_000;

    fn content() -> Vec<u8> {
        (0..FILE_BYTES).map(|i| (i * 31 % 251) as u8).collect()
    }

    /// Places in the file and beyond its end, of any alignment.
    fn places(seed: u64, count: usize) -> Vec<(u64, usize)> {
        let mut rng = fastrand::Rng::with_seed(seed);
        (0..count).map(|_| (rng.u64(..FILE_BYTES + 5_000), rng.usize(..20_000))).collect()
    }

    fn check(reads: Vec<BatchRead>, places: &[(u64, usize)], seed: u64) {
        let content = content();
        assert_eq!(reads.len(), places.len());
        for (read, (offset, bytes)) in reads.into_iter().zip(places) {
            let from = *offset as usize;
            match (read.into_bytes(), content.get(from..from + bytes)) {
                (Ok(read), Some(expected)) => {
                    assert!(read[..] == *expected, "{bytes} at {offset}, seed {seed}")
                }
                (Ok(read), None) => {
                    assert!(*bytes == 0 && read.is_empty(), "{bytes} at {offset}, seed {seed}")
                }
                (Err(error), None) => assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "seed {seed}"),
                (Err(error), Some(_)) => panic!("{bytes} at {offset}, seed {seed}: {error}"),
            }
        }
    }

    fn all_of(vfs: &dyn Vfs, path: &Path) -> [Arc<dyn RandomFile>; 2] {
        [vfs.open_read(path).expect("opened"), vfs.open_read_direct(path).expect("opened")]
    }

    #[test]
    fn a_batch_reads_what_single_reads_read() {
        let dir = tempfile::tempdir().expect("a directory");
        let (vfs, path) = (RealFs::new(), dir.path().join("file"));
        write_file_synced(&vfs, &path, &content()).expect("written");
        let mut has_batches = false;
        for (seed, file) in (0..20).flat_map(|seed| all_of(&vfs, &path).map(|file| (seed, file))) {
            // More than a ring takes at a time, and none.
            let places = places(seed, (seed as usize % 4) * 30);
            let reads =
                || places.iter().map(|(offset, bytes)| BatchRead::new(Arc::clone(&file), *offset, *bytes));
            let mut batch: Vec<BatchRead> = reads().collect();
            vfs.read_batch(&mut batch);
            let made: Vec<bool> = batch.iter().map(BatchRead::is_made).collect();
            has_batches |= made.contains(&true);
            if made.contains(&true) {
                for (is_made, (offset, bytes)) in made.into_iter().zip(&places) {
                    let is_inside = offset + *bytes as u64 <= FILE_BYTES;
                    assert!(is_made == is_inside || *bytes == 0, "{bytes} at {offset}, seed {seed}");
                }
            }
            check(batch, &places, seed);
            check(reads().collect(), &places, seed);
        }
        if !has_batches {
            println!("skipped: this system makes no batches of reads");
        }
    }

    #[test]
    fn threads_read_batches_at_the_same_time() {
        let dir = tempfile::tempdir().expect("a directory");
        let (vfs, path) = (RealFs::new(), dir.path().join("file"));
        write_file_synced(&vfs, &path, &content()).expect("written");
        let files = all_of(&vfs, &path);
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (vfs, files) = (&vfs, &files);
                scope.spawn(move || {
                    for round in 0..20 {
                        let seed = thread * 100 + round;
                        let places = places(seed, 40);
                        let files = files.iter().cycle();
                        let mut batch: Vec<BatchRead> = (files.zip(&places))
                            .map(|(file, (offset, bytes))| BatchRead::new(Arc::clone(file), *offset, *bytes))
                            .collect();
                        vfs.read_batch(&mut batch);
                        check(batch, &places, seed);
                    }
                });
            }
        });
    }

    #[test]
    fn a_file_system_without_batches_leaves_the_reads_to_be_made() {
        let dir = tempfile::tempdir().expect("a directory");
        let (real, memory) = (RealFs::new(), MemFs::new());
        let (path, places) = (dir.path().join("file"), places(1, 10));
        let unbatched = UnbatchedReads::new(Arc::new(real));
        let file_systems: [(&dyn Vfs, &Path); 2] = [(&unbatched, &path), (&memory, Path::new("/file"))];
        for (vfs, path) in file_systems {
            write_file_synced(vfs, path, &content()).expect("written");
            let file = vfs.open_read(path).expect("opened");
            let read = |(offset, bytes): &(u64, usize)| BatchRead::new(Arc::clone(&file), *offset, *bytes);
            let mut batch: Vec<BatchRead> = places.iter().map(read).collect();
            vfs.read_batch(&mut batch);
            assert!(batch.iter().all(|read| !read.is_made()));
            check(batch, &places, 1);
        }
        // One file that a layer has wrapped, among files that the system knows.
        let known = real.open_read(&path).expect("opened");
        let wrapped = memory.open_read(Path::new("/file")).expect("opened");
        let mut mixed = vec![BatchRead::new(known, 0, 10), BatchRead::new(wrapped, 0, 10)];
        real.read_batch(&mut mixed);
        assert!(!mixed[1].is_made());
        check(mixed, &[(0, 10); 2], 1);
    }
}
