//! Table 1: what devices and hash functions take.
//!
//! A page is read by itself, at random places of a file of many, as the engine reads it from that device. Emulated devices have the paper's
//! times, so that theirs say only whether they are kept.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::chart::{Axis, Chart, Panel, Point, Series, Style};
use shamba::env::{AlignedBuf, Env, MemFs, RandomFile, Vfs, append_all};

use super::claims::{Claim, Held, judge};
use super::hashes::{Hash, hash_ns};
use crate::device::why_not_direct;
use crate::lookups::Spread;
use crate::table::row;
use crate::{Device, Experiment, Finding, Kind, Lab, Paper, Parameter, Scale, Table};
use shamba_workload::mix2;

const KEY_BYTES: usize = 1_024;
const PAGE_BYTES: usize = 4_096;
/// The paper's time of a page in memory.
const PAPER_MEMORY_NS: f64 = 160.0;
/// Times that are the paper's: no more than this factor apart.
const SAME: f64 = 1.4;
/// The paper's "within one order of magnitude".
const COMPARABLE: f64 = 10.0;
/// What the reads of a repeat take at most, unless one takes longer.
const REPEAT_MOST: Duration = Duration::from_millis(400);

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "hash-sharing-table1",
    paper: Paper::HashSharing,
    kind: Kind::Measured,
    place: "Table 1",
    title: "what reading a page and hashing a kilobyte take",
    claim: "Reading 4 KB takes 4.6 ms on a HDD, 113 us on an SSD, 10 us on PCIe, 7 us with SPDK, 250 ns on NVM, 160 ns in memory; hashing 1 KB takes 176 ns (CITY) to 5.2 us \
            (SHA-256): within an order of magnitude of reading a page of memory.",
    parameters,
    run,
};

fn pages(scale: Scale) -> u64 {
    scale.count(16_384, 65_536, 262_144)
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
        Parameter::fixed("reads a repeat, as many as 0.4 s allow", reads(scale)),
    ]
}

/// What was measured of a hash function or device.
struct Taken {
    what: &'static str,
    name: &'static str,
    ns: Spread,
    paper_ns: Option<f64>,
    is_emulated: bool,
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let mut taken = Vec::new();
    for hash in Hash::ALL {
        lab.at(format_args!("hashing with {}", hash.name()));
        let ns = hash_ns(hash, KEY_BYTES, lab.repeats);
        taken.push(Taken {
            what: "hash",
            name: hash.name(),
            ns,
            paper_ns: hash.paper_ns(),
            is_emulated: false,
        });
    }
    let not_direct = why_not_direct(lab.dir())?;
    let devices = lab.devices(&Device::ALL)?;
    for device in devices.here {
        if device == Device::Disk && not_direct.is_some() {
            continue;
        }
        let ns = page_ns(lab, device)?;
        let paper_ns = match device {
            Device::Memory => Some(PAPER_MEMORY_NS),
            // The disk of this machine is none of the paper's.
            _ => device.read_ns().map(|ns| ns as f64),
        };
        taken.push(Taken {
            what: "page",
            name: device.name(),
            ns,
            paper_ns,
            is_emulated: device.is_emulated(),
        });
    }
    let of =
        |name: &str| taken.iter().find(|taken| taken.name == name).map_or(f64::NAN, |taken| taken.ns.median);
    let (murmur_ns, memory_ns) = (of(Hash::Murmur64.name()), of(Device::Memory.name()));
    let (verdict, why) = judge(&claims(&taken, murmur_ns, memory_ns), || {
        not_direct.as_ref().map_or_else(String::new, |why| format!("This machine's disk is left out: {why}."))
    });
    let finding = Finding {
        ours: format!(
            "MM64 takes {murmur_ns:.0} ns for 1 KB, {:.1} times what a page of memory takes ({memory_ns:.0} ns); CITY {:.0}, XX {:.0}, XXH3 {:.0} and SHA-256 {:.0} ns.",
            murmur_ns / memory_ns,
            of(Hash::City64.name()),
            of(Hash::Xx64.name()),
            of(Hash::Xxh3.name()),
            of(Hash::Sha256.name())
        ),
        verdict,
        why,
        table: table(&taken),
        chart: chart(&taken),
    };
    Ok(finding.without(&devices.missing))
}

