//! Figure 12: time that one digest saves of empty lookups, over bits per key.

use shamba::DigestKind;

use super::gains::{NEAR_MODEL, SHORT, because, beyond_llc, gain, over_llc, over_model};
use crate::prelude::*;
use crate::tree::{Spec, Tree};

const BITS_PER_KEY: [u32; 4] = [8, 10, 12, 14];
const DEVICES: [Device; 4] = [Device::Ssd, Device::Pcie, Device::Nvm, Device::Memory];
const SIZE_RATIO: f64 = 10.0;
const LEVELS: u32 = 5;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "hash-sharing-fig12",
    paper: Paper::HashSharing,
    kind: Kind::Measured,
    method: Method::Timed,
    place: "Fig 12",
    title: "time saved on empty lookups over bits per key, by device",
    claim: "The gain grows with bits per key; at 10 it exceeds 10 % on PCIe and 40 % on NVM.",
    parameters,
    measure,
    predicates: &[
        Predicate::direction("growth of the gain on PCIe per bit", Plain("points"), AtLeast(0.0), |rows| {
            growth(rows, Device::Pcie)
        }),
        Predicate::direction("growth of the gain on NVM per bit", Plain("points"), AtLeast(0.0), |rows| {
            growth(rows, Device::Nvm)
        }),
        Predicate::size(
            "gain at 10 bits on PCIe over Equation 8's",
            Ratio,
            Within(NEAR_MODEL.0, NEAR_MODEL.1),
            |rows| at_10(rows, Device::Pcie),
        ),
        Predicate::size(
            "gain at 10 bits on NVM over Equation 8's",
            Ratio,
            Within(NEAR_MODEL.0, NEAR_MODEL.1),
            |rows| at_10(rows, Device::Nvm),
        ),
    ],
    panels: &[Panel::lines(
        Column::linear("bits_per_key", "filter bits per key"),
        Column::percent("gain", "time saved by one digest [%]"),
        &["device"],
    )
    .with_model("gain_model")],
    note: "T = 10, 5 levels. Keys of 512 B, entries of 1 KB; at the default scale 56 B and 64 B, so many that filters exceed the last-level \
           cache four times. Model: Equation 8 with the rate of such filters and the times of a hash, a probe and a page here.",
    reason: |rows| because(&rows.of("device", Device::Nvm.name()).of("bits_per_key", 10u32)),
};

fn entries(scale: Scale) -> u64 {
    // The filters with the fewest bits exceed the cache as well.
    scale.pick(55_555, beyond_llc(f64::from(BITS_PER_KEY[0])), 22_000_000)
}

/// Keys and entries; short ones at the default scale, so that there are enough of them.
fn sizes(scale: Scale) -> (usize, usize) {
    scale.pick((512, 1_024), SHORT, (512, 1_024))
}

fn parameters(scale: Scale) -> Vec<Parameter> {
    vec![
        Parameter::varied("bits per key", BITS_PER_KEY),
        Parameter::varied("device", DEVICES.map(Device::name)),
        Parameter::fixed("digest", "MM64 (the paper's)"),
        Parameter::fixed("key bytes", sizes(scale).0),
        Parameter::fixed("entry bytes", sizes(scale).1),
        Parameter::fixed("entries", entries(scale)),
        Parameter::fixed("size ratio", SIZE_RATIO),
        Parameter::fixed("levels", LEVELS),
        Parameter::fixed("empty fraction", 1),
        over_llc(entries(scale), f64::from(BITS_PER_KEY[0])),
    ]
}

fn growth(rows: &View<'_>, device: Device) -> Option<f64> {
    slope(&rows.of("device", device.name()).points("bits_per_key", "gain")).map(|slope| 100.0 * slope)
}

fn at_10(rows: &View<'_>, device: Device) -> Option<f64> {
    over_model(&rows.of("device", device.name()).of("bits_per_key", 10u32))
}

fn measure(lab: &mut Lab<'_>) -> Result<Rows, String> {
    let mut rows = Rows::default();
    let devices = lab.devices(&DEVICES, &mut rows)?;
    for bits in BITS_PER_KEY {
        let mut spec = Spec::leveled(entries(lab.scale), sizes(lab.scale), SIZE_RATIO, LEVELS);
        spec.digest = DigestKind::Murmur64A;
        spec.bits.per_key = f64::from(bits);
        let tree = Tree::lay(lab, "fig12", spec, Device::Memory)?;
        for device in &devices {
            lab.at(format_args!("{}, {bits} bits per key", device.name()));
            let questions = Questions::uniform(1.0, lab.scale.count(4_000, 100_000, 1_000_000));
            let at = row!(device: device.name(), bits_per_key: bits);
            rows.push(at.and(gain(lab, &tree, *device, &questions)?));
        }
    }
    Ok(rows)
}
