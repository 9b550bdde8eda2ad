//! Runs experiments over seeds: counted ones two at a time, timed ones alone.
//!
//! A unit of work is a paper and a seed: its experiments run in sequence in one [`Lab`], so that
//! they share trees, which are freed at the end of the unit. Counted units run on two threads,
//! timed ones in sequence. When the last seed of an experiment is measured, its verdict is computed
//! and its files are written. A failure of one seed fails only its experiment.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::experiment::Experiment;
use crate::lab::Lab;
use crate::paper::{Method, Paper};
use crate::results::{Outcome, write};
use crate::rows::Rows;
use crate::scale::Scale;

/// Threads for counted experiments: the reference machines of this project have two cores.
const WORKERS: usize = 2;

/// How and where experiments run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The size of runs.
    pub scale: Scale,
    /// Seeds; each is a repetition with its own data and queries.
    pub seeds: Vec<u64>,
    /// Folder for temporary databases.
    pub scratch: PathBuf,
    /// The folder for results.
    pub out: PathBuf,
}

/// News of a run.
#[derive(Debug)]
pub enum News<'a> {
    /// A seed of an experiment is being measured, with the current step.
    At(&'static Experiment, u64, &'a str),
    /// A seed of an experiment has been measured, or failed.
    Measured(&'static Experiment, u64),
    /// An experiment has its result, or its error.
    Done(&'static Experiment, Result<Outcome, String>),
}

/// The number of [`News::Measured`] that a run brings.
pub fn steps(experiments: &[&'static Experiment], plan: &Plan) -> usize {
    experiments.iter().map(|experiment| seeds_of(experiment, plan).len()).sum()
}

/// Runs experiments and reports each when it is complete.
pub fn run(experiments: &[&'static Experiment], plan: &Plan, news: &(dyn Fn(News<'_>) + Sync)) {
    let collected = Collected::new(experiments);
    for (method, workers) in [(Method::Counted, WORKERS), (Method::Timed, 1)] {
        let units = units(experiments, plan, method);
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some((seed, group)) = units.get(next.fetch_add(1, Ordering::Relaxed)) {
                measure(group, *seed, plan, news, &collected);
            }
        };
        std::thread::scope(|scope| {
            (1..workers).for_each(|_| drop(scope.spawn(work)));
            work();
        });
    }
}

/// If values do not differ between seeds, one seed is enough.
fn seeds_of<'p>(experiment: &Experiment, plan: &'p Plan) -> &'p [u64] {
    if experiment.kind.is_sampled() { &plan.seeds } else { &plan.seeds[..1.min(plan.seeds.len())] }
}

