//! What hashing costs as a tree has more levels, or more runs a level: what [`super::levels`] and [`super::runs`] have in common.
//!
//! Hashes are counted by the engine, and timed as the difference between lookups that hash for every filter and lookups that hash once:
//! nothing else differs. Sixteen bits per key make few false positives: what is searched in vain should not hide what is hashed.

use shamba::DigestKind;
use shamba_figures::{Axis, Chart, Panel, Point, Series, Style};

use super::gains::{Gain, table};
use crate::lab::lookups::Questions;
use crate::lab::table::Cell;
use crate::lab::tree::{Spec, Tree};
use crate::lab::{Device, Finding, Lab, Parameter, Table, Verdict};
use crate::layered::Shape;

const KEY_BYTES: usize = 1_024;
const ENTRY_BYTES: usize = 1_088;
const BITS_PER_KEY: f64 = 16.0;

/// All parameters, of which `own` are those of one of the figures.
pub(super) fn parameters(own: impl IntoIterator<Item = Parameter>) -> Vec<Parameter> {
    let fixed = [
        Parameter::fixed("device", Device::Memory.name()),
        Parameter::fixed("key bytes", KEY_BYTES),
        Parameter::fixed("entry bytes", ENTRY_BYTES),
        Parameter::fixed("digest", "MM64 (the paper's)"),
        Parameter::fixed("bits per key", BITS_PER_KEY),
        Parameter::fixed("empty fraction", 1),
    ];
    own.into_iter().chain(fixed).collect()
}

/// Measures a tree of so many entries in this shape, for the place `x`.
///
/// # Errors
/// What the engine says.
pub(super) fn measure(
    lab: &mut Lab<'_>,
    (name, x): (&'static str, u32),
    (entries, shape): (u64, Shape),
    lookups: u64,
) -> Result<Gain, String> {
    let sizes = (KEY_BYTES, ENTRY_BYTES);
    let mut spec = Spec { shape, ..Spec::leveled(entries, sizes, shape.size_ratio, shape.levels) };
    spec.digest = DigestKind::Murmur64A;
    spec.bits.per_key = BITS_PER_KEY;
    let tree = Tree::lay(lab, name, spec, Device::Memory)?;
    let questions = Questions::uniform(1.0, lookups);
    let gain = Gain::measure(lab, &tree, Device::Memory, &questions, (name, f64::from(x), Cell::from(x)))?;
    tree.discard(lab)?;
    Ok(gain)
}

/// The finding over points that were measured with more and more filters a lookup.
pub(super) fn finding(
    gains: &[Gain],
    x_name: &'static str,
    x: Axis,
    (what, title, claim, note): (&str, &str, &str, &str),
) -> Finding {
    let points = |value: &dyn Fn(&Gain) -> f64| -> Vec<Point> {
        gains.iter().map(|gain| Point::new(gain.x, value(gain))).collect()
    };
    let spread = |side: &dyn Fn(&Gain) -> crate::lab::lookups::Spread| -> Vec<Point> {
        let point = |gain: &Gain| {
            let spread = side(gain);
            Point::between(gain.x, spread.median, spread.least, spread.most)
        };
        gains.iter().map(point).collect()
    };
    let hashes_shared: Vec<f64> =
        gains.iter().map(|gain| gain.shared.per_lookup(gain.shared.stats.hashes)).collect();
    let last = gains.last();
    let baseline = last.map_or(0.0, |gain| gain.baseline.per_lookup(gain.baseline.stats.hashes));
    let each = last.map_or(0.0, Gain::hash_ns_per_filter);
    let table: Table = table(x_name, gains);
    let verdict = if is_one(&hashes_shared) { Verdict::Confirmed } else { Verdict::NotHere };
    Finding {
        ours: format!(
            "With one digest {} hash a lookup {what}; without, up to {baseline:.1}, each of which takes some {each:.0} ns.",
            if is_one(&hashes_shared) {
                "always exactly one".to_owned()
            } else {
                format!("up to {:.2}", hashes_shared.iter().fold(0.0, |most: f64, one| most.max(*one)))
            }
        ),
        verdict,
        why: match verdict {
            Verdict::Confirmed => String::new(),
            _ => "Some lookups hash more than once: see the counts in the table.".to_owned(),
        },
        table,
        chart: Chart {
            title: title.to_owned(),
            claim: claim.to_owned(),
            note: note.to_owned(),
            panels: vec![
                Panel {
                    title: "counted".to_owned(),
                    x: x.clone(),
                    y: Axis::from_zero("hashes of a lookup"),
                    series: vec![
                        Series::new(
                            "a hash for every filter",
                            Style::Line,
                            points(&|gain| gain.baseline.per_lookup(gain.baseline.stats.hashes)),
                        ),
                        Series::new(
                            "one digest",
                            Style::Line,
                            points(&|gain| gain.shared.per_lookup(gain.shared.stats.hashes)),
                        ),
                    ],
                },
                Panel {
                    title: "timed".to_owned(),
                    x,
                    y: Axis::from_zero("time of a lookup [ns]"),
                    series: vec![
                        Series::new("a hash for every filter", Style::Line, spread(&|gain| gain.baseline.ns)),
                        Series::new("one digest", Style::Line, spread(&|gain| gain.shared.ns)),
                    ],
                },
            ],
        },
    }
}

fn is_one(hashes: &[f64]) -> bool {
    !hashes.is_empty() && hashes.iter().all(|hashes| (hashes - 1.0).abs() < 1e-9)
}

#[cfg(test)]
mod tests {
    use super::is_one;

    #[test]
    fn one_is_one_everywhere() {
        assert!(is_one(&[1.0, 1.0]));
        assert!(!is_one(&[1.0, 1.01]) && !is_one(&[]));
    }
}
