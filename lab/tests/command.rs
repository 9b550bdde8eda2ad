//! `shamba-lab`: the list, a run and what it leaves, the report, and what cannot be run.

use serde_json::Value;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use shamba::Db;
use shamba_workload::{BenchResult, Options, Progress, Workload};

/// Output of a command that ended.
struct Ended {
    code: i32,
    out: String,
    err: String,
}

impl Ended {
    fn ok(self) -> String {
        assert_eq!(self.code, 0, "{}{}", self.out, self.err);
        self.out
    }

    fn fails(self, code: i32) -> String {
        assert_eq!(self.code, code, "{}{}", self.out, self.err);
        self.err
    }
}

fn run<'a>(words: impl IntoIterator<Item = &'a str>) -> Ended {
    let output = Command::new(env!("CARGO_BIN_EXE_shamba-lab")).args(words).output().expect("it starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    Ended {
        code: output.status.code().expect("no signal"),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}

/// A folder that goes with the value.
struct Dir(tempfile::TempDir);

impl Dir {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().expect("text").to_owned()
    }
}

/// Replays a trace against a database: the result, and how many entries the database has then.
fn replay(db: &str, file: &str) -> (BenchResult, u64) {
    let db = Db::open(db).expect("opened");
    let options = Options { trace: Some(Path::new(file).to_owned()), ..Options::default() };
    let result =
        shamba_workload::run(&db, Workload::Replay, &options, &Progress::default()).expect("carried out");
    let live = db.iter().filter(|pair| pair.is_ok()).count();
    db.close().expect("closed");
    assert_eq!(result.answers_wrong, 0, "{file}");
    (result, live as u64)
}

/// Nothing is measured in it but what a hash takes.
const QUICK: &str = "hash-sharing-fig6";

#[test]
fn the_list_names_every_experiment_with_its_claim() {
    let list: Value = serde_json::from_str(&run(["list", "--json"]).ok()).expect("JSON");
    let list = list.as_array().expect("an array");
    for experiment in list {
        for field in ["id", "claim", "title", "paper", "place"] {
            assert!(experiment[field].as_str().is_some_and(|text| !text.is_empty()), "{field}: {experiment}");
        }
        assert!(!experiment["parameters"].as_array().expect("parameters").is_empty(), "{experiment}");
    }
    let text = run(["list"]).ok();
    assert!(list.iter().all(|experiment| text.contains(experiment["id"].as_str().expect("an id"))));
}

#[test]
fn a_run_leaves_rows_a_picture_and_a_result_and_the_report_shows_them() {
    let dir = Dir::new();
    let out = dir.path("results");
    let told = run(["run", QUICK, "--out", &out, "--seed", "7"]).ok();
    assert!(told.contains(QUICK) && told.contains("claimed at least"), "{told}");
    let folder = Path::new(&out);
    let read = |name: &str| std::fs::read(folder.join(name)).expect("written");
    assert!(read(&format!("quick/{QUICK}.svg")).starts_with(b"<svg"));
    assert!(read(&format!("quick/{QUICK}.csv.gz")).starts_with(&[0x1f, 0x8b]), "compressed");
    let result: Value = serde_json::from_slice(&read(&format!("quick/{QUICK}.json"))).expect("JSON");
    assert_eq!((&result["schema"], &result["seeds"]), (&"shamba.lab/2".into(), &serde_json::json!([7])));
    let left = |path: &Path| {
        let mut names: Vec<_> = std::fs::read_dir(path)
            .expect("a folder")
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"))
            .collect();
        names.sort();
        names
    };
    assert_eq!(left(folder), ["quick"], "no database is left");
    assert_eq!(
        left(&folder.join("quick")),
        ["csv.gz", "json", "svg"].map(|suffix| format!("{QUICK}.{suffix}"))
    );
    std::fs::write(folder.join("README.md"), "a page of others").expect("written");
    let error = run(["report", "--out", &out]).fails(3);
    assert!(error.contains("no report") && error.contains("README.md"), "{error}");
    std::fs::remove_file(folder.join("README.md")).expect("removed");
    run(["report", "--out", &out]).ok();
    for name in ["index.html", "hash-sharing.md"] {
        let page = String::from_utf8(read(name)).expect("text");
        assert!(page.contains(&format!("quick/{QUICK}.svg")), "{name}");
    }
}

/// Adds the names of all fields of an object, those of objects within it included.
fn names(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                found.insert(name.clone());
                names(value, found);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| names(value, found)),
        _ => {}
    }
}

