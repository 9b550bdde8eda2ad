//! Search for better settings, and the effect of each change.
//!
//! The candidates are settings that RocksDB has: level style with whole size ratios, universal
//! style with each number of runs, several sizes of the write buffer, and filters with the same
//! bits per key everywhere in the remaining memory. (RocksDB has no filters sized by run and no
//! lazy leveling; the navigator covers these.) A candidate's costs are those of the design that its
//! settings, after rounding, describe. So the prediction matches the patched file.
//!
//! The effect of a change is given twice: alone, with all other settings unchanged, and together
//! with the changes before it. Some changes pay only together.
//!
//! Not here: writing the changes into the file (`patch.rs`).

use shamba_model::cost::{Costs, Plan, Situation};

use super::settings::{NO_TRIGGER, Settings, Style};
use super::{tree, universal};
use crate::plan::options::{MAX_SPACE, max_space_text};
use crate::plan::report::{digits, show_bytes};
use crate::sizes::show_size;

/// Minimum relative saving: candidates whose costs differ by less than this fraction of the least
/// cost are equal.
const WORTH: f64 = 0.01;
/// Maximum size ratio of level style; ratios are whole numbers.
const SIZE_RATIO_MAX: u32 = 32;
/// Maximum runs of universal style: RocksDB examines all runs on each pick, and slows writes from
/// 20 on.
const RUNS_MAX: u64 = 32;
/// Maximum bits per key: more save nothing measurable.
const BITS_MAX: f64 = 24.0;
/// RocksDB's default `level0_file_num_compaction_trigger`, for a change from universal to level
/// style.
const LEVEL0_TRIGGER: u64 = 4;
/// Distance from the trigger to the slowdown, and from there to the stop: runs that arrive during a
/// compaction.
const RUNS_ROOM: u64 = 16;
const MIB: u64 = 1 << 20;

/// The present settings and better ones.
pub struct Advice {
    /// The present settings.
    pub present: Judged,
    /// Better settings; `None` if none are better by more than 1 %.
    pub better: Option<Judged>,
    /// All memory: buffers, filters and cache.
    pub memory_bytes: f64,
    /// The changes, one by one.
    pub changes: Vec<Change>,
}

/// Settings, the design that they describe, and its costs.
#[derive(Clone)]
pub struct Judged {
    /// The settings.
    pub settings: Settings,
    /// The design.
    pub plan: Plan,
    /// Its costs.
    pub costs: Costs,
}

/// A change of one setting.
pub struct Change {
    /// Its name.
    pub setting: &'static str,
    /// The old value.
    pub from: String,
    /// The new value.
    pub to: String,
    /// Its purpose, in words.
    pub purpose: String,
    /// The costs with this change alone; `None` if it is invalid alone.
    pub alone: Option<Costs>,
    /// The costs with this change and all changes before it.
    pub so_far: Option<Costs>,
}

/// Constraints of the search.
pub struct Wish {
    /// Memory budget; `None`: the memory used by the present settings.
    pub memory_bytes: Option<u64>,
    /// The block cache, where the file does not state it.
    pub cache_bytes: u64,
    /// Maximum cost of a lookup, in I/Os.
    pub max_lookup_ios: Option<f64>,
    /// Maximum cost of an update, in I/Os.
    pub max_update_ios: Option<f64>,
    /// Maximum bytes stored for a byte of data. `None`: [`MAX_SPACE`] for proposed settings;
    /// present settings that exceed it need not change for that reason.
    pub max_space: Option<f64>,
}

impl Wish {
    /// The bound on space for proposed settings.
    pub fn max_space(&self) -> f64 {
        self.max_space.unwrap_or(MAX_SPACE)
    }
}

