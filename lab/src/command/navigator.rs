//! The navigator's comparison, in many processes: first one tree per design is grown, then every
//! mix is run on copies.
//!
//! Each process runs this binary for one part of the work, so that parts share no allocator, cache
//! or threads. `--jobs` processes run at a time, by default a quarter of the cores: each has a
//! client, a flush and a compaction thread, and the emulated device waits by spinning.
//!
//! Not here: the parts (`shamba_lab::checks::navigator`); the figure (`figure.rs`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use shamba_lab::checks::navigator::{Entrant, MIXES, Mix, Setting, entrants, fill, run};

use super::checks::{option, parsed, scratch};
use super::navigator_figure::{self as figure, Bar};

/// Minimum throughput of the choice relative to the default.
const TIMES_WANTED: f64 = 1.5;
/// Share of the entries that are put again while a tree grows: with T = 4 the levels above the last
/// hold a third of it.
const GROWN_SHARE: f64 = 0.3;

fn setting(words: &[String]) -> Result<Setting, String> {
    let (entries, warm_seconds, seconds, seconds_max) = match option(words, "--scale").unwrap_or("default") {
        "quick" => (2_500_000, 2.0, 3.0, 10.0),
        "default" => (5_000_000, 5.0, 10.0, 30.0),
        "full" => (10_000_000, 10.0, 40.0, 60.0),
        other => return Err(format!("unknown scale {other:?} (known: quick, default, full)")),
    };
    Ok(Setting {
        entries: parsed(words, "--entries", entries)?,
        grown_share: parsed(words, "--grown", GROWN_SHARE)?,
        seed: parsed(words, "--seed", 1)?,
        warm_seconds: parsed(words, "--warm", warm_seconds)?,
        seconds: parsed(words, "--seconds", seconds)?,
        seconds_max: parsed(words, "--seconds-most", seconds_max)?,
    })
}

/// The mix and the design that the arguments of a part name.
fn part(words: &[String], setting: &Setting) -> Result<(&'static Mix, Entrant), String> {
    let number: usize = parsed(words, "--mix", 0)?;
    let mix = MIXES.get(number).ok_or_else(|| format!("unknown mix {number}"))?;
    let name = option(words, "--design").unwrap_or("default");
    let found = entrants(setting, mix)?.into_iter().find(|entrant| entrant.name == name);
    found.map(|entrant| (mix, entrant)).ok_or_else(|| format!("no design {name:?} in {}", mix.name))
}

/// Grows one tree, in a separate process.
pub fn grow(words: &[String]) -> Result<(), String> {
    let setting = setting(words)?;
    let (_, entrant) = part(words, &setting)?;
    let at = |name| option(words, name).ok_or_else(|| format!("{name} is missing"));
    let copies: Vec<PathBuf> = at("--copies")?.split(',').map(PathBuf::from).collect();
    fill(Path::new(at("--at")?), &entrant, &setting, &copies)
}

/// Runs one mix on one tree, in a separate process.
pub fn point(words: &[String]) -> Result<(), String> {
    let setting = setting(words)?;
    let (mix, entrant) = part(words, &setting)?;
    let at = option(words, "--at").ok_or("--at is missing")?;
    println!("{}", run(Path::new(at), &entrant, mix, &setting)?);
    Ok(())
}

