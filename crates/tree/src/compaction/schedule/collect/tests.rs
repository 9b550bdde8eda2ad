//! Tests of the rules of collection, each once, and the steps of the proof on random trees.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use fastrand::Rng;
use shamba_key::{Age, KeyspaceId, RunId};
use shamba_model::{Design, MergePolicy};
use shamba_table::TableId;

use super::*;
use crate::compaction::policy::{CompactionInput, pick_full};
use crate::compaction::schedule::{Claims, NextJob, Situation, TreeSituation, Triggers, Work, next_jobs};

fn rules_of(space: f64) -> Rules {
    let values =
        ValueRules { space, files_max: 64, file_bytes: 4_000, has_one_last_run: true, is_off: false };
    let design = Design::new(MergePolicy::Leveling, 4.0, 1 << 30, 0.0);
    Rules { values: Some(values), ..Rules::manual(design, 9) }
}

fn rules() -> Rules {
    rules_of(1.25)
}

fn due_in(version: &Version, rules: &Rules) -> Option<(CompactionJob, f64)> {
    let capacities = rules.capacities(version);
    due(&Down { version, rules, capacities: &capacities, deepest: version.deepest_level() })
}

/// The collection that is due, and the files that it empties.
fn picked_by(tree: &str, rules: &Rules) -> Option<String> {
    let version: Version = tree.parse().expect("notation");
    version.check().expect("a tree that can be");
    let (job, score) = due_in(&version, rules)?;
    job.check(&version).expect("a job that keeps the order");
    let files: Vec<String> = victims(&version, &job, rules).iter().map(ToString::to_string).collect();
    let job = job.to_string().replace(" (value files are collected)", "");
    Some(format!("{score:.2}: {job} empties [{}]", files.join(" ")))
}

fn picked(tree: &str) -> Option<String> {
    picked_by(tree, &rules())
}

fn job(inputs: &[(u32, u64, &[u64])], target: (u32, u64), reason: Reason) -> CompactionJob {
    let input = |&(level, run, tables): &(u32, u64, &[u64])| CompactionInput {
        level,
        run: RunId(run),
        tables: tables.iter().map(|id| TableId(*id)).collect(),
    };
    let inputs = inputs.iter().map(input).collect();
    CompactionJob { inputs, target_level: target.0, target_run: Target::Existing(RunId(target.1)), reason }
}

/// A tree whose levels 0 and 1 refer to values of these bytes, over a last run of 10,000 bytes of
/// values without garbage.
fn above(l0: u64, l1: u64) -> String {
    let (l0_file, l1_file) = (l0 + 128, l1 + 128);
    format!(
        "L0: r3@3[8:a..z 10 n=9 val=20:1:{l0}]\nL1: r2@2[7:a..k 10 n=9 val=21:1:{l1}]\n\
         L2: r1@1[1:a..m 50 n=50 val=9:50:5000, 2:m.. 50 n=50 val=9:50:5000]\n\
         V: 9 10128 n=100, 20 {l0_file} n=1, 21 {l1_file} n=1\n"
    )
}

#[test]
fn levels_that_may_hide_much_are_merged_from_the_last_one_up() {
    // R_last is 10,120 bytes, of which 632.5 may be hidden.
    assert_eq!(picked(&above(100, 532)), None);
    let both = |score, inputs: &str| Some(format!("{score}: {inputs} -> L2.r1 empties []"));
    assert_eq!(picked(&above(100, 533)), both("1.00", "L1.r2[000007] + L2.r1[000001]"));
    // Three quarters are on level 1, or not.
    assert_eq!(picked(&above(200, 600)), both("1.26", "L1.r2[000007] + L2.r1[000001]"));
    let all = "L0.r3[000008] + L1.r2[000007] + L2.r1[000001, 000002]";
    assert_eq!(picked(&above(201, 600)), both("1.27", all));
    assert_eq!(picked(&above(9000, 9000)), both("4.00", all), "writers at a full level 0 go first");
    let none = Rules { values: None, ..rules() };
    assert_eq!(picked_by(&above(9000, 9000), &none), None);
}

