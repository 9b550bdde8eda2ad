//! Settings of one column family that the cost model covers, read from an OPTIONS file.
//!
//! A missing setting takes RocksDB's default. A value that does not parse is an error that names
//! the line. A valid value outside the model (compression, blob files, a custom filter policy)
//! becomes a note: the prediction leaves it out.
//!
//! Not here: the syntax (`file.rs`), settings outside the model (`notes.rs`), and the design that
//! the settings describe (`tree.rs`).

use shamba_model::MAX_BITS_PER_KEY;

use super::file::{OptionsFile, TextPlace};
use super::universal::Universal;

/// Title of a column family's section.
pub const FAMILY: &str = "CFOptions";
/// Title of its table options' section.
const TABLE: &str = "TableOptions/BlockBasedTable";
/// Assumed bits of a filter policy that does not state them: RocksDB's recommendation.
const BITS_PER_KEY: f64 = 10.0;

/// A trigger that no number of runs reaches.
pub const NO_TRIGGER: u64 = u64::MAX;

/// RocksDB's compaction style.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Style {
    /// One run per level below level 0.
    Level,
    /// Runs of similar size are merged.
    Universal,
}

/// The settings of a column family.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// RocksDB's version, if the file states it.
    pub version: Option<String>,
    /// `compaction_style`.
    pub style: Style,
    /// `write_buffer_size`.
    pub write_buffer_bytes: u64,
    /// `max_write_buffer_number`.
    pub write_buffers: u64,
    /// `min_write_buffer_number_to_merge`: number of buffers that go to level 0 as one run.
    pub buffers_merged: u64,
    /// `max_bytes_for_level_base`: capacity of level 1.
    pub level_base_bytes: u64,
    /// `max_bytes_for_level_multiplier`: T.
    pub multiplier: f64,
    /// `level_compaction_dynamic_level_bytes`: level sizes are derived from the last level's
    /// instead of the first's.
    pub is_dynamic: bool,
    /// `num_levels`, level 0 included.
    pub num_levels: u32,
    /// `level0_file_num_compaction_trigger`: runs that gather in level 0; in universal style,
    /// maximum runs in total.
    pub level0_trigger: u64,
    /// `level0_slowdown_writes_trigger`: number of runs from which writes are slowed.
    pub level0_slowdown: u64,
    /// `level0_stop_writes_trigger`: number of runs at which writes stop.
    pub level0_stop: u64,
    /// `compaction_options_universal`.
    pub universal: Universal,
    /// Bits of `filter_policy`; 0: no filters, or filters that lookups of whole keys cannot use.
    pub bits_per_key: f64,
    /// `optimize_filters_for_hits`: the last level has no filters.
    pub skips_last_filter: bool,
    /// `block_size`.
    pub block_bytes: u64,
    /// The block cache's size, if the file states it.
    pub block_cache_bytes: Option<u64>,
    /// `cache_index_and_filter_blocks`: filters are in the block cache, and can be evicted from it.
    pub filters_in_cache: bool,
    /// Notes on settings outside the model, and on assumptions.
    pub notes: Vec<String>,
}

/// The file and the sections of one column family.
pub struct Family<'a> {
    /// The file.
    pub file: &'a OptionsFile,
    /// Index of its `CFOptions` section.
    pub options: usize,
    /// Index of its `TableOptions` section, if there is one.
    pub table: Option<usize>,
}

impl<'a> Family<'a> {
    /// The sections of the column family `name`.
    ///
    /// # Errors
    /// There is none of that name; the message lists the existing ones.
    pub fn of(file: &'a OptionsFile, name: &str) -> Result<Self, String> {
        let families: Vec<&str> = file
            .sections()
            .iter()
            .filter(|section| section.title == FAMILY)
            .map(|section| section.argument.as_str())
            .collect();
        if families.is_empty() {
            return Err(format!("has no section [{FAMILY} \"...\"]; is it an OPTIONS file of RocksDB?"));
        }
        let options = file
            .section(FAMILY, name)
            .ok_or_else(|| format!("has no column family {name:?} (it has: {})", families.join(", ")))?;
        Ok(Self { file, options, table: file.section(TABLE, name) })
    }

    /// Position of a setting of the column family.
    pub fn place(&self, name: &str) -> Option<TextPlace> {
        self.file.find(self.options, name)
    }

    /// Position of a setting of its tables: in their own section, or in braces in the family's
    /// section.
    ///
    /// # Errors
    /// Braces that do not match.
    pub fn table_place(&self, name: &str) -> Result<Option<TextPlace>, String> {
        if let Some(place) = self.table.and_then(|table| self.file.find(table, name)) {
            return Ok(Some(place));
        }
        match self.place("block_based_table_factory") {
            Some(factory) => self.file.find_inside(&factory, name),
            None => Ok(None),
        }
    }

