//! The world in which reads are counted: a clock that passes faster, and files that say what was read of them.
//!
//! What memory holds comes to rest within some seconds of the engine's clock, which here are fractions of one. And as the files
//! lie in memory, reads look to the engine as long as those of an SSD: what is read in a microsecond, and so again and again, it
//! would not put into its cache.
//!
//! Not here: devices that take time ([`crate::Device`]).

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shamba::env::{Env, Layer, RandomFile, Vfs};

use crate::checks::clock::PacedClock;

/// The engine's seconds pass so many times as fast.
const SECONDS_TIMES: u64 = 16;
/// Reads seem to take so many times as long.
const READS_TIMES: u64 = 100;

/// The world for counting reads; bytes that are read go to `bytes`.
pub(super) fn counting(world: Env, bytes: &Arc<AtomicU64>) -> Env {
    let clock = PacedClock::new(SECONDS_TIMES).slowing_reads(READS_TIMES);
    Env { clock: Arc::new(clock), ..counted(world, bytes) }
}

/// The world for timing them; their bytes are counted too.
pub(super) fn timing(world: Env, bytes: &Arc<AtomicU64>) -> Env {
    Env { clock: Arc::new(PacedClock::new(SECONDS_TIMES)), ..counted(world, bytes) }
}

fn counted(world: Env, bytes: &Arc<AtomicU64>) -> Env {
    let files = CountingFs { inner: Arc::clone(&world.vfs), bytes: Arc::clone(bytes) };
    Env { vfs: Arc::new(files), ..world }
}

/// Files that count the bytes that are read of them.
#[derive(Debug)]
struct CountingFs {
    inner: Arc<dyn Vfs>,
    bytes: Arc<AtomicU64>,
}

#[derive(Debug)]
struct CountingFile {
    inner: Arc<dyn RandomFile>,
    bytes: Arc<AtomicU64>,
}

impl RandomFile for CountingFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read_at(offset, buf)?;
        self.bytes.fetch_add(read as u64, Ordering::Relaxed);
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

impl Layer for CountingFs {
    fn below(&self) -> &dyn Vfs {
        self.inner.as_ref()
    }

    fn over_reads(&self, inner: Arc<dyn RandomFile>) -> Arc<dyn RandomFile> {
        Arc::new(CountingFile { inner, bytes: Arc::clone(&self.bytes) })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use shamba::env::{MemFs, append_all};

    #[test]
    fn what_is_read_is_counted_and_seconds_pass_faster() {
        let bytes = Arc::new(AtomicU64::new(0));
        let files = Arc::new(MemFs::new());
        let mut file = files.create(Path::new("/file")).expect("created");
        append_all(file.as_mut(), b"some bytes").expect("written");
        let env = counting(Env { vfs: files, ..Env::real() }, &bytes);
        let file = env.vfs.open_read(Path::new("/file")).expect("open");
        assert_eq!(file.read_at(5, &mut [0; 100]).expect("read"), 5);
        assert_eq!(bytes.load(Ordering::Relaxed), 5);
        let before_us = env.clock.now_us();
        env.clock.sleep_us(1_000);
        assert!(env.clock.now_us() - before_us >= 1_000 * SECONDS_TIMES);
    }
}
