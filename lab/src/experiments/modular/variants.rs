//! A baseline and its variants with two modules, without skipping, with partial and with full: what several slides compare.
//!
//! I/Os are counted. Where a slide claims that lookups are faster, they are timed too, on one emulated device, and the verdict is on both.
//!
//! The verdict is on the last variant, with full skipping, at every point, and on what it saves beyond noise; the others are shown. The best of three at
//! each point would gain from chance alone.

use crate::chart::{Chart, Panel};

use super::approaches::{Approach, names};
use super::figure::{
    FASTER, MEMORY_NOTE, NOT_SURE, Over, PRESSURE_MOST, SHARES, empty_title, if_sure, io_panel, percent,
    saved, saved_surely, table, time_panel, time_saved, times_the_memory, told_times, verdict,
};
use super::measure::{Comparison, Effort, Reading, Setting};
use super::modules::{EMPTY_NOTE, EMPTY_SHARES, MEMORY_SHARE, over_empty, saved_at};
use super::trees::Extent;
use crate::lookups::Spread;
use crate::{Device, Experiment, Finding, Lab, Parameter, Scale, Verdict};

/// What a slide compares.
pub(super) struct Variants {
    pub experiment: &'static Experiment,
    pub title: &'static str,
    /// The baseline first; the last decides the verdict.
    pub approaches: Vec<Approach>,
    /// The largest share of memory at which the claim says that it saves.
    pub pressure_most: f64,
    /// What we have beyond the slides: it is shown, and does not count for the verdict.
    pub ours: Option<Approach>,
    pub extent: Extent,
    /// Shares of empty lookups at which they are timed too, for claims that something is faster.
    pub timed: &'static [f64],
    pub note: &'static str,
}

/// The share of empty lookups over memory.
pub(super) const EMPTY: f64 = 0.5;
/// Where lookups are timed.
const TIMED_ON: Device = Device::Pcie;

impl Variants {
    /// Parameters over memory.
    pub fn parameters_over_memory(&self, scale: Scale, empty: &[f64]) -> Vec<Parameter> {
        let empty = match empty {
            [only] => Parameter::fixed("empty fraction", only),
            several => Parameter::varied("empty fraction", several),
        };
        let memory = Parameter::varied("memory, share of filters and indexes", SHARES);
        self.parameters(scale, [memory, empty].into())
    }

    /// Parameters over memory, and beside it over the share of empty lookups.
    pub fn parameters_over_both(&self, scale: Scale) -> Vec<Parameter> {
        let own = [
            Parameter::varied("memory, share of filters and indexes", SHARES),
            Parameter::fixed("empty fraction over memory", EMPTY),
            Parameter::varied("empty fraction", EMPTY_SHARES),
            Parameter::fixed("memory over the empty fraction", MEMORY_SHARE),
        ];
        self.parameters(scale, own.into())
    }

    /// Parameters over the share of empty lookups.
    pub fn parameters_over_empty(&self, scale: Scale) -> Vec<Parameter> {
        let own = [
            Parameter::varied("empty fraction", EMPTY_SHARES),
            Parameter::fixed("memory, share of filters and indexes", MEMORY_SHARE),
        ];
        self.parameters(scale, own.into())
    }

    fn parameters(&self, scale: Scale, own: Vec<Parameter>) -> Vec<Parameter> {
        let approaches = Parameter::varied("approach", names(&self.compared()));
        let lookups = Parameter::fixed("lookups a repeat, at most", Effort::counting(scale).lookups);
        let timed = [
            Parameter::fixed("timed on", TIMED_ON.name()),
            Parameter::fixed("timed with memory, share of filters and indexes", MEMORY_SHARE),
            Parameter::varied("timed at empty fraction", self.timed),
            Parameter::fixed("timed entries", Extent::emulated(scale).entries),
            Parameter::fixed("timed lookups a repeat, at most", Effort::timed(scale).lookups),
        ];
        let timed = timed.into_iter().filter(|_| !self.timed.is_empty());
        let of_tree = self.extent.parameters().into_iter();
        own.into_iter().chain([approaches]).chain(of_tree).chain([lookups]).chain(timed).collect()
    }

