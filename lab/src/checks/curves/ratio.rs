//! Ratio of the memory that two curves of reads over memory need for the same number of reads.
//!
//! By interpolation on the curves' falling envelopes, as the geometric mean over the points of the
//! baseline. Nothing is extrapolated and no point is omitted: a curve that reads less even with its
//! minimum memory counts as if it needed all of that, and one that never reads as little as if its
//! maximum were enough. The first bounds the ratio from below, the second from above; the number of
//! such points is reported.

/// Memory, and reads per lookup with it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    pub memory_bytes: f64,
    pub reads: f64,
}

/// Falling envelope of the curve: more memory never reads more.
fn envelope(points: &[Point]) -> Vec<Point> {
    let mut least = f64::INFINITY;
    let falling = |point: &Point| {
        least = least.min(point.reads);
        Point { reads: least, ..*point }
    };
    points.iter().map(falling).collect()
}

/// Memory that a curve needs for the same number of reads.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Needed {
    Bytes(f64),
    /// It reads less even with its minimum memory.
    AtMost(f64),
    /// It reads more even with its maximum memory.
    AtLeast(f64),
}

impl Needed {
    fn bytes(self) -> f64 {
        match self {
            Self::Bytes(bytes) | Self::AtMost(bytes) | Self::AtLeast(bytes) => bytes,
        }
    }
}

/// Minimum memory with which the curve reads at most `reads`; `None` if it has no points.
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

/// Result of a comparison of curves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ratio {
    /// Baseline's memory relative to the other's for the same number of reads, as the mean over the
    /// points.
    pub mean: f64,
    /// Maximum over the points, and the baseline's memory there.
    pub most: f64,
    pub most_at_bytes: f64,
    /// Points of the baseline.
    pub points: usize,
    /// Points at which the ratio is higher than counted, because the other reads less even with its
    /// minimum memory.
    pub more_at: usize,
    /// Points at which it is lower than counted, because the other never reads as little.
    pub less_at: usize,
}

/// Ratio of the baseline's memory to the other curve's for the same number of reads; `None` if one
/// of them has no points.
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
        // Between 4 and 8 it decreases from 6 on: at 7 it reads as much as the baseline at 6.
        assert!((mean - (6.0f64 / 7.0).cbrt()).abs() < 1e-9 && less_at == 0, "{mean}");
    }

    #[test]
    fn who_never_reads_as_little_needs_more_than_was_measured_and_nothing_is_left_out() {
        let baseline = curve(&[(4.0, 1.0), (8.0, 0.5), (16.0, 0.25)]);
        let worse = curve(&[(4.0, 1.0), (8.0, 0.8), (16.0, 0.5)]);
        let found = ratio(&baseline, &worse);
        // The same memory, half of it, and at most the same.
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
