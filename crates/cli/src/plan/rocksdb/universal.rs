//! `compaction_options_universal`: the picking rules of universal compaction, and their effect on
//! space and merges.
//!
//! From `level0_file_num_compaction_trigger` sorted runs on, RocksDB
//! (`compaction_picker_universal.cc`) applies the first of these rules that matches:
//!
//! 1. The runs above the oldest one hold `max_size_amplification_percent` of its size or more: all
//!    runs are merged.
//! 2. There are `min_merge_width` to `max_merge_width` consecutive runs, newest first, each at most
//!    as large as those before it together plus `size_ratio` percent (`stop_style`
//!    kCompactionStopStyleTotalSize): these are merged.
//! 3. There are more runs than the trigger (`max_read_amp`, if that is set): the newest are merged,
//!    whatever their sizes.
//!
//! So the trigger bounds the runs, and the percentage bounds the space. Its default is 200: three
//! bytes stored for a byte of data. Advice writes all options of these rules with the style,
//! because a file may have other values.
//!
//! **Space.** Rule 1 is checked only when the runs reach the trigger R, up to R flushes late. With
//! data of N buffers, a byte of data takes at most 1 + percent / 100 + R / N bytes.
//!
//! **Merges.** Rules 2 and 3 alone merge as tiering does ([`super::tree`]). Rule 1 writes all data
//! once for each percent / 100 of it that arrives: 100 / percent merges of an entry, which replace
//! tiering's merges on the last level.
//!
//! A test here simulates the three rules for 62 combinations of data, runs and bounds. Runs and
//! space stay within the figures; merges are 0.56 to 1.26 times the predicted ones (0.85 in the
//! mean).
//!
//! Not here: the design for a number of runs (`tree.rs`); the choice of options and runs
//! (`advice.rs`).

use super::file::TextPlace;
use super::settings::{Family, number};
use shamba_model::MAX_RUNS;

/// Name of the setting.
pub const NAME: &str = "compaction_options_universal";
/// Minimum percentage that is proposed: below it nearly every compaction would merge everything.
const PERCENT_MIN: f64 = 25.0;
const TOTAL_SIZE: &str = "kCompactionStopStyleTotalSize";
const SIMILAR_SIZE: &str = "kCompactionStopStyleSimilarSize";

/// The options inside the braces.
#[derive(Clone, PartialEq, Debug)]
pub struct Universal {
    /// `size_ratio`, in percent.
    pub size_ratio: u32,
    /// `min_merge_width`, in runs.
    pub min_merge_width: u32,
    /// `max_merge_width`, in runs.
    pub max_merge_width: u32,
    /// `max_size_amplification_percent`.
    pub space_percent: u32,
    /// `stop_style`: whether a run is compared with the one before it instead of the sum of all
    /// before it.
    pub compares_neighbours: bool,
    /// `max_read_amp`, if the file has it: versions before 2024 do not. -1: the trigger bounds the
    /// runs.
    pub max_read_amp: Option<i32>,
    /// All other options, as written in the file.
    others: Vec<(String, String)>,
    /// Whether the file states all five options that older versions have.
    is_stated: bool,
}

impl Default for Universal {
    /// RocksDB's defaults, with no option stated.
    fn default() -> Self {
        Self {
            size_ratio: 1,
            min_merge_width: 2,
            max_merge_width: u32::MAX,
            space_percent: 200,
            compares_neighbours: false,
            max_read_amp: None,
            others: Vec::new(),
            is_stated: false,
        }
    }
}

