//! Every experiment once, from end to end, at the tiny scale: that it runs, and what it leaves.
//!
//! What is found at that scale says nothing, so no figure is looked at. What is: the table as it was written has the columns, the levels and
//! the runs that it should, and as many rows of each side; the result is JSON, the picture XML.
//!
//! Not here: whether a verdict follows from figures (beside each experiment).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use super::device::MemoryRead;
use super::files::{Outcome, SCHEMA};
use super::{Cell, Device, Experiment, Lab, Paper, Parameter, Scale, Verdict, all, find, run};

/// Experiments of a paper that are run at a time: some wait for emulated devices.
const BESIDE: usize = 2;
/// The last columns of what was measured in a tree.
const SHAPE: [&str; 4] = ["levels", "runs", "comparable", "emulated"];
/// Columns that tell the sides of a comparison, a row for each.
const SIDES: [&str; 5] = ["filters", "filter_bits", "approach", "store", "switched_on"];
/// Columns of two sides in one row.
const SIDES_IN_A_ROW: [&str; 2] = ["baseline_ns", "shared_ns"];
/// Measured in a tree, but of one side, which is held against a model or a figure of the paper.
const OF_ONE_SIDE: [&str; 4] =
    ["hash-sharing-fig1", "hash-sharing-fig2", "shamba-pressure", "shamba-access-frequency"];
/// Of trees that grow, whose bits are only then as asked for when all of it has been written anew.
const OF_TREES_THAT_GROW: [&str; 1] = ["mnemosyne-fig11"];
/// Computed, or measured of filters, hash functions and memtables alone.
const WITHOUT_A_TREE: [&str; 24] = [
    "hash-sharing-fig3",
    "hash-sharing-fig4",
    "hash-sharing-fig5",
    "hash-sharing-fig6",
    "hash-sharing-table1",
    "hash-sharing-table2",
    "hash-sharing-table3",
    "hash-sharing-memtable",
    "shamba-memory-price",
    "shamba-probes",
    "shamba-mbf-fpr",
    "shamba-mbf-modules",
    "shamba-mbf-bytes",
    "monkey-fig7",
    "monkey-fig8",
    "monkey-fig9",
    "monkey-fig10",
    "monkey-fig11a",
    "monkey-fig11b",
    "monkey-fig11c",
    "monkey-fig11d",
    "monkey-table1",
    "monkey-table2",
    "monkey-table4",
];

#[test]
fn hash_sharing() {
    every(Paper::HashSharing, BESIDE);
}

#[test]
fn modular_filters() {
    // They hand their trees on to one another.
    every(Paper::ModularFilters, 1);
}

#[test]
fn monkey() {
    every(Paper::Monkey, BESIDE);
}

#[test]
fn mnemosyne() {
    every(Paper::Mnemosyne, BESIDE);
}

/// Where memory is slow, what is measured on several devices is measured on the others, and says so.
#[test]
fn without_a_device_that_cannot_be_emulated() {
    for id in [
        "hash-sharing-fig1",
        "hash-sharing-fig2",
        "hash-sharing-fig11",
        "hash-sharing-fig12",
        "hash-sharing-table1",
        "shamba-devices",
    ] {
        let dir = tempfile::tempdir().expect("a directory");
        let mut progress = |_: &str| {};
        let mut lab = Lab::new(dir.path().to_path_buf(), Scale::Tiny, 1, &mut progress);
        lab.memory_read = MemoryRead::Assumed(300);
        let outcome = run(find(id).expect("there is one"), &mut lab, &dir.path().join("results"));
        let finding = outcome.expect("it does not fail").finding;
        assert_ne!(finding.verdict, Verdict::Confirmed, "{id}");
        let left_out = format!("{} is left out: ", Device::Nvm.name());
        assert!(finding.why.starts_with(&left_out), "{id}: {}", finding.why);
        let rows = finding.table.rows();
        let has_it = |row: &Vec<Cell>| row.contains(&Cell::from(Device::Nvm.name()));
        assert!(!rows.is_empty() && !rows.iter().any(has_it), "{id}");
    }
}

