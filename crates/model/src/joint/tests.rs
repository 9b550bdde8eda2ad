//! The joint plan against every possible plan of small cases.

use super::*;

/// SplitMix64: reproducible numbers without a dependency.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % bound
    }

    fn share(&mut self) -> f64 {
        self.below(1_000_001) as f64 / 1e6
    }
}

/// A price at which nothing is fetched.
const NEVER: f64 = 1e15;

fn plain(probe_ns: f64) -> Weighing {
    Weighing { probe_ns, ..Weighing::default() }
}

fn random_file(dice: &mut Dice, pieces: u32) -> FileMemory {
    let modules = (0..dice.below(4))
        .map(|_| {
            let slices = 1 + dice.below(u64::from(pieces)) as u32;
            Module { bytes: u64::from(slices) * (1 + dice.below(40)), slices, fpr: 0.02 + 0.5 * dice.share() }
        })
        .collect();
    let partitions = dice.below(u64::from(pieces) + 1) as u32;
    FileMemory {
        probes: FileProbes { empty_per_second: 100.0 * dice.share(), found_per_second: 60.0 * dice.share() },
        seeks_per_second: 0.0,
        data_ns: 500.0 + 1000.0 * dice.share(),
        index_ns: 1500.0 * dice.share(),
        modules,
        asked_modules: 0,
        fetch: ReadPrice::fixed(NEVER),
        index: FileIndex { bytes: u64::from(partitions) * (1 + dice.below(60)), partitions },
        held_modules: 0,
        asked_now: 0,
        holds_index: false,
    }
}

/// The cost of lookups with these pieces in memory, with the best number of fetched modules for
/// each file.
fn least_cost(files: &[FileMemory], slices: &[Vec<u32>], partitions: &[u32], probe_ns: f64) -> f64 {
    let mut fetched = Vec::new();
    for (at, file) in files.iter().enumerate() {
        let of = |count: usize| {
            let (slices, partitions) = (&slices[at..=at], &partitions[at..=at]);
            cost_ns_per_second(std::slice::from_ref(file), slices, partitions, &[count], probe_ns).unwrap()
        };
        let most = file.modules.len();
        let counts = file.asked_modules.min(most)..=most;
        fetched.push(counts.min_by(|a, b| of(*a).total_cmp(&of(*b))).unwrap());
    }
    cost_ns_per_second(files, slices, partitions, &fetched, probe_ns).unwrap()
}

/// The minimum cost of all plans of whole modules and whole indexes.
fn best_of_all(files: &[FileMemory], probe_ns: f64, budget: u64) -> f64 {
    fn go(
        files: &[FileMemory],
        at: usize,
        left: u64,
        slices: &mut Vec<Vec<u32>>,
        partitions: &mut Vec<u32>,
        probe_ns: f64,
        best: &mut f64,
    ) {
        let Some(file) = files.get(at) else {
            *best = best.min(least_cost(files, slices, partitions, probe_ns));
            return;
        };
        for count in 0..=file.modules.len() {
            for with_index in [false, true] {
                let bytes = bytes_of(&file.modules[..count]) + if with_index { file.index.bytes } else { 0 };
                if bytes > left {
                    continue;
                }
                let held = file.modules.iter().enumerate();
                slices.push(held.map(|(n, m)| if n < count { m.slices } else { 0 }).collect());
                partitions.push(if with_index { file.index.partitions } else { 0 });
                go(files, at + 1, left - bytes, slices, partitions, probe_ns, best);
                slices.pop();
                partitions.pop();
            }
        }
    }
    let mut best = f64::INFINITY;
    go(files, 0, budget, &mut Vec::new(), &mut Vec::new(), probe_ns, &mut best);
    best
}

