//! Tests of `plan compare`: other data, memory, device, mix and design.

use serde_json::Value;

use super::cost;
use crate::support::run;

const BASE: [&str; 6] = ["plan", "compare", "--entries", "100M", "--entry-bytes", "116"];

fn compare(more: &[&str]) -> Value {
    cost(&[&BASE[..], more].concat())
}

/// A row's first and second value.
fn row(object: &Value, quantity: &str) -> Option<(f64, f64)> {
    let rows = object["rows"].as_array().expect("rows");
    let row = rows.iter().find(|row| row["quantity"] == quantity)?;
    Some((row["first_value"].as_f64()?, row["second_value"].as_f64()?))
}

#[test]
fn the_second_case_differs_in_what_is_said() {
    let twice = compare(&["--with", "entries=2x"]);
    assert_eq!(row(&twice, "entries"), Some((1e8, 2e8)));
    assert_eq!(row(&twice, "size ratio"), None, "inputs that are the same are left out");
    let (first, second) = row(&twice, "filters").expect("filters");
    assert!((second / first - 2.0).abs() < 1e-9, "the bits per key are the same");

    let memory = compare(&["--memory", "256MiB", "--with", "entries=2x"]);
    let (first, second) = row(&memory, "filters").expect("filters");
    assert_eq!(first, second, "the memory is the same");

    let half = compare(&["--memory", "256MiB", "--with", "memory=0.5x"]);
    // Without the default write buffer: 64 MiB, and for the smaller memory a quarter of 128 MiB.
    assert_eq!(row(&half, "filters"), Some((f64::from(192u32 << 20), f64::from(96u32 << 20))));
    let half = compare(&["--bits-per-key", "8", "--buffer", "100MB", "--with", "memory=0.5x"]);
    assert_eq!(row(&half, "filters"), Some((1e8, 0.0)), "buffer and filters are the memory");

    let device = compare(&["--updates", "1", "--lookups-zero", "1", "--with", "read-us=10"]);
    assert_eq!(row(&device, "page read"), Some((1e5, 1e4)));
    let mix = compare(&["--updates", "1", "--lookups-zero", "1", "--with", "updates=3x"]);
    assert_eq!(row(&mix, "share of updates"), Some((0.5, 0.75)));

    let design = compare(&["--like", "rocksdb", "--with", "policy=tiering", "--with", "size-ratio=4"]);
    assert_eq!(row(&design, "size ratio"), Some((10.0, 4.0)));
    assert_eq!(row(&design, "runs per inner level"), Some((1.0, 3.0)));
    let runs = compare(&["--policy", "tiering", "--with", "inner-runs=2"]);
    assert_eq!(row(&runs, "runs per inner level"), Some((9.0, 2.0)));
    assert_eq!(row(&runs, "runs on the last level"), None, "what is not said stays");
    let mix = compare(&["--nonzero-per-zero", "1", "--with", "updates=2"]);
    assert_eq!(row(&mix, "share of updates"), Some((0.0, 0.5)), "the lookups are still there");
    let system = compare(&["--like", "rocksdb", "--size-ratio", "7", "--with", "like=hbase"]);
    assert_eq!(row(&system, "size ratio"), Some((7.0, 2.0)), "another system starts from its own defaults");
    assert_eq!(system["second"]["buffer_bytes"], 128 << 20);
}

#[test]
fn the_best_design_may_be_either() {
    let mix = ["--updates", "0.5", "--lookups-zero", "0.5"];
    let best = compare(&[&mix[..], &["--like", "rocksdb", "--with", "best"]].concat());
    let (first, second) = row(&best, "throughput").expect("throughput");
    assert!(second > 1.5 * first, "{first}, {second}");
    let spent =
        |side: &Value| side["filter_bytes"].as_f64().unwrap() + side["buffer_bytes"].as_f64().unwrap();
    assert!(spent(&best["second"]) <= spent(&best["first"]) + 2.0, "in as much memory");
    let more = compare(&[&mix[..], &["--memory", "64MiB", "--best", "--with", "memory=2x"]].concat());
    let (first, second) = row(&more, "throughput").expect("throughput");
    assert!(second > first);
}

#[test]
fn people_get_one_table() {
    let text = run(BASE.iter().chain(&["--like", "rocksdb", "--with", "size-ratio=4"])).ok();
    for said in
        ["first   leveling, T=10", "second  leveling, T=4", "size ratio", "0.4", "throughput", "costs"]
    {
        assert!(text.contains(said), "{said} in {text}");
    }
}

#[test]
fn what_cannot_be_compared_is_refused() {
    for (more, said) in [
        (&[][..], "--with"),
        (&["--with", "entries"], "OPTION=VALUE"),
        (&["--with", "entries=many"], "entries"),
        (&["--with", "entries=0"], "second case"),
        (&["--with", "entries=-2x"], "out of range"),
        (&["--with", "entries=NaNx"], "out of range"),
        (&["--with", "policy=2x"], "numeric option"),
        (&["--with", "frobs=3"], "frobs"),
        (&["--with", "size-ratio=1"], "second case"),
        (&["--with", "memory=1x", "--with", "bits-per-key=3"], "memory"),
        (&["--best", "--with", "entries=2x"], "memory"),
        (&["--best", "--memory", "1GiB", "--size-ratio", "3", "--with", "entries=2x"], "best"),
        (&["--updates", "0.5", "--lookups-zero", "0.5", "--with", "updates=0.9"], "1.4"),
    ] {
        let args: Vec<&str> = BASE.iter().chain(more).copied().collect();
        let err = run(&args).fails(64);
        assert!(err.contains(said), "{args:?}: {err}");
    }
}
