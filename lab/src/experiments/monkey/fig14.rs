//! Figures 14 A to C: found lookups, with a block cache of 0, 20 and 40 % of the data, over the
//! recency of their keys.
//!
//! The temporality c: the most recently written share 1 - c of the entries gets the share c of the
//! lookups; 0.5 is uniform. The most recent entries are in the smallest levels. Caches are warm:
//! before the counted lookups there are as many lookups as blocks, of the same temporality. This
//! engine's data blocks have at most 4 KB, the paper's 16 KB: a cached block contains three
//! neighbours instead of fifteen.

use shamba::Residency;
use shamba_workload::mix2;

use super::setup::{BITS_PER_KEY, BUFFERS, ENTRY_BYTES, Filters, Size, entries, fixed, lookups_counted};
use crate::lookups::{count, io, warm};
use crate::prelude::*;
use crate::tree::Tree;

const TEMPORALITIES: [f64; 5] = [0.1, 0.3, 0.5, 0.7, 0.9];
/// Maximum memory of filters, indexes and tables, without the cache.
const OTHER_BYTES: u64 = 64 << 20;
/// Maximum remaining share of the largest lead at which the two "nearly meet", for lookups of the
/// most recent writes.
const MEETS: f64 = 0.5;
/// Drawn lookups per entry.
const DRAWS: u64 = 2;

pub(super) const A: Experiment = Experiment {
    id: "monkey-fig14a",
    paper: Paper::Monkey,
    kind: Kind::Measured,
    method: Method::Counted,
    place: "Fig 14 A",
    title: "I/Os of lookups that find over temporality, no cache",
    claim: "Without a cache Monkey is ahead whatever is asked for.",
    parameters: |scale| parameters(scale, 0.0),
    measure: |lab| run(lab, 0.0),
    predicates: &[
        Predicate::direction("reads saved at uniform lookups", Saved, AtLeast(0.0), |rows| at(rows, 0.5)),
        Predicate::direction("reads saved at c = 0.9", Saved, AtLeast(0.0), |rows| at(rows, 0.9)),
        Predicate::direction("reads saved at c = 0.1", Saved, AtLeast(0.0), |rows| at(rows, 0.1)),
    ],
    panels: &[
        Panel::lines(
            Column::linear("temporality", "temporality c"),
            Column::from_zero("reads", "I/Os (reads) a lookup"),
            &["filters"],
        )
        .titled("reads", &[]),
        Panel::lines(
            Column::linear("temporality", "temporality c"),
            Column::from_zero("pages", "pages of 4 KiB a lookup"),
            &["filters"],
        )
        .titled("pages", &[]),
    ],
    note: "T = 2, 9 levels at quick, 5 bits per key, hits, blocks of 4 KB. At c the share 1 - c of the entries, written last, gets the share c of \
           the lookups.",
    reason: |_| {
        "The more lookups ask for what was written last, the fewer filters stand above what they ask for."
            .to_owned()
    },
};

pub(super) const B: Experiment = Experiment {
    id: "monkey-fig14b",
    place: "Fig 14 B",
    title: "I/Os of lookups that find over temporality, 20 % cache",
    claim: "With a block cache Monkey stays ahead; where lookups ask for what was written last both nearly meet.",
    parameters: |scale| parameters(scale, 0.2),
    measure: |lab| run(lab, 0.2),
    predicates: &[
        Predicate::direction("reads saved at uniform lookups", Saved, AtLeast(0.0), |rows| at(rows, 0.5)),
        Predicate::direction("reads saved at c = 0.1", Saved, AtLeast(0.0), |rows| at(rows, 0.1)),
        Predicate::size(
            "lead at c = 0.9 over the largest lead, in reads",
            Plain(""),
            AtMost(MEETS),
            |rows| {
                let leads: Option<Vec<f64>> = TEMPORALITIES.iter().map(|c| lead(rows, *c)).collect();
                let leads = leads?;
                Some(leads.last()? / leads.iter().copied().fold(f64::MIN_POSITIVE, f64::max))
            },
        ),
    ],
    ..A
};

