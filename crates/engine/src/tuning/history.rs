//! History of redesigns, kept in the manifest among the settings: for undo, and to explain the
//! present design.
//!
//! An entry is a line of five fields: time, origin, old design, new design, reason. Lines that do
//! not parse, such as those of a later version, are ignored.
//!
//! A build ignores the whole entry if it does not know the name in the second field, and cannot
//! undo that move. [`RedesignedBy::Follow`] is newer than the other names. It is therefore written
//! as `caller`, with [`FOLLOWED`] before the reason: older builds read a caller's redesign.

use std::collections::BTreeMap;
use std::fmt;

use crate::options::settings::LiveSettings;
use crate::tree_design::TreeDesign;

/// Maximum number of entries.
const ENTRIES_MAX: usize = 32;
/// Name of the setting in the manifest.
const SETTING: &str = "redesigns";
const FIELDS: char = '\t';
/// Prefix of the reason, in the manifest, of a redesign by [`RedesignedBy::Follow`].
const FOLLOWED: &str = "advice followed: ";
/// Time for which an undone design is not advised: an hour.
const KEPT_OFF_MS: u64 = 3_600_000;

/// Origin of a redesign.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RedesignedBy {
    /// A caller of [`crate::Db::redesign`].
    Caller,
    /// A caller of [`crate::Db::follow`], who accepted the database's advice.
    Follow,
    /// The database itself ([`crate::Tuning::Auto`]).
    Tuner,
    /// A caller of [`crate::Db::undo_redesign`].
    Undo,
}

impl RedesignedBy {
    const ALL: [Self; 4] = [Self::Caller, Self::Follow, Self::Tuner, Self::Undo];

    /// The name in output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Caller => "caller",
            Self::Follow => "follow",
            Self::Tuner => "tuner",
            Self::Undo => "undo",
        }
    }
}

/// A past redesign.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Redesigned {
    /// Time, in milliseconds since 1970.
    pub unix_ms: u64,
    /// Its origin.
    pub by: RedesignedBy,
    /// The design before.
    pub from: TreeDesign,
    /// The design after.
    pub to: TreeDesign,
    /// Its reason.
    pub reason: String,
}

impl Redesigned {
    fn to_line(&self) -> String {
        let Self { unix_ms, by, from, to, reason } = self;
        let reason: String = reason.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let (by, reason) = match by {
            RedesignedBy::Follow => (RedesignedBy::Caller.name(), format!("{FOLLOWED}{reason}")),
            by => (by.name(), reason),
        };
        let (from, to) = (design_to_text(from), design_to_text(to));
        let line = [unix_ms.to_string(), by.to_owned(), from, to, reason].join(&FIELDS.to_string());
        debug_assert!(!line.contains('\n'), "a redesign takes two lines: {line:?}");
        debug_assert!(
            Self::from_line(&line).is_some(),
            "a redesign is recorded that cannot be read: {line:?}"
        );
        line
    }

    fn from_line(line: &str) -> Option<Self> {
        let mut fields = line.splitn(5, FIELDS);
        let unix_ms = fields.next()?.parse().ok()?;
        let by = fields.next().and_then(|name| RedesignedBy::ALL.into_iter().find(|by| by.name() == name))?;
        let from = design_from_text(fields.next()?)?;
        let to = design_from_text(fields.next()?)?;
        let reason = fields.next()?;
        let (by, reason) = match (by, reason.strip_prefix(FOLLOWED)) {
            (RedesignedBy::Caller, Some(reason)) => (RedesignedBy::Follow, reason),
            _ => (by, reason),
        };
        Some(Self { unix_ms, by, from, to, reason: reason.to_owned() })
    }
}

/// A design that was undone and is not advised for some time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct KeptOff {
    /// The design.
    pub design: TreeDesign,
    /// Remaining time, in milliseconds; above 0.
    pub for_ms: u64,
}

impl fmt::Display for KeptOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { design, for_ms } = self;
        let minutes = for_ms.div_ceil(60_000);
        write!(f, "{design} would be better, but was undone and is not advised for another {minutes} min")
    }
}

/// The last redesigns, oldest first.
#[derive(Clone, Default, PartialEq, Debug)]
pub(crate) struct History(Vec<Redesigned>);

impl History {
    pub fn list(&self) -> &[Redesigned] {
        &self.0
    }

    pub fn last(&self) -> Option<&Redesigned> {
        self.0.last()
    }

    /// Recently undone designs.
    pub fn kept_off(&self, now_ms: u64) -> Vec<KeptOff> {
        let undone = self.0.iter().filter(|entry| entry.by == RedesignedBy::Undo);
        let kept_off = undone.map(|entry| KeptOff {
            design: entry.from,
            for_ms: KEPT_OFF_MS.saturating_sub(now_ms.saturating_sub(entry.unix_ms)),
        });
        kept_off.filter(|kept_off| kept_off.for_ms > 0).collect()
    }

