//! Figure 13: what one digest saves over the share of empty lookups, on an SSD.

use shamba_figures::Axis;

use super::empty_share::{NOTE, measure, of_paper, parameters};
use super::gains::{chart, percent, table};
use crate::lab::{Device, Experiment, Finding, Lab, Paper, Verdict};

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "hash-sharing-fig13",
    paper: Paper::HashSharing,
    place: "Fig 13",
    title: "gain over the share of empty lookups on an SSD",
    claim: "On an SSD the gain grows from nothing to 17 % as lookups find nothing.",
    parameters: |scale| parameters(scale, Device::Ssd),
    run,
};

/// The gain of lookups that all find nothing from which on the claim counts as confirmed.
const CONFIRMED: f64 = 0.1;

/// Confirmed if the gain grows to what the paper has; partly if it grows at all.
fn verdict(gains: &[f64]) -> Verdict {
    match (gains.first(), gains.last()) {
        (Some(first), Some(last)) if last > first && *last >= CONFIRMED => Verdict::Confirmed,
        (Some(first), Some(last)) if last > first && *last >= CONFIRMED / 4.0 => Verdict::Partly,
        _ => Verdict::NotHere,
    }
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let gains = measure(lab, Device::Ssd)?;
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
            "A read of 113 us hides hashes that take less time than the paper's.".to_owned()
        },
        table: table("empty_fraction", &gains),
        chart: chart(
            "What one digest saves on an SSD",
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
