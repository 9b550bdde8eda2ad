//! `list`, `run`, `all` and `report`: the papers' experiments on this machine.
//!
//! An experiment leaves a table, a picture and a result in a folder; `report` makes pages of them.
//! One that fails does not keep the others from running.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use serde_json::{Value, json};
use shamba_lab::{self as lab, Experiment, Lab, Paper, Scale};

use super::{Failure, Out, progress_bar};

/// Arguments of `list`.
#[derive(Args)]
pub struct ListArgs {
    /// The scale whose parameters are shown
    #[arg(long, default_value = "quick")]
    scale: Scale,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

/// How and where experiments run.
#[derive(Args)]
struct HowArgs {
    /// How large: quick (all of them within 20 minutes), default, paper
    #[arg(long, default_value = "quick")]
    scale: Scale,
    /// The folder for results
    #[arg(long, value_name = "DIR", default_value = "lab-results")]
    out: PathBuf,
    /// The folder for databases while they are needed, on the disk that is measured; by default the one for results
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Seed of keys, orders and lookups
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How often each point is measured; by default what the scale says
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    repeats: Option<u32>,
    /// Print the results as JSON objects, one a line
    #[arg(long)]
    json: bool,
}

/// Arguments of `run`.
#[derive(Args)]
pub struct RunArgs {
    /// Names of experiments, as `list` has them
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    #[command(flatten)]
    how: HowArgs,
}

/// Arguments of `all`.
#[derive(Args)]
pub struct AllArgs {
    /// Only those of one paper
    #[arg(long)]
    paper: Option<PaperArg>,
    #[command(flatten)]
    how: HowArgs,
}

/// Arguments of `report`.
#[derive(Args)]
pub struct ReportArgs {
    /// The folder of results; the report goes there too
    #[arg(long, value_name = "DIR", default_value = "lab-results")]
    out: PathBuf,
}

#[derive(Clone, Copy, ValueEnum)]
enum PaperArg {
    HashSharing,
    ModularFilters,
    Monkey,
    Mnemosyne,
}

impl PaperArg {
    fn paper(self) -> Paper {
        match self {
            Self::HashSharing => Paper::HashSharing,
            Self::ModularFilters => Paper::ModularFilters,
            Self::Monkey => Paper::Monkey,
            Self::Mnemosyne => Paper::Mnemosyne,
        }
    }
}

/// Runs the named experiments.
pub fn run(args: &RunArgs, out: &mut Out) -> Result<(), Failure> {
    let found: Result<Vec<_>, _> = args.ids.iter().map(|id| lab::find(id)).collect();
    carry_out(&found.map_err(Failure::Usage)?, &args.how, out)
}

/// Runs every experiment, or those of a paper.
pub fn all(args: &AllArgs, out: &mut Out) -> Result<(), Failure> {
    let wanted = |experiment: &&Experiment| args.paper.is_none_or(|paper| paper.paper() == experiment.paper);
    carry_out(&lab::all().into_iter().filter(wanted).collect::<Vec<_>>(), &args.how, out)
}

/// Makes pages of the results in a folder.
pub fn report(args: &ReportArgs, out: &mut Out) -> Result<(), Failure> {
    let (paths, count) =
        lab::report(&args.out).map_err(|error| Failure::Failed(format!("no report: {error}")))?;
    let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    out.line(format!("{count} results: {}", paths.join(", ")))
}

/// Names the experiments.
pub fn list(args: &ListArgs, out: &mut Out) -> Result<(), Failure> {
    let experiments = lab::all();
    if args.json {
        let described = |experiment: &&Experiment| {
            let mut described = lab::describe(experiment, args.scale);
            if let Value::Object(fields) = &mut described {
                fields.insert("schema".to_owned(), json!("shamba.lab/1"));
            }
            described
        };
        return out.json(&Value::Array(experiments.iter().map(described).collect()));
    }
    for paper in Paper::ALL {
        out.heading(paper.name())?;
        for experiment in experiments.iter().filter(|experiment| experiment.paper == paper) {
            out.line(format!("{}  ({}: {})", experiment.id, experiment.place, experiment.title))?;
            out.line(format!("    {}", experiment.claim))?;
        }
    }
    out.line(format!("\n{} experiments; `shamba-lab run ID` runs one.", experiments.len()))
}

fn carry_out(experiments: &[&Experiment], how: &HowArgs, out: &mut Out) -> Result<(), Failure> {
    if cfg!(debug_assertions) {
        eprintln!("shamba-lab: this is a build with debug assertions: its times are not the engine's");
    }
    // The system's folder for temporary files is often in memory: no disk could be measured there.
    let beside = how.dir.as_ref().unwrap_or(&how.out);
    let scratch = std::fs::create_dir_all(beside)
        .and_then(|()| tempfile::Builder::new().prefix("databases-").tempdir_in(beside))
        .map_err(|error| {
            Failure::io(format!("make a folder for databases in {}", beside.display()), &error)
        })?;
    let bar = progress_bar("", experiments.len() as u64);
    let began = Instant::now();
    let mut failures = Vec::new();
    for experiment in experiments {
        let result = one(experiment, how, scratch.path().to_path_buf(), &bar);
        bar.inc(1);
        match result {
            Err(error) => {
                bar.suspend(|| eprintln!("shamba-lab: {error}"));
                failures.push(experiment.id);
            }
            Ok(result) if how.json => bar.suspend(|| out.json(&result).and_then(|()| out.flush()))?,
            Ok(result) => {
                let text = |name: &str| result[name].as_str().unwrap_or_default().to_owned();
                let emulated = match result["emulated_rows"].as_u64() {
                    None | Some(0) => "",
                    Some(_) => " (devices emulated)",
                };
                let line = format!("{}: {}{emulated}. {}", experiment.id, text("verdict"), text("ours"));
                bar.suspend(|| out.line(&line).and_then(|()| out.flush()))?;
            }
        }
    }
    bar.finish_and_clear();
    if !how.json {
        let done = experiments.len() - failures.len();
        let (all, took, dir) = (experiments.len(), told(began.elapsed()), how.out.display());
        out.line(format!("\n{done} of {all} done in {took}, in {dir}"))?;
        if done > 0 {
            out.line(format!("`shamba-lab report --out {dir}` makes a page of them."))?;
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(Failure::Reported) }
}

/// `12 ms`, `4.2 s`, `8 min 15 s`.
fn told(took: Duration) -> String {
    match took.as_secs() {
        0 => format!("{} ms", took.as_millis()),
        1..60 => format!("{:.1} s", took.as_secs_f64()),
        seconds => format!("{} min {} s", seconds / 60, seconds % 60),
    }
}

/// Runs one experiment; its result.
fn one(experiment: &Experiment, how: &HowArgs, scratch: PathBuf, bar: &ProgressBar) -> Result<Value, String> {
    bar.set_message(experiment.id);
    let mut progress = |what: &str| bar.set_message(format!("{}: {what}", experiment.id));
    let mut lab = Lab::new(scratch, how.scale, how.seed, &mut progress);
    if let Some(repeats) = how.repeats {
        lab.repeats = repeats;
    }
    Ok(lab::run(experiment, &mut lab, &how.out)?.json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_in_seconds_or_minutes() {
        let times = [12, 4_200, 59_900, 495_700].map(Duration::from_millis);
        assert_eq!(times.map(told), ["12 ms", "4.2 s", "59.9 s", "8 min 15 s"]);
    }
}
