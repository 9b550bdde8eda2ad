//! Emulation of a slower device: delays the reads and writes of another file system.
//!
//! For experiments with devices that a machine does not have. The delays are:
//!
//! - a read: a latency, plus its bytes divided by a bandwidth ([`SlowFs::reading_at`]);
//! - an append: a latency, plus its bytes divided by a separate bandwidth ([`SlowFs::writing_at`]);
//! - a sync: the latency of an append.
//!
//! [`SlowFs::new`] adds the delay to the time that the call itself takes. [`SlowFs::lasting`]
//! includes the read's own time in its delay: a read takes the delay or its own time, whichever is
//! longer. There, appends and syncs have no delay unless [`SlowFs::writing_at`] sets one. A
//! bandwidth that is not set is unlimited.
//!
//! The bytes still come from the inner file system, so the data of an emulated device should fit
//! into memory.
//!
//! Delays are exact ([`Clock::wait_ns`]) and partly take CPU time, so CPU figures of an emulated
//! device are not meaningful. [`Vfs::is_emulated`] lets reports say so.
//!
//! Not here: failing calls ([`crate::FaultFs`]).

use std::io;
use std::sync::Arc;

use crate::clock::Clock;
use crate::layer::Layer;
use crate::random_file::RandomFile;
use crate::vfs::{Vfs, WriteFile};

/// Delays added to calls.
#[derive(Clone, Debug)]
struct Delay {
    clock: Arc<dyn Clock>,
    read_ns: u64,
    /// Bandwidth of reads in bytes per second; 0: unlimited.
    read_bytes_per_s: u64,
    write_ns: u64,
    /// Bandwidth of appends in bytes per second; 0: unlimited.
    write_bytes_per_s: u64,
    /// Whether the delay of a read includes the time that the inner read takes.
    in_all: bool,
}

impl Delay {
    fn new(clock: Arc<dyn Clock>, read_ns: u64, write_ns: u64, in_all: bool) -> Self {
        Self { clock, read_ns, read_bytes_per_s: 0, write_ns, write_bytes_per_s: 0, in_all }
    }

    fn read<T>(&self, bytes: usize, read: impl FnOnce() -> T) -> T {
        let read_ns = self.read_ns.saturating_add(transfer_ns(bytes, self.read_bytes_per_s));
        if !self.in_all {
            self.wait(read_ns);
            return read();
        }
        let until_ns = self.clock.now_ns().saturating_add(read_ns);
        let result = read();
        self.clock.wait_until_ns(until_ns);
        result
    }

    fn append(&self, bytes: usize) {
        self.wait(self.write_ns.saturating_add(transfer_ns(bytes, self.write_bytes_per_s)));
    }

    fn sync(&self) {
        self.wait(self.write_ns);
    }

    fn wait(&self, ns: u64) {
        if ns > 0 {
            self.clock.wait_ns(ns);
        }
    }
}

/// Transfer time of `bytes` at `rate` bytes per second, in nanoseconds; 0 if the rate is 0
/// (unlimited).
fn transfer_ns(bytes: usize, rate: u64) -> u64 {
    let ns = (bytes as u128 * 1_000_000_000).checked_div(u128::from(rate)).unwrap_or(0);
    u64::try_from(ns).unwrap_or(u64::MAX)
}

/// A file system that delays reads and writes.
#[derive(Clone, Debug)]
pub struct SlowFs {
    inner: Arc<dyn Vfs>,
    delay: Delay,
}

impl SlowFs {
    /// Adds `read_ns` nanoseconds to each read of `inner`, and `write_ns` to each append and sync.
    /// `clock` measures and waits.
    pub fn new(inner: Arc<dyn Vfs>, clock: Arc<dyn Clock>, read_ns: u64, write_ns: u64) -> Self {
        Self { inner, delay: Delay::new(clock, read_ns, write_ns, false) }
    }

    /// Makes each read of `inner` take `read_ns` nanoseconds in total, or its own time if that is
    /// longer.
    pub fn lasting(inner: Arc<dyn Vfs>, clock: Arc<dyn Clock>, read_ns: u64) -> Self {
        Self { inner, delay: Delay::new(clock, read_ns, 0, true) }
    }

    /// Sets the bandwidth of reads in bytes per second; 0: unlimited.
    #[must_use]
    pub fn reading_at(mut self, bytes_per_second: u64) -> Self {
        self.delay.read_bytes_per_s = bytes_per_second;
        self
    }

    /// Sets the latency of appends and syncs in nanoseconds, and the bandwidth of appends in bytes
    /// per second; 0: unlimited.
    #[must_use]
    pub fn writing_at(mut self, write_ns: u64, bytes_per_second: u64) -> Self {
        self.delay.write_ns = write_ns;
        self.delay.write_bytes_per_s = bytes_per_second;
        self
    }
}

#[derive(Debug)]
struct SlowRandomFile {
    inner: Arc<dyn RandomFile>,
    delay: Delay,
}

impl RandomFile for SlowRandomFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.delay.read(buf.len(), || self.inner.read_at(offset, buf))
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
struct SlowWriteFile {
    inner: Box<dyn WriteFile>,
    delay: Delay,
}

