//! Figures 14 A to C: lookups that find with a block cache of 0, 20 and 40 % of the data, over how recent what they ask for is.
//!
//! The temporality c: the share 1 - c of the entries, those written last, gets the share c of the lookups; 0.5 is uniform. What was
//! written last is in the smallest levels. Caches are warm: as many lookups as there are blocks come before those that count, by the same
//! temporality and of other keys. How many that were and what the cache held then is in the table.
//!
//! Who is ahead is told by the time that each trial spares: both sides look the same keys up.
//!
//! Our data blocks have 4 KB at most, the paper's 16 KB: a cached block keeps three neighbours instead of fifteen.

use crate::chart::{Axis, Chart, Panel, Point as At, Series, Style};
use shamba::Residency;

use super::point::{Mean, affordable, both, ios_of, percent};
use super::setup::{BITS_PER_KEY, BUFFERS, ENTRY_BYTES, Filters, SSD, Size, entries, fixed};
use crate::lookups::{Questions, Side, Spread, compare, warm};
use crate::table::{Cell, row};
use crate::tree::Tree;
use crate::{Experiment, Finding, Kind, Lab, Paper, Parameter, Scale, Table, Verdict};
use shamba_workload::mix2;

const TEMPORALITIES: [f64; 5] = [0.1, 0.3, 0.5, 0.7, 0.9];
/// What filters, indexes and tables take at most, beside the cache.
const OTHER_BYTES: u64 = 64 << 20;
/// Where lookups ask for what was written last both nearly meet: at most this part of the largest lead is left.
const MEETS: f64 = 0.5;
/// Lookups that are drawn beforehand, for each entry.
const DRAWS: u64 = 4;

const CLAIM: &str = "Without a cache Monkey is ahead whatever is asked for.";
const CLAIM_CACHED: &str =
    "With a block cache Monkey stays ahead; where lookups ask for what was written last both nearly meet.";

pub(super) const A: Experiment = Experiment {
    id: "monkey-fig14a",
    paper: Paper::Monkey,
    kind: Kind::Measured,
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
    /// The share of the baseline's time that it spares, of each trial.
    spared: Spread,
    ios: f64,
    hits: f64,
    lookups: u64,
    warmed: u64,
    cached_bytes: u64,
    shape: [Cell; 4],
}

/// Which side is ahead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lead {
    /// Monkey, in every trial.
    Ahead,
    /// In some trials the one, in some the other.
    Level,
    /// The state of the art, in every trial.
    Behind,
}

impl Lead {
    fn of(spared: Spread) -> Self {
        match spared {
            spared if spared.least > 0.0 => Self::Ahead,
            spared if spared.most < 0.0 => Self::Behind,
            _ => Self::Level,
        }
    }
}

fn run(lab: &mut Lab<'_>, cache_share: f64, claim: &str) -> Result<Finding, String> {
    let entries = count(lab.scale);
    let size = Size::new(entries, ENTRY_BYTES, entries * ENTRY_BYTES as u64 / BUFFERS)?;
    let trees = size.lay(lab, &Filters::PAIR, BITS_PER_KEY, 1.0)?;
    let data_bytes = trees.first().map_or(0, |(_, tree)| tree.spec.bytes());
    let cache_bytes = (data_bytes as f64 * cache_share) as u64;
    let mut points = Vec::new();
    for temporality in TEMPORALITIES {
        points.extend(measure(lab, &trees, temporality, cache_share, cache_bytes)?);
    }
    let monkey: Vec<&Point> = points.iter().filter(|point| point.filters != Filters::Uniform).collect();
    let leads: Vec<Lead> = monkey.iter().map(|point| Lead::of(point.spared)).collect();
    // What is left of the lead where lookups ask for what was written last.
    let ios: Vec<f64> = points.chunks(2).map(|pair| pair[0].ios - pair[1].ios).collect();
    let left = left(&ios);
    let verdict = verdict(&leads, left, cache_share > 0.0);
    let at = |wanted: Lead| {
        let of = TEMPORALITIES.iter().zip(&leads).filter(|(_, lead)| **lead == wanted);
        of.map(|(temporality, _)| temporality.to_string()).collect::<Vec<_>>()
    };
    let spared = |at: usize| {
        monkey.get(at).map_or_else(String::new, |point| {
            let Spread { median, least, most } = point.spared;
            format!("{} ({} to {})", percent(median), percent(least), percent(most))
        })
    };
    let note = format!(
        "T = 2, {} levels, {BITS_PER_KEY} bits per key, hits, emulated SSD of 290 us a read, blocks of 4 KB, a cache of {} of the data. At c the \
         share 1 - c of the entries, written last, gets the share c of the lookups. Bars: one standard deviation over the trials.",
        size.levels,
        percent(cache_share)
    );
    Ok(Finding {
        ours: format!(
            "Monkey is ahead in every trial at {} of {} temporalities; it spares {} of the time at uniform lookups and {} at c = 0.9, where {} of its \
             largest lead in I/Os is left.",
            at(Lead::Ahead).len(),
            TEMPORALITIES.len(),
            spared(TEMPORALITIES.len() / 2),
            spared(TEMPORALITIES.len() - 1),
            left.map_or_else(|| "nothing".to_owned(), percent)
        ),
        verdict,
        why: why(verdict, &at(Lead::Level), &at(Lead::Behind), left.filter(|_| cache_share > 0.0)),
        table: table(&points, cache_share),
        chart: chart(&points, claim, &note),
    })
}

