//! Lookups with one digest beside lookups that hash for every filter: what Figures 8 to 14 have in common.
//!
//! Both sides read one tree at the same time; the only difference is `hash_sharing`. Beside the measured gain stands that of the model
//! (Equation 8) for the time that a hash of that length takes here.

use crate::chart::{Axis, Chart, Panel, Point, Series, Style};
use shamba::DigestKind;
use shamba_filter::measured;
use shamba_model::sharing::{LookupShape, LookupTimes};

use super::hashes::{Hash, beside_paper, hash_ns};
use crate::layered::Shape;
use crate::lookups::{Parts, Questions, Side, Spread, compare, parts};
use crate::table::{Cell, row};
use crate::tree::{Spec, Tree};
use crate::{Device, Lab, Table};

/// What probing one filter takes in the model.
pub(super) const PROBE_NS: f64 = 20.0;
/// The paper's rate of a filter with ten bits per key.
pub(super) const PAPER_FPR: f64 = 0.0082;
/// What reading a page from memory takes in the model.
const MEMORY_PAGE_NS: f64 = 160.0;

/// One point of a figure.
#[derive(Clone, Debug)]
pub(super) struct Gain {
    /// The curve that it belongs to.
    pub series: String,
    /// Where it lies on it: the place of the tick.
    pub x: f64,
    /// What the tick says.
    pub x_value: Cell,
    pub baseline: Side,
    pub shared: Side,
    /// What the baseline spends its time with.
    pub parts: Parts,
    /// What one hash takes by itself.
    pub hash_ns: Option<f64>,
    /// What hashing takes of a lookup with one digest, by the engine's timers.
    pub shared_hash_ns: f64,
    /// By Equation 8, with the rate of such filters.
    pub model: Option<f64>,
    /// The same with the rate that these filters had: those of few keys are better.
    pub model_as_measured: Option<f64>,
    shape: [Cell; 4],
}

impl Gain {
    /// Of this tree's lookups on `device`.
    ///
    /// # Errors
    /// What the engine says, a wrong answer.
    pub fn measure(
        lab: &mut Lab<'_>,
        tree: &Tree,
        device: Device,
        questions: &Questions,
        (series, x, x_value): (&str, f64, Cell),
    ) -> Result<Self, String> {
        lab.at(format_args!("looking up, {series}, {x_value}"));
        let unshared = tree.open(device, &[("hash-sharing", "off")])?;
        let shared = tree.open(device, &[])?;
        let sides = compare(lab, tree, &[&unshared, &shared], questions)?;
        let of_parts = Questions { lookups: (questions.lookups / 4).max(500), ..questions.clone() };
        let shared_hash_ns = parts(lab, tree, &shared, &of_parts)?.hash_ns;
        let parts = parts(lab, tree, &unshared, &of_parts)?;
        let [baseline, shared] = <[Side; 2]>::try_from(sides).map_err(|_| "two sides were asked")?;
        let tree_shape = tree.spec.shape;
        let runs = u64::from(tree_shape.inner_runs) * u64::from(tree_shape.levels - 1)
            + u64::from(tree_shape.last_runs);
        let shape = baseline.shape(tree_shape.levels, runs);
        let hash_ns = hash_of(tree.spec.digest).map(|hash| hash_ns(hash, tree.spec.key_bytes, 3).median);
        let nominal = measured::fpr(tree.spec.bits.layout, tree.spec.bits.per_key);
        let [model, model_as_measured] = [nominal, false_positives(&baseline)].map(|fpr| {
            hash_ns.and_then(|hash_ns| model(&tree.spec, device, (fpr, questions.empty_fraction), hash_ns))
        });
        let series = series.to_owned();
        Ok(Self {
            series,
            x,
            x_value,
            baseline,
            shared,
            parts,
            hash_ns,
            shared_hash_ns,
            model,
            model_as_measured,
            shape,
        })
    }

    /// The share of time saved.
    pub fn gain(&self) -> Spread {
        self.shared.gain_over(&self.baseline)
    }