#[test]
fn plans_stay_within_the_budget_and_near_the_best_of_all() {
    // Cases with skipped modules, and cases with fetched ones. With fetches, pieces may be worth
    // more together than one by one, which the greedy choice does not see.
    let mut worst = [1.0f64; 3];
    for seed in 0..300 {
        let mut dice = Dice(seed);
        let fetches = seed % 3 == 0;
        let mut files: Vec<FileMemory> = (0..4).map(|_| random_file(&mut dice, 1)).collect();
        if fetches {
            // Some modules must not be skipped,
            for file in &mut files {
                file.asked_modules = dice.below(5) as usize;
                // and some are better fetched than skipped.
                file.fetch = ReadPrice::fixed(1500.0 * dice.share());
            }
        }
        let all: u64 = files.iter().map(|file| bytes_of(&file.modules) + file.index.bytes).sum();
        let budget = dice.below(all + 20);
        let seeks = seed % 3 == 1;
        if seeks {
            files.iter_mut().for_each(|file| file.seeks_per_second = 80.0 * dice.share());
        }
        let plan = plan_jointly(&files, plain(5.0), budget).unwrap();
        assert!(plan.bytes <= budget, "seed {seed}");
        let nothing = best_of_all(&files, 5.0, 0);
        let best = best_of_all(&files, 5.0, budget);
        // The share of the possible saving that the plan achieves. Four files of few pieces are the
        // worst case for the greedy choice.
        if nothing - best > 1e-9 {
            let saved = (nothing - plan.cost_ns_per_second) / (nothing - best);
            let kind = usize::from(fetches) + 2 * usize::from(seeks);
            worst[kind] = worst[kind].min(saved);
        }
    }
    println!("the worst plans saved {worst:?} of the best");
    assert!(worst[0] > 0.5 && worst[1] > 0.3 && worst[2] > 0.5);
}

#[test]
fn many_small_pieces_come_within_a_few_hundredths_of_the_best() {
    // A uniform tree: all files of a level are alike, so the choice is between whole levels.
    for (budget_share, hits) in [(0.05, 0.0), (0.2, 0.0), (0.5, 0.0), (0.2, 0.5), (0.5, 1.0), (0.9, 0.9)] {
        let level = |files: u64, run_files: u64| {
            let empty = (1.0 - hits) / run_files as f64;
            let module = Module { bytes: 640, slices: 10, fpr: 0.092 };
            let file = FileMemory {
                probes: FileProbes { empty_per_second: empty, found_per_second: hits / run_files as f64 },
                seeks_per_second: 0.0,
                data_ns: 1.0,
                index_ns: 1.0,
                modules: vec![module; 2],
                asked_modules: 0,
                fetch: ReadPrice::fixed(NEVER),
                index: FileIndex { bytes: 900, partitions: 5 },
                held_modules: 0,
                asked_now: 0,
                holds_index: false,
            };
            vec![file; files as usize]
        };
        let files: Vec<FileMemory> = [1, 10, 100].into_iter().flat_map(|files| level(files, files)).collect();
        let all: u64 = files.iter().map(|file| bytes_of(&file.modules) + file.index.bytes).sum();
        let budget = (all as f64 * budget_share) as u64;
        let plan = plan_jointly(&files, plain(0.0), budget).unwrap();
        // Each level as one file that can be taken in part: the optimum in 200 steps of a share.
        let best = best_by_levels(&[1.0, 10.0, 100.0], 0.092, hits, budget as f64);
        let ratio = plan.cost_ns_per_second / best;
        assert!((0.999..1.06).contains(&ratio), "{budget_share} {hits}: {ratio}");
    }
}

/// The minimum cost of three levels whose files are all alike, with memory divided finely: each
/// level holds some share of first modules, of second ones and of its index.
fn best_by_levels(files: &[f64], fpr: f64, hits: f64, budget: f64) -> f64 {
    // For a price of memory each level takes the cheapest of (modules 0..2) x (index or not). The
    // price is bisected; at the price where the plan jumps, a mixture of the two plans fills the
    // budget.
    let options = |level: usize, price: f64| {
        let mut best = (f64::INFINITY, 0.0, 0.0);
        for modules in 0..=2 {
            for index in [0.0, 1.0] {
                let searches = hits + (1.0 - hits) * fpr.powi(modules);
                let cost = searches * (2.0 - index);
                let bytes = files[level] * (640.0 * f64::from(modules) + 900.0 * index);
                if cost + price * bytes < best.0 {
                    best = (cost + price * bytes, cost, bytes);
                }
            }
        }
        best
    };
    let at = |price: f64| {
        (0..files.len())
            .map(|level| options(level, price))
            .fold((0.0, 0.0), |sum, one| (sum.0 + one.1, sum.1 + one.2))
    };
    let (mut dear, mut cheap) = (10.0, 0.0);
    for _ in 0..200 {
        let middle = (dear + cheap) / 2.0;
        if at(middle).1 <= budget { dear = middle } else { cheap = middle }
    }
    let ((cost, bytes), (less, more)) = (at(dear), at(cheap));
    if more <= bytes {
        return cost;
    }
    let share = ((budget - bytes) / (more - bytes)).min(1.0);
    cost + share * (less - cost)
}

