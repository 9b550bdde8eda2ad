//! The slides "Modular Bloom Filter": false-positive rate, modules and bytes that an empty query
//! reads, over the number of modules of a filter by itself.

use shamba_filter::fpr::{best_standard_probes, layout_fpr, standard_fpr};
use shamba_filter::sim::Numbers;
use shamba_filter::{Filter, FilterLayout, MAX_MODULES, measured};
use shamba_key::KeyDigest;
use shamba_model::skip::FileProbes;

use super::approaches::PROPORTIONAL;
use super::trees::BITS_PER_KEY;
use crate::chart::Style;
use crate::experiment::Experiment;
use crate::lab::Lab;
use crate::paper::{Kind, Method, Paper};
use crate::picture::{Column, Panel};
use crate::rows::{Rows, View, row};
use crate::scale::{Parameter, Scale};
use crate::verdict::{
    Bound::{AtMost, Within},
    Predicate,
    Unit::{Plain, Ratio, Share},
};

/// A multiple of 4,096: eighths of bits per key are whole lines.
const KEYS: usize = 40_960;
/// "Close": within this of theory.
const CLOSE: (f64, f64) = (0.75, 1.25);
/// Measured and modelled numbers of modules agree within this.
const NEAR: (f64, f64) = (0.97, 1.03);
/// "A few more": with seven modules fewer than this are probed.
const FEW: f64 = 3.5;
const X: Column = Column::names("modules", "modules");

pub(super) const FPR: Experiment = Experiment {
    id: "shamba-mbf-fpr",
    paper: Paper::ModularFilters,
    kind: Kind::Measured,
    method: Method::Counted,
    place: "slide \"Modular Bloom Filter\", false positive rate",
    title: "false-positive rate over the number of modules",
    claim: "A modular filter's false-positive rate is close to that of theory, whatever the number of modules.",
    parameters,
    measure,
    predicates: &[
        Predicate::direction("rate with 2 modules over theory's", Ratio, Within(CLOSE.0, CLOSE.1), |rows| {
            of(rows, "2", "fpr_over_theory")
        }),
        Predicate::direction("rate with 7 modules over theory's", Ratio, Within(CLOSE.0, CLOSE.1), |rows| {
            of(rows, "7", "fpr_over_theory")
        }),
        Predicate::size("rate with 1 module over theory's", Ratio, Within(CLOSE.0, CLOSE.1), |rows| {
            of(rows, "1", "fpr_over_theory")
        }),
    ],
    panels: &[Panel::lines(X, Column::from_zero("fpr", "false positives [%]").times(100.0), &["of"])
        .drawn(Style::Bars)
        .with_model("fpr_model")],
    note: "10 bits per key over all modules; prop: 3 bits in the first of two. Modules are blocked filters, a line a key. Model: \
           blocked modules that fail independently. Theory: one standard Bloom filter.",
    reason: |rows| {
        let one = rows.of("modules", "1").mean("fpr_over_theory").unwrap_or_default();
        format!(
            "One blocked filter has {one:.2} times theory's rate: a key in a crowded line of one module has an ordinary line in the next."
        )
    },
};

pub(super) const MODULES: Experiment = Experiment {
    id: "shamba-mbf-modules",
    place: "slide \"Modular Bloom Filter\", module accesses",
    title: "modules that an empty query asks over the number of modules",
    claim: "With more modules an empty query accesses a few more of them on average.",
    predicates: &[
        Predicate::direction(
            "steps from 1 to 7 modules at which no more are asked",
            Plain(""),
            AtMost(0.5),
            |rows| {
                let asked: Option<Vec<f64>> =
                    (1..=MAX_MODULES).map(|count| of(rows, &count.to_string(), "modules_asked")).collect();
                Some(asked?.windows(2).filter(|pair| pair[1] <= pair[0]).count() as f64)
            },
        ),
        // An engine that probed every module would increase as well.
        Predicate::direction("modules asked of 7, as a share of all", Share, AtMost(0.5), |rows| {
            Some(of(rows, "7", "modules_asked")? / 7.0)
        }),
        Predicate::size("modules asked of 7", Plain("modules"), AtMost(FEW), |rows| {
            of(rows, "7", "modules_asked")
        }),
        Predicate::size(
            "modules asked of 7, measured over the model's",
            Ratio,
            Within(NEAR.0, NEAR.1),
            |rows| Some(of(rows, "7", "modules_asked")? / of(rows, "7", "modules_model")?),
        ),
    ],
    panels: &[Panel::lines(X, Column::from_zero("modules_asked", "modules asked a query"), &["of"])
        .drawn(Style::Bars)
        .with_model("modules_model")],
    reason: Experiment::no_reason,
    ..FPR
};

