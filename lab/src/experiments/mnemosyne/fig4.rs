//! Figure 4: unnecessary reads of data blocks, over the share of empty lookups.
//!
//! All sides have the tables of one tree per seed, and the same lookups. Uniform bits and bits by
//! run do not depend on lookups; bits by file follow the statistics of as many lookups as `seen`,
//! none of which is counted; the optimum uses the exact rates of all files.

use shamba::Allocation;

use super::store::{Size, Store};
use super::{BY_FILE, BY_RUN, DISTRIBUTIONS, Place, UNIFORM, name, saved};
use crate::lookups::count;
use crate::prelude::*;
use shamba_workload::Distribution;

const OPTIMUM: &str = "optimum by file";
const EMPTY: Column = Column::linear("empty_fraction", "share of empty lookups");

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "mnemosyne-fig4",
    paper: Paper::Mnemosyne,
    kind: Kind::Measured,
    method: Method::Counted,
    place: "Fig 4",
    title: "unnecessary data-block accesses over the share of empty lookups",
    claim: "Bits by the lookups of each file make fewer unnecessary accesses than uniform bits or bits by run, the more the more lookups are skewed.",
    parameters: |scale| {
        let own = [
            Parameter::varied("bits per key", bits(scale)),
            Parameter::varied("empty fraction", empty_fractions(scale)),
            Parameter::varied("distribution", DISTRIBUTIONS),
            Parameter::varied("filter bits", [UNIFORM, BY_RUN, BY_FILE, OPTIMUM]),
            Parameter::fixed("lookups counted", counted(scale)),
            Parameter::fixed("lookups seen before", seen(scale)),
        ];
        own.into_iter().chain(size(scale).parameters()).collect()
    },
    measure,
    predicates: &[
        Predicate::direction("accesses saved of uniform bits, normal lookups", Saved, AtLeast(0.0), |rows| {
            saved(rows, Distribution::Normal, "unnecessary", UNIFORM, BY_FILE)
        }),
        Predicate::direction("accesses saved of bits by run, normal lookups", Saved, AtLeast(0.0), |rows| {
            saved(rows, Distribution::Normal, "unnecessary", BY_RUN, BY_FILE)
        }),
        Predicate::direction(
            "accesses saved of bits by run, normal lookups less uniform ones",
            Share,
            AtLeast(0.0),
            |rows| {
                let [uniform, normal] =
                    DISTRIBUTIONS.map(|skew| saved(rows, skew, "unnecessary", BY_RUN, BY_FILE));
                Some(normal? - uniform?)
            },
        ),
    ],
    panels: &[
        Panel::lines(
            EMPTY,
            Column::log("unnecessary", "unnecessary accesses a lookup"),
            &["filters", "bits"],
        )
        .titled("normal lookups", &[("distribution", "normal")]),
        Panel::lines(
            EMPTY,
            Column::log("unnecessary", "unnecessary accesses a lookup"),
            &["filters", "bits"],
        )
        .titled("uniform lookups", &[("distribution", "uniform")]),
        Panel::lines(EMPTY, Column::from_zero("pages", "pages of 4 KiB a lookup"), &["filters", "bits"])
            .titled("pages, normal lookups", &[("distribution", "normal")]),
        Panel::lines(EMPTY, Column::from_zero("reads", "reads a lookup"), &["filters", "bits"])
            .titled("reads, normal lookups", &[("distribution", "normal")]),
    ],
    note: "T = 4, read-only after the load, no block cache. Normal: about the middle key, a tenth of the keys a standard deviation. An access is a \
           read of one data block. The optimum has every file's true rate of lookups.",
    reason: |rows| {
        let [file, optimum] =
            [BY_FILE, OPTIMUM].map(|idea| saved(rows, Distribution::Normal, "unnecessary", BY_RUN, idea));
        let percent = |share: Option<f64>| share.map_or(f64::NAN, |share| 100.0 * share);
        format!(
            "Bits follow sampled lookups, with a share of evenly spread ones among them: of the accesses of bits by run they save {:.0} %, the optimum {:.0} %.",
            percent(file),
            percent(optimum)
        )
    },
};

fn bits(scale: Scale) -> &'static [f64] {
    scale.pick(&[4.0, 8.0], &[4.0, 6.0, 8.0], &[4.0, 6.0, 8.0])
}

fn empty_fractions(scale: Scale) -> &'static [f64] {
    const ALL: [f64; 8] = [1.0, 0.75, 0.5, 0.25, 0.1, 0.05, 0.01, 0.0];
    scale.pick(&[1.0, 0.5, 0.1, 0.0], &ALL, &ALL)
}

fn size(scale: Scale) -> Size {
    let entry_bytes = scale.pick(64, 128, 128);
    Size { entries: scale.count(1 << 16, 1 << 20, 4_000_000), entry_bytes, buffers: 64 }
}

fn counted(scale: Scale) -> u64 {
    scale.count(10_000, 100_000, 3_000_000)
}

fn seen(scale: Scale) -> u64 {
    scale.count(320_000, 1_000_000, 4_000_000)
}

fn measure(lab: &mut Lab<'_>) -> Result<Rows, String> {
    let tree = Store::lay(lab, size(lab.scale), 1)?;
    let levels = tree.size.levels(1);
    let mut rows = Rows::default();
    let mut read = |lab: &Lab<'_>, store: &Store, filters, bits, questions: &Questions| {
        let questions = &Questions { lookups: counted(lab.scale), ..questions.clone() };
        let db = store.read()?;
        let stats = count(lab, &store.items, &db, questions)?;
        rows.push(Place { bits, questions, levels }.row(filters, &db, &stats));
        Ok::<_, String>(())
    };
    let questions =
        |distribution, empty| Questions { distribution, ..Questions::uniform(empty, seen(lab.scale)) };
    let asked: Vec<Questions> = DISTRIBUTIONS
        .into_iter()
        .flat_map(|distribution| empty_fractions(lab.scale).iter().map(move |empty| (distribution, *empty)))
        .map(|(distribution, empty)| questions(distribution, empty))
        .collect();
    for &bits in bits(lab.scale) {
        for allocation in [Allocation::Uniform, Allocation::Monkey] {
            lab.at(format_args!("{bits} bits, {}", name(allocation)));
            let store = tree.copy()?.rewrite_filters(allocation, bits)?;
            for questions in &asked {
                read(lab, &store, name(allocation), bits, questions)?;
            }
        }
    }
    for questions in &asked {
        let (distribution, empty) = (questions.distribution, questions.empty_fraction);
        lab.at(format_args!("{distribution} lookups, {empty} empty"));
        let learned = tree.copy()?.learn(lab, questions)?;
        for &bits in bits(lab.scale) {
            let store = learned.copy()?.rewrite_filters(Allocation::Workload, bits)?;
            read(lab, &store, BY_FILE, bits, questions)?;
            read(lab, &tree.optimal(lab, questions, bits)?, OPTIMUM, bits, questions)?;
        }
    }
    Ok(rows)
}
