//! The part of a lookup's time that hashing takes: what Figures 1 and 2 have in common.
//!
//! Measured: the hashes that the engine counts of a lookup without sharing, times what one takes, over the time of the lookup. The
//! model is Equation 4 or 6, once with the paper's times (Table 1) and once with what hashing takes here.

use crate::chart::{Axis, Chart, Panel, Point, Series, Style};
use shamba::DigestKind;
use shamba_filter::measured;
use shamba_model::sharing::{LookupShape, LookupTimes};

use super::gains::{PAPER_FPR, PROBE_NS};
use super::hashes::{Hash, hash_ns};
use crate::lookups::{Questions, Spread, compare};
use crate::table::row;
use crate::tree::{Spec, Tree};
use crate::{Device, Lab, Parameter, Role, Scale, Table};

pub(super) const EMPTY_FRACTIONS: [f64; 5] = [0.0, 0.25, 0.5, 0.75, 1.0];
pub(super) const DEVICES: [Device; 5] =
    [Device::Ssd, Device::Pcie, Device::Spdk, Device::Nvm, Device::Memory];
const KEY_BYTES: usize = 512;
const ENTRY_BYTES: usize = 1_024;
const SIZE_RATIO: f64 = 10.0;
pub(super) const LEVELS: u32 = 5;
/// What the paper's memory takes for a page.
const PAPER_MEMORY_NS: f64 = 160.0;
/// The paper's devices are those of its Table 1, and its hash takes 235 ns for a kilobyte, half of it for half of one.
const PAPER_HASH_NS: f64 = 235.0 / 2.0;

/// How many runs a level has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Policy {
    /// One.
    Leveling,
    /// As many as the size ratio.
    Tiering,
}

impl Policy {
    pub fn name(self) -> &'static str {
        match self {
            Self::Leveling => "leveling",
            Self::Tiering => "tiering",
        }
    }

    fn runs(self) -> u32 {
        match self {
            Self::Leveling => 1,
            Self::Tiering => SIZE_RATIO as u32,
        }
    }
}

pub(super) fn parameters(scale: Scale, policies: &[Policy]) -> Vec<Parameter> {
    let runs: Vec<String> = policies.iter().map(|policy| policy.runs().to_string()).collect();
    let role = if policies.len() > 1 { Role::Varied } else { Role::Fixed };
    vec![
        Parameter::varied("empty fraction", EMPTY_FRACTIONS),
        Parameter::varied("device", DEVICES.map(Device::name)),
        Parameter { name: "runs a level", role, value: runs.join(", ") },
        Parameter::fixed("size ratio", SIZE_RATIO),
        Parameter::fixed("levels", LEVELS),
        Parameter::fixed("key bytes", KEY_BYTES),
        Parameter::fixed("entry bytes", ENTRY_BYTES),
        Parameter::fixed("entries", entries(scale)),
        Parameter::fixed("digest", "MM64 (the paper's)"),
        Parameter::fixed("bits per key", 10),
    ]
}

/// As many for both policies: what differs between them is only how runs divide them.
fn entries(scale: Scale) -> u64 {
    // Each of ten runs of the smallest level has an entry.
    scale.pick(111_110, 444_440, 22_000_000)
}

/// Lookups of a repeat: more where none reads a page but for false positives, as they take a hundredth of the time.
fn lookups(scale: Scale, empty_fraction: f64) -> u64 {
    scale.count(if empty_fraction < 1.0 { 3_000 } else { 30_000 }, 30_000, 1_000_000)
}

/// What was found of one policy, device and empty fraction.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub policy: Policy,
    pub device: Device,
    pub empty_fraction: f64,
    /// The part of the time of a lookup, in each repeat.
    pub measured: Spread,
    pub paper_model: f64,
    /// False positives, of all answers of filters.
    pub false_positives: f64,
}

