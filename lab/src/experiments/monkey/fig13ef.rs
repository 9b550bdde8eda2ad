//! Figures 13 E and F: operations per second of selected designs, under mixed streams of lookups or
//! short ranges with inserts.
//!
//! Stores with the same memory for write buffer and filters: the state of the art (T = 2, uniform
//! bits); Monkey's filters in the same design; also with chosen merge policy and size ratio; and
//! also with a chosen division of the memory (the navigator's). The model makes the choices. Each
//! store's tree is built anew for each mix and executes the same stream, including compactions
//! until none is pending.
//!
//! Time is that of the emulated device: each read and append takes a latency and the time of its
//! bytes, each sync a latency, one call at a time ([`IoTally`]); CPU time is not included. The
//! model's throughput is 1 / (theta * Omega).
//!
//! The paper charges every page of a compaction like the page of a lookup. The engine moves pages
//! in calls of 256 KiB, which cost this device far less per page. So choices are made twice: with
//! the device's cost of a moved page, and with the paper's. Every store's pages are counted too,
//! which gives its throughput on a device with the paper's costs.

use std::sync::Arc;
use std::time::Instant;

use shamba_model::cost::{FilterBits, Situation};
use shamba_model::navigator::{Bounds, Options, navigate};
use shamba_model::updates::Merging;
use shamba_model::{Design, MergePolicy};

use super::fig13cd::{buffer_of, expected, situation};
use super::grown::Grown;
use super::setup::{BITS_PER_KEY, Filters, SIZE_RATIO, SSD};
use crate::io_tally::{CountingFs, Io, IoTally};
use crate::prelude::*;

const SIZE_RATIOS: [f64; 9] = [2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0];
/// The usual write buffer relative to that of Figures 13 C and D; no chosen one is smaller: a
/// smaller one makes files shorter than a call, for which the cost of a moved page does not hold.
const USUAL_BUFFERS: u64 = 2;
/// Maximum bytes per read or append call of a compaction.
const CALL_BYTES: u64 = 256 << 10;
/// Maximum space amplification: that of tiering with the largest size ratio. Without a bound the
/// navigator chooses hundreds of runs on one level.
const SPACE_MAX: f64 = 10.0;
/// Inserts of a stream, as a fraction of the entries.
const INSERTED_PART: u64 = 4;
/// "At least 50 % above", and "up to some 50 %".
const HALF_MORE: f64 = 1.5;

