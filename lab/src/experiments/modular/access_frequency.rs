//! The slide "Access Frequency Patterns": how lookups that are spread evenly over keys spread over files.
//!
//! Every step of a lookup that looks at a table, be it at its filter or at more, counts for that table once ([`Db::explain`]).
//!
//! The slide does not say how many levels its tree has. The tree of all other slides decides, with lookups of keys that are there; the others are shown.

use std::collections::BTreeMap;

use crate::chart::{Axis, Chart, Panel, Point, Series, Style};
use fastrand::Rng;
use shamba::{Db, Place};

use super::trees::{self, BITS_PER_KEY, KEY_BYTES, SIZE_RATIO};
use crate::table::row;
use crate::tree::{Spec, Tree};
use crate::{Device, Experiment, Finding, Kind, Lab, Paper, Parameter, Scale, Table, Verdict};

const LEVELS: [u32; 3] = [3, 4, trees::LEVELS];
const EMPTY: [f64; 2] = [0.0, 1.0];
/// Levels and share of empty lookups that decide: the other slides' tree, and lookups that say nothing of absent keys.
const DECISIVE: (u32, f64) = (trees::LEVELS, 0.0);
/// What the slide says of this share of lookups.
const LOOKUPS_SHARE: f64 = 0.8;
const PAPER: (f64, f64) = (0.44, 0.46);
/// A share is near the slide's by so much.
const NEAR: f64 = 0.03;
/// Files of a tree, about.
const FILES: u64 = 256;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "shamba-access-frequency",
    paper: Paper::ModularFilters,
    kind: Kind::Measured,
    place: "slide \"Access Frequency Patterns\"",
    title: "how lookups that are spread evenly over keys spread over files",
    claim: "Even in a perfectly uniform workload, 80 % of the lookups are directed to 44 to 46 % of the files.",
    parameters,
    run,
};

/// `5 levels, keys there`.
fn told_tree(levels: u32, empty_fraction: f64) -> String {
    format!("{levels} levels, keys {}", if empty_fraction > 0.0 { "absent" } else { "there" })
}

fn entries(scale: Scale) -> u64 {
    scale.count(500_000, 5_000_000, 30_000_000)
}

fn lookups(scale: Scale) -> u64 {
    scale.count(30_000, 200_000, 1_000_000)
}

fn parameters(scale: Scale) -> Vec<Parameter> {
    vec![
        Parameter::varied("levels", LEVELS),
        Parameter::varied("empty fraction", EMPTY),
        Parameter::fixed("decides, the tree of the other slides", told_tree(DECISIVE.0, DECISIVE.1)),
        Parameter::fixed("entry bytes", 64),
        Parameter::fixed("key bytes", KEY_BYTES),
        Parameter::fixed("entries", entries(scale)),
        Parameter::fixed("files, about", FILES),
        Parameter::fixed("size ratio", SIZE_RATIO),
        Parameter::fixed("bits per key", BITS_PER_KEY),
        Parameter::fixed("lookups", lookups(scale)),
    ]
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let mut table = Table::new(&[
        "levels_wanted",
        "empty_fraction",
        "files_share",
        "lookups_share",
        "files_for_80_percent_share",
        "files",
        "levels",
        "runs",
        "comparable",
        "emulated",
    ]);
    let (mut series, mut found) = (Vec::new(), Vec::new());
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
            let files_share = files_for(&curve, LOOKUPS_SHARE);
            found.push((levels, empty_fraction, files_share));
            let stats = db.stats();
            let is_comparable = stats.deepest_level >= levels;
            for (files, lookups) in thinned(&curve) {
                table.row(row![
                    levels,
                    empty_fraction,
                    files,
                    lookups,
                    files_share,
                    counts.len(),
                    stats.deepest_level,
                    stats.runs,
                    is_comparable,
                    stats.emulated,
                ]);
            }
            let points = thinned(&curve)
                .into_iter()
                .map(|(files, lookups)| Point::new(100.0 * files, 100.0 * lookups));
            let style = if empty_fraction > 0.0 { Style::Line } else { Style::Dashes };
            series.push(Series::new(told_tree(levels, empty_fraction), style, points.collect()));
        }
        drop(db);
        tree.discard(lab)?;
    }
    let claimed = Point::new(100.0 * f64::midpoint(PAPER.0, PAPER.1), 100.0 * LOOKUPS_SHARE);
    series.push(Series::new("the slide", Style::Markers, vec![claimed]));
    series.push(Series::model("all files alike", [(0.0, 0.0), (100.0, 100.0)]));
    let told: Vec<String> = LEVELS
        .iter()
        .map(|levels| {
            let of = found
                .iter()
                .filter(|(of, ..)| of == levels)
                .map(|(.., share)| format!("{:.0}", 100.0 * share));
            format!("{} % with {levels} levels", of.collect::<Vec<_>>().join(" and "))
        })
        .collect();
    let decisive = found.iter().find(|(levels, empty, _)| (*levels, *empty) == DECISIVE);
    let share = decisive.map_or(1.0, |(.., share)| *share);
    Ok(Finding {
        ours: format!("80 % of the lookups come to {} of the files (keys there, and absent).", told.join(", ")),
        verdict: verdict(share),
        why: why(share, &found),
        table,
        chart: Chart {
            title: "How lookups of all keys alike spread over files".to_owned(),
            claim: EXPERIMENT.claim.to_owned(),
            note: "Files in the order of the lookups that look at their filter; every level is asked until the key is found. T = 4, a run a level, some 256 files.".to_owned(),
            panels: vec![Panel {
                title: String::new(),
                x: Axis::from_zero("files, most asked first [%]").reaching(0.0, 100.0),
                y: Axis::from_zero("lookups [%]").reaching(0.0, 100.0),
                series,
            }],
        },
    })
}

