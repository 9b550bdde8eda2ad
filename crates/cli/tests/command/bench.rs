//! Tests of bench: every workload, every field, and the conditions under which fills fail.

use serde_json::Value;

use crate::support::{Dir, run};

const NAMES: [&str; 22] = [
    "fillrandom",
    "overwrite",
    "readrandom",
    "readmissing",
    "multireadrandom",
    "multireadmissing",
    "readseq",
    "readreverse",
    "seekrandom",
    "seekafterputs",
    "readwhilewriting",
    "ycsb-a",
    "ycsb-b",
    "ycsb-c",
    "ycsb-d",
    "ycsb-e",
    "ycsb-f",
    "queue",
    "deleterandom",
    "readseq",
    "scandeletedrange",
    "scandeletedkeys",
];
const FIELDS: [&str; 38] = [
    "schema",
    "name",
    "ops",
    "seconds",
    "ops_per_s",
    "ns_per_op",
    "p50_ns",
    "p99_ns",
    "p999_ns",
    "cpu_ns_per_op",
    "found_share",
    "answers_checked",
    "answers_wrong",
    "hashes_per_get",
    "filters_per_get",
    "modules_per_get",
    "modules_skipped_per_get",
    "false_positives_per_get",
    "filter_reads_per_get",
    "index_reads_per_get",
    "data_reads_per_get",
    "gets",
    "reads",
    "scans",
    "scan_reads",
    "idle_seconds",
    "idle_ops_per_s",
    "write_amplification",
    "debt_bytes",
    "bytes_written",
    "rss_bytes",
    "ledger_bytes",
    "model_reads_per_get",
    "ideal_reads_per_get",
    "fewest_reads_per_get",
    "levels",
    "runs",
    "emulated",
];

#[test]
fn all_workloads_in_order_with_all_fields() {
    let dir = Dir::new();
    let db = dir.path("db");
    let options =
        ["--num", "2000", "--json", "--write-buffer", "32KiB", "--size-ratio", "3", "--sizing", "manual"];
    let out = run(["bench", &db].iter().chain(&NAMES).chain(&options)).ok();
    let objects: Vec<Value> =
        out.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect();
    let names: Vec<&str> = objects.iter().filter_map(|object| object["name"].as_str()).collect();
    assert_eq!(names, NAMES);
    for object in &objects {
        let name = &object["name"];
        let fields = object.as_object().expect("an object");
        let mut got: Vec<&str> = fields.keys().map(String::as_str).collect();
        let mut expected = FIELDS.to_vec();
        got.sort_unstable();
        expected.sort_unstable();
        assert_eq!(got, expected, "{name}");
        assert_eq!(object["schema"], "shamba.bench/1");
        assert!(object["ops"].as_u64() >= Some(1) && object["seconds"].as_f64() > Some(0.0), "{object}");
    }
    let share = |index: usize| objects[index]["found_share"].as_f64();
    assert_eq!((share(2), share(3)), (Some(1.0), Some(0.0)), "reads find what they should");
    assert_eq!((share(4), share(5)), (Some(1.0), Some(0.0)), "many at a time, too");
    assert!(objects[0]["idle_seconds"].as_f64() >= objects[0]["seconds"].as_f64(), "{}", objects[0]);
    assert!(objects[0]["write_amplification"].as_f64() > Some(1.0), "{}", objects[0]);
    assert_eq!((share(20), share(21)), (Some(1.0), Some(1.0)), "the entry behind the deleted ones");
    assert_eq!(objects[2]["hashes_per_get"], 1.0);
    assert!(objects[2]["levels"].as_u64() >= Some(2), "{}", objects[2]);
}

#[test]
fn fills_refuse_what_is_not_empty() {
    let dir = Dir::new();
    let db = dir.path("db");
    run(["bench", &db, "fillseq", "--num", "100"]).ok();
    for name in ["fillseq", "fillrandom"] {
        let err = run(["bench", &db, name, "--num", "100"]).fails(64);
        assert!(err.contains("--use-existing"), "{err}");
        run(["bench", &db, name, "--num", "100", "--use-existing"]).ok();
    }
    for name in ["scandeletedrange", "scandeletedkeys"] {
        let err = run(["bench", &db, name, "--num", "100"]).fails(64);
        assert!(err.contains("deletes all entries") && err.contains("--use-existing"), "{err}");
    }
    let table = run(["bench", &db, "readrandom", "--num", "100", "--threads", "2"]).ok();
    assert!(table.lines().count() == 2 && table.contains("readrandom"), "{table}");
    assert_eq!(run(["scan", &db]).ok().lines().count(), 100, "the same options name the same keys");
    run(["bench", &db, "scandeletedrange", "--num", "100", "--use-existing"]).ok();
    assert_eq!(run(["scan", &db]).ok().lines().count(), 1);
}

