//! Tests of `plan cost`: the papers' figures through the command, every option, and invalid inputs.

use serde_json::Value;

use super::{cost, is_near};
use crate::support::run;

/// The tree of Monkey's figure 7: 512 GiB of 16-byte entries.
const FIGURE_7: [&str; 12] = [
    "plan",
    "cost",
    "--entries",
    "34359738368",
    "--entry-bytes",
    "16",
    "--page-bytes",
    "4096",
    "--buffer",
    "2MiB",
    "--size-ratio",
    "4",
];

fn figure_7(more: &[&str]) -> Value {
    cost(&[&FIGURE_7[..], more].concat())
}

#[test]
fn figure_7_of_monkey() {
    for (memory, closed, exact, uniform, unfiltered) in [
        ("0", 9.0, 9.0, 9.0, 9),
        ("1GiB", 2.30908, 2.30883, 7.98138, 1),
        ("4GiB", 1.30908, 1.30902, 5.56653, 0),
        ("8GiB", 0.80967, 0.80963, 3.44292, 0),
        ("16GiB", 0.30974, 0.30972, 1.31707, 0),
        ("35GiB", 0.03161, 0.03161, 0.13443, 0),
    ] {
        let monkey = figure_7(&["--policy", "leveling", "--filter-memory", memory, "--allocation", "monkey"]);
        assert_eq!(monkey["levels"], 9);
        is_near(&monkey, "zero_result_lookup_ios", closed);
        is_near(&monkey, "zero_result_lookup_ios_exact", exact);
        if memory == "0" || memory == "1GiB" {
            assert_eq!(monkey["unfiltered_levels"], unfiltered, "{memory}");
        }
        let same = figure_7(&["--policy", "leveling", "--filter-memory", memory, "--allocation", "uniform"]);
        is_near(&same, "zero_result_lookup_ios", uniform);
        is_near(&same, "zero_result_lookup_ios_exact", uniform);
    }
}

#[test]
fn a_policy_sets_the_number_of_runs_that_is_not_given() {
    let more = ["--filter-memory", "1GiB"];
    let refined = figure_7(&[&["--policy", "tiering", "--inner-runs", "2"], &more[..]].concat());
    let named = figure_7(&[&["--inner-runs", "2", "--last-runs", "3"], &more[..]].concat());
    let tiering = figure_7(&[&["--policy", "tiering"], &more[..]].concat());
    for field in ["update_ios", "zero_result_lookup_ios_exact"] {
        assert_eq!(refined[field], named[field], "{field}");
        assert_ne!(refined[field], tiering[field], "{field}");
    }
}

/// A tree of a given number of levels, whatever its entries.
fn tree(size_ratio: &str, levels: &str, bits: &str, more: &[&str]) -> Value {
    let args = [
        "plan",
        "cost",
        "--entries",
        "1G",
        "--entry-bytes",
        "64",
        "--size-ratio",
        size_ratio,
        "--levels",
        levels,
        "--bits-per-key",
        bits,
    ];
    cost(&[&args[..], more].concat())
}

#[test]
fn exact_costs_at_finite_levels() {
    for (size_ratio, levels, bits, monkey, uniform, uniform_bits) in [
        ("10", "5", "5", 0.129874, 0.452564, "7.60"),
        ("10", "5", "10", 0.011755, 0.040963, "12.60"),
        ("4", "7", "6", 0.118411, 0.391877, "8.49"),
        ("2", "10", "8", 0.085002, 0.214158, "9.92"),
    ] {
        is_near(&tree(size_ratio, levels, bits, &[]), "zero_result_lookup_ios_exact", monkey);
        let same = tree(size_ratio, levels, bits, &["--allocation", "uniform"]);
        is_near(&same, "zero_result_lookup_ios_exact", uniform);
        // The bits are given with two decimals.
        let equal = tree(size_ratio, levels, uniform_bits, &["--allocation", "uniform"]);
        let found = equal["zero_result_lookup_ios_exact"].as_f64().unwrap();
        assert!((found / monkey - 1.0).abs() < 3e-3, "{found}, not {monkey}");
    }
    let rates = tree("10", "5", "10", &[]);
    let rates = rates["fpr_per_level"].as_array().unwrap();
    assert_eq!(rates.len(), 5);
    let (first, last) = (rates[0].as_f64().unwrap(), rates[4].as_f64().unwrap());
    assert!((first / 1.06e-6 - 1.0).abs() < 5e-3 && (last / 1.06e-2 - 1.0).abs() < 5e-3, "{first}, {last}");
}

