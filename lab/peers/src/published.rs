//! The published page, `docs/results/peers.md`: at most 200 lines (a test counts them), made from
//! the rows.
//!
//! It holds times with their ratios to other engines, the lost rows with their reasons, and ratios
//! of CPU time, memory and space. Everything else (percentiles, bytes, all engines, options) is in
//! the full tables ([`crate::table`]), which `table` writes from the same rows.

use std::fmt::Write as _;

use crate::explain::{Explanations, Loss, Reason};
use crate::gathered::{Gathered, Metric, Runs, Spread};
use crate::group::{self, Group};
use crate::peer::{Engine, Io};
use crate::result::Situation;
use crate::table::thousands;
use crate::verdict::{Judged, Verdict, Verdicts, judge};
use crate::workload::Workload;

/// Columns at which running text wraps.
const COLUMNS: usize = 100;
/// The rows, compressed, seen from the page.
const ROWS: &str = "raw/peers/results.jsonl.gz";
/// Metrics that have tables on the page; the others are counted.
const SHOWN: [Metric; 5] = [Metric::Time, Metric::Settled, Metric::Cpu, Metric::Rss, Metric::Space];

/// The page, with the picture of each group at the path that `picture` returns, if it has one.
pub fn render(all: &Gathered, picture: &dyn Fn(Group) -> Option<String>) -> String {
    let page = Page { all, verdicts: Verdicts::of(all) };
    let mut text = page.head();
    text += &page.summary();
    text += TIME;
    for group in Group::all(all) {
        let _ = write!(text, "### {}\n\n", group.name());
        if let Some(path) = picture(group) {
            let _ =
                write!(text, "![Time of other engines divided by Shamba's, {}]({path})\n\n", group.name());
        }
        text += &page.times(group);
    }
    text += &page.losses();
    text += &page.ratios(Metric::Settled, SETTLED);
    text += &page.ratios(Metric::Cpu, CPU);
    text += &page.memory();
    text += &page.space();
    text += UNEQUAL;
    text += &page.reproduce();
    text
}

const TIME: &str = "\
## Time of an operation

Mean time inside the call. A cell shows Shamba's time · RocksDB's divided by Shamba's · the same ratio
of the best other engine. **Above 1, Shamba is faster.** ▼ has the number of the reason, below.
In the pictures a dot is RocksDB, a cross the fastest engine other than RocksDB.

";

const SETTLED: &str = "\
## Time to idle

Time until flushes and compactions have ended, RocksDB's divided by Shamba's, for each budget. A mark
refers to the best of all engines.
";

const CPU: &str = "\
## CPU time

CPU time of all threads until the process is idle, likewise.
";

const UNEQUAL: &str = "\
## What is not equal

- Shamba compacts level 0 before it is idle; RocksDB leaves up to three files there.
- Fills of LMDB and redb commit 1,000 puts at a time.
- Reads of LMDB and LevelDB go through memory maps, without checksums. No budget limits LMDB, whose
  values are repeated for each budget, nor the first 1,000 tables of LevelDB.
- fjall's cache never uses the memory of two write buffers, and fjall reads an index as a whole.
- [lab/peers](../../lab/peers/README.md) lists equal and unequal conditions, and the workloads.

";

/// Rows of the summary: a title, and the metrics that it counts.
const SUMMARY: [(&str, &[Metric]); 7] = [
    ("time", &[Metric::Time]),
    ("time to idle", &[Metric::Settled]),
    ("CPU time", &[Metric::Cpu]),
    ("p50, p99, p99.9", &[Metric::P50, Metric::P99, Metric::P999]),
    ("bytes written and read", &[Metric::Written, Metric::CallRead, Metric::DeviceRead]),
    ("resident memory", &[Metric::Rss]),
    ("space", &[Metric::Space]),
];

/// Data of all sections.
struct Page<'a> {
    all: &'a Gathered,
    verdicts: Verdicts,
}

