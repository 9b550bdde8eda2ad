//! Figures 12 C to F: lookups over filter bits per key, that find nothing and that find, on an SSD and on a disk.
//!
//! With no bits all read every run. What is compared is how many bits Monkey takes for as few I/Os in vain as uniform bits of
//! ten: on the curves as measured, between whose points the logarithm runs straight, as a Bloom filter's does.
//!
//! I/Os do not hang on the device: counts on the disk (D, F) are those on the SSD (C, E) again, and would give one verdict twice. So what is judged
//! besides, on each device, is its own latency: with these bits Monkey must be no slower than uniform bits of ten, and faster than uniform
//! bits of as many, both beyond what trials scatter.

use crate::chart::Axis;

use super::point::{Place, Point, both, chart, measure, of, panel, percent, saved, table};
use super::setup::{Filters, HDD, SSD, Size, fixed};
use crate::lookups::Questions;
use crate::{Device, Experiment, Finding, Kind, Lab, Paper, Parameter, Scale, Verdict};

const BITS: [f64; 10] = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 10.0];
/// What systems give every filter.
const USUAL_BITS: f64 = 10.0;

const CLAIM_EMPTY: &str = "Monkey with some 6 bits per key is as fast as the state of the art with 10; without bits both are alike.";
const CLAIM_HITS: &str = "Monkey with some 4 bits per key is as fast as the state of the art with 10; for hits, filters made for hits are some 10 % faster.";

pub(super) const C: Experiment = Experiment {
    id: "monkey-fig12c",
    paper: Paper::Monkey,
    kind: Kind::Measured,
    place: "Fig 12 C",
    title: "latency of empty lookups over bits per key, SSD",
    claim: CLAIM_EMPTY,
    parameters: |scale| parameters(scale, 1.0, SSD),
    run: |lab| run(lab, 1.0, SSD, CLAIM_EMPTY),
};

pub(super) const D: Experiment = Experiment {
    id: "monkey-fig12d",
    place: "Fig 12 D",
    title: "latency of empty lookups over bits per key, HDD",
    parameters: |scale| parameters(scale, 1.0, HDD),
    run: |lab| run(lab, 1.0, HDD, CLAIM_EMPTY),
    ..C
};

pub(super) const E: Experiment = Experiment {
    id: "monkey-fig12e",
    paper: Paper::Monkey,
    kind: Kind::Measured,
    place: "Fig 12 E",
    title: "latency of lookups that find over bits per key, SSD",
    claim: CLAIM_HITS,
    parameters: |scale| parameters(scale, 0.0, SSD),
    run: |lab| run(lab, 0.0, SSD, CLAIM_HITS),
};

pub(super) const F: Experiment = Experiment {
    id: "monkey-fig12f",
    place: "Fig 12 F",
    title: "latency of lookups that find over bits per key, HDD",
    parameters: |scale| parameters(scale, 0.0, HDD),
    run: |lab| run(lab, 0.0, HDD, CLAIM_HITS),
    ..E
};

fn parameters(scale: Scale, empty_fraction: f64, device: Device) -> Vec<Parameter> {
    let mut all = vec![Parameter::varied("bits per key", BITS)];
    all.push(Parameter::fixed("device", device.name()));
    all.extend(fixed(scale, &["bits per key", "empty fraction"]));
    all.push(Parameter::fixed("empty fraction", empty_fraction));
    all
}