    fn read<T>(
        &self,
        name: &str,
        place: Option<TextPlace>,
        default: T,
        parse: impl Fn(&str) -> Option<T>,
        what: &str,
    ) -> Result<T, String> {
        let Some(place) = place else { return Ok(default) };
        let value = self.file.value(&place);
        parse(&value).ok_or_else(|| format!("line {}: {name} is {value:?}, not {what}", place.line))
    }

    fn positive(&self, name: &str, default: u64) -> Result<u64, String> {
        let parse = |text: &str| number(text).filter(|number| *number > 0);
        self.read(name, self.place(name), default, parse, "a whole number of at least 1")
    }

    /// A trigger in runs. A negative value means no trigger, and a value below `least` is raised to
    /// it, as in RocksDB.
    fn trigger(&self, name: &str, default: u64, least: u64, notes: &mut Vec<String>) -> Result<u64, String> {
        let place = self.place(name);
        let is_set = place.is_some();
        let parse = |text: &str| match number(text) {
            Some(runs) => i64::try_from(runs).ok(),
            None => text.parse::<i64>().ok(),
        };
        let runs =
            self.read(name, place, i64::try_from(default).unwrap_or(i64::MAX), parse, "a whole number")?;
        match u64::try_from(runs) {
            Ok(runs) if runs >= least || least == NO_TRIGGER => Ok(runs),
            Ok(runs) => {
                if is_set {
                    notes.push(at(self, name, &format!("is {runs}: RocksDB uses {least}")));
                }
                Ok(least)
            }
            Err(_) => {
                notes.push(at(self, name, &format!("is {runs}: the trigger is disabled")));
                Ok(NO_TRIGGER)
            }
        }
    }

    /// A boolean setting.
    pub fn flag(&self, name: &str, default: bool) -> Result<bool, String> {
        self.read(name, self.place(name), default, flag, "true or false")
    }

    fn table_flag(&self, name: &str, default: bool) -> Result<bool, String> {
        self.read(name, self.table_place(name)?, default, flag, "true or false")
    }

    /// A setting's value as text.
    pub fn word(&self, name: &str) -> Option<String> {
        self.place(name).map(|place| self.file.value(&place))
    }
}

impl Settings {
    /// Reads the settings of a column family.
    ///
    /// # Errors
    /// An invalid value, with its line; or a compaction style that the model does not have.
    pub fn read(family: &Family<'_>) -> Result<Self, String> {
        let file = family.file;
        let version = file
            .section("Version", "")
            .and_then(|section| file.find(section, "rocksdb_version"))
            .map(|place| file.value(&place));
        let mut notes = Vec::new();
        let style = style(family)?;
        if family.flag("disable_auto_compactions", false)? {
            return Err(at(
                family,
                "disable_auto_compactions",
                "disables compaction, which the model does not support",
            ));
        }
        let multiplier = family.read(
            "max_bytes_for_level_multiplier",
            family.place("max_bytes_for_level_multiplier"),
            10.0,
            |text| text.parse().ok().filter(|number| (1.0..=f64::from(u16::MAX)).contains(number)),
            "a number from 1",
        )?;
        let block_bytes = family.read(
            "block_size",
            family.table_place("block_size")?,
            4096,
            |text| number(text).filter(|bytes| *bytes > 0),
            "a size in bytes",
        )?;
        let bits_per_key = filter_bits(family, &mut notes)?;
        let level0_trigger = family.trigger("level0_file_num_compaction_trigger", 4, 1, &mut notes)?;
        let level0_slowdown =
            family.trigger("level0_slowdown_writes_trigger", 20, level0_trigger, &mut notes)?;
        let settings = Self {
            is_dynamic: family
                .flag("level_compaction_dynamic_level_bytes", dynamic_by_default(version.as_deref()))?,
            version,
            style,
            write_buffer_bytes: family.positive("write_buffer_size", 64 << 20)?,
            write_buffers: family.positive("max_write_buffer_number", 2)?,
            buffers_merged: family.positive("min_write_buffer_number_to_merge", 1)?,
            level_base_bytes: family.positive("max_bytes_for_level_base", 256 << 20)?,
            multiplier,
            num_levels: u32::try_from(family.positive("num_levels", 7)?).unwrap_or(u32::MAX),
            level0_trigger,
            level0_slowdown,
            universal: Universal::read(family)?,
            level0_stop: family.trigger("level0_stop_writes_trigger", 36, level0_slowdown, &mut notes)?,
            bits_per_key,
            skips_last_filter: family.flag("optimize_filters_for_hits", false)?,
            block_bytes,
            block_cache_bytes: block_cache(family, &mut notes)?,
            filters_in_cache: family.table_flag("cache_index_and_filter_blocks", false)?,
            notes,
        };
        let mut settings = settings;
        settings.note_the_rest(family)?;
        Ok(settings)
    }
}

