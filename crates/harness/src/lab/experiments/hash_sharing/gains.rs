//! Lookups with one digest beside lookups that hash for every filter: what Figures 8 to 14 have in common.
//!
//! Both sides read one tree at the same time; the only difference is `hash_sharing`. Beside the measured gain stands that of the model
//! (Equation 8) for the time that a hash of that length takes here.

use shamba::DigestKind;
use shamba_figures::{Axis, Chart, Panel, Point, Series, Style};
use shamba_model::sharing::{LookupShape, LookupTimes};

use super::hashes::{Hash, hash_ns};
use crate::lab::lookups::{Parts, Questions, Side, Spread, compare, parts};
use crate::lab::table::{Cell, row};
use crate::lab::tree::Tree;
use crate::lab::{Device, Lab, Table};

/// What probing one filter takes in the model.
pub(super) const PROBE_NS: f64 = 20.0;
/// The rate of a filter with ten bits per key.
pub(super) const FPR: f64 = 0.0082;
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
    /// By Equation 8.
    pub model: Option<f64>,
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
        let parts = parts(lab, tree, &unshared, &of_parts)?;
        let [baseline, shared] = <[Side; 2]>::try_from(sides).map_err(|_| "two sides were asked")?;
        let tree_shape = tree.spec.shape;
        let runs = u64::from(tree_shape.inner_runs) * u64::from(tree_shape.levels - 1)
            + u64::from(tree_shape.last_runs);
        let shape = baseline.shape(tree_shape.levels, runs);
        let model = model(tree, device, questions.empty_fraction);
        Ok(Self { series: series.to_owned(), x, x_value, baseline, shared, parts, model, shape })
    }

    /// The share of time saved.
    pub fn gain(&self) -> Spread {
        self.shared.gain_over(&self.baseline)
    }

    /// The time that one filter more costs without sharing beyond what it costs with it.
    pub fn hash_ns_per_filter(&self) -> f64 {
        let filters = self.baseline.per_lookup(self.baseline.stats.filters_consulted);
        (self.baseline.ns.median - self.shared.ns.median) / (filters - 1.0).max(1e-9)
    }
}

/// The gain by Equation 8 for what hashing takes here.
fn model(tree: &Tree, device: Device, empty_fraction: f64) -> Option<f64> {
    let spec = &tree.spec;
    let shape = LookupShape {
        tiering: spec.shape.inner_runs > 1,
        size_ratio: spec.shape.size_ratio,
        levels: spec.shape.levels,
        fpr: FPR,
        empty_fraction,
    };
    let times = LookupTimes {
        hash_ns: hash_ns(hash_of(spec.digest)?, spec.key_bytes, 3).median,
        probe_ns: PROBE_NS,
        page_ns: device.read_ns().map_or(MEMORY_PAGE_NS, |ns| ns as f64),
    };
    // The machine's own disk has no time in the model.
    if matches!(device, Device::Disk | Device::PageCache) { None } else { shape.gain(&times).ok() }
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
        "speedup",
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
            base.ns.median / shared.ns.median,
            base.per_lookup(base.stats.hashes),
            shared.per_lookup(shared.stats.hashes),
            base.per_lookup(base.stats.filters_consulted),
            base.per_lookup(base.stats.false_positives),
            base.per_lookup(base.stats.data_reads),
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
    let is_named = matches!(x.scale, shamba_figures::Scale::Categories(_));
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
    format!("{:.0} %", 100.0 * share)
}
