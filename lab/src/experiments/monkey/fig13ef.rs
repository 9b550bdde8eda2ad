//! Figures 13 E and F: operations a second of chosen designs, under mixed streams of lookups or short ranges with
//! inserts.
//!
//! Four stores with the same memory for write buffer and filters: the state of the art (T = 2, uniform bits),
//! Monkey's filters in the same design, merge policy and size ratio chosen beside that, and the division of the
//! memory too (the navigator's). Choices are the model's. Each store's tree is laid down anew for each mix and
//! takes the same stream, on the emulated device, merges included until they rest: operations over time. The
//! model's throughput is 1 / (theta * Omega), of its own pages.

use std::time::Instant;

use shamba_model::cost::{FilterBits, Situation};
use shamba_model::navigator::{Bounds, Options, navigate};
use shamba_model::updates::Merging;
use shamba_model::{Design, MergePolicy};

use super::fig13cd::{buffer_of, expected, situation, sizes};
use super::grown::Grown;
use super::setup::{BITS_PER_KEY, Filters, SIZE_RATIO, SSD};
use crate::prelude::*;

const SIZE_RATIOS: [f64; 9] = [2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0];
/// No write buffer is chosen that is smaller, but the usual one.
const BUFFER_BYTES_MIN: u64 = 512 << 10;
/// "At least 50 % above", and "up to some 50 %".
const HALF_MORE: f64 = 1.5;

pub(super) const E: Experiment = Experiment {
    id: "monkey-fig13e",
    paper: Paper::Monkey,
    kind: Kind::Measured,
    method: Method::Timed,
    place: "Fig 13 E",
    title: "throughput of mixed streams over the share of lookups, chosen designs",
    claim: "Each choice adds throughput; with all of them it is at least 50 % above the state of the art's at any mix of lookups and updates.",
    parameters: |scale| parameters(scale, false),
    measure: |lab| measure(lab, false),
    predicates: &[
        Predicate::direction(
            "all chosen over the state of the art, mean over mixes",
            Ratio,
            AtLeast(1.0),
            |rows| mean_times(rows, Store::Navigable),
        ),
        Predicate::direction(
            "Monkey's filters over the state of the art, mean",
            Ratio,
            AtLeast(1.0),
            |rows| mean_times(rows, Store::Filters),
        ),
        Predicate::size(
            "all chosen over the state of the art, the worst mix",
            Ratio,
            AtLeast(HALF_MORE),
            |rows| times(rows, Store::Navigable).into_iter().reduce(f64::min),
        ),
        Predicate::direction(
            "with merging chosen over Monkey's filters alone, mean",
            Ratio,
            AtLeast(1.0),
            |rows| Some(mean_times(rows, Store::Adaptive)? / mean_times(rows, Store::Filters)?),
        ),
        Predicate::direction("with memory chosen too over that, mean", Ratio, AtLeast(1.0), |rows| {
            Some(mean_times(rows, Store::Navigable)? / mean_times(rows, Store::Adaptive)?)
        }),
    ],
    panels: &[Panel::lines(
        Column::linear("reads_percent", "reads [% of operations]"),
        Column::from_zero("per_s", "operations a second"),
        &["store"],
    )
    .with_model("model_per_s")],
    note: "Emulated SSD of 290 us a page. Streams of operations, merges included until they rest. Model: 1 / (theta * Omega) with a page of a \
           merge at the price of a page of a lookup.",
    reason: |rows| {
        let ratios: Vec<f64> =
            rows.0.iter().filter_map(|row| Some(row.number("per_s")? / row.number("model_per_s")?)).collect();
        let (least, most) = (
            ratios.iter().copied().fold(f64::INFINITY, f64::min),
            ratios.iter().copied().fold(0.0, f64::max),
        );
        format!(
            "Measured throughput is {least:.1} to {most:.1} times the model's: a merge reads and writes many pages a call, which the model \
             prices one by one, and works while the stream goes on."
        )
    },
};

pub(super) const F: Experiment = Experiment {
    id: "monkey-fig13f",
    place: "Fig 13 F",
    title: "throughput of mixed streams over the share of short ranges, chosen designs",
    claim: "For short ranges with updates, which filters do not help, the chosen design is up to some 50 % above the state of the art.",
    parameters: |scale| parameters(scale, true),
    measure: |lab| measure(lab, true),
    predicates: &[
        Predicate::direction(
            "all chosen over the state of the art, mean over mixes",
            Ratio,
            AtLeast(1.0),
            |rows| mean_times(rows, Store::Navigable),
        ),
        Predicate::size(
            "all chosen over the state of the art, the best mix",
            Ratio,
            AtLeast(HALF_MORE),
            |rows| times(rows, Store::Navigable).into_iter().reduce(f64::max),
        ),
    ],
    ..E
};

/// The stores that take part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Store {
    Art,
    Filters,
    Adaptive,
    Navigable,
}

impl Store {
    const ALL: [Self; 4] = [Self::Art, Self::Filters, Self::Adaptive, Self::Navigable];
    /// Filters do not help ranges.
    const OF_RANGES: [Self; 2] = [Self::Art, Self::Navigable];

