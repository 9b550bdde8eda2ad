//! Versions: the tree of one keyspace at one moment, as an immutable value.
//!
//! Level 0 holds flushed runs; level 1 and deeper levels hold the outputs of compactions. A lookup
//! searches runs in *lookup order*: level 0 first, and within a level the newest run (largest age)
//! first. It stops at the first match, so every version of a key in a run must be newer than any
//! version of it in a later run. [`Version::apply`] creates the next version, which shares every
//! run that the edit does not name.
//!
//! Invariants that `apply` enforces for any edit: run ids are unique, ages differ within a level,
//! and those of [`Run::new`]. `Version::check` verifies the remaining ones, in tests and in
//! `check`.
//!
//! Not here: text ([`super::notation`]), encoding ([`super::manifest`]), the choice of compactions
//! ([`crate::compaction::policy`]).

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use shamba_model::MAX_LEVELS;
use shamba_table::TableId;

use super::edit::{Change, TableUse, VersionEdit};
use super::hidden::HiddenValues;
use super::run::Run;
use super::values::ValueTotals;
use shamba_key::{Age, RunId};

/// The tree of one keyspace.
#[derive(Clone, Debug, Default)]
pub struct Version {
    /// Runs of each level, newest first. The last level is not empty; others may be.
    levels: Vec<Vec<Arc<Run>>>,
    values: Arc<OfValues>,
}

/// Sums over the values to which tables refer, computed at the first call for all copies of a
/// version.
#[derive(Default, Debug)]
struct OfValues {
    totals: OnceLock<ValueTotals>,
    hidden: OnceLock<HiddenValues>,
}

impl Version {
    /// Creates a tree without runs.
    pub fn empty() -> Self {
        Self::default()
    }

    /// The runs of a level, newest first; empty for a level that the tree does not have.
    pub fn level(&self, level: u32) -> &[Arc<Run>] {
        usize::try_from(level).ok().and_then(|level| self.levels.get(level)).map_or(&[], Vec::as_slice)
    }

    /// Every level with its number, level 0 first. Levels may be empty.
    pub fn levels(&self) -> impl DoubleEndedIterator<Item = (u32, &[Arc<Run>])> + ExactSizeIterator {
        self.levels.iter().enumerate().map(|(level, runs)| (level as u32, runs.as_slice()))
    }

    /// Every run with its level, in lookup order.
    pub fn runs(&self) -> impl Iterator<Item = (u32, &Arc<Run>)> {
        self.levels().flat_map(|(level, runs)| runs.iter().map(move |run| (level, run)))
    }

    /// The relations between the runs that hold in every version.
    fn check_order(&self) {
        debug_assert!(
            self.levels.last().is_none_or(|runs| !runs.is_empty()),
            "the last of {} levels is empty",
            self.levels.len()
        );
        debug_assert!(
            self.levels.len() <= MAX_LEVELS as usize + 1,
            "a tree of {} levels, the maximum is {MAX_LEVELS}",
            self.levels.len()
        );
        for (level, runs) in self.levels() {
            debug_assert!(
                runs.is_sorted_by(|newer, older| newer.age > older.age),
                "level {level}: the runs are not in the order of their ages: {:?}",
                runs.iter().map(|run| (run.id, run.age)).collect::<Vec<_>>()
            );
            debug_assert!(
                runs.iter().all(|run| !run.tables().is_empty()),
                "level {level}: a run has no tables"
            );
        }
        debug_assert!(
            self.runs().map(|(_, run)| run.id).collect::<std::collections::BTreeSet<_>>().len()
                == self.run_count(),
            "two of {} runs have the same id",
            self.run_count()
        );
    }

    /// The run `id` and its level.
    pub fn run(&self, id: RunId) -> Option<(u32, &Arc<Run>)> {
        self.runs().find(|(_, run)| run.id == id)
    }

    /// Every use of a table, with its level and run, in lookup order.
    pub fn tables(&self) -> impl Iterator<Item = (u32, &Arc<Run>, &TableUse)> {
        self.runs().flat_map(|(level, run)| run.tables().iter().map(move |table| (level, run, table)))
    }

    /// The deepest level that is not empty; 0 if only level 0 holds runs.
    pub fn deepest_level(&self) -> u32 {
        (self.levels.len() as u32).saturating_sub(1)
    }

    /// Number of runs, level 0 included: the maximum that a lookup may have to search.
    pub fn run_count(&self) -> usize {
        self.levels.iter().map(Vec::len).sum()
    }

    /// Approximate number of bytes in use on a level.
    pub fn level_bytes(&self, level: u32) -> u64 {
        self.level(level).iter().fold(0, |sum, run| sum.saturating_add(run.bytes()))
    }

