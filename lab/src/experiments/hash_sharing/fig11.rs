//! Figure 11: what one digest saves of empty lookups, by device.

use super::claims::{Claim, Held, judge};
use super::gains::{DIGESTS, Gain, chart, percent, table};
use super::over_keys::OverKeys;
use crate::chart::Axis;
use crate::device::why_not_direct;
use crate::lookups::{Questions, Spread};
use crate::table::Cell;
use crate::{Device, Experiment, Finding, Kind, Lab, Paper, Parameter, Scale};

const DEVICES: [Device; 6] =
    [Device::Disk, Device::PageCache, Device::Ssd, Device::Pcie, Device::Nvm, Device::Memory];
/// The paper's, and those that the gain is largest with.
const KEY_BYTES: [usize; 2] = [512, 1_024];

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "hash-sharing-fig11",
    paper: Paper::HashSharing,
    kind: Kind::Measured,
    place: "Fig 11",
    title: "gain of empty lookups by device, direct and through the system's cache",
    claim: "The gain is 10 % on an SSD and over 40 % on a RAM disk or NVM; it is higher where the system's cache serves reads.",
    parameters,
    run,
};

fn trees(scale: Scale) -> OverKeys {
    OverKeys {
        name: "fig11",
        keys_bytes: &KEY_BYTES,
        entry_bytes: 2_048,
        entries: scale.pick(55_555, 444_440, 11_000_000),
        lookups: scale.count(8_000, 100_000, 1_000_000),
    }
}

fn parameters(scale: Scale) -> Vec<Parameter> {
    trees(scale).parameters([Parameter::varied("device", DEVICES.map(Device::name))])
}

fn series(digest_name: &str, key_bytes: usize) -> String {
    format!("{digest_name}, keys of {key_bytes} B")
}

/// What is left of a lookup is less where the system's cache serves reads, so the gain is higher.
fn higher_where_cached(disk: Option<Spread>, cached: Option<Spread>, not_direct: Option<&str>) -> Claim {
    match (disk, cached, not_direct) {
        (Some(disk), Some(cached), None) => {
            Claim::grows("from this machine's disk, read directly and through the cache, it", disk, cached)
        }
        (.., why) => Claim::new(
            Held::InPart,
            format!("the disk was not read past the cache: {}", why.unwrap_or("nothing was measured")),
        ),
    }
}

/// What the paper has of each share that was measured.
fn claims(shares: &[(&str, Option<f64>, f64)]) -> Vec<Claim> {
    let claim =
        |(what, share, claimed): &(&str, Option<f64>, f64)| Some(Claim::at_least(what, (*share)?, *claimed));
    shares.iter().filter_map(claim).collect()
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let not_direct = why_not_direct(lab.dir())?;
    let of_lab = lab.devices(&DEVICES)?;
    let is_there = |device: &Device| *device != Device::Disk || not_direct.is_none();
    let devices: Vec<Device> = of_lab.here.into_iter().filter(is_there).collect();
    let mut gains = Vec::new();
    let trees = trees(lab.scale);
    for on in [Device::PageCache, Device::Memory] {
        trees.each(lab, on, |lab, tree, (name, key_bytes)| {
            let series = series(name, key_bytes);
            for (place, device) in devices.iter().enumerate() {
                if device.is_in_memory() == on.is_in_memory() {
                    let questions = Questions::uniform(1.0, trees.lookups);
                    let at = (series.as_str(), place as f64, Cell::from(device.name()));
                    gains.push(Gain::measure(lab, tree, *device, &questions, at)?);
                }
            }
            Ok(())
        })?;
    }
    let of = |device: Device, key_bytes: usize| {
        let series = series(DIGESTS[0].1, key_bytes);
        let place = devices.iter().position(|one| *one == device)? as f64;
        gains.iter().find(|gain| gain.x == place && gain.series == series)
    };
    let median = |device: Device, key_bytes| of(device, key_bytes).map(|gain| gain.gain().median);
    let [paper_keys, long_keys] = KEY_BYTES;
    let disk = of(Device::Disk, paper_keys).map(Gain::gain);
    let cached = of(Device::PageCache, paper_keys).map(Gain::gain);
    let shares = [
        ("from memory the gain is", median(Device::Memory, paper_keys), 0.4),
        ("on NVM", median(Device::Nvm, paper_keys), 0.4),
        ("on NVM with keys of 1 KB", median(Device::Nvm, long_keys), 0.4),
        ("on an SSD", median(Device::Ssd, paper_keys), 0.1),
    ];
    let mut claims = claims(&shares);
    claims.push(higher_where_cached(disk, cached, not_direct.as_deref()));
    let (verdict, why) =
        judge(&claims, || of(Device::Memory, paper_keys).map_or_else(String::new, Gain::because));
    let of_keys = |key_bytes: usize| {
        let of: Vec<String> = devices
            .iter()
            .filter_map(|device| Some(format!("{} {}", device.name(), percent(median(*device, key_bytes)?))))
            .collect();
        of.join(", ")
    };
    let finding = Finding {
        ours: format!(
            "With the paper's hash function and keys of {paper_keys} B: {}. With keys of 1 KB: {}.",
            of_keys(paper_keys),
            of_keys(long_keys)
        ),
        verdict,
        why,
        table: table("device", &gains),
        chart: chart(
            "What one digest saves of an empty lookup, by device",
            EXPERIMENT.claim,
            "T = 10, 5 levels, entries of 2 KB, 10 bits per key. Devices with a latency in their name are emulated. Markers: Equation 8 where the device has a time.",
            Axis::categories("device", devices.iter().map(|device| device.name())),
            &gains,
        ),
    };
    Ok(finding.without(&of_lab.missing))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verdict;

    #[test]
    fn the_verdict_follows_the_gains_that_were_measured() {
        let verdict = |memory, nvm, ssd| {
            let claims = claims(&[("", Some(memory), 0.4), ("", nvm, 0.4), ("", Some(ssd), 0.1)]);
            (claims.len(), judge(&claims, String::new).0)
        };
        assert_eq!(verdict(0.5, Some(0.5), 0.1), (3, Verdict::Confirmed));
        assert_eq!(verdict(0.5, Some(0.5), 0.05), (3, Verdict::Partly));
        assert_eq!(verdict(0.05, Some(0.5), 0.1), (3, Verdict::NotHere));
        assert_eq!(verdict(0.5, None, 0.1), (2, Verdict::Confirmed), "the finding says what is left out");
    }

    #[test]
    fn a_disk_that_cannot_be_read_directly_confirms_nothing() {
        let spread = |median: f64| Some(Spread { median, least: median - 0.01, most: median + 0.01 });
        let held = |disk, cached, why| higher_where_cached(disk, cached, why).held;
        assert_eq!(held(spread(0.1), spread(0.3), None), Held::Fully);
        assert_eq!(held(spread(0.3), spread(0.1), None), Held::Not);
        assert_eq!(held(None, spread(0.3), Some("in memory")), Held::InPart);
    }
}