#[test]
fn every_schema_and_field_is_described() {
    const PAGE: &str = include_str!("../../docs/json.md");
    let dir = Dir::new();
    let (workload, results) = (dir.path("workload.txt"), dir.path("results"));
    let commands: [&[&str]; 3] = [
        &["list", "--json"],
        &["run", QUICK, "--seeds", "1", "--out", &results, "--json"],
        &["generate", "--out", &workload, "-I", "10", "--json"],
    ];
    for words in commands {
        let out = run(words.iter().copied()).ok();
        let printed: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{words:?}: {error}"));
        let object = printed.get(0).unwrap_or(&printed);
        let schema = object["schema"].as_str().unwrap_or_else(|| panic!("{words:?}: {object}"));
        assert!(PAGE.contains(&format!("`{schema}`")), "{schema} is not described");
        let mut found = BTreeSet::new();
        names(object, &mut found);
        for name in found {
            assert!(PAGE.contains(&format!("`{name}`")), "{words:?}: field {name} is not described");
        }
    }
}

#[test]
fn wrong_arguments_are_named() {
    let error = run(["run", "fig12"]).fails(64);
    assert!(error.contains("hash-sharing-fig12"), "{error}");
    run(["run"]).fails(64);
    run(["run", QUICK, "--seeds", "0"]).fails(64);
    run(["run", QUICK, "--scale", "huge"]).fails(64);
    let error = run(["check", "nothing"]).fails(64);
    assert!(error.contains("unknown check \"nothing\"") && error.contains("overload"), "{error}");
    let error = run(["check", "reopen", "--sedes", "3"]).fails(64);
    assert!(error.contains("no option --sedes"), "{error}");
    let dir = Dir::new();
    let error = run(["report", "--out", &dir.path("none")]).fails(3);
    assert!(error.contains("no report") && error.contains("none"), "{error}");
}

#[test]
fn generated_workloads_are_replayed_and_answer_as_they_say() {
    let dir = Dir::new();
    let (db, file) = (dir.path("db"), dir.path("mix.txt"));
    let options = "-I 400 -U 50 -D 20 -R 1 -y 0.01 -Q 300 -S 5 -Y 0.02 -Z 0.4 -z 0.5 -E 64 -L 0.25 --UZ 0.3 --UE 0.2 \
                   --ID 1 --ID_NDEV 5 --UD 2 --UD_BALPHA 2 --ED 3 --ED_ZALPHA 0.8 --ZD 1 --ZD_NMP 0.3 --answers --json";
    let args = || ["generate", "--out", &file].into_iter().chain(options.split_whitespace());
    let made: Value = serde_json::from_str(&run(args()).ok()).expect("JSON");
    assert_eq!((&made["operations"], &made["empty_lookups"]), (&776.into(), &120.into()));
    run(args()).fails(3);
    let (result, live) = replay(&db, &file);
    assert_eq!((result.ops, result.answers_checked), (776, 300));
    assert_eq!(live, made["live_keys"].as_u64().expect("a count"));
}

#[test]
fn workloads_of_the_papers_come_in_parts() {
    let dir = Dir::new();
    let (db, out) = (dir.path("db"), dir.path("shifting"));
    let shifting = ["--workload", "shifting", "--divide", "20000", "--lengths", "--answers"];
    let told = run(["generate", "--out", &out].into_iter().chain(shifting)).ok();
    assert_eq!(told.lines().count(), 4, "{told}");
    for (part, found) in [("load", 0.0), ("none-empty", 1.0), ("half-empty", 0.5), ("all-empty", 0.0)] {
        let file = format!("{out}.{part}");
        assert_eq!(replay(&db, &file).0.found_share, found, "{part}");
    }
    // The file of earlier keys can be another file.
    let (load, more) = (dir.path("load"), dir.path("more"));
    run(["generate", "--out", &load, "-I", "50", "-E", "40"]).ok();
    run(["generate", "--out", &more, "--preload", &load, "-Q", "20", "-E", "40", "--answers"]).ok();
    let db = dir.path("other");
    replay(&db, &load);
    assert_eq!(replay(&db, &more).0.answers_checked, 20);
    let error =
        run(["generate", "--out", &dir.path("x"), "--preload", &load, "-Q", "9", "-E", "60"]).fails(65);
    assert!(error.contains("line 1"), "{error}");
    let error = run(["generate", "--out", &dir.path("x"), "-Q", "1"]).fails(64);
    assert!(error.contains("-I"), "{error}");
    assert!(!std::path::Path::new(&dir.path("x")).exists(), "what cannot be made leaves no file");
}
