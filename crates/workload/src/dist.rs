//! Distributions of requests over items: uniform, zipf, zipf-local, latest, hotspot, normal, beta.
//!
//! A [`Picker`] draws item numbers below a count that may grow while it is used (inserts of a
//! workload). How the hot items are placed depends on the distribution:
//!
//! - `zipf` and `hotspot` draw a *rank* (0 is the hottest) and map it with a [`Permutation`], so
//!   that hot items are spread over the whole key range (YCSB's "scrambled zipfian").
//! - `latest` does not scramble: its newest items are the hot ones.
//! - `normal` and `beta` do not scramble: their hot items are neighbours.
//! - `zipf-local` scrambles contiguous parts of the items instead of single items.

use std::fmt;
use std::str::FromStr;

use fastrand::Rng;

use crate::permute::Permutation;

/// YCSB's skew: the hottest of a million items gets about 7 % of all requests.
const ZIPF_EXPONENT: f64 = 0.99;
/// `hotspot`: share of the hot items.
const HOT_ITEMS: f64 = 0.2;
/// `hotspot`: share of the requests to hot items.
const HOT_REQUESTS: f64 = 0.8;

/// `normal`: standard deviation as a fraction of all items; the mean is in the middle.
const NORMAL_DEVIATION: f64 = 0.1;
/// `beta`: its two shape parameters, whole numbers.
const BETA_SHAPES: (usize, usize) = (2, 5);

/// `zipf-local`: number of parts of the items, some of them hot, such as tenants, days or
/// directories. All items of a part are equally likely.
const LOCAL_PARTS: u64 = 1024;

/// Distribution of requests over items.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Distribution {
    /// All items are equally likely.
    Uniform,
    /// The item of rank r has a probability proportional to 1 / r^0.99.
    Zipf,
    /// Like `Zipf`, over 1,024 parts of the items in order, with the hot parts scattered. All items
    /// of a part are equally likely.
    ZipfLocal,
    /// Like `Zipf`, with the newest item hottest.
    Latest,
    /// 80 % of the requests to 20 % of the items.
    Hotspot,
    /// A normal distribution over the items in order; the mean is the middle item, the standard
    /// deviation a tenth of the items.
    Normal,
    /// A beta distribution (2, 5) over the items in order; the most frequent item is at a fifth.
    Beta,
}

impl Distribution {
    /// Every distribution.
    pub const ALL: [Self; 7] =
        [Self::Uniform, Self::Zipf, Self::ZipfLocal, Self::Latest, Self::Hotspot, Self::Normal, Self::Beta];

    /// The name in options and output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Zipf => "zipf",
            Self::ZipfLocal => "zipf-local",
            Self::Latest => "latest",
            Self::Hotspot => "hotspot",
            Self::Normal => "normal",
            Self::Beta => "beta",
        }
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Distribution {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            format!("unknown distribution {name:?} (known: {known})")
        })
    }
}

/// Draws item numbers.
#[derive(Clone, Debug)]
pub struct Picker {
    distribution: Distribution,
    zipf: Zipf,
    scramble: Permutation,
    items: u64,
    rng: Rng,
}

impl Picker {
    /// Draws items below `items`. The same seed draws the same items. The hot items depend on
    /// `items` and `hot_seed` alone, so that threads with different seeds have the same ones.
    pub fn new(distribution: Distribution, items: u64, seed: u64, hot_seed: u64) -> Self {
        let items = items.max(1);
        let ranks = if distribution == Distribution::ZipfLocal { LOCAL_PARTS.min(items) } else { items };
        Self {
            distribution,
            zipf: Zipf::new(ranks, ZIPF_EXPONENT),
            scramble: Permutation::new(ranks, hot_seed),
            items,
            rng: Rng::with_seed(seed),
        }
    }