    /// Hashes of a lookup without sharing.
    pub fn hashes(&self) -> f64 {
        self.baseline.per_lookup(self.baseline.stats.hashes)
    }

    /// Filters that a lookup asks.
    pub fn filters(&self) -> f64 {
        self.baseline.per_lookup(self.baseline.stats.filters_consulted)
    }

    /// The filters' answers that were false positives, of all.
    pub fn false_positives(&self) -> f64 {
        false_positives(&self.baseline)
    }

    /// What the baseline's time is made of at this point, and what the paper's hash takes here: why a gain is as large as it is.
    pub fn because(&self) -> String {
        let hash_ns = self.hash_ns.unwrap_or_default();
        format!(
            "A lookup without sharing takes {:.0} ns there, of which {:.1} hashes of {hash_ns:.0} ns are {}, false positives {:.2} % of its filters' \
             answers. {}",
            self.baseline.ns.median,
            self.hashes(),
            percent(self.hashes() * hash_ns / self.baseline.ns.median.max(1.0)),
            100.0 * self.false_positives(),
            beside_paper()
        )
    }
}

/// The gain by Equation 8 for what hashing takes here; none for the machine's own disk, which has no time in the model, and for levels of other than
/// one or T runs, which Equations 4 and 6 do not know.
fn model(spec: &Spec, device: Device, (fpr, empty_fraction): (f64, f64), hash_ns: f64) -> Option<f64> {
    if matches!(device, Device::Disk | Device::PageCache) {
        return None;
    }
    let shape = model_shape(spec.shape, (fpr, empty_fraction))?;
    let page_ns = device.read_ns().map_or(MEMORY_PAGE_NS, |ns| ns as f64);
    shape.gain(&LookupTimes { hash_ns, probe_ns: PROBE_NS, page_ns }).ok()
}

fn false_positives(side: &Side) -> f64 {
    side.stats.false_positives as f64 / side.stats.filters_consulted.max(1) as f64
}

/// A tree as Equations 4 and 6 have it.
fn model_shape(shape: Shape, (fpr, empty_fraction): (f64, f64)) -> Option<LookupShape> {
    let Shape { size_ratio, levels, inner_runs, last_runs } = shape;
    let tiering = match (f64::from(inner_runs), f64::from(last_runs)) {
        (1.0, 1.0) => false,
        (inner, last) if inner == size_ratio && last == size_ratio => true,
        _ => return None,
    };
    Some(LookupShape { tiering, size_ratio, levels, fpr, empty_fraction })
}

/// The paper's name of a digest's function.
pub(super) fn hash_of(kind: DigestKind) -> Option<Hash> {
    match kind {
        DigestKind::Murmur64A => Some(Hash::Murmur64),
        DigestKind::Xxh3 => Some(Hash::Xxh3),
        _ => None,
    }
}

/// The digests that gains are measured with: the paper's and ours.
pub(super) const DIGESTS: [(DigestKind, &str); 2] =
    [(DigestKind::Murmur64A, "MM64 (the paper's)"), (DigestKind::Xxh3, "XXH3 (ours)")];

