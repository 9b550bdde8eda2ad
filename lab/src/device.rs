//! The devices that experiments run on: this machine's, and emulated ones.
//!
//! An emulated device is a file system in memory behind a layer that delays reads ([`SlowFs`]) by a
//! latency and the time of their bytes at the device's bandwidth; a page of 4 KiB takes the time of
//! the hash-sharing paper's Table 1 in total, including memory's own time; where a page of a large
//! file in memory takes longer than the fastest device, as long as that. Writes are free, unless
//! an experiment requests [`Writes::Priced`]: then an append takes the latency of a read and the
//! time of its bytes at the device's write bandwidth, and a sync takes the latency. Below some 60
//! us the layer spins on the clock; it never sleeps. A device that is not slower than reads from
//! memory cannot be emulated: experiments omit it and say so ([`Device::why_not_emulated`]).
//!
//! Not here: devices that answer several reads at once.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use shamba::env::{AlignedBuf, Clock, DIRECT_ALIGNMENT_BYTES, Env, MemFs, SlowFs, Vfs, write_file_synced};

use crate::facts::file_system;

/// A place for files.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Device {
    /// The disk below the laboratory's folder, past the system's cache, where it can be read so:
    /// `why_not_direct`.
    Disk,
    /// The same files through the system's cache.
    PageCache,
    /// A file system in this process's memory, without a latency: a RAM disk.
    Memory,
    /// Emulated: 4.6 ms a read.
    Hdd,
    /// Emulated: 113 µs.
    Ssd,
    /// Emulated: 10 µs.
    Pcie,
    /// Emulated: 7 µs, a PCIe SSD without the system between.
    Spdk,
    /// Emulated: 250 ns.
    Nvm,
    /// Emulated: a device of another paper, with its own times.
    Other {
        /// The name in results.
        name: &'static str,
        /// Nanoseconds of reading a page.
        read_ns: u64,
        /// Bytes a second, of reads and of writes.
        bytes_per_second: u64,
    },
}

/// Whether an emulated device charges writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Writes {
    /// Writes take the time of memory: for experiments that time lookups, so that their trees are
    /// built quickly.
    Free,
    /// An append takes the latency of a read and the time of its bytes, a sync the latency: for
    /// mixed streams.
    Priced,
}

impl Device {
    /// Every device but those of other papers, from slow to fast.
    pub const ALL: [Self; 8] =
        [Self::Hdd, Self::Disk, Self::Ssd, Self::Pcie, Self::Spdk, Self::PageCache, Self::Nvm, Self::Memory];
    /// The emulated ones, from slow to fast.
    pub const EMULATED: [Self; 5] = [Self::Hdd, Self::Ssd, Self::Pcie, Self::Spdk, Self::Nvm];

