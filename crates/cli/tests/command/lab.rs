//! `shamba lab`: the list, a run and what it leaves, the report, and what cannot be run.

use serde_json::Value;

use crate::support::{Dir, run};

/// Nothing is measured in it but what a hash takes.
const QUICK: &str = "hash-sharing-fig6";

#[test]
fn the_list_names_every_experiment_with_its_claim() {
    let list: Value = serde_json::from_str(&run(["lab", "list", "--json"]).ok()).expect("JSON");
    let list = list.as_array().expect("an array");
    assert!(list.len() >= 45, "every figure and table of the papers: {}", list.len());
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
    let left = || {
        let mut names: Vec<_> = std::fs::read_dir(&out)
            .expect("a folder")
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"))
            .collect();
        names.sort();
        names
    };
    assert_eq!(
        left(),
        ["csv", "json", "svg"].map(|suffix| format!("{QUICK}.{suffix}")),
        "no database is left"
    );
    let readme = std::path::Path::new(&out).join("README.md");
    std::fs::write(&readme, "a page of others").expect("written");
    let error = run(["lab", "report", "--out", &out]).fails(3);
    assert!(error.contains("no report") && error.contains("README.md"), "{error}");
    std::fs::remove_file(&readme).expect("removed");
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
    let error = run(["lab", "report", "--out", &dir.path("none")]).fails(3);
    assert!(error.contains("no report") && error.contains("none"), "{error}");
}

#[test]
fn generated_workloads_are_replayed_and_answer_as_they_say() {
    let dir = Dir::new();
    let (db, file) = (dir.path("db"), dir.path("mix.txt"));
    let options = "-I 400 -U 50 -D 20 -R 1 -y 0.01 -Q 300 -S 5 -Y 0.02 -Z 0.4 -z 0.5 -E 64 -L 0.25 --UZ 0.3 --UE 0.2 \
                   --ID 1 --ID_NDEV 5 --UD 2 --UD_BALPHA 2 --ED 3 --ED_ZALPHA 0.8 --ZD 1 --ZD_NMP 0.3 --answers --json";
    let args = || ["lab", "generate", "--out", &file].into_iter().chain(options.split_whitespace());
    let made: Value = serde_json::from_str(&run(args()).ok()).expect("JSON");
    assert_eq!((&made["operations"], &made["empty_lookups"]), (&776.into(), &120.into()));
    run(args()).fails(3);
    let out = run(["bench", &db, "replay", "--trace", &file, "--check-answers", "--json"]).ok();
    let result: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((&result["ops"], &result["answers_checked"]), (&776.into(), &300.into()));
    assert_eq!(run(["dump", &db]).ok().lines().count() as u64, made["live_keys"].as_u64().expect("a count"));
}

#[test]
fn workloads_of_the_papers_come_in_parts() {
    let dir = Dir::new();
    let (db, out) = (dir.path("db"), dir.path("shifting"));
    let shifting = ["--workload", "shifting", "--divide", "20000", "--lengths", "--answers"];
    let told = run(["lab", "generate", "--out", &out].iter().chain(&shifting)).ok();
    assert_eq!(told.lines().count(), 4, "{told}");
    for (part, found) in [("load", 0.0), ("none-empty", 1.0), ("half-empty", 0.5), ("all-empty", 0.0)] {
        let file = format!("{out}.{part}");
        let out = run(["bench", &db, "replay", "--trace", &file, "--check-answers", "--json"]).ok();
        let result: Value = serde_json::from_str(&out).expect("JSON");
        assert_eq!(result["found_share"], found, "{part}");
    }
    // What comes before can be another file.
    let (load, more) = (dir.path("load"), dir.path("more"));
    run(["lab", "generate", "--out", &load, "-I", "50", "-E", "40"]).ok();
    run(["lab", "generate", "--out", &more, "--preload", &load, "-Q", "20", "-E", "40", "--answers"]).ok();
    let db = dir.path("other");
    run(["bench", &db, "replay", "--trace", &load]).ok();
    run(["bench", &db, "replay", "--trace", &more, "--check-answers"]).ok();
    let error = run(["lab", "generate", "--out", &dir.path("x"), "--preload", &load, "-Q", "9", "-E", "60"])
        .fails(65);
    assert!(error.contains("line 1"), "{error}");
    let error = run(["lab", "generate", "--out", &dir.path("x"), "-Q", "1"]).fails(64);
    assert!(error.contains("-I"), "{error}");
    assert!(!std::path::Path::new(&dir.path("x")).exists(), "what cannot be made leaves no file");
}
