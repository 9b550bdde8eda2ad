//! The slide "SHaMBa with larger index": entries of 128 bytes, so that indexes take twice as much beside the filters.

use crate::chart::Chart;

use super::approaches::{Approach, EQ, EQ_F, STATE_OF_THE_ART, names};
use super::figure::{MEMORY_NOTE, NOT_SURE, Over, io_panel, percent, saved, saved_surely, table};
use super::measure::{Comparison, Reading};
use super::trees::Extent;
use crate::{Experiment, Finding, Kind, Lab, Paper, Parameter, Scale, Verdict};

const APPROACHES: [Approach; 3] = [STATE_OF_THE_ART, EQ, EQ_F];
/// Decides the verdict; the other is shown.
const DECISIVE: Approach = EQ_F;
const SHARES: [f64; 4] = [0.1, 0.25, 0.5, 1.0];
/// The slide has the second; the last has indexes larger than filters here.
const ENTRY_BYTES: [usize; 3] = [64, 128, 256];
const EMPTY: f64 = 1.0;
/// Below this the gains do not differ.
const MARGIN: f64 = 0.02;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "shamba-larger-index",
    paper: Paper::ModularFilters,
    kind: Kind::Measured,
    place: "slide \"SHaMBa with larger index\"",
    title: "I/Os of a lookup with small and large indexes beside the filters, all keys absent",
    claim: "SHaMBa performs best when filters are larger than indexes.",
    parameters,
    run,
};

/// Files have as many entries whatever these take, so that blocks of filters are of one size.
fn extent(scale: Scale, entry_bytes: usize) -> Extent {
    let extent = Extent::at(scale);
    let entries = if entry_bytes > 128 { extent.entries / 2 } else { extent.entries };
    Extent { entries, entry_bytes, file_bytes: extent.file_bytes * entry_bytes as u64 / 64 }
}

fn parameters(scale: Scale) -> Vec<Parameter> {
    let extents = ENTRY_BYTES.map(|entry_bytes| extent(scale, entry_bytes));
    let own = [
        Parameter::varied("entry bytes", ENTRY_BYTES),
        Parameter::varied("entries", extents.map(|extent| extent.entries)),
        Parameter::varied("file bytes", extents.map(|extent| extent.file_bytes)),
        Parameter::varied("memory, share of filters and indexes", SHARES),
        Parameter::varied("approach", names(&APPROACHES)),
        Parameter::fixed("empty fraction", EMPTY),
    ];
    let of_tree = Extent::at(scale)
        .parameters()
        .into_iter()
        .filter(|one| !["entry bytes", "entries", "file bytes"].contains(&one.name));
    own.into_iter().chain(of_tree).collect()
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let (mut all, mut panels, mut told, mut gains) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for entry_bytes in ENTRY_BYTES {
        let extent = extent(lab.scale, entry_bytes);
        let comparison = Comparison::over_memory(lab.scale, &APPROACHES, &SHARES, &[EMPTY]);
        let readings = Comparison { extent, ..comparison }.run(lab)?;
        let is_baseline = |reading: &&Reading| reading.approach.name == STATE_OF_THE_ART.name;
        let times = readings.iter().find(is_baseline).map_or(0.0, |reading| reading.filters_by_indexes);
        let [decisive, other] = [DECISIVE, EQ].map(|approach| gain(&readings, approach));
        told.push(format!(
            "{} at {entry_bytes} B (filters {times:.1} times the indexes; without skipping {})",
            percent(decisive.saves),
            percent(other.saves)
        ));
        gains.push((times, decisive));
        let title = format!("{entry_bytes} B: filters {times:.1} x indexes");
        panels.push(io_panel(&title, Over::Memory, readings.iter(), &[STATE_OF_THE_ART.name, EQ_F.name]));
        all.extend(readings);
    }
    let verdict = verdict(&gains);
    Ok(Finding {
        ours: format!("Under pressure {} saves {} of the I/Os.", DECISIVE.name, told.join(", ")),
        verdict,
        why: match verdict {
            Verdict::Confirmed => String::new(),
            _ if is_within_noise(&gains) => NOT_SURE.to_owned(),
            _ => WHY.to_owned(),
        },
        table: table(&all),
        chart: Chart {
            title: "Modules beside small and large indexes".to_owned(),
            claim: EXPERIMENT.claim.to_owned(),
            note: format!("All keys absent. {MEMORY_NOTE}"),
            panels,
        },
    })
}

const WHY: &str = "What is saved hangs more on which blocks just fit into the memory than on the indexes beside them: with all keys absent an index is \
    asked for false positives only, and here it is held in pieces that those leave alone.";

/// The share of I/Os that is saved: by the medians, and with the worst repeats against the baseline's best.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Gain {
    saves: f64,
    surely: f64,
}

fn gain(readings: &[Reading], approach: Approach) -> Gain {
    let (baseline, idea) = (STATE_OF_THE_ART.name, approach.name);
    Gain {
        saves: saved(readings, baseline, idea, Some(EMPTY)).mean,
        surely: saved_surely(readings, baseline, idea, Some(EMPTY)),
    }
}

/// Whether nothing is surely saved where filters are largest.
fn is_within_noise(gains: &[(f64, Gain)]) -> bool {
    gains.iter().max_by(|a, b| a.0.total_cmp(&b.0)).is_none_or(|(_, gain)| gain.surely <= 0.0)
}

/// From (filters by indexes, gain): the larger the filters, the larger the gain.
fn verdict(gains: &[(f64, Gain)]) -> Verdict {
    if is_within_noise(gains) {
        return Verdict::NotHere;
    }
    let mut gains = gains.to_vec();
    gains.sort_by(|a, b| b.0.total_cmp(&a.0));
    let first = gains.first().map_or(0.0, |(_, gain)| gain.saves);
    let others = || gains.iter().skip(1).map(|(_, gain)| gain.saves);
    match () {
        () if first > 0.0 && others().all(|gain| first >= gain + MARGIN) => Verdict::Confirmed,
        () if first > 0.0 && others().any(|gain| first >= gain + MARGIN) => Verdict::Partly,
        () => Verdict::NotHere,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_filters_must_gain_most() {
        let gain = |(times, saves): (f64, f64)| (times, Gain { saves, surely: saves - 0.05 });
        let of = |gains: &[(f64, f64)]| verdict(&gains.iter().copied().map(gain).collect::<Vec<_>>());
        assert_eq!(of(&[(0.8, 0.1), (3.0, 0.3), (1.5, 0.2)]), Verdict::Confirmed);
        assert_eq!(of(&[(3.0, 0.3), (1.5, 0.35), (0.8, 0.1)]), Verdict::Partly);
        assert_eq!(of(&[(3.0, 0.1), (1.5, 0.2)]), Verdict::NotHere);
        assert_eq!(of(&[(3.0, 0.04), (1.5, 0.0)]), Verdict::NotHere, "within noise");
    }
}
