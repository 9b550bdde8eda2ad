//! Figure 12 B: a lookup that finds nothing, over the size of entries.

use crate::chart::Axis;

use super::growing;
use super::setup::{Size, buffer_bytes, entries, fixed};
use crate::{Experiment, Finding, Kind, Lab, Paper, Parameter, Scale};

/// As many entries each time: so the levels grow with their size, from 4 to 10.
const ENTRIES_BYTES: [usize; 7] = [32, 64, 128, 256, 512, 1_024, 2_048];

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "monkey-fig12b",
    paper: Paper::Monkey,
    kind: Kind::Measured,
    place: "Fig 12 B",
    title: "latency of empty lookups over the size of entries",
    claim: "Larger entries make more levels: Monkey's latency stays flat, the state of the art's grows; the shape of Fig 12 A.",
    parameters,
    run,
};

fn parameters(scale: Scale) -> Vec<Parameter> {
    let mut all = vec![Parameter::varied("entry bytes", ENTRIES_BYTES)];
    all.extend(fixed(scale, &["entry bytes", "levels"]));
    all
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let (count, buffer) = (entries(lab.scale), buffer_bytes(lab.scale));
    let size = |bytes: usize| Ok((bytes as f64, Size::new(count, bytes, buffer)?));
    let sizes: Vec<(f64, Size)> = ENTRIES_BYTES.into_iter().map(size).collect::<Result<_, String>>()?;
    let words = ("A lookup that finds nothing as entries grow", EXPERIMENT.claim);
    growing::run(lab, &sizes, words, ("entry_bytes", Axis::log("entry [bytes]")))
}