    fn baseline(&self) -> &'static str {
        self.approaches.first().map_or("", |one| one.name)
    }

    /// What decides the verdict.
    fn decisive(&self) -> &'static str {
        self.approaches.last().map_or("", |one| one.name)
    }

    fn models(&self) -> Vec<&'static str> {
        vec![self.baseline(), self.decisive()]
    }

    fn compared(&self) -> Vec<Approach> {
        self.approaches.iter().copied().chain(self.ours).collect()
    }

    /// Over memory, for some shares of absent keys.
    ///
    /// # Errors
    /// What the engine says, a wrong answer.
    pub fn over_memory(&self, lab: &mut Lab<'_>, empty: &[f64]) -> Result<Finding, String> {
        let readings = self.memory_readings(lab, empty)?;
        let (told, verdict) = self.told(&readings, empty)?;
        let panels = self.memory_panels(&readings, empty);
        self.finding(lab, (told, verdict), readings, panels)
    }

    /// Over memory, and beside it over the share of empty lookups.
    ///
    /// # Errors
    /// What the engine says, a wrong answer.
    pub fn over_both(&self, lab: &mut Lab<'_>) -> Result<Finding, String> {
        let mut readings = self.memory_readings(lab, &[EMPTY])?;
        let (told, verdict) = self.told(&readings, &[EMPTY])?;
        let mut panels = self.memory_panels(&readings, &[EMPTY]);
        let of_empty =
            Comparison { extent: self.extent, ..over_empty(lab.scale, &self.compared()) }.run(lab)?;
        let title = format!("{} of the memory", percent(MEMORY_SHARE));
        panels.push(io_panel(&title, Over::Empty, of_empty.iter(), &self.models()));
        let told = format!("{told} {}", self.told_of_empty(&of_empty));
        let verdict = best_of(&[verdict, self.verdict_of_empty(&of_empty)]);
        readings.extend(of_empty);
        self.finding(lab, (told, verdict), readings, panels)
    }

    /// Over the share of empty lookups.
    ///
    /// # Errors
    /// What the engine says, a wrong answer.
    pub fn over_empty(&self, lab: &mut Lab<'_>) -> Result<Finding, String> {
        let readings =
            Comparison { extent: self.extent, ..over_empty(lab.scale, &self.compared()) }.run(lab)?;
        let panels = vec![io_panel("I/Os", Over::Empty, readings.iter(), &self.models())];
        let found = (self.told_of_empty(&readings), self.verdict_of_empty(&readings));
        let mut finding = self.finding(lab, found, readings, panels)?;
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

    /// What the variants save under pressure, and the decisive one's verdict.
    fn told(&self, readings: &[Reading], empty: &[f64]) -> Result<(String, Verdict), String> {
        let (baseline, decisive) = (self.baseline(), self.decisive());
        let is_short = |reading: &&Reading| reading.setting.memory_share <= self.pressure_most;
        let short: Vec<Reading> = readings.iter().filter(is_short).cloned().collect();
        let pressure = if self.pressure_most < PRESSURE_MOST {
            format!("severe pressure (up to {} of the memory)", percent(self.pressure_most))
        } else {
            "pressure".to_owned()
        };
        let mut told = Vec::new();
        let mut verdicts = Vec::new();
        for share in empty {
            let all: Vec<_> = self
                .approaches
                .iter()
                .skip(1)
                .map(|one| (one, saved(&short, baseline, one.name, Some(*share))))
                .collect();
            let saves = saved(&short, baseline, decisive, Some(*share));
            let surely = saved_surely(&short, baseline, decisive, Some(*share));
            verdicts.push(if_sure(surely > 0.0, verdict(saves)));
            let times = times_the_memory(readings, baseline, decisive, *share)?;
            let each: Vec<String> =
                all.iter().map(|(one, saved)| format!("{} {}", one.name, percent(saved.mean))).collect();
            let ours = self.ours.map_or_else(String::new, |one| {
                let saves = saved(&short, baseline, one.name, Some(*share)).mean;
                format!(" {} saves {}.", one.name, percent(saves))
            });
            let noise = if surely > 0.0 { String::new() } else { format!(" {NOT_SURE}") };
            told.push(format!(
                "Under {pressure}, {}, of the I/Os of {baseline} are saved: {}; over all amounts of memory {baseline} needs {} times that of {decisive} for as few.{noise}{ours}",
                empty_title(*share),
                each.join(", "),
                told_times(&times)
            ));
        }
        Ok((told.join(" "), best_of(&verdicts)))
    }

    /// What the decisive variant saves at each share of empty lookups: in the median, and surely.
    fn saved_of_empty(&self, readings: &[Reading]) -> [(f64, f64); EMPTY_SHARES.len()] {
        EMPTY_SHARES.map(|empty| saved_at(readings, self.baseline(), self.decisive(), empty))
    }

    fn told_of_empty(&self, readings: &[Reading]) -> String {
        let each = self.saved_of_empty(readings).map(|(saves, _)| percent(saves));
        format!(
            "With {} of the memory {} saves {} of the I/Os at empty shares {}.",
            percent(MEMORY_SHARE),
            self.decisive(),
            each.join(", "),
            EMPTY_SHARES.map(|share| share.to_string()).join(", ")
        )
    }

    fn verdict_of_empty(&self, readings: &[Reading]) -> Verdict {
        let saved = self.saved_of_empty(readings);
        let least = saved.into_iter().map(|(_, surely)| surely).fold(f64::INFINITY, f64::min);
        let sure = saved.into_iter().filter(|(_, surely)| *surely > 0.0);
        verdict_of_ends(least, sure.map(|(saves, _)| saves).fold(0.0, f64::max))
    }

    /// Where it saves most and least, and what makes the difference there.
    fn why(&self, readings: &[Reading]) -> String {
        let counted = readings.iter().filter(|reading| {
            reading.setting.device == Device::Memory
                && reading.approach.name == self.decisive()
                && reading.setting.memory_share <= self.pressure_most
        });
        let mut saved: Vec<(Setting, f64)> = counted
            .filter_map(|idea| {
                let is_baseline = |reading: &&Reading| {
                    reading.approach.name == self.baseline() && reading.setting == idea.setting
                };
                let baseline = readings.iter().find(is_baseline)?;
                Some((idea.setting, 1.0 - idea.ios.median / baseline.ios.median.max(f64::MIN_POSITIVE)))
            })
            .collect();
        saved.sort_by(|left, right| left.1.total_cmp(&right.1));
        let (Some((worst, least)), Some((best, most))) = (saved.first(), saved.last()) else {
            return String::new();
        };
        let place = |setting: &Setting| {
            format!(
                "{} of the memory and {}",
                percent(setting.memory_share),
                empty_title(setting.empty_fraction)
            )
        };
        let cause = if worst.empty_fraction < 1.0 {
            "A key that is there comes to all modules of its file: one read more for each beyond the first that the cache does not have."
        } else {
            "An absent key comes to the later modules only where the first says maybe: what is lost there are the reads of first modules themselves."
        };
        format!(
            "It saves most, {}, with {}, and least, {}, with {}. {cause} And data blocks compete for the cache here, which they did not with RocksDB.",
            percent(*most),
            place(best),
            percent(*least),
            place(worst)
        )
    }

    /// Lookups on a device that takes time, one point after the other.
    fn timed_readings(&self, lab: &mut Lab<'_>) -> Result<Vec<Reading>, String> {
        let setting = |empty_fraction: &f64| Setting {
            memory_share: MEMORY_SHARE,
            empty_fraction: *empty_fraction,
            device: TIMED_ON,
        };
        let comparison = Comparison {
            extent: Extent::emulated(lab.scale),
            approaches: self.compared(),
            settings: self.timed.iter().map(setting).collect(),
            effort: Effort::timed(lab.scale),
        };
        comparison.run(lab)
    }

    /// What the decisive variant saves of the time at each share of empty lookups that is timed.
    fn faster(&self, readings: &[Reading]) -> Vec<Spread> {
        let saved = |empty: &f64| {
            time_saved(readings, self.baseline(), self.decisive(), |setting| setting.empty_fraction == *empty)
        };
        self.timed.iter().map(saved).collect()
    }

    /// With what was timed beside what was counted, where the claim is on speed.
    fn finding(
        &self,
        lab: &mut Lab<'_>,
        (mut ours, mut verdict): (String, Verdict),
        mut readings: Vec<Reading>,
        mut panels: Vec<Panel>,
    ) -> Result<Finding, String> {
        let mut note = format!("{} {MEMORY_NOTE}", self.note).trim().to_owned();
        if !self.timed.is_empty() {
            let timed = self.timed_readings(lab)?;
            let faster = self.faster(&timed);
            verdict = best_of(&[verdict, verdict_of_time(&faster)]);
            ours = format!("{ours} {}", told_of_time(self.timed, &faster));
            let title = format!("time on {}", TIMED_ON.name());
            panels.push(time_panel(&title, timed.iter()));
            note = format!("{note} Timed with {} of the memory.", percent(MEMORY_SHARE));
            readings.extend(timed);
        }
        Ok(Finding {
            ours,
            verdict,
            why: if verdict == Verdict::Confirmed { String::new() } else { self.why(&readings) },
            table: table(&readings),
            chart: Chart {
                title: self.title.to_owned(),
                claim: self.experiment.claim.to_owned(),
                note,
                panels,
            },
        })
    }
}

