//! The slide "Lookup cost under memory pressure": what the state of the art reads as memory shrinks.

use crate::chart::{Axis, Chart, Panel, Point, Series, Style};

use super::approaches::STATE_OF_THE_ART;
use super::figure::{MEMORY_NOTE, Over, SHARES, empty_title, io_panel, table};
use super::measure::{Comparison, Reading};
use super::trees::Extent;
use crate::{Experiment, Finding, Kind, Lab, Paper, Parameter, Scale, Verdict};

const EMPTY: [f64; 3] = [0.0, 0.5, 1.0];
/// Rapidly: so many times the bytes at a tenth of the memory.
const TIMES: f64 = 2.0;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "shamba-pressure",
    paper: Paper::ModularFilters,
    kind: Kind::Measured,
    place: "slide \"Lookup cost under memory pressure\"",
    title: "bytes read by a lookup of the state of the art over memory",
    claim: "As the available memory decreases, the bytes read by a query increase rapidly.",
    parameters,
    run,
};

fn parameters(scale: Scale) -> Vec<Parameter> {
    let varied = vec![
        Parameter::varied("memory, share of filters and indexes", SHARES),
        Parameter::varied("empty fraction", EMPTY),
    ];
    let fixed = Extent::at(scale).parameters();
    varied.into_iter().chain(fixed).chain([Parameter::fixed("approach", STATE_OF_THE_ART.name)]).collect()
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let readings = Comparison::over_memory(lab.scale, &[STATE_OF_THE_ART], &SHARES, &EMPTY).run(lab)?;
    let rises = EMPTY.map(|empty| rise(&curve(&readings, empty)));
    let bytes = |empty: f64| {
        let point = |reading: &Reading| {
            let [median, least, most] =
                [reading.read_bytes.median, reading.read_bytes.least, reading.read_bytes.most];
            Point::between(
                100.0 * reading.setting.memory_share,
                median / 1024.0,
                least / 1024.0,
                most / 1024.0,
            )
        };
        let of_it = readings.iter().filter(|reading| reading.setting.empty_fraction == empty);
        Series::new(empty_title(empty), Style::Line, of_it.map(point).collect())
    };
    let ios = |empty: f64| {
        let of_it = readings.iter().filter(move |reading| reading.setting.empty_fraction == empty);
        let mut panel = io_panel("", Over::Memory, of_it, &[STATE_OF_THE_ART.name]);
        for series in &mut panel.series {
            let model = if series.style == Style::Dashes { ", model" } else { "" };
            series.name = format!("{}{model}", empty_title(empty));
        }
        panel.series
    };
    let x = || Axis::log("memory [% of all filters and indexes]");
    let panels = vec![
        Panel {
            title: "bytes".to_owned(),
            x: x(),
            y: Axis::from_zero("KiB read a lookup"),
            series: EMPTY.map(bytes).to_vec(),
        },
        Panel {
            title: "I/Os".to_owned(),
            x: x(),
            y: Axis::from_zero("I/Os a lookup"),
            series: EMPTY.map(ios).concat(),
        },
    ];
    let verdict = verdict(&rises);
    Ok(Finding {
        ours: format!(
            "With a tenth of what filters and indexes take, a lookup reads {:.1} times the bytes of one without pressure if its key is there, {:.1} times if half are, {:.0} times if none is.",
            rises[0], rises[1], rises[2]
        ),
        verdict,
        why: match verdict {
            Verdict::Confirmed => String::new(),
            _ => "A lookup whose key is there reads a data block however much memory there is: beside that the bytes of filters and indexes count for less."
                .to_owned(),
        },
        table: table(&readings),
        chart: Chart {
            title: "The state of the art under memory pressure".to_owned(),
            claim: EXPERIMENT.claim.to_owned(),
            note: MEMORY_NOTE.to_owned(),
            panels,
        },
    })
}

/// Bytes read over memory.
fn curve(readings: &[Reading], empty: f64) -> Vec<f64> {
    let of_it = readings.iter().filter(|reading| reading.setting.empty_fraction == empty);
    of_it.map(|reading| reading.read_bytes.median).collect()
}

/// How many times the bytes with the most memory those with the least are.
fn rise(curve: &[f64]) -> f64 {
    match (curve.first(), curve.last()) {
        (Some(first), Some(last)) => first / last.max(1.0),
        _ => 1.0,
    }
}

fn verdict(rises: &[f64]) -> Verdict {
    match rises.iter().filter(|rise| **rise >= TIMES).count() {
        0 => Verdict::NotHere,
        count if count == rises.len() => Verdict::Confirmed,
        _ => Verdict::Partly,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rise_is_from_the_most_memory_to_the_least() {
        assert_eq!(rise(&[600.0, 300.0, 100.0]), 6.0);
        assert_eq!(rise(&[]), 1.0);
        assert_eq!(
            [verdict(&[3.0, 2.0]), verdict(&[3.0, 1.0]), verdict(&[1.0])],
            [Verdict::Confirmed, Verdict::Partly, Verdict::NotHere]
        );
    }
}
