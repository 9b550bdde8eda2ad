//! Tests of explain, tree, stats, memory, check, table, wal and manifest: text output and JSON
//! objects.

use serde_json::Value;

use crate::support::{Dir, files, run, run_with};

/// Runs with `--json` and checks the schema.
#[track_caller]
fn object(args: &[&str], schema: &str) -> Value {
    let run = run(args.iter().chain(&["--json"]));
    assert_eq!(run.code, 0, "{run:?}");
    let object = run.json();
    assert_eq!(object["schema"], schema);
    object
}

#[test]
fn explain_tells_where_a_key_was_found_and_what_was_skipped() {
    let dir = Dir::new();
    let db = dir.database("db", 2000);
    let text = run(["explain", &db, "key00042"]).ok();
    assert!(text.contains("key00042") && text.contains("filter"), "{text}");
    let hit = object(&["explain", &db, "key00042"], "shamba.explain/1");
    assert_eq!((hit["outcome"].as_str(), hit["value"].as_str()), (Some("found"), Some("value of 42")));
    assert_eq!(hit["hashes"], 1);
    assert!(hit["steps"].as_array().is_some_and(|steps| steps.len() >= 2), "{hit}");
    let miss = object(&["explain", &db, "key00042x"], "shamba.explain/1");
    assert_eq!((miss["outcome"].as_str(), &miss["value"]), (Some("absent"), &Value::Null));
    run(["delete", &db, "key00042"]).ok();
    assert_eq!(object(&["explain", &db, "key00042"], "shamba.explain/1")["outcome"], "deleted");
}

#[test]
fn explain_prefix_tells_which_runs_are_left_out() {
    let dir = Dir::new();
    let path = dir.path("db");
    let by_user = shamba::KeyspaceOptions::new().prefix(shamba::Prefix::Delimited(b':')).bits_per_key(12.0);
    let db = shamba::Db::builder(&path).keyspace("default", by_user).open().expect("opens");
    for user in 0..200 {
        db.put(format!("user{user:03}:mail"), "x").expect("put");
    }
    db.flush().expect("flushed");
    db.close().expect("closed");
    let text = run(["explain", &path, "user100x:", "--prefix"]).ok();
    assert!(text.contains("filter says no; skipped") && text.contains("1 of them left out"), "{text}");
    let absent = object(&["explain", &path, "user100x:", "--prefix"], "shamba.explain-prefix/1");
    assert_eq!(
        (&absent["prefix"], &absent["hashes"]),
        (&Value::from("user100x:"), &Value::from(1)),
        "{absent}"
    );
    assert_eq!((&absent["runs"], &absent["runs_skipped"]), (&Value::from(1), &Value::from(1)), "{absent}");
    let short = object(&["explain", &path, "user1", "--prefix"], "shamba.explain-prefix/1");
    assert_eq!(short["runs_skipped"], 0, "{short}");
    assert!(short.to_string().contains("delimited:3a"), "{short}");
    let stats = object(&["stats", &path], "shamba.stats/1");
    assert_eq!(stats["prefix_extractors"], serde_json::json!({ "default": "delimited:3a" }));
    assert_eq!(stats["keyspace_options"], serde_json::json!({ "default": { "bits-per-key": "12" } }));
    let text = run(["stats", &path]).ok();
    assert!(text.contains("bits-per-key=12 (keyspace \"default\")"), "{text}");
}

