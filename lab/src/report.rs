//! The report: a page of all results in a folder, by how verdicts came about, what did not reproduce first.
//!
//! Verdicts of different kinds ([`Kind`]) are counted apart: what follows from equations, or is our own claim, is no reproduction by measurement.
//! The head says how a verdict comes about and how figures are to be read, which experiments failed and how many did not run, and whether results are of one
//! commit and one scale.
//!
//! Reads every `*.json`, and `*.failed` of those that failed, that [`super::run`] left there, and writes `index.html`, for a browser, and `README.md`, for a repository.
//! Both show the pictures beside them by name; nothing is fetched from anywhere. A page of that name that is not of ours stays as it is.
//!
//! Not here: how the pages look (`report/pages.rs`).

mod pages;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::experiment::{Kind, Paper, Verdict};
use super::experiments;
use super::files::{FAILED, SCHEMA, write_whole};

/// What every page of ours has, and no other is overwritten.
const MARK: &str = "<!-- made by shamba-lab report: do not edit -->";

/// Writes the report of `dir`; the paths of what it wrote and how many results it holds.
///
/// # Errors
/// A folder without results, a result that is damaged, a page of others where ours would be: which file; what cannot be read or written.
pub fn report(dir: &Path) -> Result<(Vec<PathBuf>, usize), String> {
    let results = read(dir)?;
    if results.is_empty() {
        return Err(format!("{}: no results of experiments are there", dir.display()));
    }
    let failed = failures(dir)?;
    let pages =
        [("index.html", pages::html(&results, &failed)), ("README.md", pages::markdown(&results, &failed))]
            .map(|(name, text)| (dir.join(name), text));
    pages.iter().try_for_each(|(path, _)| is_free_or_ours(path))?;
    for (path, text) in &pages {
        write_whole(path, text)?;
    }
    Ok((pages.map(|(path, _)| path).to_vec(), results.len()))
}

/// Refuses a page that somebody else wrote.
fn is_free_or_ours(path: &Path) -> Result<(), String> {
    match fs::read_to_string(path) {
        Ok(text) if text.contains(MARK) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() != ErrorKind::InvalidData => {
            Err(format!("read {}: {error}", path.display()))
        }
        _ => Err(format!(
            "{}: is not a report of ours and stays as it is; move it, or the results",
            path.display()
        )),
    }
}

/// A result as it was written.
struct Entry {
    id: String,
    kind: Kind,
    verdict: Verdict,
    json: Value,
}

impl Entry {
    fn text(&self, name: &str) -> &str {
        self.json[name].as_str().unwrap_or_default()
    }

    /// How it came about, and what is not as in the paper: emulated devices, smaller trees.
    fn circumstances(&self) -> String {
        let count = |name: &str| self.json[name].as_u64().unwrap_or(0);
        let fact = |name: &str| self.json["machine"][name].as_str().unwrap_or("unknown");
        let mut text = format!(
            "Scale {}, seed {}, commit {}, {}, {:.0} s",
            self.text("scale"),
            count("seed"),
            fact("commit"),
            fact("day"),
            self.json["seconds"].as_f64().unwrap_or(0.0)
        );
        for (name, what) in [
            ("emulated_rows", "on an emulated device"),
            (
                "incomparable_rows",
                "not comparable: fewer levels or runs, or other filter bits than asked for",
            ),
        ] {
            if count(name) > 0 {
                let _ = write!(text, "; {} of {} rows {what}", count(name), count("rows"));
            }
        }
        text
    }

    fn is_of(&self, paper: Paper) -> bool {
        self.text("paper") == paper.name()
    }
}

