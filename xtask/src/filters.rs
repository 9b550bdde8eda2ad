//! Measurements of filters: false-positive rates against the checked-in table, and absence of false
//! negatives.
//!
//! Each command prints one JSON object with a list of the measurements, and fails on a violation. A
//! rate differs from the table if it is more than [`ERRORS_MAX`] standard errors away: for the 300
//! points of a run, chance alone causes that once in some thousand runs. The table and the
//! comparison use different seeds, because otherwise the same filters would get the same queries.
//!
//! Not here: the measuring itself (`shamba_filter::sim`).

use std::fmt::Write as _;
use std::fs;
use std::time::Instant;

use shamba_filter::sim::rates::{Effort, Rate, measure};
use shamba_filter::{FilterLayout, Modules, fpr, measured, sim};

use crate::tidy;

/// Maximum difference from the table, in standard errors.
const ERRORS_MAX: f64 = 5.0;
/// Seed of the table's measurement.
const TABLE_SEED: u64 = 1;
/// Default seed of a comparison.
const SEED: u64 = 2;
/// Default number of checks of `membership`.
const CHECKS: u64 = 100_000_000;
/// Maximum relative error of the product of two interpolated rates, in addition to the errors of
/// measurement.
const INTERPOLATION: f64 = 0.015;
/// Maximum relative error of the rate of a ribbon filter, in addition to the error of measurement.
const RIBBON: f64 = 0.03;
const TABLE: &str = "crates/filter/src/measured/table.rs";

/// The bits per key of the table: dense where the rate bends, and where a module's best number of
/// probes changes (at some 2.1, 3.6 and 5.1 of its bits). Multiples of an eighth; [`Effort`] gives
/// the reason.
const BITS_PER_KEY: [f64; 44] = [
    0.25, 0.375, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.125, 2.5, 3.0, 3.5, 4.0, 4.25, 4.5, 5.0, 5.5, 6.0,
    6.25, 6.5, 7.0, 7.25, 7.5, 8.0, 8.375, 9.0, 10.0, 10.375, 10.75, 12.0, 12.5, 13.0, 14.375, 14.625,
    15.375, 16.0, 17.0, 18.0, 20.0, 20.5, 21.5, 22.0, 24.0,
];

/// Options after the command.
struct Options {
    seed: u64,
    checks: u64,
    quick: bool,
    write: bool,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut options = Self { seed: SEED, checks: CHECKS, quick: false, write: false };
        let mut words = arguments.iter();
        let number = |word: &str| word.replace('_', "").parse().map_err(|_| format!("{word:?} is no number"));
        while let Some(word) = words.next() {
            match word.as_str() {
                "--quick" => options.quick = true,
                "--write" => options.write = true,
                "--seed" => options.seed = number(words.next().map_or("", String::as_str))?,
                checks => options.checks = number(checks)?,
            }
        }
        Ok(options)
    }
}

/// Measures every point of the table; writes the table, or compares it with the measurement.
pub fn fpr_table(arguments: &[String]) -> Result<(), String> {
    let options = Options::parse(arguments)?;
    if options.write {
        let path = tidy::root().join(TABLE);
        return fs::write(&path, table_text()).map_err(|error| format!("{}: {error}", path.display()));
    }
    let effort = if options.quick { Effort::QUICK } else { Effort::FULL };
    let started = Instant::now();
    let (mut points, mut violations) = (Vec::new(), 0);
    let mut compare = |layout: FilterLayout, bits_per_key: f64, fpr_in_table: f64, error_in_table: f64| {
        let rate = measure(layout, bits_per_key, options.seed, effort);
        let departure_in_errors = rate.departure_in_errors(fpr_in_table, error_in_table);
        let is_violation = departure_in_errors.is_nan() || departure_in_errors > ERRORS_MAX;
        violations += u32::from(is_violation);
        let Rate { fpr, error, absent_keys } = rate;
        let modules = layout.modules().count();
        let theory = fpr::layout_fpr(layout, bits_per_key);
        points.push(format!(
            "{{\"layout\":\"{layout}\",\"modules\":{modules},\"bits_per_key\":{bits_per_key},\
             \"fpr_in_theory\":{theory:.4e},\"fpr_in_table\":{fpr_in_table:.4e},\"fpr\":{fpr:.4e},\
             \"error\":{error:.1e},\"absent_keys\":{absent_keys},\
             \"departure_in_errors\":{departure_in_errors:.2},\"violation\":{is_violation}}}"
        ));
    };
    for (layout, series) in measured::every_series() {
        for point in series {
            compare(layout, point.bits_per_key, point.fpr, point.error);
        }
    }
    // Proportional sizes have no points of their own: their rates are products.
    for (bits_per_key, count, permille) in [(10.0, 2, 200), (10.0, 2, 300), (8.0, 3, 200), (16.0, 4, 400)] {
        if let Some(layout) = Modules::proportional(count, permille).map(FilterLayout::Modular) {
            let product = measured::fpr(layout, bits_per_key);
            compare(layout, bits_per_key, product, product * INTERPOLATION / ERRORS_MAX);
        }
    }
    // Ribbon filters have no points either: their theory has measured constants.
    if let Some(layout) = Modules::equal(1).map(FilterLayout::Ribbon) {
        for bits_per_key in [0.75, 1.5, 2.5, 3.5, 4.5, 6.0, 7.5, 10.0] {
            let theory = measured::fpr(layout, bits_per_key);
            compare(layout, bits_per_key, theory, theory * RIBBON / ERRORS_MAX);
        }
    }
    let rows = points.join(",\n  ");
    println!(
        "{{\"schema\":\"fpr-table/1\",\"seed\":{},\"quick\":{},\"points\":[\n  {rows}\n],\"measured\":{},\
         \"violations\":{violations},\"seconds\":{:.1}}}",
        options.seed,
        options.quick,
        points.len(),
        started.elapsed().as_secs_f64()
    );
    if points.len() < BITS_PER_KEY.len() {
        return Err("the table is not whole: see fpr-table --write".to_owned());
    }
    if violations == 0 { Ok(()) } else { Err(format!("{violations} rates depart from the table")) }
}

