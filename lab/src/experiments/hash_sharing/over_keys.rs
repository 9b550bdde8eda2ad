//! Figures 8a, 9, 10 and 11: time that one digest saves of empty lookups, over the length of keys,
//! skew and device. T = 10, five levels, ten bits per key; each with the paper's digest and with
//! this engine's.

use shamba_workload::Distribution;

use super::gains::{DIGESTS, NEAR_MODEL, because, beyond_llc, gain, of_paper, over_llc, over_model};
use crate::device::why_not_direct;
use crate::prelude::*;
use crate::tree::{Spec, Tree};

const SIZE_RATIO: f64 = 10.0;
const LEVELS: u32 = 5;
/// A negligible gain.
const VANISHED: f64 = 0.05;
const X: Column = Column::log("key_bytes", "key [bytes]");
const GAIN: Column = Column::percent("gain", "time saved by one digest [%]");

pub(super) const FIG8A: Experiment = Experiment {
    id: "hash-sharing-fig8a",
    paper: Paper::HashSharing,
    kind: Kind::Measured,
    method: Method::Timed,
    place: "Fig 8a",
    title: "time saved on empty lookups over the length of keys",
    claim: "Sharing one digest saves up to 23 % of an empty lookup's time on a PCIe SSD; with keys of 1 KB hashing costs less than half of what it did.",
    parameters: |scale| fig8a(scale).parameters(),
    measure: |lab| fig8a(lab.scale).measure(lab, &[Device::Pcie]),
    predicates: &[
        Predicate::direction("gain with keys of 1 KB", Saved, AtLeast(0.0), |rows| {
            at(rows, 1_024).number("gain")
        }),
        Predicate::size(
            "gain with keys of 1 KB over Equation 8's",
            Ratio,
            Within(NEAR_MODEL.0, NEAR_MODEL.1),
            |rows| over_model(&at(rows, 1_024)),
        ),
        Predicate::size("hashing with keys of 1 KB over what it was", Ratio, AtMost(0.5), |rows| {
            let at = at(rows, 1_024);
            Some(at.number("hash_ns_shared")? / at.number("hash_ns_baseline")?)
        }),
    ],
    panels: &[Panel::lines(X, GAIN, &["digest"]).with_model("gain_model")],
    note: "T = 10, 5 levels, 10 bits per key, entries of 2 KB, emulated PCIe SSD of 10 us. Model: Equation 8 with the times of a hash, a probe and a page here.",
    reason: |rows| because(&at(rows, 1_024)),
};

pub(super) const FIG9: Experiment = Experiment {
    id: "hash-sharing-fig9",
    place: "Fig 9",
    title: "time saved on empty lookups with short keys",
    claim: "With short keys the benefit vanishes.",
    parameters: |scale| fig9(scale).parameters(),
    measure: |lab| fig9(lab.scale).measure(lab, &[Device::Pcie]),
    predicates: &[
        Predicate::direction("gain with keys of 8 B, MM64", Saved, AtMost(VANISHED), |rows| {
            at(rows, 8).number("gain")
        }),
        Predicate::size("gain with the longest of the short keys, MM64", Saved, AtMost(VANISHED), |rows| {
            longest(rows).number("gain")
        }),
    ],
    note: "T = 10, 5 levels, 10 bits per key, emulated PCIe SSD of 10 us. Entries of 512 B; at the default scale of 64 B, so many that filters \
           exceed the last-level cache four times. Model: Equation 8.",
    reason: |rows| because(&longest(rows)),
    ..FIG8A
};

