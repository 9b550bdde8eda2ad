//! False-positive rates of the papers' filters over raw hashes: many filters, counted with their error; the tables of them.

use crate::chart::{Axis, Chart, Panel, Point, Series, Style};
use shamba_filter::fpr::standard_fpr;
use shamba_filter::sim::raw::{RawFilter, RawProbing};

use super::hashes::{Hash, keys};
use crate::lookups::Spread;
use crate::table::row;
use crate::{Finding, Lab, Parameter, Scale, Table, Verdict};

/// The paper's filter: ten thousand keys, a hundred thousand that are not there.
const KEYS: usize = 10_000;
const STRANGERS: usize = 100_000;
/// Bytes of a key, as in Table 2.
pub(super) const KEY_BYTES: usize = 512;

/// How probes are made of hashes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    /// One hash and its rotation.
    Single(Hash),
    /// Two hashes, `h1 + i * h2`.
    Double(Hash, Hash),
    /// A hash function for each probe.
    Different(&'static [Hash]),
}

/// A rate, and its standard error.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    pub fpr: f64,
    pub error: f64,
}

impl Rate {
    /// How many of its errors, and of another rate's that was counted in `others_asked`, lie between the two.
    pub fn errors_from(self, fpr: f64, others_asked: u64) -> f64 {
        let other = (fpr * (1.0 - fpr) / others_asked.max(1) as f64).sqrt();
        (self.fpr - fpr).abs() / (self.error.powi(2) + other.powi(2)).sqrt().max(f64::MIN_POSITIVE)
    }
}

/// What the paper asked one filter.
const PAPER_ASKED: u64 = STRANGERS as u64;

/// The rate over `filters` filters of `units` modules, each over its own keys; units of one filter have `bits_per_key` and `probes`
/// divided among them.
///
/// As in the paper's code every unit derives its hash from the key's: the first has `h`, the next `h + i * step`, with the step of the
/// rotation in 64 bits, or the second hash.
pub(super) fn rate(way: Way, (bits_per_key, probes): (f64, u8), units: u8, filters: u64, seed: u64) -> Rate {
    let (mut positives, mut asked) = (0u64, 0u64);
    let mut rates = Vec::new();
    for number in 0..filters {
        let seed = seed.wrapping_add(number << 32);
        let inside = keys(KEYS, KEY_BYTES, seed);
        let outside = keys(STRANGERS, KEY_BYTES, seed ^ 0x6f75_7473_6964_6521);
        let probing = match way {
            Way::Single(_) => RawProbing::Rotation,
            Way::Double(..) => RawProbing::DoubleHashing,
            Way::Different(_) => RawProbing::Independent,
        };
        let probes_of_unit = probes / units;
        let probing = if units > 1 { RawProbing::Independent } else { probing };
        let mut of_filter: Vec<RawFilter> = (0..units)
            .map(|_| RawFilter::new(KEYS, bits_per_key / f64::from(units), probes_of_unit, probing))
            .collect();
        for key in &inside {
            for (unit, filter) in (0..).zip(&mut of_filter) {
                filter.insert(&digests(way, key, unit, probes_of_unit, units));
            }
        }
        let mut of_this = 0u64;
        for key in &outside {
            let says_maybe = |(unit, filter): (u8, &RawFilter)| {
                filter.may_contain(&digests(way, key, unit, probes_of_unit, units))
            };
            of_this += u64::from((0..).zip(&of_filter).all(says_maybe));
        }
        rates.push(of_this as f64 / STRANGERS as f64);
        positives += of_this;
        asked += STRANGERS as u64;
    }
    let fpr = positives as f64 / asked.max(1) as f64;
    // Filters differ by more than their strangers: how full they are by chance.
    let variance = rates.iter().map(|rate| (rate - fpr).powi(2)).sum::<f64>() / (filters.max(2) - 1) as f64;
    let error = (variance / filters.max(1) as f64).max(fpr * (1.0 - fpr) / asked.max(1) as f64).sqrt();
    Rate { fpr, error }
}

/// The digests that a unit takes.
fn digests(way: Way, key: &[u8], unit: u8, probes: u8, units: u8) -> Vec<u64> {
    match way {
        Way::Different(hashes) => {
            hashes.iter().map(|hash| hash.hash(key, 0)).take(usize::from(probes)).collect()
        }
        Way::Single(hash) => {
            let base = hash.hash(key, 0);
            if units == 1 {
                return vec![base];
            }
            let step = base << 17 | base >> 15;
            vec![base.wrapping_add(u64::from(unit).wrapping_mul(step))]
        }
        Way::Double(first, second) => {
            let (base, step) = (first.hash(key, 0), second.hash(key, 0));
            if units == 1 {
                return vec![base, step];
            }
            vec![base.wrapping_add(u64::from(unit).wrapping_mul(step))]
        }
    }
}

