//! Figure 12: time that one digest saves of empty lookups, over bits per key.

use shamba::DigestKind;

use super::gains::{NEAR_MODEL, because, gain, over_llc, over_model};
use crate::prelude::*;
use crate::tree::{Spec, Tree};

const BITS_PER_KEY: [u32; 4] = [8, 10, 12, 14];
const DEVICES: [Device; 4] = [Device::Ssd, Device::Pcie, Device::Nvm, Device::Memory];
const SIZES: (usize, usize) = (512, 1_024);
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
    note: "T = 10, 5 levels, keys of 512 B, entries of 1 KB. Model: Equation 8 with the rate of such filters.",
    reason: |rows| because(&rows.of("device", Device::Nvm.name()).of("bits_per_key", 10u32)),
};

fn entries(scale: Scale) -> u64 {
    scale.pick(55_555, 444_440, 22_000_000)
}

fn parameters(scale: Scale) -> Vec<Parameter> {
    vec![
        Parameter::varied("bits per key", BITS_PER_KEY),
        Parameter::varied("device", DEVICES.map(Device::name)),
        Parameter::fixed("digest", "MM64 (the paper's)"),
        Parameter::fixed("key bytes", SIZES.0),
        Parameter::fixed("entry bytes", SIZES.1),
        Parameter::fixed("entries", entries(scale)),
        Parameter::fixed("size ratio", SIZE_RATIO),
        Parameter::fixed("levels", LEVELS),
        Parameter::fixed("empty fraction", 1),
        over_llc(entries(scale), 10.0),
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
        let mut spec = Spec::leveled(entries(lab.scale), SIZES, SIZE_RATIO, LEVELS);
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