/// How many lookups looked at each file, those without any included.
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
            // Filter and search of a table come one after the other.
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

/// The share of lookups that the most asked share of files gets, file by file.
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

/// The least share of files that gets so many of the lookups.
fn files_for(curve: &[(f64, f64)], lookups: f64) -> f64 {
    curve.iter().find(|(_, share)| *share >= lookups).map_or(1.0, |(files, _)| *files)
}

/// Some forty points of a curve, the steep beginning whole.
fn thinned(curve: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let every = curve.len().div_ceil(32).max(1);
    let is_kept = |number: usize| number < 8 || number.is_multiple_of(every) || number + 1 == curve.len();
    let kept = curve.iter().enumerate().filter(|(number, _)| is_kept(*number)).map(|(_, point)| *point);
    std::iter::once((0.0, 0.0)).chain(kept).collect()
}

/// How far a share is from the slide's.
fn distance(share: f64) -> f64 {
    (PAPER.0 - share).max(share - PAPER.1).max(0.0)
}

/// What to know of the decisive tree's share of files, from (levels, share of absent keys, share of files) of all.
fn why(share: f64, found: &[(u32, f64, f64)]) -> String {
    let near: Vec<String> = found
        .iter()
        .filter(|(levels, empty, share)| (*levels, *empty) != DECISIVE && distance(*share) <= NEAR)
        .map(|(levels, empty, share)| format!("{} ({:.0} %)", told_tree(*levels, *empty), 100.0 * share))
        .collect();
    let others = match near[..] {
        [] => "no other tree here is near it".to_owned(),
        _ => format!("near it are others: {}", near.join("; ")),
    };
    format!(
        "The slide does not say how many levels its tree has. The tree of the other slides decides, {}, with {:.0} %; {others}. The fewer files the first levels have, \
         the fewer get most of the lookups.",
        told_tree(DECISIVE.0, DECISIVE.1),
        100.0 * share
    )
}

/// Whether the decisive tree has the slide's share of files, or at least files are asked unevenly.
fn verdict(share: f64) -> Verdict {
    match share {
        share if distance(share) <= NEAR => Verdict::Confirmed,
        share if share < LOOKUPS_SHARE => Verdict::Partly,
        _ => Verdict::NotHere,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hot_files_come_first() {
        let curve = cumulated(&[1, 0, 7, 2]);
        assert_eq!(curve, [(0.25, 0.7), (0.5, 0.9), (0.75, 1.0), (1.0, 1.0)]);
        assert_eq!((files_for(&curve, 0.8), files_for(&curve, 0.7), files_for(&[], 0.8)), (0.5, 0.25, 1.0));
        assert_eq!(thinned(&curve).len(), 5);
    }

    #[test]
    fn the_tree_that_was_chosen_before_decides() {
        assert_eq!([0.42, 0.45, 0.49].map(verdict), [Verdict::Confirmed; 3]);
        assert_eq!([0.25, 0.55].map(verdict), [Verdict::Partly; 2]);
        assert_eq!([0.9, 1.0].map(verdict), [Verdict::NotHere; 2]);
        assert!(LEVELS.contains(&DECISIVE.0) && EMPTY.contains(&DECISIVE.1), "it is measured");
        let why = |of_three| why(0.25, &[(DECISIVE.0, DECISIVE.1, 0.25), (3, 0.0, of_three)]);
        assert!(
            why(0.44)
                .contains("5 levels, keys there, with 25 %; near it are others: 3 levels, keys there (44 %)")
        );
        assert!(why(0.6).contains("no other tree"));
    }
}
