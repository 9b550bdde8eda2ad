//! How many times the memory one curve of reads over memory needs that another does for as few
//! reads.
//!
//! By interpolation on the curves' falling envelopes; the geometric mean over the points of the
//! baseline. Outside of what was measured nothing is guessed, and no point is left out: a curve
//! that reads less even with its least memory counts as if it needed all of that, and one that
//! never reads as little as if its most were enough. The one bounds the ratio from below, the other
//! from above; how many points are bounds is told.

/// Memory and the reads of a lookup under it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    pub memory_bytes: f64,
    pub reads: f64,
}

/// The curve as it falls: more memory never reads more.
fn envelope(points: &[Point]) -> Vec<Point> {
    let mut least = f64::INFINITY;
    let falling = |point: &Point| {
        least = least.min(point.reads);
        Point { reads: least, ..*point }
    };
    points.iter().map(falling).collect()
}

/// The memory that a curve needs for as few reads.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Needed {
    Bytes(f64),
    /// It reads less even with its least.
    AtMost(f64),
    /// It reads more even with its most.
    AtLeast(f64),
}

impl Needed {
    fn bytes(self) -> f64 {
        match self {
            Self::Bytes(bytes) | Self::AtMost(bytes) | Self::AtLeast(bytes) => bytes,
        }
    }
}

/// The least memory with which the curve reads no more than `reads`; `None` if it has no points.
fn memory_at(curve: &[Point], reads: f64) -> Option<Needed> {
    let (first, last) = (curve.first()?, curve.last()?);
    if first.reads <= reads {
        let is_met = first.reads == reads;
        return Some(if is_met { Needed::Bytes } else { Needed::AtMost }(first.memory_bytes));
    }
    let crossing = curve.windows(2).find_map(|pair| match pair {
        [more, less] if less.reads <= reads && reads < more.reads => {
            let share = (more.reads - reads) / (more.reads - less.reads);
            Some(Needed::Bytes(more.memory_bytes + share * (less.memory_bytes - more.memory_bytes)))
        }
        _ => None,
    });
    Some(crossing.unwrap_or(Needed::AtLeast(last.memory_bytes)))
}

/// What a comparison of curves finds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ratio {
    /// How many times the other's memory the baseline needs for as few reads, on average over the
    /// points.
    pub mean: f64,
    /// At the point where that is most, and the baseline's memory there.
    pub most: f64,
    pub most_at_bytes: f64,
    /// Points of the baseline.
    pub points: usize,
    /// Those at which the ratio is more than was counted, for the other reads less even with its
    /// least memory.
    pub more_at: usize,
    /// Those at which it is less than was counted, for the other never reads as little.
    pub less_at: usize,
}

/// How many times the other curve's memory the baseline needs for as few reads; `None` if one of
/// them has no points.
pub(crate) fn memory_ratio(baseline: &[Point], other: &[Point]) -> Option<Ratio> {
    let (baseline, other) = (envelope(baseline), envelope(other));
    let mut found =
        Ratio { mean: 0.0, most: 0.0, most_at_bytes: 0.0, points: baseline.len(), more_at: 0, less_at: 0 };
    for point in &baseline {
        let least = memory_at(&baseline, point.reads)?.bytes();
        let needed = memory_at(&other, point.reads)?;
        let ratio = least / needed.bytes();
        found.mean += ratio.ln() / baseline.len() as f64;
        found.more_at += usize::from(matches!(needed, Needed::AtMost(_)));
        found.less_at += usize::from(matches!(needed, Needed::AtLeast(_)));
        if ratio > found.most {
            (found.most, found.most_at_bytes) = (ratio, least);
        }
    }
    found.mean = found.mean.exp();
    (found.points > 0).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(points: &[(f64, f64)]) -> Vec<Point> {
        points
            .iter()
            .map(|(memory_bytes, reads)| Point { memory_bytes: *memory_bytes, reads: *reads })
            .collect()
    }

    fn ratio(baseline: &[Point], other: &[Point]) -> Ratio {
        memory_ratio(baseline, other).expect("points")
    }

    #[test]
    fn half_the_memory_for_as_few_reads_is_a_ratio_of_two() {
        let baseline = curve(&[(4.0, 1.0), (8.0, 0.5), (16.0, 0.25)]);
        let half = curve(&[(2.0, 1.0), (4.0, 0.5), (8.0, 0.25)]);
        let Ratio { mean, most, points, more_at, less_at, .. } = ratio(&baseline, &half);
        assert!((mean - 2.0).abs() < 1e-9 && (most - 2.0).abs() < 1e-9, "{mean} {most}");
        assert_eq!((points, more_at, less_at), (3, 0, 0));
        assert!((ratio(&baseline, &baseline).mean - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_bump_counts_for_nothing() {
        let baseline = curve(&[(4.0, 1.0), (6.0, 0.75), (8.0, 0.5)]);
        let bumpy = curve(&[(4.0, 1.0), (6.0, 1.5), (8.0, 0.5)]);
        let Ratio { mean, less_at, .. } = ratio(&baseline, &bumpy);
        // Between 4 and 8 it falls from 6 on: at 7 it reads what the baseline reads at 6.
        assert!((mean - (6.0f64 / 7.0).cbrt()).abs() < 1e-9 && less_at == 0, "{mean}");
    }

    #[test]
    fn who_never_reads_as_little_needs_more_than_was_measured_and_nothing_is_left_out() {
        let baseline = curve(&[(4.0, 1.0), (8.0, 0.5), (16.0, 0.25)]);
        let worse = curve(&[(4.0, 1.0), (8.0, 0.8), (16.0, 0.5)]);
        let found = ratio(&baseline, &worse);
        // As much, half as much, and at most as much.
        assert!((found.mean - 0.5f64.cbrt()).abs() < 1e-9, "{}", found.mean);
        assert_eq!((found.points, found.more_at, found.less_at), (3, 0, 1));
        let always_worse = curve(&[(4.0, 3.0), (16.0, 2.0)]);
        let found = ratio(&baseline, &always_worse);
        assert!(found.mean < 0.51 && found.less_at == 3, "{}", found.mean);
    }

    #[test]
    fn who_always_reads_less_needs_less_than_was_measured() {
        let baseline = curve(&[(4.0, 1.0), (8.0, 0.5)]);
        let found = ratio(&baseline, &curve(&[(4.0, 0.25), (8.0, 0.1)]));
        assert!((found.mean - 2f64.sqrt()).abs() < 1e-9, "{}", found.mean);
        assert_eq!((found.points, found.more_at, found.less_at), (2, 2, 0));
    }

    #[test]
    fn curves_without_points_are_not_compared() {
        let baseline = curve(&[(4.0, 1.0)]);
        assert_eq!((memory_ratio(&baseline, &[]), memory_ratio(&[], &baseline)), (None, None));
    }
}