fn at(family: &Family<'_>, name: &str, what: &str) -> String {
    let line = family.place(name).map_or_else(String::new, |place| format!("line {}: ", place.line));
    format!("{line}{name} {what}")
}

fn style(family: &Family<'_>) -> Result<Style, String> {
    // Files state the style by name, old ones by number.
    match family.word("compaction_style").as_deref() {
        None | Some("kCompactionStyleLevel" | "0") => Ok(Style::Level),
        Some("kCompactionStyleUniversal" | "1") => Ok(Style::Universal),
        Some("kCompactionStyleFIFO" | "2") => {
            let what = "is FIFO, which never compacts and drops the oldest data: not supported by the model";
            Err(at(family, "compaction_style", what))
        }
        Some("kCompactionStyleNone" | "3") => {
            Err(at(family, "compaction_style", "is None, which never compacts: not supported by the model"))
        }
        Some(other) => {
            let what = format!("is {other:?}, not kCompactionStyleLevel or kCompactionStyleUniversal");
            Err(at(family, "compaction_style", &what))
        }
    }
}

/// Default of `level_compaction_dynamic_level_bytes`: on since version 8.4.
fn dynamic_by_default(version: Option<&str>) -> bool {
    let Some(version) = version else { return true };
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= (8, 4)
}

fn filter_bits(family: &Family<'_>, notes: &mut Vec<String>) -> Result<f64, String> {
    let Some(place) = family.table_place("filter_policy")? else {
        notes.push("filter_policy: not set, so there are no filters".into());
        return Ok(0.0);
    };
    let file = family.file;
    // Newer versions: {id=bloomfilter:10;bloom_before_level=2147483647;}
    let place = match file.raw(&place).starts_with('{') {
        true => file.find_inside(&place, "id")?.unwrap_or(place),
        false => place,
    };
    let policy = file.value(&place);
    let mut parts = policy.split(':');
    let (kind, bits) = (parts.next().unwrap_or_default(), parts.next());
    let is_ribbon = kind.to_ascii_lowercase().contains("ribbon");
    let wrong = || {
        format!("line {}: filter_policy is {policy:?}: its bits are not a number of at least 0", place.line)
    };
    let bits_per_key = match (kind, bits) {
        ("nullptr" | "", None) => {
            notes.push(format!("line {}: filter_policy is nullptr, so there are no filters", place.line));
            return Ok(0.0);
        }
        (_, Some(bits))
            if ["bloomfilter", "ribbonfilter"].contains(&kind) || kind.starts_with("rocksdb.") =>
        {
            bits.parse::<f64>().ok().filter(|bits| (0.0..=1000.0).contains(bits)).ok_or_else(wrong)?
        }
        // RocksDB's C API, and therefore its bindings, write "bloomfilter" without bits.
        _ => {
            notes.push(format!(
                "line {}: filter_policy {policy} does not state its bits: assuming {BITS_PER_KEY}",
                place.line
            ));
            BITS_PER_KEY
        }
    };
    if is_ribbon {
        let what = "the bits of a ribbon filter are those of an equivalent Bloom filter; it takes some 30 % less memory";
        notes.push(format!("filter_policy {policy}: {what}"));
    }
    if !family.table_flag("whole_key_filtering", true)? {
        notes.push("whole_key_filtering is false: point lookups use no filters".into());
        return Ok(0.0);
    }
    if bits_per_key > MAX_BITS_PER_KEY {
        notes.push(format!(
            "filter_policy {policy}: more than {MAX_BITS_PER_KEY} bits per key save nothing; assuming {MAX_BITS_PER_KEY}"
        ));
    }
    Ok(bits_per_key.min(MAX_BITS_PER_KEY))
}

fn block_cache(family: &Family<'_>, notes: &mut Vec<String>) -> Result<Option<u64>, String> {
    if family.table_flag("no_block_cache", false)? {
        return Ok(Some(0));
    }
    let Some(place) = family.table_place("block_cache")? else {
        notes.push("block_cache: OPTIONS files do not state its size; set it with --cache".into());
        return Ok(None);
    };
    let file = family.file;
    let place = match file.raw(&place).starts_with('{') {
        true => file.find_inside(&place, "capacity")?.unwrap_or(place),
        false => place,
    };
    let size = number(&file.value(&place));
    if size.is_none() {
        let value = file.value(&place);
        notes.push(format!(
            "line {}: block_cache {value} does not state its size; set it with --cache",
            place.line
        ));
    }
    Ok(size)
}

