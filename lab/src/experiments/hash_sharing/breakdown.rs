//! Figures 1 and 2: share of hashing in the time of a lookup, with leveling and with tiering.
//!
//! Measured: the engine's count of hashes per lookup without sharing, times the time of one,
//! divided by the time of the lookup. The model is Equation 4 or 6 with the hashing time of this
//! machine.

use shamba::DigestKind;
use shamba_filter::measured;

use super::constants::constants;
use super::equations::{LookupShape, LookupTimes};
use super::gains::{NEAR_MODEL, PAPER_FPR, PROBE_NS, filters_over_llc, over_llc};
use crate::lookups::compare;
use crate::prelude::*;
use crate::tree::{Spec, Tree};

const EMPTY_FRACTIONS: [f64; 5] = [0.0, 0.25, 0.5, 0.75, 1.0];
const DEVICES: [Device; 5] = [Device::Ssd, Device::Pcie, Device::Spdk, Device::Nvm, Device::Memory];
const SIZES: (usize, usize) = (512, 1_024);
const SIZE_RATIO: f64 = 10.0;
const LEVELS: u32 = 5;
/// Nanoseconds of a page in the paper's memory.
const PAPER_MEMORY_NS: f64 = 160.0;
/// The paper's hash takes 235 ns for a kilobyte, about half of it for half of one.
const PAPER_HASH_NS: f64 = 235.0 / 2.0;
/// Policies and the runs of a level.
const POLICIES: [(&str, u32); 2] = [("leveling", 1), ("tiering", SIZE_RATIO as u32)];

const PANEL: Panel = Panel::lines(
    Column::linear("empty_fraction", "share of lookups that find nothing"),
    Column::percent("hashing", "time spent hashing [%]"),
    &["device"],
)
.with_model("model");

/// "Almost all", in the paper's words.
const ALMOST_ALL: f64 = 0.9;

pub(super) const FIG1: Experiment = Experiment {
    id: "hash-sharing-fig1",
    paper: Paper::HashSharing,
    kind: Kind::Measured,
    method: Method::Timed,
    place: "Fig 1",
    title: "time spent hashing over the share of empty lookups, leveling",
    claim: "On a PCIe SSD of 10 us hashing takes 15 % of the time when every lookup finds its key and over 75 % when none does; on NVM almost all.",
    parameters: |scale| parameters(scale, 1),
    measure: |lab| measure(lab, 1),
    predicates: &[
        Predicate::direction(
            "share on PCIe, all lookups empty, less that with none",
            Plain("points"),
            AtLeast(0.0),
            |rows| Some(100.0 * (share(rows, Device::Pcie, 1.0)? - share(rows, Device::Pcie, 0.0)?)),
        ),
        Predicate::direction(
            "share on NVM less that on PCIe, all empty",
            Plain("points"),
            AtLeast(0.0),
            |rows| Some(100.0 * (share(rows, Device::Nvm, 1.0)? - share(rows, Device::Pcie, 1.0)?)),
        ),
        Predicate::size("share on PCIe, no lookup empty", Share, Within(0.1, 0.2), |rows| {
            share(rows, Device::Pcie, 0.0)
        }),
        Predicate::size("share on PCIe, all empty", Share, AtLeast(0.75), |rows| {
            share(rows, Device::Pcie, 1.0)
        }),
        Predicate::size("share on NVM, all empty", Share, AtLeast(ALMOST_ALL), |rows| {
            share(rows, Device::Nvm, 1.0)
        }),
        Predicate::size(
            "share on PCIe over Equation 4's, no lookup empty",
            Ratio,
            Within(NEAR_MODEL.0, NEAR_MODEL.1),
            |rows| over_model(rows, Device::Pcie, 0.0),
        ),
        Predicate::size(
            "share on PCIe over Equation 4's, all empty",
            Ratio,
            Within(NEAR_MODEL.0, NEAR_MODEL.1),
            |rows| over_model(rows, Device::Pcie, 1.0),
        ),
        Predicate::size(
            "share on NVM over Equation 4's, all empty",
            Ratio,
            Within(NEAR_MODEL.0, NEAR_MODEL.1),
            |rows| over_model(rows, Device::Nvm, 1.0),
        ),
    ],
    panels: &[PANEL],
    note: "T = 10, 5 levels, keys of 512 B, entries of 1 KB, 10 bits per key, a hash for every filter. Model: Equation 4.",
    reason: |rows| {
        let at = rows.of("device", Device::Pcie.name()).of("empty_fraction", 1.0);
        let of = |column| 100.0 * at.mean(column).unwrap_or_default();
        format!(
            "With the times of the paper's Table 1 its model has {:.0} % on PCIe with only empty lookups; with what hashing takes here {:.0} %.",
            of("model_paper"),
            of("model")
        )
    },
};

pub(super) const FIG2: Experiment = Experiment {
    id: "hash-sharing-fig2",
    place: "Fig 2",
    title: "time spent hashing over the share of empty lookups, tiering",
    claim: "With 10 runs a level hashing takes a higher part of the time than with leveling (Fig 1).",
    parameters: |scale| parameters(scale, 2),
    measure: |lab| measure(lab, 2),
    predicates: &[Predicate::direction(
        "share with tiering over that with leveling, mean over devices and shares of empty lookups",
        Ratio,
        AtLeast(1.0),
        |rows| {
            let mean = |policy: &str| rows.of("policy", policy).mean("hashing");
            Some(mean("tiering")? / mean("leveling")?)
        },
    )],
    panels: &[
        PANEL.titled("tiering", &[("policy", "tiering")]),
        PANEL.titled("leveling", &[("policy", "leveling")]),
    ],
    note: "T = 10, 5 levels of 10 runs or one, keys of 512 B, entries of 1 KB, 10 bits per key, a hash for every filter. Model: \
           Equations 4 and 6.",
    reason: Experiment::no_reason,
    ..FIG1
};

