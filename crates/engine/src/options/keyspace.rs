//! Options of one keyspace, as an open or a call gives them.
//!
//! An open is given code (a merge operator, a compaction filter), and the database records its
//! name. All else is data, recorded as settings of the keyspace. How given options meet recorded
//! ones is in [`rules`].

pub(crate) mod rules;

use std::sync::Arc;
use std::time::Duration;

use shamba_key::Prefix;
use shamba_model::MergePolicy;
use shamba_table::Compression;
use shamba_tree::compaction::filter::{CompactionFilter, Filtering};
use shamba_tree::merging::{MergeOperator, Merging};
use shamba_tree::version::Pairs;

use self::rules::{prefix_setting, unknown};
use super::fifo::Fifo;
use super::overrides::{AS_DATABASE, Given, Overrides, name_of, pairs_of};
use super::value::OptionValue;
use super::values::ValueThreshold;
use crate::error::{Error, Result};

/// Name of the setting that records the prefix extractor of a keyspace. A build that does not know
/// it keeps it, and writes tables without prefixes.
const PREFIX_SETTING: &str = "prefix_extractor";
/// Value of that setting for no extractor.
const NO_PREFIX: &str = "none";

/// Options of a keyspace: for [`crate::Builder::keyspace`] before the open, or
/// [`crate::Db::keyspace_with`] afterwards.
#[derive(Clone, Default)]
pub struct KeyspaceOptions {
    merging: Option<Arc<Merging>>,
    time_to_live: Option<Duration>,
    /// `None`: that which is recorded.
    prefix: Option<Option<Prefix>>,
    filtering: Option<Arc<Filtering>>,
    removes_filter: bool,
    fifo: Option<Option<Fifo>>,
    overrides: Given,
}

/// The name of the keyspace setting that records the time to live, in milliseconds.
pub(crate) const TIME_TO_LIVE: &str = "time-to-live-ms";
/// The value of that setting without a limit.
const NO_LIMIT: &str = "none";

impl std::fmt::Debug for KeyspaceOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let operator = self.merging.as_deref().map(Merging::name);
        let filter = self.filtering.as_deref().map(Filtering::name);
        f.debug_struct("KeyspaceOptions")
            .field("merge_operator", &operator)
            .field("time_to_live", &self.time_to_live)
            .field("prefix", &self.prefix)
            .field("compaction_filter", &filter)
            .field("no_compaction_filter", &self.removes_filter)
            .field("fifo", &self.fifo)
            .field("tree", &self.overrides)
            .finish()
    }
}

impl KeyspaceOptions {
    /// No options: what is recorded holds.
    pub fn new() -> Self {
        Self::default()
    }

    /// The merge operator of the keyspace, which [`crate::Db::merge`] needs. Its name is recorded.
    /// From then on the keyspace has this operator: every open is given it again, unless it is one
    /// of [`crate::merge`], which an open finds by its name.
    #[must_use]
    pub fn merge_operator(mut self, operator: impl MergeOperator + 'static) -> Self {
        self.merging = Some(Arc::new(Merging::with(Arc::new(operator))));
        self
    }

    /// How long an entry of the keyspace lives: from then on it is as if it were deleted. It holds
    /// for puts that do not say otherwise ([`crate::WriteOptions::time_to_live`]) and are written
    /// from now on. Recorded; it can be changed at any time. `Duration::MAX` ends it.
    #[must_use]
    pub fn time_to_live(mut self, time_to_live: Duration) -> Self {
        self.time_to_live = Some(time_to_live);
        self
    }

    /// The time to live that is given; `Duration::MAX` is none, given.
    pub(crate) fn given_time_to_live(&self) -> Option<Duration> {
        self.time_to_live
    }

    /// Time to live, prefix extractor and settings of the tree, each of `first`, or else of
    /// `second`.
    pub(crate) fn first_given(first: Option<&Self>, second: Option<&Self>) -> Self {
        let of = [first, second];
        Self {
            time_to_live: of.iter().find_map(|options| options.as_ref()?.time_to_live),
            prefix: of.iter().find_map(|options| options.as_ref()?.prefix),
            overrides: of.iter().rev().flatten().flat_map(|options| options.overrides.clone()).collect(),
            ..Self::default()
        }
    }

    /// The settings that record the options, apart from the merge operator.
    pub(crate) fn settings(&self) -> Vec<(String, String)> {
        let text =
            |it: Duration| u64::try_from(it.as_millis()).map_or(NO_LIMIT.to_owned(), |ms| ms.to_string());
        let time_to_live = self.time_to_live.map(|it| (TIME_TO_LIVE.to_owned(), text(it)));
        let others = self.prefix.map(prefix_setting).into_iter().chain(pairs_of(&self.overrides));
        time_to_live.into_iter().chain(others).collect()
    }

