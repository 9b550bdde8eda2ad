//! How many times the memory one curve of reads over memory needs that another does for as few reads.
//!
//! By interpolation on the curves' falling envelopes; the geometric mean over the points of the baseline. Outside of what
//! was measured nothing is guessed: a curve that reads less even with its least memory counts as if it needed all of that.

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

/// The least memory with which the curve reads no more than `reads`; `None` outside of what was measured.
fn memory_at(curve: &[Point], reads: f64) -> Option<f64> {
    let first = curve.first()?;
    if first.reads <= reads {
        // It reads less even with the least memory: how much less it would need is not known.
        return Some(first.memory_bytes);
    }
    curve.windows(2).find_map(|pair| match pair {
        [more, less] if less.reads <= reads && reads < more.reads => {
            let share = (more.reads - reads) / (more.reads - less.reads);
            Some(more.memory_bytes + share * (less.memory_bytes - more.memory_bytes))
        }
        _ => None,
    })
}

/// What a comparison of curves finds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ratio {
    /// How many times the other's memory the baseline needs for as few reads, on average over the points.
    pub mean: f64,
    /// At the point where that is most, and the baseline's memory there.
    pub most: f64,
    pub most_at_bytes: f64,
    /// Points at which it is known.
    pub compared: usize,
}

/// How many times the other curve's memory the baseline needs for as few reads.
pub(crate) fn memory_ratio(baseline: &[Point], other: &[Point]) -> Ratio {
    let (baseline, other) = (envelope(baseline), envelope(other));
    let ratios: Vec<(f64, f64)> = baseline
        .iter()
        .filter_map(|point| {
            let least = memory_at(&baseline, point.reads)?;
            Some((least / memory_at(&other, point.reads)?, least))
        })
        .collect();
    let mean = (ratios.iter().map(|(ratio, _)| ratio.ln()).sum::<f64>() / ratios.len().max(1) as f64).exp();
    let most = ratios.iter().copied().max_by(|left, right| left.0.total_cmp(&right.0));
    let (most, most_at_bytes) = most.unwrap_or((1.0, 0.0));
    Ratio { mean, most, most_at_bytes, compared: ratios.len() }
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

    #[test]
    fn half_the_memory_for_as_few_reads_is_a_ratio_of_two() {
        let baseline = curve(&[(4.0, 1.0), (8.0, 0.5), (16.0, 0.25)]);
        let half = curve(&[(2.0, 1.0), (4.0, 0.5), (8.0, 0.25)]);
        let Ratio { mean: ratio, compared, .. } = memory_ratio(&baseline, &half);
        assert!((ratio - 2.0).abs() < 1e-9 && compared == 3, "{ratio}");
        let Ratio { mean: ratio, .. } = memory_ratio(&baseline, &baseline);
        assert!((ratio - 1.0).abs() < 1e-9, "{ratio}");
        // A bump counts for nothing, and what was never reached is not compared.
        let bumpy = curve(&[(4.0, 1.0), (6.0, 1.5), (8.0, 0.5)]);
        let Ratio { mean: ratio, compared, .. } = memory_ratio(&baseline, &bumpy);
        assert!((ratio - 1.0).abs() < 1e-9 && compared == 2, "{ratio} {compared}");
    }
}
