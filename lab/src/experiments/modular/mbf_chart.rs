//! Table and chart of the two slides on what an empty query reads of a modular filter.

use crate::chart::{Axis, Chart, Panel, Point, Series, Style};

use super::mbf::Reach;
use crate::lookups::Spread;
use crate::table::row;
use crate::{Experiment, Table};

/// What is told of each layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reached {
    Modules,
    Bytes,
}

impl Reached {
    fn of(self, reach: &Reach) -> (Spread, f64) {
        match self {
            Self::Modules => (reach.modules, reach.model.0),
            Self::Bytes => (reach.bytes, reach.model.1),
        }
    }
}

pub(super) fn table(all: &[Reach]) -> Table {
    let mut table = Table::new(&[
        "modules",
        "layout",
        "modules_asked",
        "modules_asked_least",
        "modules_asked_most",
        "modules_asked_model",
        "bytes_share",
        "bytes_share_least",
        "bytes_share_most",
        "bytes_share_model",
        "fpr",
    ]);
    for reach in all {
        let (modules, bytes) = (reach.modules, reach.bytes);
        table.row(row![
            reach.name.clone(),
            reach.layout.to_option(),
            modules.median,
            modules.least,
            modules.most,
            reach.model.0,
            bytes.median,
            bytes.least,
            bytes.most,
            reach.model.1,
            reach.fpr.median,
        ]);
    }
    table
}

pub(super) fn chart(experiment: &Experiment, all: &[Reach], kind: Reached) -> Chart {
    let (label, times) = match kind {
        Reached::Modules => ("modules asked by an empty query", 1.0),
        Reached::Bytes => ("bytes of the modules asked [% of the filter]", 100.0),
    };
    let measured = (0u32..).zip(all).map(|(at, reach)| {
        let Spread { median, least, most } = kind.of(reach).0;
        Point::between(f64::from(at), times * median, times * least, times * most)
    });
    let model = (0u32..).zip(all).map(|(at, reach)| Point::new(f64::from(at), times * kind.of(reach).1));
    Chart {
        title: match kind {
            Reached::Modules => "How many modules an empty query asks".to_owned(),
            Reached::Bytes => "How much of a filter an empty query needs".to_owned(),
        },
        claim: experiment.claim.to_owned(),
        note: "10 bits per key over all modules, of equal size; 2 prop: 3 of 10 bits in the first. Model: modules that fail independently, at their measured rates."
            .to_owned(),
        panels: vec![Panel {
            title: String::new(),
            x: Axis::categories("modules", all.iter().map(|reach| reach.name.clone())),
            y: Axis::from_zero(label),
            series: vec![
                Series::new("measured", Style::Bars, measured.collect()),
                Series::new("model", Style::Markers, model.collect()),
            ],
        }],
    }
}
