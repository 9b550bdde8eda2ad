//! `shamba changes DB`: prints the changes that the logs of a database still have, oldest first.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use shamba::{Change, ChangeOp, ChangePosition};

use crate::exit::Failure;
use crate::open;
use crate::options::EngineOptions;
use crate::output::Out;
use crate::text::{Notation, escape};

/// Arguments of `changes`.
#[derive(Args)]
pub struct ChangesArgs {
    /// The database
    db: PathBuf,
    /// Begin after this position; default: the oldest one that is kept
    #[arg(long, value_name = "EPOCH:SEQUENCE")]
    since: Option<ChangePosition>,
    /// Keys and values are hex
    #[arg(long)]
    hex: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: EngineOptions,
}

pub fn run(args: &ChangesArgs, out: &mut Out) -> Result<(), Failure> {
    let notation = Notation::from_switch(args.hex);
    let db = open::existing(&args.db, &args.options)?;
    open::closing(db, |db| {
        // What the open has replayed may not be durable yet.
        db.sync()?;
        let since = match args.since {
            Some(since) => since,
            None => db.oldest_change_position()?,
        };
        let mut changes = db.changes_since(since)?;
        while let Some(change) = changes.try_next()? {
            print(&change, args.json, notation, out)?;
        }
        Ok(())
    })
}

fn print(change: &Change, as_json: bool, notation: Notation, out: &mut Out) -> Result<(), Failure> {
    let position = change.position().to_string();
    let show = |bytes: &[u8]| notation.show(bytes).to_string();
    let line = match change {
        Change::Batch(batch) => {
            let operations: Vec<(&str, ChangeOp<'_>)> = batch.operations().collect();
            if as_json {
                let operations: Vec<Value> =
                    operations.iter().map(|(keyspace, op)| operation(keyspace, op, &show)).collect();
                json!({ "change": "batch", "operations": operations })
            } else {
                out.line(format!("{position} batch of {}", operations.len()))?;
                for (keyspace, op) in &operations {
                    out.line(format!("  {}", operation_text(keyspace, op, &show)))?;
                }
                return Ok(());
            }
        }
        Change::Ingested { keyspace, entries, first, last, .. } => json!({
            "change": "ingested", "keyspace": **keyspace, "entries": entries,
            "first": show(first), "last": show(last),
        }),
        Change::KeyspaceCreated { keyspace, .. } => {
            json!({ "change": "keyspace_created", "keyspace": **keyspace })
        }
        Change::KeyspaceDropped { keyspace, .. } => {
            json!({ "change": "keyspace_dropped", "keyspace": **keyspace })
        }
        // A kind of a later version of the library, which this command does not have.
        _ => json!({ "change": "unknown" }),
    };
    if as_json {
        let mut line = line;
        line["schema"] = json!("shamba.change/1");
        line["position"] = json!(position);
        return out.json(&line);
    }
    let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
    let kind = text("change").replace('_', " ");
    let keyspace = text("keyspace");
    let keyspace = escape(keyspace.as_bytes());
    match line["entries"].as_u64() {
        Some(entries) => out.line(format!(
            "{position} {kind} {entries} entries [{keyspace}] {}..={}",
            text("first"),
            text("last")
        )),
        None => out.line(format!("{position} {kind} [{keyspace}]")),
    }
}

fn operation(keyspace: &str, op: &ChangeOp<'_>, show: &dyn Fn(&[u8]) -> String) -> Value {
    match op {
        ChangeOp::Put { key, value, expiry_ms, .. } => {
            let (key, value) = (show(key), show(value));
            json!({ "op": "put", "keyspace": keyspace, "key": key, "value": value, "expiry_ms": expiry_ms })
        }
        ChangeOp::Delete { key, .. } => json!({ "op": "delete", "keyspace": keyspace, "key": show(key) }),
        ChangeOp::DeleteRange { start, end, .. } => {
            json!({ "op": "delete_range", "keyspace": keyspace, "from": show(start), "to": end.map(show) })
        }
        ChangeOp::Merge { key, operand, .. } => {
            json!({ "op": "merge", "keyspace": keyspace, "key": show(key), "operand": show(operand) })
        }
        _ => json!({ "op": "unknown", "keyspace": keyspace }),
    }
}

fn operation_text(keyspace: &str, op: &ChangeOp<'_>, show: &dyn Fn(&[u8]) -> String) -> String {
    let keyspace = escape(keyspace.as_bytes());
    match op {
        ChangeOp::Put { key, value, .. } => format!("put [{keyspace}] {} = {}", show(key), show(value)),
        ChangeOp::Delete { key, .. } => format!("delete [{keyspace}] {}", show(key)),
        ChangeOp::DeleteRange { start, end, .. } => {
            format!("delete_range [{keyspace}] {}..{}", show(start), end.map(show).unwrap_or_default())
        }
        ChangeOp::Merge { key, operand, .. } => {
            format!("merge [{keyspace}] {} + {}", show(key), show(operand))
        }
        _ => format!("unknown [{keyspace}]"),
    }
}
