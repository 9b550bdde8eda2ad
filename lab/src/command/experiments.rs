//! `list`, `run`, `all` and `report`: the papers' experiments on this machine.
//!
//! An experiment writes a table, a picture and a result to a folder; `report` renders pages from
//! them. A failed experiment does not stop the others.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use serde_json::Value;
use shamba_lab::runner::{self, News, Plan};
use shamba_lab::{self as lab, Experiment, Outcome, Paper, Scale};

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
    /// Scale of the experiments: quick (all within half an hour), default or paper
    #[arg(long, default_value = "quick")]
    scale: Scale,
    /// The folder for results
    #[arg(long, value_name = "DIR", default_value = "lab-results")]
    out: PathBuf,
    /// The folder for temporary databases, on the measured disk (default: the folder for results)
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The first seed of keys, orders and lookups
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The number of seeds, each a repetition; a verdict needs at least five
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    seeds: u64,
    /// Print the results as JSON objects, one per line
    #[arg(long)]
    json: bool,
}

/// Arguments of `run`.
#[derive(Args)]
pub struct RunArgs {
    /// Names of experiments, from `list`
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    #[command(flatten)]
    how: HowArgs,
}

/// Arguments of `all`.
#[derive(Args)]
pub struct AllArgs {
    /// Only experiments of this paper
    #[arg(long)]
    paper: Option<PaperArg>,
    #[command(flatten)]
    how: HowArgs,
}

/// Arguments of `report`.
#[derive(Args)]
pub struct ReportArgs {
    /// The scale whose results are shown
    #[arg(long, default_value = "quick")]
    scale: Scale,
    /// The folder of results, and of the report
    #[arg(long, value_name = "DIR", default_value = "lab-results")]
    out: PathBuf,
}

/// A paper by its name in options.
#[derive(Clone, Copy)]
struct PaperArg(Paper);

impl ValueEnum for PaperArg {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [PaperArg; Paper::ALL.len()] = {
            let mut all = [PaperArg(Paper::HashSharing); Paper::ALL.len()];
            let mut at = 0;
            while at < all.len() {
                all[at] = PaperArg(Paper::ALL[at]);
                at += 1;
            }
            all
        };
        &ALL
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        Some(clap::builder::PossibleValue::new(self.0.slug()))
    }
}

/// Runs the named experiments.
pub fn run(args: &RunArgs, out: &mut Out) -> Result<(), Failure> {
    let found: Result<Vec<_>, _> = args.ids.iter().map(|id| lab::find(id)).collect();
    carry_out(&found.map_err(Failure::Usage)?, &args.how, out)
}

/// Runs every experiment, or those of a paper.
pub fn all(args: &AllArgs, out: &mut Out) -> Result<(), Failure> {
    let wanted = |experiment: &&Experiment| args.paper.is_none_or(|paper| paper.0 == experiment.paper);
    carry_out(&lab::all().into_iter().filter(wanted).collect::<Vec<_>>(), &args.how, out)
}

/// Renders pages of the results in a folder.
pub fn report(args: &ReportArgs, out: &mut Out) -> Result<(), Failure> {
    let (paths, count) =
        lab::report(&args.out, args.scale).map_err(|error| Failure::Failed(format!("no report: {error}")))?;
    let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    out.line(format!("{count} results: {}", paths.join(", ")))
}

/// Lists the experiments.
pub fn list(args: &ListArgs, out: &mut Out) -> Result<(), Failure> {
    let experiments = lab::all();
    if args.json {
        let all = experiments.iter().map(|experiment| lab::describe(experiment, args.scale)).collect();
        return out.json(&Value::Array(all));
    }
    for paper in Paper::ALL {
        let of_paper: Vec<_> = experiments.iter().filter(|experiment| experiment.paper == paper).collect();
        if of_paper.is_empty() {
            continue;
        }
        out.heading(paper.name())?;
        for experiment in of_paper {
            out.line(format!("{}  ({}: {})", experiment.id, experiment.place, experiment.title))?;
            out.line(format!("    {}", experiment.claim))?;
        }
    }
    out.line(format!("\n{} experiments; `shamba-lab run ID` runs one.", experiments.len()))
}

fn carry_out(experiments: &[&'static Experiment], how: &HowArgs, out: &mut Out) -> Result<(), Failure> {
    if cfg!(debug_assertions) {
        eprintln!("shamba-lab: this build has debug assertions: its times do not represent the engine");
    }
    let end = how.seed.checked_add(how.seeds);
    let end = end.ok_or_else(|| {
        Failure::Usage(format!("--seed {}: there are no {} seeds from it on", how.seed, how.seeds))
    })?;
    // The system's folder for temporary files is often in memory, where no disk can be measured.
    let above = how.dir.as_ref().unwrap_or(&how.out);
    let scratch = std::fs::create_dir_all(above)
        .and_then(|()| tempfile::Builder::new().prefix("databases-").tempdir_in(above))
        .map_err(|error| {
            Failure::io(format!("make a folder for databases in {}", above.display()), &error)
        })?;
    let plan = Plan {
        scale: how.scale,
        seeds: (how.seed..end).collect(),
        scratch: scratch.path().to_path_buf(),
        out: how.out.clone(),
    };
    let bar = progress_bar("", runner::steps(experiments, &plan) as u64);
    let began = Instant::now();
    let failures = Mutex::new(Vec::new());
    let printing: Mutex<(&mut Out, Result<(), Failure>)> = Mutex::new((out, Ok(())));
    runner::run(experiments, &plan, &|news| match news {
        News::At(experiment, seed, what) => {
            bar.set_message(format!("{}, seed {seed}: {what}", experiment.id))
        }
        News::Measured(..) => bar.inc(1),
        News::Done(experiment, Err(error)) => {
            bar.suspend(|| eprintln!("shamba-lab: {error}"));
            if let Ok(mut failures) = failures.lock() {
                failures.push(experiment.id);
            }
        }
        News::Done(experiment, Ok(outcome)) => {
            if let Ok(mut printing) = printing.lock() {
                let (out, result) = &mut *printing;
                if result.is_ok() {
                    *result = bar.suspend(|| tell(experiment, &outcome, how.json, out));
                }
            }
        }
    });
    bar.finish_and_clear();
    let (out, result) = printing.into_inner().map_err(|_| Failure::Failed("a worker panicked".to_owned()))?;
    result?;
    let failures = failures.into_inner().map_err(|_| Failure::Failed("a worker panicked".to_owned()))?;
    if !how.json {
        let done = experiments.len() - failures.len();
        let (total, took, dir) = (experiments.len(), told(began.elapsed()), how.out.display());
        out.line(format!("\n{done} of {total} done in {took}, in {dir}"))?;
        if done > 0 {
            let scale = how.scale;
            out.line(format!("`shamba-lab report --scale {scale} --out {dir}` renders pages of them."))?;
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(Failure::Reported) }
}

fn tell(experiment: &Experiment, outcome: &Outcome, json: bool, out: &mut Out) -> Result<(), Failure> {
    if json {
        out.json(&outcome.json)?;
    } else {
        out.line(format!("{}: {}", experiment.id, outcome.verdict.name()))?;
        for found in &outcome.found {
            out.line(format!("    {found}"))?;
        }
    }
    out.flush()
}

/// `12 ms`, `4.2 s`, `8 min 15 s`.
fn told(took: Duration) -> String {
    match took.as_secs() {
        0 => format!("{} ms", took.as_millis()),
        1..60 => format!("{:.1} s", took.as_secs_f64()),
        seconds => format!("{} min {} s", seconds / 60, seconds % 60),
    }
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
