//! Advice: the benefit of another design, the cost of moving to it, and whether the move pays.
//!
//! The observed workload ([`crate::workload`]), the present trees and the memory shared by filters,
//! buffers and cache make a scene ([`judge`]). The candidates come from the navigator, plus a few
//! designs near the one in force. For each candidate a forecast gives the bytes that compactions
//! would write and the tree that they would leave ([`shamba_tree::compaction::forecast`]); the
//! judge gives its costs after that. The best candidate is advised if it saves enough, pays for
//! itself soon, and writes no more than the data itself. A recently undone design is not advised;
//! if it would be the best, the reason says that it was undone. Where the mix varies from window to
//! window, costs are those of the worst mix within that divergence.
//!
//! Nothing is changed here. Not here: acting on advice ([`super`]).

pub(crate) mod judge;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, OnceLock};

use shamba_filter::measured;
use shamba_model::price::PAGE_BYTES;
use shamba_model::updates::Merging;
use shamba_model::{Design, Sizing};
use shamba_table::{Ledger, LedgerPart};
use shamba_tree::allocation::wanted;
use shamba_tree::compaction::forecast::{Forecast, forecast, forecast_full};
use shamba_tree::compaction::policy::Rules;
use shamba_tree::version::{Run, Version, live_entries};

pub use self::judge::Prediction;
use self::judge::{RealRun, Scene, is_alike};
use super::history::KeptOff;
use crate::catalog::{Catalog, KeyspaceCore};
use crate::error::{Error, Result};
use crate::filter_bits::FilterBits;
use crate::options::settings::Settings;
use crate::tree_design::TreeDesign;
use crate::workload::{Workload, WorkloadObserver};

/// Minimum saving, as a part of an operation's time, that is worth a move.
const GAIN_MIN: f64 = 0.1;
/// Time in seconds within which a move must pay for itself under the present workload.
const PAYS_WITHIN_S: f64 = 300.0;
/// Maximum bytes written by a move per byte of data: all of it once, plus the overlap at the edges
/// of tables.
const WRITES_MAX: f64 = 1.02;
/// Designs whose scores differ by at most this part are equal; of those, the one that writes less
/// is taken.
const TIE: f64 = 0.03;
/// Assumed time to move a byte, before any was measured.
const MOVE_NS_PER_BYTE: f64 = 12.0;
/// Minimum operations per second for advice: fewer say nothing about the workload.
const OPERATIONS_PER_S_MIN: f64 = 20.0;
/// Divisor: the smallest write buffer considered is this fraction of the largest that the budget
/// allows.
const BUFFER_MIN_PART: u64 = 8;
/// Minimum data for advice, in write buffers: less has no tree shape yet.
const BUFFERS_MIN: u64 = 2;

/// The way from the present trees to another design, by compactions.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    /// Everything is compacted at once, because that writes less than the steps of the policy.
    pub is_whole: bool,
    /// Bytes that compactions will write.
    pub written_bytes: u64,
    /// Bytes of all trees.
    pub tree_bytes: u64,
    /// Runs of the largest tree after the move.
    runs: Vec<RealRun>,
}

impl Way {
    /// Subtracts the compactions of recent writes that the present design would run as well.
    #[must_use]
    pub fn beyond(self, staying: &Self) -> Self {
        Self { written_bytes: self.written_bytes.saturating_sub(staying.written_bytes), ..self }
    }
}

/// A better design, and the cost of moving to it.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Better {
    /// The design.
    pub design: TreeDesign,
    /// Predicted costs under it.
    pub then: Prediction,
    /// Saving as a part of an operation's time, 0 to 1, in the worst mix within
    /// [`Advice::uncertainty`].
    pub gain: f64,
    /// Bytes that compactions must write to get there, beyond those already pending.
    pub written_bytes: u64,
    /// Compaction time for them, in seconds.
    pub seconds: f64,
    /// Time after which the move has paid for itself, in seconds, at the observed rate of
    /// operations and the time saved.
    pub break_even_s: f64,
}

