//! The slide "SHaMBa on various Devices": the time of a lookup under memory pressure on emulated devices.
//!
//! Not here: reads that are counted ([`super::rocksdb_equal`]).

use crate::chart::{Axis, Chart, Panel, Point, Series, Style};

use super::approaches::{Approach, EQ, EQ_F, EQ_P, PLANNED, STATE_OF_THE_ART, names};
use super::figure::{FASTER, percent, table, time_saved};
use super::measure::{Comparison, Effort, Reading, Setting};
use super::modules::MEMORY_SHARE;
use super::trees::Extent;
use crate::lookups::Spread;
use crate::{Device, Experiment, Finding, Kind, Lab, Paper, Parameter, Scale, Verdict};

const DEVICES: [Device; 5] = [Device::Ssd, Device::Pcie, Device::Spdk, Device::Nvm, Device::Memory];
const APPROACHES: [Approach; 5] = [STATE_OF_THE_ART, EQ, EQ_P, EQ_F, PLANNED];
/// Decides the verdict; the others are shown.
const DECISIVE: Approach = EQ_F;
const EMPTY: f64 = 0.5;
/// From so long a read on, a lookup takes as long as its reads do.
const SLOW_NS: u64 = 5_000;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "shamba-devices",
    paper: Paper::ModularFilters,
    kind: Kind::Measured,
    place: "slide \"SHaMBa on various Devices\"",
    title: "time of a lookup under memory pressure on several devices",
    claim: "SHaMBa also benefits faster storage devices.",
    parameters,
    run,
};

fn parameters(scale: Scale) -> Vec<Parameter> {
    let own = [
        Parameter::varied("device", DEVICES.map(Device::name)),
        Parameter::varied("approach", names(&APPROACHES)),
        Parameter::fixed("memory, share of filters and indexes", MEMORY_SHARE),
        Parameter::fixed("empty fraction", EMPTY),
        Parameter::fixed("lookups a repeat, at most", Effort::timed(scale).lookups),
    ];
    own.into_iter().chain(Extent::emulated(scale).parameters()).collect()
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let setting = |device| Setting { memory_share: MEMORY_SHARE, empty_fraction: EMPTY, device };
    let devices = lab.devices(&DEVICES)?;
    let comparison = Comparison {
        extent: Extent::emulated(lab.scale),
        approaches: APPROACHES.to_vec(),
        settings: devices.here.iter().copied().map(setting).collect(),
        effort: Effort::timed(lab.scale),
    };
    let readings = comparison.run(lab)?;
    let gains = |approach: Approach| -> Vec<(Device, Spread)> {
        let of = |device: &Device| (*device, gain(&readings, approach.name, *device));
        devices.here.iter().map(of).collect()
    };
    let decisive = gains(DECISIVE);
    let told = |approach: Approach| {
        let each = gains(approach).into_iter().map(|(device, Spread { median, least, most })| {
            format!("{} {} ({} to {})", short(device), percent(median), percent(least), percent(most))
        });
        format!("{}: {}", approach.name, each.collect::<Vec<_>>().join(", "))
    };
    let finding = Finding {
        ours: format!(
            "Saved of a lookup's time, with the least and the most of the repeats. {}. Beside it, {}.",
            told(DECISIVE),
            [EQ, EQ_P, PLANNED].map(told).join("; ")
        ),
        verdict: verdict(&decisive),
        why: why(&decisive, ios_saved(&readings, &devices.here)),
        table: table(&readings),
        chart: chart(&readings, &devices.here),
    };
    Ok(finding.without(&devices.missing))
}

/// What the decisive approach spares of the state of the art's I/Os, on average over these devices.
fn ios_saved(readings: &[Reading], devices: &[Device]) -> f64 {
    let ios = |name: &str, device: &Device| {
        let is_it = |reading: &&Reading| reading.approach.name == name && reading.setting.device == *device;
        readings.iter().find(is_it).map_or(0.0, |reading| reading.ios.median)
    };
    let all = |name: &str| devices.iter().map(|device| ios(name, device)).sum::<f64>();
    1.0 - all(DECISIVE.name) / all(STATE_OF_THE_ART.name).max(f64::MIN_POSITIVE)
}

fn is_helped(gain: &Spread) -> bool {
    gain.median >= FASTER && gain.least > 0.0
}