#[test]
fn shapes_and_distributions() {
    let dir = Dir::new();
    for shape in ["random", "sequential", "path", "url", "prefix-time"] {
        for distribution in ["uniform", "zipf", "zipf-local", "latest", "hotspot", "normal", "beta"] {
            let db = dir.path(&format!("{shape}-{distribution}"));
            let out = run([
                "bench",
                &db,
                "fillseq",
                "readrandom",
                "--num",
                "300",
                "--key-shape",
                shape,
                "--distribution",
                distribution,
                "--empty-fraction",
                "0.5",
                "--value-size",
                "10",
                "--seed",
                "3",
                "--json",
            ])
            .ok();
            let read: Value = serde_json::from_str(out.lines().nth(1).expect("two lines")).expect("JSON");
            let share = read["found_share"].as_f64().expect("a number");
            assert!((0.3..0.7).contains(&share), "{shape} {distribution}: {share}");
        }
    }
}

#[test]
fn options_that_make_no_sense_are_usage_errors() {
    let dir = Dir::new();
    let db = dir.path("db");
    for args in [
        vec!["fillslow"],
        vec![],
        vec!["fillseq", "--num", "0"],
        vec!["fillseq", "readrandom", "--reads", "0"],
        vec!["fillseq", "--threads", "0"],
        vec!["fillseq", "--multi-get", "0"],
        vec!["fillseq", "--value-size", "1GiB"],
        vec!["fillseq", "queue", "--num", "10", "--key-size", "8"],
        vec!["fillseq", "--num", "1000", "--key-size", "1"],
        vec!["readrandom", "--empty-fraction", "2"],
        vec!["fillseq", "--key-shape", "round"],
        vec!["fillseq", "--distribution", "nobody"],
    ] {
        let refused = run(["bench", &db].iter().copied().chain(args.iter().copied()));
        assert_eq!(refused.out, "", "{args:?}: not even a heading");
        let err = refused.fails(64);
        if let [.., option, _] = args[..] {
            assert!(err.contains(option), "{args:?}: the option is named: {err}");
        }
    }
    assert!(!std::fs::exists(&db).expect("readable"), "no database was made");
    run(["bench", &db, "fillseq", "--num", "10"]).ok();
    assert_eq!(run(["bench", &db, "fillseq", "--num", "10"]).out, "", "nor a heading before a refused fill");
    let help = run(["bench", "--help"]).ok();
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("readrandom, multireadrandom, seekrandom"), "{help}");
}

#[test]
fn what_a_bench_recorded_is_replayed_with_the_same_answers() {
    let dir = Dir::new();
    let (db, copy, trace) = (dir.path("db"), dir.path("copy"), dir.path("trace.txt"));
    let size = ["--num", "500", "--value-size", "30"];
    let names = ["fillrandom", "readrandom", "ycsb-f", "seekrandom", "deleterandom"];
    run(["bench", &db].iter().chain(&names).chain(&size).chain(&["--record", &trace])).ok();
    let text = std::fs::read_to_string(&trace).expect("written");
    assert!(text.starts_with("# shamba trace 1\n") && text.contains("\n# end "), "{text}");
    let out = run(["bench", &copy, "replay", "--trace", &trace, "--check-answers", "--json"]).ok();
    let object: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(object["name"], "replay");
    assert!(object["answers_checked"].as_u64() > Some(500), "{object}");
    assert_eq!(object["answers_wrong"], 0);
    let lengths = |db: &str| -> Vec<(String, usize)> {
        let dump = run(["dump", db]).ok();
        let pair = |line: &str| line.split_once('\t').map(|(key, value)| (key.to_owned(), value.len()));
        dump.lines().map(|line| pair(line).expect("key, tab, value")).collect()
    };
    let left = lengths(&db);
    assert!(left.len() < 500 && !left.is_empty());
    assert_eq!(lengths(&copy), left);
    // A database with other contents gives other answers.
    let more = dir.path("more");
    run(["bench", &more, "fillrandom", "--num", "500", "--seed", "2"]).ok();
    run(["bench", &more, "replay", "--trace", &trace]).ok();
    let again = run(["bench", &db, "replay", "--trace", &trace, "--record", &trace]).fails(3);
    assert!(again.contains("trace.txt"), "{again}");
}

#[test]
fn replays_that_cannot_be_are_refused() {
    let dir = Dir::new();
    let (db, trace) = (dir.path("db"), dir.path("trace.txt"));
    std::fs::write(&trace, "I a bc\nQ a -\nQ a\nU a\n").expect("written");
    let error = run(["bench", &db, "replay"]).fails(64);
    assert!(error.contains("--trace"), "{error}");
    let error = run(["bench", &db, "readseq", "--trace", &trace]).fails(64);
    assert!(error.contains("replay"), "{error}");
    run(["bench", &db, "replay", "--trace", &dir.path("absent")]).fails(3);
    assert!(!std::path::Path::new(&db).exists(), "nothing is made before the trace is there");
    let error = run(["bench", &db, "replay", "--trace", &trace]).fails(65);
    assert!(error.contains("trace.txt, line 4: U KEY VALUE is expected"), "{error}");
    std::fs::write(&trace, "Q a -\n").expect("written");
    run(["put", &db, "a", "b"]).ok();
    run(["bench", &db, "replay", "--trace", &trace]).ok();
    let error = run(["bench", &db, "replay", "--trace", &trace, "--check-answers"]).fails(65);
    assert!(error.contains("1 of 1 lookups gave other answers"), "{error}");
}