/// Result of [`crate::Db::advise`].
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Advice {
    /// The observed workload.
    pub workload: Workload,
    /// Divergence from the observed mix within which designs are judged by their worst mix: how far
    /// the mix alternates from window to window ([`Workload::variation`]). 0 for a steady workload.
    pub uncertainty: f64,
    /// The design in force.
    pub in_force: TreeDesign,
    /// Predicted costs of the design in force; `None` if too little is known.
    pub now: Option<Prediction>,
    /// The design to change to, if the change pays.
    pub better: Option<Better>,
    /// Reason for the change, or for not changing.
    pub reason: String,
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.better {
            Some(better) => write!(f, "change {} to {}: {}", self.in_force, better.design, self.reason),
            None => write!(f, "stay with {}: {}", self.in_force, self.reason),
        }
    }
}

/// The costs of a move to another design, by the parts that move tables and divide memory.
pub(crate) trait MovePrices: Send + Sync {
    /// The rules by which compactions move a tree under `design`, level 0 included.
    fn rules_under(&self, design: Design) -> Rules;

    /// Size of a full table now.
    fn full_table_bytes(&self) -> u64;

    /// Measured time to read `bytes` in a lookup.
    fn read_ns(&self, bytes: u64) -> f64;
}

/// A candidate with its evaluation.
#[derive(Clone)]
struct Looked {
    better: Better,
    /// Time of an operation, including its share of the move.
    score: f64,
    writes_too_much: bool,
}

/// Computes advice.
pub(super) struct Advisor {
    settings: Arc<Settings>,
    catalog: Arc<Catalog>,
    ledger: Arc<Ledger>,
    workload: Arc<WorkloadObserver>,
    filter_bits: Arc<FilterBits>,
    prices: OnceLock<Arc<dyn MovePrices>>,
}

impl Advisor {
    /// For the trees in `catalog`, within the memory of `ledger`.
    pub fn new(
        settings: Arc<Settings>,
        catalog: Arc<Catalog>,
        ledger: Arc<Ledger>,
        workload: Arc<WorkloadObserver>,
        filter_bits: Arc<FilterBits>,
    ) -> Self {
        Self { settings, catalog, ledger, workload, filter_bits, prices: OnceLock::new() }
    }

    /// Sets the prices; later calls have no effect.
    pub fn price_by(&self, prices: Arc<dyn MovePrices>) {
        let _ = self.prices.set(prices);
    }

    /// # Errors
    /// `Closed` if the database is gone.
    fn prices(&self) -> Result<&dyn MovePrices> {
        self.prices.get().map(Arc::as_ref).ok_or_else(Error::closed)
    }

    /// Computes advice. `favourite` is an additional candidate and wins ties; no design like one of
    /// `kept_off` is advised.
    ///
    /// # Errors
    /// `Closed` if the database is gone; `Invalid` when the model rejects the measured values.
    pub fn advise(&self, favourite: Option<TreeDesign>, kept_off: &[KeptOff]) -> Result<Advice> {
        let scene = self.scene()?;
        let stay = |now, reason: String| Advice {
            workload: scene.workload,
            uncertainty: scene.uncertainty,
            in_force: scene.in_force,
            now,
            better: None,
            reason,
        };
        let operations_per_s = scene.workload.per_second(scene.workload.operations());
        if operations_per_s < OPERATIONS_PER_S_MIN {
            return Ok(stay(
                None,
                format!("{operations_per_s:.0} operations per second are too few for advice"),
            ));
        }
        if scene.bytes < self.settings.memtable_bytes() * BUFFERS_MIN {
            return Ok(stay(None, format!("{} bytes of data are too few for advice", scene.bytes)));
        }
        let way_now = self.way(&scene.in_force, &scene.workload)?;
        let now = scene.judge(&scene.in_force, &way_now.runs).map_err(Error::invalid)?;
        let mut candidates = scene.candidates().map_err(Error::invalid)?;
        candidates.extend(favourite);
        // A write buffer beyond the size that memory allows to be flushed makes no different tree.
        let flushed = |of: &TreeDesign| TreeDesign { design: self.settings.as_flushed(of.design), ..*of };
        let are_alike = |a: &TreeDesign, b: &TreeDesign| is_alike(&flushed(a), &flushed(b));
        candidates.retain(|candidate| !are_alike(candidate, &scene.in_force));
        let undone = |design: &TreeDesign| {
            let alike = kept_off.iter().filter(|kept_off| are_alike(design, &kept_off.design));
            alike.max_by_key(|kept_off| kept_off.for_ms)
        };
        let mut looked = Vec::new();
        for design in candidates {
            let way = self.way(&design, &scene.workload)?;
            let then = scene.judge(&design, &way.runs).map_err(Error::invalid)?;
            looked.push(look(&scene, &now, design, then, &way.beyond(&way_now)));
        }
        // Undone designs are judged as well, so that the reason can name one that would be the
        // best.
        let best_of_all = choose(looked.clone(), favourite.as_ref()).ok();
        let best_is_undone = best_of_all.and_then(|best| undone(&best.design)).map(KeptOff::to_string);
        looked.retain(|one| undone(&one.better.design).is_none());
        let chosen = choose(looked, favourite.as_ref());
        Ok(match chosen {
            Ok(better) => {
                let in_words = in_words(&now, &better, &scene.workload, scene.uncertainty);
                Advice {
                    workload: scene.workload,
                    uncertainty: scene.uncertainty,
                    in_force: scene.in_force,
                    now: Some(now),
                    better: Some(better),
                    reason: best_is_undone.map_or(in_words.clone(), |undone| format!("{in_words}; {undone}")),
                }
            }
            Err(reason) => {
                let of_others = |undone| format!("{undone}; of the others, {reason}");
                stay(Some(now), best_is_undone.map_or(reason.clone(), of_others))
            }
        })
    }

