//! Joined fences: one search over the bounds of all runs finds the table of every run for a key.
//!
//! A lookup needs from each run the one table whose range holds its key. Searching the runs
//! separately takes one search per run. Here the bounds (fences) of all runs' tables are in one
//! ascending list under [heads](LayeredHeads). For every gap between two of them a row holds the
//! result for every run. The cost of a search therefore hardly grows with the number of runs.
//!
//! ```text
//! run 0    [b  e)      [h    k)          list      b   d   e   h   i   k   m
//! run 1       [d         i)  [k m)       run 0   -   0   0   -   1   1   -   -
//!                                        run 1   -   -   0   0   0   -   1   -
//! ```
//!
//! Made for two runs or more, as long as the rows stay small ([`CELLS_MAX`]). Otherwise the runs
//! are searched separately, and tests compare the two methods.
//!
//! The fences of one run are in [`crate::version::Run`].

use shamba_key::LayeredHeads;

use super::RunPlan;

/// Maximum number of cells in all rows: 256 KiB, cheap enough to build again after each flush and
/// compaction.
const CELLS_MAX: usize = 1 << 17;
/// No table.
const NONE: u16 = u16::MAX;

/// The fences of all runs of a view, in one list.
pub(super) struct JoinedFences {
    heads: LayeredHeads,
    /// The owner of each fence: the place of its run in the view, and its number in the run.
    owners: Box<[(u16, u32)]>,
    /// For each gap (before the first fence, between two, and after the last) a table's number for
    /// every run.
    rows: Box<[u16]>,
    runs: usize,
}

impl JoinedFences {
    /// Joins the fences of the runs of `plans`; `None` for a single run or too many fences.
    pub(super) fn new(plans: &[RunPlan]) -> Option<Self> {
        let runs = plans.len();
        let count: usize = plans.iter().map(|plan| plan.run.fence_count()).sum();
        let fits = (count + 1).saturating_mul(runs) <= CELLS_MAX;
        if runs < 2 || !fits || plans.iter().any(|plan| plan.run.tables().len() >= usize::from(NONE)) {
            return None;
        }
        // Both numbers are below the bound on cells.
        let of = |run: usize, plan: &RunPlan| {
            (0..plan.run.fence_count() as u32).map(move |fence| (run as u16, fence))
        };
        let mut owners: Vec<(u16, u32)> =
            plans.iter().enumerate().flat_map(|(run, plan)| of(run, plan)).collect();
        owners.sort_by(|a, b| key_of(plans, *a).cmp(key_of(plans, *b)));
        let mut passed = vec![0u32; runs];
        let mut rows = vec![NONE; runs];
        rows.reserve_exact(count * runs);
        for (run, _) in &owners {
            passed[usize::from(*run)] += 1;
            // As in a single run: a key lies in a table if an odd number of fences is at or below
            // it.
            rows.extend(passed.iter().map(|fences| if fences % 2 == 1 { (fences / 2) as u16 } else { NONE }));
        }
        assert_eq!(owners.len(), count, "each fence of {runs} runs has one owner");
        assert_eq!(rows.len(), (count + 1) * runs, "a row for each gap between {count} fences");
        debug_assert!(
            plans.iter().zip(&passed).all(|(plan, passed)| plan.run.fence_count() == *passed as usize),
            "the last row has not passed every fence"
        );
        let heads = LayeredHeads::new(count, |number| key_of(plans, owners[number]));
        Some(Self { heads, owners: owners.into(), rows: rows.into(), runs })
    }

    /// Bytes held on the heap.
    pub(super) fn memory_bytes(&self) -> usize {
        self.heads.memory_bytes() + size_of_val(&*self.owners) + size_of_val(&*self.rows)
    }

    /// For every run of `plans`, the table whose range holds `key`. `plans` must be those of
    /// [`Self::new`].
    #[inline]
    pub(super) fn row(&self, plans: &[RunPlan], key: &[u8]) -> Row<'_> {
        let at = self.heads.upper_bound(key, |number| {
            self.owners.get(number).map_or(&[][..], |owner| key_of(plans, *owner))
        });
        debug_assert_eq!(plans.len(), self.runs, "fences of another view");
        debug_assert!(at <= self.owners.len(), "gap {at} of {} fences", self.owners.len());
        Row(self.rows.get(at * self.runs..(at + 1) * self.runs).unwrap_or_default())
    }
}

fn key_of(plans: &[RunPlan], (run, fence): (u16, u32)) -> &[u8] {
    plans.get(usize::from(run)).map_or(&[], |plan| plan.run.fence(fence as usize))
}

/// The result of a search for every run.
#[derive(Clone, Copy)]
pub(super) struct Row<'a>(&'a [u16]);