/// Runs all experiments of a paper, so many at a time.
fn every(paper: Paper, beside: usize) {
    let of_paper: Vec<_> = all().into_iter().filter(|experiment| experiment.paper == paper).collect();
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..beside {
            scope.spawn(|| {
                while let Some(experiment) = of_paper.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(error) = end_to_end(experiment) {
                        wrong.lock().expect("a list").push(format!("{}: {error}", experiment.id));
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().expect("a list");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn end_to_end(experiment: &Experiment) -> Result<(), String> {
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    let out = dir.path().join("results");
    let mut told = 0;
    let mut progress = |_: &str| told += 1;
    let mut lab = Lab::new(dir.path().to_path_buf(), Scale::Tiny, 1, &mut progress);
    let outcome = run(experiment, &mut lab, &out)?;
    let read = |suffix: &str| read(&out, experiment.id, suffix);
    check_table(experiment, &outcome, &read("csv")?)?;
    check_result(&outcome, &read("json")?)?;
    let picture = read("svg")?;
    let picture = roxmltree::Document::parse(&picture).map_err(|error| format!("the picture: {error}"))?;
    ensure(picture.root_element().has_tag_name(("http://www.w3.org/2000/svg", "svg")), || {
        "no picture".to_owned()
    })?;
    let is_drawn = |panel: &crate::chart::Panel| panel.series.iter().any(|series| !series.points.is_empty());
    ensure(outcome.finding.chart.panels.iter().all(is_drawn), || "a panel shows nothing".to_owned())
}

fn read(out: &Path, id: &str, suffix: &str) -> Result<String, String> {
    let path = out.join(format!("{id}.{suffix}"));
    fs::read_to_string(&path).map_err(|error| format!("{id}.{suffix}: {error}"))
}

fn ensure(is_so: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(otherwise()) }
}

/// The table as it was written: what stands before it, its columns, and what its rows say of trees and sides.
fn check_table(experiment: &Experiment, outcome: &Outcome, text: &str) -> Result<(), String> {
    let head = |name: &str, value: &str| format!("# {name}: {value}\n");
    let parameters = (experiment.parameters)(Scale::Tiny);
    let lines = parameters.iter().map(|Parameter { name, value, .. }| (*name, value.as_str()));
    for (name, value) in lines.chain([("scale", "tiny"), ("seed", "1"), ("claim", experiment.claim)]) {
        let line = head(name, value);
        ensure(text.contains(line.trim_start_matches("# ")), || format!("the head lacks {line:?}"))?;
    }
    let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(text.as_bytes());
    let said = |error: csv::Error| format!("the table: {error}");
    let columns: Vec<String> = reader.headers().map_err(said)?.iter().map(str::to_owned).collect();
    ensure(columns == outcome.finding.table.columns(), || format!("other columns: {columns:?}"))?;
    let rows: Vec<csv::StringRecord> = reader.records().collect::<Result<_, _>>().map_err(said)?;
    let points = outcome.finding.table.rows().len();
    ensure(rows.len() == points && points >= 2, || format!("{} rows of {points} points", rows.len()))?;

    let column = |name: &str| columns.iter().position(|known| known == name);
    let has_tree = SHAPE.iter().all(|name| column(name).is_some());
    ensure(has_tree != WITHOUT_A_TREE.contains(&experiment.id), || format!("columns of a tree: {has_tree}"))?;
    if !has_tree {
        return Ok(());
    }
    let [levels, runs, comparable, _] = SHAPE.map(|name| column(name).unwrap_or_default());
    for row in &rows {
        let count = |at: usize| row[at].parse::<u64>().unwrap_or_default();
        // Of a tree that lives some levels are empty just then.
        let is_comparable = &row[comparable] == "true" || OF_TREES_THAT_GROW.contains(&experiment.id);
        let is_whole = count(levels) >= 1 && count(runs) >= 1 && is_comparable;
        ensure(is_whole, || {
            format!(
                "not comparable, fewer levels or runs or other bits than there should be: {row:?} of {columns:?}"
            )
        })?;
    }
    let told_by: Vec<usize> = SIDES.iter().filter_map(|name| column(name)).collect();
    let in_a_row: Vec<usize> = SIDES_IN_A_ROW.iter().filter_map(|name| column(name)).collect();
    if OF_ONE_SIDE.contains(&experiment.id) {
        return Ok(());
    }
    match (told_by.first(), in_a_row.len()) {
        (Some(&side), _) => {
            let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
            rows.iter().for_each(|row| *counts.entry(&row[side]).or_default() += 1);
            let alike = counts.values().all(|count| count * counts.len() == rows.len());
            ensure(counts.len() >= 2 && alike, || format!("rows of each side: {counts:?}"))
        }
        (None, 2) => {
            let is_timed = |at: &usize| rows.iter().all(|row| row[*at].parse().unwrap_or(0.0) > 0.0);
            ensure(in_a_row.iter().all(is_timed), || "a side was not timed".to_owned())
        }
        _ => Err(format!("no column tells sides: {columns:?}")),
    }
}

/// The result as it was written.
fn check_result(outcome: &Outcome, text: &str) -> Result<(), String> {
    let json: Value = serde_json::from_str(text).map_err(|error| format!("the result: {error}"))?;
    let finding = &outcome.finding;
    ensure(json == outcome.json && json["schema"] == SCHEMA, || format!("another result: {json}"))?;
    ensure(json["rows"] == finding.table.rows().len(), || format!("{} rows", json["rows"]))?;
    let is_told = !finding.ours.is_empty() && json["ours"] == finding.ours.as_str();
    ensure(is_told, || "nothing was found".to_owned())?;
    let is_explained = finding.verdict == Verdict::Confirmed || !finding.why.is_empty();
    ensure(is_explained, || format!("{} without why", finding.verdict.name()))
}
