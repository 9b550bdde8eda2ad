//! Groups: situations that differ in the memory budget alone, which are one table and one picture
//! of the published page.

use crate::book::Dataset;
use crate::gathered::Gathered;
use crate::peer::{Compression, Io};
use crate::result::Situation;

/// The part of a [`Situation`] that is not the budget.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Group {
    /// Contents of the database.
    pub dataset: Dataset,
    /// How tables are read.
    pub io: Io,
    /// How blocks are compressed.
    pub compression: Compression,
}

impl Group {
    /// The groups of all situations, in the order of tables.
    pub fn all(all: &Gathered) -> Vec<Self> {
        let mut groups: Vec<Self> = all.situations.iter().copied().map(Self::of).collect();
        groups.dedup();
        groups
    }

    /// The group of a situation.
    pub fn of(at: Situation) -> Self {
        Self { dataset: at.dataset, io: at.io, compression: at.compression }
    }

    /// The situations in it, by budget.
    pub fn situations(self, all: &Gathered) -> impl Iterator<Item = Situation> {
        all.situations.iter().copied().filter(move |at| Self::of(*at) == self)
    }

    /// The heading: data set, way of reading and, where there is any, compression.
    pub fn name(self) -> String {
        let io = match self.io {
            Io::PageCache => "page cache",
            Io::Direct => "direct I/O",
        };
        let compression = match self.compression {
            Compression::None => String::new(),
            some => format!(", {}", some.name()),
        };
        format!("{}, {io}{compression}", dataset(self.dataset))
    }

    /// The name of its picture.
    pub fn file_name(self) -> String {
        format!("{}-{}-{}.svg", self.dataset, self.io.name(), self.compression.name())
    }
}

/// A data set in a few characters: the number of entries, and bytes of key and value together.
pub fn dataset(set: Dataset) -> String {
    let items = match set.items {
        items if items % 1_000_000 == 0 => format!("{}M", items / 1_000_000),
        items if items % 1000 == 0 => format!("{}k", items / 1000),
        items => items.to_string(),
    };
    format!("{items} × {} B", set.key_bytes + set.value_bytes)
}

/// A budget with its unit.
pub fn budget(bytes: u64) -> String {
    let mib = bytes >> 20;
    if mib >= 1024 && mib % 1024 == 0 { format!("{} GiB", mib / 1024) } else { format!("{mib} MiB") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_exact() {
        let set = |text: &str| dataset(text.parse().expect("a data set"));
        assert_eq!(set("10000000x16+100"), "10M × 116 B");
        assert_eq!(set("200000x512+512"), "200k × 1024 B");
        assert_eq!(set("1234x16+16"), "1234 × 32 B");
        assert_eq!((budget(8 << 20), budget(1 << 32)), ("8 MiB".to_owned(), "4 GiB".to_owned()));
    }
}
