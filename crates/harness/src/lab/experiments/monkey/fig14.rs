//! Figures 14 A to C: lookups that find with a block cache of 0, 20 and 40 % of the data, over how recent what they ask for is.
//!
//! The temporality c: the share 1 - c of the entries, those written last, gets the share c of the lookups; 0.5 is uniform. What was
//! written last is in the smallest levels. Caches are warm: as many lookups as there are blocks come before those that count.
//!
//! Our data blocks have 4 KB at most, the paper's 16 KB: a cached block keeps three neighbours instead of fifteen.

use shamba::Residency;
use shamba_figures::{Axis, Chart, Panel, Point as At, Series, Style};

use super::point::{Mean, affordable, both, ios_of, percent, saved};
use super::setup::{BITS_PER_KEY, BUFFERS, ENTRY_BYTES, Filters, SSD, Size, entries, fixed};
use crate::lab::lookups::{Questions, Side, compare};
use crate::lab::table::{Cell, row};
use crate::lab::tree::Tree;
use crate::lab::{Experiment, Finding, Lab, Paper, Parameter, Scale, Table, Verdict};
use crate::mix::mix2;

const TEMPORALITIES: [f64; 5] = [0.1, 0.3, 0.5, 0.7, 0.9];
/// What filters, indexes and tables take at most, beside the cache.
const OTHER_BYTES: u64 = 64 << 20;
/// I/Os that differ by no more than this part are as many.
const TIE: f64 = 0.02;
/// Lookups that are drawn beforehand, for each entry.
const DRAWS: u64 = 4;

const CLAIM: &str = "Without a cache Monkey is ahead whatever is asked for.";
const CLAIM_CACHED: &str =
    "With a block cache Monkey stays ahead; where lookups ask for what was written last both nearly meet.";

pub(super) const A: Experiment = Experiment {
    id: "monkey-fig14a",
    paper: Paper::Monkey,
    place: "Fig 14 A",
    title: "latency of lookups that find over temporality, no cache",
    claim: CLAIM,
    parameters: |scale| parameters(scale, 0.0),
    run: |lab| run(lab, 0.0, CLAIM),
};

pub(super) const B: Experiment = Experiment {
    id: "monkey-fig14b",
    place: "Fig 14 B",
    title: "latency of lookups that find over temporality, 20 % cache",
    claim: CLAIM_CACHED,
    parameters: |scale| parameters(scale, 0.2),
    run: |lab| run(lab, 0.2, CLAIM_CACHED),
    ..A
};

pub(super) const C: Experiment = Experiment {
    id: "monkey-fig14c",
    place: "Fig 14 C",
    title: "latency of lookups that find over temporality, 40 % cache",
    parameters: |scale| parameters(scale, 0.4),
    run: |lab| run(lab, 0.4, CLAIM_CACHED),
    ..B
};

/// Half of the usual tree at the smallest scale: caches take long to warm.
fn count(scale: Scale) -> u64 {
    entries(scale) / scale.pick(2, 1, 1)
}

fn parameters(scale: Scale, cache_share: f64) -> Vec<Parameter> {
    let mut all = vec![
        Parameter::varied("temporality", TEMPORALITIES),
        Parameter::fixed("block cache, part of the data", cache_share),
        Parameter::fixed("device", SSD.name()),
        Parameter::fixed("entries", count(scale)),
        Parameter::fixed("block bytes", 4_096),
    ];
    all.extend(fixed(scale, &["entries", "empty fraction", "buffer bytes"]));
    all.push(Parameter::fixed("empty fraction", 0));
    all
}

/// One side at one temporality.
struct Point {
    filters: Filters,
    temporality: f64,
    latency_us: Mean,
    ios: f64,
    hits: f64,
    shape: [Cell; 4],
}

