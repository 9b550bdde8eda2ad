//! Figure 14: what one digest saves over the share of empty lookups, on a RAM disk.

use shamba_figures::Axis;

use super::empty_share::{NOTE, measure, of_paper, parameters};
use super::gains::{chart, percent, table};
use crate::lab::{Device, Experiment, Finding, Lab, Paper, Verdict};

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "hash-sharing-fig14",
    paper: Paper::HashSharing,
    place: "Fig 14",
    title: "gain over the share of empty lookups on a RAM disk",
    claim: "On a RAM disk the gain grows from 10 % to over 40 % as lookups find nothing.",
    parameters: |scale| parameters(scale, Device::Memory),
    run,
};

/// The gain of lookups that all find nothing from which on the claim counts as confirmed.
const CONFIRMED: f64 = 0.4;

/// Confirmed if the gain grows to what the paper has; partly if it grows at all.
fn verdict(gains: &[f64]) -> Verdict {
    match (gains.first(), gains.last()) {
        (Some(first), Some(last)) if last > first && *last >= CONFIRMED => Verdict::Confirmed,
        (Some(first), Some(last)) if last > first && *last >= CONFIRMED / 4.0 => Verdict::Partly,
        _ => Verdict::NotHere,
    }
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let gains = measure(lab, Device::Memory)?;
    let of_paper = of_paper(&gains);
    let verdict = verdict(&of_paper);
    let text: Vec<String> = of_paper.into_iter().map(percent).collect();
    Ok(Finding {
        ours: format!(
            "With none, a quarter, half, three quarters and all of the lookups empty: {}, with the paper's hash function.",
            text.join(", ")
        ),
        verdict,
        why: if verdict == Verdict::Confirmed {
            String::new()
        } else {
            "Hashes are faster here than in the paper's Table 1.".to_owned()
        },
        table: table("empty_fraction", &gains),
        chart: chart(
            "What one digest saves on a RAM disk",
            EXPERIMENT.claim,
            NOTE,
            Axis::linear("share of lookups that find nothing"),
            &gains,
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_follows_the_gains() {
        assert_eq!(verdict(&[0.0, CONFIRMED]), Verdict::Confirmed);
        assert_eq!(verdict(&[0.0, CONFIRMED / 2.0]), Verdict::Partly);
        assert_eq!(verdict(&[CONFIRMED, CONFIRMED]), Verdict::NotHere);
    }
}