    /// All inputs of a judgement, as of now.
    pub(super) fn scene(&self) -> Result<Scene> {
        let settings = &self.settings;
        let workload = self.workload.workload();
        let (mut entries, mut bytes) = (0, 0);
        for keyspace in self.catalog.keyspaces().values() {
            let runs: Vec<(u64, u64)> = keyspace.load().version.runs().map(|(_, run)| size(run)).collect();
            let (of_entries, of_bytes) = distinct(&runs, workload.overwritten_share());
            entries += of_entries;
            bytes += of_bytes;
        }
        let others = LedgerPart::ALL.into_iter().filter(|part| !part.is_divided());
        let others_bytes: u64 = others.map(|part| self.ledger.bytes(part)).sum();
        let latest = self.workload.latest_window();
        let most = settings.memtable_bytes_max();
        Ok(Scene {
            uncertainty: workload.variation(),
            workload,
            updates_per_s: latest.per_second(latest.updates()),
            entries,
            bytes,
            memory_bytes: shamba_model::memory::shared_bytes(
                settings.budget_bytes(),
                others_bytes.saturating_add(settings.work_bytes()),
            ),
            buffer_bytes: (most / BUFFER_MIN_PART, most),
            batch_runs: match settings.sizing {
                Sizing::Auto => f64::from(settings.l0().trigger_runs.max(1)),
                Sizing::Manual => 1.0,
            },
            merging: match settings.sizing {
                Sizing::Auto => Merging::Following,
                Sizing::Manual => Merging::FileByFile,
            },
            read_ns: self.prices()?.read_ns(PAGE_BYTES),
            move_ns_per_byte: workload.move_ns_per_byte().unwrap_or(MOVE_NS_PER_BYTE),
            shared_digest: settings.hash_sharing,
            in_force: settings.live.get().tree,
            layout: self.filter_bits.layout(),
            locality: self.workload.locality(bytes),
        })
    }

