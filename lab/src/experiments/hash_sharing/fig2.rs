//! Figure 2: the part of a lookup's time that hashing takes in a tiered tree.

use super::breakdown::{DEVICES, EMPTY_FRACTIONS, Part, Policy, at, chart, measure, parameters};
use super::claims::{Claim, Held, judge};
use super::gains::percent;
use crate::{Device, Experiment, Finding, Kind, Lab, Paper};

/// The leveled tree is asked in the same turns.
const POLICIES: [Policy; 2] = [Policy::Leveling, Policy::Tiering];

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "hash-sharing-fig2",
    paper: Paper::HashSharing,
    kind: Kind::Measured,
    place: "Fig 2",
    title: "time spent hashing over the share of empty lookups, tiering",
    claim: "With 10 runs a level hashing takes a higher part of the time than with leveling (Fig 1).",
    parameters: |scale| parameters(scale, &POLICIES),
    run,
};

/// On how many of the empty fractions hashing takes a higher part with tiering, for each device.
fn higher(parts: &[Part]) -> Vec<usize> {
    let of = |device: Device, policy: Policy| {
        parts
            .iter()
            .filter(move |part| part.device == device && part.policy == policy)
            .map(|part| part.measured.median)
    };
    let is_there = |device: &Device| parts.iter().any(|part| part.device == *device);
    DEVICES
        .into_iter()
        .filter(is_there)
        .map(|device| {
            let (leveled, tiered) = (of(device, Policy::Leveling), of(device, Policy::Tiering));
            leveled.zip(tiered).filter(|(leveled, tiered)| tiered > leveled).count()
        })
        .collect()
}

/// On every device at nearly all empty fractions, and over all points at most.
fn claims(higher: &[usize]) -> Vec<Claim> {
    let (all, points) = (higher.iter().sum::<usize>(), higher.len() * EMPTY_FRACTIONS.len());
    let nearly = EMPTY_FRACTIONS.len() - 1;
    let everywhere = higher.iter().filter(|count| **count >= nearly).count();
    let text = format!("it is higher at {all} of {points} points");
    vec![
        match all {
            all if 4 * all >= 3 * points => Claim::new(Held::Fully, text),
            all if 2 * all > points => Claim::new(Held::InPart, text),
            _ => Claim::new(Held::Not, text),
        },
        Claim::is(
            everywhere == higher.len(),
            format!(
                "at {nearly} or more of the {} empty fractions on {everywhere} of {} devices",
                EMPTY_FRACTIONS.len(),
                higher.len()
            ),
        ),
    ]
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let devices = lab.devices(&DEVICES)?;
    let (parts, table) = measure(lab, &POLICIES, &devices.here)?;
    let (leveled, tiered): (Vec<Part>, Vec<Part>) =
        parts.iter().cloned().partition(|part| part.policy == Policy::Leveling);
    let higher = higher(&parts);
    let both = |empty_fraction: f64| {
        let of = |parts: &[Part]| at(parts, Device::Pcie, empty_fraction).cloned();
        Ok::<_, String>((of(&tiered)?, of(&leveled)?))
    };
    let ((tiered_half, leveled_half), (tiered_all, leveled_all)) = (both(0.5)?, both(1.0)?);
    let rates = format!(
        "With only empty lookups {:.2} % of the filters' answers are false positives with tiering and {:.2} % with leveling",
        100.0 * tiered_all.false_positives,
        100.0 * leveled_all.false_positives
    );
    let (verdict, why) = judge(&claims(&higher), || {
        format!(
            "{rates}, each of which reads a page: ten times as many runs have about ten times as many of both hashes and such pages. By the paper's \
             model with the times of its Table 1 hashing is {} and {} there.",
            percent(tiered_all.paper_model),
            percent(leveled_all.paper_model)
        )
    });
    let finding = Finding {
        ours: format!(
            "Higher at {} of {} points; on PCIe {} of the time against {} with leveling when half of the lookups are empty, {} against {} when all are.",
            higher.iter().sum::<usize>(),
            higher.len() * EMPTY_FRACTIONS.len(),
            percent(tiered_half.measured.median),
            percent(leveled_half.measured.median),
            percent(tiered_all.measured.median),
            percent(leveled_all.measured.median),
        ),
        verdict,
        why: if why.is_empty() {
            format!("{rates}: filters of few keys are better than their bits.")
        } else {
            why
        },
        table,
        chart: chart("What part of a lookup is hashing: tiering", EXPERIMENT.claim, &tiered),
    };
    Ok(finding.without(&devices.missing))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verdict;
    use crate::lookups::Spread;

    #[test]
    fn the_verdict_follows_the_points() {
        let verdict = |higher: [usize; 5]| judge(&claims(&higher), String::new).0;
        assert_eq!(verdict([5, 5, 5, 4, 4]), Verdict::Confirmed);
        assert_eq!(verdict([5, 5, 5, 5, 0]), Verdict::Partly);
        assert_eq!(verdict([3, 3, 3, 3, 1]), Verdict::Partly);
        assert_eq!(verdict([5, 5, 1, 1, 0]), Verdict::NotHere);
    }

    #[test]
    fn points_are_held_against_each_other_by_device_and_fraction() {
        let part = |policy, device, empty_fraction: f64, measured: f64| Part {
            policy,
            device,
            empty_fraction,
            measured: Spread { median: measured, least: measured, most: measured },
            paper_model: 0.0,
            false_positives: 0.0,
        };
        let mut parts = Vec::new();
        for (place, device) in DEVICES.into_iter().enumerate() {
            for (number, empty_fraction) in EMPTY_FRACTIONS.into_iter().enumerate() {
                parts.push(part(Policy::Leveling, device, empty_fraction, 0.5));
                parts.push(part(
                    Policy::Tiering,
                    device,
                    empty_fraction,
                    if number < place { 0.6 } else { 0.4 },
                ));
            }
        }
        assert_eq!(higher(&parts), [0, 1, 2, 3, 4]);
        parts.retain(|part| part.device != Device::Nvm);
        assert_eq!(higher(&parts), [0, 1, 2, 4], "what is left out counts for nothing");
    }
}
