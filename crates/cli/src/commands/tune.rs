//! `shamba tune DB`: prints the recent workload of a database and a better design for it, and moves
//! to that design.
//!
//! The database records its workload when it is closed; this command uses that record. With
//! `--dry-run` it only reads, under a shared lock. Otherwise it follows the advice and waits until
//! compactions have moved the trees. A design undone with `--undo` is not advised again for an
//! hour. Given options are recorded.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use shamba::{Advice, Db, Prediction, Redesigned, TreeDesign, Workload};

use crate::exit::Failure;
use crate::open;
use crate::options::EngineOptions;
use crate::output::{Out, Table};
use crate::progress;
use crate::sizes::{show_ns, show_size};

/// Arguments of `tune`.
#[derive(Args)]
pub struct TuneArgs {
    /// The database
    db: PathBuf,
    /// Only print the advice; write nothing
    #[arg(long)]
    dry_run: bool,
    /// Undo the last redesign; the undone design is not advised again for an hour
    #[arg(long, conflicts_with = "dry_run")]
    undo: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    engine: EngineOptions,
}

pub fn run(args: &TuneArgs, out: &mut Out) -> Result<(), Failure> {
    let db = match args.dry_run {
        true => open::reader(&args.db, &args.engine.for_reading())?,
        false => open::existing(&args.db, &args.engine.recorded())?,
    };
    open::closing(db, |db| tune(args, db, out))
}

fn tune(args: &TuneArgs, db: &Db, out: &mut Out) -> Result<(), Failure> {
    let advice = if args.undo { None } else { Some(db.advise()?) };
    let before = db.tree_design();
    match &advice {
        _ if args.dry_run => {}
        Some(advice) => db.follow(advice)?,
        None => _ = db.undo_redesign()?,
    }
    let is_moved = db.tree_design() != before;
    if is_moved {
        wait(db, !args.json)?;
    }
    let told = Told { before, after: db.tree_design(), is_moved, advice, redesigns: db.redesigns() };
    if args.json { out.json(&told.to_json()) } else { told.write(out) }
}

