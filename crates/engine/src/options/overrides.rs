//! Settings of the tree of one keyspace that replace those of the database.
//!
//! They have the names and the text forms of the database's options, and are recorded with the
//! keyspace under these names. A value that this build cannot read is as none: it comes from a
//! later build, and the database's setting holds. An older build keeps them and does not follow
//! them.
//!
//! The tuner designs the database. A keyspace with a policy or with bits of its own keeps them.

use std::collections::BTreeMap;

use shamba_model::{Design, MergePolicy};
use shamba_table::Compression;
use shamba_tree::compaction::policy::ValueRules;
use shamba_tree::version::Version;

use super::settings::{Settings, compression_for};
use super::value::OptionValue;
use super::values::ValueThreshold;
use crate::error::{Error, Result};

/// A value file has the length of this many full tables.
const VALUE_FILE_TABLES: u64 = 4;

/// Value of a setting that leaves it to the database.
pub(crate) const AS_DATABASE: &str = "database";

/// The options that a keyspace can have for itself, by their names.
const NAMES: [&str; 8] = [
    "compression",
    "compression-dictionary",
    "bits-per-key",
    "block-size",
    "file-size",
    "policy",
    "value-threshold",
    "value-space",
];

/// Settings of one keyspace; `None`: that of the database.
#[derive(Clone, PartialEq, Default, Debug)]
pub(crate) struct Overrides {
    compression: Option<Vec<Compression>>,
    dictionary_bytes: Option<usize>,
    /// Filter bits per key.
    pub bits_per_key: Option<f64>,
    block_bytes: Option<usize>,
    file_bytes: Option<u64>,
    policy: Option<MergePolicy>,
    value_threshold: Option<ValueThreshold>,
    value_space: Option<f64>,
}

/// Given settings by name; `None`: that of the database.
pub(crate) type Given = BTreeMap<&'static str, Option<String>>;

/// The name of an option that a keyspace can have for itself.
///
/// # Errors
/// `Invalid` for another name.
pub(crate) fn name_of(name: &str) -> Result<&'static str> {
    NAMES.into_iter().find(|known| *known == name).ok_or_else(|| {
        Error::invalid(format!("{name:?} is no option of a keyspace; these can be set: {}", NAMES.join(", ")))
    })
}

/// The recorded form of given settings.
pub(crate) fn pairs_of(given: &Given) -> impl Iterator<Item = (String, String)> {
    given
        .iter()
        .map(|(name, text)| ((*name).to_owned(), text.clone().unwrap_or_else(|| AS_DATABASE.to_owned())))
}

impl Overrides {
    /// Those that a keyspace records.
    pub fn recorded(recorded: &BTreeMap<String, String>) -> Self {
        let mut overrides = Self::default();
        for name in NAMES {
            if let Some(text) = recorded.get(name).filter(|text| *text != AS_DATABASE) {
                // Otherwise it stays as it is, that of the database.
                let _ = overrides.set(name, Some(text));
            }
        }
        overrides
    }

    /// These settings after the keyspace `keyspace` is given `given`.
    ///
    /// # Errors
    /// `Invalid` for a value of wrong form or out of range; `Unsupported` for a compression that is
    /// not part of this build.
    pub fn and(&self, keyspace: &str, given: &Given) -> Result<Self> {
        let mut overrides = self.clone();
        for (name, text) in given {
            overrides
                .set(name, text.as_deref())
                .map_err(|error| Error::new(error.kind(), format!("keyspace {keyspace:?}: {error}")))?;
        }
        Ok(overrides)
    }

    /// The options that the keyspace has for itself, by name.
    pub fn own(&self) -> Vec<(&'static str, String)> {
        NAMES.into_iter().filter_map(|name| Some((name, self.text(name)?))).collect()
    }

    fn text(&self, name: &str) -> Option<String> {
        match name {
            "compression" => self.compression.as_ref().map(OptionValue::print),
            "compression-dictionary" => self.dictionary_bytes.as_ref().map(OptionValue::print),
            "bits-per-key" => self.bits_per_key.as_ref().map(OptionValue::print),
            "block-size" => self.block_bytes.as_ref().map(OptionValue::print),
            "file-size" => self.file_bytes.as_ref().map(OptionValue::print),
            "policy" => self.policy.as_ref().map(OptionValue::print),
            "value-threshold" => self.value_threshold.as_ref().map(OptionValue::print),
            _ => self.value_space.as_ref().map(OptionValue::print),
        }
    }

