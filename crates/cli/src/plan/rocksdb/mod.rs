//! RocksDB's OPTIONS files: the design that they describe, better settings, and a patched file.
//!
//! [`file`] parses the syntax, [`settings`] reads the values, and [`notes`] lists settings outside
//! the model. [`tree`] converts settings to a design of the model, and [`universal`] handles the
//! options of universal compaction. [`advice`] searches for better settings, and [`patch`] writes
//! them into the text. Here: options, errors and the report.

mod advice;
mod file;
mod notes;
mod patch;
mod settings;
mod tree;
mod universal;

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use shamba_model::cost::{Costs, Situation, Workload};
use shamba_model::navigator::{self, Bounds, Navigation, navigate};

use self::advice::{Advice, Judged, Wish};
use self::file::OptionsFile;
use self::settings::{Family, Settings};
use super::counting::Counting;
use super::design::HALF_UPDATES;
use super::options::{MAX_SPACE, SituationOptions, max_space_text};
use super::report;
use crate::exit::Failure;
use crate::json;
use crate::output::{Out, Table, note};

/// Maximum size: OPTIONS files have some hundred lines.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Options for files of RocksDB.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "RocksDB")]
pub struct RocksdbOptions {
    /// Read the design from a RocksDB OPTIONS file; print its costs, better settings, and the
    /// patched file with the reason of each change
    #[arg(long, value_name = "FILE")]
    pub rocksdb: Option<PathBuf>,
    /// The column family
    #[arg(long, value_name = "NAME", default_value = "default", requires = "rocksdb")]
    pub cf: String,
    /// Write the patched file to FILE instead of printing it
    #[arg(long, value_name = "FILE", requires = "rocksdb")]
    pub out: Option<PathBuf>,
}

/// The design at the top level of the JSON object.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum First {
    /// The file's design.
    Present,
    /// The better design.
    Better,
}

/// The request.
pub struct Asked<'a> {
    /// The file and its column family.
    pub options: &'a RocksdbOptions,
    /// Options of data, workload and device.
    pub situation: &'a SituationOptions,
    /// Default workload.
    pub mix: Workload,
    /// Memory budget; `None`: the memory used by the present settings.
    pub memory_bytes: Option<u64>,
    /// The block cache, where the file does not state it.
    pub cache_bytes: Option<u64>,
    /// Maximum cost of a lookup, in I/Os.
    pub max_lookup_ios: Option<f64>,
    /// Maximum cost of an update, in I/Os.
    pub max_update_ios: Option<f64>,
    /// Maximum bytes stored for a byte of data, if given.
    pub max_space: Option<f64>,
    /// The design at the top level of the JSON object.
    pub first: First,
    /// JSON instead of text.
    pub json: bool,
}

/// Reads the file `path`, judges its settings, and prints the report.
///
/// # Errors
/// A file that cannot be read or judged, or invalid options.
pub fn run(path: &Path, asked: &Asked<'_>, out: &mut Out) -> Result<(), Failure> {
    let wrong = |error: String| Failure::Data(format!("{}: {error}", path.display()));
    let file = OptionsFile::parse(&read(path)?).map_err(wrong)?;
    let family = Family::of(&file, &asked.options.cf).map_err(wrong)?;
    let settings = Settings::read(&family).map_err(wrong)?;
    let mut situation_options = asked.situation.clone();
    situation_options.page_bytes = situation_options.page_bytes.or(Some(settings.block_bytes));
    let situation = situation_options.situation(asked.mix, Counting::Paper)?;
    let wish = Wish {
        memory_bytes: asked.memory_bytes,
        cache_bytes: asked.cache_bytes.unwrap_or(0),
        max_lookup_ios: asked.max_lookup_ios,
        max_update_ios: asked.max_update_ios,
        max_space: asked.max_space,
    };
    // After this check, errors come from the situation or a bound: the options' fault, not the
    // file's.
    tree::plan_of(&settings, &situation.data, 0).map_err(wrong)?;
    let advice = advice::advise(&settings, &situation, &wish).map_err(Failure::Usage)?;
    let patched = patch::patched(&family, &advice, &heading(&advice, &situation)).map_err(wrong)?;
    if let Some(target) = &asked.options.out {
        write(path, target, &patched)?;
    }
    let mut notes = settings.notes.clone();
    notes.extend(tree::caveats(&settings, &advice.present.plan, &situation.data));
    if let Some(better) = advice.better.as_ref().filter(|better| better.settings.style != settings.style) {
        notes.extend(tree::space_of_merges(&better.settings));
    }
    let beyond = beyond(&situation, &advice, asked);
    if asked.json {
        return out.json(&to_json(&advice, &situation, &notes, &patched, beyond.as_ref(), asked));
    }
    print(path, asked, &situation, &settings, &advice, &notes, out)?;
    if let Some(found) = &beyond {
        let ratio = found.costs.throughput_per_s / advice.present.costs.throughput_per_s;
        out.heading("better design of this engine, which RocksDB's settings cannot express")?;
        out.line(format!("design    {}", report::plan_text(&situation, &found.plan, &found.costs)))?;
        out.line(format!("throughput {:+.1} %: {}", (ratio - 1.0) * 100.0, found.why))?;
    }
    match &asked.options.out {
        Some(target) => out.line(format!("\nthe patched file is {}", target.display())),
        None if advice.better.is_some() => {
            out.heading(&format!("{} with these changes", path.display()))?;
            out.text(patched)
        }
        None => Ok(()),
    }
}

