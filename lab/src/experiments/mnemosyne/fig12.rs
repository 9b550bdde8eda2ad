//! Figure 12: the time of lookups and writes over bits per key, for shares of empty lookups and two
//! distributions.
//!
//! At each point the three sides are copies of one tree with different filters; bits by file follow
//! earlier lookups of that point. First lookups on alternating sides, then updates (10 per 31
//! lookups, including all triggered compactions), then lookups again, in the updated trees.

use std::time::Instant;

use shamba::{Allocation, Db};
use shamba_workload::Distribution;

use super::store::{Size, Store};
use super::{BY_FILE, BY_RUN, DISTRIBUTIONS, Place, UNIFORM, mean_ratio, name, saved};
use crate::lookups::{Side, compare};
use crate::prelude::*;

const SIDES: [Allocation; 3] = [Allocation::Uniform, Allocation::Monkey, Allocation::Workload];
const EMPTY_FRACTIONS: [f64; 3] = [0.0, 0.5, 1.0];
const DEVICE: Device = Device::Pcie;
/// Bits per key below which the paper considers memory to be under pressure.
const PRESSURE_BITS: f64 = 7.0;
/// Claimed maximum saving of bits by run ("up to").
const UP_TO: f64 = 0.2;
/// "A further 10 % throughput".
const FURTHER: f64 = 1.1;
/// Writes cost the same if they differ by no more than a tenth.
const SAME: (f64, f64) = (0.9, 1.1);
const BITS: Column = Column::linear("bits", "filter bits per key");
const LATENCY: Column = Column::from_zero("lookup_us", "lookup [us]");

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "mnemosyne-fig12",
    paper: Paper::Mnemosyne,
    kind: Kind::Measured,
    method: Method::Timed,
    place: "Fig 12",
    title: "time of lookups and writes over bits per key",
    claim: "Bits by run save up to 20 % of a lookup's time under memory pressure (fewer than 7 bits), bits by file a further 10 % where lookups are skewed; writes cost the same.",
    parameters: |scale| {
        let own = [
            Parameter::varied("bits per key", bits(scale)),
            Parameter::varied("empty fraction", EMPTY_FRACTIONS),
            Parameter::varied("distribution", DISTRIBUTIONS),
            Parameter::varied("filter bits", SIDES.map(name)),
            Parameter::fixed("device", DEVICE.name()),
            Parameter::fixed("lookups", 2 * lookups(scale)),
            Parameter::fixed("updates", updates(scale)),
            Parameter::fixed("lookups seen before", seen(scale)),
        ];
        own.into_iter().chain(size(scale).parameters()).collect()
    },
    measure,
    predicates: &[
        Predicate::direction("time saved by run, below 7 bits, mean", Saved, AtLeast(0.0), |rows| {
            Some(1.0 - mean_ratio(&pressed(rows), "lookup_us", UNIFORM, BY_RUN)?)
        }),
        Predicate::direction(
            "by file over by run, throughput, normal lookups",
            Ratio,
            AtLeast(1.0),
            |rows| further(rows, Distribution::Normal),
        ),
        Predicate::direction(
            "by file over by run, normal lookups over uniform ones",
            Ratio,
            AtLeast(1.0),
            |rows| Some(further(rows, Distribution::Normal)? / further(rows, Distribution::Uniform)?),
        ),
        Predicate::size("time saved by run, empty lookups, fewest bits", Saved, AtLeast(UP_TO), |rows| {
            let fewest = rows.numbers("bits").into_iter().reduce(f64::min)?;
            let empty = rows.of("empty_fraction", 1.0).of("bits", fewest);
            Some(1.0 - mean_ratio(&empty, "lookup_us", UNIFORM, BY_RUN)?)
        }),
        Predicate::size("by file over by run, throughput, normal lookups", Ratio, AtLeast(FURTHER), |rows| {
            further(rows, Distribution::Normal)
        }),
        Predicate::size("a write by run over one with uniform bits", Ratio, Within(SAME.0, SAME.1), |rows| {
            mean_ratio(rows, "write_us", UNIFORM, BY_RUN)
        }),
        Predicate::size(
            "a write by file over one with uniform bits",
            Ratio,
            Within(SAME.0, SAME.1),
            |rows| mean_ratio(rows, "write_us", UNIFORM, BY_FILE),
        ),
    ],
    panels: &[
        Panel::lines(BITS, LATENCY, &["filters", "empty_fraction"])
            .titled("normal lookups", &[("distribution", "normal")]),
        Panel::lines(BITS, LATENCY, &["filters", "empty_fraction"])
            .titled("uniform lookups", &[("distribution", "uniform")]),
        Panel::lines(BITS, Column::from_zero("pages", "pages a lookup"), &["filters", "empty_fraction"])
            .titled("pages, normal lookups", &[("distribution", "normal")]),
        Panel::lines(BITS, Column::from_zero("reads", "reads a lookup"), &["filters", "empty_fraction"])
            .titled("reads, normal lookups", &[("distribution", "normal")]),
        Panel::lines(BITS, Column::from_zero("write_us", "write [us]"), &["filters", "distribution"])
            .titled("writes", &[("empty_fraction", "0.5")]),
    ],
    note: "T = 4, emulated PCIe SSD of 10 us a page, writes included; 10 updates for 31 lookups, no block cache. A write's time has its part of flushes and merges.",
    reason: |rows| {
        let reads = |base, idea| saved(&pressed(rows), Distribution::Normal, "unnecessary", base, idea);
        let percent = |share: Option<f64>| share.map_or(f64::NAN, |share| 100.0 * share);
        format!(
            "Of unnecessary reads of normal lookups below 7 bits bits by run save {:.0} % of those with uniform bits, bits by file {:.0} % of those by run; \
             a lookup that finds its key reads its block on all sides.",
            percent(reads(UNIFORM, BY_RUN)),
            percent(reads(BY_RUN, BY_FILE))
        )
    },
};