#[test]
fn prices_fall_as_memory_grows_and_end_at_nothing() {
    let mut dice = Dice(7);
    let files: Vec<FileMemory> = (0..200).map(|_| random_file(&mut dice, 8)).collect();
    let all: u64 = files.iter().map(|file| bytes_of(&file.modules) + file.index.bytes).sum();
    let mut last = f64::INFINITY;
    for budget in (0..=20).map(|part| all * part / 20) {
        let plan = plan_jointly(&files, plain(0.0), budget).unwrap();
        assert!(plan.gain_per_byte <= last, "{budget} bytes");
        assert!(plan.bytes <= budget);
        last = plan.gain_per_byte;
    }
    assert_eq!(last, 0.0);
}

#[test]
fn what_is_held_stays_unless_something_saves_clearly_more() {
    for seed in 0..100 {
        let mut dice = Dice(seed + 2000);
        let mut files: Vec<FileMemory> = (0..30).map(|_| random_file(&mut dice, 1)).collect();
        let all: u64 = files.iter().map(|file| bytes_of(&file.modules) + file.index.bytes).sum();
        let first = plan_jointly(&files, plain(0.0), all / 2).unwrap();
        for (at, file) in files.iter_mut().enumerate() {
            file.held_modules = first.slices[at].iter().take_while(|slices| **slices > 0).count();
            file.asked_now = file.held_modules;
            file.holds_index = first.partitions[at] > 0;
            // Measurements that differ slightly.
            file.probes.empty_per_second *= 0.99 + 0.02 * dice.share();
        }
        let margin = 0.1;
        let kept = plan_jointly(&files, Weighing { margin, ..Weighing::default() }, all / 2).unwrap();
        let anew = plan_jointly(&files, plain(0.0), all / 2).unwrap();
        let moved =
            |plan: &JointPlan| (0..files.len()).filter(|at| plan.slices[*at] != first.slices[*at]).count();
        assert!(moved(&kept) <= moved(&anew), "seed {seed}");
        assert!(kept.cost_ns_per_second <= anew.cost_ns_per_second * (1.0 + 2.0 * margin), "seed {seed}");
    }
}

#[test]
fn nonsense_is_refused() {
    let good = FileMemory {
        probes: FileProbes { empty_per_second: 1.0, found_per_second: 1.0 },
        seeks_per_second: 0.0,
        data_ns: 1.0,
        index_ns: 1.0,
        modules: vec![Module { bytes: 64, slices: 1, fpr: 0.1 }],
        asked_modules: 0,
        fetch: ReadPrice::fixed(NEVER),
        index: FileIndex { bytes: 10, partitions: 2 },
        held_modules: 0,
        asked_now: 0,
        holds_index: false,
    };
    assert!(plan_jointly(std::slice::from_ref(&good), plain(0.0), 100).is_ok());
    for bad in [
        FileMemory { data_ns: f64::NAN, ..good.clone() },
        FileMemory { index_ns: -1.0, ..good.clone() },
        FileMemory { fetch: ReadPrice::fixed(f64::INFINITY), ..good.clone() },
        FileMemory { seeks_per_second: -1.0, ..good.clone() },
        FileMemory { index: FileIndex { bytes: 1, partitions: 2 }, ..good.clone() },
        FileMemory { modules: vec![Module { bytes: 0, slices: 1, fpr: 0.1 }], ..good.clone() },
        FileMemory { modules: vec![Module { bytes: 64, slices: 1, fpr: 1.5 }], ..good.clone() },
    ] {
        let error = plan_jointly(&[good.clone(), bad], plain(0.0), 100).unwrap_err();
        assert!(error.starts_with("file 1: "), "{error}");
    }
    assert!(plan_jointly(&[good], plain(f64::NAN), 100).is_err());
}

#[test]
fn seeks_are_worth_an_index_and_no_filter() {
    let file = FileMemory {
        probes: FileProbes { empty_per_second: 100.0, found_per_second: 1.0 },
        seeks_per_second: 0.0,
        data_ns: 1000.0,
        index_ns: 1000.0,
        modules: vec![Module { bytes: 100, slices: 1, fpr: 0.1 }],
        asked_modules: 0,
        fetch: ReadPrice::fixed(NEVER),
        index: FileIndex { bytes: 100, partitions: 1 },
        held_modules: 0,
        asked_now: 0,
        holds_index: false,
    };
    let plan = |seeks_per_second| {
        let file = FileMemory { seeks_per_second, ..file.clone() };
        let plan = plan_jointly(&[file], plain(0.0), 100).unwrap();
        (plan.slices[0][0], plan.partitions[0], plan.cost_ns_per_second.round())
    };
    // The module saves 90 searches of 2,000 ns; without it the index saves 1,000 ns per search.
    assert_eq!(plan(0.0), (1, 0, 11.0 * 2000.0));
    assert_eq!(plan(50.0), (1, 0, 61.0 * 2000.0));
    assert_eq!(plan(100.0), (0, 1, 201.0 * 1000.0));
}

