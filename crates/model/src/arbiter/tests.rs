//! Moves, floors and hysteresis by example; by property: no bytes are lost, nothing oscillates, the
//! optimum is reached.

use super::*;
use crate::Design;
use crate::residency::{FileModules, Module, ResidencyPlanner};
use crate::savings::{Holding, SavingsCurve};
use crate::skip::FileProbes;
use crate::value::{Prices, WriteBuffer};
use proptest::prelude::*;

const RULES: ArbiterRules =
    ArbiterRules { step_bytes: 10, moving_ns_per_byte: 60.0, payback_seconds: 60.0, margin: 0.0 };

fn consumer(bytes: u64, gain_per_byte: f64, loss_per_byte: f64) -> Consumer {
    Consumer { bytes, floor_bytes: 0, reserved_bytes: 0, bytes_max: u64::MAX, gain_per_byte, loss_per_byte }
}

fn moved(from: usize, to: usize, bytes: u64) -> Move {
    Move { from, to, bytes }
}

/// The moves when both windows have the same inputs.
fn twice(now: &[Consumer]) -> Vec<Move> {
    moves(&RULES, Some(now), now).unwrap()
}

fn apply(moves: &[Move], consumers: &mut [Consumer]) {
    for moved in moves {
        consumers[moved.from].bytes -= moved.bytes;
        consumers[moved.to].bytes += moved.bytes;
    }
}

#[test]
fn a_step_goes_where_it_saves_most_from_where_it_is_missed_least() {
    let now = [consumer(100, 5.0, 6.0), consumer(100, 9.0, 9.5), consumer(100, 1.0, 2.0)];
    assert_eq!(twice(&now), [moved(2, 1, 10)]);
    // Each consumer takes part once: the best pair first, then the best of the others.
    let now = [now[0], now[1], now[2], consumer(4, 0.0, 0.0)];
    assert_eq!(twice(&now), [moved(3, 1, 4), moved(2, 0, 10)]);
    // Among equals the first moves.
    let (gives, takes) = (consumer(50, 0.0, 0.0), consumer(50, 3.0, 3.0));
    assert_eq!(twice(&[gives, takes, takes, gives]), [moved(0, 1, 10), moved(3, 2, 10)]);
    assert_eq!(twice(&[]), []);
    assert_eq!(twice(&[consumer(50, 3.0, 0.0)]), []);
}

#[test]
fn a_move_must_pay_for_itself_in_two_windows() {
    let (even, uneven) = ([consumer(50, 2.0, 2.0); 2], [consumer(50, 0.5, 1.0), consumer(50, 2.5, 3.0)]);
    assert_eq!(moves(&RULES, None, &uneven), Ok(vec![]));
    assert_eq!(moves(&RULES, Some(&even), &uneven), Ok(vec![]));
    assert_eq!(moves(&RULES, Some(&uneven), &even), Ok(vec![]));
    assert_eq!(twice(&uneven), [moved(0, 1, 10)]);
    // 60 ns repaid within 60 s are 1 ns/s: a gap of exactly that does not pay, and a margin
    // requires more.
    assert_eq!(twice(&[consumer(50, 0.5, 1.0), consumer(50, 2.0, 3.0)]), []);
    let with_margin = ArbiterRules { margin: 0.5, ..RULES };
    assert_eq!(moves(&with_margin, Some(&uneven), &uneven), Ok(vec![]));
}

#[test]
fn floors_reserves_and_ceilings_hold() {
    let giver =
        |floor_bytes, reserved_bytes| Consumer { floor_bytes, reserved_bytes, ..consumer(50, 0.0, 0.0) };
    let taker = consumer(50, 5.0, 5.0);
    for (giver, given) in [(giver(43, 0), 7), (giver(0, 47), 3), (giver(45, 48), 2), (giver(20, 20), 10)] {
        assert_eq!(twice(&[giver, taker]), [moved(0, 1, given)]);
    }
    assert_eq!(twice(&[giver(50, 0), taker]), []);
    assert_eq!(twice(&[giver(0, 60), taker]), []);
    assert_eq!(twice(&[giver(0, 0), Consumer { bytes_max: 54, ..taker }]), [moved(0, 1, 4)]);
    assert_eq!(twice(&[giver(0, 0), Consumer { bytes_max: 50, ..taker }]), []);
}

