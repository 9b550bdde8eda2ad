//! Options of a database, declared once each in the table (`options/table.rs`).
//!
//! The table gives an option's name, type, default, range, unit, recorded key and description. Made
//! from it are the methods of [`Builder`](crate::Builder) and
//! [`Experimental`](crate::Experimental), [`Builder::set_option`](crate::Builder::set_option), the
//! recorded settings of the manifest, [`Db::options`](crate::Db::options), the flags and `--help`
//! of the command, and `docs/options.md`. Tests compare them.
//!
//! Options differ in how long they hold ([`Recorded`]):
//! - *Fixed at creation*: a later open that gives another value fails with `Invalid`.
//! - *Recorded at creation*: options of the tree and its format.
//! - *Recorded on request* ([`Builder::record`](crate::Builder::record)), otherwise for one open.
//! - *Never recorded*: for one open only.
//!
//! A recorded value of any kind holds for opens that do not give the option: builds before version
//! 0.1 recorded nearly every option that an open was given. Recorded keys never change.
//!
//! Not here: the meaning of the values (`settings.rs`); parts that have no text form, such as the
//! environment and the listener (`builder.rs`).

mod declare;
pub(crate) mod experimental;
pub(crate) mod fifo;
pub(crate) mod keyspace;
pub(crate) mod overrides;
pub(crate) mod settings;
pub(crate) mod table;
#[cfg(test)]
mod tests;
mod value;
pub(crate) mod values;

use std::collections::BTreeMap;
use std::fmt;

use self::table::{OPTIONS, Settings};
use self::value::{alternatives, size_text};
use crate::error::{Error, Result};
use crate::options::settings::LiveSettings;

/// A change of the settings, made by an option that an open was given.
pub(crate) type SettingChange = Box<dyn Fn(&mut Settings) + Send>;

/// The recorded key of the order of keys, which is not an option: this build has one order.
const COMPARATOR: (&str, &str) = ("comparator", "bytewise");

/// Whether and under which key an option is recorded in the database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recorded {
    /// Never: it holds for one open.
    Never,
    /// By [`Builder::record`](crate::Builder::record) only.
    OnRequest(&'static str),
    /// At creation, and on request.
    AtCreation(&'static str),
    /// At creation, and on request; a database without it is damaged.
    Required(&'static str),
    /// At creation; it cannot change later.
    Fixed(&'static str),
}

impl Recorded {
    /// The key in the manifest; `None` if it is never recorded.
    pub fn key(self) -> Option<&'static str> {
        match self {
            Self::Never => None,
            Self::OnRequest(key) | Self::AtCreation(key) | Self::Required(key) | Self::Fixed(key) => {
                Some(key)
            }
        }
    }

    /// Whether creating a database records it.
    pub fn is_at_creation(self) -> bool {
        matches!(self, Self::AtCreation(_) | Self::Required(_) | Self::Fixed(_))
    }
}

impl fmt::Display for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Never => "never",
            Self::OnRequest(_) => "on request",
            Self::AtCreation(_) | Self::Required(_) => "at creation",
            Self::Fixed(_) => "at creation, fixed",
        })
    }
}

/// Bounds of an option's value, inclusive. Words such as `auto` are outside of them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Range {
    /// No numeric bounds.
    Any,
    /// Bytes.
    Bytes(u64, u64),
    /// Whole numbers.
    Whole(u64, u64),
    /// Real numbers.
    Real(f64, f64),
}

impl Range {
    /// Checks a value in its text form.
    ///
    /// # Errors
    /// The bounds and the value.
    fn check(self, text: &str) -> std::result::Result<(), String> {
        let (is_within, shown) = match (self, text.parse::<u64>(), text.parse::<f64>()) {
            (Self::Bytes(min, max), Ok(bytes), _) => ((min..=max).contains(&bytes), size_text(bytes, " ")),
            (Self::Whole(min, max), Ok(number), _) => ((min..=max).contains(&number), number.to_string()),
            // NaN is in no range.
            (Self::Real(min, max), _, Ok(number)) => ((min..=max).contains(&number), number.to_string()),
            // Not a number: a word, which parsing has accepted.
            _ => (true, String::new()),
        };
        if is_within { Ok(()) } else { Err(format!("must be {self}, not {shown}")) }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => Ok(()),
            Self::Bytes(min, max) => write!(f, "from {} to {}", size_text(*min, " "), size_text(*max, " ")),
            Self::Whole(min, max) => write!(f, "from {min} to {max}"),
            Self::Real(min, max) => write!(f, "from {min} to {max}"),
        }
    }
}