    /// The name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Disk => "disk, direct",
            Self::PageCache => "disk, cached",
            Self::Memory => "memory",
            Self::Hdd => "HDD 4.6 ms",
            Self::Ssd => "SSD 113 us",
            Self::Pcie => "PCIe 10 us",
            Self::Spdk => "SPDK 7 us",
            Self::Nvm => "NVM 250 ns",
            Self::Other { name, .. } => name,
        }
    }

    /// Time of a page read; `None` for real devices.
    pub fn read_ns(self) -> Option<u64> {
        match self {
            Self::Disk | Self::PageCache | Self::Memory => None,
            Self::Hdd => Some(4_600_000),
            Self::Ssd => Some(113_000),
            Self::Pcie => Some(10_000),
            Self::Spdk => Some(7_000),
            Self::Nvm => Some(250),
            Self::Other { read_ns, .. } => Some(read_ns),
        }
    }

    /// Bytes a second of reads; `None` where the machine says. Sources: HDD and SSD: sequential
    /// bandwidths of 2018 in *The Five-Minute Rule 30 Years Later* (CACM 2019), which the slides on
    /// modular filters show; PCIe and SPDK: sequential reads of the paper's Intel P4510 by its data
    /// sheet; NVM: sequential reads of six interleaved modules in *Basic Performance Measurements
    /// of the Intel Optane DC Persistent Memory Module* (Izraelevitz et al., 2019).
    pub fn bytes_per_second(self) -> Option<u64> {
        match self {
            Self::Disk | Self::PageCache | Self::Memory => None,
            Self::Hdd => Some(200_000_000),
            Self::Ssd => Some(500_000_000),
            Self::Pcie | Self::Spdk => Some(3_200_000_000),
            Self::Nvm => Some(39_400_000_000),
            Self::Other { bytes_per_second, .. } => Some(bytes_per_second),
        }
    }

    /// Bytes a second of writes; `None` where the machine says. Sources, those of
    /// [`Self::bytes_per_second`]: HDD and SSD: sequential writes of 2018 in *The Five-Minute Rule
    /// 30 Years Later*; PCIe and SPDK: the Intel P4510 of 2 TB, which reads 3,200 MB/s and writes
    /// 2,000 MB/s by its data sheet; NVM: the six interleaved modules write 13.9 GB/s. Other
    /// papers' devices write as fast as they read.
    pub fn write_bytes_per_second(self) -> Option<u64> {
        match self {
            Self::Disk | Self::PageCache | Self::Memory => None,
            Self::Hdd => Some(200_000_000),
            Self::Ssd => Some(460_000_000),
            Self::Pcie | Self::Spdk => Some(2_000_000_000),
            Self::Nvm => Some(13_900_000_000),
            Self::Other { bytes_per_second, .. } => Some(bytes_per_second),
        }
    }

    /// Nanoseconds of a page of 4 KiB that is read once and written once, in calls of `call_bytes`
    /// each, as compaction does; `None` where the machine says.
    pub fn moved_page_ns(self, call_bytes: u64) -> Option<f64> {
        let latency_ns = self.latency_ns()? as f64 * 4_096.0 / call_bytes.max(1) as f64;
        let transfer_ns = |rate: u64| 4_096.0 * 1e9 / rate.max(1) as f64;
        let rates = (self.bytes_per_second()?, self.write_bytes_per_second()?);
        Some(2.0 * latency_ns + transfer_ns(rates.0) + transfer_ns(rates.1))
    }

    /// Nanoseconds of a read before its bytes come: a page takes [`Self::read_ns`] in all.
    fn latency_ns(self) -> Option<u64> {
        let page_ns = 4_096 * 1_000_000_000 / self.bytes_per_second()?.max(1);
        Some(self.read_ns()?.saturating_sub(page_ns))
    }

    /// Whether the device is emulated.
    pub fn is_emulated(self) -> bool {
        self.read_ns().is_some()
    }

    /// Whether its files are in the process's memory, and not below the laboratory's folder.
    pub fn is_in_memory(self) -> bool {
        self.is_emulated() || self == Self::Memory
    }

    /// The reason why it cannot be emulated on this machine; `None` if it can, or need not be.
    ///
    /// # Errors
    /// When reading from memory fails.
    pub(crate) fn why_not_emulated(self, memory_read: MemoryRead) -> Result<Option<String>, String> {
        let Some(read_ns) = self.read_ns() else { return Ok(None) };
        Ok(check_slower(read_ns, memory_read.ns()?).err())
    }

    /// The environment of a tree on this device with its files in `files`.
    ///
    /// # Errors
    /// When reading from memory fails, or takes as long as the device does.
    pub(crate) fn env(
        self,
        files: &Arc<dyn Vfs>,
        memory_read: MemoryRead,
        writes: Writes,
    ) -> Result<Env, String> {
        let mut env = Env::real();
        env.vfs = Arc::clone(files);
        if let (Some(read_ns), Some(latency_ns), Some(rate)) =
            (self.read_ns(), self.latency_ns(), self.bytes_per_second())
        {
            check_slower(read_ns, memory_read.ns()?)?;
            let slow = SlowFs::lasting(env.vfs, Arc::clone(&env.clock), latency_ns).reading_at(rate);
            env.vfs = Arc::new(match (writes, self.write_bytes_per_second()) {
                (Writes::Priced, Some(rate)) => slow.writing_at(latency_ns, rate),
                _ => slow,
            });
        }
        Ok(env)
    }

    /// `files` behind the emulated device, whose time runs on `clock`: all of its calls are
    /// charged, memory's own time is not part of it. The files as they are where the machine has
    /// the device.
    pub(crate) fn charging(self, files: Arc<dyn Vfs>, clock: Arc<dyn Clock>) -> Arc<dyn Vfs> {
        let rates = self.bytes_per_second().zip(self.write_bytes_per_second());
        match self.latency_ns().zip(rates) {
            Some((latency_ns, (reads, writes))) => {
                let slow = SlowFs::new(files, clock, latency_ns, latency_ns).reading_at(reads);
                Arc::new(slow.writing_at(latency_ns, writes))
            }
            None => files,
        }
    }
}

