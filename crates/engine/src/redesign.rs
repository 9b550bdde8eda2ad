//! Redesign: a live database moves to another design, while it is read and written.
//!
//! 1. The target is checked, and recorded in the manifest by one edit: from then on, also after a crash, it is the
//!    design.
//! 2. It is put in force ([`crate::settings::live`]): memtables, filters and merges follow it from their next
//!    decision on.
//! 3. The tree is out of its shape now, which is nothing new to it: the policy finds the merges that bring it
//!    there, one after the other, each a step from one valid tree to the next ([`crate::compaction::policy`]).
//!
//! So there is no state "in between" that a crash could tear: every tree is valid under every design, and what is left
//! to do follows from the tree and the design alone. A redesign while the tree is still on its way simply replaces the
//! target. Tables get the filter bits of the new plan when a merge writes them, or when a refit finds that it pays
//! ([`crate::refit`]).
//!
//! What it will cost is known before ([`crate::compaction::forecast`]).
//!
//! Not here: which design would be better (`advise`), and who decides (`tuner`).

use shamba_model::Design;
use shamba_model::allocation::Allocation;

use crate::compaction::forecast::{Forecast, forecast};
use crate::compaction::policy::Rules;
use crate::core::{Core, lock};
use crate::db::Db;
use crate::error::Result;
use crate::event::Event;
use crate::metrics::WorkCounters;
use crate::settings::LiveSettings;
use crate::version::ManifestEdit;

/// What [`crate::Db::redesign`] can change: the shape of the tree and the plan of its filters.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TreeDesign {
    /// Size ratio, runs, write buffer, filter bits per key.
    pub design: Design,
    /// Bytes of all filters together, in place of the design's bits per key; `None`: as the design has it.
    pub filter_memory_bytes: Option<u64>,
    /// What filter bits follow when tables are built.
    pub allocation: Allocation,
}

impl std::fmt::Display for TreeDesign {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {} filters", self.design, self.allocation)?;
        self.filter_memory_bytes.map_or(Ok(()), |bytes| write!(f, " of {bytes} bytes"))
    }
}

impl LiveSettings {
    /// Their public part.
    pub(crate) fn tree_design(&self) -> TreeDesign {
        TreeDesign {
            design: self.design,
            filter_memory_bytes: self.filter_memory_bytes,
            allocation: self.filter_allocation,
        }
    }

    /// Settings with another public part. The policy that was named stays while (K, Z) are what it asks for.
    fn redesigned(&self, target: &TreeDesign) -> Self {
        let TreeDesign { design, filter_memory_bytes, allocation } = *target;
        let runs = (design.inner_runs, design.last_runs);
        let named = self.policy.filter(|policy| policy.runs(design.size_ratio) == runs);
        let policy = named.or_else(|| design.policy());
        Self { design, policy, filter_allocation: allocation, filter_memory_bytes }
    }
}

impl Db {
    /// The design in force with the plan of its filters: what [`Self::redesign`] changes.
    pub fn tree_design(&self) -> TreeDesign {
        self.core().settings.live.get().tree_design()
    }

    /// Moves the live database to another design, for good: it is recorded, and in force when this returns. Merges then move
    /// the trees there step by step, while reads and writes go on; [`crate::Stats::debt_bytes`] says how much they still have to
    /// move, [`Self::wait_idle`] waits for it. Called again on the way, the new target replaces the old one. Tables keep
    /// their filters until a merge writes them anew.
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
    /// `Invalid` for a design that cannot be; `ReadOnly`, `Closed`, `Io` and `NoSpace` when it could not be recorded, and
    /// then it is not in force.
    pub fn redesign(&self, target: &TreeDesign) -> Result<()> {
        self.core().redesign(target)
    }
}

impl Core {
    /// Moves the database to another design. When it returns, the design is durable and in force; merges go on.
    ///
    /// # Errors
    /// `Invalid` for a design that cannot be; otherwise what recording it failed with, and it is not in force.
    pub(crate) fn redesign(&self, target: &TreeDesign) -> Result<()> {
        self.check_writable()?;
        let wanted = self.settings.clone();
        wanted.live.change(|live| *live = live.redesigned(target));
        wanted.validate()?;
        {
            // One at a time: what is recorded last must be in force last.
            let _one = lock(&self.redesigning);
            let before = self.settings.live.get();
            let next = before.redesigned(target);
            if next == before {
                return Ok(());
            }
            self.install(None, |_| {
                Ok(ManifestEdit { settings: next.to_pairs(), ..ManifestEdit::default() })
            })?;
            self.settings.live.set(next);
            // What the arbiter made of the old buffer says nothing about the new one.
            self.residency.forget_memtable_bytes();
            WorkCounters::add(&self.work.redesigns, 1);
            let (from, to) = (before.tree_design(), next.tree_design());
            self.events.emit(&Event::Redesign {
                from: from.to_string(),
                to: to.to_string(),
                bytes: self.forecast(target).written_bytes,
            });
        }
        self.background.room.changed();
        self.want_settlement();
        self.background.wake.notify_all();
        if self.is_inline() {
            self.run_background_inline();
        }
        Ok(())
    }

    /// What moving all trees to a design would write, from what they are now.
    pub(crate) fn forecast(&self, target: &TreeDesign) -> Forecast {
        let rules = Rules { design: target.design, ..self.rules(true) };
        let table_bytes = self.settings.table_bytes();
        let keyspaces = self.keyspaces.load();
        keyspaces
            .values()
            .map(|keyspace| forecast(&keyspace.load().version, &rules, table_bytes))
            .fold(Forecast::default(), Forecast::and)
    }
}
