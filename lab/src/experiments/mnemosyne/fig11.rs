//! Figure 11: throughput and filter bits over time while the tree grows.
//!
//! Uniform bits and bits by run: one store each from one tree, which execute the same stream in
//! windows (a quarter inserts, a quarter updates, half empty lookups), including all triggered
//! compactions. The stores alternate.
//!
//! The paper's static Monkey is a list of bits per level for a tree of known size; the engine has
//! no such lists. After each window a tree is built with the current levels of the store with
//! uniform bits, and the bits of the list: counted from the first level (top-down) or from the
//! deepest one (bottom-up). Its bits and reads are measured, not its throughput.

use std::time::Instant;

use shamba::{Allocation, Db, FilterLayout};
use shamba_workload::Permutation;

use super::store::{SIZE_RATIO, Size, Store};
use super::{BY_RUN, Place, UNIFORM, mean_ratio, name};
use crate::layered::{Bits, Layers, Shape};
use crate::lookups::count;
use crate::prelude::*;

const BITS: [f64; 3] = [2.0, 4.0, 6.0];
const SIDES: [Allocation; 2] = [Allocation::Uniform, Allocation::Monkey];
const TOP_DOWN: &str = "static, top-down";
const BOTTOM_UP: &str = "static, bottom-up";
const DEVICE: Device = Device::Pcie;
/// The paper's guard: memory may exceed the request by one bit per key.
const GUARD_BITS: f64 = 1.0;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "mnemosyne-fig11",
    paper: Paper::Mnemosyne,
    kind: Kind::Measured,
    method: Method::Timed,
    place: "Fig 11",
    title: "throughput and bits per key while the tree grows",
    claim: "Bits that follow the tree keep to the memory asked for while it grows, which static lists do not; operations are at least as fast as with uniform bits, most with few bits.",
    parameters: |scale| {
        let size = size(scale);
        let own = [
            Parameter::varied("bits per key", BITS),
            Parameter::varied("filter bits", [UNIFORM, BY_RUN, TOP_DOWN, BOTTOM_UP]),
            Parameter::varied("window", 1..=windows(scale)),
            Parameter::fixed("device", DEVICE.name()),
            Parameter::fixed(
                "inserts, updates, empty lookups",
                format!("{0}, {0}, {1}", size.entries, 2 * size.entries),
            ),
            Parameter::fixed("levels at the end", size.levels(2)),
        ];
        own.into_iter().chain(size.parameters()).collect()
    },
    measure,
    predicates: &[
        Predicate::direction(
            "throughput, by run over uniform bits, at equal memory",
            Ratio,
            AtLeast(1.0),
            |rows| mean_ratio(rows, "per_s", UNIFORM, BY_RUN),
        ),
        Predicate::direction(
            "error in bits of the worse list, less that of bits by run",
            Plain("bits"),
            AtLeast(0.0),
            |rows| {
                let lists = [TOP_DOWN, BOTTOM_UP].map(|list| strays(rows, list));
                Some(lists.into_iter().flatten().reduce(f64::max)? - strays(rows, BY_RUN)?)
            },
        ),
        Predicate::size(
            "bits by run above those asked for, the worst window",
            Plain("bits"),
            AtMost(GUARD_BITS),
            |rows| {
                let above = |row: &&Row| Some(row.number("bits_written")? - row.number("bits")?);
                rows.of("filters", BY_RUN).0.iter().filter_map(above).reduce(f64::max)
            },
        ),
        Predicate::size("throughput gain with 2 bits over that with 6", Ratio, AtLeast(1.0), |rows| {
            let gain = |bits: f64| mean_ratio(&rows.of("bits", bits), "per_s", UNIFORM, BY_RUN);
            Some(gain(BITS[0])? / gain(BITS[2])?)
        }),
    ],
    panels: &[
        Panel::lines(
            Column::linear("window", "window"),
            Column::from_zero("per_s", "operations a second"),
            &["filters"],
        )
        .titled("2 bits per key", &[("bits", "2"), ("is_live", "true")]),
        Panel::lines(
            Column::linear("window", "window"),
            Column::from_zero("per_s", "operations a second"),
            &["filters"],
        )
        .titled("6 bits per key", &[("bits", "6"), ("is_live", "true")]),
        Panel::lines(
            Column::linear("window", "window"),
            Column::from_zero("bits_written", "bits per key written"),
            &["filters"],
        )
        .titled("written where 2 are asked for", &[("bits", "2")]),
        Panel::lines(
            Column::linear("window", "window"),
            Column::from_zero("pages", "pages an empty lookup"),
            &["filters"],
        )
        .titled("pages, 2 bits per key", &[("bits", "2")]),
        Panel::lines(
            Column::linear("window", "window"),
            Column::from_zero("reads", "reads an empty lookup"),
            &["filters"],
        )
        .titled("reads, 2 bits per key", &[("bits", "2")]),
    ],
    note: "T = 4, emulated PCIe SSD of 10 us a page, writes included; windows of a quarter inserts, a quarter updates, half empty lookups, merges included. Static: a \
           list of bits by level for the full tree of the final size, in trees laid down with the levels of the growing one.",
    reason: |_| {
        "A table keeps the bits that were right when it was built until it is merged, so memory strays while the tree grows; times are compared only in \
         windows in which both sides have within 10 % of the bits asked for."
            .to_owned()
    },
};