impl Page<'_> {
    fn head(&self) -> String {
        let all = self.all;
        let fact = |name: &str| all.facts.iter().find(|(known, _)| known == name).map(|(_, value)| value);
        let facts: Vec<String> = ["processor", "cores", "memory", "system", "file system", "instructions"]
            .into_iter()
            .filter_map(|name| Some((name, fact(name)?)))
            .map(|(name, value)| if name == "cores" { format!("{value} cores") } else { value.clone() })
            .collect();
        let mut sets: Vec<String> = Vec::new();
        for set in all.situations.iter().map(|at| at.dataset) {
            let text =
                format!("{} (keys {} B, values {} B)", group::dataset(set), set.key_bytes, set.value_bytes);
            if !sets.contains(&text) {
                sets.push(text);
            }
        }
        let budgets: Vec<String> = self.budgets().into_iter().map(group::budget).collect();
        let engines: Vec<String> = all.engines.iter().map(|engine| format!("`{engine}`")).collect();
        let repeats = match all.repeats(None) {
            (_, 0 | 1) => "one repetition".to_owned(),
            (fewest, most) if fewest == most => format!("the median of {most} repetitions"),
            (_, most) => format!("the median of up to {most} repetitions"),
        };
        let answers = match all.check_answers() {
            Ok(()) => "all engines gave the same, verified answers".to_owned(),
            Err(difference) => format!("**answers differ: {difference}**"),
        };
        let mut text = String::from("# Shamba and other engines\n\n");
        text += &wrapped(
            "Each engine gets the same keys, values and requests from the same seed, in a process of its own.",
            "",
            "",
        );
        text.push('\n');
        for (name, value) in [
            ("Machine", facts.join(", ")),
            ("Engines", engines.join(", ")),
            ("Entries", sets.join(", ")),
            ("Budgets", format!("{} for caches and write buffers together", budgets.join(", "))),
            ("Reading", "through the kernel's page cache, and with direct I/O from the device".to_owned()),
            ("Values", format!("{repeats}; {answers}")),
        ] {
            text += &wrapped(&format!("**{name}:** {value}"), "- ", "  ");
        }
        for failure in &all.failures {
            let (engine, message) = (failure.engine, &failure.message);
            let place = Group::of(failure.at).name();
            text += &wrapped(&format!("**{engine} failed** ({place}): {message}"), "- ", "  ");
        }
        text.push('\n');
        text
    }

    fn budgets(&self) -> Vec<u64> {
        let mut budgets: Vec<u64> = self.all.situations.iter().map(|at| at.budget_bytes).collect();
        budgets.sort_unstable();
        budgets.dedup();
        budgets
    }

    /// Numbers of won, undecided and lost rows per metric.
    fn summary(&self) -> String {
        let mut text = String::from(
            "## Result\n\nRows (a workload with data set, budget and way of reading) in which Shamba is \
             best, or another\nengine is: ≈ within the spread or below 3 %, ▽ in a single repetition, \
             **▼ clearly**.\n\n\
             | metric | rows | best | ≈ | ▽ | ▼ lost |\n|---|---:|---:|---:|---:|---:|\n",
        );
        for (title, metrics) in SUMMARY {
            let rows: Vec<&Judged> =
                self.verdicts.iter().filter(|row| metrics.contains(&row.metric)).collect();
            let count = |is: fn(&Verdict) -> bool| rows.iter().filter(|row| is(&row.verdict)).count();
            let counts = [
                rows.len(),
                count(|verdict| *verdict == Verdict::Best),
                count(|verdict| matches!(verdict, Verdict::Alike(_))),
                count(|verdict| matches!(verdict, Verdict::Once(..))),
                count(|verdict| matches!(verdict, Verdict::Beaten(..))),
            ];
            if !rows.is_empty() {
                let cells: String = counts.iter().map(|count| format!(" {count} |")).collect();
                let _ = writeln!(text, "| {title} |{cells}");
            }
        }
        text.push('\n');
        text
    }

    fn times(&self, group: Group) -> String {
        let situations: Vec<Situation> = group.situations(self.all).collect();
        let headings = situations.iter().map(|at| group::budget(at.budget_bytes)).collect();
        let rows = Workload::ALL.into_iter().map(|workload| {
            let cells =
                situations.iter().map(|at| self.cell(*at, workload, Metric::Time)).collect::<Vec<_>>();
            (workload.name().to_owned(), cells)
        });
        table("workload", headings, rows)
    }

    /// Shamba's value, the ratio of RocksDB, and that of the best other engine with a mark.
    fn cell(&self, at: Situation, workload: Workload, metric: Metric) -> Option<String> {
        let spread = |engine| self.all.spread(at, workload, engine, metric);
        let judged = self.verdicts.get(at, workload, metric)?;
        cell(self.all, metric, &spread, judged.verdict, &judged.mark())
    }

    /// For each workload and group, the ratio of RocksDB with each budget.
    fn ratios(&self, metric: Metric, about: &str) -> String {
        let groups = Group::all(self.all);
        let headings = groups.iter().map(|group| {
            let budgets = group.situations(self.all).map(|at| (at.budget_bytes >> 20).to_string());
            format!("{}: {} MiB", group.name(), budgets.collect::<Vec<_>>().join(" / "))
        });
        let rows = Workload::ALL.into_iter().map(|workload| {
            let cells = groups.iter().map(|group| {
                let ratios: Vec<Option<String>> =
                    group.situations(self.all).map(|at| self.ratio_of(at, workload, metric)).collect();
                let shown = |ratio: &Option<String>| ratio.clone().unwrap_or_else(|| "–".to_owned());
                let is_there = ratios.iter().any(Option::is_some);
                is_there.then(|| ratios.iter().map(shown).collect::<Vec<_>>().join(" / "))
            });
            (workload.name().to_owned(), cells.collect::<Vec<_>>())
        });
        format!("{about}\n{}", table("workload", headings.collect(), rows))
    }

    fn ratio_of(&self, at: Situation, workload: Workload, metric: Metric) -> Option<String> {
        let ours = self.all.spread(at, workload, Engine::Shamba, metric)?;
        let theirs = self.all.spread(at, workload, Engine::Rocksdb, metric)?;
        let mark = self.verdicts.get(at, workload, metric).map(Judged::mark).unwrap_or_default();
        let ratio = ratio(theirs, ours);
        let is_below = mark.starts_with('▼') && theirs.median < ours.median;
        Some(if is_below { format!("**{ratio}{mark}**") } else { format!("{ratio}{mark}") })
    }

    /// Of each engine the workload after which it has the most.
    fn memory(&self) -> String {
        let budgets = self.budgets();
        let rows = Group::all(self.all).into_iter().map(|group| {
            let cells = budgets.iter().map(|budget| {
                let at = group.situations(self.all).find(|at| at.budget_bytes == *budget)?;
                self.most_resident(at)
            });
            (group.name(), cells.collect::<Vec<_>>())
        });
        let headings = budgets.iter().copied().map(group::budget).collect();
        format!(
            "## Memory\n\nResident MiB of each engine after the workload that leaves it the largest. Cells \
             as for time.\nMemory maps of `lmdb` and `leveldb` count, the kernel's page cache does not.\n\n{}",
            table("data and reading", headings, rows)
        )
    }

    fn most_resident(&self, at: Situation) -> Option<String> {
        let most = |engine: Engine| -> Option<(Workload, Spread)> {
            Workload::ALL
                .into_iter()
                .filter_map(|workload| Some((workload, self.all.spread(at, workload, engine, Metric::Rss)?)))
                .max_by(|(_, a), (_, b)| a.median.total_cmp(&b.median))
        };
        let (workload, ours) = most(Engine::Shamba)?;
        let others = self.all.engines.iter().copied().filter(|engine| *engine != Engine::Shamba);
        let verdict = judge(ours, others.filter_map(|engine| Some((engine, most(engine)?.1))));
        let reason = match verdict {
            Verdict::Beaten(winner, _) => {
                Explanations::built_in().of(&Loss { at, workload, metric: Metric::Rss, winner })
            }
            _ => None,
        };
        let mark = Judged { at, workload, metric: Metric::Rss, verdict, reason }.mark();
        cell(self.all, Metric::Rss, &|engine| Some(most(engine)?.1), verdict, &mark)
    }

    fn space(&self) -> String {
        let budgets = self.budgets();
        let mut rows = Vec::new();
        // How a database is read changes its space by the last compactions only.
        for group in Group::all(self.all).into_iter().filter(|group| group.io == Io::PageCache) {
            for workload in Workload::ALL {
                let cells: Vec<Option<String>> = budgets
                    .iter()
                    .map(|budget| {
                        let at = group.situations(self.all).find(|at| at.budget_bytes == *budget)?;
                        self.cell(at, workload, Metric::Space)
                    })
                    .collect();
                rows.push((format!("{}, {}", group::dataset(group.dataset), workload.name()), cells));
            }
        }
        let headings = budgets.iter().copied().map(group::budget).collect();
        format!(
            "## Space\n\nMiB on disk once the process is idle, read through the page cache. Cells as for time.\n\n{}",
            table("data and workload", headings, rows.into_iter())
        )
    }

    /// The reasons for lost rows, with the number of those rows by metric.
    fn losses(&self) -> String {
        let lost: Vec<&Judged> =
            self.verdicts.iter().filter(|row| row.is_lost() && SHOWN.contains(&row.metric)).collect();
        let metrics: Vec<Metric> =
            SHOWN.into_iter().filter(|metric| lost.iter().any(|row| row.metric == *metric)).collect();
        let mut reasons: Vec<Option<&Reason>> = self.verdicts.reasons().into_values().map(Some).collect();
        reasons.push(None);
        let rows = reasons.into_iter().map(|reason| {
            let name = match reason {
                Some(reason) => format!("**▼{}** {}", reason.number, reason.short),
                None => "**▼?** Not explained yet".to_owned(),
            };
            let counts = metrics.iter().map(|metric| {
                let rows = lost.iter().filter(|row| row.metric == *metric && row.reason.as_ref() == reason);
                let count = rows.count();
                (count > 0).then(|| count.to_string())
            });
            (name, counts.collect::<Vec<_>>())
        });
        format!(
            "## Reasons for lost rows\n\nThe number of rows for each reason, by metric. The full tables have \
             each reason in full, and those for\npercentiles and bytes.\n\n{}",
            table("reason", metrics.iter().map(|metric| title(*metric).to_owned()).collect(), rows)
        )
    }

    fn reproduce(&self) -> String {
        let mut days: Vec<String> = self.all.runs.iter().map(Runs::days).collect();
        days.sort();
        days.dedup();
        format!(
            "## Reproduce\n\nMeasured {}. The full tables have all engines, percentiles, bytes, options,\n\
             and builds. They are made from the [rows of every repetition]({ROWS}) without the\nother engines:\n\n\
             ```sh\ncd lab/peers\ncargo run --release --no-default-features -- table \\\n    \
             --from ../../docs/results/{ROWS}\n```\n\n\
             `cargo xtask peers run` builds all engines and measures everything again: a night.\n",
            days.join(", ")
        )
    }
}