/// Parses a whole number as RocksDB does: with K, M, G or T for powers of 1024.
pub fn number(text: &str) -> Option<u64> {
    let (digits, shift) = match text.char_indices().last()? {
        (at, 'k' | 'K') => (&text[..at], 10),
        (at, 'm' | 'M') => (&text[..at], 20),
        (at, 'g' | 'G') => (&text[..at], 30),
        (at, 't' | 'T') => (&text[..at], 40),
        _ => (text, 0),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

fn flag(text: &str) -> Option<bool> {
    match text {
        "true" | "1" => Some(true),
        "false" | "0" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn read(text: &str) -> Result<Settings, String> {
        let file = OptionsFile::parse(text.as_bytes())?;
        Settings::read(&Family::of(&file, "default")?)
    }

    pub fn with(options: &str, table: &str) -> Result<Settings, String> {
        read(&format!(
            "[CFOptions \"default\"]\n{options}\n[TableOptions/BlockBasedTable \"default\"]\n{table}\n"
        ))
    }

    #[test]
    fn what_is_not_set_is_rocksdbs_default() {
        let settings = with("", "").unwrap();
        assert_eq!((settings.style, settings.write_buffer_bytes), (Style::Level, 64 << 20));
        assert_eq!((settings.level_base_bytes, settings.multiplier), (256 << 20, 10.0));
        assert_eq!((settings.bits_per_key, settings.block_cache_bytes), (0.0, None));
        assert!(settings.is_dynamic);
        let old = read("[Version]\nrocksdb_version=6.29.5\n[CFOptions \"default\"]\n").unwrap();
        assert!(!old.is_dynamic, "it was off before 8.4");
    }

    #[test]
    fn every_way_to_name_a_filter_is_read() {
        for (policy, bits) in [
            ("bloomfilter:10:false", 10.0),
            ("bloomfilter:4.5", 4.5),
            ("ribbonfilter:9.9:3", 9.9),
            ("{id=ribbonfilter:10:3;bloom_before_level=3;}", 10.0),
            ("{bloom_before_level=2147483647;id=bloomfilter\\:12;}", 12.0),
            ("rocksdb.internal.FastLocalBloomFilter:8", 8.0),
            ("rocksdb.BuiltinBloomFilter", 10.0),
            ("bloomfilter", 10.0),
            ("ribbonfilter", 10.0),
            ("DocKeyV3Filter", 10.0),
            ("nullptr", 0.0),
            ("", 0.0),
        ] {
            let settings = with("", &format!("filter_policy={policy}")).unwrap();
            assert_eq!(settings.bits_per_key, bits, "{policy}");
        }
        for policy in ["bloomfilter:", "bloomfilter:x", "bloomfilter:-3", "ribbonfilter:NaN"] {
            let error = with("", &format!("filter_policy={policy}")).unwrap_err();
            assert!(error.starts_with("line 4: filter_policy"), "{error}");
        }
        let prefix = with("", "filter_policy=bloomfilter:10\nwhole_key_filtering=false").unwrap();
        assert_eq!(prefix.bits_per_key, 0.0);
        let inside = "block_based_table_factory={block_cache={capacity=32M;num_shard_bits=4;};filter_policy=bloomfilter:7;}";
        let settings = with(inside, "").unwrap();
        assert_eq!((settings.bits_per_key, settings.block_cache_bytes), (7.0, Some(32 << 20)));
    }

    #[test]
    fn what_cannot_be_judged_is_refused_with_its_line() {
        for (options, what) in [
            ("compaction_style=kCompactionStyleFIFO", "FIFO"),
            ("compaction_style=kCompactionStyleNone", "None"),
            ("compaction_style=sideways", "sideways"),
            ("disable_auto_compactions=true", "disables compaction"),
            ("write_buffer_size=lots", "lots"),
            ("write_buffer_size=0", "at least 1"),
            ("write_buffer_size=-1", "-1"),
            ("write_buffer_size=18446744073709551615K", "whole number"),
            ("max_bytes_for_level_multiplier=nan", "nan"),
            ("num_levels=", "\"\""),
            ("optimize_filters_for_hits=maybe", "true or false"),
        ] {
            let error = with(options, "").unwrap_err();
            assert!(error.starts_with("line 2: ") && error.contains(what), "{options}: {error}");
        }
        assert!(with("", "block_size=0").unwrap_err().contains("line 4: block_size"));
        let error = read("[CFOptions \"default\"]\n[CFOptions \"b\"]\n[Version]\n").map(|_| ());
        assert_eq!(error, Ok(()));
        let file = OptionsFile::parse(b"[CFOptions \"default\"]\n[CFOptions \"b\"]\n").unwrap();
        let error = Family::of(&file, "c").map(|_| ()).unwrap_err();
        assert!(error.contains("default, b"), "{error}");
        assert!(read("[Version]\n").unwrap_err().contains("CFOptions"));
    }
}
