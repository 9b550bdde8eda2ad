//! The slides on RocksDB and on devices: the time of a lookup under memory pressure on emulated
//! devices, and the pages that it reads.
//!
//! The slides measure RocksDB with its filters replaced; here both sides are this engine with equal
//! other parts. All approaches get the same keys, alternating, on smaller trees than the counted
//! figures.

use shamba::Db;

use super::approaches::{Approach, ENGINE, EQ, EQ_F, EQ_P, PROP, PROP_F, PROP_P, STATE_OF_THE_ART, names};
use super::pressure::{FIXED_SHARE, NOTE, PAGES, saved};
use super::trees::{Asked, Extent, LEVELS, tree};
use crate::chart::Style;
use crate::device::Device;
use crate::experiment::Experiment;
use crate::lab::Lab;
use crate::lookups::{Questions, compare, warm};
use crate::paper::{Kind, Method, Paper};
use crate::picture::{Column, Panel};
use crate::rows::{Rows, View, row};
use crate::scale::{Parameter, Scale};
use crate::verdict::{Bound::AtLeast, Predicate, Unit::Saved};

const EQUAL: [Approach; 4] = [STATE_OF_THE_ART, EQ, EQ_P, EQ_F];
const PROPORTIONAL: [Approach; 4] = [STATE_OF_THE_ART, PROP, PROP_P, PROP_F];
const ON_DEVICES: [Approach; 3] = [STATE_OF_THE_ART, EQ_F, ENGINE];
const ON: Device = Device::Pcie;
const DEVICES: [Device; 5] = [Device::Ssd, Device::Pcie, Device::Spdk, Device::Nvm, Device::Memory];
const SHARES: [f64; 3] = [0.1, 0.4, 1.0];
const EMPTY_SHARES: [f64; 3] = [0.0, 0.5, 1.0];
const HALF: f64 = 0.5;

const TIME: Column = Column { times: 1e-3, ..Column::from_zero("ns", "time of a lookup [us]") };
const X_MEMORY: Column = super::pressure::MEMORY;
const X_EMPTY: Column = Column::linear("empty_fraction", "share of empty lookups");

pub(super) const ROCKSDB_EQUAL: Experiment = Experiment {
    id: "shamba-rocksdb-equal",
    paper: Paper::ModularFilters,
    kind: Kind::Measured,
    method: Method::Timed,
    place: "slide \"SHaMBa-eq with RocksDB\"",
    title: "time and pages of a lookup with two equal modules",
    claim: "SHaMBa-eq accelerates point lookups.",
    parameters: |scale| parameters(scale, &EQUAL),
    measure: |lab| {
        let mut rows = over(lab, &EQUAL, &SHARES, &[HALF])?;
        rows.extend(over(lab, &EQUAL, &[FIXED_SHARE], &[1.0])?.view().0.into_iter().cloned());
        Ok(rows)
    },
    predicates: &[
        Predicate::direction(
            "time saved by eq-F, 40 % of the memory, half absent",
            Saved,
            AtLeast(0.0),
            |rows| time_saved(rows, EQ_F, HALF),
        ),
        Predicate::direction(
            "time saved by eq-F, 40 % of the memory, all absent",
            Saved,
            AtLeast(0.0),
            |rows| time_saved(rows, EQ_F, 1.0),
        ),
        Predicate::direction("pages saved by eq-F, half absent", Saved, AtLeast(0.0), |rows| {
            pages_saved(rows, EQ_F)
        }),
    ],
    panels: &[
        Panel::lines(X_MEMORY, TIME, &["approach"]).titled("time, half absent", &[("empty_fraction", "0.5")]),
        Panel::lines(X_MEMORY, PAGES, &["approach"])
            .titled("pages, half absent", &[("empty_fraction", "0.5")]),
    ],
    note: NOTE,
    reason: Experiment::no_reason,
};

pub(super) const ROCKSDB_PROPORTIONAL: Experiment = Experiment {
    id: "shamba-rocksdb-proportional",
    place: "slide \"SHaMBa-prop with RocksDB\", over memory",
    title: "time and pages of a lookup with a small and a large module over memory",
    claim: "SHaMBa-prop accelerates point lookups.",
    parameters: |scale| parameters(scale, &PROPORTIONAL),
    measure: |lab| over(lab, &PROPORTIONAL, &SHARES, &[HALF]),
    predicates: &[
        Predicate::direction(
            "time saved by prop-F, 40 % of the memory, half absent",
            Saved,
            AtLeast(0.0),
            |rows| time_saved(rows, PROP_F, HALF),
        ),
        Predicate::direction("pages saved by prop-F, half absent", Saved, AtLeast(0.0), |rows| {
            pages_saved(rows, PROP_F)
        }),
    ],
    ..ROCKSDB_EQUAL
};

pub(super) const ROCKSDB_PROPORTIONAL_EMPTY: Experiment = Experiment {
    id: "shamba-rocksdb-proportional-empty",
    place: "slide \"SHaMBa-prop with RocksDB\", over the empty share",
    title: "time and pages of a lookup with a small and a large module over the share of empty lookups",
    parameters: |scale| parameters(scale, &PROPORTIONAL),
    measure: |lab| over(lab, &PROPORTIONAL, &[FIXED_SHARE], &EMPTY_SHARES),
    predicates: &[
        Predicate::direction("time saved by prop-F, half absent", Saved, AtLeast(0.0), |rows| {
            time_saved(rows, PROP_F, HALF)
        }),
        Predicate::direction("time saved by prop-F, all absent", Saved, AtLeast(0.0), |rows| {
            time_saved(rows, PROP_F, 1.0)
        }),
    ],
    panels: &[
        Panel::lines(X_EMPTY, TIME, &["approach"]).titled("time", &[]),
        Panel::lines(X_EMPTY, PAGES, &["approach"]).titled("pages", &[]),
    ],
    ..ROCKSDB_PROPORTIONAL
};

