//! Tests of `plan design`: the best design, the alternatives, and bounds that no design meets.

use serde_json::Value;

use super::cost;
use crate::support::run;

const BASE: [&str; 8] = ["plan", "design", "--entries", "10M", "--entry-bytes", "116", "--memory", "24MiB"];

fn design(more: &[&str]) -> Value {
    cost(&[&BASE[..], more].concat())
}

fn number(object: &Value, field: &str) -> f64 {
    object[field].as_f64().unwrap_or_else(|| panic!("{field} of {object}"))
}

#[test]
fn what_is_promised_is_what_cost_says() {
    for counting in ["paper", "engine"] {
        for mix in [
            ["--lookups-zero", "0.9", "--updates", "0.1"],
            ["--lookups-zero", "0.1", "--updates", "0.9"],
            ["--lookups-nonzero", "3", "--updates", "1"],
            ["--ranges", "1", "--updates", "9"],
        ] {
            let found = design(&[&mix[..], &["--counting", counting]].concat());
            let text = |field: &str| number(&found, field).to_string();
            let (buffer, filters, cache) = (text("buffer_bytes"), text("filter_bytes"), text("cache_bytes"));
            let (size_ratio, levels) = (text("size_ratio"), text("levels"));
            let (inner, last) = (text("inner_runs"), text("last_runs"));
            let bits = (number(&found, "filter_bytes") * 8.0 / 1e7).to_string();
            let given = [
                "plan",
                "cost",
                "--entries",
                "10M",
                "--entry-bytes",
                "116",
                "--counting",
                counting,
                "--buffer",
                &buffer,
                "--cache",
                &cache,
                "--size-ratio",
                &size_ratio,
                "--levels",
                &levels,
                "--inner-runs",
                &inner,
                "--last-runs",
                &last,
                "--bits-per-key",
                &bits,
            ];
            let same = cost(&[&given[..], &mix[..]].concat());
            for field in ["throughput_per_s", "update_ios", "zero_result_lookup_ios_exact"] {
                let (promised, said) = (number(&found, field), number(&same, field));
                assert!(
                    (promised / said - 1.0).abs() < 1e-6,
                    "{field}: {promised}, {said}; filters {filters}"
                );
            }
            let spent = number(&found, "buffer_bytes")
                + number(&found, "filter_bytes")
                + number(&found, "cache_bytes");
            assert!(spent <= f64::from(24u32 << 20), "{spent}");
            for other in found["alternatives"].as_array().expect("alternatives") {
                assert!(
                    !other["why"].as_str().expect("why").is_empty() && number(other, "times_the_cost") > 0.9
                );
            }
        }
    }
}

#[test]
fn it_beats_the_defaults_of_every_system() {
    let best = number(&design(&["--lookups-zero", "0.5", "--updates", "0.5"]), "throughput_per_s");
    for system in ["leveldb", "cassandra", "hbase", "accumulo", "rocksdb"] {
        let given = [
            "plan",
            "cost",
            "--entries",
            "10M",
            "--entry-bytes",
            "116",
            "--like",
            system,
            "--memory",
            "24MiB",
            "--lookups-zero",
            "0.5",
            "--updates",
            "0.5",
            "--buffer",
            "2MiB",
        ];
        let theirs = number(&cost(&given), "throughput_per_s");
        assert!(best > theirs, "{system}: {theirs}, not below {best}");
    }
}

#[test]
fn bounds_are_kept_or_refused() {
    let mix = ["--lookups-zero", "0.1", "--updates", "0.9"];
    let bound = design(&[&mix[..], &["--max-lookup-ios", "0.002"]].concat());
    assert!(number(&bound, "zero_result_lookup_ios_exact") <= 0.002);
    let bound = design(&[&mix[..], &["--max-update-ios", "0.1", "--max-space", "inf"]].concat());
    assert!(number(&bound, "update_ios") <= 0.1);
    for (more, said) in [
        (&["--max-update-ios", "0.0001"][..], "update"),
        (&["--max-update-ios", "0.1"], "space amplification of at most 2"),
        (&["--max-lookup-ios", "1e-9"], "lookup"),
        (&["--max-lookup-ios", "-1"], "--max-lookup-ios"),
        (&["--max-lookup-ios", "NaN"], "--max-lookup-ios"),
        (&["--lookups-zero", "0.2"], "0.2"),
        (&["--out", "x"], "--rocksdb"),
    ] {
        let args: Vec<&str> = BASE.iter().chain(more).copied().collect();
        let err = run(&args).fails(64);
        assert!(err.contains(said), "{args:?}: {err}");
    }
    let err = run(&BASE[..6]).fails(64);
    assert!(err.contains("--memory"), "{err}");
    let err = run(BASE[..6].iter().chain(&["--memory", "100B"])).fails(64);
    assert!(err.contains("too small"), "{err}");
    run(["plan", "design", "--entries", "0", "--entry-bytes", "1", "--memory", "1MiB"]).fails(64);
}