/// Shamba's value · the ratio of RocksDB · that of the best other engine, marked; `spread` is the
/// value of an engine.
fn cell(
    all: &Gathered,
    metric: Metric,
    spread: &dyn Fn(Engine) -> Option<Spread>,
    verdict: Verdict,
    mark: &str,
) -> Option<String> {
    let ours = spread(Engine::Shamba)?;
    let best = match verdict {
        Verdict::Alike(engine) | Verdict::Beaten(engine, _) | Verdict::Once(engine, _) => Some(engine),
        Verdict::Best => {
            let others = all.engines.iter().copied().filter(|engine| *engine != Engine::Shamba);
            let measured = others.filter_map(|engine| Some((engine, spread(engine)?.median)));
            measured.min_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(engine, _)| engine)
        }
    };
    let marked = |text: String| match mark {
        "" => text,
        mark if mark.starts_with('▼') => format!("**{text} {mark}**"),
        mark => format!("{text} {mark}"),
    };
    let mut text = value(ours.median, metric);
    if let Some(theirs) = spread(Engine::Rocksdb) {
        let ratio = ratio(theirs, ours);
        let _ = write!(text, " · {}", if best == Some(Engine::Rocksdb) { marked(ratio) } else { ratio });
    }
    if let Some(best) = best.filter(|best| *best != Engine::Rocksdb)
        && let Some(theirs) = spread(best)
    {
        // Not where it is the same as RocksDB's, unless it is marked.
        let ratio = ratio(theirs, ours);
        if !mark.is_empty() || !text.ends_with(&format!(" · {ratio}")) {
            let _ = write!(text, " · {}", marked(format!("{ratio} {best}")));
        }
    }
    Some(text)
}

