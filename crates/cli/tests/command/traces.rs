//! Commands that fail leave no files behind.

use std::fs;

use crate::support::{Dir, contents, run};

#[test]
fn what_needs_a_database_makes_nothing_where_there_is_none() {
    let dir = Dir::new();
    let (none, empty, other) = (dir.path("none"), dir.path("empty"), dir.path("other"));
    fs::create_dir(&empty).expect("mkdir");
    for db in [&none, &empty] {
        for args in [vec!["compact", db], vec!["delete", db, "k"], vec!["checkpoint", db, &other]] {
            run(&args).fails(3);
        }
    }
    assert_eq!(contents(&empty), []);
    assert!(!fs::exists(&none).expect("readable") && !fs::exists(&other).expect("readable"));
}

#[test]
fn a_wrong_option_makes_nothing() {
    let dir = Dir::new();
    let (none, empty) = (dir.path("none"), dir.path("empty"));
    fs::create_dir(&empty).expect("mkdir");
    for db in [&none, &empty] {
        run(["put", db, "k", "v", "--memory-budget", "1KiB"]).fails(64);
        // Also without input: the command line is checked first.
        run(["batch", db, "--file-size", "1"]).fails(64);
    }
    assert_eq!(contents(&empty), []);
    assert!(!fs::exists(&none).expect("readable"));
}

#[test]
fn a_checkpoint_makes_no_directories_above_its_own() {
    let dir = Dir::new();
    let db = dir.database("db", 100);
    let (above, target) = (dir.path("nope"), dir.path("nope/x"));
    let err = run(["checkpoint", &db, &target]).fails(3);
    assert!(err.contains(&target) && err.contains(&format!("{above} does not exist")), "{err}");
    assert!(!fs::exists(&above).expect("readable"));
    let beside = dir.path("copy");
    run(["checkpoint", &db, &beside]).ok();
    assert_eq!(run(["get", &beside, "key00007"]).ok(), "value of 7\n");
}