    /// The next item, below the `items` of [`Self::new`]; for `latest`, below `newest`, with the
    /// items just below it hottest.
    #[inline]
    pub fn pick(&mut self, newest: u64) -> u64 {
        match self.distribution {
            Distribution::Uniform => self.rng.u64(..self.items),
            Distribution::Zipf => self.scramble.at(self.zipf.rank(&mut self.rng)),
            Distribution::ZipfLocal => {
                let part = u128::from(self.scramble.at(self.zipf.rank(&mut self.rng)));
                let (items, parts) = (u128::from(self.items), u128::from(LOCAL_PARTS.min(self.items)));
                let bound = |part: u128| (items * part / parts) as u64;
                self.rng.u64(bound(part)..bound(part + 1))
            }
            Distribution::Latest => newest.saturating_sub(1).saturating_sub(self.zipf.rank(&mut self.rng)),
            Distribution::Hotspot => {
                let hot = ((self.items as f64 * HOT_ITEMS) as u64).clamp(1, self.items);
                let in_hot = hot == self.items || self.rng.f64() < HOT_REQUESTS;
                let rank = if in_hot { self.rng.u64(..hot) } else { self.rng.u64(hot..self.items) };
                self.scramble.at(rank)
            }
            Distribution::Normal => self.at_part(normal),
            Distribution::Beta => self.at_part(beta),
        }
    }

    /// The item at a drawn fraction of all items; fractions outside 0 to 1 are drawn again.
    fn at_part(&mut self, draw: fn(&mut Rng) -> f64) -> u64 {
        loop {
            let part = draw(&mut self.rng);
            if (0.0..1.0).contains(&part) {
                return ((part * self.items as f64) as u64).min(self.items - 1);
            }
        }
    }

    /// The random generator, for other choices of a workload.
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }
}

/// The sum of twelve uniform draws has variance 1 and is nearly normal up to three deviations; its
/// maximum is six.
fn normal(rng: &mut Rng) -> f64 {
    let sum: f64 = (0..12).map(|_| rng.f64()).sum();
    0.5 + (sum - 6.0) * NORMAL_DEVIATION
}

/// The a-th smallest of a + b - 1 uniform draws has the distribution Beta(a, b).
fn beta(rng: &mut Rng) -> f64 {
    const DRAWS: usize = BETA_SHAPES.0 + BETA_SHAPES.1 - 1;
    let mut draws: [f64; DRAWS] = std::array::from_fn(|_| rng.f64());
    draws.sort_unstable_by(f64::total_cmp);
    draws[BETA_SHAPES.0 - 1]
}

/// Draws ranks below n with probability proportional to 1 / (rank + 1)^exponent, without a table of
/// n sums.
///
/// Rejection-inversion (Hörmann and Derflinger 1996): inverts the integral of the density's
/// continuous hull, and accepts the rounded result unless it falls between hull and histogram.
#[derive(Clone, Copy, Debug)]
pub struct Zipf {
    hull: Hull,
    items: f64,
    integral_first: f64,
    integral_last: f64,
    shortcut: f64,
}

impl Zipf {
    /// Ranks of `items` items, at least one, with an exponent above 0.
    pub fn new(items: u64, exponent: f64) -> Self {
        let (items, hull) = (items as f64, Hull { exponent });
        Self {
            hull,
            items,
            integral_first: hull.integral(1.5) - 1.0,
            integral_last: hull.integral(items + 0.5),
            shortcut: 2.0 - hull.inverse_integral(hull.integral(2.5) - hull.density(2.0)),
        }
    }

    /// A rank, from 0.
    #[inline]
    pub fn rank(&self, rng: &mut Rng) -> u64 {
        loop {
            let u = self.integral_last + rng.f64() * (self.integral_first - self.integral_last);
            let x = self.hull.inverse_integral(u);
            let k = (x + 0.5).floor().clamp(1.0, self.items);
            if k - x <= self.shortcut || u >= self.hull.integral(k + 0.5) - self.hull.density(k) {
                return k as u64 - 1;
            }
        }
    }
}

/// The function x^-exponent, its integral from 1, and the inverse of the integral.
#[derive(Clone, Copy, Debug)]
struct Hull {
    exponent: f64,
}

impl Hull {
    fn density(self, x: f64) -> f64 {
        x.powf(-self.exponent)
    }

    fn integral(self, x: f64) -> f64 {
        let power = 1.0 - self.exponent;
        if power == 0.0 { x.ln() } else { (x.powf(power) - 1.0) / power }
    }