fn run(lab: &mut Lab<'_>, cache_share: f64, claim: &str) -> Result<Finding, String> {
    let entries = count(lab.scale);
    let size = Size::new(entries, ENTRY_BYTES, entries * ENTRY_BYTES as u64 / BUFFERS)?;
    let trees = size.lay(lab, &Filters::PAIR, BITS_PER_KEY, 1.0)?;
    let data_bytes = trees.first().map_or(0, |(_, tree)| tree.spec.bytes());
    let cache_bytes = (data_bytes as f64 * cache_share) as u64;
    let mut points = Vec::new();
    for temporality in TEMPORALITIES {
        let among = trees.first().map_or_else(Vec::new, |(_, tree)| draws(tree, temporality, lab.seed));
        let open = |(_, tree): &(Filters, Tree)| {
            tree.open_within(SSD, OTHER_BYTES + 2 * data_bytes, &[], |builder| {
                builder.filter_residency(Residency::Pinned).cache_limit(cache_bytes)
            })
        };
        let open: Vec<shamba::Db> = trees.iter().map(open).collect::<Result<_, _>>()?;
        let (sides, first) = (open.iter().collect::<Vec<_>>(), &trees[0].1);
        let questions = Questions { among, ..Questions::uniform(0.0, 1) };
        let ask = |lab: &mut Lab<'_>, lookups: u64, repeats: u32| {
            let usual = std::mem::replace(&mut lab.repeats, repeats);
            let sides = compare(lab, first, &sides, &Questions { lookups, ..questions.clone() });
            lab.repeats = usual;
            sides
        };
        if cache_bytes > 0 {
            lab.at(format_args!("warming the cache at {temporality}"));
            let blocks = data_bytes / 4_096 * 4 / 3;
            ask(lab, blocks, 1)?;
        }
        let repeats = lab.repeats;
        let timed = affordable(lab.scale, SSD.read_ns().unwrap_or(0), 1.3 * (1.0 - cache_share) / 2.0);
        lab.at(format_args!("looking up at {temporality}"));
        let sides: Vec<Side> = ask(lab, timed, repeats)?;
        for ((filters, tree), side) in trees.iter().zip(&sides) {
            let us: Vec<f64> = side.repeats_ns.iter().map(|ns| ns / 1e3).collect();
            points.push(Point {
                filters: *filters,
                temporality,
                latency_us: Mean::of(&us),
                ios: ios_of(side),
                hits: side.per_lookup(side.stats.cache_hits),
                shape: side.shape(tree.spec.shape.levels, u64::from(tree.spec.shape.levels)),
            });
        }
    }
    let spared: Vec<f64> = points.chunks(2).map(|pair| saved(pair[0].ios, pair[1].ios)).collect();
    // What is left of the lead where lookups ask for what was written last.
    let leads: Vec<f64> = points.chunks(2).map(|pair| pair[0].ios - pair[1].ios).collect();
    let ahead = spared.iter().filter(|share| **share > -TIE).count();
    let recent = leads.last().copied().unwrap_or(0.0) / leads.iter().copied().fold(1e-9, f64::max);
    let verdict = verdict(ahead, recent, cache_share > 0.0);
    let why = match verdict {
        Verdict::Confirmed => String::new(),
        _ => "What is asked for lately lies in the small levels, above which few filters err: then hardly anything is left to spare.".to_owned(),
    };
    let note = format!(
        "T = 2, {} levels, {BITS_PER_KEY} bits per key, hits, emulated SSD of 290 us a read, blocks of 4 KB, a cache of {} of the data. At c the \
         share 1 - c of the entries, written last, gets the share c of the lookups. Bars: one standard deviation over the trials.",
        size.levels,
        percent(cache_share)
    );
    Ok(Finding {
        ours: format!(
            "Monkey makes no more I/Os at {ahead} of {} temporalities; it spares {} at uniform lookups and {} at c = 0.9, where {} of its largest \
             lead in I/Os is left.",
            TEMPORALITIES.len(),
            percent(spared.get(TEMPORALITIES.len() / 2).copied().unwrap_or(0.0)),
            percent(spared.last().copied().unwrap_or(0.0)),
            percent(recent.max(0.0))
        ),
        verdict,
        why,
        table: table(&points, cache_share),
        chart: chart(&points, claim, &note),
    })
}

