//! The full tables, `results.md`: times of all engines divided by Shamba's, then each metric of
//! each workload for all engines with the ratio to RocksDB, then the options.
//!
//! A ratio is RocksDB's value divided by the engine's, so that above 1 the engine is better.
//! Shamba's cell is marked where another engine is better ([`crate::verdict`]).

use std::fmt::Write as _;

use crate::gathered::{Gathered, Metric, Spread};
use crate::peer::{Compression, Engine, Stated};
use crate::result::Situation;
use crate::verdict::{Verdict, Verdicts};
use crate::workload::Workload;

/// The whole page, with pictures of these names.
pub fn render(all: &Gathered, pictures: &[String]) -> String {
    let verdicts = Verdicts::of(all);
    let mut page = String::from("# Shamba and other engines: all tables\n\n");
    head(all, &mut page);
    page += "Not equal:\n\n";
    page += NOT_EQUAL;
    page += &summary(all);
    for picture in pictures {
        let _ = writeln!(page, "![{picture}]({picture})\n");
    }
    page += &legend(&verdicts);
    page.extend(Metric::ALL.into_iter().map(|metric| table(all, metric, &verdicts)));
    page += &options(all);
    page
}

fn head(all: &Gathered, page: &mut String) {
    for (name, value) in &all.facts {
        let _ = writeln!(page, "- {name}: {value}");
    }
    for command in all.commands() {
        let _ = writeln!(page, "- command: `{command}`");
    }
    let _ = writeln!(
        page,
        "\nEach cell: {}, and RocksDB's value divided by it. {}\n",
        match all.repeats(None) {
            (_, 0 | 1) => "one repetition, whose spread is unknown".to_owned(),
            (1, most) => format!("the median of up to {most} repetitions (minimum–maximum)"),
            _ => "the median of the repetitions (minimum–maximum)".to_owned(),
        },
        match all.check_answers() {
            Ok(()) => "All answers were verified, and all engines gave the same ones.".to_owned(),
            Err(difference) => format!("**Answers differ: {difference}.**"),
        }
    );
    page.push_str("| situation | repetitions | build | day | requests |\n|---|---|---|---|---|\n");
    for at in &all.situations {
        let Some(runs) = all.runs.iter().find(|runs| runs.at == *at) else { continue };
        let repeats = match all.repeats(Some(*at)) {
            (fewest, most) if fewest == most => most.to_string(),
            (fewest, most) => format!("{fewest} to {most}"),
        };
        let (commit, days, requests) = (runs.commit(), runs.days(), runs.requests());
        let _ = writeln!(page, "| {} | {repeats} | {commit} | {days} | {requests} |", situation(*at));
    }
    page.push('\n');
    for (place, reason) in &all.absences {
        let _ = writeln!(page, "- No rows of {place}: {reason}.");
    }
    for failure in &all.failures {
        let (at, engine, message) = (failure.at, failure.engine, &failure.message);
        let _ = writeln!(page, "- **{engine} failed** ({}): {message}", situation(at));
    }
    page.push('\n');
}

/// Description of a situation.
pub fn situation(at: Situation) -> String {
    let set = at.dataset;
    let items = thousands(set.items as f64);
    let mut text = format!(
        "{items} × ({} + {} B), {} MiB, {}",
        set.key_bytes,
        set.value_bytes,
        at.budget_bytes >> 20,
        at.io.name()
    );
    if at.compression != Compression::None {
        let _ = write!(text, ", {}", at.compression.name());
    }
    text
}

/// The part of a page that no figure can show; `lab/peers/README.md` has the rest.
pub const NOT_EQUAL: &str = "\
- Time is measured inside the calls. Background work that a put causes shows in the time until it
  ends, in CPU time and in bytes.
- Through the page cache a cache miss of an engine is a system call, and the device is read only where
  the kernel's cache misses too: never, on a machine with more memory than data.
- Shamba compacts all of level 0 before it is idle; RocksDB keeps up to three files there.
  `rocksdb-compacted` is one sorted run until the first puts; that compaction counts in its fill's
  time until background work ends.