#[test]
fn floors_are_filled_at_once_by_those_who_lose_least() {
    let poor = Consumer { floor_bytes: 90, ..consumer(5, 0.0, 9.0) };
    let now = [consumer(60, 9.0, 2.0), poor, consumer(50, 0.0, 1.0), consumer(50, 0.0, 7.0)];
    let expected = [moved(2, 1, 50), moved(0, 1, 35)];
    assert_eq!(moves(&RULES, None, &now), Ok(expected.to_vec()));
    // A giver to a floor takes part in no other move of the same window.
    assert_eq!(twice(&now), expected);
    // The spare bytes may not suffice.
    assert_eq!(moves(&RULES, None, &[poor, consumer(3, 0.0, 0.0)]), Ok(vec![moved(1, 0, 3)]));
}

#[test]
fn who_just_grew_does_not_give_and_who_just_shrank_does_not_take() {
    let now = [consumer(50, 0.0, 0.0), consumer(50, 9.0, 9.0)];
    let other = |at: usize, bytes| {
        let mut last = now;
        last[at].bytes = bytes;
        moves(&RULES, Some(&last), &now).unwrap()
    };
    assert_eq!((other(0, 40), other(1, 60)), (vec![], vec![]));
    assert_eq!((other(0, 60), other(1, 40)), (vec![moved(0, 1, 10)], vec![moved(0, 1, 10)]));
}

#[test]
fn nobody_gives_what_it_would_take_back() {
    // Both are below a cliff: the next step would save much, the last one saves little.
    assert_eq!(twice(&[consumer(50, 9.0, 1.0), consumer(50, 9.0, 1.0)]), []);
    assert_eq!(twice(&[consumer(50, 9.0, 1.0), consumer(50, 11.0, 1.0)]), [moved(0, 1, 10)]);
}

#[test]
fn bad_input_is_refused_with_its_reason() {
    let good = consumer(1, 1.0, 1.0);
    let refused = |rules: &ArbiterRules, now: &[Consumer]| moves(rules, None, now).unwrap_err();
    for bad in [f64::NAN, -1.0, f64::INFINITY] {
        let error = refused(&RULES, &[good, consumer(1, bad, 1.0)]);
        assert!(error.contains("consumer 1") && error.contains("gain"), "{error}");
        assert!(refused(&RULES, &[consumer(1, 1.0, bad)]).contains("loss"));
        let error = moves(&RULES, Some(&[good, consumer(1, bad, 1.0)]), &[good; 2]).unwrap_err();
        assert!(error.contains("consumer 1"), "{error}");
        assert!(refused(&ArbiterRules { margin: bad, ..RULES }, &[]).contains("margin"));
        assert!(refused(&ArbiterRules { moving_ns_per_byte: bad, ..RULES }, &[]).contains("moving"));
        assert!(refused(&ArbiterRules { payback_seconds: bad, ..RULES }, &[]).contains("payback"));
    }
    assert!(refused(&ArbiterRules { payback_seconds: 0.0, ..RULES }, &[]).contains("payback"));
    assert!(refused(&ArbiterRules { step_bytes: 0, ..RULES }, &[]).contains("step"));
    assert!(refused(&RULES, &[Consumer { floor_bytes: 5, bytes_max: 4, ..good }]).contains("floor"));
    let error = moves(&RULES, Some(&[good]), &[good; 2]).unwrap_err();
    assert!(error.contains("1 consumers") && error.contains("has 2"), "{error}");
}

