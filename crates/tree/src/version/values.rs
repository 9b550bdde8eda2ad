//! References of a tree's tables to values in value files, counted.
//!
//! A table names the files of all its references ([`TableValues`]), a use of a table counts those
//! in its range ([`ValueUses`]). A table that is narrowed may therefore name a file of which its
//! use counts nothing: the file is still live.
//!
//! The counts of a use are exact: for each file, the number and the stored bytes of the entries of
//! kinds 8 and 9 in the range of the use. They are too high while a job runs that passes entries
//! unread, and never too low.
//!
//! Not here: the files ([`super::value_files`]).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use shamba_key::RunId;
use shamba_table::{TableId, TableValueUse, ValueFileId};

use super::value_files::{ValueFileMeta, ValueFiles};

/// The reference counts of a list, and the allocator's overhead for it.
const LIST_BYTES: usize = 64;

/// The references of a table, or of a part of it, to one value file.
#[derive(Clone, Debug)]
pub struct ValueUse {
    /// The file.
    pub file: Arc<ValueFileMeta>,
    /// Number of referenced values.
    pub values: u64,
    /// Stored bytes of these values.
    pub bytes: u64,
}

/// References to value files, ascending by file, each file once and with at least one value. Takes
/// 8 bytes where there are none. A copy is cheap.
#[derive(Clone, Default)]
pub struct ValueUses(Option<Arc<List>>);

struct List {
    uses: Box<[ValueUse]>,
    values: u64,
    bytes: u64,
}

/// The value of [`TableValues`] that are not told.
static NONE: ValueUses = ValueUses(None);

impl ValueUses {
    /// The sum of `uses`, given in any order.
    pub fn sum(uses: impl IntoIterator<Item = ValueUse>) -> Self {
        let mut uses: Vec<ValueUse> = uses.into_iter().filter(|of| of.values > 0).collect();
        uses.sort_by_key(|of| of.file.id);
        uses.dedup_by(|next, of| {
            let is_same = next.file.id == of.file.id;
            if is_same {
                of.values = of.values.saturating_add(next.values);
                of.bytes = of.bytes.saturating_add(next.bytes);
            }
            is_same
        });
        if uses.is_empty() {
            return Self(None);
        }
        let values = uses.iter().fold(0, |sum: u64, of| sum.saturating_add(of.values));
        let bytes = uses.iter().fold(0, |sum: u64, of| sum.saturating_add(of.bytes));
        Self(Some(Arc::new(List { uses: uses.into_boxed_slice(), values, bytes })))
    }

    /// The references that a table states, to files among `files`.
    ///
    /// # Errors
    /// A phrase that names a file that is not among them, or has another birth id.
    pub fn of_table(stated: &[TableValueUse], files: &ValueFiles) -> Result<Self, String> {
        let of_file = |&TableValueUse { file, birth, values, bytes }: &TableValueUse| {
            let known = files.get(file).ok_or_else(|| format!("value file {file} is not known"))?;
            if known.birth != birth {
                return Err(format!("value file {file} has birth id {}, not {birth}", known.birth));
            }
            Ok(ValueUse { file: Arc::clone(known), values, bytes })
        };
        stated.iter().map(of_file).collect::<Result<Vec<_>, String>>().map(Self::sum)
    }