/// All points and their table on these devices: the policies' trees are of the same entries, and asked in turns.
pub(super) fn measure(
    lab: &mut Lab<'_>,
    policies: &[Policy],
    devices: &[Device],
) -> Result<(Vec<Part>, Table), String> {
    let lay = |policy: &Policy| {
        let mut spec = Spec::leveled(entries(lab.scale), (KEY_BYTES, ENTRY_BYTES), SIZE_RATIO, LEVELS);
        spec.digest = DigestKind::Murmur64A;
        spec.shape.inner_runs = policy.runs();
        spec.shape.last_runs = policy.runs();
        Tree::lay(lab, "breakdown", spec, Device::Memory)
    };
    let trees = policies.iter().map(lay).collect::<Result<Vec<_>, _>>()?;
    let first = trees.first().ok_or("no policy is asked for")?;
    let hash_ns = hash_ns(Hash::Murmur64, KEY_BYTES, lab.repeats).median;
    let mut parts = Vec::new();
    let mut table = Table::new(&[
        "policy",
        "device",
        "empty_fraction",
        "lookup_ns",
        "lookup_least_ns",
        "lookup_most_ns",
        "lookups",
        "hashes_per_get",
        "false_positives_per_get",
        "hash_ns",
        "hashing_share",
        "hashing_least_share",
        "hashing_most_share",
        "model_share",
        "model_paper_share",
        "levels",
        "runs",
        "comparable",
        "emulated",
    ]);
    for &device in devices {
        let open = |tree: &Tree| tree.open(device, &[("hash-sharing", "off")]);
        let dbs = trees.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let sides: Vec<&shamba::Db> = dbs.iter().collect();
        for empty_fraction in EMPTY_FRACTIONS {
            lab.at(format_args!("{}, {empty_fraction} of the lookups empty", device.name()));
            let questions = Questions::uniform(empty_fraction, lookups(lab.scale, empty_fraction));
            let page_ns = device.read_ns().map_or(PAPER_MEMORY_NS, |ns| ns as f64);
            for (policy, side) in policies.iter().zip(compare(lab, first, &sides, &questions)?) {
                let share =
                    |fpr: f64, hash_ns: f64| model_share(*policy, (fpr, empty_fraction), hash_ns, page_ns);
                let spec = &first.spec;
                let model = share(measured::fpr(spec.bits.layout, spec.bits.per_key), hash_ns)?;
                let paper_model = share(PAPER_FPR, PAPER_HASH_NS)?;
                let hashes = side.per_lookup(side.stats.hashes);
                let of_repeat = |ns: &f64| hashes * hash_ns / ns;
                let measured = Spread::of(side.repeats_ns.iter().map(of_repeat).collect());
                let [levels, runs, comparable, emulated] =
                    side.shape(LEVELS, u64::from(policy.runs() * LEVELS));
                let Spread { median, least, most } = side.ns;
                table.row(row![
                    policy.name(),
                    device.name(),
                    empty_fraction,
                    median,
                    least,
                    most,
                    side.stats.lookups,
                    hashes,
                    side.per_lookup(side.stats.false_positives),
                    hash_ns,
                    measured.median,
                    measured.least,
                    measured.most,
                    model,
                    paper_model,
                    levels,
                    runs,
                    comparable,
                    emulated,
                ]);
                let stats = &side.stats;
                let false_positives = stats.false_positives as f64 / stats.filters_consulted.max(1) as f64;
                parts.push(Part {
                    policy: *policy,
                    device,
                    empty_fraction,
                    measured,
                    paper_model,
                    false_positives,
                });
            }
        }
    }
    trees.into_iter().try_for_each(|tree| tree.discard(lab))?;
    Ok((parts, table))
}

/// The part of a lookup's time that is hashing by Equation 4 or 6.
fn model_share(
    policy: Policy,
    (fpr, empty_fraction): (f64, f64),
    hash_ns: f64,
    page_ns: f64,
) -> Result<f64, String> {
    let tiering = policy == Policy::Tiering;
    let shape = LookupShape { tiering, size_ratio: SIZE_RATIO, levels: LEVELS, fpr, empty_fraction };
    let times = LookupTimes { hash_ns, probe_ns: PROBE_NS, page_ns };
    Ok(1.0 - shape.cost_ns(&LookupTimes { hash_ns: 0.0, ..times })? / shape.cost_ns(&times)?)
}

/// A curve for each device, the model's with the paper's times dashed.
pub(super) fn chart(title: &str, claim: &str, parts: &[Part]) -> Chart {
    let of = |device: Device| parts.iter().filter(move |part| part.device == device);
    let measured = DEVICES.map(|device| {
        let points = of(device).map(|part| {
            let Spread { median, least, most } = part.measured;
            Point::between(part.empty_fraction, 100.0 * median, 100.0 * least, 100.0 * most)
        });
        Series::new(device.name(), Style::Line, points.collect())
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
             in their name are emulated. Bars: least and most of the repeats."
        ),
        panels: vec![panel],
    }
}

/// One point.
///
/// # Errors
/// When it was not measured.
pub(super) fn at(parts: &[Part], device: Device, empty_fraction: f64) -> Result<&Part, String> {
    let is_it = |part: &&Part| part.device == device && part.empty_fraction == empty_fraction;
    parts
        .iter()
        .find(is_it)
        .ok_or_else(|| format!("{} with {empty_fraction} empty was not measured", device.name()))
}