    /// Approximate number of bytes in use in the tree.
    pub fn bytes(&self) -> u64 {
        self.runs().fold(0, |sum, (_, run)| sum.saturating_add(run.bytes()))
    }

    /// Stored bytes of the values in value files to which the tables in use refer.
    pub fn value_bytes(&self) -> u64 {
        self.runs().fold(0, |sum, (_, run)| sum.saturating_add(run.value_bytes()))
    }

    /// The live value files, and the references to each. The first call of a version passes over
    /// the uses of tables that name any.
    pub fn value_totals(&self) -> &ValueTotals {
        self.values.totals.get_or_init(|| {
            let runs = self.runs().filter(|(_, run)| run.names_value_files());
            let tables = runs.flat_map(|(_, run)| run.tables());
            ValueTotals::of(tables.map(|table| (table.meta.values.get(), &table.values)))
        })
    }

    /// The only run of the deepest level; `None` if that is level 0 or has several.
    pub fn single_last_run(&self) -> Option<&Arc<Run>> {
        let deepest = self.deepest_level();
        match self.level(deepest) {
            [last] if deepest > 0 => Some(last),
            _ => None,
        }
    }

    /// The values of the last run that deletes above it hide; none if it is not alone on its level.
    pub fn hidden_values(&self) -> &HiddenValues {
        self.values.hidden.get_or_init(|| {
            self.single_last_run().map(|last| HiddenValues::of(self, last)).unwrap_or_default()
        })
    }

    /// Returns the tree after an edit.
    ///
    /// # Errors
    /// A phrase that names the level, run or table that the edit does not fit, and the reason.
    pub fn apply(&self, edit: &VersionEdit) -> Result<Self, String> {
        let mut drafts = Drafts { version: self, by_run: BTreeMap::new() };
        for change in &edit.changes {
            drafts.change(change)?;
        }
        let mut levels = self.levels.clone();
        for runs in &mut levels {
            runs.retain(|run| !drafts.by_run.contains_key(&run.id));
        }
        for (id, draft) in drafts.by_run.into_iter().filter(|(_, draft)| !draft.tables.is_empty()) {
            let at = draft.level as usize;
            if levels.len() <= at {
                levels.resize_with(at + 1, Vec::new);
            }
            let runs = &mut levels[at];
            let place = runs.partition_point(|run| run.age > draft.age);
            if let Some(other) = runs.get(place).filter(|run| run.age == draft.age) {
                return Err(format!(
                    "level {at}: runs {id} and {} have the same age {}",
                    other.id, draft.age
                ));
            }
            let run = Run::new(id, draft.age, draft.tables).map_err(|why| format!("level {at}: {why}"))?;
            runs.insert(place, Arc::new(run));
        }
        while levels.last().is_some_and(Vec::is_empty) {
            levels.pop();
        }
        let next = Self { levels, values: Arc::default() };
        next.check_order();
        debug_assert!(
            edit.changes.iter().all(|change| match change {
                Change::Add { level, run, .. } | Change::Narrow { level, run, .. } => {
                    next.run(*run).is_none_or(|(found, _)| found == *level)
                }
                Change::Remove { .. } => true,
            }),
            "a run is on another level than its edit says: {edit:?}"
        );
        debug_assert!(
            self.runs().filter(|(_, run)| !edit.names(run.id)).all(|(level, run)| {
                next.run(run.id).is_some_and(|(at, same)| at == level && Arc::ptr_eq(run, same))
            }),
            "a run that the edit does not name has changed: {edit:?}"
        );
        Ok(next)
    }
}

/// The runs that an edit changes, while it is applied.
struct Drafts<'v> {
    version: &'v Version,
    by_run: BTreeMap<RunId, Draft>,
}

struct Draft {
    level: u32,
    age: Age,
    tables: Vec<TableUse>,
    /// The place of each table in the list.
    places: HashMap<TableId, usize>,
}