impl Universal {
    /// Reads the options of a column family.
    ///
    /// # Errors
    /// An invalid value, with its line.
    pub fn read(family: &Family<'_>) -> Result<Self, String> {
        let Some(place) = family.place(NAME) else { return Ok(Self::default()) };
        let file = family.file;
        let mut read = Self::default();
        let mut stated = [false; 5];
        for (name, place) in file.inside(&place)? {
            match name {
                "size_ratio" => (read.size_ratio, stated[0]) = (count(family, name, &place)?, true),
                "min_merge_width" => (read.min_merge_width, stated[1]) = (count(family, name, &place)?, true),
                "max_merge_width" => (read.max_merge_width, stated[2]) = (count(family, name, &place)?, true),
                "max_size_amplification_percent" => {
                    (read.space_percent, stated[3]) = (count(family, name, &place)?, true);
                }
                "stop_style" => {
                    let value = file.value(&place);
                    read.compares_neighbours = match value.as_str() {
                        TOTAL_SIZE => false,
                        SIMILAR_SIZE => true,
                        _ => {
                            let what = format!("{TOTAL_SIZE} or {SIMILAR_SIZE}");
                            return Err(wrong(&place, name, &value, &what));
                        }
                    };
                    stated[4] = true;
                }
                "max_read_amp" => {
                    let value = file.value(&place);
                    let runs = value.parse::<i32>().ok().filter(|runs| *runs >= -1);
                    let what = "a whole number from -1";
                    read.max_read_amp = Some(runs.ok_or_else(|| wrong(&place, name, &value, what))?);
                }
                _ => read.others.push((name.to_owned(), file.raw(&place).to_owned())),
            }
        }
        read.is_stated = stated.iter().all(|is_stated| *is_stated);
        Ok(read)
    }

    /// These options with the picking rules that the model assumes, and this bound on space.
    pub fn proposed(&self, space_percent: u32) -> Self {
        Self {
            space_percent,
            max_read_amp: self.max_read_amp.map(|_| -1),
            others: self.others.clone(),
            is_stated: true,
            ..Self::default()
        }
    }

    /// The value as written in the file; "not set" if the file states none.
    pub fn shown(&self) -> String {
        if !self.is_stated && *self == Self::default() {
            return "not set".into();
        }
        let style = if self.compares_neighbours { SIMILAR_SIZE } else { TOTAL_SIZE };
        let mut text = format!(
            "{{size_ratio={};min_merge_width={};max_merge_width={};max_size_amplification_percent={};stop_style={style};",
            self.size_ratio, self.min_merge_width, self.max_merge_width, self.space_percent
        );
        if let Some(runs) = self.max_read_amp {
            text += &format!("max_read_amp={runs};");
        }
        for (name, value) in &self.others {
            text += &format!("{name}={value};");
        }
        text + "}"
    }

    /// Options whose picking differs from the model's assumptions, in words.
    pub fn differences(&self) -> Option<String> {
        let incremental =
            self.others.iter().any(|(name, value)| name == "incremental" && value != "false" && value != "0");
        let told: Vec<String> = [
            (self.size_ratio != 1).then(|| format!("size_ratio={}", self.size_ratio)),
            (self.min_merge_width > 2).then(|| format!("min_merge_width={}", self.min_merge_width)),
            (self.max_merge_width != u32::MAX).then(|| format!("max_merge_width={}", self.max_merge_width)),
            self.compares_neighbours.then(|| format!("stop_style={SIMILAR_SIZE}")),
            self.max_read_amp.filter(|runs| *runs != -1).map(|runs| format!("max_read_amp={runs}")),
            incremental.then(|| "incremental=true".into()),
        ]
        .into_iter()
        .flatten()
        .collect();
        let what = "the model assumes RocksDB's defaults of these";
        (!told.is_empty()).then(|| format!("{NAME}: {}: {what}", told.join(", ")))
    }

    /// Maximum bytes stored for a byte of data. `buffers`: size of the data in flushed runs.
    pub fn space_amplification(&self, runs_max: u64, buffers: f64) -> f64 {
        let runs_max = runs_max.min(u64::from(MAX_RUNS)) as f64;
        // At most as if every run held all of the data.
        (1.0 + f64::from(self.space_percent) / 100.0 + runs_max / buffers).min(runs_max.max(1.0))
    }

    /// Merges of an entry, where tiering with this size ratio and number of levels makes `tiered`.
    pub fn merges_per_entry(&self, tiered: f64, size_ratio: f64, levels: u32) -> f64 {
        let above = f64::from(levels.saturating_sub(1)) * (size_ratio - 1.0) / size_ratio;
        tiered.max(above + 100.0 / f64::from(self.space_percent.max(1)))
    }
}

/// The percentage with which `runs_max` runs stay within a bound on space; `None` if there is none,
/// or it is below [`PERCENT_MIN`].
pub fn space_percent(max_space: f64, runs_max: u64, buffers: f64) -> Option<u32> {
    let percent = (max_space - 1.0 - runs_max as f64 / buffers) * 100.0;
    // That many runs of one size cannot hold more.
    let most = runs_max.saturating_sub(1) as f64 * 100.0;
    // The small addition compensates for rounding of floats; `as` saturates.
    let percent = ((percent + 1e-6).floor()).min(most);
    (percent >= PERCENT_MIN).then_some(percent as u32)
}

