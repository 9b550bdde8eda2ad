//! Ours: what one digest makes possible, beside what it saves.
//!
//! With XXH3 and short keys hashing is next to nothing of a lookup. A digest that is there before anything else is looked at allows more: the
//! filters of all runs are asked for in memory before the first is tested, tags in data blocks find an entry without comparing
//! keys, and a call for many keys asks for the lines of all of them before it tests one. They are switched on one after the other here, on trees that are
//! otherwise the same; a call for many keys gives values of their own, where the others look at them in the block. What the digest does in the memtable is [`super::memtable`].

use crate::chart::{Axis, Chart, Panel, Point, Series, Style};
use shamba::DigestKind;

use super::claims::{Claim, Held, judge};
use super::gains::percent;
use super::hashes::{Hash, hash_ns};
use crate::lookups::{Questions, Side, Spread, compare};
use crate::table::row;
use crate::tree::{Spec, Tree};
use crate::{Device, Experiment, Finding, Kind, Lab, Paper, Parameter, Scale, Table};

const KEY_BYTES: usize = 16;
const ENTRY_BYTES: usize = 116;
const SIZE_RATIO: f64 = 4.0;
const LEVELS: u32 = 6;
/// A budget that holds all blocks: what memory costs, not what a device does.
const BUDGET_BYTES: u64 = 2 << 30;

/// A step: its name, the switches of the open, whether blocks have tags.
type OnStep = (&'static str, &'static [(&'static str, &'static str)], bool);

/// What is switched on besides what the ones before have.
const STEPS: [OnStep; 5] = [
    ("nothing", &[("hash-sharing", "off"), ("prefetch", "off")], false),
    ("one digest", &[("prefetch", "off")], false),
    ("and prefetch", &[], false),
    ("and block tags", &[], true),
    ("and 32 keys a call", &[], true),
];

/// Their places.
const ONE_DIGEST: usize = 1;
const PREFETCH: usize = 2;
const TAGS: usize = 3;
const MANY: usize = 4;
const KEYS_A_CALL: usize = 32;

/// What is next to nothing of a lookup's time.
const NEXT_TO_NOTHING: f64 = 0.05;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "hash-sharing-parts",
    paper: Paper::HashSharing,
    kind: Kind::Ours,
    place: "ours",
    title: "what one digest saves, and what it makes possible, with short keys",
    claim: "(Ours) With XXH3 and keys of 16 bytes hashing itself is next to nothing; the gain of one digest is what it makes possible: prefetched filters, tags in blocks, many keys a call.",
    parameters,
    run,
};

fn entries(scale: Scale) -> u64 {
    scale.count(400_000, 2_000_000, 10_000_000)
}

fn parameters(scale: Scale) -> Vec<Parameter> {
    vec![
        Parameter::varied("switched on", STEPS.map(|(name, ..)| name)),
        Parameter::varied("empty fraction", [1, 0]),
        Parameter::fixed("digest", "XXH3 (ours)"),
        Parameter::fixed("blocks", "all in memory"),
        Parameter::fixed("key bytes", KEY_BYTES),
        Parameter::fixed("entry bytes", ENTRY_BYTES),
        Parameter::fixed("entries", entries(scale)),
        Parameter::fixed("size ratio", SIZE_RATIO),
        Parameter::fixed("levels", LEVELS),
        Parameter::fixed("bits per key", 10),
    ]
}

