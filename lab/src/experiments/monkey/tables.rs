//! Tables 1, 2 and 4, by the model: asymptotic costs of existing designs, of uniform and Monkey's
//! filters as data grows, and other systems' default designs.
//!
//! Each cost of the model is divided by the table's form, for data of more and more write buffers:
//! where the form is right the quotient stays within bounds, as levels are whole.

use shamba_model::MAX_SIZE_RATIO;
use shamba_model::MergePolicy;
use shamba_model::allocation::Allocation;
use shamba_model::cost::{FilterBits, Plan, predict};
use shamba_model::navigator::{Bounds, Options, navigate};
use shamba_model::presets::Preset;

use super::analysis::{
    self, BUFFER_BYTES, ENTRIES, ENTRY_BYTES, POLICIES, SIDES, SIZE_RATIO, costs, situation_of,
};
use crate::prelude::*;

const BITS_PER_KEY: f64 = 5.0;
/// A quotient may change this many times while the data grows: levels are whole.
const STEADY: f64 = 2.0;
/// Write buffers of data: of trees, and of a log or a sorted array, whose size ratio they are.
const BUFFERS: [u64; 10] = [64, 256, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24];
const LIMIT_BUFFERS: [u64; 5] = [64, 128, 256, 512, MAX_SIZE_RATIO as u64];
/// Filter memory that stays as it is: 5 bits for each entry of the smallest data.
const FILTER_BITS: f64 = BITS_PER_KEY * (BUFFERS[0] * BUFFER_BYTES) as f64 / ENTRY_BYTES;
/// Below the memory at which the last level loses its filter from here on.
const SPARSE_FROM: u64 = BUFFERS[2];
/// Memory of which Cassandra's buffer is a share, in bytes.
const MEMORY_BYTES: u64 = 48 << 30;

/// A form of log_T(N E / M_buf), T and the buffers of data.
type Form = fn(f64, f64, f64) -> f64;
/// The design, its policy, whether T is at its limit, the forms of updates times B and of lookups
/// but for e^(-M/N).
const ROWS: [(&str, MergePolicy, bool, Form, Form); 4] = [
    ("log", MergePolicy::Tiering, true, |_, _, _| 1.0, |_, _, data| data),
    ("tiering", MergePolicy::Tiering, false, |levels, _, _| levels, |levels, t, _| levels * t),
    ("leveling", MergePolicy::Leveling, false, |levels, t, _| levels * t, |levels, _, _| levels),
    ("sorted array", MergePolicy::Leveling, true, |_, _, data| data, |_, _, _| 1.0),
];
/// System, policy, T, bits per key, and the buffer in MB where it is fixed, as the paper's Table 4
/// says.
const SYSTEMS: [(&str, MergePolicy, f64, f64, Option<u64>); 5] = [
    ("LevelDB", MergePolicy::Leveling, 10.0, 10.0, Some(2)),
    ("RocksDB", MergePolicy::Leveling, 10.0, 10.0, Some(64)),
    ("Cassandra", MergePolicy::Tiering, 4.0, 10.0, None),
    ("HBase", MergePolicy::Leveling, 2.0, 10.0, Some(128)),
    ("Accumulo", MergePolicy::Leveling, 4.0, 11.0, Some(1_024)),
];
const DATA: Column = Column::log("buffers_of_data", "write buffers of data");

