//! Distributions of operations over keys in key order: the four of the K-V-Workload-Generator, with
//! its parameters.
//!
//! Normal and beta apply to the key order, so hot keys are neighbours and lie in few tables. Zipf's
//! ranks are shuffled over the keys, so hot keys are everywhere.

use fastrand::Rng;

use crate::dist::Zipf;
use crate::permute::Permutation;

/// The K-V-Workload-Generator gives the deviation of its normal distribution in this fraction of
/// all keys: one of the 62 possible first characters.
const DEVIATION_PARTS: f64 = 62.0;

/// A distribution over keys in key order.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Spread {
    /// 0: all keys are equally likely.
    Uniform,
    /// 1: normal.
    Normal {
        /// The mean, as a fraction of all keys: above 0 and up to 1.
        mean: f64,
        /// The standard deviation in 62nds of all keys.
        deviation: f64,
    },
    /// 2: beta.
    Beta {
        /// The first shape, above 0.
        alpha: f64,
        /// The second shape, above 0.
        beta: f64,
    },
    /// 3: Zipf, with scattered hot keys.
    Zipf {
        /// The exponent, above 0.
        alpha: f64,
    },
}

impl Spread {
    /// Checks its parameters.
    ///
    /// # Errors
    /// A message about the invalid parameter.
    pub fn check(self) -> Result<(), String> {
        let positive = |name: &str, value: f64| match value > 0.0 && value <= 1000.0 {
            true => Ok(()),
            false => Err(format!("{name} must be above 0 and at most 1000, not {value}")),
        };
        match self {
            Self::Uniform => Ok(()),
            Self::Normal { mean, .. } if !(mean > 0.0 && mean <= 1.0) => {
                Err(format!("the mean of a normal distribution must be above 0 and at most 1, not {mean}"))
            }
            Self::Normal { deviation, .. } => positive("the deviation of a normal distribution", deviation),
            Self::Beta { alpha, beta } => {
                positive("alpha of a beta distribution", alpha)?;
                positive("beta of a beta distribution", beta)
            }
            Self::Zipf { alpha } => positive("alpha of a Zipf distribution", alpha),
        }
    }
}

/// Draws keys by a [`Spread`].
#[derive(Clone, Debug)]
pub(crate) struct Drawer {
    spread: Spread,
    /// Ranks and their mapping to places.
    ranks: Option<(Zipf, Permutation)>,
}

/// Result of a draw.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Drawn {
    /// A key by its rank among the eligible keys.
    Rank(u64),
    /// A key by its place among all keys.
    Place(u64),
}

impl Drawer {
    /// Draws from `places` keys, some of which may be absent; `seed` selects the hot ones.
    pub fn new(spread: Spread, places: u64, seed: u64) -> Self {
        let ranks = match spread {
            Spread::Zipf { alpha } => {
                let places = places.max(1);
                Some((Zipf::new(places, alpha), Permutation::new(places, seed)))
            }
            _ => None,
        };
        Self { spread, ranks }
    }

    /// Draws a key: its rank below `count`, or its place.
    pub fn draw(&self, rng: &mut Rng, count: u64) -> Drawn {
        if let Some((zipf, scramble)) = &self.ranks {
            return Drawn::Place(scramble.at(zipf.rank(rng)));
        }
        let part = match self.spread {
            Spread::Normal { mean, deviation } => loop {
                let part = mean + gauss(rng) * deviation / DEVIATION_PARTS;
                if (0.0..=1.0).contains(&part) {
                    break part;
                }
            },
            Spread::Beta { alpha, beta } => {
                let (x, y) = (gamma(rng, alpha), gamma(rng, beta));
                if x + y > 0.0 { x / (x + y) } else { 0.5 }
            }
            Spread::Uniform | Spread::Zipf { .. } => return Drawn::Rank(rng.u64(..count.max(1))),
        };
        Drawn::Rank(((part * count as f64) as u64).min(count.saturating_sub(1)))
    }
}