    fn inverse_integral(self, y: f64) -> f64 {
        let power = 1.0 - self.exponent;
        if power == 0.0 { y.exp() } else { (y * power + 1.0).max(0.0).powf(1.0 / power) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(distribution: Distribution, items: u64, draws: u64) -> Vec<u64> {
        let mut picker = Picker::new(distribution, items, 7, 8);
        let mut counts = vec![0u64; usize::try_from(items).expect("small")];
        for _ in 0..draws {
            counts[usize::try_from(picker.pick(items)).expect("below items")] += 1;
        }
        counts
    }

    #[test]
    fn uniform_is_even() {
        let counts = counts(Distribution::Uniform, 100, 100_000);
        assert!(counts.iter().all(|&count| (800..1200).contains(&count)), "{counts:?}");
    }

    #[test]
    fn zipf_follows_its_law() {
        let items = 1000;
        let draws = 400_000;
        let mut counts = counts(Distribution::Zipf, items, draws);
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let density = |rank| Hull { exponent: ZIPF_EXPONENT }.density(rank);
        let sum: f64 = (1..=items).map(|rank| density(rank as f64)).sum();
        for rank in [1usize, 2, 3, 10, 50] {
            let expected = draws as f64 * density(rank as f64) / sum;
            let got = counts[rank - 1] as f64;
            assert!((got / expected - 1.0).abs() < 0.1, "rank {rank}: {got} draws, expected {expected:.0}");
        }
        assert!(counts.iter().filter(|&&count| count > 0).count() > 950, "the cold end must come up too");
    }

    #[test]
    fn zipf_scatters_its_hot_items_and_latest_does_not() {
        let zipf = counts(Distribution::Zipf, 1000, 50_000);
        assert!(zipf[900..].iter().sum::<u64>() < 25_000);
        let latest = counts(Distribution::Latest, 1000, 50_000);
        assert!(latest[900..].iter().sum::<u64>() > 25_000, "the newest tenth gets most");
        assert!(latest[999] > latest[998] && latest[998] > latest[990]);
    }

    #[test]
    fn local_zipf_has_hot_neighbours_anywhere() {
        let items = 16 * LOCAL_PARTS + 5;
        let counts = counts(Distribution::ZipfLocal, items, 100_000);
        let parts = LOCAL_PARTS as usize;
        let part = |number: usize| number * counts.len() / parts..(number + 1) * counts.len() / parts;
        let mut sums: Vec<u64> = (0..parts).map(|number| counts[part(number)].iter().sum()).collect();
        let hottest = (0..parts).max_by_key(|&number| sums[number]).expect("there are parts");
        let within = &counts[part(hottest)];
        let mean = sums[hottest] as f64 / within.len() as f64;
        assert!(within.iter().all(|&count| (count as f64 / mean - 1.0).abs() < 0.25), "{within:?}");
        sums.sort_unstable_by(|a, b| b.cmp(a));
        // By the distribution, the ten hottest of 1,024 have 38.6 %.
        assert!((37_000..40_500).contains(&sums[..10].iter().sum::<u64>()), "{:?}", &sums[..10]);
    }

    #[test]
    fn hotspot_gives_eighty_percent_to_a_fifth() {
        let mut counts = counts(Distribution::Hotspot, 1000, 100_000);
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let hot: u64 = counts[..200].iter().sum();
        assert!((78_000..83_000).contains(&hot), "{hot} of 100,000");
    }

    #[test]
    fn normal_and_beta_have_hot_neighbours() {
        let normal = counts(Distribution::Normal, 1000, 100_000);
        let within = |counts: &[u64], from: usize, to: usize| counts[from..to].iter().sum::<u64>();
        assert!((67_000..69_500).contains(&within(&normal, 400, 600)), "68.3 % within a deviation");
        assert!((94_500..96_500).contains(&within(&normal, 300, 700)), "95.4 % within two");
        assert!((49_000..51_000).contains(&within(&normal, 0, 500)), "half below the mean");
        // The distribution function of Beta(2, 5) is 0.34464 at a fifth and 0.890625 at a half.
        let beta = counts(Distribution::Beta, 1000, 100_000);
        assert!((33_800..35_200).contains(&within(&beta, 0, 200)), "{}", within(&beta, 0, 200));
        assert!((88_500..89_600).contains(&within(&beta, 0, 500)), "{}", within(&beta, 0, 500));
    }

    #[test]
    fn single_items_and_growing_counts_stay_in_bounds() {
        for distribution in Distribution::ALL {
            let mut picker = Picker::new(distribution, 1, 1, 1);
            assert!((0..1000).all(|_| picker.pick(1) == 0), "{distribution}");
        }
        let mut picker = Picker::new(Distribution::Latest, 10, 1, 1);
        assert!((0..1000).all(|newest| picker.pick(newest) <= newest));
    }

    #[test]
    fn names_parse_back() {
        for distribution in Distribution::ALL {
            assert_eq!(distribution.to_string().parse(), Ok(distribution));
        }
        assert!("nobody".parse::<Distribution>().is_err());
    }
}