/// Of empty lookups and of those that find, what each step saves over nothing and over one digest: one digest next to nothing, what it makes possible
/// more than repeats differ. The last of the three is what a step saves over the one before.
fn claims(empty: &[[Spread; 3]], found: &[[Spread; 3]]) -> Vec<Claim> {
    let at = |savings: &[[Spread; 3]], step: usize| {
        savings.get(step).copied().unwrap_or([Spread::of(Vec::new()); 3])
    };
    let more = |what: &str, more: Spread, than: &str| {
        let text = format!(
            "{what} {} more than {than} ({} to {})",
            percent(more.median),
            percent(more.least),
            percent(more.most)
        );
        match more {
            Spread { least, .. } if least > 0.0 => Claim::new(Held::Fully, text),
            Spread { median, .. } if median > 0.0 => Claim::new(Held::InPart, text),
            _ => Claim::new(Held::Not, text),
        }
    };
    let hashing = at(empty, ONE_DIGEST)[0].median.max(at(found, ONE_DIGEST)[0].median);
    let next_to_nothing = Claim::is(
        hashing <= NEXT_TO_NOTHING,
        format!("one digest alone saves {}, which is more than next to nothing", percent(hashing)),
    );
    vec![
        more("prefetch and tags save lookups that find", at(found, TAGS)[1], "one digest alone"),
        more("prefetch saves empty lookups", at(empty, PREFETCH)[1], "one digest alone"),
        more("many keys a call save empty lookups", at(empty, MANY)[2], "one key a call"),
        more("many keys a call save lookups that find", at(found, MANY)[2], "one key a call"),
        next_to_nothing,
    ]
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let mut spec = Spec::leveled(entries(lab.scale), (KEY_BYTES, ENTRY_BYTES), SIZE_RATIO, LEVELS);
    spec.digest = DigestKind::Xxh3;
    let untagged = Tree::lay(lab, "untagged", Spec { block_tags: false, ..spec }, Device::Memory)?;
    let tagged = Tree::lay(lab, "tagged", spec, Device::Memory)?;
    let mut table = Table::new(&[
        "switched_on",
        "empty_fraction",
        "lookup_ns",
        "lookup_least_ns",
        "lookup_most_ns",
        "lookups",
        "saved_share",
        "saved_more_than_by_one_digest_share",
        "hashes_per_get",
        "levels",
        "runs",
        "comparable",
        "emulated",
    ]);
    let mut series = Vec::new();
    let mut savings = Vec::new();
    let (mut hashes, mut lookup_ns) = (0.0, 0.0);
    for (empty_fraction, name) in [(1.0, "lookups that find nothing"), (0.0, "lookups that find their key")] {
        lab.at(name);
        let open = |(_, switches, tags): &OnStep| {
            let tree = if *tags { &tagged } else { &untagged };
            tree.open_within(Device::Memory, BUDGET_BYTES, switches, |builder| builder)
        };
        let dbs = STEPS.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let sides: Vec<&shamba::Db> = dbs.iter().collect();
        let lookups = lab.scale.count(60_000, 400_000, 2_000_000);
        let in_one_call = Some((MANY, KEYS_A_CALL));
        let questions = Questions { in_one_call, ..Questions::uniform(empty_fraction, lookups) };
        // Once over, so that blocks are where they will be.
        let warm = Questions { lookups: 2 * lookups, ..questions.clone() };
        compare(lab, &tagged, &sides, &warm)?;
        let found: Vec<Side> = compare(lab, &tagged, &sides, &questions)?;
        if empty_fraction == 1.0 {
            (hashes, lookup_ns) = (found[0].per_lookup(found[0].stats.hashes), found[0].ns.median);
        }
        let mut points = Vec::new();
        let mut saved_of = Vec::new();
        for (place, (side, (step, ..))) in found.iter().zip(STEPS).enumerate() {
            let (saved, more) = (side.gain_over(&found[0]), side.gain_over(&found[ONE_DIGEST]));
            let step_saved = side.gain_over(&found[place.saturating_sub(1)]);
            let [levels, runs, comparable, emulated] = side.shape(LEVELS, u64::from(LEVELS));
            table.row(row![
                step,
                empty_fraction,
                side.ns.median,
                side.ns.least,
                side.ns.most,
                side.stats.lookups,
                saved.median,
                more.median,
                side.per_lookup(side.stats.hashes),
                levels,
                runs,
                comparable,
                emulated,
            ]);
            points.push(Point::between(place as f64, side.ns.median, side.ns.least, side.ns.most));
            saved_of.push([saved, more, step_saved]);
        }
        savings.push(saved_of);
        series.push(Series::new(name, Style::Bars, points));
    }
    untagged.discard(lab)?;
    tagged.discard(lab)?;
    let [empty, found] = &savings[..] else { return Err("two kinds of lookups are asked".to_owned()) };
    let filter_bytes = (entries(lab.scale) as f64 * spec.bits.per_key / 8.0) as u64;
    let (verdict, why) = judge(&claims(empty, found), || {
        format!(
            "An empty lookup hashes {hashes:.1} times without sharing, {:.0} ns each, of {lookup_ns:.0} ns in all. All filters have {} KB together: \
             prefetching saves where they do not lie in a cache of the processor.",
            hash_ns(Hash::Xxh3, KEY_BYTES, lab.repeats).median,
            filter_bytes >> 10
        )
    });
    let of = |savings: &[[Spread; 3]], step: usize| {
        savings.get(step).map_or_else(String::new, |[saved, ..]| percent(saved.median))
    };
    Ok(Finding {
        ours: format!(
            "Empty lookups: {} saved by one digest alone, {} with prefetch, {} with {KEYS_A_CALL} keys a call. Lookups that find: {} and {}, {} with tags, {} with \
             {KEYS_A_CALL} keys a call.",
            of(empty, ONE_DIGEST),
            of(empty, PREFETCH),
            of(empty, MANY),
            of(found, ONE_DIGEST),
            of(found, PREFETCH),
            of(found, TAGS),
            of(found, MANY)
        ),
        verdict,
        why,
        table,
        chart: Chart {
            title: "What one digest saves, and what it makes possible".to_owned(),
            claim: EXPERIMENT.claim.to_owned(),
            note: "Each step has what is left of it, too. Keys of 16 B, XXH3, 6 levels, T = 4, 10 bits per key, every block in memory.".to_owned(),
            panels: vec![Panel {
                title: String::new(),
                x: Axis::categories("switched on", STEPS.map(|(name, ..)| name)),
                y: Axis::from_zero("time of a lookup [ns]"),
                series,
            }],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verdict;

    #[test]
    fn what_hashing_saves_is_not_counted_for_what_it_makes_possible() {
        let spread = |median: f64| Spread { median, least: median - 0.01, most: median + 0.01 };
        let verdict = |hashing: f64, prefetch: f64, tags: f64, many: f64| {
            let steps = |tagged: f64| {
                let with = |more: f64, step: f64| [hashing + more, more, step];
                let prefetched = with(prefetch, prefetch);
                let tagged_step = with(tagged, tagged - prefetch);
                [[0.0; 3], with(0.0, hashing), prefetched, tagged_step, with(tagged + many, many)]
            };
            let savings = |tagged: f64| steps(tagged).map(|step| step.map(spread));
            judge(&claims(&savings(prefetch), &savings(tags)), String::new).0
        };
        assert_eq!(verdict(0.03, 0.1, 0.2, 0.1), Verdict::Confirmed);
        assert_eq!(verdict(0.40, 0.1, 0.2, 0.1), Verdict::Partly);
        assert_eq!(verdict(0.03, 0.005, 0.2, 0.1), Verdict::Partly);
        assert_eq!(verdict(0.03, -0.1, 0.2, 0.1), Verdict::Partly);
        assert_eq!(verdict(0.03, 0.1, 0.2, -0.05), Verdict::Partly, "and less than without");
        assert_eq!(verdict(0.40, 0.1, -0.01, 0.1), Verdict::NotHere);
    }
}
