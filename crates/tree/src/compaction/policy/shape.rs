//! Checks that a tree which the policy leaves alone is within the bounds of its design.

use super::rules::Rules;
use crate::version::Version;

impl Rules {
    /// Checks that the levels are within the bounds of the rules for bytes and runs, and that level
    /// 0 is below its compaction trigger. This holds whenever the policy finds nothing to compact.
    ///
    /// # Errors
    /// The first level that violates its bound, with the bound.
    pub fn check_shape(&self, version: &Version) -> Result<(), String> {
        let last = version.deepest_level().max(1);
        let capacities = self.capacities(version);
        for (level, runs) in version.levels() {
            if level == 0 {
                if self.is_l0_due(version, &capacities) {
                    let trigger = if self.is_draining { 1 } else { self.l0_compaction_trigger };
                    return Err(format!(
                        "level 0 has {} runs, its compaction trigger is {trigger}",
                        runs.len()
                    ));
                }
                continue;
            }
            let allowed = self.design.runs_allowed(level, last);
            if runs.len() > allowed as usize {
                return Err(format!("level {level} has {} runs, {allowed} allowed", runs.len()));
            }
            let (bytes, capacity) = (version.level_bytes(level), capacities.level_bytes(level));
            if bytes > capacity {
                return Err(format!("level {level} has {bytes} bytes, its capacity is {capacity}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use shamba_model::{Design, MergePolicy};

    use super::*;

    #[test]
    fn the_shape_is_that_of_the_design() {
        let shape = |text: &str, policy| {
            let rules = Rules::manual(Design::new(policy, 4.0, 100, 10.0), 2);
            text.parse::<Version>().and_then(|version| rules.check_shape(&version))
        };
        use MergePolicy::{LazyLeveling, Leveling, Tiering};
        let tree = "L0: r9@9[000019:a..z 100]\n\
                    L1: r8@8[000018:a..z 100] r7@7[000017:a..z 100] r6@6[000016:a..z 100]\n\
                    L2: r5@5[000015:a..z 1600]\n";
        assert_eq!(shape(tree, Tiering), Ok(()));
        assert_eq!(shape(tree, LazyLeveling), Ok(()));
        assert_eq!(shape(tree, Leveling).unwrap_err(), "level 1 has 3 runs, 1 allowed");
        let full = tree.replace("1600", "1601");
        assert_eq!(shape(&full, Tiering).unwrap_err(), "level 2 has 1601 bytes, its capacity is 1600");
        let l0 = tree.replace("L0:", "L0: r10@10[000020:a..z 1]");
        assert_eq!(shape(&l0, Tiering).unwrap_err(), "level 0 has 2 runs, its compaction trigger is 2");
        let last = "L1: r8@8[000018:a..z 100] r7@7[000017:a..z 100]\n";
        assert_eq!(shape(last, LazyLeveling).unwrap_err(), "level 1 has 2 runs, 1 allowed");
    }
}