/// Judges the settings and looks for better ones.
///
/// # Errors
/// Settings that the model cannot judge, too little memory, or bounds that no settings meet.
pub fn advise(settings: &Settings, situation: &Situation, wish: &Wish) -> Result<Advice, String> {
    let present = judge(settings.clone(), situation, wish.cache_bytes)?;
    let cache_bytes = present.plan.cache_bytes;
    let spent = (buffers_bytes(settings) + cache_bytes) as f64 + present.costs.filter_bytes;
    let memory_bytes = wish.memory_bytes.map_or(spent, |bytes| bytes as f64);
    let judged = candidates(settings, situation, memory_bytes - cache_bytes as f64, wish.max_space())
        .into_iter()
        .filter_map(|candidate| judge(candidate, situation, wish.cache_bytes).ok())
        .filter(|judged| keeps(judged, wish, Some(wish.max_space())))
        .collect::<Vec<Judged>>();
    let least = judged.iter().map(|judged| judged.costs.cost_ns_per_op).fold(f64::INFINITY, f64::min);
    // Of equally good candidates: the one with the fewest changes, then the cheapest.
    let rank =
        |judged: &&Judged| (changed(&present.settings, &judged.settings).len(), judged.costs.cost_ns_per_op);
    let best = judged
        .iter()
        .filter(|judged| judged.costs.cost_ns_per_op <= least * (1.0 + WORTH))
        .min_by(|a, b| rank(a).partial_cmp(&rank(b)).unwrap_or(std::cmp::Ordering::Equal));
    let fits = spent <= memory_bytes && keeps(&present, wish, wish.max_space);
    let Some(best) = best else {
        if fits {
            return Ok(Advice { present, better: None, memory_bytes, changes: Vec::new() });
        }
        return Err(nothing_fits(&present, wish, memory_bytes));
    };
    let is_better = !fits || best.costs.cost_ns_per_op < present.costs.cost_ns_per_op * (1.0 - WORTH);
    if !is_better {
        return Ok(Advice { present, better: None, memory_bytes, changes: Vec::new() });
    }
    let mut so_far = present.settings.clone();
    // Changes are not justified by settings that the model judges badly.
    let is_judged = |settings: &Settings| {
        settings.style != Style::Universal || tree::is_tiered(settings, &situation.data)
    };
    let costs_of = |settings: Settings| {
        let judged = is_judged(&settings).then(|| judge(settings, situation, wish.cache_bytes))?;
        judged.ok().map(|judged| judged.costs)
    };
    let mut changes = Vec::new();
    for Knob { setting, from, to, purpose, apply } in changed(&present.settings, &best.settings) {
        let mut alone = present.settings.clone();
        apply(&mut alone, &best.settings);
        apply(&mut so_far, &best.settings);
        let (alone, so_far) = (costs_of(alone), costs_of(so_far.clone()));
        changes.push(Change { setting, from, to, purpose, alone, so_far });
    }
    Ok(Advice { better: Some(best.clone()), present, memory_bytes, changes })
}

impl Change {
    /// The effect of the change in one line, for the comment in the file.
    pub fn why(&self, present: &Costs) -> String {
        let of = |costs: &Option<Costs>| {
            costs.as_ref().map_or("not valid alone".into(), |costs| effect(present, costs))
        };
        format!(
            "{} (alone: {}; together with those above: {})",
            self.purpose,
            of(&self.alone),
            of(&self.so_far)
        )
    }
}

/// The difference of two sets of costs, in one line.
pub fn effect(before: &Costs, after: &Costs) -> String {
    let mut parts = vec![format!(
        "throughput {:+.1} %",
        (after.throughput_per_s / before.throughput_per_s - 1.0) * 100.0
    )];
    for (what, before, after) in [
        ("empty lookup", before.zero_result_lookup_ios_exact, after.zero_result_lookup_ios_exact),
        ("update", before.update_ios, after.update_ios),
        ("range", before.range_ios, after.range_ios),
    ] {
        if (after / before - 1.0).abs() > 1e-3 {
            parts.push(format!("{what} {} -> {} I/Os", digits(before), digits(after)));
        }
    }
    let (space_before, space_after) = (before.space_amplification, after.space_amplification);
    if (space_after / space_before - 1.0).abs() > 0.05 {
        let what = "space amplification (worst case)";
        parts.push(format!("{what} {} -> {}", digits(space_before), digits(space_after)));
    }
    if (after.filter_bytes - before.filter_bytes).abs() >= 1.0 {
        parts.push(format!(
            "filters {} -> {}",
            show_bytes(before.filter_bytes),
            show_bytes(after.filter_bytes)
        ));
    }
    parts.join(", ")
}

fn judge(settings: Settings, situation: &Situation, cache_bytes: u64) -> Result<Judged, String> {
    let plan = tree::plan_of(&settings, &situation.data, cache_bytes)?;
    let costs = tree::costs_of(&settings, situation, &plan)?;
    Ok(Judged { settings, plan, costs })
}

/// Maximum memory of all write buffers.
pub fn buffers_bytes(settings: &Settings) -> u64 {
    settings.write_buffer_bytes.saturating_mul(settings.write_buffers)
}

