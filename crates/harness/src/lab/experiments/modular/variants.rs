//! A baseline and its variants with two modules, without skipping, with partial and with full: what several slides compare.

use shamba_figures::{Chart, Panel};

use super::approaches::{Approach, names};
use super::figure::{
    MEMORY_NOTE, Over, SHARES, empty_title, io_panel, percent, saved, table, times_the_memory, verdict,
};
use super::measure::{Comparison, Reading};
use super::modules::{EMPTY_NOTE, EMPTY_SHARES, MEMORY_SHARE, over_empty, saved_at};
use super::trees::Extent;
use crate::lab::{Experiment, Finding, Lab, Parameter, Scale, Verdict};

/// What a slide compares.
pub(super) struct Variants {
    pub experiment: &'static Experiment,
    pub title: &'static str,
    /// The baseline first.
    pub approaches: Vec<Approach>,
    /// What we have beyond the slides: it is shown, and does not count for the verdict.
    pub ours: Option<Approach>,
    pub extent: Extent,
    pub note: &'static str,
}

const WHY: &str = "A lookup that comes to both modules reads one block more than with one filter, and a key that is there always does: \
    that takes back some of what smaller blocks spare. And data blocks compete for the cache here, which they did not with RocksDB, so that \
    most is gained by holding filters and indexes by a plan.";

/// The share of empty lookups over memory.
pub(super) const EMPTY: f64 = 0.5;

/// Parameters over memory.
pub(super) fn parameters_over_memory(
    scale: Scale,
    extent: Extent,
    approaches: &[Approach],
    empty: &[f64],
) -> Vec<Parameter> {
    let empty = match empty {
        [only] => Parameter::fixed("empty fraction", only),
        several => Parameter::varied("empty fraction", several),
    };
    let varied = [
        Parameter::varied("memory, share of filters and indexes", SHARES),
        Parameter::varied("approach", names(approaches)),
        empty,
    ];
    let lookups = Parameter::fixed("lookups a repeat", super::measure::Effort::counting(scale).lookups);
    varied.into_iter().chain(extent.parameters()).chain([lookups]).collect()
}

/// Parameters over the share of empty lookups.
pub(super) fn parameters_over_empty(extent: Extent, approaches: &[Approach]) -> Vec<Parameter> {
    let varied = [
        Parameter::varied("empty fraction", EMPTY_SHARES),
        Parameter::varied("approach", names(approaches)),
        Parameter::fixed("memory, share of filters and indexes", MEMORY_SHARE),
    ];
    varied.into_iter().chain(extent.parameters()).collect()
}

