//! Verdicts: for each row and metric, whether another engine is better than Shamba, and why.
//!
//! A loss counts where the ranges of the repetitions do not overlap and the ratio of the medians is
//! at least [`NOISE`]. Both pages, the full tables and the published one, show these verdicts.
//!
//! Not here: the reasons ([`crate::explain`]).

use std::collections::BTreeMap;

use crate::explain::{Explanations, Loss, Reason};
use crate::gathered::{Gathered, Metric, Spread};
use crate::peer::Engine;
use crate::result::Situation;
use crate::workload::Workload;

/// Ratio below which a loss does not count: two builds of the same code differ by up to 3 %.
const NOISE: f64 = 1.03;
/// Bytes read from the device per operation below which a difference is chance.
const DEVICE_NOISE_BYTES: f64 = 1024.0;

/// Shamba's value compared with those of the other engines.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Verdict {
    /// No other median is lower.
    Best,
    /// The lowest other median is lower, but no engine is clearly better.
    Alike(Engine),
    /// The best of the engines that are clearly better, and the ratio Shamba / engine.
    Beaten(Engine, f64),
    /// Likewise, but one of the two values comes from a single repetition, so its spread is
    /// unknown.
    Once(Engine, f64),
}

/// The verdict on one row and metric.
pub struct Judged {
    /// Situation of the row.
    pub at: Situation,
    /// Workload of the row.
    pub workload: Workload,
    /// The metric compared.
    pub metric: Metric,
    /// The outcome.
    pub verdict: Verdict,
    /// The explanation; `None` also where the row is not lost.
    pub reason: Option<Reason>,
}

/// The verdicts on all rows.
pub struct Verdicts(Vec<Judged>);

impl Verdicts {
    /// Judges each row of each metric that Shamba has a value for.
    pub fn of(all: &Gathered) -> Self {
        let explanations = Explanations::built_in();
        let mut judged = Vec::new();
        for metric in Metric::ALL {
            for at in &all.situations {
                for workload in Workload::ALL {
                    let Some(verdict) = compare(all, *at, workload, metric) else { continue };
                    let reason = match verdict {
                        Verdict::Beaten(winner, _) => {
                            let loss = Loss { at: *at, workload, metric, winner };
                            explanations.of(&loss)
                        }
                        _ => None,
                    };
                    judged.push(Judged { at: *at, workload, metric, verdict, reason });
                }
            }
        }
        Self(judged)
    }

    /// All of them, by metric, situation and workload.
    pub fn iter(&self) -> impl Iterator<Item = &Judged> {
        self.0.iter()
    }

    /// The verdict on a row.
    pub fn get(&self, at: Situation, workload: Workload, metric: Metric) -> Option<&Judged> {
        self.iter().find(|judged| (judged.at, judged.workload, judged.metric) == (at, workload, metric))
    }

    /// The explanations of lost rows, by number.
    pub fn reasons(&self) -> BTreeMap<usize, &Reason> {
        let reasons = self.iter().filter_map(|judged| judged.reason.as_ref());
        reasons.map(|reason| (reason.number, reason)).collect()
    }

    /// Number of lost rows without an explanation.
    pub fn unexplained(&self) -> usize {
        self.iter().filter(|judged| judged.is_lost() && judged.reason.is_none()).count()
    }
}

impl Judged {
    /// Whether another engine is clearly better, over repetitions.
    pub fn is_lost(&self) -> bool {
        matches!(self.verdict, Verdict::Beaten(..))
    }

    /// The mark of a lost row: `▼` with the number of its explanation, `▼?` without one.
    pub fn mark(&self) -> String {
        match (&self.verdict, &self.reason) {
            (Verdict::Beaten(..), Some(reason)) => format!("▼{}", reason.number),
            (Verdict::Beaten(..), None) => "▼?".to_owned(),
            (Verdict::Once(..), _) => "▽".to_owned(),
            (Verdict::Alike(_), _) => "≈".to_owned(),
            (Verdict::Best, _) => String::new(),
        }
    }
}

/// The verdict on a row; `None` where Shamba has no value, or no engine has one above zero.
fn compare(all: &Gathered, at: Situation, workload: Workload, metric: Metric) -> Option<Verdict> {
    let ours = all.spread(at, workload, Engine::Shamba, metric)?;
    // Reads through a memory map are no system calls.
    let is_compared =
        |engine: &Engine| *engine != Engine::Shamba && !(metric == Metric::CallRead && engine.maps_files());
    let others: Vec<(Engine, Spread)> = all
        .engines
        .iter()
        .copied()
        .filter(is_compared)
        .filter_map(|engine| Some((engine, all.spread(at, workload, engine, metric)?)))
        .collect();
    if ours.max == 0.0 && others.iter().all(|(_, theirs)| theirs.max == 0.0) {
        return None;
    }
    if metric == Metric::DeviceRead && ours.median < DEVICE_NOISE_BYTES {
        return Some(Verdict::Best);
    }
    Some(judge(ours, others.into_iter()))
}

/// Compares with every engine, not with the lowest median alone: an engine with a wide spread must
/// not hide another that is clearly better.
pub fn judge(ours: Spread, others: impl Iterator<Item = (Engine, Spread)>) -> Verdict {
    let mut better: Vec<(Engine, Spread)> =
        others.filter(|(_, theirs)| theirs.median < ours.median).collect();
    better.sort_by(|(_, a), (_, b)| a.median.total_cmp(&b.median));
    let ratio = |theirs: Spread| ours.median / theirs.median;
    let is_once = |theirs: Spread| ours.count == 1 || theirs.count == 1;
    let is_clear = |theirs: Spread| !ours.overlaps(theirs) && ratio(theirs) >= NOISE;
    match better.iter().find(|(_, theirs)| is_clear(*theirs)) {
        Some((engine, theirs)) if is_once(*theirs) => Verdict::Once(*engine, ratio(*theirs)),
        Some((engine, theirs)) => Verdict::Beaten(*engine, ratio(*theirs)),
        None => better.first().map_or(Verdict::Best, |(engine, _)| Verdict::Alike(*engine)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wide_spread_does_not_hide_an_engine_that_is_clearly_better() {
        let of = |median, min, max| Spread { median, min, max, count: 3 };
        let ours = of(100.0, 95.0, 105.0);
        let wide = (Engine::Fjall, of(50.0, 10.0, 200.0));
        let clear = (Engine::Leveldb, of(80.0, 79.0, 81.0));
        let verdict = |others: &[(Engine, Spread)]| judge(ours, others.iter().copied());
        assert_eq!(verdict(&[wide, clear]), Verdict::Beaten(Engine::Leveldb, 1.25));
        assert_eq!(verdict(&[wide]), Verdict::Alike(Engine::Fjall));
        assert_eq!(verdict(&[(Engine::Redb, of(98.0, 97.5, 98.5))]), Verdict::Alike(Engine::Redb));
        assert_eq!(verdict(&[(Engine::Redb, of(120.0, 110.0, 130.0))]), Verdict::Best);
        let once = Spread { count: 1, ..clear.1 };
        assert_eq!(verdict(&[(Engine::Leveldb, once)]), Verdict::Once(Engine::Leveldb, 1.25));
    }
}
