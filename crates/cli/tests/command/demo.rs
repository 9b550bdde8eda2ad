//! Tests of demo: small runs, whose counts must add up.

use std::os::unix::ffi::OsStrExt;

use crate::support::{Dir, run};

#[test]
fn made_up_paths_are_all_found_again() {
    let run = run(["demo", "--synthetic", "2000", "--json"]);
    assert_eq!(run.code, 0, "{run:?}");
    let object = run.json();
    assert_eq!(object["schema"], "shamba.demo/1");
    assert_eq!((object["paths"].as_u64(), object["mismatches"].as_u64()), (Some(2000), Some(0)));
    let policies = object["policies"].as_array().expect("policies");
    let names: Vec<&str> = policies.iter().filter_map(|policy| policy["policy"].as_str()).collect();
    assert_eq!(names, ["leveling", "tiering", "lazy-leveling"]);
    for policy in policies {
        assert!(policy["deepest_level"].as_u64() >= Some(5), "{}", policy["policy"]);
        let checked = &policy["verification"];
        assert_eq!((checked["entries"].as_u64(), checked["lookups"].as_u64()), (Some(2000), Some(12_000)));
        for lookups in policy["lookups"].as_array().expect("lookups") {
            let (hashes, filters) = (lookups["hashes"].as_u64(), lookups["filters_consulted"].as_u64());
            let count = lookups["lookups"].as_u64();
            let existing = lookups["keys"] == "existing";
            assert_eq!(count, Some(2000));
            assert_eq!(lookups["found"].as_u64(), if existing { count } else { Some(0) });
            if lookups["hash_sharing"] == true {
                assert_eq!(hashes, count, "one hash per lookup");
            } else {
                assert!(hashes >= filters && hashes >= count, "a hash for every filter: {lookups}");
            }
        }
    }
}

#[test]
fn a_directory_tree_and_a_place_to_keep_it() {
    let dir = Dir::new();
    let tree = std::path::PathBuf::from(dir.path("tree"));
    std::fs::create_dir_all(tree.join("a/b/c")).expect("mkdir");
    for number in 0..50 {
        std::fs::write(tree.join(format!("a/b/file {number}")), b"x").expect("write");
    }
    let odd = tree.join(std::ffi::OsStr::from_bytes(b"a/not\xffutf8\n"));
    std::fs::write(&odd, b"12345").expect("write");
    let (tree, kept) = (dir.path("tree"), dir.path("kept"));
    let report = run(["demo", &tree, "--db", &kept]).ok();
    assert!(report.contains("0 mismatches"), "{report}");
    assert!(report.contains("filter says") || report.contains("memtable"), "{report}");
    let db = format!("{kept}/leveling");
    let key = format!("{tree}/a/not\\xffutf8\\x0a");
    assert!(run(["get", &db, &key]).ok().contains(" size=5 "), "its metadata is stored");
    let scan = run(["scan", &db, "--prefix", &format!("{tree}/a/b/file")]).ok();
    assert_eq!(scan.lines().count(), 50);
    run(["demo", &tree, "--db", &kept]).fails(64);
}

#[test]
fn what_cannot_be_walked() {
    let dir = Dir::new();
    run(["demo", &dir.path("missing")]).fails(3);
    run(["demo", "--synthetic", "0"]).fails(64);
    run(["demo", "--synthetic", "10", &dir.path("missing")]).fails(64);
}
