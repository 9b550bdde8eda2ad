//! Table 1: the time of reading a page, by device, and of hashing a kilobyte, by function.
//!
//! Single pages are read at random places of a large file, as the engine reads them from that
//! device. Emulated devices have the paper's times, so their results only check the emulation.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use shamba::env::{AlignedBuf, Env, MemFs, RandomFile, Vfs, append_all};
use shamba_workload::mix2;

use super::hashes::{Hash, hash_ns};
use crate::device::{Writes, why_not_direct};
use crate::lookups::median;
use crate::prelude::*;

const KEY_BYTES: usize = 1_024;
const PAGE_BYTES: usize = 4_096;
/// Nanoseconds of a page in the paper's memory.
const PAPER_MEMORY_NS: f64 = 160.0;
/// "Within an order of magnitude".
const MAGNITUDE: (f64, f64) = (0.1, 10.0);
/// Maximum time of a device's reads, unless one takes longer.
const TIME_MAX: Duration = Duration::from_millis(100);

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "hash-sharing-table1",
    paper: Paper::HashSharing,
    kind: Kind::Measured,
    method: Method::Timed,
    place: "Table 1",
    title: "time of reading a page and of hashing a kilobyte",
    claim: "Reading 4 KB takes 4.6 ms on a HDD, 113 us on an SSD, 10 us on PCIe, 7 us with SPDK, 250 ns on NVM, 160 ns in memory; hashing 1 KB takes 176 ns (CITY) to 5.2 us \
            (SHA-256): within an order of magnitude of reading a page of memory.",
    parameters,
    measure,
    predicates: &[
        Predicate::direction("MM64 over a page of memory", Ratio, Within(MAGNITUDE.0, MAGNITUDE.1), |rows| {
            Some(ns(rows, Hash::Murmur64.name())? / ns(rows, Device::Memory.name())?)
        }),
        Predicate::direction("SHA-256 over CITY", Ratio, AtLeast(1.0), |rows| {
            Some(ns(rows, Hash::Sha256.name())? / ns(rows, Hash::City64.name())?)
        }),
        Predicate::direction(
            "a page of memory over one through the system's cache",
            Ratio,
            AtMost(1.0),
            |rows| Some(ns(rows, Device::Memory.name())? / ns(rows, Device::PageCache.name())?),
        ),
        Predicate::size("CITY over 176 ns", Ratio, Within(0.5, 2.0), |rows| over_paper(rows, Hash::City64)),
        Predicate::size("SHA-256 over 5.2 us", Ratio, Within(0.5, 2.0), |rows| {
            over_paper(rows, Hash::Sha256)
        }),
        Predicate::size("a page of memory over 160 ns", Ratio, Within(0.5, 2.0), |rows| {
            Some(ns(rows, Device::Memory.name())? / PAPER_MEMORY_NS)
        }),
    ],
    panels: &[Panel::lines(Column::names("tick", ""), Column::log("ns", "time [ns]"), &["source"])
        .drawn(Style::Markers)],
    note: "Hashes wait for one another. Pages of 4 KB at random places of a file, one at a time. Emulated devices take the paper's \
           times or, where memory takes longer, as does NVM's, that of memory; they are not judged.",
    reason: Experiment::no_reason,
};

fn pages(scale: Scale) -> u64 {
    scale.count(8_192, 65_536, 262_144)
}

fn reads(scale: Scale) -> u64 {
    scale.count(4_000, 40_000, 400_000)
}

fn parameters(scale: Scale) -> Vec<Parameter> {
    vec![
        Parameter::varied("hash", Hash::ALL.map(Hash::name)),
        Parameter::varied("device", Device::ALL.map(Device::name)),
        Parameter::fixed("key bytes", KEY_BYTES),
        Parameter::fixed("page bytes", PAGE_BYTES),
        Parameter::fixed("pages of the file", pages(scale)),
        Parameter::fixed("reads, as many as 0.1 s allow", reads(scale)),
    ]
}

/// The time of a hash here over the paper's.
fn over_paper(rows: &View<'_>, hash: Hash) -> Option<f64> {
    Some(ns(rows, hash.name())? / hash.paper_ns()?)
}

fn ns(rows: &View<'_>, name: &str) -> Option<f64> {
    rows.of("source", "here").of("name", name).number("ns")
}

