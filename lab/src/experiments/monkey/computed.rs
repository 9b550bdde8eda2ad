//! Figures 7 to 9, by the model: lookups over the memory of filters, against updates, and over the
//! buffer's part of memory.

use shamba_model::cost::FilterBits;
use shamba_model::{Design, MergePolicy};

use super::analysis::{
    BUFFER_BYTES, ENTRIES, GIB, PAGE_BYTES, POLICIES, SIDES, SIZE_RATIO, costs, fixed, situation,
};
use super::split::MemorySplit;
use crate::prelude::*;

/// GiB of filters: dense where curves are steep.
const FILTERS_GIB: [f64; 18] =
    [0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 12.5, 15.0, 17.5, 20.0, 25.0, 30.0, 35.0];
const SIZE_RATIOS: [f64; 12] = [2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 16.0, 32.0, 64.0, 128.0, 512.0, 1024.0];
const BITS_PER_KEY: f64 = 5.0;
/// Buffer and filters together, in Figure 9.
const MEMORY_GIB: f64 = 35.0;
/// "The same": within a tenth.
const SAME: f64 = 1.1;
/// Share of the memory below which a buffer leaves filters nearly unchanged.
const SMALL_PART: f64 = 0.01;
const IOS: Column = Column::from_zero("lookup_ios", "I/Os of an empty lookup");

pub(super) const FIG7: Experiment = Experiment {
    id: "monkey-fig7",
    paper: Paper::Monkey,
    kind: Kind::Computed,
    method: Method::Counted,
    place: "Fig 7",
    title: "I/Os of empty lookups over filter memory, model",
    claim: "With any memory Monkey's lookups cost less than the state of the art's; without filters both are alike.",
    parameters: |_| {
        let own =
            [Parameter::varied("filters [GiB]", FILTERS_GIB), Parameter::varied("merge policy", POLICIES)];
        own.into_iter().chain(fixed(&[])).collect()
    },
    measure: fig7,
    predicates: &[
        Predicate::direction(
            "Monkey's I/Os over the baseline's with any filters, at most",
            Ratio,
            AtMost(1.0),
            |rows| {
                let filtered = rows.filter(|row| row.number("filters_gib").is_some_and(|gib| gib > 0.0));
                ratios(&filtered, "filters_gib").into_iter().reduce(f64::max)
            },
        ),
        Predicate::size("largest ratio without filters", Ratio, Within(1.0 - 1e-9, 1.0 + 1e-9), |rows| {
            ratios(&rows.of("filters_gib", 0.0), "filters_gib").first().copied()
        }),
    ],
    panels: &[
        Panel::lines(Column::linear("filters_gib", "filters [GiB]"), IOS, &["filters"])
            .drawn(Style::Dashes)
            .titled("leveling", &[("policy", "leveling")]),
        Panel::lines(Column::linear("filters_gib", "filters [GiB]"), IOS, &["filters"])
            .drawn(Style::Dashes)
            .titled("tiering", &[("policy", "tiering")]),
    ],
    note: "Computed: equations 7 and 56, 512 GB of entries of 16 bytes, T = 4, a buffer of 2 MB.",
    reason: Experiment::no_reason,
};

pub(super) const FIG8: Experiment = Experiment {
    id: "monkey-fig8",
    place: "Fig 8",
    title: "I/Os of empty lookups against updates, model",
    claim: "For any merge policy and size ratio Monkey's lookups cost less at the same cost of updates: a better trade-off curve.",
    parameters: |_| {
        let own = [
            Parameter::varied("size ratio", SIZE_RATIOS),
            Parameter::varied("merge policy", POLICIES),
            Parameter::fixed("bits per key", BITS_PER_KEY),
        ];
        own.into_iter().chain(fixed(&["size ratio"])).collect()
    },
    measure: fig8,
    predicates: &[Predicate::direction(
        "Monkey's I/Os over the baseline's, at most",
        Ratio,
        AtMost(1.0),
        |rows| ratios(rows, "size_ratio").into_iter().reduce(f64::max),
    )],
    panels: &[Panel::lines(
        Column::log("update_ios", "I/Os of an update"),
        Column::log("lookup_ios", "I/Os of an empty lookup"),
        &["filters"],
    )
    .drawn(Style::Dashes)],
    note: "Computed: equations 7, 56 and 10; 512 GB of entries of 16 bytes, a buffer of 2 MB, 5 bits per key; from left to right tiering with T \
           from 1,024 to 2, then leveling with T from 3 to 1,024.",
    ..FIG7
};

pub(super) const FIG9: Experiment = Experiment {
    id: "monkey-fig9",
    place: "Fig 9",
    title: "I/Os of lookups and updates over the buffer's part of memory, model",
    claim: "Monkey's lookups cost the same whatever the buffer, as long as filters have memory; in the state of the art a small buffer harms them.",
    parameters: |_| {
        let own = [
            Parameter::varied("buffer bytes", buffers()),
            Parameter::varied("merge policy", POLICIES),
            Parameter::fixed("buffer and filters [GiB]", MEMORY_GIB),
        ];
        own.into_iter().chain(fixed(&["buffer bytes"])).collect()
    },
    measure: fig9,
    predicates: &[
        Predicate::direction(
            "dearest buffer over cheapest up to 1 % of the memory, the baseline's over Monkey's",
            Ratio,
            AtLeast(1.0),
            |rows| Some(span(rows, SIDES[0].1)? / span(rows, SIDES[1].1)?),
        ),
        Predicate::size("dearest buffer over cheapest, Monkey's", Ratio, AtMost(SAME), |rows| {
            span(rows, SIDES[1].1)
        }),
    ],
    panels: &[
        Panel::lines(Column::log("buffer_bytes", "buffer [bytes]"), Column::log("ios", "I/Os"), &["curve"])
            .drawn(Style::Dashes)
            .titled("leveling", &[("policy", "leveling")]),
        Panel::lines(Column::log("buffer_bytes", "buffer [bytes]"), Column::log("ios", "I/Os"), &["curve"])
            .drawn(Style::Dashes)
            .titled("tiering", &[("policy", "tiering")]),
    ],
    note: "Computed: equations 7, 56 and 10, with whole levels (hence steps); 512 GB of entries of 16 bytes, T = 4, 35 GiB for buffer and \
           filters. The rows have the best buffer by equation 28.",
    ..FIG7
};