#[test]
fn deletes_count_as_what_they_hide() {
    let tree = |deletes: u64, l1: u64| {
        above(1, l1).replace("L0: r3@3[8:a..z 10 n=9", &format!("L0: r3@3[8:a..z 10 n=99 del={deletes}"))
    };
    // Each delete may hide 100 bytes.
    assert_eq!(picked(&tree(6, 31)), None);
    let merged = |inputs: &str| Some(format!("1.00: {inputs} -> L2.r1 empties []"));
    let all = "L0.r3[000008] + L1.r2[000007] + L2.r1[000001, 000002]";
    assert_eq!(picked(&tree(6, 32)), merged(all), "the hidden bytes are in level 0");
    assert_eq!(picked(&tree(1, 532)), merged("L1.r2[000007] + L2.r1[000001]"));
}

/// A last run of three tables. File 9 has 10,000 bytes, of which tables 1 and 2 refer to `live`,
/// files 10 and 11 are nearly full.
fn wasteful(live: u64, table_bytes: u64) -> String {
    format!(
        "L1: r1@1[1:a..e {table_bytes} val=9:1:10 val=10:45:4700, 2:e..m {table_bytes} val=9:2:{}, \
         3:m.. {table_bytes} val=10:45:4800 val=11:100:10000]\n\
         V: 9 10128 n=100, 10 10128 n=100, 11 10128 n=100\n",
        live - 10,
    )
}

#[test]
fn the_emptiest_files_are_emptied_where_they_are_named() {
    // S is 30,150; e is 1.171875, so that R may be 25,728 at least.
    assert_eq!(picked(&wasteful(6_079, 50)), None);
    let in_place = "L1.r1[000001, 000002] -> L1.r1 empties [000009]";
    assert_eq!(picked(&wasteful(6_077, 50)), Some(format!("1.00: {in_place}")));
    assert_eq!(picked(&wasteful(5_000, 50)), Some(format!("1.30: {in_place}")));
    assert_eq!(picked_by(&wasteful(5_000, 50), &rules_of(1.5)), None);
    // Long tables allow more garbage.
    assert_eq!(picked(&wasteful(5_000, 5_000)), None);
    // In a level 0 nothing is last.
    assert_eq!(picked(&wasteful(5_000, 50).replace("L1", "L0")), None);
}

#[test]
fn a_job_moves_a_quarter_or_one_file() {
    // Files of 10,000 bytes with the same garbage in tables of their own: (number, live bytes).
    let tree = |live: &[(u64, u64)]| {
        let mut text = "L1: r1@1[".to_owned();
        for (at, (file, bytes)) in live.iter().enumerate() {
            let (lower, upper) = (char::from(b'a' + at as u8), char::from(b'b' + at as u8));
            let comma = if at > 0 { ", " } else { "" };
            write!(text, "{comma}{}:{lower}..{upper} 10 val={file}:9:{bytes}", at + 1).expect("text");
        }
        text += "]\nV: ";
        let files = live.iter().map(|(file, _)| format!("{file} 10128 n=10"));
        text + &files.collect::<Vec<_>>().join(", ") + "\n"
    };
    // R is 20,050, so that 5,012 bytes may move.
    let five = tree(&[(5, 4_000), (6, 4_100), (7, 4_200), (8, 3_700), (9, 4_000)]);
    assert_eq!(picked(&five).as_deref(), Some("4.00: L1.r1[000004] -> L1.r1 empties [000008]"));
    let five = tree(&[(5, 4_000), (6, 4_100), (7, 4_200), (8, 1_000), (9, 6_700)]);
    assert_eq!(
        picked(&five).as_deref(),
        Some("4.00: L1.r1[000001, 000004] -> L1.r1 empties [000005 000008]")
    );
    // One that is larger is taken if it is the first.
    let two = tree(&[(5, 6_000), (6, 6_100)]);
    assert_eq!(picked(&two).as_deref(), Some("3.79: L1.r1[000001] -> L1.r1 empties [000005]"));
    // Files without references are the emptiest, and move nothing.
    let gone =
        tree(&[(5, 1), (6, 2), (7, 9_999), (8, 9_999), (9, 9_999)]).replace("val=5:9:1", "val=5:0:0 of 9:1");
    assert_eq!(
        picked(&gone).as_deref(),
        Some("3.87: L1.r1[000001, 000002] -> L1.r1 empties [000005 000006]")
    );
}

