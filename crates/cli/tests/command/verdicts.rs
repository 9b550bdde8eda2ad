//! One verdict per file: a file that reads reject as damaged is also damaged for `check`, `wal`,
//! `manifest` and the writing commands; a problem that leaves every answer right is a warning.

use std::fs::{self, OpenOptions};
use std::path::Path;

use crate::support::{Dir, command, files, finish, flip, run, run_with};

fn cut(file: &Path, bytes: u64) {
    let file = OpenOptions::new().write(true).open(file).expect("writable");
    file.set_len(bytes).expect("it can be cut");
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn a_manifest_cut_inside_its_snapshot_is_corrupt() {
    let dir = Dir::new();
    let db = dir.database("db", 500);
    let manifest = files(&db, "MANIFEST-").pop().expect("a manifest");
    cut(&manifest, 200);
    run(["get", &db, "key00001"]).fails(2);
    for path in [&db, &text(&manifest)] {
        let described = run(["manifest", path]);
        assert_eq!(described.code, 2, "{described:?}");
        assert!(
            described.out.contains("CORRUPT at offset 48") && described.out.contains("snapshot"),
            "{described:?}"
        );
    }
    let object = run(["manifest", &db, "--json"]);
    assert_eq!((object.code, object.json()["ending"]["kind"].as_str()), (2, Some("corrupt")));
    cut(&manifest, 48);
    assert_eq!(run(["manifest", &db]).code, 2, "nothing behind the header");
    fs::remove_file(&manifest).expect("removable");
    let err = run(["manifest", &db]).fails(2);
    assert!(err.contains("CURRENT names it"), "{err}");
}

/// The exit code tells what was found, also if nobody reads the report.
#[test]
fn a_report_that_nobody_reads_has_its_exit_code() {
    let dir = Dir::new();
    let db = dir.path("db");
    // More than a pipe and the command hold.
    let lines: String = (0..4_000).map(|number| format!("put {number:0100} v\n")).collect();
    run_with(["batch", &db], lines.as_bytes()).ok();
    let log = files(&db, "log").pop().expect("a log");
    let offset = fs::metadata(&log).expect("readable").len() as usize - 20;
    flip(&log, offset, 1);
    for (args, code) in [(["wal", &text(&log)], 2), (["dump", &db], 2)] {
        let unread = || {
            let mut child = command(args).spawn().expect("starts");
            drop(child.stdout.take());
            finish(child)
        };
        let run = unread();
        assert_eq!(run.code, code, "{args:?}: {run:?}");
    }
    flip(&log, offset, 1);
    for args in [["wal", &text(&log)], ["dump", &db]] {
        let mut child = command(args).spawn().expect("starts");
        drop(child.stdout.take());
        assert_eq!(finish(child).code, 0, "{args:?}: nothing is damaged");
    }
}

#[test]
fn a_manifest_under_the_name_of_another_is_corrupt() {
    let dir = Dir::new();
    let (db, other) = (dir.database("db", 50), dir.database("other", 50));
    let name = files(&db, "MANIFEST-").pop().expect("a manifest");
    fs::copy(files(&other, "MANIFEST-").pop().expect("a manifest"), &name).expect("writable");
    run(["get", &db, "key00001"]).fails(2);
    let err = run(["manifest", &db]).fails(2);
    assert!(err.contains("names another file of that name"), "{err}");
}

#[test]
fn a_log_is_held_to_what_the_other_files_promise() {
    let dir = Dir::new();
    let db = dir.path("db");
    run(["put", &db, "k", "v"]).ok();
    let log = files(&db, "log").pop().expect("a log");
    let whole = fs::metadata(&log).expect("readable").len();
    let mut verdicts = Vec::new();
    for bytes in (48..whole).rev() {
        let good = fs::read(&log).expect("readable");
        cut(&log, bytes);
        // The manifest records every byte of it as durable.
        run(["get", &db, "k"]).fails(2);
        let described = run(["wal", &text(&log)]);
        assert_eq!(described.code, 2, "{bytes} bytes: {described:?}");
        verdicts.push(described.out.contains("the manifest promises"));
        fs::write(&log, good).expect("writable");
    }
    assert!(verdicts.contains(&true), "the reason is told");
    // Alone, under another name, only the log's own frames say what is durable.
    let alone = dir.path("alone.log");
    fs::copy(&log, &alone).expect("writable");
    cut(Path::new(&alone), whole - 1);
    assert!(run(["wal", &alone]).ok().contains("torn tail"));
    run(["wal", &text(&log)]).ok();
}

#[test]
fn a_lost_current_is_one_verdict_for_all() {
    let dir = Dir::new();
    let db = dir.database("db", 500);
    fs::remove_file(format!("{db}/CURRENT")).expect("removable");
    let before = crate::support::contents(&db);
    let other = dir.path("other");
    for args in [
        vec!["get", &db, "k"],
        vec!["put", &db, "k", "v"],
        vec!["delete", &db, "k"],
        vec!["compact", &db],
        vec!["checkpoint", &db, &other],
        vec!["bench", &db, "fillseq"],
        vec!["manifest", &db],
    ] {
        let err = run(&args).fails(2);
        assert!(err.contains("CURRENT") && err.contains("belongs to a database"), "{args:?}: {err}");
    }
    let check = run(["check", &db]);
    assert!(check.code == 2 && check.out.contains("belongs to a database"), "{check:?}");
    assert!(before == crate::support::contents(&db), "nothing was touched");
    let foreign = dir.path("foreign");
    fs::create_dir(&foreign).expect("mkdir");
    fs::write(format!("{foreign}/letter.txt"), b"dear").expect("writable");
    let err = run(["put", &foreign, "k", "v"]).fails(64);
    assert!(err.contains("needs an empty directory"), "{err}");
}

#[test]
fn check_goes_on_after_a_file_of_an_unknown_version() {
    let dir = Dir::new();
    let db = dir.database("db", 3000);
    let tables = files(&db, "sst");
    assert!(tables.len() >= 3, "{tables:?}");
    let name = |path: &Path| path.file_name().expect("named").to_string_lossy().into_owned();
    flip(&tables[0], 8, 0x02);
    let check = run(["check", &db]);
    assert_eq!(check.code, 5, "{check:?}");
    assert!(check.out.contains(&name(&tables[0])) && check.out.contains("1 problem: "), "{check:?}");
    assert!(
        check.out.contains(&format!("{} tables with", tables.len() - 1)),
        "the others were read: {check:?}"
    );
    let object = run(["check", &db, "--json"]);
    assert_eq!((object.code, object.json()["problems"].as_array().map(Vec::len)), (5, Some(1)));
    assert!(
        object.json()["problems"][0]["file"].as_str().is_some_and(|file| file.ends_with(".sst")),
        "{object:?}"
    );
    flip(&tables[1], 4096 + 100, 0x40);
    let check = run(["check", &db]);
    assert_eq!(check.code, 2, "{check:?}");
    for table in &tables[..2] {
        assert!(check.out.contains(&name(table)), "{check:?}");
    }
}

#[test]
fn check_counts_what_is_only_in_the_log() {
    let dir = Dir::new();
    let db = dir.path("db");
    run(["put", &db, "k", "v"]).ok();
    let text = run(["check", &db]).ok();
    assert!(
        text.starts_with("no damage: 0 tables with 0 entries, 1 log with 1 batch of 1 operation, "),
        "{text}"
    );
    assert!(!text.contains(" 0 B checked"), "{text}");
    let report = run(["check", &db, "--json"]).json();
    for (field, count) in [("logs", 1), ("log_batches", 1), ("log_operations", 1), ("tables", 0)] {
        assert_eq!(report[field], count, "{field}");
    }
    let on_disk: u64 = ["log", "MANIFEST-"]
        .iter()
        .flat_map(|kind| files(&db, kind))
        .map(|file| fs::metadata(file).expect("readable").len())
        .sum();
    assert_eq!(report["bytes_checked"].as_u64(), Some(on_disk));
}

#[test]
fn a_damaged_filter_is_a_warning_and_no_problem() {
    let dir = Dir::new();
    let db = dir.database("db", 2000);
    let table = files(&db, "sst").pop().expect("a table");
    let described = run(["table", &text(&table), "--json"]).json();
    let sections = described["sections"].as_array().expect("sections").clone();
    let filter = sections.iter().find(|section| section["section"] == "filter").expect("a filter");
    let inside =
        filter["offset"].as_u64().expect("a number") + filter["bytes"].as_u64().expect("a number") / 2;
    flip(&table, inside as usize, 0x10);
    let check = run(["check", &db]);
    assert_eq!(check.code, 0, "{check:?}");
    assert!(check.out.starts_with("no damage: "), "{check:?}");
    assert_eq!(check.err.matches("filter slice").count(), 1, "one thing, said once: {check:?}");
    let object = run(["check", &db, "--json"]).json();
    assert_eq!(
        (object["clean"].as_bool(), object["warnings"].as_array().map(Vec::len)),
        (Some(true), Some(1))
    );
    assert_eq!(run(["get", &db, "key00001"]).out, "value of 1\n");
}
