//! *Mnemosyne* (SIGMOD 2025): bits by what tables are asked for, as extras.

use crate::lab::Experiment;

pub(super) const ALL: &[Experiment] = &[];
