//! *Mnemosyne* (SIGMOD 2025): bits by what tables are asked for, as extras.

mod fig11;
mod fig12;
mod fig4;
mod grid;
mod store;

use crate::lab::Experiment;

pub(super) const ALL: &[Experiment] = &[fig4::EXPERIMENT, fig11::EXPERIMENT, fig12::EXPERIMENT];

/// By which its claims are judged.
pub(super) fn rule() -> String {
    format!(
        "each figure has thresholds of its own, at the head of its source. Sides are held against each other only where their filters as written differ by no more than {:.0} % \
         from what was asked for, or from each other; a gain of time is one in every trial.",
        100.0 * grid::OFF_MOST
    )
}