    /// [`Self::merge_operator`] by the name of a built-in one, such as `shamba.add-u64`.
    ///
    /// # Errors
    /// `Invalid` for another name.
    pub fn merge_operator_named(mut self, name: &str) -> Result<Self> {
        let merging = Merging::recorded(name);
        if !merging.is_given() {
            return Err(unknown(name));
        }
        self.merging = Some(Arc::new(merging));
        Ok(self)
    }

    /// The prefix extractor of the keyspace: filters of tables that are written from now on hold
    /// the prefixes of their keys too, and scans within one prefix ([`crate::Db::prefix`], and
    /// ranges) leave out runs of tables that have no key with it. Recorded; it may be changed at
    /// any time, since each table records its own. It never changes what a scan returns.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = shamba::Db::open(dir.path().join("db"))?;
    /// use shamba::{KeyspaceOptions, Prefix};
    ///
    /// // Keys such as `user42:mail`: the prefix ends with the first colon.
    /// let by_user = KeyspaceOptions::new().prefix(Prefix::Delimited(b':'));
    /// let users = db.keyspace_with("users", by_user)?;
    /// users.put("user42:mail", "asha@example.com")?;
    /// assert_eq!(users.prefix("user42:").count(), 1);
    /// # Ok::<(), shamba::Error>(())
    /// ```
    #[must_use]
    pub fn prefix(mut self, prefix: Prefix) -> Self {
        self.prefix = Some(Some(prefix));
        self
    }

    /// No prefix extractor from now on, whatever is recorded.
    #[must_use]
    pub fn without_prefix(mut self) -> Self {
        self.prefix = Some(None);
        self
    }

    /// The compaction filter of the keyspace, which compactions ask about the values that they
    /// rewrite. Its name is recorded, and every later open is given the filter again: an open
    /// without it does not compact the keyspace.
    ///
    /// ```
    /// # fn main() -> shamba::Result<()> {
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let path = dir.path().join("db");
    /// use shamba::filter::{CompactionFilter, FilterEntry, Verdict};
    /// use shamba::{Db, KeyspaceOptions};
    ///
    /// struct Temporary;
    ///
    /// impl CompactionFilter for Temporary {
    ///     fn name(&self) -> &str {
    ///         "example.temporary"
    ///     }
    ///
    ///     fn filter(&self, entry: &FilterEntry<'_>) -> Verdict {
    ///         if entry.key().starts_with(b"tmp:") { Verdict::Remove } else { Verdict::Keep }
    ///     }
    /// }
    ///
    /// let options = KeyspaceOptions::new().compaction_filter(Temporary);
    /// let db = Db::builder(path).keyspace("default", options).open()?;
    /// db.put("tmp:1", "a")?;
    /// db.compact()?;
    /// assert_eq!(db.get("tmp:1")?, None);
    /// # db.close()
    /// # }
    /// ```
    #[must_use]
    pub fn compaction_filter(mut self, filter: impl CompactionFilter + 'static) -> Self {
        self.filtering = Some(Arc::new(Filtering::with(Arc::new(filter))));
        self
    }

    /// Removes the recorded compaction filter, whatever its name. With [`Self::compaction_filter`]
    /// that filter takes its place.
    #[must_use]
    pub fn no_compaction_filter(mut self) -> Self {
        self.removes_filter = true;
        self
    }

    /// Makes the keyspace a FIFO keyspace, for logs and caches: its tables stay in level 0, and the
    /// oldest are dropped unread while they exceed the limits. Recorded, until [`Self::no_fifo`].
    ///
    /// ```
    /// # fn main() -> shamba::Result<()> {
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let path = dir.path().join("db");
    /// use shamba::{Db, Fifo, KeyspaceOptions};
    /// use std::time::Duration;
    ///
    /// let limits = Fifo::bytes(1 << 30).with_age(Duration::from_secs(86_400));
    /// let db = Db::builder(path).keyspace("log", KeyspaceOptions::new().fifo(limits)).open()?;
    /// db.keyspace("log")?.put("2026-11-26T10:00:00 1", "started")?;
    /// # db.close()
    /// # }
    /// ```
    #[must_use]
    pub fn fifo(mut self, limits: Fifo) -> Self {
        self.fifo = Some(Some(limits));
        self
    }

    /// Makes a FIFO keyspace one that is compacted into levels.
    #[must_use]
    pub fn no_fifo(mut self) -> Self {
        self.fifo = Some(None);
        self
    }