#[test]
fn a_module_is_fetched_where_that_costs_less_than_the_search_that_it_spares() {
    let file = FileMemory {
        probes: FileProbes { empty_per_second: 100.0, found_per_second: 1.0 },
        seeks_per_second: 0.0,
        data_ns: 1000.0,
        index_ns: 200.0,
        modules: vec![Module { bytes: 100, slices: 1, fpr: 0.1 }; 2],
        asked_modules: 0,
        fetch: ReadPrice::fixed(1000.0),
        index: FileIndex { bytes: 1000, partitions: 1 },
        held_modules: 0,
        asked_now: 0,
        holds_index: false,
    };
    let plan =
        |file: &FileMemory, budget| plan_jointly(std::slice::from_ref(file), plain(0.0), budget).unwrap();
    // Nothing fits: 101 fetches save 90 searches of 1,200 ns; 11 more would save only 9.
    let nothing = plan(&file, 0);
    assert_eq!((&nothing.slices[0][..], nothing.fetched[0]), (&[0, 0][..], 1));
    assert!((nothing.cost_ns_per_second - 114_200.0).abs() < 1e-6, "{nothing:?}");
    assert_eq!(plan(&FileMemory { index_ns: 300.0, ..file.clone() }, 0).fetched, [2]);
    // With the index in memory a search costs as much as a fetch, so fetching no longer pays.
    let dear = FileMemory { modules: vec![Module { bytes: 9000, slices: 1, fpr: 0.1 }], ..file.clone() };
    let with_index = plan(&dear, 1000);
    assert_eq!((with_index.partitions[0], with_index.fetched[0]), (1, 0));
    // Modules that must not be skipped are fetched at any price, unless they are in memory.
    assert_eq!(
        plan(&FileMemory { asked_modules: 2, fetch: ReadPrice::fixed(1e9), ..file.clone() }, 0).fetched,
        [2]
    );
    let all = plan(&file, 1200);
    assert_eq!((&all.slices[0][..], all.fetched[0]), (&[1, 1][..], 0));
}

#[test]
fn a_long_module_is_not_fetched_where_a_short_one_is() {
    let of = |module_bytes: u64, slices: u32| FileMemory {
        probes: FileProbes { empty_per_second: 100.0, found_per_second: 1.0 },
        seeks_per_second: 0.0,
        data_ns: 1.0,
        index_ns: 8.0,
        modules: vec![Module { bytes: module_bytes, slices, fpr: 0.1 }],
        asked_modules: 0,
        fetch: ReadPrice::of_pages(1.0),
        index: FileIndex { bytes: 32 << 10, partitions: 1 },
        held_modules: 0,
        asked_now: 0,
        holds_index: false,
    };
    let fetched = |file: FileMemory| plan_jointly(&[file], plain(0.0), 0).unwrap().fetched[0];
    // A search is 9 pages, of which nine tenths are saved: a fetch of 20 pages does not pay, one of
    // 8 does.
    assert_eq!([fetched(of(80 << 10, 1)), fetched(of(32 << 10, 1))], [0, 1]);
    assert_eq!(fetched(of(80 << 10, 10)), 1, "only a slice of it is read");
}

