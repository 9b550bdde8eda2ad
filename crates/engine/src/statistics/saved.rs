//! When the lookup statistics are loaded and saved.
//!
//! They are loaded once, at the open, and saved after a flush or compaction if enough lookups were
//! sampled since, and at close. A failure is a warning: no operation depends on the file.

use std::collections::HashMap;
use std::sync::Arc;

use shamba_env::Env;
use shamba_table::{BirthId, TableId};
use shamba_tree::statistics::{LookupWindow, Probes};

use super::file::{STATISTICS, TreeFigures, encode, read, warning, write};
use crate::catalog::Catalog;
use crate::lifecycle::Lifecycle;
use crate::lock_order;
use crate::ranked::Ranked;
use crate::telemetry::{Telemetry, hold_events};

/// Sampled lookups after which a flush or compaction saves the statistics: some two million
/// lookups.
const SAVE_EVERY: u64 = 1 << 15;

/// State of the saved file, to detect changes since.
#[derive(Default, Debug)]
struct Saved {
    /// Sampled lookups of this process that are in the file.
    sampled: u64,
    /// Fingerprint of the birth ids of its tables.
    fingerprint: u64,
}

/// Sum of the birth ids of all tables: changes when the set of tables does.
fn fingerprint(trees: &[TreeFigures]) -> u64 {
    let births = trees.iter().flat_map(|tree| tree.tables.iter().map(|(_, birth, _)| birth.0));
    births.fold(0, u64::wrapping_add)
}

/// The file of statistics of a database.
pub(crate) struct SavedStatistics {
    env: Env,
    /// Whether statistics are kept at all.
    is_on: bool,
    catalog: Arc<Catalog>,
    lifecycle: Arc<Lifecycle>,
    telemetry: Arc<Telemetry>,
    /// Held while the file is written.
    saved: Ranked<Saved>,
}

impl SavedStatistics {
    /// The file in the directory of `catalog`; with `is_on` false it is neither read nor written.
    pub fn new(
        env: &Env,
        is_on: bool,
        catalog: Arc<Catalog>,
        lifecycle: Arc<Lifecycle>,
        telemetry: Arc<Telemetry>,
    ) -> Self {
        Self {
            env: env.clone(),
            is_on,
            catalog,
            lifecycle,
            telemetry,
            saved: Ranked::new(lock_order::STATISTICS, Saved::default()),
        }
    }

    /// Gives the open tables the figures of an earlier process that the file has for them.
    pub fn load(&self) {
        if !self.is_on {
            return;
        }
        let trees = match read(&self.env, self.catalog.dir()) {
            Ok(trees) => trees.map(|(trees, _)| trees).unwrap_or_default(),
            Err(error) => return self.telemetry.warn(warning(&error)),
        };
        self.saved.lock().fingerprint = fingerprint(&trees);
        let now_us = self.env.clock.now_us();
        for TreeFigures { keyspace, window, tables } in trees {
            let Some(keyspace) = self.catalog.keyspace(keyspace) else { continue };
            keyspace.statistics().begin_with(LookupWindow { as_of_us: now_us, ..window });
            let known: HashMap<(TableId, BirthId), Probes> =
                tables.into_iter().map(|(id, birth, probes)| ((id, birth), probes)).collect();
            for (_, _, table) in keyspace.load().version.tables() {
                if let Some(probes) = known.get(&(table.meta.id, table.meta.birth)) {
                    table.meta.statistics.begin_with(*probes);
                }
            }
        }
    }

    /// Saves the statistics if there are enough new samples or, with `all`, if anything has
    /// changed. A failure is only a warning.
    pub fn save(&self, all: bool) {
        if self.lifecycle.is_read_only() || !self.is_on || self.lifecycle.has_failed() {
            return;
        }
        let _events = hold_events();
        let mut saved = self.saved.lock();
        let keyspaces = self.catalog.keyspaces();
        let sampled: u64 = keyspaces.values().map(|keyspace| keyspace.statistics().sampled()).sum();
        let news = sampled.wrapping_sub(saved.sampled);
        if !all && news < SAVE_EVERY {
            return;
        }
        let now_us = self.env.clock.now_us();
        let trees = keyspaces.values().map(|keyspace| {
            let version = &keyspace.load().version;
            let tables = version.tables().map(|(_, _, table)| &table.meta);
            let of_tables = || tables.map(|meta| (meta.id, meta.birth, meta.statistics.probes())).collect();
            let (window, tables) = keyspace.statistics().window_and(now_us, of_tables);
            TreeFigures { keyspace: keyspace.id, window, tables }
        });
        let trees: Vec<TreeFigures> = trees.collect();
        let fingerprint = fingerprint(&trees);
        if (news == 0 && fingerprint == saved.fingerprint) || trees.iter().all(TreeFigures::is_empty) {
            return;
        }
        *saved = Saved { sampled, fingerprint };
        let dir = self.catalog.dir();
        if let Err(error) = write(&self.env, dir, &encode(&trees, self.catalog.new_birth())) {
            self.telemetry.warn(format!("{} could not be saved: {error}", dir.join(STATISTICS).display()));
        }
    }
}

#[cfg(test)]
mod tests {
    use shamba_tree::version::Version;

    use super::*;
    use crate::testing::Parts;

    fn saved(parts: &Parts, is_on: bool) -> SavedStatistics {
        let (catalog, telemetry) = (Arc::clone(&parts.catalog), Arc::clone(&parts.telemetry));
        SavedStatistics::new(&parts.env, is_on, catalog, Arc::clone(&parts.lifecycle), telemetry)
    }

    #[test]
    fn statistics_are_saved_after_enough_samples_and_once() {
        let parts = Parts::new(Default::default());
        let path = parts.catalog.dir().join(STATISTICS);
        let exists = || parts.env.vfs.exists(&path).expect("asked");
        let keyspace = Arc::clone(parts.catalog.keyspaces().values().next().expect("the default one"));
        let sample = |count| {
            (0..count).for_each(|_| keyspace.statistics().add_sample(true, &Version::empty(), || 0));
        };
        let statistics = saved(&parts, true);
        statistics.save(true);
        assert!(!exists(), "nothing was sampled");
        sample(SAVE_EVERY - 1);
        statistics.save(false);
        assert!(!exists(), "too little was sampled");
        saved(&parts, false).save(true);
        assert!(!exists(), "no statistics are kept");
        sample(1);
        statistics.save(false);
        assert!(exists());
        parts.env.vfs.unlink(&path).expect("removed");
        statistics.save(true);
        assert!(!exists(), "nothing was sampled since");
        // The next process has the figures, unless writes are off.
        sample(1);
        statistics.save(true);
        let window = keyspace.statistics().window(0);
        let later = Parts::new(Default::default());
        let bytes = shamba_env::read_file(parts.env.vfs.as_ref(), &path).expect("saved");
        shamba_env::write_file_synced(later.env.vfs.as_ref(), &path, &bytes).expect("copied");
        saved(&later, true).load();
        let loaded = later.catalog.keyspaces().values().next().expect("one").statistics().window(0);
        assert_eq!((loaded.lookups, loaded.found), (window.lookups, window.found));
        assert!(loaded.lookups > 0.0);
        later.lifecycle.fail(&crate::Error::invalid("broken"));
        later.env.vfs.unlink(&path).expect("removed");
        saved(&later, true).save(true);
        assert!(!later.env.vfs.exists(&path).expect("asked"));
    }
}
