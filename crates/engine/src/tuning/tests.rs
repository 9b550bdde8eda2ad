//! Tests of tuning alone: on an empty catalog, with made-up costs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use shamba_model::{Design, MergePolicy};
use shamba_tree::compaction::policy::Rules;

use super::advise::MovePrices;
use super::history::RedesignedBy;
use super::*;
use crate::error::ErrorKind;
use crate::options::settings::{Settings, Tuning};
use crate::options::values::ValueThreshold;
use crate::testing::Parts;

/// A database in which nothing moves: counts what tuning asks for.
#[derive(Default)]
struct Still {
    changed: AtomicU32,
    begun: AtomicU32,
}

impl Mover for Still {
    fn is_compacting_all(&self) -> bool {
        false
    }

    fn design_changed(&self, compacts_all: bool) {
        assert!(!compacts_all, "an empty tree needs no compaction");
        self.changed.fetch_add(1, Ordering::Relaxed);
    }

    fn begin_move(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }
}

impl MovePrices for Still {
    fn rules_under(&self, design: Design) -> Rules {
        Rules::manual(design, 4)
    }

    fn full_table_bytes(&self) -> u64 {
        1 << 20
    }

    fn read_ns(&self, bytes: u64) -> f64 {
        bytes as f64
    }
}

impl Still {
    fn counts(&self) -> (u32, u32) {
        (self.changed.load(Ordering::Relaxed), self.begun.load(Ordering::Relaxed))
    }
}

/// Tuning over the parts of an empty database, and what it moves.
fn tuning(parts: &Parts) -> (DesignTuning, Arc<Still>) {
    parts.begin();
    let tuning = over(parts, &BTreeMap::new());
    let still = Arc::new(Still::default());
    tuning.connect(Arc::clone(&still) as _, Arc::clone(&still) as _);
    (tuning, still)
}

/// Tuning over `parts`, with the history in `recorded`, and without anything that moves tables.
fn over(parts: &Parts, recorded: &BTreeMap<String, String>) -> DesignTuning {
    let pairs = recorded.clone().into_iter().collect();
    let workload = Arc::new(parts.observer(&pairs));
    let (settings, catalog) = (Arc::clone(&parts.settings), Arc::clone(&parts.catalog));
    let bits =
        FilterBits::new(&parts.env, Arc::clone(&settings), Arc::clone(&parts.memory), Arc::clone(&catalog));
    let told = (Arc::clone(&parts.lifecycle), Arc::clone(&parts.telemetry));
    let lower = (Arc::clone(parts.memory.ledger()), workload, Arc::new(bits));
    DesignTuning::new(&parts.env, settings, recorded, catalog, told, lower)
}

fn target(of: &Parts, size_ratio: f64) -> TreeDesign {
    let design = Design::new(MergePolicy::Tiering, size_ratio, 1 << 20, 8.0);
    TreeDesign { design, ..of.settings.live.get().tree }
}

#[test]
fn a_redesign_is_recorded_before_it_is_in_force_and_can_be_undone_once() {
    let parts = Parts::new(Settings::default());
    let (tuning, still) = tuning(&parts);
    let before = parts.settings.live.get().tree;
    let after = target(&parts, 4.0);
    tuning.redesign(&after, RedesignedBy::Caller, "a test").expect("redesigned");
    assert_eq!(parts.settings.live.get().tree, after);
    assert_eq!(still.counts(), (1, 1));
    tuning.redesign(&after, RedesignedBy::Caller, "a test").expect("in force already");
    assert_eq!((still.counts(), tuning.redesigns().len()), ((1, 1), 1), "nothing to do");
    // The manifest has it, for the next open.
    let recorded = parts.catalog.state().expect("a manifest").settings;
    let reopened = over(&parts, &recorded);
    assert_eq!(reopened.redesigns(), tuning.redesigns());
    assert_eq!(Settings::from_pairs(&recorded).expect("settings").live.get().tree, after);

    assert_eq!(tuning.undo_redesign().expect("undone"), before);
    assert_eq!(parts.settings.live.get().tree, before);
    assert_eq!(still.counts(), (2, 2));
    let twice = tuning.undo_redesign().expect_err("undone already");
    assert_eq!(twice.kind(), ErrorKind::Invalid);
    let origins: Vec<RedesignedBy> = tuning.redesigns().iter().map(|entry| entry.by).collect();
    assert_eq!(origins, [RedesignedBy::Caller, RedesignedBy::Undo]);
}