/// The table as a source file.
fn table_text() -> String {
    let mut text = String::from(
        "//! The measured rates. Generated by `cargo xtask fpr-table --write`: do not edit.\n//!\n\
         //! Per point: 16 filters of 409,600 keys, probed with up to 150 million absent keys\n\
         //! until 100,000 of them are false positives.\n\
         //! Columns: bits per key, rate, its standard error, rate in theory.\n\n\
         use super::Point;\n\n\
         const fn p(bits_per_key: f64, fpr: f64, error: f64, theory: f64) -> Point {\n    \
             Point { bits_per_key, fpr, error, theory }\n}\n\n\
         /// In the order of [`super::every_series`].\n",
    );
    let layouts: Vec<FilterLayout> = measured::every_series().map(|(layout, _)| layout).collect();
    let _ = writeln!(text, "pub(super) static SERIES: [&[Point]; {}] = [", layouts.len());
    for layout in layouts {
        let _ = writeln!(text, "    // {layout}\n    &[");
        for bits_per_key in BITS_PER_KEY {
            let Rate { fpr, error, .. } = measure(layout, bits_per_key, TABLE_SEED, Effort::FULL);
            let theory = fpr::layout_fpr(layout, bits_per_key);
            let _ = writeln!(text, "        p({bits_per_key:?}, {fpr:.5e}, {error:.2e}, {theory:.5e}),");
            eprintln!("{layout} at {bits_per_key}: {fpr:.5e}, theory {theory:.5e}");
        }
        text.push_str("    ],\n");
    }
    text.push_str("];\n");
    text
}

/// Queries filters for the keys that they were built from.
pub fn membership(arguments: &[String]) -> Result<(), String> {
    let Options { seed, checks, .. } = Options::parse(arguments)?;
    let started = Instant::now();
    let tallies = sim::membership::run(checks, seed);
    let rows: Vec<String> = tallies
        .iter()
        .map(|tally| {
            let sim::membership::Tally { layout, filters, checks, false_negatives } = tally;
            let modules = layout.modules().count();
            format!(
                "{{\"layout\":\"{layout}\",\"modules\":{modules},\"filters\":{filters},\"checks\":{checks},\
                 \"false_negatives\":{false_negatives}}}"
            )
        })
        .collect();
    let made: u64 = tallies.iter().map(|tally| tally.checks).sum();
    let false_negatives: u64 = tallies.iter().map(|tally| tally.false_negatives).sum();
    println!(
        "{{\"schema\":\"membership/1\",\"seed\":{seed},\"layouts\":[\n  {}\n],\"checks\":{made},\
         \"false_negatives\":{false_negatives},\"seconds\":{:.1}}}",
        rows.join(",\n  "),
        started.elapsed().as_secs_f64()
    );
    if made < checks {
        return Err(format!("only {made} checks of {checks} were made"));
    }
    if false_negatives == 0 { Ok(()) } else { Err(format!("{false_negatives} keys were denied")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        let parse =
            |line: &str| Options::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        let options = parse("1_000_000 --seed 9 --quick").unwrap();
        assert_eq!((options.checks, options.seed, options.quick, options.write), (1_000_000, 9, true, false));
        assert_eq!(parse("").unwrap().checks, CHECKS);
        assert!(parse("many").is_err() && parse("--seed").is_err() && parse("--seed x").is_err());
    }

    #[test]
    fn membership_fails_on_nothing() {
        membership(&["20000".to_owned()]).unwrap();
    }
}
