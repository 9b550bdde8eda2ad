//! The approaches of the slides, as switches of the engine.
//!
//! The state of the art: one blocked filter a table, uniform bits; filters, indexes and data blocks compete for the block cache; nothing is
//! skipped. SHaMBa has modules in its place (*eq*: of equal size, *prop*: a small first one), and may skip the later ones (*P*) or
//! all (*F*) where that saves more than it costs. *Ours* beyond the slides: filters and indexes are held by a plan and not by the cache.
//!
//! What is worth skipping is weighed in reads, as in the slides (`count-ios`), on all sides.

use shamba::Allocation;

/// A curve of a figure.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Approach {
    pub name: &'static str,
    /// As in options.
    pub layout: &'static str,
    pub allocation: Allocation,
    pub residency: &'static str,
    pub skipping: &'static str,
}

/// The small first module of *prop*: 3 of 10 bits. The slides do not say; the authors' code has 2 to 5.
pub(super) const PROPORTIONAL: &str = "modular:2:300";

pub(super) const STATE_OF_THE_ART: Approach = Approach {
    name: "state of the art",
    layout: "blocked",
    allocation: Allocation::Uniform,
    residency: "cached",
    skipping: "none",
};
pub(super) const EQ: Approach = Approach { name: "SHaMBa-eq", layout: "modular:2", ..STATE_OF_THE_ART };
pub(super) const EQ_P: Approach = Approach { name: "SHaMBa-eq-P", skipping: "partial", ..EQ };
pub(super) const EQ_F: Approach = Approach { name: "SHaMBa-eq-F", skipping: "full", ..EQ };
pub(super) const PROP: Approach = Approach { name: "SHaMBa-prop", layout: PROPORTIONAL, ..STATE_OF_THE_ART };
pub(super) const PROP_P: Approach = Approach { name: "SHaMBa-prop-P", skipping: "partial", ..PROP };
pub(super) const PROP_F: Approach = Approach { name: "SHaMBa-prop-F", skipping: "full", ..PROP };
/// Two modules, held by the plan.
pub(super) const PLANNED: Approach =
    Approach { name: "eq-F held by plan (ours)", residency: "budgeted", ..EQ_F };

impl Approach {
    /// The same, otherwise called.
    pub const fn named(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    /// The same with so many modules, as an option's value.
    pub const fn with_layout(self, layout: &'static str) -> Self {
        Self { layout, ..self }
    }

    /// The same with Monkey's bits.
    pub const fn with_monkey(self) -> Self {
        Self { allocation: Allocation::Monkey, ..self }
    }

    /// How a tree is opened for it.
    pub fn switches(&self) -> [(&'static str, &'static str); 3] {
        [("residency", self.residency), ("skipping", self.skipping), ("count-ios", "on")]
    }
}

/// What they are called.
pub(super) fn names(approaches: &[Approach]) -> Vec<&'static str> {
    approaches.iter().map(|approach| approach.name).collect()
}