/// All points as a table; `x_name` names what is varied, with its unit.
pub(super) fn table(x_name: &'static str, gains: &[Gain]) -> Table {
    let mut table = Table::new(&[
        "series",
        x_name,
        "baseline_ns",
        "baseline_least_ns",
        "baseline_most_ns",
        "shared_ns",
        "shared_least_ns",
        "shared_most_ns",
        "gain_share",
        "gain_least_share",
        "gain_most_share",
        "gain_model_share",
        "gain_model_as_measured_share",
        "speedup",
        "lookups",
        "hash_ns",
        "hash_ns_per_get_baseline",
        "hash_ns_per_get_shared",
        "hashes_per_get_baseline",
        "hashes_per_get_shared",
        "filters_per_get",
        "false_positives_per_get",
        "data_reads_per_get",
        "hash_part",
        "probe_part",
        "index_part",
        "data_part",
        "other_part",
        "levels",
        "runs",
        "comparable",
        "emulated",
    ]);
    for point in gains {
        let (base, shared, gain) = (&point.baseline, &point.shared, point.gain());
        let [levels, runs, comparable, emulated] = point.shape.clone();
        table.row(row![
            point.series.clone(),
            point.x_value.clone(),
            base.ns.median,
            base.ns.least,
            base.ns.most,
            shared.ns.median,
            shared.ns.least,
            shared.ns.most,
            gain.median,
            gain.least,
            gain.most,
            point.model,
            point.model_as_measured,
            base.ns.median / shared.ns.median,
            base.stats.lookups,
            point.hash_ns,
            point.parts.hash_ns,
            point.shared_hash_ns,
            base.per_lookup(base.stats.hashes),
            shared.per_lookup(shared.stats.hashes),
            base.per_lookup(base.stats.filters_consulted),
            base.per_lookup(base.stats.false_positives),
            base.per_lookup(base.stats.reads.data.count),
            point.parts.hash,
            point.parts.probe,
            point.parts.index,
            point.parts.data,
            point.parts.other,
            levels,
            runs,
            comparable,
            emulated,
        ]);
    }
    table
}

/// The gains as curves over `x`, in percent, the model's dashed.
pub(super) fn chart(title: &str, claim: &str, note: &str, x: Axis, gains: &[Gain]) -> Chart {
    let mut names: Vec<&str> = Vec::new();
    for gain in gains {
        if !names.contains(&gain.series.as_str()) {
            names.push(&gain.series);
        }
    }
    let is_named = matches!(x.scale, crate::chart::Scale::Categories(_));
    let measured = names.iter().map(|name| {
        let points = gains.iter().filter(|gain| gain.series == *name).map(|gain| {
            let Spread { median, least, most } = gain.gain();
            Point::between(gain.x, 100.0 * median, 100.0 * least, 100.0 * most)
        });
        Series::new(*name, if is_named { Style::Bars } else { Style::Line }, points.collect())
    });
    let models = names.iter().filter_map(|name| {
        let points: Vec<Point> = gains
            .iter()
            .filter(|gain| gain.series == *name)
            .filter_map(|gain| gain.model.map(|model| Point::new(gain.x, 100.0 * model)))
            .collect();
        let style = if is_named { Style::Markers } else { Style::Dashes };
        (!points.is_empty()).then(|| Series::new(format!("{name}, model"), style, points))
    });
    let panel = Panel {
        title: String::new(),
        x,
        y: Axis::from_zero("time saved by one digest [%]"),
        series: measured.chain(models).collect(),
    };
    Chart { title: title.to_owned(), claim: claim.to_owned(), note: note.to_owned(), panels: vec![panel] }
}

/// `12 %`.
pub(super) fn percent(share: f64) -> String {
    // Without the sign of a zero.
    format!("{:.0} %", (100.0 * share).round() + 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_knows_one_run_a_level_or_as_many_as_the_ratio() {
        let mut spec = Spec::leveled(1_000, (16, 64), 4.0, 3);
        for (runs, is_tiering) in [(1, Some(false)), (2, None), (4, Some(true)), (7, None)] {
            (spec.shape.inner_runs, spec.shape.last_runs) = (runs, runs);
            let shape = model_shape(spec.shape, (0.01, 1.0));
            assert_eq!(shape.map(|shape| shape.tiering), is_tiering, "{runs} runs");
            let gain = |device, fpr| model(&spec, device, (fpr, 1.0), 200.0);
            assert_eq!(gain(Device::Pcie, 0.01).is_some(), is_tiering.is_some());
            // More false positives leave less to save; the machine's own disk has no time.
            assert!(is_tiering.is_none() || gain(Device::Pcie, 0.01) < gain(Device::Pcie, 0.001));
            assert_eq!(gain(Device::Disk, 0.01), None);
        }
    }
}
