//! The state that one reader sees: memtables and version of one keyspace, taken together.
//!
//! A view is immutable. A new one is published whenever a memtable rotates or a version is
//! installed. A reader loads it without a contended reference count (`arc-swap`'s thread-local
//! slots) and filters what it finds by its sequence number. One view therefore serves readers of
//! any sequence number that is still protected.
//!
//! Besides the tree, a view holds the data of lookups in the order of their use: a flat list of
//! runs ([`RunPlan`]), and for each of their tables one cache line with filter and reader
//! ([`Probe`]). It is made when the view is installed, so that a lookup follows no chain of
//! reference-counted pointers from level to run to table to filter. A run that was in the previous
//! view keeps its list. The bounds of all runs' tables are joined (`fences`), so that one search
//! finds the table of every run.
//!
//! Invariant: `memtables[0]` takes the writes. Everything in a later memtable is older than
//! everything in an earlier one, and everything in the version is older than all of them.

pub mod estimate;
mod fences;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use shamba_table::{ResidentFilter, TableId, TableReader};

use crate::error::Result;
use crate::merging::Merging;
use crate::version::{Run, Version};
use shamba_env::Share;
use shamba_key::{KeyspaceId, SeqNo};
use shamba_memtable::Memtable;

use self::fences::{JoinedFences, Row};

/// Memtables and tree of one keyspace at one moment.
pub struct View {
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// Newest first; the first one takes writes.
    pub memtables: Vec<Arc<dyn Memtable>>,
    /// The tree.
    pub version: Arc<Version>,
    plans: Box<[RunPlan]>,
    /// `None`: each run is searched separately.
    fences: Option<Arc<JoinedFences>>,
    runs_have_range_deletes: bool,
    has_prefixes: bool,
    merging: Option<Arc<Merging>>,
}

/// A run in the form that lookups use.
pub struct RunPlan {
    /// Its level.
    pub level: u32,
    /// The run.
    pub run: Arc<Run>,
    /// One for each table of the run, in the same order.
    pub probes: Arc<[Probe]>,
    /// Whether the filter of a table holds prefixes. Tables that are not open do not count.
    pub has_prefixes: bool,
}

/// A table in the form that lookups use, on one cache line.
#[repr(align(64))]
pub struct Probe {
    /// `None`: every key may be contained.
    pub filter: Option<ResidentFilter>,
    /// `None` for tables that are not open (yet), and in trees without files.
    pub reader: Option<Arc<TableReader>>,
}

const _: () = assert!(size_of::<Probe>() == 64);

impl View {
    /// The view of these memtables, newest first, and this tree.
    pub fn new(keyspace: KeyspaceId, memtables: Vec<Arc<dyn Memtable>>, version: Arc<Version>) -> Self {
        Self::after(None, keyspace, memtables, version)
    }

    /// The view that follows this one.
    pub fn next(&self, memtables: Vec<Arc<dyn Memtable>>, version: Arc<Version>) -> Self {
        Self::after(Some(self), self.keyspace, memtables, version)
    }

    fn after(
        before: Option<&Self>,
        keyspace: KeyspaceId,
        memtables: Vec<Arc<dyn Memtable>>,
        version: Arc<Version>,
    ) -> Self {
        let plans_before = before.map_or(&[][..], |before| &before.plans);
        let plans = version.runs().map(|(level, run)| {
            let known = plans_before.iter().find(|plan| Arc::ptr_eq(&plan.run, run) && plan.is_open());
            let (probes, has_prefixes) = match known {
                Some(plan) => (Arc::clone(&plan.probes), plan.has_prefixes),
                None => {
                    let probes = probes(run);
                    let has_prefixes = probes.iter().any(Probe::has_prefixes);
                    (probes, has_prefixes)
                }
            };
            RunPlan { level, run: Arc::clone(run), probes, has_prefixes }
        });
        let plans: Box<[RunPlan]> = plans.collect();
        let same_runs = plans.iter().map(|plan| Arc::as_ptr(&plan.run));
        let fences = match before {
            Some(before) if same_runs.eq(plans_before.iter().map(|plan| Arc::as_ptr(&plan.run))) => {
                before.fences.clone()
            }
            _ => JoinedFences::new(&plans).map(Arc::new),
        };
        debug_assert!(
            plans.iter().all(|plan| plan.probes.len() == plan.run.tables().len()),
            "one probe for each table of a run"
        );
        debug_assert_eq!(plans.len(), version.run_count(), "one plan for each run of the version");
        debug_assert!(plans.is_sorted_by_key(|plan| plan.level), "the plans are not in lookup order");
        let runs_have_range_deletes = plans.iter().any(|plan| plan.run.has_range_deletes());
        let has_prefixes = plans.iter().any(|plan| plan.has_prefixes);
        let merging = before.and_then(|before| before.merging.clone());
        Self { keyspace, memtables, version, plans, fences, runs_have_range_deletes, has_prefixes, merging }
    }

    /// The same view, with this merge operator for the keyspace's operands.
    pub fn with_merging(self, merging: Option<Arc<Merging>>) -> Self {
        Self { merging, ..self }
    }

    /// The newest value of `key` that a lookup has folded and left in a memtable, for a reader at
    /// `seq` from whom range tombstones hide everything up to `floor`.
    pub fn folded(&self, key: &[u8], seq: SeqNo, floor: SeqNo) -> Option<(SeqNo, Bytes)> {
        let mut values = self.memtables.iter().filter_map(|memtable| memtable.folded().get(key));
        values.find(|(folded, _)| *folded <= seq && *folded > floor)
    }

