//! Rows that compare lookups with one digest with lookups that hash per filter.
//!
//! Both sides read one tree at the same time; the only difference is `hash_sharing`. The rows also
//! have the model's gain (Equation 8) for the measured times of a hash of that length, a probe and
//! a page on this machine ([`super::constants`]).

use shamba::DigestKind;
use shamba_filter::measured;
use shamba_workload::Distribution;

use super::constants::{constants, hash_here};
use super::equations::{LookupShape, LookupTimes};
use super::hashes::Hash;
use crate::device::Device;
use crate::facts::llc_bytes;
use crate::lab::Lab;
use crate::layered::Shape;
use crate::lookups::{Questions, Side, compare, parts};
use crate::rows::{Row, View, row};
use crate::scale::Parameter;
use crate::tree::{Spec, Tree};

/// Nanoseconds of probing one filter, in the paper's own figures of its model.
pub(super) const PROBE_NS: f64 = 20.0;
/// The paper's false-positive rate of a filter with ten bits per key.
pub(super) const PAPER_FPR: f64 = 0.0082;
/// A measured gain is the size that the paper's equation predicts, with the times of this machine,
/// if their ratio lies within this band.
pub(super) const NEAR_MODEL: (f64, f64) = (0.7, 1.3);
/// The digests that gains are measured with: the paper's and this engine's.
pub(super) const DIGESTS: [(DigestKind, &str); 2] =
    [(DigestKind::Murmur64A, "MM64 (the paper's)"), (DigestKind::Xxh3, "XXH3 (ours)")];

/// Required size of filters relative to the last-level cache, where they should exceed it.
const TIMES_LLC: f64 = 4.0;
/// Some 10 GiB of entries of 64 bytes: trees are in memory. The parameters state the resulting
/// ratio.
const ENTRIES_MAX: u64 = 160_000_000;
/// Keys and entries of such trees.
pub(super) const SHORT: (usize, usize) = (56, 64);

/// Size of the filters of this number of entries relative to the last-level cache.
pub(super) fn filters_over_llc(entries: u64, bits_per_key: f64) -> f64 {
    entries as f64 * bits_per_key / 8.0 / llc_bytes() as f64
}

/// Entries whose filters, with these bits per key, exceed the last-level cache [`TIMES_LLC`] times,
/// as figures of CPU time require; at most [`ENTRIES_MAX`].
pub(super) fn beyond_llc(bits_per_key: f64) -> u64 {
    ((TIMES_LLC * llc_bytes() as f64 * 8.0 / bits_per_key).ceil() as u64).min(ENTRIES_MAX)
}

/// [`filters_over_llc`] as a parameter: filters that fit the cache are probed faster than those of
/// large data.
pub(super) fn over_llc(entries: u64, bits_per_key: f64) -> Parameter {
    let times = filters_over_llc(entries, bits_per_key);
    Parameter::fixed(
        "filters over the last-level cache",
        crate::rows::significant((times * 1e4).round() / 1e4),
    )
}

/// Measures `tree` on `device` and returns the values of one point: times of both sides, the share
/// saved, the model's share, counters per lookup, and the parts of the baseline's time.
///
/// # Errors
/// Errors of the engine, and a wrong answer.
pub(super) fn gain(lab: &Lab<'_>, tree: &Tree, device: Device, questions: &Questions) -> Result<Row, String> {
    let spec = &tree.spec;
    let times = constants(lab, spec, device)?;
    let unshared = tree.open(device, &[("hash-sharing", "off")])?;
    let shared = tree.open(device, &[])?;
    let sides = compare(lab, tree, &[&unshared, &shared], questions)?;
    let of_parts = Questions { lookups: (questions.lookups / 4).max(500), ..questions.clone() };
    let shared_parts = parts(lab, tree, &shared, &of_parts)?;
    let parts = parts(lab, tree, &unshared, &of_parts)?;
    let [base, idea] = <[Side; 2]>::try_from(sides).map_err(|_| "two sides were asked")?;
    let fpr = match questions.distribution {
        Distribution::Uniform => measured::fpr(spec.bits.layout, spec.bits.per_key),
        // A skewed stream looks up few keys: the false positives among them determine its rate.
        _ => base.stats.false_positives as f64 / base.stats.filters_consulted.max(1) as f64,
    };
    let model = times.and_then(|times| model_gain(spec, (fpr, questions.empty_fraction), times));
    let values = row! {
        baseline_ns: base.ns,
        shared_ns: idea.ns,
        gain: 1.0 - idea.ns / base.ns,
        gain_model: model,
        hash_ns: hash_here(spec),
        probe_ns: times.map(|times| times.probe_ns),
        page_ns: times.map(|times| times.page_ns),
        hash_ns_baseline: parts.hash_ns,
        hash_ns_shared: shared_parts.hash_ns,
        hashes: base.per_lookup(base.stats.hashes),
        hashes_shared: idea.per_lookup(idea.stats.hashes),
        filters: base.per_lookup(base.stats.filters_consulted),
        false_positives: base.per_lookup(base.stats.false_positives),
        hash_part: parts.hash,
        probe_part: parts.probe,
        index_part: parts.index,
        data_part: parts.data,
        other_part: parts.other,
        filters_over_llc: filters_over_llc(spec.entries, spec.bits.per_key),
    };
    Ok(values.and(base.io()).and(base.shape(spec.shape.levels, u64::from(spec.shape.run_count()))))
}

