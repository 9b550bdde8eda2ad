//! The tuner's decision: whether to move to an advised design now. A pure function of advice, time
//! and the tuner's state ([`Tuner::decide`]).
//!
//! After every window with operations the database computes advice ([`super::advise`]). The tuner
//! moves to another design when all of the following hold:
//!
//! - The same better design was advised in [`WINDOWS`] consecutive windows. A workload in
//!   transition advises a different one each time.
//! - It saves enough, pays for itself soon, and writes no more than the data. The advice checks
//!   this.
//! - The last move is complete, and at least [`DISTANCE_S`] ago. This minimum distance doubles with
//!   each further move within [`RECENT_S`], and there are at most [`RECENT_MAX`] moves in that
//!   time. An oscillating workload therefore makes moves rarer, not more frequent.
//! - Shortly after the last move, for a workload that has not changed since: the saving is at least
//!   [`SOON_GAIN_MIN`]. This prevents small corrections.
//! - No caller decided otherwise. A design that was undone is not advised for an hour
//!   ([`super::history::KeptOff`]), and after a caller's own redesign the tuner makes no move for
//!   [`OVERRULED_MS`].
//!
//! Each move is an event and an entry of the durable history, with its reason. A changed opinion
//! without a move is an event.
//!
//! Not here: when advice is asked for, and carrying out a decision ([`super::worker`]).

use std::collections::VecDeque;

use super::advise::judge::is_alike;
use super::advise::{Advice, Better};
use super::history::{Redesigned, RedesignedBy};
use super::values::ValueTuner;
use crate::tree_design::TreeDesign;
use crate::workload::Workload;

/// Minimum number of consecutive windows in which the same design is better.
const WINDOWS: u32 = 3;
/// Minimum time between two moves, in seconds; doubles with each move within [`RECENT_S`].
const DISTANCE_S: u64 = 30;
/// Seconds after a move in which another one must save at least [`SOON_GAIN_MIN`], unless the
/// workload has changed by [`CHANGED_SHARE`].
const SOON_S: u64 = 120;
const SOON_GAIN_MIN: f64 = 0.25;
/// Change of the share of any kind of operation that counts as another workload.
const CHANGED_SHARE: f64 = 0.3;
/// Period, in seconds, in which moves count as recent.
const RECENT_S: u64 = 600;
/// Maximum number of moves within [`RECENT_S`].
const RECENT_MAX: usize = 6;
/// Time after a caller's own redesign in which the tuner makes no move, in milliseconds: ten
/// minutes.
const OVERRULED_MS: u64 = 600_000;
/// Change of the shares of operations below which the last advice is reused.
const SAME_SHARE: f64 = 0.05;
/// Maximum number of windows in which an advice is reused.
const SAME_WINDOWS: u32 = 4;

/// State of the tuner.
#[derive(Default, Debug)]
pub(crate) struct Tuner {
    /// A better design, and the number of consecutive windows in which it was better.
    streak: Option<(TreeDesign, u32)>,
    /// Times of the recent moves.
    moves_us: VecDeque<u64>,
    /// The workload of the last advice, and the number of windows since.
    advised_on: Option<(Workload, u32)>,
    /// The workload at the last move.
    moved_for: Option<Workload>,
    /// The text of the last event.
    said: String,
    /// Of the length from which on values are stored in value files.
    pub values: ValueTuner,
}

/// Decision after a window.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Decision {
    /// No design is better.
    Stay,
    /// Another design is better, but a move is not made yet; the reason.
    Wait(String),
    /// Move to this design.
    Move(Better),
}

impl Tuner {
    /// The better design of the latest windows.
    pub fn favourite(&self) -> Option<TreeDesign> {
        self.streak.map(|(design, _)| design)
    }

    /// Whether the last advice can be reused for `workload`.
    pub fn is_known(&mut self, workload: &Workload) -> bool {
        if let Some((known, windows)) = &mut self.advised_on {
            if self.streak.is_none() && *windows < SAME_WINDOWS && shares_moved(known, workload) < SAME_SHARE
            {
                *windows += 1;
                return true;
            }
        }
        self.advised_on = Some((*workload, 0));
        false
    }

