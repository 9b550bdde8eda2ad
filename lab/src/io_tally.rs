//! A file system that counts its calls and pages, and a clock that adds up the time that an
//! emulated device takes for them.
//!
//! The thread that created the tally, which executes the operations, is counted separately from all
//! other threads, which flush and compact. Pages have 4 KiB: those of reads, each rounded up, and
//! the bytes written. Ranges and compactions are thus counted in the same unit as lookups.
//!
//! As a clock, the tally adds up the delays of [`shamba::env::SlowFs`] without waiting: the sum is
//! the time of a device that serves one call at a time, the same on every machine. CPU time is not
//! included.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ThreadId};

use shamba::env::{Clock, Layer, RandomFile, Vfs, WriteFile};

pub(crate) const PAGE_BYTES: u64 = 4_096;

/// Counts of all files.
#[derive(Debug)]
pub(crate) struct IoTally {
    caller: ThreadId,
    of_caller: Calls,
    of_others: Calls,
}

/// Counts of one side.
#[derive(Default, Debug)]
struct Calls {
    reads: AtomicU64,
    read_pages: AtomicU64,
    appends: AtomicU64,
    appended_bytes: AtomicU64,
    ns: AtomicU64,
}

/// Calls, pages and device time up to a moment, or between two.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
pub(crate) struct Io {
    pub reads: f64,
    pub read_pages: f64,
    pub appends: f64,
    pub written_pages: f64,
    /// Nanoseconds of the emulated device, if there is one.
    pub ns: f64,
}

impl Io {
    /// Pages read and written.
    pub fn pages(self) -> f64 {
        self.read_pages + self.written_pages
    }

    /// Sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.with(other, |mine, its| mine + its)
    }

    /// Mean per operation.
    #[must_use]
    pub fn per(self, operations: u64) -> Self {
        let operations = operations.max(1) as f64;
        self.with(self, |all, _| all / operations)
    }

    fn with(self, other: Self, join: impl Fn(f64, f64) -> f64) -> Self {
        Self {
            reads: join(self.reads, other.reads),
            read_pages: join(self.read_pages, other.read_pages),
            appends: join(self.appends, other.appends),
            written_pages: join(self.written_pages, other.written_pages),
            ns: join(self.ns, other.ns),
        }
    }
}

impl Calls {
    fn get(&self) -> Io {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64;
        Io {
            reads: of(&self.reads),
            read_pages: of(&self.read_pages),
            appends: of(&self.appends),
            written_pages: of(&self.appended_bytes) / PAGE_BYTES as f64,
            ns: of(&self.ns),
        }
    }
}

impl IoTally {
    /// An empty tally; the current thread is the one that executes the operations.
    pub fn new() -> Self {
        Self { caller: thread::current().id(), of_caller: Calls::default(), of_others: Calls::default() }
    }

    /// Counts of the operations (the thread that created the tally), and of flushes and compactions
    /// (other threads).
    pub fn get(&self) -> [Io; 2] {
        [self.of_caller.get(), self.of_others.get()]
    }

    /// The same, since `before`.
    pub fn since(&self, before: [Io; 2]) -> [Io; 2] {
        let [of_caller, of_others] = self.get();
        [(of_caller, before[0]), (of_others, before[1])]
            .map(|(now, before)| now.with(before, |now, before| now - before))
    }

    fn calls(&self) -> &Calls {
        if thread::current().id() == self.caller { &self.of_caller } else { &self.of_others }
    }
}

impl Clock for IoTally {
    fn now_us(&self) -> u64 {
        self.now_ns() / 1_000
    }

    fn now_ns(&self) -> u64 {
        self.of_caller.ns.load(Ordering::Relaxed) + self.of_others.ns.load(Ordering::Relaxed)
    }

    fn unix_ms(&self) -> u64 {
        self.now_us() / 1_000
    }

