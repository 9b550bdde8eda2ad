//! Names that declarations of experiments use.

pub(crate) use crate::chart::Style;
pub(crate) use crate::device::Device;
pub(crate) use crate::experiment::Experiment;
pub(crate) use crate::lab::Lab;
pub(crate) use crate::lookups::Questions;
pub(crate) use crate::paper::{Kind, Method, Paper};
pub(crate) use crate::picture::{Column, Panel};
pub(crate) use crate::rows::{Row, Rows, View, last_over_first, reaches, row, slope};
pub(crate) use crate::scale::{Parameter, Scale};
pub(crate) use crate::verdict::Bound::{AtLeast, AtMost, Within};
pub(crate) use crate::verdict::Predicate;
pub(crate) use crate::verdict::Unit::{Plain, Ratio, Saved, Share};