pub(super) const ON_FAST_DEVICES: Experiment = Experiment {
    id: "shamba-devices",
    place: "slide \"SHaMBa on various Devices\"",
    title: "time of a lookup under memory pressure on several devices",
    claim: "SHaMBa also benefits faster storage devices.",
    parameters: |scale| {
        let mut all = parameters(scale, &ON_DEVICES);
        all.retain(|one| one.name != "device");
        all.push(Parameter::varied("device", DEVICES.map(Device::name)));
        all
    },
    measure: |lab| {
        let mut rows = Rows::default();
        for device in lab.devices(&DEVICES, &mut rows)? {
            point(lab, &ON_DEVICES, (device, FIXED_SHARE, HALF), &mut rows)?;
        }
        Ok(rows)
    },
    predicates: &[
        Predicate::direction("time saved by eq-F on PCIe", Saved, AtLeast(0.0), |rows| {
            on(rows, EQ_F, Device::Pcie)
        }),
        Predicate::direction("time saved by eq-F on SPDK", Saved, AtLeast(0.0), |rows| {
            on(rows, EQ_F, Device::Spdk)
        }),
        Predicate::direction("time saved by eq-F on NVM", Saved, AtLeast(0.0), |rows| {
            on(rows, EQ_F, Device::Nvm)
        }),
    ],
    panels: &[
        Panel::lines(
            Column::names("device", "device"),
            Column { times: 1e-3, ..Column::log("ns", "time of a lookup [us]") },
            &["approach"],
        )
        .drawn(Style::Markers)
        .titled("time", &[]),
        Panel::lines(Column::names("device", "device"), PAGES, &["approach"])
            .drawn(Style::Markers)
            .titled("pages", &[]),
        Panel::lines(
            Column::names("device", "device"),
            Column::from_zero("reads", "reads a lookup"),
            &["approach"],
        )
        .drawn(Style::Markers)
        .titled("reads", &[]),
    ],
    ..ROCKSDB_EQUAL
};

fn parameters(scale: Scale, approaches: &[Approach]) -> Vec<Parameter> {
    let own = [
        Parameter::varied("approach", names(approaches)),
        Parameter::fixed("device", ON.name()),
        Parameter::fixed("lookups, at most", lookups(scale)),
    ];
    own.into_iter().chain(Extent::timed(scale).parameters()).collect()
}

fn lookups(scale: Scale) -> u64 {
    scale.count(2_000, 20_000, 100_000)
}

fn over(lab: &mut Lab<'_>, approaches: &[Approach], shares: &[f64], empty: &[f64]) -> Result<Rows, String> {
    let mut rows = Rows::default();
    for empty_fraction in empty {
        for share in shares {
            point(lab, approaches, (ON, *share, *empty_fraction), &mut rows)?;
        }
    }
    Ok(rows)
}

/// Measures all approaches at a point, alternating.
fn point(
    lab: &mut Lab<'_>,
    approaches: &[Approach],
    (device, share, empty_fraction): (Device, f64, f64),
    rows: &mut Rows,
) -> Result<(), String> {
    let extent = Extent::timed(lab.scale);
    let bytes = (share * tree(lab, extent, &STATE_OF_THE_ART)?.whole_bytes() as f64) as u64;
    let mut sides = Vec::new();
    let first = tree(lab, extent, &approaches[0])?;
    for approach in approaches {
        let laid = tree(lab, extent, approach)?;
        let (db, _) =
            laid.open_with(lab, (device, Asked::uniform(empty_fraction)), bytes, &approach.switches(), None)?;
        sides.push(db);
    }
    lab.at(format_args!("{}, {:.0} % of the memory, {empty_fraction} empty", device.name(), 100.0 * share));
    let sides: Vec<&Db> = sides.iter().collect();
    // On slow devices this number of warm-up lookups is enough; they take long.
    let questions = Questions::uniform(empty_fraction, lookups(lab.scale));
    warm(lab, (&first.tree, 0), &sides, &questions)?;
    for (approach, side) in approaches.iter().zip(compare(lab, &first.tree, &sides, &questions)?) {
        let place = row! {
            approach: approach.name,
            device: device.name(),
            memory_share: share,
            empty_fraction: empty_fraction,
            ns: side.ns,
        };
        rows.push(place.and(side.io()).and(side.shape(LEVELS, u64::from(LEVELS))));
    }
    Ok(())
}

fn time_saved(rows: &View<'_>, idea: Approach, empty_fraction: f64) -> Option<f64> {
    let here = rows.of("memory_share", FIXED_SHARE).of("empty_fraction", empty_fraction);
    let ns = |approach: Approach| here.of("approach", approach.name).number("ns");
    Some(1.0 - ns(idea)? / ns(STATE_OF_THE_ART)?)
}

fn pages_saved(rows: &View<'_>, idea: Approach) -> Option<f64> {
    saved(&rows.of("memory_share", FIXED_SHARE).of("empty_fraction", HALF), idea.name)
}

fn on(rows: &View<'_>, idea: Approach, device: Device) -> Option<f64> {
    time_saved(&rows.of("device", device.name()), idea, HALF)
}
