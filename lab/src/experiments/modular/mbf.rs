//! Modular filters by themselves: how often a query for an absent key comes as far as each module.

use shamba_filter::sim::Numbers;
use shamba_filter::{Filter, FilterLayout, MAX_MODULES, measured};
use shamba_key::KeyDigest;
use shamba_model::skip::FileProbes;

use super::approaches::PROPORTIONAL;
use super::trees::BITS_PER_KEY;
use crate::lookups::Spread;
use crate::{Lab, Parameter, Scale};

/// A multiple of 4,096: eighths of bits per key are whole lines.
const KEYS: usize = 40_960;

/// The layouts that are measured: what stands at the tick, and the option.
pub(super) fn layouts() -> Vec<(String, String)> {
    let equal = (1..=MAX_MODULES).map(|count| (count.to_string(), format!("modular:{count}")));
    equal.chain([("2 prop".to_owned(), PROPORTIONAL.to_owned())]).collect()
}

pub(super) fn parameters(scale: Scale) -> Vec<Parameter> {
    vec![
        Parameter::varied(
            "modules (prop: 3 of 10 bits in the first)",
            layouts().into_iter().map(|(name, _)| name),
        ),
        Parameter::fixed("bits per key", BITS_PER_KEY),
        Parameter::fixed("keys a filter", KEYS),
        Parameter::fixed("empty queries a repeat", strangers(scale)),
    ]
}

pub(super) fn strangers(scale: Scale) -> u64 {
    scale.count(400_000, 4_000_000, 4_000_000)
}

/// How far empty queries come in a modular filter.
#[derive(Clone, Debug)]
pub(super) struct Reach {
    /// At the tick.
    pub name: String,
    pub layout: FilterLayout,
    /// Modules that a query asks.
    pub modules: Spread,
    /// The bytes of the modules that it asks, in parts of the filter's.
    pub bytes: Spread,
    /// The share that passes all of them.
    pub fpr: Spread,
    /// By the model, from the measured rates of single modules: modules, bytes.
    pub model: (f64, f64),
}

/// Every layout.
///
/// # Errors
/// A layout that is none.
pub(super) fn every_reach(lab: &mut Lab<'_>) -> Result<Vec<Reach>, String> {
    let mut all = Vec::new();
    for (name, option) in layouts() {
        lab.at(format_args!("{option}"));
        let layout: FilterLayout = option.parse()?;
        let (mut modules, mut bytes, mut fpr) = (Vec::new(), Vec::new(), Vec::new());
        for repeat in 0..lab.repeats.max(1) {
            let (of_module, passed, filter) =
                reach(layout, strangers(lab.scale), lab.seed ^ u64::from(repeat) << 40)?;
            modules.push(of_module.iter().sum());
            let shapes = filter.geometry().modules();
            let all_bytes: u64 = shapes.iter().map(|shape| shape.total_bytes()).sum();
            let read = of_module.iter().zip(shapes).map(|(reach, shape)| reach * shape.total_bytes() as f64);
            bytes.push(read.sum::<f64>() / all_bytes.max(1) as f64);
            fpr.push(passed);
        }
        let shares: Vec<f64> = layout.modules().shares().collect();
        let rates: Vec<f64> = shares.iter().map(|share| measured::module_fpr(share * BITS_PER_KEY)).collect();
        let reaching =
            FileProbes { empty_per_second: 1.0, found_per_second: 0.0 }.reaching_per_second(&rates)?;
        let model =
            (reaching.iter().sum(), reaching.iter().zip(&shares).map(|(reach, share)| reach * share).sum());
        let [modules, bytes, fpr] = [modules, bytes, fpr].map(Spread::of);
        all.push(Reach { name, layout, modules, bytes, fpr, model });
    }
    Ok(all)
}

/// The share of queries that asks each module, and the share that passes all; the filter too.
fn reach(layout: FilterLayout, strangers: u64, seed: u64) -> Result<(Vec<f64>, f64, Filter), String> {
    let mut numbers = Numbers(Numbers(seed).draw());
    let keys: Vec<KeyDigest> = numbers.by_ref().take(KEYS).map(KeyDigest::from_raw).collect();
    let filter = Filter::build(&keys, layout, BITS_PER_KEY).ok_or("no filter was built")?;
    let count = filter.geometry().modules().len();
    let (mut asked, mut passed) = (vec![0u64; count], 0u64);
    for digest in numbers.take(strangers as usize).map(KeyDigest::from_raw) {
        let says_no = |module: &usize| {
            asked[*module] += 1;
            !filter.modules_may_contain(digest, 1 << module)
        };
        passed += u64::from((0..count).find(says_no).is_none());
    }
    let share = |of: u64| of as f64 / strangers.max(1) as f64;
    Ok((asked.into_iter().map(share).collect(), share(passed), filter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_module_is_always_asked_and_the_others_seldom() {
        let layout = "modular:2".parse().expect("a layout");
        let (asked, passed, _) = reach(layout, 50_000, 1).expect("built");
        assert_eq!((asked.len(), asked[0]), (2, 1.0));
        assert!((0.07..0.12).contains(&asked[1]) && (0.005..0.015).contains(&passed), "{asked:?} {passed}");
        let (asked, ..) = reach("modular:1".parse().expect("a layout"), 1_000, 1).expect("built");
        assert_eq!(asked, [1.0]);
    }
}