impl Variants {
    fn baseline(&self) -> &'static str {
        self.approaches.first().map_or("", |one| one.name)
    }

    fn models(&self) -> Vec<&'static str> {
        let (first, last) = (self.approaches.first(), self.approaches.last());
        first.into_iter().chain(last).map(|one| one.name).collect()
    }

    fn compared(&self) -> Vec<Approach> {
        self.approaches.iter().copied().chain(self.ours).collect()
    }

    /// Over memory, for half and for all of the keys absent.
    ///
    /// # Errors
    /// What the engine says, a wrong answer.
    pub fn over_memory(&self, lab: &mut Lab<'_>, empty: &[f64]) -> Result<Finding, String> {
        let readings = self.memory_readings(lab, empty)?;
        let (told, verdict) = self.told(&readings, empty);
        Ok(self.finding(told, verdict, &readings, self.memory_panels(&readings, empty)))
    }

    /// Over memory, and beside it over the share of empty lookups.
    ///
    /// # Errors
    /// What the engine says, a wrong answer.
    pub fn over_both(&self, lab: &mut Lab<'_>) -> Result<Finding, String> {
        let mut readings = self.memory_readings(lab, &[EMPTY])?;
        let (told, verdict) = self.told(&readings, &[EMPTY]);
        let mut panels = self.memory_panels(&readings, &[EMPTY]);
        let of_empty =
            Comparison { extent: self.extent, ..over_empty(lab.scale, &self.compared()) }.run(lab)?;
        let title = format!("{} of the memory", percent(MEMORY_SHARE));
        panels.push(io_panel(&title, Over::Empty, of_empty.iter(), &self.models()));
        let told = format!("{told} {}", self.told_of_empty(&of_empty));
        readings.extend(of_empty);
        Ok(self.finding(told, verdict, &readings, panels))
    }

    /// Over the share of empty lookups.
    ///
    /// # Errors
    /// What the engine says, a wrong answer.
    pub fn over_empty(&self, lab: &mut Lab<'_>) -> Result<Finding, String> {
        let readings =
            Comparison { extent: self.extent, ..over_empty(lab.scale, &self.compared()) }.run(lab)?;
        let panels = vec![io_panel("", Over::Empty, readings.iter(), &self.models())];
        let best = |empty: f64| self.best_at(&readings, empty);
        let least = EMPTY_SHARES.map(best).into_iter().fold(f64::INFINITY, f64::min);
        let most = EMPTY_SHARES.map(best).into_iter().fold(0.0, f64::max);
        let mut finding =
            self.finding(self.told_of_empty(&readings), verdict_of_ends(least, most), &readings, panels);
        finding.chart.note = format!("{} {EMPTY_NOTE}", self.note);
        Ok(finding)
    }

    fn memory_readings(&self, lab: &mut Lab<'_>, empty: &[f64]) -> Result<Vec<Reading>, String> {
        let comparison = Comparison::over_memory(lab.scale, &self.compared(), &SHARES, empty);
        Comparison { extent: self.extent, ..comparison }.run(lab)
    }

    fn memory_panels(&self, readings: &[Reading], empty: &[f64]) -> Vec<Panel> {
        let panel = |share: &f64| {
            let of_it = readings.iter().filter(|reading| reading.setting.empty_fraction == *share);
            io_panel(&empty_title(*share), Over::Memory, of_it, &self.models())
        };
        empty.iter().map(panel).collect()
    }

    /// What the variants save under pressure, and the best one's verdict.
    fn told(&self, readings: &[Reading], empty: &[f64]) -> (String, Verdict) {
        let baseline = self.baseline();
        let mut told = Vec::new();
        let mut verdicts = Vec::new();
        for share in empty {
            let all: Vec<_> = self
                .approaches
                .iter()
                .skip(1)
                .map(|one| (one, saved(readings, baseline, one.name, Some(*share))))
                .collect();
            let best = all.iter().max_by(|a, b| a.1.mean.total_cmp(&b.1.mean));
            let Some((best, saves)) = best else { continue };
            verdicts.push(verdict(*saves));
            let (mean, most) = times_the_memory(readings, baseline, best.name, *share);
            let each: Vec<String> =
                all.iter().map(|(one, saved)| format!("{} {}", one.name, percent(saved.mean))).collect();
            let ours = self.ours.map_or_else(String::new, |one| {
                let saves = saved(readings, baseline, one.name, Some(*share)).mean;
                format!(" {} saves {}.", one.name, percent(saves))
            });
            told.push(format!(
                "Under pressure, {}, of the I/Os of {baseline} are saved: {}; for as few as {} {baseline} needs {mean:.1} times the memory (at most {most:.1}).{ours}",
                empty_title(*share),
                each.join(", "),
                best.name
            ));
        }
        (told.join(" "), best_of(&verdicts))
    }

    fn best_at(&self, readings: &[Reading], empty: f64) -> f64 {
        let saved = |one: &Approach| saved_at(readings, self.baseline(), one.name, empty);
        self.approaches.iter().skip(1).map(saved).fold(f64::NEG_INFINITY, f64::max)
    }

    fn told_of_empty(&self, readings: &[Reading]) -> String {
        let each = EMPTY_SHARES.map(|empty| percent(self.best_at(readings, empty)));
        format!(
            "With {} of the memory the best variant saves {} at empty shares {}.",
            percent(MEMORY_SHARE),
            each.join(", "),
            EMPTY_SHARES.map(|share| share.to_string()).join(", ")
        )
    }

    fn finding(&self, ours: String, verdict: Verdict, readings: &[Reading], panels: Vec<Panel>) -> Finding {
        Finding {
            ours,
            verdict,
            why: if verdict == Verdict::Confirmed { String::new() } else { WHY.to_owned() },
            table: table(readings),
            chart: Chart {
                title: self.title.to_owned(),
                claim: self.experiment.claim.to_owned(),
                note: format!("{} {MEMORY_NOTE}", self.note).trim().to_owned(),
                panels,
            },
        }
    }
}

/// What holds for some of the workloads only holds partly.
fn best_of(verdicts: &[Verdict]) -> Verdict {
    let count = |wanted: Verdict| verdicts.iter().filter(|verdict| **verdict == wanted).count();
    match (count(Verdict::Confirmed), count(Verdict::NotHere)) {
        (confirmed, _) if confirmed == verdicts.len() && confirmed > 0 => Verdict::Confirmed,
        (_, not_here) if not_here == verdicts.len() => Verdict::NotHere,
        _ => Verdict::Partly,
    }
}

/// Faster at every share of empty lookups, at some, or at none.
fn verdict_of_ends(least: f64, most: f64) -> Verdict {
    match (least, most) {
        (least, most) if least > 0.0 && most >= 0.1 => Verdict::Confirmed,
        (_, most) if most >= 0.02 => Verdict::Partly,
        _ => Verdict::NotHere,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_for_some_holds_partly() {
        use Verdict::{Confirmed, NotHere, Partly};
        assert_eq!(
            [
                best_of(&[Confirmed, Confirmed]),
                best_of(&[Confirmed, NotHere]),
                best_of(&[NotHere]),
                best_of(&[])
            ],
            [Confirmed, Partly, NotHere, NotHere]
        );
        assert_eq!(
            [verdict_of_ends(0.01, 0.3), verdict_of_ends(-0.1, 0.3), verdict_of_ends(-0.1, 0.01)],
            [Confirmed, Partly, NotHere]
        );
    }
}