/// Fuzz entry point: parses, judges and patches a file with these bytes, for several of its column
/// families, without the report.
///
/// # Errors
/// The problem with the file.
///
/// # Panics
/// If the file does not round-trip, or the patched file does not parse.
pub(crate) fn check(bytes: &[u8]) -> Result<(), String> {
    /// Maximum number of column families that are judged.
    const FAMILIES_MAX: usize = 3;
    let file = OptionsFile::parse(bytes)?;
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    assert_eq!(file.patched(&[], &[]).as_bytes(), text, "a file that nobody changed");
    let families = file.sections().iter().filter(|section| section.title == settings::FAMILY);
    for section in families.take(FAMILIES_MAX) {
        let family = Family::of(&file, &section.argument)?;
        let settings = Settings::read(&family)?;
        let situation = SituationOptions {
            entries: Some(100_000_000),
            entry_bytes: Some(116.0),
            page_bytes: Some(settings.block_bytes),
            ..SituationOptions::default()
        };
        let situation =
            situation.situation(HALF_UPDATES, Counting::Paper).map_err(|error| error.to_string())?;
        let plan = tree::plan_of(&settings, &situation.data, 0)?;
        let _ = tree::caveats(&settings, &plan, &situation.data);
        let wish = Wish {
            memory_bytes: None,
            cache_bytes: 0,
            max_lookup_ios: None,
            max_update_ios: None,
            max_space: None,
        };
        let advice = advice::advise(&settings, &situation, &wish)?;
        let patched = patch::patched(&family, &advice, &heading(&advice, &situation))?;
        let again = OptionsFile::parse(patched.as_bytes()).expect("what was patched is a file of options");
        assert!(again.sections().len() >= file.sections().len(), "a section is gone");
    }
    Ok(())
}

/// The navigator's design in the same memory, if it meets the bounds and is better than all
/// settings.
fn beyond(situation: &Situation, advice: &Advice, asked: &Asked<'_>) -> Option<Navigation> {
    let bounds = Bounds {
        memory_bytes: advice.memory_bytes as u64,
        max_lookup_ios: asked.max_lookup_ios,
        max_update_ios: asked.max_update_ios,
    };
    let max_space = asked.max_space.unwrap_or(MAX_SPACE);
    let options = navigator::Options { sensitivity: false, max_space, ..navigator::Options::PAPER };
    let settings = advice.better.as_ref().unwrap_or(&advice.present);
    navigate(situation, &bounds, &options)
        .ok()
        .filter(|found| found.costs.throughput_per_s > settings.costs.throughput_per_s)
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let what = || format!("reading {}", path.display());
    let file = File::open(path).map_err(|error| Failure::io(what(), error))?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| Failure::io(what(), error))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(Failure::Data(format!("{}: too large for an OPTIONS file of RocksDB", path.display())));
    }
    Ok(bytes)
}

/// Writes the patched file. The input file is never overwritten; a user can move the new file over
/// it.
fn write(source: &Path, target: &Path, text: &str) -> Result<(), Failure> {
    let same = |path: &Path| path.canonicalize().ok();
    if same(target).is_some_and(|target| Some(target) == same(source)) {
        return Err(Failure::Usage("--out names the file that was read: use another name".into()));
    }
    let what = || format!("writing {}", target.display());
    let mut file = File::create(target).map_err(|error| Failure::io(what(), error))?;
    file.write_all(text.as_bytes()).map_err(|error| Failure::io(what(), error))
}