    /// Sets the option of this name.
    ///
    /// # Errors
    /// As [`Self::and`], without the name of the keyspace.
    pub fn set(&mut self, name: &str, text: Option<&str>) -> Result<()> {
        match name {
            "compression" => {
                let kinds: Option<Vec<Compression>> = parsed(name, text)?;
                kinds.as_deref().map_or(Ok(()), super::settings::check_compression)?;
                self.compression = kinds;
            }
            "compression-dictionary" => {
                let bytes: Option<usize> = parsed(name, text)?;
                bytes.map_or(Ok(()), super::settings::check_dictionary)?;
                self.dictionary_bytes = bytes;
            }
            "bits-per-key" => self.bits_per_key = parsed(name, text)?,
            "block-size" => self.block_bytes = parsed(name, text)?,
            "file-size" => self.file_bytes = parsed(name, text)?,
            "policy" => self.policy = parsed(name, text)?,
            "value-threshold" => self.value_threshold = parsed(name, text)?,
            _ => self.value_space = parsed(name, text)?,
        }
        Ok(())
    }

    /// The compression of tables built for `level`.
    pub fn compression_for(&self, level: u32, settings: &Settings) -> Compression {
        compression_for(self.compression.as_ref().unwrap_or(&settings.compression), level)
    }

    /// Maximum length of the dictionary of a table built for `level`; 0: it has none.
    pub fn dictionary_bytes_for(&self, level: u32, settings: &Settings) -> usize {
        match self.compression_for(level, settings) {
            Compression::Zstd => self.dictionary_bytes.unwrap_or(settings.dictionary_bytes),
            Compression::None | Compression::Lz4 => 0,
        }
    }

    /// Maximum size of a data block, uncompressed.
    pub fn block_bytes(&self, settings: &Settings) -> usize {
        self.block_bytes.unwrap_or(settings.block_bytes)
    }

    /// Target size of tables.
    pub fn table_bytes(&self, settings: &Settings) -> u64 {
        self.file_bytes.unwrap_or_else(|| settings.table_bytes())
    }

    /// Minimum length of a value that is stored in a value file; `None`: all are stored in tables.
    pub fn value_bytes_min(&self, settings: &Settings) -> Option<u32> {
        self.value_threshold(settings).bytes_min(settings.live.auto_value_bytes())
    }

    /// Maximum space of values and tables, as a multiple of the live data.
    pub fn value_space(&self, settings: &Settings) -> f64 {
        self.value_space.unwrap_or(settings.value_space)
    }

    /// The option that decides about it.
    pub fn value_threshold(&self, settings: &Settings) -> ValueThreshold {
        self.value_threshold.unwrap_or(settings.value_threshold)
    }

    /// The rules by which value files are collected in a tree of `version`; `None` if it has none.
    pub fn value_rules(&self, settings: &Settings, version: &Version) -> Option<ValueRules> {
        if version.value_totals().is_empty() {
            return None;
        }
        Some(ValueRules {
            space: self.value_space(settings),
            files_max: ValueRules::files_max(settings.budget_bytes(), version.tables().count() as u64),
            file_bytes: self.value_file_bytes(settings),
            has_one_last_run: true,
            // Under `auto`, what is in files stays there until its garbage is collected.
            is_off: self.value_threshold(settings) == ValueThreshold::Off,
        })
    }

    /// Minimum length of the chunks at which a value file ends: four tables' length, since several
    /// tables refer to each file, and each takes an entry in the lists of those.
    pub fn value_file_bytes(&self, settings: &Settings) -> u64 {
        self.table_bytes(settings).saturating_mul(VALUE_FILE_TABLES)
    }

    /// Whether the keyspace has a merge policy of its own.
    pub fn has_policy(&self) -> bool {
        self.policy.is_some()
    }

    /// The design of the keyspace's tree in a database with this design.
    pub fn design(&self, design: Design) -> Design {
        match self.policy {
            None => design,
            Some(policy) => Design::new(policy, design.size_ratio, design.buffer_bytes, design.bits_per_key),
        }
    }
}