pub(super) const C: Experiment = Experiment {
    id: "monkey-fig14c",
    place: "Fig 14 C",
    title: "I/Os of lookups that find over temporality, 40 % cache",
    parameters: |scale| parameters(scale, 0.4),
    measure: |lab| run(lab, 0.4),
    ..B
};

/// Half of the usual tree at the smallest scale, because caches warm up slowly.
fn entry_count(scale: Scale) -> u64 {
    entries(scale) / scale.pick(2, 1, 1)
}

fn parameters(scale: Scale, cache_share: f64) -> Vec<Parameter> {
    let own = [
        Parameter::varied("temporality", TEMPORALITIES),
        Parameter::fixed("block cache, part of the data", cache_share),
        Parameter::fixed("entries", entry_count(scale)),
        Parameter::fixed("block bytes", 4_096),
        Parameter::fixed("empty fraction", 0),
    ];
    own.into_iter().chain(fixed(scale, &["entries", "empty fraction", "buffer bytes", "levels"])).collect()
}

fn reads(rows: &View<'_>, temporality: f64, filters: Filters) -> Option<f64> {
    rows.of("temporality", temporality).of("filters", filters.name()).number("reads")
}

fn lead(rows: &View<'_>, temporality: f64) -> Option<f64> {
    Some(reads(rows, temporality, Filters::Uniform)? - reads(rows, temporality, Filters::Zero)?)
}

fn at(rows: &View<'_>, temporality: f64) -> Option<f64> {
    Some(1.0 - reads(rows, temporality, Filters::Zero)? / reads(rows, temporality, Filters::Uniform)?)
}

fn run(lab: &mut Lab<'_>, cache_share: f64) -> Result<Rows, String> {
    let entries = entry_count(lab.scale);
    let size = Size::new(entries, ENTRY_BYTES, entries * ENTRY_BYTES as u64 / BUFFERS)?;
    let mut rows = Rows::default();
    for temporality in TEMPORALITIES {
        for filters in Filters::PAIR {
            lab.at(format_args!("{}, c = {temporality}", filters.name()));
            let tree = size.tree(lab, filters, BITS_PER_KEY, 1.0)?;
            let among = lab.once(format!("monkey draws {size:?} {temporality}"), |lab| {
                Ok(draws(&tree, temporality, lab.seed))
            })?;
            let data_bytes = tree.spec.bytes();
            let cache_bytes = (data_bytes as f64 * cache_share) as u64;
            // Every read block is admitted to the cache, as on a slow device.
            let db = tree.open_within(
                Device::Memory,
                OTHER_BYTES + 2 * data_bytes,
                &[("count-ios", "on")],
                |builder| {
                    builder.experimental(|e| e.filter_residency(Residency::Pinned).cache_limit(cache_bytes))
                },
            )?;
            let questions =
                Questions { among: (*among).clone(), ..Questions::uniform(0.0, lookups_counted(lab.scale)) };
            if cache_bytes > 0 {
                let blocks = data_bytes / 4_096 * 4 / 3;
                warm(lab, (tree.as_ref(), 0), &[&db], &Questions { lookups: blocks, ..questions.clone() })?;
            }
            let stats = count(lab, tree.as_ref(), &db, &questions)?;
            let values = row! {
                filters: filters.name(),
                temporality: temporality,
                cache_share: cache_share,
                cache_hits: stats.cache_hits as f64 / stats.lookups.max(1) as f64,
                levels: stats.deepest_level,
                comparable: stats.deepest_level >= size.levels,
            };
            rows.push(values.and(io(&stats)));
        }
    }
    Ok(rows)
}

/// Items looked up at this temporality.
fn draws(tree: &Tree, temporality: f64, seed: u64) -> Vec<u64> {
    let mut newest_first = Vec::new();
    for level in 1..=tree.spec.shape.levels {
        let mut of_level = tree.items_of(level, usize::MAX);
        // Within a level there is no recency order: keys are shuffled.
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
