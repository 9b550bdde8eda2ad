//! Memory for the same pages read: ribbon modules, and the record cache, compared with one blocked
//! filter per table with uniform bits.
//!
//! All sides are this engine: slices and partitions, resident by the plan. So the ratios are those
//! of the filters, of their bits, and of the record cache. The statistic, fixed beforehand, is that
//! of [`super::memory_ratio`]: for filters over memory from a tenth to all of the filters and
//! indexes, for the record cache from there to [`SHARE_MAX`] times as much. With less there is no
//! memory for records.

use shamba_workload::Distribution;

use super::approaches::{Approach, BLOCKED, RIBBON, RIBBON_RECORDS, names};
use super::memory_ratio::SHARES;
use super::pressure::{EMPTY, MEMORY, MemoryRatio, PAGES, known_of, median_of, memory_ratios_of, rows_of};
use super::trees::{Asked, Extent};
use crate::experiment::Experiment;
use crate::lab::Lab;
use crate::paper::{Kind, Method, Paper};
use crate::picture::{Column, Panel};
use crate::rows::{Row, Rows, View, row};
use crate::scale::Parameter;
use crate::verdict::{
    Bound::AtLeast,
    Predicate,
    Unit::{Ratio, Share},
};

const APPROACHES: [Approach; 3] = [BLOCKED, RIBBON, RIBBON_RECORDS];
const DISTRIBUTIONS: [Distribution; 2] = [Distribution::Uniform, Distribution::Zipf];
/// The record cache holds single entries, which pays where some are asked for again and again.
const OF_RECORDS: Distribution = Distribution::Zipf;
/// Memory beyond all filters and indexes, for records and blocks.
const LARGE_SHARES: [f64; 3] = [2.0, 4.0, SHARE_MAX];
const SHARE_MAX: f64 = 8.0;
/// The first of [`SHARES`] with which the record cache is measured.
const FROM_SHARE: usize = 4;

const PAGES_OVER_MEMORY: Panel = Panel::lines(MEMORY, PAGES, &["approach"]);

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "engine-filter-memory",
    paper: Paper::ModularFilters,
    kind: Kind::Ours,
    method: Method::Counted,
    place: "ours",
    title: "memory for the same pages read, of ribbon modules and of the record cache",
    claim: "(Ours) Ribbon modules with bits by the observed lookups read as few pages as one blocked filter per table with \
            uniform bits in 1.8 times less memory under uniform lookups and 2.5 times less under Zipf; with the record cache \
            3 times less under Zipf.",
    parameters: |scale| {
        let own = [
            Parameter::varied("approach", names(&APPROACHES)),
            Parameter::varied("distribution", DISTRIBUTIONS),
            Parameter::varied("memory, share of filters and indexes", SHARES.into_iter().chain(LARGE_SHARES)),
            Parameter::varied("empty fraction", EMPTY),
        ];
        own.into_iter().chain(Extent::at(scale).parameters()).collect()
    },
    measure,
    predicates: &[
        Predicate::size("ribbon modules, memory ratio, uniform", Ratio, AtLeast(1.8), |rows| {
            median_of(&ratios(rows, RIBBON, Distribution::Uniform))
        })
        .known_as(|rows| known_of(&ratios(rows, RIBBON, Distribution::Uniform))),
        Predicate::size("ribbon modules, memory ratio, Zipf", Ratio, AtLeast(2.5), |rows| {
            median_of(&ratios(rows, RIBBON, Distribution::Zipf))
        })
        .known_as(|rows| known_of(&ratios(rows, RIBBON, Distribution::Zipf))),
        Predicate::size("with the record cache, memory ratio, Zipf", Ratio, AtLeast(3.0), |rows| {
            median_of(&ratios(rows, RIBBON_RECORDS, OF_RECORDS))
        })
        .known_as(|rows| known_of(&ratios(rows, RIBBON_RECORDS, OF_RECORDS))),
        Predicate::direction("pages saved by the record cache, Zipf", Share, AtLeast(0.0), |rows| {
            let zipf = rows.of("shows", "pages").of("distribution", OF_RECORDS.name());
            let is_large = |row: &Row| row.number("memory_share").is_some_and(|share| share >= 1.0);
            super::pressure::saved_of(&zipf.filter(is_large), RIBBON.name, RIBBON_RECORDS.name)
        }),
    ],
    panels: &[
        PAGES_OVER_MEMORY.titled(
            "uniform, half absent",
            &[("shows", "pages"), ("distribution", "uniform"), ("empty_fraction", "0.5")],
        ),
        PAGES_OVER_MEMORY.titled(
            "uniform, all absent",
            &[("shows", "pages"), ("distribution", "uniform"), ("empty_fraction", "1")],
        ),
        PAGES_OVER_MEMORY.titled(
            "Zipf, keys there",
            &[("shows", "pages"), ("distribution", "zipf"), ("empty_fraction", "0")],
        ),
        PAGES_OVER_MEMORY.titled(
            "Zipf, half absent",
            &[("shows", "pages"), ("distribution", "zipf"), ("empty_fraction", "0.5")],
        ),
        Panel::lines(
            MEMORY,
            Column::from_zero("memory_ratio", "memory of blocked, uniform / memory"),
            &["approach", "keys"],
        )
        .titled("memory for equal pages", &[("shows", "ratio")]),
    ],
    note: "T = 4, 5 levels, keys of 32 bytes, files of 65,536 entries, 10 bits per key; Zipf 0.99, scattered over the keys. \
           Filters, indexes, records and data blocks share the memory; its unit is the memory of the blocked filters and the \
           indexes. A ratio is a bound (known in the rows: >= or <=) where the approach reads fewer pages even with the smallest \
           amount measured, or more even with the largest. Medians over the shares of memory (10 to 100 %; with the record cache 1 to 8 times) and of absent keys.",
    reason: |rows| {
        let by_absent = |approach: Approach, distribution: Distribution| {
            let of = |empty_fraction: f64| {
                let ratio = median_of(&ratios_at(rows, approach, distribution, empty_fraction));
                ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"))
            };
            EMPTY.map(of).join(", ")
        };
        format!(
            "Medians with no, half and all keys absent: uniform {}, Zipf {}, with the record cache {}.",
            by_absent(RIBBON, Distribution::Uniform),
            by_absent(RIBBON, Distribution::Zipf),
            by_absent(RIBBON_RECORDS, OF_RECORDS),
        )
    },
};

