//! What an experiment is, and what it finds.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::chart::Chart;

use super::device::{Device, MemoryRead};
use super::table::Table;

/// Where a claim was made.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Paper {
    /// Zhu, Mun, Raman, Athanassoulis: *Reducing Bloom Filter CPU Overhead in LSM-Trees on Modern Storage Devices* (DaMoN 2021).
    HashSharing,
    /// Mun, Zhu, Raman, Athanassoulis: *LSM-Trees Under (Memory) Pressure* (ADMS 2022): modular filters.
    ModularFilters,
    /// Dayan, Athanassoulis, Idreos: *Optimal Bloom Filters and Adaptive Merging for LSM-Trees* (TODS 2018).
    Monkey,
    /// Zhu, Wei, Mun, Athanassoulis: *Mnemosyne: Dynamic Workload-Aware BF Tuning via Accurate Statistics in LSM trees* (SIGMOD 2025).
    Mnemosyne,
}

impl Paper {
    /// Every paper, in the order of reports.
    pub const ALL: [Self; 4] = [Self::HashSharing, Self::ModularFilters, Self::Monkey, Self::Mnemosyne];

    /// As headings have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::HashSharing => "Hash sharing",
            Self::ModularFilters => "Modular filters",
            Self::Monkey => "Monkey",
            Self::Mnemosyne => "Mnemosyne",
        }
    }
}

/// How an experiment comes to its verdict, so what the verdict is worth.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// From what was counted or timed here: a claim of the paper that may fail.
    Measured,
    /// From the paper's own equations: whether they say what the paper says they do.
    Computed,
    /// From figures of the literature.
    Literature,
    /// Measured, but a claim of ours that the paper does not make.
    Ours,
}

impl Kind {
    /// Every kind, in the order of reports.
    pub const ALL: [Self; 4] = [Self::Measured, Self::Computed, Self::Literature, Self::Ours];

    /// In results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Computed => "computed",
            Self::Literature => "literature",
            Self::Ours => "ours",
        }
    }

    /// The kind of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// How large runs are, from small to large.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Scale {
    /// For tests: every experiment from end to end within seconds, on trees of as many levels and runs whose values are cut short. What is
    /// found says nothing; nobody can ask for it by name.
    Tiny,
    /// All experiments within minutes: the paper's shape with fewer entries, through a smaller buffer.
    Quick,
    /// A quarter of an hour an experiment at most.
    Default,
    /// The paper's sizes.
    Paper,
}

/// What reading a page of memory is taken to need at the tiny scale.
const TINY_MEMORY_NS: u64 = 100;
/// Of the quick scale's counts the tiny one has one in so many.
const TINY_PART: u64 = 16;

impl Scale {
    /// Those that one may ask for, from small to large.
    pub const ALL: [Self; 3] = [Self::Quick, Self::Default, Self::Paper];

    /// The name in options and output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tiny => "tiny",
            Self::Quick => "quick",
            Self::Default => "default",
            Self::Paper => "paper",
        }
    }

    /// One of three values. The tiny scale has those of the quick one.
    pub fn pick<T>(self, quick: T, default: T, paper: T) -> T {
        match self {
            Self::Tiny | Self::Quick => quick,
            Self::Default => default,
            Self::Paper => paper,
        }
    }

    /// One of three counts. The tiny scale has a part of the quick one's.
    pub fn count(self, quick: u64, default: u64, paper: u64) -> u64 {
        let count = self.pick(quick, default, paper);
        if self == Self::Tiny { (count / TINY_PART).max(1) } else { count }
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Scale {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|scale| scale.name() == name).ok_or_else(|| {
            format!("unknown scale {name:?} (known: {})", Self::ALL.map(Self::name).join(", "))
        })
    }
}

/// Whether an experiment varies a parameter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Its values are the points of the experiment.
    Varied,
    /// One value for all points.
    Fixed,
}

/// A parameter at a scale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// What it is, with its unit.
    pub name: &'static str,
    /// Whether it is varied.
    pub role: Role,
    /// Its value, or its values with commas.
    pub value: String,
}

impl Parameter {
    /// One that the experiment varies.
    pub fn varied<T: fmt::Display>(name: &'static str, values: impl IntoIterator<Item = T>) -> Self {
        let values: Vec<String> = values.into_iter().map(|value| value.to_string()).collect();
        Self { name, role: Role::Varied, value: values.join(", ") }
    }

    /// One that it holds.
    pub fn fixed(name: &'static str, value: impl fmt::Display) -> Self {
        Self { name, role: Role::Fixed, value: value.to_string() }
    }
}

/// A figure or table of a paper, to be made again.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// Its name on the command line: the paper and the place in it.
    pub id: &'static str,
    /// Whose claim it is.
    pub paper: Paper,
    /// How the verdict comes about.
    pub kind: Kind,
    /// Where in the paper.
    pub place: &'static str,
    /// What is measured over what.
    pub title: &'static str,
    /// What the paper found.
    pub claim: &'static str,
    /// What is varied and what is held, at a scale.
    pub parameters: fn(Scale) -> Vec<Parameter>,
    /// Carries it out.
    pub run: fn(&mut Lab<'_>) -> Result<Finding, String>,
}