/// Both sides at a temporality.
fn measure(
    lab: &mut Lab<'_>,
    trees: &[(Filters, Tree)],
    temporality: f64,
    cache_share: f64,
    cache_bytes: u64,
) -> Result<Vec<Point>, String> {
    let Some((_, first)) = trees.first() else { return Ok(Vec::new()) };
    let data_bytes = first.spec.bytes();
    let open = |(_, tree): &(Filters, Tree)| {
        tree.open_within(SSD, OTHER_BYTES + 2 * data_bytes, &[], |builder| {
            builder.filter_residency(Residency::Pinned).cache_limit(cache_bytes)
        })
    };
    let open: Vec<shamba::Db> = trees.iter().map(open).collect::<Result<_, _>>()?;
    let sides = open.iter().collect::<Vec<_>>();
    let questions = Questions { among: draws(first, temporality, lab.seed), ..Questions::uniform(0.0, 1) };
    let blocks = data_bytes / 4_096 * 4 / 3;
    let warmed = if cache_bytes > 0 { blocks } else { 0 };
    if warmed > 0 {
        lab.at(format_args!("warming the cache at {temporality}"));
        warm(lab, first, &sides, &Questions { lookups: warmed, ..questions.clone() })?;
    }
    let cached_bytes: Vec<u64> = open.iter().map(cached_bytes).collect();
    lab.at(format_args!("looking up at {temporality}"));
    let lookups = affordable(lab.scale, SSD.read_ns().unwrap_or(0), 1.3 * (1.0 - cache_share) / 2.0);
    let sides: Vec<Side> = compare(lab, first, &sides, &Questions { lookups, ..questions })?;
    let baseline = sides.first().cloned();
    let point = |(((filters, tree), side), cached_bytes): ((&(Filters, Tree), Side), u64)| {
        let us: Vec<f64> = side.repeats_ns.iter().map(|ns| ns / 1e3).collect();
        let levels = tree.spec.shape.levels;
        Point {
            filters: *filters,
            temporality,
            latency_us: Mean::of(&us),
            spared: baseline.as_ref().map_or(Spread::of(Vec::new()), |baseline| side.gain_over(baseline)),
            ios: ios_of(&side),
            hits: side.per_lookup(side.stats.cache_hits),
            lookups: side.stats.lookups,
            warmed,
            cached_bytes,
            shape: side.shape(levels, u64::from(levels)),
        }
    };
    Ok(trees.iter().zip(sides).zip(cached_bytes).map(point).collect())
}

/// What the block cache holds.
fn cached_bytes(db: &shamba::Db) -> u64 {
    let memory = db.memory();
    memory.parts.iter().find(|(part, _)| part == "block cache").map_or(0, |(_, bytes)| *bytes)
}

