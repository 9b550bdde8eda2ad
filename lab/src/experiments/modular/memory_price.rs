//! The slide "Memory vs. Storage": prices of memory and storage over the years.

use crate::experiment::Experiment;
use crate::lab::Lab;
use crate::paper::{Kind, Method, Paper};
use crate::picture::{Column, Panel};
use crate::rows::{Rows, View, last_over_first, row};
use crate::scale::{Parameter, Scale};
use crate::verdict::{Bound::AtLeast, Predicate, Unit::Ratio};

const GB: f64 = 1024.0;
/// Medium, year, dollars and capacity in MB. Appuswamy, Graefe, Borovica-Gajic, Ailamaki: The
/// Five-Minute Rule 30 Years Later (CACM 2019), as the slide has them.
const PRICES: [(&str, u32, f64, f64); 10] = [
    ("DRAM", 1987, 5_000.0, 1.0),
    ("DRAM", 1997, 15_000.0, GB),
    ("DRAM", 2007, 48.0, GB),
    ("DRAM", 2018, 80.0, 16.0 * GB),
    ("HDD", 1987, 30_000.0, 180.0),
    ("HDD", 1997, 2_000.0, 9.0 * GB),
    ("HDD", 2007, 80.0, 250.0 * GB),
    ("HDD", 2018, 49.0, 2.0 * GB * GB),
    ("SATA flash", 2007, 1_000.0, 32.0 * GB),
    ("SATA flash", 2018, 415.0, 800.0 * GB),
];
const YEAR: Column = Column::linear("year", "year");

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "shamba-memory-price",
    paper: Paper::ModularFilters,
    kind: Kind::Literature,
    method: Method::Counted,
    place: "slide \"Memory vs. Storage\"",
    title: "prices of memory and storage, 1987 to 2018",
    claim: "The price of memory has fallen more slowly than that of storage, so the ratio of memory to data falls.",
    parameters,
    measure,
    predicates: &[
        Predicate::direction("price of memory in disk, 2018 over 1987", Ratio, AtLeast(1.0), |rows| {
            growth(rows, "HDD")
        }),
        Predicate::direction("price of memory in flash, 2018 over 2007", Ratio, AtLeast(1.0), |rows| {
            growth(rows, "SATA flash")
        }),
    ],
    panels: &[
        Panel::lines(YEAR, Column::log("dollars_per_mb", "dollars a MB"), &["medium"]).titled("price", &[]),
        Panel::lines(YEAR, Column::log("dram_over_it", "price of DRAM over it"), &["medium"])
            .titled("memory in units of storage", &[]),
    ],
    note: "Prices and capacities as in the slide's table. For the disk of 1987 they make 167 dollars a MB, where the slide prints \
           83.33.",
    reason: Experiment::no_reason,
};

fn parameters(_: Scale) -> Vec<Parameter> {
    vec![
        Parameter::varied("year", [1987, 1997, 2007, 2018]),
        Parameter::varied("medium", ["DRAM", "HDD", "SATA flash"]),
        Parameter::fixed("source", "prices and capacities of the slide's table; nothing is measured"),
    ]
}

fn growth(rows: &View<'_>, medium: &str) -> Option<f64> {
    last_over_first(&rows.of("medium", medium).points("year", "dram_over_it"))
}

fn measure(_: &mut Lab<'_>) -> Result<Rows, String> {
    let mut rows = Rows::default();
    for (medium, year, dollars, capacity_mb) in PRICES {
        let dram = PRICES.iter().find(|(name, at, ..)| *name == "DRAM" && *at == year);
        let (_, _, dram_dollars, dram_mb) = dram.ok_or("a year without a price of memory")?;
        let dollars_per_mb = dollars / capacity_mb;
        rows.push(row! {
            medium: medium,
            year: year,
            dollars_per_mb: dollars_per_mb,
            dram_over_it: dram_dollars / dram_mb / dollars_per_mb,
        });
    }
    Ok(rows)
}