/// Whether the claim holds here.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Verdict {
    /// What we find is what the paper found.
    Confirmed,
    /// The direction is the same, the size is not, or only some of it.
    Partly,
    /// We find otherwise.
    NotHere,
}

impl Verdict {
    /// What reproduced least comes first.
    pub const ALL: [Self; 3] = [Self::NotHere, Self::Partly, Self::Confirmed];

    /// In results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed",
            Self::Partly => "partly",
            Self::NotHere => "not here",
        }
    }

    /// The verdict of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verdict| verdict.name() == name)
    }
}

/// What came out.
#[derive(Clone, Debug)]
pub struct Finding {
    /// What we find, with its figures, in a sentence.
    pub ours: String,
    /// Whether that confirms the claim.
    pub verdict: Verdict,
    /// Why it is not confirmed, or what to know about it; may be empty if it is.
    pub why: String,
    /// All points.
    pub table: Table,
    /// The picture.
    pub chart: Chart,
}

impl Finding {
    /// How many rows were measured on an emulated device.
    pub fn emulated_rows(&self) -> usize {
        self.table.flagged("emulated", true)
    }

    /// How many rows are of a tree with fewer levels or runs than the claim is about, or with other filter bits than were asked for.
    pub fn incomparable_rows(&self) -> usize {
        self.table.flagged("comparable", false)
    }

    /// The finding without the rows of devices that could not be had, for these reasons: it is confirmed in part at most, and says so whatever the verdict.
    #[must_use]
    pub(super) fn without(mut self, missing: &[String]) -> Self {
        if !missing.is_empty() {
            if self.verdict == Verdict::Confirmed {
                self.verdict = Verdict::Partly;
            }
            self.why = format!("{} {}", missing.join(" "), self.why).trim_end().to_owned();
        }
        self
    }

    /// The finding with a verdict that its rows can bear: where some are not comparable it is confirmed in part at most, and
    /// says so whatever the verdict.
    #[must_use]
    pub fn within_its_rows(mut self) -> Self {
        let incomparable = self.incomparable_rows();
        if incomparable > 0 {
            if self.verdict == Verdict::Confirmed {
                self.verdict = Verdict::Partly;
            }
            let all = self.table.rows().len();
            let text = format!(
                "{incomparable} of {all} rows are not comparable: their trees have fewer levels or runs than the claim's, or other filter bits than were asked for."
            );
            self.why = if self.why.is_empty() { text } else { format!("{text} {}", self.why) };
        }
        self
    }

    /// The finding with a picture that says what every picture must: whether devices are emulated, and what bars are.
    #[must_use]
    pub fn marked(mut self) -> Self {
        let is_emulated = self.emulated_rows() > 0;
        let has_spread = {
            let series = self.chart.panels.iter().flat_map(|panel| &panel.series);
            series.flat_map(|series| &series.points).any(|point| point.spread.is_some())
        };
        let mut add = |is_wanted: bool, mark: &str, text: &str| {
            let note = &mut self.chart.note;
            if is_wanted && !note.to_lowercase().contains(mark) {
                *note = format!("{note} {text}").trim_start().to_owned();
            }
        };
        add(is_emulated, "emulated", "Devices with a latency are emulated.");
        add(has_spread, "bars:", "Bars: the least and the most of the repeats.");
        self
    }
}

/// The devices of an experiment.
#[derive(Clone, Debug)]
pub(super) struct Devices {
    /// Those that are measured.
    pub here: Vec<Device>,
    /// Sentences, why the others are not.
    pub missing: Vec<String>,
}

/// What an experiment runs with.
pub struct Lab<'a> {
    /// How large.
    pub scale: Scale,
    /// Seed of keys, orders and lookups.
    pub seed: u64,
    /// How often each point is measured.
    pub repeats: u32,
    /// By which devices are emulated.
    pub(super) memory_read: MemoryRead,
    dir: PathBuf,
    progress: &'a mut dyn FnMut(&str),
}

impl<'a> Lab<'a> {
    /// A laboratory that keeps trees below `dir` while it needs them, and tells `progress` what it is at.
    pub fn new(dir: PathBuf, scale: Scale, seed: u64, progress: &'a mut dyn FnMut(&str)) -> Self {
        let repeats = if scale == Scale::Tiny { 2 } else { scale.pick(3, 5, 5) };
        // What the tiny scale finds says nothing, so it need not fit the machine, and runs on any.
        let memory_read =
            if scale == Scale::Tiny { MemoryRead::Assumed(TINY_MEMORY_NS) } else { MemoryRead::Measured };
        Self { scale, seed, repeats, memory_read, dir, progress }
    }

