//! Conversion of RocksDB's settings to a design of the model.
//!
//! **Level style** is leveling. T is `max_bytes_for_level_multiplier`. The first level holds
//! `max_bytes_for_level_base`, which is the model's buffer times T; the number of levels follows
//! from the data. (Dynamic level sizes give the same number; they fill the levels from the last one
//! up.) Level 0 gathers `level0_file_num_compaction_trigger` runs before a compaction. The model
//! has no such level; a caveat states what its runs add to lookups.
//!
//! **Universal style** keeps at most `level0_file_num_compaction_trigger` runs in total, and merges
//! runs of similar size. That is tiering with levels of T - 1 runs each, where T is the largest
//! whole number whose levels have no more runs in total. If even T = 2 has more runs, there are too
//! few runs for the data, and each must be more than twice as large as the one before. The design
//! then has one run per level, and T is the corresponding root.
//! RocksDB's picking, simulated over 1,000 flushes, merges each entry 3.8 times with 12 runs and
//! 2.5 times with 20; the model predicts 4.0 and 3.3. With 4 runs it is 21 times, and the model
//! predicts 9; a caveat then says that more will be merged. The effect of the bound on space
//! amplification is in `universal.rs`.
//!
//! Not here: choosing a better design (`advice.rs`).

use shamba_model::allocation::Allocation;
use shamba_model::cost::{Costs, DataSet, FilterBits, Plan, Situation, predict};
use shamba_model::monkey::levels_closed;
use shamba_model::{Design, MAX_LEVELS, MAX_RUNS, MAX_SIZE_RATIO, MergePolicy};

use super::settings::{NO_TRIGGER, Settings, Style};

/// The plan that these settings describe for this data; `cache_bytes` is used if the file does not
/// state the cache.
///
/// # Errors
/// Settings that no design of the model represents.
pub fn plan_of(settings: &Settings, data: &DataSet, cache_bytes: u64) -> Result<Plan, String> {
    let buffer_bytes = settings.write_buffer_bytes.saturating_mul(settings.buffers_merged);
    let data_bytes = data.entries as f64 * data.entry_bytes;
    let (design, levels) = match settings.style {
        Style::Level => {
            let size_ratio = settings.multiplier;
            if !(2.0..=MAX_SIZE_RATIO).contains(&size_ratio) {
                return Err(format!(
                    "max_bytes_for_level_multiplier is {size_ratio}: the model supports size ratios from 2 to {MAX_SIZE_RATIO}"
                ));
            }
            let needed = level_style_levels(settings.level_base_bytes, size_ratio, data_bytes)?;
            let design = Design::new(MergePolicy::Leveling, size_ratio, buffer_bytes, settings.bits_per_key);
            (design, needed.min(settings.levels_max()))
        }
        Style::Universal => {
            let (policy, size_ratio, levels) =
                universal_shape(settings.level0_trigger, data_bytes, buffer_bytes)?;
            (Design::new(policy, size_ratio, buffer_bytes, settings.bits_per_key), levels)
        }
    };
    design.validate().map_err(|error| format!("not supported by the model: {error}"))?;
    Ok(Plan {
        design,
        filters: FilterBits::PerKey(settings.bits_per_key),
        allocation: Allocation::Uniform,
        cache_bytes: settings.block_cache_bytes.unwrap_or(cache_bytes),
        levels: Some(levels),
    })
}

/// The costs of settings, as those of their design.
///
/// # Errors
/// Figures that the model rejects.
pub fn costs_of(settings: &Settings, situation: &Situation, plan: &Plan) -> Result<Costs, String> {
    let costs = predict(situation, plan)?;
    if settings.style == Style::Level {
        return Ok(costs);
    }
    let universal = &settings.universal;
    let space = universal.space_amplification(settings.level0_trigger, buffers(settings, &situation.data));
    let merges = match plan.design.policy() {
        Some(MergePolicy::Tiering) => {
            universal.merges_per_entry(costs.write_amplification - 1.0, plan.design.size_ratio, costs.levels)
        }
        // The model is inaccurate for few runs; [`caveats`] says so.
        _ => costs.write_amplification - 1.0,
    };
    costs.with_merges(situation, merges, space)
}