/// Mean deviation of the bits from the requested ones, over the windows.
fn strays(rows: &View<'_>, filters: &str) -> Option<f64> {
    let off = |row: &&Row| Some((row.number("bits_written")? - row.number("bits")?).abs());
    let off: Vec<f64> = rows.of("filters", filters).0.iter().filter_map(off).collect();
    (!off.is_empty()).then(|| off.iter().sum::<f64>() / off.len() as f64)
}

fn windows(scale: Scale) -> u64 {
    scale.pick(5, 10, 10)
}

/// The same number of entries is inserted later. The tree grows by a level meanwhile, which no
/// static list accounts for. The tiny scale is as large as the quick one: with less than one file
/// per level no window has the requested bits.
fn size(scale: Scale) -> Size {
    Size { entries: scale.pick(1 << 14, 1 << 19, 20_000_000), entry_bytes: 128, buffers: 200 }
}

fn measure(lab: &mut Lab<'_>) -> Result<Rows, String> {
    let tree = Store::lay(lab, size(lab.scale), 2)?;
    let mut rows = Rows::default();
    for bits in BITS {
        let stores =
            [tree.copy()?.rewrite_filters(SIDES[0], bits)?, tree.copy()?.rewrite_filters(SIDES[1], bits)?];
        let open = [stores[0].open(SIDES[0], bits, DEVICE)?, stores[1].open(SIDES[1], bits, DEVICE)?];
        let questions = Questions::uniform(1.0, lab.scale.count(2_000, 20_000, 100_000));
        let place = Place { bits, questions: &questions, levels: tree.size.levels(1) };
        let mut push = |window: u64, filters, per_s: Option<f64>, store: &Store, db: &Db| {
            let stats = count(lab, &store.items, db, &questions)?;
            let at = row!(window: window, per_s: per_s, is_live: per_s.is_some(), emulated: per_s.is_some());
            rows.push(at.and(place.row(filters, db, &stats)));
            Ok::<_, String>(())
        };
        for window in 0..windows(lab.scale) {
            lab.at(format_args!("window {}, {bits} bits", window + 1));
            let mut per_s = [0.0; SIDES.len()];
            for turn in 0..SIDES.len() {
                let side = (turn + window as usize) % SIDES.len();
                per_s[side] = stream(lab, &tree, &open[side], window)?;
            }
            for (side, allocation) in SIDES.into_iter().enumerate() {
                push(window + 1, name(allocation), Some(per_s[side]), &stores[side], &open[side])?;
            }
            for (filters, runs) in lists(lab, tree.size, bits, &open[0])? {
                let store = Store::with_runs(lab, tree.size, &runs)?;
                push(window + 1, filters, None, &store, &store.read()?)?;
            }
        }
        for db in open {
            db.close().map_err(|error| error.chain().to_string())?;
        }
        // When compactions ran decides which tables have the bits of which tree size.
        if mean_ratio(&rows.view().of("bits", bits), "per_s", UNIFORM, BY_RUN).is_none() {
            rows.note(format!("In no window do both sides have within 10 % of {bits} bits per key."));
        }
    }
    Ok(rows)
}

/// Operations per second of a window's stream.
fn stream(lab: &Lab<'_>, tree: &Store, db: &Db, window: u64) -> Result<f64, String> {
    let said = |error: shamba::Error| error.chain().to_string();
    let (items, entries) = (tree.items, tree.size.entries);
    let each = entries / windows(lab.scale);
    let order = Permutation::new(entries, lab.seed);
    let mut rng = fastrand::Rng::with_seed(lab.seed ^ (window + 1) << 8);
    let mut value = Vec::new();
    let since = Instant::now();
    for number in window * each..(window + 1) * each {
        for item in [2 * order.at(number) + 1, 2 * rng.u64(..entries)] {
            items.value(item, &mut value);
            db.put(items.key(item, false), &value).map_err(said)?;
        }
        for _ in 0..2 {
            if db.contains_key(items.key(rng.u64(..items.count), true)).map_err(said)? {
                return Err("an absent key is found".to_owned());
            }
        }
    }
    db.flush().and_then(|()| db.wait_idle()).map_err(said)?;
    Ok(4.0 * each as f64 / since.elapsed().as_secs_f64())
}

/// A side's name and its runs: (level, entries, bits per key).
type List = (&'static str, Vec<(u32, u64, f64)>);

/// The levels of `db` with the bits of both lists.
fn lists(lab: &Lab<'_>, size: Size, per_key: f64, db: &Db) -> Result<[List; 2], String> {
    let levels = size.levels(2);
    let shape = Shape { size_ratio: SIZE_RATIO, levels, inner_runs: 1, last_runs: 1 };
    let layout = FilterLayout::Blocked;
    let bits = Bits { allocation: Allocation::Monkey, per_key, layout, empty_fraction: 1.0 };
    let layers = Layers::new(2 * size.entries, lab.seed, shape, bits)?;
    let stats = db.stats();
    let deepest = stats.deepest_level;
    let with = |place: &dyn Fn(u32) -> u32| {
        let there = stats.levels.iter().filter(|level| level.entries > 0);
        let run = |level: &shamba::LevelStats| {
            let place = place(level.level).clamp(1, levels);
            (level.level.max(1), level.entries, layers.runs()[place as usize - 1].bits_per_key)
        };
        there.map(run).collect::<Vec<_>>()
    };
    Ok([
        (TOP_DOWN, with(&|level| level)),
        (BOTTOM_UP, with(&|level| (level + levels).saturating_sub(deepest))),
    ])
}