pub(super) const TABLE1: Experiment = Experiment {
    id: "monkey-table1",
    paper: Paper::Monkey,
    kind: Kind::Computed,
    method: Method::Counted,
    place: "Table 1",
    title: "costs of existing designs over the data, model",
    claim: "Updates of a tiered tree cost O(L/B), of a leveled one O(TL/B); lookups O(LT e^(-M/N)) and O(L e^(-M/N)); at their limits a log and a sorted array.",
    parameters: |_| {
        vec![
            Parameter::varied("write buffers of data", BUFFERS),
            Parameter::varied("design", ROWS.map(|row| row.0)),
            Parameter::fixed("entry bytes", ENTRY_BYTES),
            Parameter::fixed("buffer bytes", BUFFER_BYTES),
            Parameter::fixed("size ratio, but of log and sorted array", SIZE_RATIO),
            Parameter::fixed("bits per key", BITS_PER_KEY),
        ]
    },
    measure: table1,
    predicates: &[
        Predicate::direction(
            "largest change of an update's cost over its form",
            Ratio,
            AtMost(STEADY),
            |rows| largest_change(&rows.of("cost", "update"), "design"),
        ),
        Predicate::direction(
            "largest change of a lookup's cost over its form",
            Ratio,
            AtMost(STEADY),
            |rows| largest_change(&rows.of("cost", "lookup"), "design"),
        ),
    ],
    panels: &[
        Panel::lines(DATA, Column::log("ios", "I/Os"), &["design"])
            .drawn(Style::Markers)
            .with_model("form_ios")
            .titled("updates", &[("cost", "update")]),
        Panel::lines(DATA, Column::log("ios", "I/Os"), &["design"])
            .drawn(Style::Markers)
            .with_model("form_ios")
            .titled("empty lookups", &[("cost", "lookup")]),
    ],
    note: "Computed: markers by equations 56 and 10; lines: Table 1's form through the first point; T = 4, 5 bits per key; a log and a sorted \
           array have T as large as the data.",
    reason: Experiment::no_reason,
};

pub(super) const TABLE2: Experiment = Experiment {
    id: "monkey-table2",
    place: "Table 2",
    title: "costs of empty lookups over the data, model",
    claim: "With filters that grow with the data Monkey's lookups do not grow at all, the state of the art's do with the levels; with little memory Monkey's grow with log(N/M), the state of the art's with log(NE/M_buf).",
    parameters: |_| {
        vec![
            Parameter::varied("write buffers of data", BUFFERS),
            Parameter::varied("filters", SIDES.map(|(_, name)| name)),
            Parameter::varied("merge policy", POLICIES),
            Parameter::fixed("entry bytes", ENTRY_BYTES),
            Parameter::fixed("buffer bytes", BUFFER_BYTES),
            Parameter::fixed("size ratio", SIZE_RATIO),
            Parameter::fixed("filters that grow [bits per key]", BITS_PER_KEY),
            Parameter::fixed("filters that do not [bytes]", FILTER_BITS / 8.0),
        ]
    },
    measure: table2,
    predicates: &[
        Predicate::direction(
            "growth of the baseline's lookups over that of Monkey's, 5 bits per key",
            Ratio,
            AtLeast(1.0),
            |rows| Some(growth(rows, SIDES[0].1)? / growth(rows, SIDES[1].1)?),
        ),
        Predicate::size("growth of Monkey's lookups at 5 bits per key", Ratio, AtMost(1.2), |rows| {
            growth(rows, SIDES[1].1)
        }),
        Predicate::size("largest change of a cost over its form", Ratio, AtMost(STEADY), |rows| {
            largest_change(rows, "curve")
        }),
    ],
    panels: &[
        Panel::lines(DATA, Column::log("ios", "I/Os of an empty lookup"), &["curve"])
            .drawn(Style::Dashes)
            .titled("5 bits per key", &[("memory", "grows")]),
        Panel::lines(DATA, Column::log("ios", "I/Os of an empty lookup"), &["curve"])
            .drawn(Style::Dashes)
            .titled("fixed filter memory", &[("memory", "fixed")]),
    ],
    note: "Computed: equations 7 and 56, T = 4, a buffer of 2 MB, entries of 16 bytes; right: the filters that the smallest data would have with 5 \
           bits per key, whatever the data.",
    ..TABLE1
};