    /// Compression of the data blocks of the keyspace, as [`crate::Builder::compression`] for the
    /// database: by level from level 0; the last one holds for deeper levels.
    ///
    /// This and the other options of the tree are recorded, can be changed at any time, and hold
    /// for tables that are written from then on. [`Self::set_option`] with `database` gives the
    /// database's again.
    ///
    /// ```
    /// # fn main() -> shamba::Result<()> {
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = shamba::Db::open(dir.path().join("db"))?;
    /// use shamba::{Compression, KeyspaceOptions, MergePolicy};
    ///
    /// // Written often and read rarely.
    /// let of_logs = KeyspaceOptions::new()
    ///     .compression(Compression::Lz4)
    ///     .bits_per_key(4.0)
    ///     .merge_policy(MergePolicy::Tiering);
    /// let logs = db.keyspace_with("logs", of_logs)?;
    /// assert_eq!(logs.own_options().len(), 3);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn compression(self, by_level: impl Into<Vec<Compression>>) -> Self {
        self.with_override("compression", &by_level.into())
    }

    /// Length of the dictionaries of its tables, which only zstd uses
    /// ([`crate::Experimental::compression_dictionary`]).
    #[must_use]
    pub fn compression_dictionary(self, bytes: usize) -> Self {
        self.with_override("compression-dictionary", &bytes)
    }

    /// Mean filter bits per key of the keyspace, in place of its share of the database's
    /// ([`crate::Builder::bits_per_key`]).
    #[must_use]
    pub fn bits_per_key(self, bits: f64) -> Self {
        self.with_override("bits-per-key", &bits)
    }

    /// Maximum size of its data blocks, uncompressed: 64 to 4,096 bytes.
    #[must_use]
    pub fn block_bytes(self, bytes: usize) -> Self {
        self.with_override("block-size", &bytes)
    }

    /// Target size of its table files, larger if the number of open tables requires it.
    #[must_use]
    pub fn file_size(self, bytes: u64) -> Self {
        self.with_override("file-size", &bytes)
    }

    /// Merge policy of its tree, at the size ratio of the database.
    #[must_use]
    pub fn merge_policy(self, policy: MergePolicy) -> Self {
        self.with_override("policy", &policy)
    }

    /// Length from which on its values are stored in value files
    /// ([`crate::Experimental::value_threshold`]).
    #[must_use]
    pub fn value_threshold(self, threshold: impl Into<ValueThreshold>) -> Self {
        self.with_override("value-threshold", &threshold.into())
    }

    /// Maximum space of its tables and value files, as a multiple of its live data
    /// ([`crate::Experimental::value_space`]).
    #[must_use]
    pub fn value_space(self, space: f64) -> Self {
        self.with_override("value-space", &space)
    }

    /// Gives an option of the tree as text, by the name that the database's option has:
    /// `compression`, `compression-dictionary`, `bits-per-key`, `block-size`, `file-size`,
    /// `policy`, `value-threshold` or `value-space`. The value `database` gives the database's
    /// again.
    ///
    /// # Errors
    /// `Invalid` for another name, or for a value of wrong form or out of range; `Unsupported` for
    /// a compression that is not part of this build.
    pub fn set_option(mut self, name: &str, value: &str) -> Result<Self> {
        let (name, text) = (name_of(name)?, Some(value.to_owned()).filter(|text| text != AS_DATABASE));
        Overrides::default().set(name, text.as_deref())?;
        self.overrides.insert(name, text);
        Ok(self)
    }

    /// The settings that record the given options of the tree.
    pub(crate) fn override_pairs(&self) -> Pairs {
        pairs_of(&self.overrides).collect()
    }

    fn with_override(mut self, name: &'static str, value: &impl OptionValue) -> Self {
        self.overrides.insert(name, Some(value.print()));
        self
    }

    /// The limits of a FIFO keyspace that are given; `Some(None)`: it is to be none.
    ///
    /// # Errors
    /// `Invalid` for a limit of 0.
    pub(crate) fn given_fifo(&self) -> Result<Option<Option<Fifo>>> {
        self.fifo.flatten().map_or(Ok(()), |limits| limits.check())?;
        Ok(self.fifo)
    }

    /// Checks an operand as [`crate::Db::merge`] does, for example before a database is created for
    /// it.
    ///
    /// # Errors
    /// `Invalid` for an operand that the merge operator refuses, for one over 65,535 bytes, and if
    /// there is no merge operator in these options.
    pub fn check_operand(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        let Some(merging) = &self.merging else {
            return Err(Error::invalid("the options of the keyspace have no merge operator"));
        };
        Ok(merging.check(key.as_ref(), operand.as_ref())?)
    }
}
