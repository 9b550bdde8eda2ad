//! The slide "Conclusion": the same I/Os with a third of the memory.
//!
//! The verdict is on one of the slides' own approaches, named beforehand, and on what is beyond noise; the others are told beside.

use super::approaches::{Approach, EQ, EQ_F, PLANNED, STATE_OF_THE_ART, names};
use super::figure::{
    MEMORY_NOTE, NOT_SURE, Saved, if_sure, memory_chart, percent, saved, surely_times_the_memory, table,
    times_the_memory, told_times,
};
use super::measure::Comparison;
use super::trees::Extent;
use crate::checks::curves::ratio::Ratio;
use crate::{Experiment, Finding, Kind, Lab, Paper, Parameter, Scale, Verdict};

const APPROACHES: [Approach; 4] = [STATE_OF_THE_ART, EQ, EQ_F, PLANNED];
/// Decides the verdict; the others are shown.
const DECISIVE: Approach = EQ_F;
const SHARES: [f64; 7] = [0.05, 0.1, 0.2, 0.35, 0.6, 1.0, 1.6];
const EMPTY: [f64; 3] = [0.0, 0.5, 1.0];
/// The slide's.
const TIMES: f64 = 3.0;
const SOME: f64 = 1.25;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "shamba-memory-ratio",
    paper: Paper::ModularFilters,
    kind: Kind::Measured,
    place: "slide \"Conclusion\"",
    title: "memory for the same I/Os",
    claim: "SHaMBa has the same average number of I/Os with a third of the memory that the state of the art needs.",
    parameters,
    run,
};

fn parameters(scale: Scale) -> Vec<Parameter> {
    let own = [
        Parameter::varied("memory, share of filters and indexes", SHARES),
        Parameter::varied("empty fraction", EMPTY),
        Parameter::varied("approach", names(&APPROACHES)),
    ];
    own.into_iter().chain(Extent::at(scale).parameters()).collect()
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let readings = Comparison::over_memory(lab.scale, &APPROACHES, &SHARES, &EMPTY).run(lab)?;
    let of = |approach: &Approach| -> Result<Vec<Ratio>, String> {
        EMPTY
            .iter()
            .map(|empty| times_the_memory(&readings, STATE_OF_THE_ART.name, approach.name, *empty))
            .collect()
    };
    let (decisive, without_skipping, ours) = (of(&DECISIVE)?, of(&EQ)?, of(&PLANNED)?);
    let surely = |empty| surely_times_the_memory(&readings, STATE_OF_THE_ART.name, DECISIVE.name, empty);
    let surely = EMPTY.into_iter().map(surely).collect::<Result<Vec<_>, _>>()?;
    let is_sure = mean(&surely) > 1.0;
    let verdict = if_sure(is_sure, verdict(&decisive));
    Ok(Finding {
        ours: format!(
            "For as few I/Os the state of the art needs so many times the memory, with keys there, half and all of them absent: {}; {}. Beyond the slides: {}.",
            told(DECISIVE.name, &decisive),
            told(EQ.name, &without_skipping),
            told(PLANNED.name, &ours)
        ),
        verdict,
        why: why(verdict, is_sure, saved(&readings, STATE_OF_THE_ART.name, DECISIVE.name, Some(1.0)), &ours),
        table: table(&readings),
        chart: memory_chart(
            "Memory for the same I/Os",
            EXPERIMENT.claim,
            MEMORY_NOTE,
            &readings,
            &[STATE_OF_THE_ART.name, PLANNED.name],
        ),
    })
}

fn told(name: &str, times: &[Ratio]) -> String {
    format!("{name} {}", times.iter().map(told_times).collect::<Vec<_>>().join(", "))
}