/// Items as lookups ask for them at this temporality.
fn draws(tree: &Tree, temporality: f64, seed: u64) -> Vec<u64> {
    let mut newest_first = Vec::new();
    for level in 1..=tree.spec.shape.levels {
        let mut of_level = tree.items_of(level, usize::MAX);
        // Within a level nobody is more recent: no order of keys.
        of_level.sort_unstable_by_key(|item| mix2(*item, seed));
        newest_first.extend(of_level);
    }
    let count = newest_first.len();
    let recent = (((1.0 - temporality) * count as f64) as usize).clamp(1, count.saturating_sub(1).max(1));
    let mut rng = fastrand::Rng::with_seed(seed);
    let draw = |_| {
        let place = if rng.f64() < temporality { rng.usize(..recent) } else { rng.usize(recent..count) };
        newest_first[place]
    };
    (0..DRAWS * tree.spec.entries).map(draw).collect()
}

fn table(points: &[Point], cache_share: f64) -> Table {
    let mut table = Table::new(&[
        "filters",
        "cache_share",
        "temporality",
        "latency_mean_us",
        "latency_std_us",
        "ios_per_lookup",
        "cache_hits_per_lookup",
        "levels",
        "runs",
        "comparable",
        "emulated",
    ]);
    for point in points {
        let [levels, runs, comparable, emulated] = point.shape.clone();
        table.row(row![
            point.filters.name(),
            cache_share,
            point.temporality,
            point.latency_us.mean,
            point.latency_us.std,
            point.ios,
            point.hits,
            levels,
            runs,
            comparable,
            emulated,
        ]);
    }
    table
}

fn chart(points: &[Point], claim: &str, note: &str) -> Chart {
    let series = Filters::PAIR.map(|filters| {
        let at = points.iter().filter(|point| point.filters == filters).map(|point| {
            let Mean { mean, std } = point.latency_us;
            At::between(point.temporality, mean, (mean - std).max(0.0), mean + std)
        });
        Series::new(filters.name(), Style::Line, at.collect())
    });
    let one_io = points.iter().map(|point| point.temporality).filter(|at| [0.1, 0.9].contains(at));
    let read_us = SSD.read_ns().unwrap_or(0) as f64 / 1e3;
    let one_io = Series::model("one I/O", one_io.map(|at| (at, read_us)));
    let panel = Panel {
        title: String::new(),
        x: Axis::linear("temporality c: share of lookups for what was written last"),
        y: Axis::from_zero("lookup latency [us]"),
        series: series.into_iter().chain([one_io]).collect(),
    };
    Chart {
        title: "Lookups that find, over how recent what they ask for is".to_owned(),
        claim: claim.to_owned(),
        note: note.to_owned(),
        panels: vec![panel],
    }
}

/// `ahead`: temporalities at which Monkey is ahead; `recent`: what is left of its largest lead where lookups ask for the newest.
fn verdict(ahead: usize, recent: f64, is_cached: bool) -> Verdict {
    let is_ahead = match ahead {
        all if all == TEMPORALITIES.len() => Verdict::Confirmed,
        most if 2 * most > TEMPORALITIES.len() => Verdict::Partly,
        _ => Verdict::NotHere,
    };
    let meets = if recent < 0.5 { Verdict::Confirmed } else { Verdict::NotHere };
    if is_cached { both(is_ahead, meets) } else { is_ahead }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_ahead_everywhere_and_meets_at_the_newest_confirms() {
        assert_eq!(verdict(5, 0.2, true), Verdict::Confirmed);
        assert_eq!(verdict(5, 0.9, true), Verdict::Partly);
        assert_eq!(verdict(5, 0.9, false), Verdict::Confirmed);
        assert_eq!(verdict(1, 0.1, false), Verdict::NotHere);
    }
}
