//! The demo's report as text.

use std::path::Path;

use shamba::{MemoryReport, MergePolicy};

use super::Story;
use super::gains::{FILTERS, Gain, HASH_SHARING, PREFETCHING, Verdict, gains};
use super::paths::{Kinds, Paths};
use super::plan::{LEVELS, Plan};
use super::trial::{Trial, Variant};
use crate::exit::Failure;
use crate::output::{Out, Table};
use crate::sizes::{counted, show_count, show_size};

/// Prints the line under a heading that directs the reader to the figures of the section.
fn look(out: &mut Out, what: &str) -> Result<(), Failure> {
    out.line(format!("  Look at: {what}."))
}

/// Prints the introduction.
pub fn opening(
    out: &mut Out,
    source: &str,
    paths: &Paths,
    plan: &Plan,
    db: Option<&Path>,
) -> Result<(), Failure> {
    out.heading(&format!("Shamba demo: {source} as keys, their metadata as values"))?;
    let mut facts = Table::plain().left([1]).indent(2);
    let Kinds { files, directories, links, others } = paths.kinds;
    let kinds: Vec<String> =
        [(files, "files"), (directories, "directories"), (links, "links"), (others, "others")]
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, name)| format!("{} {name}", show_count(count)))
            .collect();
    let walked =
        if paths.seconds > 0.0 { format!(", walked in {:.1} s", paths.seconds) } else { String::new() };
    facts.row(["paths", &format!("{} ({}){walked}", show_count(paths.found), kinds.join(", "))]);
    if paths.found > paths.entries.len() as u64 {
        let stored = show_count(paths.entries.len() as u64);
        facts.row(["stored", &format!("a random sample of {stored} for a short demo; --sample N for more")]);
    }
    if !paths.unreadable.is_empty() {
        facts.row(["unreadable", &show_count(paths.unreadable.len() as u64)]);
    }
    facts.row(["data", &format!("{} of keys and values, loaded in random order", show_size(paths.bytes()))]);
    facts.row([
        "trees",
        &format!(
            "size ratio {}, write buffer {}: small, so that the data fills {LEVELS} levels or more",
            plan.size_ratio,
            show_size(plan.buffer_bytes)
        ),
    ]);
    let kept = db.map_or("a temporary directory".to_string(), |dir| dir.display().to_string());
    facts.row(["databases", &format!("one for each policy and one without filters, in {kept}")]);
    out.text(facts.to_string())?;
    out.line("")?;
    out.line("  For each policy: load, reopen, compare every entry with the walk, look up every path and the same number of absent ones.")
}

/// Prints the result of one policy.
pub fn progress(out: &mut Out, trial: &Trial) -> Result<(), Failure> {
    let checked = &trial.verification;
    let verdict = match checked.mismatches() {
        0 => "all correct".to_string(),
        wrong => format!("{} WRONG", show_count(wrong)),
    };
    out.line(format!(
        "  {:<14} {:>4.1} s: {} compared, {} checked, {verdict}",
        trial.policy.to_string(),
        trial.seconds,
        counted(checked.entries, "entry", "entries"),
        counted(checked.lookups, "lookup", "lookups"),
    ))
}

/// Prints all results.
pub fn story(out: &mut Out, story: &Story) -> Result<(), Failure> {
    loading(out, &story.trials)?;
    trees(out, &story.trials)?;
    lookups(out, &story.trials)?;
    time_parts(out, &story.trials)?;
    explained(out, &story.trials)?;
    memory(out, story)?;
    paid(out, story)?;
    closing(out, story)
}

/// A table with one column per policy.
fn by_policy(trials: &[Trial], first: &str) -> Table {
    Table::new(std::iter::once(first.to_string()).chain(trials.iter().map(|trial| trial.policy.to_string())))
        .indent(2)
}