#[test]
fn files_that_are_named_outside_need_all_runs() {
    let outside = |tree: String| {
        format!("L0: r9@9[9:e..f 10 val=9:1:1 val=12:1:1]\n{tree}").replace("\nV: 9", "\nV: 12 129 n=1, 9")
    };
    let all = "L0.r9[000009] + L1.r1[000001, 000002] -> L1.r1 empties [000009]";
    assert_eq!(picked(&outside(wasteful(5_000, 50))), Some(format!("1.30: {all}")));
    // With one file that is not, the job goes on in place.
    let other = outside(wasteful(5_000, 50)).replace("val=10:45:4700", "val=10:45:4000");
    let in_place = "L1.r1[000001, 000003] -> L1.r1 empties [000010]";
    assert_eq!(picked(&other), Some(format!("1.51: {in_place}")));
    // A file that is nearly full is not worth it, wherever it is named.
    let full = outside(wasteful(5_000, 50)).replace("val=10:45:4700", "val=10:45:4600");
    assert_eq!(picked(&full), Some(format!("1.33: {all}")), "6 % of file 10");
}

#[test]
fn runs_of_a_tiered_level_hide_nothing_that_counts() {
    let tiered = |newer: &str| {
        let newer = format!("L1: r9@9[9:e..f 10 {newer}] r1@1");
        wasteful(5_000, 50).replace("L1: r1@1", &newer).replace("V: ", "V: 12 100128 n=9, ")
    };
    let in_place = "L1.r1[000001, 000002] -> L1.r1 empties [000009]";
    // Newer runs of the level are not merged, whatever they hide.
    assert_eq!(picked(&tiered("val=12:9:100000")), None);
    let version: Version =
        wasteful(4_000, 50).replace("L1: r1@1", "L1: r9@9[9:e..f 10] r1@1").parse().expect("notation");
    let (job, _) = due_in(&version, &rules()).expect("it is due");
    assert_eq!(
        job.to_string(),
        format!("{} (value files are collected)", in_place.replace(" empties [000009]", ""))
    );
    let outside = tiered("val=9:1:1").replace(", 12 100128 n=9", "").replace("V: 12 100128 n=9, ", "V: ");
    let all = "L1.r9[000009] + L1.r1[000001, 000002] -> L1.r1 empties [000009]";
    assert_eq!(picked(&outside), Some(format!("1.30: {all}")));
}

#[test]
fn too_many_small_files_are_joined() {
    // `small` files of 20 bytes, and two of 3,000.
    let tree = |small: u64| {
        let mut values = "val=1:1:3000 val=2:1:3000".to_owned();
        let mut files = "V: 1 3128 n=1, 2 3128 n=1".to_owned();
        for file in 3..3 + small {
            write!(values, " val={file}:1:20").expect("text");
            write!(files, ", {file} 148 n=1").expect("text");
        }
        format!("L0: r2@2[9:a..b 10]\nL1: r1@1[1:a..m 500 {values}, 2:m.. 10]\n{files}\n")
    };
    assert_eq!(picked(&tree(62)), None, "64 files are allowed");
    let joined = picked(&tree(63)).expect("a job");
    assert!(joined.starts_with("1.02: L1.r1[000001] -> L1.r1 empties [000003 000004 "), "{joined}");
    assert_eq!(joined.matches(' ').count(), 3 + 63 + 1, "the large ones stay: {joined}");
    // A quarter of the bytes moves.
    let quarter = picked(&tree(130)).expect("a job");
    assert_eq!(quarter.matches(' ').count(), 3 + (6_000 + 130 * 20 + 520) / 4 / 20 + 1, "{quarter}");
    // Files are full at 4,000 bytes, or at four times the mean of as many as are allowed.
    let values = rules().values.expect("rules");
    assert_eq!([values.full_bytes(64_000), values.full_bytes(640_000)], [4_000, 40_000]);
    assert!(values.is_small(999, 0) && !values.is_small(1_000, 0) && values.is_small(9_999, 640_000));
    assert_eq!(ValueRules::files_max(256 << 20, 100), 3_495);
    assert_eq!([ValueRules::files_max(8 << 20, 4_000), ValueRules::files_max(1 << 40, 0)], [64, 4_096]);
}

