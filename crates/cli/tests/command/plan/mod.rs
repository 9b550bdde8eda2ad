//! Tests of `plan`: costs of designs, the best design, comparisons, and RocksDB's files. They need
//! no database.

mod compare;
mod cost;
mod design;
mod examples;
mod rocksdb;

use serde_json::Value;

use crate::support::run;

/// The JSON object of a command that succeeds.
fn cost(args: &[&str]) -> Value {
    let run = run(args.iter().chain(&["--json"]));
    assert_eq!(run.code, 0, "{args:?}: {run:?}");
    run.json()
}

#[track_caller]
fn is_near(object: &Value, field: &str, wanted: f64) {
    let found = object[field].as_f64().unwrap_or_else(|| panic!("{field} of {object}"));
    // Four digits, as in the test vectors; small figures to their last digit.
    let tolerance = (wanted.abs() * 5e-5).max(6e-6);
    assert!((found - wanted).abs() <= tolerance, "{field}: {found}, not {wanted}");
}
