//! Worst mixes against brute force over the simplex and against the dual; distances between
//! windows.

use super::*;
use proptest::prelude::*;

/// The maximum cost over all mixes of a grid within the neighbourhood.
fn brute_force(costs: &[f64; 4], rates: &[f64; 4], uncertainty: f64, steps: u32) -> f64 {
    let mut most = 0.0f64;
    for a in 0..=steps {
        for b in 0..=steps - a {
            for c in 0..=steps - a - b {
                let mix = [a, b, c, steps - a - b - c].map(|part| f64::from(part) / f64::from(steps));
                if divergence(&mix, rates).is_ok_and(|divergence| divergence <= uncertainty) {
                    most = most.max(mean(costs, &mix));
                }
            }
        }
    }
    most
}

/// rho lambda + lambda ln(sum of w_i exp(c_i / lambda)): at least the worst cost for any lambda.
fn dual(costs: &[f64; 4], rates: &[f64; 4], uncertainty: f64, lambda: f64) -> f64 {
    let shares = shares(rates).unwrap();
    let possible = || costs.iter().zip(&shares).filter(|(_, share)| **share > 0.0);
    let most = possible().map(|(cost, _)| *cost).fold(0.0, f64::max);
    let sum: f64 = possible().map(|(cost, share)| share * ((cost - most) / lambda).exp()).sum();
    uncertainty * lambda + most + lambda * sum.ln()
}

/// The minimum of the dual over a fine grid of lambda.
fn least_dual(costs: &[f64; 4], rates: &[f64; 4], uncertainty: f64) -> f64 {
    let range = costs.iter().copied().fold(0.0, f64::max);
    let at = |step: i32| dual(costs, rates, uncertainty, range * 10f64.powf(f64::from(step) / 400.0));
    (-2_400..=2_400).map(at).fold(f64::INFINITY, f64::min)
}

#[test]
fn no_mix_of_a_grid_is_dearer_and_one_comes_near() {
    let costs = [1.0, 4.0, 0.2, 30.0];
    for rates in [[0.25; 4], [0.97, 0.01, 0.01, 0.01], [0.01, 0.33, 0.33, 0.33], [0.5, 0.0, 0.5, 0.0]] {
        for uncertainty in [0.01, 0.1, 0.5, 1.0, 2.0] {
            let found = worst(&costs, &rates, uncertainty).unwrap();
            let grid = brute_force(&costs, &rates, uncertainty, 80);
            assert!(found.cost >= grid - 1e-9, "{rates:?} {uncertainty}: {found:?}, grid {grid}");
            assert!(found.cost <= grid + 0.8, "{rates:?} {uncertainty}: {found:?}, grid {grid}");
            assert!(found.divergence <= uncertainty);
        }
    }
}

#[test]
fn no_uncertainty_is_the_mean_and_all_of_it_the_dearest_operation_there_is() {
    let (costs, rates) = ([1.0, 5.0, 2.0, 1e6], [3.0, 1.0, 4.0, 0.0]);
    let nominal = worst(&costs, &rates, 0.0).unwrap();
    assert_eq!((nominal.cost, nominal.mix), (2.0, [0.375, 0.125, 0.5, 0.0]));
    let limit = -0.125f64.ln();
    for uncertainty in [limit, limit + 1.0, 1e9] {
        let found = worst(&costs, &rates, uncertainty).unwrap();
        assert!((found.cost - 5.0).abs() < 1e-6, "{found:?}: there are no ranges");
        assert_eq!(found.mix[3], 0.0);
    }
    assert!(worst(&costs, &rates, limit * 0.9).unwrap().cost < 5.0 - 1e-3);
    // Equal costs: no mix is more expensive than another.
    let equal = worst(&[7.0; 4], &rates, 2.0).unwrap();
    assert_eq!((equal.cost, equal.divergence), (7.0, 0.0));
    // The two most expensive operations keep their proportion.
    let twins = worst(&[9.0, 9.0, 1.0, 0.0], &rates, 1e3).unwrap();
    assert!((twins.mix[0] - 0.75).abs() < 1e-9 && (twins.cost - 9.0).abs() < 1e-9, "{twins:?}");
}

#[test]
fn the_examples_of_uncertainty_are_right() {
    let reach =
        |share: f64, uncertainty| worst(&[1.0, 0.0], &[share, 1.0 - share], uncertainty).unwrap().cost;
    for (share, uncertainty, reached) in [
        (0.1, 0.0444, 0.2),
        (0.1, 0.511, 0.5),
        (0.1, 2.303, 1.0),
        (0.5, 0.0823, 0.7),
        (0.5, 0.368, 0.9),
        (0.5, 0.694, 1.0),
        (0.01, 0.1445, 0.1),
    ] {
        assert!((reach(share, uncertainty) - reached).abs() < 0.002, "{share} {uncertainty} {reached}");
    }
}