    /// The references to each file, ascending by file.
    pub fn files(&self) -> &[ValueUse] {
        self.0.as_ref().map_or(&[], |list| &list.uses)
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Number of referenced values.
    pub fn values(&self) -> u64 {
        self.0.as_ref().map_or(0, |list| list.values)
    }

    /// Stored bytes of the referenced values.
    pub fn bytes(&self) -> u64 {
        self.0.as_ref().map_or(0, |list| list.bytes)
    }

    /// The references to the file.
    pub fn of(&self, file: ValueFileId) -> Option<&ValueUse> {
        let files = self.files();
        files.binary_search_by_key(&file, |of| of.file.id).ok().map(|at| &files[at])
    }

    /// Whether each count is at least that of `other`.
    pub fn covers(&self, other: &Self) -> bool {
        self.is_same_list(other)
            || other.files().iter().all(|part| {
                self.of(part.file.id).is_some_and(|of| of.values >= part.values && of.bytes >= part.bytes)
            })
    }

    /// These references without the `consumed` ones.
    fn without(&self, consumed: &BTreeMap<ValueFileId, (u64, u64)>) -> Self {
        if self.files().iter().all(|of| !consumed.contains_key(&of.file.id)) {
            return self.clone();
        }
        Self::sum(self.files().iter().map(|of| {
            let (values, bytes) = consumed.get(&of.file.id).copied().unwrap_or_default();
            debug_assert!(
                values <= of.values && bytes <= of.bytes,
                "{values} values of {bytes} bytes were taken of {of:?}"
            );
            let file = Arc::clone(&of.file);
            ValueUse { file, values: of.values.saturating_sub(values), bytes: of.bytes.saturating_sub(bytes) }
        }))
    }

    /// Whether both are the same list in memory, or none.
    fn is_same_list(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        }
    }

    /// Memory of the list, unless it is the list `shared`.
    pub fn memory_bytes(&self, shared: Option<&Self>) -> usize {
        if self.is_empty() || shared.is_some_and(|shared| self.is_same_list(shared)) {
            return 0;
        }
        LIST_BYTES + size_of_val(self.files())
    }
}

/// By the numbers of the files and the counts.
impl PartialEq for ValueUses {
    fn eq(&self, other: &Self) -> bool {
        let counts = |of: &ValueUse| (of.file.id, of.values, of.bytes);
        self.is_same_list(other) || self.files().iter().map(counts).eq(other.files().iter().map(counts))
    }
}

impl Eq for ValueUses {}

impl fmt::Debug for ValueUses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.files()).finish()
    }
}

/// The references of a whole table; told once.
#[derive(Default, Debug)]
pub struct TableValues(OnceLock<ValueUses>);

impl TableValues {
    /// These references.
    #[inline]
    pub fn get(&self) -> &ValueUses {
        self.0.get().unwrap_or(&NONE)
    }

    /// Tells them.
    pub fn set(&self, values: ValueUses) {
        _ = self.0.set(values);
    }
}

impl From<ValueUses> for TableValues {
    fn from(values: ValueUses) -> Self {
        let told = Self::default();
        if !values.is_empty() {
            told.set(values);
        }
        told
    }
}

/// Values that a slice of a compaction has taken from its inputs, for each use of a table.
#[derive(Clone, Default, Debug)]
pub struct ConsumedValues(BTreeMap<(RunId, TableId), BTreeMap<ValueFileId, (u64, u64)>>);

impl ConsumedValues {
    /// Counts a value of `bytes` stored bytes in `file`, to which `table` of `run` refers.
    pub fn add(&mut self, run: RunId, table: TableId, file: ValueFileId, bytes: u64) {
        let (values, sum) = self.0.entry((run, table)).or_default().entry(file).or_default();
        *values += 1;
        *sum = sum.saturating_add(bytes);
    }

    /// The references that `table` of `run` has left of `values`.
    pub fn rest(&self, run: RunId, table: TableId, values: &ValueUses) -> ValueUses {
        self.0.get(&(run, table)).map_or_else(|| values.clone(), |consumed| values.without(consumed))
    }
}

/// One live value file, and all references to it in a tree.
#[derive(Clone, Debug)]
pub struct ValueTotal {
    /// The file.
    pub file: Arc<ValueFileMeta>,
    /// Number of uses of tables that name the file.
    pub uses: u64,
    /// Number of referenced values.
    pub values: u64,
    /// Stored bytes of these values.
    pub bytes: u64,
}