pub(super) const TABLE4: Experiment = Experiment {
    id: "monkey-table4",
    place: "Table 4",
    title: "default designs of other systems, model",
    claim: "Mainstream stores fix single points of the design space (T 10, 10, 4, 2, 4) with the same bits in all filters.",
    parameters: |_| {
        vec![
            Parameter::varied("system", SYSTEMS.map(|system| system.0)),
            Parameter::fixed("entries", ENTRIES),
            Parameter::fixed("entry bytes", ENTRY_BYTES),
            Parameter::fixed("Cassandra's memory [bytes]", MEMORY_BYTES),
            Parameter::fixed("empty lookups, updates", "0.5, 0.5"),
        ]
    },
    measure: table4,
    predicates: &[
        Predicate::direction(
            "throughput of the navigator's design over a default's, at least",
            Ratio,
            AtLeast(1.0),
            |rows| rows.numbers("navigator_throughput_times").into_iter().reduce(f64::min),
        ),
        Predicate::direction("Monkey's I/Os over the defaults', at most", Ratio, AtMost(1.0), |rows| {
            let of = |side: &str| rows.of("filters", side).numbers("lookup_ios");
            let pairs = of("default").into_iter().zip(of("default, Monkey's filters"));
            pairs.map(|(before, after)| after / before).reduce(f64::max)
        }),
    ],
    panels: &[Panel::lines(
        Column::names("system", ""),
        Column::from_zero("lookup_ios", "I/Os of an empty lookup"),
        &["filters"],
    )
    .drawn(Style::Bars)],
    note: "Computed: equations 7 and 56 for 512 GB of entries of 16 bytes. Cassandra's buffer is 5 % of 48 GB. The rows have the navigator's design \
           with the same memory.",
    ..TABLE1
};

/// The largest of how many times its least the most of a curve's quotient is.
fn largest_change(rows: &View<'_>, curves: &str) -> Option<f64> {
    let change = |curve: &String| {
        let quotients = rows.of(curves, curve.as_str()).numbers("quotient");
        Some(quotients.iter().copied().reduce(f64::max)? / quotients.iter().copied().reduce(f64::min)?)
    };
    rows.values(curves).iter().filter_map(change).reduce(f64::max)
}

fn growth(rows: &View<'_>, side: &str) -> Option<f64> {
    let of = |policy: &MergePolicy| {
        let curve = rows.of("memory", "grows").of("filters", side).of("policy", policy.name());
        last_over_first(&curve.points("buffers_of_data", "ios"))
    };
    POLICIES.iter().filter_map(of).reduce(f64::max)
}

fn data_of(buffers: u64) -> (u64, f64) {
    (buffers * BUFFER_BYTES / ENTRY_BYTES as u64, ENTRY_BYTES)
}

fn table1(_: &mut Lab<'_>) -> Result<Rows, String> {
    let mut rows = Rows::default();
    for (name, policy, at_limit, update, lookup) in ROWS {
        let mut first: Option<[f64; 2]> = None;
        for &buffers in if at_limit { &LIMIT_BUFFERS[..] } else { &BUFFERS[..] } {
            let ratio = if at_limit { buffers as f64 } else { SIZE_RATIO };
            let situation = situation_of(data_of(buffers), 1.0, 1.0);
            let filters = FilterBits::PerKey(BITS_PER_KEY);
            let found = costs(&situation, (policy, ratio), BUFFER_BYTES, filters, Allocation::Uniform)?;
            let data = buffers as f64;
            let levels = data.ln() / ratio.ln();
            let forms = [
                update(levels, ratio, data) / situation.data.entries_per_page(),
                lookup(levels, ratio, data) * (-BITS_PER_KEY).exp(),
            ];
            let ios = [found.update_ios, found.zero_result_lookup_ios];
            let scales = *first.get_or_insert([ios[0] / forms[0], ios[1] / forms[1]]);
            for (cost, at) in [("update", 0), ("lookup", 1)] {
                rows.push(row! {
                    cost: cost,
                    design: name,
                    buffers_of_data: buffers,
                    size_ratio: ratio,
                    levels: found.levels,
                    ios: ios[at],
                    form_ios: forms[at] * scales[at],
                    quotient: ios[at] / forms[at],
                });
            }
        }
    }
    Ok(rows)
}