    /// How compactions would move all trees to a design, and the resulting tree.
    ///
    /// # Errors
    /// `Closed` if the database is gone.
    pub fn way(&self, target: &TreeDesign, workload: &Workload) -> Result<Way> {
        let prices = self.prices()?;
        let rules = prices.rules_under(target.design);
        let table_bytes = prices.full_table_bytes();
        // The others are not compacted into levels, whatever the design.
        let keyspaces = self.catalog.keyspaces();
        let moved: Vec<_> = keyspaces.values().filter(|keyspace| keyspace.has_levels()).collect();
        let ahead = |by: fn(&Version, &Rules, u64) -> Forecast| -> Vec<_> {
            let of = |keyspace: &&Arc<KeyspaceCore>| {
                // One with a policy of its own keeps it.
                let rules = Rules { design: keyspace.overrides().design(rules.design), ..rules };
                (Arc::clone(*keyspace), by(&keyspace.load().version, &rules, table_bytes))
            };
            moved.iter().map(of).collect()
        };
        let written = |ahead: &[(_, Forecast)]| ahead.iter().map(|(_, tree)| tree.written_bytes).sum::<u64>();
        let steps = ahead(forecast);
        let mut way = (false, steps);
        if way.1.iter().any(|(_, tree)| !tree.is_whole) || written(&way.1) > 0 {
            let whole = ahead(forecast_full);
            let cannot_step = way.1.iter().any(|(_, tree)| !tree.is_whole);
            if (cannot_step || written(&whole) < written(&way.1))
                && self.has_time_for(written(&whole), workload)
            {
                way = (true, whole);
            }
        }
        let (is_whole, ahead) = way;
        let largest = ahead.iter().max_by_key(|(_, tree)| tree.tree_bytes);
        let runs = largest.map_or_else(Vec::new, |(keyspace, tree)| self.real_runs(keyspace, tree, target));
        Ok(Way {
            is_whole,
            written_bytes: written(&ahead),
            tree_bytes: ahead.iter().map(|(_, tree)| tree.tree_bytes).sum(),
            runs,
        })
    }

    /// Whether level 0 can absorb the writes during a compaction of `bytes`, which nothing
    /// interrupts.
    fn has_time_for(&self, bytes: u64, workload: &Workload) -> bool {
        let seconds = bytes as f64 * workload.move_ns_per_byte().unwrap_or(MOVE_NS_PER_BYTE) / 1e9;
        let latest = self.workload.latest_window();
        let coming_bytes = latest.per_second(latest.user_bytes) * seconds;
        let l0 = self.settings.l0();
        let room_bytes = u64::from(l0.soft_runs) * self.settings.memtable_bytes() / 2;
        self.settings.auto_compaction && coming_bytes <= room_bytes as f64
    }

    /// The runs of a forecast tree, newest first. Tables that do not exist yet get the target's
    /// filter bits.
    fn real_runs(&self, keyspace: &KeyspaceCore, ahead: &Forecast, target: &TreeDesign) -> Vec<RealRun> {
        let rule = self.filter_bits.rule_under(keyspace, target);
        let wanted = wanted(rule, &ahead.tree);
        debug_assert_eq!(
            wanted.len(),
            ahead.tree.tables().count(),
            "a table has no share of the filter bits"
        );
        let mut wanted = wanted.into_iter();
        let mut runs = Vec::new();
        for (_, run) in ahead.tree.runs() {
            let (mut entries, mut passing) = (0, 0.0);
            for table in run.tables() {
                let will_have = wanted.next().unwrap_or(0.0);
                let is_made = table.meta.id.0 > ahead.last_id;
                let count = live_entries(table);
                entries += count;
                let bits_per_key = if is_made { will_have } else { table.meta.bits_per_key };
                passing += count as f64 * measured::fpr(rule.layout, bits_per_key);
            }
            runs.push(RealRun { entries, fpr: passing / entries.max(1) as f64 });
        }
        runs
    }
}

/// Entries and bytes of a run.
fn size(run: &Arc<Run>) -> (u64, u64) {
    (run.tables().iter().map(live_entries).sum(), run.bytes())
}

/// Estimated entries and bytes of a tree without those made obsolete by newer runs: the size of the
/// tree in the long run, whichever compactions are pending now. `overwritten_share` is the share of
/// entries that compactions drop.
fn distinct(runs: &[(u64, u64)], overwritten_share: f64) -> (u64, u64) {
    let largest = runs.iter().copied().max_by_key(|(_, bytes)| *bytes).unwrap_or_default();
    let all = runs.iter().fold((0, 0), |sum, run| (sum.0 + run.0, sum.1 + run.1));
    debug_assert!((0.0..=1.0).contains(&overwritten_share), "{overwritten_share} of the writes overwrite");
    let of = |largest: u64, all: u64| largest + ((all - largest) as f64 * (1.0 - overwritten_share)) as u64;
    (of(largest.0, all.0), of(largest.1, all.1))
}

