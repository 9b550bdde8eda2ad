//! Tests of `plan --rocksdb`: the costs of an OPTIONS file, the better settings, and the patched
//! file.

use std::fs;

use serde_json::Value;

use super::cost;
use crate::support::{Dir, run};

/// An OPTIONS file as RocksDB writes it, shortened, with a second column family and a user's
/// comment.
const OPTIONS: &str = "# This is a RocksDB option file.\n\n[Version]\n  rocksdb_version=9.1.1\n  options_file_version=1.1\n\n\
    [DBOptions]\n  max_background_jobs=4\n\n\
    [CFOptions \"default\"]\n  compaction_style=kCompactionStyleLevel\n  compression=kNoCompression\n  \
    num_levels=7\n  write_buffer_size=67108864  # for the nightly load\n  max_bytes_for_level_base=268435456\n  \
    max_bytes_for_level_multiplier=10.000000\n\n\
    [TableOptions/BlockBasedTable \"default\"]\n  block_size=4096\n  filter_policy=bloomfilter:10:false\n  unheard_of={a=b;}\n\n\
    [CFOptions \"logs\"]\n  compaction_style=kCompactionStyleFIFO\n";

struct Asked {
    dir: Dir,
    file: String,
}

impl Asked {
    fn of(text: &str) -> Self {
        let dir = Dir::new();
        let file = dir.path("OPTIONS-000007");
        fs::write(&file, text).expect("writable");
        Self { dir, file }
    }

    fn args<'a>(&'a self, command: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        let base = ["plan", command, "--entries", "100M", "--entry-bytes", "116", "--rocksdb", &self.file];
        [&base[..], more].concat()
    }

    fn json(&self, command: &str, more: &[&str]) -> Value {
        cost(&self.args(command, more))
    }
}

const MIX: [&str; 4] = ["--lookups-zero", "0.5", "--updates", "0.5"];

#[test]
fn the_file_is_judged_bettered_and_patched() {
    let asked = Asked::of(OPTIONS);
    let object = asked.json("cost", &MIX);
    assert_eq!((object["policy"].as_str(), object["size_ratio"].as_f64()), (Some("leveling"), Some(10.0)));
    assert_eq!((object["buffer_bytes"].as_u64(), object["levels"].as_u64()), (Some(64 << 20), Some(3)));
    assert_eq!(object["allocation"], "uniform");
    let ratio = object["throughput_ratio"].as_f64().expect("a ratio");
    assert!(ratio > 1.5, "{ratio}");
    let changes = object["changes"].as_array().expect("changes");
    assert!(!changes.is_empty());
    let patched = object["patched"].as_str().expect("text");
    for change in changes {
        assert!(change["why"].as_str().expect("why").contains("throughput"), "{change}");
        let setting = change["setting"].as_str().expect("a name");
        let at = patched
            .lines()
            .position(|line| line.trim_start().starts_with(&format!("{setting}=")))
            .expect(setting);
        let before = patched.lines().nth(at - 1).expect("a line before");
        assert!(before.trim_start().starts_with("# was ") && before.contains("throughput"), "{before}");
    }
    // All lines but the changed ones and the inserted comments are unchanged, in the same order.
    let changed = |line: &str| {
        changes.iter().any(|change| line.trim_start().starts_with(change["setting"].as_str().unwrap_or("?")))
    };
    let kept: Vec<&str> = OPTIONS.lines().filter(|line| !changed(line)).collect();
    let still: Vec<&str> = patched
        .lines()
        .skip_while(|line| !line.starts_with("# This is"))
        .filter(|line| !line.trim_start().starts_with("# was ") && !changed(line))
        .collect();
    assert_eq!(kept, still);
    assert!(patched.contains("# for the nightly load"), "{patched}");

    let better = asked.json("design", &MIX);
    assert_eq!(better["policy"], object["better"]["policy"]);
    assert_eq!(better["present"]["policy"], "leveling");
}

#[test]
fn the_patched_file_is_what_was_promised_and_has_nothing_better() {
    let asked = Asked::of(OPTIONS);
    for mix in [MIX, ["--lookups-zero", "0.9", "--updates", "0.1"], ["--ranges", "0.6", "--updates", "0.4"]] {
        let out = asked.dir.path("better");
        let memory = ["--memory", "256MiB"];
        let first = asked.json("cost", &[&mix[..], &memory, &["--out", &out]].concat());
        assert_eq!(fs::read_to_string(&out).expect("written"), first["patched"].as_str().expect("text"));
        let promised = first["better"]["throughput_per_s"].as_f64().expect("a rate");
        let args = ["plan", "cost", "--entries", "100M", "--entry-bytes", "116", "--rocksdb", &out];
        let second = cost(&[&args[..], &mix, &memory].concat());
        let said = second["throughput_per_s"].as_f64().expect("a rate");
        assert!((said / promised - 1.0).abs() < 1e-9, "{mix:?}: {said}, {promised}");
        assert_eq!(second["changes"], serde_json::json!([]), "{mix:?}");
        assert_eq!(second["patched"], first["patched"], "nothing to change: the file as it is");
    }
    let onto_itself = run(asked.args("cost", &["--out", &asked.file])).fails(64);
    assert!(onto_itself.contains("--out"), "{onto_itself}");
    assert_eq!(fs::read_to_string(&asked.file).expect("there"), OPTIONS);
}