#[test]
fn mixed_lookups() {
    for (policy, v, wanted) in [
        ("leveling", "0", 0.017_340),
        ("leveling", "1", 0.510_310),
        ("leveling", "9", 0.903_084),
        ("tiering", "0", 0.052_019),
        ("tiering", "1", 0.538_379),
        ("tiering", "9", 0.926_164),
    ] {
        let args = ["--policy", policy, "--bits-per-key", "10", "--nonzero-per-zero", v];
        is_near(&figure_7(&args), "mixed_lookup_ios", wanted);
    }
}

#[test]
fn one_digest_gains_what_the_paper_says() {
    // T_H = 235 ns, f = 0.00819, all empty, T = 10, L = 5: the gain is 1 - shared / not shared.
    let bits = (-(0.008_19_f64.ln()) / (2f64.ln() * 2f64.ln())).to_string();
    for (read_us, gain) in
        [("113", 0.1620), ("10", 0.5932), ("7", 0.6431), ("0.25", 0.7931), ("0.16", 0.7956)]
    {
        let time = |sharing: &str| {
            let more = [
                "--allocation",
                "uniform",
                "--hash-ns",
                "235",
                "--read-us",
                read_us,
                "--hash-sharing",
                sharing,
            ];
            tree("10", "5", &bits, &more)["lookup_ns"].as_f64().unwrap()
        };
        let found = 1.0 - time("on") / time("off");
        assert!((found - gain).abs() < 6e-5, "{read_us} us: {found}, not {gain}");
    }
}

#[test]
fn bad_input_is_refused_with_what_and_why() {
    let base = ["plan", "cost", "--entries", "1000", "--entry-bytes", "100"];
    for (more, said) in [
        (&["--entries", "0"][..], "entries"),
        (&["--entry-bytes", "0"], "entry"),
        (&["--entry-bytes", "nan"], "entry-bytes"),
        (&["--entries", "-5"], "entries"),
        (&["--page-bytes", "0"], "page"),
        (&["--size-ratio", "1"], "size_ratio"),
        (&["--size-ratio", "NaN"], "size_ratio"),
        (&["--buffer", "1B"], "write_buffer"),
        (&["--bits-per-key", "-1"], "bits-per-key"),
        (&["--bits-per-key", "NaN"], "bits-per-key"),
        (&["--bits-per-key", "5", "--filter-memory", "1MiB"], "filter-memory"),
        (&["--memory", "1MiB", "--buffer", "2MiB"], "--memory"),
        (&["--policy", "flat"], "policy"),
        (&["--inner-runs", "0"], "inner_runs"),
        (&["--allocation", "workload"], "allocation"),
        (&["--levels", "0"], "levels"),
        (&["--levels", "100"], "levels"),
        (&["--nonzero-per-zero", "-1"], "nonzero-per-zero"),
        (&["--nonzero-per-zero", "inf"], "nonzero-per-zero"),
        (&["--nonzero-per-zero", "1", "--updates", "1"], "--updates"),
        (&["--lookups-zero", "0.5", "--updates", "0.7"], "1.2"),
        (&["--lookups-zero", "0"], "no operations"),
        (&["--updates", "-0.5", "--ranges", "1.5"], "updates"),
        (&["--ranges", "1", "--range-selectivity", "1.5"], "range-selectivity"),
        (&["--read-us", "0"], "read-us"),
        (&["--read-us", "NaN"], "read-us"),
        (&["--write-cost", "-1"], "write-cost"),
        (&["--like", "couchdb"], "couchdb"),
        (&["--like", "cassandra"], "memory"),
        (&["--like", "rocksdb", "--memory", "1MiB"], "64.0 MiB"),
        (&["--rocksdb", "OPTIONS", "--counting", "engine"], "--counting"),
    ] {
        // A later option does not replace an earlier one: give each once.
        let kept = base.chunks(2).skip(1).filter(|pair| !more.contains(&pair[0])).flatten();
        let args: Vec<&str> = base[..2].iter().chain(kept).chain(more).copied().collect();
        let err = run(&args).fails(64);
        assert!(err.contains(said), "{args:?}: {err}");
    }
    let err = run(["plan", "cost", "--entry-bytes", "1"]).fails(64);
    assert!(err.contains("--entries"), "{err}");
    run(["plan"]).fails(64);
    run(["plan", "frobnicate"]).fails(64);
}