fn keeps(judged: &Judged, wish: &Wish, max_space: Option<f64>) -> bool {
    let within = |cost: f64, bound: Option<f64>| bound.is_none_or(|bound| cost <= bound);
    // The same costs that the navigator bounds.
    within(judged.costs.lookup_reads, wish.max_lookup_ios)
        && within(judged.costs.merged_update_ios, wish.max_update_ios)
        // With a tolerance for rounding: the percentage was rounded down from the same bound.
        && within(judged.costs.space_amplification * (1.0 - 1e-9), max_space)
}

fn nothing_fits(present: &Judged, wish: &Wish, memory_bytes: f64) -> String {
    let bounds = [
        ("--max-lookup-ios", wish.max_lookup_ios),
        ("--max-update-ios", wish.max_update_ios),
        ("--max-space", wish.max_space),
    ];
    let bounds: Vec<String> =
        bounds.into_iter().filter_map(|(name, bound)| Some(format!("{name} {}", bound?))).collect();
    let memory = show_bytes(memory_bytes);
    if bounds.is_empty() {
        let least = buffers_bytes(&Settings { write_buffer_bytes: MIB, ..present.settings.clone() });
        let cache = show_size(present.plan.cache_bytes);
        return format!(
            "--memory {memory} is too small: the block cache takes {cache}, and {} write buffers at least {}",
            present.settings.write_buffers,
            show_size(least)
        );
    }
    let space = match wish.max_space {
        Some(_) => String::new(),
        None => format!(" and {}", max_space_text(None)),
    };
    format!("no settings meet {} with {memory} of memory{space}", bounds.join(" and "))
}

/// Candidate settings, including the present compaction style.
fn candidates(present: &Settings, situation: &Situation, memory_bytes: f64, max_space: f64) -> Vec<Settings> {
    let mut found = Vec::new();
    let entries = situation.data.entries.max(1) as f64;
    for buffer_bytes in buffers(present, memory_bytes) {
        let left = memory_bytes - (buffer_bytes as f64) * present.write_buffers as f64;
        // Rounded down to tenths; RocksDB treats less than one bit as none.
        let tenths = (left * 8.0 / entries).min(BITS_MAX) * 10.0;
        let bits_per_key = if tenths < 10.0 { 0.0 } else { tenths.floor() / 10.0 };
        // The present bits stay where they fit: a tenth more is not worth a change.
        let mut bits = vec![bits_per_key];
        if present.bits_per_key <= bits_per_key {
            bits.push(present.bits_per_key);
        }
        for bits_per_key in bits {
            let base = Settings { write_buffer_bytes: buffer_bytes, bits_per_key, ..present.clone() };
            found.push(base.clone());
            let flushed = buffer_bytes.saturating_mul(present.buffers_merged);
            for size_ratio in (2..=SIZE_RATIO_MAX).map(f64::from) {
                let level_base = (flushed as f64 * size_ratio).min(u64::MAX as f64 / 2.0) as u64;
                let mut level = Settings {
                    style: Style::Level,
                    multiplier: size_ratio,
                    level_base_bytes: level_base.div_ceil(MIB) * MIB,
                    num_levels: u32::MAX,
                    level0_trigger: match present.style {
                        Style::Level => present.level0_trigger,
                        Style::Universal => LEVEL0_TRIGGER,
                    },
                    ..base.clone()
                };
                let Ok(plan) = tree::plan_of(&level, &situation.data, 0) else { continue };
                level.num_levels = present.num_levels.max(plan.levels.unwrap_or(0) + 1);
                found.push(level);
            }
            for runs in (2..=RUNS_MAX).take_while(|_| flushed > 0) {
                let buffers = tree::buffers(&base, &situation.data);
                let Some(percent) = universal::space_percent(max_space, runs, buffers) else { continue };
                let universal = Settings {
                    universal: present.universal.proposed(percent),
                    style: Style::Universal,
                    level0_trigger: runs,
                    level0_slowdown: present.level0_slowdown.max(runs + RUNS_ROOM),
                    level0_stop: present.level0_stop.max(runs + 2 * RUNS_ROOM),
                    ..base.clone()
                };
                // If each run must be more than twice the one before, the model is inaccurate.
                if tree::is_tiered(&universal, &situation.data) {
                    found.push(universal);
                }
            }
        }
    }
    found
}

/// A ladder of buffer sizes that fit, including the present one.
fn buffers(present: &Settings, memory_bytes: f64) -> Vec<u64> {
    let each = memory_bytes / present.write_buffers as f64;
    let rungs = (0..40).flat_map(|doubled| [MIB << doubled, (3 * MIB / 2) << doubled]);
    let mut ladder: Vec<u64> =
        rungs.chain([present.write_buffer_bytes]).filter(|bytes| (*bytes as f64) <= each).collect();
    ladder.sort_unstable();
    ladder.dedup();
    ladder
}