/// A value from the text of the option `name`.
fn parsed<T: OptionValue>(name: &str, text: Option<&str>) -> Result<Option<T>> {
    let Some(text) = text else { return Ok(None) };
    let option = super::find(name).ok_or_else(|| Error::invalid(format!("unknown option {name:?}")))?;
    option.check(text).map_err(|message| Error::invalid(format!("{name} {message}")))?;
    let value = T::parse(text).ok_or_else(|| Error::invalid(format!("{name} cannot be {text:?} here")))?;
    Ok(Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree with a table that refers to a value file.
    const VALUES: &str = "L1: r1@1[2:a..z 40 val=3:2:300]\nV: 000003 428 n=2\n";

    fn given(pairs: &[(&'static str, Option<&str>)]) -> Given {
        pairs.iter().map(|(name, text)| (*name, text.map(str::to_owned))).collect()
    }

    #[test]
    fn every_name_is_an_option_and_restores_from_its_text() {
        let all = given(&[
            ("compression", Some("none,lz4")),
            ("compression-dictionary", Some("4096")),
            ("bits-per-key", Some("12.5")),
            ("block-size", Some("1024")),
            ("file-size", Some("1048576")),
            ("policy", Some("tiering")),
            ("value-threshold", Some("4096")),
            ("value-space", Some("1.5")),
        ]);
        assert_eq!(all.len(), NAMES.len());
        let overrides = Overrides::default().and("logs", &all).expect("valid");
        assert_eq!(overrides.own().len(), NAMES.len());
        assert_eq!(Overrides::recorded(&pairs_of(&all).collect()), overrides);
        let settings = Settings::default();
        assert_eq!(overrides.compression_for(0, &settings), Compression::None);
        assert_eq!(overrides.compression_for(5, &settings), Compression::Lz4);
        assert_eq!(overrides.dictionary_bytes_for(5, &settings), 0, "lz4 uses none");
        let zstd = overrides.and("logs", &given(&[("compression", Some("none,zstd"))])).expect("valid");
        assert_eq!([0, 5].map(|level| zstd.dictionary_bytes_for(level, &settings)), [0, 4_096]);
        assert_eq!((overrides.block_bytes(&settings), overrides.table_bytes(&settings)), (1_024, 1 << 20));
        assert_eq!(overrides.value_bytes_min(&settings), Some(4_096));
        let version: Version = VALUES.parse().expect("notation");
        let rules = overrides.value_rules(&settings, &version).expect("a tree with value files");
        assert_eq!((rules.space, rules.file_bytes, rules.is_off), (1.5, 4 << 20, false));
        let design = Design::new(MergePolicy::Leveling, 6.0, 1 << 20, 7.0);
        assert_eq!(overrides.design(design), Design::new(MergePolicy::Tiering, 6.0, 1 << 20, 7.0));
        for name in NAMES {
            let left = overrides.and("logs", &given(&[(name_of(name).expect("a name"), None)]));
            assert_eq!(left.expect("valid").own().len(), NAMES.len() - 1, "{name}");
        }
    }

    #[test]
    fn a_bad_value_names_keyspace_and_option_and_a_later_one_is_as_none() {
        for (name, text, of) in [
            ("bits-per-key", "many", "a number"),
            ("bits-per-key", "-1", "from 0"),
            ("block-size", "8192", "4 KiB"),
            ("compression", "snappy", "lz4"),
            ("compression-dictionary", "255", "256"),
            ("compression-dictionary", "65537", "64 KiB"),
            ("policy", "none", "leveling"),
            ("file-size", "auto", "cannot be"),
            ("value-threshold", "32", "64"),
            ("value-threshold", "on", "off"),
            ("value-space", "1", "1.1"),
        ] {
            let error = Overrides::default().and("logs", &given(&[(name, Some(text))])).expect_err(text);
            let message = error.to_string();
            let names_all = message.contains("\"logs\"") && message.contains(name) && message.contains(of);
            assert!(names_all, "{message}");
            let recorded = BTreeMap::from([(name.to_owned(), text.to_owned())]);
            assert_eq!(Overrides::recorded(&recorded), Overrides::default());
        }
        assert!(name_of("sync").expect_err("of the database").to_string().contains("compression"));
    }

    #[test]
    fn without_settings_of_its_own_a_keyspace_is_as_the_database() {
        let (overrides, settings) = (Overrides::default(), Settings::default());
        let design = Design::new(MergePolicy::LazyLeveling, 6.0, 1 << 20, 7.0);
        assert_eq!(overrides.design(design), design);
        assert_eq!(overrides.block_bytes(&settings), settings.block_bytes);
        assert_eq!(overrides.table_bytes(&settings), settings.table_bytes());
        assert_eq!(overrides.compression_for(3, &settings), Compression::None);
        assert_eq!(overrides.value_bytes_min(&settings), None);
        let version: Version = VALUES.parse().expect("notation");
        let rules = overrides.value_rules(&settings, &version).expect("a tree with value files");
        assert_eq!((rules.space, rules.is_off), (1.25, true));
        assert_eq!(overrides.value_rules(&settings, &Version::empty()), None);
        assert!(overrides.own().is_empty());
    }
}