/// Runs the whole comparison.
pub fn compare(words: &[String]) -> Result<(), String> {
    let setting = setting(words)?;
    let jobs = std::thread::available_parallelism().map_or(1, usize::from).div_ceil(4);
    let jobs: usize = parsed(words, "--jobs", jobs)?;
    let wanted = option(words, "--mixes").unwrap_or_default();
    let designs: Vec<&str> =
        option(words, "--designs").map_or_else(Vec::new, |names| names.split(',').collect());
    if words.iter().any(|word| word == "--list") {
        return list(&setting, wanted);
    }
    let dir = scratch(words)?;
    let common: Vec<String> = [
        ("--entries", setting.entries.to_string()),
        ("--grown", setting.grown_share.to_string()),
        ("--seed", setting.seed.to_string()),
        ("--warm", setting.warm_seconds.to_string()),
        ("--seconds", setting.seconds.to_string()),
        ("--seconds-most", setting.seconds_max.to_string()),
    ]
    .into_iter()
    .flat_map(|(name, value)| [name.to_owned(), value])
    .collect();

    // Trees by their designs, each with the points that are run on copies of it.
    let mut trees: BTreeMap<String, Vec<(usize, &'static str, PathBuf)>> = BTreeMap::new();
    for (number, mix) in MIXES.iter().enumerate().filter(|(_, mix)| mix.name.contains(wanted)) {
        let takes_part = |entrant: &Entrant| designs.is_empty() || designs.contains(&entrant.name);
        for entrant in entrants(&setting, mix)?.into_iter().filter(takes_part) {
            let copy = dir.path().join(format!("{number}-{}", entrant.name));
            trees.entry(entrant.label()).or_default().push((number, entrant.name, copy));
        }
    }
    let grow = |points: &Vec<(usize, &'static str, PathBuf)>| -> Result<(), String> {
        let (mix, design, first) = &points[0];
        let at = first.with_extension("grown");
        let copies: Vec<String> = points.iter().map(|(_, _, copy)| copy.display().to_string()).collect();
        child("navigator-grow", &common, *mix, design, &at, &["--copies", &copies.join(",")])?;
        std::fs::remove_dir_all(&at).map_err(|error| format!("{}: {error}", at.display()))
    };
    all(jobs, trees.values(), &grow)?;

    let lines = Mutex::new(Vec::new());
    let point = |(mix, design, at): &(usize, &'static str, PathBuf)| -> Result<(), String> {
        let line = child("navigator-point", &common, *mix, design, at, &[])?;
        print!("{line}");
        lines.lock().map_err(|_| "a part panicked")?.push((*mix, *design, line));
        std::fs::remove_dir_all(at).map_err(|error| format!("{}: {error}", at.display()))
    };
    all(jobs, trees.values().flatten(), &point)?;
    judge(&lines.into_inner().map_err(|_| "a part panicked")?, option(words, "--figure"))
}

/// Lists the compared designs with their predictions.
fn list(setting: &Setting, wanted: &str) -> Result<(), String> {
    for mix in MIXES.iter().filter(|mix| mix.name.contains(wanted)) {
        for entrant in entrants(setting, mix)? {
            let (name, design, rate) = (entrant.name, entrant.design(), entrant.predicted.ops_per_s);
            println!("{}: {name}: {design}, {}: {rate:.0} per second", mix.name, entrant.plan.allocation);
        }
    }
    Ok(())
}

/// Runs a part; returns its output.
fn child(
    part: &str,
    common: &[String],
    mix: usize,
    design: &str,
    at: &Path,
    more: &[&str],
) -> Result<String, String> {
    let binary = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(binary);
    command
        .args(["check", part])
        .args(common)
        .args(["--mix", &mix.to_string(), "--design", design, "--at"])
        .arg(at)
        .args(more);
    let output = command.output().map_err(|error| format!("{part} did not start: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("{part}, {}, {design}: {}", MIXES[mix].name, String::from_utf8_lossy(&output.stderr).trim()))
}

/// Runs `work` for each of `items`, `jobs` at a time; returns all failures together.
fn all<I: Send>(
    jobs: usize,
    items: impl Iterator<Item = I> + Send,
    work: &(impl Fn(I) -> Result<(), String> + Sync),
) -> Result<(), String> {
    let (items, failures) = (Mutex::new(items), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let Some(item) = items.lock().ok().and_then(|mut items| items.next()) else { return };
                    if let (Err(failure), Ok(mut failures)) = (work(item), failures.lock()) {
                        failures.push(failure);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().map_err(|_| "a part panicked")?;
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

/// Compares the choice with the default in every mix, prints that, and draws it.
fn judge(lines: &[(usize, &str, String)], figure: Option<&str>) -> Result<(), String> {
    let (mut missed, mut bars) = (Vec::new(), Vec::new());
    for (number, mix) in MIXES.iter().enumerate() {
        let of = |field: &str| {
            let rate = |(at, design, line): &(usize, &str, String)| {
                (*at == number)
                    .then(|| number_of(line, field).map(|rate| (design.to_string(), rate)))
                    .flatten()
            };
            lines.iter().filter_map(rate).collect::<BTreeMap<String, f64>>()
        };
        let (measured, predicted) = (of("ops_per_s"), of("model_ops_per_s"));
        let (Some(usual), Some(usual_model)) = (measured.get("default"), predicted.get("default")) else {
            continue;
        };
        let Some(chosen) = measured.get("navigator") else { continue };
        for (design, rate) in &measured {
            bars.push(Bar {
                mix: mix.name,
                design: design.clone(),
                measured: rate / usual,
                predicted: predicted.get(design).map_or(0.0, |rate| rate / usual_model),
            });
        }
        let ratio = chosen / usual;
        let best =
            measured.iter().filter(|(design, _)| *design != "navigator").max_by(|a, b| a.1.total_cmp(b.1));
        let (best, best_rate) = best.map_or(("", 0.0), |(design, rate)| (design.as_str(), *rate));
        let is_kept = !mix.is_judged || ratio >= TIMES_WANTED;
        println!(
            "{{\"schema\":\"navigator-mix/1\",\"mix\":\"{}\",\"judged\":{},\"times_the_default\":{ratio:.3},\
             \"times_the_default_in_model\":{:.3},\"best_other\":\"{best}\",\"times_the_best_other\":{:.3},\"kept\":{is_kept}}}",
            mix.name,
            mix.is_judged,
            predicted.get("navigator").map_or(0.0, |rate| rate / usual_model),
            chosen / best_rate,
        );
        if !is_kept {
            missed.push(format!("{}: {ratio:.2} times the default, not {TIMES_WANTED}", mix.name));
        }
    }
    if let Some(path) = figure {
        figure::draw(Path::new(path), &bars)?;
    }
    if missed.is_empty() { Ok(()) } else { Err(missed.join("\n")) }
}

/// A number in a line of JSON that a part wrote.
fn number_of(line: &str, field: &str) -> Option<f64> {
    let after = line.split_once(&format!("\"{field}\":"))?.1;
    let end = after.find([',', '}']).unwrap_or(after.len());
    after[..end].parse().ok().filter(|number: &f64| number.is_finite())
}
