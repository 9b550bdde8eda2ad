//! The slide "Access Frequency Patterns": distribution of uniform lookups over files.
//!
//! Every table whose filter or blocks a lookup accesses counts once ([`shamba::Db::explain`]). The
//! slide does not state the number of levels: the tree is that of the other slides, with existing
//! keys.

use std::collections::BTreeMap;

use fastrand::Rng;
use shamba::{Db, Place};

use super::trees::{BITS_PER_KEY, KEY_BYTES, LEVELS as SLIDES_LEVELS, SIZE_RATIO};
use crate::device::Device;
use crate::experiment::Experiment;
use crate::lab::Lab;
use crate::paper::{Kind, Method, Paper};
use crate::picture::{Column, Panel};
use crate::rows::{Rows, row};
use crate::scale::{Parameter, Scale};
use crate::tree::{Spec, Tree};
use crate::verdict::{
    Bound::{AtMost, Within},
    Predicate,
    Unit::Share,
};

const LEVELS: [u32; 3] = [3, 4, SLIDES_LEVELS];
const EMPTY: [f64; 2] = [0.0, 1.0];
/// The share of lookups that the slide speaks of, and the files that get them.
const LOOKUPS_SHARE: f64 = 0.8;
const SLIDE: (f64, f64) = (0.44, 0.46);
/// The slide's share is below a half; uniform lookups over files would need four fifths of them.
const HALF_OF_THE_FILES: f64 = 0.5;
/// Tolerance for the slide's two decimals and the files' granularity.
const NEAR: f64 = 0.03;
/// Approximate files of a tree.
const FILES: u64 = 256;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "shamba-access-frequency",
    paper: Paper::ModularFilters,
    kind: Kind::Measured,
    method: Method::Counted,
    place: "slide \"Access Frequency Patterns\"",
    title: "how lookups that are uniform over keys spread over files",
    claim: "Even in a perfectly uniform workload, 80 % of the lookups are directed to 44 to 46 % of the files.",
    parameters,
    measure,
    predicates: &[
        Predicate::direction(
            "files that get 80 % of the lookups, 5 levels, keys there",
            Share,
            AtMost(HALF_OF_THE_FILES),
            files_share,
        ),
        Predicate::size(
            "files that get 80 % of the lookups, beside the slide's",
            Share,
            Within(SLIDE.0 - NEAR, SLIDE.1 + NEAR),
            files_share,
        ),
    ],
    panels: &[Panel::lines(
        Column::percent("files_share", "files, most asked first [%]"),
        Column::percent("lookups_share", "lookups [%]"),
        &["tree"],
    )],
    note: "Files in the order of the lookups that look at their filter; every level is asked until the key is found. T = 4, a run a \
           level, some 256 files.",
    reason: Experiment::no_reason,
};

fn entries(scale: Scale) -> u64 {
    scale.count(300_000, 5_000_000, 30_000_000)
}

fn lookups(scale: Scale) -> u64 {
    scale.count(15_000, 200_000, 1_000_000)
}

fn parameters(scale: Scale) -> Vec<Parameter> {
    vec![
        Parameter::varied("levels", LEVELS),
        Parameter::varied("empty fraction", EMPTY),
        Parameter::fixed("entry bytes", 64),
        Parameter::fixed("key bytes", KEY_BYTES),
        Parameter::fixed("entries", entries(scale)),
        Parameter::fixed("files, about", FILES),
        Parameter::fixed("size ratio", SIZE_RATIO),
        Parameter::fixed("bits per key", BITS_PER_KEY),
        Parameter::fixed("lookups", lookups(scale)),
    ]
}

fn files_share(rows: &crate::rows::View<'_>) -> Option<f64> {
    rows.of("levels", SLIDES_LEVELS).of("empty_fraction", 0.0).number("files_for_80_percent")
}