/// Every result, in the order of the experiments' list; those that it does not know last.
fn read(dir: &Path) -> Result<Vec<Entry>, String> {
    let listed = fs::read_dir(dir).map_err(|error| format!("read {}: {error}", dir.display()))?;
    let mut results = BTreeMap::new();
    for entry in listed {
        let path = entry.map_err(|error| format!("read {}: {error}", dir.display()))?.path();
        if path.extension().is_none_or(|suffix| suffix != "json") {
            continue;
        }
        let damaged = |what: String| format!("{}: {what}", path.display());
        let text = fs::read_to_string(&path).map_err(|error| damaged(error.to_string()))?;
        let json: Value = serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))?;
        if json["schema"] != SCHEMA {
            continue;
        }
        let id = json["id"].as_str().ok_or_else(|| damaged("has no id".to_owned()))?.to_owned();
        let verdict = json["verdict"].as_str().and_then(Verdict::named);
        let verdict = verdict.ok_or_else(|| damaged("has no verdict that is known".to_owned()))?;
        // Results from before kinds were written have that of their experiment.
        let kind = json["kind"]
            .as_str()
            .map_or_else(|| experiments::find(&id).ok().map(|experiment| experiment.kind), Kind::named);
        let kind = kind.ok_or_else(|| damaged("has no kind that is known".to_owned()))?;
        let place = experiments::all().iter().position(|known| known.id == id).unwrap_or(usize::MAX);
        results.insert((place, id.clone()), Entry { id, kind, verdict, json });
    }
    Ok(results.into_values().collect())
}

/// What failed, and why, in the order of names.
fn failures(dir: &Path) -> Result<Vec<String>, String> {
    let said = |error: std::io::Error| format!("read {}: {error}", dir.display());
    let mut failed = Vec::new();
    for entry in fs::read_dir(dir).map_err(said)? {
        let path = entry.map_err(said)?.path();
        if path.extension().is_some_and(|suffix| suffix == FAILED) {
            let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            failed.push(text.trim().to_owned());
        }
    }
    failed.sort();
    Ok(failed)
}

/// What belongs under each kind and verdict.
fn sections(results: &[Entry]) -> Vec<(Kind, Verdict, Vec<&Entry>)> {
    let of = |kind, verdict| {
        let is_it = |entry: &&Entry| entry.kind == kind && entry.verdict == verdict;
        (kind, verdict, results.iter().filter(is_it).collect::<Vec<_>>())
    };
    Kind::ALL
        .into_iter()
        .flat_map(|kind| Verdict::ALL.map(|verdict| of(kind, verdict)))
        .filter(|(.., entries)| !entries.is_empty())
        .collect()
}

fn heading(kind: Kind, verdict: Verdict) -> String {
    let kind = match kind {
        Kind::Measured => "Measured",
        Kind::Computed => "Computed from the papers' equations",
        Kind::Literature => "From the literature",
        Kind::Ours => "Our own claims",
    };
    let verdict = match verdict {
        Verdict::NotHere => "not here",
        Verdict::Partly => "partly",
        Verdict::Confirmed => "confirmed",
    };
    format!("{kind}: {verdict}")
}

/// How many there are of each verdict, kind by kind and paper by paper.
fn summary(results: &[Entry]) -> Vec<(Kind, Paper, [usize; 3])> {
    let count = |kind, paper| {
        Verdict::ALL.map(|verdict| {
            let is_it = |entry: &&Entry| entry.kind == kind && entry.is_of(paper) && entry.verdict == verdict;
            results.iter().filter(is_it).count()
        })
    };
    Kind::ALL
        .into_iter()
        .flat_map(|kind| Paper::ALL.map(|paper| (kind, paper, count(kind, paper))))
        .filter(|(.., counts)| *counts != [0; 3])
        .collect()
}

/// What the head says: how results came about, how verdicts do, and what a reader must know of these.
fn head(results: &[Entry], failed: &[String]) -> Vec<String> {
    let mut head = vec![INTRODUCTION.to_owned(), VERDICTS.to_owned(), LEGEND.to_owned()];
    head.extend(experiments::rules().into_iter().map(|(paper, rule)| format!("{}: {rule}", paper.name())));
    head.push(completeness(results, failed));
    head.extend(differences(results));
    head
}

/// How many of the experiments have results here, how many did not run to their end, and which of these failed.
fn completeness(results: &[Entry], failed: &[String]) -> String {
    let all = experiments::all();
    let is_here = |id: &str| results.iter().any(|entry| entry.id == id);
    let known = all.iter().filter(|experiment| is_here(experiment.id)).count();
    let mut text = format!("{known} of {} experiments.", all.len());
    let not_run = all.len().saturating_sub(known + failed.len());
    if not_run > 0 {
        let _ = write!(text, " {not_run} not run.");
    }
    if !failed.is_empty() {
        let _ = write!(text, " {} failed: {}.", failed.len(), failed.join("; "));
    }
    if results.len() > known {
        let _ =
            write!(text, " {} results are of experiments that there no longer are.", results.len() - known);
    }
    text
}

