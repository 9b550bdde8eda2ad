//! Claims of this engine that no paper makes.

mod skew;

use crate::experiment::Experiment;

/// Every experiment, in the order of the report.
pub(super) const ALL: &[Experiment] = &[skew::EXPERIMENT];
