//! Filters against the buffer: Monkey's closed-form division of one memory between the two.
//!
//! With x bits of filters out of M, and a real number of levels, an operation of the workload costs
//!
//! ```text
//! alpha * e^(-beta x) + gamma * ln(delta / (M - x)) + constant      [25 to 27]
//!
//! alpha    cost of lookups without filters, in the limit of many levels:
//!          z times the factor of [19] or [20]
//! beta     ln2^2 / N
//! gamma    saving of a buffer e times as large:
//!          1 / ln T levels of compaction and of runs that ranges visit
//! delta    N E (T-1) / T: the data of which the number of levels is computed
//! ```
//!
//! which is convex in x. Source: Monkey (TODS 2018), equations 25 to 28; the factors for any K and
//! Z are those of [`shamba_model::monkey`].
//!
//! It assumes a filter on every level and does not round the number of levels.
//! [`shamba_model::navigator`] therefore searches the real costs instead; the tests compare them.
//!
//! Not here: the division of the engine's memory ([`shamba_model::memory`]).

use std::f64::consts::LN_2;

use shamba_model::Design;
use shamba_model::cost::Situation;
use shamba_model::monkey::PaperTree;
use shamba_model::value::{Prices, WriteBuffer};

/// The division of one memory between filters and buffer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct MemorySplit {
    /// I/Os of an operation's lookups without filters.
    alpha: f64,
    /// Decay rate of those I/Os per filter bit.
    beta: f64,
    /// I/Os of an operation that a buffer e times as large saves.
    gamma: f64,
    /// delta, in bits.
    delta_bits: f64,
    /// I/Os of an operation that no memory saves.
    constant: f64,
}

impl MemorySplit {
    /// The costs of T, K and Z of `design` in `situation`; the design's buffer and bits per key are
    /// ignored.
    ///
    /// # Errors
    /// A figure that is NaN or out of bounds, or a result that exceeds the range of a float.
    pub(super) fn new(situation: &Situation, design: &Design) -> Result<Self, String> {
        situation.validate()?;
        let Situation { data, workload, device, .. } = situation;
        let (shares, empty_fraction) = (workload.shares(), workload.empty_fraction());
        let t = design.size_ratio;
        let runs = (f64::from(design.inner_runs), f64::from(design.last_runs));
        let tree = PaperTree::fluid(t, runs, 1, data.entries)?;
        let prices = Prices { write_ns: device.write_per_read(), ..Prices::COUNTING_IOS };
        let entries_per_page = data.entries_per_page();
        let buffer = WriteBuffer::new(design, &prices, shares.updates, entries_per_page, shares.ranges, 1.0)?;
        let split = Self {
            alpha: shares.lookups * tree.weighed_cost_without_bits(empty_fraction),
            beta: LN_2 * LN_2 / data.entries as f64,
            gamma: buffer.per_ln_bytes(),
            delta_bits: data.bytes() * 8.0 * (t - 1.0) / t,
            constant: shares.lookups * (1.0 - empty_fraction)
                + shares.ranges * workload.range_selectivity * data.pages(),
        };
        for figure in [split.alpha, split.gamma, split.delta_bits, split.constant] {
            if !(0.0..f64::INFINITY).contains(&figure) {
                return Err(format!(
                    "a term of the split of memory must be finite and at least 0, not {figure}"
                ));
            }
        }
        Ok(split)
    }

    /// Equations 25 to 27: the I/Os of an operation with `filter_bits` of filters out of
    /// `memory_bits`; the rest is the buffer. With an empty buffer the cost is infinite.
    #[cfg_attr(not(test), expect(dead_code, reason = "the tests compare it with the navigator's costs"))]
    pub(super) fn cost_ios(&self, filter_bits: f64, memory_bits: f64) -> f64 {
        let levels = (self.delta_bits / (memory_bits - filter_bits)).ln();
        self.alpha * (-self.beta * filter_bits).exp() + self.gamma * levels + self.constant
    }