    /// Decides on an advice. `is_moving`: the last move is not complete.
    pub fn decide(&mut self, advice: &Advice, is_moving: bool, now_us: u64) -> Decision {
        let Some(better) = &advice.better else {
            self.streak = None;
            return Decision::Stay;
        };
        let windows = match self.streak {
            Some((design, windows)) if is_alike(&design, &better.design) => windows + 1,
            _ => 1,
        };
        debug_assert!(better.gain > 0.0, "advice gains {}", better.gain);
        self.streak = Some((better.design, windows));
        if windows < WINDOWS {
            return Decision::Wait(format!("better in {windows} of {WINDOWS} windows"));
        }
        if is_moving {
            return Decision::Wait("the last move is not finished".to_owned());
        }
        while self.moves_us.front().is_some_and(|at| now_us.saturating_sub(*at) > RECENT_S * 1_000_000) {
            self.moves_us.pop_front();
        }
        if let Some(last_us) = self.moves_us.back() {
            let distance_s = DISTANCE_S << (self.moves_us.len() - 1).min(16);
            let passed_us = now_us.saturating_sub(*last_us);
            if passed_us < distance_s * 1_000_000 {
                return Decision::Wait(format!("the last move is less than {distance_s} s ago"));
            }
            let is_changed =
                self.moved_for.is_none_or(|then| shares_moved(&then, &advice.workload) >= CHANGED_SHARE);
            if passed_us < SOON_S * 1_000_000 && !is_changed && better.gain < SOON_GAIN_MIN {
                return Decision::Wait(format!("the gain is too small for another move within {SOON_S} s"));
            }
        }
        if self.moves_us.len() >= RECENT_MAX {
            return Decision::Wait(format!("the limit of {RECENT_MAX} moves in {RECENT_S} s is reached"));
        }
        Decision::Move(better.clone())
    }

    /// Records a move.
    pub fn moved(&mut self, workload: Workload, now_us: u64) {
        assert!(self.moves_us.back().is_none_or(|last| *last <= now_us), "a move is older than the last one");
        assert!(self.moves_us.len() < RECENT_MAX, "the tuner moves more often than it may");
        self.moves_us.push_back(now_us);
        self.moved_for = Some(workload);
        (self.streak, self.advised_on) = (None, None);
    }

    /// Whether `text` differs from the last reported text; remembers it.
    pub fn says(&mut self, text: &str) -> bool {
        let is_news = self.said != text;
        if is_news {
            text.clone_into(&mut self.said);
        }
        is_news
    }
}

/// Largest change of any kind of operation's share.
fn shares_moved(from: &Workload, to: &Workload) -> f64 {
    let shares = |of: &Workload| {
        let operations = of.operations().max(f64::MIN_POSITIVE);
        [of.empty_lookups, of.found_lookups, of.updates(), of.ranges].map(|count| count / operations)
    };
    let moved = shares(from).iter().zip(shares(to)).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    debug_assert!(moved >= 0.0, "the shares of operations moved by {moved}");
    moved
}

/// Whether a caller's recent redesign prevents moves.
///
/// A caller who follows the database's advice ([`RedesignedBy::Follow`]) agrees with the tuner:
/// this overrules nothing and ends the effect of an earlier redesign by a caller. Only a design
/// that the caller chose ([`RedesignedBy::Caller`]) prevents moves.
pub(super) fn is_overruled(history: &[Redesigned], now_ms: u64) -> bool {
    let of_callers = history.iter().rev().find(|entry| entry.by != RedesignedBy::Tuner);
    of_callers.is_some_and(|entry| {
        // One of the future is of a time when the clock was ahead, so it is past.
        let age_ms = now_ms.checked_sub(entry.unix_ms);
        entry.by == RedesignedBy::Caller && age_ms.is_some_and(|age_ms| age_ms < OVERRULED_MS)
    })
}

#[cfg(test)]
mod tests;
