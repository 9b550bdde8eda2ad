//! Figure 6: the model's gain of one digest, by device and merge policy.

use super::equations::{LookupShape, LookupTimes};
use super::gains::{PAPER_FPR, PROBE_NS};
use super::hashes::{Hash, hash_ns};
use crate::chart::Style;
use crate::device::Device;
use crate::experiment::Experiment;
use crate::lab::Lab;
use crate::paper::{Kind, Method, Paper};
use crate::picture::{Column, Panel};
use crate::rows::{Rows, View, row};
use crate::scale::{Parameter, Scale};
use crate::verdict::{
    Bound::{AtLeast, AtMost},
    Predicate,
    Unit::{Plain, Saved},
};

const SIZE_RATIO: f64 = 10.0;
const LEVELS: u32 = 5;
const KEY_BYTES: usize = 1_024;
const STEPS: u32 = 10;
const PAPERS_HASH: &str = "MM64 as in Table 1";
const X: Column = Column::linear("empty_fraction", "share of lookups that find nothing");
const Y: Column = Column::percent("gain", "time saved by one digest [%]");

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "hash-sharing-fig6",
    paper: Paper::HashSharing,
    kind: Kind::Computed,
    method: Method::Counted,
    place: "Fig 6",
    title: "the model's gain over the share of empty lookups, by device and merge policy",
    claim: "The gain is negligible on a HDD, modest on an SSD and over 40 % on NVM; higher with tiering.",
    parameters,
    measure,
    predicates: &[
        Predicate::direction("steps down from HDD over SSD to NVM", Plain(""), AtMost(0.5), |rows| {
            let gains = [Device::Hdd, Device::Ssd, Device::Nvm].map(|device| leveled(rows, device));
            let gains: Option<Vec<f64>> = gains.into_iter().collect();
            Some(gains?.windows(2).filter(|pair| pair[1] <= pair[0]).count() as f64)
        }),
        Predicate::size("gain on NVM, leveling", Saved, AtLeast(0.4), |rows| leveled(rows, Device::Nvm)),
        Predicate::size("gain on a HDD, leveling", Saved, AtMost(0.01), |rows| leveled(rows, Device::Hdd)),
        Predicate::direction(
            "devices on which tiering gains less than leveling",
            Plain(""),
            AtMost(0.5),
            |rows| {
                let gains_less =
                    |device: &Device| Some(at(rows, "tiering", *device)? <= at(rows, "leveling", *device)?);
                let less: Option<Vec<bool>> = Device::EMULATED.iter().map(gains_less).collect();
                Some(less?.into_iter().filter(|is_less| *is_less).count() as f64)
            },
        ),
    ],
    panels: &[
        Panel::lines(X, Y, &["device"])
            .drawn(Style::Dashes)
            .titled("leveling, MM64 as in Table 1", &[("policy", "leveling"), ("hash", PAPERS_HASH)]),
        Panel::lines(X, Y, &["device"])
            .drawn(Style::Dashes)
            .titled("tiering, MM64 as in Table 1", &[("policy", "tiering"), ("hash", PAPERS_HASH)]),
    ],
    note: "Equation 8 with 20 ns a probe; T = 10, 5 levels, keys of 1 KB. The rows have the gains for the time that hashes take here, too.",
    reason: Experiment::no_reason,
};

fn parameters(_: Scale) -> Vec<Parameter> {
    vec![
        Parameter::varied("empty fraction", (0..=STEPS).map(|step| f64::from(step) / f64::from(STEPS))),
        Parameter::varied("device", Device::EMULATED.map(Device::name)),
        Parameter::varied("merge policy", ["leveling", "tiering"]),
        Parameter::varied("hash", [PAPERS_HASH, "MM64 here", "XXH3 here"]),
        Parameter::fixed("size ratio", SIZE_RATIO),
        Parameter::fixed("levels", LEVELS),
        Parameter::fixed("key bytes", KEY_BYTES),
        Parameter::fixed("false-positive rate", PAPER_FPR),
        Parameter::fixed("probe ns", PROBE_NS),
    ]
}

/// The gain with the paper's hash where all lookups are empty.
fn at(rows: &View<'_>, policy: &str, device: Device) -> Option<f64> {
    let of_hash = rows.of("hash", PAPERS_HASH).of("empty_fraction", 1.0);
    of_hash.of("policy", policy).of("device", device.name()).number("gain")
}

fn leveled(rows: &View<'_>, device: Device) -> Option<f64> {
    at(rows, "leveling", device)
}

fn measure(_: &mut Lab<'_>) -> Result<Rows, String> {
    let hashes = [
        (PAPERS_HASH, Hash::Murmur64.paper_ns().unwrap_or_default()),
        ("MM64 here", hash_ns(Hash::Murmur64, KEY_BYTES)),
        ("XXH3 here", hash_ns(Hash::Xxh3, KEY_BYTES)),
    ];
    let mut rows = Rows::default();
    for (is_tiering, policy) in [(false, "leveling"), (true, "tiering")] {
        for device in Device::EMULATED {
            for (hash, hash_ns) in hashes {
                for step in 0..=STEPS {
                    let empty_fraction = f64::from(step) / f64::from(STEPS);
                    let shape = LookupShape {
                        tiering: is_tiering,
                        size_ratio: SIZE_RATIO,
                        levels: LEVELS,
                        fpr: PAPER_FPR,
                        empty_fraction,
                    };
                    let page_ns = device.read_ns().unwrap_or_default() as f64;
                    let gain = shape.gain(&LookupTimes { hash_ns, probe_ns: PROBE_NS, page_ns })?;
                    rows.push(row! {
                        hash: hash,
                        hash_ns: hash_ns,
                        policy: policy,
                        device: device.name(),
                        empty_fraction: empty_fraction,
                        gain: gain,
                    });
                }
            }
        }
    }
    Ok(rows)
}