    /// Adds an entry, and drops the oldest beyond [`ENTRIES_MAX`].
    pub fn push(&mut self, redesigned: Redesigned) {
        self.0.push(redesigned);
        let excess = self.0.len().saturating_sub(ENTRIES_MAX);
        self.0.drain(..excess);
    }

    /// The history as a setting, for the manifest.
    pub fn to_pair(&self) -> (String, String) {
        let lines: Vec<String> = self.0.iter().map(Redesigned::to_line).collect();
        (SETTING.to_owned(), lines.join("\n"))
    }

    /// Reads the history from the manifest's settings.
    pub fn from_settings(settings: &BTreeMap<String, String>) -> Self {
        Self::from_text(settings.get(SETTING).map_or("", String::as_str))
    }

    /// Parses the setting's text.
    pub fn from_text(text: &str) -> Self {
        let mut history = Self::default();
        text.lines().filter_map(Redesigned::from_line).for_each(|redesigned| history.push(redesigned));
        history
    }
}

fn design_to_text(design: &TreeDesign) -> String {
    let live = LiveSettings { tree: *design, ..LiveSettings::default() };
    let pairs = live.to_pairs().into_iter().filter(|(name, _)| name != "policy");
    pairs.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}

fn design_from_text(text: &str) -> Option<TreeDesign> {
    let pairs: Vec<(&str, &str)> = text.split(' ').filter_map(|pair| pair.split_once('=')).collect();
    LiveSettings::from_pairs(&pairs).ok().map(|live| live.tree)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shamba_model::allocation::Allocation;
    use shamba_model::{Design, MergePolicy};

    fn redesigned(number: u64) -> Redesigned {
        let design = Design::new(MergePolicy::Tiering, 2.5 + number as f64 / 3.0, 1 << 20, 7.25);
        let shape = TreeDesign { design, ..TreeDesign::default() };
        let from =
            TreeDesign { filter_memory_bytes: Some(number), allocation: Allocation::Workload, ..shape };
        let to = TreeDesign { filter_memory_bytes: None, ..from };
        Redesigned { unix_ms: number, by: RedesignedBy::Tuner, from, to, reason: format!("because {number}") }
    }

    #[test]
    fn a_history_is_read_back_and_bounded() {
        let mut history = History::default();
        for number in 0..40 {
            history.push(redesigned(number));
        }
        assert_eq!(history.list().len(), ENTRIES_MAX);
        assert_eq!(history.last(), Some(&redesigned(39)));
        let settings: BTreeMap<String, String> = [history.to_pair()].into_iter().collect();
        assert_eq!(History::from_settings(&settings), history);
        assert_eq!(History::from_settings(&BTreeMap::new()), History::default());
    }

    #[test]
    fn what_cannot_be_is_left_out_and_reasons_stay_on_their_line() {
        let mut history = History::default();
        history.push(Redesigned { reason: "two\nlines\tand a tab".into(), ..redesigned(1) });
        let (name, text) = history.to_pair();
        let text = format!("rubbish\n\t\t\t\t\n{text}\n7\tfuture\ta\tb\tc\n");
        let read = History::from_settings(&[(name, text)].into_iter().collect());
        assert_eq!(read.list().len(), 1);
        assert_eq!(read.list()[0].reason, "two lines and a tab");
    }

    #[test]
    fn advice_that_was_followed_reads_as_a_callers_redesign_in_older_builds() {
        let mut history = History::default();
        history.push(Redesigned { by: RedesignedBy::Follow, ..redesigned(1) });
        history.push(Redesigned { by: RedesignedBy::Caller, ..redesigned(2) });
        let (_, text) = history.to_pair();
        assert_eq!(History::from_text(&text), history);
        let names: Vec<&str> = text.lines().filter_map(|line| line.split(FIELDS).nth(1)).collect();
        assert_eq!(names, ["caller", "caller"], "names that every build knows");
        assert!(text.lines().next().is_some_and(|line| line.ends_with("\tadvice followed: because 1")));
    }

    #[test]
    fn what_was_undone_is_kept_off_for_an_hour() {
        let mut history = History::default();
        history.push(redesigned(0));
        let undone = redesigned(1_000);
        history.push(Redesigned {
            by: RedesignedBy::Undo,
            from: undone.to,
            to: undone.from,
            ..undone.clone()
        });
        let at = |now_ms| history.kept_off(now_ms);
        assert_eq!(at(1_000 + KEPT_OFF_MS - 1), [KeptOff { design: undone.to, for_ms: 1 }]);
        assert_eq!(at(1_000 + KEPT_OFF_MS), []);
        assert_eq!(at(0)[0].for_ms, KEPT_OFF_MS, "also where the clock was set back");
        let told = at(1_000 + KEPT_OFF_MS / 2)[0].to_string();
        assert!(told.contains(&undone.to.to_string()) && told.ends_with("another 30 min"), "{told}");
    }
}