#[test]
fn the_sharing_switch_changes_hashes_and_nothing_else() {
    let dir = Dir::new();
    let db = dir.path("db");
    // Under tiering, with keys in an order that spreads every run over all of them: several runs,
    // several filters.
    let input: String =
        (0..4000).map(|number| format!("put key{:05} {number}\n", number * 1237 % 4000 * 10)).collect();
    let input = input + "flush\n";
    let options = ["--policy", "tiering", "--size-ratio", "8", "--write-buffer", "8KiB"];
    run_with(["batch", &db].iter().chain(&options), input.as_bytes()).ok();
    let mut most = 0;
    for key in ["key20000", "key20005", "key39985", "key00000"] {
        let on = object(&["explain", &db, key, "--hash-sharing", "on"], "shamba.explain/1");
        let off = object(&["explain", &db, key, "--hash-sharing", "off"], "shamba.explain/1");
        assert_eq!(on["hashes"], 1, "{key}");
        let filters = off["filters_consulted"].as_u64().expect("a number");
        assert_eq!(off["hashes"].as_u64(), Some(filters.max(1)), "{key}");
        assert_eq!((&on["outcome"], &on["value"]), (&off["outcome"], &off["value"]), "{key}");
        most = most.max(filters);
    }
    assert!(most >= 2, "several filters were consulted: {most}");
}

#[test]
fn filter_bits_follow_the_allocation_and_the_size_asked_for() {
    let dir = Dir::new();
    let input: String =
        (0..4000).map(|number| format!("put key{:05} {number}\n", number * 1237 % 4000)).collect();
    let input = input + "flush\n";
    let bits_of = |name: &str, options: &[&str]| -> Vec<(u64, f64, f64)> {
        let db = dir.path(name);
        let tree =
            ["--policy", "tiering", "--size-ratio", "4", "--write-buffer", "8KiB", "--sizing", "manual"];
        run_with(["batch", &db].iter().chain(&tree).chain(options), input.as_bytes()).ok();
        let levels = object(&["tree", &db], "shamba.tree/1")["levels"].clone();
        let levels = levels.as_array().expect("levels").iter();
        let levels = levels.filter(|level| level["entries"] != 0).map(|level| {
            let bits = |name: &str| level[name].as_f64().expect("a number");
            let entries = level["entries"].as_u64().expect("a count");
            (entries, bits("bits_per_key"), bits("bits_per_key_wanted"))
        });
        levels.collect()
    };
    let uniform = bits_of("uniform", &["--allocation", "uniform", "--bits-per-key", "8"]);
    assert!(uniform.iter().all(|(_, written, wanted)| (*written, *wanted) == (8.0, 8.0)), "{uniform:?}");
    // Runs with fewer entries get more bits per key.
    let monkey = bits_of("monkey", &["--bits-per-key", "8"]);
    let wanted = |at: usize| monkey.get(at).map_or(0.0, |level| level.2);
    assert!(monkey.len() > 1 && wanted(0) > wanted(monkey.len() - 1) + 1.0, "{monkey:?}");
    // 4 KiB of filters for 4,000 entries.
    let sum = bits_of("sum", &["--allocation", "uniform", "--filter-memory", "4KiB"]);
    assert!(sum.iter().all(|(_, _, wanted)| (*wanted - 8.192).abs() < 0.01), "{sum:?}");
}

#[test]
fn tree_stats_and_memory() {
    let dir = Dir::new();
    let db = dir.database("db", 2000);
    assert!(run(["tree", &db]).ok().contains("keyspace \"default\""));
    let tree = object(&["tree", &db], "shamba.tree/1");
    let tables: u64 =
        tree["levels"].as_array().expect("levels").iter().filter_map(|l| l["tables"].as_u64()).sum();
    assert_eq!(tables as usize, files(&db, "sst").len());
    assert_eq!(tree["design"]["size_ratio"], 3.0);
    assert!(tree["deepest_level"].as_u64() >= Some(1));
    assert!(run(["stats", &db]).ok().contains("16.0 KiB"));
    let stats = object(&["stats", &db], "shamba.stats/1");
    assert_eq!(stats["sequence"], 2000);
    assert_eq!(stats["design"]["write_buffer_bytes"], 16 << 10);
    assert!(run(["memory", &db]).ok().contains("memory budget"));
    let memory = object(&["memory", &db, "--memory-budget", "8MiB"], "shamba.memory/1");
    let sum: u64 = memory["parts"].as_object().expect("parts").values().filter_map(Value::as_u64).sum();
    assert_eq!(memory["ledger_bytes"].as_u64(), Some(sum));
    assert_eq!(memory["budget_bytes"], 8 << 20);
}

