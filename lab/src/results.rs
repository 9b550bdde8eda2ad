//! Files of results: per experiment `ID.json` (everything but rows), `ID.csv.gz` (rows) and
//! `ID.svg`.
//!
//! Results of a scale lie in a folder of its name, so that verdicts of scales can be compared.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use crate::chart;
use crate::experiment::Experiment;
use crate::facts::Facts;
use crate::picture::{model_errors, picture};
use crate::rows::Rows;
use crate::runner::Plan;
use crate::scale::{Parameter, Scale};
use crate::verdict::{Bound, Finding, Verdict, judge};

/// The schema of `ID.json`.
pub const SCHEMA: &str = "shamba.lab/2";

/// An experiment's result.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Whether the claim holds.
    pub verdict: Verdict,
    /// Each predicate with its finding, as a sentence.
    pub found: Vec<String>,
    /// The object in `ID.json`.
    pub json: Value,
}

/// The folder of a scale's results.
pub fn folder(out: &Path, scale: Scale) -> PathBuf {
    out.join(scale.name())
}

/// Judges rows and writes the result.
pub(crate) fn write(
    experiment: &Experiment,
    plan: &Plan,
    seeds: &[u64],
    rows: &Rows,
    took: Duration,
) -> Result<Outcome, String> {
    let dir = folder(&plan.out, plan.scale);
    let failed = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    fs::create_dir_all(&dir).map_err(|error| failed(&dir, error))?;
    let (verdict, findings) = judge(experiment.predicates, rows, experiment.kind.is_sampled());
    let memory_ns = crate::device::MemoryRead::Measured.ns().unwrap_or(0);
    let facts = Facts::here(&plan.scratch, memory_ns);
    let seconds = (took.as_secs_f64() * 10.0).round() / 10.0;
    let view = rows.view();
    let reason = (experiment.reason)(&view);
    let machine: serde_json::Map<String, Value> =
        facts.pairs().into_iter().map(|(name, value)| (name, Value::from(value))).collect();
    let mut object = describe(experiment, plan.scale);
    let more = json!({
        "verdict": verdict.name(),
        "findings": findings.iter().map(finding).collect::<Vec<_>>(),
        "reason": reason,
        "notes": rows.notes,
        "model_errors": model_errors(experiment, rows),
        "seeds": seeds,
        "seconds": seconds,
        "rows": view.0.len(),
        "emulated_rows": view.flagged("emulated", true),
        "incomparable_rows": view.flagged("comparable", false),
        "machine": machine,
    });
    if let (Value::Object(object), Value::Object(more)) = (&mut object, more) {
        object.extend(more);
    }
    let keep = |suffix: &str, bytes: &[u8]| {
        let path = dir.join(format!("{}.{suffix}", experiment.id));
        fs::write(&path, bytes).map_err(|error| failed(&path, error))
    };
    keep("csv.gz", &compressed(&csv(experiment, plan.scale, &facts, rows)?)?)?;
    keep("svg", chart::svg(&picture(experiment, rows))?.as_bytes())?;
    keep("json", format!("{object:#}\n").as_bytes())?;
    Ok(Outcome { verdict, found: findings.iter().map(Finding::to_string).collect(), json: object })
}

/// Description of an experiment before it has run.
pub fn describe(experiment: &Experiment, scale: Scale) -> Value {
    let parameters: Vec<Value> = (experiment.parameters)(scale).iter().map(parameter).collect();
    json!({
        "schema": SCHEMA,
        "id": experiment.id,
        "paper": experiment.paper.name(),
        "place": experiment.place,
        "title": experiment.title,
        "claim": experiment.claim,
        "kind": experiment.kind.name(),
        "scale": scale.name(),
        "parameters": parameters,
        "note": experiment.note,
    })
}

fn parameter(parameter: &Parameter) -> Value {
    json!({ "name": parameter.name, "varied": parameter.is_varied, "value": parameter.value })
}

fn finding(found: &Finding) -> Value {
    let (low, high) = match found.predicate.bound {
        Bound::AtLeast(low) => (Some(low), None),
        Bound::AtMost(high) => (None, Some(high)),
        Bound::Within(low, high) => (Some(low), Some(high)),
    };
    json!({
        "text": found.predicate.text,
        "role": format!("{:?}", found.predicate.role).to_lowercase(),
        "claimed_min": low,
        "claimed_max": high,
        "mean": found.interval.map(|one| one.mean),
        "low": found.interval.map(|one| one.low),
        "high": found.interval.map(|one| one.high),
        "known": found.known.sign(),
        "values": found.values,
        "status": found.status.name(),
        "told": found.to_string(),
    })
}

/// The rows as CSV after a header of comments.
fn csv(experiment: &Experiment, scale: Scale, facts: &Facts, rows: &Rows) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut head = |name: &str, value: &str| writeln!(bytes, "# {name}: {value}");
    let said = |error: &dyn std::fmt::Display| format!("writing the table: {error}");
    let lines = [("experiment", experiment.id), ("claim", experiment.claim), ("scale", scale.name())];
    for (name, value) in lines {
        head(name, value).map_err(|error| said(&error))?;
    }
    for parameter in (experiment.parameters)(scale) {
        let role = if parameter.is_varied { "varied" } else { "fixed" };
        head(&format!("{role} {}", parameter.name), &parameter.value).map_err(|error| said(&error))?;
    }
    for (name, value) in facts.pairs() {
        head(&name, &value).map_err(|error| said(&error))?;
    }
    let columns = rows.columns();
    let mut writer = csv::Writer::from_writer(bytes);
    writer.write_record(&columns).map_err(|error| said(&error))?;
    for row in rows.view().0 {
        writer.write_record(columns.iter().map(|column| row.text(column))).map_err(|error| said(&error))?;
    }
    writer.into_inner().map_err(|error| said(&error))
}

fn compressed(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).map_err(|error| format!("compressing: {error}"))
}