    /// Equation 28: the filter bits of the minimum cost out of `memory_bits`. The buffer gets at
    /// least `page_bits` (and at least one bit). The answer is 0 where M <= gamma / (alpha beta),
    /// else the root of x - ln(alpha beta / gamma * (M - x)) / beta, by Newton's method from M less
    /// a page.
    pub(super) fn best_filter_bits(&self, memory_bits: f64, page_bits: f64) -> f64 {
        let most = (memory_bits - page_bits.max(1.0)).max(0.0);
        if self.alpha == 0.0 || memory_bits <= self.gamma / (self.alpha * self.beta) {
            return 0.0;
        }
        if self.gamma == 0.0 {
            return most;
        }
        let mut filter_bits = most;
        // h is concave and increasing, with a slope of at least 1: from the right of the root one
        // step leads at most to its left, and from there each step converges. The bounds and the
        // step limit guard against rounding.
        for _ in 0..NEWTON_STEPS {
            let rest = memory_bits - filter_bits;
            let height = filter_bits - (self.alpha * self.beta / self.gamma * rest).ln() / self.beta;
            let slope = 1.0 + 1.0 / (self.beta * rest);
            let next = (filter_bits - height / slope).clamp(0.0, most);
            // Where a term exceeds the range of a float there is no next point; return the current
            // one.
            if next.is_nan() || (next - filter_bits).abs() <= most * f64::EPSILON {
                return filter_bits;
            }
            filter_bits = next;
        }
        filter_bits
    }
}

/// Maximum steps. Newton's method doubles the correct digits with each step, once it is close.
const NEWTON_STEPS: u32 = 100;

#[cfg(test)]
mod tests {
    use super::*;
    use shamba_model::MergePolicy;
    use shamba_model::cost::{CpuTimes, DataSet, Device, Workload};
    use shamba_model::miss_ratio::MissRatioCurve;
    use shamba_model::navigator::{Bounds, Options, navigate};

    fn situation(entries: u64, workload: [f64; 4]) -> Situation {
        let [empty_lookups, found_lookups, updates, ranges] = workload;
        Situation {
            data: DataSet { entries, entry_bytes: 1024.0, page_bytes: 4096 },
            workload: Workload { empty_lookups, found_lookups, updates, ranges, range_selectivity: 1e-6 },
            device: Device { read_ns: 100.0, write_ns: 200.0, cpu: CpuTimes::NONE },
            locality: MissRatioCurve::EVEN,
        }
    }

    #[test]
    fn the_terms_are_the_papers() {
        let situation = situation(1 << 30, [2.0, 2.0, 4.0, 2.0]);
        let n = (1u64 << 30) as f64;
        for (policy, alpha, gamma) in [
            // z T^(T/(T-1)) / (T-1) * (1/(v+1))^((T-1)/T), and without / (T-1), with c' = 1 - 1/2 *
            // 4/3 / 2.
            (
                MergePolicy::Leveling,
                0.4 * 4f64.powf(4.0 / 3.0) / 3.0 * 0.5f64.powf(0.75),
                0.2 + 0.4 * 4.5 / 4.0,
            ),
            (
                MergePolicy::Tiering,
                0.4 * 4f64.powf(4.0 / 3.0) * (2f64 / 3.0).powf(0.75),
                0.6 + 0.4 * 2.25 / 4.0,
            ),
        ] {
            // gamma: (q + w (T-1) (1+phi) / (2 B)) / ln T, and (q (T-1) + w (T-1) (1+phi) / (T B))
            // / ln T.
            let split = MemorySplit::new(&situation, &Design::new(policy, 4.0, 1 << 20, 10.0)).unwrap();
            assert!((split.alpha / alpha - 1.0).abs() < 1e-12, "{} {alpha}", split.alpha);
            assert!((split.gamma * 4f64.ln() / gamma - 1.0).abs() < 1e-12, "{} {gamma}", split.gamma);
            assert_eq!(split.delta_bits, n * 8192.0 * 0.75);
            assert!((split.constant - (0.4 * 0.5 + 0.2 * 1e-6 * n / 4.0)).abs() < 1e-9);
        }
    }

