//! Tuning: observes the workload window by window and, with [`Tuning::Auto`], changes
//! the design.
//!
//! Without threads there is no tuner: callers ask for advice.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::DesignTuning;
use super::history::RedesignedBy;
use super::tuner::{Decision, Tuner, is_overruled};
use crate::event::Event;
use crate::options::settings::Tuning;
use crate::telemetry::hold_events;
use crate::workload::WINDOW_US;

/// Time between two looks for the end of a window.
const LOOK_US: u64 = WINDOW_US / 8;

impl DesignTuning {
    /// Observes the workload and, at the end of a window, tunes the design if [`Tuning`] asks for
    /// it. Called by one thread at a time; returns the time until the next call.
    pub fn look(&self) -> Duration {
        let _events = hold_events();
        let is_stopping = || self.is_stopping.load(Ordering::Acquire);
        if is_stopping() {
            return Duration::from_micros(LOOK_US);
        }
        let has_ended = self.workload.observe();
        // The workload of an earlier process is known before the first window has ended.
        let is_first = !self.has_looked.swap(true, Ordering::Relaxed);
        if (has_ended || is_first) && !is_stopping() {
            let mut tuner = self.tuner.lock();
            self.tune_values(&mut tuner.values);
            if has_ended && self.settings.tuning != Tuning::Off && !is_stopping() {
                self.tune(&mut tuner);
            }
        }
        Duration::from_micros(LOOK_US)
    }

    /// Ends tuning: [`Self::look`] does nothing from now on.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
    }

    /// After a window: computes advice and acts on it.
    pub(super) fn tune(&self, tuner: &mut Tuner) {
        let workload = self.workload.workload();
        if tuner.is_known(&workload) {
            return;
        }
        let now_ms = self.clock.unix_ms();
        let history = self.history.lock().clone();
        if is_overruled(history.list(), now_ms) {
            return;
        }
        let Some(mover) = self.mover() else { return };
        let advice = match self.advise_with(tuner.favourite(), &history.kept_off(now_ms)) {
            Ok(advice) => advice,
            Err(error) => return self.say(tuner, format!("no advice: {}", error.chain())),
        };
        // The steps of the policy can switch to another design at any time; a compaction of
        // everything cannot.
        let is_moving = mover.is_compacting_all();
        let now_us = self.clock.now_us();
        match tuner.decide(&advice, is_moving, now_us) {
            Decision::Stay => self.say(tuner, format!("stay with {}", advice.in_force)),
            Decision::Wait(why) => {
                let better = tuner.favourite().map_or_else(String::new, |better| better.to_string());
                self.say(tuner, format!("{better} would be better; {why}"));
            }
            Decision::Move(_) if self.settings.tuning != Tuning::Auto => self.say(tuner, advice.to_string()),
            Decision::Move(better) => {
                match self.redesign(&better.design, RedesignedBy::Tuner, &advice.reason) {
                    Ok(()) => tuner.moved(workload, now_us),
                    Err(error) => {
                        self.say(tuner, format!("moving to {} failed: {}", better.design, error.chain()))
                    }
                }
            }
        }
    }

    /// Emits an event if the text is new.
    fn say(&self, tuner: &mut Tuner, text: String) {
        if tuner.says(&text) {
            self.telemetry.emit(Event::Advice(text));
        }
    }
}
