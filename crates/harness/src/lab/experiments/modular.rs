//! *LSM-Trees Under (Memory) Pressure* (ADMS 2022), modular filters: the slides.

use crate::lab::Experiment;

pub(super) const ALL: &[Experiment] = &[];