/// Monkey's I/Os over the baseline's, for each policy and place.
fn ratios(rows: &View<'_>, place: &str) -> Vec<f64> {
    let of = |side: usize, policy: &str| {
        rows.of("filters", SIDES[side].1).of("policy", policy).points(place, "lookup_ios")
    };
    let policies = rows.values("policy");
    let each = |policy: &String| {
        let pairs: Vec<_> = of(0, policy).into_iter().zip(of(1, policy)).collect();
        pairs.into_iter().map(|(base, monkey)| monkey.1 / base.1)
    };
    policies.iter().flat_map(each).collect()
}

fn fig7(_: &mut Lab<'_>) -> Result<Rows, String> {
    let situation = situation(1.0, 0.0);
    let mut rows = Rows::default();
    for policy in POLICIES {
        for (allocation, name) in SIDES {
            for gib in FILTERS_GIB {
                let filters = FilterBits::Bytes(gib * GIB);
                let found = costs(&situation, (policy, SIZE_RATIO), BUFFER_BYTES, filters, allocation)?;
                rows.push(row! {
                    policy: policy.name(),
                    filters: name,
                    filters_gib: gib,
                    bits_per_key: gib * GIB * 8.0 / ENTRIES as f64,
                    lookup_ios: found.zero_result_lookup_ios,
                    lookup_ios_exact: found.zero_result_lookup_ios_exact,
                    unfiltered_levels: found.unfiltered_levels,
                });
            }
        }
    }
    Ok(rows)
}

fn fig8(_: &mut Lab<'_>) -> Result<Rows, String> {
    let situation = situation(1.0, 1.0);
    let filters = FilterBits::Bytes(BITS_PER_KEY * ENTRIES as f64 / 8.0);
    let mut rows = Rows::default();
    for (allocation, name) in SIDES {
        // From the largest size ratio of tiering over T = 2, where both policies are one, to
        // leveling.
        let tiered = SIZE_RATIOS.iter().rev().map(|ratio| (MergePolicy::Tiering, *ratio));
        for (policy, ratio) in
            tiered.chain(SIZE_RATIOS.iter().skip(1).map(|ratio| (MergePolicy::Leveling, *ratio)))
        {
            let found = costs(&situation, (policy, ratio), BUFFER_BYTES, filters, allocation)?;
            rows.push(row! {
                filters: name,
                policy: policy.name(),
                size_ratio: ratio,
                levels: found.levels,
                lookup_ios: found.zero_result_lookup_ios,
                update_ios: found.update_ios,
            });
        }
    }
    Ok(rows)
}

/// From a page to all of the memory, twice as much each time.
fn buffers() -> Vec<u64> {
    let all = (MEMORY_GIB * GIB) as u64;
    let doubled = std::iter::successors(Some(PAGE_BYTES), |bytes| Some(bytes * 2));
    doubled.take_while(|bytes| *bytes < all).chain([all]).collect()
}

/// Most expensive relative to cheapest lookups of a side with small buffers, over all policies.
fn span(rows: &View<'_>, side: &str) -> Option<f64> {
    let most = MEMORY_GIB * GIB * SMALL_PART;
    let of = |policy: &str| {
        let points = rows.of("filters", side).of("policy", policy).points("buffer_bytes", "lookup_ios");
        let small: Vec<f64> =
            points.into_iter().filter(|(bytes, _)| *bytes <= most).map(|(_, ios)| ios).collect();
        Some(small.iter().copied().reduce(f64::max)? / small.iter().copied().reduce(f64::min)?)
    };
    Some(of("leveling")?.max(of("tiering")?))
}

fn fig9(_: &mut Lab<'_>) -> Result<Rows, String> {
    let situation = situation(1.0, 1.0);
    let memory = MEMORY_GIB * GIB;
    let mut rows = Rows::default();
    for policy in POLICIES {
        let split = MemorySplit::new(&situation, &Design::new(policy, SIZE_RATIO, PAGE_BYTES, 0.0))?;
        let bits = split.best_filter_bits(memory * 8.0, PAGE_BYTES as f64 * 8.0);
        for (allocation, name) in SIDES {
            for buffer in buffers() {
                let filters = FilterBits::Bytes(memory - buffer as f64);
                let found = costs(&situation, (policy, SIZE_RATIO), buffer, filters, allocation)?;
                let (lookup, update) = (found.zero_result_lookup_ios, found.update_ios);
                rows.push(row! {
                    policy: policy.name(),
                    filters: name,
                    curve: format!("{name}, lookup"),
                    buffer_bytes: buffer,
                    ios: lookup,
                    lookup_ios: lookup,
                    levels: found.levels,
                    best_buffer_gib: (memory - bits / 8.0) / GIB,
                });
                if name == SIDES[1].1 {
                    rows.push(
                        row!(policy: policy.name(), curve: "update, both", buffer_bytes: buffer, ios: update),
                    );
                }
            }
        }
    }
    Ok(rows)
}