/// Hashing is comparable to reading a page of memory; each hash, and that page, takes what it took there; emulated devices keep their times.
fn claims(taken: &[Taken], murmur_ns: f64, memory_ns: f64) -> Vec<Claim> {
    let ratio = murmur_ns / memory_ns;
    let with_paper = |what: &str, is_emulated: bool| {
        let of = taken.iter().filter(|taken| taken.what == what && taken.is_emulated == is_emulated);
        of.filter_map(|taken| Some((taken.name, taken.ns.median, taken.paper_ns?))).collect::<Vec<_>>()
    };
    vec![
        Claim::is(
            (1.0 / COMPARABLE..=COMPARABLE).contains(&ratio),
            format!("MM64 takes {ratio:.2} times what a page of memory does"),
        ),
        as_in_paper("hashing", &with_paper("hash", false)),
        as_in_paper("reading a page", &with_paper("page", false)),
        as_in_paper("reading a page of an emulated device", &with_paper("page", true)),
    ]
}

/// That times are those of the paper. Of each its name, here and there.
fn as_in_paper(what: &str, times: &[(&str, f64, f64)]) -> Claim {
    let is_same = |(_, ours, theirs): &&(&str, f64, f64)| (1.0 / SAME..=SAME).contains(&(ours / theirs));
    let same = times.iter().filter(is_same).count();
    let others: Vec<String> = times
        .iter()
        .filter(|time| !is_same(time))
        .map(|(name, ours, theirs)| format!("{name} {ours:.0} ns (the paper {theirs:.0})"))
        .collect();
    let text = format!("{what} takes other times: {}", others.join(", "));
    match same {
        same if same == times.len() && same > 0 => Claim::new(Held::Fully, text),
        0 => Claim::new(Held::Not, text),
        _ => Claim::new(Held::InPart, text),
    }
}

fn table(taken: &[Taken]) -> Table {
    let mut table =
        Table::new(&["what", "name", "ours_ns", "ours_least_ns", "ours_most_ns", "paper_ns", "emulated"]);
    for Taken { what, name, ns, paper_ns, is_emulated } in taken {
        table.row(row![*what, *name, ns.median, ns.least, ns.most, *paper_ns, *is_emulated]);
    }
    table
}

fn chart(taken: &[Taken]) -> Chart {
    let at = |place: usize| place as f64;
    let ours = taken.iter().enumerate();
    let ours = ours
        .map(|(place, one)| Point::between(at(place), one.ns.median, one.ns.least, one.ns.most))
        .collect();
    let theirs = taken.iter().enumerate();
    let theirs = theirs.filter_map(|(place, one)| Some(Point::new(at(place), one.paper_ns?))).collect();
    Chart {
        title: "What hashing a kilobyte and reading a page take".to_owned(),
        claim: EXPERIMENT.claim.to_owned(),
        note: "Hashes wait for one another. Pages of 4 KB at random places of a file, one at a time. Devices with a latency in their name are emulated."
            .to_owned(),
        panels: vec![Panel {
            title: String::new(),
            x: Axis::categories("", taken.iter().map(|one| tick(one.name))),
            y: Axis::log("time [ns]"),
            series: vec![
                Series::new("here", Style::Bars, ours),
                Series::new("the paper", Style::Markers, theirs),
            ],
        }],
    }
}

/// A name of at most six characters: the picture has room for no more beside so many others.
fn tick(name: &str) -> &str {
    match name {
        "disk, direct" => "direct",
        "disk, cached" => "cached",
        "SHA-256" => "SHA256",
        // Without latencies and remarks.
        other => other.split(' ').next().unwrap_or(other),
    }
}