/// Description of one option.
#[non_exhaustive]
pub struct OptionInfo {
    /// Name for [`Builder::set_option`](crate::Builder::set_option); with two dashes, the flag.
    pub name: &'static str,
    /// Method of [`Builder`](crate::Builder) or [`Experimental`](crate::Experimental).
    pub method: &'static str,
    /// Whether the method is one of [`Experimental`](crate::Experimental).
    pub is_experimental: bool,
    /// Form of the value: alternatives separated by `|`, placeholders in capitals.
    pub value: &'static str,
    /// Unit of numbers; empty if they have none.
    pub unit: &'static str,
    /// Bounds of numbers.
    pub range: Range,
    /// Explanation of a default that is computed; empty if the value itself says it.
    pub default_note: &'static str,
    /// Whether and under which key it is recorded.
    pub recorded: Recorded,
    /// Whether it can change while the database is open ([`Db::redesign`](crate::Db::redesign)).
    pub is_live: bool,
    /// Whether it affects a database that is opened for reading.
    pub for_readers: bool,
    /// Whether the command has a flag of this name. Flags of experimental options are hidden.
    pub has_flag: bool,
    /// An option that cannot be given at the same time on a command line.
    pub excludes: Option<&'static str>,
    /// Description; its first paragraph is the help text.
    pub doc: &'static str,
    /// Effect on other options when an open gives this one.
    supersedes: fn(&mut Settings),
    print: fn(&Settings) -> String,
    parse: fn(&str) -> Option<SettingChange>,
}

impl fmt::Debug for OptionInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OptionInfo").field("name", &self.name).finish_non_exhaustive()
    }
}

impl OptionInfo {
    /// Defaults of the fields that a row of the table may omit.
    const BLANK: Self = Self {
        name: "",
        method: "",
        is_experimental: false,
        value: "",
        unit: "",
        range: Range::Any,
        default_note: "",
        recorded: Recorded::Never,
        is_live: false,
        for_readers: false,
        has_flag: false,
        excludes: None,
        doc: "",
        supersedes: |_| {},
        print: |_| String::new(),
        parse: |_| None,
    };

    /// The help text: the first paragraph of the description, without the final full stop.
    pub fn summary(&self) -> String {
        let lines = self.doc.lines().map(str::trim).take_while(|line| !line.is_empty());
        lines.collect::<Vec<_>>().join(" ").trim_end_matches('.').to_owned()
    }

    /// The default, for people: the explanation of a computed one, otherwise the value.
    pub fn default(&self) -> String {
        if !self.default_note.is_empty() {
            return self.default_note.to_owned();
        }
        let text = (self.print)(&Settings::default());
        match (self.range, text.parse()) {
            (Range::Bytes(..), Ok(bytes)) => size_text(bytes, ""),
            _ => text,
        }
    }

    /// Checks form and range of a value.
    ///
    /// # Errors
    /// What it must be, and what it is; the name of the option is not part of the message.
    pub fn check(&self, text: &str) -> std::result::Result<(), String> {
        let _checked = self.parsed(text)?;
        self.range.check(text)
    }

    fn parsed(&self, text: &str) -> std::result::Result<SettingChange, String> {
        (self.parse)(text).ok_or_else(|| format!("must be {}, not {text:?}", self.expected()))
    }

    /// The accepted forms in words.
    fn expected(&self) -> String {
        let of_word = |word: &'static str| match word {
            "SIZE" => "a number of bytes",
            "COUNT" | "SEED" => "a whole number",
            "MS" => "a number of milliseconds",
            "KIND[,KIND...]" => "none, lz4, zstd or a list of these",
            "T" | "RATIO" | "BITS" | "US" | "MIB" => "a number",
            word => word,
        };
        alternatives(&self.value.split('|').map(of_word).collect::<Vec<_>>())
    }

    /// The change that giving this option makes, with its effect on other options.
    fn given(&self, change: SettingChange) -> SettingChange {
        let supersedes = self.supersedes;
        Box::new(move |settings| {
            supersedes(settings);
            change(settings);
        })
    }
}

/// Every option: the main ones first, then those of [`Experimental`](crate::Experimental).
pub fn all() -> &'static [OptionInfo] {
    OPTIONS
}

/// The option of this name.
pub fn find(name: &str) -> Option<&'static OptionInfo> {
    OPTIONS.iter().find(|option| option.name == name)
}

/// The change that a method of the option `name` makes.
pub(crate) fn given(name: &str, change: SettingChange) -> SettingChange {
    match find(name) {
        Some(option) => option.given(change),
        None => change,
    }
}