/// Why a device does not gain, for each that does not; nothing where all do.
fn why(gains: &[(Device, Spread)], ios_saved: f64) -> String {
    let others: Vec<&(Device, Spread)> = gains.iter().filter(|(_, gain)| !is_helped(gain)).collect();
    let on = |is_wanted: &dyn Fn(&Device, &Spread) -> bool| {
        let of = others.iter().filter(|(device, gain)| is_wanted(device, gain));
        let names: Vec<&str> = of.map(|(device, _)| short(*device)).collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    let is_slow = |device: &Device| device.read_ns().is_some_and(|ns| ns >= SLOW_NS);
    let sentences = [
        on(&|_, gain| gain.most < 0.0).map(|on| format!("Slower in every repeat on {on}.")),
        on(&|_, gain| gain.least <= 0.0 && gain.most >= 0.0)
            .map(|on| format!("Not surely faster on {on}: not in every repeat.")),
        on(&|_, gain| gain.least > 0.0)
            .map(|on| format!("Faster in every repeat on {on}, but by less than {}.", percent(FASTER))),
        on(&|device, _| is_slow(device)).map(|on| {
            format!(
                "On {on} a lookup takes as long as its reads do, and of these {} spares {}: a key that is there reads every module.",
                DECISIVE.name,
                percent(ios_saved)
            )
        }),
        on(&|device, _| !is_slow(device)).map(|on| {
            format!("On {on} a read takes no longer than what the processor does for it: fewer or smaller reads hardly show.")
        }),
    ];
    sentences.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// The share of time that an approach saves on a device.
fn gain(readings: &[Reading], name: &str, device: Device) -> Spread {
    time_saved(readings, STATE_OF_THE_ART.name, name, |setting| setting.device == device)
}

/// The name without its latency.
fn short(device: Device) -> &'static str {
    device.name().split(' ').next().unwrap_or_default()
}

fn chart(readings: &[Reading], devices: &[Device]) -> Chart {
    let x = || Axis::categories("device", devices.iter().copied().map(short));
    let at = |device: Device| devices.iter().position(|other| *other == device).unwrap_or(0) as f64;
    let times = APPROACHES.iter().map(|approach| {
        let of_it = readings.iter().filter(|reading| reading.approach.name == approach.name);
        let points = of_it.filter_map(|reading| {
            let Spread { median, least, most } = reading.ns()?;
            Some(Point::between(at(reading.setting.device), median / 1e3, least / 1e3, most / 1e3))
        });
        Series::new(approach.name, Style::Line, points.collect())
    });
    let gains = APPROACHES.iter().skip(1).map(|approach| {
        let points = devices.iter().map(|device| {
            let Spread { median, least, most } = gain(readings, approach.name, *device);
            Point::between(at(*device), 100.0 * median, 100.0 * least, 100.0 * most)
        });
        Series::new(approach.name, Style::Bars, points.collect())
    });
    Chart {
        title: "Modules on slow and fast devices".to_owned(),
        claim: EXPERIMENT.claim.to_owned(),
        note: "Half of the keys absent; filters, indexes and data blocks have 40 % of what all filters and indexes take. T = 4, 5 levels, entries of 64 bytes, 10 bits per \
               key. SSD (113 us a read), PCIe (10 us), SPDK (7 us) and NVM (250 ns) are emulated. Bars: least and most of the repeats; lookups that waited for a processor are left out."
            .to_owned(),
        panels: vec![
            Panel { title: "time".to_owned(), x: x(), y: Axis::log("time of a lookup [us]"), series: times.collect() },
            Panel {
                title: "saved".to_owned(),
                x: x(),
                y: Axis::from_zero("time saved of the state of the art's [%]"),
                series: gains.collect(),
            },
        ],
    }
}

/// From slow to fast: something is saved on fast devices too, beyond noise.
fn verdict(gains: &[(Device, Spread)]) -> Verdict {
    let helped = gains.iter().filter(|(_, gain)| is_helped(gain)).count();
    match helped {
        0 => Verdict::NotHere,
        count if count == gains.len() => Verdict::Confirmed,
        _ => Verdict::Partly,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_device_must_gain_to_confirm() {
        let gain = |median, least| Spread { median, least, most: median + 0.1 };
        let (sure, noisy, none) = (gain(0.1, 0.05), gain(0.1, -0.01), gain(0.0, -0.1));
        let verdict =
            |gains: &[Spread]| verdict(&gains.iter().map(|gain| (Device::Memory, *gain)).collect::<Vec<_>>());
        assert_eq!(
            [
                verdict(&[sure, sure]),
                verdict(&[sure, none]),
                verdict(&[sure, noisy]),
                verdict(&[none]),
                verdict(&[noisy])
            ],
            [Verdict::Confirmed, Verdict::Partly, Verdict::Partly, Verdict::NotHere, Verdict::NotHere]
        );
    }

    #[test]
    fn the_reason_is_that_of_the_devices_that_do_not_gain() {
        let gain = |median: f64, by: f64| Spread { median, least: median - by, most: median + by };
        let why = |gains: &[(Device, Spread)]| why(gains, 0.04);
        assert_eq!(why(&[(Device::Ssd, gain(0.1, 0.01)), (Device::Nvm, gain(0.5, 0.01))]), "");
        let slow = why(&[(Device::Ssd, gain(0.02, 0.01)), (Device::Nvm, gain(0.5, 0.01))]);
        assert!(
            slow.starts_with("Faster in every repeat on SSD, but by less than 5 %. On SSD a lookup"),
            "{slow}"
        );
        assert!(slow.contains("spares 4 %") && !slow.contains("NVM"), "{slow}");
        let fast = why(&[(Device::Ssd, gain(0.1, 0.01)), (Device::Memory, gain(0.1, 0.2))]);
        assert!(
            fast.starts_with("Not surely faster on memory: not in every repeat. On memory a read"),
            "{fast}"
        );
        assert!(why(&[(Device::Spdk, gain(-0.2, 0.1))]).starts_with("Slower in every repeat on SPDK."));
    }
}