    #[test]
    fn entries_larger_than_a_page_are_merged_in_pages_all_the_same() {
        // The update cost is proportional to the pages of an entry, as in equation 10.
        let updates = |entry_bytes| {
            let situation = situation(1 << 20, [0.0, 0.0, 1.0, 0.0]);
            let situation = Situation { data: DataSet { entry_bytes, ..situation.data }, ..situation };
            let design = Design::new(MergePolicy::Leveling, 4.0, 1 << 20, 10.0);
            MemorySplit::new(&situation, &design).unwrap().gamma
        };
        for pages in [0.25, 1.0, 2.0, 16.0] {
            assert!((updates(4096.0 * pages) / updates(4096.0) / pages - 1.0).abs() < 1e-12, "{pages} pages");
        }
    }

    #[test]
    fn no_other_split_is_better() {
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..2_000 {
            let shift = rng.u32(10..40);
            let situation = situation(1 << shift, [(); 4].map(|()| 0.001 + 10.0 * rng.f64()));
            let policy = MergePolicy::ALL[rng.usize(..3)];
            let design = Design::new(policy, 2.0 + 18.0 * rng.f64(), 1 << 20, 10.0);
            let split = MemorySplit::new(&situation, &design).unwrap();
            let (memory, page) = ((0.01 + 30.0 * rng.f64()) * (1u64 << shift) as f64, 1.0);
            let best = split.best_filter_bits(memory, page);
            assert!((0.0..=memory - page).contains(&best), "{best} of {memory}");
            let least = split.cost_ios(best, memory);
            let other = split.cost_ios(rng.f64() * (memory - page), memory);
            assert!(least <= other + 1e-9 * other.abs(), "{least} {other}: {situation:?} {design:?}");
        }
    }

    #[test]
    fn the_navigator_finds_what_equations_25_to_28_promise() {
        let options = Options { tie: 0.0, sensitivity: false, ..Options::PAPER };
        for mix in [[0.2, 0.0, 0.8, 0.0], [0.5, 0.0, 0.5, 0.0], [0.6, 0.2, 0.2, 0.0], [0.4, 0.1, 0.4, 0.1]] {
            let situation = Situation {
                data: DataSet { entries: 1 << 30, entry_bytes: 256.0, page_bytes: 4096 },
                ..situation(1 << 30, mix)
            };
            let bounds = Bounds { memory_bytes: 1 << 31, max_lookup_ios: None, max_update_ios: None };
            let best = navigate(&situation, &bounds, &options).unwrap();
            let found = best.costs.cost_ns_per_op / situation.device.read_ns;
            let memory_bits = (8u64 << 31) as f64;
            // The design that was found fills whole levels, so the formula for fractional ones must
            // agree with it...
            let split = MemorySplit::new(&situation, &best.plan.design).unwrap();
            let same = split.cost_ios(best.costs.filter_bytes * 8.0, memory_bits);
            assert!((found / same - 1.0).abs() < 0.02, "{mix:?}: {found} I/Os, the closed form {same}");
            // ...and whole levels cost slightly more than the best that fractional ones promise.
            let mut least = f64::INFINITY;
            for (policy, quarters) in
                MergePolicy::ALL.into_iter().flat_map(|policy| (8..80).map(move |q| (policy, q)))
            {
                let design = Design::new(policy, f64::from(quarters) / 4.0, 1 << 20, 1.0);
                let split = MemorySplit::new(&situation, &design).unwrap();
                let filter_bits = split.best_filter_bits(memory_bits, 32768.0);
                least = least.min(split.cost_ios(filter_bits, memory_bits));
            }
            assert!((0.95..1.4).contains(&(found / least)), "{mix:?}: {found} I/Os, at best {least}");
        }
    }

    #[test]
    fn without_lookups_all_is_buffer_and_without_updates_all_but_a_page_is_filters() {
        let design = Design::new(MergePolicy::Leveling, 4.0, 1 << 20, 10.0);
        let writes = MemorySplit::new(&situation(1 << 30, [0.0, 0.0, 1.0, 0.0]), &design).unwrap();
        assert_eq!(writes.best_filter_bits(1e10, 32768.0), 0.0);
        let reads = MemorySplit::new(&situation(1 << 30, [1.0, 0.0, 0.0, 0.0]), &design).unwrap();
        assert_eq!(reads.best_filter_bits(1e10, 32768.0), 1e10 - 32768.0);
    }
}
