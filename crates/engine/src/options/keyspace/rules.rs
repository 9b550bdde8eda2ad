//! How the options that a keyspace is given meet what the database records of it.
//!
//! [`operator_for`] and [`filter_for`] are the rules of code, of which the name is recorded. That
//! of an operator is kept for ever, since stored operands depend on it. That of a filter is kept
//! until it is removed.
//!
//! A prefix extractor is data. It is recorded as a setting of the keyspace, and a given one
//! replaces the recorded one ([`prefix_for`]): each table has its own. So are a time to live,
//! the limits of a FIFO keyspace, and the options of its tree ([`overrides_for`]).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use shamba_key::{Prefix, SeqNo};
use shamba_tree::compaction::filter::Filtering;
use shamba_tree::merging::{Merging, builtin};
use shamba_tree::version::Pairs;

use super::{KeyspaceOptions, NO_LIMIT, NO_PREFIX, PREFIX_SETTING, TIME_TO_LIVE};
use crate::error::{Error, Result};
use crate::options::fifo::FifoState;
use crate::options::overrides::Overrides;

/// Longest name of a merge operator or a compaction filter.
pub(crate) const NAME_BYTES_MAX: usize = 255;
/// Beginning of the names of built-in operators.
const BUILT_IN: &str = "shamba.";

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

/// The error of a name that no built-in operator has.
pub(super) fn unknown(name: &str) -> Error {
    let known = builtin::NAMES.join(", ");
    Error::invalid(format!("{name:?} is no built-in merge operator; these are: {known}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::options::fifo::Fifo;
    use shamba_tree::compaction::filter::{CompactionFilter, FilterEntry, Verdict};
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
