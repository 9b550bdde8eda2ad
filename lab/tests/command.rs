//! `shamba-lab`: the list, a run and what it leaves, the report, and what cannot be run.

use serde_json::Value;

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
    assert!(list.len() >= 45, "every figure and table of the papers: {}", list.len());
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
fn a_run_leaves_a_table_a_picture_and_a_result_and_the_report_shows_them() {
    let dir = Dir::new();
    let out = dir.path("results");
    let told = run(["run", QUICK, "--out", &out, "--seed", "7"]).ok();
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
    let error = run(["report", "--out", &out]).fails(3);
    assert!(error.contains("no report") && error.contains("README.md"), "{error}");
    std::fs::remove_file(&readme).expect("removed");
    run(["report", "--out", &out]).ok();
    for name in ["index.html", "README.md"] {
        assert!(read(name.to_owned()).contains(&format!("{QUICK}.svg")), "{name}");
    }
}

#[test]
fn what_cannot_be_run_is_said() {
    let error = run(["run", "hash-sharing-fig8"]).fails(64);
    assert!(error.contains("hash-sharing-fig8a"), "{error}");
    run(["run"]).fails(64);
    run(["run", QUICK, "--repeats", "0"]).fails(64);
    run(["run", QUICK, "--scale", "huge"]).fails(64);
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
    // What comes before can be another file.
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
