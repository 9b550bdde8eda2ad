//! Figures 7 to 9: I/Os of nominal and robust designs on the engine, in the expected mix and in
//! drifted ones.
//!
//! The tree of each design is built anew and executes the same stream of operations: found and
//! empty lookups, updates with new keys, and short ranges; all compactions that they trigger are
//! included. Counted are the pages of 4 KiB read and written through the file system.

use std::sync::Arc;

use shamba::Design;
use shamba_model::cost::{CpuTimes, DataSet, Device as ModelDevice, FilterBits, Situation, Workload};
use shamba_model::miss_ratio::MissRatioCurve;
use shamba_model::navigator::{Bounds, Options, navigate};
use shamba_model::updates::Merging;

use super::setup::{BITS_PER_ENTRY, Four};
use crate::experiments::monkey::grown::{Grown, range_entries, range_selectivity};
use crate::experiments::monkey::setup::Filters;
use crate::io_tally::{CountingFs, Io, IoTally, PAGE_BYTES};
use crate::prelude::*;

/// The paper's w11: lookups and ranges, 1 % updates.
const EXPECTED: Four = [0.33, 0.33, 0.01, 0.33];
const RHO: f64 = 1.0;
/// "Up to 90 % fewer": in the mix with the largest saving.
const UP_TO: f64 = 0.9;
/// A loss below a tenth of the throughput is negligible, as for the model's designs.
const NEGLIGIBLE: f64 = 1.0 / 0.9;
const BUFFER_BYTES_MIN: u64 = 16 << 10;
const NOMINAL: &str = "nominal";
const ROBUST: &str = "robust";
/// Mixes that are executed.
const EXECUTED: [(&str, Four); 4] = [
    ("expected", EXPECTED),
    ("more lookups", [0.45, 0.45, 0.05, 0.05]),
    ("half updates", [0.2, 0.2, 0.5, 0.1]),
    ("mostly updates", [0.05, 0.05, 0.85, 0.05]),
];

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "endure-measured",
    paper: Paper::Endure,
    kind: Kind::Measured,
    method: Method::Counted,
    place: "Figs 7 to 9",
    title: "I/Os of nominal and robust designs in mixes that drift from the expected one",
    claim: "Where the observed workload has more writes than the expected one, the robust tuning takes up to 90 % fewer I/Os; where it is the \
            expected one, the loss is negligible.",
    parameters,
    measure,
    predicates: &[
        Predicate::direction(
            "I/Os saved by the robust design, mostly updates",
            Saved,
            AtLeast(0.0),
            |rows| saved(rows, "mostly updates"),
        ),
        Predicate::direction("I/Os saved by the robust design, half updates", Saved, AtLeast(0.0), |rows| {
            saved(rows, "half updates")
        }),
        Predicate::size("I/Os saved by the robust design, the best mix", Saved, AtLeast(UP_TO), |rows| {
            EXECUTED.iter().filter_map(|(name, _)| saved(rows, name)).reduce(f64::max)
        }),
        Predicate::size(
            "I/Os of the robust design in the expected mix, for each of the nominal one's",
            Ratio,
            AtMost(NEGLIGIBLE),
            |rows| Some(1.0 - saved(rows, "expected")?),
        ),
    ],
    panels: &[
        Panel::lines(
            Column::names("executed", "executed mix"),
            Column::from_zero("ios", "I/Os (pages of 4 KiB) an operation"),
            &["tuning"],
        )
        .with_model("model_ios")
        .titled("pages", &[]),
        Panel::lines(
            Column::names("executed", "executed mix"),
            Column::from_zero("reads", "read calls an operation"),
            &["tuning"],
        )
        .titled("reads", &[]),
    ],
    note: "Designs by the navigator for the paper's w11 with rho 0 and 1, in the same memory. Pages that lookups, ranges, \
           flushes and merges read and write, for each operation; a read call of a merge takes up to 64 of them.",
    reason: |rows| {
        let designs: Vec<String> = [NOMINAL, ROBUST]
            .into_iter()
            .map(|tuning| format!("{tuning}: {}", rows.of("tuning", tuning).values("design").join(" or ")))
            .collect();
        format!("Designs: {}.", designs.join("; "))
    },
};

/// Entries and their bytes.
fn sizes(scale: Scale) -> (u64, u64) {
    if scale == Scale::Tiny {
        return (1 << 13, 64);
    }
    scale.pick((1 << 15, 512), (1 << 18, 1_024), (1 << 20, 1_024))
}

/// Few operations, so that the inserts among them change the tree's size little.
fn operations(scale: Scale) -> u64 {
    sizes(scale).0 / 4
}