pub(super) const E: Experiment = Experiment {
    id: "monkey-fig13e",
    paper: Paper::Monkey,
    kind: Kind::Measured,
    method: Method::Counted,
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
            |rows| mean_times(rows, Store::Navigable, "per_s"),
        ),
        Predicate::direction(
            "Monkey's filters over the state of the art, mean",
            Ratio,
            AtLeast(1.0),
            |rows| mean_times(rows, Store::Filters, "per_s"),
        ),
        Predicate::size(
            "all chosen over the state of the art, the worst mix",
            Ratio,
            AtLeast(HALF_MORE),
            |rows| times(rows, Store::Navigable, "per_s").into_iter().reduce(f64::min),
        ),
        Predicate::direction(
            "with merging chosen over Monkey's filters alone, mean",
            Ratio,
            AtLeast(1.0),
            |rows| {
                Some(mean_times(rows, Store::Adaptive, "per_s")? / mean_times(rows, Store::Filters, "per_s")?)
            },
        ),
        Predicate::direction("with memory chosen too over that, mean", Ratio, AtLeast(1.0), |rows| {
            Some(mean_times(rows, Store::Navigable, "per_s")? / mean_times(rows, Store::Adaptive, "per_s")?)
        }),
    ],
    panels: &[
        Panel::lines(
            Column::linear("reads_percent", "reads [% of operations]"),
            Column::log("per_s", "operations a second"),
            &["store"],
        )
        .with_model("model_per_s")
        .titled("latency and bytes", &[]),
        Panel::lines(
            Column::linear("reads_percent", "reads [% of operations]"),
            Column::log("paper_per_s", "operations a second"),
            &["store"],
        )
        .with_model("model_paper_per_s")
        .titled("the paper's prices: each page an I/O", &[]),
        Panel::lines(
            Column::linear("reads_percent", "reads [% of operations]"),
            Column::log("pages", "pages an operation"),
            &["store"],
        )
        .titled("pages, compactions included", &[]),
        Panel::lines(
            Column::linear("reads_percent", "reads [% of operations]"),
            Column::log("reads", "read calls an operation"),
            &["store"],
        )
        .titled("reads, compactions included", &[]),
    ],
    note: "Emulated SSD: 290 us for a call of a page, 500 MiB/s, reads and writes alike, one call at a time; without the \
           processor's time. Compactions, included until none is due, move pages in calls of up to 256 KiB. Stores with the \
           paper's prices were chosen for a device on which each page of a compaction takes 290 us.",
    reason: |rows| {
        let range = |values: Vec<f64>| {
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            (least, values.iter().copied().fold(0.0, f64::max))
        };
        let (least, most) = range(rows.numbers("merge_time_share"));
        let paper = |store: Store| mean_times(rows, store, "paper_per_s").unwrap_or(f64::NAN);
        let here = |store: Store| mean_times(rows, store, "per_s").unwrap_or(f64::NAN);
        format!(
            "Flushes and compactions take {:.0} to {:.0} % of the device's time. All chosen with the paper's prices: {:.2} times the state of \
             the art where each page costs an I/O, and {:.2} times on this device. What is not part of the time: in memory, the processor's \
             time included, an operation takes up to {:.0} us. Measured throughput falls short of the model's most for tiering, whose full \
             levels the first inserts merge whole. The usual write buffer has several times the memory of the filters, so filters that \
             get half of it hardly err.",
            100.0 * least,
            100.0 * most,
            paper(Store::NavigablePaper),
            here(Store::NavigablePaper),
            range(rows.numbers("memory_us")).1,
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
            |rows| mean_times(rows, Store::Navigable, "per_s"),
        ),
        Predicate::size(
            "all chosen over the state of the art, the best mix",
            Ratio,
            AtLeast(HALF_MORE),
            |rows| times(rows, Store::Navigable, "per_s").into_iter().reduce(f64::max),
        ),
    ],
    ..E
};

/// The compared stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Store {
    Art,
    Filters,
    Adaptive,
    Navigable,
    AdaptivePaper,
    NavigablePaper,
}

/// Cost of a page that a compaction reads and writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Prices {
    /// Its part of long calls of the device.
    Device,
    /// Two I/Os of lookups.
    Paper,
}

/// Input of the model: a situation, and the operations per unit of its work.
struct Priced {
    situation: Situation,
    /// Operations of the situation's mix per operation of the stream: fewer where updates have a
    /// lower weight.
    operations: f64,
}

impl Prices {
    /// Data of this size, with these shares of lookups, updates and ranges. The model has one cost
    /// for reading a page; where moving one costs less, updates get a lower weight instead, as in
    /// the engine's tuner.
    fn situation(self, size: (u64, u64), [lookups, updates, ranges]: [f64; 3]) -> Priced {
        let read_ns = SSD.read_ns().unwrap_or(0) as f64;
        let moved_ns = match self {
            Self::Device => SSD.moved_page_ns(CALL_BYTES).unwrap_or(2.0 * read_ns),
            Self::Paper => 2.0 * read_ns,
        };
        let write_ns = (moved_ns - read_ns).max(0.0);
        let updates = updates * moved_ns / (read_ns + write_ns);
        let mut situation = situation(size, read_ns, [lookups, updates, ranges]);
        situation.device.write_ns = write_ns;
        Priced { situation, operations: lookups + updates + ranges }
    }
}