#[test]
fn check_counts_and_lays_out() {
    let dir = Dir::new();
    let db = dir.database("db", 2000);
    assert!(run(["check", &db]).ok().starts_with("no damage: "));
    let report = object(&["check", &db], "shamba.check/1");
    assert_eq!((report["clean"].as_bool(), report["opened"].as_bool()), (Some(true), Some(true)));
    assert_eq!(report["problems"].as_array().map(Vec::len), Some(0));
    assert!(report["entries"].as_u64() >= Some(1));
    let text = run(["check", &db, "--layout"]).ok();
    assert!(text.contains("CURRENT") && text.contains(".sst") && text.contains("filter"), "{text}");
    let layout = &object(&["check", &db, "--layout"], "shamba.check/1")["layout"];
    let kinds: Vec<&str> =
        layout.as_array().expect("files").iter().filter_map(|file| file["kind"].as_str()).collect();
    for kind in ["table", "log", "manifest", "other"] {
        assert!(kinds.contains(&kind), "{kind} in {kinds:?}");
    }
}

#[test]
fn files_are_described_one_by_one() {
    let dir = Dir::new();
    let db = dir.database("db", 500);
    run(["put", &db, "in the log", "v"]).ok();
    let table = files(&db, "sst").pop().expect("a table").display().to_string();
    assert!(run(["table", &table]).ok().contains("filter"));
    let described = object(&["table", &table], "shamba.table/1");
    let entries: u64 = described["blocks"]
        .as_array()
        .expect("blocks")
        .iter()
        .filter_map(|block| block["entries"].as_u64())
        .sum();
    assert_eq!(described["entries"].as_u64(), Some(entries));
    let log = files(&db, "log").pop().expect("a log").display().to_string();
    assert!(run(["wal", &log]).ok().contains("in the log"));
    let described = object(&["wal", &log], "shamba.wal/1");
    assert_eq!(described["ending"]["kind"], "clean");
    assert!(run(["manifest", &db]).ok().contains("setting"));
    let described = object(&["manifest", &db], "shamba.manifest/1");
    assert!(described["records"].as_array().is_some_and(|records| !records.is_empty()));
}

#[test]
fn commands_know_the_operands_of_merge_operators() {
    let dir = Dir::new();
    let db = dir.path("db");
    let counting = || shamba::KeyspaceOptions::new().merge_operator(shamba::merge::AddU64);
    let open = || shamba::Db::builder(&db).keyspace("default", counting()).open().expect("opens");
    let counters = open();
    for table in 0..2u64 {
        counters.merge("k", (table + 1).to_le_bytes()).expect("merged");
        counters.flush().expect("flushed");
    }
    counters.merge("k", 4u64.to_le_bytes()).expect("merged");
    drop(counters);
    let pair = "6b\t0700000000000000\n";
    assert_eq!(run(["dump", &db]).ok(), pair);
    let log = files(&db, "log").pop().expect("a log").display().to_string();
    let text = run(["wal", &log]).ok();
    assert!(text.contains("] k (8 bytes)") && text.contains("merge @"), "{text}");
    let text = run(["manifest", &db]).ok();
    assert!(text.contains("merge_operator [0] \"shamba.add-u64\""), "{text}");
    let table = files(&db, "sst").pop().expect("a table").display().to_string();
    assert_eq!(object(&["table", &table], "shamba.table/1")["operands"], 1);
    run(["check", &db]).ok();
    let (copy, repaired) = (dir.path("copy"), dir.path("repaired"));
    run(["checkpoint", &db, &copy]).ok();
    run(["repair", &db, "--out", &repaired]).ok();
    for db in [copy, repaired] {
        run(["check", &db]).ok();
        assert_eq!(run(["dump", &db]).ok(), pair, "{db}");
    }
}