impl Row<'_> {
    /// The number of the table in the run at `place`.
    #[inline]
    pub(super) fn number(self, place: usize) -> Option<usize> {
        self.0.get(place).filter(|number| **number != NONE).map(|number| usize::from(*number))
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;
    use crate::version::Version;
    use crate::view::probes;

    fn plans(version: &Version) -> Vec<RunPlan> {
        let plan = |(level, run): (u32, &std::sync::Arc<crate::version::Run>)| RunPlan {
            has_prefixes: false,
            level,
            run: run.clone(),
            probes: probes(run),
        };
        version.runs().map(plan).collect()
    }

    /// Runs of tables between some of 60 keys: short keys, and keys that share long prefixes.
    fn random_version(rng: &mut fastrand::Rng) -> Version {
        let key = |number: u32| match number % 3 {
            0 => format!("k{number:02}"),
            _ => format!("k{:02}-a-long-prefix-{number:02}", number / 20),
        };
        let mut names: Vec<String> = (0..60).map(key).collect();
        names.sort();
        let mut text = String::new();
        for level in 1..=rng.u32(1..9) {
            let mut bounds: Vec<&String> = names.iter().filter(|_| rng.u32(..6) == 0).collect();
            bounds.dedup();
            let mut tables = Vec::new();
            let mut at = 0;
            while at + 1 < bounds.len() {
                tables.push(format!("{:06}:{}..{} 1", level * 100 + at as u32, bounds[at], bounds[at + 1]));
                at += 1 + rng.usize(..2); // Now and then one ends where the next starts.
            }
            if rng.bool() {
                let last = bounds.last().map_or("k", |last| last.as_str());
                tables.push(format!("{:06}:{last}.. 1", level * 100 + 99));
            }
            if !tables.is_empty() {
                writeln!(text, "L{level}: r{level}@{level}[{}]", tables.join(", ")).expect("written");
            }
        }
        text.parse().unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    #[test]
    fn one_search_says_what_each_run_says() {
        let mut joined_runs = 0;
        for seed in 0..400 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let version = random_version(&mut rng);
            let plans = plans(&version);
            let Some(joined) = JoinedFences::new(&plans) else {
                assert!(plans.len() < 2, "seed {seed}");
                continue;
            };
            joined_runs += plans.len();
            let bounds = plans
                .iter()
                .flat_map(|plan| (0..plan.run.fence_count()).map(|fence| plan.run.fence(fence).to_vec()));
            let mut keys: Vec<Vec<u8>> = bounds.collect();
            keys.extend([b"".to_vec(), b"k".to_vec(), b"z".to_vec()]);
            for key in keys.clone() {
                keys.push([&key[..], b"\0"].concat());
                keys.push([&key[..key.len().saturating_sub(1)], b"~~~~~~~~~~"].concat());
                keys.push(key[..key.len().saturating_sub(1)].to_vec());
            }
            for key in keys {
                let row = joined.row(&plans, &key);
                for (place, plan) in plans.iter().enumerate() {
                    assert_eq!(
                        row.number(place),
                        plan.run.number_for(&key),
                        "seed {seed}, {key:?}, run {place}"
                    );
                }
                assert_eq!(row.number(plans.len()), None);
            }
        }
        assert!(joined_runs > 1_000, "{joined_runs}");
    }

    #[test]
    fn too_many_fences_are_not_joined() {
        let run = |level: u32, tables: u32| {
            let table = |n: u32| format!("{:06}:k{n:05}..k{:05} 1", level * 100_000 + n, n + 1);
            format!("L{level}: r{level}@{level}[{}]\n", (0..tables).map(table).collect::<Vec<_>>().join(", "))
        };
        let joined = |tables: u32| {
            let version: Version = (run(1, tables) + &run(2, tables)).parse().expect("notation");
            JoinedFences::new(&plans(&version)).is_some()
        };
        // Four fences for each of the tables, in rows of two.
        let most = (CELLS_MAX as u32 / 2 - 1) / 4;
        assert_eq!((joined(most), joined(most + 1)), (true, false));
    }

    #[test]
    fn the_memory_is_that_of_the_heads_the_owners_and_the_rows() {
        let text = "L1: r2@2[1:a..c 1]\nL2: r1@1[2:b..d 1, 3:e.. 1]\n";
        let joined = JoinedFences::new(&plans(&text.parse().expect("notation"))).expect("two runs");
        let fences: [&[u8]; 5] = [b"a", b"b", b"c", b"d", b"e"];
        let heads_bytes = LayeredHeads::new(fences.len(), |number| fences[number]).memory_bytes();
        assert!(heads_bytes > 0);
        // Owners of 8 bytes, and cells of 2 bytes for two runs in each of the gaps.
        assert_eq!(joined.memory_bytes(), heads_bytes + 5 * 8 + 6 * 2 * 2);
    }
}
