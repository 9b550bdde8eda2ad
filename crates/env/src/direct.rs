//! Direct I/O: reads that bypass the operating system's page cache.
//!
//! A file system may refuse it when a file is opened, or only at the first read (the block device
//! below may require more than page alignment). The file is then read with buffered reads.
//! [`RandomFile::is_direct`] tells a reader which case applies.
//!
//! Not here: the buffers ([`crate::AlignedBuf`]); systems without such a flag, where every read is
//! buffered.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::aligned::DIRECT_ALIGNMENT_BYTES;
use crate::random_file::RandomFile;
use crate::system;

#[derive(Debug)]
struct DirectFile {
    file: File,
    refused: AtomicBool,
}

/// Opens for direct reads; `None` if the system or the file system does not support them.
pub(crate) fn open(path: &Path) -> io::Result<Option<Arc<dyn RandomFile>>> {
    let Some(file) = system::open_direct(path)? else { return Ok(None) };
    Ok(Some(Arc::new(DirectFile { file, refused: AtomicBool::new(false) })))
}

impl DirectFile {
    /// Switches to buffered reads for all later reads.
    fn give_up(&self) -> io::Result<()> {
        system::end_direct(&self.file)?;
        self.refused.store(true, Ordering::Relaxed);
        Ok(())
    }
}

impl RandomFile for DirectFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        match system::read_at(&self.file, offset, buf) {
            Err(error) if system::is_direct_refused(&error) => {
                // Another thread may have switched after this read was refused.
                if self.is_direct() {
                    self.give_up()?;
                }
                system::read_at(&self.file, offset, buf)
            }
            read => read,
        }
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn alignment_bytes(&self) -> usize {
        DIRECT_ALIGNMENT_BYTES
    }

    fn is_direct(&self) -> bool {
        !self.refused.load(Ordering::Relaxed)
    }

    #[cfg(target_os = "linux")]
    fn descriptor(&self) -> Option<std::os::fd::RawFd> {
        Some(std::os::fd::AsRawFd::as_raw_fd(&self.file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AlignedBuf, RealFs, Vfs, read_aligned_at, write_file_synced};

    /// A file of `content` in a new temporary directory of the system.
    fn file_of(content: &[u8]) -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("file");
        write_file_synced(&RealFs::new(), &path, content).expect("written");
        (dir, path)
    }

    #[test]
    fn direct_reads_give_the_files_bytes_up_to_its_end() {
        let content: Vec<u8> = (0..20_001u32).map(|i| (i * 31 % 251) as u8).collect();
        let (_dir, path) = file_of(&content);
        let file = RealFs::new().open_read_direct(&path).expect("opened");
        if !file.is_direct() {
            println!("skipped: no direct I/O on the file system of temporary files");
        }
        assert_eq!(file.len().expect("a length"), 20_001);
        for (offset, needed) in [(0, 20_001), (4_096, 4_096), (16_384, 3_617), (8_192, 1)] {
            let mut buf = AlignedBuf::new(needed);
            read_aligned_at(file.as_ref(), offset, &mut buf, needed).expect("read");
            assert!(buf[..needed] == content[offset as usize..][..needed], "{needed} bytes at {offset}");
        }
        let ended = read_aligned_at(file.as_ref(), 16_384, &mut AlignedBuf::new(4_096), 3_618);
        assert_eq!(ended.expect_err("beyond the end").kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_refused_read_turns_into_a_usual_one() {
        let (_dir, path) = file_of(&[7; 10_000]);
        let file = RealFs::new().open_read_direct(&path).expect("opened");
        // Not aligned at all: a device with larger sectors would refuse an aligned read in the same
        // way.
        let mut buf = [0; 101];
        assert_eq!(file.read_at(3, &mut buf).expect("read"), 101);
        assert_eq!(buf, [7; 101]);
    }

    #[test]
    fn missing_files_and_directories_are_errors_as_usual() {
        let (dir, _) = file_of(b"");
        let vfs = RealFs::new();
        for path in [dir.path().join("missing"), dir.path().to_owned()] {
            let (direct, usual) = (vfs.open_read_direct(&path), vfs.open_read(&path));
            let kinds = (direct.expect_err("none").kind(), usual.expect_err("none").kind());
            assert_eq!(kinds.0, kinds.1);
        }
    }
}
