//! The slides "Bloom Filter": how many bits an empty query looks at, over the number of probes.

use crate::chart::{Axis, Chart, Panel, Point, Series, Style};
use shamba_filter::sim::Numbers;
use shamba_filter::{Filter, FilterLayout};
use shamba_key::KeyDigest;
use shamba_model::skip::bits_per_empty_probe;

use crate::lookups::Spread;
use crate::table::row;
use crate::{Experiment, Finding, Kind, Lab, Paper, Parameter, Scale, Table, Verdict};

const PROBES: [u8; 10] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
const KEYS: usize = 50_000;
/// Measured and computed may differ by this share: what a filter that is not quite half full makes of it.
const NEAR: f64 = 0.02;
/// Farther off the formula does not hold.
const FAR: f64 = 0.1;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "shamba-probes",
    paper: Paper::ModularFilters,
    kind: Kind::Measured,
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
    let (mut empty, mut found) = (Vec::new(), Vec::new());
    let mut departures = Departures::default();
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
        departures.add(probes, (of_empty.median / model, of_found.median / f64::from(probes)));
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
    let at_seven = |points: &[Point]| points.iter().find(|point| point.x == 7.0).map_or(0.0, |point| point.y);
    let (seven, of_found) = (at_seven(&empty), at_seven(&found));
    let verdict = departures.verdict();
    Ok(Finding {
        ours: format!(
            "With 7 probes an empty query looks at {seven:.2} bits and one that finds its key at {of_found:.2}; measured and computed differ by at most {:.1} %, \
             for keys that are found by {:.1} %.",
            100.0 * departures.empty,
            100.0 * departures.found
        ),
        verdict,
        why: departures.why(),
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

/// How far measured bits are from what the slide says, at most.
#[derive(Clone, Copy, Default, Debug)]
struct Departures {
    empty: f64,
    found: f64,
    /// With so many probes, of empty queries.
    furthest_at: u8,
}

impl Departures {
    /// `measured`: in parts of what the slide says, for empty queries and for those that find.
    fn add(&mut self, probes: u8, (empty, found): (f64, f64)) {
        if (empty - 1.0).abs() > self.empty {
            (self.empty, self.furthest_at) = ((empty - 1.0).abs(), probes);
        }
        self.found = self.found.max((found - 1.0).abs());
    }

    fn verdict(self) -> Verdict {
        match self.empty.max(self.found) {
            furthest if furthest <= NEAR => Verdict::Confirmed,
            furthest if furthest <= FAR => Verdict::Partly,
            _ => Verdict::NotHere,
        }
    }

    fn why(self) -> String {
        let empty =
            format!("With {} probes empty queries are {:.1} % off.", self.furthest_at, 100.0 * self.empty);
        let found = "Queries that find their key do not look at all probes' bits.".to_owned();
        let why = [(self.empty, empty), (self.found, found)];
        let told = why.into_iter().filter(|(departure, _)| *departure > NEAR).map(|(_, why)| why);
        told.collect::<Vec<_>>().join(" ")
    }
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
    fn both_kinds_of_queries_must_be_near() {
        let of = |empty, found| {
            let mut departures = Departures::default();
            departures.add(3, (1.0, 1.0));
            departures.add(4, (empty, found));
            departures
        };
        assert_eq!(
            [of(1.01, 1.0), of(0.95, 1.0), of(1.0, 0.95), of(1.5, 1.0)].map(Departures::verdict),
            [Verdict::Confirmed, Verdict::Partly, Verdict::Partly, Verdict::NotHere]
        );
        assert!(of(0.95, 1.0).why().starts_with("With 4 probes") && of(1.01, 1.0).why().is_empty());
    }

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
