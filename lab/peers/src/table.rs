//! The tables of `results.md`: times beside Shamba's at a glance, then each metric of each workload, all engines side by side, as
//! ratios to RocksDB.
//!
//! A ratio says how many times better than RocksDB's base an engine is; Shamba's is marked where some engine beats it,
//! with the number of the reason ([`crate::explain`]).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::explain::{Explanations, Loss};
use crate::gathered::{Gathered, Metric, Spread};
use crate::peer::{Compression, Engine, Stated};
use crate::result::Situation;
use crate::workload::Workload;

/// What two builds of the same code differ by: a loss below it is none.
const NOISE: f64 = 1.03;

/// The whole page, with figures of these names, and how many losses have no explanation.
pub fn render(all: &Gathered, figures: &[String]) -> (String, usize) {
    let mut page = String::from("# Shamba beside other engines\n\n");
    head(all, &mut page);
    page += NOT_EQUAL;
    page += &summary(all);
    for figure in figures {
        let _ = writeln!(page, "![{0}]({0})\n", figure);
    }
    let mut losses = Losses { explanations: Explanations::built_in(), used: BTreeMap::new(), unexplained: 0 };
    let tables: String = Metric::ALL.into_iter().map(|metric| table(all, metric, &mut losses)).collect();
    page += &losses.legend();
    page += &tables;
    page += &options(all);
    (page, losses.unexplained)
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
        "\nEach cell: {}, and how many times better that is than RocksDB's base. Each answer was checked; {}\n",
        match all.repeats(None) {
            (_, 0 | 1) => "one repetition: no spread".to_owned(),
            (1, most) => format!("the median of up to {most} repetitions, (least–most); of one, the figure"),
            _ => "the median of its repetitions, (least–most)".to_owned(),
        },
        match all.check_answers() {
            Ok(()) => "all engines answered all requests alike.".to_owned(),
            Err(difference) => format!("**but {difference}.**"),
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
    if all.engines.iter().any(|engine| engine.ignores_budget()) {
        page.push_str("- LMDB has no budget: the same figures stand beside every budget.\n");
    }
    page.push('\n');
}

/// In words.
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

/// Reasons that were needed.
struct Losses {
    explanations: Explanations,
    used: BTreeMap<usize, String>,
    unexplained: usize,
}

impl Losses {
    /// The mark of Shamba's cell.
    fn mark(&mut self, all: &Gathered, at: Situation, workload: Workload, metric: Metric) -> String {
        let Some(ours) = all.spread(at, workload, Engine::Shamba, metric) else { return String::new() };
        if metric == Metric::DeviceRead && ours.median < DEVICE_NOISE_BYTES {
            return String::new();
        }
        let is_compared = |engine: &Engine| {
            *engine != Engine::Shamba && !(metric == Metric::CallRead && engine.maps_files())
        };
        let others = all.engines.iter().copied().filter(is_compared);
        let figures = others.filter_map(|engine| Some((engine, all.spread(at, workload, engine, metric)?)));
        let (winner, times) = match verdict(ours, figures) {
            Verdict::NotBeaten => return String::new(),
            Verdict::Alike(winner) => return format!(" ≈ {winner}"),
            Verdict::Once(winner, times) if times.is_finite() => return format!(" ▽ {times:.2} × {winner}"),
            Verdict::Once(winner, _) => return format!(" ▽ {winner}"),
            Verdict::Beaten(winner, times) => (winner, times),
        };
        let loss = Loss { at, workload, metric, winner };
        let reason = match self.explanations.of(&loss) {
            Some((number, text)) => {
                self.used.insert(number, text.to_owned());
                number.to_string()
            }
            None => {
                self.unexplained += 1;
                "?".to_owned()
            }
        };
        if times.is_finite() {
            format!(" **▼{reason}** {times:.2} × {winner}")
        } else {
            format!(" **▼{reason}** {winner}")
        }
    }

    fn legend(&self) -> String {
        let mut text = String::from(
            "Where another engine beats Shamba, its cell says which, how many times, and why (▼ and the reason's number); `≈` where \
             the spreads overlap or the loss is below 3 %. Of one repetition nobody knows the spread: ▽ says who was better then, \
             and by how much. Where there is a `–` the engine was not run, or did too little for this percentile.\n\n",
        );
        for (number, reason) in &self.used {
            let _ = writeln!(text, "- ▼{number}: {reason}");
        }
        if self.unexplained > 0 {
            let _ = writeln!(text, "- ▼?: not explained yet: {}.", self.unexplained);
        }
        text.push('\n');
        text
    }
}

/// Fewer bytes of the device an operation than this are chance.
const DEVICE_NOISE_BYTES: f64 = 1024.0;

/// What is to be said of a figure of ours beside others'.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Verdict {
    NotBeaten,
    /// Somebody's median is better, nobody's clearly.
    Alike(Engine),
    /// The best of those that are clearly better, and how many times.
    Beaten(Engine, f64),
    /// The best of those that are better by more than noise, where there is only one repetition of something.
    Once(Engine, f64),
}