/// The gain by Equation 8; `None` for levels with other than one or T runs, which Equations 4 and 6
/// do not cover.
fn model_gain(spec: &Spec, (fpr, empty_fraction): (f64, f64), times: LookupTimes) -> Option<f64> {
    model_shape(spec.shape, (fpr, empty_fraction))?.gain(&times).ok()
}

/// A tree as Equations 4 and 6 describe it.
fn model_shape(shape: Shape, (fpr, empty_fraction): (f64, f64)) -> Option<LookupShape> {
    let Shape { size_ratio, levels, inner_runs, last_runs } = shape;
    let tiering = match (f64::from(inner_runs), f64::from(last_runs)) {
        (1.0, 1.0) => false,
        (inner, last) if inner == size_ratio && last == size_ratio => true,
        _ => return None,
    };
    Some(LookupShape { tiering, size_ratio, levels, fpr, empty_fraction })
}

/// The gain over the one that Equation 8 predicts, of the first row.
pub(super) fn over_model(rows: &View<'_>) -> Option<f64> {
    Some(rows.number("gain")? / rows.number("gain_model")?)
}

/// Rows with the paper's digest.
pub(super) fn of_paper<'a>(rows: &View<'a>) -> View<'a> {
    rows.of("digest", DIGESTS[0].1)
}

/// The paper's name of a digest's function.
pub(super) fn hash_of(kind: DigestKind) -> Option<Hash> {
    match kind {
        DigestKind::Murmur64A => Some(Hash::Murmur64),
        DigestKind::Xxh3 => Some(Hash::Xxh3),
        _ => None,
    }
}

/// The reason for a gain's size at a point: the composition of the baseline's time.
pub(super) fn because(point: &View<'_>) -> String {
    let of = |column| point.mean(column).unwrap_or_default();
    let (base, hashes, hash_ns) = (of("baseline_ns"), of("hashes"), of("hash_ns"));
    format!(
        "A lookup without sharing takes {base:.0} ns there, of which {hashes:.1} hashes of {hash_ns:.0} ns are {:.0} %. MM64 takes 235 ns \
         for a key of 1 KB in the paper.",
        100.0 * hashes * hash_ns / base.max(1.0)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_knows_one_run_a_level_or_as_many_as_the_ratio() {
        let mut spec = Spec::leveled(1_000, (16, 64), 4.0, 3);
        for (runs, is_tiering) in [(1, Some(false)), (2, None), (4, Some(true)), (7, None)] {
            (spec.shape.inner_runs, spec.shape.last_runs) = (runs, runs);
            let shape = model_shape(spec.shape, (0.01, 1.0));
            assert_eq!(shape.map(|shape| shape.tiering), is_tiering, "{runs} runs");
            let times = LookupTimes { hash_ns: 200.0, probe_ns: 20.0, page_ns: 10_000.0 };
            let gain = |fpr| model_gain(&spec, (fpr, 1.0), times);
            assert_eq!(gain(0.01).is_some(), is_tiering.is_some());
            // More false positives leave less to save.
            assert!(is_tiering.is_none() || gain(0.01) < gain(0.001));
        }
    }
}