impl Store {
    const ALL: [Self; 6] = [
        Self::Art,
        Self::Filters,
        Self::Adaptive,
        Self::Navigable,
        Self::AdaptivePaper,
        Self::NavigablePaper,
    ];
    /// Those whose ranges are measured: filters do not help ranges.
    const OF_RANGES: [Self; 3] = [Self::Art, Self::Navigable, Self::NavigablePaper];

    fn name(self) -> &'static str {
        match self {
            Self::Art => "state of the art",
            Self::Filters => "Monkey's filters",
            Self::Adaptive => "+ merging",
            Self::Navigable => "+ memory: all chosen",
            Self::AdaptivePaper => "+ merging, paper's prices",
            Self::NavigablePaper => "all chosen, paper's prices",
        }
    }

    fn filters(self) -> Filters {
        if self == Self::Art { Filters::Uniform } else { Filters::Zero }
    }

    /// The costs by which its design is chosen.
    fn prices(self) -> Prices {
        match self {
            Self::AdaptivePaper | Self::NavigablePaper => Prices::Paper,
            _ => Prices::Device,
        }
    }

    /// The design for a situation.
    fn design(self, situation: &Situation, usual: Design) -> Result<Design, String> {
        match self {
            Self::Art | Self::Filters => Ok(usual),
            Self::Adaptive | Self::AdaptivePaper => {
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
            Self::Navigable | Self::NavigablePaper => {
                let entries = situation.data.entries as f64;
                let memory_bytes = usual.buffer_bytes + (usual.bits_per_key * entries / 8.0) as u64;
                let bounds = Bounds { memory_bytes, max_lookup_ios: None, max_update_ios: None };
                let options = Options {
                    sensitivity: false,
                    merging: Merging::FileByFile,
                    smallest_buffer_bytes: usual.buffer_bytes / USUAL_BUFFERS,
                    max_space: SPACE_MAX,
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

/// Entries, and the bytes of each.
fn sizes(scale: Scale) -> (u64, u64) {
    if scale == Scale::Tiny {
        return (1 << 13, 64);
    }
    scale.pick((1 << 17, 256), (1 << 18, 1_024), (1 << 20, 1_024))
}

/// The design of the state of the art.
fn usual(scale: Scale) -> Design {
    Design::new(MergePolicy::Leveling, SIZE_RATIO, USUAL_BUFFERS * buffer_of(scale), BITS_PER_KEY)
}

fn inserts(scale: Scale) -> u64 {
    sizes(scale).0 / INSERTED_PART
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
        Parameter::fixed("inserts", inserts(scale)),
        Parameter::fixed("entries", entries),
        Parameter::fixed("entry bytes", entry_bytes),
        Parameter::fixed("usual buffer bytes", usual(scale).buffer_bytes),
        Parameter::fixed("smallest buffer bytes", buffer_of(scale)),
        Parameter::fixed("space amplification, at most", SPACE_MAX),
        Parameter::fixed("usual size ratio", SIZE_RATIO),
        Parameter::fixed("usual bits per key", BITS_PER_KEY),
    ]
}

/// The throughput of a store over the state of the art's, mix by mix.
fn times(rows: &View<'_>, store: Store, column: &str) -> Vec<f64> {
    let of = |store: Store| rows.of("store", store.name()).points("reads_percent", column);
    of(store).into_iter().zip(of(Store::Art)).map(|(idea, art)| idea.1 / art.1).collect()
}

fn mean_times(rows: &View<'_>, store: Store, column: &str) -> Option<f64> {
    let times = times(rows, store, column);
    (!times.is_empty())
        .then(|| (times.iter().map(|times| times.ln()).sum::<f64>() / times.len() as f64).exp())
}

fn measure(lab: &mut Lab<'_>, of_ranges: bool) -> Result<Rows, String> {
    let size = sizes(lab.scale);
    let page_ns = SSD.read_ns().unwrap_or(0) as f64;
    let usual = usual(lab.scale);
    let mut rows = Rows::default();
    for &reads_percent in mixes(lab.scale) {
        let reads = reads_percent / 100.0;
        let (lookups, ranges) = if of_ranges { (0.0, reads) } else { (reads, 0.0) };
        let priced = |prices: Prices| prices.situation(size, [lookups, 1.0 - reads, ranges]);
        // A design that several stores choose is measured once.
        let mut measured: Vec<(Design, Filters, ([Io; 2], f64))> = Vec::new();
        for &store in stores(of_ranges) {
            let (design, filters) =
                (store.design(&priced(store.prices()).situation, usual)?, store.filters());
            let earlier = measured.iter().find(|(other, its, _)| *other == design && *its == filters);
            let ([of_reads, of_merges], memory_us) = match earlier {
                Some((_, _, io)) => *io,
                None => {
                    let mut tree = Grown::lay(lab, design, filters, size)?;
                    lab.at(format_args!("{}, {reads_percent} % reads", store.name()));
                    let io = stream(lab, &mut tree, reads, of_ranges)?;
                    measured.push((design, filters, io));
                    io
                }
            };
            let all = of_reads.plus(of_merges);
            let model_per_s = |prices: Prices| {
                let Priced { situation, operations } = priced(prices);
                let costs = expected(&situation, &design, filters)?;
                Ok::<_, String>(1e9 / (costs.cost_ns_per_op * operations))
            };
            rows.push(row! {
                store: store.name(),
                reads_percent: reads_percent,
                design: design.to_string(),
                per_s: 1e9 / all.ns,
                model_per_s: model_per_s(Prices::Device)?,
                paper_per_s: 1e9 / (all.pages() * page_ns),
                model_paper_per_s: model_per_s(Prices::Paper)?,
                pages: all.pages(),
                reads: all.reads,
                writes: all.appends,
                pages_of_reads: of_reads.pages(),
                reads_of_reads: of_reads.reads,
                merge_pages: of_merges.pages(),
                merge_reads: of_merges.reads,
                merge_time_share: of_merges.ns / all.ns,
                device_us: all.ns / 1e3,
                memory_us: memory_us,
                emulated: true,
            });
        }
    }
    Ok(rows)
}

/// Mean device I/O per operation of a stream, for the operations themselves and for flushes and
/// compactions until none is pending; and the microseconds per operation in memory, including
/// compactions and CPU time.
fn stream(lab: &Lab<'_>, tree: &mut Grown, reads: f64, of_ranges: bool) -> Result<([Io; 2], f64), String> {
    let said = |error: shamba::Error| error.chain().to_string();
    let tally = Arc::new(IoTally::new());
    let db = tree.open_over(|files| {
        Arc::new(CountingFs { inner: SSD.charging(files, tally.clone()), tally: Arc::clone(&tally) })
    })?;
    let mut rng = fastrand::Rng::with_seed(lab.seed);
    let mut value = Vec::new();
    let (before, since) = (tally.get(), Instant::now());
    let (mut operations, mut inserted) = (0, 0);
    while inserted < inserts(lab.scale) {
        operations += 1;
        let is_read = rng.f64() < reads;
        let item = rng.u64(..tree.items());
        match (is_read, of_ranges) {
            (false, _) => {
                inserted += 1;
                tree.insert_one(&db, &mut value)?;
            }
            (true, false) => tree.look_up_one(&db, item)?,
            (true, true) => tree.walk_one(&db, item)?,
        }
    }
    db.flush().and_then(|()| db.wait_idle()).map_err(said)?;
    let memory_us = since.elapsed().as_secs_f64() * 1e6 / operations as f64;
    let io = tally.since(before).map(|io| io.per(operations));
    db.close().map_err(said)?;
    Ok((io, memory_us))
}