    /// Of these devices those that there are, or that can be emulated here; and why the others cannot.
    ///
    /// # Errors
    /// When reading from memory fails.
    pub(super) fn devices(&self, wanted: &[Device]) -> Result<Devices, String> {
        let mut devices = Devices { here: Vec::new(), missing: Vec::new() };
        for device in wanted {
            match device.why_not_emulated(self.memory_read)? {
                None => devices.here.push(*device),
                Some(why) => devices.missing.push(format!("{} is left out: {why}.", device.name())),
            }
        }
        Ok(devices)
    }

    /// Below it lie trees that are not in memory.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Says what is done next.
    pub fn at(&mut self, what: impl fmt::Display) {
        (self.progress)(&what.to_string());
    }

    /// A folder of that name that is not there yet.
    ///
    /// # Errors
    /// What of that name cannot be removed.
    pub fn scratch(&self, name: &str) -> Result<PathBuf, String> {
        let dir = self.dir.join(name);
        clear(&dir)?;
        Ok(dir)
    }

    /// Removes a folder and what is in it.
    ///
    /// # Errors
    /// What cannot be removed.
    pub fn discard(&self, dir: &Path) -> Result<(), String> {
        clear(dir)
    }
}

fn clear(dir: &Path) -> Result<(), String> {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("remove {}: {error}", dir.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use crate::chart::Chart;

    use super::*;
    use crate::table::row;

    fn finding(verdict: Verdict, comparable: [bool; 2]) -> Finding {
        let mut table = Table::new(&["comparable", "emulated"]);
        comparable.into_iter().for_each(|comparable| table.row(row![comparable, true]));
        let chart =
            Chart { title: String::new(), claim: String::new(), note: String::new(), panels: Vec::new() };
        Finding { ours: "a".to_owned(), verdict, why: "b.".to_owned(), table, chart }
    }

    #[test]
    fn what_lacks_a_device_confirms_nothing() {
        let missing = ["NVM is left out.".to_owned()];
        for (verdict, capped) in [
            (Verdict::Confirmed, Verdict::Partly),
            (Verdict::Partly, Verdict::Partly),
            (Verdict::NotHere, Verdict::NotHere),
        ] {
            let whole = finding(verdict, [true; 2]).without(&[]);
            assert_eq!((whole.verdict, whole.why.as_str()), (verdict, "b."));
            let without = finding(verdict, [true; 2]).without(&missing);
            assert_eq!((without.verdict, without.why.as_str()), (capped, "NVM is left out. b."));
        }
    }

    #[test]
    fn pictures_say_what_is_emulated_and_what_bars_are() {
        use crate::chart::{Axis, Panel, Point, Series, Style};
        let with = |note: &str, point: Point| {
            let mut finding = finding(Verdict::Partly, [true; 2]);
            let series = vec![Series::new("a series", Style::Line, vec![point])];
            let (x, y) = (Axis::linear("x"), Axis::linear("y"));
            finding.chart.panels = vec![Panel { title: String::new(), x, y, series }];
            finding.chart.note = note.to_owned();
            finding.marked().chart.note
        };
        let (plain, spread) = (Point::new(0.0, 1.0), Point::between(0.0, 1.0, 0.5, 2.0));
        assert_eq!(with("", plain), "Devices with a latency are emulated.");
        let both =
            "A note. Devices with a latency are emulated. Bars: the least and the most of the repeats.";
        assert_eq!(with("A note.", spread), both);
        assert_eq!(with(both, spread), both);
        let own = "Emulated. Bars: one standard deviation.";
        assert_eq!(with(own, spread), own);
    }

    #[test]
    fn devices_as_fast_as_memory_are_left_out() {
        let mut progress = |_: &str| {};
        let mut lab = Lab::new(PathBuf::new(), Scale::Tiny, 1, &mut progress);
        let wanted = [Device::Pcie, Device::Nvm, Device::Memory];
        let devices = lab.devices(&wanted).expect("assumed");
        assert!(devices.here == wanted && devices.missing.is_empty());
        lab.memory_read = MemoryRead::Assumed(300);
        let devices = lab.devices(&wanted).expect("assumed");
        assert_eq!(devices.here, [Device::Pcie, Device::Memory]);
        assert!(devices.missing[0].starts_with("NVM 250 ns is left out: a device of 250 ns"), "{devices:?}");
    }

    #[test]
    fn what_has_fewer_levels_or_runs_confirms_nothing() {
        for (verdict, capped) in [
            (Verdict::Confirmed, Verdict::Partly),
            (Verdict::Partly, Verdict::Partly),
            (Verdict::NotHere, Verdict::NotHere),
        ] {
            let whole = finding(verdict, [true, true]).within_its_rows();
            assert_eq!((whole.verdict, whole.why.as_str()), (verdict, "b."));
            let short = finding(verdict, [true, false]).within_its_rows();
            assert_eq!((short.verdict, short.emulated_rows()), (capped, 2));
            assert!(short.why.starts_with("1 of 2 rows") && short.why.ends_with(" b."), "{}", short.why);
        }
    }
}
