//! Trees over the length of keys: what Figures 8a, 9, 10 and 11 have in common.
//!
//! T = 10, five levels, ten bits per key, only empty lookups; each with the paper's digest and with ours.

use super::gains::{DIGESTS, Gain};
use crate::lookups::Questions;
use crate::table::Cell;
use crate::tree::{Spec, Tree};
use crate::{Device, Lab, Parameter};

const SIZE_RATIO: f64 = 10.0;
const LEVELS: u32 = 5;

/// A figure's trees, one for each digest and length of keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct OverKeys {
    /// The figure's name, and its trees'.
    pub name: &'static str,
    pub keys_bytes: &'static [usize],
    pub entry_bytes: usize,
    pub entries: u64,
    /// Of a repeat.
    pub lookups: u64,
}

impl OverKeys {
    /// All parameters: what the figure has beyond keys and digests, then what it holds.
    pub fn parameters(self, more: impl IntoIterator<Item = Parameter>) -> Vec<Parameter> {
        let varied = [
            Parameter::varied("key bytes", self.keys_bytes),
            Parameter::varied("digest", DIGESTS.map(|(_, name)| name)),
        ];
        let fixed = [
            Parameter::fixed("entry bytes", self.entry_bytes),
            Parameter::fixed("entries", self.entries),
            Parameter::fixed("size ratio", SIZE_RATIO),
            Parameter::fixed("levels", LEVELS),
            Parameter::fixed("bits per key", 10),
            Parameter::fixed("empty fraction", 1),
            Parameter::fixed("lookups a repeat", self.lookups),
        ];
        varied.into_iter().chain(more).chain(fixed).collect()
    }

    /// Lays each tree down on `device`, has `measure` look at it with the digest's name and the length of its keys, and discards it.
    ///
    /// # Errors
    /// What the engine or `measure` says.
    pub fn each(
        self,
        lab: &mut Lab<'_>,
        device: Device,
        mut measure: impl FnMut(&mut Lab<'_>, &Tree, (&'static str, usize)) -> Result<(), String>,
    ) -> Result<(), String> {
        for (digest, name) in DIGESTS {
            for &key_bytes in self.keys_bytes {
                let sizes = (key_bytes, self.entry_bytes);
                let spec = Spec { digest, ..Spec::leveled(self.entries, sizes, SIZE_RATIO, LEVELS) };
                let tree = Tree::lay(lab, self.name, spec, device)?;
                measure(lab, &tree, (name, key_bytes))?;
                tree.discard(lab)?;
            }
        }
        Ok(())
    }

    /// What one digest saves on each tree over the length of its keys, on `device`, of lookups that are spread evenly.
    ///
    /// # Errors
    /// What the engine says.
    pub fn gains(self, lab: &mut Lab<'_>, device: Device) -> Result<Vec<Gain>, String> {
        let mut gains = Vec::new();
        self.each(lab, device, |lab, tree, (name, key_bytes)| {
            let questions = Questions::uniform(1.0, self.lookups);
            let at = (name, key_bytes as f64, Cell::from(key_bytes));
            gains.push(Gain::measure(lab, tree, device, &questions, at)?);
            Ok(())
        })?;
        Ok(gains)
    }
}
