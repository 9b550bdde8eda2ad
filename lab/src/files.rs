//! Running an experiment, and what it leaves behind: `ID.csv`, `ID.svg` and `ID.json`, each whole by itself; or `ID.failed`, which says why there is none of them.
//!
//! The table begins with comment lines that state the claim, parameters, machine, version, commit and seed; the JSON has the same and
//! the finding, and is what [`super::report`] reads.
//!
//! What an earlier run left under these names is removed before the experiment begins, and each file appears whole, the JSON last: what lies
//! there is of one run, and of one that ended.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::{Value, json};

use super::experiment::{Experiment, Finding, Lab, Parameter, Role};
use super::facts::Facts;

/// The `schema` of a result's JSON.
pub(super) const SCHEMA: &str = "shamba.lab-result/1";
/// What ends the name of the file that says why an experiment failed.
pub(super) const FAILED: &str = "failed";

/// A finished experiment.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What came out.
    pub finding: Finding,
    /// The result as it was written.
    pub json: Value,
}

/// Runs an experiment and writes its files into `out`, which is made if it is not there.
///
/// # Errors
/// What the experiment, the drawing or the file system says.
pub fn run(experiment: &Experiment, lab: &mut Lab<'_>, out: &Path) -> Result<Outcome, String> {
    fs::create_dir_all(out).map_err(|error| format!("create {}: {error}", out.display()))?;
    let path = |suffix: &str| out.join(format!("{}.{suffix}", experiment.id));
    let paths = SUFFIXES.map(path);
    let failed = path(FAILED);
    paths.iter().rev().chain([&failed]).try_for_each(|path| remove(path))?;
    carry_out(experiment, lab, &paths).inspect_err(|error| {
        // The error itself is told in any case.
        let _ = write_whole(&failed, &format!("{error}\n"));
    })
}

fn carry_out(
    experiment: &Experiment,
    lab: &mut Lab<'_>,
    paths: &[PathBuf; SUFFIXES.len()],
) -> Result<Outcome, String> {
    let in_experiment = |error: String| format!("{}: {error}", experiment.id);
    let since = Instant::now();
    let finding = (experiment.run)(lab).map_err(in_experiment)?.within_its_rows().marked();
    let seconds = since.elapsed().as_secs_f64();
    let facts = Facts::here(lab.dir(), lab.memory_read.ns().unwrap_or(0));
    let svg = crate::chart::svg(&finding.chart).map_err(in_experiment)?;
    let csv = finding.table.csv(&head(experiment, lab, &facts)).map_err(in_experiment)?;
    let json = result(experiment, lab, &facts, &finding, seconds);
    let text = serde_json::to_string_pretty(&json).map_err(|error| in_experiment(error.to_string()))? + "\n";
    for (path, text) in paths.iter().zip([&csv, &svg, &text]) {
        write_whole(path, text)?;
    }
    Ok(Outcome { finding, json })
}

/// Table, picture and result; the result last.
const SUFFIXES: [&str; 3] = ["csv", "svg", "json"];

fn remove(path: &Path) -> Result<(), String> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(format!("remove {}: {error}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Writes a file that nobody sees in part.
pub(super) fn write_whole(path: &Path, text: &str) -> Result<(), String> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".unfinished");
    fs::write(&unfinished, text)
        .and_then(|()| fs::rename(&unfinished, path))
        .map_err(|error| format!("write {}: {error}", path.display()))
}

/// What stands before the rows of a table.
fn head(experiment: &Experiment, lab: &Lab<'_>, facts: &Facts) -> Vec<(String, String)> {
    let mut head: Vec<(String, String)> = [
        ("experiment", experiment.id.to_owned()),
        ("source", format!("{}, {}", experiment.paper.name(), experiment.place)),
        ("kind", experiment.kind.name().to_owned()),
        ("claim", experiment.claim.to_owned()),
        ("scale", lab.scale.to_string()),
        ("seed", lab.seed.to_string()),
        ("repeats of what is measured", lab.repeats.to_string()),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect();
    for Parameter { name, role, value } in (experiment.parameters)(lab.scale) {
        let role = role_name(role);
        head.push((format!("{role} {name}"), value));
    }
    head.extend(facts.pairs());
    head
}

fn role_name(role: Role) -> &'static str {
    match role {
        Role::Varied => "varied",
        Role::Fixed => "fixed",
    }
}

