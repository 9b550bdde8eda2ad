//! The minimum length of values in value files, where the option is `auto`.
//!
//! At the end of each window with operations the cost model proposes a length
//! ([`shamba_model::values`]) from the observed workload, the size of the data and the design. The
//! first proposal takes effect at once, a later one when it has differed from the length in force
//! for [`WINDOWS`] windows ([`ValueTuner`]); lengths are powers of two, so it then differs at least
//! twofold. Values that are stored already move when their entries are rewritten; a change starts
//! no compaction.
//!
//! All keyspaces whose option is `auto` share one length, computed with the fewest merges and the
//! smallest allowed space among them.
//!
//! The length is not recorded: the workload is, and the first look at it after an open decides.
//! Without background threads no tuner runs, and the initial length stays in force.

use shamba_model::values::ValueTraffic;

use super::DesignTuning;
use crate::catalog::KeyspaceCore;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::options::settings::Settings;
use crate::options::values::ValueThreshold;
use crate::tree_design::TreeDesign;

/// Windows in a row in which another length is proposed before it takes effect: ten seconds.
const WINDOWS: u32 = 5;

/// Counts the windows in which another length than the one in force was proposed.
#[derive(Default, Debug)]
pub(super) struct ValueTuner {
    windows: u32,
    has_decided: bool,
}

impl ValueTuner {
    /// The length that takes effect now: the proposal, if it is to replace `in_force`.
    fn decide(&mut self, in_force: Option<u32>, proposed: Option<u32>) -> Option<Option<u32>> {
        let is_first = !std::mem::replace(&mut self.has_decided, true);
        self.windows = if proposed == in_force { 0 } else { self.windows + 1 };
        if self.windows == 0 || (self.windows < WINDOWS && !is_first) {
            return None;
        }
        self.windows = 0;
        Some(proposed)
    }
}

/// Whether the option of this keyspace is `auto`.
fn is_auto(keyspace: &KeyspaceCore, settings: &Settings) -> bool {
    keyspace.overrides().value_threshold(settings) == ValueThreshold::Auto
}

impl DesignTuning {
    /// Updates the length that `auto` stands for. Called at the first look after an open, and at
    /// the end of each window with operations.
    pub(super) fn tune_values(&self, tuner: &mut ValueTuner) {
        // An error means that the database closes, or that the model rejects what was measured: the
        // length stays.
        let Ok(Some(traffic)) = self.value_traffic() else { return };
        let Ok(proposed) = traffic.threshold_bytes() else { return };
        let live = &self.settings.live;
        let in_force = live.auto_value_bytes();
        let Some(decided) = tuner.decide(in_force, proposed) else { return };
        live.set_auto_value_bytes(decided);
        let shown =
            |bytes: Option<u32>| bytes.map_or_else(|| "none".to_owned(), |bytes| format!("{bytes} bytes"));
        self.telemetry.emit(Event::Advice(format!(
            "minimum length of values in value files: {} (was: {}); for each update, lookups find {:.2} values and scans make {:.2} reads of values",
            shown(decided),
            shown(in_force),
            traffic.lookups_per_update,
            traffic.scanned_per_update,
        )));
    }

    /// The traffic by which the length is decided; `None` without updates, or where no keyspace
    /// asks for a length.
    ///
    /// # Errors
    /// `Closed`; `Invalid` when the model rejects the measured numbers.
    fn value_traffic(&self) -> Result<Option<ValueTraffic>> {
        let keyspaces = self.catalog.keyspaces();
        let auto: Vec<_> = keyspaces.values().filter(|keyspace| is_auto(keyspace, &self.settings)).collect();
        if auto.is_empty() || self.workload.workload().updates() <= 0.0 {
            return Ok(None);
        }
        let scene = self.advisor.scene()?;
        let updates = scene.workload.updates();
        let (mut value_bytes, mut key_bytes, mut tables) = (0, 0, 0);
        for keyspace in keyspaces.values() {
            let version = &keyspace.load().version;
            value_bytes += version.value_bytes();
            for (_, _, table) in version.tables() {
                key_bytes += table.meta.smallest.len();
                tables += 1;
            }
        }
        let bytes = scene.bytes.saturating_add(value_bytes);
        let (mut merges, mut space) = (f64::INFINITY, f64::INFINITY);
        for keyspace in auto {
            let overrides = keyspace.overrides();
            let design = TreeDesign { design: overrides.design(scene.in_force.design), ..scene.in_force };
            merges = merges.min(scene.merges(&design, (scene.entries, bytes)).map_err(Error::invalid)?);
            space = space.min(overrides.value_space(&self.settings));
        }
        Ok(Some(ValueTraffic {
            merges,
            // The first keys of all tables are a sample of the keys.
            key_bytes: key_bytes as f64 / f64::from(tables.max(1)),
            move_ns_per_byte: scene.move_ns_per_byte,
            overwritten_share: scene.workload.overwritten_share(),
            space,
            lookups_per_update: scene.workload.found_lookups / updates,
            scanned_per_update: scene.workload.range_entries / updates * self.workload.reads_per_value(),
            read_ns: scene.read_ns,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_takes_effect_when_it_was_proposed_in_enough_windows() {
        let mut tuner = ValueTuner::default();
        let (now, next) = (Some(4 << 10), Some(16 << 10));
        assert_eq!(tuner.decide(Some(1 << 10), now), Some(now), "the first one at once");
        for _ in 1..WINDOWS {
            assert_eq!(tuner.decide(now, next), None);
        }
        assert_eq!(tuner.decide(now, now), None, "a window that agrees starts the count again");
        for _ in 1..WINDOWS {
            assert_eq!(tuner.decide(now, Some(8 << 10)), None);
        }
        assert_eq!(tuner.decide(now, next), Some(next), "the last proposal of those that differ");
        assert_eq!(tuner.decide(next, None), None, "and the count starts again");
    }

    #[test]
    fn no_length_can_be_proposed_and_replaced() {
        let mut tuner = ValueTuner { has_decided: true, ..ValueTuner::default() };
        let decisions: Vec<_> = (0..WINDOWS).map(|_| tuner.decide(Some(1024), None)).collect();
        assert_eq!(decisions.last(), Some(&Some(None)));
        let decisions: Vec<_> = (0..WINDOWS).map(|_| tuner.decide(None, Some(1024))).collect();
        assert_eq!(decisions.last(), Some(&Some(Some(1024))));
    }
}
