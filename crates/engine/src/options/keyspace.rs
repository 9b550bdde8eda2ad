//! Options of one keyspace, and how they meet what the database records of it.
//!
//! An open is given code (a merge operator, a compaction filter), and the database records its
//! name. [`operator_for`] and [`filter_for`] are the rules. The recorded name of an operator is
//! kept for ever, since stored operands depend on it. That of a filter is kept until it is removed.
//!
//! A prefix extractor is data. It is recorded as a setting of the keyspace, and a given one
//! replaces the recorded one ([`prefix_for`]): each table has its own. So are a time to live and
//! the limits of a FIFO keyspace.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use shamba_key::Prefix;
use shamba_model::MergePolicy;
use shamba_table::Compression;
use shamba_tree::compaction::filter::{CompactionFilter, Filtering};
use shamba_tree::merging::{MergeOperator, Merging, builtin};

use shamba_key::SeqNo;
use shamba_tree::version::Pairs;

use super::fifo::{Fifo, FifoState};
use super::overrides::{AS_DATABASE, Given, Overrides, name_of, pairs_of};
use super::value::OptionValue;
use crate::error::{Error, Result};

/// Longest name of a merge operator or a compaction filter.
const NAME_BYTES_MAX: usize = 255;
/// Beginning of the names of built-in operators.
const BUILT_IN: &str = "shamba.";

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

    /// Gives an option of the tree as text, by the name that the database's option has:
    /// `compression`, `bits-per-key`, `block-size`, `file-size` or `policy`. The value `database`
    /// gives the database's again.
    ///
    /// # Errors
    /// `Invalid` for another name, or for a value of wrong form or out of range; `Unsupported` for a
    /// compression that is not part of this build.
    pub fn set_option(mut self, name: &str, value: &str) -> Result<Self> {
        let (name, text) = (name_of(name)?, Some(value.to_owned()).filter(|text| text != AS_DATABASE));
        Overrides::default().set(name, text.as_deref())?;
        self.overrides.insert(name, text);
        Ok(self)
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

/// The options that an open was given, by the names of keyspaces.
pub(crate) type GivenOptions = BTreeMap<String, KeyspaceOptions>;

/// The time to live that the keyspace `keyspace` records in these settings.
///
/// # Errors
/// `Invalid` for a value that no build writes.
pub(crate) fn time_to_live_of(
    keyspace: &str,
    settings: &BTreeMap<String, String>,
) -> Result<Option<Duration>> {
    match settings.get(TIME_TO_LIVE).map(String::as_str) {
        None | Some(NO_LIMIT) => Ok(None),
        Some(ms) => ms.parse().map(|ms| Some(Duration::from_millis(ms))).map_err(|_| {
            Error::invalid(format!(
                "keyspace {keyspace:?} records the time to live {ms:?}, which is no number"
            ))
        }),
    }
}

/// The merge operator of the keyspace `keyspace`, which records the operator `recorded`, in an open
/// that gives it `given`.
///
/// # Errors
/// `Invalid` for another operator than the recorded one, and for a name that no operator can have.
pub(crate) fn operator_for(
    keyspace: &str,
    recorded: Option<&str>,
    given: Option<&KeyspaceOptions>,
) -> Result<Option<Arc<Merging>>> {
    match (recorded, given.and_then(|given| given.merging.as_ref())) {
        (None, None) => Ok(None),
        (Some(name), None) => Ok(Some(Arc::new(Merging::recorded(name)))),
        (Some(name), Some(given)) if given.name() != name => Err(Error::invalid(format!(
            "keyspace {keyspace:?} has the merge operator {name:?}; it cannot be opened with {:?}",
            given.name()
        ))),
        (_, Some(given)) => {
            let name = given.name();
            if name.is_empty() || name.len() > NAME_BYTES_MAX {
                let bytes = name.len();
                return Err(Error::invalid(format!(
                    "the name of a merge operator has {bytes} bytes; allowed are 1 to {NAME_BYTES_MAX}"
                )));
            }
            if name.starts_with(BUILT_IN) && builtin::named(name).is_none() {
                return Err(unknown(name));
            }
            Ok(Some(Arc::clone(given)))
        }
    }
}

/// The prefix extractor of the keyspace `keyspace`, which has `known`, after it is given `given`.
///
/// # Errors
/// `Invalid` for an extractor of prefixes without bytes.
pub(crate) fn prefix_for(
    keyspace: &str,
    known: Option<Prefix>,
    given: Option<&KeyspaceOptions>,
) -> Result<Option<Prefix>> {
    let prefix = given.and_then(|given| given.prefix).unwrap_or(known);
    let checked = prefix.map_or(Ok(()), Prefix::check);
    checked.map_err(|detail| {
        Error::invalid(format!("the prefix extractor of keyspace {keyspace:?}: {detail}"))
    })?;
    Ok(prefix)
}

/// The settings of the tree of `keyspace`, which has `known`, after it is given `given`.
///
/// # Errors
/// As [`Overrides::and`].
pub(crate) fn overrides_for(
    keyspace: &str,
    known: &Overrides,
    given: Option<&KeyspaceOptions>,
) -> Result<Overrides> {
    given.map_or_else(|| Ok(known.clone()), |given| known.and(keyspace, &given.overrides))
}

/// The prefix extractor that `recorded` has. One of a later version is as none.
pub(crate) fn recorded_prefix(recorded: &BTreeMap<String, String>) -> Option<Prefix> {
    recorded.get(PREFIX_SETTING).and_then(|text| text.parse().ok())
}

/// The setting that records a prefix extractor.
pub(crate) fn prefix_setting(prefix: Option<Prefix>) -> (String, String) {
    let text = prefix.map_or_else(|| NO_PREFIX.to_owned(), |prefix| prefix.to_string());
    (PREFIX_SETTING.to_owned(), text)
}

/// The state of a keyspace of which `known` is known, in an open that gives it `given`. New limits
/// count from `seq` and `now_ms` on.
///
/// # Errors
/// `Invalid` for a limit of 0.
pub(crate) fn fifo_for(
    known: Option<&Arc<FifoState>>,
    given: Option<&KeyspaceOptions>,
    (seq, now_ms): (SeqNo, u64),
) -> Result<Option<Arc<FifoState>>> {
    match given.map(KeyspaceOptions::given_fifo).transpose()?.flatten() {
        None => Ok(known.cloned()),
        Some(None) => Ok(None),
        Some(Some(limits)) if known.is_some_and(|known| known.limits == limits) => Ok(known.cloned()),
        Some(Some(limits)) => Ok(Some(Arc::new(FifoState::new(limits, seq, now_ms)))),
    }
}

/// Checks that no options give a keyspace both a merge operator and FIFO limits. One that records
/// both opens without options.
///
/// # Errors
/// `Invalid` if `given` adds one of them to the other.
pub(crate) fn check_fifo_with(
    keyspace: &str,
    (merging, fifo): (Option<&Merging>, Option<&Arc<FifoState>>),
    given: Option<&KeyspaceOptions>,
) -> Result<()> {
    let gives = |given: &KeyspaceOptions| given.merging.is_some() || given.fifo.flatten().is_some();
    match (merging, fifo) {
        (Some(merging), Some(_)) if given.is_some_and(gives) => Err(Error::invalid(format!(
            "keyspace {keyspace:?} cannot have both the merge operator {:?} (KeyspaceOptions::merge_operator) and \
             FIFO limits (KeyspaceOptions::fifo): a drop would separate operands from their base; \
             KeyspaceOptions::no_fifo removes recorded limits",
            merging.name()
        ))),
        _ => Ok(()),
    }
}

/// The settings that are recorded for it.
pub(crate) fn fifo_pairs(fifo: Option<&Arc<FifoState>>) -> Pairs {
    fifo.map_or_else(FifoState::no_pairs, |fifo| fifo.pairs())
}

/// The compaction filter of the keyspace `keyspace`, which has the filter `known`, in an open that
/// gives it `given`.
///
/// # Errors
/// `Invalid` for another filter than the known one, unless that is removed, and for a name that no
/// filter can have.
pub(crate) fn filter_for(
    keyspace: &str,
    known: Option<&Arc<Filtering>>,
    given: Option<&KeyspaceOptions>,
) -> Result<Option<Arc<Filtering>>> {
    let Some(given) = given else { return Ok(known.cloned()) };
    let known = known.filter(|_| !given.removes_filter);
    let (Some(filter), known) = (&given.filtering, known) else { return Ok(known.cloned()) };
    let (name, bytes) = (filter.name(), filter.name().len());
    if let Some(other) = known.filter(|known| known.name() != name) {
        return Err(Error::invalid(format!(
            "keyspace {keyspace:?} has the compaction filter {:?}; it takes {name:?} only after \
             KeyspaceOptions::no_compaction_filter",
            other.name()
        )));
    }
    if bytes == 0 || bytes > NAME_BYTES_MAX {
        return Err(Error::invalid(format!(
            "the name of a compaction filter has {bytes} bytes; allowed are 1 to {NAME_BYTES_MAX}"
        )));
    }
    Ok(Some(Arc::clone(filter)))
}

fn unknown(name: &str) -> Error {
    let known = builtin::NAMES.join(", ");
    Error::invalid(format!("{name:?} is no built-in merge operator; these are: {known}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use shamba_tree::compaction::filter::{FilterEntry, Verdict};
    use shamba_tree::merging::{AssociativeMerge, MergeResult};

    struct Named(String);

    impl AssociativeMerge for Named {
        fn name(&self) -> &str {
            &self.0
        }

        fn merge(&self, _key: &[u8], _older: &[u8], newer: &[u8]) -> MergeResult<Vec<u8>> {
            Ok(newer.to_vec())
        }
    }

    fn given(name: &str) -> KeyspaceOptions {
        KeyspaceOptions::new().merge_operator(Named(name.to_owned()))
    }

    #[test]
    fn the_recorded_operator_stays() {
        let name_of = |recorded, given: Option<&KeyspaceOptions>| {
            operator_for("k", recorded, given)
                .map(|merging| merging.map(|m| (m.name().to_owned(), m.is_given())))
        };
        assert_eq!(name_of(None, None).expect("valid"), None);
        assert_eq!(name_of(None, Some(&KeyspaceOptions::new())).expect("valid"), None);
        assert_eq!(name_of(None, Some(&given("a"))).expect("valid"), Some(("a".to_owned(), true)));
        assert_eq!(name_of(Some("a"), Some(&given("a"))).expect("valid"), Some(("a".to_owned(), true)));
        assert_eq!(name_of(Some("a"), None).expect("valid"), Some(("a".to_owned(), false)));
        let max = Some(("shamba.max".to_owned(), true));
        assert_eq!(name_of(Some("shamba.max"), None).expect("valid"), max);
        let refused = name_of(Some("a"), Some(&given("b"))).expect_err("another one");
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        assert!(refused.to_string().contains("\"a\"") && refused.to_string().contains("\"b\""), "{refused}");
        for name in ["", "shamba.maximum", &"n".repeat(256)] {
            assert_eq!(name_of(None, Some(&given(name))).expect_err(name).kind(), ErrorKind::Invalid);
        }
        assert!(KeyspaceOptions::new().merge_operator_named("shamba.append:2c").is_ok());
        assert!(KeyspaceOptions::new().merge_operator_named("own").is_err());
    }

    struct Filter(String);

    impl CompactionFilter for Filter {
        fn name(&self) -> &str {
            &self.0
        }

        fn filter(&self, _entry: &FilterEntry<'_>) -> Verdict {
            Verdict::Keep
        }
    }

    #[test]
    fn the_recorded_filter_stays_until_it_is_removed() {
        let given = |name: &str| KeyspaceOptions::new().compaction_filter(Filter(name.to_owned()));
        let name_of = |recorded: Option<&str>, given: Option<KeyspaceOptions>| {
            let recorded = recorded.map(|name| Arc::new(Filtering::recorded(name)));
            let filter = filter_for("k", recorded.as_ref(), given.as_ref())?;
            Ok::<_, Error>(filter.map(|filter| (filter.name().to_owned(), filter.is_given())))
        };
        let is = |name: &str, is_given| Some((name.to_owned(), is_given));
        assert_eq!(name_of(None, None).expect("valid"), None);
        assert_eq!(name_of(None, Some(given("a"))).expect("valid"), is("a", true));
        assert_eq!(name_of(Some("a"), None).expect("valid"), is("a", false));
        assert_eq!(name_of(Some("a"), Some(KeyspaceOptions::new())).expect("valid"), is("a", false));
        assert_eq!(name_of(Some("a"), Some(given("a"))).expect("valid"), is("a", true));
        let none = KeyspaceOptions::new().no_compaction_filter();
        assert_eq!(name_of(Some("a"), Some(none)).expect("valid"), None);
        assert_eq!(
            name_of(Some("a"), Some(given("b").no_compaction_filter())).expect("valid"),
            is("b", true)
        );
        let refused = name_of(Some("a"), Some(given("b"))).expect_err("another one");
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        assert!(refused.to_string().contains("\"a\"") && refused.to_string().contains("\"b\""), "{refused}");
        for name in ["", &"n".repeat(256)] {
            assert_eq!(name_of(None, Some(given(name))).expect_err(name).kind(), ErrorKind::Invalid);
        }
    }

    #[test]
    fn an_operator_and_fifo_limits_are_not_given_to_one_keyspace() {
        let merging = Merging::recorded("shamba.max");
        let fifo = Arc::new(FifoState::new(Fifo::bytes(9), SeqNo(0), 0));
        let limits = || KeyspaceOptions::new().fifo(Fifo::bytes(9));
        let check = |merging, fifo, given: Option<KeyspaceOptions>| {
            check_fifo_with("k", (merging, fifo), given.as_ref())
        };
        let both = (Some(&merging), Some(&fifo));
        for given in [given("a"), limits(), limits().merge_operator(Named("a".to_owned()))] {
            let refused = check(both.0, both.1, Some(given.clone())).expect_err("both");
            assert_eq!(refused.kind(), ErrorKind::Invalid);
            let text = refused.to_string();
            let named = ["\"k\"", "merge_operator", "KeyspaceOptions::fifo", "shamba.max", "no_fifo"];
            assert!(named.iter().all(|name| text.contains(name)), "{text}");
            check(both.0, None, Some(given.clone())).expect("no limits");
            check(None, both.1, Some(given)).expect("no operator");
        }
        // What an earlier build has recorded is opened.
        check(both.0, both.1, None).expect("not given");
        check(both.0, both.1, Some(KeyspaceOptions::new())).expect("not given");
    }

    #[test]
    fn operands_are_checked_before_an_open() {
        let counting = KeyspaceOptions::new().merge_operator_named("shamba.add-u64").expect("built in");
        counting.check_operand("k", 1u64.to_le_bytes()).expect("a number");
        for refused in [counting.check_operand("k", "1"), KeyspaceOptions::new().check_operand("k", "1")] {
            assert_eq!(refused.expect_err("no operand").kind(), ErrorKind::Invalid);
        }
    }
}
