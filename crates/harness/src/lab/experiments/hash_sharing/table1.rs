//! Table 1: what devices and hash functions take.

use shamba_figures::{Axis, Chart, Panel, Point, Series, Style};

use super::hashes::{Hash, hash_ns};
use crate::lab::lookups::{Questions, compare};
use crate::lab::table::row;
use crate::lab::tree::{Spec, Tree};
use crate::lab::{Device, Experiment, Finding, Lab, Paper, Parameter, Scale, Table, Verdict};

const KEY_BYTES: usize = 1_024;
/// The paper's times of a page of 4 KB, where the machine has one of its own.
const PAPER_MEMORY_NS: f64 = 160.0;
const MEASURED: [Device; 3] = [Device::Disk, Device::PageCache, Device::Memory];

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "hash-sharing-table1",
    paper: Paper::HashSharing,
    place: "Table 1",
    title: "what reading a page and hashing a kilobyte take",
    claim: "Reading 4 KB takes 4.6 ms on a HDD, 113 us on an SSD, 10 us on PCIe, 250 ns on NVM, 160 ns in memory; hashing 1 KB takes 176 ns (CITY) to 5.2 us (SHA-256): \
            hashing costs as much as reading a page of memory.",
    parameters,
    run,
};

fn parameters(_: Scale) -> Vec<Parameter> {
    vec![
        Parameter::varied("hash", Hash::ALL.map(Hash::name)),
        Parameter::varied("device", MEASURED.map(Device::name)),
        Parameter::fixed("key bytes", KEY_BYTES),
        Parameter::fixed("page bytes", 4_096),
    ]
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let mut table =
        Table::new(&["what", "name", "ours_ns", "ours_least_ns", "ours_most_ns", "paper_ns", "emulated"]);
    let (mut ours, mut theirs, mut names) = (Vec::new(), Vec::new(), Vec::new());
    let mut murmur_ns = 0.0;
    let mut fastest_ns = f64::INFINITY;
    for hash in Hash::ALL {
        lab.at(format_args!("hashing with {}", hash.name()));
        let spread = hash_ns(hash, KEY_BYTES, lab.repeats);
        let at = names.len() as f64;
        table.row(row![
            "hash",
            hash.name(),
            spread.median,
            spread.least,
            spread.most,
            hash.paper_ns(),
            false
        ]);
        ours.push(Point::between(at, spread.median, spread.least, spread.most));
        theirs.extend(hash.paper_ns().map(|ns| Point::new(at, ns)));
        names.push(hash.name());
        fastest_ns = f64::min(fastest_ns, spread.median);
        if hash == Hash::Murmur64 {
            murmur_ns = spread.median;
        }
    }
    let mut memory_ns = 0.0;
    for device in MEASURED {
        let (spread, is_emulated) = page(lab, device)?;
        let paper = (device == Device::Memory).then_some(PAPER_MEMORY_NS);
        let at = names.len() as f64;
        table.row(row![
            "lookup that reads a page",
            device.name(),
            spread.median,
            spread.least,
            spread.most,
            paper,
            is_emulated
        ]);
        ours.push(Point::between(at, spread.median, spread.least, spread.most));
        theirs.extend(paper.map(|ns| Point::new(at, ns)));
        names.push(device.name());
        if device == Device::Memory {
            memory_ns = spread.median;
        }
    }
    let paper_ns = Hash::Murmur64.paper_ns().unwrap_or_default();
    let verdict = match murmur_ns / paper_ns {
        ratio if (0.7..=1.4).contains(&ratio) => Verdict::Confirmed,
        ratio if (0.3..=3.0).contains(&ratio) => Verdict::Partly,
        _ => Verdict::NotHere,
    };
    Ok(Finding {
        ours: format!(
            "MM64 takes {murmur_ns:.0} ns for 1 KB here (the paper {paper_ns:.0}), the fastest {fastest_ns:.0} ns; a whole lookup that reads and searches a page in memory {memory_ns:.0} ns."
        ),
        verdict,
        why: match verdict {
            Verdict::Confirmed => String::new(),
            _ => "A newer processor; and hash functions in libraries have become faster. What follows for the gains is in the figures.".to_owned(),
        },
        table,
        chart: Chart {
            title: "What hashing a kilobyte and reading a page take".to_owned(),
            claim: EXPERIMENT.claim.to_owned(),
            note: "Hashes wait for one another. Devices: a lookup that finds its key in a tree of one level, the page read from the device, not from a cache of the engine.".to_owned(),
            panels: vec![Panel {
                title: String::new(),
                x: Axis::categories("", names),
                y: Axis::log("time [ns]"),
                series: vec![Series::new("here", Style::Bars, ours), Series::new("the paper", Style::Markers, theirs)],
            }],
        },
    })
}

/// A lookup that must read a page.
fn page(lab: &mut Lab<'_>, device: Device) -> Result<(crate::lab::lookups::Spread, bool), String> {
    let entries = lab.scale.count(40_000, 400_000, 4_000_000);
    let spec = Spec::leveled(entries, (16, 1_024), 10.0, 1);
    let tree = Tree::lay(lab, "table1", spec, device)?;
    let db = tree.open(device, &[])?;
    let questions = Questions::uniform(0.0, lab.scale.count(4_000, 40_000, 400_000));
    let side = compare(lab, &tree, &[&db], &questions)?.remove(0);
    drop(db);
    tree.discard(lab)?;
    Ok((side.ns, side.stats.emulated))
}