/// `-3 %, 5 % (4 % to 8 %)` and where.
fn told_of_time(empty: &[f64], faster: &[Spread]) -> String {
    let each = empty.iter().zip(faster).map(|(empty, Spread { median, least, most })| {
        format!(
            "{} ({} to {}) of the time, {}",
            percent(*median),
            percent(*least),
            percent(*most),
            empty_title(*empty)
        )
    });
    format!("Timed on {}, it saves {}.", TIMED_ON.name(), each.collect::<Vec<_>>().join("; "))
}

/// Faster at every share of empty lookups that was timed, in every repeat; at some; or at none.
fn verdict_of_time(faster: &[Spread]) -> Verdict {
    let sure = faster.iter().filter(|saved| saved.least > 0.0 && saved.median >= FASTER).count();
    match sure {
        0 => Verdict::NotHere,
        all if all == faster.len() => Verdict::Confirmed,
        _ => Verdict::Partly,
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

/// Better at every share of empty lookups beyond noise, at some, or at none. `least` is what is surely saved at least, `most` the most of what is
/// saved beyond noise.
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

    #[test]
    fn faster_is_faster_in_every_repeat() {
        use Verdict::{Confirmed, NotHere, Partly};
        let saved = |median, least| Spread { median, least, most: 0.4 };
        assert_eq!(
            [
                verdict_of_time(&[saved(0.2, 0.1), saved(0.05, 0.01)]),
                verdict_of_time(&[saved(0.2, 0.1), saved(0.05, -0.01)]),
                verdict_of_time(&[saved(0.01, 0.005), saved(-0.1, -0.2)]),
                verdict_of_time(&[]),
            ],
            [Confirmed, Partly, NotHere, NotHere]
        );
    }
}