pub(super) const FIG10: Experiment = Experiment {
    id: "hash-sharing-fig10",
    place: "Fig 10",
    title: "time saved on skewed empty lookups over the length of keys",
    claim: "With Zipfian lookups the gain exceeds 60 % at 1 KB, as few of the keys asked for are false positives: 0.08 % against 0.8 % with uniform ones.",
    parameters: |scale| fig10(scale).parameters(),
    measure: |lab| fig10(lab.scale).measure(lab, &[Device::Pcie]),
    predicates: &[
        Predicate::direction(
            "gain with Zipfian lookups less that with uniform ones, keys of 1 KB",
            Plain("points"),
            AtLeast(0.0),
            |rows| {
                let of = |how: &str| at(rows, 1_024).of("lookups", how).number("gain");
                Some(100.0 * (of("zipf")? - of("uniform")?))
            },
        ),
        Predicate::size(
            "gain with Zipfian lookups over Equation 8's, keys of 1 KB",
            Ratio,
            Within(NEAR_MODEL.0, NEAR_MODEL.1),
            |rows| over_model(&at(rows, 1_024).of("lookups", "zipf")),
        ),
        Predicate::size(
            "false positives of Zipfian lookups over those of uniform ones",
            Plain(""),
            AtMost(0.15),
            |rows| {
                let of = |how: &str| rows.of("lookups", how).mean("false_positives");
                Some(of("zipf")? / of("uniform")?)
            },
        ),
    ],
    panels: &[Panel::lines(X, GAIN, &["digest", "lookups"]).with_model("gain_model")],
    note: "T = 10, 5 levels, entries of 2 KB, 10 bits per key, emulated PCIe SSD of 10 us. Model: Equation 8 with the rate of false positives that the stream has.",
    reason: |rows| {
        "Which of the few most asked absent keys are false positives is chance: the rate of a Zipfian stream varies between seeds. ".to_owned()
            + &because(&at(rows, 1_024))
    },
    ..FIG8A
};

const DEVICES: [Device; 6] =
    [Device::Disk, Device::PageCache, Device::Ssd, Device::Pcie, Device::Nvm, Device::Memory];

pub(super) const FIG11: Experiment = Experiment {
    id: "hash-sharing-fig11",
    place: "Fig 11",
    title: "time saved on empty lookups by device, direct and through the system's cache",
    claim: "The gain is 10 % on an SSD and over 40 % on a RAM disk or NVM; it is higher where the system's cache serves reads.",
    parameters: |scale| {
        let device = Parameter::varied("device", DEVICES.map(Device::name));
        fig11(scale).parameters().into_iter().chain([device]).collect()
    },
    measure: |lab| fig11(lab.scale).measure(lab, &DEVICES),
    predicates: &[
        Predicate::direction("gain on NVM less that on an SSD", Plain("points"), AtLeast(0.0), |rows| {
            Some(100.0 * (on(rows, Device::Nvm).number("gain")? - on(rows, Device::Ssd).number("gain")?))
        }),
        Predicate::direction(
            "gain through the system's cache less that of the disk read directly",
            Plain("points"),
            AtLeast(0.0),
            |rows| {
                Some(
                    100.0
                        * (on(rows, Device::PageCache).number("gain")?
                            - on(rows, Device::Disk).number("gain")?),
                )
            },
        ),
        Predicate::size("gain on NVM over Equation 8's", Ratio, Within(NEAR_MODEL.0, NEAR_MODEL.1), |rows| {
            over_model(&on(rows, Device::Nvm))
        }),
        Predicate::size(
            "gain on a RAM disk over Equation 8's",
            Ratio,
            Within(NEAR_MODEL.0, NEAR_MODEL.1),
            |rows| over_model(&on(rows, Device::Memory)),
        ),
    ],
    panels: &[Panel::lines(Column::names("device", "device"), GAIN, &["digest", "key_bytes"])
        .drawn(Style::Bars)
        .with_model("gain_model")],
    note: "T = 10, 5 levels, entries of 2 KB, 10 bits per key, keys of 512 B and 1 KB. Markers: Equation 8 where the device has a time.",
    reason: |rows| because(&on(rows, Device::Memory)),
    ..FIG8A
};

/// A figure's trees, one for each digest and length of keys.
#[derive(Clone, Copy, Debug)]
struct Trees {
    keys_bytes: &'static [usize],
    entry_bytes: usize,
    entries: u64,
    lookups: u64,
    distributions: &'static [(Distribution, &'static str)],
}

const UNIFORM: &[(Distribution, &str)] = &[(Distribution::Uniform, "uniform")];

