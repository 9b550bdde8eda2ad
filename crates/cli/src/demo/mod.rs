//! `shamba demo`: demonstrates the engine on real data, without preparation.
//!
//! 1. Walk a directory tree (or generate paths) and keep every path with its metadata ([`paths`]).
//! 2. For each of the three merge policies, load all of it, in random order, into a database. The
//!    write buffer is deliberately small, so that the tree has at least five levels ([`plan`],
//!    [`trial`]).
//! 3. Close and reopen it, and compare every entry with the walk. Look up every path and the same
//!    number of absent ones, with and without hash sharing and prefetch, and check every answer.
//! 4. Report the results and the gain of each idea ([`gains`], [`report`], [`report_json`]).
//!
//! Every printed figure was measured in this run.

mod gains;
mod paths;
mod plan;
mod report;
mod report_json;
mod synthetic;
mod timing;
mod trial;
mod walk;

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use shamba::MergePolicy;

use crate::exit::Failure;
use crate::output::{Out, note, warn};
use crate::sizes::show_count;

use self::paths::Paths;
use self::plan::Plan;
use self::timing::Timing;
use self::trial::Trial;

/// Merge policies, in the order of the report.
const POLICIES: [MergePolicy; 3] = [MergePolicy::Leveling, MergePolicy::Tiering, MergePolicy::LazyLeveling];
/// Directory of the fourth database: tiering without filters, to measure the gain of filters.
const WITHOUT_FILTERS: &str = "tiering-without-filters";
/// Default limit of stored paths: with more the demo would take over a minute.
const PATHS_MAX: u32 = 200_000;
/// Maximum number of unreadable paths that are listed.
const NAMED_MAX: usize = 5;

/// Arguments of `demo`.
#[derive(Args)]
pub struct DemoArgs {
    /// The directory tree whose paths are stored
    #[arg(default_value = "/usr")]
    path: PathBuf,
    /// Generate N paths instead
    #[arg(long, value_name = "N", conflicts_with = "path", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    synthetic: Option<u64>,
    /// Maximum number of stored paths; a larger tree is sampled at random
    #[arg(long, value_name = "N", conflicts_with = "synthetic", default_value_t = PATHS_MAX, value_parser = clap::value_parser!(u32).range(1..))]
    sample: u32,
    /// Directory for the databases, which are kept (default: a temporary directory, removed at the
    /// end; an interrupt leaves it)
    #[arg(long, value_name = "DIR")]
    db: Option<PathBuf>,
    /// Print a JSON object instead of the report
    #[arg(long)]
    json: bool,
}

/// Results for the reports.
struct Story {
    source: String,
    synthetic: bool,
    paths: Paths,
    plan: Plan,
    kept_in: Option<PathBuf>,
    trials: Vec<Trial>,
    /// Lookups of absent paths under tiering in a database without filters.
    no_filters: Timing,
    seconds: f64,
}

impl Story {
    /// Number of wrong answers in all trials.
    fn mismatches(&self) -> u64 {
        self.trials.iter().map(|trial| trial.verification.mismatches()).sum()
    }
}

/// Runs the demo.
///
/// # Errors
/// Failures of the walk, the engine or standard output; exit code 1 if an answer was wrong.
pub fn run(args: &DemoArgs, out: &mut Out) -> Result<(), Failure> {
    let start = Instant::now();
    let (dir, _temporary) = databases_dir(args.db.as_deref())?;
    let (source, paths) = match args.synthetic {
        Some(count) => (format!("{} generated paths", show_count(count)), synthetic::make(count)),
        None => {
            (format!("the paths of {}", args.path.display()), walk::walk(&args.path, args.sample as usize)?)
        }
    };
    for text in paths.unreadable.iter().take(NAMED_MAX) {
        warn(format!("cannot read {text}"));
    }
    if paths.unreadable.len() > NAMED_MAX {
        warn(format!("and {} more", show_count((paths.unreadable.len() - NAMED_MAX) as u64)));
    }
    let plan = Plan::of(&paths);
    if !args.json {
        report::opening(out, &source, &paths, &plan, args.db.as_deref())?;
        out.flush()?;
    }
    let mut trials = Vec::with_capacity(POLICIES.len());
    for policy in POLICIES {
        let trial = trial::run(&dir.join(policy.to_string()), policy, &plan, &paths)?;
        if !args.json {
            report::progress(out, &trial)?;
            out.flush()?;
        }
        trials.push(trial);
    }
    let no_filters = trial::without_filters(&dir.join(WITHOUT_FILTERS), &plan, &paths)?;
    let seconds = start.elapsed().as_secs_f64();
    let story = Story {
        source,
        synthetic: args.synthetic.is_some(),
        paths,
        plan,
        kept_in: args.db.clone(),
        trials,
        no_filters,
        seconds,
    };
    if args.json {
        out.json(&report_json::object(&story))?;
    } else {
        report::story(out, &story)?;
    }
    match story.mismatches() {
        0 => Ok(()),
        wrong => {
            out.flush()?;
            note(format!("shamba: {} wrong answers", show_count(wrong)));
            Err(Failure::Reported(1))
        }
    }
}

/// The directory of the databases. A temporary one is removed when the second value is dropped.
fn databases_dir(given: Option<&Path>) -> Result<(PathBuf, Option<tempfile::TempDir>), Failure> {
    let Some(dir) = given else {
        let temporary = tempfile::Builder::new()
            .prefix("shamba-demo-")
            .tempdir()
            .map_err(|error| Failure::io("making a temporary directory", error))?;
        return Ok((temporary.path().to_path_buf(), Some(temporary)));
    };
    let shown = dir.display();
    for name in POLICIES.iter().map(ToString::to_string).chain([WITHOUT_FILTERS.to_string()]) {
        if dir.join(name).exists() {
            return Err(Failure::Usage(format!("{shown} already contains a demo; use another directory")));
        }
    }
    std::fs::create_dir_all(dir).map_err(|error| Failure::io(shown.to_string(), error))?;
    Ok((dir.to_path_buf(), None))
}