fn run(lab: &mut Lab<'_>, empty_fraction: f64, device: Device, claim: &str) -> Result<Finding, String> {
    let size = Size::usual(lab.scale)?;
    let paper = size.paper_tree()?;
    let is_empty = empty_fraction == 1.0;
    let sides = if is_empty { &Filters::PAIR[..] } else { &Filters::ALL[..] };
    let mut points = Vec::new();
    for bits_per_key in BITS {
        let trees = size.lay(lab, sides, bits_per_key, empty_fraction)?;
        let bits = bits_per_key * size.entries as f64;
        let model = |filters: &Filters| Ok(Some(filters.model_ios(&paper, bits, empty_fraction)?));
        let place = Place {
            x: bits_per_key,
            device,
            questions: Questions::uniform(empty_fraction, 1),
            model_ios: sides.iter().map(model).collect::<Result<_, String>>()?,
        };
        points.extend(measure(lab, &trees, place)?);
    }
    // Who finds reads one page in any case.
    let needed = 1.0 - empty_fraction;
    let idea = if is_empty { Filters::Zero } else { Filters::General };
    let wasted = |filters: Filters| -> Vec<(f64, f64)> {
        of(&points, filters).iter().map(|point| (point.x, point.ios - needed)).collect()
    };
    let usual = wasted(Filters::Uniform).last().map_or(0.0, |(_, ios)| *ios);
    let equal_bits = bits_for(&wasted(idea), usual);
    let general_saves = most_saved(&points);
    let of_counts = if is_empty {
        verdict_of_bits(equal_bits, 6.0)
    } else {
        both(verdict_of_bits(equal_bits, 4.0), verdict_of_share(general_saves))
    };
    let claimed_bits = if is_empty { 6.0 } else { 4.0 };
    let [is_as_fast, is_faster] = latencies(&points, idea, claimed_bits);
    let of_latency = verdict_of_latency(is_as_fast, is_faster);
    let verdict = both(of_counts, of_latency);
    let theory = model_bits(&points, idea, needed);
    let in_bits = |bits: Option<f64>| bits.map_or("more than 10".to_owned(), |bits| format!("{bits:.1}"));
    let mut ours =
        format!("Monkey needs {} bits per key for the I/Os of uniform bits of 10", in_bits(equal_bits));
    if is_empty {
        let at =
            |filters| of(&points, filters).iter().find(|point| point.x == 5.0).map_or(0.0, |point| point.ios);
        let spared = saved(at(Filters::Uniform), at(Filters::Zero));
        ours += &format!("; with 5 bits it spares {}.", percent(spared));
    } else {
        ours += &format!(
            "; filters made for hits spare at most {} of those made for empty lookups.",
            percent(general_saves)
        );
    }
    ours += &format!(
        " Timed on {}, beyond what trials scatter: with {claimed_bits} bits Monkey is {} than uniform bits of ten, and {} than uniform bits of as many.",
        device.name(),
        if is_as_fast { "no slower" } else { "slower" },
        if is_faster { "faster" } else { "no faster" }
    );
    if device == HDD {
        ours += " I/Os are those counted for the SSD's figure again.";
    }
    let why = match of_counts {
        _ if verdict == Verdict::Confirmed => String::new(),
        Verdict::Confirmed => "I/Os are as claimed, the latency on this device is not.".to_owned(),
        _ => format!(
            "The paper's own equations say {} for this tree: where the curves look alike on an axis that begins at 0, they still differ \
             by their factor.",
            in_bits(theory)
        ),
    };
    let note = format!(
        "T = 2, {} levels, {}, emulated {}. Model: equations {}. Bars: one standard deviation over the trials.",
        size.levels,
        if is_empty { "all lookups empty" } else { "all lookups find" },
        device.name(),
        if is_empty { "56 and 7" } else { "56, 9 and 19" }
    );
    let title = if is_empty { "A lookup that finds nothing" } else { "A lookup that finds its key" };
    let panels = vec![panel("", Axis::linear("filter bits per key"), &points)];
    Ok(Finding {
        ours,
        verdict,
        why,
        table: table("bits_per_key", &points),
        chart: chart(&format!("{title}, over filter memory"), claim, &note, panels),
    })
}

