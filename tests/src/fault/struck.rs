//! The faults of a life that have occurred.

use shamba::env::{OpKind, Persistence};

use super::{Fault, Life};

impl Life<'_> {
    /// Number of the faults that have occurred.
    pub(super) fn struck(&self) -> usize {
        // Rules were added in the order of the faults; for a torn append the first rule tells
        // whether it occurred.
        let mut rules = self.faulty.rules_struck().into_iter();
        let has_come = |fault: &&Fault| match fault {
            Fault::Fsync { .. } => self.has_struck_sync(**fault),
            Fault::Torn { .. } => {
                let came = rules.next().unwrap_or(false);
                rules.next();
                came
            }
            Fault::Call { .. } | Fault::Storm { .. } => rules.next().unwrap_or(false),
        };
        self.faults.iter().filter(has_come).count()
    }

    /// Whether the fault is a sync that has failed.
    pub(super) fn has_struck_sync(&self, fault: Fault) -> bool {
        matches!(fault, Fault::Fsync { nth, .. } if self.sim.sync_count() > self.syncs_before + nth)
    }

    /// Whether syncs go on failing.
    pub(super) fn syncs_still_fail(&self) -> bool {
        self.faults.iter().any(|fault| matches!(fault, Fault::Fsync { sticky: true, .. }))
    }

    /// Whether the one call that failed is one after which a full disk must not stop writes for
    /// good: an append to a file or the creation of one. (A failed sync, rename or truncation does:
    /// it makes the database read-only.)
    pub(super) fn struck_where_space_returns(&self) -> bool {
        let [Fault::Call { nth, persistence: Persistence::Once, .. }] = *self.faults else { return false };
        let takes_space = |kind: &OpKind| {
            use OpKind::{
                Append, Create, CreateDir, Link, Lock, Rename, SyncAll, SyncData, SyncDir, Truncate,
            };
            matches!(
                kind,
                Create | Append | SyncData | SyncAll | SyncDir | Truncate | Rename | Link | CreateDir | Lock
            )
        };
        let calls = self.faulty.take_trace();
        let struck = calls.iter().filter(|(kind, _)| takes_space(kind)).nth(nth as usize);
        struck.is_some_and(|(kind, path)| {
            let name = path.to_string_lossy();
            let is_ours = [".log", ".sst", ".values"].iter().any(|ending| name.ends_with(ending));
            matches!(kind, OpKind::Append | OpKind::Create) && (is_ours || name.contains("MANIFEST-"))
        })
    }
}