#[test]
fn people_get_reasons() {
    let text = run(BASE.iter().chain(&["--lookups-zero", "0.7", "--updates", "0.3"])).ok();
    for said in [
        "reason",
        "lazy-leveling",
        "leveling",
        "more than the 2 allowed",
        "elasticity",
        "best",
        "memory    24.0 MiB",
    ] {
        assert!(text.contains(said), "{said} in {text}");
    }
}

#[test]
fn space_is_bounded_unless_it_is_asked_otherwise() {
    for counting in ["paper", "engine"] {
        let mix = ["--lookups-zero", "0.05", "--updates", "0.95", "--counting", counting];
        let usual = design(&mix);
        assert!(number(&usual, "space_amplification") <= 2.0, "{usual}");
        assert_eq!(number(&usual, "max_space"), 2.0);
        let free = design(&[&mix[..], &["--max-space", "inf"]].concat());
        assert!(number(&free, "space_amplification") > 4.0, "it is the bound that keeps it: {free}");
        assert!(free["max_space"].is_null(), "{free}");
        assert!(number(&free, "throughput_per_s") > number(&usual, "throughput_per_s"));
        let four = design(&[&mix[..], &["--max-space", "4"]].concat());
        let space = number(&four, "space_amplification");
        assert!(space > 2.0 && space <= 4.0, "{four}");
        for found in [&usual, &free, &four] {
            assert!((2.0..=1024.0).contains(&number(found, "size_ratio")), "what the engine takes: {found}");
        }
        let compared = cost(&[
            "plan",
            "compare",
            "--entries",
            "10M",
            "--entry-bytes",
            "116",
            "--memory",
            "24MiB",
            "--lookups-zero",
            "0.05",
            "--updates",
            "0.95",
            "--counting",
            counting,
            "--with",
            "best",
        ]);
        assert_eq!(compared["second"]["size_ratio"], usual["size_ratio"], "the same bound");
    }
    let text = run(BASE.iter().chain(&["--lookups-zero", "0.5", "--updates", "0.5"])).ok();
    assert!(text.contains("space amplification of at most 2 (the default of --max-space)"), "{text}");
    let help = run(["plan", "design", "--help"]).ok();
    assert!(help.contains("--max-space") && help.contains("(default: 2"), "{help}");
    for bad in ["0.5", "NaN", "-1"] {
        let err = run(BASE.iter().chain(&["--max-space", bad])).fails(64);
        assert!(err.contains("--max-space"), "{err}");
    }
}

#[test]
fn a_robust_design_is_cheaper_in_its_worst_mix_and_dearer_in_the_expected_one() {
    let mix =
        ["--lookups-zero", "0.33", "--lookups-nonzero", "0.33", "--ranges", "0.33", "--updates", "0.01"];
    let nominal = design(&mix);
    assert!(nominal["robust"].is_null(), "{nominal}");
    let found = design(&[&mix[..], &["--uncertainty", "1"]].concat());
    let (robust, beside) = (&found["robust"], &found["robust"]["nominal"]);
    assert_eq!(number(robust, "uncertainty"), 1.0);
    assert_eq!(number(robust, "cost_ns_per_op"), number(&found, "cost_ns_per_op"));
    assert_eq!(number(beside, "cost_ns_per_op"), number(&nominal, "cost_ns_per_op"));
    assert_eq!(number(beside, "size_ratio"), number(&nominal, "size_ratio"));
    assert!(number(robust, "worst_cost_ns_per_op") < number(beside, "worst_cost_ns_per_op"), "{robust}");
    assert!(number(robust, "cost_ns_per_op") > number(beside, "cost_ns_per_op"), "{robust}");
    // `plan cost` gives the same for the worst mix with the same design, except for filters, which
    // are allocated by the mix.
    let shares = ["lookups_zero", "lookups_nonzero", "updates", "ranges"];
    let expected = [0.33, 0.33, 0.01, 0.33];
    for costs in [robust, beside] {
        let worst = shares.map(|share| number(&costs["worst_mix"], share));
        assert!((worst.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{costs}");
        let divergence: f64 =
            worst.iter().zip(expected).filter(|(v, _)| **v > 0.0).map(|(v, w)| v * (v / w).ln()).sum();
        assert!(divergence <= 1.0 + 1e-6 && divergence > 0.99, "{divergence}: {costs}");
    }
    for alternative in found["alternatives"].as_array().expect("alternatives") {
        assert!(number(alternative, "times_the_cost") > 0.97, "{alternative}");
    }
}

#[test]
fn an_uncertainty_is_explained_and_checked() {
    let text =
        run(BASE.iter().chain(&["--lookups-zero", "0.7", "--updates", "0.3", "--uncertainty", "0.5"])).ok();
    for said in ["worst mix within an uncertainty of 0.5", "robust: ", "expected mix only: "] {
        assert!(text.contains(said), "{said} in {text}");
    }
    for bad in ["-0.5", "NaN", "inf"] {
        let err = run(BASE.iter().chain(&["--lookups-zero", "1", "--uncertainty", bad])).fails(64);
        assert!(err.contains("--uncertainty"), "{err}");
    }
    let help = run(["plan", "design", "--help"]).ok();
    for said in ["--uncertainty", "Kullback-Leibler", "0.51"] {
        assert!(help.contains(said), "{said} in {help}");
    }
}