/// A row of a table of rates: its name, how probes are made, the paper's percentage.
pub(super) type Claimed = (&'static str, Way, f64);

/// Rates farther apart than so many standard errors, theirs included, are different.
const ERRORS_MOST: f64 = 3.0;
const BITS_PER_KEY: f64 = 10.0;
const PROBES: u8 = 7;

fn filters(scale: Scale) -> u64 {
    scale.count(4, 30, 30)
}

/// What a table of rates varies and holds.
pub(super) fn parameters(scale: Scale, claimed: &[Claimed], units: u8) -> Vec<Parameter> {
    vec![
        Parameter::varied("hash", claimed.iter().map(|(name, ..)| name)),
        Parameter::fixed("units", units),
        Parameter::fixed("bits per key", BITS_PER_KEY),
        Parameter::fixed("probes of all units", PROBES),
        Parameter::fixed("key bytes", KEY_BYTES),
        Parameter::fixed("keys", KEYS),
        Parameter::fixed("empty lookups a filter", STRANGERS),
        Parameter::fixed("filters", filters(scale)),
    ]
}

/// The rates beside those of the paper, and beside theory.
pub(super) fn against_paper(
    lab: &mut Lab<'_>,
    claimed: &[Claimed],
    units: u8,
    (title, claim, note): (&str, &str, &str),
) -> Result<Finding, String> {
    let theory = 100.0 * standard_fpr(BITS_PER_KEY, PROBES);
    let mut table = Table::new(&[
        "hash",
        "fpr_percent",
        "error_percent",
        "paper_percent",
        "theory_percent",
        "departure_in_errors",
        "within",
    ]);
    let (mut ours, mut theirs, mut outside) = (Vec::new(), Vec::new(), Vec::new());
    let (mut single, mut others) = (Vec::new(), Vec::new());
    for (place, (name, way, paper)) in claimed.iter().enumerate() {
        lab.at(format_args!("filters with {name}"));
        let found = rate(*way, (BITS_PER_KEY, PROBES), units, filters(lab.scale), lab.seed);
        let errors = found.errors_from(paper / 100.0, PAPER_ASKED);
        let within = errors <= ERRORS_MOST;
        let percent = 100.0 * found.fpr;
        table.row(row![*name, percent, 100.0 * found.error, *paper, theory, errors, within]);
        let error = 200.0 * found.error;
        ours.push(Point::between(place as f64, percent, percent - error, percent + error));
        theirs.push(Point::new(place as f64, *paper));
        if matches!(way, Way::Single(_)) { &mut single } else { &mut others }.push(percent);
        if !within {
            outside.push(format!(
                "{name} ({percent:.2} ± {:.2} %, the paper {paper:.3} %)",
                100.0 * found.error
            ));
        }
    }
    let names: Vec<&str> = claimed.iter().map(|(name, ..)| *name).collect();
    let line = vec![Point::new(-0.5, theory), Point::new(names.len() as f64 - 0.5, theory)];
    Ok(Finding {
        ours: format!(
            "{}; {} of {} within {ERRORS_MOST} standard errors of the paper's.",
            told(&single, &others, theory),
            claimed.len() - outside.len(),
            claimed.len()
        ),
        verdict: verdict(outside.len(), claimed.len()),
        why: match outside.is_empty() {
            true => String::new(),
            false => format!(
                "Outside: {}. The paper asked one filter {PAPER_ASKED} times, which the standard error counts; that filters differ in how full they are by \
                 chance is counted for ours only.",
                outside.join(", ")
            ),
        },
        table,
        chart: Chart {
            title: title.to_owned(),
            claim: claim.to_owned(),
            note: note.to_owned(),
            panels: vec![Panel {
                title: String::new(),
                x: Axis::categories("hash function", names),
                y: Axis::linear("false positives [%]").reaching(0.7, 1.0),
                series: vec![
                    Series::new("here", Style::Markers, ours),
                    Series::new("the paper", Style::Markers, theirs),
                    Series::new("theory", Style::Dashes, line),
                ],
            }],
        },
    })
}

/// Rates in percent of filters with one hash and of the others, beside theory's.
fn told(single: &[f64], others: &[f64], theory: f64) -> String {
    let of = |name: &str, rates: &[f64]| {
        let Spread { least, most, .. } = Spread::of(rates.to_vec());
        let mean = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
        format!(
            "{name} {least:.2} to {most:.2} %, in the mean {:+.0} % of theory's {theory:.2} %",
            100.0 * (mean / theory - 1.0)
        )
    };
    format!("{}; {}", of("With one hash", single), of("otherwise", others))
}

/// Confirmed if all lie within chance of the paper's, partly if most do.
fn verdict(outside: usize, all: usize) -> Verdict {
    match outside {
        0 => Verdict::Confirmed,
        some if 2 * some < all => Verdict::Partly,
        _ => Verdict::NotHere,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_good_hashes_are_near_theory() {
        let found = rate(Way::Single(Hash::Sha256), (10.0, 7), 1, 2, 1);
        let theory = standard_fpr(10.0, 7);
        assert!((found.fpr / theory - 1.0).abs() < 0.25, "{found:?}");
        let seven = rate(Way::Double(Hash::Xx64, Hash::Murmur64), (10.0, 7), 7, 2, 1);
        assert!((seven.fpr / theory - 1.0).abs() < 0.25, "{seven:?}");
    }

    #[test]
    fn distance_counts_the_errors_of_both() {
        let found = Rate { fpr: 0.01, error: 0.001 };
        assert!(found.errors_from(0.01, 100) == 0.0);
        let (few, many) = (found.errors_from(0.02, 100), found.errors_from(0.02, 1_000_000));
        assert!(few < many && many > 9.0, "{few} {many}");
        assert_eq!(
            [verdict(0, 7), verdict(3, 7), verdict(4, 7)],
            [Verdict::Confirmed, Verdict::Partly, Verdict::NotHere]
        );
        assert_eq!(
            told(&[0.9, 0.7], &[1.2], 1.0),
            "With one hash 0.70 to 0.90 %, in the mean -20 % of theory's 1.00 %; otherwise 1.20 to 1.20 %, in the mean +20 % of theory's 1.00 %"
        );
    }
}