/// The change that the option `name` makes when it is given as text.
///
/// # Errors
/// `Invalid` for an unknown option, or for a value of wrong form or out of range.
pub(crate) fn given_text(name: &str, text: &str) -> Result<SettingChange> {
    if name == "modules" {
        // A short form of filter-layout, kept for callers of version 0.1.
        let shorthand = |_: Error| Error::invalid(format!("modules must be from 1 to 7, not {text:?}"));
        return given_text("filter-layout", &format!("modular:{text}")).map_err(shorthand);
    }
    let option = find(name).ok_or_else(|| Error::invalid(format!("unknown option {name:?}")))?;
    let checked = option.parsed(text).and_then(|change| option.range.check(text).map(|()| change));
    checked.map(|change| option.given(change)).map_err(|message| Error::invalid(format!("{name} {message}")))
}

impl Settings {
    /// Every option and its value, by name.
    pub fn options(&self) -> Vec<(&'static str, String)> {
        OPTIONS.iter().map(|option| (option.name, (option.print)(self))).collect()
    }

    /// The settings as text under their recorded keys, for the manifest.
    pub fn to_pairs(&self) -> Vec<(String, String)> {
        let mut pairs = vec![(COMPARATOR.0.to_owned(), COMPARATOR.1.to_owned())];
        pairs.extend(self.pairs_where(|_| true));
        pairs
    }

    /// The settings that creating a database with them records.
    pub fn created_pairs(&self) -> Vec<(String, String)> {
        let mut pairs = vec![(COMPARATOR.0.to_owned(), COMPARATOR.1.to_owned())];
        pairs.extend(self.pairs_where(|option| option.recorded.is_at_creation()));
        pairs
    }

    /// Settings that differ from `recorded`: the options that an open was given and that change a
    /// value.
    pub fn given_over(&self, recorded: &Self) -> Vec<(String, String)> {
        self.pairs_where(|option| (option.print)(self) != (option.print)(recorded))
    }

    fn pairs_where(&self, is_wanted: impl Fn(&OptionInfo) -> bool) -> Vec<(String, String)> {
        let wanted = OPTIONS.iter().filter(|option| is_wanted(option));
        let pair = |option: &OptionInfo| Some((option.recorded.key()?.to_owned(), (option.print)(self)));
        wanted.filter_map(pair).collect()
    }

    /// Settings from the manifest's text. Unknown keys come from a later version and are ignored.
    ///
    /// # Errors
    /// `Invalid` naming the key whose text does not parse, or that is missing.
    pub fn from_pairs(pairs: &BTreeMap<String, String>) -> Result<Self> {
        if let Some(comparator) = pairs.get(COMPARATOR.0).filter(|name| *name != COMPARATOR.1) {
            return Err(Error::invalid(format!(
                "the database was created with comparator {comparator:?}; this build knows only {:?}",
                COMPARATOR.1
            )));
        }
        let mut settings = Self::default();
        let value = |key: &str| pairs.get(key).map(String::as_str);
        settings.read(OPTIONS.iter(), value).map_err(Error::invalid)?;
        Ok(settings)
    }

    /// Sets `options` to their recorded values.
    fn read<'a>(
        &mut self,
        options: impl Iterator<Item = &'static OptionInfo>,
        value: impl Fn(&str) -> Option<&'a str>,
    ) -> std::result::Result<(), String> {
        for option in options {
            let Some(key) = option.recorded.key() else { continue };
            match value(key) {
                Some(text) => option.parsed(text).map_err(|message| format!("{key} {message}"))?(self),
                None if matches!(option.recorded, Recorded::Required(_)) => {
                    return Err(format!("the recorded options lack {key}"));
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Checks that the value of every option whose name `is_wanted` is within its range.
    ///
    /// # Errors
    /// `Invalid` naming the option, its value and its range.
    pub fn check_ranges(&self, is_wanted: impl Fn(&str) -> bool) -> Result<()> {
        for option in OPTIONS.iter().filter(|option| is_wanted(option.name)) {
            let checked = option.range.check(&(option.print)(self));
            checked.map_err(|message| Error::invalid(format!("{} {message}", option.name)))?;
        }
        Ok(())
    }
}

impl LiveSettings {
    /// The settings as text under their recorded keys.
    pub fn to_pairs(self) -> Vec<(String, String)> {
        let settings = Settings::default();
        settings.live.set(self);
        settings.pairs_where(|option| option.is_live)
    }

    /// Settings from the text under their recorded keys.
    ///
    /// # Errors
    /// A message naming the key whose text does not parse, or that is missing.
    pub fn from_pairs(pairs: &[(&str, &str)]) -> std::result::Result<Self, String> {
        let mut settings = Settings::default();
        let value = |key: &str| pairs.iter().find(|(name, _)| *name == key).map(|(_, text)| *text);
        settings.read(OPTIONS.iter().filter(|option| option.is_live), value)?;
        Ok(settings.live.get())
    }
}