    fn name(self) -> &'static str {
        match self {
            Self::Art => "state of the art",
            Self::Filters => "Monkey's filters",
            Self::Adaptive => "+ merging",
            Self::Navigable => "+ memory: all chosen",
        }
    }

    fn filters(self) -> Filters {
        if self == Self::Art { Filters::Uniform } else { Filters::Zero }
    }

    /// The design for a situation.
    fn design(self, situation: &Situation, usual: Design) -> Result<Design, String> {
        match self {
            Self::Art | Self::Filters => Ok(usual),
            Self::Adaptive => {
                let mut best: Option<(f64, Design)> = None;
                for policy in [MergePolicy::Leveling, MergePolicy::Tiering] {
                    for ratio in SIZE_RATIOS {
                        let design = Design::new(policy, ratio, usual.buffer_bytes, usual.bits_per_key);
                        let cost = expected(situation, &design, Filters::Zero)?.cost_ns_per_op;
                        if best.is_none_or(|(least, _)| cost < least) {
                            best = Some((cost, design));
                        }
                    }
                }
                Ok(best.map_or(usual, |(_, design)| design))
            }
            Self::Navigable => {
                let entries = situation.data.entries as f64;
                let memory_bytes = usual.buffer_bytes + (usual.bits_per_key * entries / 8.0) as u64;
                let bounds = Bounds { memory_bytes, max_lookup_ios: None, max_update_ios: None };
                // The cost of each flush whatever it writes is not in the model.
                let least = (usual.buffer_bytes / 4).max(BUFFER_BYTES_MIN).min(usual.buffer_bytes);
                let options = Options {
                    sensitivity: false,
                    merging: Merging::FileByFile,
                    smallest_buffer_bytes: least,
                    ..Options::PAPER
                };
                let plan = navigate(situation, &bounds, &options)?.plan;
                let bits_per_key = match plan.filters {
                    FilterBits::PerKey(bits) => bits,
                    FilterBits::Bytes(bytes) => bytes * 8.0 / entries,
                };
                Ok(Design { bits_per_key, ..plan.design })
            }
        }
    }
}

fn mixes(scale: Scale) -> &'static [f64] {
    scale.pick(&[10.0, 50.0, 90.0][..], &[10.0, 30.0, 50.0, 70.0, 90.0], &[10.0, 30.0, 50.0, 70.0, 90.0])
}

fn operations(scale: Scale) -> u64 {
    scale.count(1_600, 100_000, 1_000_000)
}

fn stores(of_ranges: bool) -> &'static [Store] {
    if of_ranges { &Store::OF_RANGES } else { &Store::ALL }
}

fn parameters(scale: Scale, of_ranges: bool) -> Vec<Parameter> {
    let reads = if of_ranges { "short ranges [% of operations]" } else { "empty lookups [% of operations]" };
    let (entries, entry_bytes) = sizes(scale);
    vec![
        Parameter::varied(reads, mixes(scale)),
        Parameter::varied("store", stores(of_ranges).iter().map(|store| store.name())),
        Parameter::fixed("device", SSD.name()),
        Parameter::fixed("operations", operations(scale)),
        Parameter::fixed("entries", entries),
        Parameter::fixed("entry bytes", entry_bytes),
        Parameter::fixed("usual buffer bytes", buffer_of(scale)),
        Parameter::fixed("usual size ratio", SIZE_RATIO),
        Parameter::fixed("usual bits per key", BITS_PER_KEY),
    ]
}

/// The throughput of a store over the state of the art's, mix by mix.
fn times(rows: &View<'_>, store: Store) -> Vec<f64> {
    let of = |store: Store| rows.of("store", store.name()).points("reads_percent", "per_s");
    of(store).into_iter().zip(of(Store::Art)).map(|(idea, art)| idea.1 / art.1).collect()
}

fn mean_times(rows: &View<'_>, store: Store) -> Option<f64> {
    let times = times(rows, store);
    (!times.is_empty())
        .then(|| (times.iter().map(|times| times.ln()).sum::<f64>() / times.len() as f64).exp())
}

fn measure(lab: &mut Lab<'_>, of_ranges: bool) -> Result<Rows, String> {
    let size = sizes(lab.scale);
    let read_ns = SSD.read_ns().unwrap_or(0) as f64;
    let usual = Design::new(MergePolicy::Leveling, SIZE_RATIO, buffer_of(lab.scale), BITS_PER_KEY);
    let mut rows = Rows::default();
    for &reads_percent in mixes(lab.scale) {
        let reads = reads_percent / 100.0;
        let (lookups, ranges) = if of_ranges { (0.0, reads) } else { (reads, 0.0) };
        let situation = situation(size, read_ns, [lookups, 1.0 - reads, ranges]);
        for &store in stores(of_ranges) {
            let design = store.design(&situation, usual)?;
            let mut tree = Grown::lay(lab, design, store.filters(), size)?;
            lab.at(format_args!("{}, {reads_percent} % reads", store.name()));
            let per_s = stream(lab, &mut tree, reads, of_ranges)?;
            let costs = expected(&situation, &design, store.filters())?;
            rows.push(row! {
                store: store.name(),
                reads_percent: reads_percent,
                design: design.to_string(),
                per_s: per_s,
                model_per_s: 1e9 / costs.cost_ns_per_op,
                emulated: true,
            });
        }
    }
    Ok(rows)
}

/// Operations a second of a stream, merges included until they rest.
fn stream(lab: &Lab<'_>, tree: &mut Grown, reads: f64, of_ranges: bool) -> Result<f64, String> {
    let said = |error: shamba::Error| error.chain().to_string();
    let db = tree.open(Some(SSD))?;
    let mut rng = fastrand::Rng::with_seed(lab.seed);
    let mut value = Vec::new();
    let operations = operations(lab.scale);
    let since = Instant::now();
    for _ in 0..operations {
        let is_read = rng.f64() < reads;
        let item = rng.u64(..tree.items());
        match (is_read, of_ranges) {
            (false, _) => tree.insert_one(&db, &mut value)?,
            (true, false) => tree.look_up_one(&db, item)?,
            (true, true) => tree.walk_one(&db, item)?,
        }
    }
    db.flush().and_then(|()| db.wait_idle()).map_err(said)?;
    let seconds = since.elapsed().as_secs_f64();
    db.close().map_err(said)?;
    Ok(operations as f64 / seconds)
}