#[test]
fn wrong_input_is_an_error() {
    let rates = [1.0, 1.0];
    for bad in [-1.0, f64::NAN, f64::INFINITY] {
        assert!(worst(&[1.0, 2.0], &rates, bad).is_err());
        assert!(worst(&[1.0, bad], &rates, 0.1).is_err());
        assert!(worst(&[1.0, 2.0], &[1.0, bad], 0.1).is_err());
        assert!(divergence(&rates, &[bad, 1.0]).is_err());
    }
    assert!(worst(&[1.0, 2.0], &[0.0, 0.0], 0.1).is_err());
    assert_eq!(divergence(&[1.0, 1.0], &[1.0, 0.0]), Ok(f64::INFINITY));
    assert_eq!(worst(&[1.0, 2.0], &[f64::MAX, f64::MAX], 0.0).unwrap().cost, 1.5);
}

#[test]
fn a_swing_is_the_mean_divergence_from_the_mix_halfway() {
    let steady = [700.0, 100.0, 200.0, 3.0];
    assert_eq!(swing(&steady, &steady), 0.0);
    assert_eq!(swing(&steady, &steady.map(|count| count * 9.0)), 0.0, "another rate is no other mix");
    assert_eq!((swing(&steady, &[0.0; 4]), swing(&[0.0; 4], &steady)), (0.0, 0.0));
    let all = swing(&[1e4, 0.0, 0.0, 0.0], &[0.0, 0.0, 1e4, 0.0]);
    assert!((all - 2f64.ln()).abs() < 1e-9, "{all}");
    let (one, other, halfway) = ([0.8, 0.2], [0.4, 0.6], [0.6, 0.4]);
    let mean = (divergence(&one, &halfway).unwrap() + divergence(&other, &halfway).unwrap()) / 2.0;
    assert!((swing(&one.map(|share| share * 1e6), &other.map(|share| share * 1e6)) - mean).abs() < 1e-12);
    // A few operations may differ by chance; the same difference over many operations may not.
    assert_eq!(swing(&[12.0, 4.0, 0.0, 0.0], &[9.0, 7.0, 0.0, 0.0]), 0.0);
    assert!(swing(&[12e6, 4e6, 0.0, 0.0], &[9e6, 7e6, 0.0, 0.0]) > 0.01);
}

#[test]
fn windows_drawn_from_one_mix_hardly_ever_swing() {
    let mut rng =
        proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha);
    let swung = (0..2_000)
        .filter(|_| {
            let mut window = || {
                let mut window = [0.0; 4];
                (0..200).for_each(|_| window[(rng.next_u32() % 4) as usize] += 1.0);
                window
            };
            swing(&window(), &window()) > 0.0
        })
        .count();
    assert!(swung <= 10, "{swung} of 2,000");
}

fn any_share() -> impl Strategy<Value = f64> {
    prop_oneof![1 => Just(0.0), 6 => 1e-6..1.0f64, 1 => 1e-300..1e300f64]
}

proptest! {
    #[test]
    fn primal_and_dual_agree(
        costs in prop::array::uniform4(0.0..1e6f64),
        rates in prop::array::uniform4(1e-3..1.0f64),
        uncertainty in 1e-3..5.0f64,
    ) {
        let found = worst(&costs, &rates, uncertainty).unwrap();
        let bound = least_dual(&costs, &rates, uncertainty);
        prop_assert!(found.cost <= bound * (1.0 + 1e-9) + 1e-9, "{found:?}, dual {bound}");
        prop_assert!(found.cost >= bound * (1.0 - 1e-3) - 1e-9, "{found:?}, dual {bound}");
    }

    #[test]
    fn any_input_gives_a_mix_within_the_neighbourhood(
        costs in prop::array::uniform4(prop_oneof![0.0..1e3f64, 1e-300..1e300f64]),
        rates in prop::array::uniform4(any_share()),
        uncertainty in prop_oneof![Just(0.0), 0.0..3.0f64, 0.0..1e9f64],
        more in 0.0..2.0f64,
    ) {
        let Ok(found) = worst(&costs, &rates, uncertainty) else {
            prop_assert!(rates.iter().all(|rate| *rate == 0.0));
            return Ok(());
        };
        prop_assert!((found.mix.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{found:?}");
        let from = divergence(&found.mix, &rates).unwrap();
        prop_assert!(from <= uncertainty + 1e-6, "{found:?}: {from}");
        let nominal = worst(&costs, &rates, 0.0).unwrap().cost;
        let wider = worst(&costs, &rates, uncertainty + more).unwrap().cost;
        let most = costs.iter().copied().fold(0.0, f64::max);
        prop_assert!(nominal <= found.cost * (1.0 + 1e-9) && found.cost <= wider * (1.0 + 1e-9));
        prop_assert!(wider <= most * (1.0 + 1e-9));
    }
}
