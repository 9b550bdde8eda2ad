//! A file for reading whose short pieces are read from mapped memory instead of by system calls.
//!
//! The mapped pages are those of the operating system's page cache: a piece that is there costs
//! neither a system call nor a copy. A page that is not there is read when it is accessed, alone,
//! as the map asks for no read-ahead. Long reads go through the file, which reads ahead.
//!
//! The file is mapped as long as it was at the first access. If the system cannot provide a page,
//! [`RandomFile::mapped`] gives nothing from then on, and the caller reads through the file, which
//! says why ([`super::fault`]).
//!
//! Not here: which pieces are read so (crate `shamba-table`).

use std::io;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, OnceLock};

use memmap2::{Advice, Mmap, MmapOptions};

use super::fault::Watch;
use crate::random_file::RandomFile;

/// A file with a map of its own, made at the first access to it.
#[derive(Debug)]
pub(crate) struct MappedRandomFile {
    file: Arc<dyn RandomFile>,
    /// `None` if the file cannot be mapped.
    map: OnceLock<Option<ReadMap>>,
}

#[derive(Debug)]
struct ReadMap {
    /// Dropped before the map.
    watch: Watch,
    map: Mmap,
}

impl MappedRandomFile {
    pub(crate) fn new(file: Arc<dyn RandomFile>) -> Self {
        Self { file, map: OnceLock::new() }
    }
}

impl ReadMap {
    fn of(file: &dyn RandomFile) -> io::Result<Self> {
        let descriptor = file.descriptor().ok_or(io::ErrorKind::Unsupported)?;
        let bytes = usize::try_from(file.len()?).map_err(|_| io::ErrorKind::Unsupported)?;
        // SAFETY: the descriptor is open while `file` is. Tables are never written to once they are
        // read. If another process does so all the same, readers see other bytes: they access them
        // through checked bounds only, and believe none before their checksum.
        let map = unsafe { MmapOptions::new().len(bytes).map(descriptor)? };
        map.advise(Advice::Random)?;
        let watch = Watch::table(map.as_ptr() as usize, bytes)?;
        Ok(Self { watch, map })
    }
}

impl RandomFile for MappedRandomFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(offset, buf)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn alignment_bytes(&self) -> usize {
        self.file.alignment_bytes()
    }

    fn is_direct(&self) -> bool {
        self.file.is_direct()
    }

    fn descriptor(&self) -> Option<std::os::fd::RawFd> {
        self.file.descriptor()
    }

    fn mapped(&self, offset: u64, bytes: usize) -> Option<&[u8]> {
        let ReadMap { watch, map } =
            self.map.get_or_init(|| ReadMap::of(self.file.as_ref()).ok()).as_ref()?;
        if watch.has_failed() {
            return None;
        }
        let from = usize::try_from(offset).ok()?;
        map.get(from..from.checked_add(bytes)?)
    }

    fn is_intact(&self) -> bool {
        // The bytes were read before the flag is: it was set before they became zeros.
        fence(Ordering::Acquire);
        !matches!(self.map.get(), Some(Some(ReadMap { watch, .. })) if watch.has_failed())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::path::Path;

    use super::*;
    use crate::{MappedReads, RealFs, Vfs, read_exact_at, write_file_synced};

    const FILE_BYTES: usize = 300_000;

    fn content() -> Vec<u8> {
        (0..FILE_BYTES).map(|i| (i * 31 % 251) as u8).collect()
    }

    fn mapped(path: &Path) -> Arc<dyn RandomFile> {
        let vfs = MappedReads::new(Arc::new(RealFs::new()));
        write_file_synced(&vfs, path, &content()).expect("written");
        vfs.open_read(path).expect("opened")
    }

    #[test]
    fn mapped_pieces_are_those_of_the_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let (file, content) = (mapped(&dir.path().join("file")), content());
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..2_000 {
            let (from, bytes) = (rng.usize(..FILE_BYTES + 9_000), rng.usize(..9_000));
            assert_eq!(file.mapped(from as u64, bytes), content.get(from..from + bytes), "{bytes} at {from}");
        }
        assert_eq!((file.mapped(u64::MAX, 1), file.mapped(1, usize::MAX)), (None, None));
        assert!(!file.is_direct() && file.len().expect("a length") == FILE_BYTES as u64);
    }

    #[test]
    fn a_file_that_another_process_truncates_ends_no_process() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("file");
        let (file, other) = (mapped(&path), mapped(&dir.path().join("other")));
        assert_eq!(file.mapped(8, 4), Some(&content()[8..12]));
        OpenOptions::new().write(true).open(&path).expect("opened").set_len(10_000).expect("truncated");
        // The page of the new end is there, those after it are not.
        assert_eq!(file.mapped(9_000, 1_000), Some(&content()[9_000..10_000]));
        let lost = file.mapped(100_000, 5_000).expect("it is not known yet");
        assert!(file.is_intact() && lost.iter().all(|byte| *byte == 0), "zeros, and no signal");
        assert!(!file.is_intact() && other.is_intact());
        assert_eq!(file.mapped(8, 4), None, "from then on nothing");
        let mut bytes = [0; 4];
        read_exact_at(file.as_ref(), 8, &mut bytes).expect("read");
        assert_eq!(bytes, content()[8..12], "the file is there");
        assert_eq!(other.mapped(100_000, 50), Some(&content()[100_000..100_050]));
    }

    #[test]
    fn an_empty_file_and_one_with_direct_reads_are_not_mapped() {
        let dir = tempfile::tempdir().expect("a directory");
        let (vfs, path) = (MappedReads::new(Arc::new(RealFs::new())), dir.path().join("file"));
        write_file_synced(&vfs, &path, b"").expect("written");
        assert_eq!(vfs.open_read(&path).expect("opened").mapped(0, 1), None);
        write_file_synced(&vfs, &dir.path().join("direct"), &content()).expect("written");
        let direct = vfs.open_read_direct(&dir.path().join("direct")).expect("opened");
        assert!(!direct.is_direct() || direct.mapped(0, 1).is_none());
    }
}
