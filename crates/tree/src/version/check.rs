//! Checks of the invariants of every version, and of the shape of a tree that needs no compaction.
//!
//! [`Version::check`] looks only at the metadata of the tables, so tests run it after every edit:
//! 1. Within a run, tables are sorted, no range is empty or exceeds its file, and no key is in two
//!    ranges.
//! 2. Run ids are unique, ages strictly descend within a level, and runs that share a file use
//!    disjoint ranges of it.
//! 3. The newer run's versions of a key are all newer. The metadata decides this only between
//!    flushed runs, whose sequence numbers cannot interleave, and between tables that begin with
//!    the same key.
//! 4. A use refers to at most the values of its table, and all uses together to at most the values
//!    and bytes of each value file.
//!
//! [`deep_check`] reads all entries as well: their order over all runs, and the counts of values in
//! value files.
//!
//! Not here: whether files agree with their metadata (`TableReader::verify`).

use std::collections::{BTreeMap, HashMap, HashSet};

use shamba_key::SeqNo;
use shamba_table::{EntryIter, ValueFileId};

use super::edit::TableUse;
use super::values::ValueTotal;
use super::version::Version;

impl Version {
    /// Checks the invariants of every version that the engine creates.
    ///
    /// # Errors
    /// The first violation: level, run and table.
    pub fn check(&self) -> Result<(), String> {
        let mut run_ids = HashSet::new();
        for (level, runs) in self.levels() {
            for run in runs {
                if !run_ids.insert(run.id) {
                    return Err(format!("run {} is in the tree twice", run.id));
                }
                if run.tables().is_empty() {
                    return Err(format!("level {level}: run {} has no tables", run.id));
                }
                check_tables(run.tables()).map_err(|why| format!("level {level}: run {}: {why}", run.id))?;
            }
            let mut pairs = runs.iter().zip(runs.iter().skip(1));
            if let Some((newer, older)) = pairs.find(|(newer, older)| newer.age <= older.age) {
                return Err(format!("level {level}: run {} is not newer than run {}", newer.id, older.id));
            }
        }
        if self.levels().next_back().is_some_and(|(_, runs)| runs.is_empty()) {
            return Err("the deepest level is empty".to_owned());
        }
        self.check_shared_files()?;
        self.check_l0_order()?;
        self.check_first_keys()?;
        self.check_values()
    }

    /// No value is referenced twice: an entry that a compaction copies is no more in its inputs.
    fn check_values(&self) -> Result<(), String> {
        for total in self.value_totals().files() {
            let ValueTotal { file, values, bytes, .. } = total;
            if *values > file.values || *bytes > file.stored_bytes() {
                return Err(format!(
                    "tables refer to {values} values of {bytes} bytes in value file {}, which has {} of {}",
                    file.id,
                    file.values,
                    file.stored_bytes()
                ));
            }
        }
        Ok(())
    }

    /// Several runs may use a file, each a different part of it.
    fn check_shared_files(&self) -> Result<(), String> {
        let mut uses: Vec<_> = self.tables().map(|(_, run, table)| (table.meta.id, run.id, table)).collect();
        uses.sort_unstable_by_key(|(table, run, _)| (*table, *run));
        for same in uses.chunk_by(|a, b| a.0 == b.0) {
            for (at, (table, run, one)) in same.iter().enumerate() {
                if same[..at].iter().any(|(_, _, other)| other.range.overlaps(&one.range)) {
                    return Err(format!("run {run}: table {table} covers a key twice"));
                }
            }
        }
        Ok(())
    }