/// A setting that differs.
struct Knob {
    setting: &'static str,
    from: String,
    to: String,
    purpose: String,
    /// Copies the setting from the second settings to the first.
    apply: fn(&mut Settings, &Settings),
}

/// The settings that differ and have an effect; settings of the other style have none.
fn changed(from: &Settings, to: &Settings) -> Vec<Knob> {
    let is_level = to.style == Style::Level;
    let mut knobs = Vec::new();
    let mut add = |setting, [from, to]: [String; 2], purpose: String, apply| {
        if from != to {
            knobs.push(Knob { setting, from, to, purpose, apply });
        }
    };
    let both = |of: fn(&Settings) -> String| [of(from), of(to)];
    add(
        "compaction_style",
        both(|settings| settings.style.name().into()),
        match to.style {
            Style::Level => "one run per level: fewer runs to search".into(),
            Style::Universal => "runs are collected before a compaction: fewer compactions".into(),
        },
        |to, from| to.style = from.style,
    );
    if is_level {
        add(
            "max_bytes_for_level_multiplier",
            both(|settings| settings.multiplier.to_string()),
            match to.multiplier < from.multiplier {
                true => "less compaction on each of more levels".into(),
                false => "fewer levels".into(),
            },
            |to, from| to.multiplier = from.multiplier,
        );
        add(
            "max_bytes_for_level_base",
            both(|settings| settings.level_base_bytes.to_string()),
            "the first level holds T write buffers".into(),
            |to, from| to.level_base_bytes = from.level_base_bytes,
        );
        add(
            "num_levels",
            both(|settings| settings.num_levels.to_string()),
            "room for all levels".into(),
            |to, from| to.num_levels = from.num_levels,
        );
    }
    let trigger = match to.style {
        Style::Level => "RocksDB's default for this style".into(),
        Style::Universal => format!("{} runs in total", to.level0_trigger),
    };
    add(
        "level0_file_num_compaction_trigger",
        both(|settings| shown_trigger(settings.level0_trigger)),
        trigger,
        |to, from| to.level0_trigger = from.level0_trigger,
    );
    add(
        "level0_slowdown_writes_trigger",
        both(|settings| shown_trigger(settings.level0_slowdown)),
        "above the number of runs, so that they do not slow writes".into(),
        |to, from| to.level0_slowdown = from.level0_slowdown,
    );
    add(
        "level0_stop_writes_trigger",
        both(|settings| shown_trigger(settings.level0_stop)),
        "above the number of runs, so that they do not stop writes".into(),
        |to, from| to.level0_stop = from.level0_stop,
    );
    if to.style == Style::Universal {
        add(
            universal::NAME,
            both(|settings| settings.universal.shown()),
            format!(
                "compacts all runs before space amplification exceeds {}.{:02}, and otherwise by RocksDB's default rules",
                1 + to.universal.space_percent / 100,
                to.universal.space_percent % 100
            ),
            |to, from| to.universal = from.universal.clone(),
        );
    }
    add(
        "write_buffer_size",
        both(|settings| settings.write_buffer_bytes.to_string()),
        match to.write_buffer_bytes < from.write_buffer_bytes {
            true => "memory for filters instead".into(),
            false => "larger runs, fewer levels".into(),
        },
        |to, from| to.write_buffer_bytes = from.write_buffer_bytes,
    );
    add(
        "filter_policy",
        both(|settings| settings.bits_per_key.to_string()),
        match to.bits_per_key > from.bits_per_key {
            true => "fewer reads for false positives".into(),
            false => "memory for buffers instead".into(),
        },
        |to, from| to.bits_per_key = from.bits_per_key,
    );
    if to.style == Style::Universal {
        // The style has no effect without its triggers and options: these come first.
        let goes_first = |setting: &str| setting.starts_with("level0_") || setting == universal::NAME;
        knobs.sort_by_key(|knob| !goes_first(knob.setting));
    }
    knobs
}

/// Formats a trigger as in the file.
fn shown_trigger(runs: u64) -> String {
    if runs == NO_TRIGGER { "-1".into() } else { runs.to_string() }
}

impl Style {
    /// The value in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Level => "kCompactionStyleLevel",
            Self::Universal => "kCompactionStyleUniversal",
        }
    }
}