#[test]
fn a_compaction_into_the_last_run_collects_along_the_way() {
    let tree = format!("L0: r9@9[9:a..b 10]\n{}", wasteful(5_000, 50));
    let version: Version = tree.parse().expect("notation");
    let files = |job: &CompactionJob, rules: &Rules| -> Vec<u64> {
        victims(&version, job, rules).into_iter().map(|file| file.0).collect()
    };
    let into_last = |tables: &[u64], reason| job(&[(0, 9, &[9]), (1, 1, tables)], (1, 1), reason);
    assert_eq!(files(&into_last(&[1, 2], Reason::Level0), &rules()), [9]);
    assert_eq!(files(&into_last(&[1], Reason::Level0), &rules()), [] as [u64; 0], "table 2 names it, too");
    assert_eq!(files(&into_last(&[1, 2, 3], Reason::Filters), &rules()), [9], "file 10 is nearly full");
    let roomy = rules_of(2.0);
    assert_eq!(files(&into_last(&[1, 2, 3], Reason::Level0), &roomy), [] as [u64; 0], "there is space");
    // One that a caller asks for empties all that it can.
    assert_eq!(files(&into_last(&[1, 2, 3], Reason::Manual), &roomy), [9]);
    let values = rules().values.map(|values| ValueRules { is_off: true, ..values });
    let off = Rules { values, ..roomy };
    assert_eq!(files(&into_last(&[1, 2, 3], Reason::Manual), &off), [9, 10, 11], "back into tables");
    assert_eq!(files(&into_last(&[1, 2], Reason::Manual), &off), [9]);
    // Elsewhere than in the last run nothing is collected.
    let in_l0 = job(&[(0, 9, &[9])], (0, 9), Reason::Tombstones);
    assert_eq!(files(&in_l0, &rules()), [] as [u64; 0]);
    let none = Rules { values: None, ..rules() };
    assert_eq!(files(&into_last(&[1, 2], Reason::Manual), &none), [] as [u64; 0]);
}

#[test]
fn a_full_compaction_rewrites_tables_that_name_wasteful_files() {
    let full = |live: u64, rules: &Rules| {
        let version: Version = wasteful(live, 50).parse().expect("notation");
        pick_full(&version, rules).map(|job| job.to_string())
    };
    let rewritten = |tables: &str| Some(format!("L1.r1[{tables}] -> L1.r1 (manual)"));
    assert_eq!(full(8_750, &rules()), rewritten("000001, 000002"));
    assert_eq!(full(8_751, &rules()), None);
    let values = rules().values.map(|values| ValueRules { is_off: true, ..values });
    assert_eq!(full(8_751, &Rules { values, ..rules() }), rewritten("000001, 000002, 000003"));
    assert_eq!(full(5_000, &Rules { values: None, ..rules() }), None);
}

#[test]
fn one_collection_runs_at_a_time() {
    let version: Version = wasteful(5_000, 50).parse().expect("notation");
    let mut claims = Claims::default();
    let next = |claims: &Claims| {
        let tree = TreeSituation {
            keyspace: KeyspaceId(0),
            version: &version,
            rules: rules(),
            claims,
            requests: &[],
            triggers: &Triggers::default(),
            is_automatic: true,
        };
        next_jobs(&Situation { sealed: 0, flushing: 0, quiet_us: 0, trees: &[tree], slots: 4 })
    };
    let jobs = next(&claims);
    let [NextJob { work: Work::Compaction(_, job), score }] = &jobs[..] else { panic!("{jobs:?}") };
    assert_eq!((job.reason, (score * 100.0).round()), (Reason::Values, 130.0));
    claims.claim(&version, job.clone(), (RunId(90), Age(90)), *score).expect("it is free");
    assert_eq!(next(&claims), []);
}