    /// Flushed runs hold the contents of consecutive memtables, and merged runs of level 0 those of
    /// several. Where two of their tables share keys, all of the newer one's entries are newer.
    /// While runs of level 0 are merged, the older run holds newer entries outside the keys of the
    /// newer.
    fn check_l0_order(&self) -> Result<(), String> {
        let runs = self.level(0);
        for (at, newer) in runs.iter().enumerate() {
            for table in newer.tables().iter().filter(|table| is_numbered(table)) {
                let older = runs[at + 1..].iter().flat_map(|run| {
                    run.overlapping(&table.range)
                        .iter()
                        .filter(|table| is_numbered(table))
                        .map(move |other| (run, other))
                });
                let bound = table.meta.smallest_seq;
                if let Some((run, other)) =
                    older.into_iter().find(|(_, other)| other.meta.largest_seq >= bound)
                {
                    return Err(format!(
                        "level 0: run {} begins at sequence number {bound}, the older run {} ends at {}",
                        newer.id, run.id, other.meta.largest_seq
                    ));
                }
            }
        }
        Ok(())
    }

    /// A table whose range in use begins at its first key holds a version of that key. So two
    /// tables that begin with the same key can be compared.
    fn check_first_keys(&self) -> Result<(), String> {
        // For each first key: the table, among those of newer runs, whose largest sequence number
        // is the lowest.
        let mut newest: HashMap<&[u8], &TableUse> = HashMap::with_capacity(self.tables().count());
        for (level, run, table) in self.tables() {
            if !is_numbered(table) || table.range.lower != table.meta.smallest {
                continue;
            }
            let newer = newest.entry(&table.meta.smallest).or_insert(table);
            if newer.meta.id != table.meta.id && newer.meta.largest_seq <= table.meta.smallest_seq {
                return Err(format!(
                    "level {level}: run {}: table {} begins with newer versions of its first key than table {} \
                     of a newer run",
                    run.id, table.meta.id, newer.meta.id
                ));
            }
            if table.meta.largest_seq < newer.meta.largest_seq {
                *newer = table;
            }
        }
        Ok(())
    }
}

/// Whether the sequence numbers are known (trees without files may omit them) and are those of
/// point entries only: a range tombstone is not a version of the key at which it begins.
fn is_numbered(table: &TableUse) -> bool {
    table.meta.largest_seq > SeqNo::ZERO && table.meta.range_deletes == 0
}

fn check_tables(tables: &[TableUse]) -> Result<(), String> {
    for table in tables {
        let id = table.meta.id;
        if table.range.is_empty() {
            return Err(format!("no key is in the range of table {id}"));
        }
        if !table.meta.key_range().covers(&table.range) {
            return Err(format!("table {id} covers keys that its file does not"));
        }
        if !table.meta.values.get().covers(&table.values) {
            return Err(format!(
                "the part of table {id} that is in use refers to more values than the table"
            ));
        }
        if table.meta.smallest_seq > table.meta.largest_seq {
            return Err(format!("table {id}: its largest sequence number is below its smallest"));
        }
    }
    let mut pairs = tables.iter().zip(tables.iter().skip(1));
    match pairs.find(|(left, right)| left.range.is_above(&right.range.lower)) {
        Some((left, right)) => Err(format!("tables {} and {} share keys", left.meta.id, right.meta.id)),
        None => Ok(()),
    }
}

/// Reads every entry in use and checks that, in lookup order, the versions of every key descend.
/// All tables must be open.
///
/// # Errors
/// The first key whose versions do not descend, with both runs; a table that is not open or cannot
/// be read.
pub fn deep_check(version: &Version) -> Result<(), String> {
    let mut walks = Vec::new();
    for (_, run) in version.runs() {
        let mut walk =
            Walk { name: run.id.to_string(), tables: run.tables(), iter: None, values: BTreeMap::new() };
        walk.skip_unused()?;
        walks.push(walk);
    }
    loop {
        let next = walks.iter().filter_map(Walk::key).min().map(<[u8]>::to_vec);
        let Some(key) = next else { return Ok(()) };
        let mut newer: Option<(String, SeqNo)> = None;
        for walk in &mut walks {
            while walk.key() == Some(&key) {
                let seq = walk.step()?;
                if let Some((name, bound)) = newer.filter(|(_, bound)| seq >= *bound) {
                    let key = key.escape_ascii();
                    return Err(format!(
                        "key {key}: run {} has version {seq}, run {name} before it in lookup order has {bound}",
                        walk.name
                    ));
                }
                newer = Some((walk.name.clone(), seq));
            }
        }
    }
}

