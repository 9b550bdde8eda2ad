//! What one digest saves over the share of empty lookups on one device: what Figures 13 and 14 have in common.

use super::gains::{DIGESTS, Gain};
use crate::lab::lookups::Questions;
use crate::lab::table::Cell;
use crate::lab::tree::{Spec, Tree};
use crate::lab::{Device, Lab, Parameter, Scale};

pub(super) const EMPTY_FRACTIONS: [f64; 5] = [0.0, 0.25, 0.5, 0.75, 1.0];
const KEY_BYTES: usize = 512;
const ENTRY_BYTES: usize = 1_024;
const SIZE_RATIO: f64 = 10.0;
const LEVELS: u32 = 5;

fn entries(scale: Scale) -> u64 {
    scale.pick(55_555, 444_440, 22_000_000)
}

pub(super) fn parameters(scale: Scale, device: Device) -> Vec<Parameter> {
    vec![
        Parameter::varied("empty fraction", EMPTY_FRACTIONS),
        Parameter::varied("digest", DIGESTS.map(|(_, name)| name)),
        Parameter::fixed("device", device.name()),
        Parameter::fixed("key bytes", KEY_BYTES),
        Parameter::fixed("entry bytes", ENTRY_BYTES),
        Parameter::fixed("entries", entries(scale)),
        Parameter::fixed("size ratio", SIZE_RATIO),
        Parameter::fixed("levels", LEVELS),
        Parameter::fixed("bits per key", 10),
    ]
}

pub(super) fn measure(lab: &mut Lab<'_>, device: Device) -> Result<Vec<Gain>, String> {
    let mut gains = Vec::new();
    for (digest, name) in DIGESTS {
        let spec = Spec {
            digest,
            ..Spec::leveled(entries(lab.scale), (KEY_BYTES, ENTRY_BYTES), SIZE_RATIO, LEVELS)
        };
        let tree = Tree::lay(lab, "empty-share", spec, device)?;
        for empty_fraction in EMPTY_FRACTIONS {
            let questions = Questions::uniform(empty_fraction, lab.scale.pick(8_000, 100_000, 1_000_000));
            let at = (name, empty_fraction, Cell::from(empty_fraction));
            gains.push(Gain::measure(lab, &tree, device, &questions, at)?);
        }
        tree.discard(lab)?;
    }
    Ok(gains)
}

/// The gains of the paper's hash function, in the order of [`EMPTY_FRACTIONS`].
pub(super) fn of_paper(gains: &[Gain]) -> Vec<f64> {
    gains.iter().filter(|gain| gain.series == DIGESTS[0].1).map(|gain| gain.gain().median).collect()
}

/// The note below both pictures.
pub(super) const NOTE: &str = "T = 10, 5 levels, keys of 512 B, entries of 1 KB, 10 bits per key. Model: Equation 8 with the time that a hash takes here.";