/// Experiments of one paper that run with one seed.
type Unit = (u64, Vec<&'static Experiment>);

fn units(experiments: &[&'static Experiment], plan: &Plan, method: Method) -> Vec<Unit> {
    let mut units: Vec<Unit> = Vec::new();
    for paper in Paper::ALL {
        let of_paper: Vec<&'static Experiment> = experiments
            .iter()
            .copied()
            .filter(|experiment| experiment.paper == paper && experiment.method == method)
            .collect();
        for seed in &plan.seeds {
            let of_seed: Vec<_> =
                of_paper.iter().copied().filter(|one| seeds_of(one, plan).contains(seed)).collect();
            if !of_seed.is_empty() {
                units.push((*seed, of_seed));
            }
        }
    }
    units
}

fn measure(
    group: &[&'static Experiment],
    seed: u64,
    plan: &Plan,
    news: &(dyn Fn(News<'_>) + Sync),
    collected: &Collected,
) {
    let Some(first) = group.first() else { return };
    let scratch = plan.scratch.join(format!("{}-{seed}", first.paper.slug()));
    let current = std::cell::Cell::new(*first);
    let progress = |what: &str| news(News::At(current.get(), seed, what));
    let mut lab = Lab::new(scratch.clone(), plan.scale, seed, &progress);
    for experiment in group {
        current.set(experiment);
        let began = Instant::now();
        let rows = (experiment.measure)(&mut lab);
        let seeds = seeds_of(experiment, plan);
        news(News::Measured(experiment, seed));
        if let Some(measured) = collected.add(experiment.id, seed, rows, began.elapsed(), seeds.len()) {
            let outcome = finish(experiment, plan, seeds, measured);
            news(News::Done(experiment, outcome));
        }
    }
    // A remaining scratch folder is harmless; the owner of its parent removes it.
    let _ = lab.discard(&scratch);
}

fn finish(
    experiment: &'static Experiment,
    plan: &Plan,
    seeds: &[u64],
    measured: Measured,
) -> Result<Outcome, String> {
    let mut all = Rows::default();
    for (seed, rows) in measured.rows {
        let rows = rows.map_err(|error| format!("{}, seed {seed}: {error}", experiment.id))?;
        all.join(seed, rows);
    }
    write(experiment, plan, seeds, &all, measured.took)
}

/// Seeds of an experiment.
#[derive(Default)]
struct Measured {
    rows: BTreeMap<u64, Result<Rows, String>>,
    took: Duration,
}

/// Rows of all experiments until each has all its seeds.
struct Collected(Mutex<BTreeMap<&'static str, Measured>>);

impl Collected {
    fn new(experiments: &[&'static Experiment]) -> Self {
        Self(Mutex::new(experiments.iter().map(|one| (one.id, Measured::default())).collect()))
    }

    /// Adds a seed; returns everything when it was the last of `wanted`.
    fn add(
        &self,
        id: &'static str,
        seed: u64,
        rows: Result<Rows, String>,
        took: Duration,
        wanted: usize,
    ) -> Option<Measured> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let measured = all.entry(id).or_default();
        measured.rows.insert(seed, rows);
        measured.took += took;
        (measured.rows.len() == wanted).then(|| std::mem::take(measured))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::paper::Kind;
    use crate::picture::{Column, Panel};
    use crate::rows::{View, row};
    use crate::scale::Parameter;
    use crate::verdict::{Bound, Predicate, Unit, Verdict};

    const BASE: Experiment = Experiment {
        id: "counted",
        paper: Paper::Engine,
        kind: Kind::Measured,
        method: Method::Counted,
        place: "here",
        title: "a test",
        claim: "It is the seed.",
        parameters: |_| vec![Parameter::varied("x", [1, 2])],
        measure: |lab| {
            let shared = lab.once("shared", |lab| Ok(lab.seed))?;
            let mut rows = Rows::default();
            rows.push(row!(x: 1.0, y: *shared));
            Ok(rows)
        },
        predicates: &[Predicate::direction("y", Unit::Plain(""), Bound::AtLeast(0.0), |rows| {
            rows.number("y")
        })],
        panels: &[Panel::lines(Column::linear("x", "x"), Column::linear("y", "y"), &[])],
        note: "",
        reason: Experiment::no_reason,
    };
    static COUNTED: Experiment = BASE;
    static COMPUTED: Experiment = Experiment { id: "computed", kind: Kind::Computed, ..BASE };
    static TIMED: Experiment = Experiment { id: "timed", method: Method::Timed, ..BASE };
    static FAILING: Experiment = Experiment {
        id: "failing",
        measure: |lab| if lab.seed == 3 { Err("no disk".to_owned()) } else { Ok(Rows::default()) },
        ..BASE
    };

    #[test]
    fn every_experiment_gets_its_seeds_and_failures_stay_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let plan = Plan {
            scale: Scale::Tiny,
            seeds: (1..=5).collect(),
            scratch: dir.path().join("scratch"),
            out: dir.path().join("out"),
        };
        let all: [&'static Experiment; 4] = [&COUNTED, &COMPUTED, &TIMED, &FAILING];
        let done = Mutex::new(BTreeMap::new());
        let measured = AtomicUsize::new(0);
        let is_timing = AtomicBool::new(false);
        run(&all, &plan, &|news| match news {
            News::At(..) => {}
            News::Measured(experiment, _) => {
                measured.fetch_add(1, Ordering::Relaxed);
                let was_timing = is_timing.fetch_or(experiment.method == Method::Timed, Ordering::Relaxed);
                assert!(experiment.method == Method::Timed || !was_timing, "timed ones come last");
            }
            News::Done(experiment, outcome) => {
                done.lock().expect("no panic").insert(experiment.id, outcome.map(|one| one.verdict));
            }
        });
        assert_eq!(measured.into_inner(), steps(&all, &plan));
        assert_eq!(steps(&all, &plan), 16);
        let done = done.into_inner().expect("no panic");
        assert_eq!(done["counted"], Ok(Verdict::Confirmed));
        assert_eq!((&done["computed"], &done["timed"]), (&done["counted"], &done["counted"]));
        assert_eq!(done["failing"], Err("failing, seed 3: no disk".to_owned()));
        let view = View::default();
        assert_eq!(Experiment::no_reason(&view), "");
    }
}
