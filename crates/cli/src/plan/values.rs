//! `--value-bytes`: a design with all values in value files, compared with values in tables.
//!
//! The costs are those of the tree of keys and references, with the values added
//! ([`shamba_model::values`]).
//!
//! Not here: how long values must be ([`shamba_model::values::ValueTraffic`]), which the engine
//! decides from what it observes.

use clap::Args;
use serde_json::{Value, json};
use shamba_model::cost::{Costs, Plan, Situation};
use shamba_model::values::ValueFilePlan;

use super::options::{not_negative, parse_bytes};
use super::report::{self, digits};
use crate::exit::Failure;
use crate::json;
use crate::output::{Out, Table};
use crate::sizes::show_ns;

/// One of the costs.
type CostOf = fn(&Costs) -> f64;

/// Default space of value files, as of the engine.
const VALUE_SPACE: f64 = 1.25;

/// The options.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Value files")]
pub struct ValueOptions {
    /// v, length of a value, included in --entry-bytes; also prints the costs with all values in
    /// value files
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, conflicts_with = "rocksdb")]
    value_bytes: Option<f64>,
    /// Maximum space of value files and tables, as a multiple of the live data (default: 1.25)
    #[arg(long, value_name = "RATIO", requires = "value_bytes")]
    value_space: Option<f64>,
    /// Share of the updates that overwrite, so that values become garbage (default: 1)
    #[arg(long, value_name = "SHARE", requires = "value_bytes")]
    overwritten: Option<f64>,
}

impl ValueOptions {
    /// The values; `None` where none are given. `bounds`: options that conflict with --value-bytes,
    /// and whether each is given.
    ///
    /// # Errors
    /// A number that is out of bounds, or one of these options.
    pub fn values(&self, bounds: &[(&str, bool)]) -> Result<Option<ValueFilePlan>, Failure> {
        let Some(value_bytes) = self.value_bytes else { return Ok(None) };
        if let Some((option, _)) = bounds.iter().find(|(_, is_given)| *is_given) {
            return Err(Failure::Usage(format!(
                "conflict: --value-bytes compares two trees, and {option} is for one of them"
            )));
        }
        let overwritten_share = not_negative("--overwritten", self.overwritten.unwrap_or(1.0))?;
        let space = not_negative("--value-space", self.value_space.unwrap_or(VALUE_SPACE))?;
        Ok(Some(ValueFilePlan { value_bytes, space, overwritten_share }))
    }
}

/// A design with values in value files.
pub struct Separated {
    values: ValueFilePlan,
    plan: Plan,
    costs: Costs,
}

impl Separated {
    /// The costs with `values`; `of_keys` gives design and costs of the tree of keys.
    ///
    /// # Errors
    /// Numbers out of bounds, or no design.
    pub fn new(
        values: ValueFilePlan,
        situation: &Situation,
        of_keys: impl FnOnce(&Situation) -> Result<(Plan, Costs), Failure>,
    ) -> Result<Self, Failure> {
        let data = values.in_tables(&situation.data).map_err(Failure::Usage)?;
        let (plan, costs) = of_keys(&Situation { data, ..*situation })?;
        let costs = costs.with_values(situation, &values).map_err(Failure::Usage)?;
        Ok(Self { values, plan, costs })
    }

    /// The costs as JSON fields, with those of the plan.
    pub fn to_json(&self, situation: &Situation, in_tables: &Costs) -> Value {
        let head = json!({
            "value_bytes": self.values.value_bytes,
            "value_space": self.values.space,
            "overwritten_share": self.values.overwritten_share,
            "times_the_cost": self.costs.times_the_cost_of(in_tables),
        });
        json::with(head, report::plan_json(situation, &self.plan, &self.costs))
    }

    /// Prints both costs.
    ///
    /// # Errors
    /// Failures of standard output.
    pub fn print(&self, situation: &Situation, in_tables: &Costs, out: &mut Out) -> Result<(), Failure> {
        let Self { values, plan, costs } = self;
        out.heading(&format!("values of {} in value files", report::show_bytes(values.value_bytes)))?;
        out.line(format!("design    {}", report::plan_text(situation, plan, costs)))?;
        let mut table = Table::new(["", "in tables", "in value files"]);
        let times: [(&str, CostOf); 5] = [
            ("empty lookup", |costs| costs.empty_lookup_ns),
            ("found lookup", |costs| costs.found_lookup_ns),
            ("update", |costs| costs.update_ns),
            ("range", |costs| costs.range_ns),
            ("operation of the workload", |costs| costs.cost_ns_per_op),
        ];
        for (name, of) in times {
            table.row([name, &show_ns(of(in_tables)), &show_ns(of(costs))]);
        }
        let ratios: [(&str, CostOf); 2] = [
            ("write amplification", |costs| costs.write_amplification),
            ("space amplification (worst case)", |costs| costs.space_amplification),
        ];
        for (name, of) in ratios {
            table.row([name, &digits(of(in_tables)), &digits(of(costs))]);
        }
        out.text(table.to_string())?;
        let times = costs.times_the_cost_of(in_tables);
        let verdict = if times < 1.0 { "value files pay" } else { "value files do not pay" };
        let times = digits(times);
        out.line(format!("{verdict}: an operation takes {times} times as long as with values in tables"))
    }
}