impl Drafts<'_> {
    fn change(&mut self, change: &Change) -> Result<(), String> {
        match change {
            Change::Add { level, run, age, table } => {
                let draft = self.draft(*level, *run, Some(*age))?;
                if draft.places.insert(table.meta.id, draft.tables.len()).is_some() {
                    return Err(format!("level {level}: run {run} has table {} already", table.meta.id));
                }
                draft.tables.push(table.clone());
            }
            Change::Remove { level, run, table } => {
                let draft = self.draft(*level, *run, None)?;
                let at = draft.place(*level, *run, *table)?;
                draft.remove(at);
            }
            Change::Narrow { level, run, table, range, live_bytes, values } => {
                let draft = self.draft(*level, *run, None)?;
                let at = draft.place(*level, *run, *table)?;
                let narrowed = &mut draft.tables[at];
                if !narrowed.range.covers(range) {
                    return Err(format!("level {level}: run {run}: table {table} would cover more keys"));
                }
                if !narrowed.values.covers(values) {
                    return Err(format!(
                        "level {level}: run {run}: table {table} would refer to more values"
                    ));
                }
                narrowed.range = range.clone();
                narrowed.live_bytes = *live_bytes;
                narrowed.values = values.clone();
            }
        }
        Ok(())
    }

    /// Returns the draft of a run. Only a change that states an age can create a run.
    fn draft(&mut self, level: u32, run: RunId, age: Option<Age>) -> Result<&mut Draft, String> {
        // The level comes from a file: without this bound, a damaged number could allocate 4
        // billion lists.
        if level > MAX_LEVELS {
            return Err(format!("run {run} is on level {level}; the maximum is {MAX_LEVELS}"));
        }
        let draft = match self.by_run.entry(run) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(match (self.version.run(run), age) {
                    (Some((level, run)), _) => Draft::new(level, run.age, run.tables().to_vec()),
                    (None, Some(age)) => Draft::new(level, age, Vec::new()),
                    (None, None) => return Err(format!("level {level} has no run {run}")),
                })
            }
        };
        if draft.level != level {
            return Err(format!("run {run} is on level {}, not {level}", draft.level));
        }
        if let Some(age) = age.filter(|age| *age != draft.age) {
            return Err(format!("level {level}: run {run} has age {}, not {age}", draft.age));
        }
        Ok(draft)
    }
}

impl Draft {
    fn new(level: u32, age: Age, tables: Vec<TableUse>) -> Self {
        let places = tables.iter().enumerate().map(|(at, table)| (table.meta.id, at)).collect();
        Self { level, age, tables, places }
    }

    fn place(&self, level: u32, run: RunId, table: TableId) -> Result<usize, String> {
        let place = self.places.get(&table).copied();
        place.ok_or_else(|| format!("level {level}: run {run} has no table {table}"))
    }

