//! Running an experiment, and what it leaves behind: `ID.csv`, `ID.svg` and `ID.json`, each whole by itself.
//!
//! The table begins with comment lines that state the claim, parameters, machine, version, commit and seed; the JSON has the same and
//! the finding, and is what [`super::report`] reads.

use std::fs;
use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};

use super::experiment::{Experiment, Finding, Lab, Parameter, Role};
use super::facts::Facts;

/// The `schema` of a result's JSON.
pub(super) const SCHEMA: &str = "shamba.lab-result/1";

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
    let in_experiment = |error: String| format!("{}: {error}", experiment.id);
    fs::create_dir_all(out).map_err(|error| format!("create {}: {error}", out.display()))?;
    let since = Instant::now();
    let finding = (experiment.run)(lab).map_err(in_experiment)?;
    let seconds = since.elapsed().as_secs_f64();
    let facts = Facts::here();
    let svg = shamba_figures::svg(&finding.chart).map_err(in_experiment)?;
    let csv = finding.table.csv(&head(experiment, lab, &facts)).map_err(in_experiment)?;
    let json = result(experiment, lab, &facts, &finding, seconds);
    let text = serde_json::to_string_pretty(&json).map_err(|error| in_experiment(error.to_string()))? + "\n";
    for (suffix, text) in [("csv", &csv), ("svg", &svg), ("json", &text)] {
        let path = out.join(format!("{}.{suffix}", experiment.id));
        fs::write(&path, text).map_err(|error| format!("write {}: {error}", path.display()))?;
    }
    Ok(Outcome { finding, json })
}

/// What stands before the rows of a table.
fn head(experiment: &Experiment, lab: &Lab<'_>, facts: &Facts) -> Vec<(String, String)> {
    let mut head: Vec<(String, String)> = [
        ("experiment", experiment.id.to_owned()),
        ("source", format!("{}, {}", experiment.paper.name(), experiment.place)),
        ("claim", experiment.claim.to_owned()),
        ("scale", lab.scale.to_string()),
        ("seed", lab.seed.to_string()),
        ("repeats", lab.repeats.to_string()),
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
