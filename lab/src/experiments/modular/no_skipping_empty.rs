//! The slide "Impact of number of modules" without skipping, over the share of empty lookups.
//!
//! The claim has three parts: empty lookups gain, the more the more of them there are, and the more modules the more. All together confirm it.
//!
//! Not here: the same over memory ([`super::no_skipping`]).

use super::approaches::STATE_OF_THE_ART;
use super::figure::{percent, table};
use super::measure::Comparison;
use super::modules::{
    EMPTY_NOTE, EMPTY_SHARES, MEMORY_SHARE, NONE, empty_chart, first_gain, over_empty, parameters_over_empty,
    saved_at,
};
use super::trees::Extent;
use crate::{Experiment, Finding, Kind, Lab, Paper, Parameter, Scale, Verdict};

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "shamba-modules-no-skipping-empty",
    paper: Paper::ModularFilters,
    kind: Kind::Measured,
    place: "slide \"Impact of number of modules\", no skipping, over the empty share",
    title: "I/Os of a lookup with 1, 2, 3 and 7 modules over the share of empty lookups",
    claim: "Without skipping, modules enhance empty lookups: the more of them, the more smaller modules gain; they are of no use for keys that are there.",
    parameters,
    run,
};

fn parameters(scale: Scale) -> Vec<Parameter> {
    parameters_over_empty(scale, "none")
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let readings =
        Comparison { extent: Extent::for_seven(lab.scale), ..over_empty(lab.scale, &NONE) }.run(lab)?;
    let gains =
        |name: &str| EMPTY_SHARES.map(|empty| saved_at(&readings, STATE_OF_THE_ART.name, name, empty).0);
    let all: Vec<[f64; EMPTY_SHARES.len()]> = NONE.iter().skip(1).map(|one| gains(one.name)).collect();
    let told = |at: usize| all.iter().map(|gains| percent(gains[at])).collect::<Vec<_>>().join(", ");
    let last = EMPTY_SHARES.len() - 1;
    let rises = all.iter().all(|gains| gains[last] > gains[0]);
    let helps = all.iter().any(|gains| gains[last] >= 0.1);
    let from = all.first().and_then(first_gain);
    // Each number of modules against the next fewer, one included, and surely: its worst repeat against the other's best.
    let in_order = NONE.windows(2).all(|pair| {
        matches!(pair, [fewer, more] if saved_at(&readings, fewer.name, more.name, EMPTY_SHARES[last]).1 > 0.0)
    });
    let verdict = verdict(rises, helps, in_order);
    Ok(Finding {
        ours: format!(
            "With {} of the memory, 2, 3 and 7 modules save {} of the I/Os if no key is there and {} if all are{}{}.",
            percent(MEMORY_SHARE),
            told(last),
            told(0),
            from.map_or_else(String::new, |empty| format!(
                "; two modules gain from {} empty lookups on",
                percent(empty)
            )),
            if in_order {
                "; the more modules, the more is saved"
            } else {
                "; more modules do not always save more"
            }
        ),
        verdict,
        why: why(in_order),
        table: table(&readings),
        chart: empty_chart(
            "Modules without skipping",
            &EXPERIMENT,
            EMPTY_NOTE,
            &readings,
            &[STATE_OF_THE_ART.name, NONE[3].name],
        ),
    })
}

/// Whether what is saved rises with the share of empty lookups, whether it is something, and whether it rises with the number of modules.
fn verdict(rises: bool, helps: bool, in_order: bool) -> Verdict {
    match (rises, helps, in_order) {
        (true, true, true) => Verdict::Confirmed,
        (false, false, _) => Verdict::NotHere,
        _ => Verdict::Partly,
    }
}

fn why(in_order: bool) -> String {
    let found = "A key that is there passes all modules of its file's filter, and reads each of them that is not in memory.";
    if in_order {
        return found.to_owned();
    }
    format!(
        "{found} And a key that is absent passes the first modules the more often the fewer bits these have: from some number on, what it reads of the later \
         ones is more than smaller ones spare."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gain_that_rises_with_empty_lookups_and_modules_confirms() {
        assert_eq!(
            [
                verdict(true, true, true),
                verdict(true, true, false),
                verdict(false, true, true),
                verdict(true, false, true),
                verdict(false, false, true)
            ],
            [Verdict::Confirmed, Verdict::Partly, Verdict::Partly, Verdict::Partly, Verdict::NotHere]
        );
        assert!(why(false).starts_with(&why(true)) && why(false).contains("later"));
    }
}