#[test]
fn the_debt_is_that_of_the_next_job() {
    let of = |tree: &str| {
        let version: Version = tree.parse().expect("notation");
        collection_debt_bytes(&version, &rules())
    };
    assert_eq!(of(&wasteful(6_079, 50)), 0);
    assert_eq!(of(&wasteful(5_000, 50)), 100 + 5_000, "two tables, and the values of file 9");
    assert_eq!(of(&above(200, 600)), 60);
    assert_eq!(of("L1: r1@1[1:a..e 50]\n"), 0);
    let version: Version = wasteful(5_000, 50).parse().expect("notation");
    let none = Rules { values: None, ..rules() };
    assert_eq!(collection_debt_bytes(&version, &none), 0);
}

/// Stored bytes of each value of a random tree.
const VALUE_BYTES: u64 = 100;

/// A random tree whose values have one length, and the number of keys that a reader finds. `R`,
/// `L` and the files are known from its entries.
struct RandomTree {
    version: Version,
    visible: u64,
}

/// Key to the file of its value; `None` for a delete.
type RunEntries = BTreeMap<u32, Option<u64>>;

impl RandomTree {
    fn new(rng: &mut Rng) -> Self {
        let keys = rng.u32(1..300);
        // Stored values of each file: those that are referenced and some that are obsolete.
        let mut stored: BTreeMap<u64, u64> = BTreeMap::new();
        let mut runs: Vec<RunEntries> = Vec::new();
        let levels = rng.usize(1..4);
        for level in 0..=levels {
            let (share, files) = match level {
                0 => (rng.f64(), rng.u64(1..12)),
                _ => (rng.f64().powi(3) / 2.0, rng.u64(1..3)),
            };
            let base = 100 * level as u64;
            let mut entries = RunEntries::new();
            for key in 0..keys {
                if rng.f64() < share {
                    let is_delete = level > 0 && rng.u8(..8) == 0;
                    // Files that a collection has left are named by several runs.
                    let file = if rng.u8(..16) == 0 { 1 } else { base + rng.u64(..files) };
                    entries.insert(key, (!is_delete).then_some(file));
                }
            }
            if !entries.is_empty() {
                runs.push(entries);
            }
        }
        for file in runs.iter().flat_map(BTreeMap::values).flatten() {
            *stored.entry(*file).or_default() += 1;
        }
        let waste = rng.f64();
        stored.values_mut().for_each(|values| *values += (*values as f64 * waste * rng.f64() * 2.0) as u64);
        let mut found: BTreeMap<u32, bool> = BTreeMap::new();
        for entries in &runs {
            found.extend(entries.iter().map(|(key, file)| (*key, file.is_some())));
        }
        let text = Self::text(rng, &runs, &stored);
        let version = text.parse().unwrap_or_else(|why| panic!("{why}\n{text}"));
        Self { version, visible: found.values().filter(|is_put| **is_put).count() as u64 }
    }

    /// The notation of runs, the last one first, each on a level of its own.
    fn text(rng: &mut Rng, runs: &[RunEntries], stored: &BTreeMap<u64, u64>) -> String {
        let (mut text, mut table) = (String::new(), 0);
        let entry_bytes = rng.u64(1..40);
        for (at, entries) in runs.iter().enumerate().rev() {
            write!(text, "L{}: r{at}@{at}[", runs.len() - at).expect("text");
            let entries: Vec<_> = entries.iter().collect();
            let chunks = entries.chunks(rng.usize(1..100));
            for (number, chunk) in chunks.enumerate() {
                table += 1;
                let (lower, upper) = (chunk[0].0, chunk[chunk.len() - 1].0 + 1);
                let deletes = chunk.iter().filter(|(_, file)| file.is_none()).count();
                let comma = if number > 0 { ", " } else { "" };
                let (count, bytes) = (chunk.len(), chunk.len() as u64 * entry_bytes);
                write!(text, "{comma}{table}:{lower:04}..{upper:04} {bytes} n={count} del={deletes}")
                    .expect("text");
                let mut uses: BTreeMap<u64, u64> = BTreeMap::new();
                chunk
                    .iter()
                    .filter_map(|(_, file)| **file)
                    .for_each(|file| *uses.entry(file).or_default() += 1);
                for (file, values) in uses {
                    write!(text, " val={file}:{values}:{}", values * VALUE_BYTES).expect("text");
                }
            }
            text += "]\n";
        }
        let files =
            stored.iter().map(|(file, values)| format!("{file} {} n={values}", 128 + values * VALUE_BYTES));
        if !stored.is_empty() {
            text += &format!("V: {}\n", files.collect::<Vec<_>>().join(", "));
        }
        text
    }

