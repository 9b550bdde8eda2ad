//! What the slides on the number of modules have in common: 1, 2, 3 and 7 equal modules.

use crate::chart::Chart;

use super::approaches::{Approach, EQ, EQ_F, STATE_OF_THE_ART};
use super::figure::{Over, Saved, io_panel};
use super::measure::{Comparison, Reading, Setting};
use super::trees::Extent;
use crate::lookups::Spread;
use crate::{Device, Experiment, Parameter, Scale, Verdict};

pub(super) const NONE: [Approach; 4] = [
    STATE_OF_THE_ART,
    EQ.named("2 modules"),
    EQ.named("3 modules").with_layout("modular:3"),
    EQ.named("7 modules").with_layout("modular:7"),
];
pub(super) const FULL: [Approach; 3] = [
    EQ_F.named("2 modules F"),
    EQ_F.named("3 modules F").with_layout("modular:3"),
    EQ_F.named("7 modules F").with_layout("modular:7"),
];

/// What modules with skipping are held against beside the state of the art: it differs from them in the number of modules only.
pub(super) const ONE_FULL: Approach = Approach { name: "1 module F", skipping: "full", ..STATE_OF_THE_ART };

/// Where memory is held fixed.
pub(super) const MEMORY_SHARE: f64 = 0.4;
pub(super) const EMPTY_SHARES: [f64; 5] = [0.0, 0.25, 0.5, 0.75, 1.0];

pub(super) const EMPTY_NOTE: &str = "Filters, indexes and data blocks have 40 % of what all filters and indexes take. T = 4, 5 levels, keys of 32 bytes, 10 bits \
    per key, uniform lookups. Dashed: the best that could be held, by the model. Bars: least and most of the repeats.";

/// Parameters of a figure over memory.
pub(super) fn parameters_over_memory(
    scale: Scale,
    shares: &[f64],
    empty: &[f64],
    skipping: &str,
) -> Vec<Parameter> {
    let varied = [
        Parameter::varied("memory, share of filters and indexes", shares),
        Parameter::varied("modules", ["1", "2", "3", "7"]),
    ];
    let empty = match empty {
        [only] => Parameter::fixed("empty fraction", only),
        several => Parameter::varied("empty fraction", several),
    };
    varied
        .into_iter()
        .chain([empty, Parameter::fixed("skipping", skipping)])
        .chain(Extent::for_seven(scale).parameters())
        .collect()
}

/// Parameters of a figure over the share of empty lookups.
pub(super) fn parameters_over_empty(scale: Scale, skipping: &str) -> Vec<Parameter> {
    let own = [
        Parameter::varied("empty fraction", EMPTY_SHARES),
        Parameter::varied("modules", ["1", "2", "3", "7"]),
        Parameter::fixed("memory, share of filters and indexes", MEMORY_SHARE),
        Parameter::fixed("skipping", skipping),
    ];
    own.into_iter().chain(Extent::for_seven(scale).parameters()).collect()
}

/// Approaches over the share of empty lookups.
pub(super) fn over_empty(scale: Scale, approaches: &[Approach]) -> Comparison {
    let setting =
        |empty_fraction| Setting { memory_share: MEMORY_SHARE, empty_fraction, device: Device::Memory };
    Comparison {
        settings: EMPTY_SHARES.map(setting).to_vec(),
        ..Comparison::over_memory(scale, approaches, &[], &[])
    }
}

/// A chart of I/Os over the share of empty lookups.
pub(super) fn empty_chart(
    title: &str,
    experiment: &Experiment,
    note: &str,
    readings: &[Reading],
    models: &[&str],
) -> Chart {
    Chart {
        title: title.to_owned(),
        claim: experiment.claim.to_owned(),
        note: note.to_owned(),
        panels: vec![io_panel("", Over::Empty, readings.iter(), models)],
    }
}

/// What one approach saves of another's I/Os at a share of empty lookups: in the median of the repeats, and surely, in its worst repeat of the other's
/// best.
pub(super) fn saved_at(readings: &[Reading], baseline: &str, idea: &str, empty: f64) -> (f64, f64) {
    let ios = |name: &str| {
        let is_it =
            |reading: &&Reading| reading.approach.name == name && reading.setting.empty_fraction == empty;
        readings.iter().find(is_it).map_or(Spread::of(Vec::new()), |reading| reading.ios)
    };
    let (idea, baseline) = (ios(idea), ios(baseline));
    let saved = |idea: f64, baseline: f64| 1.0 - idea / baseline.max(f64::MIN_POSITIVE);
    (saved(idea.median, baseline.median), saved(idea.most, baseline.least))
}