/// What reading a page takes on `device`.
fn page_ns(lab: &mut Lab<'_>, device: Device) -> Result<Spread, String> {
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
    let vfs = device.env(&files, lab.memory_read)?.vfs;
    let file = if device == Device::Disk { vfs.open_read_direct(&path) } else { vfs.open_read(&path) };
    let file = file.map_err(said)?;
    let mut numbers = (0..).map(|read| mix2(read, lab.seed) % pages(lab.scale));
    let times =
        (0..lab.repeats).map(|_| repeat_ns(file.as_ref(), &mut numbers, reads(lab.scale)).map_err(said));
    let times = times.collect::<Result<Vec<f64>, String>>()?;
    drop(file);
    if !device.is_in_memory() {
        lab.discard(&dir)?;
    }
    Ok(Spread::of(times))
}

/// Nanoseconds a read: of the median batch of `reads` reads, or of as many as there is time for.
fn repeat_ns(
    file: &dyn RandomFile,
    numbers: &mut impl Iterator<Item = u64>,
    reads: u64,
) -> std::io::Result<f64> {
    /// Reads between two looks at the clock: it takes as long as a page of memory.
    const BATCH: usize = 16;
    let mut buffer = AlignedBuf::new(PAGE_BYTES);
    let begin = Instant::now();
    let mut of_batches = Vec::new();
    while of_batches.len() * BATCH < reads as usize
        && (of_batches.is_empty() || begin.elapsed() < REPEAT_MOST)
    {
        let since = Instant::now();
        for number in numbers.by_ref().take(BATCH) {
            let read = file.read_at(number * PAGE_BYTES as u64, &mut buffer)?;
            if read != PAGE_BYTES || buffer[0] != number as u8 {
                return Err(std::io::Error::other(format!("page {number} is another")));
            }
        }
        of_batches.push(since.elapsed().as_nanos() as f64 / BATCH as f64);
    }
    Ok(Spread::of(of_batches).median)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verdict;

    fn taken(
        what: &'static str,
        name: &'static str,
        ns: f64,
        paper_ns: Option<f64>,
        is_emulated: bool,
    ) -> Taken {
        Taken { what, name, ns: Spread { median: ns, least: ns, most: ns }, paper_ns, is_emulated }
    }

    #[test]
    fn ticks_are_short_and_differ() {
        let names = Hash::ALL.map(Hash::name).into_iter().chain(Device::ALL.map(Device::name));
        let ticks: Vec<&str> = names.map(tick).collect();
        assert!(ticks.iter().all(|tick| tick.len() <= 6), "{ticks:?}");
        let different: std::collections::BTreeSet<_> = ticks.iter().collect();
        assert_eq!(different.len(), ticks.len(), "{ticks:?}");
    }

    #[test]
    fn the_verdict_follows_every_time() {
        let verdict = |hash: f64, memory: f64, emulated: f64| {
            let taken = [
                taken("hash", "a hash", hash, Some(235.0), false),
                taken("hash", "ours", 1.0, None, false),
                taken("page", "memory", memory, Some(160.0), false),
                taken("page", "emulated", emulated, Some(250.0), true),
            ];
            judge(&claims(&taken, hash, memory), String::new)
        };
        assert_eq!(verdict(240.0, 150.0, 260.0).0, Verdict::Confirmed);
        let (partly, why) = verdict(100.0, 150.0, 260.0);
        assert_eq!(partly, Verdict::Partly);
        assert!(why.contains("a hash 100 ns (the paper 235)") && !why.contains("memory 150"), "{why}");
        assert_eq!(verdict(240.0, 150.0, 400.0).0, Verdict::Partly);
        assert_eq!(verdict(10.0, 150.0, 260.0).0, Verdict::NotHere);
    }
}
