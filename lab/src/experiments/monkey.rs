//! Monkey: *Optimal Bloom Filters and Adaptive Merging for LSM-Trees* (TODS 2018), its figures and
//! tables.
//!
//! Figures 7 to 11 and the tables are computed by the model; 12 to 14 are measured.

mod analysis;
mod computed;
mod fig10;
mod fig11;
mod fig12ab;
mod fig12cdef;
mod fig13ab;
mod fig13cd;
mod fig13ef;
mod fig14;
pub(in crate::experiments) mod grown;
mod point;
pub(in crate::experiments) mod setup;
mod split;
mod tables;

use crate::experiment::Experiment;

/// In the order of the paper.
pub(super) static ALL: &[Experiment] = &[
    computed::FIG7,
    computed::FIG8,
    computed::FIG9,
    fig10::EXPERIMENT,
    fig11::A,
    fig11::B,
    fig11::C,
    fig11::D,
    fig12ab::A,
    fig12ab::B,
    fig12cdef::C,
    fig12cdef::D,
    fig12cdef::E,
    fig12cdef::F,
    fig13ab::A,
    fig13ab::B,
    fig13cd::C,
    fig13cd::D,
    fig13ef::E,
    fig13ef::F,
    fig14::A,
    fig14::B,
    fig14::C,
    tables::TABLE1,
    tables::TABLE2,
    tables::TABLE4,
];