/// The least bits at which a falling curve comes to `wasted`; `None` outside of what was measured.
fn bits_for(curve: &[(f64, f64)], wasted: f64) -> Option<f64> {
    curve.windows(2).find_map(|pair| {
        let [(from, more), (to, less)] = [pair[0], pair[1]];
        if !(less <= wasted && wasted <= more) {
            return None;
        }
        let ln = |ios: f64| ios.max(1e-9).ln();
        let part = if more > less { (ln(more) - ln(wasted)) / (ln(more) - ln(less)) } else { 0.0 };
        Some(from + part * (to - from))
    })
}

/// The same by the model's figures.
fn model_bits(points: &[Point], idea: Filters, needed: f64) -> Option<f64> {
    let wasted = |filters| -> Vec<(f64, f64)> {
        of(points, filters).iter().filter_map(|point| Some((point.x, point.model_ios? - needed))).collect()
    };
    let (_, usual) = *wasted(Filters::Uniform).last()?;
    bits_for(&wasted(idea), usual)
}

/// The most of its I/Os that filters made for hits spare those made for empty lookups.
fn most_saved(points: &[Point]) -> f64 {
    let pairs = of(points, Filters::Zero).into_iter().zip(of(points, Filters::General));
    pairs.map(|(zero, general)| saved(zero.ios, general.ios)).fold(0.0, f64::max)
}

/// By latency, beyond what trials scatter: whether the idea with so many bits is no slower than uniform bits of ten, and whether it is faster than uniform
/// bits of as many.
fn latencies(points: &[Point], idea: Filters, bits: f64) -> [bool; 2] {
    let at = |filters, bits: f64| of(points, filters).into_iter().find(|point| point.x == bits);
    let (Some(idea), Some(usual), Some(alike)) =
        (at(idea, bits), at(Filters::Uniform, USUAL_BITS), at(Filters::Uniform, bits))
    else {
        return [false; 2];
    };
    [!usual.is_faster_than(idea), idea.is_faster_than(alike)]
}

fn verdict_of_latency(is_as_fast: bool, is_faster: bool) -> Verdict {
    match (is_as_fast, is_faster) {
        (true, true) => Verdict::Confirmed,
        (false, false) => Verdict::NotHere,
        _ => Verdict::Partly,
    }
}

fn verdict_of_bits(bits: Option<f64>, claimed: f64) -> Verdict {
    match bits {
        Some(bits) if bits <= claimed + 0.75 => Verdict::Confirmed,
        Some(bits) if bits < USUAL_BITS - 0.5 => Verdict::Partly,
        _ => Verdict::NotHere,
    }
}

fn verdict_of_share(share: f64) -> Verdict {
    match share {
        share if share >= 0.07 => Verdict::Confirmed,
        share if share >= 0.02 => Verdict::Partly,
        _ => Verdict::NotHere,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_read_off_where_the_logarithm_runs_straight() {
        let curve = [(0.0, 9.0), (2.0, 1.0), (4.0, 0.01), (6.0, 0.01)];
        assert_eq!(bits_for(&curve, 1.0), Some(2.0));
        assert!((bits_for(&curve, 0.1).expect("on it") - 3.0).abs() < 1e-9);
        assert_eq!(bits_for(&curve, 0.001), None);
    }

    #[test]
    fn verdicts_follow_the_figures() {
        assert_eq!(verdict_of_bits(Some(6.2), 6.0), Verdict::Confirmed);
        assert_eq!(verdict_of_bits(Some(8.3), 6.0), Verdict::Partly);
        assert_eq!(verdict_of_bits(None, 6.0), Verdict::NotHere);
        let of_latency = [(true, true), (true, false), (false, false)].map(|(a, b)| verdict_of_latency(a, b));
        assert_eq!(of_latency, [Verdict::Confirmed, Verdict::Partly, Verdict::NotHere]);
        assert_eq!(
            [0.1, 0.03, 0.0].map(verdict_of_share),
            [Verdict::Confirmed, Verdict::Partly, Verdict::NotHere]
        );
    }
}