fn count(family: &Family<'_>, name: &str, place: &TextPlace) -> Result<u32, String> {
    let value = family.file.value(place);
    let read = number(&value).and_then(|count| u32::try_from(count).ok());
    read.ok_or_else(|| wrong(place, name, &value, "a whole number"))
}

fn wrong(place: &TextPlace, name: &str, value: &str, what: &str) -> String {
    format!("line {}: {name} in {NAME} is {value:?}, not {what}", place.line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::rocksdb::file::OptionsFile;

    fn read(value: &str) -> Result<Universal, String> {
        let text = format!("[CFOptions \"default\"]\n  {NAME}={value}\n");
        let file = OptionsFile::parse(text.as_bytes())?;
        Universal::read(&Family::of(&file, "default")?)
    }

    #[test]
    fn what_is_written_is_read_back_and_other_options_are_kept() {
        let whole = "{allow_trivial_move=true;stop_style=kCompactionStopStyleSimilarSize;min_merge_width=3;\
                     max_size_amplification_percent=150;max_merge_width=9;size_ratio=7;incremental=true;max_read_amp=12;}";
        let universal = read(whole).unwrap();
        assert_eq!((universal.size_ratio, universal.min_merge_width), (7, 3));
        assert_eq!((universal.max_merge_width, universal.space_percent), (9, 150));
        assert_eq!((universal.compares_neighbours, universal.max_read_amp), (true, Some(12)));
        let told = universal.differences().unwrap();
        for what in
            ["size_ratio=7", "min_merge_width=3", "max_merge_width=9", "SimilarSize", "max_read_amp=12"]
        {
            assert!(told.contains(what), "{what} in {told}");
        }
        let proposed = universal.proposed(98);
        let text = proposed.shown();
        assert_eq!(read(&text).unwrap(), proposed);
        for what in [
            "size_ratio=1;",
            "min_merge_width=2;",
            "max_merge_width=4294967295;",
            "max_size_amplification_percent=98;",
            "stop_style=kCompactionStopStyleTotalSize;",
            "max_read_amp=-1;",
            "allow_trivial_move=true;",
        ] {
            assert!(text.contains(what), "{what} in {text}");
        }
        // Old versions have neither `max_read_amp` nor the other options: only options in the file
        // are written.
        let plain = Universal::default().proposed(100).shown();
        assert!(!plain.contains("max_read_amp") && plain.ends_with("TotalSize;}"), "{plain}");
        assert_eq!(Universal::default().proposed(100).differences(), None);
    }

    #[test]
    fn what_is_not_stated_is_rocksdbs_default_and_garbage_is_refused() {
        for value in ["", "{}", "{size_ratio=1;}", "size_ratio=1;"] {
            let universal = read(value).unwrap();
            assert_eq!((universal.space_percent, universal.is_stated), (200, false), "{value}");
        }
        assert_eq!(Universal::default().shown(), "not set");
        for (value, what) in [
            ("{size_ratio=x;}", "size_ratio"),
            ("{max_size_amplification_percent=-1;}", "max_size_amplification_percent"),
            ("{max_merge_width=4294967296;}", "max_merge_width"),
            ("{stop_style=sometimes;}", "stop_style"),
            ("{max_read_amp=-2;}", "max_read_amp"),
            ("{size_ratio=1", "braces"),
        ] {
            let error = read(value).unwrap_err();
            assert!(error.starts_with("line 2: ") && error.contains(what), "{value}: {error}");
        }
    }

    /// Result of applying the three rules to a stream of flushes.
    #[derive(Debug)]
    struct Played {
        merges_per_entry: f64,
        runs_max: usize,
        space_max: f64,
    }

    /// Simulates RocksDB's rules: flushes overwrite keys drawn evenly from `buffers` buffers of
    /// data.
    fn play(universal: &Universal, trigger: usize, buffers: f64) -> Played {
        // Distinct keys among those that this many flushes wrote.
        let distinct = |flushes: f64| buffers * (1.0 - (-flushes / buffers).exp());
        let mut above: Vec<f64> = Vec::new();
        let (warm, flushes) = (2 * buffers as usize, 8 * buffers as usize);
        let (mut written, mut runs_max, mut space_max) = (0.0, 0, 0.0_f64);
        for flush in 0..flushes {
            above.insert(0, 1.0);
            if flush == warm {
                (written, runs_max, space_max) = (0.0, 0, 0.0);
            }
            loop {
                let sizes: Vec<f64> = above.iter().map(|run| distinct(*run)).chain([buffers]).collect();
                let bytes: f64 = sizes.iter().sum();
                space_max = space_max.max(bytes / buffers);
                if sizes.len() < trigger {
                    break;
                }
                let Some((from, to)) = pick(universal, trigger, &sizes, bytes) else { break };
                if to == sizes.len() {
                    above.truncate(from);
                    written += buffers;
                } else {
                    let merged: f64 = above.drain(from..to).sum();
                    above.insert(from, merged);
                    written += distinct(merged);
                }
            }
            runs_max = runs_max.max(above.len() + 1);
        }
        Played { merges_per_entry: written / (flushes - warm) as f64, runs_max, space_max }
    }

    /// The runs to merge next, as a range of `sizes`; newest first.
    fn pick(universal: &Universal, trigger: usize, sizes: &[f64], bytes: f64) -> Option<(usize, usize)> {
        let base = sizes[sizes.len() - 1];
        if (bytes - base) * 100.0 >= f64::from(universal.space_percent) * base {
            return Some((0, sizes.len()));
        }
        let first = |percent: f64, most: usize| {
            (0..sizes.len()).find_map(|from| {
                let (mut to, mut sum) = (from + 1, sizes[from]);
                while to < sizes.len() && to - from < most && sum * (100.0 + percent) / 100.0 >= sizes[to] {
                    sum += sizes[to];
                    to += 1;
                }
                (to - from >= universal.min_merge_width as usize).then_some((from, to))
            })
        };
        let by_size = first(f64::from(universal.size_ratio), universal.max_merge_width as usize);
        let excess = sizes.len().checked_sub(trigger).filter(|excess| *excess > 0);
        by_size.or_else(|| excess.and_then(|excess| first(f64::INFINITY, excess + 1)))
    }

    #[test]
    fn rocksdbs_rules_keep_the_runs_and_the_space_and_merge_about_as_predicted() {
        use shamba_model::updates::merges_per_level;
        let mut ratios = Vec::new();
        for buffers in [100.0, 300.0, 1000.0] {
            for max_space in [1.5, 2.0, 3.0] {
                for runs in [9_u64, 10, 12, 16, 20, 24, 32] {
                    let Some(percent) = space_percent(max_space, runs, buffers) else { continue };
                    let shape = super::super::tree::universal_shape(runs, buffers, 1);
                    let Ok((shamba_model::MergePolicy::Tiering, size_ratio, levels)) = shape else {
                        continue;
                    };
                    let universal = Universal::default().proposed(percent);
                    let tiered = f64::from(levels) * merges_per_level(size_ratio, size_ratio - 1.0);
                    let predicted = universal.merges_per_entry(tiered, size_ratio, levels);
                    let played = play(&universal, runs as usize, buffers);
                    let what =
                        format!("{buffers} buffers, {runs} runs, {max_space}: {predicted}, {played:?}");
                    assert!(played.space_max <= max_space, "{what}");
                    assert!(universal.space_amplification(runs, buffers) <= max_space + 1e-9, "{what}");
                    assert!(played.runs_max as u64 <= runs, "{what}");
                    let ratio = played.merges_per_entry / predicted;
                    assert!((0.5..1.3).contains(&ratio), "{what}");
                    ratios.push(ratio);
                }
            }
        }
        assert!(ratios.len() > 40, "{ratios:?}");
        let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
        assert!((0.75..1.0).contains(&mean), "{mean}");
    }

    #[test]
    fn rocksdbs_own_percentage_breaks_a_bound_of_two() {
        let usual = Universal::default();
        let played = play(&usual, 8, 1000.0);
        assert!(played.space_max > 2.2, "{played:?}");
        assert!(usual.space_amplification(8, 1000.0) > 3.0);
        assert_eq!(space_percent(2.0, 20, 1000.0), Some(98));
        assert_eq!(space_percent(2.0, 20, 20.0), None, "as many runs as buffers");
        assert_eq!(space_percent(f64::INFINITY, 20, 1000.0), Some(1900));
    }
}