/// Waits for the compactions and shows the bytes compacted so far.
fn wait(db: &Db, shows: bool) -> Result<(), Failure> {
    let bar = shows.then(|| progress::bar("bytes compacted", None));
    let done = AtomicBool::new(false);
    let merged_before = db.stats().bytes_compacted;
    let idle = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                if let Some(bar) = &bar {
                    bar.set_position(db.stats().bytes_compacted.saturating_sub(merged_before));
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let idle = db.wait_idle();
        done.store(true, Ordering::Release);
        idle
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    Ok(idle?)
}

/// Result of the command.
struct Told {
    before: TreeDesign,
    after: TreeDesign,
    is_moved: bool,
    /// `None` for an undo.
    advice: Option<Advice>,
    redesigns: Vec<Redesigned>,
}

impl Told {
    fn write(&self, out: &mut Out) -> Result<(), Failure> {
        if let Some(advice) = &self.advice {
            write_advice(advice, out)?;
        }
        match self.is_moved {
            true => out.line(format!("\nmoved from {}\n        to {}", self.before, self.after))?,
            false => out.line(format!("\ncurrent design: {}", self.after))?,
        }
        for redesign in self.redesigns.iter().rev().take(3) {
            out.line(format!("  by {}: to {} ({})", redesign.by.name(), redesign.to, redesign.reason))?;
        }
        Ok(())
    }

    fn to_json(&self) -> Value {
        let redesigns: Vec<Value> = self.redesigns.iter().map(redesign_json).collect();
        json!({
            "schema": "shamba.tune/1",
            "moved": self.is_moved,
            "design": design_json(&self.after),
            "design_before": design_json(&self.before),
            "advice": self.advice.as_ref().map(advice_json),
            "redesigns": redesigns,
        })
    }
}

fn write_advice(advice: &Advice, out: &mut Out) -> Result<(), Failure> {
    let seen = &advice.workload;
    let mut table = Table::new(["recent operations", "per second"]);
    for (name, count) in [
        ("updates", seen.updates()),
        ("found lookups", seen.found_lookups),
        ("empty lookups", seen.empty_lookups),
        ("ranges", seen.ranges),
    ] {
        table.row([name.to_owned(), format!("{:.0}", seen.per_second(count))]);
    }
    out.text(table.to_string())?;
    if let Some(now) = &advice.now {
        let then = advice.better.as_ref().map(|better| &better.then);
        let mut table = Table::new(["time of an operation", "now", "then"]);
        let mut row = |name: &str, figure: &dyn Fn(&Prediction) -> String| {
            table.row([name.to_owned(), figure(now), then.map_or_else(String::new, figure)]);
        };
        row("mean", &|cost| show_ns(cost.operation_ns));
        if advice.uncertainty > 0.0 {
            let name = format!("worst mix, uncertainty {:.2}", advice.uncertainty);
            row(&name, &|cost| show_ns(cost.worst_operation_ns));
        }
        row("update", &|cost| show_ns(cost.update_ns));
        row("lookup", &|cost| show_ns(cost.lookup_ns));
        row("range", &|cost| show_ns(cost.range_ns));
        row("runs", &|cost| format!("{:.1}", cost.runs));
        row("write amplification", &|cost| format!("{:.1}", cost.write_amplification));
        out.text(format!("\n{table}"))?;
    }
    if let Some(better) = &advice.better {
        out.line(format!(
            "\nbetter: {}\nsaves {:.0} % of the time per operation; compactions write {} in {:.1} s and pay off after {:.0} s\n\
             reason: {}",
            better.design,
            better.gain * 100.0,
            show_size(better.written_bytes),
            better.seconds,
            better.break_even_s,
            advice.reason
        ))?;
        return Ok(());
    }
    out.line(format!("\nno change advised: {}", advice.reason))
}

fn design_json(design: &TreeDesign) -> Value {
    let TreeDesign { design, filter_memory_bytes, allocation } = design;
    json!({
        "policy": design.policy().map(shamba::MergePolicy::name),
        "size_ratio": design.size_ratio,
        "inner_runs": design.inner_runs,
        "last_runs": design.last_runs,
        "buffer_bytes": design.buffer_bytes,
        "bits_per_key": design.bits_per_key,
        "filter_bytes": filter_memory_bytes,
        "allocation": allocation.name(),
    })
}

fn advice_json(advice: &Advice) -> Value {
    let better = advice.better.as_ref().map(|better| {
        json!({
            "design": design_json(&better.design),
            "then": prediction_json(&better.then),
            "gain": better.gain,
            "written_bytes": better.written_bytes,
            "seconds": better.seconds,
            "break_even_s": better.break_even_s,
        })
    });
    json!({
        "workload": workload_json(&advice.workload),
        "uncertainty": advice.uncertainty,
        "now": advice.now.as_ref().map(prediction_json),
        "better": better,
        "reason": advice.reason,
    })
}

fn workload_json(seen: &Workload) -> Value {
    json!({
        "updates_per_s": seen.per_second(seen.updates()),
        "empty_lookups_per_s": seen.per_second(seen.empty_lookups),
        "found_lookups_per_s": seen.per_second(seen.found_lookups),
        "ranges_per_s": seen.per_second(seen.ranges),
        "entries_per_range": seen.entries_per_range(),
        "overwritten_share": seen.overwritten_share(),
        "move_ns_per_byte": seen.move_ns_per_byte(),
    })
}

fn prediction_json(cost: &Prediction) -> Value {
    json!({
        "operation_ns": cost.operation_ns,
        "worst_operation_ns": cost.worst_operation_ns,
        "update_ns": cost.update_ns,
        "lookup_ns": cost.lookup_ns,
        "range_ns": cost.range_ns,
        "lookup_reads": cost.lookup_reads,
        "runs": cost.runs,
        "write_amplification": cost.write_amplification,
    })
}

fn redesign_json(redesign: &Redesigned) -> Value {
    json!({
        "unix_ms": redesign.unix_ms,
        "by": redesign.by.name(),
        "from": design_json(&redesign.from),
        "to": design_json(&redesign.to),
        "reason": redesign.reason,
    })
}