/// An experiment in words, as JSON.
pub fn describe(experiment: &Experiment, scale: super::Scale) -> Value {
    let parameters: Vec<Value> = (experiment.parameters)(scale)
        .into_iter()
        .map(|Parameter { name, role, value }| json!({ "name": name, "role": role_name(role), "value": value }))
        .collect();
    json!({
        "id": experiment.id,
        "paper": experiment.paper.name(),
        "kind": experiment.kind.name(),
        "place": experiment.place,
        "title": experiment.title,
        "claim": experiment.claim,
        "parameters": parameters,
    })
}

fn result(experiment: &Experiment, lab: &Lab<'_>, facts: &Facts, finding: &Finding, seconds: f64) -> Value {
    let mut result = describe(experiment, lab.scale);
    let facts: serde_json::Map<String, Value> =
        facts.pairs().into_iter().map(|(name, value)| (name, Value::String(value))).collect();
    let more = json!({
        "schema": SCHEMA,
        "scale": lab.scale.name(),
        "seed": lab.seed,
        "repeats": lab.repeats,
        "ours": finding.ours,
        "verdict": finding.verdict.name(),
        "why": finding.why,
        "rows": finding.table.rows().len(),
        "incomparable_rows": finding.incomparable_rows(),
        "emulated_rows": finding.emulated_rows(),
        "seconds": (seconds * 10.0).round() / 10.0,
        "csv": format!("{}.csv", experiment.id),
        "svg": format!("{}.svg", experiment.id),
        "machine": facts,
    });
    if let (Value::Object(result), Value::Object(more)) = (&mut result, more) {
        result.extend(more);
    }
    result
}

#[cfg(test)]
mod tests {
    use crate::chart::{Axis, Chart, Panel, Point, Series, Style};

    use super::*;
    use crate::{Kind, Paper, Scale, Table, Verdict, report};

    const ENDS: Experiment = Experiment {
        id: "of-files",
        paper: Paper::Monkey,
        kind: Kind::Measured,
        place: "Fig 0",
        title: "a title",
        claim: "a claim",
        parameters: |_| vec![Parameter::varied("a parameter", [1, 2])],
        run: |lab| {
            let mut table = Table::new(&["seed", "comparable", "emulated"]);
            table.row(crate::table::row![lab.seed, lab.seed == 1, true]);
            let points = vec![Point::new(0.0, 1.0), Point::new(1.0, 2.0)];
            let panel = Panel {
                title: String::new(),
                x: Axis::linear("x"),
                y: Axis::linear("y"),
                series: vec![Series::new("a series", Style::Line, points)],
            };
            let chart = Chart {
                title: "t".to_owned(),
                claim: "c".to_owned(),
                note: "n".to_owned(),
                panels: vec![panel],
            };
            Ok(Finding {
                ours: "something".to_owned(),
                verdict: Verdict::Confirmed,
                why: String::new(),
                table,
                chart,
            })
        },
    };

    fn with_seed(experiment: &Experiment, seed: u64, dir: &Path) -> Result<Value, String> {
        let mut progress = |_: &str| {};
        let mut lab = Lab::new(dir.join("trees"), Scale::Tiny, seed, &mut progress);
        run(experiment, &mut lab, &dir.join("out")).map(|outcome| outcome.json)
    }

    #[test]
    fn a_result_is_of_one_run_that_ended() {
        let dir = tempfile::tempdir().expect("a directory");
        let whole = with_seed(&ENDS, 1, dir.path()).expect("a result");
        assert_eq!([&whole["verdict"], &whole["incomparable_rows"]], [&json!("confirmed"), &json!(0)]);
        let short = with_seed(&ENDS, 2, dir.path()).expect("a result");
        assert_eq!([&short["verdict"], &short["incomparable_rows"]], [&json!("partly"), &json!(1)]);
        assert_eq!(short["emulated_rows"], 1);
        let mut names: Vec<_> = fs::read_dir(dir.path().join("out"))
            .expect("a folder")
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["of-files.csv", "of-files.json", "of-files.svg"]);
        let fails = Experiment { run: |_| Err("it cannot".to_owned()), ..ENDS };
        let error = with_seed(&fails, 1, dir.path()).expect_err("it cannot");
        assert_eq!(error, "of-files: it cannot");
        let failed = dir.path().join("out").join("of-files.failed");
        assert_eq!(fs::read_to_string(&failed).expect("read"), "of-files: it cannot\n");
        let error = report(&dir.path().join("out")).map(|_| ()).expect_err("nothing is left to report");
        assert!(error.contains("no results"), "{error}");
        with_seed(&ENDS, 1, dir.path()).expect("a result");
        assert!(!failed.exists(), "it did not fail this time");
    }
}