/// Evaluates a candidate: its saving, the cost of the move, and the time until the move has paid
/// for itself.
fn look(scene: &Scene, now: &Prediction, design: TreeDesign, then: Prediction, way: &Way) -> Looked {
    let operations_per_s = scene.workload.per_second(scene.workload.operations());
    let seconds = way.written_bytes as f64 * scene.move_ns_per_byte / 1e9;
    let saved_ns = now.worst_operation_ns - then.worst_operation_ns;
    let saved_part_of_time = operations_per_s * saved_ns / 1e9;
    let break_even_s = if saved_part_of_time > 0.0 { seconds / saved_part_of_time } else { f64::INFINITY };
    let move_ns = seconds * 1e9 / (operations_per_s * PAYS_WITHIN_S).max(1.0);
    debug_assert!(seconds >= 0.0, "a move takes {seconds} seconds");
    let better = Better {
        design,
        then,
        gain: (saved_ns / now.worst_operation_ns.max(f64::MIN_POSITIVE)).max(0.0),
        written_bytes: way.written_bytes,
        seconds,
        break_even_s,
    };
    let writes_too_much = way.written_bytes as f64 > way.tree_bytes as f64 * WRITES_MAX;
    Looked { better, score: then.worst_operation_ns + move_ns, writes_too_much }
}

/// The best candidate that pays; otherwise the reason why none does.
fn choose(mut looked: Vec<Looked>, favourite: Option<&TreeDesign>) -> std::result::Result<Better, String> {
    looked.sort_by(|a, b| a.score.total_cmp(&b.score));
    let best_gain = looked.iter().map(|one| one.better.gain).fold(0.0, f64::max);
    if best_gain < GAIN_MIN {
        return Err(format!(
            "no other design saves more than {:.0} % of an operation's time, and less than {:.0} % is not worth a move",
            best_gain * 100.0,
            GAIN_MIN * 100.0
        ));
    }
    let pays = |one: &Looked| {
        one.better.gain >= GAIN_MIN && one.better.break_even_s <= PAYS_WITHIN_S && !one.writes_too_much
    };
    let Some(best) = looked.iter().find(|one| pays(one)) else {
        let best = looked.iter().max_by(|a, b| a.better.gain.total_cmp(&b.better.gain));
        return Err(best.map_or_else(String::new, |best| {
            let Better { design, gain, written_bytes, break_even_s, .. } = &best.better;
            let why = match best.writes_too_much {
                true => "more than the data itself".to_owned(),
                false => format!("which pay off only after {break_even_s:.0} s"),
            };
            format!("{design} would save {:.0} %, but writes {written_bytes} bytes, {why}", gain * 100.0)
        }));
    };
    let near = looked.iter().filter(|one| pays(one) && one.score <= best.score * (1.0 + TIE));
    let preferred = |one: &&Looked| {
        let is_favourite = favourite.is_some_and(|favourite| *favourite == one.better.design);
        (!is_favourite, one.better.written_bytes)
    };
    Ok(near.min_by_key(preferred).unwrap_or(best).better.clone())
}

/// The reason why a design is better, in words.
fn in_words(now: &Prediction, better: &Better, seen: &Workload, uncertainty: f64) -> String {
    let share = |count: f64| count / seen.operations().max(f64::MIN_POSITIVE) * 100.0;
    let then = &better.then;
    let varied = match uncertainty > 0.0 {
        false => String::new(),
        true => format!(
            "; the mix varies by a divergence of {uncertainty:.2}; in the worst mix within it an operation takes {:.0} ns \
             instead of {:.0}",
            then.worst_operation_ns, now.worst_operation_ns
        ),
    };
    format!(
        "the operations are {:.0} % updates, {:.0} % empty and {:.0} % found lookups, {:.0} % ranges; an operation \
         takes {:.0} ns instead of {:.0} (update {:.0} for {:.0}, lookup {:.0} for {:.0}, range {:.0} for {:.0}; {:.1} runs \
         for {:.1}){varied}; compactions write {} bytes in {:.1} s and pay off after {:.0} s",
        share(seen.updates()),
        share(seen.empty_lookups),
        share(seen.found_lookups),
        share(seen.ranges),
        then.operation_ns,
        now.operation_ns,
        then.update_ns,
        now.update_ns,
        then.lookup_ns,
        now.lookup_ns,
        then.range_ns,
        now.range_ns,
        then.runs,
        now.runs,
        better.written_bytes,
        better.seconds,
        better.break_even_s
    )
}