/// The part of the largest lead that is left at the last; none if there is no lead.
fn left(leads: &[f64]) -> Option<f64> {
    let largest = leads.iter().copied().fold(0.0, f64::max);
    (largest > 0.0).then(|| leads.last().map_or(0.0, |last| last / largest))
}

/// `left`: of the largest lead where both should nearly meet, if they should.
fn why(verdict: Verdict, level: &[String], behind: &[String], left: Option<f64>) -> String {
    if verdict == Verdict::Confirmed {
        return String::new();
    }
    let mut why = Vec::new();
    if !level.is_empty() {
        why.push(format!("At c = {} trials do not agree who is ahead.", level.join(", ")));
    }
    if !behind.is_empty() {
        why.push(format!("At c = {} the state of the art is ahead.", behind.join(", ")));
    }
    if let Some(left) = left.filter(|left| *left > MEETS) {
        why.push(format!("At c = 0.9 {} of the lead is left.", percent(left)));
    }
    why.push(
        "The more lookups ask for what was written last, the fewer filters stand above what they ask for."
            .to_owned(),
    );
    why.join(" ")
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
        "time_spared_share",
        "time_spared_least",
        "time_spared_most",
        "ios_per_lookup",
        "cache_hits_per_lookup",
        "lookups",
        "lookups_warming",
        "cached_bytes",
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
            point.spared.median,
            point.spared.least,
            point.spared.most,
            point.ios,
            point.hits,
            point.lookups,
            point.warmed,
            point.cached_bytes,
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

/// From who is ahead at each temporality, the newest last, and from what is left of the lead there.
fn verdict(leads: &[Lead], left: Option<f64>, is_cached: bool) -> Verdict {
    let count = |wanted: Lead| leads.iter().filter(|lead| **lead == wanted).count();
    // Where both nearly meet they may be level.
    let must = if is_cached { &leads[..leads.len().saturating_sub(1)] } else { leads };
    let is_ahead = match (count(Lead::Ahead), count(Lead::Behind)) {
        (ahead, 0) if ahead > 0 && must.iter().all(|lead| *lead == Lead::Ahead) => Verdict::Confirmed,
        (ahead, behind) if ahead > behind => Verdict::Partly,
        _ => Verdict::NotHere,
    };
    let meets = if left.is_some_and(|left| left <= MEETS) { Verdict::Confirmed } else { Verdict::NotHere };
    if is_cached { both(is_ahead, meets) } else { is_ahead }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_ahead_everywhere_and_meets_at_the_newest_confirms() {
        use Lead::{Ahead, Behind, Level};
        let ahead = [Ahead; 5];
        assert_eq!(verdict(&ahead, Some(0.2), true), Verdict::Confirmed);
        assert_eq!(verdict(&[Ahead, Ahead, Ahead, Ahead, Level], Some(0.0), true), Verdict::Confirmed);
        assert_eq!(verdict(&ahead, Some(0.9), true), Verdict::Partly);
        assert_eq!(verdict(&ahead, Some(0.9), false), Verdict::Confirmed);
        assert_eq!(verdict(&[Ahead, Ahead, Ahead, Ahead, Level], Some(0.1), false), Verdict::Partly);
        assert_eq!(verdict(&[Ahead, Behind, Ahead, Ahead, Ahead], Some(0.1), true), Verdict::Partly);
        assert_eq!(verdict(&[Level; 5], None, true), Verdict::NotHere);
        assert_eq!(verdict(&[Level; 5], None, false), Verdict::NotHere);
        assert_eq!(verdict(&[Behind; 5], None, true), Verdict::NotHere);
    }

    #[test]
    fn ties_and_losses_are_no_lead() {
        let spread = |least, most| Spread { median: 0.0, least, most };
        assert_eq!(
            [spread(0.01, 0.3), spread(-0.01, 0.3), spread(-0.2, -0.01)].map(Lead::of),
            [Lead::Ahead, Lead::Level, Lead::Behind]
        );
        assert_eq!((left(&[0.4, 0.2, 0.1]), left(&[-0.1, 0.0]), left(&[])), (Some(0.25), None, None));
    }
}