- Fills of LMDB and redb commit 1,000 puts at a time: the time of a put is its share.
- LevelDB maps its first 1,000 open tables, which no budget limits. It verifies no checksums (its
  default).
- fjall's cache never uses the memory of two write buffers; the others lend it to their caches. fjall
  reads an index as a whole: with keys of 512 B its indexes exceed its cache, and a lookup reads up
  to 1 MB.
- LMDB has no budget: its values are repeated for each budget. Without `NO_SYNC` a commit that syncs
  waits twice; here it waits once, in `mdb_env_sync`.
- RocksDB uses HyperClockCache, which it recommends.
- For direct I/O the options of each engine state how many of its files the kernel really opened so.

";

/// The mark of Shamba's cell, with the engine that is better and the ratio.
fn mark(verdicts: &Verdicts, at: Situation, workload: Workload, metric: Metric) -> String {
    let Some(judged) = verdicts.get(at, workload, metric) else { return String::new() };
    let ratio = |times: f64| if times.is_finite() { format!("{times:.2} × ") } else { String::new() };
    match judged.verdict {
        Verdict::Best => String::new(),
        Verdict::Alike(winner) => format!(" ≈ {winner}"),
        Verdict::Once(winner, times) => format!(" ▽ {}{winner}", ratio(times)),
        Verdict::Beaten(winner, times) => format!(" **{}** {}{winner}", judged.mark(), ratio(times)),
    }
}

/// The meaning of the marks, and the reasons.
fn legend(verdicts: &Verdicts) -> String {
    let mut text = String::from(
        "Where another engine is better than Shamba, Shamba's cell names it with the ratio and the number of the \
         reason (▼). `≈`: the ranges overlap, or the difference is below 3 %. ▽: one of the two values comes from a \
         single repetition, so that its spread is unknown. `–`: the engine was not measured, or too few operations \
         for this percentile.\n\n",
    );
    for (number, reason) in verdicts.reasons() {
        let _ = writeln!(text, "- ▼{number}: {}.", reason.why);
    }
    if verdicts.unexplained() > 0 {
        let _ = writeln!(text, "- ▼?: not explained yet: {}.", verdicts.unexplained());
    }
    text.push('\n');
    text
}

/// Times of all engines divided by Shamba's.
fn summary(all: &Gathered) -> String {
    let others: Vec<Engine> =
        all.engines.iter().copied().filter(|engine| *engine != Engine::Shamba).collect();
    let mut rows = String::new();
    for at in &all.situations {
        for (workload, metric) in Workload::ALL.into_iter().flat_map(|workload| {
            [Metric::Time, Metric::Settled].into_iter().map(move |metric| (workload, metric))
        }) {
            let figure =
                |engine| all.spread(*at, workload, engine, metric).filter(|spread| spread.median > 0.0);
            let Some(ours) = figure(Engine::Shamba) else { continue };
            let until = if metric == Metric::Settled { " with background work" } else { "" };
            let number = figure_text(ours.median, metric);
            let _ = write!(rows, "| {} | {}{until} | {number} |", situation(*at), workload.name());
            for engine in &others {
                let ratio = figure(*engine).map(|theirs| format!("{:.2}", theirs.median / ours.median));
                let _ = write!(rows, " {} |", ratio.unwrap_or_else(|| "–".to_owned()));
            }
            rows.push('\n');
        }
    }
    if others.is_empty() || rows.is_empty() {
        return String::new();
    }
    let names: String = others.iter().map(|engine| format!(" {engine} |")).collect();
    format!(
        "## Time of an operation divided by Shamba's (above 1, Shamba is faster)\n\n\
         | situation | workload | Shamba, ns |{names}\n|---|---|---:|{}\n{rows}\n",
        "---:|".repeat(others.len())
    )
}