/// A walk over the entries in use of a run.
struct Walk<'v> {
    name: String,
    /// The remaining tables; `iter` walks the first one.
    tables: &'v [TableUse],
    iter: Option<Box<dyn EntryIter>>,
    /// Values in value files, and their bytes, to which the passed entries of the first table
    /// refer.
    values: BTreeMap<ValueFileId, (u64, u64)>,
}

impl Walk<'_> {
    fn key(&self) -> Option<&[u8]> {
        self.iter.as_ref().map(|iter| iter.key())
    }

    /// Returns the sequence number of the current entry and moves to the next one.
    fn step(&mut self) -> Result<SeqNo, String> {
        let Some(iter) = &mut self.iter else { return Err("the iteration has ended".to_owned()) };
        let seq = iter.seq();
        if let Some((_, reference)) = iter.separated().map_err(|error| error.chain())? {
            let (values, bytes) = self.values.entry(reference.file).or_default();
            *values += 1;
            *bytes += u64::from(reference.stored_bytes);
        }
        iter.next().map_err(|error| error.chain())?;
        self.skip_unused()?;
        Ok(seq)
    }

    /// Moves the iterator to the next entry in use, or the walk to its end.
    fn skip_unused(&mut self) -> Result<(), String> {
        loop {
            let Some((table, rest)) = self.tables.split_first() else { return Ok(()) };
            let iter = match &mut self.iter {
                Some(iter) => iter,
                None => {
                    let reader = table.meta.open().map_err(|error| error.to_string())?;
                    let iter = self.iter.insert(Box::new(reader.iter(false)));
                    iter.seek(&table.range.lower, SeqNo::MAX).map_err(|error| error.chain())?;
                    iter
                }
            };
            if iter.valid() && table.range.is_above(iter.key()) {
                return Ok(());
            }
            let values = std::mem::take(&mut self.values);
            check_counts(table, &values)?;
            self.iter = None;
            self.tables = rest;
        }
    }
}

