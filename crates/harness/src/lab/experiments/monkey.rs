//! *Optimal Bloom Filters and Adaptive Merging for LSM-Trees* (TODS 2018), Monkey: its figures and tables.

use crate::lab::Experiment;

pub(super) const ALL: &[Experiment] = &[];