/// Size of the data in flushed runs.
pub fn buffers(settings: &Settings, data: &DataSet) -> f64 {
    let buffer_bytes = settings.write_buffer_bytes.saturating_mul(settings.buffers_merged).max(1);
    data.entries as f64 * data.entry_bytes / buffer_bytes as f64
}

/// Whether universal settings have enough runs for tiering, which the model predicts well.
pub fn is_tiered(settings: &Settings, data: &DataSet) -> bool {
    let buffer_bytes = settings.write_buffer_bytes.saturating_mul(settings.buffers_merged);
    let data_bytes = data.entries as f64 * data.entry_bytes;
    let shape = universal_shape(settings.level0_trigger, data_bytes, buffer_bytes);
    shape.is_ok_and(|(policy, ..)| policy == MergePolicy::Tiering)
}

/// The simplifications of the model for these settings and this data.
pub fn caveats(settings: &Settings, plan: &Plan, data: &DataSet) -> Vec<String> {
    let mut told = Vec::new();
    let data_bytes = data.entries as f64 * data.entry_bytes;
    match settings.style {
        Style::Level => {
            let fpr = shamba_model::monkey::bloom_fpr(settings.bits_per_key);
            let runs = settings.level0_trigger;
            if runs == NO_TRIGGER {
                told.push(
                    "level 0: the number of runs triggers no compaction; the model assumes an empty level 0"
                        .into(),
                );
            }
            let counted = (runs != NO_TRIGGER).then_some(runs);
            told.extend(counted.map(|runs| format!(
                "level 0: up to {runs} runs collect before a compaction, but the model assumes an empty level 0; an empty \
                 lookup reads up to {:.4} more pages",
                runs as f64 * fpr
            )));
            let needed =
                level_style_levels(settings.level_base_bytes, settings.multiplier, data_bytes).unwrap_or(0);
            if needed > settings.levels_max() {
                told.push(format!(
                    "num_levels {}: the data needs {needed} levels below level 0; the last level exceeds its capacity",
                    settings.num_levels
                ));
            }
        }
        Style::Universal => {
            told.extend(settings.universal.differences());
            told.extend(space_of_merges(settings));
            if plan.design.policy() == Some(MergePolicy::Leveling) && plan.design.size_ratio > 2.0 {
                told.push(format!(
                    "universal style with at most {} runs for {:.0} buffers of data writes up to several times more than the \
                     model predicts",
                    settings.level0_trigger,
                    data_bytes / plan.design.buffer_bytes as f64
                ));
            }
        }
    }
    if settings.skips_last_filter {
        told.push(
            "optimize_filters_for_hits: the last level has no filters, so an empty lookup reads nearly one page more than \
             predicted"
                .into(),
        );
    }
    told
}

/// Note on the free space that compactions of all runs need, for settings that have these.
pub fn space_of_merges(settings: &Settings) -> Option<String> {
    (settings.style == Style::Universal).then(|| {
        format!(
            "universal style: a compaction of all runs (max_size_amplification_percent={}) needs free space for all of \
             the data while it runs",
            settings.universal.space_percent
        )
    })
}

impl Settings {
    /// Maximum number of levels below level 0.
    pub fn levels_max(&self) -> u32 {
        self.num_levels.saturating_sub(1).max(1)
    }
}

fn level_style_levels(base_bytes: u64, size_ratio: f64, data_bytes: f64) -> Result<u32, String> {
    // Level 1 of the model holds T buffers. Rounded up: a fraction of a byte must not add a level.
    let buffer_bytes = (base_bytes as f64 / size_ratio).ceil().max(1.0) as u64;
    levels_closed(data_bytes, buffer_bytes, size_ratio)
}