fn measure(lab: &mut Lab<'_>) -> Result<Rows, String> {
    let mut rows = Rows::default();
    for levels in LEVELS {
        let mut spec = Spec::leveled(entries(lab.scale), (KEY_BYTES, 64), SIZE_RATIO, levels);
        spec.file_bytes = (spec.bytes() / FILES).max(64 << 10);
        let on = if lab.scale <= Scale::Quick { Device::Memory } else { Device::PageCache };
        let tree = Tree::lay(lab, "access", spec, on)?;
        let db = tree.open(on, &[])?;
        for empty_fraction in EMPTY {
            lab.at(format_args!("{levels} levels, {empty_fraction} empty"));
            let counts = counts(&tree, &db, empty_fraction, (lookups(lab.scale), lab.seed))?;
            let curve = cumulated(&counts);
            let keys = if empty_fraction > 0.0 { "absent" } else { "there" };
            for (files_share, lookups_share) in thinned(&curve) {
                rows.push(row! {
                    tree: format!("{levels} levels, keys {keys}"),
                    levels: levels,
                    empty_fraction: empty_fraction,
                    files_share: files_share,
                    lookups_share: lookups_share,
                    files_for_80_percent: files_for(&curve, LOOKUPS_SHARE),
                    files: counts.len(),
                    comparable: db.stats().deepest_level >= levels,
                });
            }
        }
        drop(db);
        tree.discard(lab)?;
    }
    Ok(rows)
}

/// Lookups that accessed each file, including files without any.
fn counts(
    tree: &Tree,
    db: &Db,
    empty_fraction: f64,
    (lookups, seed): (u64, u64),
) -> Result<Vec<u64>, String> {
    let mut rng = Rng::with_seed(seed ^ 0x6865_6174);
    let mut by_table: BTreeMap<u64, u64> = BTreeMap::new();
    let mut key = Vec::new();
    for _ in 0..lookups {
        let absent = rng.f64() < empty_fraction;
        tree.key(rng.u64(..tree.spec.entries), absent, &mut key);
        let explained = db.explain(&key).map_err(|error| error.chain().to_string())?;
        let mut last = None;
        for step in &explained.steps {
            // Filter probe and search of a table are consecutive steps.
            if let Place::Table { table, .. } = step.place
                && last.replace(table) != Some(table)
            {
                *by_table.entry(table).or_default() += 1;
            }
        }
    }
    let mut counts: Vec<u64> = by_table.into_values().collect();
    counts.resize(counts.len().max(db.tables().len()), 0);
    Ok(counts)
}

/// Cumulative share of lookups of the most accessed files.
fn cumulated(counts: &[u64]) -> Vec<(f64, f64)> {
    let mut counts = counts.to_vec();
    counts.sort_unstable_by_key(|count| std::cmp::Reverse(*count));
    let all = counts.iter().sum::<u64>().max(1) as f64;
    let files = counts.len().max(1) as f64;
    let mut sum = 0;
    let step = |(number, count): (usize, u64)| {
        sum += count;
        ((number + 1) as f64 / files, sum as f64 / all)
    };
    counts.into_iter().enumerate().map(step).collect()
}

/// The smallest share of files that gets this share of the lookups.
fn files_for(curve: &[(f64, f64)], lookups: f64) -> f64 {
    curve.iter().find(|(_, share)| *share >= lookups).map_or(1.0, |(files, _)| *files)
}

/// The curve at every twentieth of the files, the same places for every seed.
fn thinned(curve: &[(f64, f64)]) -> Vec<(f64, f64)> {
    const PLACES: usize = 20;
    let at = |place: usize| {
        let number = (curve.len() * place).div_ceil(PLACES).clamp(1, curve.len()) - 1;
        (place as f64 / PLACES as f64, curve[number].1)
    };
    if curve.is_empty() { Vec::new() } else { (1..=PLACES).map(at).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_asked_files_come_first() {
        let curve = cumulated(&[1, 6, 0, 3]);
        assert_eq!(curve, [(0.25, 0.6), (0.5, 0.9), (0.75, 1.0), (1.0, 1.0)]);
        assert_eq!((files_for(&curve, 0.8), files_for(&[], 0.8)), (0.5, 1.0));
        let thin = thinned(&curve);
        assert_eq!((thin.len(), thin[4], thin[19]), (20, (0.25, 0.6), (1.0, 1.0)));
    }
}