/// Rows with memory under pressure.
fn pressed<'a>(rows: &View<'a>) -> View<'a> {
    rows.filter(|row| row.number("bits").is_some_and(|bits| bits < PRESSURE_BITS))
}

/// Throughput with bits by file over that by run.
fn further(rows: &View<'_>, distribution: Distribution) -> Option<f64> {
    let of_distribution = pressed(rows).of("distribution", distribution.name());
    Some(1.0 / mean_ratio(&of_distribution, "lookup_us", BY_RUN, BY_FILE)?)
}

fn bits(scale: Scale) -> &'static [f64] {
    const ALL: [f64; 6] = [2.0, 3.0, 4.0, 5.0, 6.0, 7.0];
    scale.pick(&[2.0, 4.0, 6.0], &ALL, &ALL)
}

/// 21 million entries over 16 MB at the paper's scale.
fn size(scale: Scale) -> Size {
    let entry_bytes = scale.pick(128, 512, 512);
    Size { entries: scale.count(1 << 16, 1 << 19, 21_000_000), entry_bytes, buffers: 640 }
}

/// Lookups before the updates, and after them.
fn lookups(scale: Scale) -> u64 {
    scale.count(1_500, 10_000, 500_000)
}

fn updates(scale: Scale) -> u64 {
    (2 * lookups(scale) * 10 / 31).max(1)
}

fn seen(scale: Scale) -> u64 {
    scale.count(160_000, 1_000_000, 4_000_000)
}

fn measure(lab: &mut Lab<'_>) -> Result<Rows, String> {
    let tree = Store::lay(lab, size(lab.scale), 1)?;
    let mut static_sides = Vec::new();
    for &bits in bits(lab.scale) {
        let rewrite_filters = |allocation| tree.copy()?.rewrite_filters(allocation, bits);
        static_sides.push((bits, [rewrite_filters(SIDES[0])?, rewrite_filters(SIDES[1])?]));
    }
    let mut rows = Rows::default();
    for distribution in DISTRIBUTIONS {
        for empty in EMPTY_FRACTIONS {
            lab.at(format_args!("{distribution} lookups, {empty} empty"));
            let questions = Questions { distribution, ..Questions::uniform(empty, seen(lab.scale)) };
            let learned = tree.copy()?.learn(lab, &questions)?;
            let questions = Questions { lookups: lookups(lab.scale), ..questions };
            for (bits, [uniform, by_run]) in &static_sides {
                let by_file = learned.copy()?.rewrite_filters(Allocation::Workload, *bits)?;
                let place = Place { bits: *bits, questions: &questions, levels: tree.size.levels(1) };
                rows.extend(at(lab, &place, [uniform.copy()?, by_run.copy()?, by_file])?);
            }
        }
    }
    Ok(rows)
}

/// The sides at a place.
fn at(lab: &Lab<'_>, place: &Place<'_>, stores: [Store; SIDES.len()]) -> Result<Vec<Row>, String> {
    let said = |error: shamba::Error| error.chain().to_string();
    let mut open: Vec<Db> = Vec::new();
    for (store, allocation) in stores.iter().zip(SIDES) {
        open.push(store.open(allocation, place.bits, DEVICE)?);
    }
    let sides: Vec<&Db> = open.iter().collect();
    let before = compare(lab, &stores[0].items, &sides, place.questions)?;
    let mut write_us = Vec::new();
    for db in &open {
        let mut rng = fastrand::Rng::with_seed(lab.seed);
        let mut value = Vec::new();
        let since = Instant::now();
        for _ in 0..updates(lab.scale) {
            let item = rng.u64(..stores[0].items.count);
            stores[0].items.value(item, &mut value);
            db.put(stores[0].items.key(item, false), &value).map_err(said)?;
        }
        db.flush().and_then(|()| db.wait_idle()).map_err(said)?;
        write_us.push(since.elapsed().as_secs_f64() * 1e6 / updates(lab.scale) as f64);
    }
    let after = compare(lab, &stores[0].items, &sides, place.questions)?;
    let row = |(at, allocation): (usize, Allocation)| {
        let Side { ns, ref stats } = after[at];
        let lookup_us = (before[at].ns + ns) / 2e3;
        let times = row!(lookup_us: lookup_us, write_us: write_us[at], emulated: true);
        times.and(place.row(name(allocation), &open[at], stats))
    };
    let rows = SIDES.into_iter().enumerate().map(row).collect();
    open.into_iter().try_for_each(Db::close).map_err(said)?;
    Ok(rows)
}