/// The cause, and what the same modules need where a plan and not the cache holds them, where the claim is not confirmed.
fn why(verdict: Verdict, is_sure: bool, absent: Saved, held_by_plan: &[Ratio]) -> String {
    if verdict == Verdict::Confirmed {
        return String::new();
    }
    let of_plan = held_by_plan.iter().map(|ratio| ratio.mean);
    let (least, most) =
        of_plan.fold((f64::INFINITY, 0.0f64), |(least, most), mean| (least.min(mean), most.max(mean)));
    let loss = if absent.least < 0.0 {
        format!(", and lose {} where it has not", percent(-absent.least))
    } else {
        String::new()
    };
    let cause = format!(
        "Where all keys are absent and the cache has room for first modules, modules save up to {} of the I/Os{loss}. Where half are there, those \
         pass both modules of their level, a read more than of one filter, and their data blocks compete for the cache. Held by a plan, and not by \
         the cache, the state of the art needs {least:.1} to {most:.1} times the memory.",
        percent(absent.most)
    );
    if is_sure { cause } else { format!("{NOT_SURE} {cause}") }
}

/// On average over the shares of empty lookups.
fn mean(times: &[Ratio]) -> f64 {
    (times.iter().map(|ratio| ratio.mean.ln()).sum::<f64>() / times.len().max(1) as f64).exp()
}

/// A third of the memory or some, on average; or as much at some point.
fn verdict(times: &[Ratio]) -> Verdict {
    let most = times.iter().map(|ratio| ratio.most).fold(0.0, f64::max);
    match (mean(times), most) {
        (mean, _) if mean >= TIMES => Verdict::Confirmed,
        (mean, most) if mean >= SOME || most >= TIMES => Verdict::Partly,
        _ => Verdict::NotHere,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(all: &[(f64, f64)]) -> Vec<Ratio> {
        let ratio = |(mean, most): &(f64, f64)| Ratio {
            mean: *mean,
            most: *most,
            most_at_bytes: 1.0,
            points: 7,
            more_at: 2,
            less_at: 1,
        };
        all.iter().map(ratio).collect()
    }

    #[test]
    fn a_third_of_the_memory_is_a_factor_of_three() {
        let of = |mean, most| verdict(&times(&[(mean, most); 3]));
        assert_eq!(
            [of(3.1, 5.0), of(1.1, 3.5), of(1.3, 1.3), of(1.0, 1.2)],
            [Verdict::Confirmed, Verdict::Partly, Verdict::Partly, Verdict::NotHere]
        );
        let mixed = times(&[(6.0, 9.0), (2.0, 2.0), (1.0, 1.0)]);
        assert_eq!(verdict(&mixed), Verdict::Partly, "a mean over the workloads");
    }

    #[test]
    fn what_is_told_tells_its_bounds() {
        let all = times(&[(1.26, 2.0)]);
        assert_eq!(told("eq", &all), "eq 1.3 (2.0 where most; bounds on both sides)");
        let bounds = [(0, 0, ""), (1, 0, "; lower bound"), (0, 1, "; upper bound")];
        for (more_at, less_at, bound) in bounds {
            let ratio = Ratio { more_at, less_at, ..all[0] };
            assert_eq!(told_times(&ratio), format!("1.3 (2.0 where most{bound})"));
        }
    }

    #[test]
    fn what_is_not_confirmed_has_its_cause() {
        let held = times(&[(3.21, 7.0), (2.5, 4.0), (2.2, 6.0)]);
        let absent = Saved { mean: 0.1, least: -0.09, most: 0.45 };
        assert_eq!(why(Verdict::Confirmed, true, absent, &held), "");
        let sure = why(Verdict::Partly, true, absent, &held);
        assert!(sure.contains("up to 45 %") && sure.contains("lose 9 %"), "{sure}");
        assert!(sure.contains("2.2 to 3.2 times"), "{sure}");
        let unsure = why(Verdict::NotHere, false, absent, &held);
        assert!(unsure.starts_with(NOT_SURE) && unsure.ends_with(&sure), "{unsure}");
    }
}