/// One engine with a wide spread must not hide another that is clearly better, so all are asked, not the best alone.
fn verdict(ours: Spread, others: impl Iterator<Item = (Engine, Spread)>) -> Verdict {
    let mut better: Vec<(Engine, Spread)> =
        others.filter(|(_, theirs)| theirs.median < ours.median).collect();
    better.sort_by(|(_, a), (_, b)| a.median.total_cmp(&b.median));
    let times = |theirs: Spread| ours.median / theirs.median;
    let is_once = |theirs: Spread| ours.count == 1 || theirs.count == 1;
    let is_clear = |theirs: Spread| !ours.overlaps(theirs) && times(theirs) >= NOISE;
    match better.iter().find(|(_, theirs)| is_clear(*theirs)) {
        Some((engine, theirs)) if is_once(*theirs) => Verdict::Once(*engine, times(*theirs)),
        Some((engine, theirs)) => Verdict::Beaten(*engine, times(*theirs)),
        None => better.first().map_or(Verdict::NotBeaten, |(engine, _)| Verdict::Alike(*engine)),
    }
}

/// What the tables cannot say by themselves; `lab/peers/README.md` has the rest.
const NOT_EQUAL: &str = "\
Not equal, whatever the tables say:

- Time is that inside calls: what a put leaves to the background is in the table of time until rest, in CPU and in bytes.
- Through the page cache a block that an engine's own cache lacks is a system call; the device is read only for what the system's \
cache lacks, too, which a machine with more memory than data never does.
- Shamba is read with level 0 drained, as it leaves it at rest; RocksDB keeps up to three files there. `rocksdb-compacted` is one \
run until the first puts; its merge is in its fill's time until rest.
- LMDB's and redb's fills commit a thousand puts at a time: the time of one is its share.
- LevelDB maps its first 1,000 open tables: the budget binds nothing of them. It verifies no checksums (its default).
- fjall's cache goes without two write buffers at all times; others lend them to the cache. It reads an index whole: with keys of \
512 B its indexes are larger than its cache, and a lookup reads up to a megabyte.
- LMDB has no budget. Without `NO_SYNC` a commit that syncs waits twice; here it waits once, for `mdb_env_sync`.
- RocksDB's cache is HyperClockCache, which it recommends.
- Where files are read past the page cache, each engine's options say of how many the system really allows it.

";

/// Times of all engines beside Shamba's.
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
            let until = if metric == Metric::Settled { " until rest" } else { "" };
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
        "## At a glance: time of an operation, as a multiple of Shamba's (above 1, Shamba is faster)\n\n\
         | situation | workload | Shamba, ns |{names}\n|---|---|---:|{}\n{rows}\n",
        "---:|".repeat(others.len())
    )
}

fn table(all: &Gathered, metric: Metric, losses: &mut Losses) -> String {
    let mut rows = String::new();
    for at in &all.situations {
        for workload in Workload::ALL {
            let cells: Vec<Option<Spread>> =
                all.engines.iter().map(|engine| all.spread(*at, workload, *engine, metric)).collect();
            // Those that ignore the budget stand beside every one, also where nobody was measured.
            let is_of_place = |engine: &Engine| !engine.ignores_budget();
            let told = all.engines.iter().zip(&cells).filter(|(engine, _)| is_of_place(engine));
            if told.into_iter().all(|(_, cell)| cell.is_none_or(|spread| spread.most == 0.0)) {
                continue;
            }
            let _ = write!(rows, "| {} | {} |", situation(*at), workload.name());
            let base = all.spread(*at, workload, Engine::Rocksdb, metric);
            for (engine, cell) in all.engines.iter().zip(&cells) {
                let mark = if *engine == Engine::Shamba {
                    losses.mark(all, *at, workload, metric)
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
    let range = if spread.least == spread.most {
        String::new()
    } else {
        format!(" ({}–{})", number(spread.least), number(spread.most))
    };
    // Of what is shown as nothing there is no ratio.
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

/// What engines were opened with: all of it once, then what differs in other situations.
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
    fn numbers_are_grouped_and_ratios_say_how_many_times_better() {
        assert_eq!(thousands(1_234_567.4), "1,234,567");
        assert_eq!(thousands(999.6), "1,000");
        let spread = |median| Spread { median, least: median, most: median, count: 1 };
        assert_eq!(shown(spread(500.0), Some(spread(1000.0)), Metric::Time), "500 ×2.00");
        assert_eq!(shown(spread(2.5), None, Metric::Written), "2.50");
        assert_eq!(shown(spread(0.02), Some(spread(1.0)), Metric::DeviceRead), "0");
        let wide = Spread { median: 1.0, least: 0.5, most: 2.0, count: 3 };
        assert_eq!(shown(wide, None, Metric::Written), "1.00 (0.50–2.00)");
    }

    #[test]
    fn a_wide_spread_hides_nobody_who_is_clearly_better() {
        let of = |median, least, most| Spread { median, least, most, count: 3 };
        let ours = of(100.0, 95.0, 105.0);
        let wide = (Engine::Fjall, of(50.0, 10.0, 200.0));
        let clear = (Engine::Leveldb, of(80.0, 79.0, 81.0));
        let said = |others: &[(Engine, Spread)]| verdict(ours, others.iter().copied());
        assert_eq!(said(&[wide, clear]), Verdict::Beaten(Engine::Leveldb, 1.25));
        assert_eq!(said(&[wide]), Verdict::Alike(Engine::Fjall));
        assert_eq!(said(&[(Engine::Redb, of(98.0, 97.5, 98.5))]), Verdict::Alike(Engine::Redb));
        assert_eq!(said(&[(Engine::Redb, of(120.0, 110.0, 130.0))]), Verdict::NotBeaten);
        let once = Spread { count: 1, ..clear.1 };
        assert_eq!(said(&[(Engine::Leveldb, once)]), Verdict::Once(Engine::Leveldb, 1.25));
    }
}