#[test]
fn filters_cache_and_write_buffer_come_to_equal_marginal_values() {
    const MIB: u64 = 1 << 20;
    let prices = Prices {
        read_ns: 100_000.0,
        write_ns: 20_000.0,
        search_cpu_ns: 300.0,
        probe_ns: 0.0,
        every_search_reads: false,
    };
    let search_ns = prices.search_ns(0.9).unwrap();
    // Forty files of 2 MiB of filters each, ordered by increasing probe rate.
    let file = |at: u32| FileModules {
        probes: FileProbes { empty_per_second: f64::from(at * at), found_per_second: 1.0 },
        search_ns,
        modules: vec![Module { bytes: MIB / 2, slices: 8, fpr: 0.3 }; 4],
    };
    let files: Vec<FileModules> = (1..=40).map(file).collect();
    let planner = ResidencyPlanner::new(&files, prices.probe_ns).unwrap();
    // A block cache whose n-th MiB has 3,000 / n hits a second.
    let stretch = |n: u32| {
        let saved_ns_per_second = prices.reads_saved_ns_per_second(3_000.0 / f64::from(n)).unwrap();
        Holding { bytes: MIB, saved_ns_per_second }
    };
    let blocks = SavingsCurve::new(&(1..=400).map(stretch).collect::<Vec<_>>()).unwrap();
    let buffer = WriteBuffer::new(&Design::default(), &prices, 50_000.0, 32.0, 0.0, search_ns).unwrap();
    let rules =
        ArbiterRules { step_bytes: MIB / 4, moving_ns_per_byte: 0.01, payback_seconds: 60.0, margin: 0.0 };
    let step = rules.step_bytes;
    let floor = |floor_bytes, consumer| Consumer { floor_bytes, ..consumer };
    let window = |bytes: &[u64]| {
        let curve = |curve: &SavingsCurve, bytes| {
            consumer(bytes, curve.gain_per_byte(bytes, step), curve.loss_per_byte(bytes, step))
        };
        let written = bytes[2];
        [
            floor(MIB, curve(planner.savings(), bytes[0])),
            floor(MIB, curve(&blocks, bytes[1])),
            floor(
                MIB,
                consumer(written, buffer.gain_per_byte(written, step), buffer.loss_per_byte(written, step)),
            ),
        ]
    };
    for start in [[2, 2, 96], [96, 2, 2], [33, 33, 34]] {
        let mut bytes = start.map(|mib| mib * MIB);
        let mut last = window(&bytes);
        for _ in 0..2_000 {
            let now = window(&bytes);
            for moved in moves(&rules, Some(&last), &now).unwrap() {
                bytes[moved.from] -= moved.bytes;
                bytes[moved.to] += moved.bytes;
            }
            last = now;
        }
        let end = window(&bytes);
        assert_eq!(bytes.iter().sum::<u64>(), 100 * MIB);
        let dearest = end.iter().map(|of| of.gain_per_byte).fold(0.0, f64::max);
        let cheapest = end.iter().map(|of| of.loss_per_byte).fold(f64::INFINITY, f64::min);
        assert!(dearest <= cheapest + 0.01, "{bytes:?}: {dearest} against {cheapest}");
        assert!(end.iter().all(|of| of.bytes > MIB), "{bytes:?}");
    }
}

/// Diminishing savings: `height * (1 - e^(-bytes / scale))`.
#[derive(Clone, Copy, Debug)]
struct Concave {
    height: f64,
    scale: f64,
}

impl Concave {
    fn saved(&self, bytes: u64) -> f64 {
        self.height * (1.0 - (-(bytes as f64) / self.scale).exp())
    }

    /// The consumer of `bytes` on this curve.
    fn consumer(&self, bytes: u64, floor_bytes: u64) -> Consumer {
        let step = RULES.step_bytes;
        let below = bytes.saturating_sub(step);
        let gain = (self.saved(bytes + step) - self.saved(bytes)) / step as f64;
        let loss = (self.saved(bytes) - self.saved(below)) / (bytes - below).max(1) as f64;
        Consumer { floor_bytes, ..consumer(bytes, gain, loss) }
    }
}

/// Curves, each with its initial bytes and its floor in steps.
fn curves() -> impl Strategy<Value = Vec<(Concave, u64, u64)>> {
    let one = (1.0..1e5f64, 5.0..500.0f64, 0u64..40, 0u64..4);
    let one =
        one.prop_map(|(height, scale, steps, floor)| (Concave { height, scale }, steps.max(floor), floor));
    prop::collection::vec(one, 1..7)
}

/// The maximum savings of any division of the steps; since savings are concave, the greedy choice
/// is optimal.
fn optimum(curves: &[(Concave, u64, u64)]) -> f64 {
    let step = RULES.step_bytes;
    let mut bytes: Vec<u64> = curves.iter().map(|(_, _, floor)| floor * step).collect();
    let spare: u64 = curves.iter().map(|(_, steps, floor)| steps - floor).sum();
    for _ in 0..spare {
        let gain = |at: usize| curves[at].0.saved(bytes[at] + step) - curves[at].0.saved(bytes[at]);
        let best = (0..curves.len()).max_by(|a, b| gain(*a).total_cmp(&gain(*b))).unwrap();
        bytes[best] += step;
    }
    curves.iter().zip(bytes).map(|((curve, ..), bytes)| curve.saved(bytes)).sum()
}