#[test]
fn people_are_told_what_was_assumed_and_why() {
    let asked = Asked::of(OPTIONS);
    let text = run(asked.args("cost", &MIX)).ok();
    for said in [
        "RocksDB 9.1.1, column family default",
        "limits and assumptions of the model",
        "block_cache",
        "level 0",
        "better settings",
        "alone",
        "so far",
        "all together: throughput +",
        "with these changes",
        "# was 67108864",
    ] {
        assert!(text.contains(said), "{said} in {text}");
    }
}

#[test]
fn files_that_cannot_be_judged_are_refused_by_name_and_line() {
    let asked = Asked::of(OPTIONS);
    let missing = asked.dir.path("none");
    let err = run(["plan", "cost", "--entries", "9", "--entry-bytes", "9", "--rocksdb", &missing]).fails(3);
    assert!(err.contains(&missing), "{err}");
    let err = run(["plan", "cost", "--entries", "9", "--entry-bytes", "9", "--rocksdb", &asked.dir.path("")])
        .fails(3);
    assert!(err.contains("reading"), "{err}");
    for (text, said) in [
        ("", "CFOptions"),
        ("[CFOptions \"default\"]\nnonsense\n", "line 2"),
        ("[CFOptions \"default\"]\nwrite_buffer_size=large\n", "line 2: write_buffer_size"),
        ("[CFOptions \"default\"]\ncompaction_style=kCompactionStyleFIFO\n", "FIFO"),
        ("[CFOptions \"default\"]\nmax_bytes_for_level_multiplier=1.2\n", "max_bytes_for_level_multiplier"),
        ("[CFOptions \"default\"]\nwrite_buffer_size=1\n", "write_buffer"),
        ("\u{0}\u{1}\u{2}", "line 1"),
    ] {
        let asked = Asked::of(text);
        for command in ["cost", "design"] {
            let err = run(asked.args(command, &[])).fails(65);
            assert!(err.contains(&asked.file) && err.contains(said), "{text:?}: {err}");
        }
    }
    let binary = Asked::of("");
    fs::write(&binary.file, [0xff, 0xfe, b'\n']).expect("writable");
    assert!(run(binary.args("cost", &[])).fails(65).contains("line 1"));
    let err = run(asked.args("cost", &["--cf", "logs"])).fails(65);
    assert!(err.contains("line 24") && err.contains("FIFO"), "{err}");
    let err = run(asked.args("cost", &["--cf", "users"])).fails(65);
    assert!(err.contains("default, logs"), "{err}");
    let err = run(asked.args("cost", &["--size-ratio", "4"])).fails(64);
    assert!(err.contains("--size-ratio") && err.contains("--rocksdb"), "{err}");
    let err = run(asked.args("cost", &["--memory", "1KiB"])).fails(64);
    assert!(err.contains("too small"), "{err}");
    let err = run(asked.args("design", &["--max-update-ios", "0.000001"])).fails(64);
    assert!(err.contains("--max-update-ios") && err.contains("of at most 2 ("), "{err}");
    run(["plan", "cost", "--entries", "9", "--entry-bytes", "9", "--cf", "x"]).fails(64);
}

#[test]
fn legal_files_of_any_kind_are_read() {
    let text = "\u{feff}[CFOptions \"default\"]\n  level0_file_num_compaction_trigger=-1\n  \
                level0_slowdown_writes_trigger=-1\n  level0_stop_writes_trigger=-1\n\
                [TableOptions/BlockBasedTable \"default\"]\n  filter_policy=bloomfilter:100:false\n";
    for command in ["cost", "design"] {
        let told = run(Asked::of(text).args(command, &MIX)).ok();
        for said in ["the trigger is disabled", "more than 64 bits per key"] {
            assert!(told.contains(said), "{said} in {told}");
        }
        assert!(!told.contains(&u64::MAX.to_string()), "{told}");
    }
    let text =
        "[CFOptions \"default\"]\n  level0_file_num_compaction_trigger=0\n  level0_stop_writes_trigger=3\n";
    let told = run(Asked::of(text).args("cost", &MIX)).ok();
    for said in [
        "level0_file_num_compaction_trigger is 0: RocksDB uses 1",
        "level0_stop_writes_trigger is 3: RocksDB uses 20",
    ] {
        assert!(told.contains(said), "{said} in {told}");
    }
}