fn parameters(scale: Scale) -> Vec<Parameter> {
    let (entries, entry_bytes) = sizes(scale);
    vec![
        Parameter::varied("executed mix", EXECUTED.map(|(name, _)| name)),
        Parameter::varied("tuning", [NOMINAL, ROBUST]),
        Parameter::fixed("rho", RHO),
        Parameter::fixed("operations", operations(scale)),
        Parameter::fixed("entries", entries),
        Parameter::fixed("entry bytes", entry_bytes),
        Parameter::fixed("entries of a range", range_entries(entries)),
        Parameter::fixed("buffer and filters [bits per entry]", BITS_PER_ENTRY),
        Parameter::fixed("smallest buffer bytes", BUFFER_BYTES_MIN),
    ]
}

fn saved(rows: &View<'_>, executed: &str) -> Option<f64> {
    let ios = |tuning: &str| rows.of("executed", executed).of("tuning", tuning).number("ios");
    Some(1.0 - ios(ROBUST)? / ios(NOMINAL)?)
}

fn situation((entries, entry_bytes): (u64, u64)) -> Situation {
    Situation {
        data: DataSet { entries, entry_bytes: entry_bytes as f64, page_bytes: PAGE_BYTES },
        workload: Workload::of_rates(EXPECTED, range_selectivity(entries)),
        device: ModelDevice { read_ns: 1.0, write_ns: 1.0, cpu: CpuTimes::NONE },
        locality: MissRatioCurve::EVEN,
    }
}

fn measure(lab: &mut Lab<'_>) -> Result<Rows, String> {
    let size = sizes(lab.scale);
    let situation = situation(size);
    let memory_bytes = BUFFER_BYTES_MIN + (BITS_PER_ENTRY * size.0 as f64 / 8.0) as u64;
    let bounds = Bounds { memory_bytes, max_lookup_ios: None, max_update_ios: None };
    let mut rows = Rows::default();
    for (tuning, uncertainty) in [(NOMINAL, 0.0), (ROBUST, RHO)] {
        let options = Options {
            sensitivity: false,
            merging: Merging::FileByFile,
            smallest_buffer_bytes: BUFFER_BYTES_MIN,
            uncertainty,
            ..Options::PAPER
        };
        let found = navigate(&situation, &bounds, &options)?;
        let bits_per_key = match found.plan.filters {
            FilterBits::PerKey(bits) => bits,
            FilterBits::Bytes(bytes) => bytes * 8.0 / size.0 as f64,
        };
        let design = Design { bits_per_key, ..found.plan.design };
        for (executed, mix) in EXECUTED {
            let mut tree = Grown::lay(lab, design, Filters::Zero, size)?;
            lab.at(format_args!("{tuning}, {executed}"));
            let [of_operations, of_merges] = stream(lab, &mut tree, &mix)?;
            let all = of_operations.plus(of_merges);
            rows.push(row! {
                tuning: tuning,
                executed: executed,
                design: design.to_string(),
                ios: all.pages(),
                reads: all.reads,
                read_pages: all.read_pages,
                writes: all.appends,
                written_pages: all.written_pages,
                reads_of_operations: of_operations.reads,
                merge_pages: of_merges.pages(),
                model_ios: super::setup::cost(&mix, &found.costs.operations_ns()),
            });
        }
    }
    Ok(rows)
}

/// I/O per operation of a stream, and of the flushes and compactions until none is pending.
fn stream(lab: &Lab<'_>, tree: &mut Grown, mix: &Four) -> Result<[Io; 2], String> {
    let said = |error: shamba::Error| error.chain().to_string();
    let tally = Arc::new(IoTally::new());
    let db = tree.open_over(|inner| Arc::new(CountingFs { inner, tally: Arc::clone(&tally) }))?;
    let mut rng = fastrand::Rng::with_seed(lab.seed);
    let mut value = Vec::new();
    let operations = operations(lab.scale);
    let before = tally.get();
    for _ in 0..operations {
        let (drawn, item) = (rng.f64(), rng.u64(..tree.items()));
        let up_to = |kinds: usize| mix[..kinds].iter().sum::<f64>();
        if drawn < up_to(1) {
            tree.look_up_one(&db, item)?;
        } else if drawn < up_to(2) {
            tree.find_one(&db, item)?;
        } else if drawn < up_to(3) {
            tree.insert_one(&db, &mut value)?;
        } else {
            tree.walk_one(&db, item)?;
        }
    }
    db.flush().and_then(|()| db.wait_idle()).map_err(said)?;
    let io = tally.since(before).map(|io| io.per(operations));
    db.close().map_err(said)?;
    Ok(io)
}
