//! The tables of `results.md`: each metric of each workload, all engines side by side, as ratios to RocksDB.
//!
//! A ratio says how many times better than RocksDB's base an engine is; Shamba's is marked where some engine beats it,
//! with the number of the reason ([`crate::explain`]).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::explain::{Explanations, Loss};
use crate::gathered::{Gathered, Metric, Spread};
use crate::peer::{Engine, Stated};
use crate::result::Situation;
use crate::workload::Workload;

/// What two builds of the same code differ by: a loss below it is none.
const NOISE: f64 = 1.03;

/// The whole page, and how many losses in time have no explanation.
pub fn render(all: &Gathered) -> (String, usize) {
    let mut page = String::from("# Shamba beside other engines\n\n");
    head(all, &mut page);
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
    let _ = writeln!(
        page,
        "\nEach cell: the median of {} repetitions, (least–most), and how many times better that is than RocksDB's base. \
         Each answer was checked; {}\n",
        match all.repeats() {
            (fewest, most) if fewest == most => fewest.to_string(),
            (fewest, most) => format!("{fewest} to {most}"),
        },
        match all.check_answers() {
            Ok(()) => "all engines answered all requests alike.".to_owned(),
            Err(difference) => format!("**but {difference}.**"),
        }
    );
    for (place, reason) in &all.absences {
        let _ = writeln!(page, "- No rows of {place}: {reason}.");
    }
    for (at, engine, message) in &all.failures {
        let _ = writeln!(page, "- **{engine} failed** ({}): {message}", situation(*at));
    }
    if all.engines.iter().any(|engine| engine.ignores_budget()) {
        page.push_str("- LMDB has no budget: the same figures stand beside every budget.\n");
    }
    page.push('\n');
}

fn situation(at: Situation) -> String {
    let set = at.dataset;
    let items = thousands(set.items as f64);
    format!(
        "{items} × ({} + {} B), {} MiB, {}",
        set.key_bytes,
        set.value_bytes,
        at.budget_bytes >> 20,
        at.io.name()
    )
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
        let best = all
            .engines
            .iter()
            .filter(|engine| **engine != Engine::Shamba)
            .filter_map(|engine| Some((*engine, all.spread(at, workload, *engine, metric)?)))
            .min_by(|(_, a), (_, b)| a.median.total_cmp(&b.median));
        let Some((winner, theirs)) = best.filter(|(_, theirs)| theirs.median < ours.median) else {
            return String::new();
        };
        let loss = Loss { at, workload, metric, winner };
        let times = ours.median / theirs.median;
        if ours.overlaps(theirs) || times < NOISE {
            return format!(" ≈ {winner}");
        }
        let reason = match self.explanations.of(&loss) {
            Some((number, text)) => {
                self.used.insert(number, text.to_owned());
                number.to_string()
            }
            None => {
                self.unexplained += usize::from(metric == Metric::Time);
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
            "Where another engine beats Shamba, its cell says which, how many times, and why (▼ and the reason's number); `≈` where the \
             spreads overlap or the loss is below 3 %.\n\n",
        );
        for (number, reason) in &self.used {
            let _ = writeln!(text, "- ▼{number}: {reason}");
        }
        if self.unexplained > 0 {
            let _ = writeln!(text, "- ▼?: not explained yet; {} of them in time.", self.unexplained);
        }
        text.push('\n');
        text
    }
}

fn table(all: &Gathered, metric: Metric, losses: &mut Losses) -> String {
    let mut rows = String::new();
    for at in &all.situations {
        for workload in Workload::ALL {
            let cells: Vec<Option<Spread>> =
                all.engines.iter().map(|engine| all.spread(*at, workload, *engine, metric)).collect();
            if cells.iter().all(|cell| cell.is_none_or(|spread| spread.most == 0.0)) {
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
    let ratio = base
        .filter(|base| base.median > 0.0 && spread.median > 0.0)
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
        let spread = |median| Spread { median, least: median, most: median };
        assert_eq!(shown(spread(500.0), Some(spread(1000.0)), Metric::Time), "500 ×2.00");
        assert_eq!(shown(spread(2.5), None, Metric::Written), "2.50");
        let wide = Spread { median: 1.0, least: 0.5, most: 2.0 };
        assert_eq!(shown(wide, None, Metric::Written), "1.00 (0.50–2.00)");
    }
}