/// Why reads of files in `dir` do not bypass the system's page cache; none if they do. Some file
/// systems ignore direct I/O without an error, and one in memory has no disk.
///
/// # Errors
/// When a file cannot be written and read there.
pub(crate) fn why_not_direct(dir: &Path) -> Result<Option<String>, String> {
    let kind = file_system(dir);
    if ["tmpfs", "ramfs"].contains(&kind.as_str()) {
        return Ok(Some(format!("the folder for databases is in memory ({kind})")));
    }
    let (vfs, path) = (Env::real().vfs, dir.join("direct"));
    let said = |error: std::io::Error| format!("{}: {error}", path.display());
    vfs.create_dir_all(dir).map_err(said)?;
    write_file_synced(vfs.as_ref(), &path, &[7; DIRECT_ALIGNMENT_BYTES]).map_err(said)?;
    let file = vfs.open_read_direct(&path).map_err(said)?;
    // Some file systems refuse only at the first read.
    file.read_at(0, &mut AlignedBuf::new(DIRECT_ALIGNMENT_BYTES)).map_err(said)?;
    let is_direct = file.is_direct();
    drop(file);
    vfs.unlink(&path).map_err(said)?;
    Ok((!is_direct).then(|| {
        format!("the file system of the folder for databases ({kind}) reads through the system's cache only")
    }))
}

/// Checks that a device of `read_ns` per read is slower than memory.
///
/// # Errors
/// When memory takes as long by itself: such a device cannot be emulated here.
fn check_slower(read_ns: u64, memory_ns: u64) -> Result<(), String> {
    if read_ns > memory_ns {
        return Ok(());
    }
    Err(format!(
        "a device of {read_ns} ns a read cannot be emulated: a read from memory takes {memory_ns} ns here"
    ))
}

/// Time of a 4 KiB read from a file system in memory, with the thinnest layer around it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MemoryRead {
    /// The time on this machine. It is measured once, so that a device is available to all
    /// experiments or to none.
    Measured,
    /// A fixed number of nanoseconds, whatever the machine.
    Assumed(u64),
}

impl MemoryRead {
    /// In nanoseconds.
    ///
    /// # Errors
    /// When reading from memory fails.
    pub(crate) fn ns(self) -> Result<u64, String> {
        static MEASURED: OnceLock<Result<u64, String>> = OnceLock::new();
        match self {
            Self::Measured => MEASURED.get_or_init(measure_memory_ns).clone(),
            Self::Assumed(ns) => Ok(ns),
        }
    }
}

