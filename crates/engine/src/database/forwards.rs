//! Methods of [`Db`] that ask one part: its state, advice, redesigns.

use std::path::Path;

use shamba_model::Design;

use super::{Db, introspect};
use crate::error::Result;
use crate::metrics::{MemoryReport, Stats, TableStats};
use crate::tree_design::TreeDesign;
use crate::tuning::advise::Advice;
use crate::tuning::history::{Redesigned, RedesignedBy};
use crate::workload::Workload;

impl Db {
    /// Counters since the database was opened, and its current state.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = shamba::Db::open(dir.path().join("db"))?;
    /// db.put("key", "value")?;
    /// db.get("key")?;
    /// let stats = db.stats();
    /// assert_eq!(stats.hashes_per_get(), 1.0);
    /// # Ok::<(), shamba::Error>(())
    /// ```
    pub fn stats(&self) -> Stats {
        introspect::stats(self.core(), &self.keyspace)
    }

    /// The tables of the default keyspace and their filters as written, newest run first.
    pub fn tables(&self) -> Vec<TableStats> {
        introspect::tables(&self.keyspace)
    }

    /// Turns the timing of the phases of lookups on or off.
    pub fn set_timers(&self, on: bool) {
        self.core().telemetry.set_timers(on);
    }

    /// The tree of every keyspace, in the notation of `docs/formats/version.md`.
    pub fn describe(&self) -> String {
        introspect::describe(&self.core().catalog)
    }

    /// Memory in use, by consumer. Right after an open it waits until filters and indexes are in
    /// memory as far as they are worth it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = shamba::Db::open(dir.path().join("db"))?;
    /// let memory = db.memory();
    /// assert!(memory.ledger_bytes <= memory.budget_bytes, "{memory:?}");
    /// # Ok::<(), shamba::Error>(())
    /// ```
    pub fn memory(&self) -> MemoryReport {
        self.core().residency.finish_open();
        self.core().residency.report()
    }

    /// The current design.
    pub fn design(&self) -> Design {
        self.core().settings.live.get().tree.design
    }

    /// Every option and its value in this open, by the names of [`crate::options`].
    pub fn options(&self) -> Vec<(&'static str, String)> {
        self.core().settings.options()
    }

    /// The settings that can be recorded, as text under their recorded keys; [`Self::options`] has
    /// all.
    pub fn settings(&self) -> Vec<(String, String)> {
        self.core().settings.to_pairs()
    }

    /// The sequence number of the last visible write.
    pub fn sequence(&self) -> u64 {
        self.core().reads.visible().0
    }

    /// The directory of the database.
    pub fn path(&self) -> &Path {
        self.core().catalog.dir()
    }

    /// Problems since the open that affect no answer: dropped log tails, damaged filters. Each
    /// once, at most a thousand. Filters are loaded after the open, so damage of theirs may come
    /// later; [`Db::wait_idle`] waits for that.
    pub fn warnings(&self) -> Vec<String> {
        self.core().telemetry.warnings()
    }

    /// Checks every invariant of the trees and their shapes by reading all entries.
    ///
    /// # Errors
    /// The first violation, with the tree.
    pub fn check_invariants(&self) -> std::result::Result<(), String> {
        introspect::check_invariants(self.core())
    }

    /// The design in force and the plan of its filters: what [`Self::redesign`] changes.
    pub fn tree_design(&self) -> TreeDesign {
        self.core().settings.live.get().tree
    }

    /// Moves the live database permanently to another design: when this returns, the design is
    /// recorded and in force. Compactions then move the trees there step by step, while reads and
    /// writes go on. [`crate::Stats::debt_bytes`] gives the bytes that they still have to move;
    /// [`Self::wait_idle`] waits for them. Called again during a move, the new target replaces the
    /// old one. Tables keep their filters until a compaction rewrites them.
    ///
    /// ```
    /// # fn main() -> shamba::Result<()> {
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// use shamba::{Db, Design, MergePolicy, TreeDesign};
    ///
    /// let db = Db::open(dir.path())?;
    /// let design = Design::new(MergePolicy::LazyLeveling, 4.0, 16 << 20, 8.0);
    /// db.redesign(&TreeDesign { design, ..db.tree_design() })?;
    /// assert_eq!(db.design(), design);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Invalid` for an invalid design; `ReadOnly`, `Closed`, `Io` and `NoSpace` when it could not
    /// be recorded; it is then not in force.
    pub fn redesign(&self, target: &TreeDesign) -> Result<()> {
        self.core().tuning.redesign(target, RedesignedBy::Caller, "requested")
    }

    /// Returns to the design before the last redesign, and returns that design. The undone design
    /// is not advised ([`Self::advise`]) for an hour, and [`crate::Tuning::Auto`] does not move to
    /// it.
    ///
    /// # Errors
    /// `Invalid` if there was no redesign, if the last one was undone, or if an open has set
    /// another design since; errors of [`Self::redesign`].
    pub fn undo_redesign(&self) -> Result<TreeDesign> {
        self.core().tuning.undo_redesign()
    }

    /// The last redesigns, oldest first, each with its origin and reason.
    pub fn redesigns(&self) -> Vec<Redesigned> {
        self.core().tuning.redesigns()
    }

    /// The benefit of another design under the recently observed workload, the cost of moving to
    /// it, and whether the move pays. Changes nothing; [`Self::follow`] does. A design that
    /// [`Self::undo_redesign`] left within the last hour is not advised; [`Advice::reason`] names
    /// it if it would be the best.
    ///
    /// # Errors
    /// `Closed`; `Invalid` when the model rejects the measured values.
    pub fn advise(&self) -> Result<Advice> {
        self.core().tuning.advise()
    }

    /// Applies an advice, with its reason; does nothing if it says to stay. The history records it
    /// as [`RedesignedBy::Follow`].
    ///
    /// # Errors
    /// Errors of [`Self::redesign`].
    pub fn follow(&self, advice: &Advice) -> Result<()> {
        let Some(better) = &advice.better else { return Ok(()) };
        self.core().tuning.redesign(&better.design, RedesignedBy::Follow, &advice.reason)
    }

    /// The recent workload: that of this process or, before its first operations, that stored at
    /// the last close.
    pub fn workload(&self) -> Workload {
        self.core().workload.workload()
    }

    /// Estimated miss ratio of lookups' data blocks with a block cache of `cache_bytes`, from
    /// recently observed lookups; `None` while there are too few. The estimate is for an LRU cache
    /// that admits every block. A cache that admits one missed block in 16, because reads are fast,
    /// has fewer misses.
    pub fn miss_ratio(&self, cache_bytes: u64) -> Option<f64> {
        self.core().workload.miss_ratio(cache_bytes)
    }
}

impl Db {
    /// As [`Db::ingest`], but the tables become a run of `level` at once instead of a run of level
    /// 0. So a tree is written from its deepest level up, and every entry is written once. For
    /// experiments and tests, with [`crate::Experimental::auto_compaction`] off; otherwise the next
    /// compaction reshapes the tree by its design.
    ///
    /// # Errors
    /// `Invalid` for a level beyond 64, and when a run lies above `level`, because its entries
    /// would count as newer. Otherwise as [`Db::ingest`].
    pub fn place<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        level: u32,
        pairs: impl IntoIterator<Item = (K, V)>,
    ) -> Result<u64> {
        self.core().scheduler.flusher().ingest(&self.keyspace, level, pairs)
    }
}