    fn live_bytes(&self) -> u64 {
        self.version.bytes() + self.visible * VALUE_BYTES
    }
}

#[test]
fn the_space_is_bounded_while_no_collection_is_due() {
    let (mut idle, mut hidden, mut collected, mut of_all) = (0, 0, 0, 0);
    for seed in 0..4_000 {
        let mut rng = Rng::with_seed(seed);
        let tree = RandomTree::new(&mut rng);
        let rules = rules_of([1.1, 1.25, 1.5, 3.0][rng.usize(..4)]);
        let values = rules.values.expect("rules");
        let (version, live) = (&tree.version, tree.live_bytes() as f64);
        let of_tree = || format!("seed {seed}, A {}, L {live}\n{version}", values.space);
        let space = Space::of(version, &values);
        // Step 2.
        if space.hidden_share < 1.0 {
            let least = space.referenced as f64 * (1.0 - space.hidden_share);
            assert!(live >= least - 1.0, "at least {least} are live, {}", of_tree());
        }
        let Some((job, _)) = due_in(version, &rules) else {
            // Step 3.
            assert!(
                space.stored as f64 <= values.space * live + 1.0,
                "{} stored, {}",
                space.stored,
                of_tree()
            );
            idle += 1;
            continue;
        };
        job.check(version).unwrap_or_else(|why| panic!("{why}: {}", of_tree()));
        let emptied = victims(version, &job, &rules);
        let inputs: BTreeSet<_> =
            job.uses(version).iter().map(|(_, run, table)| (run.id, table.meta.id)).collect();
        let names =
            |table: &TableUse| table.meta.values.get().files().iter().any(|of| emptied.contains(&of.file.id));
        let mut outside =
            version.tables().filter(|(_, run, table)| !inputs.contains(&(run.id, table.meta.id)));
        assert!(
            !outside.any(|(_, _, table)| names(table)),
            "{job} leaves references to {emptied:?}, {}",
            of_tree()
        );
        let totals = version.value_totals();
        let stored =
            emptied.iter().filter_map(|file| totals.get(*file)).map(|total| total.file.stored_bytes());
        let (stored, moved) = (stored.sum::<u64>(), totals.bytes_in(&emptied));
        let is_one = emptied.len() == 1;
        assert!(is_one || moved <= space.referenced / MOVED_PART, "{job} moves {moved}, {}", of_tree());
        // Step 4.
        let is_full = space.garbage() > 1.0;
        assert!(!is_full || !emptied.is_empty(), "{job} frees nothing, {}", of_tree());
        if !emptied.is_empty() {
            let freed = (stored - moved) as f64 / stored as f64;
            assert!(freed >= space.dead_share_min(), "{job} frees {freed}, {}", of_tree());
            collected += 1;
            if is_full && inputs.len() == version.tables().count() {
                assert!(freed > 1.0 - 1.0 / space.allowed, "{job} frees {freed}, {}", of_tree());
                of_all += 1;
            }
        } else {
            hidden += 1;
        }
    }
    println!("{idle} idle, {hidden} merged, {collected} collected, {of_all} of all runs");
    assert!(idle > 200 && hidden > 200 && collected > 200 && of_all > 50);
}