/// Comment lines at the start of the patched file.
fn heading(advice: &Advice, situation: &Situation) -> Vec<String> {
    let Some(better) = &advice.better else { return Vec::new() };
    let mut lines = vec!["Changed by shamba plan; predictions are of its cost model, for:".to_owned()];
    lines.extend(report::situation_text(situation).lines().map(|line| format!("  {line}")));
    lines.push(format!("All together: {}", advice::effect(&advice.present.costs, &better.costs)));
    lines
}

fn to_json(
    advice: &Advice,
    situation: &Situation,
    notes: &[String],
    patched: &str,
    beyond: Option<&Navigation>,
    asked: &Asked<'_>,
) -> Value {
    let better = advice.better.as_ref().unwrap_or(&advice.present);
    let side = |judged: &Judged| report::plan_json(situation, &judged.plan, &judged.costs);
    let present = &advice.present.costs;
    let changes: Vec<Value> = advice
        .changes
        .iter()
        .map(|change| {
            json!({
                "setting": change.setting,
                "from": change.from,
                "to": change.to,
                "purpose": change.purpose,
                "why": change.why(present),
                "throughput_ratio_alone": ratio(&change.alone, present),
                "throughput_ratio_so_far": ratio(&change.so_far, present),
            })
        })
        .collect();
    let head = json!({
        "schema": "shamba.plan-rocksdb/1",
        "situation": report::situation_json(situation),
        "memory_bytes": advice.memory_bytes,
        "max_space": asked.max_space.unwrap_or(MAX_SPACE),
        "throughput_ratio": better.costs.throughput_per_s / present.throughput_per_s,
        "changes": changes,
        "notes": notes,
        "patched": patched,
        "beyond": beyond.map(|found| report::plan_json(situation, &found.plan, &found.costs)),
    });
    let (top, other, name) = match asked.first {
        First::Present => (&advice.present, better, "better"),
        First::Better => (better, &advice.present, "present"),
    };
    json::with(json::with(head, side(top)), json!({ name: side(other) }))
}

/// Throughput relative to that of `present`.
fn ratio(costs: &Option<Costs>, present: &Costs) -> Option<f64> {
    costs.as_ref().map(|costs| costs.throughput_per_s / present.throughput_per_s)
}

fn print(
    path: &Path,
    asked: &Asked<'_>,
    situation: &Situation,
    settings: &Settings,
    advice: &Advice,
    notes: &[String],
    out: &mut Out,
) -> Result<(), Failure> {
    let version =
        settings.version.as_deref().map_or(String::new(), |version| format!(" of RocksDB {version}"));
    out.line(format!("file      {}{version}, column family {}", path.display(), asked.options.cf))?;
    out.text(report::situation_text(situation))?;
    report::print_plan(situation, &advice.present.plan, &advice.present.costs, out)?;
    if !notes.is_empty() {
        out.heading("limits and assumptions of the model")?;
        for note in notes {
            out.line(format!("- {note}"))?;
        }
    }
    let Some(better) = &advice.better else {
        out.heading("better settings")?;
        return out.line(format!(
            "No settings are better by more than 1 % with {} of memory and {}: the file stays unchanged.",
            report::show_bytes(advice.memory_bytes),
            max_space_text(asked.max_space)
        ));
    };
    let memory = report::show_bytes(advice.memory_bytes);
    out.heading(&format!(
        "better settings, with {memory} of memory and {}",
        max_space_text(asked.max_space)
    ))?;
    out.line(format!("design    {}", report::plan_text(situation, &better.plan, &better.costs)))?;
    let present = &advice.present.costs;
    let percent = |costs: &Option<Costs>| {
        ratio(costs, present).map_or("-".into(), |ratio| format!("{:+.1} %", (ratio - 1.0) * 100.0))
    };
    let mut table = Table::new(["setting", "from", "to", "alone", "so far", "purpose"]).left([5]);
    for change in &advice.changes {
        let (alone, so_far) = (percent(&change.alone), percent(&change.so_far));
        table.row([change.setting, &change.from, &change.to, &alone, &so_far, &change.purpose]);
    }
    out.text(table.to_string())?;
    out.line(format!("all together: {}", advice::effect(present, &better.costs)))?;
    if asked.options.out.is_none() && settings.version.is_none() {
        note("the file states no version: using the defaults of recent versions");
    }
    Ok(())
}
