//! *Mnemosyne* (SIGMOD 2025): bits by what tables are asked for, as extras.

mod fig11;
mod fig12;
mod fig4;
mod grid;
mod store;

use crate::lab::Experiment;

pub(super) const ALL: &[Experiment] = &[fig4::EXPERIMENT, fig11::EXPERIMENT, fig12::EXPERIMENT];