fn loading(out: &mut Out, trials: &[Trial]) -> Result<(), Failure> {
    out.heading("Loading")?;
    look(out, "bytes written per byte of data, and runs that a lookup may consult, by policy")?;
    let mut table = by_policy(trials, "");
    let mut row = |name: &str, cell: &dyn Fn(&Trial) -> String| {
        table.row(std::iter::once(name.to_string()).chain(trials.iter().map(cell)));
    };
    row("time", &|trial| format!("{:.1} s", trial.load.seconds));
    row("written to disk", &|trial| show_size(trial.load.stats.bytes_written()));
    row("per byte of data", &|trial| format!("{:.1}", trial.write_amplification()));
    row("flushes", &|trial| show_count(trial.load.stats.flushes));
    row("compactions", &|trial| show_count(trial.load.stats.compactions));
    row("trivial moves", &|trial| show_count(trial.load.stats.trivial_moves));
    row("levels", &|trial| trial.deepest_level.to_string());
    row("runs a lookup may consult", &|trial| show_count(trial.runs));
    row("tables", &|trial| show_count(trial.tables()));
    out.text(table.to_string())
}

fn trees(out: &mut Out, trials: &[Trial]) -> Result<(), Failure> {
    out.heading("The trees: runs and size of each level")?;
    look(
        out,
        "leveling keeps one run per level, tiering several, lazy leveling several except on the last level",
    )?;
    let mut table = Table::new(
        ["level", "capacity"]
            .into_iter()
            .map(String::from)
            .chain(trials.iter().map(|trial| trial.policy.to_string())),
    )
    .indent(2);
    let deepest = trials.iter().map(|trial| trial.deepest_level).max().unwrap_or(0);
    for level in 0..=deepest {
        let of = |trial: &Trial| trial.levels.iter().find(|stats| stats.level == level).cloned();
        let capacity = trials.iter().filter_map(of).map(|stats| stats.capacity_bytes).max().unwrap_or(0);
        let capacity = if capacity == 0 { "-".to_string() } else { show_size(capacity) };
        let cells = trials.iter().map(|trial| match of(trial) {
            Some(stats) if stats.runs > 0 => {
                let runs = if stats.runs == 1 { "run" } else { "runs" };
                format!("{} {runs} {:>9}", stats.runs, show_size(stats.bytes))
            }
            _ => "empty".to_string(),
        });
        table.row([level.to_string(), capacity].into_iter().chain(cells));
    }
    out.text(table.to_string())
}

fn lookups(out: &mut Out, trials: &[Trial]) -> Result<(), Failure> {
    out.heading("Lookups: nanoseconds, and work per lookup")?;
    look(out, "hashes is 1.00 for any number of filters; unshared is the count without hash sharing")?;
    let mut table = Table::new([
        "policy",
        "paths",
        "defaults",
        "no sharing",
        "no prefetch",
        "hashes",
        "unshared",
        "filters",
        "false",
        "blocks",
    ])
    .left([1])
    .indent(2);
    for trial in trials {
        for existing in [true, false] {
            let Some(default) = trial.lookups_of(Variant::Default, existing) else { continue };
            let ns = |variant| {
                trial
                    .lookups_of(variant, existing)
                    .map_or("-".into(), |lookups| format!("{:.0}", lookups.time.ns))
            };
            let unshared = trial
                .lookups_of(Variant::NoSharing, existing)
                .map_or("-".into(), |lookups| format!("{:.2}", lookups.stats.hashes_per_get()));
            let stats = &default.stats;
            table.row([
                if existing { trial.policy.to_string() } else { String::new() },
                if existing { "real" } else { "absent" }.to_string(),
                ns(Variant::Default),
                ns(Variant::NoSharing),
                ns(Variant::NoPrefetch),
                format!("{:.2}", stats.hashes_per_get()),
                unshared,
                format!("{:.2}", stats.filters_per_get()),
                format!("{:.3}", stats.false_positives_per_get()),
                format!("{:.2}", stats.per_get(stats.reads.data.count + stats.cache_hits)),
            ]);
        }
    }
    out.text(table.to_string())?;
    out.line(
        "  hashes: digests computed; unshared: the same with hash sharing off; filters: filters probed;",
    )?;
    out.line("  false: false positives of filters; blocks: data blocks searched")
}

