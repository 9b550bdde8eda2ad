//! Redesign: moves a live database to another design, while it is read and written.
//!
//! 1. The target is checked, and recorded in the manifest by one edit. From then on, also after a
//!    crash, it is the database's design.
//! 2. It is put in force ([`crate::options::settings::live`]): memtables, filters and compactions
//!    follow it from their next decision on.
//! 3. The tree now violates the shape of its design, as it can after a flush. The policy
//!    chooses the compactions that restore the shape, one after the other; each is a step from one
//!    valid tree to the next ([`shamba_tree::compaction::policy`]).
//!
//! So there is no intermediate state that a crash could corrupt: every tree is valid under every
//! design, and the remaining work follows from the tree and the design alone. A redesign during a
//! move replaces the target. Tables get the filter bits of the new plan when a compaction writes
//! them, or when a filter rewrite pays (`scheduler/filter_rewrite.rs`).
//!
//! The cost is forecast before the move ([`shamba_tree::compaction::forecast`]). Where the policy's
//! steps would write more than all of the data, and the write rate allows it, everything is
//! compacted at once instead, as by `compact`.
//!
//! Not here: choosing a better design ([`super::advise`]), and deciding on a move
//! ([`super::tuner`]).

use shamba_tree::version::ManifestEdit;

use super::DesignTuning;
use super::history::{History, Redesigned, RedesignedBy};
use crate::error::{Error, Result};
use crate::event::Event;
use crate::metrics::WorkCounters;
use crate::options::settings::Settings;
use crate::telemetry::hold_events;
use crate::tree_design::TreeDesign;

impl DesignTuning {
    /// Moves the database to another design. When it returns, the design is durable and in force;
    /// compactions continue in the background.
    ///
    /// # Errors
    /// `Invalid` for an invalid design; otherwise the error of recording it, and it is not in
    /// force.
    pub fn redesign(&self, target: &TreeDesign, by: RedesignedBy, reason: &str) -> Result<()> {
        let _events = hold_events();
        let event = self.redesign_locked(&mut self.history.lock(), target, by, reason)?;
        self.begin_move(event);
        Ok(())
    }

    /// Returns to the design before the last redesign.
    ///
    /// # Errors
    /// `Invalid` if there is none, or if it was undone already; errors of [`Self::redesign`].
    pub fn undo_redesign(&self) -> Result<TreeDesign> {
        let _events = hold_events();
        let mut history = self.history.lock();
        let last = history.last().filter(|last| last.by != RedesignedBy::Undo);
        let last = last.ok_or_else(|| Error::invalid("there is no redesign to undo"))?;
        let (target, now) = (last.from, self.settings.live.get().tree);
        if last.to != now {
            return Err(Error::invalid(format!(
                "the current design, {now}, was set by an open after the last redesign"
            )));
        }
        let event = self.redesign_locked(&mut history, &target, RedesignedBy::Undo, "undone")?;
        drop(history);
        self.begin_move(event);
        Ok(target)
    }

    /// Announces the design now in force and starts the compactions. Called without the history's
    /// lock, because listeners may take it.
    fn begin_move(&self, event: Option<Event>) {
        let Some(event) = event else { return };
        self.telemetry.emit(event);
        if let Some(mover) = self.mover() {
            mover.begin_move();
        }
    }

    /// Records a design and puts it in force. The history's lock serializes calls: the design
    /// recorded last must be the one in force. Returns `None` if it was in force already.
    fn redesign_locked(
        &self,
        history: &mut History,
        target: &TreeDesign,
        by: RedesignedBy,
        reason: &str,
    ) -> Result<Option<Event>> {
        self.lifecycle.check_writable()?;
        let wanted = Settings::clone(&self.settings);
        wanted.live.change(|live| *live = live.redesigned(target));
        wanted.validate()?;
        let (before, next) = (self.settings.live.get(), wanted.live.get());
        if next == before {
            return Ok(None);
        }
        let (from, to) = (before.tree, next.tree);
        let workload = self.workload.workload();
        let way = self.advisor.way(&to, &workload)?.beyond(&self.advisor.way(&from, &workload)?);
        let mut after = history.clone();
        after.push(Redesigned { unix_ms: self.clock.unix_ms(), by, from, to, reason: reason.to_owned() });
        let mut settings = next.to_pairs();
        settings.extend(self.workload.to_pairs());
        settings.push(after.to_pair());
        self.catalog
            .install(&[], Vec::new(), |_| Ok(ManifestEdit { settings, ..ManifestEdit::default() }))?;
        *history = after;
        self.settings.live.set(next);
        WorkCounters::add(&self.telemetry.work().redesigns, 1);
        if let Some(mover) = self.mover() {
            mover.design_changed(way.is_whole);
        }
        Ok(Some(Event::Redesign {
            from: from.to_string(),
            to: to.to_string(),
            by: by.name(),
            reason: reason.to_owned(),
            bytes: way.written_bytes,
            tree_bytes: way.tree_bytes,
        }))
    }
}
