//! The slide "Conclusion": the same I/Os with a third of the memory.

use super::approaches::{Approach, EQ, EQ_F, PLANNED, STATE_OF_THE_ART, names};
use super::figure::{MEMORY_NOTE, memory_chart, table, times_the_memory};
use super::measure::{Comparison, Reading};
use super::trees::Extent;
use crate::lab::{Experiment, Finding, Lab, Paper, Parameter, Scale, Verdict};

const APPROACHES: [Approach; 4] = [STATE_OF_THE_ART, EQ, EQ_F, PLANNED];
const SHARES: [f64; 7] = [0.05, 0.1, 0.2, 0.35, 0.6, 1.0, 1.6];
const EMPTY: [f64; 3] = [0.0, 0.5, 1.0];
/// The slide's.
const TIMES: f64 = 3.0;
const SOME: f64 = 1.25;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "shamba-memory-ratio",
    paper: Paper::ModularFilters,
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
    let of = |approach: &Approach| {
        EMPTY.map(|empty| times_the_memory(&readings, STATE_OF_THE_ART.name, approach.name, empty))
    };
    let all: Vec<[(f64, f64); EMPTY.len()]> = APPROACHES.iter().skip(1).map(of).collect();
    let told: Vec<String> =
        APPROACHES.iter().skip(1).zip(&all).map(|(approach, times)| told(approach.name, times)).collect();
    let verdict = verdict(&all);
    Ok(Finding {
        ours: format!(
            "For as few I/Os the state of the art needs so many times the memory, on average and at most, with keys there, half and all of them absent: {}.",
            told.join("; ")
        ),
        verdict,
        why: why(verdict, &readings),
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

fn told(name: &str, times: &[(f64, f64)]) -> String {
    let each: Vec<String> = times.iter().map(|(mean, most)| format!("{mean:.1} ({most:.1})")).collect();
    format!("{name} {}", each.join(", "))
}

fn why(verdict: Verdict, readings: &[Reading]) -> String {
    if verdict == Verdict::Confirmed {
        return String::new();
    }
    let least = readings.iter().map(|reading| reading.setting.memory_share).fold(f64::INFINITY, f64::min);
    format!(
        "Ratios are lower bounds: where an approach reads less with the least memory ({:.0} %) than the state of the art with more, it is taken to need the least. \
         The state of the art here already reads filters in slices and indexes in partitions of 4 KiB, where RocksDB read 80 and 32 KB.",
        100.0 * least
    )
}

/// Of the best approach, on average over the shares of empty lookups: a third of the memory or some; or as much at some point.
fn verdict(all: &[[(f64, f64); EMPTY.len()]]) -> Verdict {
    let mean = |times: &[(f64, f64); EMPTY.len()]| {
        (times.iter().map(|(mean, _)| mean.ln()).sum::<f64>() / EMPTY.len() as f64).exp()
    };
    let best = all.iter().map(mean).fold(0.0, f64::max);
    let most = all.iter().flatten().map(|(_, most)| *most).fold(0.0, f64::max);
    match (best, most) {
        (best, _) if best >= TIMES => Verdict::Confirmed,
        (best, most) if best >= SOME || most >= TIMES => Verdict::Partly,
        _ => Verdict::NotHere,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_of_the_memory_is_a_factor_of_three() {
        let of = |mean, most| verdict(&[[(1.0, 1.0); 3], [(mean, most); 3]]);
        assert_eq!(
            [of(3.1, 5.0), of(1.1, 3.5), of(1.3, 1.3), of(1.0, 1.2)],
            [Verdict::Confirmed, Verdict::Partly, Verdict::Partly, Verdict::NotHere]
        );
        let mixed = [(6.0, 9.0), (2.0, 2.0), (1.0, 1.0)];
        assert_eq!(verdict(&[mixed]), Verdict::Partly, "a mean over the workloads");
    }
}
