//! The slides "Bloom Filter": bits that an empty query tests, over the number of probes.

use shamba_filter::sim::Numbers;
use shamba_filter::{Filter, FilterLayout};
use shamba_key::KeyDigest;

use crate::experiment::Experiment;
use crate::lab::Lab;
use crate::paper::{Kind, Method, Paper};
use crate::picture::{Column, Panel};
use crate::rows::{Rows, row};
use crate::scale::{Parameter, Scale};
use crate::verdict::{
    Bound::{AtMost, Within},
    Predicate,
    Unit::Ratio,
};

const PROBES: [u8; 10] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
const KEYS: usize = 50_000;
/// A filter that is not exactly half full deviates from the formula by up to 2 %.
const NEAR: (f64, f64) = (0.98, 1.02);
/// "Most of the filter is seldom needed": of ten bits an empty query tests less than this part.
const SELDOM: f64 = 0.5;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "shamba-probes",
    paper: Paper::ModularFilters,
    kind: Kind::Measured,
    method: Method::Counted,
    place: "slide \"Bloom Filter\"",
    title: "bits that a query looks at over the number of probes",
    claim: "An empty query looks at 2 - 2^(1-k) of a filter's k bits on average, so most of the filter is seldom needed; a query that finds its key looks at all k.",
    parameters,
    measure,
    predicates: &[
        Predicate::direction(
            "bits of an empty query over 2 - 2^(1-k), mean over k",
            Ratio,
            Within(NEAR.0, NEAR.1),
            |rows| rows.of("keys", "absent").mean("over_model"),
        ),
        Predicate::direction(
            "bits of an empty query over those of one that finds its key, 10 probes",
            Ratio,
            AtMost(SELDOM),
            |rows| {
                let of = |keys: &str| rows.of("keys", keys).of("probes", 10u32).number("bits");
                Some(of("absent")? / of("there")?)
            },
        ),
        Predicate::size(
            "bits of a query that finds its key over k, fewest",
            Ratio,
            Within(1.0 - 1e-9, 1.0 + 1e-9),
            |rows| rows.of("keys", "there").numbers("over_model").into_iter().reduce(f64::min),
        ),
    ],
    panels: &[Panel::lines(
        Column::linear("probes", "probes k"),
        Column::from_zero("bits", "bits looked at a query"),
        &["keys"],
    )
    .with_model("model")],
    note: "Standard Bloom filters of 50,000 keys with as many bits as make k probes the best number.",
    reason: Experiment::no_reason,
};

fn absent_keys(scale: Scale) -> u64 {
    scale.count(50_000, 1_000_000, 1_000_000)
}

fn parameters(scale: Scale) -> Vec<Parameter> {
    vec![
        Parameter::varied("probes", PROBES),
        Parameter::fixed("filter", "standard, half full: probes / ln 2 bits per key"),
        Parameter::fixed("keys", KEYS),
        Parameter::fixed("empty queries", absent_keys(scale)),
    ]
}

fn measure(lab: &mut Lab<'_>) -> Result<Rows, String> {
    let layout: FilterLayout = "standard".parse()?;
    let mut rows = Rows::default();
    for probes in PROBES {
        lab.at(format_args!("{probes} probes"));
        let bits_per_key = f64::from(probes) / std::f64::consts::LN_2;
        let mut numbers = Numbers(Numbers(lab.seed ^ u64::from(probes) << 32).draw());
        let keys: Vec<KeyDigest> = numbers.by_ref().take(KEYS).map(KeyDigest::from_raw).collect();
        let filter = Filter::build(&keys, layout, bits_per_key).ok_or("no filter was built")?;
        let absent = numbers.take(absent_keys(lab.scale) as usize).map(KeyDigest::from_raw);
        let of_absent = (mean_bits(&filter, absent), bits_per_empty_probe(probes));
        let of_found = (mean_bits(&filter, keys.iter().copied()), f64::from(probes));
        for (keys, (bits, model)) in [("absent", of_absent), ("there", of_found)] {
            rows.push(row! {
                keys: keys,
                probes: u32::from(probes),
                bits_per_key: bits_per_key,
                bits: bits,
                model: model,
                over_model: bits / model,
            });
        }
    }
    Ok(rows)
}

/// The bits that an empty probe of a half-full Bloom filter of `probes` probes reads on average:
/// 2 - 2^(1-k).
fn bits_per_empty_probe(probes: u8) -> f64 {
    (0..probes).map(|before| 0.5f64.powi(i32::from(before))).sum()
}

fn mean_bits(filter: &Filter, digests: impl Iterator<Item = KeyDigest>) -> f64 {
    let (mut bits, mut asked) = (0u64, 0u64);
    for site in digests.filter_map(|digest| filter.geometry().standard_site(digest)) {
        bits += u64::from(site.bits_looked_at(filter.lines(site.slice())));
        asked += 1;
    }
    bits as f64 / asked.max(1) as f64
}
