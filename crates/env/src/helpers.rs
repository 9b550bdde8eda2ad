//! Helpers for users of a [`Vfs`]: loops over short and interrupted calls, whole files, and the
//! process's memory.
//!
//! Not here: making a name durable. [`write_file_synced`] syncs the file only; the caller syncs the
//! directory, once for all the names that it made.

use std::io;
use std::path::Path;

use crate::random_file::RandomFile;
use crate::vfs::{Vfs, WriteFile};

/// Maximum that [`read_file`] reserves before it has read bytes. Beyond it the buffer grows with
/// the data, so that a wrong length from the file system costs nothing.
const RESERVE_BYTES_MAX: u64 = 16 << 20;

/// Fills `buf` from `offset`, looping over short and interrupted reads.
///
/// # Errors
/// `UnexpectedEof` when the file ends first; else the error of the read.
pub fn read_exact_at(file: &dyn RandomFile, offset: u64, buf: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while filled < buf.len() {
        let at = offset.checked_add(filled as u64).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("read past the largest offset, from {offset}"),
            )
        })?;
        match file.read_at(at, &mut buf[filled..]) {
            Ok(0) => {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    format!("file ends at {at}, wanted {} bytes from {offset}", buf.len()),
                ));
            }
            Ok(bytes) => filled += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Appends all of `bytes`, looping over short and interrupted writes.
///
/// # Errors
/// The error of the write, or `WriteZero` if it takes nothing; part of `bytes` may then be in the
/// file.
pub fn append_all(file: &mut dyn WriteFile, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.append(bytes) {
            Ok(0) => return Err(io::Error::new(io::ErrorKind::WriteZero, "the file takes no more bytes")),
            Ok(taken) => bytes = &bytes[taken..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads a whole file.
///
/// # Errors
/// The error of opening or reading.
pub fn read_file(vfs: &dyn Vfs, path: &Path) -> io::Result<Vec<u8>> {
    let file = vfs.open_read(path)?;
    let stated_bytes = file.len()?;
    let mut content = Vec::with_capacity(usize::try_from(stated_bytes.min(RESERVE_BYTES_MAX)).unwrap_or(0));
    let mut filled = 0;
    // Read up to the end of file: the file may have grown since its length was read.
    loop {
        if filled == content.len() {
            let room = (content.capacity() - filled).clamp(4_096, 1 << 20);
            content.resize(filled + room, 0);
        }
        match file.read_at(filled as u64, &mut content[filled..]) {
            Ok(0) => break,
            Ok(bytes) => filled += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    content.truncate(filled);
    Ok(content)
}

/// Creates a file of these bytes and makes its content durable. Its name is durable only after
/// [`Vfs::sync_dir`] of its directory.
///
/// # Errors
/// `AlreadyExists` if the name is taken; else the error of the call that failed, after which a
/// partial file may exist.
pub fn write_file_synced(vfs: &dyn Vfs, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = vfs.create(path)?;
    append_all(file.as_mut(), bytes)?;
    file.sync_all()
}

/// The process's resident memory in bytes, where the system reports it.
pub fn process_rss_bytes() -> Option<u64> {
    memory_stats::memory_stats().and_then(|stats| u64::try_from(stats.physical_mem).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemFs;

    /// Transfers one byte per call, with an interruption before each.
    #[derive(Debug, Default)]
    struct Reluctant {
        bytes: std::sync::Mutex<(Vec<u8>, bool)>,
    }

    impl Reluctant {
        fn turn(&self) -> io::Result<std::sync::MutexGuard<'_, (Vec<u8>, bool)>> {
            let mut state = self.bytes.lock().expect("the lock");
            state.1 = !state.1;
            if state.1 { Err(io::Error::from(io::ErrorKind::Interrupted)) } else { Ok(state) }
        }
    }

    impl RandomFile for Reluctant {
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
            let state = self.turn()?;
            match state.0.get(offset as usize) {
                Some(byte) => {
                    buf[0] = *byte;
                    Ok(1)
                }
                None => Ok(0),
            }
        }
        fn len(&self) -> io::Result<u64> {
            Ok(0)
        }
    }

    impl WriteFile for Reluctant {
        fn append(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.turn()?.0.push(bytes[0]);
            Ok(1)
        }
        fn sync_data(&mut self) -> io::Result<()> {
            Ok(())
        }
        fn sync_all(&mut self) -> io::Result<()> {
            Ok(())
        }
        fn truncate(&mut self, _bytes: u64) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn short_and_interrupted_calls_are_looped_to_completion() {
        let mut file = Reluctant::default();
        append_all(&mut file, b"hello world").expect("appended");
        let mut buf = [0; 5];
        read_exact_at(&file, 6, &mut buf).expect("read");
        assert_eq!(&buf, b"world");
        let ended = read_exact_at(&file, 7, &mut buf).expect_err("too far");
        assert_eq!(ended.kind(), io::ErrorKind::UnexpectedEof);
        let mut one = [0];
        let overflow = read_exact_at(&file, u64::MAX, &mut one).expect_err("no such place");
        assert_eq!(overflow.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_whole_file_round_trips_whatever_its_length() {
        let vfs = MemFs::new();
        for bytes in [0usize, 1, 4_095, 4_096, 4_097, 3 << 20] {
            let path_text = format!("/f{bytes}");
            let path = Path::new(&path_text);
            let content: Vec<u8> = (0..bytes).map(|i| (i * 31 % 251) as u8).collect();
            write_file_synced(&vfs, path, &content).expect("written");
            assert!(read_file(&vfs, path).expect("read") == content, "{bytes} bytes differ");
            let taken = write_file_synced(&vfs, path, b"").expect_err("taken");
            assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
        }
    }

    #[test]
    fn this_process_uses_memory() {
        assert!(process_rss_bytes().is_none_or(|bytes| bytes > 100_000));
    }
}