/// A short measurement over a file of 4 MiB: writing a larger file would take longer than all
/// reads. Many of its pages are in the CPU caches. Reads of large trees take some two hundred
/// nanoseconds more, which the fastest emulated device cannot hide, nor the time of two clock
/// reads.
fn measure_memory_ns() -> Result<u64, String> {
    const PAGE: usize = 4096;
    const PAGES: u64 = 1_024;
    /// Short batches, so that some are not disturbed by other processes.
    const BATCH: u64 = 64;
    const BATCHES: u64 = 256;
    let said = |error: std::io::Error| format!("timing memory: {error}");
    let files: Arc<dyn Vfs> = Arc::new(MemFs::new());
    let path = Path::new("/timed");
    let mut file = files.create(path).map_err(said)?;
    let page = [7; PAGE];
    for _ in 0..PAGES {
        shamba::env::append_all(file.as_mut(), &page).map_err(said)?;
    }
    let clock = Env::real().clock;
    // The layer's clock reads are part of the time: a latency of one nanosecond enables them.
    let slow = SlowFs::new(files, clock, 1, 0);
    let file = slow.open_read(path).map_err(said)?;
    let mut buffer = AlignedBuf::new(PAGE);
    let mut fastest_ns = u64::MAX;
    for batch in 0..BATCHES {
        let since = Instant::now();
        for number in batch * BATCH..(batch + 1) * BATCH {
            file.read_at((number * 379 % PAGES) * PAGE as u64, &mut buffer).map_err(said)?;
        }
        fastest_ns = fastest_ns.min(since.elapsed().as_nanos() as u64 / BATCH);
    }
    Ok(fastest_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shamba::env::ManualClock;

    #[test]
    fn a_disk_is_read_past_the_cache_or_it_is_said_why_not() {
        let dir = tempfile::tempdir().expect("a directory");
        let in_memory = file_system(dir.path()) == "tmpfs";
        let why = why_not_direct(dir.path()).expect("written and read");
        assert!(!in_memory || why.as_ref().is_some_and(|why| why.contains("tmpfs")), "{why:?}");
        assert_eq!(std::fs::read_dir(dir.path()).expect("a directory").count(), 0, "nothing is left");
        let file = dir.path().join("file");
        std::fs::write(&file, b"").expect("written");
        // In memory nothing is tried.
        assert!(in_memory || why_not_direct(&file).is_err_and(|error| error.contains("file")));
    }

    #[test]
    fn a_page_of_compaction_costs_its_part_of_long_calls() {
        let device = Device::Other { name: "other", read_ns: 1_004_096, bytes_per_second: 1_000_000_000 };
        // Latency 1 ms, 4,096 ns for the bytes of a page: once for reading, once for writing.
        let near = |call_bytes: u64, ns: f64| {
            let found = device.moved_page_ns(call_bytes).expect("an emulated device");
            assert!((found - ns).abs() < 1e-6, "{found}, not {ns}");
        };
        near(4_096, 2.0 * 1_004_096.0);
        near(64 * 4_096, 2.0 * (1_000_000.0 / 64.0 + 4_096.0));
        assert_eq!(Device::Memory.moved_page_ns(4_096), None);
    }

    #[test]
    fn writes_are_charged_only_where_that_is_asked_for() {
        let device = Device::Other { name: "other", read_ns: 1_004_096, bytes_per_second: 1_000_000_000 };
        let clock = Arc::new(ManualClock::new());
        let files = device.charging(Arc::new(MemFs::new()), clock.clone());
        let mut file = files.create(Path::new("/f")).expect("created");
        shamba::env::append_all(file.as_mut(), &[7; 8_000]).expect("written");
        assert_eq!(clock.now_us(), 1_008);
        file.sync_data().expect("synced");
        assert_eq!(clock.now_us(), 2_008);
        let memory: Arc<dyn Vfs> = Arc::new(MemFs::new());
        assert!(!Device::Memory.charging(memory, clock).is_emulated());
    }

    #[test]
    fn emulated_devices_have_a_latency_and_the_others_none() {
        let other = Device::Other { name: "other", read_ns: 1_000, bytes_per_second: 1_000_000_000_000 };
        for device in Device::ALL.into_iter().chain([other]) {
            let is_emulated = Device::EMULATED.contains(&device) || device == other;
            assert_eq!(device.is_emulated(), is_emulated, "{}", device.name());
            let files: Arc<dyn Vfs> = Arc::new(MemFs::new());
            let env = device.env(&files, MemoryRead::Assumed(100), Writes::Priced).expect("a world");
            assert_eq!(env.vfs.is_emulated(), device.is_emulated(), "{}", device.name());
            let has_rates = device.bytes_per_second().zip(device.write_bytes_per_second()).is_some();
            assert_eq!(has_rates, device.is_emulated(), "{}", device.name());
            if let (Some(page_ns), Some(latency_ns), Some(rate)) =
                (device.read_ns(), device.latency_ns(), device.bytes_per_second())
            {
                let whole_ns = latency_ns + 4_096 * 1_000_000_000 / rate;
                assert_eq!(whole_ns, page_ns, "{}: the bandwidth alone takes longer", device.name());
            }
        }
        assert!(measure_memory_ns().expect("read") > 0);
        assert_eq!((check_slower(250, 100), check_slower(250, 249)), (Ok(()), Ok(())));
        for memory_ns in [250, 300] {
            assert!(check_slower(250, memory_ns).is_err_and(|error| error.contains("cannot be emulated")));
        }
        let why_not = |device: Device| device.why_not_emulated(MemoryRead::Assumed(300)).expect("assumed");
        assert!(why_not(Device::Nvm).is_some_and(|why| why.contains("250 ns")));
        assert_eq!([Device::Pcie, Device::Memory].map(why_not), [None, None]);
    }
}
