//! The counts of one lookup.
//!
//! Not here: their sums over all lookups ([`super::LookupCounters`]).

use shamba_table::{ReadCounters, Reads};

/// Reads of table files by structure. Reads of logs and value files are all of values.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct ReadsByKind {
    /// Filter slices.
    pub filter: Reads,
    /// Index partitions.
    pub index: Reads,
    /// Data blocks.
    pub data: Reads,
    /// Pieces of large values, of tables or of logs, and values of value files.
    pub value: Reads,
}

impl ReadsByKind {
    /// All kinds together.
    pub fn all(&self) -> Reads {
        self.filter.plus(self.index).plus(self.data).plus(self.value)
    }

    /// The reads since `earlier`.
    #[must_use]
    pub fn saturating_sub(self, earlier: Self) -> Self {
        Self {
            filter: self.filter.saturating_sub(earlier.filter),
            index: self.index.saturating_sub(earlier.index),
            data: self.data.saturating_sub(earlier.data),
            value: self.value.saturating_sub(earlier.value),
        }
    }
}

impl From<ReadCounters> for ReadsByKind {
    fn from(io: ReadCounters) -> Self {
        Self { filter: io.filter, index: io.index, data: io.data, value: io.value }
    }
}

macro_rules! lookup_counts {
    (common { $($common:ident,)* } rare { $($rare:ident,)* }) => {
        /// Counts of one lookup. The fields have the meaning of the statistics of the same name.
        ///
        /// A lookup that reads no file and is not timed changes only the common fields. The others
        /// are set to 0 when the first of them is needed ([`Self::rare`]).
        #[derive(Clone, Copy, Default, Debug)]
        #[allow(missing_docs, reason = "documented where they are reported")]
        pub struct LookupCounts {
            $(pub $common: u64,)*
            /// Use [`Self::rare`]; `None`: all 0.
            pub rare: Option<RareCounts>,
        }

        /// Counts of what few lookups do: reads from files, and times.
        #[derive(Clone, Copy, Default, Debug)]
        #[allow(missing_docs, reason = "documented where they are reported")]
        pub struct RareCounts {
            $(pub $rare: u64,)*
        }

        pub(super) const COMMON: usize = [$(stringify!($common)),*].len();
        pub(super) const RARE: usize = [$(stringify!($rare)),*].len();

        impl LookupCounts {
            #[inline(always)]
            pub(super) fn common(&self) -> [u64; COMMON] {
                [$(self.$common),*]
            }

            pub(super) fn from_fields([$($common),*]: [u64; COMMON], rare: RareCounts) -> Self {
                Self { $($common,)* rare: Some(rare) }
            }
        }

        impl RareCounts {
            pub(super) fn fields(&self) -> [u64; RARE] {
                [$(self.$rare),*]
            }

            pub(super) fn from_fields([$($rare),*]: [u64; RARE]) -> Self {
                Self { $($rare),* }
            }
        }
    };
}

// The first common fields are those that most lookups change ([`super::OFTEN`]).
lookup_counts! {
    common {
        lookups, hashes, filters, modules, found, cache_hits,
        memtable_hits, false_positives, filter_hits, modules_skipped,
    }
    rare {
        filter_reads, filter_bytes, filter_pages, filter_pages_touched,
        index_reads, index_bytes, index_pages, index_pages_touched,
        data_reads, data_bytes, data_pages, data_pages_touched,
        value_reads, value_bytes, value_pages, value_pages_touched,
        hash_ns, probe_ns, index_ns, data_ns, timer_ns, total_ns,
    }
}

impl LookupCounts {
    /// The counts of what few lookups do.
    #[inline]
    pub fn rare(&mut self) -> &mut RareCounts {
        self.rare.get_or_insert_default()
    }

    /// The counts of what few lookups do; zeros if this one did none of it.
    pub fn rare_so_far(&self) -> RareCounts {
        self.rare.unwrap_or_default()
    }

    /// Adds the cost of searching a table.
    #[inline]
    pub fn add_reads(&mut self, io: &ReadCounters) {
        self.filter_hits += io.filter_hits;
        self.cache_hits += io.cache_hits;
        if io.has_reads() || io.timed {
            self.rare().add_reads(io);
        }
    }

    /// Adds the reads of values.
    pub fn add_value_reads(&mut self, reads: Reads) {
        if reads.count > 0 {
            self.rare().add_reads(&ReadCounters { value: reads, ..ReadCounters::default() });
        }
    }

    /// The number of reads from files that found the entry: not those of large values.
    pub fn searching_reads(&self) -> u64 {
        self.rare.map_or(0, |rare| rare.filter_reads + rare.index_reads + rare.data_reads)
    }

    /// The reads from files.
    pub fn reads(&self) -> ReadsByKind {
        self.rare_so_far().reads()
    }
}

impl RareCounts {
    /// Adds the reads and times of searching a table.
    #[cold]
    fn add_reads(&mut self, io: &ReadCounters) {
        self.filter_reads += io.filter.count;
        self.filter_bytes += io.filter.bytes;
        self.filter_pages += io.filter.pages;
        self.filter_pages_touched += io.filter.pages_touched;
        self.index_reads += io.index.count;
        self.index_bytes += io.index.bytes;
        self.index_pages += io.index.pages;
        self.index_pages_touched += io.index.pages_touched;
        self.data_reads += io.data.count;
        self.data_bytes += io.data.bytes;
        self.data_pages += io.data.pages;
        self.data_pages_touched += io.data.pages_touched;
        self.value_reads += io.value.count;
        self.value_bytes += io.value.bytes;
        self.value_pages += io.value.pages;
        self.value_pages_touched += io.value.pages_touched;
        self.index_ns += io.index_ns;
        self.data_ns += io.data_ns;
        self.timer_ns += io.timer_ns;
    }

    fn reads(&self) -> ReadsByKind {
        ReadsByKind {
            filter: Reads {
                count: self.filter_reads,
                bytes: self.filter_bytes,
                pages: self.filter_pages,
                pages_touched: self.filter_pages_touched,
            },
            index: Reads {
                count: self.index_reads,
                bytes: self.index_bytes,
                pages: self.index_pages,
                pages_touched: self.index_pages_touched,
            },
            data: Reads {
                count: self.data_reads,
                bytes: self.data_bytes,
                pages: self.data_pages,
                pages_touched: self.data_pages_touched,
            },
            value: Reads {
                count: self.value_reads,
                bytes: self.value_bytes,
                pages: self.value_pages,
                pages_touched: self.value_pages_touched,
            },
        }
    }
}