fn measure(lab: &mut Lab<'_>) -> Result<Rows, String> {
    let mut rows = Rows::default();
    let mut taken = Vec::new();
    for hash in Hash::ALL {
        lab.at(format_args!("hashing with {}", hash.name()));
        taken.push((hash.name(), hash_ns(hash, KEY_BYTES), hash.paper_ns(), false));
    }
    let not_direct = why_not_direct(lab.dir())?;
    for device in lab.devices(&Device::ALL, &mut rows)? {
        if let (Device::Disk, Some(why)) = (device, &not_direct) {
            rows.note(format!("This machine's disk is left out: {why}."));
            continue;
        }
        let paper_ns = match device {
            Device::Memory => Some(PAPER_MEMORY_NS),
            // The disk of this machine is not one of the paper's.
            _ => device.read_ns().map(|ns| ns as f64),
        };
        taken.push((device.name(), page_ns(lab, device)?, paper_ns, device.is_emulated()));
    }
    for (name, here_ns, paper_ns, is_emulated) in taken {
        rows.push(row!(source: "here", name: name, tick: tick(name), ns: here_ns, emulated: is_emulated));
        if let Some(paper_ns) = paper_ns {
            rows.push(row!(source: "the paper", name: name, tick: tick(name), ns: paper_ns));
        }
    }
    Ok(rows)
}

/// A name of at most six characters, so that all labels fit in the picture.
fn tick(name: &str) -> &str {
    match name {
        "disk, direct" => "direct",
        "disk, cached" => "cached",
        "SHA-256" => "SHA256",
        // Without latencies and remarks.
        other => other.split(' ').next().unwrap_or(other),
    }
}

/// Nanoseconds of reading a page on `device`.
pub(super) fn page_ns(lab: &Lab<'_>, device: Device) -> Result<f64, String> {
    lab.at(format_args!("reading pages, {}", device.name()));
    let (files, dir): (Arc<dyn Vfs>, PathBuf) = if device.is_in_memory() {
        (Arc::new(MemFs::new()), PathBuf::from("/pages"))
    } else {
        (Env::real().vfs, lab.scratch("pages")?)
    };
    let path = dir.join("pages");
    let said = |error: std::io::Error| format!("{}: {error}", path.display());
    files.create_dir_all(&dir).map_err(said)?;
    let mut file = files.create(&path).map_err(said)?;
    for number in 0..pages(lab.scale) {
        append_all(file.as_mut(), &[number as u8; PAGE_BYTES]).map_err(said)?;
    }
    file.sync_all().map_err(said)?;
    drop(file);
    let vfs = device.env(&files, lab.memory_read, Writes::Free)?.vfs;
    let file = if device == Device::Disk { vfs.open_read_direct(&path) } else { vfs.open_read(&path) };
    let file = file.map_err(said)?;
    let mut numbers = (0..).map(|read| mix2(read, lab.seed) % pages(lab.scale));
    let ns = median_read_ns(file.as_ref(), &mut numbers, reads(lab.scale)).map_err(said)?;
    drop(file);
    if !device.is_in_memory() {
        lab.discard(&dir)?;
    }
    Ok(ns)
}

/// Nanoseconds per read: of the median batch of `reads` reads, or of those that time allows.
fn median_read_ns(
    file: &dyn RandomFile,
    numbers: &mut impl Iterator<Item = u64>,
    reads: u64,
) -> std::io::Result<f64> {
    /// Reads between two clock reads, each of which takes as long as a page of memory.
    const BATCH: usize = 16;
    let mut buffer = AlignedBuf::new(PAGE_BYTES);
    let begin = Instant::now();
    let mut of_batches = Vec::new();
    while of_batches.len() * BATCH < reads as usize && (of_batches.is_empty() || begin.elapsed() < TIME_MAX) {
        let since = Instant::now();
        for number in numbers.by_ref().take(BATCH) {
            let read = file.read_at(number * PAGE_BYTES as u64, &mut buffer)?;
            if read != PAGE_BYTES || buffer[0] != number as u8 {
                return Err(std::io::Error::other(format!("page {number} is another")));
            }
        }
        of_batches.push(since.elapsed().as_nanos() as f64 / BATCH as f64);
    }
    Ok(median(of_batches))
}