impl WriteFile for SlowWriteFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.delay.append(bytes.len());
        self.inner.append(bytes)
    }

    fn sync_data(&mut self) -> io::Result<()> {
        self.delay.sync();
        self.inner.sync_data()
    }

    fn sync_all(&mut self) -> io::Result<()> {
        self.delay.sync();
        self.inner.sync_all()
    }

    fn truncate(&mut self, bytes: u64) -> io::Result<()> {
        self.inner.truncate(bytes)
    }
}

impl Layer for SlowFs {
    fn below(&self) -> &dyn Vfs {
        self.inner.as_ref()
    }

    fn over_reads(&self, inner: Arc<dyn RandomFile>) -> Arc<dyn RandomFile> {
        Arc::new(SlowRandomFile { inner, delay: self.delay.clone() })
    }

    fn over_writes(&self, inner: Box<dyn WriteFile>) -> Box<dyn WriteFile> {
        Box::new(SlowWriteFile { inner, delay: self.delay.clone() })
    }

    fn emulates(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{ManualClock, MemFs, append_all, read_file};

    #[test]
    fn reads_last_as_long_as_they_should_or_as_they_do() {
        for (own_ns, wanted_ns, ns) in [(3_000, 5_000, 5_000), (3_000, 2_000, 3_000)] {
            let (clock, inner) = (Arc::new(ManualClock::new()), Arc::new(MemFs::new()));
            let path = Path::new("/f");
            append_all(inner.create(path).expect("created").as_mut(), b"abc").expect("written");
            let slow = SlowFs::new(inner, clock.clone(), own_ns, 0);
            let lasting = SlowFs::lasting(Arc::new(slow), clock.clone(), wanted_ns);
            assert!(lasting.is_emulated());
            let file = lasting.open_read(path).expect("opened");
            let before_ns = clock.now_ns();
            assert_eq!(file.read_at(1, &mut [0; 2]).expect("read"), 2);
            assert_eq!(clock.now_ns() - before_ns, ns);
        }
    }

    #[test]
    fn a_read_takes_its_latency_and_the_time_of_its_bytes() {
        let (clock, inner) = (Arc::new(ManualClock::new()), Arc::new(MemFs::new()));
        let path = Path::new("/f");
        append_all(inner.create(path).expect("created").as_mut(), &[7; 9_000]).expect("written");
        let new = SlowFs::new(inner.clone(), clock.clone(), 3_000, 0);
        let lasting = SlowFs::lasting(inner, clock.clone(), 3_000);
        for slow in [new, lasting] {
            let file = slow.reading_at(1_000_000_000).open_read(path).expect("opened");
            for bytes in [1_000, 8_000] {
                let before_ns = clock.now_ns();
                file.read_at(0, &mut vec![0; bytes]).expect("read");
                assert_eq!(clock.now_ns() - before_ns, 3_000 + bytes as u64);
            }
        }
    }

    #[test]
    fn an_append_takes_its_latency_and_the_time_of_its_bytes_and_a_sync_the_latency() {
        let (clock, inner) = (Arc::new(ManualClock::new()), Arc::new(MemFs::new()));
        let slow = SlowFs::lasting(inner, clock.clone(), 0).writing_at(3_000, 500_000_000);
        let mut file = slow.create(Path::new("/f")).expect("created");
        for (bytes, ns) in [(1_000, 5_000), (4_000, 11_000)] {
            let before_ns = clock.now_ns();
            append_all(file.as_mut(), &vec![7; bytes]).expect("written");
            assert_eq!(clock.now_ns() - before_ns, ns);
        }
        let before_ns = clock.now_ns();
        file.sync_data().expect("synced");
        assert_eq!(clock.now_ns() - before_ns, 3_000);
    }

    #[test]
    fn reads_and_writes_take_their_time_and_nothing_else_does() {
        let (clock, inner) = (Arc::new(ManualClock::new()), Arc::new(MemFs::new()));
        let slow = SlowFs::new(inner.clone(), clock.clone(), 3_000, 5_000);
        assert!(slow.is_emulated() && !inner.is_emulated());
        let took = |act: &mut dyn FnMut()| {
            let before_us = clock.now_us();
            act();
            clock.now_us() - before_us
        };
        let path = Path::new("/file");
        let mut file = slow.create(path).expect("created");
        assert_eq!(took(&mut || append_all(file.as_mut(), b"some bytes").expect("appended")), 5);
        assert_eq!(took(&mut || file.sync_data().expect("synced")), 5);
        assert_eq!(took(&mut || file.truncate(4).expect("cut")), 0);
        let reader = slow.open_read(path).expect("opened");
        assert_eq!(took(&mut || assert_eq!(reader.read_at(0, &mut [0; 9]).expect("read"), 4)), 3);
        assert_eq!(took(&mut || assert_eq!(reader.len().expect("length"), 4)), 0);
        assert_eq!(read_file(inner.as_ref(), path).expect("read"), b"some");
        assert_eq!(clock.now_us(), 13);
    }
}
