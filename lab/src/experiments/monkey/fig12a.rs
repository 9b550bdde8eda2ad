//! Figure 12 A: a lookup that finds nothing, over the number of entries.

use crate::chart::Axis;

use super::growing;
use super::setup::{BUFFERS, ENTRY_BYTES, Size, buffer_bytes, entries, fixed};
use crate::{Experiment, Finding, Kind, Lab, Paper, Parameter, Scale};

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "monkey-fig12a",
    paper: Paper::Monkey,
    kind: Kind::Measured,
    place: "Fig 12 A",
    title: "latency of empty lookups over the number of entries",
    claim: "Monkey's latency stays flat as data grows, the state of the art's grows with the levels: up to 60 % lower.",
    parameters,
    run,
};

/// From 4 buffers, one level, by doubling: the paper begins with 2^12 entries of a buffer of 2^10.
fn counts(scale: Scale) -> Vec<u64> {
    let all = entries(scale);
    (0..=BUFFERS.ilog2() - 2).rev().map(|halvings| all >> halvings).collect()
}

fn parameters(scale: Scale) -> Vec<Parameter> {
    let mut all = vec![Parameter::varied("entries", counts(scale))];
    all.extend(fixed(scale, &["entries", "levels"]));
    all
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let buffer = buffer_bytes(lab.scale);
    let size = |count: u64| Ok((count as f64, Size::new(count, ENTRY_BYTES, buffer)?));
    let sizes: Vec<(f64, Size)> = counts(lab.scale).into_iter().map(size).collect::<Result<_, String>>()?;
    let words = ("A lookup that finds nothing as data grows", EXPERIMENT.claim);
    growing::run(lab, &sizes, words, ("entries", Axis::log("entries")))
}
