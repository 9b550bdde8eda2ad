//! Compares `docs/json.md` with the output of the commands: every schema and field must be
//! described.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::{Dir, files, flip, run, run_with};

const PAGE: &str = include_str!("../../../../docs/json.md");

/// Objects whose field names are data, not part of the schema.
const MAPS: [&str; 7] = [
    "parts",
    "options",
    "keyspace_options",
    "merge_operators",
    "prefix_extractors",
    "compaction_filters",
    "fifo",
];

fn names(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                found.insert(name.clone());
                if !MAPS.contains(&name.as_str()) {
                    names(value, found);
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| names(value, found)),
        _ => {}
    }
}

#[test]
fn every_schema_and_field_is_described() {
    let dir = Dir::new();
    let db = dir.database("db", 1500);
    run_with(["batch", &db], b"delrange key00100 key00200\ndel key00300\nflush\nput late 1\n").ok();
    run(["merge", &db, "merged", "1", "--merge-operator", "shamba.max"]).ok();
    let table = files(&db, "sst").remove(0).display().to_string();
    let log = files(&db, "log").pop().expect("a log").display().to_string();
    let (loaded, bench) = (dir.path("loaded"), dir.path("bench"));
    let options = dir.path("OPTIONS");
    let text = "[CFOptions \"default\"]\n[TableOptions/BlockBasedTable \"default\"]\n";
    std::fs::write(&options, text).expect("writable");
    let (damaged, repaired) = (dir.database("damaged", 300), dir.path("repaired"));
    let broken = files(&damaged, "sst").remove(0);
    flip(&broken, 4200, 1);
    let commands: [&[&str]; 26] = [
        &["get", &db, "late", "--ttl"],
        &["scan", &db, "--limit", "1"],
        &["dump", &db],
        &["load", &loaded],
        &["explain", &db, "key00001"],
        &["explain", &db, "key00300"],
        &["explain", &db, "merged"],
        &["explain", &db, "key", "--prefix"],
        &["tree", &db],
        &["stats", &db],
        &["memory", &db],
        &["tune", &db, "--dry-run"],
        &["check", &db],
        &["check", &db, "--layout"],
        &["repair", &damaged, "--out", &repaired],
        &["table", &table],
        &["wal", &log],
        &["manifest", &db],
        &["bench", &bench, "fillseq", "readrandom", "--num", "100"],
        &["demo", "--synthetic", "50"],
        &["explain", &db, "absent"],
        &["plan", "cost", "--entries", "1000", "--entry-bytes", "100"],
        &["plan", "design", "--entries", "1M", "--entry-bytes", "100", "--memory", "4MiB"],
        &["plan", "compare", "--entries", "1000", "--entry-bytes", "100", "--with", "entries=2x"],
        &["plan", "cost", "--entries", "100M", "--entry-bytes", "100", "--rocksdb", &options],
        // It opens the database for writing, which replaces its logs.
        &["changes", &db],
    ];
    let mut schemas = BTreeSet::new();
    for args in commands {
        let out = run(args.iter().chain(&["--json"])).ok();
        let first = out.lines().next().unwrap_or_else(|| panic!("{args:?} printed nothing"));
        let object: Value = serde_json::from_str(first).unwrap_or_else(|error| panic!("{args:?}: {error}"));
        schemas.insert(object["schema"].as_str().unwrap_or_else(|| panic!("{args:?}: {object}")).to_string());
        let mut found = BTreeSet::new();
        names(&object, &mut found);
        for name in found {
            assert!(PAGE.contains(&format!("`{name}`")), "{args:?}: field {name} is not described");
        }
    }
    for schema in &schemas {
        assert!(PAGE.contains(&format!("`{schema}`")), "{schema} is not described");
    }
    let described = PAGE.matches("`shamba.").count();
    assert!(schemas.len() >= 13 && described >= schemas.len(), "{schemas:?}");
}
