//! The design of a database: the settings that [`crate::Db::redesign`] changes while it is open.

use std::fmt;

use shamba_model::Design;
use shamba_model::allocation::Allocation;

use crate::options::settings::LiveSettings;

/// The part of a database's design that [`crate::Db::redesign`] can change: the shape of the tree
/// and the plan of its filters.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TreeDesign {
    /// Size ratio, runs, write buffer, filter bits per key.
    pub design: Design,
    /// Bytes of all filters together, in place of the design's bits per key; `None`: by the bits
    /// per key.
    pub filter_memory_bytes: Option<u64>,
    /// Distribution of filter bits over tables when they are built.
    pub allocation: Allocation,
}

impl fmt::Display for TreeDesign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} filters", self.design, self.allocation)?;
        self.filter_memory_bytes.map_or(Ok(()), |bytes| write!(f, " of {bytes} bytes"))
    }
}

impl LiveSettings {
    /// The public part of the settings.
    pub(crate) fn tree_design(&self) -> TreeDesign {
        TreeDesign {
            design: self.design,
            filter_memory_bytes: self.filter_memory_bytes,
            allocation: self.filter_allocation,
        }
    }

    /// The settings with another public part. The named policy stays while it gives the target's
    /// (K, Z).
    pub(crate) fn redesigned(&self, target: &TreeDesign) -> Self {
        let TreeDesign { design, filter_memory_bytes, allocation } = *target;
        let runs = (design.inner_runs, design.last_runs);
        let named = self.policy.filter(|policy| policy.runs(design.size_ratio) == runs);
        let policy = named.or_else(|| design.policy());
        debug_assert!(
            policy.is_none_or(|policy| policy.runs(design.size_ratio) == runs),
            "a redesign names a policy with other runs"
        );
        Self { design, policy, filter_allocation: allocation, filter_memory_bytes }
    }
}

#[cfg(test)]
mod tests {
    use shamba_model::MergePolicy;

    use super::*;

    #[test]
    fn a_named_policy_stays_while_it_gives_the_runs_of_the_target() {
        let design = |policy, size_ratio| Design::new(policy, size_ratio, 1 << 20, 10.0);
        let before = LiveSettings {
            design: design(MergePolicy::Tiering, 4.0),
            policy: Some(MergePolicy::Tiering),
            filter_allocation: Allocation::Monkey,
            filter_memory_bytes: None,
        };
        let target = |design| TreeDesign { design, ..before.tree_design() };
        let after = before.redesigned(&target(design(MergePolicy::Tiering, 6.0)));
        assert_eq!(after.policy, Some(MergePolicy::Tiering));
        assert_eq!(after.tree_design(), target(design(MergePolicy::Tiering, 6.0)));
        let leveled = before.redesigned(&target(design(MergePolicy::Leveling, 10.0)));
        assert_eq!(leveled.policy, Some(MergePolicy::Leveling));
        let between = Design { inner_runs: 2, last_runs: 3, ..design(MergePolicy::Tiering, 10.0) };
        assert_eq!(before.redesigned(&target(between)).policy, None, "no policy has these runs");
    }
}
