//! The demo's report as one JSON object.

use serde_json::{Value, json};

use super::Story;
use super::gains::gains;
use super::trial::{Lookups, Split, Trial, Variant};
use crate::json;

/// All results, with the verification counts of all trials at the top level.
pub fn object(story: &Story) -> Value {
    let sum = |of: fn(&Trial) -> u64| story.trials.iter().map(of).sum::<u64>();
    let gains: Vec<Value> = gains(&story.trials, story.no_filters)
        .iter()
        .map(|gain| {
            json!({
                "idea": gain.idea,
                "policy": gain.policy.to_string(),
                "keys": keys(gain.existing),
                "with_ns": gain.with_ns,
                "without_ns": gain.without_ns,
                "change_share": gain.change(),
                "verdict": gain.verdict.word(),
            })
        })
        .collect();
    json!({
        "schema": "shamba.demo/1",
        "source": story.source,
        "synthetic": story.synthetic,
        "paths": story.paths.entries.len(),
        "paths_found": story.paths.found,
        "unreadable": story.paths.unreadable.len(),
        "data_bytes": story.paths.bytes(),
        "seconds": story.seconds,
        "verification": {
            "entries": sum(|trial| trial.verification.entries),
            "lookups": sum(|trial| trial.verification.lookups),
            "mismatches": story.mismatches(),
        },
        "mismatches": story.mismatches(),
        "size_ratio": story.plan.size_ratio,
        "write_buffer_bytes": story.plan.buffer_bytes,
        "no_filters_absent_ns": story.no_filters.ns,
        "policies": story.trials.iter().map(trial).collect::<Vec<_>>(),
        "gains": gains,
    })
}

fn keys(existing: bool) -> &'static str {
    if existing { "existing" } else { "absent" }
}

fn trial(trial: &Trial) -> Value {
    let load = &trial.load.stats;
    let checked = &trial.verification;
    json!({
        "policy": trial.policy.to_string(),
        "deepest_level": trial.deepest_level,
        "runs": trial.runs,
        "tables": trial.tables(),
        "seconds": trial.seconds,
        "load": {
            "seconds": trial.load.seconds,
            "bytes_written": load.bytes_written(),
            "bytes_user": load.bytes_user,
            "write_amplification": trial.write_amplification(),
            "flushes": load.flushes,
            "compactions": load.compactions,
            "merges": load.compactions,
            "trivial_moves": load.trivial_moves,
            "stalls": load.stalls,
            "stall_us": load.stall_us,
        },
        "lookups": trial.lookups.iter().map(lookups).collect::<Vec<_>>(),
        "time_split": { "existing": split(&trial.split[0]), "absent": split(&trial.split[1]) },
        "memory": json::memory(&trial.memory),
        "verification": {
            "entries": checked.entries,
            "scan_mismatches": checked.scan_mismatches,
            "lookups": checked.lookups,
            "get_mismatches": checked.get_mismatches,
            "absent_found": checked.absent_found,
            "problems": checked.problems,
            "mismatches": checked.mismatches(),
        },
        "tree": trial.tree,
    })
}

fn lookups(lookups: &Lookups) -> Value {
    let stats = &lookups.stats;
    json::with(
        json!({
            "hash_sharing": lookups.variant != Variant::NoSharing,
            "prefetch": lookups.variant != Variant::NoPrefetch,
            "keys": keys(lookups.existing),
            "ns_per_lookup": lookups.time.ns,
            "noise_share": lookups.time.noise,
            "hashes_per_get": stats.hashes_per_get(),
            "filters_per_get": stats.filters_per_get(),
            "false_positives_per_get": stats.false_positives_per_get(),
        }),
        json::lookup_counters(stats),
    )
}

fn split(split: &Split) -> Value {
    json!({
        "hash_ns": split.hash,
        "probe_ns": split.probe,
        "index_ns": split.index,
        "data_ns": split.data,
        "other_ns": split.other,
        "timer_ns": split.timer,
    })
}
