//! Experiments as declarations.
//!
//! An [`Experiment`] says whose claim it is, what is varied and fixed, how one seed is measured,
//! which predicates the claim makes, and which columns the picture shows. Seeds, schedules,
//! intervals, verdicts, pictures, files and the report are written once, for all.

use crate::lab::Lab;
use crate::paper::{Kind, Method, Paper};
use crate::picture::Panel;
use crate::rows::{Rows, View};
use crate::scale::{Parameter, Scale};
use crate::verdict::Predicate;

/// A figure or table of a paper, to be made again.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// The name on the command line: the paper and the place in it.
    pub id: &'static str,
    /// The source of the claim.
    pub paper: Paper,
    /// The origin of the values.
    pub kind: Kind,
    /// Whether it may share the machine.
    pub method: Method,
    /// The place in the paper.
    pub place: &'static str,
    /// The measure and what it is measured over.
    pub title: &'static str,
    /// The paper's finding.
    pub claim: &'static str,
    /// What is varied and what is fixed, at a scale.
    pub parameters: fn(Scale) -> Vec<Parameter>,
    /// Measures one seed.
    pub measure: fn(&mut Lab<'_>) -> Result<Rows, String>,
    /// The claim as bounds on numbers.
    pub predicates: &'static [Predicate],
    /// The picture.
    pub panels: &'static [Panel],
    /// Small print: what is fixed, emulated or otherwise to be known.
    pub note: &'static str,
    /// The reason for a verdict other than confirmed, from the rows of all seeds; may be empty.
    pub reason: fn(&View<'_>) -> String,
}

impl Experiment {
    /// No reason to give.
    pub fn no_reason(_: &View<'_>) -> String {
        String::new()
    }
}