    fn remove(&mut self, at: usize) {
        let removed = self.tables.swap_remove(at);
        self.places.remove(&removed.meta.id);
        if let Some(moved) = self.tables.get(at) {
            self.places.insert(moved.meta.id, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::version::{KeyRange, ValueUse, ValueUses};
    use shamba_table::ValueFileId;

    fn version(text: &str) -> Version {
        text.parse().expect("notation")
    }

    fn table(text: &str) -> TableUse {
        version(&format!("L1: r1@1[{text}]\n")).level(1)[0].tables()[0].clone()
    }

    fn add(level: u32, run: u64, age: u64, text: &str) -> Change {
        Change::Add { level, run: RunId(run), age: Age(age), table: table(text) }
    }

    fn remove(level: u32, run: u64, id: u64) -> Change {
        Change::Remove { level, run: RunId(run), table: TableId(id) }
    }

    fn apply(to: &Version, changes: Vec<Change>) -> Result<Version, String> {
        to.apply(&VersionEdit { changes, ..VersionEdit::default() })
    }

    #[test]
    fn runs_come_and_go_with_their_tables() {
        let first = apply(
            &Version::empty(),
            vec![add(0, 1, 1, "000011:a..m 10"), add(0, 2, 2, "000012:a..z 5"), add(3, 3, 3, "000013:a.. 7")],
        )
        .expect("a good edit");
        assert_eq!(
            first.to_string(),
            "L0: r2@2[000012:a..z 5] r1@1[000011:a..m 10]\nL3: r3@3[000013:a.. 7]\n"
        );
        assert_eq!((first.deepest_level(), first.run_count(), first.bytes()), (3, 3, 22));

        let second = apply(&first, vec![remove(0, 1, 11), remove(3, 3, 13)]).expect("a good edit");
        assert_eq!(second.to_string(), "L0: r2@2[000012:a..z 5]\n");
        assert_eq!(second.deepest_level(), 0, "levels that are empty at the end are gone");
        assert!(Arc::ptr_eq(&first.level(0)[0], &second.level(0)[0]), "an untouched run is shared");
    }

    #[test]
    fn a_run_may_lose_its_last_table_and_gain_another_in_one_edit() {
        let first = version("L1: r1@1[000001:a..c 1]\n");
        let second =
            apply(&first, vec![remove(1, 1, 1), add(1, 1, 1, "000002:a..b 1")]).expect("a good edit");
        assert_eq!(second.to_string(), "L1: r1@1[000002:a..b 1]\n");
    }

    #[test]
    fn narrowing_keeps_the_file_and_counts_less_of_it() {
        let first = version("L1: r1@1[000001:a..m 10]\n");
        let range = KeyRange { lower: "d".into(), upper: Some("m".into()) };
        let (level, run, table) = (1, RunId(1), TableId(1));
        let narrow = |range| {
            let values = Default::default();
            vec![Change::Narrow { level, run, table, range, live_bytes: 6, values }]
        };
        let second = apply(&first, narrow(range)).expect("a good edit");
        assert_eq!(second.to_string(), "L1: r1@1[000001:d..m of a..m 6 of 10]\n");
        assert_eq!(second.bytes(), 6);
        let wider = KeyRange { lower: "c".into(), upper: Some("m".into()) };
        assert_eq!(
            apply(&second, narrow(wider)).unwrap_err(),
            "level 1: run 1: table 000001 would cover more keys"
        );
        let nothing = KeyRange { lower: "e".into(), upper: Some("e".into()) };
        assert_eq!(
            apply(&second, narrow(nothing)).unwrap_err(),
            "level 1: run 1: no key is in the range of table 000001"
        );
    }

    #[test]
    fn a_narrowed_use_refers_to_fewer_values() {
        let text = "L1: r1@1[000001:a..m 10 val=31:4:400]\nV: 000031 1128 n=10\n";
        let first = version(text);
        let values = |values, bytes| {
            let file = Arc::clone(&first.value_totals().get(ValueFileId(31)).expect("it is named").file);
            ValueUses::sum([ValueUse { file, values, bytes }])
        };
        let narrow = |values| {
            let range = KeyRange { lower: "d".into(), upper: Some("m".into()) };
            vec![Change::Narrow { level: 1, run: RunId(1), table: TableId(1), range, live_bytes: 6, values }]
        };
        let second = apply(&first, narrow(values(3, 290))).expect("a good edit");
        let narrowed = "L1: r1@1[000001:d..m of a..m 6 of 10 val=31:3:290 of 4:400]\nV: 000031 1128 n=10\n";
        assert_eq!(second.to_string(), narrowed);
        assert_eq!((first.value_bytes(), second.value_bytes()), (400, 290));
        let none = apply(&second, narrow(ValueUses::default())).expect("a good edit");
        assert_eq!((none.value_bytes(), none.value_totals().file_bytes()), (0, 1128), "the table names it");
        assert_eq!(
            apply(&second, narrow(values(3, 291))).unwrap_err(),
            "level 1: run 1: table 000001 would refer to more values"
        );
    }

    #[test]
    fn edits_that_do_not_fit_are_refused_by_name() {
        let tree = version("L1: r7@7[000001:a..c 1, 000002:c..e 1] r5@5[000003:a.. 1]\n");
        for (change, why) in [
            (remove(1, 9, 1), "level 1 has no run 9"),
            (remove(2, 7, 1), "run 7 is on level 1, not 2"),
            (remove(1, 7, 3), "level 1: run 7 has no table 000003"),
            (add(2, 7, 7, "000009:x..y 1"), "run 7 is on level 1, not 2"),
            (add(1, 7, 8, "000009:x..y 1"), "level 1: run 7 has age 7, not 8"),
            (add(1, 7, 7, "000002:x..y 1"), "level 1: run 7 has table 000002 already"),
            (add(1, 7, 7, "000009:b..b\\x00 1"), "level 1: run 7: tables 000001 and 000009 share keys"),
            (add(1, 8, 5, "000009:x..y 1"), "level 1: runs 8 and 5 have the same age 5"),
            (add(u32::MAX, 8, 8, "000009:x..y 1"), "run 8 is on level 4294967295; the maximum is 64"),
        ] {
            assert_eq!(apply(&tree, vec![change]).unwrap_err(), why);
        }
    }

    #[test]
    fn a_run_may_be_on_the_deepest_level_and_not_below_it() {
        let on = |level| apply(&Version::empty(), vec![add(level, 8, 8, "000009:x..y 1")]);
        assert_eq!(on(MAX_LEVELS).expect("the deepest level").deepest_level(), MAX_LEVELS);
        assert_eq!(on(MAX_LEVELS + 1).unwrap_err(), "run 8 is on level 65; the maximum is 64");
    }

    #[test]
    fn the_last_run_is_alone_on_the_deepest_level_below_level_0() {
        let last = |text: &str| version(text).single_last_run().map(|run| run.id.0);
        assert_eq!(last(""), None);
        assert_eq!(last("L0: r1@1[1:a..c 1]\n"), None);
        assert_eq!(last("L0: r2@2[2:a..c 1]\nL1: r1@1[1:a..c 1]\n"), Some(1));
        assert_eq!(last("L3: r1@1[1:a..c 1]\n"), Some(1));
        assert_eq!(last("L2: r3@3[3:a..c 1]\nL3: r2@2[2:a..c 1] r1@1[1:a..c 1]\n"), None);
    }
}