/// Policy, T and levels of a tree of at most `runs_max` runs of similar size.
pub(super) fn universal_shape(
    runs_max: u64,
    data_bytes: f64,
    buffer_bytes: u64,
) -> Result<(MergePolicy, f64, u32), String> {
    let runs_max = u32::try_from(runs_max).unwrap_or(u32::MAX).min(MAX_RUNS);
    let mut found = None;
    // All ratios are tried: with one level less, a larger ratio can fit again.
    for size_ratio in 2..=runs_max.saturating_add(1).min(MAX_RUNS) {
        let levels = levels_closed(data_bytes, buffer_bytes, f64::from(size_ratio))?;
        if levels.saturating_mul(size_ratio - 1) <= runs_max {
            found = Some((MergePolicy::Tiering, f64::from(size_ratio), levels));
        }
    }
    if let Some(found) = found {
        return Ok(found);
    }
    let buffers = (data_bytes / buffer_bytes as f64).max(2.0);
    let size_ratio = buffers.powf(1.0 / f64::from(runs_max.max(1))).clamp(2.0, MAX_SIZE_RATIO);
    Ok((MergePolicy::Leveling, size_ratio, runs_max.clamp(1, MAX_LEVELS)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::rocksdb::file::OptionsFile;
    use crate::plan::rocksdb::settings::Family;

    fn settings(options: &str) -> Settings {
        let text = format!("[CFOptions \"default\"]\n{options}\n");
        let file = OptionsFile::parse(text.as_bytes()).unwrap();
        Settings::read(&Family::of(&file, "default").unwrap()).unwrap()
    }

    /// 1,000 buffers of 64 MiB.
    const DATA: DataSet = DataSet { entries: 1_000 << 20, entry_bytes: 64.0, page_bytes: 4096 };

    fn plan(options: &str) -> Plan {
        plan_of(&settings(options), &DATA, 0).unwrap()
    }

    #[test]
    fn level_style_is_leveling_with_as_many_levels_as_the_base_needs() {
        // 62.5 GiB of data with a first level of 0.25 GiB, each ten times the one above: 0.25, 2.5,
        // 25, 250.
        let usual = plan("");
        assert_eq!((usual.design.policy(), usual.levels), (Some(MergePolicy::Leveling), Some(4)));
        assert_eq!(plan("max_bytes_for_level_base=640M").levels, Some(3));
        assert_eq!(plan("max_bytes_for_level_multiplier=4").levels, Some(5));
        assert_eq!(plan("num_levels=3").levels, Some(2), "there are no more");
        assert_eq!(plan("min_write_buffer_number_to_merge=2").design.buffer_bytes, 128 << 20);
        let few = settings("num_levels=3\noptimize_filters_for_hits=true");
        let told = caveats(&few, &plan("num_levels=3"), &DATA).join("\n");
        for what in ["level 0", "num_levels 3: the data needs 4", "optimize_filters_for_hits"] {
            assert!(told.contains(what), "{what} in {told}");
        }
    }

    #[test]
    fn universal_style_is_tiering_of_no_more_runs() {
        for (runs, size_ratio, levels) in
            [(9, 2.0, 9), (12, 3.0, 6), (20, 6.0, 4), (31, 11.0, 3), (1000, 1001.0, 1)]
        {
            let universal = format!(
                "compaction_style=kCompactionStyleUniversal\nlevel0_file_num_compaction_trigger={runs}"
            );
            let plan = plan(&universal);
            let design = plan.design;
            assert!(plan.levels.unwrap() * design.inner_runs <= runs, "{runs}: {design}");
            assert!(is_tiered(&settings(&universal), &DATA));
            assert_eq!((design.size_ratio, plan.levels), (size_ratio, Some(levels)), "{runs}");
        }
        let few = "compaction_style=1\nlevel0_file_num_compaction_trigger=4";
        let plan = plan(few);
        assert_eq!((plan.design.policy(), plan.levels), (Some(MergePolicy::Leveling), Some(4)));
        assert!((plan.design.size_ratio - 1000f64.powf(0.25)).abs() < 1e-9);
        assert!(!is_tiered(&settings(few), &DATA));
        assert!(caveats(&settings(few), &plan, &DATA).join("\n").contains("times more than the model"));
    }
}