/// A Markdown table; rows without any cell are left out, and the table where no row remains.
fn table(
    first: &str,
    headings: Vec<String>,
    rows: impl Iterator<Item = (String, Vec<Option<String>>)>,
) -> String {
    let mut text = String::new();
    for (name, cells) in rows {
        if cells.iter().any(Option::is_some) {
            let cells = cells.into_iter().map(|cell| cell.unwrap_or_else(|| "–".to_owned()));
            let _ = writeln!(text, "| {name} | {} |", cells.collect::<Vec<_>>().join(" | "));
        }
    }
    if text.is_empty() {
        return text;
    }
    format!("| {first} | {} |\n|---|{}\n{text}\n", headings.join(" | "), "---|".repeat(headings.len()))
}

/// The title of a metric that the page shows.
fn title(metric: Metric) -> &'static str {
    SUMMARY.iter().find(|(_, metrics)| metrics.contains(&metric)).map_or("", |(title, _)| title)
}

/// A value with its unit, in three digits.
fn value(figure: f64, metric: Metric) -> String {
    match metric {
        Metric::Rss | Metric::Space => thousands(figure),
        _ => duration(figure),
    }
}

fn duration(ns: f64) -> String {
    let (figure, unit) = match ns {
        ns if ns < 999.5 => return format!("{ns:.0} ns"),
        ns if ns < 999_500.0 => (ns / 1e3, "us"),
        ns => (ns / 1e6, "ms"),
    };
    match figure {
        figure if figure < 9.995 => format!("{figure:.2} {unit}"),
        figure if figure < 99.95 => format!("{figure:.1} {unit}"),
        figure => format!("{figure:.0} {unit}"),
    }
}

fn ratio(theirs: Spread, ours: Spread) -> String {
    if ours.median > 0.0 { ratio_text(theirs.median / ours.median) } else { "–".to_owned() }
}

fn ratio_text(ratio: f64) -> String {
    match ratio {
        ratio if ratio < 1.995 => format!("{ratio:.2}"),
        ratio if ratio < 9.95 => format!("{ratio:.1}"),
        ratio => format!("{ratio:.0}"),
    }
}

/// Text in lines of at most [`COLUMNS`], the last one ended.
fn wrapped(text: &str, first: &str, next: &str) -> String {
    let options = textwrap::Options::new(COLUMNS)
        .initial_indent(first)
        .subsequent_indent(next)
        .break_words(false)
        .word_splitter(textwrap::WordSplitter::NoHyphenation);
    format!("{}\n", textwrap::fill(text, options))
}