pub(super) const BYTES: Experiment = Experiment {
    id: "shamba-mbf-bytes",
    place: "slide \"Modular Bloom Filter\", size accessed",
    title: "bytes of modules that an empty query asks over the number of modules",
    claim: "Though more modules are accessed, they are smaller: the size that an empty query accesses falls with the number of modules.",
    predicates: &[
        Predicate::direction("bytes asked of 2 modules over those of 1", Ratio, AtMost(1.0), |rows| {
            over(rows, "2", "1")
        }),
        Predicate::direction("bytes asked of 3 modules over those of 2", Ratio, AtMost(1.0), |rows| {
            over(rows, "3", "2")
        }),
        Predicate::direction("bytes asked of 7 modules over those of 3", Ratio, AtMost(1.0), |rows| {
            over(rows, "7", "3")
        }),
    ],
    panels: &[Panel::lines(X, Column::percent("bytes_share", "part of the filter asked [%]"), &["of"])
        .drawn(Style::Bars)
        .with_model("bytes_model")],
    reason: Experiment::no_reason,
    ..FPR
};

/// The layouts: tick label and option value.
fn layouts() -> Vec<(String, String)> {
    let equal = (1..=MAX_MODULES).map(|count| (count.to_string(), format!("modular:{count}")));
    equal.chain([("2 prop".to_owned(), PROPORTIONAL.to_owned())]).collect()
}

fn absent_keys(scale: Scale) -> u64 {
    scale.count(400_000, 4_000_000, 4_000_000)
}

fn parameters(scale: Scale) -> Vec<Parameter> {
    vec![
        Parameter::varied(
            "modules (prop: 3 of 10 bits in the first)",
            layouts().into_iter().map(|(name, _)| name),
        ),
        Parameter::fixed("bits per key", BITS_PER_KEY),
        Parameter::fixed("keys a filter", KEYS),
        Parameter::fixed("empty queries", absent_keys(scale)),
    ]
}

fn of(rows: &View<'_>, modules: &str, column: &str) -> Option<f64> {
    rows.of("modules", modules).number(column)
}

fn over(rows: &View<'_>, more: &str, fewer: &str) -> Option<f64> {
    Some(of(rows, more, "bytes_share")? / of(rows, fewer, "bytes_share")?)
}

fn measure(lab: &mut Lab<'_>) -> Result<Rows, String> {
    let rows = lab.once("modular filters", |lab| {
        let theory = standard_fpr(BITS_PER_KEY, best_standard_probes(BITS_PER_KEY));
        let mut rows = Rows::default();
        for (name, option) in layouts() {
            lab.at(&option);
            let layout: FilterLayout = option.parse()?;
            let (asked, fpr, filter) = reach(layout, absent_keys(lab.scale), lab.seed)?;
            let shapes = filter.geometry().modules();
            let all_bytes: u64 = shapes.iter().map(|shape| shape.total_bytes()).sum();
            let read = asked.iter().zip(shapes).map(|(reach, shape)| reach * shape.total_bytes() as f64);
            let bytes_share = read.sum::<f64>() / all_bytes.max(1) as f64;
            let shares: Vec<f64> = layout.modules().shares().collect();
            let rates: Vec<f64> =
                shares.iter().map(|share| measured::module_fpr(share * BITS_PER_KEY)).collect();
            let probes = FileProbes { empty_per_second: 1.0, found_per_second: 0.0 };
            let reaching = probes.reaching_per_second(&rates)?;
            rows.push(row! {
                of: "measured",
                modules: name,
                fpr: fpr,
                fpr_model: layout_fpr(layout, BITS_PER_KEY),
                fpr_theory: theory,
                fpr_over_theory: fpr / theory,
                modules_asked: asked.iter().sum::<f64>(),
                modules_model: reaching.iter().sum::<f64>(),
                bytes_share: bytes_share,
                bytes_model: reaching.iter().zip(&shares).map(|(reach, share)| reach * share).sum::<f64>(),
            });
        }
        Ok(rows)
    })?;
    Ok((*rows).clone())
}

/// Share of queries that probe each module, and share that pass all; and the filter.
fn reach(layout: FilterLayout, absent_keys: u64, seed: u64) -> Result<(Vec<f64>, f64, Filter), String> {
    let mut numbers = Numbers(Numbers(seed).draw());
    let keys: Vec<KeyDigest> = numbers.by_ref().take(KEYS).map(KeyDigest::from_raw).collect();
    let filter = Filter::build(&keys, layout, BITS_PER_KEY).ok_or("no filter was built")?;
    let count = filter.geometry().modules().len();
    let (mut asked, mut passed) = (vec![0u64; count], 0u64);
    for digest in numbers.take(absent_keys as usize).map(KeyDigest::from_raw) {
        let says_no = |module: &usize| {
            asked[*module] += 1;
            !filter.modules_may_contain(digest, 1 << module)
        };
        passed += u64::from((0..count).find(says_no).is_none());
    }
    let share = |of: u64| of as f64 / absent_keys.max(1) as f64;
    Ok((asked.into_iter().map(share).collect(), share(passed), filter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_module_is_always_asked_and_the_others_seldom() {
        let layout = "modular:2".parse().expect("a layout");
        let (asked, passed, _) = reach(layout, 50_000, 1).expect("built");
        assert_eq!((asked.len(), asked[0]), (2, 1.0));
        assert!((0.07..0.12).contains(&asked[1]) && (0.005..0.015).contains(&passed), "{asked:?} {passed}");
        let (asked, ..) = reach("modular:1".parse().expect("a layout"), 1_000, 1).expect("built");
        assert_eq!(asked, [1.0]);
    }
}
