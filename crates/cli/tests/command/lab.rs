//! `shamba lab`: the list, a run and what it leaves, the report, and what cannot be run.

use serde_json::Value;

use crate::support::{Dir, run};

/// Nothing is measured in it but what a hash takes.
const QUICK: &str = "hash-sharing-fig6";

#[test]
fn the_list_names_every_experiment_with_its_claim() {
    let list: Value = serde_json::from_str(&run(["lab", "list", "--json"]).ok()).expect("JSON");
    let list = list.as_array().expect("an array");
    for experiment in list {
        for field in ["id", "claim", "title", "paper", "place"] {
            assert!(experiment[field].as_str().is_some_and(|text| !text.is_empty()), "{field}: {experiment}");
        }
        assert!(!experiment["parameters"].as_array().expect("parameters").is_empty(), "{experiment}");
    }
    let text = run(["lab", "list"]).ok();
    assert!(list.iter().all(|experiment| text.contains(experiment["id"].as_str().expect("an id"))));
}

#[test]
fn a_run_leaves_a_table_a_picture_and_a_result_and_the_report_shows_them() {
    let dir = Dir::new();
    let out = dir.path("results");
    let told = run(["lab", "run", QUICK, "--out", &out, "--seed", "7"]).ok();
    assert!(told.contains(QUICK), "{told}");
    let read =
        |name: String| std::fs::read_to_string(std::path::Path::new(&out).join(name)).expect("written");
    let table = read(format!("{QUICK}.csv"));
    assert!(
        table.starts_with(&format!("# experiment: {QUICK}\n")) && table.contains("# seed: 7\n"),
        "{table}"
    );
    for fact in ["# commit: ", "# processor: ", "# version: ", "# claim: ", "# varied device: "] {
        assert!(table.contains(fact), "{fact} is not in the table's head");
    }
    assert!(read(format!("{QUICK}.svg")).starts_with("<svg"));
    run(["lab", "report", "--out", &out]).ok();
    for name in ["index.html", "README.md"] {
        assert!(read(name.to_owned()).contains(&format!("{QUICK}.svg")), "{name}");
    }
}

#[test]
fn what_cannot_be_run_is_said() {
    let error = run(["lab", "run", "hash-sharing-fig8"]).fails(64);
    assert!(error.contains("hash-sharing-fig8a"), "{error}");
    run(["lab", "run"]).fails(64);
    run(["lab", "run", QUICK, "--repeats", "0"]).fails(64);
    run(["lab", "run", QUICK, "--scale", "huge"]).fails(64);
    let dir = Dir::new();
    assert!(run(["lab", "report", "--out", &dir.path("none")]).fails(3).contains("none"));
}
