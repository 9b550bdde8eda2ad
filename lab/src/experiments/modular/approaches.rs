//! The approaches of the slides, as switches of the engine.
//!
//! The state of the art: one blocked filter per table and uniform bits; a table's filter is read,
//! cached and evicted as one block (80 KB at the slides' sizes), and so is its index (32 KB);
//! filters, indexes and data blocks compete for one block cache; no module is skipped. SHaMBa has
//! modules instead of one filter (*eq*: of equal size, *prop*: a small first one), each a separate
//! block, and may skip the later ones (*P*) or all of them (*F*) where that saves more than it
//! costs. *Partitioned* divides filters into slices and indexes into partitions of a page. *The
//! engine* is this engine's default: a plan, not the cache, selects the resident filters and
//! indexes, and filter bits follow the observed lookups. The record cache is off but in the
//! comparison of whole engines.
//!
//! All sides weigh reads by their pages (`count-ios`), the unit of the slides.

use shamba::Allocation;

/// A curve of a figure.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Approach {
    pub name: &'static str,
    /// Filter layout, as an option value.
    pub layout: &'static str,
    pub allocation: Allocation,
    pub residency: &'static str,
    pub skipping: &'static str,
    /// Whether each filter and index is one block.
    pub is_whole: bool,
    /// The record cache, as an option value.
    pub records: &'static str,
    /// Windows of planning before a reading.
    pub warm_rounds: u64,
}

/// The small first module of *prop* has 3 of 10 bits. The slides do not state it; the authors' code
/// has 2 to 5.
pub(super) const PROPORTIONAL: &str = "modular:2:300";

pub(super) const STATE_OF_THE_ART: Approach = Approach {
    name: "state of the art",
    layout: "blocked",
    allocation: Allocation::Uniform,
    residency: "cached",
    skipping: "none",
    is_whole: true,
    records: "0",
    warm_rounds: 3,
};
pub(super) const ONE_F: Approach = Approach { name: "1 module F", skipping: "full", ..STATE_OF_THE_ART };
pub(super) const EQ: Approach = Approach { name: "SHaMBa-eq", layout: "modular:2", ..STATE_OF_THE_ART };
pub(super) const EQ_P: Approach = Approach { name: "SHaMBa-eq-P", skipping: "partial", ..EQ };
pub(super) const EQ_F: Approach = Approach { name: "SHaMBa-eq-F", skipping: "full", ..EQ };
pub(super) const THREE: Approach = Approach { name: "3 modules", layout: "modular:3", ..EQ };
pub(super) const SEVEN: Approach = Approach { name: "7 modules", layout: "modular:7", ..EQ };
pub(super) const THREE_F: Approach = Approach { name: "3 modules F", skipping: "full", ..THREE };
pub(super) const SEVEN_F: Approach = Approach { name: "7 modules F", skipping: "full", ..SEVEN };
pub(super) const PROP: Approach = Approach { name: "SHaMBa-prop", layout: PROPORTIONAL, ..STATE_OF_THE_ART };
pub(super) const PROP_P: Approach = Approach { name: "SHaMBa-prop-P", skipping: "partial", ..PROP };
pub(super) const PROP_F: Approach = Approach { name: "SHaMBa-prop-F", skipping: "full", ..PROP };
pub(super) const PARTITIONED: Approach =
    Approach { name: "partitioned", is_whole: false, ..STATE_OF_THE_ART };
pub(super) const PARTITIONED_EQ: Approach = Approach { name: "partitioned + eq", is_whole: false, ..EQ };
pub(super) const PARTITIONED_EQ_P: Approach =
    Approach { name: "partitioned + eq-P", is_whole: false, ..EQ_P };
pub(super) const PARTITIONED_EQ_F: Approach =
    Approach { name: "partitioned + eq-F", is_whole: false, ..EQ_F };
pub(super) const MONKEY: Approach =
    Approach { name: "Monkey", allocation: Allocation::Monkey, ..STATE_OF_THE_ART };
pub(super) const MONKEY_EQ: Approach = Approach { name: "Monkey + eq", allocation: Allocation::Monkey, ..EQ };
pub(super) const MONKEY_EQ_F: Approach =
    Approach { name: "Monkey + eq-F", allocation: Allocation::Monkey, ..EQ_F };
/// This engine's defaults: slices and partitions, residency by the plan, and bits by the observed
/// workload.
pub(super) const ENGINE: Approach = Approach {
    name: "the engine",
    allocation: Allocation::Workload,
    residency: "budgeted",
    is_whole: false,
    ..EQ_F
};

/// This engine with one blocked filter per table, which may be left out, and uniform bits.
pub(super) const BLOCKED: Approach =
    Approach { name: "blocked, uniform", layout: "blocked", allocation: Allocation::Uniform, ..ENGINE };
/// Ribbon modules, with bits by the observed workload.
pub(super) const RIBBON: Approach = Approach { name: "ribbon modules", layout: "ribbon:3", ..ENGINE };
/// The same with the record cache. Its share grows by a step in a window.
pub(super) const RIBBON_RECORDS: Approach =
    Approach { name: "ribbon modules, record cache", records: "auto", warm_rounds: 34, ..RIBBON };

impl Approach {
    /// The switches with which a tree is opened for it.
    pub fn switches(&self) -> [(&'static str, &'static str); 6] {
        let (filters, indexes) = if self.is_whole {
            ("filter-partition=whole", "index-partition=whole")
        } else {
            ("filter-partition=sliced", "index-partition=sliced")
        };
        [
            ("residency", self.residency),
            ("skipping", self.skipping),
            ("count-ios", "on"),
            ("record-cache", self.records),
            ("experimental", filters),
            ("experimental", indexes),
        ]
    }
}

/// Names of approaches.
pub(super) fn names(approaches: &[Approach]) -> Vec<&'static str> {
    approaches.iter().map(|approach| approach.name).collect()
}
