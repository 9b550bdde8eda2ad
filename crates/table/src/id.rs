//! Identity of tables and value files: the number in the file name, and the birth id inside the
//! file.
//!
//! The number identifies a file within its database. The birth id is random, written into the file
//! and into the manifest and mixed into every checksum. It stays with the bytes when the file is
//! linked elsewhere, and a file that was swapped for another has a different one.

use std::fmt;

/// The number of a table within its database.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct TableId(pub u64);

impl fmt::Display for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:06}", self.0)
    }
}

/// The number of a value file within its database. Tables and value files draw from one sequence.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct ValueFileId(pub u64);

impl fmt::Display for ValueFileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:06}", self.0)
    }
}

/// The random id of the bytes of a table or value file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct BirthId(pub u64);

impl fmt::Display for BirthId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The file name of a table, without its directory: "000012.sst".
pub fn table_file_name(id: TableId) -> String {
    format!("{id}.sst")
}

/// The table that a file name belongs to; `None` for any other file.
pub fn parse_table_file_name(name: &str) -> Option<TableId> {
    let id = TableId(name.strip_suffix(".sst")?.parse().ok()?);
    // Signs and surplus zeros parse, too, but no table has such a name.
    (table_file_name(id) == name).then_some(id)
}

/// The file name of a value file, without its directory: "000012.values".
pub fn value_file_name(id: ValueFileId) -> String {
    format!("{id}.values")
}

/// The value file that a file name belongs to; `None` for any other file.
pub fn parse_value_file_name(name: &str) -> Option<ValueFileId> {
    let id = ValueFileId(name.strip_suffix(".values")?.parse().ok()?);
    (value_file_name(id) == name).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_sort_and_grow() {
        assert_eq!(table_file_name(TableId(12)), "000012.sst");
        assert_eq!(table_file_name(TableId(12_345_678)), "12345678.sst");
        for id in [0, 12, 999_999, 12_345_678].map(TableId) {
            assert_eq!(parse_table_file_name(&table_file_name(id)), Some(id));
        }
        for other in ["12.sst", "+00012.sst", "0000012.sst", "000012.log", "000012.sst.tmp", ".sst", ""] {
            assert_eq!(parse_table_file_name(other), None, "{other:?}");
        }
        for id in [0, 12, 12_345_678].map(ValueFileId) {
            assert_eq!(parse_value_file_name(&value_file_name(id)), Some(id));
        }
        for other in ["12.values", "+00012.values", "000012.val", "000012.values.tmp", ".values"] {
            assert_eq!(parse_value_file_name(other), None, "{other:?}");
        }
        assert_eq!(BirthId(0xab).to_string(), "00000000000000ab");
    }
}