#[test]
fn what_saves_nothing_rests_where_it_is_as_long_as_nothing_else_wants_the_memory() {
    // All keys are found: no probe of a filter saves a search.
    let file = FileMemory {
        probes: FileProbes { empty_per_second: 0.0, found_per_second: 100.0 },
        seeks_per_second: 0.0,
        data_ns: 1000.0,
        index_ns: 200.0,
        modules: vec![Module { bytes: 100, slices: 4, fpr: 0.1 }; 3],
        asked_modules: 0,
        fetch: ReadPrice::fixed(NEVER),
        index: FileIndex { bytes: 1000, partitions: 1 },
        held_modules: 2,
        asked_now: 2,
        holds_index: true,
    };
    let weighing = Weighing { keeps: true, ..plain(8.0) };
    let of = |file: &FileMemory, budget| {
        let plan = plan_jointly(std::slice::from_ref(file), weighing, budget).unwrap();
        assert!(plan.bytes <= budget);
        (plan.slices[0].clone(), plan.dormant[0].clone(), plan.partitions[0])
    };
    assert_eq!(
        of(&file, 5000),
        (vec![4, 4, 0], 0..2, 1),
        "the third was not in memory: nothing is read in to rest"
    );
    assert_eq!(of(&file, 1199), (vec![4, 0, 0], 0..1, 1), "the index comes first");
    assert_eq!(of(&file, 1099), (vec![0, 0, 0], 0..0, 1));
    // A dormant module costs nothing, and none stays unless `keeps` is set.
    let [dormant, gone] = [weighing, plain(8.0)]
        .map(|weighing| plan_jointly(std::slice::from_ref(&file), weighing, 5000).unwrap());
    assert_eq!(dormant.cost_ns_per_second, gone.cost_ns_per_second);
    assert_eq!((&gone.slices[0][..], gone.bytes), (&[0, 0, 0][..], 1000));
    // Some keys are absent: the first module is probed, the second is dormant.
    let mixed = FileMemory { probes: FileProbes { empty_per_second: 4.0, ..file.probes }, ..file.clone() };
    assert_eq!(of(&mixed, 5000), (vec![4, 4, 0], 1..2, 1));
    // A hundredth of the lookups may shift: modules are probed where the cost of a search outweighs
    // their probes.
    let doubting = |data_ns| {
        let weighing = Weighing { shift_part: 0.01, ..weighing };
        let file = FileMemory { data_ns, ..file.clone() };
        let plan = plan_jointly(&[file], weighing, 5000).unwrap();
        (plan.slices[0].clone(), plan.dormant[0].clone())
    };
    assert_eq!(doubting(800.0), (vec![4, 4, 0], 0..2), "0.9 * 8 < 8");
    assert_eq!(doubting(900.0), (vec![4, 4, 0], 1..2));
    assert_eq!(doubting(9_000.0), (vec![4, 4, 0], 2..2));
    // Modules that must not be skipped are not dormant.
    for fetch_ns in [0.0, 2000.0] {
        let asked = FileMemory { asked_modules: 1, fetch: ReadPrice::fixed(fetch_ns), ..file.clone() };
        assert_eq!(of(&asked, 5000), (vec![4, 4, 0], 1..2, 1), "{fetch_ns}");
    }
    // A search that costs about as much as the probes: active modules stay active and dormant ones
    // dormant.
    let wavering = |asked_now| {
        let weighing = Weighing { shift_part: 0.01, margin: 0.1, ..weighing };
        let file = FileMemory { asked_now, data_ns: 890.0, ..file.clone() };
        plan_jointly(&[file], weighing, 5000).unwrap().dormant[0].clone()
    };
    assert_eq!([wavering(2), wavering(0)], [1..2, 0..2]);
}

#[test]
fn what_is_kept_takes_nothing_from_what_saves() {
    for seed in 0..500 {
        let mut dice = Dice(seed);
        let mut files: Vec<FileMemory> = (0..3).map(|_| random_file(&mut dice, 3)).collect();
        for file in &mut files {
            file.held_modules = dice.below(file.modules.len() as u64 + 1) as usize;
            file.asked_now = dice.below(file.held_modules as u64 + 1) as usize;
            file.fetch = ReadPrice::fixed(if dice.below(2) == 0 { NEVER } else { 300.0 });
        }
        let budget = dice.below(600);
        let weighing = plain(200.0);
        let without = plan_jointly(&files, weighing, budget).unwrap();
        let kept = plan_jointly(&files, Weighing { keeps: true, ..weighing }, budget).unwrap();
        let doubting = Weighing { keeps: true, shift_part: 0.1, ..weighing };
        let doubting = plan_jointly(&files, doubting, budget).unwrap();
        assert!(kept.cost_ns_per_second <= without.cost_ns_per_second * (1.0 + 1e-9), "seed {seed}");
        assert_eq!((&kept.partitions, &kept.fetched), (&without.partitions, &without.fetched), "seed {seed}");
        assert!(kept.bytes <= budget && kept.bytes == without.bytes + kept.kept_bytes, "seed {seed}");
        assert_eq!(kept.gain_per_byte, without.gain_per_byte, "seed {seed}");
        assert!(doubting.bytes <= budget, "seed {seed}");
        for (at, file) in files.iter().enumerate() {
            for (number, module) in file.modules.iter().enumerate() {
                let (with, without) = (kept.slices[at][number], without.slices[at][number]);
                let is_prefix = number == 0 || kept.slices[at][number - 1] == file.modules[number - 1].slices;
                let stays = number < file.held_modules && is_prefix && (with, without) == (module.slices, 0);
                assert!(with == without || stays, "seed {seed}: in whole, where it was, or not at all");
            }
            for dormant in [&kept.dormant[at], &doubting.dormant[at]] {
                assert!(dormant.end <= file.held_modules || dormant.is_empty(), "seed {seed}");
            }
        }
    }
}