    fn sleep_us(&self, us: u64) {
        self.wait_ns(us.saturating_mul(1_000));
    }

    fn wait_ns(&self, ns: u64) {
        self.calls().ns.fetch_add(ns, Ordering::Relaxed);
    }
}

/// The file system.
#[derive(Debug)]
pub(crate) struct CountingFs {
    pub inner: Arc<dyn Vfs>,
    pub tally: Arc<IoTally>,
}

impl Layer for CountingFs {
    fn below(&self) -> &dyn Vfs {
        self.inner.as_ref()
    }

    fn over_reads(&self, inner: Arc<dyn RandomFile>) -> Arc<dyn RandomFile> {
        Arc::new(CountedReads { inner, tally: Arc::clone(&self.tally) })
    }

    fn over_writes(&self, inner: Box<dyn WriteFile>) -> Box<dyn WriteFile> {
        Box::new(CountedWrites { inner, tally: Arc::clone(&self.tally) })
    }
}

#[derive(Debug)]
struct CountedReads {
    inner: Arc<dyn RandomFile>,
    tally: Arc<IoTally>,
}

impl RandomFile for CountedReads {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read_at(offset, buf)?;
        let calls = self.tally.calls();
        calls.reads.fetch_add(1, Ordering::Relaxed);
        calls.read_pages.fetch_add((read as u64).div_ceil(PAGE_BYTES), Ordering::Relaxed);
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
struct CountedWrites {
    inner: Box<dyn WriteFile>,
    tally: Arc<IoTally>,
}

impl WriteFile for CountedWrites {
    fn append(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.append(bytes)?;
        let calls = self.tally.calls();
        calls.appends.fetch_add(1, Ordering::Relaxed);
        calls.appended_bytes.fetch_add(written as u64, Ordering::Relaxed);
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
    use shamba::env::{MemFs, SlowFs};
    use std::path::Path;

    #[test]
    fn reads_are_rounded_up_to_pages_and_writes_are_not() {
        let tally = Arc::new(IoTally::new());
        let fs = CountingFs { inner: Arc::new(MemFs::new()), tally: Arc::clone(&tally) };
        let path = Path::new("/file");
        let mut file = fs.create(path).expect("created");
        assert_eq!(file.append(&[1; 6_144]).expect("written"), 6_144);
        let before = tally.get();
        assert!((before[0].pages() - 1.5).abs() < 1e-12);
        let file = fs.open_read(path).expect("opened");
        assert_eq!(file.read_at(4_000, &mut [0; 100]).expect("read"), 100);
        assert_eq!(file.read_at(0, &mut [0; 5_000]).expect("read"), 5_000);
        let [io, of_others] = tally.since(before);
        assert_eq!((io.reads, io.read_pages, io.appends, of_others), (2.0, 3.0, 0.0, Io::default()));
        assert!((io.plus(before[0]).per(2).pages() - 2.25).abs() < 1e-12);
    }

    #[test]
    fn threads_are_counted_apart_and_delays_are_added_without_waiting() {
        let tally = Arc::new(IoTally::new());
        let slow = SlowFs::new(Arc::new(MemFs::new()), tally.clone(), 7_000, 3_000_000_000);
        let fs = CountingFs { inner: Arc::new(slow), tally: Arc::clone(&tally) };
        let mut file = fs.create(Path::new("/file")).expect("created");
        let write = move || file.append(&[1; 4_096]).expect("written");
        assert_eq!(thread::spawn(write).join().expect("ended"), 4_096);
        let file = fs.open_read(Path::new("/file")).expect("opened");
        file.read_at(0, &mut [0; 1]).expect("read");
        let [of_caller, of_others] = tally.get();
        assert_eq!((of_caller.reads, of_caller.ns, of_caller.pages()), (1.0, 7_000.0, 1.0));
        assert_eq!((of_others.appends, of_others.ns, of_others.pages()), (1.0, 3e9, 1.0));
    }
}
