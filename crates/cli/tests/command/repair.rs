//! Tests of `repair`, and of `check` on databases that cannot be opened: one run lists all
//! problems, and a new database has the remaining data.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::{Dir, files, flip, run};

/// Contents of every file, by name.
fn contents(db: &str) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(db).expect("the directory is there");
    let paths = files.map(|entry| entry.expect("readable").path()).filter(|path| path.is_file());
    paths.map(|path| (path.display().to_string(), fs::read(&path).expect("readable"))).collect()
}

fn named(problems: &Value, file: &Path) -> usize {
    let name = file.display().to_string();
    problems.as_array().expect("problems").iter().filter(|problem| problem["file"] == name.as_str()).count()
}

#[test]
fn check_reports_everything_at_once() {
    let dir = Dir::new();
    let db = dir.database("db", 3000);
    run(["put", &db, "last", "write"]).ok();
    let tables = files(&db, "sst");
    assert!(tables.len() >= 3, "{tables:?}");
    // Three structures of one table and one of another are damaged, a third table is missing, a
    // log is damaged, and a directory has the name of a table.
    flip(&tables[0], 100, 1);
    let bytes = fs::metadata(&tables[0]).expect("readable").len();
    flip(&tables[0], bytes as usize - 100, 1);
    flip(&tables[0], 4200, 1);
    flip(&tables[1], 4200, 1);
    fs::remove_file(&tables[2]).expect("removable");
    let log = files(&db, "log").pop().expect("a log");
    flip(&log, 60, 1);
    let place = Path::new(&db).join("000999.sst");
    fs::create_dir(&place).expect("made");
    let check = run(["check", &db, "--json"]);
    assert_eq!(check.code, 2, "{check:?}");
    let report = check.json();
    assert_eq!(report["opened"], false);
    let problems = &report["problems"];
    assert!(named(problems, &tables[0]) >= 3, "{problems:#}");
    for file in [&tables[1], &tables[2], &log, &place] {
        assert_eq!(named(problems, file), 1, "{}: {problems:#}", file.display());
    }
    for problem in problems.as_array().expect("problems") {
        for field in ["structure", "detail", "affected"] {
            assert!(problem[field].as_str().is_some_and(|text| !text.is_empty()), "{problem}");
        }
    }
}

#[test]
fn check_goes_on_without_current() {
    let dir = Dir::new();
    let db = dir.database("db", 2000);
    let tables = files(&db, "sst");
    flip(&tables[0], 4200, 1);
    fs::remove_file(Path::new(&db).join("CURRENT")).expect("removable");
    let check = run(["check", &db, "--json"]);
    assert_eq!(check.code, 2, "{check:?}");
    let report = check.json();
    assert_eq!(named(&report["problems"], &tables[0]), 1, "{report:#}");
    assert_eq!(named(&report["problems"], &Path::new(&db).join("CURRENT")), 1, "{report:#}");
    assert_eq!(report["tables"].as_u64(), Some(tables.len() as u64));
}

#[test]
fn repair_keeps_what_is_whole_and_tells_the_rest() {
    let dir = Dir::new();
    let db = dir.database("db", 2000);
    run(["put", &db, "last", "write"]).ok();
    let dump = run(["dump", &db]).ok();
    let table = files(&db, "sst").remove(0);
    flip(&table, 4200, 1);
    let before = contents(&db);
    let out = dir.path("new");
    let text = run(["repair", &db, "--out", &out]).ok();
    assert!(text.contains("lost: entries of keyspace \"default\", keys from \""), "{text}");
    assert!(text.contains("1 range with losses: "), "{text}");
    assert!(run(["check", &out]).ok().starts_with("no damage: "));
    let left = run(["dump", &out]).ok();
    let whole: Vec<&str> = dump.lines().collect();
    assert!(left.lines().all(|line| whole.contains(&line)), "nothing is made up");
    let (kept, all) = (left.lines().count(), whole.len());
    assert!(kept < all && kept * 2 > all, "{kept} of {all}");
    assert!(run(["get", &out, "last"]).ok().contains("write"));

    let err = run(["repair", &db, "--out", &out]).fails(64);
    assert!(err.contains("is not empty"), "{err}");
    let err = run(["repair", &db, "--out", &format!("{db}/inside")]).fails(64);
    assert!(err.contains("which repair does not change"), "{err}");
    assert!(err.contains("outside the damaged database"), "{err}");
    run(["repair", &dir.path("nowhere"), "--out", &dir.path("other")]).fails(3);
    assert_eq!(contents(&db), before, "the original stays as it was");
}

#[test]
fn a_database_without_current_and_manifest_is_repaired_whole() {
    let dir = Dir::new();
    let db = dir.database("db", 2000);
    run(["put", &db, "last", "write"]).ok();
    let dump = run(["dump", &db]).ok();
    fs::remove_file(Path::new(&db).join("CURRENT")).expect("removable");
    files(&db, "MANIFEST-").iter().for_each(|file| fs::remove_file(file).expect("removable"));
    let out = dir.path("new");
    let object = run(["repair", &db, "--out", &out, "--json"]);
    let report = object.json();
    assert_eq!((object.code, report["manifest"].as_bool()), (0, Some(false)), "{report:#}");
    // It is no longer known which deletes compactions have applied.
    assert_eq!(report["lost"][0]["loss"], "deletions", "{report:#}");
    assert_eq!(run(["dump", &out]).ok(), dump);
}

#[test]
fn a_repair_that_reads_nothing_says_so() {
    let dir = Dir::new();
    let junk = dir.path("junk");
    fs::create_dir(&junk).expect("made");
    for name in ["CURRENT", "MANIFEST-000003", "000004.sst", "000005.log"] {
        fs::write(Path::new(&junk).join(name), [0x5a; 5000]).expect("written");
    }
    let out = dir.path("out");
    let repaired = run(["repair", &junk, "--out", &out]);
    assert_eq!(repaired.code, 2, "{repaired:?}");
    assert!(repaired.out.contains("nothing was recovered"), "{repaired:?}");
    let repaired = run(["repair", &junk, "--out", &dir.path("other"), "--json"]);
    assert_eq!((repaired.code, &repaired.json()["entries_read"]), (2, &Value::from(0)), "{repaired:?}");
    // An empty database is not damaged.
    let (empty, key) = (dir.path("empty"), "key");
    run(["put", &empty, key, "value"]).ok();
    run(["delete", &empty, key]).ok();
    run(["compact", &empty]).ok();
    run(["repair", &empty, "--out", &dir.path("of empty")]).ok();
}