fn table(all: &Gathered, metric: Metric, verdicts: &Verdicts) -> String {
    let mut rows = String::new();
    for at in &all.situations {
        for workload in Workload::ALL {
            let cells: Vec<Option<Spread>> =
                all.engines.iter().map(|engine| all.spread(*at, workload, *engine, metric)).collect();
            // An engine that ignores the budget has values for each budget, also where no other was
            // measured.
            let is_of_place = |engine: &Engine| !engine.ignores_budget();
            let measured = all.engines.iter().zip(&cells).filter(|(engine, _)| is_of_place(engine));
            if measured.into_iter().all(|(_, cell)| cell.is_none_or(|spread| spread.max == 0.0)) {
                continue;
            }
            let _ = write!(rows, "| {} | {} |", situation(*at), workload.name());
            let base = all.spread(*at, workload, Engine::Rocksdb, metric);
            for (engine, cell) in all.engines.iter().zip(&cells) {
                let mark = if *engine == Engine::Shamba {
                    mark(verdicts, *at, workload, metric)
                } else {
                    String::new()
                };
                let _ = write!(
                    rows,
                    " {}{mark} |",
                    cell.map_or_else(|| "–".to_owned(), |cell| shown(cell, base, metric))
                );
            }
            rows.push('\n');
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    let mut text = format!("## {}\n\n| situation | workload |", metric.title());
    let mut rule = String::from("|---|---|");
    for engine in &all.engines {
        let _ = write!(text, " {engine} |");
        rule += "---:|";
    }
    format!("{text}\n{rule}\n{rows}\n")
}

fn shown(spread: Spread, base: Option<Spread>, metric: Metric) -> String {
    let number = |figure: f64| figure_text(figure, metric);
    let range = if spread.min == spread.max {
        String::new()
    } else {
        format!(" ({}–{})", number(spread.min), number(spread.max))
    };
    // A value shown as zero has no ratio.
    let nothing = number(0.0);
    let is_something = |figure: f64| figure > 0.0 && number(figure) != nothing;
    let ratio = base
        .filter(|base| is_something(base.median) && is_something(spread.median))
        .map_or_else(String::new, |base| format!(" ×{:.2}", base.median / spread.median));
    format!("{}{range}{ratio}", number(spread.median))
}

fn figure_text(figure: f64, metric: Metric) -> String {
    match metric {
        Metric::Written => format!("{figure:.2}"),
        Metric::Rss | Metric::Space if figure < 100.0 => format!("{figure:.1}"),
        _ => thousands(figure),
    }
}

/// A whole number with separators.
pub fn thousands(figure: f64) -> String {
    let digits = format!("{figure:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The options of each engine: all of them once, then those that differ in other situations.
fn options(all: &Gathered) -> String {
    let mut text = String::from("## Options\n\n");
    for engine in &all.engines {
        let mut of_engine = all.options.iter().filter(|(_, of, ..)| of == engine);
        let Some((at, _, version, options)) = of_engine.next() else { continue };
        let list = |options: &[Stated]| {
            options.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("; ")
        };
        let _ = writeln!(text, "**{engine}** {version}. {}: {}.\n", situation(*at), list(options));
        for (at, _, _, others) in of_engine {
            let changed: Vec<Stated> =
                others.iter().filter(|option| !options.contains(option)).cloned().collect();
            if !changed.is_empty() {
                let _ = writeln!(text, "- {}: {}.", situation(*at), list(&changed));
            }
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_ratios_divide_by_the_value() {
        assert_eq!(thousands(1_234_567.4), "1,234,567");
        assert_eq!(thousands(999.6), "1,000");
        let spread = |median| Spread { median, min: median, max: median, count: 1 };
        assert_eq!(shown(spread(500.0), Some(spread(1000.0)), Metric::Time), "500 ×2.00");
        assert_eq!(shown(spread(2.5), None, Metric::Written), "2.50");
        assert_eq!(shown(spread(0.02), Some(spread(1.0)), Metric::DeviceRead), "0");
        let wide = Spread { median: 1.0, min: 0.5, max: 2.0, count: 3 };
        assert_eq!(shown(wide, None, Metric::Written), "1.00 (0.50–2.00)");
    }
}