/// What results should have in common and do not.
fn differences(results: &[Entry]) -> Option<String> {
    let common = ["scale", "seed", "commit", "profile", "processor"];
    let differ: Vec<String> = circumstances(results)
        .into_iter()
        .filter(|(name, values)| common.contains(&name.as_str()) && values.len() > 1)
        .map(|(name, values)| format!("{name} ({})", values.join(", ")))
        .collect();
    (!differ.is_empty())
        .then(|| format!("Results are not of one kind, they differ in: {}.", differ.join("; ")))
}

/// What all results have in common, or what differs between them.
fn circumstances(results: &[Entry]) -> Vec<(String, Vec<String>)> {
    let mut facts: Vec<(String, Vec<String>)> = Vec::new();
    let mut note = |name: &str, value: String| match facts.iter_mut().find(|(known, _)| known == name) {
        Some((_, values)) if values.contains(&value) => {}
        Some((_, values)) => values.push(value),
        None => facts.push((name.to_owned(), vec![value])),
    };
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    for entry in results {
        for name in ["scale", "seed"] {
            note(name, text(&entry.json[name]));
        }
        for (name, value) in entry.json["machine"].as_object().into_iter().flatten() {
            note(name, text(value));
        }
    }
    facts
}

fn parameters(entry: &Entry) -> Vec<(String, String, String)> {
    let parameters = entry.json["parameters"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    parameters.map(|one| (text(&one["role"]), text(&one["name"]), text(&one["value"]))).collect()
}

const INTRODUCTION: &str = "Each claim of the papers beside what this engine does. Of what is measured: baseline and idea in one run on one machine, \
    interleaved, the median of the repeats with the least and the most; devices whose name has a latency are emulated, and what their reads really take here is in Table 1 of hash sharing. What is computed, from the literature, \
    or our own claim is counted apart. What did not reproduce comes first.";

const VERDICTS: &str = "No verdict is given by hand: each follows from the figures by a rule that stands, with its thresholds and a test, in the experiment's \
    source. Confirmed: every part of the claim holds, in direction and size. Partly: the direction is the same, the size is not, or only some parts hold, or some \
    rows are not comparable. Not here: what the claim is about is otherwise.";

const LEGEND: &str = "How figures are to be read. \"1.3 (2.0 where most) times the memory\": the baseline needs so many times the memory that the idea has, for as few I/Os; \
    1.3 on average over all amounts that were measured, 2.0 at the amount where it is most. \"Lower bound\": at some amounts it is more, for the idea reads less even with the least \
    that was measured. \"Upper bound\": at some it is less, for the idea never reads as little. A share saved that has a minus sign is lost: so much more is read, or so much longer it \
    takes. \"3 % (1 % to 4 %)\": the median of the repeats, the least and the most.";

#[cfg(test)]
mod tests {
    use super::*;

    fn write(dir: &Path, id: &str, verdict: &str) {
        let json = serde_json::json!({
            "schema": SCHEMA, "id": id, "paper": "Monkey", "place": "Fig 0", "title": "a < b", "claim": "c",
            "ours": "d", "kind": "measured", "verdict": verdict, "why": "e", "scale": "quick", "seed": 1, "seconds": 2.3,
            "rows": 9, "emulated_rows": 7, "incomparable_rows": 0,
            "parameters": [{ "name": "n", "role": "varied", "value": "1, 2" }],
            "machine": { "cores": "2", "commit": "0123abc", "day": "2026-01-02" },
        });
        fs::write(dir.join(format!("{id}.json")), json.to_string()).expect("written");
    }

    #[test]
    fn what_did_not_reproduce_comes_first() {
        let dir = tempfile::tempdir().expect("a directory");
        assert!(report(dir.path()).is_err(), "nothing to report");
        write(dir.path(), "one", "confirmed");
        write(dir.path(), "two", "not here");
        fs::write(dir.path().join("other.json"), "{\"schema\":\"other/1\"}").expect("written");
        fs::write(dir.path().join("monkey-fig7.failed"), "monkey-fig7: it cannot\n").expect("written");
        let (paths, count) = report(dir.path()).expect("written");
        assert_eq!((paths.len(), count), (2, 2));
        for path in paths {
            let text = fs::read_to_string(&path).expect("read");
            let at = |id: &str| text.find(&format!("lab run {id}")).expect("named");
            assert!(at("two") < at("one"), "{}", path.display());
            let told =
                "Scale quick, seed 1, commit 0123abc, 2026-01-02, 2 s; 7 of 9 rows on an emulated device";
            assert_eq!(text.matches(told).count(), 2, "{}", path.display());
            assert!(!text.contains("; 0 of 9 rows"), "{}", path.display());
            let all = experiments::all().len();
            let missing = format!(
                "0 of {all} experiments. {} not run. 1 failed: monkey-fig7: it cannot. 2 results",
                all - 1
            );
            assert!(text.contains(&missing), "{}", path.display());
            assert!(
                text.matches("do not edit").count() == 1 && text.contains("where most"),
                "{}",
                path.display()
            );
            assert!(!text.contains("they differ in"), "{}", path.display());
        }
        report(dir.path()).expect("a report of ours is written again");
        assert!(fs::read_to_string(dir.path().join("index.html")).expect("read").contains("a &lt; b"));
    }

    #[test]
    fn kinds_are_counted_apart_and_differences_told() {
        let entry = |id: &str, kind, verdict, commit: &str| Entry {
            id: id.to_owned(),
            kind,
            verdict,
            json: serde_json::json!({ "paper": "Monkey", "scale": "quick", "machine": { "commit": commit } }),
        };
        let results = [
            entry("monkey-fig7", Kind::Computed, Verdict::Confirmed, "a"),
            entry("monkey-fig13a", Kind::Measured, Verdict::NotHere, "a"),
            entry("monkey-fig13b", Kind::Measured, Verdict::Confirmed, "b"),
        ];
        let counts = summary(&results);
        let wanted = [(Kind::Measured, Paper::Monkey, [1, 0, 1]), (Kind::Computed, Paper::Monkey, [0, 0, 1])];
        assert_eq!(counts, wanted);
        let kinds: Vec<Kind> = sections(&results).into_iter().map(|(kind, ..)| kind).collect();
        assert_eq!(kinds, [Kind::Measured, Kind::Measured, Kind::Computed]);
        assert!(
            differences(&results)
                .is_some_and(|text| text.contains("commit (a, b)") && !text.contains("scale"))
        );
        assert_eq!(differences(&results[..2]), None);
        let all = experiments::all().len();
        let text = completeness(&results, &[]);
        assert_eq!(text, format!("3 of {all} experiments. {} not run.", all - 3));
        let text = completeness(&results, &["monkey-fig8: a".to_owned(), "monkey-fig9: b".to_owned()]);
        let wanted =
            format!("3 of {all} experiments. {} not run. 2 failed: monkey-fig8: a; monkey-fig9: b.", all - 5);
        assert_eq!(text, wanted);
    }

    #[test]
    fn a_page_of_others_stays() {
        for name in ["README.md", "index.html"] {
            let dir = tempfile::tempdir().expect("a directory");
            write(dir.path(), "one", "confirmed");
            fs::write(dir.path().join(name), "a page of others").expect("written");
            let error = report(dir.path()).map(|_| ()).expect_err("it would be lost");
            assert!(error.contains(name), "{error}");
            assert_eq!(fs::read(dir.path().join(name)).expect("read"), b"a page of others");
            assert_eq!(fs::read_dir(dir.path()).expect("read").count(), 2, "nothing was written");
        }
    }

    #[test]
    fn a_damaged_result_is_named() {
        let dir = tempfile::tempdir().expect("a directory");
        write(dir.path(), "one", "splendid");
        let error = report(dir.path()).map(|_| ()).expect_err("no such verdict");
        assert!(error.contains("one.json") && error.contains("verdict"), "{error}");
        fs::write(dir.path().join("one.json"), "{").expect("written");
        assert!(report(dir.path()).map(|_| ()).expect_err("no JSON").contains("one.json"));
    }
}