/// Draws from the standard normal distribution (Box and Muller).
fn gauss(rng: &mut Rng) -> f64 {
    let radius = (-2.0 * (1.0 - rng.f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.f64()).cos()
}

/// Draws from the gamma distribution with this shape and scale 1 (Marsaglia and Tsang 2000).
fn gamma(rng: &mut Rng, shape: f64) -> f64 {
    if shape < 1.0 {
        return gamma(rng, shape + 1.0) * (1.0 - rng.f64()).powf(1.0 / shape);
    }
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = gauss(rng);
        let v = (1.0 + c * x).powi(3);
        if v > 0.0 && (1.0 - rng.f64()).ln() < 0.5 * x * x + d - d * v + d * v.ln() {
            return d * v;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: usize = 100_000;

    /// Mean and variance of the drawn fractions of all keys.
    fn moments(spread: Spread) -> (f64, f64) {
        let drawer = Drawer::new(spread, 1_000_000, 1);
        let mut rng = Rng::with_seed(9);
        let parts: Vec<f64> = (0..DRAWS)
            .map(|_| match drawer.draw(&mut rng, 1_000_000) {
                Drawn::Rank(rank) => (rank as f64 + 0.5) / 1e6,
                Drawn::Place(_) => panic!("only Zipf draws places"),
            })
            .collect();
        let mean = parts.iter().sum::<f64>() / DRAWS as f64;
        (mean, parts.iter().map(|part| (part - mean).powi(2)).sum::<f64>() / DRAWS as f64)
    }

    #[test]
    fn draws_have_the_moments_of_their_distributions() {
        let beta = |alpha: f64, beta: f64| {
            let sum = alpha + beta;
            (alpha / sum, alpha * beta / (sum * sum * (sum + 1.0)))
        };
        for (spread, (mean, variance)) in [
            (Spread::Uniform, (0.5, 1.0 / 12.0)),
            (Spread::Normal { mean: 0.5, deviation: 5.0 }, (0.5, (5.0f64 / 62.0).powi(2))),
            (Spread::Normal { mean: 0.25, deviation: 1.0 }, (0.25, (1.0f64 / 62.0).powi(2))),
            (Spread::Beta { alpha: 1.0, beta: 1.0 }, beta(1.0, 1.0)),
            (Spread::Beta { alpha: 2.0, beta: 5.0 }, beta(2.0, 5.0)),
            (Spread::Beta { alpha: 0.5, beta: 0.7 }, beta(0.5, 0.7)),
        ] {
            let (found_mean, found_variance) = moments(spread);
            // Six standard errors of the mean.
            assert!(
                (found_mean - mean).abs() < 6.0 * (variance / DRAWS as f64).sqrt(),
                "{spread:?}: {found_mean}"
            );
            assert!((found_variance / variance - 1.0).abs() < 0.03, "{spread:?}: variance {found_variance}");
        }
    }

    #[test]
    fn zipf_ranks_lie_anywhere() {
        let drawer = Drawer::new(Spread::Zipf { alpha: 1.0 }, 1000, 3);
        let mut rng = Rng::with_seed(4);
        let mut counts = vec![0u32; 1000];
        for _ in 0..DRAWS {
            match drawer.draw(&mut rng, 17) {
                Drawn::Place(place) => counts[place as usize] += 1,
                Drawn::Rank(_) => panic!("Zipf draws places"),
            }
        }
        let harmonic: f64 = (1..=1000).map(|rank| 1.0 / f64::from(rank)).sum();
        let mut sorted = counts.clone();
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        for rank in [1, 2, 10] {
            let expected = DRAWS as f64 / f64::from(rank) / harmonic;
            let found = f64::from(sorted[rank as usize - 1]);
            assert!((found / expected - 1.0).abs() < 0.1, "rank {rank}: {found} of {expected}");
        }
        assert_ne!(counts[0], sorted[0], "the first key is not the hottest");
    }

    #[test]
    fn parameters_are_checked() {
        for spread in [
            Spread::Normal { mean: 0.0, deviation: 1.0 },
            Spread::Normal { mean: 1.5, deviation: 1.0 },
            Spread::Normal { mean: 0.5, deviation: f64::NAN },
            Spread::Beta { alpha: 0.0, beta: 1.0 },
            Spread::Zipf { alpha: -1.0 },
        ] {
            assert!(spread.check().is_err(), "{spread:?}");
        }
        assert_eq!(Spread::Normal { mean: 1.0, deviation: 0.1 }.check(), Ok(()));
    }
}