/// The first share of empty lookups from which on something is gained.
pub(super) fn first_gain(gains: &[f64; EMPTY_SHARES.len()]) -> Option<f64> {
    let last_loss = gains.iter().rposition(|gain| *gain <= 0.0);
    EMPTY_SHARES.get(last_loss.map_or(0, |at| at + 1)).copied()
}

/// A smaller part of the I/Os is no difference: repeats stray by as much.
const NO_DIFFERENCE: f64 = 0.01;

/// Whether the more and smaller modules save the more: none less than the larger ones before it, and the smallest more than the largest.
pub(super) fn order(saved: &[Saved]) -> bool {
    let never_less =
        saved.windows(2).all(|pair| matches!(pair, [fewer, more] if more.mean >= fewer.mean - NO_DIFFERENCE));
    let more_in_the_end = matches!(saved, [first, .., last] if last.mean >= first.mean + NO_DIFFERENCE);
    never_less && more_in_the_end
}

/// Modules help, and smaller ones more.
pub(super) fn verdict(saved: &[Saved]) -> Verdict {
    let helps = saved.iter().any(|one| one.mean >= 0.1);
    match (helps, order(saved)) {
        (true, true) => Verdict::Confirmed,
        (true, false) => Verdict::Partly,
        (false, _) => Verdict::NotHere,
    }
}

/// How far apart approaches lie, as a share of the least: on average over settings.
pub(super) fn apart(readings: &[Reading], names: &[&str]) -> f64 {
    let mut settings: Vec<Setting> = Vec::new();
    for reading in readings {
        if !settings.contains(&reading.setting) && reading.setting.memory_share < 1.0 {
            settings.push(reading.setting);
        }
    }
    let of = |setting: &Setting| {
        let its = readings
            .iter()
            .filter(|reading| reading.setting == *setting && names.contains(&reading.approach.name));
        its.map(|reading| reading.ios.median).collect::<Vec<_>>()
    };
    let parts: Vec<f64> = settings.iter().map(|setting| width(&of(setting))).collect();
    parts.iter().sum::<f64>() / parts.len().max(1) as f64
}

fn width(values: &[f64]) -> f64 {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    if least.is_finite() && least > 0.0 { most / least - 1.0 } else { 0.0 }
}

/// Skipping reduces the impact of the number of modules.
pub(super) fn reduces(none: f64, full: f64) -> Verdict {
    match full {
        full if full <= 0.75 * none => Verdict::Confirmed,
        full if full <= none => Verdict::Partly,
        _ => Verdict::NotHere,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smaller_modules_are_better_or_not() {
        let saved = |mean| Saved { mean, least: mean, most: mean };
        assert_eq!(verdict(&[saved(0.1), saved(0.2), saved(0.3)]), Verdict::Confirmed);
        assert_eq!(verdict(&[saved(0.1), saved(0.05), saved(0.3)]), Verdict::Partly);
        assert_eq!(verdict(&[saved(0.1), saved(0.095), saved(0.3)]), Verdict::Confirmed, "chance");
        assert_eq!(verdict(&[saved(0.2), saved(0.2), saved(0.205)]), Verdict::Partly, "all alike");
        assert_eq!(verdict(&[saved(0.0), saved(0.05)]), Verdict::NotHere);
        assert_eq!(first_gain(&[-0.1, 0.0, 0.1, 0.2, 0.3]), Some(0.5));
        assert_eq!((first_gain(&[0.1; 5]), first_gain(&[-0.1; 5])), (Some(0.0), None));
    }

    #[test]
    fn the_impact_of_the_number_is_how_far_apart_curves_lie() {
        assert_eq!((width(&[2.0, 3.0, 2.5]), width(&[])), (0.5, 0.0));
        assert_eq!(
            [reduces(0.4, 0.1), reduces(0.4, 0.38), reduces(0.1, 0.2)],
            [Verdict::Confirmed, Verdict::Partly, Verdict::NotHere]
        );
    }
}