/// The ratios of an approach under such lookups, with any share of absent keys.
fn ratios(rows: &View<'_>, approach: Approach, distribution: Distribution) -> Vec<MemoryRatio> {
    let at = |empty_fraction| ratios_at(rows, approach, distribution, empty_fraction);
    EMPTY.into_iter().flat_map(at).collect()
}

fn ratios_at(
    rows: &View<'_>,
    approach: Approach,
    distribution: Distribution,
    empty_fraction: f64,
) -> Vec<MemoryRatio> {
    let pages = rows.of("shows", "pages").of("distribution", distribution.name());
    let range = if approach == RIBBON_RECORDS { (1.0, SHARE_MAX) } else { (0.1, 1.0) };
    memory_ratios_of(&pages.of("empty_fraction", empty_fraction), BLOCKED.name, approach.name, range)
}

fn measure(lab: &mut Lab<'_>) -> Result<Rows, String> {
    let extent = Extent::at(lab.scale);
    let mut measured = Rows::default();
    for distribution in DISTRIBUTIONS {
        let asked = EMPTY.map(|empty_fraction| Asked { empty_fraction, distribution });
        let mut add = |approaches: &[Approach], shares: &[f64]| -> Result<(), String> {
            let of_kind = rows_of(lab, extent, approaches, shares, &asked)?;
            measured.extend(of_kind.view().0.into_iter().cloned());
            Ok(())
        };
        add(&[BLOCKED, RIBBON], &SHARES)?;
        if distribution == OF_RECORDS {
            add(&APPROACHES, &LARGE_SHARES)?;
            add(&[RIBBON_RECORDS], &SHARES[FROM_SHARE..])?;
        }
    }
    let mut rows = Rows::default();
    rows.extend(measured.view().0.into_iter().map(|reading| row!(shows: "pages").and(reading.clone())));
    for distribution in DISTRIBUTIONS {
        for empty_fraction in EMPTY {
            let keys = format!("{distribution}, {:.0} % absent", 100.0 * empty_fraction);
            for approach in &APPROACHES[1..] {
                for one in ratios_at(&rows.view(), *approach, distribution, empty_fraction) {
                    rows.push(one.row(approach, &keys));
                }
            }
        }
    }
    Ok(rows)
}