/// The same number of entries for both policies: only their distribution over runs differs. Each of
/// ten runs of the smallest level has at least one entry.
fn entries(scale: Scale) -> u64 {
    scale.pick(111_110, 444_440, 22_000_000)
}

fn parameters(scale: Scale, policies: usize) -> Vec<Parameter> {
    vec![
        Parameter::varied("empty fraction", EMPTY_FRACTIONS),
        Parameter::varied("device", DEVICES.map(Device::name)),
        Parameter::varied("policy", POLICIES[..policies].iter().map(|(name, _)| name)),
        Parameter::fixed("size ratio", SIZE_RATIO),
        Parameter::fixed("levels", LEVELS),
        Parameter::fixed("key bytes", SIZES.0),
        Parameter::fixed("entry bytes", SIZES.1),
        Parameter::fixed("entries", entries(scale)),
        Parameter::fixed("digest", "MM64 (the paper's)"),
        Parameter::fixed("bits per key", 10),
        over_llc(entries(scale), 10.0),
    ]
}

fn at<'a>(rows: &View<'a>, device: Device, empty_fraction: f64) -> View<'a> {
    rows.of("device", device.name()).of("empty_fraction", empty_fraction)
}

fn share(rows: &View<'_>, device: Device, empty_fraction: f64) -> Option<f64> {
    at(rows, device, empty_fraction).number("hashing")
}

fn over_model(rows: &View<'_>, device: Device, empty_fraction: f64) -> Option<f64> {
    let here = at(rows, device, empty_fraction);
    Some(here.number("hashing")? / here.number("model")?)
}

/// The policies' trees have the same entries; their lookups alternate.
fn measure(lab: &mut Lab<'_>, policies: usize) -> Result<Rows, String> {
    let policies = &POLICIES[..policies];
    let mut rows = Rows::default();
    let mut trees = Vec::new();
    for (name, runs) in policies {
        trees.push(lab.once(format!("breakdown {name}"), |lab| {
            let mut spec = Spec::leveled(entries(lab.scale), SIZES, SIZE_RATIO, LEVELS);
            spec.digest = DigestKind::Murmur64A;
            (spec.shape.inner_runs, spec.shape.last_runs) = (*runs, *runs);
            Tree::lay(lab, "breakdown", spec, Device::Memory)
        })?);
    }
    let first = &trees[0];
    for device in lab.devices(&DEVICES, &mut rows)? {
        let here = constants(lab, &first.spec, device)?.ok_or("no constants of the paper's digest")?;
        let open = |tree: &std::rc::Rc<Tree>| tree.open(device, &[("hash-sharing", "off")]);
        let dbs = trees.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let sides: Vec<&shamba::Db> = dbs.iter().collect();
        for empty_fraction in EMPTY_FRACTIONS {
            lab.at(format_args!("{}, {empty_fraction} of the lookups empty", device.name()));
            // More lookups where only false positives read pages.
            let quick = if empty_fraction < 1.0 { 600 } else { 6_000 };
            let questions = Questions::uniform(empty_fraction, lab.scale.count(quick, 30_000, 1_000_000));
            let paper_page_ns = device.read_ns().map_or(PAPER_MEMORY_NS, |ns| ns as f64);
            let papers = LookupTimes { hash_ns: PAPER_HASH_NS, probe_ns: PROBE_NS, page_ns: paper_page_ns };
            for ((policy, runs), side) in
                policies.iter().zip(compare(lab, first.as_ref(), &sides, &questions)?)
            {
                let model = |fpr, times: LookupTimes| -> Result<f64, String> {
                    let tiering = *runs > 1;
                    let shape =
                        LookupShape { tiering, size_ratio: SIZE_RATIO, levels: LEVELS, fpr, empty_fraction };
                    let without = shape.cost_ns(&LookupTimes { hash_ns: 0.0, ..times })?;
                    Ok(1.0 - without / shape.cost_ns(&times)?)
                };
                let fpr = measured::fpr(first.spec.bits.layout, first.spec.bits.per_key);
                let hashes = side.per_lookup(side.stats.hashes);
                let values = row! {
                    policy: *policy,
                    device: device.name(),
                    empty_fraction: empty_fraction,
                    ns: side.ns,
                    hashes: hashes,
                    hash_ns: here.hash_ns,
                    probe_ns: here.probe_ns,
                    page_ns: here.page_ns,
                    hashing: hashes * here.hash_ns / side.ns,
                    model: model(fpr, here)?,
                    model_paper: model(PAPER_FPR, papers)?,
                    false_positives: side.per_lookup(side.stats.false_positives),
                    filters_over_llc: filters_over_llc(first.spec.entries, first.spec.bits.per_key),
                };
                rows.push(values.and(side.io()).and(side.shape(LEVELS, u64::from(runs * LEVELS))));
            }
        }
    }
    Ok(rows)
}