fn time_parts(out: &mut Out, trials: &[Trial]) -> Result<(), Failure> {
    out.heading("Time of a lookup by phase: nanoseconds, with the timers on")?;
    look(
        out,
        "the hash column is the same under every policy: hashing time does not grow with the number of runs",
    )?;
    let mut table = Table::new([
        "policy", "paths", "hash", "filters", "index", "blocks", "other", "sum", "untimed", "clock",
    ])
    .left([1])
    .indent(2);
    for trial in trials {
        for (existing, split) in [(true, trial.split[0]), (false, trial.split[1])] {
            let untimed =
                trial.lookups_of(Variant::Default, existing).map_or(f64::NAN, |lookups| lookups.time.ns);
            let mut cells = vec![
                if existing { trial.policy.to_string() } else { String::new() },
                if existing { "real" } else { "absent" }.to_string(),
            ];
            let parts = [split.hash, split.probe, split.index, split.data, split.other];
            for ns in parts.into_iter().chain([split.total(), untimed, split.timer]) {
                cells.push(format!("{ns:.0}"));
            }
            table.row(cells);
        }
    }
    out.text(table.to_string())?;
    out.line(
        "  other: the view, the memtable, selecting tables, returning the value; untimed: the same lookups",
    )?;
    out.line("  with the timers off; clock: time of reading the clock, which is not included in the phases")
}

fn explained(out: &mut Out, trials: &[Trial]) -> Result<(), Failure> {
    // The policy with the most runs has the longest explanation.
    let Some(trial) = trials.iter().max_by_key(|trial| trial.runs) else { return Ok(()) };
    for (what, explanation) in ["A hit", "A miss"].into_iter().zip(&trial.explained) {
        out.heading(&format!(
            "{what}, explained ({}; `shamba explain DB KEY` explains any key)",
            trial.policy
        ))?;
        look(
            out,
            "for each run the filter excludes the key, or a block is searched; each step gives the reason",
        )?;
        for line in explanation.to_string().lines() {
            out.line(format!("  {line}"))?;
        }
    }
    Ok(())
}

fn memory(out: &mut Out, story: &Story) -> Result<(), Failure> {
    out.heading("Memory by part, after the lookups")?;
    look(out, "all parts are charged to one budget (default: 256 MiB); the sum is far below it here")?;
    let trials = &story.trials;
    let mut table = by_policy(trials, "");
    let names: Vec<&String> = trials
        .first()
        .into_iter()
        .flat_map(|trial| trial.memory.parts.iter().map(|(name, _)| name))
        .collect();
    let part = |memory: &MemoryReport, wanted: &str| {
        memory.parts.iter().find(|(name, _)| name == wanted).map_or(0, |(_, bytes)| *bytes)
    };
    for name in names.into_iter().filter(|name| trials.iter().any(|trial| part(&trial.memory, name) > 0)) {
        let cells = trials.iter().map(|trial| show_size(part(&trial.memory, name)));
        table.row(std::iter::once(name.clone()).chain(cells));
    }
    let mut row = |name: &str, cell: &dyn Fn(&Trial) -> String| {
        table.row(std::iter::once(name.to_string()).chain(trials.iter().map(cell)));
    };
    row("accounted", &|trial| show_size(trial.memory.ledger_bytes));
    row("resident (process)", &|trial| trial.memory.rss_bytes.map_or("unknown".into(), show_size));
    out.text(table.to_string())?;
    out.line(format!(
        "  Counted is one of the {} databases open then. Resident is the whole process: {} for the",
        Variant::ALL.len(),
        show_size(2 * story.paths.bytes())
    ))?;
    out.line("  demo's own copy of the paths, and all of the open databases, each with its cache.")
}