#[test]
fn a_file_without_a_section_for_tables_gets_one() {
    let text = "[Version]\n  options_file_version=1.1\n[DBOptions]\n  max_background_jobs=2\n\
                [CFOptions \"default\"]\n  write_buffer_size=67108864\n";
    let asked = Asked::of(text);
    let object = asked.json("cost", &MIX);
    assert_eq!(object["buffer_bytes"].as_u64(), Some(64 << 20));
    let patched = object["patched"].as_str().expect("text");
    let (_, table) = patched.split_once("[TableOptions/BlockBasedTable \"default\"]\n").expect("the section");
    assert!(table.contains("filter_policy=bloomfilter:"), "{patched}");
    // A patched file is accepted like any other.
    let again = Asked::of(patched).json("cost", &MIX);
    let filters = |object: &Value, of: &str| object[of].as_f64().expect("a number");
    assert!(filters(&again, "filter_bytes") > filters(&object, "filter_bytes"), "{again}");
}

/// The statements inside the braces of a value in the text of a file.
fn in_braces<'a>(text: &'a str, setting: &str) -> Vec<&'a str> {
    let value = text.lines().find_map(|line| line.trim().strip_prefix(&format!("{setting}={{")));
    value.map_or_else(Vec::new, |inside| inside.trim_end_matches('}').split(';').collect())
}

#[test]
fn universal_style_comes_with_its_options_and_bounded_space() {
    let asked = Asked::of(OPTIONS);
    let updates = ["--lookups-zero", "0.05", "--updates", "0.95"];
    for (bound, most) in [(None, 2.0), (Some("3"), 3.0), (Some("inf"), f64::INFINITY)] {
        let bound: Vec<&str> = bound.into_iter().flat_map(|bound| ["--max-space", bound]).collect();
        for command in ["cost", "design"] {
            let object = asked.json(command, &[&updates[..], &bound].concat());
            let better = if command == "cost" { &object["better"] } else { &object };
            let space = better["space_amplification"].as_f64().expect("a number");
            assert!(space <= most, "{command} {bound:?}: {space}");
            let patched = object["patched"].as_str().expect("text");
            assert!(patched.contains("compaction_style=kCompactionStyleUniversal"), "{patched}");
            let options = in_braces(patched, "compaction_options_universal");
            for option in [
                "size_ratio=1",
                "min_merge_width=2",
                "max_merge_width=4294967295",
                "stop_style=kCompactionStopStyleTotalSize",
            ] {
                assert!(options.contains(&option), "{option} in {options:?}");
            }
            let percent =
                options.iter().find_map(|option| option.strip_prefix("max_size_amplification_percent="));
            let percent: f64 = percent.and_then(|percent| percent.parse().ok()).expect("a percentage");
            assert!(percent >= 25.0 && 1.0 + percent / 100.0 <= space, "{percent} for {space}");
        }
    }
    let text = run(asked.args("cost", &updates)).ok();
    for said in [
        "space amplification of at most 2 (the default of --max-space)",
        "needs free space for all of the data",
        "compaction_options_universal",
    ] {
        assert!(text.contains(said), "{said} in {text}");
    }
    // With ranges, which read a page of every run, level style stays; it has no such options.
    let reads = asked.json("cost", &["--lookups-zero", "0.5", "--ranges", "0.45", "--updates", "0.05"]);
    assert!(!reads["patched"].as_str().expect("text").contains("universal"), "{reads}");
    let err = run(asked.args("cost", &["--max-space", "0.9"])).fails(64);
    assert!(err.contains("--max-space"), "{err}");
}

#[test]
fn the_options_of_a_universal_file_are_judged_and_others_in_the_braces_kept() {
    let file = |options: &str| {
        let style = format!("compaction_style=kCompactionStyleUniversal\n  {options}");
        OPTIONS.replace("compaction_style=kCompactionStyleLevel", &style)
    };
    let more = "level0_file_num_compaction_trigger=12\n  ";
    let space = |text: &str| {
        let object = Asked::of(text).json("cost", &MIX);
        object["space_amplification"].as_f64().expect("a number")
    };
    let (usual, tight) = (
        space(&file(more)),
        space(&file(&format!("{more}compaction_options_universal={{max_size_amplification_percent=50;}}"))),
    );
    assert!(usual > 3.0 && usual < 3.2, "RocksDB's default is 200 percent: {usual}");
    assert!(tight > 1.5 && tight < 1.7, "{tight}");
    let own = "compaction_options_universal={allow_trivial_move=true;size_ratio=30;max_read_amp=5;incremental=false;}";
    let asked = Asked::of(&file(&format!("{more}{own}")));
    let updates = ["--updates", "0.95", "--lookups-zero", "0.05", "--max-space", "2"];
    let object = asked.json("cost", &updates);
    let patched = object["patched"].as_str().expect("text");
    let options = in_braces(patched, "compaction_options_universal");
    for option in ["size_ratio=1", "max_read_amp=-1", "allow_trivial_move=true", "incremental=false"] {
        assert!(options.contains(&option), "{option} in {options:?}");
    }
    let notes = object["notes"].to_string();
    assert!(notes.contains("size_ratio=30, max_read_amp=5"), "{notes}");
    let broken = Asked::of(&file("compaction_options_universal={size_ratio=many;}"));
    assert!(run(broken.args("cost", &MIX)).fails(65).contains("size_ratio"));
}
