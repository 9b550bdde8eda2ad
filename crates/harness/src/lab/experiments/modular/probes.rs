//! The slides "Bloom Filter": how many bits an empty query looks at, over the number of probes.

use shamba_figures::{Axis, Chart, Panel, Point, Series, Style};
use shamba_filter::sim::Numbers;
use shamba_filter::{Filter, FilterLayout};
use shamba_key::KeyDigest;
use shamba_model::skip::bits_per_empty_probe;

use crate::lab::lookups::Spread;
use crate::lab::table::row;
use crate::lab::{Experiment, Finding, Lab, Paper, Parameter, Scale, Table, Verdict};

const PROBES: [u8; 10] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
const KEYS: usize = 50_000;
/// Measured and computed may differ by this share: what a filter that is not quite half full makes of it.
const NEAR: f64 = 0.02;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "shamba-probes",
    paper: Paper::ModularFilters,
    place: "slide \"Bloom Filter\"",
    title: "bits that a query looks at over the number of probes",
    claim: "An empty query looks at 2 - 2^(1-k) of a filter's k bits on average, so most of the filter is seldom needed; a query that finds its key looks at all k.",
    parameters,
    run,
};

fn strangers(scale: Scale) -> u64 {
    scale.count(100_000, 1_000_000, 1_000_000)
}

fn parameters(scale: Scale) -> Vec<Parameter> {
    vec![
        Parameter::varied("probes", PROBES),
        Parameter::fixed("filter", "standard, half full: probes / ln 2 bits per key"),
        Parameter::fixed("keys", KEYS),
        Parameter::fixed("empty queries a repeat", strangers(scale)),
    ]
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let layout: FilterLayout = "standard".parse()?;
    let mut table = Table::new(&[
        "probes",
        "bits_per_key",
        "bits_empty",
        "bits_empty_least",
        "bits_empty_most",
        "bits_empty_model",
        "bits_found",
    ]);
    let (mut empty, mut found, mut furthest) = (Vec::new(), Vec::new(), 0.0f64);
    for probes in PROBES {
        lab.at(format_args!("{probes} probes"));
        let bits_per_key = f64::from(probes) / std::f64::consts::LN_2;
        let mut repeats = (Vec::new(), Vec::new());
        for repeat in 0..lab.repeats.max(1) {
            let mut numbers = Numbers(Numbers(lab.seed ^ u64::from(repeat) << 32 ^ u64::from(probes)).draw());
            let keys: Vec<KeyDigest> = numbers.by_ref().take(KEYS).map(KeyDigest::from_raw).collect();
            let filter = Filter::build(&keys, layout, bits_per_key).ok_or("no filter was built")?;
            let strange = numbers.take(strangers(lab.scale) as usize).map(KeyDigest::from_raw);
            repeats.0.push(mean_bits(&filter, strange));
            repeats.1.push(mean_bits(&filter, keys.iter().copied()));
        }
        let (of_empty, of_found) = (Spread::of(repeats.0), Spread::of(repeats.1));
        let model = bits_per_empty_probe(probes);
        furthest = furthest.max((of_empty.median / model - 1.0).abs());
        table.row(row![
            u32::from(probes),
            bits_per_key,
            of_empty.median,
            of_empty.least,
            of_empty.most,
            model,
            of_found.median
        ]);
        let x = f64::from(probes);
        empty.push(Point::between(x, of_empty.median, of_empty.least, of_empty.most));
        found.push(Point::new(x, of_found.median));
    }
    let seven = empty.iter().find(|point| point.x == 7.0).map_or(0.0, |point| point.y);
    let is_near = furthest <= NEAR;
    Ok(Finding {
        ours: format!(
            "With 7 probes an empty query looks at {seven:.2} bits and one that finds its key at 7; measured and computed differ by at most {:.1} %.",
            100.0 * furthest
        ),
        verdict: if is_near { Verdict::Confirmed } else { Verdict::Partly },
        why: if is_near { String::new() } else { "The filters are not exactly half full.".to_owned() },
        table,
        chart: Chart {
            title: "Bits that a query looks at".to_owned(),
            claim: EXPERIMENT.claim.to_owned(),
            note: format!(
                "Standard Bloom filters of {KEYS} keys with as many bits as make k probes the best number."
            ),
            panels: vec![Panel {
                title: String::new(),
                x: Axis::linear("probes k"),
                y: Axis::from_zero("bits looked at a query"),
                series: vec![
                    Series::new("absent keys", Style::Line, empty),
                    Series::new("keys there", Style::Line, found),
                    Series::model(
                        "2 - 2^(1-k)",
                        PROBES.map(|probes| (f64::from(probes), bits_per_empty_probe(probes))),
                    ),
                ],
            }],
        },
    })
}

/// Bits looked at, on average.
fn mean_bits(filter: &Filter, digests: impl Iterator<Item = KeyDigest>) -> f64 {
    let (mut bits, mut asked) = (0u64, 0u64);
    for site in digests.filter_map(|digest| filter.geometry().standard_site(digest)) {
        bits += u64::from(site.bits_looked_at(filter.lines(site.slice())));
        asked += 1;
    }
    bits as f64 / asked.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_are_there_take_all_probes() {
        let mut numbers = Numbers(5);
        let keys: Vec<KeyDigest> = numbers.by_ref().take(1_000).map(KeyDigest::from_raw).collect();
        let layout = "standard".parse().expect("a layout");
        let filter = Filter::build(&keys, layout, 10.0).expect("built");
        assert_eq!(mean_bits(&filter, keys.into_iter()), 7.0);
        let empty = mean_bits(&filter, numbers.take(20_000).map(KeyDigest::from_raw));
        assert!((1.8..2.2).contains(&empty), "{empty}");
    }
}