fn paid(out: &mut Out, story: &Story) -> Result<(), Failure> {
    out.heading("Gains and losses in this run")?;
    look(out, "the verdicts: differences within the noise are \"no difference\"")?;
    let gains = gains(&story.trials, story.no_filters);
    let mut table =
        Table::new(["idea", "policy", "paths", "with", "without", "time", ""]).left([1, 2, 6]).indent(2);
    let mut last = "";
    for gain in &gains {
        table.row([
            if gain.idea == last { String::new() } else { gain.idea.to_string() },
            gain.policy.to_string(),
            if gain.existing { "real" } else { "absent" }.to_string(),
            format!("{:.0} ns", gain.with_ns),
            format!("{:.0} ns", gain.without_ns),
            format!("{:+.0} %", 100.0 * gain.change()),
            gain.verdict.word().to_string(),
        ]);
        last = gain.idea;
    }
    out.text(table.to_string())?;
    for sentence in conclusions(&story.trials, &gains) {
        out.line(format!("  {sentence}"))?;
    }
    Ok(())
}

/// Conclusions that the figures support.
fn conclusions(trials: &[Trial], gains: &[Gain]) -> Vec<String> {
    let mut sentences = Vec::new();
    for idea in [HASH_SHARING, PREFETCHING, FILTERS] {
        let all: Vec<&Gain> = gains.iter().filter(|gain| gain.idea == idea).collect();
        let count = |verdict| all.iter().filter(|gain| gain.verdict == verdict).count();
        let (paid, cost, of) = (count(Verdict::Paid), count(Verdict::Cost), all.len());
        let Some(best) = all.iter().min_by(|a, b| a.change().total_cmp(&b.change())) else { continue };
        let most = format!(
            "{:.0} % less for {} paths under {}",
            -100.0 * best.change(),
            if best.existing { "real" } else { "absent" },
            best.policy,
        );
        let idea = format!("{}{}", idea[..1].to_uppercase(), &idea[1..]);
        sentences.push(match (paid, cost) {
            (0, 0) => format!("{idea}: no difference beyond the noise of this run."),
            (0, _) => format!("{idea}: more time in {cost} of {of} comparisons, less in none."),
            (_, 0) if of == 1 => format!("{idea}: {most}."),
            (_, 0) => format!("{idea}: less time in {paid} of {of} comparisons, up to {most}."),
            _ => {
                format!("{idea}: less time in {paid} of {of} comparisons, up to {most}; more time in {cost}.")
            }
        });
    }
    let of = |policy| trials.iter().find(|trial| trial.policy == policy);
    if let (Some(leveling), Some(tiering)) = (of(MergePolicy::Leveling), of(MergePolicy::Tiering)) {
        let miss = |trial: &Trial| {
            trial.lookups_of(Variant::Default, false).map_or(f64::NAN, |lookups| lookups.time.ns)
        };
        sentences.push(format!(
            "Bytes written per byte of data: {:.1} with tiering, {:.1} with leveling.",
            tiering.write_amplification(),
            leveling.write_amplification()
        ));
        sentences.push(format!(
            "An absent path took {:.0} ns with tiering, {:.0} ns with leveling.",
            miss(tiering),
            miss(leveling)
        ));
    }
    sentences
}

fn closing(out: &mut Out, story: &Story) -> Result<(), Failure> {
    out.heading("Verified")?;
    look(out, "mismatches must be 0; the command exits with 1 if not")?;
    let sum = |of: fn(&Trial) -> u64| story.trials.iter().map(of).sum::<u64>();
    out.line(format!(
        "  {} compared with the walk after reopening, {} checked: {}.",
        counted(sum(|trial| trial.verification.entries), "entry", "entries"),
        counted(sum(|trial| trial.verification.lookups), "lookup", "lookups"),
        counted(story.mismatches(), "mismatch", "mismatches")
    ))?;
    let shallow = story.trials.iter().map(|trial| trial.deepest_level).min().unwrap_or(0);
    if shallow < LEVELS {
        out.line(format!("  This much data fills only {shallow} levels, not {LEVELS}."))?;
    }
    out.line(format!("  {:.1} s in total.", story.seconds))?;
    if let Some(dir) = &story.kept_in {
        let example = dir.join(MergePolicy::Leveling.to_string());
        out.line(format!(
            "  The databases are kept in {}; try: shamba tree {}",
            dir.display(),
            example.display()
        ))?;
    }
    Ok(())
}