fn fig8a(scale: Scale) -> Trees {
    Trees {
        keys_bytes: &[8, 32, 128, 512, 1_024],
        entry_bytes: 2_048,
        entries: scale.pick(55_555, 444_440, 11_000_000),
        lookups: scale.count(4_000, 100_000, 1_000_000),
        distributions: UNIFORM,
    }
}

fn fig9(scale: Scale) -> Trees {
    let entry_bytes = scale.pick(512, 64, 512);
    Trees {
        keys_bytes: scale.pick(&[8, 16, 64][..], &[8, 56], &[8, 16, 32, 64]),
        entry_bytes,
        entries: scale.pick(111_110, beyond_llc(10.0), 44_000_000),
        ..fig8a(scale)
    }
}

fn fig10(scale: Scale) -> Trees {
    Trees {
        keys_bytes: scale.pick(&[32, 1_024][..], &[32, 128, 512, 1_024], &[32, 128, 512, 1_024]),
        distributions: &[(Distribution::Uniform, "uniform"), (Distribution::Zipf, "zipf")],
        ..fig8a(scale)
    }
}

fn fig11(scale: Scale) -> Trees {
    Trees { keys_bytes: &[512, 1_024], ..fig8a(scale) }
}

impl Trees {
    fn parameters(self) -> Vec<Parameter> {
        vec![
            Parameter::varied("key bytes", self.keys_bytes),
            Parameter::varied("digest", DIGESTS.map(|(_, name)| name)),
            Parameter::varied("lookups", self.distributions.iter().map(|(_, name)| name)),
            Parameter::fixed("entry bytes", self.entry_bytes),
            Parameter::fixed("entries", self.entries),
            Parameter::fixed("size ratio", SIZE_RATIO),
            Parameter::fixed("levels", LEVELS),
            Parameter::fixed("bits per key", 10),
            Parameter::fixed("empty fraction", 1),
            Parameter::fixed("number of lookups", self.lookups),
            over_llc(self.entries, 10.0),
        ]
    }

    fn measure(self, lab: &mut Lab<'_>, devices: &[Device]) -> Result<Rows, String> {
        let mut rows = Rows::default();
        let mut devices = lab.devices(devices, &mut rows)?;
        if devices.contains(&Device::Disk)
            && let Some(why) = why_not_direct(lab.dir())?
        {
            rows.note(format!("This machine's disk is left out: {why}."));
            devices.retain(|device| *device != Device::Disk);
        }
        for (digest, name) in DIGESTS {
            for &key_bytes in self.keys_bytes {
                let spec = Spec {
                    digest,
                    ..Spec::leveled(self.entries, (key_bytes, self.entry_bytes), SIZE_RATIO, LEVELS)
                };
                for is_in_memory in [false, true] {
                    let here: Vec<Device> = devices
                        .iter()
                        .copied()
                        .filter(|device| device.is_in_memory() == is_in_memory)
                        .collect();
                    let Some(on) = here.first() else { continue };
                    let tree = Tree::lay(lab, "over-keys", spec, *on)?;
                    for device in here {
                        for (distribution, how) in self.distributions {
                            lab.at(format_args!("{name}, keys of {key_bytes} B, {}, {how}", device.name()));
                            let questions = Questions {
                                distribution: *distribution,
                                ..Questions::uniform(1.0, self.lookups)
                            };
                            let place = row! {
                                digest: name,
                                key_bytes: key_bytes,
                                device: device.name(),
                                lookups: *how,
                            };
                            rows.push(place.and(gain(lab, &tree, device, &questions)?));
                        }
                    }
                    tree.discard(lab)?;
                }
            }
        }
        Ok(rows)
    }
}

/// Rows of the paper's digest with keys of this length.
fn at<'a>(rows: &View<'a>, key_bytes: usize) -> View<'a> {
    of_paper(rows).of("key_bytes", key_bytes)
}

/// Rows of the paper's digest with the longest keys.
fn longest<'a>(rows: &View<'a>) -> View<'a> {
    at(rows, rows.numbers("key_bytes").into_iter().fold(0.0, f64::max) as usize)
}

/// Rows of the paper's digest and keys of 512 B on a device.
fn on<'a>(rows: &View<'a>, device: Device) -> View<'a> {
    at(rows, 512).of("device", device.name())
}
