//! Experiments as declarations.
//!
//! An [`Experiment`] states the source of the claim, the varied and fixed parameters, the
//! measurement of one seed, the predicates of the claim, and the columns of the picture. Seeds,
//! schedules, intervals, verdicts, pictures, files and the report are common to all.

use crate::lab::Lab;
use crate::paper::{Kind, Method, Paper};
use crate::picture::Panel;
use crate::rows::{Rows, View};
use crate::scale::{Parameter, Scale};
use crate::verdict::Predicate;

/// A figure or table of a paper, reproduced.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// Name on the command line: the paper and the place in it.
    pub id: &'static str,
    /// The source of the claim.
    pub paper: Paper,
    /// The origin of the values.
    pub kind: Kind,
    /// Whether it may run concurrently with others.
    pub method: Method,
    /// The place in the paper.
    pub place: &'static str,
    /// The measured quantity and the varied parameter.
    pub title: &'static str,
    /// The paper's finding.
    pub claim: &'static str,
    /// Varied and fixed parameters at a scale.
    pub parameters: fn(Scale) -> Vec<Parameter>,
    /// Measures one seed.
    pub measure: fn(&mut Lab<'_>) -> Result<Rows, String>,
    /// The claim as bounds on numbers.
    pub predicates: &'static [Predicate],
    /// The picture.
    pub panels: &'static [Panel],
    /// Notes: fixed parameters, emulated devices and other conditions.
    pub note: &'static str,
    /// Explanation of the figures, from the rows of all seeds; may be empty.
    pub reason: fn(&View<'_>) -> String,
}

impl Experiment {
    /// No reason to give.
    pub fn no_reason(_: &View<'_>) -> String {
        String::new()
    }
}