    /// The merge operator of the keyspace, to be kept longer than the view.
    pub fn merging_shared(&self) -> Option<Arc<Merging>> {
        self.merging.clone()
    }

    /// The merge operator of the keyspace.
    #[inline]
    pub fn merging(&self) -> Option<&Merging> {
        self.merging.as_deref()
    }

    /// The same view, with filters of these tables read again after their resident slices have
    /// changed.
    pub fn with_filters_of(&self, changed: &BTreeSet<TableId>) -> Self {
        debug_assert!(
            self.plans.iter().all(|plan| plan.probes.len() == plan.run.tables().len()),
            "one probe for each table of a run"
        );
        let has_changed =
            |plan: &RunPlan| plan.run.tables().iter().any(|table| changed.contains(&table.meta.id));
        let plans = self.plans.iter().map(|plan| RunPlan {
            level: plan.level,
            run: Arc::clone(&plan.run),
            probes: if has_changed(plan) { probes(&plan.run) } else { Arc::clone(&plan.probes) },
            has_prefixes: plan.has_prefixes,
        });
        Self {
            keyspace: self.keyspace,
            memtables: self.memtables.clone(),
            version: Arc::clone(&self.version),
            plans: plans.collect(),
            fences: self.fences.clone(),
            runs_have_range_deletes: self.runs_have_range_deletes,
            has_prefixes: self.has_prefixes,
            merging: self.merging.clone(),
        }
    }

    /// Whether both views hold the same tree and the same filters, so that giving this one up for
    /// the other releases neither.
    pub fn is_like(&self, other: &Self) -> bool {
        let mut pairs = self.plans.iter().zip(&other.plans);
        Arc::ptr_eq(&self.version, &other.version)
            && pairs.all(|(own, new)| Arc::ptr_eq(&own.probes, &new.probes))
    }

    /// Every run, in lookup order.
    #[inline]
    pub fn plans(&self) -> &[RunPlan] {
        &self.plans
    }

    /// The table of each run that may hold `key`.
    #[inline]
    pub fn places(&self, key: &[u8]) -> Places<'_> {
        Places(self.fences.as_ref().map(|fences| fences.row(&self.plans, key)))
    }

    /// Memory of the metadata for lookups, besides the open tables: that of the runs, and what this
    /// view adds.
    pub fn metadata_bytes(&self) -> usize {
        let of_plan = |plan: &RunPlan| {
            size_of::<RunPlan>() + plan.run.metadata_bytes() + size_of_val::<[Probe]>(&plan.probes)
        };
        let fences_bytes = self.fences.as_ref().map_or(0, |fences| fences.memory_bytes());
        self.plans.iter().map(of_plan).sum::<usize>() + fences_bytes
    }

    /// Whether any run has range tombstones.
    #[inline]
    pub fn runs_have_range_deletes(&self) -> bool {
        self.runs_have_range_deletes
    }

    /// Whether the filter of any open table holds prefixes.
    #[inline]
    pub fn has_prefixes(&self) -> bool {
        self.has_prefixes
    }
}

/// For one key, the table of each run that may hold it.
#[derive(Clone, Copy)]
pub struct Places<'a>(Option<Row<'a>>);

impl Places<'_> {
    /// The number of the table in the run at `place` among the view's plans, whose plan is `plan`.
    /// `key` must be the key that [`View::places`] was called with.
    #[inline]
    pub fn number(self, place: usize, plan: &RunPlan, key: &[u8]) -> Option<usize> {
        let number = match self.0 {
            Some(row) => row.number(place),
            None => plan.run.number_for(key),
        };
        debug_assert_eq!(
            number,
            plan.run.number_for(key),
            "run {}: another table holds {key:?}",
            plan.run.id
        );
        number
    }
}

impl RunPlan {
    /// Whether every table was open when the plan was made.
    fn is_open(&self) -> bool {
        self.probes.iter().all(|probe| probe.reader.is_some())
    }
}

impl Probe {
    fn has_prefixes(&self) -> bool {
        self.filter.is_some() && self.reader.as_ref().is_some_and(|reader| reader.prefix().is_some())
    }

    /// The probe of a table, open or not.
    pub fn of(reader: Option<&Arc<TableReader>>) -> Self {
        Self { filter: reader.and_then(|reader| reader.filter()), reader: reader.cloned() }
    }
}

fn probes(run: &Run) -> Arc<[Probe]> {
    run.tables().iter().map(|table| Probe::of(table.meta.reader.get())).collect()
}

/// The source of new views for iterators whose view was revoked.
pub trait ViewSource: Send + Sync {
    /// The newest view.
    ///
    /// # Errors
    /// `Closed` after the database was closed; `Invalid` when the keyspace was dropped.
    fn view(&self) -> Result<Arc<View>>;

    /// Whether `view` is the newest. Implementations need no reference count for this, so that
    /// threads that ask at the same time do not contend.
    ///
    /// # Errors
    /// As [`Self::view`].
    fn is_newest(&self, view: &Arc<View>) -> Result<bool> {
        Ok(Arc::ptr_eq(view, &self.view()?))
    }

    /// Counts a sampled seek.
    fn note_seek(&self) {}

    /// Counts a sampled scan that asked filters for its prefix, as a lookup of the prefix.
    fn note_lookup(&self, _found: bool) {}
}

impl<S: ViewSource> ViewSource for Share<S> {
    fn view(&self) -> Result<Arc<View>> {
        (**self).view()
    }

    fn is_newest(&self, view: &Arc<View>) -> Result<bool> {
        (**self).is_newest(view)
    }

    fn note_seek(&self) {
        (**self).note_seek();
    }

    fn note_lookup(&self, found: bool) {
        (**self).note_lookup(found);
    }
}
