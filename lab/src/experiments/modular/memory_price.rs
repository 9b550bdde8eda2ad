//! The slide "Memory vs. Storage": prices of memory and storage over the years.

use crate::chart::{Axis, Chart, Panel, Series, Style};

use crate::table::row;
use crate::{Experiment, Finding, Kind, Lab, Paper, Parameter, Scale, Table, Verdict};

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "shamba-memory-price",
    paper: Paper::ModularFilters,
    kind: Kind::Literature,
    place: "slide \"Memory vs. Storage\"",
    title: "prices of memory and storage, 1987 to 2018",
    claim: "The price of memory has fallen more slowly than that of storage, so the ratio of memory to data falls.",
    parameters,
    run,
};

/// A year's price in dollars and capacity in MB, as the slide has them.
struct Year {
    year: u32,
    memory: (f64, f64),
    disk: (f64, f64),
    flash: Option<(f64, f64)>,
}

const MB_OF_GB: f64 = 1024.0;

/// Appuswamy, Graefe, Borovica-Gajic, Ailamaki: The Five-Minute Rule 30 Years Later (CACM 2019).
const YEARS: [Year; 4] = [
    Year { year: 1987, memory: (5_000.0, 1.0), disk: (30_000.0, 180.0), flash: None },
    Year { year: 1997, memory: (15_000.0, MB_OF_GB), disk: (2_000.0, 9.0 * MB_OF_GB), flash: None },
    Year {
        year: 2007,
        memory: (48.0, MB_OF_GB),
        disk: (80.0, 250.0 * MB_OF_GB),
        flash: Some((1_000.0, 32.0 * MB_OF_GB)),
    },
    Year {
        year: 2018,
        memory: (80.0, 16.0 * MB_OF_GB),
        disk: (49.0, 2.0 * MB_OF_GB * MB_OF_GB),
        flash: Some((415.0, 800.0 * MB_OF_GB)),
    },
];

fn parameters(_: Scale) -> Vec<Parameter> {
    vec![
        Parameter::varied("year", YEARS.map(|year| year.year)),
        Parameter::varied("medium", ["DRAM", "HDD", "SATA flash"]),
        Parameter::fixed("source", "prices and capacities of the slide's table; nothing is measured"),
    ]
}

fn per_mb((price, capacity_mb): (f64, f64)) -> f64 {
    price / capacity_mb
}

/// How the ratio of two prices has grown from its first year to its last.
fn growth(ratios: &[f64]) -> f64 {
    match (ratios.first(), ratios.last()) {
        (Some(first), Some(last)) => last / first,
        _ => 1.0,
    }
}

fn run(_: &mut Lab<'_>) -> Result<Finding, String> {
    let mut table = Table::new(&[
        "year",
        "dram_dollars_per_mb",
        "hdd_dollars_per_mb",
        "flash_dollars_per_mb",
        "dram_over_hdd",
        "dram_over_flash",
    ]);
    for Year { year, memory, disk, flash } in &YEARS {
        let (memory, disk, flash) = (per_mb(*memory), per_mb(*disk), flash.map(per_mb));
        table.row(row![*year, memory, disk, flash, memory / disk, flash.map(|flash| memory / flash)]);
    }
    let at = |year: &Year| f64::from(year.year);
    let over_disk = YEARS.map(|year| per_mb(year.memory) / per_mb(year.disk));
    let over_flash: Vec<f64> =
        YEARS.iter().filter_map(|year| Some(per_mb(year.memory) / per_mb(year.flash?))).collect();
    let (disk, flash) = (growth(&over_disk), growth(&over_flash));
    let line = |name: &str, points: Vec<(f64, f64)>| {
        let points = points.into_iter().map(|(x, y)| crate::chart::Point::new(x, y)).collect();
        Series::new(name, Style::Line, points)
    };
    let prices = vec![
        line("DRAM", YEARS.iter().map(|year| (at(year), per_mb(year.memory))).collect()),
        line("HDD", YEARS.iter().map(|year| (at(year), per_mb(year.disk))).collect()),
        line("SATA flash", YEARS.iter().filter_map(|year| Some((at(year), per_mb(year.flash?)))).collect()),
    ];
    let ratios = vec![
        line("DRAM / HDD", YEARS.iter().zip(over_disk).map(|(year, ratio)| (at(year), ratio)).collect()),
        line(
            "DRAM / flash",
            YEARS.iter().filter(|year| year.flash.is_some()).map(at).zip(over_flash).collect(),
        ),
    ];
    let panel = |title: &str, y: &str, series| Panel {
        title: title.to_owned(),
        x: Axis::linear("year"),
        y: Axis::log(y),
        series,
    };
    Ok(Finding {
        ours: format!(
            "From 1987 to 2018 a byte of memory has become {disk:.1} times as dear in bytes of disk, from 2007 to 2018 {flash:.1} times in bytes of flash."
        ),
        verdict: verdict(disk, flash),
        why: "Literature: the slide's own table, computed again from its prices and capacities. For the disk of 1987 they make 167 dollars a MB, where the slide prints 83.33; with that a byte of memory would be 3.5 times as dear."
            .to_owned(),
        table,
        chart: Chart {
            title: "Memory against storage".to_owned(),
            claim: EXPERIMENT.claim.to_owned(),
            note: "Prices and capacities as in the slide's table, from The Five-Minute Rule 30 Years Later (CACM 2019).".to_owned(),
            panels: vec![
                panel("price", "dollars a MB", prices),
                panel("memory in units of storage", "ratio of prices", ratios),
            ],
        },
    })
}

fn verdict(disk: f64, flash: f64) -> Verdict {
    match (disk > 1.0, flash > 1.0) {
        (true, true) => Verdict::Confirmed,
        (true, false) | (false, true) => Verdict::Partly,
        (false, false) => Verdict::NotHere,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_a_megabyte_are_those_of_the_slide() {
        let near = |value: f64, slide: f64| assert!((value / slide - 1.0).abs() < 0.25, "{value} {slide}");
        for (year, memory, disk) in
            [(0, 5_000.0, 2.0 * 83.33), (1, 14.6, 0.22), (2, 0.05, 0.0003), (3, 0.005, 0.00002)]
        {
            near(per_mb(YEARS[year].memory), memory);
            near(per_mb(YEARS[year].disk), disk);
        }
        assert_eq!(growth(&[2.0, 1.0, 6.0]), 3.0);
        assert_eq!(
            [verdict(2.0, 2.0), verdict(2.0, 0.5), verdict(0.5, 0.5)],
            [Verdict::Confirmed, Verdict::Partly, Verdict::NotHere]
        );
    }
}