#[test]
fn presets_are_designs_that_options_change() {
    let args = ["plan", "cost", "--entries", "10M", "--entry-bytes", "1KiB"];
    for (system, size_ratio, buffer) in [
        ("leveldb", 10.0, 2 << 20),
        ("rocksdb", 10.0, 64 << 20),
        ("hbase", 2.0, 128 << 20),
        ("accumulo", 4.0, 1 << 30),
    ] {
        let object = cost(&[&args[..], &["--like", system]].concat());
        assert_eq!(object["size_ratio"].as_f64(), Some(size_ratio), "{system}");
        assert_eq!(object["buffer_bytes"].as_u64(), Some(buffer), "{system}");
        assert_eq!(
            (object["policy"].as_str(), object["allocation"].as_str()),
            (Some("leveling"), Some("uniform"))
        );
    }
    let object =
        cost(&[&args[..], &["--like", "cassandra", "--memory", "1000MiB", "--size-ratio", "5"]].concat());
    assert_eq!((object["policy"].as_str(), object["size_ratio"].as_f64()), (Some("tiering"), Some(5.0)));
    assert_eq!((object["inner_runs"].as_u64(), object["buffer_bytes"].as_u64()), (Some(4), Some(50 << 20)));
    let object = cost(&[&args[..], &["--like", "cassandra", "--buffer", "2MiB"]].concat());
    assert_eq!(object["buffer_bytes"].as_u64(), Some(2 << 20), "then no memory is needed");
}

#[test]
fn memory_beyond_what_filters_can_use_is_cache() {
    let args =
        ["plan", "cost", "--entries", "1M", "--entry-bytes", "1KiB", "--buffer", "1MiB", "--memory", "1GiB"];
    let object = cost(&args);
    let (filters, cache) =
        (object["filter_bytes"].as_f64().unwrap(), object["cache_bytes"].as_u64().unwrap());
    assert_eq!(filters, 8e6);
    assert_eq!(cache, (1 << 30) - (1 << 20) - 8_000_000);
}

#[test]
fn what_is_found_is_drawn_evenly_where_time_is_told() {
    let mix = ["--lookups-zero", "0.5", "--lookups-nonzero", "0.5", "--search-ns", "300"];
    let args = [
        "plan",
        "cost",
        "--entries",
        "10M",
        "--entry-bytes",
        "100",
        "--buffer",
        "1MiB",
        "--bits-per-key",
        "4",
    ];
    let object = cost(&[&args[..], &mix].concat());
    let number = |field: &str| object[field].as_f64().unwrap();
    let mean = (number("empty_lookup_ns") + number("found_lookup_ns")) / 2.0;
    assert!((number("lookup_ns") / mean - 1.0).abs() < 1e-9, "{object}");
    assert!(number("found_lookup_ios") <= number("nonzero_result_lookup_ios_exact"));
    let [zero, updates] = ["operation_ios", "mixed_lookup_ios"].map(number);
    assert!((zero / updates - 1.0).abs() < 1e-9, "only lookups are asked for: {object}");
    assert_eq!(object["alternatives"].as_array().map(Vec::len), Some(0));
}

#[test]
fn people_get_tables() {
    let text = run(FIGURE_7.iter().chain(&["--filter-memory", "4GiB", "--cache", "1GiB"])).ok();
    for said in [
        "34,359,738,368 entries",
        "512 GiB",
        "1.309",
        "leveling, T=4",
        "cache 1.0 GiB",
        "75 %",
        "block cache",
    ] {
        assert!(text.contains(said), "{said} in {text}");
    }
    assert_eq!(
        text.lines().filter(|line| line.trim_start().starts_with(|c: char| c.is_ascii_digit())).count(),
        9
    );
}