fn table2(_: &mut Lab<'_>) -> Result<Rows, String> {
    let mut rows = Rows::default();
    for policy in POLICIES {
        for (allocation, name) in SIDES {
            for grows in [true, false] {
                let buffers: Vec<u64> =
                    BUFFERS.into_iter().filter(|buffers| grows || *buffers >= SPARSE_FROM).collect();
                for (place, buffers) in buffers.into_iter().enumerate() {
                    let situation = situation_of(data_of(buffers), 1.0, 1.0);
                    let bits = if grows { BITS_PER_KEY } else { FILTER_BITS / situation.data.entries as f64 };
                    let found = costs(
                        &situation,
                        (policy, SIZE_RATIO),
                        BUFFER_BYTES,
                        FilterBits::PerKey(bits),
                        allocation,
                    )?;
                    let runs = if policy == MergePolicy::Tiering { SIZE_RATIO } else { 1.0 };
                    let levels = (buffers as f64).ln() / SIZE_RATIO.ln();
                    let form = runs
                        * match (allocation, grows) {
                            (Allocation::Uniform, true) => levels * (-bits).exp(),
                            (Allocation::Uniform, false) => levels,
                            (_, true) => (-bits).exp(),
                            (_, false) => (1.0 / bits).ln() / SIZE_RATIO.ln(),
                        };
                    let ios = found.zero_result_lookup_ios;
                    // The first points of what is below the threshold have a form near 0.
                    let quotient = (place >= 2).then_some(ios / form);
                    rows.push(row! {
                        policy: policy.name(),
                        filters: name,
                        curve: format!("{name}, {policy}{}", if grows { "" } else { " " }),
                        memory: if grows { "grows" } else { "fixed" },
                        buffers_of_data: buffers,
                        levels: found.levels,
                        bits_per_key: bits,
                        ios: ios,
                        quotient: quotient,
                    });
                }
            }
        }
    }
    Ok(rows)
}

fn table4(_: &mut Lab<'_>) -> Result<Rows, String> {
    let situation = analysis::situation(0.5, 0.5);
    let mut rows = Rows::default();
    for (name, policy, size_ratio, bits, buffer_mb) in SYSTEMS {
        let preset = Preset::ALL.into_iter().find(|preset| preset.system == name);
        let design =
            preset.ok_or_else(|| format!("the model does not know {name}"))?.design(Some(MEMORY_BYTES))?;
        let is_as_said = design.policy() == Some(policy)
            && design.size_ratio == size_ratio
            && design.bits_per_key == bits
            && buffer_mb.is_none_or(|mb| design.buffer_bytes == mb << 20);
        let of = |allocation| {
            let filters = FilterBits::PerKey(design.bits_per_key);
            predict(&situation, &Plan { design, filters, allocation, cache_bytes: 0, levels: None })
        };
        let theirs = of(Preset::ALLOCATION)?;
        let memory_bytes = theirs.filter_bytes as u64 + design.buffer_bytes;
        let bounds = Bounds { memory_bytes, max_lookup_ios: None, max_update_ios: None };
        let best = navigate(&situation, &bounds, &Options { sensitivity: false, ..Options::PAPER })?;
        for (filters, costs) in
            [("default", theirs.clone()), ("default, Monkey's filters", of(Allocation::Monkey)?)]
        {
            rows.push(row! {
                system: name,
                filters: filters,
                policy: policy.name(),
                size_ratio: design.size_ratio,
                bits_per_key: design.bits_per_key,
                buffer_bytes: design.buffer_bytes,
                is_as_said: u32::from(is_as_said),
                lookup_ios: costs.zero_result_lookup_ios,
                update_ios: costs.update_ios,
                navigator_size_ratio: best.plan.design.size_ratio,
                navigator_throughput_times: theirs.cost_ns_per_op / best.costs.cost_ns_per_op,
            });
        }
    }
    Ok(rows)
}