fn any_consumer() -> impl Strategy<Value = Consumer> {
    let bytes = || prop_oneof![0u64..100, any::<u64>()];
    (bytes(), bytes(), bytes(), bytes(), 0.0..100.0f64, 0.0..100.0f64).prop_map(
        |(bytes, floor, reserved_bytes, most, gain_per_byte, loss_per_byte)| Consumer {
            bytes: bytes / 8,
            floor_bytes: floor.min(most),
            reserved_bytes,
            bytes_max: most.max(floor),
            gain_per_byte,
            loss_per_byte,
        },
    )
}

proptest! {
    #[test]
    fn no_byte_is_made_or_lost_and_bounds_hold(
        now in prop::collection::vec(any_consumer(), 0..7), last_bytes in prop::collection::vec(0u64..100, 7),
        first: bool,
    ) {
        let last: Vec<Consumer> =
            now.iter().zip(last_bytes).map(|(now, bytes)| Consumer { bytes, ..*now }).collect();
        let moves = moves(&RULES, (!first).then_some(&last[..]), &now).unwrap();
        let mut after = now.clone();
        apply(&moves, &mut after);
        let total = |consumers: &[Consumer]| consumers.iter().map(|of| u128::from(of.bytes)).sum::<u128>();
        prop_assert_eq!(total(&now), total(&after));
        for (now, after) in now.iter().zip(&after) {
            if after.bytes < now.bytes {
                prop_assert!(after.bytes >= now.floor_bytes && after.bytes >= now.reserved_bytes);
            } else if after.bytes > now.bytes {
                prop_assert!(after.bytes <= now.bytes_max);
            }
        }
        prop_assert!(moves.iter().all(|moved| moved.bytes > 0 && moved.from != moved.to));
    }

    #[test]
    fn on_constant_values_memory_goes_uphill_and_then_stands(
        values in prop::collection::vec((0u64..200, 0.0..100.0f64, 0.0..100.0f64), 1..7),
    ) {
        // A measurement may show a gain above the consumer's own loss; even then memory does not
        // move in circles.
        let mut last: Vec<Consumer> =
            values.into_iter().map(|(bytes, gain, loss)| consumer(bytes, gain, loss)).collect();
        let mut now = last.clone();
        let height = |consumers: &[Consumer]| -> f64 {
            consumers.iter().map(|of| of.gain_per_byte * of.bytes as f64).sum()
        };
        let mut still = 0;
        for _ in 0..1_000 {
            let moves = moves(&RULES, Some(&last), &now).unwrap();
            last.clone_from(&now);
            apply(&moves, &mut now);
            still = if moves.is_empty() { still + 1 } else { 0 };
            prop_assert!(moves.is_empty() || height(&now) > height(&last));
        }
        prop_assert!(still > 800);
    }

    #[test]
    fn on_concave_savings_it_climbs_to_the_optimum_and_stays_there(curves in curves(), cost in 0.0..0.5f64) {
        let rules = ArbiterRules { moving_ns_per_byte: cost, payback_seconds: 1.0, ..RULES };
        let of = |bytes: &[u64]| -> Vec<Consumer> {
            curves.iter().zip(bytes).map(|((curve, _, floor), bytes)| curve.consumer(*bytes, floor * 10)).collect()
        };
        let saved = |bytes: &[u64]| -> f64 {
            curves.iter().zip(bytes).map(|((curve, ..), bytes)| curve.saved(*bytes)).sum()
        };
        let mut bytes: Vec<u64> = curves.iter().map(|(_, steps, _)| steps * 10).collect();
        let total_bytes: u64 = bytes.iter().sum();
        let mut last = of(&bytes);
        let (mut windows, mut still) = (0, 0);
        while still < 3 {
            let now = of(&bytes);
            let moves = moves(&rules, Some(&last), &now).unwrap();
            let before = saved(&bytes);
            for moved in &moves {
                bytes[moved.from] -= moved.bytes;
                bytes[moved.to] += moved.bytes;
            }
            // Savings only increase, so no division recurs.
            prop_assert!(moves.is_empty() || saved(&bytes) > before);
            still = if moves.is_empty() { still + 1 } else { 0 };
            windows += 1;
            prop_assert!(windows < 2_000);
            last = now;
        }
        prop_assert_eq!(bytes.iter().sum::<u64>(), total_bytes);
        // The loss against the optimum is less than the cost of moving to it.
        let left = optimum(&curves) - saved(&bytes);
        prop_assert!(left <= cost * total_bytes as f64 + 1e-6, "{left} of {}", saved(&bytes));
    }
}