#[test]
fn a_redesign_that_cannot_be_recorded_is_not_in_force() {
    let parts = Parts::new(Settings::default());
    let (tuning, still) = tuning(&parts);
    let before = parts.settings.live.get();
    let wrong =
        TreeDesign { design: Design { size_ratio: 0.5, ..before.tree.design }, ..target(&parts, 4.0) };
    let refused = tuning.redesign(&wrong, RedesignedBy::Caller, "a test").expect_err("no size ratio");
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    // A database without a manifest of its own.
    let other = Parts::new(Settings::default());
    let read_only = over(&other, &BTreeMap::new());
    read_only.connect(Arc::clone(&still) as _, Arc::clone(&still) as _);
    let refused = read_only.redesign(&target(&other, 4.0), RedesignedBy::Caller, "a test");
    assert_eq!(refused.map_err(|error| error.kind()), Err(ErrorKind::ReadOnly));
    // Nothing that could move tables is left.
    let alone = over(&parts, &BTreeMap::new());
    let refused = alone.redesign(&target(&parts, 4.0), RedesignedBy::Caller, "a test");
    assert_eq!(refused.map_err(|error| error.kind()), Err(ErrorKind::Closed));
    assert_eq!((parts.settings.live.get(), still.counts()), (before, (0, 0)));
    assert!(tuning.redesigns().is_empty() && read_only.redesigns().is_empty());
}

#[test]
fn advice_says_why_too_little_is_known() {
    let parts = Parts::new(Settings::default());
    let (tuning, _still) = tuning(&parts);
    let reason = |tuning: &DesignTuning| tuning.advise().expect("advice").reason;
    assert!(reason(&tuning).contains("operations per second are too few for advice"), "{}", reason(&tuning));
    parts.put(100_000);
    assert_eq!(reason(&tuning), "0 bytes of data are too few for advice");
    assert!(parts.lifecycle.close());
    assert_eq!(tuning.advise().map_err(|error| error.kind()), Err(ErrorKind::Closed));
}

#[test]
fn a_database_is_not_tuned_while_it_is_empty_nor_after_the_stop() {
    let parts = Parts::new(Settings { tuning: Tuning::Auto, ..Settings::default() });
    let (tuning, still) = tuning(&parts);
    tuning.look();
    parts.put(100_000);
    tuning.stop();
    tuning.look();
    assert_eq!(still.counts(), (0, 0), "an empty database stays as it is");
}

/// Length that `auto` stands for after each of `windows` windows with updates, on top of an earlier
/// workload.
fn lengths_of_auto(threshold: ValueThreshold, earlier: &str, windows: usize) -> Vec<Option<u32>> {
    let parts =
        Parts::new(Settings { value_threshold: threshold, tuning: Tuning::Off, ..Settings::default() });
    parts.begin();
    let tuning = over(&parts, &BTreeMap::from([("observed-workload".to_owned(), earlier.to_owned())]));
    let still = Arc::new(Still::default());
    tuning.connect(Arc::clone(&still) as _, still as _);
    tuning.look();
    let after_window = || {
        parts.put(1_000);
        tuning.look();
        parts.settings.live.auto_value_bytes()
    };
    (0..windows).map(|_| after_window()).collect()
}

#[test]
fn the_length_of_auto_follows_the_workload() {
    let (unknown, writes) = (Some(4 << 10), Some(1 << 10));
    let auto = |earlier| lengths_of_auto(ValueThreshold::Auto, earlier, 60);
    assert_eq!(auto(""), [writes; 60], "writes only: the shortest");
    // Thousands of lookups for each update: a further read costs more than all merges. The first
    // look at the recorded workload decides, and the writes that follow change it in the end.
    let reads = "seconds=8 found_lookups=100000000 puts=1000 windows=4";
    let lengths = auto(reads);
    assert_eq!((lengths[0], lengths[59]), (None, writes), "{lengths:?}");
    assert!(lengths.iter().filter(|length| length.is_none()).count() >= 5, "{lengths:?}");
    assert_eq!(lengths_of_auto(ValueThreshold::Off, reads, 6), [unknown; 6], "nobody asks for it");
}