impl ValueTotal {
    /// Share of the stored bytes that no table refers to.
    pub fn dead_share(&self) -> f64 {
        let stored_bytes = self.file.stored_bytes().max(1);
        1.0 - self.bytes.min(stored_bytes) as f64 / stored_bytes as f64
    }
}

/// The live value files of a tree.
#[derive(Clone, Default, Debug)]
pub struct ValueTotals {
    files: BTreeMap<ValueFileId, ValueTotal>,
    file_bytes: u64,
    stored_bytes: u64,
    bytes: u64,
}

impl ValueTotals {
    /// The files that tables of `uses` name, given as the references of each whole table and those
    /// in use.
    pub(super) fn of<'v>(uses: impl IntoIterator<Item = (&'v ValueUses, &'v ValueUses)>) -> Self {
        let mut totals = Self::default();
        for (named, used) in uses {
            debug_assert!(named.covers(used), "a part of a table has more references than the table");
            for ValueUse { file, .. } in named.files() {
                let total = totals.files.entry(file.id).or_insert_with(|| ValueTotal {
                    file: Arc::clone(file),
                    uses: 0,
                    values: 0,
                    bytes: 0,
                });
                total.uses += 1;
                if let Some(used) = used.of(file.id) {
                    total.values = total.values.saturating_add(used.values);
                    total.bytes = total.bytes.saturating_add(used.bytes);
                }
            }
            totals.bytes = totals.bytes.saturating_add(used.bytes());
        }
        let files = totals.files.values();
        totals.file_bytes = files.fold(0, |sum, total| sum.saturating_add(total.file.file_bytes));
        let files = totals.files.values();
        totals.stored_bytes = files.fold(0, |sum, total| sum.saturating_add(total.file.stored_bytes()));
        totals
    }

    /// The files, ascending.
    pub fn files(&self) -> impl ExactSizeIterator<Item = &ValueTotal> {
        self.files.values()
    }

    /// The file of this number.
    pub fn get(&self, id: ValueFileId) -> Option<&ValueTotal> {
        self.files.get(&id)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Bytes of all files.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Bytes of the values in all files, referenced or not.
    pub fn stored_bytes(&self) -> u64 {
        self.stored_bytes
    }

    /// Stored bytes of all referenced values.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Stored bytes of the referenced values of these files: those that their collection writes.
    pub fn bytes_in<'f>(&self, files: impl IntoIterator<Item = &'f ValueFileId>) -> u64 {
        let totals = files.into_iter().filter_map(|file| self.get(*file));
        totals.fold(0, |sum, total| sum.saturating_add(total.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shamba_table::BirthId;

    fn file(id: u64) -> Arc<ValueFileMeta> {
        let file = Default::default();
        Arc::new(ValueFileMeta {
            id: ValueFileId(id),
            birth: BirthId(id),
            file_bytes: 1128,
            values: 10,
            file,
        })
    }

    fn uses(counts: &[(u64, u64, u64)]) -> ValueUses {
        ValueUses::sum(counts.iter().map(|&(id, values, bytes)| ValueUse { file: file(id), values, bytes }))
    }

    #[test]
    fn a_list_has_each_file_once_in_order() {
        let sum = uses(&[(9, 1, 100), (7, 2, 50), (9, 3, 30), (8, 0, 0)]);
        assert_eq!(sum, uses(&[(7, 2, 50), (9, 4, 130)]));
        assert_eq!((sum.values(), sum.bytes()), (6, 180));
        let of = |id| sum.of(ValueFileId(id)).map(|of| (of.values, of.bytes));
        assert_eq!([of(7), of(8), of(9)], [Some((2, 50)), None, Some((4, 130))]);
        assert!(uses(&[(8, 0, 0)]).is_empty(), "no list without references");
        assert_eq!(size_of::<ValueUses>(), 8, "each use of a table in memory has one");
    }

    #[test]
    fn a_part_is_covered_and_a_list_is_counted_once() {
        let all = uses(&[(7, 2, 50), (9, 4, 130)]);
        for part in [uses(&[]), uses(&[(7, 2, 50)]), uses(&[(7, 1, 20), (9, 4, 130)]), all.clone()] {
            assert!(all.covers(&part), "{part:?}");
        }
        for other in [uses(&[(8, 1, 1)]), uses(&[(7, 3, 50)]), uses(&[(7, 2, 51)])] {
            assert!(!all.covers(&other), "{other:?}");
        }
        assert_eq!(all.memory_bytes(None), LIST_BYTES + 2 * 24);
        assert_eq!((all.memory_bytes(Some(&all.clone())), uses(&[]).memory_bytes(None)), (0, 0));
        assert_eq!(uses(&[(7, 1, 20)]).memory_bytes(Some(&all)), LIST_BYTES + 24);
    }

    #[test]
    fn consumed_values_are_taken_of_the_use_that_had_them() {
        let all = uses(&[(7, 2, 50), (9, 4, 130)]);
        let (one, other) = ((RunId(1), TableId(5)), (RunId(2), TableId(5)));
        let mut consumed = ConsumedValues::default();
        consumed.add(one.0, one.1, ValueFileId(7), 20);
        consumed.add(one.0, one.1, ValueFileId(7), 30);
        consumed.add(one.0, one.1, ValueFileId(9), 40);
        assert_eq!(consumed.rest(one.0, one.1, &all), uses(&[(9, 3, 90)]));
        assert_eq!(consumed.rest(other.0, other.1, &all), all, "another run uses the table, too");
    }

    #[test]
    fn what_a_table_states_is_of_known_files() {
        let stated = |file, birth| TableValueUse {
            file: ValueFileId(file),
            birth: BirthId(birth),
            values: 2,
            bytes: 50,
        };
        let mut files = ValueFiles::default();
        for id in [7, 9] {
            files.add(Arc::into_inner(file(id)).expect("the only one")).expect("a new one");
        }
        let of = |stated: &[TableValueUse]| ValueUses::of_table(stated, &files);
        assert_eq!(of(&[stated(7, 7), stated(9, 9)]), Ok(uses(&[(7, 2, 50), (9, 2, 50)])));
        assert_eq!(of(&[stated(7, 7), stated(8, 8)]), Err("value file 000008 is not known".to_owned()));
        let why = "value file 000009 has birth id 0000000000000009, not 0000000000000007";
        assert_eq!(of(&[stated(9, 7)]), Err(why.to_owned()));
    }

    #[test]
    fn totals_have_the_files_that_tables_name() {
        let (whole, part) = (uses(&[(7, 2, 50), (9, 4, 130)]), uses(&[(9, 1, 30)]));
        let totals = ValueTotals::of([(&whole, &whole), (&whole, &part)]);
        let shown: Vec<_> =
            totals.files().map(|total| (total.file.id.0, total.uses, total.values, total.bytes)).collect();
        assert_eq!(shown, [(7, 2, 2, 50), (9, 2, 5, 160)]);
        assert_eq!((totals.file_bytes(), totals.bytes()), (2 * 1128, 210));
        // A file of which only a table is left that refers to none of its values any more.
        let totals = ValueTotals::of([(&whole, &uses(&[]))]);
        assert_eq!((totals.files().len(), totals.file_bytes(), totals.bytes()), (2, 2 * 1128, 0));
        assert!(ValueTotals::of([(&uses(&[]), &uses(&[]))]).is_empty());
    }

    #[test]
    fn a_list_shows_its_files_and_counts() {
        assert_eq!(format!("{:?}", uses(&[])), "[]");
        let shown = format!("{:?}", uses(&[(7, 2, 50), (9, 4, 130)]));
        assert!(shown.starts_with("[ValueUse { file: ValueFileMeta { id: "), "{shown}");
        assert!(shown.contains("values: 2, bytes: 50 }, ValueUse {"), "{shown}");
        assert!(shown.ends_with("values: 4, bytes: 130 }]"), "{shown}");
    }
}
