//! The part of a lookup's time that hashing takes: what Figures 1 and 2 have in common.
//!
//! Measured: the hashes that the engine counts of a lookup without sharing, times what one takes, over the time of the lookup. The
//! model is Equation 4 or 6, once with the paper's times (Table 1) and once with what hashing takes here.

use shamba::DigestKind;
use shamba_figures::{Axis, Chart, Panel, Point, Series, Style};
use shamba_model::sharing::{LookupShape, LookupTimes};

use super::gains::{FPR, PROBE_NS};
use super::hashes::{Hash, hash_ns};
use crate::lab::lookups::{Questions, Spread, compare};
use crate::lab::table::row;
use crate::lab::tree::{Spec, Tree};
use crate::lab::{Device, Lab, Parameter, Role, Scale, Table};

pub(super) const EMPTY_FRACTIONS: [f64; 5] = [0.0, 0.25, 0.5, 0.75, 1.0];
pub(super) const DEVICES: [Device; 5] =
    [Device::Ssd, Device::Pcie, Device::Spdk, Device::Nvm, Device::Memory];
const KEY_BYTES: usize = 512;
const ENTRY_BYTES: usize = 1_024;
pub(super) const SIZE_RATIO: f64 = 10.0;
pub(super) const LEVELS: u32 = 5;
/// What the paper's memory takes for a page.
const PAPER_MEMORY_NS: f64 = 160.0;
/// The paper's devices are those of its Table 1, and its hash takes 235 ns for a kilobyte, half of it for half of one.
const PAPER_HASH_NS: f64 = 235.0 / 2.0;

pub(super) fn parameters(scale: Scale, tiering: bool) -> Vec<Parameter> {
    vec![
        Parameter::varied("empty fraction", EMPTY_FRACTIONS),
        Parameter::varied("device", DEVICES.map(Device::name)),
        Parameter { name: "runs a level", role: Role::Fixed, value: runs(tiering).to_string() },
        Parameter::fixed("size ratio", SIZE_RATIO),
        Parameter::fixed("levels", LEVELS),
        Parameter::fixed("key bytes", KEY_BYTES),
        Parameter::fixed("entry bytes", ENTRY_BYTES),
        Parameter::fixed("entries", entries(scale, tiering)),
        Parameter::fixed("digest", "MM64 (the paper's)"),
        Parameter::fixed("bits per key", 10),
    ]
}

fn runs(tiering: bool) -> u32 {
    if tiering { SIZE_RATIO as u32 } else { 1 }
}

fn entries(scale: Scale, tiering: bool) -> u64 {
    // A run of the smallest level has an entry also with ten of them.
    let least = if tiering { 111_110 } else { 55_555 };
    scale.pick(least, 444_440, 22_000_000)
}

/// What was found of one device and empty fraction.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub device: Device,
    pub empty_fraction: f64,
    pub measured: f64,
    pub paper_model: f64,
}

/// All points, their table and their chart's panel.
pub(super) fn measure(lab: &mut Lab<'_>, tiering: bool) -> Result<(Vec<Part>, Table), String> {
    let mut spec = Spec::leveled(entries(lab.scale, tiering), (KEY_BYTES, ENTRY_BYTES), SIZE_RATIO, LEVELS);
    spec.digest = DigestKind::Murmur64A;
    spec.shape.inner_runs = runs(tiering);
    spec.shape.last_runs = runs(tiering);
    let wanted_runs = u64::from(runs(tiering) * LEVELS);
    let tree = Tree::lay(lab, "breakdown", spec, Device::Memory)?;
    let hash = hash_ns(Hash::Murmur64, KEY_BYTES, lab.repeats);
    let mut parts = Vec::new();
    let mut table = Table::new(&[
        "device",
        "empty_fraction",
        "lookup_ns",
        "lookup_least_ns",
        "lookup_most_ns",
        "hashes_per_get",
        "hash_ns",
        "hashing_share",
        "model_share",
        "model_paper_share",
        "levels",
        "runs",
        "comparable",
        "emulated",
    ]);
    for device in DEVICES {
        let db = tree.open(device, &[("hash-sharing", "off")])?;
        for empty_fraction in EMPTY_FRACTIONS {
            lab.at(format_args!("{}, {empty_fraction} of the lookups empty", device.name()));
            let questions = Questions::uniform(empty_fraction, lab.scale.count(3_000, 30_000, 1_000_000));
            let side = compare(lab, &tree, &[&db], &questions)?.remove(0);
            let hashes = side.per_lookup(side.stats.hashes);
            let measured = hashes * hash.median / side.ns.median;
            let share = |hash_ns: f64, page_ns: f64| {
                let shape =
                    LookupShape { tiering, size_ratio: SIZE_RATIO, levels: LEVELS, fpr: FPR, empty_fraction };
                let times = LookupTimes { hash_ns, probe_ns: PROBE_NS, page_ns };
                let cost = shape.cost_ns(&times)?;
                Ok::<f64, String>(1.0 - shape.cost_ns(&LookupTimes { hash_ns: 0.0, ..times })? / cost)
            };
            let page_ns = device.read_ns().map_or(PAPER_MEMORY_NS, |ns| ns as f64);
            let paper_model = share(PAPER_HASH_NS, page_ns)?;
            let model = share(hash.median, page_ns)?;
            let [levels, runs, comparable, emulated] = side.shape(LEVELS, wanted_runs);
            let Spread { median, least, most } = side.ns;
            table.row(row![
                device.name(),
                empty_fraction,
                median,
                least,
                most,
                hashes,
                hash.median,
                measured,
                model,
                paper_model,
                levels,
                runs,
                comparable,
                emulated,
            ]);
            parts.push(Part { device, empty_fraction, measured, paper_model });
        }
    }
    tree.discard(lab)?;
    Ok((parts, table))
}

/// A curve for each device, the model's with the paper's times dashed.
pub(super) fn chart(title: &str, claim: &str, parts: &[Part]) -> Chart {
    let of = |device: Device| parts.iter().filter(move |part| part.device == device);
    let measured = DEVICES.map(|device| {
        let points = of(device).map(|part| Point::new(part.empty_fraction, 100.0 * part.measured)).collect();
        Series::new(device.name(), Style::Line, points)
    });
    let models = [Device::Pcie, Device::Nvm].map(|device| {
        let points = of(device).map(|part| (part.empty_fraction, 100.0 * part.paper_model));
        Series::model(format!("{}, model with the paper's times", device.name()), points)
    });
    let panel = Panel {
        title: String::new(),
        x: Axis::linear("share of lookups that find nothing"),
        y: Axis::from_zero("time spent hashing [%]").reaching(0.0, 100.0),
        series: measured.into_iter().chain(models).collect(),
    };
    Chart {
        title: title.to_owned(),
        claim: claim.to_owned(),
        note: format!(
            "T = 10, 5 levels, keys of {KEY_BYTES} B, entries of {ENTRY_BYTES} B, 10 bits per key, a hash for every filter; devices with a latency \
             in their name are emulated."
        ),
        panels: vec![panel],
    }
}

/// The share at one point.
pub(super) fn at(parts: &[Part], device: Device, empty_fraction: f64) -> f64 {
    parts
        .iter()
        .find(|part| part.device == device && part.empty_fraction == empty_fraction)
        .map_or(0.0, |part| part.measured)
}