#[test]
fn a_cache_serves_more_of_skewed_lookups() {
    let of = |more: &[&str]| {
        let base = ["plan", "cost", "--entries", "10M", "--entry-bytes", "128", "--cache", "128MiB"];
        cost(&[&base[..], &["--nonzero-per-zero", "1"], more].concat())
    };
    let figure = |of: &Value, name: &str| of[name].as_f64().unwrap_or_else(|| panic!("{name}"));
    let even = of(&[]);
    let share = (128u64 << 20) as f64 / 1.28e9;
    is_near(&even, "cache_miss_ratio", 1.0 - share);
    assert_eq!(of(&["--zipf", "0"]), even);
    let mut before = figure(&even, "cache_miss_ratio");
    for alpha in ["0.6", "0.8", "0.99", "1.2"] {
        let skewed = of(&["--zipf", alpha]);
        let missed = figure(&skewed, "cache_miss_ratio");
        assert!(missed < before && missed > 0.0, "{alpha}: {missed}");
        for (reads, ios) in [
            ("empty_lookup_reads", "zero_result_lookup_ios_exact"),
            ("found_lookup_reads", "found_lookup_ios"),
        ] {
            is_near(&skewed, reads, missed * figure(&skewed, ios));
            assert_eq!(skewed[ios], even[ios], "the closed forms are without the cache");
        }
        before = missed;
    }
    for (alpha, named) in [("-1", "exponent"), ("nan", "exponent"), ("99", "exponent"), ("x", "--zipf")] {
        let refused = run(["plan", "cost", "--entries", "9", "--entry-bytes", "9", "--zipf", alpha]);
        assert_eq!(refused.code, 64, "{alpha}: {refused:?}");
        assert!(refused.err.contains(named), "{alpha}: {refused:?}");
    }
    let doubled =
        ["plan", "compare", "--entries", "1M", "--entry-bytes", "128", "--cache", "4MiB", "--zipf", "0.5"];
    let told = run([&doubled[..], &["--with", "zipf=2x"]].concat()).ok();
    assert!(told.contains("miss ratio of the cache"), "{told}");
}

#[test]
fn value_files_are_shown_beside_values_in_tables() {
    let args = [
        "plan",
        "cost",
        "--entries",
        "10M",
        "--entry-bytes",
        "4120",
        "--lookups-nonzero",
        "0.5",
        "--updates",
        "0.5",
    ];
    assert_eq!(cost(&args)["value_files"], Value::Null);
    let with = |more: &[&str]| cost(&[&args[..], &["--value-bytes", "4KiB"], more].concat());
    let both = with(&[]);
    let outside = &both["value_files"];
    let (inline, separated) = (&both["write_amplification"], &outside["write_amplification"]);
    assert!(separated.as_f64().unwrap() * 2.0 < inline.as_f64().unwrap(), "{separated} of {inline}");
    assert_eq!(outside["found_lookup_ios"].as_f64().unwrap().floor(), 2.0, "one read more");
    assert!(outside["times_the_cost"].as_f64().unwrap() < 1.0);
    assert_eq!(outside["value_space"], 1.25);
    // Less space, more relocations; none without overwrites.
    let tight = &with(&["--value-space", "1.1"])["value_files"];
    assert!(tight["write_amplification"].as_f64() > outside["write_amplification"].as_f64());
    let inserts = &with(&["--overwritten", "0"])["value_files"];
    assert!(inserts["write_amplification"].as_f64() < outside["write_amplification"].as_f64());
    for (more, says) in [
        (&["--value-space", "0.9"][..], "at least 1"),
        (&["--overwritten", "1.5"], "from 0 to 1"),
        (&["--value-bytes", "5000"], "does not fit"),
    ] {
        let bytes: &[&str] = if more[0] == "--value-bytes" { &[] } else { &["--value-bytes", "4KiB"] };
        let refused = run([&args[..], bytes, more].concat());
        assert!(refused.code != 0 && refused.err.contains(says), "{more:?}: {refused:?}");
    }
    let text = run([&args[..], &["--value-bytes", "4KiB"]].concat()).ok();
    assert!(text.contains("value files pay"), "{text}");
}