/// Compares the references of a use of a table, counted anew, with those that the version states.
/// Those of a table whose entries expire may be stated too high: a job that drops it unread has
/// narrowed it.
fn check_counts(table: &TableUse, found: &BTreeMap<ValueFileId, (u64, u64)>) -> Result<(), String> {
    let stated: BTreeMap<ValueFileId, (u64, u64)> =
        table.values.files().iter().map(|of| (of.file.id, (of.values, of.bytes))).collect();
    let is_right = match table.meta.expiring.get() {
        None => *found == stated,
        Some(_) => found.iter().all(|(file, (values, bytes))| {
            stated.get(file).is_some_and(|stated| stated.0 >= *values && stated.1 >= *bytes)
        }),
    };
    if is_right {
        return Ok(());
    }
    Err(format!(
        "table {}: its entries refer to values and bytes {found:?} of value files, the version states {stated:?}",
        table.meta.id
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iter::testing::Store;
    use crate::version::{Change, ValueUse, ValueUses, VersionEdit};
    use shamba_key::{Age, Expiry, RunId};
    use shamba_table::{ExpiringEntries, FragmentedTombstones};
    use shamba_testkit::Row;
    use std::sync::Arc;

    /// The result of `check` for a tree in the notation.
    fn check(text: &str) -> Result<(), String> {
        text.parse::<Version>().and_then(|version| version.check())
    }

    #[test]
    fn a_tree_in_order_passes() {
        let tree = "L0: r9@9[000019:a..z 5 seq=90-99] r8@8[000018:a..z 5 seq=80-89]\n\
                    L2: r5@5[000015:a..f of a..m 3 of 5 seq=50-79, 000016:f.. 5 seq=1-79]\n";
        assert_eq!(check(tree), Ok(()));
    }

    #[test]
    fn stated_numbers_that_cannot_be_are_found() {
        assert_eq!(
            check("L0: r9@9[000019:a..c 5 seq=85-99] r8@8[000018:b..z 5 seq=80-89]\n").unwrap_err(),
            "level 0: run 9 begins at sequence number 85, the older run 8 ends at 89"
        );
        assert_eq!(
            check("L1: r9@9[000019:a..z 5 seq=1-9]\nL2: r8@8[000018:a..c 5 seq=10-20]\n").unwrap_err(),
            "level 2: run 8: table 000018 begins with newer versions of its first key than table 000019 of a newer run"
        );
        // Partial compactions interleave sequence numbers, and a table that begins at another key
        // proves nothing.
        assert_eq!(check("L1: r9@9[000019:a..z 5 seq=1-99]\nL2: r8@8[000018:a..c 5 seq=10-20]\n"), Ok(()));
        assert_eq!(check("L1: r9@9[000019:a..z 5 seq=1-9]\nL2: r8@8[000018:b..c 5 seq=10-20]\n"), Ok(()));
        assert_eq!(
            check("L1: r9@9[000019:a..z 5 seq=1-9 rdel=1]\nL2: r8@8[000018:a..c 5 seq=10-20]\n"),
            Ok(())
        );
    }

    #[test]
    fn files_and_ranges_are_used_once_a_key() {
        assert_eq!(
            check("L1: r9@9[000019:a..f of a..z 5 of 9]\nL2: r8@8[000019:e..z of a..z 4 of 9]\n")
                .unwrap_err(),
            "run 9: table 000019 covers a key twice"
        );
        assert_eq!(
            check("L1: r9@9[000019:a..e of a..z 5 of 9]\nL2: r8@8[000019:e..z of a..z 4 of 9]\n"),
            Ok(())
        );
        assert_eq!(
            check("L1: r9@9[000019:a..z of b..z 5 of 9]\n").unwrap_err(),
            "level 1: run 9: table 000019 covers keys that its file does not"
        );
        assert_eq!(
            check("L1: r9@9[000019:a..b 5] r9@8[000018:a..b 5]\n").unwrap_err(),
            "line 1: run 9 is in the tree twice"
        );
    }

    #[test]
    fn references_are_to_values_that_a_file_has() {
        let files = "V: 000031 1128 n=10\n";
        let of = |newer: &str, older: &str| {
            check(&format!("L1: r9@9[000019:a..z 5 {newer}]\nL2: r8@8[000018:a..z 5 {older}]\n{files}"))
        };
        assert_eq!(of("val=31:4:600", "val=31:6:400"), Ok(()));
        let why = "tables refer to 11 values of 1000 bytes in value file 000031, which has 10 of 1000";
        assert_eq!(of("val=31:4:600", "val=31:7:400").unwrap_err(), why);
        let why = "tables refer to 10 values of 1001 bytes in value file 000031, which has 10 of 1000";
        assert_eq!(of("val=31:4:600", "val=31:6:401").unwrap_err(), why);
        let why =
            "level 2: run 8: the part of table 000018 that is in use refers to more values than the table";
        assert_eq!(of("", "val=31:6:400 of 5:400").unwrap_err(), why);
    }

    /// Creates a tree with real tables: runs of (key, sequence number), all on level 0, newest
    /// first.
    fn on_disk(runs: &[&[(&str, u64)]]) -> Version {
        let store = Store::new();
        let mut changes = Vec::new();
        for (newer, entries) in runs.iter().enumerate() {
            let rows: Vec<_> = entries.iter().map(|(key, seq)| Row::put(key.as_bytes(), *seq)).collect();
            let tables = store.build(&rows, &FragmentedTombstones::default(), 2);
            let (run, age) = (RunId(newer as u64), Age((runs.len() - newer) as u64));
            changes.extend(tables.into_iter().map(|table| Change::Add { level: 0, run, age, table }));
        }
        Version::empty().apply(&VersionEdit { changes, ..VersionEdit::default() }).expect("a good edit")
    }

    #[test]
    fn reading_every_entry_finds_a_version_below_an_older_one() {
        let good = on_disk(&[&[("a", 9), ("c", 8), ("c", 7), ("d", 6)], &[("a", 1), ("b", 99), ("c", 5)]]);
        assert_eq!(deep_check(&good), Ok(()));
        let bad = on_disk(&[&[("a", 9), ("c", 8), ("c", 7), ("d", 6)], &[("a", 1), ("b", 2), ("c", 7)]]);
        let why = "key c: run 1 has version 7, run 0 before it in lookup order has 7";
        assert_eq!(deep_check(&bad).unwrap_err(), why);

        // Entries outside the range in use are ignored.
        let table = bad.level(0)[1].tables().last().expect("a table").clone();
        assert_eq!(table.range.lower, "c");
        let change = Change::Remove { level: 0, run: RunId(1), table: table.meta.id };
        let without = VersionEdit { changes: vec![change], ..VersionEdit::default() };
        assert_eq!(deep_check(&bad.apply(&without).expect("a good edit")), Ok(()));
        let paper: Version = "L0: r1@1[1:a..b 1]".parse().expect("notation");
        assert_eq!(deep_check(&paper).unwrap_err(), "table 000001 is not open");
    }

    #[test]
    fn a_first_key_is_compared_with_the_lowest_of_all_newer_tables() {
        let check = |first: &str, second: &str| {
            check(&format!(
                "L1: r9@9[000019:a..z 5 seq={first}]\nL2: r8@8[000018:a..c 5 seq={second}]\n\
                 L3: r7@7[000017:a..b 5 seq=60-70]\n"
            ))
        };
        for (first, second, newer) in [("1-99", "5-50", 18), ("1-50", "5-99", 19), ("1-50", "5-50", 19)] {
            let why = format!(
                "level 3: run 7: table 000017 begins with newer versions of its first key than table 0000{newer} \
                 of a newer run"
            );
            assert_eq!(check(first, second), Err(why), "{first} {second}");
        }
        assert_eq!(check("1-99", "5-61"), Ok(()));
    }

    #[test]
    fn stated_references_are_those_of_the_entries() {
        let store = Store::new();
        *store.separates_from.lock().expect("not poisoned") = Some(1);
        let rows = [Row::put(b"a", 9), Row::put(b"c", 8)];
        let table = store.build(&rows, &FragmentedTombstones::default(), 4).remove(0);
        let of = table.values.files()[0].clone();
        assert_eq!(of.values, 2);
        let check = |values: u64, bytes: u64| {
            let values = ValueUses::sum([ValueUse { file: Arc::clone(&of.file), values, bytes }]);
            let table = TableUse { values, ..table.clone() };
            let change = Change::Add { level: 0, run: RunId(1), age: Age(1), table };
            let edit = VersionEdit { changes: vec![change], ..VersionEdit::default() };
            deep_check(&Version::empty().apply(&edit).expect("a good edit"))
        };
        let refused = |values: u64, bytes: u64| {
            let why = check(values, bytes).expect_err("false counts");
            assert!(why.contains("its entries refer to values and bytes"), "{why}");
        };
        assert_eq!(check(2, of.bytes), Ok(()));
        for (values, bytes) in [(0, 0), (1, of.bytes), (3, of.bytes), (2, of.bytes - 1), (2, of.bytes + 1)] {
            refused(values, bytes);
        }
        // Those of a table whose entries expire may be stated too high, and none too low.
        table.meta.expiring.set(ExpiringEntries::evenly(2, Expiry(1), Expiry(2)));
        for (values, bytes) in [(2, of.bytes), (3, of.bytes), (2, of.bytes + 1)] {
            assert_eq!(check(values, bytes), Ok(()));
        }
        for (values, bytes) in [(0, 0), (1, of.bytes), (2, of.bytes - 1)] {
            refused(values, bytes);
        }
    }
}
